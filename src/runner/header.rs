//! The first line of the record: what is run, by whom, on what.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use modelbench_evidence::record::{FileDigest, Header, RESULTS_SCHEMA, SuiteRef};

use super::models::Subject;
use super::run::{Plan, RunError};
use crate::kit;
use crate::worker::Worker;

pub(super) fn header(plan: &Plan<'_>, worker: &Worker, started: String) -> Result<Header, RunError> {
    let kit = own_binary().map_err(|e| RunError::Kit(format!("this program cannot read itself: {e}")))?;
    let model = plan.knowledge.models.subject().map(Subject::reference);
    let model = model.ok_or_else(|| RunError::Kit("the model under test is in use".into()))?;
    Ok(Header {
        schema: RESULTS_SCHEMA.to_owned(),
        kit_version: kit::VERSION.to_owned(),
        backend_files: vec![kit.clone()],
        kit,
        backend: worker.identity().clone(),
        suite: SuiteRef {
            set: plan.set.name.clone(),
            digest: plan.suite_digest.clone(),
            is_kit: plan.suite_is_kit,
            cases: plan.set.file.cases,
            cases_digest: plan.set.file.digest.clone(),
            full_cases: plan.full_cases,
        },
        model,
        seed: format!("{:#x}", plan.seed),
        mode: plan.mode,
        filter: plan.filter.clone(),
        expected: plan.expected.clone(),
        retries: plan.retries,
        require_non_reference: plan.require_non_reference,
        require_hardware: plan.require_hardware,
        waivers: plan.waivers.clone(),
        challenge: plan.challenge.clone(),
        environment: environment(worker),
        interference: worker.interference().clone(),
        sandbox: worker.sandbox().clone(),
        started,
    })
}

/// Digest of the running file, found out once: it cannot change.
///
/// # Errors
/// If the file cannot be read.
pub fn own_binary() -> std::io::Result<FileDigest> {
    static OWN: OnceLock<FileDigest> = OnceLock::new();
    if let Some(known) = OWN.get() {
        return Ok(known.clone());
    }
    // The running file itself, even if another one has taken its name since.
    let file =
        std::fs::File::open("/proc/self/exe").or_else(|_| std::fs::File::open(std::env::current_exe()?))?;
    let digest = FileDigest::of("modelbench", file)?;
    Ok(OWN.get_or_init(|| digest).clone())
}

fn environment(worker: &Worker) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([
        ("os".to_owned(), std::env::consts::OS.to_owned()),
        ("arch".to_owned(), std::env::consts::ARCH.to_owned()),
    ]);
    let uname = rustix::system::uname();
    facts.insert("kernel".to_owned(), uname.release().to_string_lossy().into_owned());
    if let Ok(cores) = std::thread::available_parallelism() {
        facts.insert("cpus".to_owned(), cores.to_string());
    }
    facts.extend(worker.environment_facts());
    facts
}
