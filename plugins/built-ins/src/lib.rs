//! Six built-in policies, one of each kind, as one component: `gaie-legacy`, `weighted` with its default scorers,
//! `class`, `sjf`, preemption by `priority`, and `blackbox`.
//!
//! Runs with it have the results of the built-ins, byte for byte, which shows that a plugin sees all that these policies
//! see. Every floating-point operation is that of the built-in, in its order. `examples/built-ins/` has the same as
//! scripts.

use blis_sdk::{
    Admission, AdmissionDecision, Cluster, Description, Latency, LatencyConstants, Policy, Preemption, Priority,
    Queued, Request, Routing, Running, Scheduling, Setup, Step, argmax,
};
use serde::{Deserialize, Serialize};

blis_sdk::signals! {
    /// What admission and routing read about an instance.
    pub struct Seen { queue_depth, kv_utilization, cached_blocks }
}

/// The parameters of all six; none of them has other state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReimplementedBuiltIns {
    queue_depth: f64,
    kv_utilization: f64,
    /// Weights of cached blocks, short queues and unused KV blocks; their sum is 1.
    weights: [f64; 3],
    highest: i64,
    alpha: [f64; 3],
    beta: [f64; 3],
}

impl Policy for ReimplementedBuiltIns {
    type Signals = Seen;

    fn describe() -> Description {
        Description::new("rust-built-ins")
            .version(env!("CARGO_PKG_VERSION"))
            .about("gaie-legacy, weighted, class, sjf, priority and blackbox, with the built-ins' results.")
            .scores()
            .parameter("queue_depth", 5.0, 0.1..=1000.0, "gaie-legacy: waiting requests that count as saturated")
            .parameter("kv_utilization", 0.8, 0.01..=1.0, "gaie-legacy: used share of KV blocks, as well")
            .parameter("cache", 2.0, 0.1..=10.0, "weighted: weight of cached blocks of the prompt")
            .parameter("queue", 1.0, 0.0..=10.0, "weighted: weight of a short queue")
            .parameter("memory", 1.0, 0.0..=10.0, "weighted: weight of unused KV blocks")
            .parameter("highest", 4.0, -1e9..=1e9, "class: highest priority of a class")
            .parameter("a0", 0.0, 0.0..=1e6, "blackbox: time per request, µs")
            .parameter("a1", 0.0, 0.0..=1e5, "blackbox: time per prompt token, µs")
            .parameter("a2", 0.0, 0.0..=1e5, "blackbox: time per output token, µs")
            .parameter("b0", 0.0, 0.0..=1e6, "blackbox: time per step, µs")
            .parameter("b1", 0.0, 0.0..=1e5, "blackbox: time per prompt token of a step, µs")
            .parameter("b2", 0.0, 0.0..=1e5, "blackbox: time per decoding request of a step, µs")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        let three = |names: [&str; 3]| names.map(|name| setup.parameter(name));
        let weights = three(["cache", "queue", "memory"]);
        let sum: f64 = weights.iter().sum();
        Ok(Self {
            queue_depth: setup.parameter("queue_depth"),
            kv_utilization: setup.parameter("kv_utilization"),
            weights: weights.map(|weight| weight / sum),
            highest: setup.parameter("highest") as i64,
            alpha: three(["a0", "a1", "a2"]),
            beta: three(["b0", "b1", "b2"]),
        })
    }
}

/// `gaie-legacy`: while the service is saturated, classes that may be shed are rejected.
impl Admission for ReimplementedBuiltIns {
    fn admit(&mut self, request: &Request, cluster: &Cluster<'_, Seen>) -> AdmissionDecision {
        if request.class_priority >= 0 {
            return AdmissionDecision::Admit;
        }
        let saturation = self.saturation(cluster.instances);
        if saturation < 1.0 {
            return AdmissionDecision::Admit;
        }
        let class = blis_sdk::text(request.slo_class);
        AdmissionDecision::Reject(format!("gaie-saturated: class={class} saturation={saturation:.2}"))
    }
}

impl ReimplementedBuiltIns {
    /// Mean saturation over the instances, where 1 means saturated; 1 without instances.
    fn saturation(&self, instances: &[Seen]) -> f64 {
        if instances.is_empty() {
            return 1.0;
        }
        let full = instances.iter().map(|instance| {
            (instance.queue_depth / self.queue_depth).max(instance.kv_utilization / self.kv_utilization)
        });
        full.sum::<f64>() / instances.len() as f64
    }
}

/// `weighted`: a weighted sum of three scores. The terms are added in the built-in's order, so that equal sums are equal
/// here.
impl Routing for ReimplementedBuiltIns {
    fn route(&mut self, request: &Request, cluster: &Cluster<'_, Seen>) -> usize {
        let mut sums = Vec::with_capacity(cluster.instances.len());
        self.scores(request, cluster, &mut sums);
        argmax(sums.iter().copied())
    }

