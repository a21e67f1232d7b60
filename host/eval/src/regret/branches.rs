//! One decision and the branches in which it is another.

use std::sync::Arc;

use blis_sim::cluster::{AnyTimeline, ForcedDecision, Halt, RecordedDecisions};
use blis_sim::cost::Cost;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Decision, GatewayChoice, GatewayDecision, Status};
use blis_sim::policy::AdmissionDecision;
use blis_sim::policy::kv_cache::CacheTier;
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;

use super::branch_span::{BranchSpan, run_branch};
use super::decision_kind::DecisionKind;
use super::decision_regret::{BranchOutcome, DecisionRegret, ObservedSignals, Situation};
use super::gateway::{self, GatewayOptions};
use super::instance_states::InstanceStates;
use super::options::BranchOptions;
use super::signals::{self, KnownSignals};
use super::survey::DecisionSample;

/// A copy of the simulation, just before the event that makes the decision.
pub(super) struct DecisionFork {
    pub timeline: Box<dyn AnyTimeline>,
    pub sample: DecisionSample,
}

/// Texts of the names of SLO classes and tenants.
pub trait WorkloadTexts: Sync {
    fn text(&self, name: Name) -> String;
}

/// A decision about a request of which branches are run.
struct BranchedDecision<'a> {
    /// Cost of requests that ended before the decision, which counts in all branches.
    past: Cost,
    request: &'a Request,
    /// All decisions of the run, which branches replay.
    actual_decisions: &'a Arc<RecordedDecisions>,
}

impl DecisionFork {
    /// Runs the branches. `None` if there is no alternative to the decision.
    pub fn evaluate(
        mut self,
        options: &BranchOptions,
        actual_decisions: &Arc<RecordedDecisions>,
        names: &impl WorkloadTexts,
    ) -> Result<Option<DecisionRegret>, Halt> {
        let window = options.window;
        let Some(at) = self.timeline.pending().map(|pending| pending.at) else { return Ok(None) };
        if let Some(decided) = self.sample.scaled {
            return self.evaluate_scaling(at, options, decided, names);
        }
        let Some(request) = self.timeline.request(self.sample.request).cloned() else { return Ok(None) };
        // Requests that ended before the decision, but are not reported yet, count in all branches.
        let mut past = Cost::new(at, at.saturating_add(window), request.id);
        self.timeline.catch_up(at, &mut past)?;
        let state = state(&*self.timeline, &request);
        match self.sample.kind {
            DecisionKind::Scheduling => self.evaluate_scheduling(at, options, &past, actual_decisions, state, names),
            DecisionKind::Load | DecisionKind::AdapterEviction => {
                let branched = BranchedDecision { past, request: &request, actual_decisions };
                self.evaluate_inside(at, options, branched, state, names)
            }
            DecisionKind::Admission
            | DecisionKind::Routing
            | DecisionKind::Fairness
            | DecisionKind::Ordering
            | DecisionKind::Eviction
            | DecisionKind::Scaling
            | DecisionKind::Disaggregation => {
                let branched = BranchedDecision { past, request: &request, actual_decisions };
                self.evaluate_front(at, options, branched, state, names)
            }
        }
    }

    fn evaluate_front(
        self,
        at: Micros,
        options: &BranchOptions,
        branched: BranchedDecision<'_>,
        state: InstanceStates,
        names: &impl WorkloadTexts,
    ) -> Result<Option<DecisionRegret>, Halt> {
        let request = branched.request;
        let mut observed =
            ObservedDecision { keeps: options.signals, ..ObservedDecision::new(self.sample.kind, request.id) };
        let mut after = self.timeline.clone();
        after.decide(&mut observed)?;
        // Without a decision, no instance serves the model of the request.
        let Some(decision) = observed.decision else { return Ok(None) };
        let advised = self.sample.advice.as_ref().filter(|advice| advice.state == state).map(|advice| advice.decision);
        let state = if observed.shown.is_empty() { state } else { state.only(&observed.shown) };
        let mut alternatives = self.alternatives(decision, request.id, &observed, &state, &*after, options);
        let further = advised.filter(|&advised| advised != decision && !alternatives.contains(&advised));
        alternatives.extend(further);
        let decisions = || [decision].into_iter().chain(alternatives.iter().copied());
        let advised = advised.and_then(|advised| decisions().position(|one| one == advised));
        let signals = kept(options, || self.signals(at, request, &state, &mut observed, decisions()));
        let branches = self.branches(at, options, branched, decision, &alternatives, names)?;
        let situations = match decision {
            ForcedDecision::Route(chosen) => {
                let position = observed.shown.iter().position(|&shown| shown == chosen);
                position.map_or(Vec::new(), |chosen| situations(chosen, &state, observed.seen.as_ref()))
            }
            ForcedDecision::Admit(_)
            | ForcedDecision::Prefill(_)
            | ForcedDecision::Dispatch(_)
            | ForcedDecision::Evict(_) => Vec::new(),
        };
        let ObservedDecision { reason, seen, score_regret, .. } = observed;
        let about = DecisionContext { sample: self.sample, request, at, situations };
        Ok(compare(about, branches, state, names).map(|regret| DecisionRegret {
            reason,
            observed: seen,
            score_regret,
            signals,
            advised,
            ..regret
        }))
    }

