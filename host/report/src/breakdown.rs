//! The cluster's figures by class and tenant, and the anomalies: parts of the JSON document that exist once, not per
//! instance.

use std::collections::BTreeMap;

use blis_sim::cluster::SessionStates;
use blis_sim::metrics::{
    Anomalies, BlockedInstance, ClassGoodput, ClassReport, Counts, DisaggregationReport, Distribution, Goodput,
    OffloadReport, Report, SessionReport,
};
use blis_sim::offload::SecondaryCounters;
use blis_sim::request::Name;
use serde::Serialize;

use blis_workload::Names;

/// The value of a latency without samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyFigures {
    /// There is none.
    Null,
    /// As BLIS prints it. Without a completed request all latencies are 0, although there may be first tokens.
    Zero,
}

/// Attainment of SLO targets; present if a class has targets.
#[derive(Serialize)]
pub(super) struct PublishedGoodput<'a> {
    /// Requests that meet every target of their class, per simulated second.
    goodput_rps: f64,
    /// The same, of the requests that arrived in classes with targets. Unit: share.
    slo_attainment: f64,
    /// Attainment by SLO class.
    per_class: BTreeMap<&'a str, PublishedClass>,
}

/// Attainment of the targets of one SLO class.
#[derive(Serialize)]
struct PublishedClass {
    /// Requests of the class that arrived. Unit: requests.
    count: u64,
    /// End-to-end latency, 99th percentile.
    e2e_p99_ms: Option<f64>,
    /// Requests that meet every target, per simulated second.
    goodput_rps: f64,
    /// Inter-token latency, mean over gaps.
    itl_mean_ms: Option<f64>,
    /// Requests that meet every target, of those that arrived. Unit: share.
    slo_attainment: f64,
    /// By target (`ttft`, `itl`, `e2e`): requests that meet it, of the completed ones. Unit: share.
    slo_attainment_by_dim: BTreeMap<&'static str, f64>,
    /// Time to first token, 99th percentile.
    ttft_p99_ms: Option<f64>,
}

impl<'a> PublishedGoodput<'a> {
    pub fn new(goodput: &Goodput, names: &'a Names, empty: EmptyFigures) -> Self {
        Self {
            goodput_rps: goodput.goodput_rps,
            slo_attainment: goodput.slo_attainment,
            per_class: by_name(&goodput.per_class, names, |class| PublishedClass::new(class, empty)),
        }
    }
}

impl PublishedClass {
    fn new(class: &ClassGoodput, empty: EmptyFigures) -> Self {
        // A latency of a request is at least 1 µs, so that one of 0 has no samples.
        let figure = |ms: f64| sampled(ms, u64::from(ms > 0.0), empty);
        let by_dim = [("ttft", class.ttft_attainment), ("itl", class.itl_attainment), ("e2e", class.e2e_attainment)];
        Self {
            count: class.count,
            e2e_p99_ms: figure(class.e2e_p99_ms),
            goodput_rps: class.goodput_rps,
            itl_mean_ms: figure(class.itl_mean_ms),
            slo_attainment: class.slo_attainment,
            slo_attainment_by_dim: by_dim.into_iter().filter_map(|(dim, share)| Some((dim, share?))).collect(),
            ttft_p99_ms: figure(class.ttft_p99_ms),
        }
    }
}

