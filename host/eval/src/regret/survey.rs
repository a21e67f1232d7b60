//! The record of the actual run, and the choice of the decisions for the regret.

use std::sync::Arc;

use blis_sim::cluster::{ForcedDecision, RecordedDecision, RecordedDecisions};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{AdapterEviction, Decision, GatewayChoice, GatewayDecision, LoadDecision, Outcome};
use blis_sim::policy::AdmissionDecision;
use blis_sim::policy::flow::Flow;
use blis_sim::policy::kv_cache::CacheTier;
use blis_sim::replica::ReplicaChange;
use blis_sim::request::{Name, Request};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use rand::seq::index;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::decision_kind::DecisionKind;
use super::instance_states::InstanceStates;
use super::options::RegretOptions;
use crate::bound::ServedRequest;

/// Records the arrivals, the decisions and the ended requests of a run.
#[derive(Debug, Default)]
pub struct Survey {
    arrivals: Vec<Request>,
    decisions: Vec<DecisionEntry>,
    ended: Vec<RequestEnd>,
    /// The first decision of each request whether it loads what the CPU tier has.
    loads: FxHashMap<RequestId, bool>,
    /// The first choice of each request between LoRA adapters that could make room for its own.
    evictions: FxHashMap<RequestId, Arc<EvictionChoice>>,
    /// GPU-seconds held by replicas that come and go; 0 for a fixed number of instances.
    gpu_s: f64,
}

#[derive(Debug)]
struct DecisionEntry {
    at: Micros,
    request: RequestId,
    /// The chosen instance of a routing decision.
    target: Option<InstanceIndex>,
    kind: DecisionKind,
    /// The best score − the second best; `None` without scores.
    margin: Option<f64>,
    /// Whether an admission decision rejected the request.
    rejected: bool,
    /// Whether some instance had two or more waiting requests.
    queued: bool,
    /// The number of replicas that a scaling policy decided.
    scaled: Option<ReplicaChange>,
    /// The instances that decode and prefill a request, if they are different ones.
    split: Option<(InstanceIndex, InstanceIndex)>,
    /// The instance that encodes it first.
    encode: Option<InstanceIndex>,
}

#[derive(Debug)]
struct RequestEnd {
    id: RequestId,
    arrival: Micros,
    ttft: Option<Micros>,
    generated_tokens: u32,
    e2e: Option<Micros>,
    /// Whether the request missed an SLO target.
    missed: bool,
    /// The instance that served it; `None` if it reached none.
    instance: Option<InstanceIndex>,
}

/// When a request was in the service, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    pub arrival: Micros,
    /// Time to first token; `None` if there was none.
    pub ttft: Option<Micros>,
    /// End-to-end latency; `None` unless it completed.
    pub e2e: Option<Micros>,
    /// The instance that served it; `None` if it reached none.
    pub instance: Option<InstanceIndex>,
}

/// A decision of the sample, for which the regret is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionSample {
    /// Index of the decision, in the order in which decisions are made. A scheduling decision, a load and an adapter eviction are
    /// evaluated at the time of the routing decision with this index.
    pub number: usize,
    /// Time of the decision.
    pub at: Micros,
    /// The request that the decision is about; not read for one about replicas.
    pub request: RequestId,
    pub kind: DecisionKind,
    pub stratum: Stratum,
    /// The number of replicas that was decided.
    pub scaled: Option<ReplicaChange>,
    /// Whether the request loaded what the CPU tier had for it, of such a decision.
    pub loads: Option<bool>,
    /// Which LoRA adapter made room for that of the request, of such a decision.
    pub eviction: Option<Arc<EvictionChoice>>,
    /// What another policy would have decided, if that is asked for.
    pub advice: Option<Arc<Advice>>,
}

/// Why a decision was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stratum {
    /// At random, from all decisions of its kind.
    Uniform,
    /// At random, from the decisions about requests that missed their target (without targets: from the slowest
    /// twentieth by end-to-end latency) or did not complete.
    Missed,
    /// The best score was furthest above the second best.
    Margin,
}

