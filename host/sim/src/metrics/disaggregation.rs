//! Figures of requests that are prefilled on another instance than the one that decodes them.

use super::Distribution;
use super::aggregate::{InstanceSamples, per_second};
use super::distribution::Samples;
use crate::ids::{InstanceIndex, RequestId};
use crate::outcome::{EncodeTimes, Outcome, StageTimes};
use crate::units::Micros;

/// What prefill apart from decode did. The names are those of BLIS, where it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DisaggregationReport {
    /// Number of requests with a transfer of KV.
    pub disaggregated: u64,
    /// Requests that were dropped because the decode instance had no KV blocks when their prefill had ended (BLIS).
    pub dropped_at_decode: u64,
    /// Prefills that ended, per second.
    pub prefill_throughput: f64,
    /// Requests that ended on the instances that decode, per second.
    pub decode_throughput: f64,
    /// The larger of the two over the smaller; 1 if both are 0, infinite if one is.
    pub load_imbalance: f64,
    /// TTFT of requests that were prefilled elsewhere.
    pub ttft: Distribution,
    /// From the routing decision to the first step on the prefill instance.
    pub prefill_queue: Distribution,
    /// From there to the response of the prefill instance.
    pub prefill_time: Distribution,
    /// From there to the arrival on the decode instance.
    pub hold: Distribution,
    /// From there to the beginning of the transfer.
    pub decode_wait: Distribution,
    /// Duration of the transfer.
    pub transfer: Distribution,
    /// From its end to the first token.
    pub decode_first: Distribution,
    /// Prompt tokens with KV that was transferred.
    pub transferred_tokens: u64,
    /// Reads of KV of earlier turns from decode instances.
    pub reuse: Distribution,
    /// Prompt tokens with KV that was read so.
    pub reused_tokens: u64,
    /// Largest number of transfers in progress when one began, with it.
    pub peak_transfers: u32,
    /// Mean of these numbers over the transfers; 0 without any.
    pub mean_transfers: f64,
    /// Requests that instances which encode have answered.
    pub encoded: u64,
    /// Tokens of images, audio and video of these.
    pub encoded_tokens: u64,
    /// From the routing decision to the batch of the instance that encodes.
    pub encode_queue: Distribution,
    /// From there to its response.
    pub encode_time: Distribution,
    /// From there until the instance that computes the prompt has the embeddings.
    pub encode_transfer: Distribution,
}

/// The data of a [`DisaggregationReport`].
#[derive(Clone, Debug, Default)]
pub(super) struct DisaggregationSamples {
    /// The parts of requests by instance.
    parts: Vec<InstanceSamples>,
    /// The request of the stages that were reported last: its outcome follows.
    pub reported: Option<RequestId>,
    prefills: u64,
    decodes: u64,
    disaggregated: u64,
    tokens: u64,
    reused_tokens: u64,
    peak: u32,
    sum: u64,
    ttft: Samples,
    stages: [Samples; 7],
    encoded_tokens: u64,
    encode_stages: [Samples; 3],
}

impl DisaggregationSamples {
    /// A part of a request has ended on its instance.
    pub fn add_part(&mut self, part: &Outcome) {
        let Some(instance) = part.instance else { return };
        self.samples(instance).add(part);
        match part.output_tokens {
            0 => self.prefills += u64::from(part.completed()),
            _ => self.decodes += u64::from(part.completed()),
        }
    }

    /// A request that was not prefilled elsewhere has ended.
    pub fn add_whole(&mut self, outcome: &Outcome) {
        self.decodes += u64::from(outcome.completed());
    }

    /// The stages of a request, of which the outcome follows. It does not count if it arrived before `warmup`.
    pub fn add(&mut self, times: &StageTimes, warmup: Micros) {
        self.reported = Some(times.id);
        if times.arrival < warmup {
            return;
        }
        self.disaggregated += u64::from(times.transfer.is_some());
        self.tokens += u64::from(times.transferred_tokens);
        self.reused_tokens += u64::from(times.reused_tokens);
        self.peak = self.peak.max(times.transfers);
        self.sum += u64::from(times.transfers);
        self.ttft.extend(times.ttft);
        let stages = [
            times.prefill_queue,
            times.prefill_time,
            times.hold,
            times.decode_wait,
            times.transfer,
            times.decode_first,
            times.reuse,
        ];
        self.stages.iter_mut().zip(stages).for_each(|(samples, stage)| samples.extend(stage));
    }

    /// The stages of a request that was encoded first. It does not count if it arrived before `warmup`.
    pub fn add_encoded(&mut self, times: &EncodeTimes, warmup: Micros) {
        if times.arrival < warmup {
            return;
        }
        self.encoded_tokens += if times.time.is_some() { u64::from(times.tokens) } else { 0 };
        let stages = [times.queue, times.time, times.transfer];
        self.encode_stages.iter_mut().zip(stages).for_each(|(samples, stage)| samples.extend(stage));
    }

    /// The samples of the parts that `instance` has executed.
    pub fn samples(&mut self, instance: InstanceIndex) -> &mut InstanceSamples {
        if self.parts.len() <= instance.index() {
            self.parts.resize(instance.index() + 1, InstanceSamples::default());
        }
        &mut self.parts[instance.index()]
    }

    /// The figures, over a `duration`.
    pub fn report(&mut self, duration: Micros, dropped_at_decode: u64) -> DisaggregationReport {
        let [prefill_queue, prefill_time, hold, decode_wait, transfer, decode_first, reuse] =
            self.stages.each_mut().map(Samples::distribution);
        let [encode_queue, encode_time, encode_transfer] = self.encode_stages.each_mut().map(Samples::distribution);
        let (prefill, decode) = (per_second(self.prefills, duration), per_second(self.decodes, duration));
        let (least, most) = (prefill.min(decode), prefill.max(decode));
        DisaggregationReport {
            disaggregated: self.disaggregated,
            dropped_at_decode,
            prefill_throughput: prefill,
            decode_throughput: decode,
            load_imbalance: if most > 0.0 { most / least } else { 1.0 },
            ttft: self.ttft.distribution(),
            prefill_queue,
            prefill_time,
            hold,
            decode_wait,
            transfer,
            decode_first,
            transferred_tokens: self.tokens,
            reuse,
            reused_tokens: self.reused_tokens,
            peak_transfers: self.peak,
            mean_transfers: match transfer.count {
                0 => 0.0,
                transfers => self.sum as f64 / transfers as f64,
            },
            encoded: encode_time.count,
            encoded_tokens: self.encoded_tokens,
            encode_queue,
            encode_time,
            encode_transfer,
        }
    }
}
