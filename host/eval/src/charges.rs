//! Every end of a request is charged: the latencies and shares that a fitness reads.
//!
//! The figures of a run are those of requests that were served. A policy could improve them by serving fewer: by
//! rejecting requests, by leaving them in a queue until the horizon, or by letting them time out. In the figures of a
//! fitness each request of the window counts once:
//!
//! | end | TTFT and E2E |
//! |---|---|
//! | completed | as they were; TTFT of a preempted request at least E2E less 1.25 times what as many tokens take others |
//! | unfinished at the end of the run, but in a running batch | TTFT as it was if its first token came; E2E twice the time since its arrival |
//! | unfinished and not in a batch, timed out | twice the time since its arrival, whether its first token came or not |
//! | rejected, or dropped because an instance is too small for it | [`NEVER`], or the whole window if that is longer |
//! | dropped because its prompt is too long, or because no instance serves its model | none: no policy can serve it |
//!
//! Twice, because only the part of the wait is known that has passed. The end of the run is no special moment of the
//! wait, so the part that is still to come is as long on average (the age of a renewal process and its residual life
//! have the same distribution).
//!
//! A first token counts only if an output follows it. Otherwise a policy could give every request its first token, preempt it
//! and serve the next one, as if the first token were all that a client waits for. If the output follows later, the time for which it
//! stood still counts in TTFT, as if the first token had come behind it.
//!
//! Requests of classes that may be shed are in no latency of all requests. What they cost is their value, in
//! completed shares, goodput and SLO attainment.
//!
//! The window begins with the end of the warm-up, and ends with the last event of the run, or with the horizon. It has the
//! requests that arrive in it, as that of the report, and those that arrive in the warm-up but do not complete in it: otherwise
//! rejecting them, or leaving them unserved, would empty the queue with which the window begins at no cost.

use std::collections::{BTreeMap, BTreeSet};

use blis_sim::metrics::{Distribution, MetricsOptions, Report, SloTargets};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{DropReason, Outcome, Rejection, Status};
use blis_sim::policy::Classes;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use blis_workload::Names;

use super::figures::{Figure, Figures};
use super::fitness::FitnessWeights;
use super::objective::{ChargedFigures, EndValues, Objective};

/// TTFT and E2E of a request that was rejected: ten minutes (the default timeout
/// of OpenAI's Python client, 600 s).
pub const NEVER: Micros = Micros(600_000_000);

/// A request is starved if so large a part of the requests of its class arrived later and got what it lacks: their first
/// token, or their last.
const OVERTAKEN: f64 = 0.1;
/// The same as a number of requests, for classes with few.
const MIN_OVERTAKEN: f64 = 10.0;
/// A request that timed out is starved as well if so large a part of those that arrived while it waited got their first token
/// before: within a long run, few arrive in that time.
const OVERTAKEN_IN_TIME: f64 = 0.25;
/// An output has stopped if, since its first token, a completed request of the class would have got as many times its tokens.
const STOPPED: f64 = 10.0;

/// A preempted request may take so many times as long for its output as requests of its class that were not, before the rest of the time
/// counts in its TTFT.
const UNBROKEN: f64 = 1.25;

/// What a request of a class is worth, and whether it may be shed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassRule {
    /// Value of a completed request relative to one of another class, above 0.
    pub value: f64,
    /// Whether requests of the class may be rejected or left unserved.
    pub sheddable: bool,
}

/// The rules of all classes of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassRules {
    /// By [`Name`].
    rules: Vec<ClassRule>,
}

impl ClassRules {
    /// Every request has the value 1, and classes of a priority below 0 may be shed.
    #[must_use]
    pub fn by_priority(classes: &Classes, names: &Names) -> Self {
        Self::new(classes, names, |_, usual| usual)
    }

    /// As [`Self::by_priority`], changed by `rule`, which gets the name of a class and its usual rule.
    #[must_use]
    pub fn new(classes: &Classes, names: &Names, rule: impl Fn(&str, ClassRule) -> ClassRule) -> Self {
        let of = |(number, text): (usize, &str)| {
            // The index of a name fits in its number.
            let sheddable = classes.priority(Name(number as u32)) < 0;
            rule(text, ClassRule { value: 1.0, sheddable })
        };
        Self { rules: names.texts().iter().map(|text| &**text).enumerate().map(of).collect() }
    }

    /// The rule of a class.
    #[must_use]
    pub fn rule(&self, class: Name) -> ClassRule {
        self.rules.get(class.index()).copied().unwrap_or(ClassRule { value: 1.0, sheddable: false })
    }
}

/// Records how every request of the window ended.
#[derive(Clone, Debug)]
pub struct EndLog {
    warmup: Micros,
    default_class: Option<Name>,
    targets: Vec<(Name, SloTargets)>,
    ends: Vec<ChargedEnd>,
}

#[derive(Clone, Copy, Debug)]
struct ChargedEnd {
    class: Name,
    arrival: Micros,
    ended_at: Micros,
    ttft: Option<Micros>,
    e2e: Option<Micros>,
    status: Status,
    output_tokens: u32,
    preempted: bool,
    /// Whether it met all targets of its class; `None` if the class has none.
    met: Option<bool>,
}

