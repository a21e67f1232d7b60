//! One decision and the branches in which it is another.

use std::sync::Arc;

use blis_sim::cluster::{Force, Halt, Settled, Timeline};
use blis_sim::cost::Cost;
use blis_sim::instance::Instance;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Decision, Status};
use blis_sim::policy::Verdict;
use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::{DecisionKind, Judged, Seen, Situation, State, Stratum, Texts, World, run_world};

/// A copy of the simulation, just before the decision.
pub(super) struct Fork<I> {
    pub timeline: Timeline<I>,
    pub kind: DecisionKind,
    pub stratum: Stratum,
}

impl<I: Instance + Clone> Fork<I> {
    /// Runs the branches. `None` if there is no alternative to the decision.
    pub fn judge(
        mut self,
        window: Micros,
        most: usize,
        settled: &Arc<Settled>,
        texts: &impl Texts,
    ) -> Result<Option<Judged>, Halt> {
        let Some(pending) = self.timeline.pending() else { return Ok(None) };
        let (at, request) = (pending.at, pending.request.clone());
        // Requests that ended before the decision, but are not reported yet, count in all branches.
        let mut past = Cost::new(at, at.saturating_add(window), request.id);
        self.timeline.catch_up(at, &mut past)?;
        let state = state(&self.timeline, &request);
        match self.kind {
            DecisionKind::Scheduling => self.judge_scheduling((at, window), (past, settled), state, texts),
            DecisionKind::Admission | DecisionKind::Routing => {
                self.judge_front((at, window), most, (past, &request, settled), state, texts)
            }
        }
    }

    fn judge_front(
        self,
        span: (Micros, Micros),
        most: usize,
        (past, request, settled): (Cost, &Request, &Arc<Settled>),
        state: State,
        texts: &impl Texts,
    ) -> Result<Option<Judged>, Halt> {
        let mut sight = Sight::default();
        self.timeline.clone().decide(&mut sight)?;
        let Some(answer) = sight.answer else { return Ok(None) }; // without a decision, no instance serves the request
        let alternatives = match answer {
            Force::Admit(admitted) => vec![Force::Admit(!admitted)],
            Force::Route(chosen) => {
                candidates(&sight.scores(), &state, chosen, most).into_iter().map(Force::Route).collect()
            }
        };
        let mut worlds = Vec::with_capacity(alternatives.len() + 1);
        let held = |mut timeline: Timeline<I>| {
            timeline.settle(Arc::clone(settled));
            timeline
        };
        let actual = run_world(held(self.timeline.clone()), None, past.clone(), span, true)?;
        worlds.push(world(told(answer), &actual, &actual));
        for force in alternatives {
            let force_it = Some((request.id, force));
            let cost = run_world(held(self.timeline.clone()), force_it, past.clone(), span, true)?;
            let reacting = run_world(self.timeline.clone(), force_it, past.clone(), span, false)?;
            worlds.push(world(told(force), &cost, &reacting));
        }
        let situations = match answer {
            Force::Admit(_) => Vec::new(),
            Force::Route(chosen) => situations(chosen as usize, &state, sight.seen.as_ref()),
        };
        let Sight { reason, seen, score_regret, .. } = sight;
        let about = About { kind: self.kind, stratum: self.stratum, request, at: span.0, situations };
        Ok(judged(about, worlds, state, texts).map(|judged| Judged { reason, seen, score_regret, ..judged }))
    }

