//! Settings that take one of a few words: their values, as flags, files and help write them.

use std::fmt::{self, Display};

/// A closed set of words.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// All of them, in the order of help.
    const ALL: &'static [Self];

    /// As users write it.
    fn name(self) -> &'static str;

    /// Other spellings that mean the same.
    fn aliases(self) -> &'static [&'static str] {
        &[]
    }

    /// What it means, in a line.
    fn about(self) -> &'static str;

    /// The one called `name`.
    fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name || choice.aliases().contains(&name))
    }
}

macro_rules! choices {
    ($(#[$doc:meta])* $type:ident: $($(#[doc = $about:literal])+ $variant:ident = $name:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[doc = $about])+ $variant,)+
        }

        impl Choice for $type {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+).trim()),+ }
            }
        }

        impl Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

choices! {
    /// `--on-plugin-error`.
    OnErrorName:
    /// The run ends with its error
    Fail = "fail",
    /// A built-in decides in its place, and the run says how often
    Fallback = "fallback",
}

choices! {
    /// `--tie-break`.
    TieBreakName:
    /// To any of them, with equal chances
    Random = "random",
    /// To the first: for comparison with recorded answers
    LowestIndex = "lowest-index",
}

choices! {
    /// `--fitness-scale`.
    FitnessScaleName:
    /// The same figures under the baseline
    Baseline = "baseline",
    /// Fixed figures, as the published simulator has them
    Blis = "blis",
}

choices! {
    /// `--trace-level`.
    TraceLevelName:
    /// None
    None = "none",
    /// Every admission, every choice of an instance, and who enters and leaves the batches there
    Decisions = "decisions",
}

choices! {
    /// `--parity`.
    ParityName:
    /// The scheduler of vLLM
    Vllm = "vllm",
    /// The published Go simulator, to the microsecond
    Blis = "blis",
}

choices! {
    /// `--engine`.
    EngineName:
    /// Touches only what changes
    Fast = "fast",
    /// Touches everything at every step
    Plain = "plain",
}

choices! {
    /// `--workload`.
    WorkloadName:
    /// Lengths and rate as given by the flags below
    Distribution = "distribution",
    /// Prompts of 256 and answers of 256 tokens on average
    Chatbot = "chatbot",
    /// 4096 and 512
    Summarization = "summarization",
    /// 1024 and 1024
    Contentgen = "contentgen",
    /// 10240 and 1536
    Multidoc = "multidoc",
    /// One client: 512 and 256 tokens (exponential), bursts (Gamma, coefficient of variation 3.5)
    Bursty = "bursty",
    /// 0.9 batch, 1024 and 512, of one tenant; 0.1 critical, 128 and 64, of another
    UnfairTenants = "unfair-tenants",
    /// 0.8 batch, 256 and 128, behind 50 tokens in common; 0.2 standard, 512 and 256
    PrefixHeavy = "prefix-heavy",
    /// A third each: critical, 64 and 32; standard, 256 and 128; batch, 1024 and 512
    MixedSlo = "mixed-slo",
    /// inference-perf: 1000 ± 800 and 8000 ± 6500 tokens (lognormal), Poisson arrivals
    Reasoning = "reasoning",
    /// inference-perf: 15000 ± 22000 and 500 ± 300
    SummarizationRag = "summarization-rag",
    /// inference-perf: 500 ± 1200 and 500 to 8000
    SyntheticData = "synthetic-data",
    /// inference-perf: conversations of 4 ± 2.5 turns in closed loop behind a system prompt of 1000 tokens,
    /// about 4000 ± 2500 tokens, 50 ± 40 and 300 ± 150 a turn
    InteractiveChat = "interactive-chat",
    /// inference-perf: 540 turns on average (half of them have at most 6) behind 3000 tokens, about
    /// 160000 ± 233600 tokens, 1500 ± 1200 and 425 ± 825 a turn
    CodeGeneration = "code-generation",
    /// inference-perf: 15 ± 8.5 turns behind 2000 tokens, about 45000 tokens (exponential),
    /// 3000 ± 2500 and 300 ± 850 a turn
    DeepResearch = "deep-research",
    /// The file of --workload-trace
    Traces = "traces",
}

choices! {
    /// `--trace-format`.
    TraceFormatName:
    /// By its first lines
    Auto = "auto",
    /// BLIS: arrival, id, model, prompt and answer tokens as lists
    BlisCsv = "blis-csv",
    /// Azure LLM inference trace: timestamp, prompt and answer length
    Azure = "azure",
    /// Mooncake: JSON lines with hash ids
    Mooncake = "mooncake",
    /// BLIS, both halves beside each other: name one of them
    TraceV2 = "trace-v2",
    /// Alibaba Bailian (Qwen): JSON lines in seconds with chats and hash ids
    Bailian = "bailian",
    /// BurstGPT: timestamp, model, request and response tokens
    BurstGpt = "burstgpt",
    /// `vllm bench serve --save-result --save-detailed`: JSON, also several runs
    VllmBench = "vllm-bench",
    /// SGLang `bench_serving --output-details`: JSON lines; arrivals follow from the request rate
    SglangBench = "sglang-bench",
    /// AIPerf: profile_export.jsonl
    AiPerf = "aiperf",
    /// OpenTelemetry spans of vLLM: OTLP-JSON
    Otel = "otel",
    /// vllm-vcr: JSON lines
    VllmVcr = "vllm-vcr",
}

choices! {
    /// `--arrival-process`.
    ArrivalName:
    /// At equal distances
    Constant = "constant",
    /// At random, independently of each other
    Poisson = "poisson",
}

choices! {
    /// `--session-mode`.
    SessionMode:
    /// As recorded
    Fixed = "fixed",
    /// When the round before has been answered and its client has thought
    ClosedLoop = "closed-loop",
}

choices! {
    /// `--regret`.
    RegretName:
    /// Nothing
    None = "none",
    /// Against what really happens in the worlds of the alternatives
    Outcome = "outcome",
}
