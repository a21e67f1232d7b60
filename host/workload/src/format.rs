//! The formats of traces. Errors contain them, so nothing in this file may return an error.

/// A trace format that can be read.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
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
    #[strum(to_string = "burstgpt")]
    BurstGpt,
    /// Results of `vllm bench serve --save-detailed`, JSON.
    VllmBench,
    /// Results of SGLang's `bench_serving --output-details`, JSONL.
    SglangBench,
    #[strum(to_string = "aiperf")]
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
    #[strum(to_string = "sharegpt")]
    ShareGpt,
}
