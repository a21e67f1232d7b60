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

/// Attainment of the SLO targets, as published.
#[derive(Serialize)]
pub(super) struct PublishedGoodput<'a> {
    goodput_rps: f64,
    slo_attainment: f64,
    per_class: BTreeMap<&'a str, PublishedClass>,
}

#[derive(Serialize)]
struct PublishedClass {
    count: u64,
    e2e_p99_ms: Option<f64>,
    goodput_rps: f64,
    itl_mean_ms: Option<f64>,
    slo_attainment: f64,
    slo_attainment_by_dim: BTreeMap<&'static str, f64>,
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

/// Additions to the published fields; those that do not apply are left out.
#[derive(Serialize)]
pub(super) struct Breakdown<'a> {
    rejected_requests: u64,
    rejected_admission: u64,
    rejected_routing: u64,
    #[serde(skip_serializing_if = "is_zero")]
    rejected_no_replica: u64,
    #[serde(skip_serializing_if = "is_zero")]
    rejected_server: u64,
    #[serde(flatten)]
    gateway: GatewayJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_wait: Option<DistributionJson>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    shed_by_class: BTreeMap<&'a str, u64>,
    conservation: Conservation,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    slo_classes: BTreeMap<&'a str, ClassJson>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tenants: BTreeMap<&'a str, CountsJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jain_fairness_index: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<SessionsJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_tier: Option<CpuTierJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pd_metrics: Option<DisaggregationJson>,
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
    disaggregated_requests: u64,
    dropped_at_decode_kv: u64,
    prefill_throughput_per_sec: f64,
    decode_throughput_per_sec: f64,
    /// `None` if one of the two did nothing.
    load_imbalance_ratio: Option<f64>,
    transferred_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    reused_tokens: u64,
    peak_concurrent_transfers: u32,
    mean_transfer_queue_depth: f64,
    ttft: DistributionJson,
    p_queue: DistributionJson,
    p_prefill: DistributionJson,
    hold: DistributionJson,
    d_wait: DistributionJson,
    transfer: DistributionJson,
    d_first: DistributionJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    reuse: Option<DistributionJson>,
    #[serde(skip_serializing_if = "is_zero")]
    encoded_requests: u64,
    #[serde(skip_serializing_if = "is_zero")]
    encoded_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    encode_queue: Option<DistributionJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encode: Option<DistributionJson>,
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
    #[serde(skip_serializing_if = "is_zero")]
    gateway_queue_rejected: u64,
    #[serde(skip_serializing_if = "is_zero")]
    gateway_queue_shed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    gateway_queue_expired: u64,
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

/// Numbers of requests by state. Every request that arrived is in exactly one of the others.
#[derive(Serialize)]
struct Conservation {
    arrived: u64,
    completed: u64,
    queued: u64,
    running: u64,
    arriving: u64,
    #[serde(skip_serializing_if = "is_zero")]
    in_gateway: u64,
    dropped: u64,
    timed_out: u64,
    #[serde(skip_serializing_if = "is_zero")]
    evicted: u64,
    rejected: u64,
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

/// Figures of the models that requests name.
#[derive(Serialize)]
struct SessionsJson {
    count: u64,
    /// Present in closed loop only.
    #[serde(flatten)]
    states: Option<StatesJson>,
    ttft_first_round: DistributionJson,
    ttft_later_rounds: DistributionJson,
    duration: DistributionJson,
}

/// Number of requests by the way in which they ended.
#[derive(Serialize)]
struct StatesJson {
    completed: u64,
    cancelled: u64,
    horizon_interrupted: u64,
    budget_exhausted: u64,
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

/// The CPU tiers of all instances together.
#[derive(Serialize)]
struct CpuTierJson {
    gpu_hit_tokens: u64,
    cpu_hit_tokens: u64,
    loads: u64,
    loaded_bytes: u64,
    stored_bytes: u64,
    evicted_chunks: u64,
    skipped_chunks: u64,
    refused_chunks: u64,
    flushes: u64,
    flush_ms: f64,
    load_wait: DistributionJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    secondary: Option<SecondaryTierJson>,
}

#[derive(Serialize)]
struct SecondaryTierJson {
    hit_tokens: u64,
    hit_tokens_of_others: u64,
    read_bytes: u64,
    written_bytes: u64,
    refused_chunks: u64,
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

#[derive(Serialize)]
struct ClassJson {
    #[serde(flatten)]
    counts: CountsJson,
    ttft: DistributionJson,
    /// Distribution of the mean ITL of each request.
    itl_mean: DistributionJson,
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

/// Field names are those of the whole document.
#[derive(Serialize)]
struct CountsJson {
    arrived_requests: u64,
    completed_requests: u64,
    still_queued: u64,
    still_running: u64,
    still_arriving: u64,
    #[serde(skip_serializing_if = "is_zero")]
    still_in_gateway: u64,
    rejected_admission: u64,
    rejected_routing: u64,
    #[serde(skip_serializing_if = "is_zero")]
    rejected_no_replica: u64,
    #[serde(skip_serializing_if = "is_zero")]
    rejected_server: u64,
    #[serde(flatten)]
    gateway: GatewayJson,
    dropped_unservable: u64,
    length_capped_requests: u64,
    timed_out_requests: u64,
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

#[derive(Clone, Copy, Serialize)]
pub(super) struct DistributionJson {
    pub count: u64,
    pub mean_ms: Option<f64>,
    pub min_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
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

/// The anomalies that are not counts of the document itself. Each has the name and definition of its
/// [`blis_sim::metrics::Anomaly`].
#[derive(Serialize)]
struct AnomaliesJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_inversions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_of_line_blocking: Option<Vec<BlockedJson>>,
}

#[derive(Serialize)]
struct BlockedJson {
    instance_id: String,
    mean_queue_length: f64,
    others_mean_queue_length: f64,
}

impl AnomaliesJson {
    /// `None` for a single instance, because anomalies come from comparing instances.
    fn new(anomalies: &Anomalies, instances: usize) -> Option<Self> {
        let blocked = |&BlockedInstance { instance, mean_queue_length, others_mean_queue_length }: &BlockedInstance| {
            BlockedJson { instance_id: format!("instance_{instance}"), mean_queue_length, others_mean_queue_length }
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