impl ChargedEnd {
    fn completed(&self) -> bool {
        matches!(self.status, Status::Completed | Status::LengthCapped)
    }

    /// Whether the service refused it, although it can be served.
    fn refused(&self) -> bool {
        use Status::{Dropped, Rejected};
        match self.status {
            Rejected(rejection) => rejection != Rejection::Routing,
            status => matches!(status, Dropped(DropReason::KvTooSmall | DropReason::NoDecodeBlocks) | Status::Evicted),
        }
    }

    fn unfinished(&self) -> bool {
        matches!(self.status, Status::Queued | Status::Running | Status::Arriving | Status::InGateway)
    }
}

impl Observer for EndLog {
    #[inline(always)]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = *event
            && (outcome.arrival >= self.warmup || self.outlasts_warmup(outcome))
        {
            self.add(outcome);
        }
    }
}

impl EndLog {
    /// An empty log with the window, classes and targets of `options`.
    #[must_use]
    pub fn new(options: &MetricsOptions) -> Self {
        let MetricsOptions { warmup, default_class, targets, .. } = options;
        Self { warmup: *warmup, default_class: *default_class, targets: targets.clone(), ends: Vec::new() }
    }

    /// Whether a request of the warm-up belongs to the window: unless it completed in the warm-up, or no policy could serve
    /// it.
    fn outlasts_warmup(&self, outcome: &Outcome) -> bool {
        match outcome.status {
            Status::Completed | Status::LengthCapped => outcome.ended_at >= self.warmup,
            Status::Rejected(Rejection::Routing) => false,
            Status::Dropped(reason) => matches!(reason, DropReason::KvTooSmall | DropReason::NoDecodeBlocks),
            _ => true,
        }
    }

    fn add(&mut self, outcome: &Outcome) {
        let &Outcome { arrival, ended_at, ttft, e2e, status, generated_tokens, preemptions, tags, .. } = outcome;
        let class = if Some(tags.slo_class) == self.default_class { Name::NONE } else { tags.slo_class };
        let targets = self.targets.iter().rev().find(|(name, _)| *name == class).map(|(_, targets)| targets);
        let met = targets.filter(|targets| has_target(targets)).map(|targets| targets.met(outcome));
        self.ends.push(ChargedEnd {
            class,
            arrival,
            ended_at,
            ttft,
            e2e,
            status,
            output_tokens: generated_tokens,
            preempted: preemptions > 0,
            met,
        });
    }

    /// The figures that `weights` count, and the ends of all requests. `report` and `figures` are those of the run.
    #[must_use]
    pub fn charge(mut self, report: &Report, rules: &ClassRules, names: &Names) -> Charges {
        // The order of events between instances is not defined, and the result must not depend on it.
        self.ends.sort_by_key(|one| (one.arrival, one.ttft.is_none(), one.ttft, one.e2e, one.class));
        let classes: BTreeSet<Name> = self.ends.iter().map(|one| one.class).collect();
        // If every class may be shed, none is protected by shedding another.
        let all = classes.iter().all(|&class| rules.rule(class).sheddable);
        let rule = |&class: &Name| {
            let ClassRule { value, sheddable } = rules.rule(class);
            (class, ClassRule { value, sheddable: sheddable && !all })
        };
        let unbroken =
            |&class: &Name| (class, pace(self.ends.iter().filter(|one| one.class == class && !one.preempted)));
        Charges {
            paces: classes.iter().map(unbroken).collect(),
            end: self.warmup.saturating_add(report.cluster.duration),
            seconds: report.cluster.duration.as_secs_f64(),
            never: NEVER.max(report.cluster.duration),
            rules: classes.iter().map(rule).collect(),
            names: classes.iter().map(|&class| (names.text(class).to_owned(), class)).collect(),
            ends: self.ends,
        }
    }
}

fn has_target(targets: &SloTargets) -> bool {
    [targets.ttft, targets.itl, targets.e2e].into_iter().flatten().any(|target| target > Micros::ZERO)
}

/// The ends of all requests of a run, in the order of arrival, with what they are charged.
#[derive(Clone, Debug)]
pub struct Charges {
    end: Micros,
    seconds: f64,
    never: Micros,
    /// Of the classes that occur.
    rules: BTreeMap<Name, ClassRule>,
    /// The pace of requests that were not preempted, by class.
    paces: BTreeMap<Name, TokenPace>,
    names: BTreeMap<String, Name>,
    ends: Vec<ChargedEnd>,
}

/// How the requests of one class ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassEnds {
    pub arrived: u64,
    pub completed: u64,
    /// Rejected, or starved: without the first token, or before the last.
    pub lost: u64,
    /// Mean end-to-end latency, ms; charged if the class may not be shed, else that of completed requests. 0 without
    /// requests.
    pub mean_e2e_ms: f64,
    pub sheddable: bool,
}

