//! The sets of signals that llm-d's guides scale by, each with the formula of Kubernetes' HorizontalPodAutoscaler on top
//! (`reference/scaling.md` §1; guides keda-epp, keda-epp-token-aware and slo-aware of August to November 2026).

use std::collections::VecDeque;

use super::behaviour::{Behaviour, Change, ScalingRules, Select};
use super::hpa::{Metric, Reading, ReplicaCount, desired};
use super::{GroupView, ReplicaView, ScalingPolicy, ScalingView};
use crate::numbers::count;
use crate::policy::Reads;
use crate::units::Micros;

/// Scales each group by a set of signals.
#[derive(Clone, Debug)]
pub struct Hpa {
    signals: SignalSet,
    /// A desired number that differs by a smaller share changes nothing, ≥ 0.
    tolerance: f64,
    /// The signal of [`SignalSet::SloAware`] at the last syncs, oldest first, for each group.
    recent: Vec<VecDeque<(Micros, f64)>>,
}

/// What a group is scaled by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SignalSet {
    /// Requests in the gateway's queue, and running requests.
    Queue {
        /// Queued requests for one replica, > 0.
        queued: f64,
        /// Running requests for one replica, > 0.
        running: f64,
    },
    /// The saturation of the service as flow control has it; without flow control the mean over the replicas of the
    /// larger of waiting requests / 5 and used KV blocks / 0.8.
    Saturation {
        /// The saturation to be kept, > 0.
        target: f64,
    },
    /// As [`Self::Queue`], but replicas that are loading count as if they had removed their share of the queue.
    QueueGuard {
        /// Queued requests for one replica, > 0.
        queued: f64,
        /// Running requests for one replica, > 0.
        running: f64,
    },
    /// The time that the prompts in flight need, and the KV cache in use.
    TokenAware {
        /// Prompt tokens that a replica prefills per second, > 0.
        prefill_rate: f64,
        /// Time of prefill in flight for one replica, s, > 0.
        prefill_s: f64,
        /// Share of used KV blocks of one replica, > 0.
        kv: f64,
    },
    /// P90 latencies over their SLOs.
    SloAware {
        /// SLO of the P90 of TTFT, µs.
        ttft: Micros,
        /// SLO of the P90 of TPOT, µs.
        tpot: Micros,
        /// Share of the SLO above which replicas are added, > 0.
        up: f64,
        /// Share of the SLO below which replicas are removed, > 0 and below `up`.
        down: f64,
    },
}

/// The mean of [`SignalSet::SloAware`] is over this time.
const SLO_MEAN: Micros = Micros(45_000_000);
/// Largest value of the signal of [`SignalSet::SloAware`]: a longer queue does not add replicas faster.
const SLO_CAP: f64 = 2.0;

impl Hpa {
    /// Scales by `signals`. A desired number of replicas that differs from the present one by `tolerance` (0.1 in
    /// Kubernetes) or less changes nothing.
    #[must_use]
    pub fn new(signals: SignalSet, tolerance: f64) -> Self {
        Self { signals, tolerance, recent: Vec::new() }
    }

    /// The metrics of one group.
    fn metrics(&mut self, index: usize, view: &ScalingView<'_>) -> Vec<Metric> {
        let group = &view.groups[index];
        let total = |value, target| Metric { reading: Some(Reading::Total(value)), target };
        match self.signals {
            SignalSet::Queue { queued, running } => {
                vec![total(group.gateway.queued.into(), queued), total(group.running(), running)]
            }
            SignalSet::Saturation { target } => {
                vec![Metric { reading: saturation(group).map(Reading::Level), target }]
            }
            SignalSet::QueueGuard { queued, running } => {
                let demand = (f64::from(group.gateway.queued) / queued).max(group.running() / running);
                let replicas = f64::from(group.replicas);
                let needed =
                    if demand <= replicas { demand } else { (demand - group.loading.len() as f64).max(replicas) };
                vec![total(needed, 1.0)]
            }
            SignalSet::TokenAware { prefill_rate, prefill_s, kv } => {
                let tokens: u64 = group.ready.iter().map(|one| one.in_flight_tokens).sum();
                let used = group.ready.iter().map(|one| one.kv_utilization).sum();
                vec![total(tokens as f64 / prefill_rate, prefill_s), total(used, kv)]
            }
            SignalSet::SloAware { ttft, tpot, up, down } => {
                let signal = slo_signal(group, ttft, tpot);
                let mean = self.mean(index, view, signal);
                let needed = mean.map(|signal| slo_replicas(signal, group, up, down));
                vec![Metric { reading: needed.map(Reading::Total), target: 1.0 }]
            }
        }
    }

    /// The mean of the signal over [`SLO_MEAN`], of which the present one is `signal`; `None` without any.
    fn mean(&mut self, index: usize, view: &ScalingView<'_>, signal: Option<f64>) -> Option<f64> {
        let recent = &mut self.recent[index];
        recent.retain(|&(at, _)| view.now.saturating_sub(at) < SLO_MEAN);
        recent.extend(signal.map(|signal| (view.now, signal)));
        let sum: f64 = recent.iter().map(|&(_, signal)| signal).sum();
        (!recent.is_empty()).then(|| sum / recent.len() as f64)
    }
}

