//! The events of requests that are encoded first, in the event loop of the service.
//!
//! ```text
//! routing ─► HTTP ─► queue, batch on the encode instance ─► HTTP ─► [ HTTP ] ─► read of the embeddings ─► where the prompt is computed
//! ```
//!
//! The second hop is there if another instance than the decode instance computes the prompt. Embeddings do not wait for room in the
//! encoder cache of that instance.

use super::encoders::EncodingRequest;
use super::network::{EndedRead, Moved};
use super::pairs::PairEvent;
use crate::cluster::Cluster;
use crate::cluster::ends::record_of;
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::{Instance, NoProgress};
use crate::observer::{Observer, SimEvent};
use crate::outcome::{Outcome, Status};
use crate::request::{Name, Request, Stage};
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// Sends `request` to `encode`; from there it goes to `prefill` or, without one, to `decode`.
    pub(super) fn encode_first(
        &mut self,
        now: Micros,
        request: Box<Request>,
        encode: InstanceIndex,
        prefill: Option<InstanceIndex>,
        decode: InstanceIndex,
    ) {
        let id = request.id;
        let mut encoding = EncodingRequest::new(now, &request, encode, prefill.unwrap_or(decode), decode);
        match prefill {
            Some(_) => self.enter_pair(now, request, prefill, decode),
            None => {
                self.count_dispatch(now, &request, decode);
                self.pairs.iter_mut().for_each(|pairs| pairs.begin_use(decode));
                encoding.whole = Some(request);
            }
        }
        self.board.dispatched(encode, Name::NONE);
        let Some(pairs) = &mut self.pairs else { return };
        pairs.begin_use(encode);
        if let Some(encoders) = &mut pairs.encoders {
            encoders.add(encoding);
        }
        pairs.schedule(now.saturating_add(pairs.hop()), PairEvent::ArriveEncode(id));
    }

    /// Request `id` reaches its encode instance.
    pub(super) fn arrive_encode(&mut self, now: Micros, id: RequestId) {
        let Some(pairs) = &mut self.pairs else { return };
        // Its client may have timed out on the way.
        let Some(encoders) = pairs.encoders.as_mut().filter(|encoders| encoders.get(id).is_some()) else { return };
        match encoders.arrive(now, id) {
            Some(instance) => pairs.schedule(now, PairEvent::BeginBatch(instance)),
            None => pairs.schedule(now.saturating_add(pairs.hop()), PairEvent::Encoded(id)),
        }
    }

    /// `instance` begins a batch, if it is idle and requests wait.
    pub(super) fn begin_batch(&mut self, now: Micros, instance: InstanceIndex) {
        let Some(pairs) = &mut self.pairs else { return };
        if let Some(ends) = pairs.encoders.as_mut().and_then(|encoders| encoders.begin_batch(now, instance)) {
            pairs.schedule(ends, PairEvent::EndBatch(instance));
        }
    }

    /// The batch of `instance` ends.
    pub(super) fn end_batch(&mut self, now: Micros, instance: InstanceIndex) {
        let Some(pairs) = &mut self.pairs else { return };
        let encoded = pairs.encoders.as_mut().map(|encoders| encoders.end_batch(instance)).unwrap_or_default();
        let answered = now.saturating_add(pairs.hop());
        encoded.into_iter().for_each(|id| pairs.schedule(answered, PairEvent::Encoded(id)));
        pairs.schedule(now, PairEvent::BeginBatch(instance));
    }

    /// The response of the instance that encoded request `id` is there.
    pub(super) fn encoded(&mut self, now: Micros, id: RequestId) {
        let Some(pairs) = &mut self.pairs else { return };
        let hop = pairs.hop();
        // The request timed out or was evicted while its media were encoded: the batch went on without it.
        let Some(answered) = pairs.encoders.as_mut().and_then(|encoders| encoders.answered(now, id)) else { return };
        let encode = answered.times.encode;
        let at = if answered.whole.is_some() { now } else { now.saturating_add(hop) };
        pairs.schedule(at, PairEvent::ReadEmbeddings(id));
        self.board.left(encode, Name::NONE);
    }

    /// The instance that computes the prompt of request `id` begins to read the embeddings.
    pub(super) fn read_embeddings(
        &mut self,
        now: Micros,
        id: RequestId,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        let Some(pairs) = &mut self.pairs else { return Ok(()) };
        // The request timed out or was evicted on the hop to the instance that computes its prompt.
        let Some(request) = pairs.encoders.as_ref().and_then(|encoders| encoders.get(id)) else { return Ok(()) };
        let tokens = request.times.tokens;
        if tokens == 0 {
            // Without media there are no embeddings, so no read delays the prompt.
            return self.embeddings_read(now, id, observer);
        }
        let (source, destination) = (request.times.encode, request.destination);
        let between = EndedRead { id, source, destination, moved: Moved::Embeddings };
        pairs.network.iter_mut().for_each(|network| network.begin(now, between, tokens));
        Ok(())
    }

    /// The embeddings of request `id` are where its prompt is computed, and the request arrives there.
    pub(super) fn embeddings_read(
        &mut self,
        now: Micros,
        id: RequestId,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        let Some(pairs) = &mut self.pairs else { return Ok(()) };
        let delivered = pairs.encoders.as_mut().and_then(|encoders| encoders.delivered(now, id));
        // Its client may have timed out during the read.
        let Some(EncodingRequest { times, decode, whole, .. }) = delivered else { return Ok(()) };
        observer.record(&SimEvent::Encoded(&times));
        pairs.end_use(now, times.encode);
        match whole {
            Some(request) => {
                pairs.end_use(now, decode);
                self.hand_over(now, request, decode, observer)?;
                self.next_events.not_after(decode, now);
                self.part_moved(now, decode);
                Ok(())
            }
            None => {
                pairs.arrives_at_prefill(now, id);
                self.send_part(now, id, Stage::Prefill, observer)
            }
        }
    }

    /// Ends request `id` at `now` with `status`, if it is encoded at present or its embeddings are read. Returns whether it was.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn end_encoding(
        &mut self,
        now: Micros,
        id: RequestId,
        status: Status,
        observer: &mut impl Observer,
    ) -> bool {
        let Some(pairs) = &mut self.pairs else { return false };
        // A request that is not encoded at present is ended by the instance that executes it.
        let Some(ended) = pairs.encoders.as_mut().and_then(|encoders| encoders.remove(id)) else { return false };
        let EncodingRequest { times, decode, ref whole, .. } = ended;
        let parts = pairs.end_before_prefill(now, id, status);
        let whole = whole.as_ref().map(|request| Outcome::new(request, status).ended_at(now));
        let Some(outcome) = whole.or(parts.map(|(_, outcome)| outcome)) else { return false };
        let outcome = Outcome { instance: Some(decode), ..outcome };
        [times.encode, decode].into_iter().for_each(|instance| pairs.end_use(now, instance));
        if ended.is_on_encoder() {
            self.board.left(times.encode, Name::NONE);
        }
        parts.iter().for_each(|(times, _)| self.board.left(times.prefill, Name::NONE));
        self.board.left(decode, outcome.tags.tenant);
        self.lifecycle.ended(&outcome);
        if let Some(gateway) = self.gateway.as_mut().filter(|gateway| gateway.reads_ends()) {
            gateway.ended(&outcome);
        }
        observer.record(&SimEvent::Encoded(&times));
        match parts {
            Some((times, _)) => record_of(observer, &times, &outcome),
            None => observer.record(&SimEvent::Outcome(&outcome)),
        }
        true
    }
}
