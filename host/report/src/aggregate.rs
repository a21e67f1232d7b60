//! The figures of a simulation as one JSON object: BLIS's published fields in their order, then the additions.

use blis_sim::metrics::{Aggregate, Distribution, Report};
use blis_sim::outcome::PrefixCacheCounters;
use serde::Serialize;

use super::adapters::{AdaptersJson, SlotUseJson, adapters_json};
use super::breakdown::{Breakdown, DistributionJson, EmptyFigures, PublishedGoodput, is_zero};
use super::requests::{RequestLog, RequestsDocument};
use blis_workload::Names;

/// The document for standard output.
#[must_use]
pub fn report_document<'a>(report: &Report, names: &'a Names, empty: EmptyFigures) -> impl Serialize + use<'a> {
    let document: RunFigures<'a> = cluster(report, names, empty, |_| (), ());
    document
}

/// The document for the file of `--metrics-path`: the same figures, prefix-cache hit rates, and every request.
pub fn metrics_document<'a>(
    report: &Report,
    log: &'a RequestLog,
    names: &'a Names,
    empty: EmptyFigures,
) -> impl Serialize + use<'a> {
    let requests = RequestsDocument { log, names };
    let cache = |aggregate: &Aggregate| CacheHitRate { cache_hit_rate: aggregate.cache_hit_rate };
    let document: MetricsFile<'a> = cluster(report, names, empty, cache, EveryRequest { requests });
    document
}

/// Figures of a run. Latencies without samples are `null`; with `--parity blis`, and without a completed request, all
/// are 0.
type RunFigures<'a> = ClusterFigures<'a, (), InstanceFigures<'a>, ()>;

/// Figures of an instance.
type InstanceFigures<'a> = AggregateDocument<'a, (), (), ()>;

/// The file of `--metrics-path`.
type MetricsFile<'a> = ClusterFigures<'a, CacheHitRate, InstanceInFile<'a>, EveryRequest<'a>>;

/// Figures of an instance in the file of `--metrics-path`.
type InstanceInFile<'a> = AggregateDocument<'a, CacheHitRate, (), ()>;

/// Figures of the cluster, with those of its instances.
type ClusterFigures<'a, H, I, R> = AggregateDocument<'a, H, Option<PublishedGoodput<'a>>, ClusterParts<'a, I, R>>;

/// The figures of the cluster or of one instance. Published fields come first, in their order.
#[derive(Serialize)]
struct AggregateDocument<'a, H: Serialize, G: Serialize, C: Serialize> {
    #[serde(flatten)]
    published: PublishedTotals,
    #[serde(flatten)]
    cache: H,
    #[serde(flatten)]
    ends: PublishedEnds,
    #[serde(flatten)]
    goodput: G,
    /// Figures by LoRA adapter, if there are adapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdaptersJson<'a>>,
    #[serde(flatten)]
    added: AddedTotals,
    #[serde(flatten)]
    slot_use: Option<SlotUseJson>,
    #[serde(flatten)]
    cluster: C,
}

/// Published figures of the cluster or of one instance. Latencies without samples are `null`; with `--parity blis`, and
/// without a completed request, all are 0.
#[derive(Serialize)]
struct PublishedTotals {
    /// `cluster`, or `instance_` and the number of the instance.
    instance_id: String,
    /// Requests with their whole output, or one cut at the maximum model length.
    completed_requests: u64,
    /// Requests in a waiting queue when the run ended. Unit: requests.
    still_queued: u64,
    /// Requests in a running batch when the run ended. Unit: requests.
    still_running: u64,
    /// Requests that reached an instance, as BLIS counts them: without `still_arriving` and rejected ones.
    injected_requests: u64,
    /// Input tokens of the requests that passed the checks on arrival.
    total_input_tokens: u64,
    /// Output tokens of completed requests.
    total_output_tokens: u64,
    /// Simulated time; for the cluster, the longest of its instances.
    vllm_estimated_duration_s: f64,
    /// Completed requests per simulated second. Unit: requests/s.
    responses_per_sec: f64,
    /// Output tokens of completed requests per simulated second. Unit: tokens/s.
    tokens_per_sec: f64,
    /// End-to-end latency, mean over requests.
    e2e_mean_ms: Option<f64>,
    /// End-to-end latency, 90th percentile.
    e2e_p90_ms: Option<f64>,
    /// End-to-end latency, 95th percentile.
    e2e_p95_ms: Option<f64>,
    /// End-to-end latency, 99th percentile.
    e2e_p99_ms: Option<f64>,
    /// Time to first token, mean over requests.
    ttft_mean_ms: Option<f64>,
    /// Time to first token, 90th percentile.
    ttft_p90_ms: Option<f64>,
    /// Time to first token, 95th percentile.
    ttft_p95_ms: Option<f64>,
    /// Time to first token, 99th percentile.
    ttft_p99_ms: Option<f64>,
    /// Inter-token latency, mean over gaps.
    itl_mean_ms: Option<f64>,
    /// Inter-token latency, 90th percentile.
    itl_p90_ms: Option<f64>,
    /// Inter-token latency, 95th percentile.
    itl_p95_ms: Option<f64>,
    /// Inter-token latency, 99th percentile.
    itl_p99_ms: Option<f64>,
    /// Time from arrival to the running batch, 99th percentile.
    scheduling_delay_p99_ms: Option<f64>,
    /// Failed allocations of KV blocks; absent if 0. Unit: events, 0 or more.
    #[serde(skip_serializing_if = "is_zero")]
    kv_allocation_failures: u64,
    /// Preemptions of all requests. Unit: events.
    preemption_count: u64,
}

