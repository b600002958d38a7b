//! What the validation layer says.

use std::sync::{Arc, Mutex, PoisonError};

use vulkano::instance::Instance;
use vulkano::instance::debug::{
    DebugUtilsMessageSeverity, DebugUtilsMessageType, DebugUtilsMessenger, DebugUtilsMessengerCallback,
    DebugUtilsMessengerCreateInfo,
};

use super::Fault;

/// Warnings and errors of the validation layer since they were last asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    /// Where the layer puts its messages. Remarks on speed are none of them.
    pub(super) fn messenger(&self) -> DebugUtilsMessengerCreateInfo {
        let sink = Arc::clone(&self.0);
        // SAFETY: the function makes no call to Vulkan.
        let callback = unsafe {
            DebugUtilsMessengerCallback::new(move |_severity, _type, data| {
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(data.message.to_owned());
            })
        };
        DebugUtilsMessengerCreateInfo {
            message_severity: DebugUtilsMessageSeverity::ERROR | DebugUtilsMessageSeverity::WARNING,
            message_type: DebugUtilsMessageType::VALIDATION,
            ..DebugUtilsMessengerCreateInfo::user_callback(callback)
        }
    }

    /// Takes the messages of an instance from now on, as long as the result lives.
    pub(super) fn listen(&self, instance: &Arc<Instance>) -> Result<DebugUtilsMessenger, Fault> {
        DebugUtilsMessenger::new(Arc::clone(instance), self.messenger())
            .map_err(Fault::checked("vkCreateDebugUtilsMessengerEXT"))
    }

    /// An error if there was any message; they are gone afterwards.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let told = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        match told.first() {
            None => Ok(()),
            Some(first) => Err(Fault::Validation { count: told.len(), first: first.clone() }),
        }
    }
}
