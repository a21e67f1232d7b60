//! What the columns of groups of replicas are in Prometheus: metrics of vLLM, of llm-d's endpoint picker, and of kube-state-metrics.

use super::settings::KedaSettings;

/// A column of `g` that metrics have.
#[derive(Debug, PartialEq)]
pub(super) struct KedaSignal {
    /// Its name in scripts, without a unit.
    pub field: &'static str,
    /// What it is, and where it differs from the column.
    pub about: &'static str,
    /// The query. Its result has no labels. `@vllm`, `@epp`, `@pool`, `@producer`, `@deployment` and `@pods` are label matchers.
    query: &'static str,
    /// Whether it may be below 0.
    pub may_be_negative: bool,
}

/// What is fixed about a deployment.
pub(super) const FACTS: [&str; 5] = ["kv_tokens", "gpus", "price", "max_num_seqs", "max_num_batched_tokens"];

/// Columns that no metric has, and why.
pub(super) const NO_METRIC: [(&str, &str); 6] = [
    ("queued_tokens", ", the endpoint picker counts queued requests and bytes, not tokens"),
    ("oldest_wait", ", the endpoint picker tells waits of requests that have left its queue"),
    ("now", ", a formula has no time since the start of a run"),
    ("scraped", ", a formula has no time since the start of a run"),
    ("next_ready", ", nothing tells when a replica will be ready"),
    ("history", ", a formula knows no earlier decisions"),
];

const fn signal(field: &'static str, query: &'static str, about: &'static str) -> KedaSignal {
    KedaSignal { field, about, query, may_be_negative: false }
}

