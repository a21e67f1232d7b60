//! The events of requests that are prefilled apart from their decode, in the event loop of the service. They are compiled apart
//! from it, as those of replicas (`scaling.rs`).

use super::network::{EndedRead, Moved};
use super::pairs::{DueEvent, PairEvent, PairStage, SplitRequest};
use super::{BlisTransfer, DisaggregationConfig, Pairs, TransferFlow};
use crate::cluster::candidates::{CandidateSet, ServingPool};
use crate::cluster::decisions::{ForcedDecision, RecordedDecision, forced};
use crate::cluster::ends::record_of;
use crate::cluster::front_event::FrontEvent;
use crate::cluster::{Cluster, to_policies};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::{Instance, NoProgress};
use crate::numbers::truncated;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Decision, DisaggregationChoice, DropReason, Outcome, Rejection, Status};
use crate::policy::{DisaggregationDecision, EncodeRule, RequestView, RoutingDecision};
use crate::request::{Name, Request, Stage};
use crate::units::Micros;

/// The instances that serve a request.
#[derive(Clone, Copy)]
struct ServedBy {
    encode: Option<InstanceIndex>,
    /// `None`: the one that decodes it also prefills it.
    prefill: Option<InstanceIndex>,
    decode: InstanceIndex,
}

impl<I: Instance> Cluster<I> {
    /// The same service with prefill apart from decode. If its instances come and go, [`Self::with_replicas`] comes first.
    ///
    /// # Panics
    /// If there is not a role for each instance and each group of replicas, or a way to encode for each that encodes in vLLM's flow, or
    /// instances come and go in BLIS's flow.
    #[must_use]
    pub fn with_disaggregation(mut self, settings: DisaggregationConfig) -> Self {
        assert_eq!(settings.roles.len(), self.instances.len(), "a role for each instance");
        assert!(settings.has_encoders(), "a way to encode for each instance that encodes");
        self.board.show_candidates();
        self.lifecycle.want(settings.events());
        let mut pairs = Pairs::new(settings);
        if let Some(replicas) = &self.replicas {
            assert_eq!(pairs.settings.groups.len(), replicas.groups(), "a role for each group");
            assert!(pairs.network.is_some(), "in BLIS's flow the number of instances is fixed");
            pairs.scales();
        }
        self.pairs = Some(Box::new(pairs));
        self.more_than_advancing = true;
        self
    }

