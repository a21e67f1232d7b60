//! The state of one request between queue and end.

use slotmap::SlotMap;

use crate::ids::InstanceIndex;
use crate::instance::policy::QueueKey;
use crate::kv::fast::{BlockKeys, HeldBlocks};
use crate::numbers::narrow;
use crate::outcome::{Outcome, Status};
use crate::policy::Rank;
use crate::request::{Content, Request};
use crate::units::Micros;

/// [`LiveRequest::seq`] of a request outside the batch.
pub(super) const NOT_RUNNING: u64 = u64::MAX;

/// Marks a duration that is not known yet: no duration is that long.
const UNKNOWN: Micros = Micros(u64::MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    Waiting,
    /// It waits for its load from the CPU tier or, after it, for the batch.
    Loading,
    Prefilling,
    /// One of the [`Decoders`](super::decoders::Decoders): `computed` and `generated` keep their values from the time
    /// when it joined.
    Decoding,
    Draining,
}

/// The state of one request. With many instances it is no longer in the processor's caches when an event of the request
/// comes. It therefore fits three cache lines, together with the data that the arena puts in front, and data that most
/// requests never need is stored elsewhere ([`RareState`]).
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct LiveRequest {
    /// Admission number in the batch, or [`NOT_RUNNING`].
    pub seq: u64,
    /// Decoding: `computed - v`, which is the same at any `v`.
    pub base: i64,
    /// Decoding: the first step of which its inter-token latencies are in the step log.
    pub joined_v: u64,
    /// Time at which its inter-token latencies in the step log began. Waiting: when it joined the queue.
    pub joined_at: Micros,
    /// Tokens for which KV is computed (see [`RequestState::Decoding`]).
    pub computed: u32,
    /// Tokens generated (see [`RequestState::Decoding`]).
    pub generated: u32,
    /// Tokens to compute before the next token is generated.
    pub target: u32,
    pub state: RequestState,
    /// Whether it was left out of the last step, so that its last token is older than that step.
    pub stalled: bool,
    /// Decoding: whether it was given a token in the present request-by-request plan.
    pub planned: bool,
    pub preemptions: u32,
    pub cached_tokens: u32,
    /// Decoding: the virtual time at which its last token is generated.
    pub finish_v: u64,
    /// The request, without its content, which is in `keys`.
    pub request: Box<Request>,
    pub rare: Option<RareKey>,
    ttft: Micros,
    scheduling_delay: Micros,
    /// Number of its deadline, 0 if it has none.
    pub deadline: u32,
    /// The virtual time at which it was last admitted to the batch.
    pub admitted_v: u64,
    /// Rank of its sort key in the waiting queue.
    pub rank: Rank,
    pub holding: HeldBlocks,
    pub keys: BlockKeys,
    /// Tokens that it computes in the present step, if it is in prefill.
    pub num_new: u32,
    /// Context length for the latency model in the present step, if it is in prefill.
    pub context: u32,
}

const _: () = assert!(size_of::<LiveRequest>() <= 3 * 64 - 8);

slotmap::new_key_type! {
    /// Key of the [`RareState`] part of a request.
    pub(super) struct RareKey;
}

/// Data that is needed only for requests that were preempted, left out of a step, or loaded from the CPU tier.
#[derive(Clone, Debug, Default)]
pub(super) struct RareState {
    /// Maximum number of tokens that it had computed before a preemption.
    pub furthest: u32,
    /// Time of its last token; only kept up to date while it is not in the step log.
    pub last_token: Micros,
    /// Time at which it first waited for a slot of its adapter, if it does.
    pub slot_wanted: Option<Micros>,
    /// Inter-token latencies that are not reported yet, or were retracted: (gap, count).
    pub saved: Vec<(Micros, u32)>,
    /// Prompt tokens that the CPU tier had at its first admission to the batch.
    pub cpu_cached_tokens: u32,
    /// Time of its loads from the CPU tier, and the beginning of the present one.
    pub kv_load_wait: Micros,
    pub load_began: Micros,
}

/// The rare parts of all requests of an instance that have one.
#[derive(Clone, Debug, Default)]
pub(super) struct RareStates(SlotMap<RareKey, RareState>);