    /// Computes the regret of serving the first request of the longest queue instead of the second.
    fn judge_scheduling(
        self,
        (at, window): (Micros, Micros),
        (past, settled): (Cost, &Arc<Settled>),
        state: State,
        texts: &impl Texts,
    ) -> Result<Option<Judged>, Halt> {
        let queues = self.timeline.instances().iter().map(Instance::queue);
        // Among equally long queues, the last one.
        let Some((instance, queue)) = queues.enumerate().max_by_key(|(_, queue)| queue.len()) else { return Ok(None) };
        let &[first, second, ..] = queue.as_slice() else { return Ok(None) };
        let cost = || Cost::new(at, at.saturating_add(window), second);
        let with_past = |mut cost: Cost| {
            cost.present = cost.present.saturating_add(past.present);
            cost.awaiting_first_token = cost.awaiting_first_token.saturating_add(past.awaiting_first_token);
            cost
        };
        let mut other = self.timeline.clone();
        other.serve_next(instance, second);
        let reacting = run_world(other.clone(), None, cost(), (at, window), false)?;
        let held = |mut timeline: Timeline<I>| {
            timeline.settle(Arc::clone(settled));
            run_world(timeline, None, cost(), (at, window), true)
        };
        let (actual, other) = (held(self.timeline)?, held(other)?);
        let Some(own) = actual.own else { return Ok(None) };
        let (actual, other, reacting) = (with_past(actual), with_past(other), with_past(reacting));
        let worlds = vec![
            world(format!("request_{first} first, on instance_{instance}"), &actual, &actual),
            world(format!("request_{second} first"), &other, &reacting),
        ];
        let request = Request { tags: own.tags, ..Request::new(own.id, own.arrival, own.input_tokens, 0) };
        let about = About { kind: self.kind, stratum: self.stratum, request: &request, at, situations: Vec::new() };
        Ok(judged(about, worlds, state, texts))
    }
}

/// The decision that branches belong to.
struct About<'a> {
    kind: DecisionKind,
    stratum: Stratum,
    request: &'a Request,
    at: Micros,
    situations: Vec<Situation>,
}

/// Compares the first of `branches` with the others. `None` if there are no others.
fn judged(about: About<'_>, worlds: Vec<World>, state: State, texts: &impl Texts) -> Option<Judged> {
    let (actual, others) = worlds.split_first()?;
    let best = others.iter().min_by(|one, other| one.cost_s.total_cmp(&other.cost_s))?;
    let difference = actual.cost_s - best.cost_s;
    // Only a better alternative makes regret. Otherwise the choice was the best one, and the regret is 0.
    let worse = difference > 0.0;
    let part = |difference: f64| if worse { difference } else { 0.0 };
    let own = part(actual.own_s - best.own_s);
    let apart = |one: Option<f64>, other: Option<f64>| Some(part(one? - other?));
    let reacting = others.iter().map(|world| actual.reacting_cost_s - world.reacting_cost_s).fold(0.0, f64::max);
    let mean = others.iter().map(|world| world.cost_s).sum::<f64>() / others.len() as f64;
    Some(Judged {
        kind: about.kind,
        stratum: about.stratum,
        request_id: format!("request_{}", about.request.id),
        time_us: about.at.0,
        slo_class: texts.class(about.request.tags.slo_class),
        input_tokens: about.request.input_tokens,
        reason: String::new(),
        situations: about.situations,
        regret_s: part(difference),
        own_s: own,
        externality_s: part(difference) - own,
        advantage_s: mean - actual.cost_s,
        reaction_s: reacting,
        ttft_regret_ms: apart(actual.ttft_ms, best.ttft_ms),
        e2e_regret_ms: apart(actual.e2e_ms, best.e2e_ms),
        score_regret: None,
        seen: None,
        state,
        worlds,
    })
}

/// `rollout`: cost of the same branch with all later decisions made by the policies.
fn world(answer: String, cost: &Cost, reacting: &Cost) -> World {
    let ms = |time: Micros| time.0 as f64 / 1e3;
    let own = cost.own.as_ref();
    World {
        answer: answer.into(),
        status: own.map_or("unknown", |own| status(own.status)),
        ttft_ms: own.and_then(|own| own.ttft).map(ms),
        e2e_ms: own.and_then(|own| own.e2e).map(ms),
        cost_s: cost.present.as_secs_f64(),
        reacting_cost_s: reacting.present.as_secs_f64(),
        awaiting_first_token_s: cost.awaiting_first_token.as_secs_f64(),
        unanswered: cost.unanswered,
        own_s: cost.own_present().as_secs_f64(),
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Completed | Status::LengthCapped => "completed",
        Status::TimedOut => "timed_out",
        Status::Dropped(_) => "dropped",
        Status::Queued | Status::Running | Status::Arriving => "unfinished",
        Status::Rejected(_) => "rejected",
    }
}

