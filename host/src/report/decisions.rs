//! What the decisions of a run came to, in BLIS's terms (`--summarize-trace`).
//!
//! *Score regret* is how far the choice was from the policy's own favourite: the best score minus
//! that of the chosen instance. A policy without scores is measured by minus its effective load.
//! It is 0 by construction for a policy that takes its own best, so it compares policies badly;
//! it is here because BLIS prints it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{self, Write};

use blis_sim::outcome::{Decision, Outcome, Sink};
use blis_sim::policy::{ClusterView, Reads, Reason, Verdict};
use blis_sim::units::Micros;
use serde::Serialize;

use crate::workload::Names;

/// Counts and score regret of every decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecisionSummary {
    /// Admission decisions.
    pub total_decisions: u64,
    /// Admitted.
    pub admitted: u64,
    /// Rejected by the admission policy.
    pub rejected: u64,
    /// Instances that were chosen at least once.
    pub unique_targets: usize,
    /// Requests by chosen instance, by number.
    pub target_distribution: BTreeMap<u32, u64>,
    /// Mean score regret over routing decisions; 0 if there were none.
    pub mean_regret: f64,
    /// Largest score regret.
    pub max_regret: f64,
    #[serde(skip)]
    regret_sum: f64,
}

/// In BLIS's words.
impl Display for DecisionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "=== Trace Summary ===\nTotal Decisions: {}", self.total_decisions)?;
        writeln!(f, "  Admitted: {}\n  Rejected: {}", self.admitted, self.rejected)?;
        writeln!(f, "Unique Targets: {}\nTarget Distribution:", self.unique_targets)?;
        for (instance, requests) in &self.target_distribution {
            writeln!(f, "  instance_{instance}: {requests}")?;
        }
        writeln!(f, "Mean Regret: {:.6}\nMax Regret: {:.6}", self.mean_regret, self.max_regret)
    }
}

impl Sink for DecisionSummary {
    fn outcome(&mut self, _outcome: &Outcome) {}

    fn itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}

    fn retract_itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}

    fn decision(&mut self, decision: &Decision<'_>) {
        match *decision {
            Decision::Admission { verdict, .. } => {
                self.total_decisions += 1;
                match verdict {
                    Verdict::Admit => self.admitted += 1,
                    Verdict::Reject(_) => self.rejected += 1,
                }
            }
            Decision::Routing { cluster, choice, scores, .. } => {
                let regret = score_regret(cluster, scores, choice.target);
                self.regret_sum += regret;
                self.max_regret = self.max_regret.max(regret);
                *self.target_distribution.entry(cluster.instances[choice.target].id).or_default() += 1;
                self.unique_targets = self.target_distribution.len();
                let routed: u64 = self.target_distribution.values().sum();
                self.mean_regret = self.regret_sum / routed as f64;
            }
        }
    }

    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, cached_blocks: false }
    }
}

/// The policy's own score of instance `i`; minus its effective load under a policy without scores.
fn score(cluster: &ClusterView<'_>, scores: &[f64], i: usize) -> f64 {
    scores.get(i).copied().unwrap_or_else(|| -(cluster.effective_load(i) as f64))
}

/// Score regret: how far `target` is below the best.
#[must_use]
pub fn score_regret(cluster: &ClusterView<'_>, scores: &[f64], target: usize) -> f64 {
    let best = (0..cluster.len()).map(|i| score(cluster, scores, i)).fold(f64::NEG_INFINITY, f64::max);
    (best - score(cluster, scores, target)).max(0.0)
}

/// Every decision as a line of JSON, written as it is made (`--trace-path`).
///
/// Columns are over instances, in their order. Times are µs.
pub struct DecisionLog<'a, W: Write> {
    out: W,
    names: &'a Names,
    /// The best instances that are listed with a routing decision (`--counterfactual-k`).
    candidates: usize,
    /// The first failure; nothing is written after it.
    failed: Option<io::Error>,
}

