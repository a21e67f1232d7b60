//! The columns of the instances: what a policy may read about each instance at a decision.
//!
//! A policy lists the columns that it reads by name. The host keeps these up to date, and passes one row of numbers per
//! instance, the columns in the order of that list. Later minor versions of the interface append columns here.

/// How fresh the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnGroup {
    /// Constant during a run.
    Constant,
    /// Measured by the router itself, never stale.
    Router,
    /// Reported by the instances at intervals: [`crate::Ages::periodic_us`].
    Periodic,
    /// Contents of the prefix caches: [`crate::Ages::cache_us`].
    Cache,
    /// Computed by the host for this one decision.
    Decision,
}

impl ColumnGroup {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Router => "router",
            Self::Periodic => "periodic",
            Self::Cache => "cache",
            Self::Decision => "decision",
        }
    }
}

/// The table of columns: the minor version of the interface that added it, variant, name in interfaces, name of a field in Rust, C and scripts, group, unit, meaning, and
/// what a real endpoint picker computes it from.
macro_rules! columns {
    ($($since:literal $column:ident $name:literal $field:literal $group:ident $unit:literal $about:literal $source:literal,)*) => {
        /// A column of the instances. All values are numbers of 64 bits with a fraction; counts are exact.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Column {
            $(#[doc = concat!($about, ". Unit: ", $unit, ".")] $column,)*
        }

        impl Column {
            /// All columns of this version of the interface.
            pub const ALL: &'static [Self] = &[$(Self::$column),*];

            /// The name in interfaces, as `in-flight`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$column => $name,)* }
            }

            /// The name of a field in Rust, C and scripts, as `in_flight`.
            #[must_use]
            pub const fn field(self) -> &'static str {
                match self { $(Self::$column => $field,)* }
            }

            /// How fresh the values are.
            #[must_use]
            pub const fn group(self) -> ColumnGroup {
                match self { $(Self::$column => ColumnGroup::$group,)* }
            }

            /// The minor version of the interface that added it.
            #[must_use]
            pub const fn since(self) -> u64 {
                match self { $(Self::$column => $since,)* }
            }

            /// The unit of the values.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$column => $unit,)* }
            }

            /// The meaning, without a full stop.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$column => $about,)* }
            }

            /// What a real endpoint picker computes it from.
            #[must_use]
            pub const fn source(self) -> &'static str {
                match self { $(Self::$column => $source,)* }
            }
        }
    };
}

