//! A workload at any load: the same requests of a seed, faster or slower.
//!
//! The arrival times of a run are divided by one factor, and nothing else changes (common random numbers): latencies are then
//! close to monotone in the load, and two loads, policies or sizes differ by nothing but themselves. A closed pool of users
//! or sessions has no arrival times; there the number of users changes.
//!
//! Sessions that begin at a rate are drawn anew at each rate, by the same random numbers: their think times stay what they are.
//! A run of them lasts a given time, at every load, because that is what their steady state needs; none is cut before its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use blis_workload::spec::{Client, ClientLoad, Spec, SteadySessions};
use blis_workload::{Names, Workload};
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::open::{self, RequestStream};
use crate::workload_config::{SpecConfig, WorkloadConfig};

use super::slo::Slo;

/// What a load counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadUnit {
    /// Requests per second.
    RequestsPerS,
    /// Sessions that begin per second; their later rounds follow from outputs.
    SessionsPerS,
    /// Concurrent users or sessions of a closed loop.
    Users,
}

impl LoadUnit {
    /// As tables show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestsPerS => "req/s",
            Self::SessionsPerS => "sessions/s",
            Self::Users => "users",
        }
    }

    /// Whether only whole numbers are loads.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Users)
    }
}

/// Share of the requests that arrive first and are in no figure: the service fills meanwhile. A fixed share cuts the same
/// requests at every load; rules that look at latencies (MSER-5) prefer cuts behind an early burst, which flatters.
pub(super) const WARMUP: f64 = 0.2;

/// The requests of one seed, which can be opened at any load.
#[derive(Clone)]
pub(super) struct SeededLoad {
    /// The experiment with the seed and the length of its runs.
    config: Experiment,
    pub names: Names,
    pub unit: LoadUnit,
    /// The load as the settings have it.
    pub usual: f64,
    /// The requests in the order of arrival; `None` of sessions and in a closed loop, where they follow from outputs, or from the load.
    pub kept: Option<Vec<Request>>,
    /// Sessions that begin at a rate, and for how long.
    pub sessions: Option<SessionRun>,
    /// The number of requests, if it is not fixed.
    length: Option<u64>,
    /// Share of the requests that arrive first and are in no figure.
    warmup: f64,
}

/// Lengths of requests. Unit: tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeanTokens {
    pub input: f64,
    pub output: f64,
}

/// Mean end-to-end latency that the first runs of sessions assume. If it is longer, the next runs are.
pub(super) const FIRST_LATENCY_S: f64 = 1.0;

/// Requests of each user of a closed loop, unless the number of requests is fixed; of concurrent sessions, how many follow each other.
/// The first ones, [`WARMUP`], are in no figure: at least one session of each then has ended.
const ROUNDS: f64 = 15.0;

/// Sessions that begin at a rate, for a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionRun {
    pub steady: SteadySessions,
    /// The time for which sessions begin; figures count requests that arrive in it, after the warm-up.
    pub until: Micros,
    /// How many of their mean lives that must be at least, after the warm-up.
    lives: f64,
}

impl SessionRun {
    /// For how long sessions must begin if a request takes `latency_s` on average.
    pub(super) fn needed_s(&self, latency_s: f64) -> f64 {
        self.steady.needed_s(self.lives, latency_s)
    }

    /// Requests of a run in the steady state, at the load of the settings.
    fn requests(&self) -> f64 {
        self.steady.requests_per_s() * self.until.as_secs_f64()
    }
}

impl SeededLoad {
    /// The workload of `base` under `seed`; `length`: the number of requests, if `base` does not fix it. Sessions begin for
    /// `lives` times their mean life after the warm-up.
    pub(super) fn new(base: &Experiment, seed: u64, length: Option<u64>, lives: f64) -> Result<Self, RunError> {
        let config = base.with_seed(seed);
        match open::steady_sessions(&config)? {
            Some(steady) => Self::of_sessions(config, steady, length, lives),
            None => Self::known(config, length),
        }
    }

