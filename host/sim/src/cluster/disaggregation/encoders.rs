//! Instances that encode images, audio and video, and the requests on their way through them.
//!
//! An instance executes batches, one after the other. A batch has the media of waiting requests in the order of their arrival, up to
//! the encoder budget, and of at least one; it takes a base latency + tokens / rate. vLLM's engine does so too, item by item of the
//! requests that it schedules (`encoder_compute_budget` of its scheduler). Each item is encoded once: a request counts the tokens of
//! its own media, not those of earlier rounds of its session, which caches have.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::truncated;
use crate::outcome::EncodeTimes;
use crate::request::Request;
use crate::units::Micros;

/// An instance that encodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoder {
    /// Tokens of media that it encodes, tokens/µs, > 0.
    pub rate: f64,
    /// Time of each batch beside that.
    pub base_latency: Micros,
    /// Most tokens of a batch of several requests (vLLM's `max_num_encoder_input_tokens`), ≥ 1.
    pub budget: u32,
}

/// All instances that encode, and the requests that have not left them.
#[derive(Clone, Debug)]
pub(super) struct Encoders {
    /// By index of the instance; `None`: another role.
    settings: Vec<Option<Encoder>>,
    /// The queue of each instance, as far as it was needed.
    queues: Vec<EncodeQueue>,
    live: FxHashMap<RequestId, EncodingRequest>,
    /// Times at which clients time out.
    timeouts: BTreeSet<(Micros, RequestId)>,
}

/// A request from the decision to encode it until its embeddings are where its prompt is computed.
#[derive(Clone, Debug)]
pub(super) struct EncodingRequest {
    /// Its stages so far.
    pub times: EncodeTimes,
    /// The instance that computes its prompt.
    pub destination: InstanceIndex,
    /// The instance that decodes it.
    pub decode: InstanceIndex,
    /// The request, unless it has two parts: then [`super::Pairs`] has it.
    pub whole: Option<Box<Request>>,
    /// When its present stage began.
    since: Micros,
    deadline: Option<Micros>,
}

/// The work of one instance.
#[derive(Clone, Debug, Default)]
struct EncodeQueue {
    waiting: VecDeque<RequestId>,
    /// The requests that are encoded now; empty if the instance is idle.
    batch: Vec<RequestId>,
}

impl Encoder {
    /// Duration of a batch of `tokens`: base latency + ⌈tokens / rate⌉ µs.
    fn duration(&self, tokens: u64) -> Micros {
        self.base_latency.saturating_add(Micros(truncated(libm::ceil(tokens as f64 / self.rate))))
    }
}

impl EncodingRequest {
    /// `request`, of which `encode` encodes the media from the decision at `now` on; then it goes to `destination`, and `decode`
    /// decodes it.
    pub fn new(
        now: Micros,
        request: &Request,
        encode: InstanceIndex,
        destination: InstanceIndex,
        decode: InstanceIndex,
    ) -> Self {
        Self {
            times: EncodeTimes::new(request, encode),
            destination,
            decode,
            whole: None,
            since: now,
            deadline: request.deadline.map(|deadline| deadline.max(now)),
        }
    }

    /// Whether the instance that encodes has still to respond.
    pub fn is_on_encoder(&self) -> bool {
        self.times.time.is_none()
    }

    /// Ends its present stage at `now`. Returns how long that was.
    fn end_stage(&mut self, now: Micros) -> Micros {
        let began = std::mem::replace(&mut self.since, now);
        now.saturating_sub(began)
    }
}

impl Encoders {
    pub fn new(settings: Vec<Option<Encoder>>) -> Self {
        Self { settings, queues: Vec::new(), live: FxHashMap::default(), timeouts: BTreeSet::new() }
    }

    /// Adds an instance behind the others.
    pub fn add_instance(&mut self, encoder: Option<Encoder>) {
        self.settings.push(encoder);
    }

