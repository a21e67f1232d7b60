//! The figures of an evaluation result. Their fields stand in the order of the alphabet, which hashes of results have.

use serde::{Deserialize, Serialize};

use crate::cascade::{CascadeResult, ScoredRun};
use crate::figures::{Figure, Figures};
use crate::suite::Split;

/// Figures of the last stage that is shown to a search (smoke or train), mean over runs, 0 without a sample; and scores
/// of the stages. The same keys in every document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationMetrics {
    /// Prefix-cache hits, of the tokens looked up. Unit: share.
    pub cache_hit_rate: f64,
    /// Completed requests, of those that arrived. Unit: share.
    pub completed_share: f64,
    /// High end of the interval; 0 without one. Unit: score.
    pub diff_high: f64,
    /// Low end of the interval; 0 without one. Unit: score.
    pub diff_low: f64,
    /// As in `paired`; 0 without one. Unit: score.
    pub diff_mean: f64,
    /// End-to-end latency, mean over requests.
    pub mean_e2e_ms: f64,
    /// Inter-token latency, mean over gaps.
    pub mean_itl_ms: f64,
    /// Time to first token, mean over requests.
    pub mean_ttft_ms: f64,
    /// End-to-end latency, 99th percentile.
    pub p99_e2e_ms: f64,
    /// Time to first token, 99th percentile.
    pub p99_ttft_ms: f64,
    /// Preemptions per completed request. Unit: per request.
    pub preemptions_per_request: f64,
    /// Rejected requests, of those that arrived. Unit: share.
    pub rejected_share: f64,
    /// Runs of the candidate. Unit: runs.
    pub runs: f64,
    /// Requests that met every SLO target, of those that arrived with one. Unit: share.
    pub slo_attainment: f64,
    /// Score in smoke, 1 is as good as the reference; 0 if it did not run. Unit: score.
    pub smoke_score: f64,
    /// Completed requests per simulated second.
    pub throughput_rps: f64,
    /// Requests that timed out, of those that arrived. Unit: share.
    pub timed_out_share: f64,
    /// Score in train, likewise. Unit: score.
    pub train_score: f64,
}

impl EvaluationMetrics {
    pub(crate) fn new(cascade: &CascadeResult) -> Self {
        let score = |split| cascade.stage(split).map_or(0.0, |stage| stage.score);
        let difference = cascade.last().map(|stage| stage.against_reference);
        let interval = difference.and_then(|difference| difference.interval);
        let mean = |figure| {
            let runs = cascade.last().into_iter().flat_map(|stage| &stage.runs);
            let values: Vec<f64> = runs.filter_map(|one| one.summary.figures().get(figure)).collect();
            values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64
        };
        Self {
            cache_hit_rate: mean(Figure::CacheHitRate),
            completed_share: mean(Figure::CompletedShare),
            diff_high: interval.map_or(0.0, |interval| interval.high.exp_m1()),
            diff_low: interval.map_or(0.0, |interval| interval.low.exp_m1()),
            diff_mean: difference.map_or(0.0, |difference| difference.mean.exp_m1()),
            mean_e2e_ms: mean(Figure::MeanE2e),
            mean_itl_ms: mean(Figure::MeanItl),
            mean_ttft_ms: mean(Figure::MeanTtft),
            p99_e2e_ms: mean(Figure::P99E2e),
            p99_ttft_ms: mean(Figure::P99Ttft),
            preemptions_per_request: mean(Figure::Preemptions),
            rejected_share: mean(Figure::RejectedShare),
            runs: cascade.stages.iter().map(|stage| stage.runs.len()).sum::<usize>() as f64,
            slo_attainment: mean(Figure::SloAttainment),
            smoke_score: score(Split::Smoke),
            throughput_rps: mean(Figure::Throughput),
            timed_out_share: mean(Figure::TimedOutShare),
            train_score: score(Split::Train),
        }
    }
}

