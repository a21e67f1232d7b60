//! Outcome regret: what would have happened, had a decision been another.
//!
//! At sampled decisions the simulation is copied. In one copy the policy decides as it did, in each
//! of the others an alternative is forced on it; then all go on under the same arrivals, and what really
//! happens in them is compared. Nothing here asks what the policy thought of the alternatives: that is
//! score regret, which is 0 for whoever takes its own favourite.
//!
//! | | |
//! |---|---|
//! | cost of a world | request-seconds within the window after the decision ([`Cost`]): everybody's waiting, not only the request's own |
//! | regret | cost of the actual world − cost of the best alternative, at least 0; all other decisions are as they really were |
//! | own part | the same difference, of the request's own time alone |
//! | externality | the rest: what the decision did to others |
//! | advantage | mean cost of the alternatives − cost of the actual world: how much better than deciding anyhow |
//! | reaction | as regret, but the policies decide all that follows anew in each world |
//!
//! With everything else equal the difference is the decision's own, to the microsecond. Policies that look
//! at the service answer an alternative with hundreds of other decisions; these are as good as the
//! others, but not the same, and their differences add up to a noise far larger than what one decision
//! does (`docs/regret.md`). So that is told apart.
//!
//! The best alternative is known in hindsight only, so even a perfect policy has some regret. What it
//! is good for is comparing policies under the same requests, and finding the decisions to look at.
//!
//! The order is: [`Survey`] watches the actual run, [`Survey::sample`] chooses decisions, [`judge`]
//! runs their worlds, [`Regret::new`] sums up.

mod oracle;
mod report;
mod survey;
#[cfg(test)]
mod tests;
mod worlds;

use std::borrow::Cow;
use std::sync::Arc;

use blis_sim::cluster::{ForcedDecision, Halt, RecordedDecisions, Timeline};
use blis_sim::cost::Cost;
use blis_sim::instance::Instance;
use blis_sim::units::Micros;
use rayon::prelude::*;
use serde::Serialize;

pub use oracle::{Oracle, look_ahead};
pub use report::{Estimate, Regret, Section};
pub use survey::{Sample, Survey, Surveyor};
use worlds::Fork;

/// How decisions are judged.
#[derive(Clone, Debug)]
pub struct RegretOptions {
    /// Routing decisions to sample, half of them at random, a quarter of those that missed their
    /// targets, a quarter of those with the widest margins; and a quarter as many of admission and of
    /// scheduling each.
    pub samples: usize,
    /// Most alternatives to a routing decision.
    pub alternatives: usize,
    /// How long after a decision its consequences count; `None` for twice the mean end-to-end latency,
    /// at least a second.
    pub window: Option<Micros>,
    /// Of the sample.
    pub seed: u64,
}

/// Which policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Whether a request may enter.
    Admission,
    /// Where it goes.
    Routing,
    /// Who is served next: the alternative is the second in the longest wait queue.
    Scheduling,
}

/// Why a decision was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stratum {
    /// At random, from all.
    Uniform,
    /// At random, from those about requests that missed their target (without targets: from the
    /// slowest twentieth by end-to-end latency) or got no answer.
    Missed,
    /// The best score was furthest above the second best.
    Margin,
}

/// A circumstance in which decisions may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// Another instance had more leading blocks of the prompt in its cache.
    MissedCacheHit,
    /// The chosen instance had at least 3 requests more than the least loaded one, and half as many
    /// more than the mean.
    HotInstance,
    /// What was seen of the chosen instance's queue and batch was off by 2 requests or more, and by a
    /// fifth.
    StaleSignal,
}

/// One decision and its worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Which policy decided.
    pub kind: DecisionKind,
    /// Why it was looked at.
    pub stratum: Stratum,
    /// About whom; of scheduling, who would have been served first.
    pub request_id: String,
    /// When.
    pub time_us: u64,
    /// The class of the request.
    pub slo_class: String,
    /// Its prompt.
    pub input_tokens: u32,
    /// The policy's reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// [`Situation`]s it was made in.
    pub situations: Vec<Situation>,
    /// Cost of the actual world − cost of the best alternative, ≥ 0, request-seconds.
    pub regret_s: f64,
    /// The request's own part of that difference.
    pub own_s: f64,
    /// The others' part.
    pub externality_s: f64,
    /// Mean cost of the alternatives − cost of the actual world, request-seconds.
    pub advantage_s: f64,
    /// As the regret, the policies deciding all that follows anew in each world.
    pub reaction_s: f64,
    /// TTFT of the request − that in the best alternative, ms, if it got a first token in both.
    pub ttft_regret_ms: Option<f64>,
    /// E2E of the request − that in the best alternative, ms, if it was answered in both.
    pub e2e_regret_ms: Option<f64>,
    /// How far the choice was from the policy's own favourite. Of routing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_regret: Option<f64>,
    /// What the policy saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// How the instances really were.
    pub state: State,
    /// The actual world, then the alternatives.
    pub worlds: Vec<World>,
}

