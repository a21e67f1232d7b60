//! Offered and served load of a run, and whether the requests in flight became more and more.
//!
//! A run from its first arrival to its last has three parts: the service fills, it works, and after the last arrival it
//! drains. Figures of the whole run mix them: completed requests per simulated second is less than what the service
//! sustains, and hides whether it keeps up. [`LoadLog`] looks at the second half of the arrivals only.
//!
//! The log needs a fixed amount of memory: it counts arrivals and ends in bins of time; their width doubles when the
//! time of the run exceeds them.

use std::fmt::{self, Display};

use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Outcome, Status};
use blis_sim::units::Micros;
use blis_stats::Growth;
use serde::Serialize;

/// Number of bins of time, a power of two.
const BINS: usize = 2048;
/// Parts of the second half whose means are compared.
const PARTS: usize = 16;
/// Fewer bins per part would make the means those of single moments.
const MIN_BINS: usize = 4 * PARTS;
/// Mean latencies of the first requests that the arrivals must last, so that a service that fills is not taken for one
/// that is overloaded: the second half then begins after four of them.
const MIN_LATENCIES: f64 = 8.0;
/// Share of the time of arrivals whose requests are the first ones.
const FIRST: f64 = 0.125;
/// Standard errors that the slope must differ from 0: with 14 degrees of freedom, chance exceeds 4 in one run of 1500.
const MIN_DEVIATIONS: f64 = 4.0;
/// Growth over the second half, as a share of the mean number in flight, below which it does not matter.
const MIN_GROWTH: f64 = 0.1;
/// Share of the arrivals of the second half that remain in flight, below which the service most likely still approaches
/// its mean: near its capacity that takes long.
const MIN_UNSERVED: f64 = 0.03;
/// The same if few requests wait. Latencies that rise with the number in flight make chance excesses of arrivals larger and last longer, over
/// several latencies, of which a run may have few: then 5 % remain in flight in one run of a hundred.
const MIN_UNSERVED_IN_BATCH: f64 = 0.1;
/// A request waits for others if it waits for its admission to the batch for more than one part in so many of its latency, and
/// requests do if more than one in so many waits so long.
const WAITING: u64 = 10;
/// Standard errors, of the number of arrivals of a Poisson process, by which the needed slots must exceed those that are there.
const MIN_ERRORS: f64 = 2.0;
/// Share of the requests that end in the second half by their deadline above which the service does not keep up.
const MAX_TIMED_OUT: f64 = 0.01;

/// The load between the first arrival and the last: the drain after it does not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// Arrivals per second, all of them.
    pub offered_rps: f64,
    /// Completed requests per second in the second half of the arrivals.
    pub served_rps: f64,
    /// Time from the first arrival to the last.
    pub arrivals_s: f64,
    /// Requests in flight in that second half, averaged. Unit: requests.
    pub in_flight_mean: f64,
    /// Slope of the number in flight in that half: by how many requests per second it grew.
    pub in_flight_growth_rps: f64,
    /// Whether the number in flight is steady, grows because more requests arrive than are served, or grew in a run
    /// that is too short to tell; `null` for clients that wait for outputs.
    pub state: Option<LoadState>,
}

/// Whether the figures of a run are those of a steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadState {
    /// The number of requests in flight varies around a mean.
    Steady,
    /// It grows, or would exceed what the service can hold: more requests arrive than are served.
    Overloaded,
    /// It grew, and the arrivals last less than eight latencies of the first requests: the service may only have filled.
    TooShort,
}

impl Display for LoadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Steady => "steady",
            Self::Overloaded => "overloaded",
            Self::TooShort => "too short to tell",
        })
    }
}

/// Counts the arrivals and ends of requests over time.
#[derive(Clone, Debug)]
pub struct LoadLog {
    /// Binary logarithm of the width of a bin, µs.
    shift: u32,
    bins: Vec<Bin>,
    first: u64,
    last: u64,
}