impl Charges {
    /// The figures that `weights` count; those that are not about the ends of requests are those of `figures`.
    #[must_use]
    pub fn figures(&self, weights: &FitnessWeights, figures: &Figures) -> ChargedFigures {
        let mut known = BTreeMap::new();
        let figures = weights
            .iter()
            .filter_map(|(objective, _)| Some((objective.key.clone(), self.figure(objective, figures, &mut known)?)));
        ChargedFigures { figures: figures.collect(), ends: self.values() }
    }

    fn figure(&self, objective: &Objective, figures: &Figures, known: &mut KnownLatencies) -> Option<f64> {
        let class = match &objective.class {
            Some(name) => Some(*self.names.get(name)?),
            None => None,
        };
        let share = |is: fn(&ChargedEnd) -> bool| {
            let all = self.value(class, |_| true);
            (all > 0.0).then(|| self.value(class, is) / all)
        };
        let per_second = |value: f64| (self.seconds > 0.0).then(|| value / self.seconds);
        match objective.figure {
            Figure::Throughput => per_second(self.value(class, ChargedEnd::completed)),
            Figure::TokensPerSec => per_second(self.tokens(class)),
            Figure::Goodput => {
                self.has_targets(class).then(|| self.value(class, |one| one.met == Some(true))).and_then(per_second)
            }
            Figure::SloAttainment => {
                let all = self.value(class, |one| one.met.is_some());
                (all > 0.0).then(|| self.value(class, |one| one.met == Some(true)) / all)
            }
            Figure::CompletedShare => share(ChargedEnd::completed),
            Figure::RejectedShare => share(|one| matches!(one.status, Status::Rejected(_))),
            Figure::TimedOutShare => share(|one| one.status == Status::TimedOut),
            figure => match ChargedLatency::for_figure(figure) {
                Some((latency, of)) => {
                    let all = known.entry((class, latency)).or_insert_with(|| self.distribution(class, latency));
                    (all.count > 0).then(|| of(all))
                }
                None => figures.get(figure),
            },
        }
    }

    /// The ends of all requests, by the value of their classes.
    #[must_use]
    pub fn values(&self) -> EndValues {
        let mut values = EndValues::default();
        for (&class, rule) in &self.rules {
            let ClassEnds { arrived, completed, lost, .. } = self.counts(class);
            if rule.sheddable {
                values.sheddable_completed += rule.value * completed as f64;
            } else {
                values.arrived += rule.value * arrived as f64;
                values.completed += rule.value * completed as f64;
                values.lost += rule.value * lost as f64;
            }
        }
        values
    }

    /// The ends of each class, by its name.
    #[must_use]
    pub fn classes(&self) -> BTreeMap<String, ClassEnds> {
        let of = |(name, &class): (&String, &Name)| {
            let mean_e2e_ms = self.distribution(Some(class), ChargedLatency::E2e).mean_ms;
            (name.clone(), ClassEnds { mean_e2e_ms, ..self.counts(class) })
        };
        self.names.iter().map(of).collect()
    }

    /// All but the latency.
    fn counts(&self, class: Name) -> ClassEnds {
        let those: Vec<&ChargedEnd> = self.ends.iter().filter(|one| one.class == class).collect();
        ClassEnds {
            arrived: those.len() as u64,
            completed: those.iter().filter(|one| one.completed()).count() as u64,
            lost: those.iter().filter(|one| one.refused()).count() as u64 + starved(&those) + stopped(&those, self.end),
            mean_e2e_ms: 0.0,
            sheddable: self.rules[&class].sheddable,
        }
    }

    fn has_targets(&self, class: Option<Name>) -> bool {
        self.ends.iter().any(|one| one.met.is_some() && class.is_none_or(|class| class == one.class))
    }

    /// Value of the requests that `is` is true of. Within one class each counts 1.
    fn value(&self, class: Option<Name>, is: impl Fn(&ChargedEnd) -> bool) -> f64 {
        self.sum(class, |one| if is(one) { 1.0 } else { 0.0 })
    }

    /// Output tokens of completed requests, by value.
    fn tokens(&self, class: Option<Name>) -> f64 {
        self.sum(class, |one| if one.completed() { f64::from(one.output_tokens) } else { 0.0 })
    }

    fn sum(&self, class: Option<Name>, of: impl Fn(&ChargedEnd) -> f64) -> f64 {
        match class {
            Some(class) => self.ends.iter().filter(|one| one.class == class).map(of).sum(),
            None => self.ends.iter().map(|one| self.rules[&one.class].value * of(one)).sum(),
        }
    }

    /// The latencies of `class`, or of all requests that may not be shed.
    fn distribution(&self, class: Option<Name>, latency: ChargedLatency) -> Distribution {
        let counts = |one: &&ChargedEnd| match class {
            Some(class) => one.class == class,
            None => !self.rules[&one.class].sheddable,
        };
        let mut samples: Vec<Micros> =
            self.ends.iter().filter(counts).filter_map(|one| self.charged(one, latency)).collect();
        Distribution::from_samples(&mut samples)
    }