    /// The requests of `config`, with its seed, as they are: rounds of open sessions at their times.
    pub(super) fn known(mut config: Experiment, length: Option<u64>) -> Result<Self, RunError> {
        if let Some(length) = length {
            set_length(&mut config, length);
        }
        if let Some(users) = users(&config.workload)? {
            let names = open::open(&config)?.names;
            return Ok(Self {
                names,
                unit: LoadUnit::Users,
                usual: users as f64,
                kept: None,
                sessions: None,
                length,
                warmup: WARMUP,
                config,
            });
        }
        let Workload { requests, follow_ups, names, .. } = open::open(&config)?;
        let kept: Vec<Request> = requests.collect();
        let span = kept.last().map_or(Micros::ZERO, |last| last.arrival.saturating_sub(kept[0].arrival));
        let usual = match &config.workload {
            WorkloadConfig::Synthetic(synthetic) => synthetic.spec.rate,
            _ if span > Micros::ZERO => (kept.len() - 1) as f64 / span.as_secs_f64(),
            _ => {
                return Err(RunError::usage("the workload has no rate: all of its requests arrive at once")
                    .hint("use a workload with requests that arrive over time"));
            }
        };
        if follow_ups.is_some() {
            let unit = LoadUnit::SessionsPerS;
            return Ok(Self { names, unit, usual, kept: None, sessions: None, length, warmup: WARMUP, config });
        }
        // The end of the simulation would cut the last requests at low loads only: they run to their ends.
        config.horizon = Micros::MAX;
        let unit = LoadUnit::RequestsPerS;
        Ok(Self { names, unit, usual, kept: Some(kept), sessions: None, length, warmup: WARMUP, config })
    }

    /// Sessions that begin at a rate. Their number of requests becomes a time, so that no session is cut before its end.
    fn of_sessions(
        mut config: Experiment,
        steady: SteadySessions,
        length: Option<u64>,
        lives: f64,
    ) -> Result<Self, RunError> {
        let WorkloadConfig::Specified(SpecConfig { spec, num_requests, .. }) = &mut config.workload else {
            unreachable!("only specifications have sessions that begin at a rate")
        };
        let number = length.or(num_requests.take()).or(spec.num_requests);
        let by_number = number.map(|number| Micros::from_secs_f64(number as f64 / steady.requests_per_s()));
        if spec.num_requests.is_some() {
            *spec = Arc::new(Spec { num_requests: None, ..Spec::clone(spec) });
        }
        let until = by_number.map_or(config.horizon, |until| until.min(config.horizon));
        let sessions = SessionRun { steady, until, lives };
        let warmup = steady.long_life_s(FIRST_LATENCY_S) / sessions.needed_s(FIRST_LATENCY_S);
        let names = open::open(&Experiment { horizon: until, ..config.clone() })?.names;
        let (unit, usual) = if steady.is_closed_loop {
            (LoadUnit::SessionsPerS, steady.starts_per_s)
        } else {
            (LoadUnit::RequestsPerS, steady.requests_per_s())
        };
        config.horizon = Micros::MAX;
        Ok(Self { names, unit, usual, kept: None, sessions: Some(sessions), length, warmup, config })
    }

    /// The same for a shorter time, if it is one of sessions: enough to see about how many replicas they need.
    pub(super) fn shortened(&self) -> Self {
        /// The part of the time after the warm-up.
        const PART: f64 = 0.3;
        let Some(sessions) = self.sessions else { return self.clone() };
        let share = self.warmup + PART * (1.0 - self.warmup);
        let sessions = SessionRun { until: scaled(sessions.until, share), ..sessions };
        Self { sessions: Some(sessions), warmup: self.warmup / share, ..self.clone() }
    }

    /// The same with its first requests only, at most `most`: their rate stays. Sessions and users are [`Self::shortened`].
    pub(super) fn beginning(&self, most: usize) -> Self {
        let mut short = self.shortened();
        short.kept.iter_mut().for_each(|kept| kept.truncate(most));
        short
    }

    /// The same with longer prompts and outputs, by `factor`; `None` where requests follow from outputs.
    pub(super) fn with_longer_requests(&self, factor: f64) -> Option<Self> {
        let times = |tokens: u32| (f64::from(tokens) * factor).round() as u32;
        let mut kept = self.kept.clone()?;
        for request in &mut kept {
            request.input_tokens = times(request.input_tokens);
            request.output_tokens = times(request.output_tokens);
            request.max_output_tokens = request.max_output_tokens.map(times);
        }
        Some(Self { kept: Some(kept), ..self.clone() })
    }