    /// What `decision` could have been instead; `after` is the simulation just after it.
    fn alternatives(
        &self,
        decision: ForcedDecision,
        request: RequestId,
        observed: &ObservedDecision,
        state: &InstanceStates,
        after: &dyn AnyTimeline,
        options: &BranchOptions,
    ) -> Vec<ForcedDecision> {
        let most = options.alternatives;
        match decision {
            ForcedDecision::Admit(admitted) => vec![ForcedDecision::Admit(!admitted)],
            ForcedDecision::Route(chosen) => {
                let others = candidates(observed, state, chosen, most);
                others.into_iter().map(ForcedDecision::Route).collect()
            }
            ForcedDecision::Prefill(chosen) => {
                let others = observed.prefills.iter().map(|&instance| Some(instance)).chain([None]);
                others.filter(|&other| other != chosen).take(most.max(1)).map(ForcedDecision::Prefill).collect()
            }
            ForcedDecision::Dispatch(_) | ForcedDecision::Evict(_) => {
                gateway::alternatives(self.sample.kind, request, &observed.options, after, most)
            }
        }
    }

    /// Runs a branch with `decision`, and one with each of the `alternatives`.
    fn branches(
        &self,
        at: Micros,
        options: &BranchOptions,
        BranchedDecision { past, request, actual_decisions }: BranchedDecision<'_>,
        decision: ForcedDecision,
        alternatives: &[ForcedDecision],
        names: &impl WorkloadTexts,
    ) -> Result<Vec<BranchOutcome>, Halt> {
        let span = BranchSpan { from: at, window: options.window, longest: options.longest };
        let of_window = BranchSpan { longest: Micros::ZERO, ..span };
        let text = |force| decision_text(force, &*self.timeline, names);
        let mut branches = Vec::with_capacity(alternatives.len() + 1);
        let forced = |mut timeline: Box<dyn AnyTimeline>| {
            timeline.replay(Arc::clone(actual_decisions));
            timeline
        };
        let actual = run_branch(forced(self.timeline.clone()), None, past.clone(), span)?;
        branches.push(branch(text(decision), &actual, &actual));
        for &force in alternatives {
            let forced_decision = Some((request.id, force));
            let cost = run_branch(forced(self.timeline.clone()), forced_decision, past.clone(), span)?;
            let rollout = options
                .rollouts
                .then(|| run_branch(self.timeline.clone(), forced_decision, past.clone(), of_window))
                .transpose()?;
            branches.push(branch(text(force), &cost, rollout.as_ref().unwrap_or(&cost)));
        }
        Ok(branches)
    }

    /// What could be read at the decision, with the row of each of the `decisions` of the branches.
    fn signals(
        &self,
        at: Micros,
        request: &Request,
        state: &InstanceStates,
        observed: &mut ObservedDecision,
        decisions: impl Iterator<Item = ForcedDecision>,
    ) -> KnownSignals {
        let seen = std::mem::take(&mut observed.signals);
        match self.sample.kind {
            DecisionKind::Routing => {
                let row = |instance| observed.shown.iter().position(|&shown| shown == instance);
                let row = |decision| if let ForcedDecision::Route(instance) = decision { row(instance) } else { None };
                KnownSignals { rows: decisions.map(row).collect(), ..seen }
            }
            DecisionKind::Admission => seen.over_instances(),
            DecisionKind::Fairness | DecisionKind::Ordering | DecisionKind::Eviction => {
                KnownSignals::of_requests(&signals::dispatched(decisions, &*self.timeline), state, at)
            }
            DecisionKind::Disaggregation
            | DecisionKind::Scheduling
            | DecisionKind::Load
            | DecisionKind::AdapterEviction
            | DecisionKind::Scaling => KnownSignals::of_state(request, state),
        }
    }

