//! Cloning a running instance, as a counterfactual does. The cost depends on the live requests, not on those that have
//! ended.

use std::fmt;

use blis_config::LatencyKind;
use blis_sim::cluster::{Abort, ArrivalList, Cluster, ClusterConfig, Policies, Timeline};
use blis_sim::ids::InstanceIndex;
use blis_sim::instance::{Fast, Instance as _, InstanceConfig};
use blis_sim::policy::{AlwaysAdmit, Classes, ConstantPriority, Reads, ScorerKind, Ties, Weighted};
use blis_sim::request::{Content, Request, Span};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use divan::Bencher;

use crate::setup::{BLOCK, OutcomeCounter, chat, instance, request};

/// A state of an instance: requests in the batch, and requests that have finished before.
#[derive(Clone, Copy, Debug)]
struct InstanceState {
    busy: u32,
    finished: u32,
}

/// Prompts without shared blocks.
#[divan::bench(args = states([1000, 100_000]))]
fn unique_prompts(bencher: Bencher, state: InstanceState) {
    let instance = state.reach(|_| Content::UNIQUE);
    bencher.bench_local(|| instance.clone());
}

/// Prompts of 1000 conversations. The cache is part of the state as well: after 20 000 requests it is full of blocks
/// that can be found again.
#[divan::bench(args = states([20_000, 200_000]))]
fn recurring_prompts(bencher: Bencher, state: InstanceState) {
    let instance = state.reach(|index| Content::shared(&[Span { first: index % 1000 * 16, len: 16 }]));
    bencher.bench_local(|| instance.clone());
}

/// Prompts with shareable blocks, of which no two are equal.
#[divan::bench(args = states([20_000, 200_000]))]
fn new_prompts(bencher: Bencher, state: InstanceState) {
    let instance = state.reach(|index| Content::shared(&[Span { first: index * 16, len: 16 }]));
    bencher.bench_local(|| instance.clone());
}

/// A service of 16 instances, about 100 requests on each, with weighted routing that remembers prompts: the cost of a
/// counterfactual before its first event. At most 1 ms.
#[divan::bench(args = [2_000, 20_000])]
fn service(bencher: Bencher, routed: usize) {
    let requests: Vec<Request> = chat(routed as u64 + 1, 200.0)
        .into_iter()
        .map(|one| Request { content: Content::shared(&[Span { first: one.id.0 % 1000 * 16, len: 16 }]), ..one })
        .collect();
    let instances =
        (0..16).map(InstanceIndex).map(|index| InstanceConfig { index, ..instance(LatencyKind::TrainedPhysics) });
    let config = ClusterConfig {
        admission_latency: Micros::ZERO,
        routing_latency: Micros::ZERO,
        snapshot_refresh_interval: Micros::ZERO,
        cache_signal_delay: Micros::ZERO,
        ties: Ties::LowestIndex,
        classes: Classes::default(),
        serves: Vec::new(),
        block_size: BLOCK,
        semantics: Semantics::VLLM_0_33,
        horizon: Micros::MAX,
        abort: Abort::default(),
    };
    let policies = Policies {
        admission: Box::new(AlwaysAdmit),
        routing: Box::new(
            Weighted::new(vec![(ScorerKind::PrefixAffinity, 1.0), (ScorerKind::QueueDepth, 1.0)]).expect("valid"),
        ),
        priority: Box::new(ConstantPriority),
    };
    let cluster = Cluster::new(config, policies, instances, Fast::new);
    let mut timeline = Timeline::new(cluster, ArrivalList::new(requests.into()), Reads::NOTHING);
    let mut sink = OutcomeCounter::default();
    for _ in 0..2 * routed {
        assert!(timeline.next_decision(&mut sink).expect("it does not get stuck"));
        timeline.decide(&mut sink).expect("it does not get stuck");
    }
    bencher.bench_local(|| timeline.clone());
}

fn states(finished: [u32; 2]) -> impl Iterator<Item = InstanceState> {
    [16, 256].into_iter().flat_map(move |busy| finished.map(|finished| InstanceState { busy, finished }))
}

impl InstanceState {
    /// Keeps `busy` requests in the batch until `finished` have completed.
    fn reach(self, content: impl Fn(u32) -> Content) -> Fast {
        let mut instance = Fast::new(instance(LatencyKind::TrainedPhysics));
        let mut sink = OutcomeCounter::default();
        let (mut now, mut arrived) = (Micros::ZERO, 0);
        while sink.0 < self.finished {
            while arrived - sink.0 < self.busy {
                // Outputs of 128 to 384 tokens, so that requests do not finish together.
                let output_tokens = 128 + arrived * 97 % 257;
                instance.arrive(now, request(arrived, now, 256, output_tokens, content(arrived)));
                arrived += 1;
            }
            now += Micros(20_000);
            instance.advance(now, &mut sink).expect("it does not get stuck");
        }
        instance
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} busy, {} finished", self.busy, self.finished)
    }
}