    /// Time at which the next client times out.
    pub fn next_timeout(&self) -> Option<Micros> {
        self.timeouts.first().map(|&(at, _)| at)
    }

    /// The request of which the client times out at `now` or before.
    pub fn timed_out(&self, now: Micros) -> Option<RequestId> {
        self.timeouts.first().filter(|&&(at, _)| at <= now).map(|&(_, id)| id)
    }

    pub fn add(&mut self, request: EncodingRequest) {
        let id = request.times.id;
        self.timeouts.extend(request.deadline.map(|deadline| (deadline, id)));
        self.live.insert(id, request);
    }

    pub fn get(&self, id: RequestId) -> Option<&EncodingRequest> {
        self.live.get(&id)
    }

    /// Number of requests that have no second part, which [`super::Pairs`] counts.
    pub fn count_whole(&self) -> usize {
        self.live.values().filter(|request| request.whole.is_some()).count()
    }

    /// Request `id` reaches its instance at `now`. Returns the instance if it waits there: without media it does not.
    pub fn arrive(&mut self, now: Micros, id: RequestId) -> Option<InstanceIndex> {
        let request = self.live.get_mut(&id)?;
        let instance = request.times.encode;
        if request.times.tokens == 0 {
            request.times.queue = Some(request.end_stage(now));
            // Without media the request needs no batch of the encoder: it only pays for the hops.
            return None;
        }
        if self.queues.len() <= instance.index() {
            self.queues.resize_with(instance.index() + 1, EncodeQueue::default);
        }
        self.queues[instance.index()].waiting.push_back(id);
        Some(instance)
    }

    /// Begins a batch on `instance` at `now`, unless it is busy or nothing waits. Returns when the batch ends.
    pub fn begin_batch(&mut self, now: Micros, instance: InstanceIndex) -> Option<Micros> {
        let Self { settings, queues, live, .. } = self;
        let encoder = settings.get(instance.index())?.as_ref()?;
        let queue = queues.get_mut(instance.index()).filter(|queue| queue.batch.is_empty())?;
        let mut sum = 0;
        while let Some(request) = queue.waiting.front().and_then(|id| live.get_mut(id)) {
            let tokens = u64::from(request.times.tokens);
            if !queue.batch.is_empty() && sum + tokens > u64::from(encoder.budget) {
                // Media are encoded in the order of arrival: no smaller request overtakes this one.
                break;
            }
            sum += tokens;
            request.times.queue = Some(request.end_stage(now));
            queue.batch.extend(queue.waiting.pop_front());
        }
        (!queue.batch.is_empty()).then(|| now.saturating_add(encoder.duration(sum)))
    }

    /// Ends the batch on `instance`. Returns its requests, also those that have ended since it began.
    pub fn end_batch(&mut self, instance: InstanceIndex) -> Vec<RequestId> {
        self.queues.get_mut(instance.index()).map(|queue| std::mem::take(&mut queue.batch)).unwrap_or_default()
    }

    /// The response of the instance that encodes request `id` is there at `now`. Returns the request.
    pub fn answered(&mut self, now: Micros, id: RequestId) -> Option<&EncodingRequest> {
        let request = self.live.get_mut(&id)?;
        request.times.time = Some(request.end_stage(now));
        Some(request)
    }

    /// The embeddings of request `id` are where its prompt is computed at `now`. Removes and returns the request.
    pub fn delivered(&mut self, now: Micros, id: RequestId) -> Option<EncodingRequest> {
        let mut request = self.remove(id)?;
        request.times.transfer = Some(request.end_stage(now));
        Some(request)
    }

    /// Removes and returns request `id`, wherever it is. A batch that it is in goes on.
    pub fn remove(&mut self, id: RequestId) -> Option<EncodingRequest> {
        let request = self.live.remove(&id)?;
        if let Some(deadline) = request.deadline {
            self.timeouts.remove(&(deadline, id));
        }
        if request.times.queue.is_none()
            && let Some(queue) = self.queues.get_mut(request.times.encode.index())
        {
            queue.waiting.retain(|&other| other != id);
        }
        Some(request)
    }