/// A decision of another policy instead of a sampled one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it would have decided.
    pub(super) decision: ForcedDecision,
    /// The state of the instances: the decision counts only where it is that of the actual run.
    pub(super) state: InstanceStates,
}

/// A choice between LoRA adapters that could make room for that of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionChoice {
    /// Where room was made.
    pub tier: CacheTier,
    /// The adapter that made it.
    pub evicted: Name,
    /// The others that could have, that with the smallest rank first.
    pub others: Vec<Name>,
}

impl Survey {
    /// Every request that arrived, in order of arrival.
    #[must_use]
    pub fn arrivals(&self) -> Arc<[Request]> {
        self.arrivals.as_slice().into()
    }

    /// The requests that got a first token, of those that arrived from `warmup` on.
    #[must_use]
    pub fn served(&self, warmup: Micros) -> Vec<ServedRequest> {
        let index: FxHashMap<RequestId, usize> = self.arrivals.iter().map(|request| request.id).zip(0..).collect();
        let counted = self.ended.iter().filter(|ended| ended.ttft.is_some() && ended.arrival >= warmup);
        let served = counted.filter_map(|ended| {
            let &RequestEnd { id, generated_tokens, e2e, .. } = ended;
            Some(ServedRequest { index: *index.get(&id)?, generated_tokens, completed: e2e.is_some() })
        });
        served.collect()
    }

    /// The times of all requests, in order of arrival.
    #[must_use]
    pub fn times(&self) -> Vec<RequestTimes> {
        let of = |ended: &RequestEnd| {
            let &RequestEnd { arrival, ttft, e2e, instance, .. } = ended;
            RequestTimes { arrival, ttft, e2e, instance }
        };
        let mut times: Vec<RequestTimes> = self.ended.iter().map(of).collect();
        times.sort_by_key(|one| one.arrival);
        times
    }

    /// Every decision of admission and routing, by request.
    #[must_use]
    pub fn actual_decisions(&self) -> Arc<RecordedDecisions> {
        let encoded = |entry: &DecisionEntry| {
            let (decode, prefill) = match (entry.target, entry.split) {
                (_, Some((decode, prefill))) => (decode, Some(prefill)),
                (Some(target), None) => (target, None),
                (None, None) => return None,
            };
            entry.encode.map(|encode| RecordedDecision::Encoded { encode, prefill, decode })
        };
        let whole_or_split = |entry: &DecisionEntry| match (entry.target, entry.split) {
            (_, Some((decode, prefill))) => RecordedDecision::Split { decode, prefill },
            (Some(target), None) => RecordedDecision::Routed(target),
            (None, None) if entry.rejected => RecordedDecision::Rejected,
            (None, None) => RecordedDecision::Admitted,
        };
        let forced = |entry: &DecisionEntry| encoded(entry).unwrap_or_else(|| whole_or_split(entry));
        let is_replayed = |entry: &&DecisionEntry| {
            entry.split.is_some() || matches!(entry.kind, DecisionKind::Admission | DecisionKind::Routing)
        };
        // The routing decision follows the admission decision of the same request, and replaces it.
        Arc::new(self.decisions.iter().filter(is_replayed).map(|entry| (entry.request, forced(entry))).collect())
    }

    /// Number of decisions of `kind`; of flow control, those with an alternative; of loads and adapter evictions, the first of
    /// each request.
    #[must_use]
    pub fn decisions(&self, kind: DecisionKind) -> usize {
        if kind == DecisionKind::Load {
            return self.loads.len();
        }
        if kind == DecisionKind::AdapterEviction {
            return self.evictions.len();
        }
        self.decisions.iter().filter(|entry| entry.kind == kind).count()
    }

    /// Time after a decision in which its effects count.
    #[must_use]
    pub fn window(&self, options: &RegretOptions) -> Micros {
        const SHORTEST: Micros = Micros(1_000_000);
        options.window.unwrap_or_else(|| {
            let e2e = || self.ended.iter().filter_map(|ended| ended.e2e);
            let mean = e2e().map(|e2e| u128::from(e2e.0)).sum::<u128>() / e2e().count().max(1) as u128;
            Micros(u64::try_from(2 * mean).unwrap_or(u64::MAX)).max(SHORTEST)
        })
    }

