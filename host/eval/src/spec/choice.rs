//! Settings with a closed set of values: the values, as flags, files and help write them.

pub use blis_config::engine::EngineProfile as EngineName;
pub use blis_config::{KvCacheDtype as KvCacheDtypeName, Quantization as QuantizationName};
pub use blis_workload::distribution::ArrivalProcess as ArrivalName;

pub use crate::fitness::FitnessScale as FitnessScaleName;

macro_rules! choices {
    ($($(#[$doc:meta])* $type:ident: $($(#[$about:meta])+ $variant:ident = $name:literal),+;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(strum::Display, strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray)]
        pub enum $type {
            $($(#[$about])+ #[strum(to_string = $name)] $variant,)+
        }
    )+};
}

choices! {
    /// Behaviour after the failure of a plugin (`--on-plugin-error`).
    OnErrorName:
    /// The run ends with the error of the plugin
    Fail = "fail",
    /// A built-in policy decides instead, and the run reports how often
    Fallback = "fallback";

    /// Choice among equally good instances (`--tie-break`).
    TieBreakName:
    /// Any of them, with equal probability
    Random = "random",
    /// The first one: for comparison with recorded results
    LowestIndex = "lowest-index";

    /// What instances do, if prefill is apart from decode (`--role`).
    RoleName:
    /// They compute prompts for other instances
    Prefill = "prefill",
    /// They generate outputs, and compute the prompts that are not prefilled elsewhere
    Decode = "decode",
    /// They prefill and decode
    Both = "both",
    /// They encode images, audio and video
    Encode = "encode";

    /// Which requests are prefilled on another instance (`--pd-decider`).
    DeciderName:
    /// No request at all
    Never = "never",
    /// Every request, without exception
    Always = "always",
    /// Those of which the decode instance lacks at least --pd-prefix-threshold tokens; with --parity blis, more
    PrefixThreshold = "prefix-threshold",
    /// Those that save more waiting time than the missed targets of TTFT so far (drift plus penalty)
    Edpp = "edpp";

    /// Which instance is chosen first (`--pd-stage-order`).
    StageOrderName:
    /// The one that decodes; then it is decided whether another one prefills
    DecodeFirst = "decode-first",
    /// The one that prefills; every request is prefilled elsewhere
    PrefillFirst = "prefill-first";

    /// The network between prefill and decode instances (`--pd-transfer-link`): the bandwidth of a GPU.
    TransferLinkName:
    /// NVLink on one host, 450 GB/s
    Nvlink = "nvlink",
    /// InfiniBand or RoCE, 400 Gb/s = 50 GB/s
    Rdma = "rdma",
    /// TCP over Ethernet, 2 GB/s
    Ethernet = "ethernet";

    /// Which requests are encoded on an instance of their own (`--encode-decider`).
    EncodeDeciderName:
    /// No request at all
    Never = "never",
    /// Every request, without exception
    Always = "always",
    /// Those with images, audio or video
    Multimodal = "multimodal";

    /// Which decisions are recorded (`--trace-level`).
    TraceLevelName:
    /// No decision is recorded
    None = "none",
    /// Every admission, every routing decision, and the requests that enter and leave the running batches
    Decisions = "decisions";

    /// Which simulator's scheduler is followed (`--parity`).
    ParityName:
    /// The scheduler of vLLM
    Vllm = "vllm",
    /// The published Go simulator, to the microsecond
    Blis = "blis";

    /// What counts as in flight, for `concurrency` (`--concurrency-mode`).
    ConcurrencyModeName:
    /// Requests
    Requests = "requests",
    /// Prompt tokens that were not cached, until the first token
    Tokens = "tokens",
    /// The larger share of both, by instance
    Hybrid = "hybrid";

    /// Type of activations, and of weights that are not quantised (`--dtype`).
    DtypeName:
    /// That of the model's config; bfloat16 for a model in float32
    Auto = "auto",
    /// The same as float16
    Half = "half",
    /// 16 bits
    Float16 = "float16",
    /// 16 bits
    Bfloat16 = "bfloat16",
    /// The same as float32
    Float = "float",
    /// 32 bits, without tensor cores
    Float32 = "float32";

    /// What makes room in the CPU tier (`--kv-offloading-eviction-policy`).
    ChunkEvictionName:
    /// Least recently used
    Lru = "lru",
    /// Adaptive: chunks that were used once, or chunks that were used again
    Arc = "arc";

    /// The tier below the CPU tier (`--kv-offloading-secondary`).
    SecondaryTierName:
    /// The CPU tier is the last
    None = "none",
    /// Files on a local disk
    Fs = "fs",
    /// An object store, or files over the network
    Obj = "obj",
    /// The CPU tiers of the other replicas of the group
    P2p = "p2p";

    /// What happens to copies to a secondary tier that is slow (`--kv-offloading-backpressure`).
    BackpressureName:
    /// They wait, however many there are
    None = "none",
    /// All of them are dropped
    Drop = "drop",
    /// Some are dropped, the more the slower it is
    Throttle = "throttle";

    /// Kernels of the prefill of the gated delta rule (`--gdn-prefill-backend`).
    GdnPrefillName:
    /// FlashInfer's: states fall on multiples of 64 tokens
    FlashInfer = "flashinfer",
    /// Triton's
    Triton = "triton";

    /// Implementation of the simulation of instances (`--simulation`).
    SimulationName:
    /// Updates only what changes
    Fast = "fast",
    /// Updates everything at every step
    Plain = "plain";

    /// Generated workloads and presets (`--workload`).
    WorkloadName:
    /// Lengths and rate of the flags below
    Distribution = "distribution",
    /// Means of 256 input and 256 output tokens
    Chatbot = "chatbot",
    /// Means of 4096 input and 512 output tokens
    Summarization = "summarization",
    /// Means of 1024 input and 1024 output tokens
    Contentgen = "contentgen",
    /// Means of 10240 input and 1536 output tokens
    Multidoc = "multidoc",
    /// One client: 512 and 256 tokens (exponential), bursts (Gamma, coefficient of variation 3.5)
    Bursty = "bursty",
    /// 0.9 batch, 1024 and 512 tokens, of one tenant; 0.1 critical, 128 and 64, of another
    UnfairTenants = "unfair-tenants",
    /// 0.8 batch, 256 and 128 tokens, behind a shared prefix of 50 tokens; 0.2 standard, 512 and 256
    PrefixHeavy = "prefix-heavy",
    /// A third each: critical, 64 and 32 tokens; standard, 256 and 128; batch, 1024 and 512
    MixedSlo = "mixed-slo",
    /// inference-perf: 1000 ± 800 input and 8000 ± 6500 output tokens (lognormal), Poisson arrivals
    Reasoning = "reasoning",
    /// inference-perf: 15000 ± 22000 and 500 ± 300 tokens
    SummarizationRag = "summarization-rag",
    /// inference-perf: 500 ± 1200 and 500 to 8000 tokens
    SyntheticData = "synthetic-data",
    /// inference-perf: sessions of 4 ± 2.5 rounds in closed loop behind a system prompt of 1000 tokens, about 4000 ±
    /// 2500 tokens, 50 ± 40 and 300 ± 150 a round
    InteractiveChat = "interactive-chat",
    /// inference-perf: 540 rounds on average (half of the sessions have at most 6) behind 3000 tokens, about 160000 ±
    /// 233600 tokens, 1500 ± 1200 and 425 ± 825 a round
    CodeGeneration = "code-generation",
    /// inference-perf: 15 ± 8.5 rounds behind 2000 tokens, about 45000 tokens (exponential), 3000 ± 2500 and 300 ± 850
    /// a round
    DeepResearch = "deep-research",
    /// The file of --workload-trace
    Traces = "traces";

    /// Format of a trace (`--trace-format`).
    TraceFormatName:
    /// Detected from its first lines
    Auto = "auto",
    /// BLIS: arrival, id, model, input and output tokens as lists
    BlisCsv = "blis-csv",
    /// Azure LLM inference trace: timestamp, input and output length
    Azure = "azure",
    /// Mooncake: JSON lines with hash ids
    Mooncake = "mooncake",
    /// BLIS TraceV2, header and data beside each other: name one of them
    TraceV2 = "trace-v2",
    /// Alibaba Bailian (Qwen): JSON lines in seconds with sessions and hash ids
    Bailian = "bailian",
    /// BurstGPT: timestamp, model, request and response tokens
    BurstGpt = "burstgpt",
    /// `vllm bench serve --save-result --save-detailed`: JSON, also several runs
    VllmBench = "vllm-bench",
    /// SGLang `bench_serving --output-details`: JSON lines; arrivals follow from the request rate
    SglangBench = "sglang-bench",
    /// AIPerf: the file profile_export.jsonl
    AiPerf = "aiperf",
    /// GuideLLM: its report in JSON
    Guidellm = "guidellm",
    /// OpenTelemetry spans of vLLM: OTLP-JSON
    Otel = "otel",
    /// vllm-vcr: its JSON lines
    VllmVcr = "vllm-vcr",
    /// CSV with columns such as arrival (s; arrival_ms, …), input and output (tokens), Vidur's among them
    Csv = "csv",
    /// ShareGPT conversations, JSON: lengths estimated from the texts, arrivals by --rate
    ShareGpt = "sharegpt";

    /// When the rounds of a session arrive (`--session-mode`).
    SessionMode:
    /// At the recorded times
    Fixed = "fixed",
    /// A think time after the output of the round before
    ClosedLoop = "closed-loop";

    /// Which regret is computed (`--regret`).
    RegretName:
    /// No regret
    None = "none",
    /// Against the outcomes of the alternatives in counterfactual branches
    Outcome = "outcome";
}
