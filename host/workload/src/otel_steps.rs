//! Engine steps in OpenTelemetry spans of vLLM (OTLP-JSON): events `step.BATCH_SUMMARY`, of any span.

use std::io::BufRead;
use std::sync::Arc;

use blis_diag::RowError;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::error::TraceError;
use super::json::{Documents, Number, need};

/// One step of an engine, as it was sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledStep {
    /// `step.id`: consecutive steps have consecutive ids.
    pub id: u64,
    /// `step.ts_start_ns`: start of the step, ns of an arbitrary clock.
    pub start_ns: u64,
    /// `step.duration_us`, which is not the time of a step: it ends when the step is handed to the GPU.
    pub duration_us: Option<f64>,
    /// `queue.running_depth`: requests in the running batch.
    pub running: u32,
    /// `batch.num_prefill_reqs`: requests in prefill.
    pub prefill_requests: u32,
    /// `batch.num_decode_reqs`: decoding requests.
    pub decode_requests: u32,
    /// `batch.prefill_tokens`: prompt tokens computed in the step.
    pub prefill_tokens: u32,
    /// `batch.num_finished`: requests that finished with the step.
    pub finished: Option<u32>,
    /// `kv.blocks_total_gpu`: KV blocks of the server.
    pub kv_blocks: u64,
    /// `kv.blocks_free_gpu`: KV blocks that no request holds.
    pub free_kv_blocks: u64,
    /// Attribute `instance` of the span, where a trace has several engines.
    pub instance: Option<u32>,
}

#[derive(Deserialize)]
struct StepsDocument {
    #[serde(rename = "resourceSpans")]
    resource_spans: Vec<StepResource>,
}

#[derive(Deserialize)]
struct StepResource {
    #[serde(default, rename = "scopeSpans")]
    scope_spans: Vec<StepScope>,
}

#[derive(Deserialize)]
struct StepScope {
    #[serde(default)]
    spans: Vec<StepSpan>,
}

#[derive(Deserialize)]
struct StepSpan {
    #[serde(default)]
    attributes: Vec<StepAttribute>,
    #[serde(default)]
    events: Vec<StepEvent>,
}

#[derive(Deserialize)]
struct StepEvent {
    #[serde(default)]
    name: String,
    #[serde(default)]
    attributes: Vec<StepAttribute>,
}

#[derive(Deserialize)]
struct StepAttribute {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: StepValue,
}

/// Integers are written as text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StepValue {
    #[serde(rename = "intValue")]
    int: Option<Number>,
    #[serde(rename = "doubleValue")]
    double: Option<Number>,
}

/// Reads all steps of an OTLP-JSON file, in its order; none if it has only other events.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str) -> Result<Vec<SampledStep>, TraceError> {
    let file: Arc<str> = file.into();
    let mut documents: Documents<_, StepsDocument> = Documents::new(input, &file);
    let mut steps = Vec::new();
    while let Some(document) = documents.next()? {
        let scopes = document.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            let instance = numbers(&span.attributes).get("instance").copied();
            for event in span.events.iter().filter(|event| event.name.ends_with("BATCH_SUMMARY")) {
                let step = SampledStep::new(&numbers(&event.attributes), instance);
                steps.push(step.map_err(|fault| fault.at(&file, documents.line()))?);
            }
        }
    }
    Ok(steps)
}

fn numbers(attributes: &[StepAttribute]) -> FxHashMap<&str, Number> {
    let pair = |attribute: &'_ StepAttribute| attribute.value.int.or(attribute.value.double);
    attributes.iter().filter_map(|attribute| Some((attribute.key.as_str(), pair(attribute)?))).collect()
}

impl SampledStep {
    fn new(numbers: &FxHashMap<&str, Number>, instance: Option<Number>) -> Result<Self, RowError> {
        let number = |key: &str| need(numbers.get(key).copied(), key);
        let count = |key: &str| number(key)?.count(key);
        let whole = |key: &str| match number(key)? {
            Number::Whole(value) => Ok(value),
            Number::Real(value) => Err(RowError::new(format!("`{key}` is not a whole number: `{value}`"))),
        };
        Ok(Self {
            id: whole("step.id")?,
            start_ns: whole("step.ts_start_ns")?,
            duration_us: numbers.get("step.duration_us").map(|number| number.real()),
            running: count("queue.running_depth")?,
            prefill_requests: count("batch.num_prefill_reqs")?,
            decode_requests: count("batch.num_decode_reqs")?,
            prefill_tokens: count("batch.prefill_tokens")?,
            finished: numbers.contains_key("batch.num_finished").then(|| count("batch.num_finished")).transpose()?,
            kv_blocks: whole("kv.blocks_total_gpu")?,
            free_kv_blocks: whole("kv.blocks_free_gpu")?,
            instance: instance.map(|number| number.count("instance")).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "scheduler_steps", "attributes": [{"key": "instance", "value": {"intValue": "2"}}], "events": [{"name": "step.BATCH_SUMMARY", "attributes": [{"key": "step.id", "value": {"intValue": "7"}}, {"key": "step.ts_start_ns", "value": {"intValue": "20020938183118"}}, {"key": "step.duration_us", "value": {"intValue": "682"}}, {"key": "queue.running_depth", "value": {"intValue": "10"}}, {"key": "batch.num_prefill_reqs", "value": {"intValue": "8"}}, {"key": "batch.num_decode_reqs", "value": {"intValue": "2"}}, {"key": "batch.prefill_tokens", "value": {"intValue": "2046"}}, {"key": "kv.usage_gpu_ratio", "value": {"doubleValue": 0.01}}, {"key": "kv.blocks_total_gpu", "value": {"intValue": "31356"}}, {"key": "kv.blocks_free_gpu", "value": {"intValue": "31030"}}]}, {"name": "other"}]}]}]}]}"#;

    #[test]
    fn events_become_steps() {
        let expected = SampledStep {
            id: 7,
            start_ns: 20_020_938_183_118,
            duration_us: Some(682.0),
            running: 10,
            prefill_requests: 8,
            decode_requests: 2,
            prefill_tokens: 2046,
            finished: None,
            kv_blocks: 31_356,
            free_kv_blocks: 31_030,
            instance: Some(2),
        };
        assert_eq!(read(LINE.as_bytes(), "o").unwrap(), [expected]);
        assert_eq!(read(br#"{"resourceSpans": []}"#.as_slice(), "o").unwrap(), []);
        let error = read(LINE.replace("step.id", "id").as_bytes(), "o.jsonl").unwrap_err();
        insta::assert_snapshot!(error, @"o.jsonl:1: `step.id` is missing");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, at: usize, byte: u8) {
            let _ = read(bytes.as_slice(), "x");
            let mut line = LINE.as_bytes().to_vec();
            line[at % LINE.len()] = byte;
            let _ = read(line.as_slice(), "x");
        }
    }
}
