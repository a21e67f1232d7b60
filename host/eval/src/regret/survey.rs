//! What the actual run tells about its decisions, and which of them are looked at.

use std::sync::Arc;

use blis_sim::cluster::{RecordedDecision, RecordedDecisions};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Decision, Outcome};
use blis_sim::policy::AdmissionDecision;
use blis_sim::request::Request;
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use rand::seq::index;
use rustc_hash::FxHashSet;

use super::{DecisionKind, RegretOptions, Stratum};

/// Watches a run: its arrivals, its decisions, its ends.
#[derive(Debug, Default)]
pub struct Survey {
    arrivals: Vec<Request>,
    decisions: Vec<Noted>,
    ended: Vec<Ended>,
}

#[derive(Debug)]
struct Noted {
    request: u32,
    /// Of routing.
    target: Option<u32>,
    kind: DecisionKind,
    /// The best score − the second best; `None` without scores.
    margin: Option<f64>,
    /// Of admission.
    rejected: bool,
    /// Somebody may have waited behind somebody else.
    queued: bool,
}

#[derive(Debug)]
struct Ended {
    id: u32,
    e2e: Option<Micros>,
    /// It missed a target.
    missed: bool,
}

/// A decision to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// Which one, in the order in which they are made; those of scheduling are looked at in the moment of
    /// that one.
    pub number: usize,
    /// About which request that is.
    pub request: u32,
    /// Whose.
    pub kind: DecisionKind,
    /// Why.
    pub stratum: Stratum,
}

impl Survey {
    /// Every request that arrived, in order.
    #[must_use]
    pub fn arrivals(&self) -> Arc<[Request]> {
        self.arrivals.as_slice().into()
    }

    /// Every decision about who comes in and who goes where.
    #[must_use]
    pub fn settled(&self) -> Arc<RecordedDecisions> {
        let fate = |noted: &Noted| match noted.target {
            Some(target) => RecordedDecision::Routed(target),
            None if noted.rejected => RecordedDecision::Rejected,
            None => RecordedDecision::Admitted,
        };
        // Of the two about one request that of routing is the later one.
        Arc::new(self.decisions.iter().map(|noted| (noted.request, fate(noted))).collect())
    }

    /// How many decisions of `kind` there were.
    #[must_use]
    pub fn decisions(&self, kind: DecisionKind) -> usize {
        self.decisions.iter().filter(|noted| noted.kind == kind).count()
    }

    /// How long the consequences of a decision count.
    #[must_use]
    pub fn window(&self, options: &RegretOptions) -> Micros {
        const SHORTEST: Micros = Micros(1_000_000);
        options.window.unwrap_or_else(|| {
            let e2e = || self.ended.iter().filter_map(|ended| ended.e2e);
            let mean = e2e().map(|e2e| u128::from(e2e.0)).sum::<u128>() / e2e().count().max(1) as u128;
            Micros(u64::try_from(2 * mean).unwrap_or(u64::MAX)).max(SHORTEST)
        })
    }

    /// Says of each request that ended whether it `missed` a target. Without this, those are missed that
    /// belong to the slowest twentieth.
    pub fn with_targets(&mut self, any: bool) {
        if any {
            return;
        }
        let mut e2e: Vec<Micros> = self.ended.iter().filter_map(|ended| ended.e2e).collect();
        e2e.sort_unstable();
        let limit = e2e.get(e2e.len() * 19 / 20).copied().unwrap_or(Micros::MAX);
        self.ended.iter_mut().for_each(|ended| ended.missed = ended.e2e.is_none_or(|e2e| e2e >= limit));
    }

