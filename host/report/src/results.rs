//! The results of a replay for calibration tools: integers in µs per completed request.

use serde::{Serialize, Serializer};

use super::requests::{RequestLog, RequestRecord};
use blis_workload::Names;

/// The array of `--results-path`: requests that have both TTFT and end-to-end latency, in the order of their numbers.
pub fn results_document<'a>(log: &'a RequestLog, names: &'a Names) -> impl Serialize + 'a {
    Results { log, names }
}

struct Results<'a> {
    log: &'a RequestLog,
    names: &'a Names,
}

/// The file of `--results-path` (`blis replay`): requests with TTFT and E2E, in the order of their numbers. JSON:
/// `Vec<ResultJson>`.
impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let records = self.log.by_id();
        let results = records.into_iter().filter_map(|record| ResultJson::new(record, self.names));
        serializer.collect_seq(results)
    }
}

/// A request in the results file.
#[derive(Serialize)]
struct ResultJson<'a> {
    /// Number of the request. Unit: number.
    request_id: u32,
    /// Time to first token.
    ttft_us: u64,
    /// End-to-end latency of the request.
    e2e_us: u64,
    /// Number of input tokens.
    input_tokens: u32,
    /// Number of output tokens.
    output_tokens: u32,
    /// Name of its SLO class.
    #[serde(skip_serializing_if = "str::is_empty")]
    slo_class: &'a str,
    /// Model that the request names.
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
    /// Mean inter-token latency; absent if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    itl_mean_us: Option<f64>,
}

impl<'a> ResultJson<'a> {
    fn new(record: &RequestRecord, names: &'a Names) -> Option<Self> {
        Some(Self {
            request_id: record.id.0,
            ttft_us: record.ttft()?.0,
            e2e_us: record.e2e()?.0,
            input_tokens: record.input_tokens,
            output_tokens: record.output_tokens,
            slo_class: names.text(record.tags.slo_class),
            model: names.text(record.tags.model),
            itl_mean_us: (record.itl_mean_us > 0.0).then_some(record.itl_mean_us),
        })
    }
}
