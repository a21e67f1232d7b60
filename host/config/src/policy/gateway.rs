//! The section `gateway` of a bundle: flow control by the names of its flags.

use blis_diag::yaml::Word;
use blis_plugin::Kind;
use serde::Deserialize;

macro_rules! settings {
    ($($field:ident = $flag:literal,)+) => {
        /// The settings of flow control as they are written.
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct RawGateway {
            $($field: Option<Word>,)+
        }

        impl RawGateway {
            /// The settings that are there, by the names of the flags, which have dashes.
            pub fn settings(self) -> Vec<(&'static str, Word)> {
                [$(($flag, self.$field),)+].into_iter().filter_map(|(flag, word)| Some((flag, word?))).collect()
            }
        }
    };
}

settings! {
    saturation_detector = "saturation-detector",
    queue_depth_threshold = "queue-depth-threshold",
    kv_cache_util_threshold = "kv-cache-util-threshold",
    metrics_staleness_threshold = "metrics-staleness-threshold",
    max_concurrency = "max-concurrency",
    concurrency_mode = "concurrency-mode",
    max_token_concurrency = "max-token-concurrency",
    usage_limit_policy = "usage-limit-policy",
    usage_limit_threshold = "usage-limit-threshold",
    fairness_policy = "fairness-policy",
    fairness_weights = "fairness-weights",
    dispatch_order = "dispatch-order",
    slo_targets = "slo-targets",
    request_ttl = "request-ttl",
    max_gateway_queue_depth = "max-gateway-queue-depth",
    per_band_capacity = "per-band-capacity",
    per_band_bytes = "per-band-bytes",
    queue_shedding = "queue-shedding",
    in_flight_eviction = "in-flight-eviction",
    eviction_policy = "eviction-policy",
    dispatch_tick_interval = "dispatch-tick-interval",
}

impl RawGateway {
    /// The policy of `kind` and its key, if the section names one.
    pub fn policy(&self, kind: Kind) -> Option<(&'static str, &Word)> {
        let (key, word) = match kind {
            Kind::Saturation => ("saturation_detector", &self.saturation_detector),
            Kind::Ceilings => ("usage_limit_policy", &self.usage_limit_policy),
            Kind::Fairness => ("fairness_policy", &self.fairness_policy),
            Kind::Ordering => ("dispatch_order", &self.dispatch_order),
            Kind::Eviction => ("eviction_policy", &self.eviction_policy),
            _ => return None,
        };
        Some((key, word.as_ref()?))
    }
}
