//! Each request alone on an idle instance, with all that other requests can have left in its prefix cache.

use std::sync::Arc;

use blis_sim::cluster::{Abort, ArrivalList, Cluster, ClusterConfig, Engine, Halt, Policies};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, InstanceConfig, InstancePolicies};
use blis_sim::latency::{Batch, ContextEffect, LatencyModel};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::policy::{AlwaysAdmit, Classes, ConstantPriority, Reads, RoundRobin, Ties};
use blis_sim::request::{Content, Request, Span, Tags};
use blis_sim::sampling::{Sampling, SamplingParams};
use blis_sim::units::Micros;

use super::prefixes::PrefixTable;
use super::service::{BoundedService, ServedRequest};

/// The latencies of a request that is alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Latencies {
    pub ttft: Micros,
    pub e2e: Micros,
}

/// The least latencies of each of `served`.
///
/// The cache holds what requests that arrived before have in common with its prompt. More can be there only if the first
/// token comes after a later request has arrived. So a second simulation has also the blocks of requests that arrive
/// before that token would come without them: either the first token comes later than in the first simulation, or the
/// second has all blocks that can help.
pub(super) fn latencies(
    service: &BoundedService,
    arrivals: &[Request],
    prefixes: &PrefixTable<'_>,
    served: &[ServedRequest],
) -> Result<Vec<Latencies>, Halt> {
    let blocks_until =
        |index: usize, waited: Micros| prefixes.cached_blocks(index, arrivals[index].arrival.saturating_add(waited));
    let at_arrival: Vec<u32> = served.iter().map(|one| blocks_until(one.index, Micros::ZERO)).collect();
    let prompts: Vec<(&Request, u32)> =
        served.iter().map(|one| &arrivals[one.index]).zip(at_arrival.iter().copied()).collect();
    let mut found = simulate(service, &prompts)?;
    let with_later = |i: usize| blocks_until(served[i].index, found[i].ttft);
    let improved: Vec<(usize, u32)> =
        (0..served.len()).map(|i| (i, with_later(i))).filter(|&(i, blocks)| blocks > at_arrival[i]).collect();
    let prompts: Vec<(&Request, u32)> =
        improved.iter().map(|&(i, blocks)| (&arrivals[served[i].index], blocks)).collect();
    for ((i, _), latencies) in improved.into_iter().zip(simulate(service, &prompts)?) {
        found[i] = latencies;
    }
    Ok(found)
}

/// Time between arrivals, far longer than any request takes: 2³⁸ µs, three days. Millions of requests fit the clock.
const APART: u64 = 1 << 38;

/// Simulates each of `prompts` alone, with so many leading blocks in the cache: before each, a request with only these.
fn simulate(service: &BoundedService, prompts: &[(&Request, u32)]) -> Result<Vec<Latencies>, Halt> {
    let mut arrivals = Vec::with_capacity(2 * prompts.len());
    let mut first = 0;
    for (index, &(request, blocks)) in prompts.iter().enumerate() {
        let (filling, own) = (RequestId(2 * index as u32), RequestId(2 * index as u32 + 1));
        let at = |id: RequestId| Micros(APART * u64::from(id.0));
        let content = Content::shared(&[Span { first, len: blocks }]);
        first += blocks;
        if blocks > 0 {
            let input_tokens = blocks * service.instance.block_size;
            arrivals.push(Request { content: content.clone(), ..Request::new(filling, at(filling), input_tokens, 1) });
        }
        let alone =
            Request { id: own, arrival: at(own), content, deadline: None, client_priority: None, ..request.clone() };
        arrivals.push(Request { tags: Tags::default(), ..alone });
    }
    let mut found = FoundLatencies(vec![Latencies::default(); prompts.len()]);
    let timeline = Fast::timeline(idle_cluster(service), ArrivalList::new(arrivals.into()), Reads::NOTHING);
    timeline.finish(Micros::MAX, &mut found)?;
    Ok(found.0)
}

fn idle_cluster(service: &BoundedService) -> Cluster<Fast> {
    let instance = InstanceConfig {
        index: InstanceIndex(0),
        labels: blis_sim::policy::InstanceLabels::default(),
        policies: InstancePolicies::default(),
        latency: Arc::new(LeastTimes(Arc::clone(&service.instance.latency))),
        offload: None,    // every prefix is in the GPU's cache
        blis_tiers: None, // they cannot have anything before the first request
        ..service.instance.clone()
    };
    let front = ClusterConfig {
        admission_latency: service.admission_latency,
        routing_latency: service.routing_latency,
        snapshot_refresh_interval: Micros::ZERO,
        cache_signal_delay: Micros::ZERO,
        ties: Ties::LowestIndex,
        classes: Classes::default(),
        serves: Vec::new(),
        block_size: instance.block_size,
        semantics: instance.semantics,
        horizon: Micros::MAX,
        abort: Abort::default(),
    };
    let policies = Policies {
        admission: Box::new(AlwaysAdmit),
        routing: Box::new(RoundRobin::default()),
        priority: Box::new(ConstantPriority),
    };
    Cluster::new(front, policies, [instance], Fast::new)
}

/// A latency model in which steps take their least times.
#[derive(Debug)]
struct LeastTimes(Arc<dyn LatencyModel>);

impl LatencyModel for LeastTimes {
    fn step_time(&self, batch: &Batch) -> Micros {
        self.0.least_step_time(batch)
    }

    fn context_effect(&self) -> ContextEffect {
        self.0.context_effect()
    }

    fn sampling(&self, params: SamplingParams) -> Option<Sampling> {
        self.0.sampling(params)
    }

    fn queueing_time(&self, input_tokens: u32) -> Micros {
        self.0.queueing_time(input_tokens)
    }

    fn output_token_time(&self) -> Micros {
        self.0.output_token_time()
    }

    fn first_token_time(&self) -> Micros {
        self.0.first_token_time()
    }

    fn plans_ahead(&self) -> bool {
        self.0.plans_ahead()
    }

    fn post_decode_time(&self) -> Micros {
        self.0.post_decode_time()
    }

    fn scheduling_time(&self) -> Micros {
        self.0.scheduling_time()
    }
}

/// The latencies by index; the requests that fill the cache have even numbers.
struct FoundLatencies(Vec<Latencies>);

impl Observer for FoundLatencies {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        let SimEvent::Outcome(outcome) = event else { return };
        if outcome.id.0 % 2 == 1 {
            let ttft = outcome.ttft.unwrap_or(Micros::ZERO);
            self.0[outcome.id.index() / 2] = Latencies { ttft, e2e: outcome.e2e.unwrap_or(ttft) };
        }
    }
}
