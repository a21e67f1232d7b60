//! The service over time: `--timeline FILE.csv|parquet`, and the lines of a report page.
//!
//! A row belongs to a moment, a multiple of the interval. What is a state there (requests that wait or run, KV blocks in use,
//! replicas) is the state before the events of that moment; what is counted (arrivals, completions) is counted since the moment
//! before. So the last row contains the last event, and the counts of all rows add up to those of the run.
//!
//! Both engines give the same rows. Memory: for each instance 48 bytes for each moment at which its load has changed, and
//! [`MomentCounts`] for each moment.

mod table;

use blis_sim::ids::InstanceIndex;
use blis_sim::instance::{InstanceLoad, SampledMoments};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Outcome, PrefixCacheCounters, Rejection, Status};
use blis_sim::replica::{ReplicaEvent, ReplicaState};
use blis_sim::units::Micros;
use thiserror::Error;

/// Most moments of a series with a fixed interval.
const MOST_MOMENTS: u64 = 1_000_000;
/// Moments for which there is memory at first, of which only what is used becomes real: 0.8 MB.
const FIRST_MOMENTS: usize = 1 << 14;
/// Moments that are added at once.
const MORE_MOMENTS: u64 = 64;
/// Most loads that are kept, of all instances: 1 GB.
const MOST_LOADS: u64 = 20_000_000;

/// The series would have too many moments, or too many loads of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a moment every {} s is more than a timeline can have: {MOST_MOMENTS} moments, and {MOST_LOADS} loads of instances", .0.as_secs_f64())]
pub struct TooManyMoments(Micros);

/// The part of the service in front of the instances, as far as a series depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceFront {
    /// Instances at the start, which with autoscaling are the initial replicas.
    pub instances: u32,
    /// Time from arrival to the gateway's queue; `None` without flow control.
    pub gateway_after: Option<Micros>,
}

/// An observer that counts what happens between moments.
#[derive(Clone, Debug)]
pub struct TimeSeriesLog {
    front: ServiceFront,
    moments: SampledMoments,
    /// What happened from each moment to the next.
    counts: Vec<MomentCounts>,
    /// The rows by instance.
    instances: Vec<InstanceSeries>,
    /// The state of each replica that has changed its state.
    replicas: Vec<Option<ReplicaState>>,
    loads: u64,
    /// Time of the last event.
    last: Micros,
    exceeded: bool,
}

/// What happened between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MomentCounts {
    /// Number of requests that arrived.
    pub arrivals: u32,
    /// Requests that completed, at the end of their last step.
    pub completions: u32,
    /// Requests that were rejected or dropped.
    pub rejections: u32,
    /// Requests that timed out, and those that the gateway ended on their instances.
    pub timeouts: u32,
    /// Output tokens of the requests that completed.
    pub output_tokens: u64,
    /// Change of the length of the gateway's queue.
    gateway: i32,
    /// Changes of the number of replicas that start, are active, and drain.
    replicas: [i32; 3],
}

impl MomentCounts {
    fn add(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.completions += other.completions;
        self.rejections += other.rejections;
        self.timeouts += other.timeouts;
        self.output_tokens += other.output_tokens;
        self.gateway += other.gateway;
        self.replicas.iter_mut().zip(other.replicas).for_each(|(sum, more)| *sum += more);
    }
}

/// The load of one instance over time.
#[derive(Clone, Debug, Default)]
pub struct InstanceSeries {
    /// The load from each of these moments on, in order of time.
    loads: LoadList,
    /// Times at which it became active, and was gone.
    active_at: Micros,
    gone_at: Option<Micros>,
}

impl InstanceSeries {
    /// The load at each of `moments`, which are in order of time; `None` where it was not there.
    pub fn at(&self, moments: impl Iterator<Item = Micros>) -> impl Iterator<Item = Option<InstanceLoad>> {
        let mut known = 0;
        moments.map(move |at| {
            while self.loads.get(known).is_some_and(|known| known.since <= at) {
                known += 1;
            }
            let latest = known.checked_sub(1).and_then(|latest| self.loads.get(latest)).map(|known| known.load);
            latest.filter(|_| self.is_there(at))
        })
    }

