//! Options of an evaluation: all inputs other than the candidate and the suite, and the identity of the program.

use std::time::Duration;

use crate::cascade::StagePlan;
use crate::result::{EvaluationResult, EvaluationStatus};
use crate::result_figures::Traits;
use crate::suite::Split;

/// Most bytes of feedback about a candidate.
pub const MOST_FEEDBACK_BYTES: usize = 16 << 20;

/// Time that a worker gets beyond the wall limit, which it observes itself.
pub(super) const GRACE: Duration = Duration::from_millis(400);

/// Options of an evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationOptions {
    pub until: Split,
    pub epoch: u64,
    /// Seeds of each scenario of train that run, the first ones; `None` for all.
    pub train_seeds: Option<usize>,
    pub wall: Duration,
    pub feedback_bytes: usize,
    /// Decisions of each kind, drawn at random, of which the feedback finds patterns; 0 for none.
    pub patterns: u32,
    /// Decisions of each kind and scenario, drawn at random, of which the costs of the alternatives are given; 0 for none.
    pub decisions: u32,
    /// Whether the runs use all threads of the current pool; if not, they run one after the other.
    pub parallel: bool,
    /// Runs this stage only, instead of the cascade.
    pub only: Option<StagePlan>,
    /// Parameters of the candidate that differ from its defaults.
    pub parameters: Vec<(String, f64)>,
    pub native: NativeCode,
}

/// Limits of [`EvaluationOptions::patterns`] and [`EvaluationOptions::decisions`], unless they are 0.
const SAMPLED_DECISIONS: std::ops::RangeInclusive<u32> = 16..=10_000;

/// `decisions` of each kind for what is called `name`, if that is a number that can be.
///
/// # Errors
/// If it is too small for a rule, or too large.
pub fn checked_sample(name: &str, decisions: u32) -> Result<u32, String> {
    let (least, most) = (SAMPLED_DECISIONS.start(), SAMPLED_DECISIONS.end());
    match decisions {
        0 => Ok(0),
        some if SAMPLED_DECISIONS.contains(&some) => Ok(some),
        other => Err(format!("`{name}` is {other} decisions; it must be 0 for none, or from {least} to {most}")),
    }
}

/// Where native code may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeCode {
    /// Native code is refused.
    #[default]
    Refused,
    /// Native code runs in a child process, which is killed at the wall limit.
    InChild,
    /// This is that child process.
    Here,
}

/// Identity of the program and the platform: all that a result depends on besides the input files.
pub fn host() -> String {
    let (version, build) = (env!("CARGO_PKG_VERSION"), crate::BUILD);
    format!("blis {version}+{build} {}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The result of an evaluation that reached its wall limit.
pub fn late_result(traits: Traits) -> EvaluationResult {
    let message = "the evaluation reached its wall limit".to_owned();
    EvaluationResult { depends_on_clock: true, ..EvaluationResult::invalid(EvaluationStatus::Limit, message, traits) }
}

/// The result of an evaluation that was cancelled before it ended.
pub fn cancelled_result(traits: Traits) -> EvaluationResult {
    let message = "the request was cancelled; the candidate was not evaluated".to_owned();
    EvaluationResult {
        depends_on_clock: true,
        stopped: Some("cancelled".to_owned()),
        ..EvaluationResult::invalid(EvaluationStatus::HostError, message, traits)
    }
}