/// Prefix-cache hits of the GPU.
#[derive(Serialize)]
struct CacheHitRate {
    /// Prefix-cache hits of the tokens of requests that entered the batch and were never preempted, with `--parity blis` of the
    /// KV blocks looked up; for the cluster, the mean of its instances. Unit: share.
    cache_hit_rate: f64,
}

/// Published numbers of requests that did not end as they should.
#[derive(Serialize)]
struct PublishedEnds {
    /// Requests that can never be served: too long for the model, the KV cache or the token budget of a step. Unit:
    /// requests.
    dropped_unservable: u64,
    /// Completed requests with an output that ended early at the maximum model length.
    length_capped_requests: u64,
    /// Requests that timed out: they had not completed at their deadline.
    timed_out_requests: u64,
}

/// Further figures of the cluster or of one instance, likewise.
#[derive(Serialize)]
struct AddedTotals {
    /// Requests between client and waiting queue when the run ended. Unit: requests.
    still_arriving: u64,
    /// Engine steps. Unit: steps.
    steps: u64,
    /// What was looked up in the prefix cache: the tokens of each request that entered the batch and was never preempted, as in
    /// vLLM's `prefix_cache_queries`. Absent if 0, and with `--parity blis`. Unit: tokens.
    #[serde(skip_serializing_if = "is_zero")]
    prefix_cache_queries: u64,
    /// Of these, what was found, as in vLLM's `prefix_cache_hits`. Absent if 0. Unit: tokens.
    #[serde(skip_serializing_if = "is_zero")]
    prefix_cache_hits: u64,
    /// Tokens of requests that entered the batch again after a preemption; they are not in `prefix_cache_queries`. Absent if 0.
    /// Unit: tokens.
    #[serde(skip_serializing_if = "is_zero")]
    preempted_cache_queries: u64,
    /// Of these, what was found: mostly what the requests had computed themselves. Absent if 0. Unit: tokens.
    #[serde(skip_serializing_if = "is_zero")]
    preempted_cache_hits: u64,
    /// Tokens that preempted requests had computed, and computed again. Absent if 0. Unit: tokens.
    #[serde(skip_serializing_if = "is_zero")]
    recomputed_tokens: u64,
    /// Number of samples: completed requests. Unit: requests.
    e2e_count: u64,
    /// End-to-end latency, minimum over requests.
    e2e_min_ms: Option<f64>,
    /// End-to-end latency, median over requests.
    e2e_p50_ms: Option<f64>,
    /// End-to-end latency, maximum over requests.
    e2e_max_ms: Option<f64>,
    /// Number of samples: requests with a first token. Unit: requests.
    ttft_count: u64,
    /// Time to first token, minimum.
    ttft_min_ms: Option<f64>,
    /// Time to first token, median.
    ttft_p50_ms: Option<f64>,
    /// Time to first token, maximum.
    ttft_max_ms: Option<f64>,
    /// Number of samples: gaps of completed requests. Unit: gaps.
    itl_count: u64,
    /// Inter-token latency, minimum over gaps.
    itl_min_ms: Option<f64>,
    /// Inter-token latency, median over gaps.
    itl_p50_ms: Option<f64>,
    /// Inter-token latency, maximum over gaps.
    itl_max_ms: Option<f64>,
    /// Number of samples: requests that were scheduled. Unit: requests.
    scheduling_delay_count: u64,
    /// Time from arrival to the running batch, mean.
    scheduling_delay_mean_ms: Option<f64>,
    /// Time from arrival to the running batch, minimum.
    scheduling_delay_min_ms: Option<f64>,
    /// Time from arrival to the running batch, median.
    scheduling_delay_p50_ms: Option<f64>,
    /// Time from arrival to the running batch, 90th percentile.
    scheduling_delay_p90_ms: Option<f64>,
    /// Time from arrival to the running batch, 95th percentile.
    scheduling_delay_p95_ms: Option<f64>,
    /// Time from arrival to the running batch, maximum.
    scheduling_delay_max_ms: Option<f64>,
    /// Requests in the waiting queue, averaged over the duration; for the cluster, in all queues together. Unit:
    /// requests.
    mean_queue_length: f64,
    /// With tiers of the KV cache below the GPU (`--parity blis`) only: evictions from the CPU by block copied to it;
    /// with storage tiers reads from storage for which the CPU had no room by read; for the cluster, the mean over its
    /// instances. Unit: share.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_thrashing_rate: Option<f64>,
}

