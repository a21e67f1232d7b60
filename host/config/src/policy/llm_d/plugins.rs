//! The plugin types of llm-d's endpoint picker: what each one is here. One table serves import, export and hints.
//!
//! Sources: llm-d-router ebab687 (August 2026), `reference/gateway.md`, `reference/disaggregation.md`.

use blis_sim::policy::ScorerKind;

/// A plugin type of llm-d, and what it is here.
#[derive(Debug)]
pub(in crate::policy) struct PluginType {
    /// The name in `type`.
    pub name: &'static str,
    /// Names of earlier versions.
    pub aliases: &'static [&'static str],
    pub role: Role,
    /// What is checked and used of its parameters; all of them are accepted unread if the role has no counterpart.
    pub parameters: &'static [TypeParameter],
    /// The scorer that it is if it reads what is in the prefix caches ([`Meaning::Producer`]).
    pub precise: Option<ScorerKind>,
    /// Where the counterpart decides otherwise, unless it reads what is in the prefix caches; empty if nowhere.
    pub differs: &'static str,
}

/// What a plugin type is here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::policy) enum Role {
    /// A scorer of `weighted`.
    Scorer(ScorerKind),
    /// The filter of `weighted` with that name.
    Filter(&'static str),
    /// The admission policy with that name.
    Admitter(&'static str),
    /// It keeps the instances with that role, which is what the profile of the role does.
    Keeps(ProfileRole),
    /// The disaggregation policy with that name.
    Decider(&'static str),
    /// It decides that requests with images, audio or video are encoded elsewhere.
    EncodeDecider,
    /// It runs a profile for each part of a request: `disaggregation.rs`.
    DisaggHandler,
    /// What takes an instance by its score.
    Picker(Picker),
    /// It runs one profile, which is all that a bundle describes.
    SingleProfile,
    /// A policy of flow control: the flag, its value, and what it would do without flow control, as a continuation of "it
    /// would …".
    Flow(&'static str, &'static str, &'static str),
    /// It changes nothing in a simulation, because …
    NoEffect(&'static str),
    /// It has no counterpart. What it does, as a continuation of "it would …".
    Missing(&'static str),
    /// The same, and it decides which of several profiles runs.
    MissingHandler(&'static str),
}

/// The part of a request that a profile chooses an instance for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(in crate::policy) enum ProfileRole {
    Decode,
    Prefill,
    Encode,
}

impl ProfileRole {
    /// What its instances do, as a continuation of "it would keep the instances that …".
    pub const fn what(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Prefill => "compute prompts for others",
            Self::Encode => "encode images",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Picker {
    /// The highest score, which is what `weighted` takes.
    MaxScore,
    /// Any instance, whatever its score.
    Random,
}

/// A parameter of a plugin type that has a counterpart.
#[derive(Debug)]
pub(in crate::policy) struct TypeParameter {
    pub name: &'static str,
    pub meaning: Meaning,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::policy) enum Meaning {
    /// The parameter of our policy with that name, in the same unit.
    Number(&'static str),
    /// The same, whole numbers only.
    Whole(&'static str),
    /// The parameter of our policy with that name, which is the index of one of these words.
    Word(&'static str, &'static [&'static str]),
    /// Simulated with that number only, which is llm-d's default.
    OnlyNumber(f64),
    /// Simulated with that text only, which is llm-d's default.
    OnlyText(&'static str),
    /// The producer of the prefix matches: the router's record of sent prompts or the prefix caches.
    Producer,
    /// It changes no decision of a simulation.
    NoEffect,
    /// The code of the type reads it.
    Own,
    /// Not simulated. What it does, as a continuation of "it would …".
    Missing(&'static str),
}

use Meaning::{Missing, NoEffect, Number, OnlyNumber, OnlyText, Own, Producer, Whole, Word};

const fn parameter(name: &'static str, meaning: Meaning) -> TypeParameter {
    TypeParameter { name, meaning }
}

/// A row without parameters.
const fn row(name: &'static str, role: Role) -> PluginType {
    PluginType { name, aliases: &[], role, parameters: &[], precise: None, differs: "" }
}

impl PluginType {
    const fn formerly(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn with(self, parameters: &'static [TypeParameter]) -> Self {
        Self { parameters, ..self }
    }

    const fn precisely(self, kind: ScorerKind) -> Self {
        Self { precise: Some(kind), ..self }
    }

    const fn differing(self, differs: &'static str) -> Self {
        Self { differs, ..self }
    }

    /// The type with that name or former name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PLUGIN_TYPES.iter().find(|row| row.name == name || row.aliases.contains(&name))
    }

    /// The type that has `role`.
    pub fn for_role(role: Role) -> Option<&'static Self> {
        PLUGIN_TYPES.iter().find(|row| row.role == role)
    }

    /// The type that is the scorer `kind`, and whether it reads what is in the prefix caches.
    pub fn of_scorer(kind: ScorerKind) -> Option<(&'static Self, bool)> {
        let precise = PLUGIN_TYPES.iter().find(|row| row.precise == Some(kind)).map(|row| (row, true));
        precise.or_else(|| Some((Self::for_role(Role::Scorer(kind))?, false)))
    }

    /// The type that is `value` of the flag `flag` of flow control.
    pub fn of_flow(flag: &str, value: &str) -> Option<&'static Self> {
        PLUGIN_TYPES.iter().find(|row| matches!(row.role, Role::Flow(of, one, _) if of == flag && one == value))
    }

    /// The names of all types.
    pub fn names() -> Vec<&'static str> {
        PLUGIN_TYPES.iter().map(|row| row.name).collect()
    }

    pub fn parameter(&self, name: &str) -> Option<&'static TypeParameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The parameters that set those of our policy, and the names of those.
    pub fn counterparts(&self) -> impl Iterator<Item = (&'static TypeParameter, &'static str)> {
        self.parameters.iter().filter_map(|parameter| match parameter.meaning {
            Number(ours) | Whole(ours) | Word(ours, _) => Some((parameter, ours)),
            _ => None,
        })
    }

    /// `values` of our policy as parameters of this type.
    pub fn written(&self, values: impl Fn(&str) -> Option<f64>) -> Vec<(&'static str, String)> {
        let text = |parameter: &'static TypeParameter, value: f64| match parameter.meaning {
            Word(_, words) => words.get(value as usize).map_or_else(|| value.to_string(), |&word| word.to_owned()),
            _ => value.to_string(),
        };
        self.counterparts().filter_map(|(one, ours)| Some((one.name, text(one, values(ours)?)))).collect()
    }
}

/// The producer of what is in the prefix caches of the instances, from their events.
pub(super) const PRECISE_PRODUCER: &str = "precise-prefix-cache-producer";
/// The parameter that names a producer of prefix matches.
pub(super) const PRODUCER_NAME: &str = "prefixMatchInfoProducerName";
/// The handler of earlier versions, with parameters of its own, and its decider without a setting.
pub(super) const PD_HANDLER: &str = "pd-profile-handler";
pub(super) const PREFIX_DECIDER: &str = "prefix-based-pd-decider";
/// The detector of saturation without any setting.
pub(super) const UTILIZATION_DETECTOR: &str = "utilization-detector";
pub(super) const CONCURRENCY_DETECTOR: &str = "concurrency-detector";

/// The producer of the record of sent prompts, and its parameter: the blocks that it holds of each instance.
pub(super) const APPROX_PRODUCER: &str = "approx-prefix-cache-producer";
pub(super) const LRU_CAPACITY: &str = "lruCapacityPerServer";

/// Parameters of the record of sent prompts, which `prefix-cache-scorer` itself had in earlier versions.
const RECORD: [TypeParameter; 8] = [
    parameter("autoTune", NoEffect),
    parameter("blockSizeTokens", NoEffect),
    parameter("blockSize", NoEffect),
    parameter("hashBlockSize", NoEffect),
    parameter("maxPrefixBlocksToMatch", NoEffect),
    parameter("maxPrefixTokensToMatch", NoEffect),
    parameter(LRU_CAPACITY, NoEffect),
    parameter("lruIndexerCapacity", NoEffect),
];

static PREFIX_CACHE_SCORER: [TypeParameter; 11] = {
    let [a, b, c, d, e, f, g, h] = RECORD;
    let own = [
        parameter(PRODUCER_NAME, Producer),
        parameter("prefixLengthWeight", OnlyNumber(0.0)),
        parameter("maxModelLen", NoEffect),
    ];
    let [i, j, k] = own;
    [a, b, c, d, e, f, g, h, i, j, k]
};

/// What `concurrency-detector` counts, in the order of our parameter `mode`.
pub(super) const CONCURRENCY_MODES: [&str; 3] = ["requests", "tokens", "hybrid"];

static PICKER: [TypeParameter; 1] = [parameter("maxNumOfEndpoints", OnlyNumber(1.0))];

const RECORD_OF_PROMPTS: &str = "the record of the prompts sent to an instance has KV blocks of prompts of any length; \
     llm-d's has blocks of `blockSizeTokens` of the first `maxPrefixTokensToMatch` tokens, and as many as the instance has \
     while `autoTune` is on";
const ITS_SIGNALS: &str =
    "the simulator has the signals itself (`--snapshot-refresh-interval`, `--cache-signal-delay`)";
const NO_WIRE_FORMAT: &str = "simulated requests have no wire format";

/// A scorer with a type of that name.
const fn scorer(name: &'static str, kind: ScorerKind) -> PluginType {
    row(name, Role::Scorer(kind))
}

const fn missing(name: &'static str, what: &'static str) -> PluginType {
    row(name, Role::Missing(what))
}

const fn flow(name: &'static str, flag: &'static str, value: &'static str, what: &'static str) -> PluginType {
    row(name, Role::Flow(flag, value, what))
}

const fn no_effect(name: &'static str, why: &'static str) -> PluginType {
    row(name, Role::NoEffect(why))
}

/// Of several types with one role, the first is the one that is exported.
static PLUGIN_TYPES: &[PluginType] = &[
    // Scorers.
    scorer("queue-scorer", ScorerKind::QueueDepth),
    scorer("kv-cache-utilization-scorer", ScorerKind::KvUtilization).formerly(&["kv-cache-scorer"]),
    scorer("running-requests-size-scorer", ScorerKind::RunningRequests),
    scorer("prefix-cache-scorer", ScorerKind::PrefixAffinity)
        .formerly(&["prefix-cache-plugin"])
        .with(&PREFIX_CACHE_SCORER)
        .precisely(ScorerKind::PrecisePrefixCacheShare)
        .differing(RECORD_OF_PROMPTS),
    scorer("precise-prefix-cache-scorer", ScorerKind::PrecisePrefixCache).formerly(&["kvcache-aware-scorer"]).with(&[
        parameter("tokenProcessorConfig", NoEffect),
        parameter("indexerConfig", NoEffect),
        parameter("kvEventsConfig", NoEffect),
        parameter("tokenizersPoolConfig", NoEffect),
        parameter("speculativeIndexing", NoEffect),
        parameter("speculativeTTL", NoEffect),
    ]),
    scorer("load-aware-scorer", ScorerKind::LoadAware).with(&[parameter("threshold", OnlyNumber(128.0))]),
    scorer("active-request-scorer", ScorerKind::ActiveRequests).with(&[
        parameter("idleThreshold", OnlyNumber(0.0)),
        parameter("maxBusyScore", OnlyNumber(1.0)),
        parameter("requestTimeout", NoEffect),
        parameter("inFlightLoadProducerName", NoEffect),
    ]),
    scorer("token-load-scorer", ScorerKind::TokenLoad).with(&[
        parameter("queueThresholdTokens", OnlyNumber(4_194_304.0)),
        parameter("nonTextTokenWeight", NoEffect),
        parameter("inFlightLoadProducerName", NoEffect),
    ]),
    scorer("no-hit-lru-scorer", ScorerKind::NoHitLru)
        .with(&[
            parameter(PRODUCER_NAME, Producer),
            parameter("prefixPluginType", NoEffect),
            parameter("prefixPluginName", NoEffect),
            parameter("lruSize", NoEffect),
        ])
        .precisely(ScorerKind::NoHitLru)
        .differing(
            "`no-hit-lru` reads what is in the prefix caches; llm-d's scorer reads its record of sent prompts, \
             unless it names another producer",
        ),
    scorer("lora-affinity-scorer", ScorerKind::LoraAffinity),
    scorer("session-affinity-scorer", ScorerKind::SessionAffinity).differing(
        "`session-affinity` knows the session of every request and forgets it after 300 s; llm-d's scorer reads it from a \
         header",
    ),
    scorer("latency-scorer", ScorerKind::PredictedLatency).differing(
        "`predicted-latency` compares predictions of a linear model; llm-d's scorer compares those of trees, and with SLO \
         targets of requests the headroom to them",
    ),
    missing("context-length-aware", "prefer instances that are labelled for the length of the prompt"),
    missing("topology-affinity-scorer", "prefer instances near the one that decodes"),
    missing("mm-cache-affinity-scorer", "prefer instances that have encoded the same images"),
    missing("endpoint-attribute-scorer", "prefer instances by one of their attributes"),
    missing("header-label-affinity-scorer", "prefer instances whose label equals a header of the request"),
    // Filters.
    row("prefix-cache-affinity-filter", Role::Filter("prefix-cache-affinity"))
        .with(&[
            parameter("affinityThreshold", Number("affinity")),
            parameter("peakPrefillThroughput", Number("peak-prefill")),
            parameter("maxTTFTPenaltyMs", Number("max-penalty-ms")),
            parameter("explorationProbability", OnlyNumber(0.0)),
            parameter("ttftSource", OnlyText("prefillThroughput")),
            parameter("prefillCalibrationFile", Missing("take the prefill throughput from that file")),
            parameter("prefillCalibrationFingerprint", NoEffect),
            parameter("prefillCalibrationRequired", NoEffect),
            parameter(PRODUCER_NAME, Producer),
            parameter("latencyPredictionInfoProducerName", NoEffect),
            parameter("inFlightLoadProducerName", NoEffect),
        ])
        .differing(
            "`prefix-cache-affinity` reads what is in the prefix caches; llm-d's filter reads its record of sent \
             prompts, unless it names another producer",
        ),
    row(UTILIZATION_DETECTOR, Role::Filter("saturation")).with(&[
        parameter("queueDepthThreshold", Whole("queue-depth")),
        parameter("kvCacheUtilThreshold", Number("kv-utilization")),
        parameter("headroom", Number("headroom")),
        parameter("metricsStalenessThreshold", NoEffect),
    ]),
    row(CONCURRENCY_DETECTOR, Role::Filter("concurrency")).with(&[
        parameter("maxConcurrency", Whole("max-concurrency")),
        parameter("maxTokenConcurrency", Whole("max-tokens")),
        parameter("headroom", Number("headroom")),
        parameter("concurrencyMode", Word("mode", &CONCURRENCY_MODES)),
        parameter("failOpen", Missing("say what happens to a request for which no instance has room: here all are kept")),
        parameter("inFlightLoadProducerName", NoEffect),
    ]),
    row("decode-filter", Role::Keeps(ProfileRole::Decode)),
    row("prefill-filter", Role::Keeps(ProfileRole::Prefill)),
    row("encode-filter", Role::Keeps(ProfileRole::Encode)),
    missing("by-label", "keep the instances with certain labels"),
    missing("by-label-selector", "keep the instances with certain labels"),
    missing("session-affinity-filter", "keep the instance that served the session before"),
    missing("topology-affinity-filter", "keep instances near the one that decodes"),
    missing("slo-headroom-tier-filter", "keep the instances whose predicted latency meets the SLO"),
    missing("endpoint-attribute-filter", "keep instances by one of their attributes"),
    missing("active-request-filter", "keep the instances with few requests in flight"),
    // Pickers and profile handlers.
    row("max-score-picker", Role::Picker(Picker::MaxScore)).with(&PICKER),
    row("random-picker", Role::Picker(Picker::Random)).with(&PICKER),
    missing("weighted-random-picker", "draw an instance with a probability in proportion to its score"),
    missing("load-aware-picker", "draw one of the best instances by its load"),
    row("single-profile-handler", Role::SingleProfile),
    row(
        "data-parallel-profile-handler",
        Role::MissingHandler("send each request to the port of one data-parallel rank of the instance"),
    ),
    row("disagg-profile-handler", Role::DisaggHandler).formerly(&[PD_HANDLER]).with(&[
        parameter("stageOrder", Own),
        parameter("profiles", Own),
        parameter("deciders", Own),
        // Those of `pd-profile-handler`.
        parameter("decodeProfile", Own),
        parameter("prefillProfile", Own),
        parameter("deciderPluginName", Own),
        parameter("threshold", Own),
        parameter("primaryPort", Missing("send each request to the port of one data-parallel rank of the instance")),
        parameter("hashBlockSize", NoEffect),
        parameter("prefixPluginType", NoEffect),
        parameter("prefixPluginName", NoEffect),
        parameter(PRODUCER_NAME, NoEffect),
    ]),
    row("header-profile-handler", Role::MissingHandler("choose the profile by a header of the request")),
    row(PREFIX_DECIDER, Role::Decider("prefix-threshold"))
        .with(&[
            parameter("nonCachedTokens", Whole("tokens")),
            parameter("promptTokens", Whole("prompt-tokens")),
            parameter(PRODUCER_NAME, Producer),
        ])
        .differing(
            "`prefix-threshold` reads what is in the prefix caches; llm-d's decider reads its record of sent prompts, \
             unless it names another producer",
        ),
    row("always-disagg-pd-decider", Role::Decider("always")),
    row("always-disagg-multimodal-decider", Role::EncodeDecider),
    no_effect("disagg-headers-handler", "requests have no headers here").formerly(&["prefill-header-handler"]),
    // Producers of what scorers read.
    no_effect(APPROX_PRODUCER, "the scorer `prefix-affinity` has its own record of sent prompts"),
    no_effect(PRECISE_PRODUCER, ITS_SIGNALS),
    no_effect("token-producer", "simulated prompts are tokens").formerly(&["tokenizer"]),
    no_effect("inflight-load-producer", ITS_SIGNALS),
    no_effect("session-id-producer", "only plugins for sessions read it"),
    missing("burst-prefix-cache-producer", "send requests with one prefix that arrive together to one instance"),
    no_effect("predicted-latency-producer", "the scorer `predicted-latency` has a model of its own"),
    missing("multimodal-producer", "find out which instances have encoded the same images"),
    // Data layer, parsers, reports.
    no_effect("metrics-data-source", ITS_SIGNALS),
    no_effect("core-metrics-extractor", ITS_SIGNALS),
    no_effect("endpoint-notification-source", ITS_SIGNALS),
    no_effect("k8s-notification-source", ITS_SIGNALS),
    no_effect("models-data-source", ITS_SIGNALS),
    no_effect("model-server-protocol-models", ITS_SIGNALS),
    missing("topology-extractor", "read the host, rack, zone and region of each instance"),
    no_effect("openai-parser", NO_WIRE_FORMAT),
    no_effect("anthropic-parser", NO_WIRE_FORMAT),
    no_effect("passthrough-parser", NO_WIRE_FORMAT),
    no_effect("vllmgrpc-parser", NO_WIRE_FORMAT),
    no_effect("vllmhttp-parser", NO_WIRE_FORMAT),
    no_effect("sglanghttp-parser", NO_WIRE_FORMAT),
    no_effect("vertexai-parser", NO_WIRE_FORMAT),
    no_effect("request-attribute-reporter", "it reports figures to other programs"),
    // Admission and flow control.
    row("probabilistic-admitter", Role::Admitter("probabilistic")).with(&[
        parameter("k", Number("factor")),
        parameter("power", Number("power")),
        parameter("queueDepthThreshold", Whole("queue-depth")),
        parameter("kvCacheUtilThreshold", Number("kv-utilization")),
    ]),
    row("latency-slo-admitter", Role::Admitter("latency-slo"))
        .with(&[parameter("latencyPredictionInfoProducerName", NoEffect)])
        .differing(
            "`latency-slo` predicts the TTFT by a linear model and compares it with the target of the class, else with \
             `ttft-ms`; llm-d's admitter has predictions of TTFT and TPOT by trees, and admits requests without a target in \
             their headers",
        ),
    flow("program-aware-fairness", "fairness-policy", "program-aware", "serve the program with the least attained service first"),
    flow("round-robin-fairness-policy", "fairness-policy", "round-robin", "serve the tenants of a priority band in turn"),
    flow("global-strict-fairness-policy", "fairness-policy", "global-strict", "serve the first request of all tenants of a priority band"),
    flow("fcfs-ordering-policy", "dispatch-order", "fcfs", "order the gateway's queue by arrival"),
    flow("edf-ordering-policy", "dispatch-order", "edf", "order the gateway's queue by deadline"),
    flow("slo-deadline-ordering-policy", "dispatch-order", "slo-deadline", "order the gateway's queue by the time to the TTFT target"),
    flow("static-usage-limit-policy", "usage-limit-policy", "static", "hold back every priority band at one saturation"),
    flow("priority-holdback-policy", "usage-limit-policy", "priority-holdback", "hold back lower priority bands at lower saturations"),
    flow("soft-reflective-ceiling-policy", "usage-limit-policy", "soft-reflective", "hold back lower priority bands in the gateway's queue as the saturation rises"),
    missing("sheddable-filter", "choose the requests in flight that may be evicted for others"),
    missing("priority-then-time-ordering", "evict requests of the lowest priority first, the newest of them first"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{BuiltIn, BuiltInFilter};
    use blis_plugin::Kind;

    #[test]
    fn names_are_unique_and_counterparts_exist() {
        let mut names: Vec<&str> =
            PLUGIN_TYPES.iter().flat_map(|row| row.aliases.iter().chain([&row.name])).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
        for row in PLUGIN_TYPES {
            let ours: Vec<String> = match row.role {
                Role::Filter(name) => {
                    let filter = BuiltInFilter::named(name).expect("it is one of ours");
                    filter.parameters().map(|(parameter, _)| parameter.name).collect()
                }
                Role::Decider(name) => {
                    let policy = BuiltIn::find(Kind::Disaggregation, name).expect("it is one of ours");
                    policy.parameters().into_iter().map(|parameter| parameter.name).collect()
                }
                Role::Admitter(name) => {
                    let policy = BuiltIn::find(Kind::Admission, name).expect("it is one of ours");
                    let parameters = policy.parameters().into_iter().map(|parameter| parameter.name);
                    // llm-d admits what has no target.
                    parameters.filter(|name| name != "ttft-ms").collect()
                }
                _ => Vec::new(),
            };
            let set: Vec<&str> = row.counterparts().map(|(_, ours)| ours).collect();
            assert_eq!(set, ours, "{}: all parameters of our policy, in its order", row.name);
        }
    }

    #[test]
    fn default_parameters_are_those_of_llm_d() {
        // `reference/gateway.md` §0, §1.1.
        let defaults = |name| {
            let filter = BuiltInFilter::named(name).expect("it is one of ours");
            filter.parameters().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(defaults("prefix-cache-affinity"), [0.8, 15_928.0, 18_000.0]);
        assert_eq!(defaults("saturation"), [5.0, 0.8, 0.0]);
        assert_eq!(defaults("concurrency"), [100.0, 1_000_000.0, 0.0, 0.0]);
    }
}
