//! What the fields of requests and instances are in llm-d's endpoint picker.

/// Where a field comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoSource {
    /// The request itself.
    Request,
    /// The request, and the tokens in a block of [`Self::Prefix`].
    RequestBlocks,
    /// The metrics of the endpoint.
    Metrics,
    /// `InFlightLoad` of the plugin `inflight-load-producer`.
    InFlight,
    /// `PrefixCacheMatchInfo` of a producer of prefix matches.
    Prefix,
    /// The clock.
    Clock,
}

/// A field that the endpoint picker knows.
#[derive(Debug, PartialEq)]
pub(super) struct GoSignal {
    /// Its name in scripts.
    pub field: &'static str,
    pub source: GoSource,
    /// A Go expression over `request`, `blockSize` (at least 1), `metrics`, `load` or `prefix`.
    pub value: &'static str,
}

const fn signal(field: &'static str, source: GoSource, value: &'static str) -> GoSignal {
    GoSignal { field, source, value }
}

/// Fields of `r`.
pub(super) const OF_REQUEST: [GoSignal; 7] = [
    signal("input_tokens", GoSource::Request, "float64(request.Body.TokenizedPrompt.TokenCount())"),
    signal("prompt_tokens", GoSource::Request, "float64(request.Body.TokenizedPrompt.TokenCount())"),
    signal("prompt_blocks", GoSource::RequestBlocks, "float64(request.Body.TokenizedPrompt.TokenCount() / blockSize)"),
    signal("block_size", GoSource::RequestBlocks, "float64(blockSize)"),
    signal("class_priority", GoSource::Request, "float64(request.Objectives.Priority)"),
    signal("now", GoSource::Clock, "float64(time.Now().UnixMicro())"),
    signal("now_us", GoSource::Clock, "float64(time.Now().UnixMicro())"),
];

/// Fields of `s`, of each endpoint.
pub(super) const OF_ENDPOINT: [GoSignal; 11] = [
    signal("queue_depth", GoSource::Metrics, "float64(metrics.WaitingQueueSize)"),
    signal("batch_size", GoSource::Metrics, "float64(metrics.RunningRequestsSize)"),
    signal("kv_utilization", GoSource::Metrics, "metrics.KVCacheUsagePercent"),
    signal("total_kv_blocks", GoSource::Metrics, "float64(metrics.CacheNumBlocks)"),
    signal(
        "free_kv_blocks",
        GoSource::Metrics,
        "math.Round(float64(metrics.CacheNumBlocks) * (1 - metrics.KVCacheUsagePercent))",
    ),
    signal("staleness", GoSource::Metrics, "float64(time.Since(metrics.UpdateTime).Microseconds())"),
    signal("in_flight", GoSource::InFlight, "float64(load.Requests)"),
    signal("in_flight_tokens", GoSource::InFlight, "float64(load.Tokens)"),
    signal(
        "effective_load",
        GoSource::InFlight,
        "float64(endpoint.GetMetrics().WaitingQueueSize) + float64(endpoint.GetMetrics().RunningRequestsSize) + float64(load.Requests)",
    ),
    signal("cached_blocks", GoSource::Prefix, "float64(prefix.MatchBlocks())"),
    signal("cached_tokens_gpu", GoSource::Prefix, "float64(prefix.MatchBlocks() * prefix.BlockSizeTokens())"),
];