    /// Chooses what to look at, in the order in which it is decided.
    #[must_use]
    pub fn sample(&self, options: &RegretOptions) -> Vec<Sample> {
        let missed: FxHashSet<u32> = self.ended.iter().filter(|ended| ended.missed).map(|ended| ended.id).collect();
        let few = options.samples.div_ceil(4);
        let mut draw = Draw { random: Stream::new(options.seed, "regret"), turn: 0, taken: Vec::new() };
        let of = |kind: DecisionKind| self.decisions.iter().enumerate().filter(move |(_, noted)| noted.kind == kind);
        let numbers = |those: &mut dyn Iterator<Item = (usize, &Noted)>| those.map(|(number, _)| number).collect();

        // First those at random, from all: what is drawn after them must not be missing there. Where there is
        // little to draw for another reason, there are more of them.
        let routing = DecisionKind::Routing;
        let late: Vec<usize> = numbers(&mut of(routing).filter(|(_, noted)| missed.contains(&noted.request)));
        let mut margins: Vec<(usize, f64)> =
            of(routing).filter_map(|(number, noted)| Some((number, noted.margin?))).collect();
        margins.sort_by(|one, other| other.1.total_cmp(&one.1));
        let others = few.min(late.len()) + few.min(margins.len());
        draw.some(options.samples.saturating_sub(others), numbers(&mut of(routing)), routing, Stratum::Uniform);
        draw.some(few, late, routing, Stratum::Missed);
        draw.first(few, margins.into_iter().map(|(number, _)| number), routing, Stratum::Margin);

        let admission = DecisionKind::Admission;
        let rejected: Vec<usize> = numbers(&mut of(admission).filter(|(_, noted)| noted.rejected));
        let others = (few / 2).min(rejected.len());
        draw.some(few - others, numbers(&mut of(admission)), admission, Stratum::Uniform);
        draw.some(others, rejected, admission, Stratum::Missed);
        let queued = of(routing).filter(|(_, noted)| noted.queued);
        draw.some(few, numbers(&mut { queued }), DecisionKind::Scheduling, Stratum::Uniform);
        draw.taken.sort_unstable();
        let sample = |(number, kind, stratum): (usize, DecisionKind, Stratum)| Sample {
            number,
            request: self.decisions[number].request,
            kind,
            stratum,
        };
        draw.taken.into_iter().map(sample).collect()
    }
}

/// Draws without putting back.
struct Draw {
    random: Stream,
    turn: u64,
    /// Number, of whom, why.
    taken: Vec<(usize, DecisionKind, Stratum)>,
}

impl Draw {
    /// `count` of `from` at random, less those that were taken before.
    fn some(&mut self, count: usize, from: Vec<usize>, kind: DecisionKind, stratum: Stratum) {
        let taken: FxHashSet<usize> = self.taken.iter().filter(|taken| taken.1 == kind).map(|taken| taken.0).collect();
        let from: Vec<usize> = from.into_iter().filter(|number| !taken.contains(number)).collect();
        self.turn += 1;
        let mut random = self.random.at(self.turn);
        let chosen = index::sample(&mut random, from.len(), count.min(from.len()));
        self.taken.extend(chosen.iter().map(|i| (from[i], kind, stratum)));
    }

    /// The first `count` of `from` that were not taken before.
    fn first(&mut self, count: usize, from: impl Iterator<Item = usize>, kind: DecisionKind, stratum: Stratum) {
        let is_taken = |number: &usize| self.taken.iter().any(|&(taken, whose, _)| (taken, whose) == (*number, kind));
        let chosen: Vec<usize> = from.filter(|number| !is_taken(number)).take(count).collect();
        self.taken.extend(chosen.into_iter().map(|number| (number, kind, stratum)));
    }
}

/// The best score − the second best.
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

/// A survey, and who knows which requests missed a target.
#[derive(Debug)]
pub struct Surveyor<F> {
    /// What was seen.
    pub survey: Survey,
    /// Whether a request missed a target of its class.
    pub missed: F,
}

impl<F: Fn(&Outcome) -> bool> Observer for Surveyor<F> {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::ARRIVALS | Interests::DECISIONS | Interests::OUTCOMES | Interests::LOAD | Interests::IN_FLIGHT
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Arrival(request) => self.survey.arrivals.push(request.clone()),
            SimEvent::Decision(decision) => self.survey.decided(decision),
            SimEvent::Outcome(outcome) => self.ended(outcome),
            _ => {}
        }
    }
}

impl<F: Fn(&Outcome) -> bool> Surveyor<F> {
    fn ended(&mut self, outcome: &Outcome) {
        let missed = (self.missed)(outcome);
        self.survey.ended.push(Ended { id: outcome.id, e2e: outcome.e2e, missed });
    }
}

impl Survey {
    fn decided(&mut self, decision: &Decision<'_>) {
        let noted = match *decision {
            Decision::Admission { request, decision, .. } => Noted {
                request: request.id,
                target: None,
                kind: DecisionKind::Admission,
                margin: None,
                rejected: *decision != AdmissionDecision::Admit,
                queued: false,
            },
            Decision::Routing { request, cluster, scores, choice, .. } => Noted {
                request: request.id,
                target: Some(choice.target as u32),
                kind: DecisionKind::Routing,
                margin: margin(scores),
                rejected: false,
                queued: cluster.signals.queue_depth.iter().any(|&depth| depth > 1),
            },
            Decision::Scheduling(_) | Decision::Preemption(_) => return,
        };
        self.decisions.push(noted);
    }
}