    /// Mean tokens of prompts and outputs; `None` where requests follow from outputs.
    pub(super) fn mean_tokens(&self) -> Option<MeanTokens> {
        let kept = self.kept.as_ref().filter(|kept| !kept.is_empty())?;
        let mean = |of: fn(&Request) -> u32| kept.iter().map(|r| f64::from(of(r))).sum::<f64>() / kept.len() as f64;
        Some(MeanTokens { input: mean(|request| request.input_tokens), output: mean(|request| request.output_tokens) })
    }

    /// The same with all requests in the figures: of traffic that changes, the first ones are no warm-up.
    pub(super) fn whole(self) -> Self {
        Self { warmup: 0.0, ..self }
    }

    /// The same requests at a rate that is the same in every interval of that `width`: within an interval arrivals keep their
    /// distances in proportion, and intervals without arrivals are left out. `None` in a closed loop.
    pub(super) fn steady(&self, width: Micros) -> Option<Self> {
        let kept = self.kept.as_ref()?;
        let end = kept.last().map_or(Micros::ZERO, |last| last.arrival);
        let of = |request: &Request| request.arrival.0 / width.0;
        let mut steady: Vec<Request> = Vec::with_capacity(kept.len());
        for together in kept.chunk_by(|a, b| of(a) == of(b)) {
            let start = of(&together[0]) * width.0;
            // The last interval ends with the last arrival.
            let covered = (end.0 - start).min(width.0).max(1) as f64;
            let (before, count) = (steady.len() as f64, together.len() as f64);
            steady.extend(together.iter().map(|request| {
                let share = (request.arrival.0 - start) as f64 / covered;
                moved(request, Micros::from_secs_f64((before + share * count) / self.usual))
            }));
        }
        Some(Self { kept: Some(steady), ..self.clone() })
    }

    pub(super) fn seed(&self) -> u64 {
        self.config.seed
    }

    /// Requests of a run; those that arrive at first in a closed loop of fixed length.
    pub(super) fn requests(&self) -> Option<u64> {
        let of_sessions = self.sessions.map(|sessions| sessions.requests().round() as u64);
        self.kept.as_ref().map(|kept| kept.len() as u64).or(of_sessions).or(self.length)
    }

    /// How many of the requests that count are of `class`, all without one, at that load; `None` if that is not known before the run.
    pub(super) fn counted(&self, class: Option<[Name; 2]>, warmup: Micros, load: f64) -> Option<f64> {
        if let Some(SessionRun { steady, until, .. }) = self.sessions.filter(|_| class.is_none()) {
            let counted = until.saturating_sub(warmup).as_secs_f64();
            return Some(steady.requests_per_s() * counted * load / self.usual);
        }
        let base_warmup = warmup.0 as f64 * load / self.usual;
        let counts = |request: &&Request| {
            request.arrival.0 as f64 >= base_warmup && class.is_none_or(|names| names.contains(&request.tags.slo_class))
        };
        self.kept.as_ref().map(|requests| requests.iter().filter(counts).count() as f64)
    }

    /// # Errors
    /// If no request is of the class of `slo`; with the classes that there are.
    pub(super) fn check_class(&self, slo: &Slo) -> Result<(), RunError> {
        let (Some(class), Some(kept)) = (&slo.class, &self.kept) else { return Ok(()) };
        let wanted = class_names(class, &self.names);
        if kept.iter().any(|request| wanted.contains(&request.tags.slo_class)) {
            return Ok(());
        }
        let found: BTreeSet<Name> = kept.iter().map(|request| request.tags.slo_class).collect();
        let text = |name: &Name| self.names.texts().get(name.index()).map_or("", |text| &**text);
        let known: Vec<&str> =
            found.iter().map(text).map(|text| if text.is_empty() { "default" } else { text }).collect();
        Err(RunError::usage(format_args!("`{slo}`: no request is of the class `{class}`"))
            .hint(format_args!("the workload has {}", known.join(", "))))
    }

    /// The settings of `service` with the workload of this seed.
    pub(super) fn on(&self, service: &Experiment) -> Experiment {
        let Experiment { seed, horizon, workload, .. } = self.config.clone();
        Experiment { seed, horizon, workload, ..service.clone() }
    }

    /// The time before which arrivals are in no figure at that load; `None` in a closed loop, where it follows from the run.
    pub(super) fn cut(&self, load: f64) -> Option<Micros> {
        if let Some(SessionRun { until, .. }) = self.sessions {
            return Some(scaled(until, self.warmup));
        }
        let kept = self.kept.as_ref()?;
        let first = kept.get((kept.len() as f64 * self.warmup) as usize)?;
        Some(scaled(first.arrival, self.usual / load))
    }

