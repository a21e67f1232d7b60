//! One request between queue and end.

use crate::instance::policy::QueueKey;
use crate::kv::fast::{Holding, Keys};
use crate::outcome::{Outcome, Status};
use crate::request::{Content, Request};
use crate::units::Micros;

slotmap::new_key_type! {
    /// A live request. Keys of ended requests are never mistaken for live ones.
    pub(super) struct Key;
}

/// [`Live::seq`] of a request outside the batch.
pub(super) const NOT_RUNNING: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting(QueueKey),
    Prefilling,
    /// One of the [`Decoders`](super::decoders::Decoders): `computed` and `generated` stand still
    /// at their values of when it joined.
    Decoding,
    Draining,
}

#[derive(Clone, Debug)]
pub(super) struct Live {
    pub request: Request,
    pub keys: Keys,
    pub state: State,
    /// Number of its admission, or [`NOT_RUNNING`].
    pub seq: u64,
    /// Tokens whose KV is computed (see [`State::Decoding`]).
    pub computed: u32,
    /// The most tokens it had computed before a preemption.
    pub furthest: u32,
    /// Tokens to compute before the next token comes out.
    pub target: u32,
    /// Tokens out (see [`State::Decoding`]).
    pub generated: u32,
    /// Tokens it computes in the present step, if it is in prefill.
    pub num_new: u32,
    /// Context the latency model sees in the present step, if it is in prefill.
    pub context: u32,
    pub holding: Holding,
    /// Decoding: `computed - v` at any `v`.
    pub base: i64,
    /// Decoding: the step from which on its inter-token latencies are those of the step log.
    pub joined_v: u64,
    /// Decoding: the virtual time at which its last token is out.
    pub finish_v: u64,
    /// When its inter-token latencies of the step log began.
    pub joined_at: Micros,
    /// The step (by number) in which it was last given a token in a request-by-request plan.
    pub planned_v: u64,
    /// It was left out of the last step: its last token is older than that.
    pub stalled: bool,
    /// When its last token came out; only kept up to date outside the step log.
    pub last_token: Micros,
    pub ttft: Option<Micros>,
    /// Inter-token latencies that are not, or no longer, in the sink: (gap, count).
    pub saved: Vec<(Micros, u32)>,
    pub scheduling_delay: Option<Micros>,
    pub cached_tokens: u32,
    pub preemptions: u32,
    /// Number of its deadline.
    pub deadline: Option<u64>,
}

impl Live {
    pub fn new(mut request: Request) -> Self {
        let content = std::mem::replace(&mut request.content, Content::UNIQUE);
        Self {
            keys: Keys::new(content),
            state: State::Prefilling,
            seq: NOT_RUNNING,
            computed: 0,
            furthest: 0,
            target: request.input_tokens,
            generated: 0,
            num_new: 0,
            context: 0,
            holding: Holding::default(),
            base: 0,
            joined_v: 0,
            finish_v: 0,
            joined_at: Micros::ZERO,
            planned_v: u64::MAX,
            stalled: false,
            last_token: Micros::ZERO,
            ttft: None,
            saved: Vec::new(),
            scheduling_delay: None,
            cached_tokens: 0,
            preemptions: 0,
            deadline: None,
            request,
        }
    }

    /// Decoding: tokens whose KV is computed before step `v`.
    pub fn computed_at(&self, v: u64) -> u32 {
        match self.state {
            State::Decoding => (self.base + v as i64) as u32,
            _ => self.computed,
        }
    }

    /// Tokens out before step `v`.
    pub fn generated_at(&self, v: u64) -> u32 {
        match self.state {
            State::Decoding => self.generated + v.saturating_sub(self.joined_v) as u32,
            _ => self.generated,
        }
    }

    pub fn outcome(&self, instance: u32, generated: u32, status: Status) -> Outcome {
        Outcome {
            instance: Some(instance),
            generated_tokens: generated,
            ttft: self.ttft,
            scheduling_delay: self.scheduling_delay,
            preemptions: self.preemptions,
            cached_tokens: self.cached_tokens,
            ..Outcome::new(&self.request, status)
        }
    }
}