    /// Executes the next event between the parts of requests, which is at `now`.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn move_pair(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let due = self.pairs.as_mut().and_then(|pairs| pairs.take_due(now));
        match due {
            None => Ok(()),
            Some(DueEvent::Read(ended)) => {
                for read in ended {
                    match read.moved {
                        Moved::Prefilled => {
                            self.read_ended(now, read, observer)?;
                            self.release(now, read.source, read.id, observer)?;
                        }
                        Moved::Decoded(turn) => {
                            self.read_ended(now, read, observer)?;
                            self.release_kept(now, read.source, turn, observer)?;
                        }
                        Moved::Embeddings => self.embeddings_read(now, read.id, observer)?,
                    }
                }
                Ok(())
            }
            Some(DueEvent::TimedOut(id)) => {
                self.end_encoding(now, id, Status::TimedOut, observer);
                Ok(())
            }
            Some(DueEvent::Pair(event)) => self.execute_pair_event(now, event, observer),
        }
    }

    /// Executes `event` between the parts of a request.
    fn execute_pair_event(
        &mut self,
        now: Micros,
        event: PairEvent,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        match event {
            PairEvent::RoutePrefill(id) => return self.route_prefill(now, id, observer),
            PairEvent::ArriveEncode(id) => self.arrive_encode(now, id),
            PairEvent::EndBatch(instance) => self.end_batch(now, instance),
            PairEvent::BeginBatch(instance) => self.begin_batch(now, instance),
            PairEvent::Encoded(id) => self.encoded(now, id),
            PairEvent::ReadEmbeddings(id) => return self.read_embeddings(now, id, observer),
            PairEvent::ArrivePrefill(id) => return self.send_part(now, id, Stage::Prefill, observer),
            PairEvent::StartTransfer(id) => return self.start_transfer(now, id, observer),
            PairEvent::ArriveDecode(id) => return self.arrive_decode(now, id, observer),
            PairEvent::Release(instance, id) => return self.release(now, instance, id, observer),
            PairEvent::ReleaseKept(instance, turn) => return self.release_kept(now, instance, turn, observer),
            PairEvent::Expire(turn) => {
                let kept_by = self.pairs.as_mut().and_then(|pairs| pairs.expire(turn));
                // The blocks are released already, or will be once the next turn has read them or ended.
                return kept_by.map_or(Ok(()), |instance| self.release_kept(now, instance, turn, observer));
            }
            PairEvent::Left(instance) => self.part_moved(now, instance),
            PairEvent::FirstToken(ttft) => {
                self.pairs.iter_mut().for_each(|pairs| pairs.settings.decider.first_token(ttft));
            }
        }
        Ok(())
    }

    /// Makes the routing decisions about `request`: which instance decodes it, whether another one prefills it, and which.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn route_pair(
        &mut self,
        now: Micros,
        mut request: Box<Request>,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        self.refresh_signals(now, observer)?;
        let is_blis = self.config.semantics.reserves_before_decode;
        if !is_blis && let Some(rejection) = self.refusal(request.tags.model) {
            self.reject(now, &request, rejection, observer);
            // All replicas of its model may have begun to drain since the request left the gateway's queue.
            return Ok(());
        }
        // A pool without instances is one of which all replicas are gone.
        let missing = if self.replicas.is_some() { Rejection::NoReplica } else { Rejection::Routing };
        let view = self.config.view(&request);
        // The policy's numbers go up with priority, those of an instance go down.
        let priority = self.policies.priority.priority(&view, now).saturating_neg();
        self.board.probe(&view, self.routing_reads);
        let recorded = match self.recorded(&request) {
            Some(RecordedDecision::Split { decode, prefill }) => {
                Some(ServedBy { encode: None, prefill: Some(prefill), decode })
            }
            Some(RecordedDecision::Routed(decode)) => Some(ServedBy { encode: None, prefill: None, decode }),
            Some(RecordedDecision::Encoded { encode, prefill, decode }) => {
                Some(ServedBy { encode: Some(encode), prefill, decode })
            }
            Some(RecordedDecision::Rejected | RecordedDecision::Admitted) | None => None,
        };
        if let Some(instances) = recorded {
            if instances.prefill.is_none() {
                self.board.routed(&view, instances.decode);
            }
            request.priority = priority;
            // A replayed decision does not call the routing policies, so their state does not change.
            return self.send(now, request, instances, observer);
        }
        let prefill_first = self.prefill_first();
        let first = if prefill_first { self.choose(now, ServingPool::Prefill, &view) } else { None };
        let Some((decode, choice)) = self.choose(now, ServingPool::Decode, &view) else {
            self.reject(now, &request, missing, observer);
            // Without a decode instance the KV of a prefill could not be used, so none is computed.
            return Ok(());
        };
        let decision = match prefill_first {
            true => DisaggregationDecision { prefill: first.map(|(id, _)| id), ..DisaggregationDecision::new(true) },
            false => self.decide(now, &view, decode),
        };
        // In this branch the replica may drain already: then the policy decides.
        let stays = |instance| self.replicas.as_ref().is_none_or(|replicas| replicas.is_active(instance));
        let decision = match forced(&mut self.forced, &request, FrontEvent::Routing) {
            Some(ForcedDecision::Prefill(prefill)) if prefill.is_none_or(stays) => {
                DisaggregationDecision { disaggregate: prefill.is_some(), prefill, ..decision }
            }
            Some(ForcedDecision::Route(decode)) if stays(decode) => {
                DisaggregationDecision { decode: Some(decode), ..DisaggregationDecision::default() }
            }
            _ => decision,
        };
        let decode = decision.decode.unwrap_or(decode);
        let encode = match self.encodes(&request).then(|| self.choose(now, ServingPool::Encode, &view)) {
            None => None,
            Some(None) => {
                self.reject(now, &request, missing, observer);
                // No instance of another role takes over the media that are to be encoded apart.
                return Ok(());
            }
            Some(Some((instance, _))) => Some(instance),
        };
        let prefill = match (decision.disaggregate, is_blis) {
            (false, _) => None,
            (true, true) => decision.prefill,
            (true, false) => decision.prefill.or_else(|| Some(self.choose(now, ServingPool::Prefill, &view)?.0)),
        };
        // On one instance there is nothing to transfer.
        let disaggregate = decision.disaggregate && (is_blis || prefill.is_some_and(|prefill| prefill != decode));
        let chosen = ServedBy { encode, prefill: prefill.filter(|_| disaggregate), decode };
        if observer.interests().contains(Interests::DECISIONS) {
            self.record_choice(now, &view, chosen, disaggregate, observer);
        }
        if !disaggregate {
            if encode.is_some() || prefill.is_some() {
                self.select_pool(now, ServingPool::Decode);
            }
            self.record_whole(now, &view, &choice, decode, observer);
            self.board.routed(&view, decode);
        }
        self.announce(now, &view, Some(decode));
        request.priority = priority;
        if disaggregate && prefill.is_none() {
            // BLIS chooses the prefill instance in an event of its own, after the decision to disaggregate.
            return self.split(now, request, None, decode);
        }
        self.send(now, request, chosen, observer)
    }

    /// Sends `request` to the first of the instances that serve it.
    fn send(
        &mut self,
        now: Micros,
        request: Box<Request>,
        ServedBy { encode, prefill, decode }: ServedBy,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        let takes_time = self.pairs.as_ref().is_some_and(|pairs| pairs.encoders.is_some());
        match (encode.filter(|_| takes_time), prefill) {
            (Some(encode), _) => self.encode_first(now, request, encode, prefill, decode),
            (None, Some(_)) => return self.split(now, request, prefill, decode),
            (None, None) => return self.dispatch(now, request, decode, observer),
        }
        Ok(())
    }

    /// Tells the policies which instance decodes `request`, or that none does.
    fn announce(&mut self, now: Micros, request: &RequestView<'_>, decode: Option<InstanceIndex>) {
        let policies = to_policies(&mut self.policies, &mut self.gateway, &mut self.pairs);
        self.lifecycle.decided(now, request, decode, policies);
    }

    /// Sends `request` to `prefill`, or in BLIS on its way there, to be decoded on `decode`.
    fn split(
        &mut self,
        now: Micros,
        request: Box<Request>,
        prefill: Option<InstanceIndex>,
        decode: InstanceIndex,
    ) -> Result<(), NoProgress> {
        let is_blis = self.config.semantics.reserves_before_decode;
        let id = request.id;
        self.enter_pair(now, request, prefill, decode);
        let Some(pairs) = &mut self.pairs else { return Ok(()) };
        let event = match is_blis {
            true => PairEvent::RoutePrefill(id),
            false => PairEvent::ArrivePrefill(id),
        };
        pairs.schedule(now.saturating_add(pairs.hop()), event);
        Ok(())
    }

    /// Counts `request` as routed: prefilled on `prefill`, in BLIS on an instance that is chosen later, and decoded on `decode`.
    pub(super) fn enter_pair(
        &mut self,
        now: Micros,
        mut request: Box<Request>,
        prefill: Option<InstanceIndex>,
        decode: InstanceIndex,
    ) {
        let is_blis = self.config.semantics.reserves_before_decode;
        if let Some(gateway) = &mut self.gateway {
            let class = self.config.classes.priority(request.tags.slo_class);
            gateway.routed(now, &request, class, decode);
        }
        if let Some(prefill) = prefill.filter(|_| !is_blis) {
            let view = self.config.view(&request);
            self.board.routed(&view, prefill);
            self.board.dispatched(prefill, Name::NONE);
            self.board.dispatched(decode, request.tags.tenant);
        }
        if let Some(pairs) = &mut self.pairs {
            let id = request.id;
            let earlier = pairs.take_turn(now, &mut request, prefill.unwrap_or(decode), self.config.block_size);
            pairs.add(now, request, prefill.unwrap_or(decode), decode);
            pairs.follows(id, earlier);
        }
    }

    /// Reports the routing decision about a request that is not prefilled elsewhere. Its pool is selected.
    fn record_whole(
        &self,
        now: Micros,
        request: &RequestView<'_>,
        choice: &RoutingDecision,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) {
        if observer.interests().contains(Interests::DECISIONS) {
            let cluster = self.board.view(now);
            let target = cluster.instances.iter().position(|info| info.id == instance).unwrap_or(choice.target);
            let choice = RoutingDecision { target, reason: choice.reason.clone() };
            let columns = self.board.columns(self.routing_reads);
            let scores = &self.scores;
            observer.record(&SimEvent::Decision(&Decision::Routing {
                request,
                cluster: &cluster,
                all: &self.board.view_of_all(now),
                columns,
                choice: &choice,
                scores,
            }));
        }
    }

    /// Reports where `request` is prefilled and decoded.
    fn record_choice(
        &self,
        now: Micros,
        request: &RequestView<'_>,
        ServedBy { encode, prefill, decode }: ServedBy,
        disaggregate: bool,
        observer: &mut impl Observer,
    ) {
        let Some(pairs) = &self.pairs else { return };
        let choice = DisaggregationChoice {
            request,
            now,
            decode,
            encode,
            disaggregate,
            prefill,
            cluster: &self.board.view_of_all(now),
            reads: pairs.settings.decider.reads(),
            decodes: &pairs.decode,
            prefills: &pairs.prefill,
        };
        observer.record(&SimEvent::Decision(&Decision::Disaggregation(choice)));
    }

    fn prefill_first(&self) -> bool {
        let flow = self.pairs.as_ref().map(|pairs| &pairs.settings.flow);
        matches!(flow, Some(TransferFlow::Nixl(flow)) if flow.prefill_first)
    }

    fn encodes(&self, request: &Request) -> bool {
        let rule = self.pairs.as_ref().map_or(EncodeRule::Never, |pairs| pairs.settings.encode);
        rule.applies(request.media_tokens)
    }

    /// Selects the instances of `pool` for views.
    fn select_pool(&mut self, now: Micros, pool: ServingPool) {
        let Some(pairs) = &self.pairs else { return };
        self.board.select(now, CandidateSet::Pool(pairs.version(), pool), |rows| {
            rows.extend(pairs.pool(pool).iter().map(|instance| instance.index()));
        });
    }

    /// Selects all instances for views: for decisions that are not about a pool.
    #[cold]
    pub(in super::super) fn select_all(&mut self, now: Micros) {
        let instances = self.instances.len();
        self.board.select(now, CandidateSet::All, |rows| rows.extend(0..instances));
    }

    /// Chooses an instance of `pool` for a request; `None` if there is none. The scores of the decision stay.
    fn choose(
        &mut self,
        now: Micros,
        pool: ServingPool,
        request: &RequestView<'_>,
    ) -> Option<(InstanceIndex, RoutingDecision)> {
        self.select_pool(now, pool);
        let cluster = self.board.view(now);
        if cluster.is_empty() {
            // A routing policy is never called without candidates: all replicas of the pool may be gone.
            return None;
        }
        let Self { pairs: Some(pairs), policies, config, scores, .. } = self else { return None };
        let mut other = Vec::new();
        let scores = if pool == ServingPool::Decode { scores } else { &mut other };
        scores.clear();
        let own = match pool {
            ServingPool::Prefill => pairs.settings.prefill_routing.as_mut(),
            ServingPool::Decode => pairs.settings.decode_routing.as_mut(),
            ServingPool::Encode => pairs.settings.encode_routing.as_mut(),
        };
        let (policy, ties) = match own {
            Some(own) => (&mut own.policy, &own.ties),
            None => (&mut policies.routing, &config.ties),
        };
        let choice = policy.route(request, &cluster, ties, scores);
        let instance = cluster.instances[choice.target].id;
        policy.dispatched(request, instance);
        Some((instance, choice))
    }

    /// Asks the policy whether a request is prefilled elsewhere that `decode` was chosen for.
    fn decide(&mut self, now: Micros, request: &RequestView<'_>, decode: InstanceIndex) -> DisaggregationDecision {
        let Self { pairs: Some(pairs), board, .. } = self else { return DisaggregationDecision::default() };
        if pairs.prefill.is_empty() {
            // Without prefill instances the policy has no choice: the decode instance computes the prompt itself.
            return DisaggregationDecision::default();
        }
        let cluster = board.view_of_all(now);
        let decision = pairs.decide(request, &cluster, decode);
        DisaggregationDecision {
            decode: decision.decode.filter(|id| pairs.decode.contains(id)),
            prefill: decision.prefill.filter(|id| pairs.prefill.contains(id)),
            ..decision
        }
    }

    /// Chooses the prefill instance of request `id`, which goes there (BLIS).
    fn route_prefill(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) -> Result<(), NoProgress> {
        self.refresh_signals(now, observer)?;
        let Some(pair) = self.pairs.as_mut().and_then(|pairs| pairs.get_mut(id)) else { return Ok(()) };
        let request = pair.request.clone();
        let view = self.config.view(&request);
        self.board.probe(&view, self.routing_reads);
        let Some((prefill, _)) = self.choose(now, ServingPool::Prefill, &view) else {
            let rejected = Status::Rejected(Rejection::Routing);
            return self.end_between(now, id, rejected, observer);
        };
        self.board.routed(&view, prefill);
        self.board.dispatched(prefill, request.tags.tenant);
        if let Some(pair) = self.pairs.as_mut().and_then(|pairs| pairs.get_mut(id)) {
            pair.prefill = prefill;
        }
        self.send_part(now, id, Stage::Prefill, observer)
    }

    /// Sends the part `stage` of request `id` to its instance.
    pub(super) fn send_part(
        &mut self,
        now: Micros,
        id: RequestId,
        stage: Stage,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        let Some(SplitRequest { request, prefill, decode, .. }) =
            self.pairs.as_mut().and_then(|pairs| pairs.get_mut(id))
        else {
            return Ok(());
        };
        let instance = if stage == Stage::Prefill { *prefill } else { *decode };
        let mut part = request.clone();
        part.stage = stage;
        if stage == Stage::Prefill {
            // BLIS generates no token there, vLLM one, which is discarded.
            part.output_tokens = u32::from(!self.config.semantics.reserves_before_decode);
            part.max_output_tokens = Some(part.output_tokens);
        } else {
            part.remote_tokens = 0;
        }
        self.hand_over(now, part, instance, observer)?;
        self.next_events.not_after(instance, now);
        self.part_moved(now, instance);
        Ok(())
    }

    /// The prefill of request `id` has ended, and its transfer begins if the decode instance has KV blocks for it (BLIS).
    fn start_transfer(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let Some(&mut SplitRequest { prefill, decode, .. }) = self.pairs.as_mut().and_then(|pairs| pairs.get_mut(id))
        else {
            return Ok(());
        };
        // Of simultaneous events of instances, those of lower indices come first.
        let until = if decode < prefill { now.saturating_add(Micros(1)) } else { now };
        self.catch_up(decode, until, observer)?;
        let Self { pairs: Some(pairs), instances, .. } = self else { return Ok(()) };
        let TransferFlow::Blis(transfer) = pairs.settings.flow else { return Ok(()) };
        let Some(pair) = pairs.get_mut(id) else { return Ok(()) };
        let tokens = pair.request.input_tokens;
        let reserved = instances[decode.index()].reserve(&pair.request);
        pair.decode_arrival = Some(now);
        self.board.mark_dirty(decode);
        self.watch(decode);
        if !reserved {
            // In BLIS a request does not wait for KV blocks of its decode instance: without them it is dropped.
            return self.end_between(now, id, Status::Dropped(DropReason::NoDecodeBlocks), observer);
        }
        let Some(pairs) = &mut self.pairs else { return Ok(()) };
        pairs.transfers += 1;
        let transfers = pairs.transfers;
        pairs.begins(now, id, tokens, transfers);
        let blocks = tokens.div_ceil(self.config.block_size);
        let ends = now.saturating_add(transfer.duration(blocks, self.config.block_size, transfers));
        pairs.schedule(ends, PairEvent::ArriveDecode(id));
        Ok(())
    }

    /// Request `id` reaches its decode instance.
    fn arrive_decode(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let Some(pairs) = &mut self.pairs else { return Ok(()) };
        let is_blis = pairs.network.is_none();
        pairs.transfers -= u32::from(is_blis);
        let Some(pair) = pairs.get_mut(id) else { return Ok(()) };
        pair.stage = PairStage::Decode;
        pair.decode_arrival.get_or_insert(now);
        if !is_blis {
            // In vLLM the decode instance reads the KV itself once it has blocks: the request comes without it.
            return self.send_part(now, id, Stage::Decode, observer);
        }
        let (decode, mut part) = (pair.decode, pair.request.clone());
        pairs.transferred(now, id);
        part.stage = Stage::Decode;
        self.board.dispatched(decode, part.tags.tenant);
        self.instances[decode.index()].arrive_prefilled(now, part);
        self.next_events.not_after(decode, now);
        self.board.mark_dirty(decode);
        Ok(())
    }

    /// `read` has ended on its destination.
    fn read_ended(&mut self, now: Micros, read: EndedRead, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let EndedRead { id, moved, destination, .. } = read;
        self.catch_up(destination, now, observer)?;
        self.pairs.iter_mut().for_each(|pairs| match moved {
            Moved::Decoded(_) => pairs.reused(now, id),
            Moved::Prefilled | Moved::Embeddings => pairs.transferred(now, id),
        });
        self.instances[destination.index()].read_ended(now, id);
        self.board.mark_dirty(destination);
        self.watch(destination);
        self.part_moved(now, destination);
        Ok(())
    }

    /// The KV blocks of the prefill of request `id` on `prefill` are no longer needed.
    fn release(
        &mut self,
        now: Micros,
        prefill: InstanceIndex,
        id: RequestId,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        self.catch_up(prefill, now, observer)?;
        self.instances[prefill.index()].release_prefilled(now, id);
        self.pairs.iter_mut().for_each(|pairs| pairs.end_use(now, prefill));
        self.board.mark_dirty(prefill);
        self.watch(prefill);
        Ok(())
    }

    /// The KV blocks of the request `turn`, which `instance` has kept, are no longer needed.
    fn release_kept(
        &mut self,
        now: Micros,
        instance: InstanceIndex,
        turn: RequestId,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        if !self.pairs.as_mut().is_some_and(|pairs| pairs.released(turn)) {
            // The timeout of the blocks and the turn that did not read them may both release them: once counts.
            return Ok(());
        }
        self.catch_up(instance, now, observer)?;
        self.instances[instance.index()].release_prefilled(now, turn);
        self.board.mark_dirty(instance);
        self.watch(instance);
        self.part_moved(now, instance);
        Ok(())
    }

    /// Begins the reads that `instance` has begun in the steps that were just executed.
    #[cold]
    pub(in super::super) fn begin_reads(&mut self, instance: InstanceIndex) {
        let Some(pairs) = &mut self.pairs else { return };
        for read in self.instances[instance.index()].take_reads() {
            pairs.reads_kv(read);
        }
    }

    /// Ends request `id` between its instances.
    fn end_between(
        &mut self,
        now: Micros,
        id: RequestId,
        status: Status,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        let ended = self.pairs.as_mut().and_then(|pairs| pairs.end_between(now, id, status));
        if let Some((times, outcome)) = ended {
            if let Some(gateway) = self.gateway.as_mut().filter(|gateway| gateway.reads_ends()) {
                gateway.ended(&outcome);
            }
            self.lifecycle.ended(&outcome);
            record_of(observer, &times, &outcome);
        }
        Ok(())
    }

    /// No instance can be chosen for `request`.
    fn reject(&mut self, now: Micros, request: &Request, rejection: Rejection, observer: &mut impl Observer) {
        self.gateway.iter_mut().for_each(|gateway| gateway.refused(request));
        self.announce(now, &self.config.view(request), None);
        let rejected = Outcome::new(request, Status::Rejected(rejection)).ended_at(now);
        observer.record(&SimEvent::Outcome(&rejected));
    }
}

impl BlisTransfer {
    /// Duration of the transfer of `blocks` blocks of `block_size` tokens while `transfers` are in progress, with it:
    /// max(1, ⌈base + blocks · tokens · bytes / bandwidth⌉) µs.
    fn duration(&self, blocks: u32, block_size: u32, transfers: u32) -> Micros {
        let bytes = f64::from(blocks) * f64::from(block_size) * self.token_bytes;
        let shares = if self.contention { f64::from(transfers.max(1)) } else { 1.0 };
        let us = self.base_us + bytes / (self.bandwidth / shares);
        Micros(truncated(libm::ceil(us).max(1.0)))
    }
}