columns! {
    0 Id "id" "id" Constant "index" "Id of the instance, from 0" "list of pods",
    0 TotalKvBlocks "total-kv-blocks" "total_kv_blocks" Constant "blocks" "All its KV blocks"
        "vllm:cache_config_info",
    0 MaxNumSeqs "max-num-seqs" "max_num_seqs" Constant "requests" "Its maximum batch size" "deployment",
    0 QueueDepth "queue-depth" "queue_depth" Periodic "requests" "Requests in its waiting queue"
        "vllm:num_requests_waiting",
    0 BatchSize "batch-size" "batch_size" Periodic "requests" "Requests in its running batch"
        "vllm:num_requests_running",
    0 KvUtilization "kv-utilization" "kv_utilization" Periodic "share" "Used share of its KV blocks, 0 to 1"
        "vllm:kv_cache_usage_perc",
    0 FreeKvBlocks "free-kv-blocks" "free_kv_blocks" Periodic "blocks" "Its unused KV blocks"
        "vllm:kv_cache_usage_perc and vllm:cache_config_info",
    0 CacheHitRate "cache-hit-rate" "cache_hit_rate" Periodic "share" "Prefix-cache hit rate since the start, 0 to 1"
        "vllm:prefix_cache_hits, vllm:prefix_cache_queries",
    0 PreemptionCount "preemption-count" "preemption_count" Periodic "preemptions" "Preemptions since the start"
        "vllm:num_preemptions",
    0 InFlight "in-flight" "in_flight" Router "requests" "Requests routed to it and not yet finished"
        "the router's own requests and responses",
    0 CachedBlocks "cached-blocks" "cached_blocks" Cache "blocks"
        "Leading blocks of this request's prompt in its prefix cache" "KV events of the instances",
    1 InFlightTokens "in-flight-tokens" "in_flight_tokens" Router "tokens"
        "Prompt tokens of its requests without a first token, those cached when they were routed left out"
        "llm-d's inflight-load-producer",
    1 InFlightOutput "in-flight-output" "in_flight_output" Router "tokens"
        "Output tokens expected of its requests in flight: 1.5 times the prompt, at most the client's limit"
        "llm-d's inflight-load-producer, addEstimatedOutputTokens",
    1 CachedTokensGpu "cached-tokens-gpu" "cached_tokens_gpu" Cache "tokens"
        "Leading tokens of this request's prompt in its GPU memory" "KV events of the instances",
    1 CachedTokensCpu "cached-tokens-cpu" "cached_tokens_cpu" Cache "tokens"
        "The same in its CPU tier, whether the GPU has them or not; 0 without a tier" "KV events of the instances",
    1 CachedTokensRemote "cached-tokens-remote" "cached_tokens_remote" Cache "tokens"
        "The same in shared storage: 0, there is none" "KV events of the instances",
    1 WaitingTokens "waiting-tokens" "waiting_tokens" Periodic "tokens"
        "Prompt tokens of the requests in its waiting queue, of preempted ones their outputs too"
        "vllm:num_requests_waiting and the router's own bookkeeping",
    1 RunningTokens "running-tokens" "running_tokens" Periodic "tokens"
        "Context tokens that fit the KV blocks its requests hold"
        "vllm:kv_cache_usage_perc and vllm:cache_config_info",
    1 Role "role" "role" Constant "index" "What it computes: 0 prefill and decode, 1 prefill, 2 decode, 3 encode, 4 nothing" "label of the pod",
    1 Group "group" "group" Constant "index" "Its group of equal instances, from 0; of instances with roles, its pool" "label of the pod",
    1 Price "price" "price" Constant "$/h" "Price of its GPUs; 0 if none is known" "label of the pod",
    1 TtftEwma "ttft-ewma" "ttft_ewma" Router "µs"
        "Moving average of the times to first token, a tenth of each new one; 0 before the first"
        "the router's own requests and responses",
    1 ItlEwma "itl-ewma" "itl_ewma" Router "µs"
        "The same of the mean inter-token latencies of completed requests"
        "the router's own requests and responses",
    1 Staleness "staleness" "staleness" Decision "µs" "Age of its periodic columns" "time of its last metrics",
    1 Score "score" "score" Decision "score"
        "For the picker of a pipeline: the weighted sum of the scores; 0 elsewhere"
        "llm-d's scheduling profile",
    1 AdapterActive "adapter-active" "adapter_active" Periodic "flag"
        "1 if a running request uses the LoRA adapter of this request, else 0"
        "running_lora_adapters of vllm:lora_requests_info",
    1 AdapterWaiting "adapter-waiting" "adapter_waiting" Periodic "flag"
        "1 if a waiting request names the LoRA adapter of this request, else 0"
        "waiting_lora_adapters of vllm:lora_requests_info",
    1 FreeAdapterSlots "free-adapter-slots" "free_adapter_slots" Periodic "slots"
        "Slots for LoRA adapters beyond those of running and of waiting requests; 0 without adapters"
        "max_lora of vllm:lora_requests_info",
}

impl Column {
    /// The column called `name` in interfaces.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|column| column.name() == name)
    }

    /// The column with the field `field`.
    ///
    /// # Panics
    /// If there is none; at compile time in constants.
    #[must_use]
    pub const fn of_field(field: &str) -> Self {
        let mut i = 0;
        while i < Self::ALL.len() {
            if equal(Self::ALL[i].field().as_bytes(), field.as_bytes()) {
                return Self::ALL[i];
            }
            i += 1;
        }
        panic!("there is no column of this name: Column::ALL of blis-abi lists them")
    }
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}