/// What the cluster has beside the figures of its instances, which are `I`.
#[derive(Serialize)]
struct ClusterParts<'a, I: Serialize, R: Serialize> {
    #[serde(flatten)]
    breakdown: Breakdown<'a>,
    /// Each instance; absent for a single one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    instances: Vec<I>,
    #[serde(flatten)]
    rest: R,
}

/// The requests of a run.
#[derive(Serialize)]
struct EveryRequest<'a> {
    /// Every request that was neither rejected nor dropped, in the order of arrival.
    requests: RequestsDocument<'a>,
}

/// The document of the cluster: `cache` makes what each part has of the prefix cache, `rest` comes last.
fn cluster<'a, H: Serialize, R: Serialize>(
    report: &Report,
    names: &'a Names,
    empty: EmptyFigures,
    cache: impl Fn(&Aggregate) -> H,
    rest: R,
) -> ClusterFigures<'a, H, AggregateDocument<'a, H, (), ()>, R> {
    let several = report.instances.len() > 1;
    let instances = report.instances.iter().enumerate().filter(|_| several).map(|(number, instance)| {
        let adapters = report.adapters.as_ref().and_then(|(_, each)| each.get(number));
        AggregateDocument {
            adapters: adapters.map(|figures| adapters_json(figures, names)),
            slot_use: report.adapters.is_some().then(|| SlotUseJson::new(instance)),
            ..AggregateDocument::new(format!("instance_{number}"), instance, empty, cache(instance), (), ())
        }
    });
    let breakdown = Breakdown::new(report, names, empty);
    let parts = ClusterParts { breakdown, instances: instances.collect(), rest };
    let goodput = report.goodput.as_ref().map(|goodput| PublishedGoodput::new(goodput, names, empty));
    let (id, all) = ("cluster".to_owned(), &report.cluster);
    AggregateDocument {
        adapters: report.adapters.as_ref().map(|(all, _)| adapters_json(all, names)),
        slot_use: report.adapters.is_some().then(|| SlotUseJson::new(all)),
        ..AggregateDocument::new(id, all, empty, cache(all), goodput, parts)
    }
}

impl<H: Serialize, G: Serialize, C: Serialize> AggregateDocument<'_, H, G, C> {
    /// The figures of `aggregate`, without adapters.
    fn new(instance_id: String, aggregate: &Aggregate, empty: EmptyFigures, cache: H, goodput: G, cluster: C) -> Self {
        let (counts, counters) = (&aggregate.counts, &aggregate.counters);
        let is_empty = empty == EmptyFigures::Zero && counts.completed == 0;
        let shown =
            |distribution| DistributionJson::new(if is_empty { Distribution::default() } else { distribution }, empty);
        let [e2e, ttft, itl, scheduling] =
            [aggregate.e2e, aggregate.ttft, aggregate.itl, aggregate.scheduling_delay].map(shown);
        let published = PublishedTotals {
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
        };
        let ends = PublishedEnds {
            dropped_unservable: counts.dropped(),
            length_capped_requests: counts.length_capped,
            timed_out_requests: counts.timed_out,
        };
        let (looked_up, recomputed_tokens) = match empty {
            // BLIS counts KV blocks, and has no such figures.
            EmptyFigures::Zero => (PrefixCacheCounters::default(), 0),
            EmptyFigures::Null => (counters.prefix_cache, counters.recomputed_tokens),
        };
        let added = AddedTotals {
            still_arriving: counts.arriving,
            steps: counters.steps,
            prefix_cache_queries: looked_up.queries,
            prefix_cache_hits: looked_up.hits,
            preempted_cache_queries: looked_up.preempted_queries,
            preempted_cache_hits: looked_up.preempted_hits,
            recomputed_tokens,
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
        };
        Self { published, cache, ends, goodput, adapters: None, added, slot_use: None, cluster }
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
            prefix_cache: PrefixCacheCounters::of_blocks(1, 3),
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