    /// Removes and returns all requests, in the order of their numbers.
    pub fn drain(&mut self) -> Vec<EncodingRequest> {
        self.timeouts.clear();
        let mut left: Vec<EncodingRequest> = std::mem::take(&mut self.live).into_values().collect();
        left.sort_unstable_by_key(|request| request.times.id);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: InstanceIndex = InstanceIndex(0);

    /// An instance with ½ token/µs, 100 µs for each batch and a budget of 1000 tokens, and requests with so many tokens in its queue.
    fn waiting(tokens: &[u32]) -> Encoders {
        let encoder = Encoder { rate: 0.5, base_latency: Micros(100), budget: 1000 };
        let mut encoders = Encoders::new(vec![Some(encoder)]);
        for (id, &media_tokens) in (0..).map(RequestId).zip(tokens) {
            let request = Request { media_tokens, ..Request::new(id, Micros::ZERO, 2000, 1) };
            encoders.add(EncodingRequest::new(Micros::ZERO, &request, INSTANCE, INSTANCE, INSTANCE));
            encoders.arrive(Micros::ZERO, id);
        }
        encoders
    }

    /// The batches, as their requests and ends, if each begins at the end of the one before.
    fn batches(encoders: &mut Encoders) -> Vec<(Vec<u32>, u64)> {
        let (mut now, mut batches) = (Micros::ZERO, Vec::new());
        while let Some(ends) = encoders.begin_batch(now, INSTANCE) {
            assert_eq!(encoders.begin_batch(now, INSTANCE), None, "one at a time");
            now = ends;
            batches.push((encoders.end_batch(INSTANCE).iter().map(|id| id.0).collect(), now.0));
        }
        batches
    }

    #[test]
    fn batches_are_filled_up_to_the_budget_in_order_of_arrival() {
        // 1000 tokens, then one that fits no budget alone, then the rest: 200 does not overtake 900.
        let mut encoders = waiting(&[400, 600, 5000, 900, 200]);
        assert_eq!(
            batches(&mut encoders),
            [(vec![0, 1], 2100), (vec![2], 2100 + 10_100), (vec![3], 12_200 + 1900), (vec![4], 14_100 + 500)]
        );
    }

    #[test]
    fn requests_that_end_leave_the_queue_and_not_a_batch() {
        let mut encoders = waiting(&[400, 700, 300]);
        assert_eq!(encoders.begin_batch(Micros::ZERO, INSTANCE), Some(Micros(900)));
        assert!(encoders.remove(RequestId(0)).is_some() && encoders.remove(RequestId(1)).is_some());
        assert_eq!(encoders.end_batch(INSTANCE), [RequestId(0)]);
        assert!(encoders.answered(Micros(900), RequestId(0)).is_none());
        assert_eq!(batches(&mut encoders), [(vec![2], 700)]);
    }

    #[test]
    fn clients_time_out_in_order() {
        let mut encoders = waiting(&[]);
        for (id, deadline) in [(0, 70), (1, 50), (2, 60)] {
            let request =
                Request { deadline: Some(Micros(deadline)), ..Request::new(RequestId(id), Micros::ZERO, 9, 1) };
            encoders.add(EncodingRequest::new(Micros(55), &request, INSTANCE, INSTANCE, INSTANCE));
        }
        encoders.remove(RequestId(2));
        assert_eq!((encoders.next_timeout(), encoders.timed_out(Micros(54))), (Some(Micros(55)), None), "not before");
        assert_eq!(encoders.timed_out(Micros(55)), Some(RequestId(1)));
        encoders.remove(RequestId(1));
        assert_eq!(encoders.next_timeout(), Some(Micros(70)));
    }
}
