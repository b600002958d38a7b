//! Behaviours that say something untrue about themselves.

use modelbench_contract::{Cap, Class, DeviceKind, Identity};

use crate::twist::Twist;

/// Advertises `UploadDtype` and keeps the f32 values.
#[derive(Debug)]
pub(crate) struct AboutUploadDtype;

impl Twist for AboutUploadDtype {
    fn narrows(&self) -> bool {
        false
    }
}

/// Advertises a cap that it does not have: `DeviceMemory` while `host` gives views, `Collective` without collectives.
#[derive(Debug)]
pub(crate) struct AboutCap(pub(crate) Cap);

impl Twist for AboutCap {
    fn identity(&self, identity: &mut Identity, _calls: u64) {
        identity.caps.insert(self.0);
    }
}

/// Claims bit-equality with cpu-ref.
#[derive(Debug)]
pub(crate) struct AboutClass;

impl Twist for AboutClass {
    fn identity(&self, identity: &mut Identity, _calls: u64) {
        identity.class = Class::Reference;
    }
}

/// Claims to be a discrete accelerator while the CPU does the work.
#[derive(Debug)]
pub(crate) struct AboutDevice;

impl Twist for AboutDevice {
    fn identity(&self, identity: &mut Identity, _calls: u64) {
        identity.device.kind = DeviceKind::Discrete;
        identity.device.hardware = "self-test accelerator".to_owned();
    }
}

/// Another tier and another cap after twenty calls.
#[derive(Debug)]
pub(crate) struct ChangingIdentity;

/// Calls after which the identity changes.
pub(crate) const CALLS_BEFORE_CHANGE: u64 = 20;

impl Twist for ChangingIdentity {
    fn identity(&self, identity: &mut Identity, calls: u64) {
        if calls > CALLS_BEFORE_CHANGE {
            identity.tier = "avx512".to_owned();
            identity.caps.insert(Cap::Async);
        }
    }
}