    /// Computes the regret of a decision about the request inside an instance, from its routing on: all before the decision is the
    /// same in all branches.
    fn evaluate_inside(
        self,
        at: Micros,
        options: &BranchOptions,
        BranchedDecision { past, request, actual_decisions }: BranchedDecision<'_>,
        state: InstanceStates,
        names: &impl WorkloadTexts,
    ) -> Result<Option<DecisionRegret>, Halt> {
        let span = BranchSpan { from: at, window: options.window, longest: options.longest };
        let of_window = BranchSpan { longest: Micros::ZERO, ..span };
        let (chosen, others) = match (self.sample.loads, &self.sample.eviction) {
            (Some(loads), _) => (InsideChoice::Loads(loads), vec![InsideChoice::Loads(!loads)]),
            (None, Some(choice)) => {
                let evicts = |&adapter: &Name| InsideChoice::Evicts(choice.tier, adapter);
                let others = choice.others.iter().take(options.alternatives.max(1));
                (evicts(&choice.evicted), others.map(evicts).collect())
            }
            (None, None) => return Ok(None),
        };
        let forced = |mut timeline: Box<dyn AnyTimeline>| {
            timeline.replay(Arc::clone(actual_decisions));
            run_branch(timeline, None, past.clone(), span)
        };
        let actual = forced(self.timeline.clone())?;
        let mut branches = vec![branch(chosen.text(names), &actual, &actual)];
        for other in others {
            let mut timeline = self.timeline.clone();
            other.force(request.id, &mut *timeline);
            let again = || run_branch(timeline.clone(), None, past.clone(), of_window);
            let rollout = options.rollouts.then(again).transpose()?;
            let cost = forced(timeline)?;
            branches.push(branch(other.text(names), &cost, rollout.as_ref().unwrap_or(&cost)));
        }
        let signals = kept(options, || KnownSignals::of_state(request, &state));
        let about = DecisionContext { sample: self.sample, request, at, situations: Vec::new() };
        Ok(compare(about, branches, state, names).map(|regret| DecisionRegret { signals, ..regret }))
    }

    /// Computes the regret of serving the first request of the longest queue instead of the second.
    fn evaluate_scheduling(
        self,
        at: Micros,
        options: &BranchOptions,
        past: &Cost,
        actual_decisions: &Arc<RecordedDecisions>,
        state: InstanceStates,
        names: &impl WorkloadTexts,
    ) -> Result<Option<DecisionRegret>, Halt> {
        let window = options.window;
        let span = BranchSpan { from: at, window, longest: options.longest };
        let queues = self.timeline.queues();
        // Among equally long queues, the last one.
        let Some((instance, queue)) = queues.into_iter().enumerate().max_by_key(|(_, queue)| queue.len()) else {
            return Ok(None);
        };
        let &[first, second, ..] = queue.as_slice() else { return Ok(None) };
        let cost = || Cost::new(at, at.saturating_add(window), second);
        let with_past = |mut cost: Cost| {
            cost.present = cost.present.saturating_add(past.present);
            cost.awaiting_first_token = cost.awaiting_first_token.saturating_add(past.awaiting_first_token);
            cost
        };
        let signals = kept(options, || {
            let requests = [first, second].map(|id| self.timeline.request(id));
            KnownSignals::of_requests(&requests, &state, at)
        });
        let mut other = self.timeline.clone();
        other.serve_next(InstanceIndex::at(instance), second);
        let of_window = BranchSpan { longest: Micros::ZERO, ..span };
        let rollout = options.rollouts.then(|| run_branch(other.clone(), None, cost(), of_window)).transpose()?;
        let forced = |mut timeline: Box<dyn AnyTimeline>| {
            timeline.replay(Arc::clone(actual_decisions));
            run_branch(timeline, None, cost(), span)
        };
        let (actual, other) = (forced(self.timeline)?, forced(other)?);
        let Some(own) = actual.own else { return Ok(None) };
        let rollout = with_past(rollout.unwrap_or_else(|| other.clone()));
        let (actual, other) = (with_past(actual), with_past(other));
        let branches = vec![
            branch(format!("request_{first} first, on instance_{instance}"), &actual, &actual),
            branch(format!("request_{second} first"), &other, &rollout),
        ];
        let request = Request { tags: own.tags, ..Request::new(own.id, own.arrival, own.input_tokens, 0) };
        let about = DecisionContext { sample: self.sample, request: &request, at, situations: Vec::new() };
        Ok(compare(about, branches, state, names).map(|regret| DecisionRegret { signals, ..regret }))
    }
}