/// Events in one bin of time.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    arrived: u64,
    /// How many of these arrivals were completed at some time.
    served: u64,
    /// The sum of their end-to-end latencies, µs.
    latency_sum: u64,
    /// The part of it from their admission to a batch on, µs.
    in_batch_sum: u64,
    /// How many of these arrivals waited for a large part of their latency, or for all of it.
    waited: u64,
    ended: u64,
    completed: u64,
    timed_out: u64,
}

impl Default for LoadLog {
    fn default() -> Self {
        Self { shift: 0, bins: vec![Bin::default(); BINS], first: u64::MAX, last: 0 }
    }
}

impl LoadLog {
    /// The load; `None` if all requests arrive at once, or fewer than two do. `slots`: how many requests all instances
    /// together can execute at a time; `None` if clients wait for outputs before they send more, which no service
    /// overloads.
    #[must_use]
    pub fn report(&self, slots: Option<u64>) -> Option<LoadReport> {
        if self.last <= self.first {
            return None; // none, or all at one moment
        }
        let arrivals: u64 = self.bins.iter().map(|bin| bin.arrived).sum();
        let arrivals_s = (self.last - self.first) as f64 / 1e6;
        let half = self.second_half();
        let half_s = ((half.len() as u64) << self.shift) as f64 / 1e6;
        let in_flight = self.in_flight(half.clone());
        let trend = Trend::from_series(&in_flight);
        let completed: u64 = self.bins[half.clone()].iter().map(|bin| bin.completed).sum();
        let load = LoadReport {
            offered_rps: (arrivals - 1) as f64 / arrivals_s,
            served_rps: completed as f64 / half_s,
            arrivals_s,
            in_flight_mean: trend.mean,
            in_flight_growth_rps: trend.growth / half_s,
            state: None,
        };
        Some(LoadReport { state: slots.map(|slots| self.state(&load, &trend, half, slots)), ..load })
    }

    /// How the number in flight changes after `warmup`, counted at the ends of bins; `None` if these are too wide for that.
    #[must_use]
    pub fn growth(&self, warmup: Micros) -> Option<Growth> {
        let span = self.last.checked_sub(self.first)?;
        let start = self.first + ((span as f64 * Growth::LEFT_OUT) as u64).max(warmup.0);
        let (from, to) = ((start >> self.shift) as usize, (self.last >> self.shift) as usize);
        if from + Growth::TIMES > to {
            return None;
        }
        let in_flight = self.in_flight(from..to);
        let numbers: [f64; Growth::TIMES] =
            std::array::from_fn(|time| in_flight[time * (in_flight.len() - 1) / (Growth::TIMES - 1)]);
        let arrived: u64 = self.bins[from..to].iter().map(|bin| bin.arrived).sum();
        Some(Growth::from_numbers(&numbers, arrived as f64))
    }