fn told(force: Force) -> String {
    match force {
        Force::Admit(true) => "admitted".to_owned(),
        Force::Admit(false) => "rejected".to_owned(),
        Force::Route(place) => format!("instance_{place}"),
    }
}

/// The state of the instances at the time of the decision.
pub(super) fn state<I: Instance>(timeline: &Timeline<I>, request: &Request) -> State {
    let keys: Vec<u32> = request.content.keys().collect();
    let mut state = State { cached_blocks: timeline.cached(&keys), ..State::default() };
    for instance in timeline.instances() {
        let load = instance.load();
        state.queue_depth.push(load.queue_depth);
        state.batch_size.push(load.batch_size);
        state.arriving.push(instance.untouched() as u32);
        state.free_kv_blocks.push(load.total_kv_blocks - load.used_kv_blocks);
    }
    state
}

/// At most `most` instances other than `chosen` that are worth trying: the one with the most cached blocks of the
/// prompt, the one with the fewest requests, then the best by the policy's own scores, or those with the fewest
/// requests.
pub(super) fn candidates(scores: &[f64], state: &State, chosen: u32, most: usize) -> Vec<u32> {
    let outstanding = state.outstanding();
    let others = || (0..outstanding.len()).filter(|&i| i != chosen as usize);
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
    let mut kept: Vec<u32> = Vec::new();
    for i in ordered {
        if kept.len() < most && !kept.contains(&(i as u32)) {
            kept.push(i as u32);
        }
    }
    kept
}

fn situations(chosen: usize, state: &State, seen: Option<&Seen>) -> Vec<Situation> {
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
        let (told, real) =
            (seen.queue_depth[chosen] + seen.batch_size[chosen], state.queue_depth[chosen] + state.batch_size[chosen]);
        let off = told.abs_diff(real);
        if off >= 2 && off * 5 >= real {
            found.push(Situation::StaleSignal);
        }
    }
    found
}

/// Keeps the first decision that it observes.
#[derive(Default)]
pub(super) struct Sight {
    pub answer: Option<Force>,
    reason: String,
    seen: Option<Seen>,
    score_regret: Option<f64>,
}

impl Sight {
    pub fn scores(&self) -> Vec<f64> {
        self.seen.as_ref().map(|seen| seen.scores.clone()).unwrap_or_default()
    }
}

impl Observer for Sight {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::DECISIONS
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Decision(decision) = event {
            self.see(decision);
        }
    }
}

impl Sight {
    fn see(&mut self, decision: &Decision<'_>) {
        if self.answer.is_some() {
            return;
        }
        let (cluster, scores) = match *decision {
            Decision::Admission { cluster, verdict, .. } => {
                self.answer = Some(Force::Admit(*verdict == Verdict::Admit));
                if let Verdict::Reject(reason) = verdict {
                    self.reason = reason.to_string();
                }
                (cluster, &[][..])
            }
            Decision::Routing { cluster, choice, scores, .. } => {
                self.answer = Some(Force::Route(choice.target as u32));
                self.reason = choice.reason.to_string();
                self.score_regret = Some(blis_report::score_regret(cluster, scores, choice.target));
                (cluster, scores)
            }
            Decision::Scheduling(_) | Decision::Preemption(_) => return,
        };
        let signals = cluster.signals;
        self.seen = Some(Seen {
            age_us: cluster.ages.load.0,
            queue_depth: signals.queue_depth.clone(),
            batch_size: signals.batch_size.clone(),
            in_flight: signals.in_flight.clone(),
            scores: scores.to_vec(),
        });
    }
}