impl RareStates {
    /// The rare part of `live`, created if it does not exist.
    pub fn state(&mut self, live: &mut LiveRequest) -> &mut RareState {
        let key = *live.rare.get_or_insert_with(|| self.0.insert(RareState::default()));
        &mut self.0[key]
    }

    /// Maximum number of tokens that `live` ever had computed, before step `v`.
    pub fn furthest_at(&self, live: &LiveRequest, v: u64) -> u32 {
        live.rare.map_or(0, |key| self.0[key].furthest).max(live.computed_at(v))
    }

    /// [`RareState::saved`], empty if `live` has no rare part.
    pub fn saved(&self, live: &LiveRequest) -> &[(Micros, u32)] {
        live.rare.map_or(&[], |key| &self.0[key].saved)
    }

    /// Adds to `outcome` of `live` what it loaded.
    #[inline]
    pub fn add_loads(&self, live: &LiveRequest, outcome: &mut Outcome) {
        if let Some(key) = live.rare {
            let &RareState { cpu_cached_tokens, kv_load_wait, .. } = &self.0[key];
            (outcome.cpu_cached_tokens, outcome.kv_load_wait) = (cpu_cached_tokens, kv_load_wait);
        }
    }

    /// `live` waits for no slot of an adapter any more: since when it did, if it did.
    pub fn end_slot_wait(&mut self, live: &LiveRequest) -> Option<Micros> {
        self.0[live.rare?].slot_wanted.take()
    }

    /// Removes the rare part of `live`, which has ended.
    pub fn forget(&mut self, live: &LiveRequest) {
        if let Some(key) = live.rare {
            self.0.remove(key);
        }
    }
}

impl RareState {
    /// Records the latency of a token generated at `end` that is not in the step log.
    pub fn resumes(&mut self, end: Micros, per_token: Micros) {
        self.saved.push((end - self.last_token + per_token, 1));
    }
}

impl LiveRequest {
    pub fn new(mut request: Box<Request>, rank: Rank, queued_at: Micros) -> Self {
        let content = std::mem::replace(&mut request.content, Content::UNIQUE);
        Self {
            seq: NOT_RUNNING,
            base: 0,
            joined_v: 0,
            joined_at: queued_at,
            finish_v: 0,
            computed: 0,
            generated: 0,
            preemptions: 0,
            cached_tokens: 0,
            state: RequestState::Waiting,
            stalled: false,
            planned: false,
            rare: None,
            ttft: UNKNOWN,
            scheduling_delay: UNKNOWN,
            admitted_v: 0,
            deadline: 0,
            holding: HeldBlocks::default(),
            keys: BlockKeys::new(content),
            rank,
            target: request.input_tokens,
            num_new: 0,
            context: 0,
            request,
        }
    }

    /// Its sort key in the waiting queue, while it waits.
    pub fn queue_key(&self) -> QueueKey {
        QueueKey::new(self.rank, &self.request)
    }

    /// Tokens for which KV is computed before step `v`.
    pub fn computed_at(&self, v: u64) -> u32 {
        match self.state {
            RequestState::Decoding => narrow((self.base + v as i64).cast_unsigned()),
            _ => self.computed,
        }
    }

    /// Tokens generated before step `v`.
    pub fn generated_at(&self, v: u64) -> u32 {
        match self.state {
            RequestState::Decoding => self.generated + narrow(v.saturating_sub(self.joined_v)),
            _ => self.generated,
        }
    }

    pub fn ttft(&self) -> Option<Micros> {
        (self.ttft != UNKNOWN).then_some(self.ttft)
    }

    pub fn set_ttft(&mut self, ttft: Micros) {
        self.ttft = ttft;
    }

    pub fn scheduling_delay(&self) -> Option<Micros> {
        (self.scheduling_delay != UNKNOWN).then_some(self.scheduling_delay)
    }

    pub fn set_scheduling_delay(&mut self, delay: Micros) {
        self.scheduling_delay = delay;
    }

    pub fn outcome(&self, instance: InstanceIndex, generated: u32, status: Status) -> Outcome {
        Outcome {
            instance: Some(instance),
            generated_tokens: generated,
            ttft: self.ttft(),
            scheduling_delay: self.scheduling_delay(),
            preemptions: self.preemptions,
            cached_tokens: self.cached_tokens,
            ..Outcome::new(&self.request, status)
        }
    }
}
