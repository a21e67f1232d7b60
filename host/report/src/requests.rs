//! One record per request, for the file of `--metrics-path`.
//!
//! Records are kept only if that file is written: a [`RequestLog`] takes 104 bytes per request, the aggregate figures
//! need 12.

use std::borrow::Cow;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{EncodeTimes, Outcome, StageTimes, Status};
use blis_sim::request::Tags;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use blis_sim::request::session_text;
use blis_workload::Names;

/// An observer that keeps the outcome of every request.
#[derive(Clone, Debug, Default)]
pub struct RequestLog {
    /// The records in parts of [`RequestLog::PART`]: one list of a million would be copied again and again as it grows.
    parts: Vec<Vec<RequestRecord>>,
    /// Times in the gateway's queue, of requests that waited there.
    waited: FxHashMap<RequestId, Micros>,
    /// The stages of requests that were prefilled and decoded on different instances.
    stages: FxHashMap<RequestId, StageTimes>,
    /// The stages of requests that were encoded first.
    encoded: FxHashMap<RequestId, EncodeTimes>,
}

/// An [`Outcome`] without the fields that no report needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestRecord {
    pub arrival: Micros,
    /// TTFT; [`RequestRecord::MISSING`] without a first token.
    ttft: Micros,
    /// End-to-end latency; [`RequestRecord::MISSING`] unless the request completed.
    e2e: Micros,
    /// From arrival to the last admission to the batch; [`RequestRecord::MISSING`] if it never entered one.
    scheduling_delay: Micros,
    /// Mean ITL of this request, µs.
    pub itl_mean_us: f64,
    /// The request.
    pub id: RequestId,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// Output tokens that the request asks for.
    pub output_tokens: u32,
    /// Number of its preemptions.
    pub preemptions: u32,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
    pub status: Status,
    /// The instance that served it.
    pub instance: Option<InstanceIndex>,
    /// Class, tenant, session and model of the request.
    pub tags: Tags,
}

impl RequestRecord {
    /// Stands for a missing duration, which saves the 8 bytes of an `Option`.
    const MISSING: Micros = Micros(u64::MAX);

    /// The TTFT, if there was a first token.
    #[must_use]
    pub fn ttft(&self) -> Option<Micros> {
        Self::present(self.ttft)
    }

    #[must_use]
    pub fn e2e(&self) -> Option<Micros> {
        Self::present(self.e2e)
    }

    /// From arrival to the last admission to the running batch.
    #[must_use]
    pub fn scheduling_delay(&self) -> Option<Micros> {
        Self::present(self.scheduling_delay)
    }

    fn present(duration: Micros) -> Option<Micros> {
        (duration != Self::MISSING).then_some(duration)
    }
}

impl From<&Outcome> for RequestRecord {
    fn from(outcome: &Outcome) -> Self {
        Self {
            arrival: outcome.arrival,
            ttft: outcome.ttft.unwrap_or(Self::MISSING),
            e2e: outcome.e2e.unwrap_or(Self::MISSING),
            scheduling_delay: outcome.scheduling_delay.unwrap_or(Self::MISSING),
            itl_mean_us: outcome.itl_mean_us,
            id: outcome.id,
            input_tokens: outcome.input_tokens,
            output_tokens: outcome.output_tokens,
            preemptions: outcome.preemptions,
            cached_tokens: outcome.cached_tokens,
            status: outcome.status,
            instance: outcome.instance,
            tags: outcome.tags,
        }
    }
}

impl RequestLog {
    /// Records of a part.
    const PART: usize = 1 << 13;

    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The records in the order in which the requests ended.
    pub(super) fn records(&self) -> impl Iterator<Item = &RequestRecord> {
        self.parts.iter().flatten()
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    fn add(&mut self, record: RequestRecord) {
        match self.parts.last_mut() {
            Some(part) if part.len() < Self::PART => part.push(record),
            Some(_) => {
                let mut part = Vec::with_capacity(Self::PART);
                part.push(record);
                self.parts.push(part);
            }
            None => self.parts.push(vec![record]),
        }
    }

    /// The time of the request in the gateway's queue.
    pub(super) fn waited(&self, id: RequestId) -> Micros {
        if self.waited.is_empty() { Micros::ZERO } else { self.waited.get(&id).copied().unwrap_or_default() }
    }

    /// The records in the order of arrival, then of their numbers.
    pub(super) fn by_arrival(&self) -> Vec<&RequestRecord> {
        let mut records: Vec<_> = self.records().collect();
        records.sort_unstable_by_key(|record| (record.arrival, record.id));
        records
    }

    /// The records in the order of their numbers.
    pub(super) fn by_id(&self) -> Vec<&RequestRecord> {
        let mut records: Vec<_> = self.records().collect();
        records.sort_unstable_by_key(|record| record.id);
        records
    }
}

impl Observer for RequestLog {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES | Interests::GATEWAY
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        match event {
            SimEvent::Outcome(outcome) => self.add((*outcome).into()),
            SimEvent::Disaggregated(times) => {
                self.stages.insert(times.id, **times);
            }
            SimEvent::Encoded(times) => {
                self.encoded.insert(times.id, **times);
            }
            SimEvent::Dispatched { request, waited } if *waited > Micros::ZERO => {
                self.waited.insert(request.id, *waited);
            }
            _ => {}
        }
    }
}

