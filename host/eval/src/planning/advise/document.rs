//! The document of a recommendation.

use blis_report::{Concludes, Conclusion, ConclusionKind};
use serde::Serialize;

use crate::planning::model_error::ModelRisk;

use crate::planning::LoadUnit;
use crate::planning::size::{SizeCheck, SizeResult};
use crate::planning::slo::Slo;
use crate::planning::variation::VariedSetting;

/// What `blis advise` prints with `--output json`; docs/planning.md defines it.
#[derive(Clone, Debug, Serialize)]
pub struct DeploymentAdvice {
    /// What follows, in a sentence.
    #[serde(skip)]
    pub sentence: String,
    /// The SLOs, as they were set.
    pub slo: Vec<Slo>,
    /// The load that is served. Unit: as `unit`.
    pub load: f64,
    /// Unit of the load.
    pub unit: LoadUnit,
    /// What the cheapest is cheapest in: `usd_per_hour` with a price list, else `gpus`.
    pub objective: String,
    /// The most that a deployment may cost, in words; empty without a limit.
    pub budget: String,
    /// The deployments that hold, the cheapest first: the best of each kind of GPU, parallel size and format; all with `--all`.
    pub deployments: Vec<AdvisedDeployment>,
    /// Further deployments that hold. Unit: deployments.
    pub others: u64,
    /// If none holds: the one that comes closest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearMiss>,
    /// What would change the choice.
    pub changes: Vec<String>,
    /// Different combinations of the values of all axes, without numbers of replicas. Unit: designs.
    pub space: u64,
    /// Designs that are no choice, by reason.
    pub left_out: Vec<CutCount>,
    /// Deployments that were simulated: designs with a number of replicas each. Unit: deployments.
    pub simulated: u64,
    /// Simulations of the search and of the checks, those at critical loads left out. Unit: runs.
    pub runs: u64,
    /// Level of the intervals that decide. Unit: share.
    pub confidence: f64,
    /// Seeds of the search. Unit: number.
    pub seeds: Vec<u64>,
    /// Seeds of the checks, which the search did not use; none for a trace. Unit: number.
    pub unseen_seeds: Vec<u64>,
    /// Requests of each run; `null` in a closed loop of fixed length. Unit: requests.
    pub requests_per_run: Option<u64>,
    /// Part of the draws of the model's error that may fail. Unit: share, 0 to 1.
    pub risk: f64,
    /// What to know about the figures.
    pub notes: Vec<String>,
}

/// A deployment that holds.
#[derive(Clone, Debug, Serialize)]
pub struct AdvisedDeployment {
    /// 1 for the choice. Unit: number.
    pub rank: u64,
    /// In words.
    pub deployment: String,
    /// The settings that differ from those of the command line; numbers of instances by role are those of one each.
    pub settings: Vec<VariedSetting>,
    /// The GPU.
    pub hardware: String,
    /// All replicas. Unit: replicas, 1 or more.
    pub replicas: u32,
    /// Replicas that prefill only; 0 without roles. Unit: replicas.
    pub prefill_replicas: u32,
    /// GPUs of a replica. Unit: GPUs, 1 or more.
    pub gpus_per_replica: u32,
    /// GPUs of all replicas. Unit: GPUs, 1 or more.
    pub gpus: u64,
    /// Price of all GPUs; absent without a price list. Unit: $/h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<f64>,
    /// Whether it was searched with all seeds. Otherwise its number of replicas is that of one seed, and further figures are absent.
    pub searched: bool,
    /// By SLO: the figure, median over the seeds of the search; `null` without a finite one.
    pub values_ms: Vec<Option<f64>>,
    /// The least of the shares of the limits that the figures leave. Unit: share.
    pub slack: f64,
    /// Under the unseen seeds if there are any, with those of the search where they cannot decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<SizeCheck>,
    /// One replica fewer, likewise; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fewer: Option<SizeCheck>,
    /// The highest load that it serves within the SLOs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_room: Option<HeadRoom>,
    /// What the error of the latency model does to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_risk: Option<ModelRisk>,
    /// What else may change.
    pub robustness: Vec<Robustness>,
    /// Why nothing cheaper, or why it is not the choice.
    pub why_not_cheaper: String,
    /// The command that serves a replica with vLLM.
    pub launch: String,
}

/// How much more load a deployment serves within the SLOs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeadRoom {
    /// The load at which the first SLO is missed, as a multiple of the load: geometric mean over the seeds. Unit: factor.
    pub factor: f64,
    /// Lower limit of its interval; `null` with one seed. Unit: factor.
    pub low: Option<f64>,
    /// Upper limit of its interval; `null` with one seed. Unit: factor.
    pub high: Option<f64>,
}

/// A deployment under another load, or with fewer replicas.
#[derive(Clone, Debug, Serialize)]
pub struct Robustness {
    /// What is changed.
    pub change: String,
    /// Whether the SLOs are met then.
    pub result: SizeResult,
    /// Whether more requests arrive than are served.
    pub overloaded: bool,
    /// Requests within all limits, mean over the seeds; `null` without requests. Unit: share.
    pub attainment: Option<f64>,
    /// By SLO: the figure, median over the seeds; `null` without a finite one.
    pub values_ms: Vec<Option<f64>>,
}

/// The deployment that comes closest if none holds.
#[derive(Clone, Debug, Serialize)]
pub struct NearMiss {
    /// In words.
    pub deployment: String,
    /// The settings that differ from those of the command line.
    pub settings: Vec<VariedSetting>,
    /// GPUs of all replicas. Unit: GPUs, 1 or more.
    pub gpus: u64,
    /// Price of all GPUs; absent without a price list. Unit: $/h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<f64>,
    /// By SLO: the figure, median over the seeds; `null` without a finite one.
    pub values_ms: Vec<Option<f64>>,
    /// The figure that is missed most.
    pub binding: String,
    /// Whether more requests arrive than are served.
    pub overloaded: bool,
    /// Whether it misses an SLO even with almost no load.
    pub idle: bool,
}

/// How many designs are no choice for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CutCount {
    /// The reason.
    pub reason: String,
    /// How many. Unit: designs.
    pub designs: u64,
}

impl Concludes for DeploymentAdvice {
    fn conclusion(&self) -> Conclusion {
        let kind = if self.deployments.is_empty() { ConclusionKind::Fails } else { ConclusionKind::Holds };
        Conclusion::new(kind, self.sentence.clone())
    }
}

impl DeploymentAdvice {
    /// The recommended deployment, if one holds.
    #[must_use]
    pub fn choice(&self) -> Option<&AdvisedDeployment> {
        self.deployments.first()
    }
}