    fn is_there(&self, at: Micros) -> bool {
        self.active_at <= at && self.gone_at.is_none_or(|gone| at < gone)
    }
}

/// The load of an instance from a moment on.
#[derive(Clone, Copy, Debug)]
struct LoadSince {
    since: Micros,
    load: InstanceLoad,
}

/// Loads in parts: a list of them that grows as a whole is copied again and again.
#[derive(Clone, Debug, Default)]
struct LoadList {
    parts: Vec<Vec<LoadSince>>,
}

impl LoadList {
    /// Loads of a part.
    const PART: usize = 1 << 8;

    #[inline]
    fn get(&self, index: usize) -> Option<&LoadSince> {
        self.parts.get(index / Self::PART)?.get(index % Self::PART)
    }

    #[inline]
    fn last(&self) -> Option<&LoadSince> {
        self.parts.last()?.last()
    }

    #[inline]
    fn push(&mut self, load: LoadSince) {
        match self.parts.last_mut() {
            Some(part) if part.len() < Self::PART => part.push(load),
            _ => self.begin_part(load),
        }
    }

    #[cold]
    fn begin_part(&mut self, load: LoadSince) {
        // The first part grows, because an instance may have a few loads only.
        let mut part = Vec::with_capacity(if self.parts.is_empty() { 0 } else { Self::PART });
        part.push(load);
        self.parts.push(part);
    }
}

impl TimeSeriesLog {
    /// A series with a row every `interval`, from 0 on.
    #[must_use]
    pub fn every(interval: Micros, front: ServiceFront) -> Self {
        Self::new(SampledMoments { interval, most: None }, front)
    }

    /// A series of at most `most` rows: the interval doubles while the run lasts.
    #[must_use]
    pub fn at_most(most: u64, front: ServiceFront) -> Self {
        const FIRST: Micros = Micros(10_000);
        Self::new(SampledMoments { interval: FIRST, most: Some(most) }, front)
    }

    fn new(moments: SampledMoments, front: ServiceFront) -> Self {
        Self {
            front,
            moments,
            counts: Vec::with_capacity(FIRST_MOMENTS),
            instances: Vec::new(),
            replicas: Vec::new(),
            loads: 0,
            last: Micros::ZERO,
            exceeded: false,
        }
    }

    /// The moments at which the load of instances must be sampled.
    #[must_use]
    pub fn moments(&self) -> SampledMoments {
        self.moments
    }

    /// The series.
    ///
    /// # Errors
    /// If the interval is too short for a run of this length.
    pub fn finish(mut self) -> Result<TimeSeries, TooManyMoments> {
        if self.exceeded {
            return Err(TooManyMoments(self.moments.interval));
        }
        let rows = self.last.0 / self.moments.interval.0 + 1;
        self.counts.resize(rows as usize, MomentCounts::default());
        Ok(TimeSeries {
            interval: self.moments.interval,
            counts: self.counts,
            instances: self.instances,
            initial: self.front.instances,
            has_gateway: self.front.gateway_after.is_some(),
        })
    }

    /// What happens around the time `at`; `None` if it is too late for a row.
    fn counts(&mut self, at: Micros) -> Option<&mut MomentCounts> {
        self.last = self.last.max(at);
        let index = at.0 / self.moments.interval.0;
        if index < self.counts.len() as u64 {
            return self.counts.get_mut(index as usize);
        }
        self.later_counts(at)
    }

