//! Detects the format of a trace by its first bytes or by its name.

use strum::VariantArray as _;

use super::error::{Skipped, TraceError};
use super::format::TraceFormat;
use super::plain_csv;
use blis_diag::quoted;

impl TraceFormat {
    /// The format of `file`, by the bytes `start` at the start of its (decompressed) content.
    ///
    /// # Errors
    /// [`TraceError::UnknownFormat`], or [`TraceError::Empty`] if there is no content.
    pub fn detect(file: &str, start: &[u8]) -> Result<Self, TraceError> {
        let text = without_mark(start);
        let first = text.split(|&byte| byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or(&[]);
        let names = |name: &[u8]| first.split(|&byte| byte == b',').any(|field| field.trim_ascii() == name);
        let is_list = first.trim_ascii_start().starts_with(b"[");
        if first.is_empty() {
            Err(TraceError::Empty { file: file.into(), skipped: Skipped::default(), notes: Vec::new() })
        } else if first.trim_ascii_start().starts_with(b"{") {
            Ok(Self::of_object(text))
        } else if is_list && (has_key(text, "conversations") || has_key(text, "conversation")) {
            Ok(Self::ShareGpt)
        } else if names(b"Request tokens") && names(b"Response tokens") {
            Ok(Self::BurstGpt)
        } else if names(b"ContextTokens") && names(b"GeneratedTokens") {
            Ok(Self::Azure)
        } else if names(b"prefill_tokens") && names(b"decode_tokens") {
            Ok(Self::BlisCsv)
        } else if is_trace_v2_data(start) || text.split(|&byte| byte == b'\n').any(is_version) {
            Ok(Self::TraceV2)
        } else if plain_csv::is_header(first) {
            Ok(Self::Csv)
        } else {
            let formats = Self::VARIANTS.iter().map(<&str>::from).collect::<Vec<_>>().join(", ");
            Err(TraceError::UnknownFormat { file: file.into(), start: quoted(first), formats })
        }
    }
}

impl TraceFormat {
    /// The format of JSON objects, by the keys at the start of the text; Mooncake if no key is known.
    fn of_object(text: &[u8]) -> Self {
        /// All keys of a format must be present. vLLM's results may also have a `dataset_name`, by `--metadata`.
        const KEYS: [(TraceFormat, &[&str]); 11] = [
            (TraceFormat::ShareGpt, &["conversations"]),
            (TraceFormat::Otel, &["resourceSpans"]),
            (TraceFormat::AiPerf, &["metadata", "request_start_ns"]),
            (TraceFormat::Guidellm, &["guidellm_version"]),
            (TraceFormat::Bailian, &["chat_id"]),
            (TraceFormat::VllmVcr, &["meta"]),
            (TraceFormat::VllmVcr, &["prompt_tokens", "output_tokens"]),
            (TraceFormat::VllmBench, &["backend", "model_id"]),
            (TraceFormat::VllmBench, &["start_times"]),
            (TraceFormat::SglangBench, &["backend", "dataset_name"]),
            (TraceFormat::VllmBench, &["input_lens"]),
        ];
        let found = KEYS.iter().find(|(_, keys)| keys.iter().all(|key| has_key(text, key)));
        found.map_or(Self::Mooncake, |&(format, _)| format)
    }
}

/// Whether the text has `key` before a colon.
fn has_key(text: &[u8], key: &str) -> bool {
    let quoted = format!("\"{key}\"");
    let mut positions = text.windows(quoted.len()).enumerate().filter(|(_, window)| *window == quoted.as_bytes());
    positions.any(|(at, _)| text[at + quoted.len()..].trim_ascii_start().starts_with(b":"))
}

/// Whether the format is a guess: the text is JSON without any key of Mooncake's.
pub(super) fn is_guess(start: &[u8]) -> bool {
    let keys = ["timestamp", "input_length", "output_length", "hash_ids", "session_id", "text_input", "delay"];
    !keys.iter().any(|key| has_key(start, key))
}

/// Whether this is the CSV half of a TraceV2 trace.
pub(super) fn is_trace_v2_data(start: &[u8]) -> bool {
    without_mark(start).trim_ascii_start().starts_with(b"request_id,client_id,")
}

fn is_version(line: &[u8]) -> bool {
    line.starts_with(b"trace_version:")
}

fn without_mark(start: &[u8]) -> &[u8] {
    start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_by_their_first_line() {
        let detect = |start: &str| TraceFormat::detect("x", start.as_bytes()).unwrap();
        assert_eq!(detect("\u{feff}TIMESTAMP,ContextTokens,GeneratedTokens\r\n"), TraceFormat::Azure);
        assert_eq!(detect("\n{\"timestamp\": 0}"), TraceFormat::Mooncake);
        assert_eq!(detect("arrival_time,request_id,model,prefill_tokens,decode_tokens\n"), TraceFormat::BlisCsv);
        assert_eq!(detect("Timestamp,Model,Request tokens,Response tokens\n"), TraceFormat::BurstGpt);
        assert_eq!(detect("{\"chat_id\": 1, \"timestamp\": 0}"), TraceFormat::Bailian);
        assert_eq!(detect("{\"meta\" : {}}"), TraceFormat::VllmVcr);
        assert_eq!(detect("{\"prompt_tokens\": 1, \"output_tokens\": 1}"), TraceFormat::VllmVcr);
        assert_eq!(detect("{\n\"date\": \"\", \"backend\": \"vllm\",\n\"model_id\": \"m\"}"), TraceFormat::VllmBench);
        assert_eq!(detect("{\"backend\": \"sglang\", \"dataset_name\": \"random\"}"), TraceFormat::SglangBench);
        assert_eq!(detect("{\"metadata\": {\"request_start_ns\": 1}}"), TraceFormat::AiPerf);
        assert_eq!(detect("{\"metadata\": {\"version\": 2, \"guidellm_version\": \"0.8.1\"}}"), TraceFormat::Guidellm);
        assert_eq!(detect("{\"resourceSpans\": []}"), TraceFormat::Otel);
        assert_eq!(detect("request_id,client_id,tenant_id\n"), TraceFormat::TraceV2);
        assert_eq!(detect("Arrival,Input,Output\n"), TraceFormat::Csv);
        assert_eq!(detect("arrived_at,num_prefill_tokens,num_decode_tokens\n"), TraceFormat::Csv);
        assert_eq!(detect("[\n {\"id\": 1, \"conversations\": []}]"), TraceFormat::ShareGpt);
        assert_eq!(detect("{\"id\": 1, \"conversations\": []}"), TraceFormat::ShareGpt);
        assert_eq!(detect("# made by\ntrace_version: 3\n"), TraceFormat::TraceV2);
    }

    #[test]
    fn results_of_vllm_that_name_a_dataset_are_not_of_sglang() {
        let detect = |start: &str| TraceFormat::detect("x", start.as_bytes()).unwrap();
        let named = r#"{"backend": "vllm", "model_id": "m", "dataset_name": "sharegpt"}"#;
        assert_eq!(detect(named), TraceFormat::VllmBench);
        let late = r#"{"backend": "vllm", "dataset_name": "sharegpt", "input_lens": [1], "start_times": [0.5]}"#;
        assert_eq!(detect(late), TraceFormat::VllmBench);
    }

    #[test]
    fn an_unknown_format_is_shown_and_names_are_suggested() {
        insta::assert_snapshot!(TraceFormat::detect("x.csv", b"a,b\n1,2\n").unwrap_err(), @r"
        x.csv: unknown trace format; it starts with `a,b`
        hint: if it is one of azure, mooncake, blis-csv, trace-v2, bailian, burstgpt, vllm-bench, sglang-bench, aiperf, guidellm, otel, vllm-vcr, csv, sharegpt, name it with `--trace-format`
        ");
    }
}
