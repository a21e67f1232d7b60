//! The columns of the instances: what a policy may read about each instance at a decision.
//!
//! A policy lists the columns that it reads by name. The host keeps these up to date, and passes one row of numbers per
//! instance, the columns in the order of that list. Later minor versions of the interface append columns here.

/// How fresh the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnGroup {
    /// Constant during a run.
    Constant,
    /// Counted by the router itself, never stale.
    Router,
    /// Reported by the instances at intervals: [`crate::Ages::periodic_us`].
    Periodic,
    /// Contents of the prefix caches: [`crate::Ages::cache_us`].
    Cache,
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
        }
    }
}

/// The table of columns: variant, name in interfaces, name of a field in Rust, C and scripts, group, unit, meaning, and
/// what a real endpoint picker computes it from.
macro_rules! columns {
    ($($column:ident $name:literal $field:literal $group:ident $unit:literal $about:literal $source:literal,)*) => {
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
    Id "id" "id" Constant "index" "Id of the instance, from 0" "list of pods",
    TotalKvBlocks "total-kv-blocks" "total_kv_blocks" Constant "blocks" "All its KV blocks"
        "vllm:cache_config_info",
    MaxNumSeqs "max-num-seqs" "max_num_seqs" Constant "requests" "Its maximum batch size" "deployment",
    QueueDepth "queue-depth" "queue_depth" Periodic "requests" "Requests in its waiting queue"
        "vllm:num_requests_waiting",
    BatchSize "batch-size" "batch_size" Periodic "requests" "Requests in its running batch"
        "vllm:num_requests_running",
    KvUtilization "kv-utilization" "kv_utilization" Periodic "share" "Used share of its KV blocks, 0 to 1"
        "vllm:kv_cache_usage_perc",
    FreeKvBlocks "free-kv-blocks" "free_kv_blocks" Periodic "blocks" "Its unused KV blocks"
        "vllm:kv_cache_usage_perc and vllm:cache_config_info",
    CacheHitRate "cache-hit-rate" "cache_hit_rate" Periodic "share" "Prefix-cache hit rate since the start, 0 to 1"
        "vllm:prefix_cache_hits, vllm:prefix_cache_queries",
    PreemptionCount "preemption-count" "preemption_count" Periodic "preemptions" "Preemptions since the start"
        "vllm:num_preemptions",
    InFlight "in-flight" "in_flight" Router "requests" "Requests routed to it and not yet finished"
        "the router's own requests and responses",
    CachedBlocks "cached-blocks" "cached_blocks" Cache "blocks"
        "Leading blocks of this request's prompt in its prefix cache" "KV events of the instances",
}

impl Column {
    /// The column called `name` in interfaces.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|column| column.name() == name)
    }

    /// The column whose field is called `field`.
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