    /// Variance over mean of the arrivals per second in the second half of the arrivals, per bin if these are wider: 1 of Poisson
    /// arrivals; `None` for fewer than 20 of them.
    #[must_use]
    pub fn dispersion(&self) -> Option<f64> {
        const FEWEST: usize = 20;
        /// Binary logarithm of a second, µs.
        const SECOND: u32 = 20;
        if self.last <= self.first {
            return None;
        }
        let together = 1_usize << SECOND.saturating_sub(self.shift);
        let half = self.second_half();
        // The last second is not over.
        let seconds = self.bins[half].chunks_exact(together);
        let counts: Vec<f64> = seconds.map(|bins| bins.iter().map(|bin| bin.arrived).sum::<u64>() as f64).collect();
        if counts.len() < FEWEST {
            return None;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
        Some(squares / (counts.len() - 1) as f64 / mean)
    }

    /// The bins of the second half of the arrivals: at least one.
    fn second_half(&self) -> std::ops::Range<usize> {
        let middle = self.first + (self.last - self.first) / 2;
        let (from, to) = ((middle >> self.shift) as usize, (self.last >> self.shift) as usize);
        from..to.max(from + 1)
    }

    /// The number of requests in flight at the end of each of the bins.
    fn in_flight(&self, bins: std::ops::Range<usize>) -> Vec<f64> {
        let mut number = 0_i64;
        let all = self.bins[..bins.end].iter().map(|bin| {
            number += bin.arrived as i64 - bin.ended as i64;
            number as f64
        });
        all.skip(bins.start).collect()
    }

    fn state(&self, load: &LoadReport, trend: &Trend, half: std::ops::Range<usize>, slots: u64) -> LoadState {
        let ended: u64 = self.bins[half.clone()].iter().map(|bin| bin.ended).sum();
        let timed_out: u64 = self.bins[half.clone()].iter().map(|bin| bin.timed_out).sum();
        // Little's law: what is in the batches in a steady state, if requests stay there no longer than they did. The time for
        // which they waited needs no slot, and those that were rejected need nothing.
        let needed = self.bins.iter().map(|bin| bin.in_batch_sum).sum::<u64>() as f64 / 1e6 / load.arrivals_s;
        let served: u64 = self.bins.iter().map(|bin| bin.served).sum();
        let by_chance = MIN_ERRORS / (served.max(1) as f64).sqrt();
        if timed_out as f64 > MAX_TIMED_OUT * ended.max(1) as f64 || needed > slots as f64 * (1.0 + by_chance) {
            return LoadState::Overloaded;
        }
        let [arrived, waited] = [|bin: &Bin| bin.arrived, |bin: &Bin| bin.waited]
            .map(|count| self.bins[half.clone()].iter().map(count).sum::<u64>());
        let unserved = if waited * WAITING > arrived { MIN_UNSERVED } else { MIN_UNSERVED_IN_BATCH };
        let grows = trend.is_growth() && trend.growth > unserved * arrived as f64;
        if !grows && half.len() >= MIN_BINS {
            return LoadState::Steady;
        }
        let first = self.first_latency().unwrap_or(f64::INFINITY);
        let is_long = load.arrivals_s >= MIN_LATENCIES * first && half.len() >= MIN_BINS;
        if is_long { LoadState::Overloaded } else { LoadState::TooShort }
    }

    /// The mean end-to-end latency of the first requests, s; `None` if none of them completed.
    fn first_latency(&self) -> Option<f64> {
        let last = self.first + ((self.last - self.first) as f64 * FIRST) as u64;
        let bins = &self.bins[..=(last.min(self.last) >> self.shift) as usize];
        let served: u64 = bins.iter().map(|bin| bin.served).sum();
        (served > 0).then(|| bins.iter().map(|bin| bin.latency_sum).sum::<u64>() as f64 / 1e6 / served as f64)
    }

    fn add(&mut self, outcome: &Outcome) {
        let arrival = outcome.arrival.0;
        if arrival < self.first {
            self.first = arrival;
        }
        if arrival > self.last {
            self.last = arrival;
        }
        let is_completed = outcome.completed();
        let bin = self.bin(arrival);
        bin.arrived += 1;
        bin.served += u64::from(is_completed);
        if let Some(Micros(e2e)) = outcome.e2e {
            bin.latency_sum += e2e;
            bin.in_batch_sum += e2e.saturating_sub(outcome.scheduling_delay.map_or(0, |delay| delay.0));
        }
        bin.waited += u64::from(has_waited(outcome));
        if matches!(outcome.status, Status::Queued | Status::Running | Status::Arriving | Status::InGateway) {
            return;
        }
        let bin = self.bin(outcome.ended_at.0);
        bin.ended += 1;
        bin.completed += u64::from(is_completed);
        bin.timed_out += u64::from(outcome.status == Status::TimedOut);
    }

    #[inline]
    fn bin(&mut self, at: u64) -> &mut Bin {
        let mut index = at >> self.shift;
        if index >= BINS as u64 {
            index = self.widen(at);
        }
        &mut self.bins[index as usize]
    }

    /// Widens the bins until one of them holds `at`. Returns its index.
    #[cold]
    fn widen(&mut self, at: u64) -> u64 {
        let by = (at / BINS as u64).ilog2() + 1 - self.shift;
        self.shift += by;
        let mut index = 1; // the first one stays
        while index < BINS {
            if !self.bins[index].is_empty() {
                let bin = std::mem::take(&mut self.bins[index]);
                self.bins[index >> by].merge(bin);
            }
            index += 1;
        }
        at >> self.shift
    }
}

impl Bin {
    fn is_empty(&self) -> bool {
        self.arrived == 0 && self.ended == 0
    }

