//! The clairvoyant bound: latencies that no policy undercuts, from two relaxations of a run.
//!
//! | relaxation | each request | bounds |
//! |---|---|---|
//! | *alone* | is alone on an idle instance, with the longest prefix of its prompt in the cache that any other request can have left there in time | every latency of every request, so also percentiles |
//! | *pooled* | takes its share of the time of steps; all instances together are one server that never idles and serves the shortest remaining work first | means, and percentiles through the largest backlog |
//!
//! Either knows all lengths and arrivals, has fresh signals, unlimited memory for prefixes, and no cost for moving a
//! request. The bound of a figure is the larger of both. It assumes:
//!
//! * the same requests get a first token and complete as in the run, and arrive at the same times (a policy that rejects
//!   other requests has another bound);
//! * further tokens and context never shorten a step, and finer chunks never shorten a prompt: true of all built-in
//!   latency models ([`LatencyModel::least_step_time`](blis_sim::latency::LatencyModel::least_step_time)).
//!
//! A bound need not be attainable: between it and the best policy lies what requests cost each other.

mod alone;
mod demand;
mod pooled;
mod prefixes;
mod service;
#[cfg(test)]
mod tests;
mod work;

use blis_sim::cluster::Halt;
use blis_sim::metrics::Distribution;
use blis_sim::request::Request;
use blis_sim::units::Micros;
use serde::Serialize;

use self::demand::{Demand, us};
use self::pooled::PooledJob;
use self::prefixes::PrefixTable;
pub use self::service::{BoundedService, ServedRequest};
use self::work::WorkRates;

/// The relaxation from which a bound follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Relaxation {
    /// Each request alone on an idle instance.
    Alone,
    /// All instances as one server.
    Pooled,
}

/// A lower bound of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBound {
    /// No policy has less, ms.
    pub ms: f64,
    /// The relaxation from which it follows.
    pub relaxation: Relaxation,
}

/// Lower bounds of the figures of one latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyBounds {
    /// Of the arithmetic mean.
    pub mean: LowerBound,
    /// Of the 95th percentile.
    pub p95: LowerBound,
    /// Of the 99th percentile.
    pub p99: LowerBound,
}

/// The bounds of a run; `None` for a latency without a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClairvoyantBound {
    /// Of the time to first token.
    pub ttft: Option<LatencyBounds>,
    /// Of the end-to-end latency of completed requests.
    pub e2e: Option<LatencyBounds>,
}

impl ClairvoyantBound {
    /// The bound of a run of `service` under `arrivals` (in order of time) in which `served` got a first token.
    ///
    /// # Errors
    /// If an instance can make no progress.
    pub fn new(service: &BoundedService, arrivals: &[Request], served: &[ServedRequest]) -> Result<Self, Halt> {
        let prefixes = PrefixTable::new(arrivals, &service.instance);
        let alone = alone::latencies(service, arrivals, &prefixes, served)?;
        let mut demands: Vec<Demand> = served
            .iter()
            .zip(alone)
            .map(|(served, alone)| Demand::new(service, &arrivals[served.index], &prefixes, *served, alone))
            .collect();
        demands.sort_by(|one, other| one.release_us.total_cmp(&other.release_us));
        let Some(rates) = WorkRates::new(&service.instance, &demands) else { return Ok(Self::default()) };
        let ttft = of_first_tokens(&demands, &rates, service);
        demands.retain(|demand| demand.completed);
        Ok(Self { ttft: Some(ttft), e2e: (!demands.is_empty()).then(|| of_completions(&demands, &rates, service)) })
    }
}

/// Whether an instance works on the prompt of one request at a time, as the pooled relaxation assumes. In BLIS semantics
/// the last step of a request of one token may overlap with the next step.
fn is_one_server(demands: &[Demand], service: &BoundedService) -> bool {
    !service.instance.semantics.idle_at_step_start || demands.iter().all(|demand| demand.decodes > 0.0)
}

