//! A workload at any load: the same requests of a seed, faster or slower.
//!
//! The arrival times of a run are divided by one factor, and nothing else changes (common random numbers): latencies are then
//! close to monotone in the load, and two loads, policies or sizes differ by nothing but themselves. A closed pool of users
//! or sessions has no arrival times; there the number of users changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use blis_workload::spec::{Client, ClientLoad, Spec};
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
    /// The requests in the order of arrival; `None` in a closed loop, where most follow from outputs.
    pub kept: Option<Vec<Request>>,
    /// The number of requests, if it is not fixed.
    length: Option<u64>,
    /// Share of the requests that arrive first and are in no figure.
    warmup: f64,
}

/// Requests of each user of a closed loop, unless the number of requests is fixed.
const ROUNDS: f64 = 10.0;

impl SeededLoad {
    /// The workload of `base` under `seed`; `length`: the number of requests, if `base` does not fix it.
    pub(super) fn new(base: &Experiment, seed: u64, length: Option<u64>) -> Result<Self, RunError> {
        let mut config = base.with_seed(seed);
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
            return Ok(Self { names, unit: LoadUnit::SessionsPerS, usual, kept: None, length, warmup: WARMUP, config });
        }
        // The end of the simulation would cut the last requests at low loads only: they run to their ends.
        config.horizon = Micros::MAX;
        Ok(Self { names, unit: LoadUnit::RequestsPerS, usual, kept: Some(kept), length, warmup: WARMUP, config })
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
        self.kept.as_ref().map(|kept| kept.len() as u64).or(self.length)
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
        let kept = self.kept.as_ref()?;
        let first = kept.get((kept.len() as f64 * self.warmup) as usize)?;
        Some(scaled(first.arrival, self.usual / load))
    }

    /// The requests at that load.
    pub(super) fn at(&self, load: f64) -> Result<RequestStream<'_>, RunError> {
        let factor = self.usual / load;
        if let Some(kept) = &self.kept {
            return Ok((Box::new(kept.iter().map(move |request| slower(request, factor))), None));
        }
        if self.unit == LoadUnit::Users {
            let mut config = self.config.clone();
            set_users(&mut config.workload, load / self.usual);
            if let Some(length) = self.length {
                set_length(&mut config, length.max((ROUNDS * load) as u64));
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
fn users(workload: &WorkloadConfig) -> Result<Option<u64>, RunError> {
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
        SeededLoad { config, names: Names::default(), unit, usual, kept: Some(kept), length: None, warmup: WARMUP }
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
