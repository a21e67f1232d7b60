//! A service in the course of a run.

use blis_sim::policy::{Changes, ClusterView, Reads, RequestView, Signals, Versions};
use blis_sim::request::Request;

use super::point::{BLOCK_SIZE, DecisionPoint};

/// A service of `n` instances in the course of a run, for decisions that read the instances: little changes between two
/// decisions, and the indices that changed are known.
///
/// Requests arrive at 20 per second and instance and instances report every 50 ms, so one instance reports every `n`
/// decisions; for each request that is routed another one ends.
#[derive(Clone, Debug)]
pub struct SyntheticService {
    point: DecisionPoint,
    requests: Vec<(Request, i32)>,
    /// The signals that the instances report in turn.
    reports: Vec<Signals>,
    /// Log of the changes of the router's columns: the number of entries dropped from its start, and the rest.
    changes: (u64, Vec<u32>),
    decisions: usize,
}

impl SyntheticService {
    /// A service of `n` instances, at least 1.
    #[must_use]
    pub fn new(n: usize) -> Self {
        let points: Vec<_> = (0..64).map(|item| DecisionPoint::plausible(n, item)).collect();
        Self {
            point: DecisionPoint {
                versions: Versions { load: 1, cached_blocks: 1, instances: 0 },
                ..points[0].clone()
            },
            reports: points[..4].iter().map(|point| point.signals.clone()).collect(),
            requests: points.into_iter().map(|point| (point.request, point.class_priority)).collect(),
            changes: (0, Vec::with_capacity(2 * Self::REMEMBERED)),
            decisions: 0,
        }
    }

    /// Approximate number of log entries that are kept.
    const REMEMBERED: usize = 4096;

    /// Advances to the next decision. Signals that no policy `reads` stay as they are, as in a simulation.
    pub fn advance(&mut self, reads: Reads) {
        let (n, number, point) = (self.point.instances.len(), self.decisions, &mut self.point);
        self.decisions += 1;
        let signals = &mut point.signals;
        if reads.load && number % n == 0 {
            let report = &self.reports[number / n % self.reports.len()];
            signals.queue_depth.copy_from_slice(&report.queue_depth);
            signals.batch_size.copy_from_slice(&report.batch_size);
            signals.kv_utilization.copy_from_slice(&report.kv_utilization);
            signals.free_kv_blocks.copy_from_slice(&report.free_kv_blocks);
            signals.cache_hit_rate.copy_from_slice(&report.cache_hit_rate);
            signals.preemption_count.copy_from_slice(&report.preemption_count);
            signals.waiting_tokens.copy_from_slice(&report.waiting_tokens);
            signals.adapter_active.copy_from_slice(&report.adapter_active);
            signals.adapter_waiting.copy_from_slice(&report.adapter_waiting);
            signals.free_adapter_slots.copy_from_slice(&report.free_adapter_slots);
            point.versions.load += 1;
        }
        if reads.cached_blocks {
            signals.cached_blocks.copy_from_slice(&self.reports[number % self.reports.len()].cached_blocks);
            point.versions.cached_blocks += 1;
        }
        let (forgotten, recent) = &mut self.changes;
        if recent.len() >= Self::REMEMBERED {
            *forgotten += recent.len() as u64;
            recent.clear();
        }
        let (came, ended) = (number * 7 % n, number * 13 % n);
        signals.in_flight[came] += 1;
        signals.in_flight[ended] = signals.in_flight[ended].saturating_sub(1);
        if reads.tokens {
            signals.in_flight_tokens[came] += 500;
            signals.in_flight_output[came] += 750;
            signals.in_flight_tokens[ended] = signals.in_flight_tokens[ended].saturating_sub(500);
            signals.in_flight_output[ended] = signals.in_flight_output[ended].saturating_sub(750);
        }
        if reads.latencies {
            signals.ttft_ewma[ended] = 0.9 * signals.ttft_ewma[ended] + 1e4;
            signals.itl_ewma[ended] = 0.9 * signals.itl_ewma[ended] + 1e3;
        }
        recent.extend([came as u32, ended as u32]);
    }

    /// The request that the next decision is about.
    #[must_use]
    pub fn request(&self) -> RequestView<'_> {
        let (request, class_priority) = &self.requests[self.decisions % self.requests.len()];
        RequestView::new(request, *class_priority, BLOCK_SIZE)
    }

    /// The service as policies get it.
    #[must_use]
    pub fn cluster(&self) -> ClusterView<'_> {
        let (forgotten, recent) = &self.changes;
        ClusterView { in_flight_changes: Changes::new(*forgotten, recent), ..self.point.cluster() }
    }
}