    fn merge(&mut self, other: Self) {
        self.arrived += other.arrived;
        self.served += other.served;
        self.latency_sum += other.latency_sum;
        self.in_batch_sum += other.in_batch_sum;
        self.waited += other.waited;
        self.ended += other.ended;
        self.completed += other.completed;
        self.timed_out += other.timed_out;
    }
}

/// Whether it waited for a large part of its latency, or for all of it.
fn has_waited(outcome: &Outcome) -> bool {
    match (outcome.scheduling_delay, outcome.e2e) {
        (Some(delay), Some(e2e)) => delay.0.saturating_mul(WAITING) > e2e.0,
        (None, None) => matches!(outcome.status, Status::Queued | Status::InGateway | Status::TimedOut),
        _ => false,
    }
}

impl Observer for LoadLog {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.add(outcome);
        }
    }
}

/// A straight line through the means of [`PARTS`] equal parts of a series.
#[derive(Clone, Copy, Debug, Default)]
struct Trend {
    mean: f64,
    /// Difference between the ends of the line.
    growth: f64,
    /// Standard error of `growth`; neighbouring parts are not independent, which makes it larger.
    error: f64,
}

impl Trend {
    fn from_series(series: &[f64]) -> Self {
        let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
        let parts: Vec<f64> = (0..PARTS)
            .filter_map(|part| series.get(part * series.len() / PARTS..(part + 1) * series.len() / PARTS))
            .filter(|part| !part.is_empty())
            .map(|part| part.iter().sum::<f64>() / part.len() as f64)
            .collect();
        let n = parts.len() as f64;
        if parts.len() < 4 {
            return Self { mean, ..Self::default() };
        }
        let (middle, of_parts) = ((n - 1.0) / 2.0, parts.iter().sum::<f64>() / n);
        let spread: f64 = (0..parts.len()).map(|at| (at as f64 - middle).powi(2)).sum();
        let slope = parts.iter().enumerate().map(|(at, y)| (at as f64 - middle) * (y - of_parts)).sum::<f64>() / spread;
        let rest: Vec<f64> =
            parts.iter().enumerate().map(|(at, y)| y - of_parts - slope * (at as f64 - middle)).collect();
        let squares: f64 = rest.iter().map(|one| one * one).sum();
        let lagged: f64 = rest.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let correlation = if squares > 0.0 { (lagged / squares).clamp(0.0, 0.9) } else { 0.0 };
        let inflation = (1.0 + correlation) / (1.0 - correlation);
        Self { mean, growth: slope * n, error: (squares / (n - 2.0) / spread * inflation).sqrt() * n }
    }