fn of_first_tokens(demands: &[Demand], rates: &WorkRates, service: &BoundedService) -> LatencyBounds {
    let alone = distribution(demands, |demand| demand.alone.ttft);
    let jobs = jobs(demands, |demand| rates.of_prompt(demand));
    let pool = f64::from(service.instances);
    let around = |demand: &Demand| demand.before_us + demand.after_first_us;
    if !is_one_server(demands, service) {
        return larger(&alone, (0.0, 0.0, 0.0));
    }
    let mean = pooled::mean_flow(&jobs, pool) + mean(demands, around);
    let percentile = |percent| pooled::percentile_flow(&jobs, pool, percent) + least(demands, around);
    larger(&alone, (mean, percentile(95.0), percentile(99.0)))
}

fn of_completions(demands: &[Demand], rates: &WorkRates, service: &BoundedService) -> LatencyBounds {
    let alone = distribution(demands, |demand| demand.alone.e2e);
    if !is_one_server(demands, service) {
        return larger(&alone, (0.0, 0.0, 0.0));
    }
    let pool = f64::from(service.instances);
    // The prompts of all requests, and then each output without company.
    let prompts = jobs(demands, |demand| rates.of_prompt(demand));
    let output = |demand: &Demand| us(demand.alone.e2e.saturating_sub(demand.alone.ttft));
    let around = |demand: &Demand| demand.before_us + demand.after_first_us + output(demand);
    let mut best = [
        pooled::mean_flow(&prompts, pool) + mean(demands, around),
        pooled::percentile_flow(&prompts, pool, 95.0) + least(demands, around),
        pooled::percentile_flow(&prompts, pool, 99.0) + least(demands, around),
    ];
    // Or prompts and outputs together. In BLIS semantics, an end-to-end latency leaves out waits between tokens.
    let whole = if service.instance.semantics.itl_spans_waits { rates.of_whole_requests() } else { &[] };
    for rate in whole {
        let jobs = jobs(demands, |demand| rate.of_request(demand));
        let around = |demand: &Demand| demand.before_us + demand.after_last_us;
        let found = [
            pooled::mean_flow(&jobs, pool) + mean(demands, around),
            pooled::percentile_flow(&jobs, pool, 95.0) + least(demands, around),
            pooled::percentile_flow(&jobs, pool, 99.0) + least(demands, around),
        ];
        best = std::array::from_fn(|figure| best[figure].max(found[figure]));
    }
    larger(&alone, best.into())
}

fn distribution(demands: &[Demand], latency: impl Fn(&Demand) -> Micros) -> Distribution {
    Distribution::from_samples(&mut demands.iter().map(latency).collect::<Vec<_>>())
}

fn jobs(demands: &[Demand], work: impl Fn(&Demand) -> f64) -> Vec<PooledJob> {
    demands.iter().map(|demand| PooledJob { release_us: demand.release_us, work_us: work(demand) }).collect()
}

fn mean(demands: &[Demand], time: impl Fn(&Demand) -> f64) -> f64 {
    demands.iter().map(time).sum::<f64>() / demands.len() as f64
}

fn least(demands: &[Demand], time: impl Fn(&Demand) -> f64) -> f64 {
    demands.iter().map(time).fold(f64::INFINITY, f64::min)
}

/// The larger of the bounds of both relaxations; `pooled` in µs.
fn larger(alone: &Distribution, pooled: (f64, f64, f64)) -> LatencyBounds {
    let of = |alone_ms: f64, pooled_us: f64| {
        // Less what rounding may have added to a sum of thousands of terms.
        let pooled_ms = pooled_us / 1e3 * (1.0 - 1e-9);
        if pooled_ms > alone_ms {
            LowerBound { ms: pooled_ms, relaxation: Relaxation::Pooled }
        } else {
            LowerBound { ms: alone_ms, relaxation: Relaxation::Alone }
        }
    };
    LatencyBounds {
        mean: of(alone.mean_ms, pooled.0),
        p95: of(alone.p95_ms, pooled.1),
        p99: of(alone.p99_ms, pooled.2),
    }
}