pub(super) const SIGNALS: [KedaSignal; 21] = [
    signal(
        "queued",
        "sum(llm_d_epp_flow_control_queue_size{@epp}) or vector(0)",
        "requests in the endpoint picker's queue (feature gate flowControl)",
    ),
    KedaSignal {
        field: "saturation",
        about: "saturation of the endpoint picker's flow control; -1 without it",
        query: "max(llm_d_epp_flow_control_pool_saturation{@pool}) or vector(-1)",
        may_be_negative: true,
    },
    signal(
        "queue_depth",
        "sum(vllm:num_requests_waiting{@vllm}) or vector(0)",
        "requests waiting in vLLM, over the replicas",
    ),
    signal(
        "queue_depth_max",
        "max(vllm:num_requests_waiting{@vllm}) or vector(0)",
        "requests waiting in vLLM, of the replica with most",
    ),
    signal(
        "batch_size",
        "sum(vllm:num_requests_running{@vllm}) or vector(0)",
        "requests running in vLLM, over the replicas",
    ),
    signal(
        "kv_used",
        "sum(vllm:kv_cache_usage_perc{@vllm}) or vector(0)",
        "shares of KV blocks in use (0 to 1 each), over the replicas",
    ),
    signal(
        "kv_used_max",
        "max(vllm:kv_cache_usage_perc{@vllm}) or vector(0)",
        "share of KV blocks in use, of the fullest replica",
    ),
    signal(
        "in_flight",
        "sum(llm_d_epp_inflight_requests{@producer}) or vector(0)",
        "requests dispatched to the replicas that have not ended (plugin inflight-load-producer)",
    ),
    signal(
        "in_flight_tokens",
        "sum(llm_d_epp_inflight_tokens{@producer}) or vector(0)",
        "uncached prompt tokens of requests without a token yet (plugin inflight-load-producer, without estimated output)",
    ),
    signal(
        "arrived",
        "sum(increase(llm_d_epp_request_total{@epp}[1m])) or vector(0)",
        "requests that arrived in the last minute; Prometheus extrapolates to the ends of the minute",
    ),
    signal(
        "completed",
        "sum(increase(vllm:request_success_total{@vllm}[1m])) or vector(0)",
        "requests that ended in the last minute; Prometheus extrapolates to the ends of the minute",
    ),
    signal(
        "ttft_p90",
        "((1000000 * histogram_quantile(0.9, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{@vllm}[1m])))) >= 0) or \
         vector(0)",
        "P90 of the TTFT of the last minute in µs, 0 without requests; from vLLM's buckets, without the time in the endpoint picker",
    ),
    signal(
        "tpot_p90",
        "((1000000 * histogram_quantile(0.9, sum by (le) (rate(vllm:request_time_per_output_token_seconds_bucket{@vllm}[1m])))) >= \
         0) or vector(0)",
        "P90 of the TPOT of the last minute in µs, 0 without requests; from vLLM's buckets",
    ),
    signal(
        "input_tokens",
        "sum(increase(vllm:request_prompt_tokens_sum{@vllm}[1m])) or vector(0)",
        "prompt tokens of the requests that ended in the last minute",
    ),
    signal(
        "cached_tokens",
        "sum(increase(llm_d_epp_request_cached_tokens_sum{@epp}[1m])) or vector(0)",
        "cached prompt tokens of the requests that ended in the last minute",
    ),
    signal(
        "output_tokens",
        "sum(increase(vllm:request_generation_tokens_sum{@vllm}[1m])) or vector(0)",
        "output tokens of the requests that ended in the last minute",
    ),
    signal(
        "replicas",
        "sum(kube_deployment_spec_replicas{@deployment})",
        "replicas by the last decision (kube-state-metrics)",
    ),
    signal("ready", "sum(kube_deployment_status_replicas_ready{@deployment})", "ready replicas (kube-state-metrics)"),
    signal(
        "loading",
        "clamp_min(sum(kube_deployment_spec_replicas{@deployment}) - sum(kube_deployment_status_replicas_ready{@deployment}) - \
         (sum(kube_pod_status_scheduled{condition=\"false\",@pods}) or vector(0)), 0)",
        "replicas that start: neither ready nor waiting for GPUs (kube-state-metrics)",
    ),
    signal(
        "pending",
        "sum(kube_pod_status_scheduled{condition=\"false\",@pods}) or vector(0)",
        "replicas that wait for GPUs: their pods are not scheduled (kube-state-metrics)",
    ),
    signal(
        "draining",
        "count(kube_pod_deletion_timestamp{@pods}) or vector(0)",
        "replicas that end (kube-state-metrics)",
    ),
];

impl KedaSignal {
    /// The query with the labels of the deployment.
    pub fn query(&self, settings: &KedaSettings) -> String {
        let KedaSettings { deployment, model, inference_pool, .. } = settings;
        let pods = format!("{}-[a-z0-9]+-[a-z0-9]+", deployment.replace('.', "\\\\."));
        let matchers = |more: &[(&str, &str, Option<&str>)]| {
            let namespace = ("namespace", "=", settings.namespace.as_deref());
            let all = std::iter::once(&namespace).chain(more);
            let texts = all.filter_map(|(label, sign, value)| Some(format!("{label}{sign}\"{}\"", (*value)?)));
            texts.collect::<Vec<_>>().join(",")
        };
        let vllm = matchers(&[("pod", "=~", Some(&pods))]);
        let producer = matchers(&[
            ("producer_name", "=", Some("inflight-load-producer")),
            ("endpoint_name", "=~", Some(&format!("{pods}.*"))),
        ]);
        let fills = [
            ("@vllm", vllm.clone()),
            ("@pods", vllm),
            ("@producer", producer),
            ("@epp", matchers(&[("model_name", "=", model.as_deref())])),
            ("@pool", matchers(&[("inference_pool", "=", inference_pool.as_deref())])),
            ("@deployment", matchers(&[("deployment", "=", Some(deployment))])),
        ];
        let text = fills.iter().fold(self.query.to_owned(), |text, (mark, labels)| text.replace(mark, labels));
        text.replace("{}", "")
    }
}
