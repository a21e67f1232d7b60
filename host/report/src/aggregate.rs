//! The figures of a simulation as one JSON object: BLIS's published fields in their order, then the additions.

use blis_sim::metrics::{Aggregate, Distribution, Report};
use serde::Serialize;

use super::adapters::{AdaptersJson, SlotUseJson, adapters_json};
use super::breakdown::{Breakdown, DistributionJson, EmptyFigures, PublishedGoodput, is_zero};
use super::requests::{RequestLog, RequestsDocument};
use blis_workload::Names;

/// The document for standard output.
#[must_use]
pub fn report_document<'a>(report: &Report, names: &'a Names, empty: EmptyFigures) -> impl Serialize + use<'a> {
    AggregateDocument::new(report, names, empty, |id, aggregate| AggregateDocument::instance(id, aggregate, empty))
}

/// The document for the file of `--metrics-path`: the same figures, prefix-cache hit rates, and every request.
pub fn metrics_document<'a>(
    report: &Report,
    log: &'a RequestLog,
    names: &'a Names,
    empty: EmptyFigures,
) -> impl Serialize + use<'a> {
    let with_cache = |id, aggregate: &Aggregate| AggregateDocument {
        cache_hit_rate: Some(aggregate.cache_hit_rate),
        ..AggregateDocument::instance(id, aggregate, empty)
    };
    AggregateDocument {
        requests: Some(RequestsDocument { log, names }),
        ..AggregateDocument::new(report, names, empty, with_cache)
    }
}

/// The figures of the cluster or of one instance. Published fields come first; fields from `still_arriving` on are
/// additions.
#[derive(Serialize)]
struct AggregateDocument<'a> {
    instance_id: String,
    completed_requests: u64,
    still_queued: u64,
    still_running: u64,
    injected_requests: u64,
    total_input_tokens: u64,
    total_output_tokens: u64,
    vllm_estimated_duration_s: f64,
    responses_per_sec: f64,
    tokens_per_sec: f64,
    e2e_mean_ms: Option<f64>,
    e2e_p90_ms: Option<f64>,
    e2e_p95_ms: Option<f64>,
    e2e_p99_ms: Option<f64>,
    ttft_mean_ms: Option<f64>,
    ttft_p90_ms: Option<f64>,
    ttft_p95_ms: Option<f64>,
    ttft_p99_ms: Option<f64>,
    itl_mean_ms: Option<f64>,
    itl_p90_ms: Option<f64>,
    itl_p95_ms: Option<f64>,
    itl_p99_ms: Option<f64>,
    scheduling_delay_p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "is_zero")]
    kv_allocation_failures: u64,
    preemption_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_hit_rate: Option<f64>,
    dropped_unservable: u64,
    length_capped_requests: u64,
    timed_out_requests: u64,
    #[serde(flatten)]
    goodput: Option<PublishedGoodput<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdaptersJson<'a>>,

    still_arriving: u64,
    steps: u64,
    e2e_count: u64,
    e2e_min_ms: Option<f64>,
    e2e_p50_ms: Option<f64>,
    e2e_max_ms: Option<f64>,
    ttft_count: u64,
    ttft_min_ms: Option<f64>,
    ttft_p50_ms: Option<f64>,
    ttft_max_ms: Option<f64>,
    itl_count: u64,
    itl_min_ms: Option<f64>,
    itl_p50_ms: Option<f64>,
    itl_max_ms: Option<f64>,
    scheduling_delay_count: u64,
    scheduling_delay_mean_ms: Option<f64>,
    scheduling_delay_min_ms: Option<f64>,
    scheduling_delay_p50_ms: Option<f64>,
    scheduling_delay_p90_ms: Option<f64>,
    scheduling_delay_p95_ms: Option<f64>,
    scheduling_delay_max_ms: Option<f64>,
    mean_queue_length: f64,
    /// Present with BLIS's tiers of the KV cache only.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_thrashing_rate: Option<f64>,
    #[serde(flatten)]
    slot_use: Option<SlotUseJson>,
    /// Present for the cluster only.
    #[serde(flatten)]
    breakdown: Option<Breakdown<'a>>,
    /// Present for a cluster of several instances only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    instances: Vec<Self>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<RequestsDocument<'a>>,
}