/// Parts that exist once in a document, not for each instance.
#[derive(Serialize)]
pub(super) struct Breakdown<'a> {
    /// Rejected requests: `rejected_admission`, `rejected_routing`, `rejected_no_replica`, `rejected_server` and those
    /// that the gateway's queue refused or shed, or that expired in it.
    rejected_requests: u64,
    /// Requests that the admission policy rejected. Unit: requests.
    rejected_admission: u64,
    /// Requests for a model that no instance serves. Unit: requests.
    rejected_routing: u64,
    /// Requests for which no replica of their model was active: on arrival without flow control, at routing with it;
    /// absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    rejected_no_replica: u64,
    /// Requests that the API server of an instance refused because it had `max-num-queued-reqs` requests or
    /// `max-num-queued-tokens` prompt tokens; absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    rejected_server: u64,
    #[serde(flatten)]
    gateway: GatewayJson,
    /// Time in the gateway's queue of the requests that were dispatched from it, part of all latencies; absent without
    /// flow control.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_wait: Option<DistributionJson>,
    /// `rejected_admission` by SLO class. Unit: requests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    shed_by_class: BTreeMap<&'a str, u64>,
    /// Number of requests by the way in which they ended.
    conservation: Conservation,
    /// Figures by SLO class; present if any request has a class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    slo_classes: BTreeMap<&'a str, ClassJson>,
    /// Counts by tenant; present if any request has a tenant.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tenants: BTreeMap<&'a str, CountsJson>,
    /// Jain's index of the output tokens of the tenants, 1/n to 1. Unit: index.
    #[serde(skip_serializing_if = "Option::is_none")]
    jain_fairness_index: Option<f64>,
    /// Sessions; present if any request belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<SessionsJson>,
    /// CPU tiers of the KV cache; absent without `--kv-offloading-size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_tier: Option<CpuTierJson>,
    /// Prefill apart from decode; absent without roles of instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pd_metrics: Option<DisaggregationJson>,
    /// Anomalies that are no counts of the document itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    anomalies: Option<AnomaliesJson>,
}

impl<'a> Breakdown<'a> {
    pub fn new(report: &Report, names: &'a Names, empty: EmptyFigures) -> Self {
        let counts = &report.cluster.counts;
        Self {
            rejected_requests: counts.rejected(),
            rejected_admission: counts.rejected_by_admission,
            rejected_routing: counts.rejected_by_routing,
            rejected_no_replica: counts.rejected_no_replica,
            rejected_server: counts.rejected_by_server,
            gateway: GatewayJson::new(counts),
            gateway_wait: (report.gateway_wait.count > 0).then(|| DistributionJson::new(report.gateway_wait, empty)),
            shed_by_class: by_name(&report.anomalies.shed, names, |&count| count),
            conservation: Conservation::new(report),
            slo_classes: by_name(&report.classes, names, |class| ClassJson::new(class, empty)),
            tenants: by_name(&report.tenants, names, |tenant| CountsJson::new(&tenant.counts)),
            jain_fairness_index: report.jain_index,
            sessions: report.sessions.as_ref().map(|sessions| SessionsJson::new(sessions, empty)),
            cpu_tier: report.offload.as_ref().map(|offload| CpuTierJson::new(offload, empty)),
            pd_metrics: report.disaggregation.as_ref().map(|figures| DisaggregationJson::new(figures, empty)),
            anomalies: AnomaliesJson::new(&report.anomalies, report.instances.len()),
        }
    }
}

/// What prefill apart from decode did.
#[derive(Serialize)]
struct DisaggregationJson {
    /// Requests with KV blocks that were transferred.
    disaggregated_requests: u64,
    /// Requests that were dropped because the decode instance had no KV blocks when the prefill had ended (`--parity
    /// blis`). Unit: requests.
    dropped_at_decode_kv: u64,
    /// Prefills that ended, per second. Unit: 1/s, 0 or more.
    prefill_throughput_per_sec: f64,
    /// Requests that completed on the instances that decode, per second. Unit: 1/s, 0 or more.
    decode_throughput_per_sec: f64,
    /// The larger of the two throughputs over the smaller; `null` if one of them is 0. Unit: ratio.
    load_imbalance_ratio: Option<f64>,
    /// Input tokens with KV that was transferred.
    transferred_tokens: u64,
    /// Input tokens with KV that prefill instances read from those that had decoded the turn before; absent without
    /// any.
    #[serde(skip_serializing_if = "is_zero")]
    reused_tokens: u64,
    /// Most transfers in progress when one began, with it. Unit: transfers.
    peak_concurrent_transfers: u32,
    /// Mean of these numbers. Unit: transfers, 0 or more.
    mean_transfer_queue_depth: f64,
    /// Time to first token of requests that were prefilled elsewhere.
    ttft: DistributionJson,
    /// From the routing decision, or from the end of `encode_transfer`, to the first step on the prefill instance.
    p_queue: DistributionJson,
    /// From there to the response of the prefill instance.
    p_prefill: DistributionJson,
    /// From there to the arrival on the decode instance.
    hold: DistributionJson,
    /// From there until the decode instance had KV blocks.
    d_wait: DistributionJson,
    /// Transfer of KV blocks.
    transfer: DistributionJson,
    /// From its end to the first token.
    d_first: DistributionJson,
    /// Reads of KV of earlier turns by prefill instances, a part of `p_queue`; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    reuse: Option<DistributionJson>,
    /// Requests that an instance of the role encode has answered; this and the following are absent if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    encoded_requests: u64,
    /// Tokens of images, audio and video of these requests. Unit: tokens, 0 or more.
    #[serde(skip_serializing_if = "is_zero")]
    encoded_tokens: u64,
    /// From the routing decision to the batch of that instance with its media.
    #[serde(skip_serializing_if = "Option::is_none")]
    encode_queue: Option<DistributionJson>,
    /// From there to the response of that instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    encode: Option<DistributionJson>,
    /// From there until the instance that computes the prompt has the embeddings.
    #[serde(skip_serializing_if = "Option::is_none")]
    encode_transfer: Option<DistributionJson>,
}

