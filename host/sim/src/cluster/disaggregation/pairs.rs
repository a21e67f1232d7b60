//! Requests of which the two parts are on different instances, and the events between the parts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::encoders::Encoders;
use super::kept::{KeptKv, KeptTurn};
use super::network::{EndedRead, Moved, NetworkReads};
use super::{DisaggregationConfig, TransferFlow};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::KvRead;
use crate::numbers::count;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{EncodeTimes, FirstToken, Outcome, StageTimes, Status};
use crate::policy::{
    ClusterView, DisaggregationDecision, Event, PoolsView, Reads, RequestView, TransferLoad, TransfersView,
};
use crate::request::{Name, Request, Tags};
use crate::units::Micros;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairStage {
    /// On its way to the prefill instance, or there.
    Prefill,
    /// Behind its prefill, before its decode instance.
    Between,
    /// On the decode instance.
    Decode,
}

/// A request that is prefilled on another instance than the one that decodes it.
#[derive(Clone, Debug)]
pub(super) struct SplitRequest {
    pub request: Box<Request>,
    pub decode: InstanceIndex,
    /// The prefill instance; in BLIS it is chosen after the decision.
    pub prefill: InstanceIndex,
    pub stage: PairStage,
    routed: Micros,
    /// The outcome of the prefill, and when its response was there.
    prefilled: Option<(Outcome, Micros)>,
    /// An earlier turn of its session, of which a decode instance keeps the KV, until its prefill has read it or ended without.
    earlier: Option<(InstanceIndex, RequestId)>,
    reuse_began: Option<Micros>,
    reuse_ended: Option<Micros>,
    reused_tokens: u32,
    pub decode_arrival: Option<Micros>,
    transfer_began: Option<Micros>,
    transfer_ended: Option<Micros>,
    ttft: Option<Micros>,
    transferred_tokens: u32,
    transfers: u32,
}

impl SplitRequest {
    fn times(&self) -> StageTimes {
        let queued_until =
            self.prefilled.as_ref().and_then(|(outcome, _)| Some(outcome.arrival + outcome.scheduling_delay?));
        let prefilled = self.prefilled.as_ref().map(|&(_, at)| at);
        let first = self.ttft.map(|ttft| self.request.arrival.saturating_add(ttft));
        let between = |from: Option<Micros>, to: Option<Micros>| Some(to?.saturating_sub(from?));
        StageTimes {
            id: self.request.id,
            arrival: self.request.arrival,
            prefill: self.prefill,
            decode: self.decode,
            prefill_queue: between(Some(self.routed), queued_until),
            prefill_time: between(queued_until, prefilled),
            hold: between(prefilled, self.decode_arrival),
            decode_wait: between(self.decode_arrival, self.transfer_began),
            transfer: between(self.transfer_began, self.transfer_ended),
            decode_first: between(self.transfer_ended, first),
            ttft: self.ttft,
            transferred_tokens: self.transferred_tokens,
            transfers: self.transfers,
            reuse: between(self.reuse_began, self.reuse_ended),
            reused_tokens: self.reused_tokens,
        }
    }
}

/// An event between the parts of a request, in the order in which simultaneous ones are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PairEvent {
    /// The prefill instance is chosen (BLIS).
    RoutePrefill(RequestId),
    /// The request reaches the instance that encodes it.
    ArriveEncode(RequestId),
    /// The batch of an instance that encodes ends.
    EndBatch(InstanceIndex),
    /// An instance that encodes begins a batch, if it can: after all requests that arrive there at that time.
    BeginBatch(InstanceIndex),
    /// The response of the instance that encodes the request is there.
    Encoded(RequestId),
    /// The instance that computes the prompt begins to read the embeddings.
    ReadEmbeddings(RequestId),
    /// The request reaches its prefill instance.
    ArrivePrefill(RequestId),
    /// KV blocks are reserved, and the transfer begins (BLIS).
    StartTransfer(RequestId),
    /// The request reaches its decode instance.
    ArriveDecode(RequestId),
    /// The decode part has ended without a read: the blocks of the prefill are released.
    Release(InstanceIndex, RequestId),
    /// The blocks that a decode instance keeps of a request are released.
    ReleaseKept(InstanceIndex, RequestId),
    /// The time is over for which a decode instance keeps the blocks of a request.
    Expire(RequestId),
    /// A request no longer needs an instance, which may drain.
    Left(InstanceIndex),
    /// A first token, this time after the arrival of its request.
    FirstToken(Micros),
}