/// What became of one world.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct World {
    /// What was decided.
    pub answer: Cow<'static, str>,
    /// What became of the request.
    pub status: &'static str,
    /// Its time to first token, ms.
    pub ttft_ms: Option<f64>,
    /// Its end-to-end latency, ms.
    pub e2e_ms: Option<f64>,
    /// Request-seconds within the window.
    pub cost_s: f64,
    /// The same if the policies decide what follows anew.
    pub reacting_cost_s: f64,
    /// The part of it before first tokens.
    pub awaiting_first_token_s: f64,
    /// Requests of the window that got no answer.
    pub unanswered: u32,
    #[serde(skip)]
    own_s: f64,
}

/// Columns over instances as the policy saw them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// Age of queue, batch and KV.
    pub age_us: u64,
    /// Requests in the wait queue.
    pub queue_depth: Vec<u32>,
    /// Requests in the batch.
    pub batch_size: Vec<u32>,
    /// Requests under way.
    pub in_flight: Vec<u32>,
    /// The policy's scores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
}

/// Columns over instances as they really were.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct State {
    /// Requests in the wait queue.
    pub queue_depth: Vec<u32>,
    /// Requests in the batch.
    pub batch_size: Vec<u32>,
    /// Requests on their way to the queue.
    pub arriving: Vec<u32>,
    /// Free KV blocks.
    pub free_kv_blocks: Vec<u32>,
    /// Leading blocks of the prompt in the cache.
    pub cached_blocks: Vec<u32>,
}

impl State {
    /// Requests on each instance.
    fn outstanding(&self) -> Vec<u32> {
        let columns = self.queue_depth.iter().zip(&self.batch_size).zip(&self.arriving);
        columns.map(|((queue, batch), arriving)| queue + batch + arriving).collect()
    }
}

/// Texts behind numbers.
pub trait Texts: Sync {
    /// Of an SLO class.
    fn class(&self, name: blis_sim::request::Name) -> String;
}

/// Runs the worlds of all `samples`, which are in the order of their decisions, along `timeline`. They are
/// spread over the threads of the current rayon pool; the answer does not depend on their number. `settled` are
/// all decisions of the actual run.
///
/// # Errors
/// The first failure of a world, in the order of decisions.
pub fn judge<I: Instance + Clone + Send>(
    mut timeline: Timeline<I>,
    samples: &[Sample],
    settled: &Arc<RecordedDecisions>,
    (window, alternatives): (Micros, usize),
    texts: &impl Texts,
) -> Result<Vec<Judged>, Halt> {
    // As many copies are kept at a time as keep all threads busy.
    let most = 4 * rayon::current_num_threads();
    let mut judged = Vec::new();
    let mut forks: Vec<Fork<I>> = Vec::new();
    let run = |forks: Vec<Fork<I>>| -> Result<Vec<Option<Judged>>, Halt> {
        // In this order, whoever finishes first.
        let results: Vec<_> =
            forks.into_par_iter().map(|fork| fork.judge(window, alternatives, settled, texts)).collect();
        results.into_iter().collect()
    };
    let mut samples = samples.iter().peekable();
    while samples.peek().is_some() && timeline.next_decision(&mut ())? {
        // Found by the request: about one that no instance serves, nobody is asked.
        let pending = timeline.pending().map(|pending| (pending.request.id, pending.is_admission));
        let is_this = |sample: &&Sample| pending == Some((sample.request, sample.kind == DecisionKind::Admission));
        while let Some(sample) = samples.next_if(is_this) {
            forks.push(Fork { timeline: timeline.clone(), kind: sample.kind, stratum: sample.stratum });
        }
        if forks.len() >= most {
            judged.extend(run(std::mem::take(&mut forks))?);
        }
        timeline.decide(&mut ())?;
    }
    judged.extend(run(forks)?);
    Ok(judged.into_iter().flatten().collect())
}

/// A world from `timeline` to the end of the window, and on until the request has ended if `to_its_end`.
fn run_world<I: Instance>(
    mut timeline: Timeline<I>,
    force: Option<(u32, ForcedDecision)>,
    mut cost: Cost,
    (from, window): (Micros, Micros),
    to_its_end: bool,
) -> Result<Cost, Halt> {
    if let Some((id, force)) = force {
        timeline.force(id, force);
    }
    // A window may be as short as a microsecond.
    const STRIDE: Micros = Micros(1_000_000);
    let mut end = from.saturating_add(window);
    timeline.run_until(end, &mut cost)?;
    while to_its_end && cost.own.is_none() && !timeline.is_over() {
        end = end.saturating_add(window.max(STRIDE));
        timeline.run_until(end, &mut cost)?;
    }
    timeline.finish(end, &mut cost)?;
    Ok(cost)
}