/// `requests[]` of the metrics file: every request that was neither rejected nor dropped, in the order of arrival.
/// Published fields come first, in their order, then the additions (from `status` on). A missing value is 0.
pub(super) struct RequestsDocument<'a> {
    pub log: &'a RequestLog,
    pub names: &'a Names,
}

/// The requests in the order of arrival. JSON: `Vec<RequestJson>`.
impl Serialize for RequestsDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let records = self.log.by_arrival();
        let served =
            records.into_iter().filter(|record| !matches!(record.status, Status::Dropped(_) | Status::Rejected(_)));
        let waited = |id| self.log.waited.get(&id).copied();
        let stages = |id| self.log.stages.get(&id).map(StagesJson::new);
        serializer.collect_seq(served.map(|record| RequestJson {
            encoded: self.log.encoded.get(&record.id).map(EncodingJson::new),
            stages: stages(record.id),
            ..RequestJson::new(record, waited(record.id), self.names)
        }))
    }
}

/// A request in the metrics file. A latency that does not exist is 0.
#[derive(Serialize)]
struct RequestJson<'a> {
    /// Time of arrival. Unit: s.
    arrived_at: f64,
    /// `request_` and its number.
    #[serde(rename = "requestID")]
    request_id: String,
    /// Number of input tokens.
    num_prefill_tokens: u32,
    /// Number of output tokens.
    num_decode_tokens: u32,
    /// Time to first token.
    ttft_ms: f64,
    /// Mean of its inter-token latencies.
    itl_ms: f64,
    /// End-to-end latency of the request.
    e2e_ms: f64,
    /// Time from arrival to the running batch.
    scheduling_delay_ms: f64,
    /// Name of its SLO class.
    #[serde(skip_serializing_if = "str::is_empty")]
    slo_class: &'a str,
    /// Name of its tenant.
    #[serde(skip_serializing_if = "str::is_empty")]
    tenant_id: &'a str,
    /// `instance_` and the number of its instance.
    #[serde(skip_serializing_if = "String::is_empty")]
    handled_by: String,
    /// Model that the request names.
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
    /// LoRA adapter that the request names.
    #[serde(skip_serializing_if = "str::is_empty")]
    adapter: &'a str,
    /// Present and true if the output was cut at the maximum model length.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    length_capped: bool,
    /// Time in the gateway's queue, part of all latencies; absent without flow control and if it did not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_queue_delay_ms: Option<f64>,
    /// Name of its session.
    #[serde(skip_serializing_if = "is_empty")]
    session_id: Cow<'a, str>,
    /// Round of the session, from 0. Unit: number.
    round_index: u32,
    /// How it ended. One of `completed`, `timed_out`, `evicted`, `queued`, `running`, `arriving`, `in_gateway`.
    status: &'static str,
    /// Number of its preemptions. Unit: events.
    preemption_count: u32,
    /// Input tokens found in the prefix cache.
    num_cached_tokens: u32,
    #[serde(flatten)]
    encoded: Option<EncodingJson>,
    #[serde(flatten)]
    stages: Option<StagesJson>,
}

/// The stages of a request that was encoded first. A stage that it did not end is `null`.
#[derive(Serialize)]
struct EncodingJson {
    /// The instance that encoded its images, audio and video, if one did first; this and the following four are absent
    /// otherwise.
    encoded_by: String,
    /// From the routing decision to the batch of that instance with its media; `null` if it did not get there.
    encode_queue_ms: Option<f64>,
    /// From there to the response of that instance; `null` if it did not get there.
    encode_ms: Option<f64>,
    /// From there until the instance that computes the prompt has the embeddings; `null` if it did not get there.
    encode_transfer_ms: Option<f64>,
    /// Input tokens of images, audio and video.
    encoded_tokens: u32,
}