/// What happens next between the instances.
#[derive(Clone, Debug)]
pub(super) enum DueEvent {
    Pair(PairEvent),
    /// Reads have ended.
    Read(Vec<EndedRead>),
    /// The client of a request that is encoded times out.
    TimedOut(RequestId),
}

/// The end of a part of a request.
pub(in super::super) struct StageEnd {
    /// The outcome of the part.
    pub part: Outcome,
    /// A request that the router no longer counts as in flight on this instance.
    pub leaves: Option<Outcome>,
    /// If the whole request has ended: its stages, and its outcome.
    pub whole: Option<(StageTimes, Outcome)>,
}

/// All requests with two parts.
#[derive(Clone, Debug)]
pub(in super::super) struct Pairs {
    pub(super) settings: DisaggregationConfig,
    pub(super) prefill: Vec<InstanceIndex>,
    pub(super) decode: Vec<InstanceIndex>,
    pub(super) encode: Vec<InstanceIndex>,
    live: FxHashMap<RequestId, SplitRequest>,
    events: BinaryHeap<Reverse<(Micros, PairEvent, u64)>>,
    scheduled: u64,
    pub(super) network: Option<NetworkReads>,
    /// The instances that encode, if encoding takes time.
    pub(super) encoders: Option<Box<Encoders>>,
    /// Transfers in progress (BLIS).
    pub(super) transfers: u32,
    /// Moving average of the time of a read, µs per token; 0 before the first.
    us_per_token: f64,
    /// The reads in progress by instance, of the latest decision that needed them.
    loads: Vec<TransferLoad>,
    /// The time of the step that is being executed.
    pub now: Micros,
    /// If instances come and go.
    pub(super) scaled: Option<ScaledPools>,
    /// What decode instances keep for the next turns of sessions.
    kept: KeptKv,
}

/// The requests that need each instance, and a number that changes with the pools.
#[derive(Clone, Debug, Default)]
pub(super) struct ScaledPools {
    /// Requests that are on their way to the instance, are there, or have blocks there that are still to be read, by its index.
    pub users: Vec<u32>,
    pub version: u64,
}

impl Pairs {
    pub fn new(settings: DisaggregationConfig) -> Self {
        let network = match &settings.flow {
            TransferFlow::Nixl(flow) => Some(NetworkReads::new(flow.network.clone())),
            TransferFlow::Blis(_) => None,
        };
        let encoders = match &settings.flow {
            TransferFlow::Nixl(flow) if settings.encodes() => Some(Box::new(Encoders::new(flow.encoders.clone()))),
            _ => None,
        };
        Self {
            prefill: settings.pool(super::InstanceRole::prefills),
            decode: settings.pool(super::InstanceRole::decodes),
            encode: settings.pool(|role| role == super::InstanceRole::Encode),
            settings,
            live: FxHashMap::default(),
            events: BinaryHeap::new(),
            scheduled: 0,
            network,
            encoders,
            transfers: 0,
            us_per_token: 0.0,
            loads: Vec::new(),
            now: Micros::ZERO,
            scaled: None,
            kept: KeptKv::default(),
        }
    }

    /// The signals that its policies read.
    pub fn reads(&self) -> Reads {
        self.settings.routings().fold(self.settings.decider.reads(), |reads, pool| reads.and(pool.policy.reads()))
    }

    /// Delivers an event to the policies that receive its kind: the one that decides, and those of pools.
    pub fn observe(&mut self, event: &Event) {
        for pool in self.settings.routings_mut().filter(|pool| pool.policy.events().include(event.kind)) {
            pool.policy.observe(event);
        }
        if self.settings.decider.events().include(event.kind) {
            self.settings.decider.observe(event);
        }
    }

    /// Time of the next event; [`Micros::MAX`] if there is none.
    #[inline]
    pub fn next_event(&self) -> Micros {
        let scheduled = self.events.peek().map(|&Reverse((at, ..))| at);
        let network = self.network.as_ref().and_then(NetworkReads::next_event);
        let timeout = self.encoders.as_ref().and_then(|encoders| encoders.next_timeout());
        scheduled.into_iter().chain(network).chain(timeout).min().unwrap_or(Micros::MAX)
    }