impl DisaggregationJson {
    fn new(figures: &DisaggregationReport, empty: EmptyFigures) -> Self {
        let distribution = |distribution| DistributionJson::new(distribution, empty);
        let of_encoding = |stage: Distribution| (figures.encoded > 0).then(|| distribution(stage));
        Self {
            disaggregated_requests: figures.disaggregated,
            dropped_at_decode_kv: figures.dropped_at_decode,
            prefill_throughput_per_sec: figures.prefill_throughput,
            decode_throughput_per_sec: figures.decode_throughput,
            load_imbalance_ratio: Some(figures.load_imbalance).filter(|ratio| ratio.is_finite()),
            transferred_tokens: figures.transferred_tokens,
            reused_tokens: figures.reused_tokens,
            peak_concurrent_transfers: figures.peak_transfers,
            mean_transfer_queue_depth: figures.mean_transfers,
            ttft: distribution(figures.ttft),
            p_queue: distribution(figures.prefill_queue),
            p_prefill: distribution(figures.prefill_time),
            hold: distribution(figures.hold),
            d_wait: distribution(figures.decode_wait),
            transfer: distribution(figures.transfer),
            d_first: distribution(figures.decode_first),
            reuse: (figures.reuse.count > 0).then(|| distribution(figures.reuse)),
            encoded_requests: figures.encoded,
            encoded_tokens: figures.encoded_tokens,
            encode_queue: of_encoding(figures.encode_queue),
            encode: of_encoding(figures.encode_time),
            encode_transfer: of_encoding(figures.encode_transfer),
        }
    }
}

/// Whether a count is left out of a document: only servers with a limit refuse requests, and only flow control has a queue.
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What flow control did to requests.
#[derive(Serialize)]
struct GatewayJson {
    /// Requests that found the gateway's queue, or their band of it, full; absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    gateway_queue_rejected: u64,
    /// Requests that one of higher priority displaced from the gateway's full queue; absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    gateway_queue_shed: u64,
    /// Requests that waited in the gateway's queue for longer than their time to live; absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    gateway_queue_expired: u64,
    /// Requests in flight that the gateway ended to make room for some of higher priority; absent if none. Unit:
    /// requests.
    #[serde(skip_serializing_if = "is_zero")]
    gateway_evicted: u64,
}

impl GatewayJson {
    fn new(counts: &Counts) -> Self {
        Self {
            gateway_queue_rejected: counts.rejected_gateway_full,
            gateway_queue_shed: counts.rejected_gateway_displaced,
            gateway_queue_expired: counts.rejected_gateway_expired,
            gateway_evicted: counts.evicted,
        }
    }
}

/// Requests by the way in which they ended.
#[derive(Serialize)]
struct Conservation {
    /// Requests that their source sent. Unit: requests.
    arrived: u64,
    /// As `completed_requests`. Unit: requests.
    completed: u64,
    /// As `still_queued`. Unit: requests.
    queued: u64,
    /// As `still_running`. Unit: requests.
    running: u64,
    /// As `still_arriving`. Unit: requests.
    arriving: u64,
    /// Requests in the gateway's queue at the end; absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    in_gateway: u64,
    /// As `dropped_unservable`. Unit: requests.
    dropped: u64,
    /// As `timed_out_requests`. Unit: requests.
    timed_out: u64,
    /// As `gateway_evicted`. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    evicted: u64,
    /// As `rejected_requests`. Unit: requests.
    rejected: u64,
    /// Whether `arrived` is the sum of the others.
    holds: bool,
}