    /// The same for a time after those of [`Self::counts`].
    #[cold]
    fn later_counts(&mut self, at: Micros) -> Option<&mut MomentCounts> {
        let before = self.moments.interval;
        self.moments.reach(at);
        for _ in 0..(self.moments.interval.0 / before.0).trailing_zeros() {
            self.counts = self.counts.chunks(2).map(sum).collect();
        }
        let index = at.0 / self.moments.interval.0;
        if self.moments.most.is_none() && index >= MOST_MOMENTS {
            self.exceeded = true;
            return None;
        }
        if index >= self.counts.len() as u64 {
            // Those after it follow soon; what is too much is cut at the end.
            let most = self.moments.most.unwrap_or(MOST_MOMENTS).max(index + 1);
            self.counts.resize((index + MORE_MOMENTS).min(most) as usize, MomentCounts::default());
        }
        self.counts.get_mut(index as usize)
    }

    fn count(&mut self, at: Micros, what: impl FnOnce(&mut MomentCounts)) {
        if let Some(counts) = self.counts(at) {
            what(counts);
        }
    }

    fn ended(&mut self, outcome: &Outcome) {
        let at = outcome.ended_at;
        match outcome.status {
            Status::Completed | Status::LengthCapped => self.count(at, |counts| {
                counts.completions += 1;
                counts.output_tokens += u64::from(outcome.generated_tokens);
            }),
            Status::TimedOut | Status::Evicted => self.count(at, |counts| counts.timeouts += 1),
            Status::Dropped(_) | Status::Rejected(_) => self.count(at, |counts| counts.rejections += 1),
            Status::Queued | Status::Running | Status::Arriving | Status::InGateway => {}
        }
        let Some(after) = self.front.gateway_after else { return };
        let entered = outcome.arrival.saturating_add(after);
        match outcome.status {
            Status::InGateway => self.count(entered, |counts| counts.gateway += 1),
            Status::Rejected(Rejection::GatewayExpired | Rejection::GatewayDisplaced) => self.waited(entered, at),
            Status::TimedOut if outcome.instance.is_none() => self.waited(entered, at),
            _ => {}
        }
    }

    /// A request was in the gateway's queue from `entered` to `left`.
    fn waited(&mut self, entered: Micros, left: Micros) {
        self.count(entered, |counts| counts.gateway += 1);
        self.count(left, |counts| counts.gateway -= 1);
    }

    fn replica(&mut self, event: &ReplicaEvent) {
        let (index, initial) = (event.replica as usize, event.replica < self.front.instances);
        if self.replicas.len() <= index {
            self.replicas.resize(index + 1, None);
        }
        let before = self.replicas[index].or_else(|| initial.then_some(ReplicaState::Active));
        self.replicas[index] = event.state;
        self.count(event.at, |counts| {
            before.into_iter().for_each(|state| counts.replicas[phase(state)] -= 1);
            event.state.into_iter().for_each(|state| counts.replicas[phase(state)] += 1);
        });
        if let Some(instance) = event.instance {
            let series = self.instance(instance);
            match event.state {
                None => series.gone_at = Some(event.at),
                Some(ReplicaState::Active) => series.active_at = event.at,
                Some(_) => {}
            }
        }
    }

    fn load(&mut self, instance: InstanceIndex, at: Micros, load: &InstanceLoad) {
        let series = self.instance(instance);
        let latest = series.loads.last().map(|known| &known.load);
        if latest == Some(load) {
            return;
        }
        let is_first = latest.is_none();
        series.loads.push(LoadSince { since: at, load: *load });
        self.loads += 1;
        self.exceeded |= self.loads >= MOST_LOADS;
        // At the first moment nothing has happened; later the event that changed it was before the moment.
        if !is_first {
            self.count(at.saturating_sub(Micros(1)), |_| {});
        }
    }

    fn instance(&mut self, instance: InstanceIndex) -> &mut InstanceSeries {
        if self.instances.len() <= instance.index() {
            self.instances.resize_with(instance.index() + 1, InstanceSeries::default);
        }
        &mut self.instances[instance.index()]
    }
}