    /// Time from the arrival of a completed request from which on its output came without long breaks; 0 if it was not preempted, or
    /// if all others were.
    fn carried_on(&self, one: &ChargedEnd) -> Micros {
        let TokenPace { us, tokens } = self.paces[&one.class];
        let (true, Some(e2e), true) = (one.preempted, one.e2e, tokens > 0.0) else { return Micros::ZERO };
        let output = UNBROKEN * f64::from(one.output_tokens.saturating_sub(1)) * us / tokens;
        e2e.saturating_sub(Micros::from_f64(output))
    }

    /// What `one` counts with; `None` if it counts in no latency.
    fn charged(&self, one: &ChargedEnd, latency: ChargedLatency) -> Option<Micros> {
        let served = match latency {
            ChargedLatency::Ttft => one.ttft,
            ChargedLatency::E2e => one.e2e,
        };
        if one.completed() && latency == ChargedLatency::Ttft {
            return served.map(|ttft| ttft.max(self.carried_on(one)));
        }
        if one.completed() || self.rules[&one.class].sheddable {
            return served;
        }
        let twice = |since: Micros| Micros(since.0.saturating_sub(one.arrival.0).saturating_mul(2));
        match one.status {
            _ if one.refused() => Some(self.never),
            Status::Rejected(Rejection::Routing) | Status::Dropped(_) => None,
            Status::TimedOut => Some(twice(one.ended_at)),
            // In a batch at the end of the run.
            Status::Running => served.or(Some(twice(self.end).max(one.ttft.unwrap_or(Micros::ZERO)))),
            _ => Some(twice(self.end)),
        }
    }
}

/// The time of a number of tokens behind the first ones.
#[derive(Clone, Copy, Debug, Default)]
struct TokenPace {
    us: f64,
    tokens: f64,
}

/// The pace of the completed requests of `those`.
fn pace<'a>(those: impl Iterator<Item = &'a ChargedEnd>) -> TokenPace {
    let mut pace = TokenPace::default();
    for one in those.filter(|one| one.completed()) {
        let (Some(ttft), Some(e2e)) = (one.ttft, one.e2e) else { continue };
        pace.us += e2e.saturating_sub(ttft).0 as f64;
        pace.tokens += f64::from(one.output_tokens.saturating_sub(1));
    }
    pace
}

/// Distributions that were computed already.
type KnownLatencies = BTreeMap<(Option<Name>, ChargedLatency), Distribution>;

/// A latency that every end is charged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ChargedLatency {
    Ttft,
    E2e,
}

/// Mean or percentile of a distribution, ms.
type SummaryOf = fn(&Distribution) -> f64;

impl ChargedLatency {
    /// The latency that `figure` sums up, and how.
    fn for_figure(figure: Figure) -> Option<(Self, SummaryOf)> {
        Some(match figure {
            Figure::MeanTtft => (Self::Ttft, |all| all.mean_ms),
            Figure::P50Ttft => (Self::Ttft, |all| all.p50_ms),
            Figure::P90Ttft => (Self::Ttft, |all| all.p90_ms),
            Figure::P95Ttft => (Self::Ttft, |all| all.p95_ms),
            Figure::P99Ttft => (Self::Ttft, |all| all.p99_ms),
            Figure::MeanE2e => (Self::E2e, |all| all.mean_ms),
            Figure::P50E2e => (Self::E2e, |all| all.p50_ms),
            Figure::P90E2e => (Self::E2e, |all| all.p90_ms),
            Figure::P95E2e => (Self::E2e, |all| all.p95_ms),
            Figure::P99E2e => (Self::E2e, |all| all.p99_ms),
            _ => return None,
        })
    }
}

/// Number of requests of a class, in the order of arrival, that ended without a first token while later ones got theirs in
/// their stead: unfinished, although a tenth of the class arrived later and has it; or timed out, although so many of
/// those that arrived while it waited had theirs before.
fn starved(those: &[&ChargedEnd]) -> u64 {
    let enough = (those.len() as f64 * OVERTAKEN).max(MIN_OVERTAKEN);
    let (mut later, mut starved) = (0.0, 0);
    for (index, one) in those.iter().enumerate().rev() {
        let is_starved = match one.status {
            _ if one.ttft.is_some() => {
                later += 1.0;
                false
            }
            Status::TimedOut => later >= MIN_OVERTAKEN && overtaken_in_time(one, &those[index + 1..], enough),
            _ => one.unfinished() && later >= enough,
        };
        starved += u64::from(is_starved);
    }
    starved
}

/// Whether `one` timed out although `enough` of the `later` ones, or a quarter of those that arrived while it waited, had
/// their first token before. Of queues in turn that is true of those that are half as long as others.
fn overtaken_in_time(one: &ChargedEnd, later: &[&ChargedEnd], enough: f64) -> bool {
    let meanwhile = &later[..later.partition_point(|other| other.arrival <= one.ended_at)];
    let enough = enough.min(meanwhile.len() as f64 * OVERTAKEN_IN_TIME).max(MIN_OVERTAKEN);
    let before =
        |other: &&&ChargedEnd| other.ttft.is_some_and(|ttft| other.arrival.saturating_add(ttft) <= one.ended_at);
    // No more of them than decide.
    meanwhile.iter().filter(before).take(enough.ceil() as usize).count() as f64 >= enough
}