impl Conservation {
    fn new(report: &Report) -> Self {
        let counts = &report.cluster.counts;
        Self {
            arrived: report.arrived,
            completed: counts.completed,
            queued: counts.queued,
            running: counts.running,
            arriving: counts.arriving,
            in_gateway: counts.in_gateway,
            dropped: counts.dropped(),
            timed_out: counts.timed_out,
            evicted: counts.evicted,
            rejected: counts.rejected(),
            holds: report.conserved(),
        }
    }
}

/// Sessions of clients. The states are present in closed loop.
#[derive(Serialize)]
struct SessionsJson {
    /// Sessions with at least one request that arrived. Unit: sessions.
    count: u64,
    /// Present in closed loop only.
    #[serde(flatten)]
    states: Option<StatesJson>,
    /// Time to first token of rounds 0.
    ttft_first_round: DistributionJson,
    /// Time to first token of later rounds.
    ttft_later_rounds: DistributionJson,
    /// From the first arrival of a session to the end of its last completed request.
    duration: DistributionJson,
}

/// Number of requests by the way in which they ended.
#[derive(Serialize)]
struct StatesJson {
    /// Sessions of which all rounds completed. Unit: sessions.
    completed: u64,
    /// Sessions of which a round timed out, was dropped or rejected. Unit: sessions.
    cancelled: u64,
    /// Sessions with a next round after the horizon, or after the last window of their client. Unit: sessions.
    horizon_interrupted: u64,
    /// Sessions with a next round beyond the number of requests. Unit: sessions.
    budget_exhausted: u64,
    /// Sessions with a request in flight at the end. Unit: sessions.
    active: u64,
}

impl SessionsJson {
    fn new(report: &SessionReport, empty: EmptyFigures) -> Self {
        let SessionReport { sessions, ttft_first_round, ttft_later_rounds, duration, states } = report;
        let states = states.map(|states| {
            let SessionStates { completed, cancelled, horizon_interrupted, budget_exhausted, active } = states;
            StatesJson { completed, cancelled, horizon_interrupted, budget_exhausted, active }
        });
        Self {
            count: *sessions,
            states,
            ttft_first_round: DistributionJson::new(*ttft_first_round, empty),
            ttft_later_rounds: DistributionJson::new(*ttft_later_rounds, empty),
            duration: DistributionJson::new(*duration, empty),
        }
    }
}

/// What the CPU tiers of all instances did (`--kv-offloading-size`). A chunk is `--kv-offloading-blocks-per-chunk` KV
/// blocks.
#[derive(Serialize)]
struct CpuTierJson {
    /// Input tokens that requests found in the prefix cache of the GPU at their first admission.
    gpu_hit_tokens: u64,
    /// Input tokens that they loaded from the CPU tier then.
    cpu_hit_tokens: u64,
    /// Loads, one for a request and admission. Unit: loads.
    loads: u64,
    /// Bytes from host to GPUs.
    loaded_bytes: u64,
    /// Bytes from GPUs to host.
    stored_bytes: u64,
    /// Chunks that made room for others.
    evicted_chunks: u64,
    /// Chunks that were offered too rarely to be stored (`--kv-offloading-store-threshold`), once for each offer.
    skipped_chunks: u64,
    /// Chunks for which there was no room, once for each attempt.
    refused_chunks: u64,
    /// Steps that waited for a store, because its KV blocks were needed for another request, or its request was
    /// preempted. Unit: steps.
    flushes: u64,
    /// How long they waited.
    flush_ms: f64,
    /// From the start of a request's load to its entry into the batch, part of TTFT; of requests that loaded.
    load_wait: DistributionJson,
    /// The tier below it; absent without `--kv-offloading-secondary`, or if it was never used.
    #[serde(skip_serializing_if = "Option::is_none")]
    secondary: Option<SecondaryTierJson>,
}