/// The `signals`, if they are kept.
fn kept(options: &BranchOptions, signals: impl FnOnce() -> KnownSignals) -> KnownSignals {
    if options.signals { signals() } else { KnownSignals::default() }
}

/// What is decided about a request inside an instance.
#[derive(Clone, Copy)]
enum InsideChoice {
    /// Whether it loads what the CPU tier has for it.
    Loads(bool),
    /// Which LoRA adapter makes room for its own, and where.
    Evicts(CacheTier, Name),
}

impl InsideChoice {
    fn force(self, id: RequestId, timeline: &mut dyn AnyTimeline) {
        match self {
            Self::Loads(loads) => timeline.force_load(id, loads),
            Self::Evicts(tier, adapter) => timeline.force_eviction(id, tier, adapter),
        }
    }

    fn text(self, names: &impl WorkloadTexts) -> String {
        match self {
            Self::Loads(true) => "loaded".to_owned(),
            Self::Loads(false) => "computed".to_owned(),
            Self::Evicts(CacheTier::AdapterMemory, adapter) => format!("evicted {} from the host", names.text(adapter)),
            Self::Evicts(_, adapter) => format!("evicted {}", names.text(adapter)),
        }
    }
}

/// The decision that branches belong to.
pub(super) struct DecisionContext<'a> {
    pub sample: DecisionSample,
    pub request: &'a Request,
    pub at: Micros,
    pub situations: Vec<Situation>,
}

/// Compares the first of `branches` with the others. `None` if there are no others.
pub(super) fn compare(
    about: DecisionContext<'_>,
    branches: Vec<BranchOutcome>,
    state: InstanceStates,
    names: &impl WorkloadTexts,
) -> Option<DecisionRegret> {
    let (actual, others) = branches.split_first()?;
    let best = others.iter().min_by(|one, other| one.cost_s.total_cmp(&other.cost_s))?;
    let difference = actual.cost_s - best.cost_s;
    // Only a better alternative makes regret. Otherwise the choice was the best one, and the regret is 0.
    let worse = difference > 0.0;
    let if_worse = |difference: f64| if worse { difference } else { 0.0 };
    let own = if_worse(actual.own_s - best.own_s);
    let apart = |one: Option<f64>, other: Option<f64>| Some(if_worse(one? - other?));
    let rollout = others.iter().map(|branch| actual.rollout_cost_s - branch.rollout_cost_s).fold(0.0, f64::max);
    let mean = others.iter().map(|branch| branch.cost_s).sum::<f64>() / others.len() as f64;
    Some(DecisionRegret {
        kind: about.sample.kind,
        stratum: about.sample.stratum,
        request_id: format!("request_{}", about.request.id),
        time_us: about.at.0,
        slo_class: names.text(about.request.tags.slo_class),
        input_tokens: about.request.input_tokens,
        reason: String::new(),
        situations: about.situations,
        regret_s: if_worse(difference),
        own_s: own,
        externality_s: if_worse(difference) - own,
        advantage_s: mean - actual.cost_s,
        rollout_regret_s: rollout,
        ttft_regret_ms: apart(actual.ttft_ms, best.ttft_ms),
        e2e_regret_ms: apart(actual.e2e_ms, best.e2e_ms),
        score_regret: None,
        observed: None,
        state,
        branches,
        signals: KnownSignals::default(),
        advised: None,
    })
}