    /// Requests of each user, or of the sessions that follow each other, in a run.
    fn rounds(&self) -> f64 {
        let WorkloadConfig::Specified(SpecConfig { spec, .. }) = &self.config.workload else { return ROUNDS };
        let rounds = |client: &Client| match client.load {
            ClientLoad::Sessions(_) => client.multi_turn.map_or(1, |turns| turns.max_rounds),
            ClientLoad::Share(_) | ClientLoad::Users { .. } => 1,
        };
        ROUNDS * f64::from(spec.clients.iter().map(rounds).max().unwrap_or(1))
    }

    /// The requests at that load.
    pub(super) fn at(&self, load: f64) -> Result<RequestStream<'_>, RunError> {
        let factor = self.usual / load;
        if let Some(kept) = &self.kept {
            return Ok((Box::new(kept.iter().map(move |request| slower(request, factor))), None));
        }
        if let Some(SessionRun { until, .. }) = self.sessions {
            let mut config = Experiment { horizon: until, ..self.config.clone() };
            set_rate(&mut config.workload, load / self.usual);
            let Workload { requests, follow_ups, .. } = open::open(&config)?;
            return Ok((requests, follow_ups));
        }
        if self.unit == LoadUnit::Users {
            let mut config = self.config.clone();
            set_users(&mut config.workload, load / self.usual);
            if let Some(length) = self.length {
                set_length(&mut config, length.max((self.rounds() * load) as u64));
            }
            let Workload { requests, follow_ups, .. } = open::open(&config)?;
            return Ok((requests, follow_ups));
        }
        let Workload { requests, follow_ups, .. } = open::open(&self.config)?;
        Ok((Box::new(requests.map(move |request| slower(&request, factor))), follow_ups))
    }
}

/// Whether the number of requests of a run is fixed: by settings (`has_end`), or by the workload itself.
pub(super) fn has_fixed_length(config: &Experiment, has_end: bool) -> bool {
    match &config.workload {
        WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } => true,
        WorkloadConfig::Synthetic(_) => has_end,
        WorkloadConfig::Specified(SpecConfig { spec, .. }) => {
            has_end || spec.num_requests.is_some() || spec.horizon.is_some() || has_end_of_windows(spec)
        }
    }
}

/// Whether every client sends in windows only, which end.
fn has_end_of_windows(spec: &Spec) -> bool {
    let ends =
        |client: &Client| !client.windows.is_empty() && client.windows.iter().all(|window| window.end < Micros::MAX);
    spec.cohorts.is_empty() && !spec.clients.is_empty() && spec.clients.iter().all(ends)
}

fn set_length(config: &mut Experiment, length: u64) {
    match &mut config.workload {
        WorkloadConfig::Synthetic(synthetic) => synthetic.spec.num_requests = Some(length),
        WorkloadConfig::Specified(specified) => specified.num_requests = Some(length),
        WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } => {}
    }
}

/// The number of concurrent users or sessions; `None` if the load is a rate.
pub(super) fn users(workload: &WorkloadConfig) -> Result<Option<u64>, RunError> {
    let WorkloadConfig::Specified(SpecConfig { spec, .. }) = workload else { return Ok(None) };
    let counts = spec.clients.iter().filter_map(|client| match client.load {
        ClientLoad::Users { count, .. } | ClientLoad::Sessions(count) => Some(u64::from(count)),
        ClientLoad::Share(_) => None,
    });
    let counts: Vec<u64> = counts.collect();
    match counts.len() {
        0 => Ok(None),
        some if some == spec.clients.len() && spec.cohorts.is_empty() => Ok(Some(counts.iter().sum())),
        _ => Err(RunError::usage("the workload has both clients with a rate and clients with a fixed number of users")
            .hint("only one of the two can grow: leave out the clients of one kind")),
    }
}

/// Multiplies the rate at which sessions begin.
fn set_rate(workload: &mut WorkloadConfig, factor: f64) {
    let WorkloadConfig::Specified(SpecConfig { spec, .. }) = workload else { return };
    let mut scaled = Spec::clone(spec);
    scaled.aggregate_rate *= factor;
    scaled.parts.iter_mut().for_each(|part| part.aggregate_rate *= factor);
    *spec = Arc::new(scaled);
}