impl Observer for TimeSeriesLog {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::ARRIVALS | Interests::OUTCOMES | Interests::GATEWAY | Interests::LOAD_SAMPLES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if self.exceeded {
            return;
        }
        match *event {
            SimEvent::Arrival(request) => self.count(request.arrival, |counts| counts.arrivals += 1),
            SimEvent::Outcome(outcome) => self.ended(outcome),
            SimEvent::Dispatched { request, waited } => {
                let entered = request.arrival.saturating_add(self.front.gateway_after.unwrap_or_default());
                self.waited(entered, entered.saturating_add(waited));
            }
            SimEvent::Replica(event) => self.replica(event),
            SimEvent::Load { instance, at, load } => self.load(instance, at, load),
            _ => {}
        }
    }
}

fn sum(pair: &[MomentCounts]) -> MomentCounts {
    let mut sum = MomentCounts::default();
    pair.iter().for_each(|counts| sum.add(counts));
    sum
}

/// The index of a state in [`MomentCounts::replicas`].
fn phase(state: ReplicaState) -> usize {
    match state {
        ReplicaState::Scheduling | ReplicaState::Loading | ReplicaState::Warming => 0,
        ReplicaState::Active => 1,
        ReplicaState::Draining => 2,
    }
}

/// The service over time.
#[derive(Clone, Debug)]
pub struct TimeSeries {
    interval: Micros,
    /// What happened from each moment to the next.
    counts: Vec<MomentCounts>,
    instances: Vec<InstanceSeries>,
    initial: u32,
    has_gateway: bool,
}

/// The service at one moment, without its instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterRow {
    /// Time of the moment.
    pub at: Micros,
    /// What happened since the moment before.
    pub since: MomentCounts,
    /// Requests in the gateway's queue; `None` without flow control.
    pub gateway_queue: Option<u32>,
    /// Replicas that start, are active, and drain.
    pub replicas: [u32; 3],
}

impl TimeSeries {
    /// Time between two moments.
    #[must_use]
    pub fn interval(&self) -> Micros {
        self.interval
    }

    /// The moments, in order of time: the first is 0, the last is the first one after the last event.
    pub fn moments(&self) -> impl Iterator<Item = Micros> + use<> {
        let interval = self.interval.0;
        (0..=self.counts.len() as u64).map(move |index| Micros(index.saturating_mul(interval)))
    }

    /// The instances, by index.
    #[must_use]
    pub fn instances(&self) -> &[InstanceSeries] {
        &self.instances
    }

    /// The service at each of the moments.
    pub fn cluster(&self) -> impl Iterator<Item = ClusterRow> + '_ {
        let (mut gateway, mut replicas, mut shown) = (0_i64, [0, i64::from(self.initial), 0], [0, self.initial, 0]);
        let since = std::iter::once(MomentCounts::default()).chain(self.counts.iter().copied());
        self.moments().zip(since).map(move |(at, since)| {
            let number = |count: i64| u32::try_from(count).unwrap_or(0);
            gateway += i64::from(since.gateway);
            if since.replicas != [0; 3] {
                replicas.iter_mut().zip(since.replicas).for_each(|(sum, change)| *sum += i64::from(change));
                shown = replicas.map(number);
            }
            let gateway_queue = self.has_gateway.then(|| number(gateway));
            ClusterRow { at, since, gateway_queue, replicas: shown }
        })
    }
}

/// What the counters of an instance have gained between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadChange {
    /// What requests found in the prefix cache.
    pub prefix_cache: PrefixCacheCounters,
    /// Number of preemptions so far.
    pub preemptions: u64,
}

impl LoadChange {
    /// The change from `before` to `after`.
    #[must_use]
    pub fn between(before: &InstanceLoad, after: &InstanceLoad) -> Self {
        Self {
            prefix_cache: after.prefix_cache.since(&before.prefix_cache),
            preemptions: after.preemptions.saturating_sub(before.preemptions),
        }
    }
}

#[cfg(test)]
mod tests;
