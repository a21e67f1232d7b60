//! What the router measures itself beyond counts of requests: prompt tokens in flight and outputs to come, and the
//! latencies of each instance. It computes them from what it did and from the responses that pass through it, so they are
//! never stale (llm-d's `inflight-load-producer` and its latency producers).

use rustc_hash::FxHashMap;

use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::truncated_u32;
use crate::policy::{Event, EventKind, Events, Reads, RequestView, Signals};

/// Output tokens that a request is expected to generate per token of its prompt: llm-d's estimate for
/// `addEstimatedOutputTokens`.
const OUTPUT_RATIO: f64 = 1.5;
/// Weight of a new measurement in a moving average. Ours: twenty requests make up seven eighths.
const NEW_WEIGHT: f64 = 0.1;

/// The requests and latencies behind the columns.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterMeasures {
    reads: Reads,
    /// The requests in flight, by id.
    requests: FxHashMap<RequestId, Dispatched>,
}

#[derive(Clone, Copy, Debug)]
struct Dispatched {
    instance: InstanceIndex,
    /// Prompt tokens that the instance did not have; 0 from the first token on.
    prompt: u32,
    output: u32,
}

impl RouterMeasures {
    /// Measures only what is read.
    pub fn start(&mut self, reads: Reads) {
        self.reads = Reads { tokens: reads.tokens, latencies: reads.latencies, ..Reads::NOTHING };
    }

    pub fn is_on(&self) -> bool {
        self.reads != Reads::NOTHING
    }

    /// The events from which the columns in `reads` are computed.
    pub fn events(reads: Reads) -> Events {
        match reads.tokens || reads.latencies {
            true => Events { first_token: true, completed: true, ended: reads.tokens, ..Events::NONE },
            false => Events::NONE,
        }
    }

    /// Adds `request`, which is dispatched to `instance`. Returns whether a column changed.
    pub fn dispatched(&mut self, signals: &mut Signals, request: &RequestView<'_>, instance: InstanceIndex) -> bool {
        if !self.reads.tokens {
            return false;
        }
        let i = instance.index();
        let prompt = request.input_tokens - signals.cached_tokens(request, i);
        let expected = truncated_u32(f64::from(request.input_tokens) * OUTPUT_RATIO);
        let output = expected.min(request.max_output_tokens.unwrap_or(u32::MAX));
        signals.in_flight_tokens[i] += u64::from(prompt);
        signals.in_flight_output[i] += u64::from(output);
        self.requests.insert(request.id, Dispatched { instance, prompt, output });
        true
    }

    /// Follows an event of [`Self::events`]. Returns the instances of which columns changed: those of tokens, of the instance to which the
    /// request was dispatched, and those of latencies, of the instance that answered, if that is another.
    pub fn observe(&mut self, signals: &mut Signals, event: &Event) -> [Option<InstanceIndex>; 2] {
        let first_token = event.kind == EventKind::FirstToken;
        // Other events, which other policies receive, may be about no request.
        if !first_token && !matches!(event.kind, EventKind::Completed | EventKind::Ended) {
            return [None; 2];
        }
        let mut changed = None;
        if let Some(request) = self.requests.get_mut(&event.request).filter(|_| self.reads.tokens) {
            let i = request.instance.index();
            signals.in_flight_tokens[i] -= u64::from(std::mem::take(&mut request.prompt));
            changed = Some(request.instance);
            if !first_token {
                signals.in_flight_output[i] -= u64::from(request.output);
                self.requests.remove(&event.request);
            }
        }
        if !self.reads.latencies {
            // Moving averages that no policy reads are not kept.
            return [changed, None];
        }
        let Some(instance) = event.instance else { return [changed, None] };
        let (column, measured) = match first_token {
            true => (&mut signals.ttft_ewma, event.ttft.map(|ttft| ttft.0 as f64)),
            false => (&mut signals.itl_ewma, event.mean_itl()),
        };
        if let (Some(average), Some(measured)) = (column.get_mut(instance.index()), measured) {
            *average = if *average == 0.0 { measured } else { *average + NEW_WEIGHT * (measured - *average) };
            return [changed, Some(instance).filter(|_| changed != Some(instance))];
        }
        [changed, None]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Request, Tags};
    use crate::units::Micros;

    fn event(kind: EventKind, request: u32, generated_tokens: u32, ttft: u64, e2e: Option<u64>) -> Event {
        Event {
            at: Micros::ZERO,
            kind,
            request: RequestId(request),
            instance: Some(InstanceIndex(1)),
            input_tokens: 100,
            generated_tokens,
            ttft: Some(Micros(ttft)),
            e2e: e2e.map(Micros),
            tags: Tags::default(),
            block: 0,
        }
    }