    /// Removes and returns the next event, which is at `now`.
    pub(super) fn take_due(&mut self, now: Micros) -> Option<DueEvent> {
        if let Some(network) = &mut self.network
            && network.next_event() == Some(now)
        {
            // Simultaneous events have a fixed order, for determinism: ends of reads, timeouts, the others.
            return Some(DueEvent::Read(network.advance(now)));
        }
        if let Some(id) = self.encoders.as_ref().and_then(|encoders| encoders.timed_out(now)) {
            return Some(DueEvent::TimedOut(id));
        }
        self.events.peek().filter(|&&Reverse((at, ..))| at <= now)?;
        self.events.pop().map(|Reverse((_, event, _))| DueEvent::Pair(event))
    }

    pub(super) fn schedule(&mut self, at: Micros, event: PairEvent) {
        self.scheduled += 1;
        self.events.push(Reverse((at, event, self.scheduled)));
    }

    /// Adds `request`, which was routed at `now`.
    pub(super) fn add(&mut self, now: Micros, request: Box<Request>, prefill: InstanceIndex, decode: InstanceIndex) {
        let pair = SplitRequest {
            decode,
            prefill,
            stage: PairStage::Prefill,
            routed: now,
            prefilled: None,
            earlier: None,
            reuse_began: None,
            reuse_ended: None,
            reused_tokens: 0,
            decode_arrival: None,
            transfer_began: None,
            transfer_ended: None,
            ttft: None,
            transferred_tokens: 0,
            transfers: 0,
            request,
        };
        self.live.insert(pair.request.id, pair);
        [prefill, decode].into_iter().for_each(|instance| self.begin_use(instance));
    }

    /// Number of requests that have not ended and have two parts, or are encoded.
    pub fn count(&self) -> usize {
        self.live.len() + self.encoders.as_ref().map_or(0, |encoders| encoders.count_whole())
    }