/// `rollout`: cost of the same branch with all later decisions made by the policies.
pub(super) fn branch(decision: String, cost: &Cost, rollout: &Cost) -> BranchOutcome {
    let ms = |time: Micros| time.0 as f64 / 1e3;
    let own = cost.own.as_ref();
    BranchOutcome {
        decision: decision.into(),
        status: own.map_or("unknown", |own| status(own.status)),
        ttft_ms: own.and_then(|own| own.ttft).map(ms),
        e2e_ms: own.and_then(|own| own.e2e).map(ms),
        cost_s: cost.present.as_secs_f64(),
        rollout_cost_s: rollout.present.as_secs_f64(),
        awaiting_first_token_s: cost.awaiting_first_token.as_secs_f64(),
        failed_requests: cost.incomplete,
        own_s: cost.own_present().as_secs_f64(),
        gpu_s: None,
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Completed | Status::LengthCapped => "completed",
        Status::TimedOut => "timed_out",
        Status::Evicted => "evicted",
        Status::Dropped(_) => "dropped",
        Status::Queued | Status::Running | Status::Arriving | Status::InGateway => "unfinished",
        Status::Rejected(_) => "rejected",
    }
}

fn decision_text(force: ForcedDecision, timeline: &dyn AnyTimeline, names: &impl WorkloadTexts) -> String {
    match force {
        ForcedDecision::Admit(true) => "admitted".to_owned(),
        ForcedDecision::Admit(false) => "rejected".to_owned(),
        ForcedDecision::Route(instance) => format!("instance_{instance}"),
        ForcedDecision::Prefill(Some(instance)) => format!("prefill on instance_{instance}"),
        ForcedDecision::Prefill(None) => "prefill on the instance that decodes".to_owned(),
        ForcedDecision::Evict(None) => "none".to_owned(),
        ForcedDecision::Dispatch(id) | ForcedDecision::Evict(Some(id)) => {
            let tenant = timeline.request(id).map(|request| names.text(request.tags.tenant)).unwrap_or_default();
            if tenant.is_empty() { format!("request_{id}") } else { format!("request_{id} of tenant {tenant}") }
        }
    }
}

/// The state of the instances at the time of the decision.
pub(super) fn state(timeline: &dyn AnyTimeline, request: &Request) -> InstanceStates {
    let keys: Vec<u32> = request.content.keys().collect();
    let mut state = InstanceStates { cached_blocks: timeline.cached(&keys), ..InstanceStates::default() };
    for (load, arriving) in timeline.loads() {
        state.queue_depth.push(load.queue_depth);
        state.batch_size.push(load.batch_size);
        state.arriving.push(arriving as u32);
        state.free_kv_blocks.push(load.total_kv_blocks - load.used_kv_blocks);
    }
    state
}

/// At most `most` instances other than `chosen` that are worth trying, of those that the policy saw: the one with the most
/// cached blocks of the prompt, the one with the fewest requests, then the best by the policy's own scores, or those with the
/// fewest requests. `state` is that of these instances.
pub(super) fn candidates(
    observed: &ObservedDecision,
    state: &InstanceStates,
    chosen: InstanceIndex,
    most: usize,
) -> Vec<InstanceIndex> {
    let (scores, shown) = (observed.scores(), &observed.shown);
    let outstanding = state.outstanding();
    let others = || (0..outstanding.len()).filter(|&i| shown[i] != chosen);
    let mut ordered = Vec::new();
    // Among equal instances, the first one.
    ordered.extend(others().rev().max_by_key(|&i| state.cached_blocks[i]).filter(|&i| state.cached_blocks[i] > 0));
    ordered.extend(others().min_by_key(|&i| outstanding[i]));
    let mut rest: Vec<usize> = others().collect();
    if scores.len() == outstanding.len() {
        rest.sort_by(|&one, &other| scores[other].total_cmp(&scores[one]));
    } else {
        rest.sort_by_key(|&i| outstanding[i]);
    }
    ordered.extend(rest);
    let mut kept: Vec<InstanceIndex> = Vec::new();
    for instance in ordered.into_iter().map(|position| shown[position]) {
        if kept.len() < most && !kept.contains(&instance) {
            kept.push(instance);
        }
    }
    kept
}

fn situations(chosen: usize, state: &InstanceStates, seen: Option<&ObservedSignals>) -> Vec<Situation> {
    let mut found = Vec::new();
    let most_cached = state.cached_blocks.iter().copied().max().unwrap_or(0);
    if most_cached > state.cached_blocks[chosen] {
        found.push(Situation::MissedCacheHit);
    }
    let outstanding = state.outstanding();
    let least = outstanding.iter().copied().min().unwrap_or(0);
    let mean = f64::from(outstanding.iter().sum::<u32>()) / outstanding.len() as f64;
    if outstanding[chosen] >= least + 3 && f64::from(outstanding[chosen]) >= 1.5 * mean {
        found.push(Situation::HotInstance);
    }
    if let Some(seen) = seen {
        let (signal, actual) =
            (seen.queue_depth[chosen] + seen.batch_size[chosen], state.queue_depth[chosen] + state.batch_size[chosen]);
        let off = signal.abs_diff(actual);
        if off >= 2 && off * 5 >= actual {
            found.push(Situation::StaleSignal);
        }
    }
    found
}