/// Figures of a run; those without a sample are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServedFigures {
    /// Prefix-cache hits, of the tokens looked up. Unit: share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit_rate: Option<f64>,
    /// Completed requests, of those that arrived. Unit: share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_share: Option<f64>,
    /// End-to-end latency, mean over requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_e2e_ms: Option<f64>,
    /// Inter-token latency, mean over gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_itl_ms: Option<f64>,
    /// Time to first token, mean over requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ttft_ms: Option<f64>,
    /// End-to-end latency, 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_e2e_ms: Option<f64>,
    /// Time to first token, 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ttft_ms: Option<f64>,
    /// Preemptions per completed request. Unit: per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptions_per_request: Option<f64>,
    /// Rejected requests, of those that arrived. Unit: share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_share: Option<f64>,
    /// Requests that met every SLO target, of those that arrived with one. Unit: share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_attainment: Option<f64>,
    /// Completed requests per simulated second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_rps: Option<f64>,
    /// Requests that timed out, of those that arrived. Unit: share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_out_share: Option<f64>,
}

impl ServedFigures {
    pub(crate) fn new(figures: &Figures) -> Self {
        Self {
            cache_hit_rate: figures.get(Figure::CacheHitRate),
            completed_share: figures.get(Figure::CompletedShare),
            mean_e2e_ms: figures.get(Figure::MeanE2e),
            mean_itl_ms: figures.get(Figure::MeanItl),
            mean_ttft_ms: figures.get(Figure::MeanTtft),
            p99_e2e_ms: figures.get(Figure::P99E2e),
            p99_ttft_ms: figures.get(Figure::P99Ttft),
            preemptions_per_request: figures.get(Figure::Preemptions),
            rejected_share: figures.get(Figure::RejectedShare),
            slo_attainment: figures.get(Figure::SloAttainment),
            throughput_rps: figures.get(Figure::Throughput),
            timed_out_share: figures.get(Figure::TimedOutShare),
        }
    }
}

/// Properties of the source and of its behaviour, for maps of different solutions. The same keys in every document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationFeatures {
    /// Numeric constants in its code. Unit: constants.
    pub constants: f64,
    /// Different signals that it reads. Unit: signals.
    pub distinct_signals_read: f64,
    /// Coefficient of variation of the number of requests per instance; mean over runs. Unit: ratio.
    pub imbalance: f64,
    /// Fuel or operations per decision. Unit: operations.
    pub ops_per_decision: f64,
    /// Rejected requests, of those that arrived; mean over runs. Unit: share.
    pub shed_frac: f64,
    /// Lines with code; 0 without a source. Unit: lines.
    pub source_lines: f64,
}

impl EvaluationFeatures {
    pub(crate) fn new(cascade: &CascadeResult, traits: Traits) -> Self {
        let runs: Vec<&ScoredRun> = cascade.stages.iter().flat_map(|stage| &stage.runs).collect();
        // `sum` of an empty iterator of floats is −0.
        let mean =
            |of: &dyn Fn(&ScoredRun) -> f64| runs.iter().fold(0.0, |sum, one| sum + of(one)) / runs.len().max(1) as f64;
        let decisions: u64 = runs.iter().map(|one| one.summary.decisions).sum();
        let operations: u64 = runs.iter().map(|one| one.summary.operations).sum();
        Self {
            constants: traits.constants as f64,
            distinct_signals_read: traits.signals as f64,
            imbalance: mean(&|one| one.summary.imbalance),
            ops_per_decision: operations as f64 / decisions.max(1) as f64,
            shed_frac: mean(&|one| one.summary.figures().get(Figure::RejectedShare).unwrap_or(0.0)),
            source_lines: traits.source_lines as f64,
        }
    }
}

/// Properties of the source of a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traits {
    /// Lines with code; 0 for candidates without a source.
    pub source_lines: usize,
    /// Number of different signals that it reads.
    pub signals: usize,
    /// Number of numeric constants in its code.
    pub constants: usize,
}