impl<'a> AggregateDocument<'a> {
    /// The document of the cluster, with every part built by `of`.
    fn new(report: &Report, names: &'a Names, empty: EmptyFigures, of: impl Fn(String, &Aggregate) -> Self) -> Self {
        let several = report.instances.len() > 1;
        let with_adapters = |number: usize, aggregate: &Aggregate, document: Self| {
            let Some((_, each)) = &report.adapters else { return document };
            let adapters = each.get(number).map(|figures| adapters_json(figures, names));
            AggregateDocument { adapters, slot_use: Some(SlotUseJson::new(aggregate)), ..document }
        };
        let instances = report.instances.iter().enumerate().filter(|_| several);
        AggregateDocument {
            adapters: report.adapters.as_ref().map(|(all, _)| adapters_json(all, names)),
            slot_use: report.adapters.is_some().then(|| SlotUseJson::new(&report.cluster)),
            goodput: report.goodput.as_ref().map(|goodput| PublishedGoodput::new(goodput, names, empty)),
            breakdown: Some(Breakdown::new(report, names, empty)),
            instances: instances
                .map(|(number, instance)| with_adapters(number, instance, of(format!("instance_{number}"), instance)))
                .collect(),
            ..of("cluster".to_owned(), &report.cluster)
        }
    }