impl ScalingPolicy for Hpa {
    fn reads(&self) -> Reads {
        let tokens = matches!(self.signals, SignalSet::TokenAware { .. });
        Reads { load: true, in_flight: true, tokens, ..Reads::NOTHING }
    }

    fn reads_outcomes(&self) -> bool {
        matches!(self.signals, SignalSet::SloAware { .. })
    }

    fn behaviour(&self) -> Behaviour {
        const PERIOD: Micros = Micros(15_000_000);
        let usual = Behaviour::kubernetes();
        let doubled =
            ScalingRules { window: Micros::ZERO, policies: vec![(Change::Percent(100), PERIOD)], select: Select::Max };
        match self.signals {
            SignalSet::Queue { .. } | SignalSet::Saturation { .. } | SignalSet::TokenAware { .. } => {
                Behaviour { up: doubled, ..usual }
            }
            SignalSet::QueueGuard { .. } => {
                Behaviour { down: ScalingRules { window: Micros::ZERO, ..usual.down }, up: doubled, ..usual }
            }
            SignalSet::SloAware { .. } => Behaviour {
                up: ScalingRules {
                    window: Micros(30_000_000),
                    policies: vec![(Change::Percent(100), Micros(60_000_000)), (Change::Pods(4), Micros(60_000_000))],
                    select: Select::Max,
                },
                down: ScalingRules {
                    window: Micros(180_000_000),
                    policies: vec![(Change::Pods(1), Micros(120_000_000))],
                    select: Select::Max,
                },
                ..usual
            },
        }
    }

    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
        self.recent.resize_with(view.groups.len(), VecDeque::new);
        for (index, group) in view.groups.iter().enumerate() {
            let metrics = self.metrics(index, view);
            // The number of ready replicas is that of the scrape.
            let count = ReplicaCount { current: group.replicas, ready: count(group.ready.len()) };
            targets.push(desired(&metrics, count, self.tolerance));
        }
    }

    fn fork(&self) -> Box<dyn ScalingPolicy> {
        Box::new(self.clone())
    }
}

impl GroupView<'_> {
    /// Running requests of all ready replicas.
    fn running(&self) -> f64 {
        self.ready.iter().map(|one| f64::from(one.batch_size)).sum()
    }
}

fn saturation(group: &GroupView<'_>) -> Option<f64> {
    let full = |one: &ReplicaView| (f64::from(one.queue_depth) / 5.0).max(one.kv_utilization / 0.8);
    let replicas = group.ready.len();
    let mean = (replicas > 0).then(|| group.ready.iter().map(full).sum::<f64>() / replicas as f64);
    group.gateway.saturation.or(mean)
}

/// min(max(P90 TTFT / SLO, P90 TPOT / SLO), 2); 0 for a group without requests; `None` if requests are served but none
/// has a latency yet.
fn slo_signal(group: &GroupView<'_>, ttft: Micros, tpot: Micros) -> Option<f64> {
    let share = |latency: Option<Micros>, slo: Micros| latency.map(|latency| latency.0 as f64 / slo.0 as f64);
    let ratio = match (share(group.outcomes.ttft_p90, ttft), share(group.outcomes.tpot_p90, tpot)) {
        (Some(ttft), Some(tpot)) => Some(ttft.max(tpot)),
        (one, other) => one.or(other),
    };
    ratio.map(|ratio| ratio.min(SLO_CAP)).or((!group.is_active()).then_some(0.0))
}

/// The replicas that a mean `signal` calls for. With n replicas of which the share c is ready: above `up`
/// n + ⌈n (signal·c/up − 1)⌉, but no fewer than n; below `down` n − ⌊n (1 − signal/down)⌋.
fn slo_replicas(signal: f64, group: &GroupView<'_>, up: f64, down: f64) -> f64 {
    let n = f64::from(group.replicas);
    if signal > up {
        let ready = if n > 0.0 { (group.ready.len() as f64 / n).min(1.0) } else { 1.0 };
        n + (n * (signal * ready / up - 1.0)).ceil().max(0.0)
    } else if signal < down {
        n - (n * (1.0 - signal / down)).floor()
    } else {
        n
    }
}

#[cfg(test)]
mod tests {
    use super::super::hpa::TOLERANCE;
    use super::super::testing::{TestGroup, targets};
    use super::super::{GatewayView, OutcomeWindow};
    use super::*;

    fn target(signals: SignalSet, group: TestGroup) -> Option<u32> {
        targets(&mut Hpa::new(signals, TOLERANCE), 0, &[group])[0]
    }

    fn busy(ready: u32, batch_size: u32, queued: u32) -> TestGroup {
        TestGroup::idle(ready).with(|group| {
            group.ready.iter_mut().for_each(|one| one.batch_size = batch_size);
            group.gateway.queued = queued;
        })
    }