/// Multiplies the number of users or sessions of each client, at least 1 each.
fn set_users(workload: &mut WorkloadConfig, factor: f64) {
    let WorkloadConfig::Specified(SpecConfig { spec, .. }) = workload else { return };
    let times = |count: u32| (f64::from(count) * factor).round().clamp(1.0, f64::from(u32::MAX)) as u32;
    let mut scaled = Spec::clone(spec);
    for client in &mut scaled.clients {
        client.load = match client.load {
            ClientLoad::Users { count, think_time } => ClientLoad::Users { count: times(count), think_time },
            ClientLoad::Sessions(count) => ClientLoad::Sessions(times(count)),
            ClientLoad::Share(share) => ClientLoad::Share(share),
        };
    }
    *spec = Arc::new(scaled);
}

/// The same request, its arrival time multiplied by `factor`.
fn slower(request: &Request, factor: f64) -> Request {
    moved(request, scaled(request.arrival, factor))
}

/// The same request at another time; its deadline is as long after it as before.
fn moved(request: &Request, arrival: Micros) -> Request {
    let wait = |deadline: Micros| arrival.saturating_add(deadline.saturating_sub(request.arrival));
    Request { arrival, deadline: request.deadline.map(wait), ..request.clone() }
}

fn scaled(time: Micros, factor: f64) -> Micros {
    Micros::from_f64(time.0 as f64 * factor)
}

/// The names of a class among those of requests: requests without one are in the class `default`.
pub(super) fn class_names(class: &str, names: &Names) -> [Name; 2] {
    // No request has this name.
    const ABSENT: Name = Name(u32::MAX);
    let named = names.find(class).unwrap_or(ABSENT);
    if class == "default" { [Name::NONE, named] } else { [named, named] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::OutputFiles;
    use crate::spec::{ExperimentSpec, SettingKey};
    use blis_config::policy::SettingSource;
    use blis_sim::ids::RequestId;
    use proptest::prelude::*;

    /// Requests that arrive at these times, µs, in order.
    fn load(arrivals: &[u64]) -> SeededLoad {
        let mut spec = ExperimentSpec::default();
        let flag = || SettingSource::Flag("--model".into());
        spec.set(SettingKey::named("model"), "llama-3.1-8b-instruct", flag()).expect("valid");
        let config = Experiment::new(spec, OutputFiles::default()).expect("valid");
        let requests = arrivals.iter().enumerate();
        let kept = requests.map(|(id, &at)| Request::new(RequestId(id as u32), Micros(at), 10, 1)).collect();
        let usual = 1.0;
        let unit = LoadUnit::RequestsPerS;
        SeededLoad {
            config,
            names: Names::default(),
            unit,
            usual,
            kept: Some(kept),
            sessions: None,
            length: None,
            warmup: WARMUP,
        }
    }

    fn arrivals(load: &SeededLoad) -> Vec<u64> {
        load.kept.iter().flatten().map(|request| request.arrival.0).collect()
    }

    /// Two in the first 10 s, none in the second, four in the third: as if each second had one.
    #[test]
    fn a_steady_load_has_one_rate() {
        let second = 1_000_000;
        let load = load(&[0, 5, 20, 22, 24, 30].map(|at| at * second));
        let steady = load.steady(Micros(10 * second)).expect("open loop");
        // Three in the third interval, and the last one at the start of the fourth.
        assert_eq!(arrivals(&steady), [0, 1_000_000, 2_000_000, 2_600_000, 3_200_000, 5_000_000]);
        assert_eq!((load.cut(1.0), load.whole().cut(1.0)), (Some(Micros(5_000_000)), Some(Micros(0))));
    }

    proptest! {
        #[test]
        fn a_steady_load_keeps_requests_and_order(
            mut times in prop::collection::vec(0u64..1_000_000_000, 1..60),
            width in 1u64..200_000_000,
        ) {
            times.sort_unstable();
            let load = load(&times);
            let steady = load.steady(Micros(width)).expect("open loop");
            let found = arrivals(&steady);
            prop_assert_eq!(found.len(), times.len());
            prop_assert!(found.is_sorted(), "{:?}", found);
            prop_assert!(found.last() <= Some(&(times.len() as u64 * 1_000_000)), "{:?}", found);
        }
    }
}