    fn instance(instance_id: String, aggregate: &Aggregate, empty: EmptyFigures) -> Self {
        let (counts, counters) = (&aggregate.counts, &aggregate.counters);
        let is_empty = empty == EmptyFigures::Zero && counts.completed == 0;
        let published =
            |distribution| DistributionJson::new(if is_empty { Distribution::default() } else { distribution }, empty);
        let [e2e, ttft, itl, scheduling] =
            [aggregate.e2e, aggregate.ttft, aggregate.itl, aggregate.scheduling_delay].map(published);
        Self {
            instance_id,
            completed_requests: counts.completed,
            still_queued: counts.queued,
            still_running: counts.running,
            injected_requests: counts.injected(),
            total_input_tokens: counters.input_tokens,
            total_output_tokens: counts.output_tokens,
            vllm_estimated_duration_s: aggregate.duration.as_secs_f64(),
            responses_per_sec: aggregate.responses_per_second(),
            tokens_per_sec: aggregate.tokens_per_second(),
            e2e_mean_ms: e2e.mean_ms,
            e2e_p90_ms: e2e.p90_ms,
            e2e_p95_ms: e2e.p95_ms,
            e2e_p99_ms: e2e.p99_ms,
            ttft_mean_ms: ttft.mean_ms,
            ttft_p90_ms: ttft.p90_ms,
            ttft_p95_ms: ttft.p95_ms,
            ttft_p99_ms: ttft.p99_ms,
            itl_mean_ms: itl.mean_ms,
            itl_p90_ms: itl.p90_ms,
            itl_p95_ms: itl.p95_ms,
            itl_p99_ms: itl.p99_ms,
            scheduling_delay_p99_ms: scheduling.p99_ms,
            kv_allocation_failures: counters.kv_allocation_failures,
            preemption_count: counters.preemptions,
            cache_hit_rate: None,
            dropped_unservable: counts.dropped(),
            length_capped_requests: counts.length_capped,
            timed_out_requests: counts.timed_out,
            goodput: None,
            adapters: None,
            still_arriving: counts.arriving,
            steps: counters.steps,
            e2e_count: e2e.count,
            e2e_min_ms: e2e.min_ms,
            e2e_p50_ms: e2e.p50_ms,
            e2e_max_ms: e2e.max_ms,
            ttft_count: ttft.count,
            ttft_min_ms: ttft.min_ms,
            ttft_p50_ms: ttft.p50_ms,
            ttft_max_ms: ttft.max_ms,
            itl_count: itl.count,
            itl_min_ms: itl.min_ms,
            itl_p50_ms: itl.p50_ms,
            itl_max_ms: itl.max_ms,
            scheduling_delay_count: scheduling.count,
            scheduling_delay_mean_ms: scheduling.mean_ms,
            scheduling_delay_min_ms: scheduling.min_ms,
            scheduling_delay_p50_ms: scheduling.p50_ms,
            scheduling_delay_p90_ms: scheduling.p90_ms,
            scheduling_delay_p95_ms: scheduling.p95_ms,
            scheduling_delay_max_ms: scheduling.max_ms,
            mean_queue_length: aggregate.mean_queue_length,
            kv_thrashing_rate: aggregate.kv_thrashing_rate,
            slot_use: None,
            breakdown: None,
            instances: Vec::new(),
            requests: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::ids::{InstanceIndex, RequestId};
    use blis_sim::metrics::{Metrics, MetricsOptions, SloTargets};
    use blis_sim::observer::{Observer as _, SimEvent};
    use blis_sim::outcome::{Counters, Outcome, Rejection, Status};
    use blis_sim::request::{Name, Request, Tags};
    use blis_sim::units::Micros;

    fn outcome(id: RequestId, status: Status) -> Outcome {
        let completed = status == Status::Completed;
        Outcome {
            generated_tokens: 3,
            instance: Some(InstanceIndex(0)),
            ttft: Some(Micros(20_000)),
            e2e: completed.then_some(Micros(35_000)),
            itl_sum: Micros(if completed { 15_000 } else { 0 }),
            itl_count: if completed { 2 } else { 0 },
            itl_mean_us: if completed { 7_500.0 } else { 0.0 },
            scheduling_delay: Some(Micros(1_250)),
            preemptions: 1,
            cached_tokens: 256,
            ..Outcome::new(&Request::new(id, Micros(1_500_000 - u64::from(id.0) * 1_000), 512, 3), status)
        }
    }

    fn counters() -> Counters {
        Counters {
            clock: Micros(2_000_000),
            steps: 17,
            preemptions: 2,
            cache_hits: 1,
            cache_misses: 3,
            input_tokens: 1_024,
            queue_time: Micros(2_500),
            ..Counters::default()
        }
    }

    fn simulation() -> (Report, RequestLog) {
        let mut observer = (Metrics::new(MetricsOptions::default()), RequestLog::new());
        observer.record(&SimEvent::Outcome(&outcome(RequestId(0), Status::Completed)));
        observer.record(&SimEvent::Outcome(&outcome(RequestId(1), Status::TimedOut)));
        observer.record(&SimEvent::InterTokenLatency { instance: InstanceIndex(0), gap: Micros(7_000), count: 1 });
        observer.record(&SimEvent::InterTokenLatency { instance: InstanceIndex(0), gap: Micros(8_000), count: 1 });
        (observer.0.report(&[counters()], Micros::MAX), observer.1)
    }

    /// Two instances, classes with targets, tenants, and one request with each kind of failure.
    fn cluster() -> (Report, RequestLog, Names) {
        let mut names = Names::default();
        let [gold, batch, ours, theirs] = ["gold", "batch", "ours", "theirs"].map(|text| names.intern(text));
        let options = MetricsOptions {
            instances: 2,
            per_class: true,
            per_tenant: true,
            inversions: true,
            targets: vec![(gold, SloTargets { ttft: Some(Micros(20_000)), ..SloTargets::default() })],
            ..MetricsOptions::default()
        };
        let mut observer = (Metrics::new(options), RequestLog::new());
        for (id, status, instance, slo_class, tenant) in [
            (0, Status::Completed, 0, gold, ours),
            (1, Status::Completed, 1, Name::NONE, theirs),
            (2, Status::TimedOut, 1, gold, theirs),
        ] {
            let tags = Tags { slo_class, tenant, ..Tags::default() };
            let instance = Some(InstanceIndex(instance));
            observer.record(&SimEvent::Outcome(&Outcome { instance, tags, ..outcome(RequestId(id), status) }));
        }
        for (id, why) in [(3, Rejection::Admission), (4, Rejection::Routing)] {
            let request = Request {
                tags: Tags { slo_class: batch, tenant: ours, ..Tags::default() },
                ..Request::new(RequestId(id), Micros(9), 1, 1)
            };
            observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::Rejected(why))));
        }
        let busy = Counters { queue_time: Micros(9_000_000), ..counters() };
        (observer.0.report(&[counters(), busy], Micros::MAX), observer.1, names)
    }

    #[test]
    fn standard_output() {
        insta::assert_json_snapshot!(report_document(&simulation().0, &Names::default(), EmptyFigures::Zero));
    }

    #[test]
    fn metrics_file() {
        let (report, log) = simulation();
        insta::assert_json_snapshot!(metrics_document(&report, &log, &Names::default(), EmptyFigures::Zero));
    }

    #[test]
    fn metrics_file_of_a_cluster() {
        let (report, log, names) = cluster();
        insta::assert_json_snapshot!(metrics_document(&report, &log, &names, EmptyFigures::Null));
    }

    #[test]
    fn nothing_completed_means_no_latencies() {
        let mut metrics = Metrics::new(MetricsOptions::default());
        metrics.record(&SimEvent::Outcome(&outcome(RequestId(0), Status::TimedOut)));
        let report = metrics.report(&[Counters { kv_allocation_failures: 4, ..Counters::default() }], Micros::MAX);
        let document =
            serde_json::to_value(report_document(&report, &Names::default(), EmptyFigures::Zero)).expect("JSON");
        assert_eq!((&document["ttft_mean_ms"], &document["ttft_count"]), (&0.0.into(), &0.into()));
        assert_eq!(document["kv_allocation_failures"], 4, "present unless 0");
    }
}