    #[test]
    fn queued_and_running_requests() {
        let queue = SignalSet::Queue { queued: 1.0, running: 16.0 };
        assert_eq!(target(queue, busy(2, 24, 0)), Some(3), "48 / 16");
        assert_eq!(target(queue, busy(2, 24, 7)), Some(7), "7 queued");
        assert_eq!(target(queue, busy(2, 0, 0)), Some(0));
    }

    #[test]
    fn a_queue_that_starting_replicas_will_serve_adds_no_more() {
        let guard = SignalSet::QueueGuard { queued: 1.0, running: 16.0 };
        let starting = |queued, loading| {
            target(guard, busy(2, 0, queued).with(|group| group.loading = vec![Micros::MAX; loading]))
        };
        assert_eq!(starting(6, 0), Some(6));
        assert_eq!(starting(6, 3), Some(5), "6 > 5 replicas: max(6 - 3, 5)");
        assert_eq!(starting(9, 3), Some(6), "9 > 5 replicas: max(9 - 3, 5)");
        assert_eq!(starting(1, 3), Some(1), "1 ≤ 5 replicas");
    }

    #[test]
    fn saturation_is_that_of_the_gateway_or_of_the_replicas() {
        let level = SignalSet::Saturation { target: 0.7 };
        let of = |saturation, queue_depth, kv_utilization| {
            let group = TestGroup::idle(4).with(|group| {
                group.gateway = GatewayView { saturation, ..GatewayView::default() };
                group.ready.iter_mut().for_each(|one| {
                    (one.queue_depth, one.kv_utilization) = (queue_depth, kv_utilization);
                });
            });
            target(level, group)
        };
        assert_eq!(of(Some(0.84), 0, 0.0), Some(5), "1.2 · 4 = 4.8");
        assert_eq!(of(None, 7, 0.2), Some(8), "7 / 5 = 1.4, twice the target");
        assert_eq!(of(None, 0, 0.28), Some(2), "0.28 / 0.8 = 0.35, half the target");
        assert_eq!(target(level, TestGroup::idle(0).with(|group| group.loading = vec![Micros::MAX])), None);
    }

    #[test]
    fn prompt_tokens_in_flight_over_the_prefill_rate() {
        let tokens = SignalSet::TokenAware { prefill_rate: 10_000.0, prefill_s: 1.5, kv: 0.8 };
        let of = |in_flight_tokens, kv_utilization| {
            let group = TestGroup::idle(2).with(|group| {
                group.ready.iter_mut().for_each(|one| {
                    (one.in_flight_tokens, one.kv_utilization) = (in_flight_tokens, kv_utilization);
                });
            });
            target(tokens, group)
        };
        assert_eq!(of(40_000, 0.1), Some(6), "80 000 tokens are 8 s: 5.3 times 1.5 s");
        assert_eq!(of(0, 1.0), Some(3), "2 / 0.8 = 2.5");
        assert_eq!(of(4_000, 0.8), Some(2), "1 and 2");
    }

    #[test]
    fn latencies_over_their_slos() {
        let slo = SignalSet::SloAware { ttft: Micros(3_000_000), tpot: Micros(100_000), up: 0.55, down: 0.4 };
        let of = |ttft_ms: u64, tpot_ms: u64, loading| {
            TestGroup::idle(4).with(|group| {
                group.ready[0].in_flight = 1;
                group.loading = vec![Micros::MAX; loading];
                group.outcomes = OutcomeWindow {
                    ttft_p90: Some(Micros(ttft_ms * 1000)),
                    tpot_p90: Some(Micros(tpot_ms * 1000)),
                    ..OutcomeWindow::default()
                };
            })
        };
        assert_eq!(target(slo, of(300, 50, 0)), Some(4), "0.50 is between 0.40 and 0.55");
        assert_eq!(target(slo, of(300, 66, 0)), Some(5), "0.66 / 0.55 = 1.2: 4 + ⌈0.8⌉");
        assert_eq!(target(slo, of(2_640, 50, 0)), Some(7), "0.88 / 0.55 = 1.6: 4 + ⌈2.4⌉");
        assert_eq!(target(slo, of(60_000, 50, 0)), Some(15), "at most 2: 4 + ⌈10.5⌉");
        assert_eq!(target(slo, of(300, 66, 4)), Some(8), "half of 8 are ready: 0.6 adds none");
        assert_eq!(target(slo, of(300, 20, 0)), Some(2), "0.2 / 0.4 = 0.5: 4 - ⌊2⌋");
        let served = of(0, 0, 0).with(|group| group.outcomes = OutcomeWindow::default());
        assert_eq!(target(slo, served.clone()), None, "requests without a latency yet");
        assert_eq!(target(slo, served.with(|group| group.ready[0].in_flight = 0)), Some(0), "no requests");

        let mut policy = Hpa::new(slo, TOLERANCE);
        let means = [(0, 50), (15, 50), (30, 80), (45, 80), (60, 80)];
        let means = means.map(|(now_s, tpot_ms)| targets(&mut policy, now_s, &[of(300, tpot_ms, 0)])[0]);
        // Means of 45 s: 0.5, 0.5, 0.6, 0.7, 0.8.
        assert_eq!(means, [Some(4), Some(4), Some(5), Some(6), Some(6)]);
    }
}