/// Keeps a decision of one kind about one request, when it is made.
pub(super) struct ObservedDecision {
    kind: DecisionKind,
    request: RequestId,
    pub decision: Option<ForcedDecision>,
    /// The instances that the policy saw.
    pub shown: Vec<InstanceIndex>,
    /// The instances that could prefill the request, those with the least to do first.
    pub prefills: Vec<InstanceIndex>,
    /// What flow control could have chosen.
    options: GatewayOptions,
    reason: String,
    seen: Option<ObservedSignals>,
    score_regret: Option<f64>,
    /// Whether the signals are kept.
    keeps: bool,
    signals: KnownSignals,
}

impl ObservedDecision {
    pub fn new(kind: DecisionKind, request: RequestId) -> Self {
        Self {
            kind,
            request,
            decision: None,
            shown: Vec::new(),
            prefills: Vec::new(),
            options: GatewayOptions::default(),
            reason: String::new(),
            seen: None,
            score_regret: None,
            keeps: false,
            signals: KnownSignals::default(),
        }
    }

    pub fn scores(&self) -> Vec<f64> {
        self.seen.as_ref().map(|seen| seen.scores.clone()).unwrap_or_default()
    }
}

impl Observer for ObservedDecision {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::DECISIONS
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Decision(decision) = event {
            self.observe(decision);
        }
    }
}

impl ObservedDecision {
    fn observe(&mut self, decision: &Decision<'_>) {
        let (request, cluster, columns, scores) = match *decision {
            Decision::Admission { request, cluster, columns, decision }
                if (self.kind, self.request) == (DecisionKind::Admission, request.id) =>
            {
                self.decision = Some(ForcedDecision::Admit(*decision == AdmissionDecision::Admit));
                if let AdmissionDecision::Reject(reason) = decision {
                    self.reason = reason.to_string();
                }
                (request, cluster, columns, &[][..])
            }
            Decision::Routing { request, cluster, choice, columns, scores, .. }
                if (self.kind, self.request) == (DecisionKind::Routing, request.id) =>
            {
                self.decision = Some(ForcedDecision::Route(cluster.instances[choice.target].id));
                self.reason = choice.reason.to_string();
                self.score_regret = Some(blis_report::score_regret(cluster, scores, choice.target));
                (request, cluster, columns, scores)
            }
            Decision::Disaggregation(ref choice)
                if (self.kind, self.request) == (DecisionKind::Disaggregation, choice.request.id) =>
            {
                let in_flight = &choice.cluster.signals.in_flight;
                self.prefills = choice.prefills.iter().copied().filter(|&prefill| prefill != choice.decode).collect();
                self.prefills.sort_by_key(|prefill| in_flight[prefill.index()]);
                self.decision = Some(ForcedDecision::Prefill(choice.prefill));
                return;
            }
            Decision::Gateway(GatewayDecision { request, saturation, choice, .. }) if request == self.request => {
                self.decision = match (self.kind, choice) {
                    (DecisionKind::Fairness | DecisionKind::Ordering, GatewayChoice::Dispatched { .. }) => {
                        Some(ForcedDecision::Dispatch(request))
                    }
                    (DecisionKind::Eviction, GatewayChoice::Evicted { .. }) => {
                        Some(ForcedDecision::Evict(Some(request)))
                    }
                    _ => return,
                };
                self.options = choice.into();
                self.reason = saturation.map_or_else(String::new, |saturation| format!("saturation {saturation:.2}"));
                return;
            }
            _ => return,
        };
        if self.keeps {
            self.signals = KnownSignals::of_instances(request, cluster, columns);
        }
        let signals = cluster.signals;
        self.shown = cluster.instances.iter().map(|info| info.id).collect();
        self.seen = Some(ObservedSignals {
            age_us: cluster.staleness.load.0,
            queue_depth: signals.queue_depth.clone(),
            batch_size: signals.batch_size.clone(),
            in_flight: signals.in_flight.clone(),
            scores: scores.to_vec(),
        });
    }
}
