//! `modelbench selftest`: the mutation score.

use std::io::Write;

use modelbench_zoo::{Behaviour, Mock};
use serde_json::json;

use super::args::SelftestArgs;
use super::failure::Failure;
use super::{exit, load};
use crate::selftest::{self, Bench, Killers, SelftestError, Trial};
use crate::suite;

/// The set that the zoo is tried on.
const SET: &str = "full";
/// The set that allowed variations must survive.
const SHORT: &str = "smoke";

pub(super) fn run(args: &SelftestArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let behaviours = chosen(args.only.as_deref())?;
    let wanted = args.killers.as_deref().map(Killers::read).transpose()?;
    let suites = load::suites(args.suites.as_deref())?;
    let set = suites.set(SET)?;
    let order = selftest::mixed(&set.cases);
    let short = suites.set(SHORT)?.cases.into_iter().map(|case| case.id).collect();
    let bench = Bench {
        set: &set,
        order,
        short,
        suite_digest: suites.digest.clone(),
        suite_is_kit: suites.is_kit(),
        seed: args.seed,
    };
    let jobs = match args.jobs {
        Some(jobs) => usize::from(jobs),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let trials = selftest::run(&behaviours, &bench, jobs, |trial| {
        if args.json { Ok(()) } else { line(trial, bench.order.len(), out).map_err(Stop::Print) }
    })
    .map_err(Stop::into_failure)?;
    let found = Killers::of(&trials, args.seed);
    let whole = args.only.is_none();
    let differences = wanted.map_or_else(Vec::new, |wanted| wanted.differences(&found, whole));
    if let Some(path) = &args.write {
        found.write(path)?;
    }
    let score = Score::of(&trials);
    let good = trials.iter().all(Trial::as_it_must) && differences.is_empty();
    let code = if good { exit::OK } else { exit::FAILED };
    if args.json {
        writeln!(out, "{}", object(args, &trials, &score, &differences, code))?;
    } else {
        for difference in &differences {
            writeln!(out, "killers    {difference}")?;
        }
        writeln!(out, "{score}")?;
        if !good {
            writeln!(out, "exit       {code}")?;
        }
    }
    Ok(code)
}

/// What ends the trials early.
enum Stop {
    /// There is no result.
    Selftest(SelftestError),
    /// A line could not be printed.
    Print(std::io::Error),
}

impl From<SelftestError> for Stop {
    fn from(error: SelftestError) -> Stop {
        Stop::Selftest(error)
    }
}

impl Stop {
    /// A kit that cannot try its zoo has no evidence about itself.
    fn into_failure(self) -> Failure {
        match self {
            Stop::Selftest(error) => Failure::new(exit::NOTHING, error),
            Stop::Print(error) => error.into(),
        }
    }
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Behaviour>, Failure> {
    let Some(pattern) = only else { return Ok(Mock::BEHAVIOURS.iter().collect()) };
    let glob = suite::glob(pattern)?;
    let chosen: Vec<_> = Mock::BEHAVIOURS.iter().filter(|b| glob.is_match(b.name)).collect();
    if chosen.is_empty() {
        let known: Vec<&str> = Mock::BEHAVIOURS.iter().map(|b| b.name).collect();
        let text = format!("no behaviour of the zoo matches {pattern:?}; there are: {}", known.join(", "));
        return Err(Failure::message(exit::USAGE, text));
    }
    Ok(chosen)
}

fn line(trial: &Trial, all: usize, out: &mut impl Write) -> std::io::Result<()> {
    let fate = match (trial.behaviour.allowed, trial.killers.is_empty()) {
        (true, true) => "survives",
        (true, false) => "REJECTED",
        (false, true) => "ALIVE",
        (false, false) => "killed",
    };
    let by: Vec<String> = trial.killers.iter().map(|k| format!("{} ({})", k.by, k.how)).collect();
    let why = match (trial.behaviour.allowed, by.len()) {
        (true, 0) => format!("allowed, by all {} cases that it met, gate and label", trial.cases),
        (true, _) => format!("although it is allowed, by {}", by.join(", ")),
        (false, 0) => format!("none of {all} cases, gate and label reject it: {}", trial.behaviour.about),
        (false, 1) => format!("by {}, one killer only: nothing else of {all} cases, gate and label", by[0]),
        (false, _) => format!("by {}", by.join(", ")),
    };
    writeln!(out, "{:<26} {fate:<8} {:>5} cases  {why}", trial.behaviour.name, trial.cases)
}

/// How many were to be caught, and how many were.
struct Score {
    killed: usize,
    mutants: usize,
    survived: usize,
    allowed: usize,
}

impl Score {
    fn of(trials: &[Trial]) -> Score {
        let count = |allowed: bool, right: bool| {
            let counts = |t: &&Trial| t.behaviour.allowed == allowed && (!right || t.as_it_must());
            trials.iter().filter(counts).count()
        };
        Score {
            killed: count(false, true),
            mutants: count(false, false),
            survived: count(true, true),
            allowed: count(true, false),
        }
    }

    /// Share of the mutants that were killed, in percent; `None` if there were none. Rounded down to a tenth, so that
    /// 100.0 means all.
    fn percent(&self) -> Option<f64> {
        (self.mutants > 0).then(|| (self.killed * 1000 / self.mutants) as f64 / 10.0)
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Score { killed, mutants, survived, allowed } = self;
        match self.percent() {
            Some(percent) => write!(f, "mutation score {percent:.1} % ({killed} of {mutants} killed")?,
            None => write!(f, "no mutant was tried (0 of 0 killed")?,
        }
        write!(f, ", {survived} of {allowed} allowed survive)")
    }
}

fn object(
    args: &SelftestArgs,
    trials: &[Trial],
    score: &Score,
    differences: &[String],
    code: u8,
) -> serde_json::Value {
    let trials: Vec<_> = trials
        .iter()
        .map(|trial| {
            let killers: Vec<_> = trial.killers.iter().map(|k| json!({ "by": k.by, "how": k.how })).collect();
            json!({
                "name": trial.behaviour.name, "kind": trial.behaviour.kind.as_str(),
                "about": trial.behaviour.about, "allowed": trial.behaviour.allowed,
                "as_it_must": trial.as_it_must(), "killers": killers, "cases": trial.cases,
            })
        })
        .collect();
    json!({
        "set": SET, "seed": format!("{:#x}", args.seed), "score_percent": score.percent(),
        "killed": score.killed, "mutants": score.mutants, "survived": score.survived,
        "allowed": score.allowed, "differences": differences, "behaviours": trials, "exit": code,
    })
}