    fn dispatched(measures: &mut RouterMeasures, signals: &mut Signals, id: u32, limit: Option<u32>) {
        let mut request = Request::new(RequestId(id), Micros::ZERO, 100, 10);
        request.max_output_tokens = limit;
        measures.dispatched(signals, &RequestView::new(&request, 0, 16), InstanceIndex(1));
    }

    #[test]
    fn prompts_count_until_their_first_token_and_outputs_until_the_end() {
        let (mut measures, mut signals) = (RouterMeasures::default(), Signals::idle([100, 100]));
        dispatched(&mut measures, &mut signals, 9, None);
        assert_eq!((measures.is_on(), signals.in_flight_tokens[1]), (false, 0), "it is not read");
        measures.start(Reads { tokens: true, load: true, ..Reads::NOTHING });
        signals.cached_blocks = vec![0, 2];
        dispatched(&mut measures, &mut signals, 0, None);
        signals.cached_blocks = vec![0, 7];
        dispatched(&mut measures, &mut signals, 1, Some(20));
        assert_eq!(signals.in_flight_tokens, [0, 68], "seven blocks are more than the prompt");
        assert_eq!(signals.in_flight_output, [0, 150 + 20]);
        let mut copy = (measures.clone(), signals.clone());
        for (measures, signals) in [(&mut measures, &mut signals), (&mut copy.0, &mut copy.1)] {
            let first = event(EventKind::FirstToken, 0, 1, 5, None);
            assert_eq!(measures.observe(signals, &first), [Some(InstanceIndex(1)), None]);
            assert_eq!(measures.observe(signals, &first), [Some(InstanceIndex(1)), None], "again after a preemption");
            assert_eq!((signals.in_flight_tokens[1], signals.in_flight_output[1]), (0, 170));
            measures.observe(signals, &event(EventKind::Ended, 1, 0, 5, None));
            measures.observe(signals, &event(EventKind::Completed, 0, 11, 5, Some(30)));
            assert_eq!((signals.in_flight_tokens[1], signals.in_flight_output[1]), (0, 0));
            assert_eq!(measures.observe(signals, &event(EventKind::Completed, 0, 11, 5, Some(30))), [None; 2]);
            assert!(measures.requests.is_empty());
            assert_eq!(signals.ttft_ewma, [0.0, 0.0], "it is not read");
        }
    }

    /// The tokens are those of the instance to which it was dispatched, the latencies those of the one that answered: with prefill apart
    /// from decode two, and only one of them was among the changes.
    #[test]
    fn both_instances_of_a_request_are_among_the_changes() {
        let (mut measures, mut signals) = (RouterMeasures::default(), Signals::idle([100, 100]));
        measures.start(Reads { tokens: true, latencies: true, ..Reads::NOTHING });
        dispatched(&mut measures, &mut signals, 0, None);
        let decoded = |kind| Event { instance: Some(InstanceIndex(0)), ..event(kind, 0, 11, 5, Some(30)) };
        let both = [Some(InstanceIndex(1)), Some(InstanceIndex(0))];
        assert_eq!(measures.observe(&mut signals, &decoded(EventKind::FirstToken)), both);
        assert_eq!(measures.observe(&mut signals, &decoded(EventKind::Completed)), both);
    }

    #[test]
    fn latencies_are_moving_averages() {
        let (mut measures, mut signals) = (RouterMeasures::default(), Signals::idle([100, 100]));
        measures.start(Reads { latencies: true, ..Reads::NOTHING });
        measures.observe(&mut signals, &event(EventKind::FirstToken, 0, 1, 1000, None));
        measures.observe(&mut signals, &event(EventKind::FirstToken, 1, 1, 2000, None));
        assert_eq!(signals.ttft_ewma, [0.0, 1100.0]);
        measures.observe(&mut signals, &event(EventKind::Completed, 0, 11, 1000, Some(1500)));
        assert_eq!(signals.itl_ewma, [0.0, 50.0]);
        measures.observe(&mut signals, &event(EventKind::Completed, 1, 1, 2000, Some(2000)));
        assert_eq!(signals.itl_ewma, [0.0, 50.0], "one token has no inter-token latency");
        assert_eq!(RouterMeasures::events(Reads { load: true, ..Reads::NOTHING }), Events::NONE);
    }
}