/// What the tiers below the CPU tiers did (`--kv-offloading-secondary`).
#[derive(Serialize)]
struct SecondaryTierJson {
    /// Input tokens that requests loaded from chunks that had to be read from here first (with `p2p`: fetched from
    /// other replicas); part of `cpu_hit_tokens`.
    hit_tokens: u64,
    /// Of `hit_tokens`, those that another instance had written (`--kv-offloading-secondary-shared`); with `p2p` all.
    /// Unit: tokens.
    hit_tokens_of_others: u64,
    /// Bytes read into the CPU tier.
    read_bytes: u64,
    /// Bytes written; with `p2p` sent to other replicas.
    written_bytes: u64,
    /// Chunks that were there, for which the CPU tier had no room, once for each attempt.
    refused_chunks: u64,
    /// Chunks that were not written because of back-pressure (`--kv-offloading-backpressure`).
    dropped_chunks: u64,
}

impl CpuTierJson {
    fn new(report: &OffloadReport, empty: EmptyFigures) -> Self {
        let counters = &report.counters;
        Self {
            gpu_hit_tokens: report.gpu_hit_tokens,
            cpu_hit_tokens: report.cpu_hit_tokens,
            loads: counters.loads,
            loaded_bytes: counters.loaded_bytes,
            stored_bytes: counters.stored_bytes,
            evicted_chunks: counters.evicted,
            skipped_chunks: counters.skipped,
            refused_chunks: counters.refused,
            flushes: counters.flushes,
            flush_ms: counters.flush_time.as_millis_f64(),
            load_wait: DistributionJson::new(report.load_wait, empty),
            secondary: (counters.secondary != SecondaryCounters::default()).then_some(SecondaryTierJson {
                hit_tokens: counters.secondary.hit_tokens,
                hit_tokens_of_others: counters.secondary.hit_tokens_of_others,
                read_bytes: counters.secondary.read_bytes,
                written_bytes: counters.secondary.written_bytes,
                refused_chunks: counters.secondary.refused,
                dropped_chunks: counters.secondary.dropped,
            }),
        }
    }
}

/// Figures of an SLO class.
#[derive(Serialize)]
struct ClassJson {
    #[serde(flatten)]
    counts: CountsJson,
    /// Time to first token.
    ttft: DistributionJson,
    /// Mean inter-token latency of each completed request.
    itl_mean: DistributionJson,
    /// End-to-end latency of the request.
    e2e: DistributionJson,
}

impl ClassJson {
    fn new(class: &ClassReport, empty: EmptyFigures) -> Self {
        Self {
            counts: CountsJson::new(&class.counts),
            ttft: DistributionJson::new(class.ttft, empty),
            itl_mean: DistributionJson::new(class.itl, empty),
            e2e: DistributionJson::new(class.e2e, empty),
        }
    }
}

/// Counts of a tenant.
#[derive(Serialize)]
struct CountsJson {
    /// Requests that have arrived.
    arrived_requests: u64,
    /// Requests that have completed.
    completed_requests: u64,
    /// Requests in a waiting queue at the end. Unit: requests.
    still_queued: u64,
    /// Requests in a running batch at the end. Unit: requests.
    still_running: u64,
    /// Requests between client and waiting queue at the end. Unit: requests.
    still_arriving: u64,
    /// Requests in the gateway's queue at the end; absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    still_in_gateway: u64,
    /// Requests that the admission policy rejected. Unit: requests.
    rejected_admission: u64,
    /// Requests for a model that no instance serves. Unit: requests.
    rejected_routing: u64,
    /// Requests for which no replica of their model was active: on arrival without flow control, at routing with it;
    /// absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    rejected_no_replica: u64,
    /// Requests that the API server of an instance refused because it had `max-num-queued-reqs` requests or
    /// `max-num-queued-tokens` prompt tokens; absent if none. Unit: requests.
    #[serde(skip_serializing_if = "is_zero")]
    rejected_server: u64,
    #[serde(flatten)]
    gateway: GatewayJson,
    /// Requests that can never be served. Unit: requests.
    dropped_unservable: u64,
    /// Completed requests that were cut at the maximum model length.
    length_capped_requests: u64,
    /// Requests that timed out: they had not completed at their deadline.
    timed_out_requests: u64,
    /// Output tokens of completed requests.
    total_output_tokens: u64,
}