impl<'a, W: Write> DecisionLog<'a, W> {
    /// Writes to `out`, with the `candidates` best instances of each routing decision.
    pub fn new(out: W, names: &'a Names, candidates: usize) -> Self {
        Self { out, names, candidates, failed: None }
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn finish(mut self) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn write(&mut self, line: &impl Serialize) {
        if self.failed.is_none() {
            let written = serde_json::to_writer(&mut self.out, line).map_err(io::Error::from);
            self.failed = written.and_then(|()| self.out.write_all(b"\n")).err();
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
enum Line<'a> {
    Admission {
        request_id: String,
        time_us: u64,
        admitted: bool,
        #[serde(skip_serializing_if = "String::is_empty")]
        reason: String,
        seen: Seen<'a>,
    },
    Routing {
        request_id: String,
        time_us: u64,
        chosen: String,
        reason: String,
        #[serde(skip_serializing_if = "<[f64]>::is_empty")]
        scores: &'a [f64],
        #[serde(flatten)]
        counterfactual: Option<Counterfactual>,
        seen: Seen<'a>,
    },
}

/// Where the request could have gone.
#[derive(Serialize)]
struct Counterfactual {
    /// Best first, of equal ones the lowest number; the chosen one may be among them.
    candidates: Vec<Candidate>,
    /// Over all instances, not only the candidates.
    regret: f64,
}

#[derive(Serialize)]
struct Candidate {
    instance: String,
    score: f64,
}

impl Counterfactual {
    fn new(cluster: &ClusterView<'_>, scores: &[f64], target: usize, count: usize) -> Self {
        let mut best: Vec<(usize, f64)> = (0..cluster.len()).map(|i| (i, score(cluster, scores, i))).collect();
        best.sort_by(|one, other| other.1.total_cmp(&one.1));
        best.truncate(count);
        let candidate = |(i, score)| Candidate { instance: instance(cluster, i), score };
        Self { candidates: best.into_iter().map(candidate).collect(), regret: score_regret(cluster, scores, target) }
    }
}

fn instance(cluster: &ClusterView<'_>, i: usize) -> String {
    format!("instance_{}", cluster.instances[i].id)
}

/// What the policy saw, and how old it was.
#[derive(Serialize)]
struct Seen<'a> {
    age_us: u64,
    queue_depth: &'a [u32],
    batch_size: &'a [u32],
    kv_utilization: &'a [f64],
    free_kv_blocks: &'a [u32],
    in_flight: &'a [u32],
}

impl<'a> Seen<'a> {
    fn new(cluster: &ClusterView<'a>) -> Self {
        let signals = cluster.signals;
        Self {
            age_us: cluster.ages.load.0,
            queue_depth: &signals.queue_depth,
            batch_size: &signals.batch_size,
            kv_utilization: &signals.kv_utilization,
            free_kv_blocks: &signals.free_kv_blocks,
            in_flight: &signals.in_flight,
        }
    }
}

impl<W: Write> Sink for DecisionLog<'_, W> {
    fn outcome(&mut self, _outcome: &Outcome) {}

    fn itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}

    fn retract_itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}

    fn decision(&mut self, decision: &Decision<'_>) {
        let names = self.names;
        let text = |reason: &Reason| reason.text(&|name| names.text(name));
        let line = match decision {
            Decision::Admission { request, cluster, verdict } => Line::Admission {
                request_id: format!("request_{}", request.id),
                time_us: cluster.now.0,
                admitted: matches!(verdict, Verdict::Admit),
                reason: match verdict {
                    Verdict::Admit => String::new(),
                    Verdict::Reject(reason) => text(reason),
                },
                seen: Seen::new(cluster),
            },
            Decision::Routing { request, cluster, choice, scores } => Line::Routing {
                request_id: format!("request_{}", request.id),
                time_us: cluster.now.0,
                chosen: instance(cluster, choice.target),
                reason: text(&choice.reason),
                scores,
                counterfactual: (self.candidates > 0)
                    .then(|| Counterfactual::new(cluster, scores, choice.target, self.candidates)),
                seen: Seen::new(cluster),
            },
        };
        self.write(&line);
    }

    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, cached_blocks: false }
    }
}