    /// Whether the series grows by more than its own scatter, and by an amount that matters.
    fn is_growth(&self) -> bool {
        self.growth > MIN_DEVIATIONS * self.error && self.growth > MIN_GROWTH * self.mean && self.growth > 1.0
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use blis_sim::ids::RequestId;
    use blis_sim::request::Request;

    /// Exponentially distributed numbers with the mean 1.
    fn exponential(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            -(((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64).ln()
        }
    }

    fn micros(seconds: f64) -> Micros {
        Micros((seconds * 1e6) as u64)
    }

    /// Logs a request that arrives, begins to be served and completes at these times, s.
    fn log_request(log: &mut LoadLog, id: u32, [arrival, start, end]: [f64; 3]) {
        let request = Request::new(RequestId(id), micros(arrival), 10, 10);
        let (e2e, scheduling_delay) = (Some(micros(end - arrival)), Some(micros(start - arrival)));
        let outcome = Outcome::new(&request, Status::Completed);
        log.add(&Outcome { ended_at: micros(end), e2e, scheduling_delay, ..outcome });
    }

    /// Requests that arrive as a Poisson process, each served by the first of `servers` that is free, for exponential
    /// times of mean 1 s.
    fn queue(rate: f64, servers: usize, count: u32, seed: u64) -> LoadLog {
        let mut drawn = exponential(seed);
        let (mut log, mut now) = (LoadLog::default(), 0.0);
        let mut free = vec![0.0_f64; servers];
        for id in 0..count {
            now += drawn() / rate;
            let server = free.iter_mut().min_by(|one, other| one.total_cmp(other)).expect("a server");
            let start = server.max(now);
            *server = start + drawn();
            log_request(&mut log, id, [now, start, *server]);
        }
        log
    }

    /// Requests that arrive as a Poisson process, 50 a second, and run at once in a batch in which latencies rise with the number in
    /// flight: a quarter of 15 s alone, 15 s on average with 750, which is the number that arrive in that time.
    fn batch(count: u32, seed: u64) -> LoadLog {
        let mut drawn = exponential(seed);
        let (mut log, mut now) = (LoadLog::default(), 0.0);
        let mut ends = BinaryHeap::<Reverse<u64>>::new();
        for id in 0..count {
            now += drawn() / 50.0;
            while ends.peek().is_some_and(|Reverse(end)| *end <= micros(now).0) {
                ends.pop();
            }
            let end = now + 15.0 * (0.25 + 0.75 * ends.len() as f64 / 750.0) * drawn();
            ends.push(Reverse(micros(end).0));
            log_request(&mut log, id, [now, now, end]);
        }
        log
    }

    /// Requests that arrive at these times, s, and take as long each; without a latency none ends.
    fn log_of(arrivals_s: impl IntoIterator<Item = f64>, latency_s: Option<f64>) -> LoadLog {
        let mut log = LoadLog::default();
        for (id, at) in arrivals_s.into_iter().enumerate() {
            let arrival = Micros::from_secs_f64(at);
            let request = Request::new(RequestId(id as u32), arrival, 10, 10);
            let latency = latency_s.map(Micros::from_secs_f64);
            let status = if latency.is_some() { Status::Completed } else { Status::Running };
            let ended = Outcome { e2e: latency, ..Outcome::new(&request, status) };
            log.add(&ended.ended_at(arrival + latency.unwrap_or(Micros::ZERO)));
        }
        log
    }

    /// Of Poisson arrivals 1, of a burst each ten seconds as many as it has.
    #[test]
    fn dispersion_is_that_of_the_arrivals_per_second() {
        let mut gap = exponential(7);
        let poisson = (0..40_000).scan(0.0, |at, _| {
            *at += gap() / 20.0;
            Some(*at)
        });
        let found = log_of(poisson, Some(1.0)).dispersion().expect("2000 s");
        assert!((found - 1.0).abs() < 0.2, "{found}");
        let bursts = (0..40_000).map(|n| f64::from(n / 200) * 10.0);
        let found = log_of(bursts, Some(1.0)).dispersion().expect("2000 s");
        assert!(found > 100.0, "{found}");
        assert_eq!(log_of((0..100).map(|n| f64::from(n) * 0.1), Some(1.0)).dispersion(), None, "10 s");
    }

    /// As counted from all times, up to the width of a bin.
    #[test]
    fn growth_is_that_of_the_requests_in_flight() {
        for latency in [Some(4.0), None] {
            let arrivals: Vec<f64> = (0..20_000).map(|n| f64::from(n) * 0.05).collect();
            let ends: Vec<f64> = arrivals.iter().map(|at| at + latency.unwrap_or(f64::INFINITY)).collect();
            let exact = Growth::of(&arrivals, &ends, 100.0).expect("requests");
            let found = log_of(arrivals, latency).growth(Micros::from_secs_f64(100.0)).expect("1000 s");
            let near = (found.share - exact.share).abs() < 0.01 && (found.late / exact.late - 1.0).abs() < 0.02;
            assert!(near && (found.trend > 0.9) == latency.is_none(), "{found:?} {exact:?}");
        }
    }

    #[test]
    fn a_queue_below_its_capacity_is_steady_at_any_seed() {
        for seed in 1..=200 {
            let load = queue(40.0, 50, 10_000, seed).report(Some(u64::MAX)).expect("a load");
            assert_eq!(load.state, Some(LoadState::Steady), "{seed}: {load:?}");
            assert!((load.offered_rps / 40.0 - 1.0).abs() < 0.05 && (load.served_rps / 40.0 - 1.0).abs() < 0.07);
        }
    }

    /// Regression: one in ten runs of four replicas at 85 % of their capacity counted as overloaded.
    #[test]
    fn latencies_that_rise_with_the_load_are_no_overload_at_any_seed() {
        for seed in 1..=200 {
            let load = batch(10_000, seed).report(Some(u64::MAX)).expect("a load");
            assert_ne!(load.state, Some(LoadState::Overloaded), "{seed}: {load:?}");
        }
    }

    #[test]
    fn a_queue_above_its_capacity_is_overloaded_at_any_seed() {
        for seed in 1..=200 {
            let load = queue(60.0, 50, 10_000, seed).report(Some(u64::MAX)).expect("a load");
            assert_eq!(load.state, Some(LoadState::Overloaded), "{seed}: {load:?}");
            assert!((load.served_rps / 50.0 - 1.0).abs() < 0.07, "the drain does not count: {load:?}");
            assert!((load.in_flight_growth_rps / 10.0 - 1.0).abs() < 0.5, "{load:?}");
        }
    }

    #[test]
    fn a_service_that_fills_is_too_short_to_tell() {
        let load = queue(60.0, 1000, 60, 7).report(Some(1000)).expect("a load");
        assert_eq!(load.state, Some(LoadState::TooShort), "{load:?}");
    }

    /// Regression: one server that serves 100 requests a second counted as overloaded from 59 on, because the waiting requests
    /// were taken to need a slot as well: by Pollaczek and Khinchine there is more than one in the system from
    /// ρ = 2 - √2 = 0.586 on.
    #[test]
    fn requests_that_wait_need_no_slot() {
        for rate in [50.0, 62.0, 90.0] {
            for seed in 1..=50 {
                let load = constant_service(rate, 20_000, seed).report(Some(1)).expect("a load");
                assert_eq!(load.state, Some(LoadState::Steady), "{rate} {seed}: {load:?}");
            }
        }
        let load = constant_service(115.0, 20_000, 1).report(Some(1)).expect("a load");
        assert_eq!(load.state, Some(LoadState::Overloaded), "{load:?}");
    }

    /// Requests that arrive as a Poisson process at one server, which serves each for 10 ms: M/D/1.
    fn constant_service(rate: f64, count: u32, seed: u64) -> LoadLog {
        let mut drawn = exponential(seed);
        let (mut log, mut now, mut free) = (LoadLog::default(), 0.0_f64, 0.0_f64);
        for id in 0..count {
            now += drawn() / rate;
            let start = free.max(now);
            free = start + 0.01;
            log_request(&mut log, id, [now, start, free]);
        }
        log
    }

    /// By Little's law 60 requests per second of 1 s each need 60 slots.
    #[test]
    fn more_than_the_service_can_hold_is_overload_however_short() {
        let load = queue(60.0, 1000, 60, 7).report(Some(40)).expect("a load");
        assert_eq!(load.state, Some(LoadState::Overloaded), "{load:?}");
    }

    #[test]
    fn without_a_time_between_arrivals_there_is_no_rate() {
        let mut log = LoadLog::default();
        for id in 0..3 {
            log.add(&Outcome::new(&Request::new(RequestId(id), Micros(5), 1, 1), Status::Completed));
        }
        assert_eq!(log.report(Some(1)), None);
    }

    #[test]
    fn the_end_of_time_is_a_bin() {
        let mut log = LoadLog::default();
        for (id, at) in [(0, 0), (1, u64::MAX - 1), (2, u64::MAX)] {
            log.add(&Outcome::new(&Request::new(RequestId(id), Micros(at), 1, 1), Status::TimedOut));
        }
        assert!(log.report(Some(1)).is_some());
    }
}
