//! The latencies of a request, from the events of its spans.

use blis_diag::RowError;

use crate::json::Number;
use crate::recorded::RecordedTimes;

/// vLLM's `gen_ai.latency.*` of a request, s.
#[derive(Clone, Copy, Default)]
pub(super) struct SpanLatencies {
    time_to_first_token: Option<f64>,
    e2e: Option<f64>,
    time_in_queue: Option<f64>,
}

impl SpanLatencies {
    /// Takes the attribute `key`, if it is one of them.
    pub fn take(&mut self, key: &str, seconds: Option<f64>) {
        match key {
            "gen_ai.latency.time_to_first_token" => self.time_to_first_token = seconds,
            "gen_ai.latency.e2e" => self.e2e = seconds,
            "gen_ai.latency.time_in_queue" => self.time_in_queue = seconds,
            _ => {}
        }
    }

    /// Adds those of another span of the same request.
    pub fn join(&mut self, other: Self) {
        self.time_to_first_token = self.time_to_first_token.or(other.time_to_first_token);
        self.e2e = self.e2e.or(other.e2e);
        self.time_in_queue = self.time_in_queue.or(other.time_in_queue);
    }
}

/// The time of an event, on two clocks.
#[derive(Clone, Copy)]
pub(super) struct EventTime {
    pub monotonic_ns: Option<f64>,
    pub unix: Option<Number>,
}

impl EventTime {
    /// The time from `self` to `later`, µs, by the monotonic clock if both have it.
    fn until_us(self, later: Self) -> Option<f64> {
        let monotonic = self.monotonic_ns.zip(later.monotonic_ns).map(|(from, to)| to - from);
        // Nanoseconds since 1970 exceed the precision of a float: integers are subtracted.
        let unix = || match (self.unix?, later.unix?) {
            (Number::Whole(from), Number::Whole(to)) => Some(i128::from(to).wrapping_sub(i128::from(from)) as f64),
            (from, to) => Some(to.real() - from.real()),
        };
        monotonic.or_else(unix).map(|ns| ns / 1e3)
    }

    fn earlier(self, other: Self) -> Self {
        if self.until_us(other).is_some_and(|us| us < 0.0) { other } else { self }
    }
}

/// The events of a request that its latencies are computed from: the earliest of each name.
#[derive(Clone, Copy, Default)]
pub(super) struct JourneyTimes {
    arrived: Option<EventTime>,
    queued: Option<EventTime>,
    scheduled: Option<EventTime>,
    first_response: Option<EventTime>,
    first_token: Option<EventTime>,
    departed: Option<EventTime>,
    finished: Option<EventTime>,
    preemptions: u32,
}

impl JourneyTimes {
    /// Takes the event `name`, if it is one of them.
    pub fn take(&mut self, name: &str, at: EventTime) {
        let slot = match name.rsplit('.').next() {
            Some("ARRIVED") => &mut self.arrived,
            Some("QUEUED") => &mut self.queued,
            Some("SCHEDULED") => &mut self.scheduled,
            Some("FIRST_RESPONSE_FROM_CORE") => &mut self.first_response,
            Some("FIRST_TOKEN") => &mut self.first_token,
            Some("DEPARTED") => &mut self.departed,
            Some("FINISHED") => &mut self.finished,
            Some("PREEMPTED") => {
                self.preemptions += 1;
                return;
            }
            _ => return,
        };
        *slot = earliest(*slot, Some(at));
    }

    /// Adds the events of another span of the same request.
    pub fn join(&mut self, other: Self) {
        self.arrived = earliest(self.arrived, other.arrived);
        self.queued = earliest(self.queued, other.queued);
        self.scheduled = earliest(self.scheduled, other.scheduled);
        self.first_response = earliest(self.first_response, other.first_response);
        self.first_token = earliest(self.first_token, other.first_token);
        self.departed = earliest(self.departed, other.departed);
        self.finished = earliest(self.finished, other.finished);
        self.preemptions += other.preemptions;
    }

    /// The latencies of a request that completed. It arrived at its event, else at the `start` of its span (ns since 1970);
    /// `reported` are used where events are missing.
    pub fn latencies(&self, start: Option<Number>, reported: SpanLatencies) -> Result<RecordedTimes, RowError> {
        let Self { queued, scheduled, first_response, first_token, departed, finished, .. } = *self;
        let start = start.map(|start| EventTime { monotonic_ns: None, unix: Some(start) });
        let arrived = self.arrived.or(start);
        let since = |at: Option<EventTime>| arrived.zip(at).and_then(|(from, to)| from.until_us(to));
        let seconds = |time: Option<f64>| time.map(|seconds| seconds * 1e6);
        let ttft = since(first_response.or(first_token)).or(seconds(reported.time_to_first_token));
        let e2e = since(departed.or(finished)).or(seconds(reported.e2e));
        let (Some(ttft), Some(e2e)) = (ttft, e2e) else {
            return Err(RowError::new("the request has no times of its first and last token").hint(
                "they are the events FIRST_TOKEN and FINISHED of a span, or the attributes \
                 `gen_ai.latency.time_to_first_token` and `gen_ai.latency.e2e`",
            ));
        };
        let times = RecordedTimes::new(ttft, e2e)
            .ok_or_else(|| RowError::new(format!("first token after {ttft} µs, last after {e2e} µs: not in order")))?;
        let waited = queued.zip(scheduled).and_then(|(from, to)| from.until_us(to));
        let queue_us = waited.or(seconds(reported.time_in_queue)).filter(|us| *us >= 0.0);
        Ok(RecordedTimes { queue_us, preemptions: scheduled.map(|_| self.preemptions), ..times })
    }
}

fn earliest(a: Option<EventTime>, b: Option<EventTime>) -> Option<EventTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.earlier(b)),
        (a, b) => a.or(b),
    }
}