    /// The request-seconds that count as much as a GPU-second: the mean number of requests in the service for each GPU that was
    /// held. At this rate a percent of the latency is worth a percent of the GPUs. 0 for a fixed number of instances.
    #[must_use]
    pub fn requests_per_gpu(&self) -> f64 {
        let present: f64 = self.ended.iter().filter_map(|ended| ended.e2e).map(Micros::as_secs_f64).sum();
        if self.gpu_s > 0.0 { present / self.gpu_s } else { 0.0 }
    }

    /// Uses the SLO targets to find the requests that missed one, if there are any. Without targets, the slowest
    /// twentieth counts as missed.
    pub fn with_targets(&mut self, any: bool) {
        if any {
            return;
        }
        let mut e2e: Vec<Micros> = self.ended.iter().filter_map(|ended| ended.e2e).collect();
        e2e.sort_unstable();
        let limit = e2e.get(e2e.len() * 19 / 20).copied().unwrap_or(Micros::MAX);
        self.ended.iter_mut().for_each(|ended| ended.missed = ended.e2e.is_none_or(|e2e| e2e >= limit));
    }

    /// Chooses the decisions to evaluate, in the order in which they were made.
    #[must_use]
    pub fn sample(&self, options: &RegretOptions) -> Vec<DecisionSample> {
        let missed: FxHashSet<RequestId> =
            self.ended.iter().filter(|ended| ended.missed).map(|ended| ended.id).collect();
        let few = match options.kinds.contains(&DecisionKind::Routing) {
            _ if options.at_random => options.samples,
            true => options.samples.div_ceil(4),
            false => options.samples.div_ceil(options.kinds.len().max(1)),
        };
        let selected = if options.at_random { 0 } else { few };
        let mut draw = Draw { random: Stream::new(options.seed, "regret"), turn: 0, taken: Vec::new() };
        let of = |kind: DecisionKind| self.decisions.iter().enumerate().filter(move |(_, entry)| entry.kind == kind);
        let numbers =
            |those: &mut dyn Iterator<Item = (usize, &DecisionEntry)>| those.map(|(number, _)| number).collect();

        // The uniform sample is drawn first and from all decisions, so that later draws do not bias it. What the other
        // strata lack is added to it.
        let routing = DecisionKind::Routing;
        let late: Vec<usize> = numbers(&mut of(routing).filter(|(_, entry)| missed.contains(&entry.request)));
        let mut margins: Vec<(usize, f64)> =
            of(routing).filter_map(|(number, entry)| Some((number, entry.margin?))).collect();
        margins.sort_by(|one, other| other.1.total_cmp(&one.1));
        let others = selected.min(late.len()) + selected.min(margins.len());
        draw.some(options.samples.saturating_sub(others), numbers(&mut of(routing)), routing, Stratum::Uniform);
        draw.some(selected, late, routing, Stratum::Missed);
        draw.first(selected, margins.into_iter().map(|(number, _)| number), routing, Stratum::Margin);

        let admission = DecisionKind::Admission;
        let rejected: Vec<usize> = numbers(&mut of(admission).filter(|(_, entry)| entry.rejected));
        let others = (selected / 2).min(rejected.len());
        draw.some(few - others, numbers(&mut of(admission)), admission, Stratum::Uniform);
        draw.some(others, rejected, admission, Stratum::Missed);
        let queued = of(routing).filter(|(_, entry)| entry.queued);
        draw.some(few, numbers(&mut { queued }), DecisionKind::Scheduling, Stratum::Uniform);
        for kind in [
            DecisionKind::Fairness,
            DecisionKind::Ordering,
            DecisionKind::Eviction,
            DecisionKind::Scaling,
            DecisionKind::Disaggregation,
        ] {
            draw.some(few, numbers(&mut of(kind)), kind, Stratum::Uniform);
        }
        let loaded = of(routing).filter(|(_, entry)| self.loads.contains_key(&entry.request));
        draw.some(few, numbers(&mut { loaded }), DecisionKind::Load, Stratum::Uniform);
        let evicting = of(routing).filter(|(_, entry)| self.evictions.contains_key(&entry.request));
        draw.some(few, numbers(&mut { evicting }), DecisionKind::AdapterEviction, Stratum::Uniform);
        draw.taken.retain(|(_, kind, _)| options.kinds.contains(kind));
        draw.taken.sort_unstable();
        let sample = |(number, kind, stratum): (usize, DecisionKind, Stratum)| DecisionSample {
            number,
            at: self.decisions[number].at,
            request: self.decisions[number].request,
            kind,
            stratum,
            scaled: self.decisions[number].scaled,
            loads: self.loads.get(&self.decisions[number].request).copied().filter(|_| kind == DecisionKind::Load),
            eviction: self
                .evictions
                .get(&self.decisions[number].request)
                .filter(|_| kind == DecisionKind::AdapterEviction)
                .cloned(),
            advice: None,
        };
        draw.taken.into_iter().map(sample).collect()
    }
}

