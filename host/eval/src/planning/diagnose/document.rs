//! What `blis diagnose` finds.

use blis_report::{Concludes, Conclusion, ConclusionKind};
use serde::Serialize;

use super::super::variation::VariedSetting;
use super::cause::Cause;

/// What `blis diagnose` prints with `--output json`; docs/planning.md defines it.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// What binds, in a sentence of at most 160 characters.
    #[serde(skip)]
    pub sentence: String,
    /// The cause that binds.
    pub cause: Cause,
    /// Whether the knob that is ranked first relieves this cause.
    pub confirmed: bool,
    /// Whether SLOs are set and all of them are met: then the cause is the one that would bind first.
    pub meets_slos: bool,
    /// Whether more requests arrive than are served.
    pub overloaded: bool,
    /// The figure that matters: that of the worst violated SLO, as `ttft_p95`; without SLOs `ttft_p95` or `e2e_mean`, the one in which
    /// more of the time is lost; `lost_share` if deadlines cannot be met.
    pub figure: String,
    /// Its value, the median over the seeds; requests that do not complete count as the largest latency. `null` of a share.
    pub figure_ms: Option<f64>,
    /// The share of the requests that do not complete. Unit: share, 0 to 1.
    pub lost_share: f64,
    /// The limit of its SLO; `null` without one.
    pub limit_ms: Option<f64>,
    /// The value of the figure if each request of the first seed is alone; `null` of a share.
    pub alone_ms: Option<f64>,
    /// The SLOs of the service, in the order of the flag.
    pub slo: Vec<CheckedSlo>,
    /// The requests with the time that is divided: those that violate the worst SLO, or all. Unit: requests.
    pub requests: u64,
    /// Their time, as far as the figure has it: up to the first token, from there on, or all.
    pub time_s: f64,
    /// The time by cause, largest share first.
    pub causes: Vec<CauseShare>,
    /// Number of preemptions. Unit: preemptions.
    pub preemptions: u64,
    /// Tokens that were computed again after preemptions.
    pub recomputed_tokens: u64,
    /// Prompt tokens that the service had computed before, and an instance computed again.
    pub cold_tokens: u64,
    /// GPUs of the service; with an autoscaler those held on average. Unit: GPUs.
    pub gpus: f64,
    /// Those that were tried, the best first; then those that the deployment refuses.
    pub knobs: Vec<TriedKnob>,
    /// The seeds of the runs; the first one has the time by cause. Unit: seeds.
    pub seeds: Vec<u64>,
    /// Level of the intervals. Unit: share, 0 to 1.
    pub confidence: f64,
    /// What limits the diagnosis.
    pub notes: Vec<String>,
}

impl Concludes for Diagnosis {
    fn conclusion(&self) -> Conclusion {
        let kind = if self.overloaded { ConclusionKind::OVERLOADED } else { ConclusionKind::Measured };
        Conclusion::new(kind, self.sentence.clone())
    }
}

/// An SLO of the service.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedSlo {
    /// The SLO as it is written.
    pub slo: String,
    /// The value of its figure, the median over the seeds; `null` if too many requests do not complete.
    pub value_ms: Option<f64>,
    /// The value if each request is alone; `null` without one.
    pub alone_ms: Option<f64>,
    /// Whether it is met.
    pub meets: bool,
    /// Whether its limit is below the time of requests that are alone: no load meets it.
    pub infeasible: bool,
}

/// A cause and its part of the time.
#[derive(Clone, Debug, Serialize)]
pub struct CauseShare {
    /// The cause of this part.
    pub cause: Cause,
    /// What a request does meanwhile.
    pub text: &'static str,
    /// Part of the time; all together are 1. Unit: share, 0 to 1.
    pub share: f64,
    /// Mean over the requests.
    pub mean_ms: f64,
}

/// A changed service under the same requests.
#[derive(Clone, Debug, Serialize)]
pub struct TriedKnob {
    /// The name of the knob.
    pub knob: &'static str,
    /// What it changes, in words.
    pub text: &'static str,
    /// The settings that it changes.
    pub settings: Vec<VariedSetting>,
    /// The causes that it relieves.
    pub relieves: Vec<Cause>,
    /// Whether the figure falls, rises, or neither; or why there is no figure.
    pub result: KnobResult,
    /// Why the service cannot have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Relative change of the figure; `null` if it is refused. Unit: percent.
    pub change_percent: Option<f64>,
    /// Lower limit of the change; `null` without an interval. Unit: percent.
    pub low_percent: Option<f64>,
    /// Upper limit of the change; `null` without an interval. Unit: percent.
    pub high_percent: Option<f64>,
    /// The value of the figure, the median over the seeds; `null` if it is refused, or the figure is a share.
    pub figure_ms: Option<f64>,
    /// GPUs of the changed service; `null` if it is refused. Unit: GPUs.
    pub gpus: Option<f64>,
    /// What it serves less; absent if it serves the same requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves_less: Option<&'static str>,
}

/// What a knob does to the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KnobResult {
    /// The figure falls, as far as the runs show.
    Better,
    /// The interval contains 0.
    Undecided,
    /// The figure rises, as far as the runs show.
    Worse,
    /// The deployment cannot have it.
    Refused,
}