impl CountsJson {
    fn new(counts: &Counts) -> Self {
        Self {
            arrived_requests: counts.arrived(),
            completed_requests: counts.completed,
            still_queued: counts.queued,
            still_running: counts.running,
            still_arriving: counts.arriving,
            still_in_gateway: counts.in_gateway,
            rejected_admission: counts.rejected_by_admission,
            rejected_routing: counts.rejected_by_routing,
            rejected_no_replica: counts.rejected_no_replica,
            rejected_server: counts.rejected_by_server,
            gateway: GatewayJson::new(counts),
            dropped_unservable: counts.dropped(),
            length_capped_requests: counts.length_capped,
            timed_out_requests: counts.timed_out,
            total_output_tokens: counts.output_tokens,
        }
    }
}

/// A distribution of latencies. Percentiles interpolate linearly.
#[derive(Clone, Copy, Serialize)]
pub(super) struct DistributionJson {
    /// Number of samples. Unit: samples.
    pub count: u64,
    /// Mean of the values.
    pub mean_ms: Option<f64>,
    /// Minimum of the values.
    pub min_ms: Option<f64>,
    /// Median of the values.
    pub p50_ms: Option<f64>,
    /// 90th percentile of the values.
    pub p90_ms: Option<f64>,
    /// 95th percentile of the values.
    pub p95_ms: Option<f64>,
    /// 99th percentile of the values.
    pub p99_ms: Option<f64>,
    /// Maximum of the values.
    pub max_ms: Option<f64>,
}

impl DistributionJson {
    pub fn new(d: Distribution, empty: EmptyFigures) -> Self {
        let Distribution { count, mean_ms, min_ms, max_ms, p50_ms, p90_ms, p95_ms, p99_ms } = d;
        let figure = |ms| sampled(ms, count, empty);
        let [mean_ms, min_ms, max_ms] = [mean_ms, min_ms, max_ms].map(figure);
        let [p50_ms, p90_ms, p95_ms, p99_ms] = [p50_ms, p90_ms, p95_ms, p99_ms].map(figure);
        Self { count, mean_ms, min_ms, p50_ms, p90_ms, p95_ms, p99_ms, max_ms }
    }
}

/// A figure of `count` samples.
fn sampled(figure: f64, count: u64, empty: EmptyFigures) -> Option<f64> {
    (count > 0 || empty == EmptyFigures::Zero).then_some(figure)
}

/// Anomalies; present if instances or arrivals can be compared.
#[derive(Serialize)]
struct AnomaliesJson {
    /// Requests that entered the batch of an instance before another request there that had arrived earlier and has an
    /// SLO class of at least the same priority. Unit: requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_inversions: Option<u64>,
    /// Instances with a waiting queue of at least 1 request and more than twice the mean of the others; with several
    /// instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_of_line_blocking: Option<Vec<BlockedInstanceJson>>,
}

/// An instance with head-of-line blocking.
#[derive(Serialize)]
struct BlockedInstanceJson {
    /// Name of the instance.
    instance_id: String,
    /// Mean length of its waiting queue. Unit: requests.
    mean_queue_length: f64,
    /// Mean length of the queues of the others. Unit: requests.
    others_mean_queue_length: f64,
}

impl AnomaliesJson {
    /// `None` for a single instance, because anomalies come from comparing instances.
    fn new(anomalies: &Anomalies, instances: usize) -> Option<Self> {
        let blocked = |&BlockedInstance { instance, mean_queue_length, others_mean_queue_length }: &BlockedInstance| {
            BlockedInstanceJson {
                instance_id: format!("instance_{instance}"),
                mean_queue_length,
                others_mean_queue_length,
            }
        };
        let priority_inversions = anomalies.priority_inversions;
        let head_of_line_blocking =
            (instances > 1).then(|| anomalies.head_of_line_blocking.iter().map(blocked).collect());
        (priority_inversions.is_some() || instances > 1).then_some(Self { priority_inversions, head_of_line_blocking })
    }
}

/// `list` as JSON, sorted by name.
fn by_name<'a, T, J>(list: &[(Name, T)], names: &'a Names, json: impl Fn(&T) -> J) -> BTreeMap<&'a str, J> {
    list.iter().map(|(name, item)| (shown(*name, names), json(item))).collect()
}

/// The name of a class or tenant in reports.
pub(super) fn shown(name: Name, names: &Names) -> &str {
    if name == Name::NONE { "default" } else { names.text(name) }
}