impl EncodingJson {
    fn new(times: &EncodeTimes) -> Self {
        let ms = |stage: Option<Micros>| stage.map(Micros::as_millis_f64);
        Self {
            encoded_by: format!("instance_{}", times.encode),
            encode_queue_ms: ms(times.queue),
            encode_ms: ms(times.time),
            encode_transfer_ms: ms(times.transfer),
            encoded_tokens: times.tokens,
        }
    }
}

/// The stages of a request that was prefilled and decoded on different instances. A stage that it did not reach is `null`.
#[derive(Serialize)]
struct StagesJson {
    /// The instance that prefilled it, if that was another than the one that decoded it; the following are absent
    /// otherwise.
    prefilled_by: String,
    /// From the routing decision, or from the end of `encode_transfer_ms`, to the first step on the prefill instance;
    /// `null` if it did not get there.
    p_queue_ms: Option<f64>,
    /// From there to the response of the prefill instance; `null` if it did not get there.
    p_prefill_ms: Option<f64>,
    /// From there to the arrival on the decode instance; `null` if it did not get there.
    hold_ms: Option<f64>,
    /// From there until the decode instance had KV blocks; `null` if it did not get there.
    d_wait_ms: Option<f64>,
    /// Transfer of KV blocks; `null` if it did not get there.
    transfer_ms: Option<f64>,
    /// From its end to the first token; `null` if it did not get there.
    d_first_ms: Option<f64>,
    /// Input tokens with KV that was transferred.
    transferred_tokens: u32,
    /// Read of KV of an earlier turn by the prefill instance, a part of `p_queue_ms`; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    reuse_ms: Option<f64>,
    /// Input tokens with KV that was read so; absent without such a read. Unit: tokens, 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_tokens: Option<u32>,
}

impl StagesJson {
    fn new(times: &StageTimes) -> Self {
        let ms = |stage: Option<Micros>| stage.map(Micros::as_millis_f64);
        Self {
            prefilled_by: format!("instance_{}", times.prefill),
            p_queue_ms: ms(times.prefill_queue),
            p_prefill_ms: ms(times.prefill_time),
            hold_ms: ms(times.hold),
            d_wait_ms: ms(times.decode_wait),
            transfer_ms: ms(times.transfer),
            d_first_ms: ms(times.decode_first),
            transferred_tokens: times.transferred_tokens,
            reuse_ms: ms(times.reuse),
            reused_tokens: Some(times.reused_tokens).filter(|&tokens| tokens > 0),
        }
    }
}

impl<'a> RequestJson<'a> {
    fn new(record: &RequestRecord, waited: Option<Micros>, names: &'a Names) -> Self {
        let ms = |duration: Option<Micros>| duration.unwrap_or_default().as_millis_f64();
        Self {
            arrived_at: record.arrival.as_secs_f64(),
            request_id: format!("request_{}", record.id),
            num_prefill_tokens: record.input_tokens,
            num_decode_tokens: record.output_tokens,
            ttft_ms: ms(record.ttft()),
            itl_ms: record.itl_mean_us / 1e3,
            e2e_ms: ms(record.e2e()),
            scheduling_delay_ms: ms(record.scheduling_delay()),
            slo_class: names.text(record.tags.slo_class),
            tenant_id: names.text(record.tags.tenant),
            handled_by: record.instance.map(|instance| format!("instance_{instance}")).unwrap_or_default(),
            model: names.text(record.tags.model),
            adapter: names.text(record.tags.adapter),
            length_capped: record.status == Status::LengthCapped,
            gateway_queue_delay_ms: waited.map(Micros::as_millis_f64),
            session_id: session_text(names.texts(), record.tags.session),
            round_index: record.tags.round_index,
            status: status_name(record.status),
            preemption_count: record.preemptions,
            num_cached_tokens: record.cached_tokens,
            encoded: None,
            stages: None,
        }
    }
}

fn is_empty(text: &str) -> bool {
    text.is_empty()
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::Completed | Status::LengthCapped => "completed",
        Status::TimedOut => "timed_out",
        Status::Evicted => "evicted",
        Status::Dropped(_) => "dropped",
        Status::Queued => "queued",
        Status::Running => "running",
        Status::Arriving => "arriving",
        Status::InGateway => "in_gateway",
        Status::Rejected(_) => "rejected",
    }
}