/// Number of requests of a class, in the order of arrival, that are unfinished at `end`, or timed out, with an output that
/// has stopped: since its first token it got less than a tenth of the tokens that completed requests get in that time,
/// although a tenth of the class arrived later and completed.
fn stopped(those: &[&ChargedEnd], end: Micros) -> u64 {
    let TokenPace { us: time, tokens } = pace(those.iter().copied());
    let enough = (those.len() as f64 * OVERTAKEN).max(MIN_OVERTAKEN);
    let (mut later, mut stopped) = (0.0, 0);
    for one in those.iter().rev() {
        let Some(ttft) = one.ttft else { continue };
        let until = if one.status == Status::TimedOut { one.ended_at } else { end };
        let since = until.saturating_sub(one.arrival.saturating_add(ttft)).0 as f64;
        if one.completed() {
            later += 1.0;
        } else if (one.unfinished() || one.status == Status::TimedOut)
            && later >= enough
            && since * tokens > STOPPED * f64::from(one.output_tokens) * time
        {
            stopped += 1;
        }
    }
    stopped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fitness::{FitnessScale, FitnessWeights};
    use blis_sim::ids::{InstanceIndex, RequestId};
    use blis_sim::metrics::Aggregate;
    use blis_sim::request::Tags;
    use proptest::prelude::*;

    fn weights(text: &str) -> FitnessWeights {
        FitnessWeights::parse(text, FitnessScale::Ratio).expect(text)
    }

    fn ms(ms: f64) -> Micros {
        Micros((ms * 1e3) as u64)
    }

    /// Times in ms; `served` is the TTFT, after which a completed request takes another 10 ms.
    fn outcome(class: Name, arrival: f64, status: Status, served: Option<f64>) -> Outcome {
        let completed = status == Status::Completed;
        Outcome {
            id: RequestId(0),
            arrival: ms(arrival),
            input_tokens: 10,
            output_tokens: 5,
            generated_tokens: 5,
            status,
            ended_at: ms(arrival),
            instance: Some(InstanceIndex(0)),
            tags: Tags { slo_class: class, ..Tags::default() },
            ttft: served.map(ms),
            e2e: served.filter(|_| completed).map(|served| ms(served + 10.0)),
            itl_sum: Micros::ZERO,
            itl_count: 0,
            itl_mean_us: 0.0,
            scheduling_delay: None,
            preemptions: 0,
            cached_tokens: 0,
            cpu_cached_tokens: 0,
            kv_load_wait: Micros::ZERO,
        }
    }

    fn done(class: Name, arrival: f64, ttft: f64) -> Outcome {
        outcome(class, arrival, Status::Completed, Some(ttft))
    }

    /// The charges of a run of `seconds` that ended so.
    fn charges(seconds: f64, names: &Names, outcomes: &[Outcome]) -> Charges {
        let targets = vec![(Name::NONE, SloTargets { ttft: Some(ms(50.0)), ..SloTargets::default() })];
        let mut log = EndLog::new(&MetricsOptions { warmup: ms(5.0), targets, ..MetricsOptions::default() });
        outcomes.iter().for_each(|outcome| log.record(&SimEvent::Outcome(outcome)));
        let duration = ms(seconds * 1e3 - 5.0);
        let report = Report { cluster: Aggregate { duration, ..Aggregate::default() }, ..Report::default() };
        let classes = Classes::new(names.texts().iter().map(AsRef::as_ref), &[]);
        log.charge(&report, &ClassRules::by_priority(&classes, names), names)
    }

    fn figures(charges: &Charges, text: &str) -> ChargedFigures {
        charges.figures(&weights(text), &Figures::default())
    }

    fn plain(seconds: f64, outcomes: &[Outcome], text: &str) -> ChargedFigures {
        figures(&charges(seconds, &Names::default(), outcomes), text)
    }

    fn classes() -> (Names, Name, Name) {
        let mut names = Names::default();
        let (critical, batch) = (names.intern("critical"), names.intern("batch"));
        (names, critical, batch)
    }

    #[test]
    fn served_requests_count_as_they_were_and_the_warm_up_not() {
        let in_warmup = done(Name::NONE, 0.5, 2.0).ended_at(ms(4.0));
        let all = [in_warmup, done(Name::NONE, 10.0, 40.0), done(Name::NONE, 20.0, 60.0)];
        let charged = plain(1.0, &all, "mean_ttft:1,p50_e2e:1,slo_attainment:1,completed_share:1,goodput:1");
        let value = |key: &str| charged.figures[key];
        assert_eq!((value("mean_ttft"), value("p50_e2e")), (50.0, 60.0));
        assert_eq!((value("slo_attainment"), value("completed_share")), (0.5, 1.0));
        assert!((value("goodput") - 1.0 / 0.995).abs() < 1e-12);
        assert_eq!((charged.ends.arrived, charged.ends.completed, charged.ends.lost), (2.0, 2.0, 0.0));
    }

    /// Regression: rejecting or delaying all requests of the warm-up emptied the queue at no cost, a score of 1.4.
    #[test]
    fn the_warm_up_is_not_free() {
        let window = [done(Name::NONE, 10.0, 40.0), done(Name::NONE, 20.0, 60.0)];
        let with = |status, served: Option<f64>, ended: f64| {
            let one = outcome(Name::NONE, 1.0, status, served).ended_at(ms(ended));
            plain(1.0, &[&[one][..], &window].concat(), "mean_ttft:1")
        };
        let late = with(Status::Completed, Some(110.0), 121.0);
        assert_eq!((late.figures["mean_ttft"], late.ends.arrived), (70.0, 3.0));
        let rejected = with(Status::Rejected(Rejection::Admission), None, 1.0);
        assert_eq!((rejected.figures["mean_ttft"], rejected.ends.lost), ((600_000.0 + 100.0) / 3.0, 1.0));
        let queued = with(Status::Queued, None, 1.0);
        assert_eq!(queued.figures["mean_ttft"], (2.0 * 999.0 + 100.0) / 3.0);
        let too_long = with(Status::Dropped(DropReason::PromptTooLong), None, 1.0);
        assert_eq!((too_long.figures["mean_ttft"], too_long.ends.arrived), (50.0, 2.0));
    }

    /// Regression: a request that got its first token and was preempted for ever was not lost.
    #[test]
    fn an_output_that_stops_is_lost() {
        // 100 requests that take 10 ms for 5 tokens each, and one before them with `generated` tokens.
        let lost = |generated: u32, since: f64| {
            let served = (0..100).map(|turn| done(Name::NONE, since + 10.0 + f64::from(turn), 5.0));
            let one = outcome(Name::NONE, since, Status::Running, Some(5.0));
            let one = Outcome { generated_tokens: generated, ..one };
            plain(1.0, &std::iter::once(one).chain(served).collect::<Vec<_>>(), "mean_ttft:1").ends.lost
        };
        // In 895 ms, completed requests would get 358 tokens.
        assert_eq!((lost(1, 100.0), lost(35, 100.0), lost(36, 100.0)), (1.0, 1.0, 0.0));
        assert_eq!(lost(2, 985.0), 0.0, "after 10 ms, a few tokens are missing at most");
    }

    /// One request each, at 100 ms, of a run that ends at 1 s.
    #[test]
    fn every_end_is_charged() {
        let of = |status, served, ended: f64| {
            let one = outcome(Name::NONE, 100.0, status, served).ended_at(ms(ended));
            let charged = plain(1.0, &[one], "mean_ttft:1,mean_e2e:1");
            ["mean_ttft", "mean_e2e"].map(|key| charged.figures.get(key).copied())
        };
        assert_eq!(of(Status::Completed, Some(30.0), 140.0), [Some(30.0), Some(40.0)]);
        assert_eq!(of(Status::Queued, None, 100.0), [Some(1800.0), Some(1800.0)]);
        assert_eq!(of(Status::Running, Some(30.0), 100.0), [Some(30.0), Some(1800.0)]);
        assert_eq!(of(Status::Queued, Some(30.0), 100.0), [Some(1800.0), Some(1800.0)], "preempted");
        assert_eq!(of(Status::TimedOut, None, 400.0), [Some(600.0), Some(600.0)]);
        assert_eq!(of(Status::TimedOut, Some(30.0), 400.0), [Some(600.0), Some(600.0)]);
        assert_eq!(of(Status::Rejected(Rejection::Admission), None, 100.0), [Some(600_000.0); 2]);
        assert_eq!(of(Status::Rejected(Rejection::Server), None, 100.0), [Some(600_000.0); 2]);
        assert_eq!(of(Status::Dropped(DropReason::KvTooSmall), None, 100.0), [Some(600_000.0); 2]);
        assert_eq!(of(Status::Dropped(DropReason::PromptTooLong), None, 100.0), [None, None]);
        assert_eq!(of(Status::Rejected(Rejection::Routing), None, 100.0), [None, None]);
    }

    #[test]
    fn what_may_be_shed_costs_its_value_only() {
        let (names, critical, batch) = classes();
        let shed = outcome(batch, 20.0, Status::Rejected(Rejection::Admission), None);
        let text = "mean_ttft:1,batch.mean_ttft:1,completed_share:1,critical.completed_share:1";
        let all = charges(1.0, &names, &[done(critical, 10.0, 40.0), done(batch, 15.0, 80.0), shed]);
        let charged = figures(&all, text);
        let value = |key: &str| charged.figures[key];
        assert_eq!((value("mean_ttft"), value("batch.mean_ttft")), (40.0, 80.0));
        assert_eq!((value("completed_share"), value("critical.completed_share")), (2.0 / 3.0, 1.0));
        let ends = EndValues { arrived: 1.0, completed: 1.0, lost: 0.0, sheddable_completed: 1.0 };
        assert_eq!(charged.ends, ends);
        assert!(all.classes()["batch"].sheddable && !all.classes()["critical"].sheddable);
        // Alone, its requests may not be shed.
        let alone = charges(1.0, &names, &[done(batch, 15.0, 80.0), shed]);
        assert_eq!(figures(&alone, "mean_ttft:1").figures["mean_ttft"], (80.0 + 600_000.0) / 2.0);
        assert_eq!(alone.values().arrived, 2.0);
    }

    /// A server that needs `service` ms for each of `count` requests, which arrive all 10 ms: the outcomes until `end`.
    fn queue(count: u32, service: f64, end: f64, next: impl Fn(&[f64]) -> usize) -> Vec<Outcome> {
        let (mut waiting, mut outcomes, mut now) = (Vec::new(), Vec::new(), 10.0);
        let mut arrivals = (1..=count).map(|turn| f64::from(turn) * 10.0).peekable();
        while now + service <= end {
            while let Some(arrival) = arrivals.next_if(|&arrival| arrival <= now) {
                waiting.push(arrival);
            }
            if waiting.is_empty() {
                now += 10.0;
                continue;
            }
            let arrival = waiting.remove(next(&waiting));
            now += service;
            outcomes.push(done(Name::NONE, arrival, now - arrival));
        }
        let left = waiting.into_iter().chain(arrivals).filter(|&arrival| arrival <= end);
        outcomes.extend(left.map(|arrival| outcome(Name::NONE, arrival, Status::Queued, None)));
        outcomes
    }

    /// Regression: last come, first served left 563 of 1075 requests unserved and scored better than first come.
    #[test]
    fn last_come_first_served_does_not_pay() {
        let text = "mean_ttft:1,p50_ttft:1,p99_ttft:1,mean_e2e:1,slo_attainment:2,goodput:1";
        let of = |next: fn(&[f64]) -> usize| plain(10.75, &queue(1075, 21.0, 10_750.0, next), text);
        let (fcfs, lifo) = (of(|_| 0), of(|waiting| waiting.len() - 1));
        assert_eq!(fcfs.ends.completed, lifo.ends.completed, "as many are served: {} of 1075", lifo.ends.completed);
        assert!((500.0..530.0).contains(&lifo.ends.completed), "{:?}", lifo.ends);
        assert_eq!(fcfs.ends.lost_share(), 0.0);
        assert!(lifo.ends.lost_share() > 0.3, "{:?}", lifo.ends);
        assert!(lifo.figures["mean_ttft"] > fcfs.figures["mean_ttft"], "{lifo:?} {fcfs:?}");
        let score = weights(text).relative(&lifo, &fcfs).score;
        assert!(score < 0.5, "{score}");
        // Without any starvation gate or factor: the latencies alone.
        let latencies = weights("mean_ttft:1,p99_ttft:1,mean_e2e:1");
        let kept = ChargedFigures { ends: fcfs.ends, ..lifo };
        assert!(latencies.relative(&kept, &fcfs).score < 1.0);
    }

    /// Regression: the first token of every request within 5 ms, and preempted for the next one, scored 6 against a queue in the
    /// order of arrival that completed as many.
    #[test]
    fn first_token_then_starve_does_not_pay() {
        let text = "mean_ttft:3,p50_ttft:3,mean_e2e:2,p99_e2e:1";
        let fcfs = plain(10.0, &queue(1000, 25.0, 10_000.0, |_| 0), text);
        // Two of five complete, as many of each time; the others have their first token and a third of their output.
        let starving = |turn: u32| {
            let arrival = f64::from(turn) * 10.0;
            let one = outcome(Name::NONE, arrival, Status::Queued, Some(5.0));
            if turn % 5 < 2 { done(Name::NONE, arrival, 5.0) } else { Outcome { generated_tokens: 2, ..one } }
        };
        let starving = plain(10.0, &(1..=1000).map(starving).collect::<Vec<_>>(), text);
        assert!((starving.ends.completed - fcfs.ends.completed).abs() < 5.0, "{starving:?} {fcfs:?}");
        let score = weights(text).relative(&starving, &fcfs).score;
        assert!(score < 1.0, "{score}: {starving:?} {fcfs:?}");
        // With any weights, requests were starved if their output has stopped.
        let score = weights("p50_ttft:1").relative(&starving, &fcfs).score;
        assert!(score < 1.0, "{score}: {starving:?} {fcfs:?}");
    }

    /// 1000 requests, all 10 ms, of a server that needs 25 ms for each, and clients that wait for 500 ms.
    #[test]
    fn starving_until_the_time_out_is_a_loss() {
        let of = |next: fn(&[f64]) -> usize| {
            let (mut waiting, mut outcomes, mut now) = (Vec::new(), Vec::new(), 10.0);
            let mut arrivals = (1..=1000).map(|turn| f64::from(turn) * 10.0).peekable();
            while now + 25.0 <= 10_000.0 {
                while let Some(arrival) = arrivals.next_if(|&arrival| arrival <= now) {
                    waiting.push(arrival);
                }
                let late = waiting.extract_if(.., |arrival| now - *arrival > 500.0);
                let ended = late
                    .map(|arrival| outcome(Name::NONE, arrival, Status::TimedOut, None).ended_at(ms(arrival + 500.0)));
                outcomes.extend(ended);
                let arrival = waiting.remove(next(&waiting));
                now += 25.0;
                outcomes.push(done(Name::NONE, arrival, now - arrival));
            }
            plain(10.0, &outcomes, "mean_ttft:1")
        };
        let (fcfs, lifo) = (of(|_| 0), of(|waiting| waiting.len() - 1));
        assert_eq!(fcfs.ends.lost, 0.0);
        assert!(lifo.ends.lost_share() > 0.5, "{lifo:?}");
        let score = weights("mean_ttft:1").relative(&lifo, &fcfs).score;
        assert!(score < 0.1, "{score}: {lifo:?} {fcfs:?}");
    }

    /// Regression: the first token of every request at once, and the rest in the order of arrival, scored 12 on medians.
    #[test]
    fn first_token_then_stall_does_not_pay() {
        let text = "p50_ttft:1";
        let unbroken = |turn: u32| done(Name::NONE, f64::from(turn) * 10.0, 5.0);
        let with = |ttft: f64, wait: f64, preemptions: u32| {
            let late = |turn: u32| {
                let one = done(Name::NONE, 200.0 + f64::from(turn) * 10.0, ttft);
                Outcome { e2e: Some(ms(ttft + wait + 10.0)), preemptions, ..one }
            };
            let all: Vec<Outcome> = (1..=20).map(unbroken).chain((1..=60).map(late)).collect();
            plain(10.0, &all, text)
        };
        let (queue, stall) = (with(300.0, 0.0, 0), with(5.0, 295.0, 1));
        assert_eq!((queue.figures["p50_ttft"], stall.figures["p50_ttft"]), (300.0, 297.5));
        assert_eq!(with(5.0, 2.5, 1).figures["p50_ttft"], 5.0, "a quarter of its output");
        assert_eq!(with(5.0, 295.0, 0).figures["p50_ttft"], 5.0, "not preempted: a long output");
    }

    #[test]
    fn a_longer_queue_on_one_instance_is_no_starvation() {
        // In turn on two instances, of which one is 5 % slower.
        let both = [queue(500, 20.0, 5_000.0, |_| 0), queue(500, 21.0, 5_000.0, |_| 0)].concat();
        assert_eq!(plain(5.0, &both, "mean_ttft:1").ends.lost, 0.0);
    }

    proptest! {
        /// However fast the served half was, and whatever is weighed.
        #[test]
        fn serving_half_of_what_may_not_be_shed_loses(
            latencies in prop::collection::vec(0.0..100_000.0f64, 2..40),
            text in prop::sample::select(vec![
                "mean_ttft:1", "p99_ttft:1,mean_e2e:2", "p90_e2e:1", "slo_attainment:1", "goodput:1,throughput:1", "rejected_share:1",
            ]),
        ) {
            let all: Vec<Outcome> = latencies.iter().map(|&ttft| done(Name::NONE, 10.0, ttft)).collect();
            // An even number, half of which is rejected.
            let all = &all[..all.len() / 2 * 2];
            let half: Vec<Outcome> = (0..all.len())
                .map(|number| match number % 2 {
                    0 => done(Name::NONE, 10.0, 0.0),
                    _ => outcome(Name::NONE, 10.0, Status::Rejected(Rejection::Admission), None),
                })
                .collect();
            let [reference, half] = [all, &half[..]].map(|outcomes| plain(200.0, outcomes, text));
            let score = weights(text).relative(&half, &reference).score;
            prop_assert!(score < 0.5, "{score}: {half:?} {reference:?}");
        }

        #[test]
        fn a_run_scores_one_against_itself(
            ends in prop::collection::vec((10.0..900.0f64, 0..6usize, 0.0..90.0f64), 1..60),
        ) {
            let statuses = [
                Status::Completed, Status::Queued, Status::Running, Status::TimedOut,
                Status::Rejected(Rejection::Admission), Status::Dropped(DropReason::PromptTooLong),
            ];
            let all: Vec<Outcome> = ends
                .iter()
                .map(|&(arrival, status, served)| {
                    let status = statuses[status];
                    outcome(Name::NONE, arrival, status, (status == Status::Completed).then_some(served))
                })
                .collect();
            let text = "mean_ttft:1,p99_e2e:1,slo_attainment:1,timed_out_share:1";
            let charged = plain(1.0, &all, text);
            let mut turned = all.clone();
            turned.reverse();
            prop_assert_eq!(&plain(1.0, &turned, text), &charged, "the order of events does not matter");
            let score = weights(text).relative(&charged, &charged).score;
            prop_assert_eq!(score, f64::from(u8::from(!charged.ends.nothing_completed())));
        }
    }
}