/// Draws decisions at random without replacement.
struct Draw {
    random: Stream,
    turn: u64,
    /// Index of the decision, its kind and its stratum.
    taken: Vec<(usize, DecisionKind, Stratum)>,
}

impl Draw {
    /// Draws `count` of `from` at random, without those that were taken before.
    fn some(&mut self, count: usize, from: Vec<usize>, kind: DecisionKind, stratum: Stratum) {
        let taken: FxHashSet<usize> = self.taken.iter().filter(|taken| taken.1 == kind).map(|taken| taken.0).collect();
        let from: Vec<usize> = from.into_iter().filter(|number| !taken.contains(number)).collect();
        self.turn += 1;
        let mut random = self.random.at(self.turn);
        let chosen = index::sample(&mut random, from.len(), count.min(from.len()));
        self.taken.extend(chosen.iter().map(|i| (from[i], kind, stratum)));
    }

    /// Takes the first `count` of `from` that were not taken before.
    fn first(&mut self, count: usize, from: impl Iterator<Item = usize>, kind: DecisionKind, stratum: Stratum) {
        let is_taken = |number: &usize| self.taken.iter().any(|&(taken, of, _)| (taken, of) == (*number, kind));
        let chosen: Vec<usize> = from.filter(|number| !is_taken(number)).take(count).collect();
        self.taken.extend(chosen.into_iter().map(|number| (number, kind, stratum)));
    }
}

/// The best score − the second best; `None` for fewer than two scores.
fn margin(scores: &[f64]) -> Option<f64> {
    let (mut best, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for &score in scores {
        if score > best {
            (best, second) = (score, best);
        } else {
            second = second.max(score);
        }
    }
    (scores.len() > 1).then_some(best - second).filter(|margin| margin.is_finite())
}

/// Observer that records a survey; `missed` returns whether a request missed a target.
#[derive(Debug)]
pub struct Surveyor<F> {
    /// The record of the run.
    pub survey: Survey,
    /// Whether a request missed a target of its class.
    pub missed: F,
    /// Whether a policy decides inside instances: about loads from the CPU tier, or which LoRA adapter makes room.
    pub inside: bool,
}

impl<F: Fn(&Outcome) -> bool> Observer for Surveyor<F> {
    #[inline]
    fn interests(&self) -> Interests {
        let of_all =
            Interests::ARRIVALS | Interests::DECISIONS | Interests::OUTCOMES | Interests::LOAD | Interests::IN_FLIGHT;
        if self.inside { of_all | Interests::SCHEDULING } else { of_all }
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Arrival(request) => self.survey.arrivals.push(request.clone()),
            SimEvent::Decision(decision) => self.survey.add_decision(decision),
            SimEvent::Outcome(outcome) => self.add_end(outcome),
            SimEvent::Scaling(change) => self.survey.decisions.push(DecisionEntry {
                scaled: Some(*change),
                ..DecisionEntry::new(DecisionKind::Scaling, change.at, RequestId(0))
            }),
            SimEvent::Replicas(report) => {
                self.survey.gpu_s = report.groups.iter().map(|group| group.gpu_hours() * 3600.0).sum();
            }
            _ => {}
        }
    }
}