    fn scores(&self, _: &Request, cluster: &Cluster<'_, Seen>, scores: &mut Vec<f64>) {
        let instances = cluster.instances;
        let (least_cached, most_cached) = extremes(instances.iter().map(|instance| instance.cached_blocks));
        let (least_queued, most_queued) = extremes(instances.iter().map(|instance| instance.queue_depth));
        let [cache, queue, memory] = self.weights;
        scores.extend(instances.iter().map(|instance| {
            cache * share(instance.cached_blocks - least_cached, most_cached - least_cached)
                + queue * share(most_queued - instance.queue_depth, most_queued - least_queued)
                + memory * (1.0 - instance.kv_utilization).clamp(0.0, 1.0)
        }));
    }
}

/// The smallest and the largest value.
fn extremes(column: impl Iterator<Item = f64>) -> (f64, f64) {
    column.fold((f64::INFINITY, 0.0), |(least, most), x| (least.min(x), most.max(x)))
}

/// `part / whole`; 1 if the instances are all equal, so that the range is empty.
fn share(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 1.0 } else { part / whole }
}

/// `class`: the priority of the class below the highest one; a number set by the client takes precedence.
impl Priority for ReimplementedBuiltIns {
    fn priority(&mut self, request: &Request) -> i64 {
        match request.client_priority() {
            Some(number) => -i64::from(number),
            None => i64::from(request.class_priority) - self.highest,
        }
    }
}

/// `sjf`: the shortest prompt first. The host breaks ties by arrival and id.
impl Scheduling for ReimplementedBuiltIns {
    fn rank(&mut self, request: &Request, _: &Queued) -> f64 {
        f64::from(request.input_tokens)
    }
}

/// `priority`: of the lowest priority, which has the highest number, the last arrival. Of equals, `argmax` asks the host.
impl Preemption for ReimplementedBuiltIns {
    fn victim(&mut self, _: u64, _: usize, batch: &[Running]) -> usize {
        argmax(batch.iter().map(|running| (running.priority, running.arrival_us)))
    }
}

/// `blackbox`: linear in the tokens of a step. Fractions of microseconds are dropped.
impl Latency for ReimplementedBuiltIns {
    fn step_time(&self, step: &Step) -> u64 {
        if step.prefill_requests == 0 && step.decode_requests == 0 {
            return 1;
        }
        let [base, per_prefill_token, per_decode_token] = self.beta;
        let us = base + per_prefill_token * step.prefill_tokens as f64 + per_decode_token * step.decode_requests as f64;
        (us as u64).max(1)
    }

    fn queueing_time(&self, input_tokens: u32) -> u64 {
        (self.alpha[0] + self.alpha[1] * f64::from(input_tokens)) as u64
    }

    fn constants(&self) -> LatencyConstants {
        // The shortest step computes one token: of a prompt, or of a decoding request.
        let prefill = Step { prefill_requests: 1, prefill_tokens: 1, ..Step::default() };
        let decode = Step { decode_requests: 1, ..Step::default() };
        LatencyConstants {
            shortest_step_us: self.step_time(&prefill).min(self.step_time(&decode)),
            output_token_us: self.alpha[2] as u64,
            ..LatencyConstants::default()
        }
    }
}

blis_sdk::export_policy!(ReimplementedBuiltIns: Admission, Routing, Priority, Scheduling, Preemption, Latency);

#[cfg(test)]
mod tests {
    use blis_sdk::Kind;
    use blis_sdk::testing::{Host, with};

    use super::*;

    fn made(kind: Kind) -> ReimplementedBuiltIns {
        let setup =
            Setup::of(kind, &ReimplementedBuiltIns::describe()).with("b0", 10.0).with("b1", 2.5).with("b2", 0.4);
        ReimplementedBuiltIns::new(&setup).expect("made")
    }

    #[test]
    fn of_equal_victims_the_host_chooses() {
        let running = |priority, arrival_us| Running { priority, arrival_us, ..Running::default() };
        let batch = [running(1, 9), running(4, 7), running(4, 8), running(4, 8)];
        let host = Host { picks: vec![1], ..Host::default() };
        let (victim, host) = with(host, || made(Kind::Preemption).victim(0, 0, &batch));
        assert_eq!((victim, host.pick_sizes), (3, vec![2]));
    }

    #[test]
    fn fractions_of_microseconds_are_dropped() {
        let model = made(Kind::Latency);
        let step = Step { prefill_requests: 1, prefill_tokens: 3, decode_requests: 2, ..Step::default() };
        assert_eq!(model.step_time(&step), 18, "10 + 7.5 + 0.8");
        assert_eq!(model.step_time(&Step::default()), 1);
        assert_eq!(model.constants().shortest_step_us, 10, "one decoding request");
    }
}