    /// Time of a request or response by HTTP between the sidecar of the decode instance and an engine.
    pub(super) fn hop(&self) -> Micros {
        self.network.as_ref().map_or(Micros::ZERO, |network| network.settings().hop)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut SplitRequest> {
        self.live.get_mut(&id)
    }

    /// The instance that executes `id` now, if it has two parts.
    pub fn instance_of(&self, id: RequestId) -> Option<InstanceIndex> {
        let pair = self.live.get(&id)?;
        Some(if pair.stage == PairStage::Decode { pair.decode } else { pair.prefill })
    }

    /// A transfer of `tokens` tokens of request `id` begins at `now`, while `transfers` are in progress, with it.
    pub(super) fn begins(&mut self, now: Micros, id: RequestId, tokens: u32, transfers: u32) {
        if let Some(pair) = self.live.get_mut(&id) {
            pair.transfer_began = Some(now);
            (pair.transferred_tokens, pair.transfers) = (tokens, transfers);
        }
    }

    /// The transfer of request `id` ends at `now`.
    pub(super) fn transferred(&mut self, now: Micros, id: RequestId) {
        let Some(pair) = self.live.get_mut(&id) else { return };
        pair.transfer_ended = Some(now);
        if let Some(began) = pair.transfer_began
            && pair.transferred_tokens > 0
        {
            let us = now.saturating_sub(began).0 as f64 / f64::from(pair.transferred_tokens);
            self.us_per_token =
                if self.us_per_token == 0.0 { us } else { self.us_per_token + 0.1 * (us - self.us_per_token) };
        }
    }

    /// Asks the policy whether `request` is prefilled elsewhere, for which the instance `chosen` was chosen.
    pub(super) fn decide(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        chosen: InstanceIndex,
    ) -> DisaggregationDecision {
        let Self { settings, decode, prefill, network, loads, us_per_token, .. } = self;
        let transfers = match network.as_ref().filter(|_| settings.decider.reads_transfers()) {
            Some(network) => {
                let total = network.loads(loads);
                TransfersView { total, us_per_token: *us_per_token, by_instance: loads }
            }
            None => TransfersView::default(),
        };
        settings.decider.decide(request, &PoolsView { cluster, decode, chosen, prefill, transfers })
    }

    /// An instance begins to read: a decode instance what was prefilled, or a prefill instance an earlier turn.
    pub(super) fn reads_kv(&mut self, read: KvRead) {
        let (Some(pair), Some(network)) = (self.live.get_mut(&read.id), &mut self.network) else { return };
        if pair.stage == PairStage::Prefill {
            let Some((source, turn)) = pair.earlier else { return };
            (pair.reuse_began, pair.reused_tokens) = (Some(read.at), read.tokens);
            let moved = Moved::Decoded(turn);
            network.begin(read.at, EndedRead { id: read.id, moved, source, destination: pair.prefill }, read.tokens);
            // The read of an earlier turn is no part of the transfer to the decode instance, which is timed apart.
            return;
        }
        let (source, destination) = (pair.prefill, pair.decode);
        network.begin(read.at, EndedRead { id: read.id, moved: Moved::Prefilled, source, destination }, read.tokens);
        let transfers = count(network.count());
        self.begins(read.at, read.id, read.tokens, transfers);
    }

    /// How long decode instances keep blocks for the next turns of sessions; `None`: not at all.
    fn keeps(&self) -> Option<Micros> {
        match &self.settings.flow {
            TransferFlow::Nixl(flow) => flow.keeps,
            TransferFlow::Blis(_) => None,
        }
    }

    /// Lets the prefill of `request` on `prefill` read the last turn of its session, if a decode instance keeps its KV. Returns that turn.
    pub(super) fn take_turn(
        &mut self,
        now: Micros,
        request: &mut Request,
        prefill: InstanceIndex,
        block_size: u32,
    ) -> Option<(InstanceIndex, RequestId)> {
        self.keeps()?;
        let turn = self.kept.take(now, request.tags.session, request.id)?;
        let tokens = turn.tokens_of(request, block_size);
        if turn.instance != prefill {
            (request.remote_tokens, request.remote_until) = (tokens, turn.until);
        }
        Some((turn.instance, turn.id))
    }

    /// The prefill of request `id`, which is live, is one that may read the turn `earlier`.
    pub(super) fn follows(&mut self, id: RequestId, earlier: Option<(InstanceIndex, RequestId)>) {
        self.live.get_mut(&id).into_iter().for_each(|pair| pair.earlier = earlier);
    }

    /// The prefill of request `id` has read an earlier turn at `now`.
    pub(super) fn reused(&mut self, now: Micros, id: RequestId) {
        self.live.get_mut(&id).into_iter().for_each(|pair| pair.reuse_ended = Some(now));
    }

    /// Removes and returns the turns of which `instance` keeps the blocks.
    pub fn forget_kept(&mut self, instance: InstanceIndex) -> Vec<RequestId> {
        self.kept.forget(instance)
    }

    /// The time is over for which the blocks of `turn` are kept. Returns the instance that keeps them, if they can be released.
    pub(super) fn expire(&mut self, turn: RequestId) -> Option<InstanceIndex> {
        let (instance, next) = self.kept.get(turn)?;
        if let Some(next) = next {
            // A read that has begun ends; without one, its prefill computes all.
            self.live.get_mut(&next).filter(|pair| pair.reuse_began.is_none())?.earlier.take()?;
        }
        Some(instance)
    }

    /// The blocks of `turn` are released. Returns whether they were kept.
    pub(super) fn released(&mut self, turn: RequestId) -> bool {
        self.kept.release(turn)
    }

    /// A part of a request generates its first token. Returns whether that is the first token of the request, and the time of the part:
    /// a prefill counts from the arrival of the request on, a decode part from its own.
    pub fn first_token(&mut self, first: &FirstToken) -> (bool, Micros) {
        let Some(pair) = self.live.get_mut(&first.id) else { return (true, first.ttft) };
        if pair.stage != PairStage::Decode {
            // vLLM discards the token of the prefill: the client gets its first one from the decode instance.
            return (false, first.ttft);
        }
        pair.ttft = Some(first.ttft);
        let at = first.arrival.saturating_add(first.ttft);
        let of_part = pair.decode_arrival.map_or(first.ttft, |arrival| at.saturating_sub(arrival));
        if self.settings.decider.reads_first_tokens() {
            self.schedule(at, PairEvent::FirstToken(first.ttft));
        }
        (true, of_part)
    }

    /// A part has ended, or the simulation.
    pub fn stage_ended(&mut self, part: &Outcome) -> Option<StageEnd> {
        let pair = self.live.get_mut(&part.id)?;
        let is_blis = self.network.is_none();
        let generated_tokens = part.generated_tokens.min(part.output_tokens);
        let part = Outcome { generated_tokens, ..*part };
        if pair.stage == PairStage::Decode {
            // No part follows the decode: the request has ended, however this part ended.
            return Some(self.decode_ended(part));
        }
        let (id, decode) = (part.id, pair.decode);
        // Without a read, nothing else releases it.
        let unread = pair.earlier.filter(|_| pair.reuse_began.is_none());
        // The router counts the tenant of a request once, on the decode instance; BLIS on both.
        let tags = if is_blis { part.tags } else { Tags { tenant: Name::NONE, ..part.tags } };
        if part.completed() {
            pair.stage = PairStage::Between;
            let (at, event) = match &self.network {
                None => (self.now, PairEvent::StartTransfer(id)),
                Some(network) => {
                    let answered = part.e2e.map_or(part.ended_at, |e2e| part.arrival.saturating_add(e2e));
                    (answered.max(part.ended_at).saturating_add(network.settings().hop), PairEvent::ArriveDecode(id))
                }
            };
            let hop = self.network.as_ref().map_or(Micros::ZERO, |network| network.settings().hop);
            pair.prefilled = Some((part, at - hop));
            self.schedule(at, event);
            self.release_unread(part.ended_at, unread);
            // The request goes on to its decode instance: no outcome yet, and the output counts there only.
            return Some(StageEnd {
                part: Outcome { output_tokens: 0, generated_tokens: 0, tags, ..part },
                leaves: None,
                whole: None,
            });
        }
        let leaves = Outcome { instance: Some(decode), e2e: None, ..part };
        let pair = self.live.remove(&id)?;
        self.release_unread(part.ended_at, unread);
        [pair.prefill, decode].into_iter().for_each(|instance| self.end_use(part.ended_at, instance));
        let whole = Outcome { output_tokens: pair.request.output_tokens, ..part };
        Some(StageEnd {
            part: Outcome { tags, ..part },
            leaves: (!is_blis).then_some(leaves),
            whole: Some((pair.times(), whole)),
        })
    }

    /// Releases the blocks of a turn that its next one did not read.
    fn release_unread(&mut self, at: Micros, unread: Option<(InstanceIndex, RequestId)>) {
        if let Some((instance, turn)) = unread {
            self.schedule(at, PairEvent::ReleaseKept(instance, turn));
        }
    }

    /// The decode part has ended, and with it the request.
    fn decode_ended(&mut self, part: Outcome) -> StageEnd {
        let mut pair = self.live.remove(&part.id).expect("it was there");
        self.end_use(part.ended_at, pair.decode);
        let is_blis = self.network.is_none();
        if !is_blis && pair.transfer_began.is_none() {
            // Also at the end of the simulation, where it has no effect.
            self.schedule(part.ended_at, PairEvent::Release(pair.prefill, part.id));
        }
        if let Some(time) = self.keeps().filter(|_| part.completed()) {
            let tokens = pair.request.input_tokens + part.generated_tokens.saturating_sub(1);
            let content = pair.request.content.clone();
            let (since, until) = (part.ended_at, part.ended_at.saturating_add(time));
            let turn = KeptTurn { id: part.id, instance: pair.decode, since, until, tokens, content };
            self.kept.keep(pair.request.tags.session, turn);
            self.schedule(until, PairEvent::Expire(part.id));
        }
        let prefill = pair.prefilled.as_ref().map(|&(outcome, _)| outcome);
        let mut whole = Outcome {
            ttft: part.ttft.or(pair.ttft),
            scheduling_delay: prefill.and_then(|prefill| prefill.scheduling_delay),
            cached_tokens: prefill.map_or(0, |prefill| prefill.cached_tokens),
            cpu_cached_tokens: prefill.map_or(0, |prefill| prefill.cpu_cached_tokens),
            kv_load_wait: part.kv_load_wait + prefill.map_or(Micros::ZERO, |prefill| prefill.kv_load_wait),
            preemptions: part.preemptions + prefill.map_or(0, |prefill| prefill.preemptions),
            ..part
        };
        if is_blis && part.ttft.is_none() {
            // Its latencies began with the decode.
            whole.e2e = part.e2e.zip(part.scheduling_delay).map(|(e2e, delay)| delay + e2e);
        }
        pair.ttft = whole.ttft;
        StageEnd { part, leaves: None, whole: Some((pair.times(), whole)) }
    }

    /// Removes a request between its parts that ends at `now` with `status`. Returns its stages and its outcome.
    pub(super) fn end_between(&mut self, now: Micros, id: RequestId, status: Status) -> Option<(StageTimes, Outcome)> {
        let pair = self.live.remove(&id)?;
        let prefill = pair.prefilled.as_ref().map(|&(outcome, _)| outcome);
        let outcome = Outcome {
            instance: Some(pair.decode),
            scheduling_delay: prefill.and_then(|prefill| prefill.scheduling_delay),
            ..Outcome::new(&pair.request, status).ended_at(now)
        };
        Some((pair.times(), outcome))
    }

    /// Request `id`, which was encoded first, arrives on its prefill instance at `now`.
    pub(super) fn arrives_at_prefill(&mut self, now: Micros, id: RequestId) {
        self.live.get_mut(&id).into_iter().for_each(|pair| pair.routed = now);
    }

    /// Removes request `id`, which ends at `now` with `status` before it reaches its prefill instance, if it has two parts. Returns its
    /// stages and its outcome. It needs its decode instance for as long as the caller says.
    pub(super) fn end_before_prefill(
        &mut self,
        now: Micros,
        id: RequestId,
        status: Status,
    ) -> Option<(StageTimes, Outcome)> {
        let pair = self.live.remove(&id)?;
        self.release_unread(now, pair.earlier);
        self.end_use(now, pair.prefill);
        Some((pair.times(), Outcome::new(&pair.request, status).ended_at(now)))
    }

    /// Removes the requests that are being encoded at the end of the simulation. Returns their stages, and the outcomes of those that
    /// have no second part.
    pub fn drain_encoding(&mut self) -> Vec<(EncodeTimes, Option<Outcome>)> {
        let left = self.encoders.iter_mut().flat_map(|encoders| encoders.drain());
        left.map(|left| (left.times, left.whole.map(|request| Outcome::new(&request, Status::Arriving)))).collect()
    }

    /// Removes and returns the requests that are between their instances at the end of the simulation.
    pub fn drain(&mut self) -> Vec<(StageTimes, Outcome)> {
        let mut left: Vec<SplitRequest> = std::mem::take(&mut self.live).into_values().collect();
        left.sort_unstable_by_key(|pair| pair.request.id);
        left.iter().map(|pair| (pair.times(), Outcome::new(&pair.request, Status::Arriving))).collect()
    }
}

/// An observer for the end of a simulation, which makes one outcome of the two of a request.
pub(in super::super) struct PairObserver<'a, O> {
    pub observer: &'a mut O,
    pub pairs: Option<&'a mut Pairs>,
}

impl<O: Observer> Observer for PairObserver<'_, O> {
    #[inline(always)]
    fn interests(&self) -> Interests {
        let of_pairs = Interests::OUTCOMES | Interests::FIRST_TOKENS;
        self.observer.interests() | if self.pairs.is_some() { of_pairs } else { Interests::NONE }
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event
            && let Some(StageEnd { part, whole, .. }) = self.pairs.as_mut().and_then(|pairs| pairs.stage_ended(outcome))
        {
            self.observer.record(&SimEvent::StageEnded(&part));
            if let Some((times, outcome)) = whole {
                self.observer.record(&SimEvent::Disaggregated(&times));
                self.observer.record(&SimEvent::Outcome(&outcome));
            }
            // Metrics count each request once, so the outcome of a part is reported as the end of a stage.
            return;
        }
        if let SimEvent::FirstToken(first) = event
            && self.pairs.as_mut().is_some_and(|pairs| !pairs.first_token(first).0)
        {
            // vLLM discards the token of the prefill: the client gets its first one from the decode instance.
            return;
        }
        self.observer.record(event);
    }
}