impl<F: Fn(&Outcome) -> bool> Surveyor<F> {
    fn add_end(&mut self, outcome: &Outcome) {
        let missed = (self.missed)(outcome);
        self.survey.ended.push(RequestEnd {
            id: outcome.id,
            arrival: outcome.arrival,
            ttft: outcome.ttft,
            generated_tokens: outcome.generated_tokens,
            e2e: outcome.e2e,
            missed,
            instance: outcome.instance,
        });
    }
}

impl Survey {
    fn add_decision(&mut self, decision: &Decision<'_>) {
        let entry = match *decision {
            Decision::Admission { request, cluster, decision, .. } => DecisionEntry {
                rejected: *decision != AdmissionDecision::Admit,
                ..DecisionEntry::new(DecisionKind::Admission, cluster.now, request.id)
            },
            Decision::Routing { request, cluster, scores, choice, .. } => DecisionEntry {
                target: Some(cluster.instances[choice.target].id),
                margin: margin(scores),
                queued: cluster.signals.queue_depth.iter().any(|&depth| depth > 1),
                // The decision where it is prefilled came just before.
                encode: (self.decisions.last())
                    .filter(|last| last.request == request.id && last.kind == DecisionKind::Disaggregation)
                    .and_then(|last| last.encode),
                ..DecisionEntry::new(DecisionKind::Routing, cluster.now, request.id)
            },
            Decision::Gateway(GatewayDecision { now, request, choice, .. }) => {
                let entry = |kind| DecisionEntry::new(kind, now, request);
                return match choice {
                    GatewayChoice::Dispatched { flows, .. } => {
                        let waits = |flow: &Flow| flow.head_id == request.0 && flow.queued > 1;
                        self.decisions.extend((flows.len() > 1).then(|| entry(DecisionKind::Fairness)));
                        self.decisions.extend(flows.iter().any(waits).then(|| entry(DecisionKind::Ordering)));
                    }
                    GatewayChoice::Evicted { .. } => self.decisions.push(entry(DecisionKind::Eviction)),
                    _ => {}
                };
            }
            Decision::Load(LoadDecision { hit, loads, .. }) => {
                self.loads.entry(RequestId(hit.request)).or_insert(loads);
                return;
            }
            Decision::AdapterEviction(ref eviction) => {
                self.evictions.entry(eviction.request).or_insert_with(|| Arc::new(EvictionChoice::from(eviction)));
                return;
            }
            Decision::Disaggregation(ref choice) => DecisionEntry {
                split: choice.prefill.map(|prefill| (choice.decode, prefill)),
                encode: choice.encode,
                ..DecisionEntry::new(DecisionKind::Disaggregation, choice.now, choice.request.id)
            },
            Decision::Scheduling(_) | Decision::Preemption(_) => return,
        };
        self.decisions.push(entry);
    }
}

impl From<&AdapterEviction<'_>> for EvictionChoice {
    fn from(eviction: &AdapterEviction<'_>) -> Self {
        let ranked = eviction.candidates.iter().copied().zip(eviction.ranks.iter().copied());
        let mut others: Vec<(Name, f64)> = ranked.filter(|&(adapter, _)| adapter != eviction.evicted).collect();
        // Stable: of equal ranks, the least recently used first.
        others.sort_by(|one, other| one.1.total_cmp(&other.1));
        let others = others.into_iter().map(|(adapter, _)| adapter).collect();
        Self { tier: eviction.tier, evicted: eviction.evicted, others }
    }
}

impl DecisionEntry {
    fn new(kind: DecisionKind, at: Micros, request: RequestId) -> Self {
        Self {
            at,
            request,
            target: None,
            kind,
            margin: None,
            rejected: false,
            queued: false,
            scaled: None,
            split: None,
            encode: None,
        }
    }
}
