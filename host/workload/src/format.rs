//! The formats of traces. Errors contain them, so nothing in this file may return an error.

use std::fmt;

/// A trace format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Azure LLM inference traces: CSV with times and lengths.
    Azure,
    /// Mooncake JSONL: times, lengths and hashes of the prompt.
    Mooncake,
    /// The CSV of the first BLIS versions, with token ids.
    BlisCsv,
    /// TraceV2 of BLIS: a YAML header and a CSV.
    TraceV2,
    /// Alibaba Bailian (Qwen) JSONL: times, lengths, hashes of the prompt, chats.
    Bailian,
    /// BurstGPT: CSV with times, models and lengths.
    BurstGpt,
    /// Results of `vllm bench serve --save-detailed`, JSON.
    VllmBench,
    /// Results of SGLang's `bench_serving --output-details`, JSONL.
    SglangBench,
    AiPerf,
    /// Reports of GuideLLM, JSON.
    Guidellm,
    /// OpenTelemetry spans of vLLM, OTLP-JSON.
    Otel,
    /// Captures of vllm-vcr, JSONL.
    VllmVcr,
    /// Plain CSV of arrivals and lengths, as Vidur's.
    Csv,
    /// Conversations in ShareGPT's form, JSON.
    ShareGpt,
}

impl TraceFormat {
    pub const ALL: [Self; 14] = [
        Self::Azure,
        Self::Mooncake,
        Self::BlisCsv,
        Self::TraceV2,
        Self::Bailian,
        Self::BurstGpt,
        Self::VllmBench,
        Self::SglangBench,
        Self::AiPerf,
        Self::Guidellm,
        Self::Otel,
        Self::VllmVcr,
        Self::Csv,
        Self::ShareGpt,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Azure => "azure",
            Self::Mooncake => "mooncake",
            Self::BlisCsv => "blis-csv",
            Self::TraceV2 => "trace-v2",
            Self::Bailian => "bailian",
            Self::BurstGpt => "burstgpt",
            Self::VllmBench => "vllm-bench",
            Self::SglangBench => "sglang-bench",
            Self::AiPerf => "aiperf",
            Self::Guidellm => "guidellm",
            Self::Otel => "otel",
            Self::VllmVcr => "vllm-vcr",
            Self::Csv => "csv",
            Self::ShareGpt => "sharegpt",
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
