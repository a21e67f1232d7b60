//! `blis decisions show --request`: all decisions about one request, and the requests that it waited for.

use std::fmt::{self, Display};
use std::path::Path;

use blis_sim::ids::RequestId;
use serde::Serialize;

use super::line::{AdmissionLine, BatchEntry, OutcomeLine, TraceLine};
use super::read::TraceReader;
use super::seen::InstanceSignals;
use super::table::{ms, plural, seconds};
use crate::conclusion::{Concludes, Conclusion};
use blis_workload::TraceError;

/// What `blis decisions show --request` prints with `--output json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestHistory {
    /// Number of the request. Unit: number.
    request: u32,
    /// Decisions about the request, and its end, in order.
    events: Vec<HistoryEvent>,
    /// Name of the admission policy.
    #[serde(skip)]
    admission: String,
}

impl Concludes for RequestHistory {
    fn conclusion(&self) -> Conclusion {
        Conclusion::measured(format!("Request {}: {} decisions and ends", self.request, self.events.len()))
    }
}

/// A line of the trace as docs/decisions.md has it, with what is known beside it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct HistoryEvent {
    /// JSON: `Map<String, Value>`.
    #[serde(flatten)]
    line: TraceLine,
    /// Signals that the policy had; of a routing decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<InstanceSignals>,
    /// Requests that entered the running batch while this one waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    entered_meanwhile: Option<EnteredRequests>,
}

/// Requests that entered a running batch, in that order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct EnteredRequests {
    /// How many. Unit: requests.
    count: usize,
    /// Numbers of the first ones, at most 8. Unit: number.
    first: Vec<u32>,
}

impl EnteredRequests {
    /// Maximum number of requests that are named.
    const NAMED: usize = 8;

    fn new(entered: impl Iterator<Item = u32>) -> Self {
        let mut all = Self::default();
        for request in entered {
            all.count += 1;
            if all.first.len() < Self::NAMED {
                all.first.push(request);
            }
        }
        all
    }
}

/// A waiting queue that contains the request.
#[derive(Debug)]
struct Queue {
    instance: u32,
    /// Time at which it joined the queue at the latest.
    since_us: u64,
    /// Entries into the batch from that queue since then: (time, number of the request).
    entered: Vec<(u64, u32)>,
}

impl RequestHistory {
    /// The history of `request` in the trace at `path`; `None` if the trace does not contain it.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn read(path: &Path, request: RequestId) -> Result<Option<Self>, TraceError> {
        Self::from_reader(&mut TraceReader::open(path)?, request)
    }

    /// The history of `request` in the lines of `reader`.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn from_reader(reader: &mut TraceReader, request: RequestId) -> Result<Option<Self>, TraceError> {
        let admission = reader.header().policies.admission.clone();
        let mut history = Self { request: request.0, events: Vec::new(), admission };
        let mut queue: Option<Queue> = None;
        while let Some(line) = reader.next_line()? {
            if line.request() == Some(request) {
                history.record(line, reader, &mut queue);
            } else {
                history.update_queue(&line, &mut queue);
            }
        }
        Ok((!history.events.is_empty()).then_some(history))
    }

    /// Adds a line about the request.
    fn record(&mut self, line: TraceLine, reader: &TraceReader, queue: &mut Option<Queue>) {
        let mut event = HistoryEvent { line, observed: None, entered_meanwhile: None };
        match &event.line {
            TraceLine::Admission(admission) => {
                event.observed = Some(InstanceSignals::new(&admission.seen(), reader.signals()));
            }
            TraceLine::Routing(routing) => {
                event.observed = Some(InstanceSignals::routing(routing, reader.signals()));
                *queue = Some(Queue::new(routing.instance, routing.time_us));
            }
            TraceLine::Scheduling(scheduling) if scheduling.decision == BatchEntry::Enters => {
                let since = scheduling.time_us.saturating_sub(scheduling.waited_us);
                event.entered_meanwhile = queue.take().map(|queue| queue.meanwhile(since));
            }
            TraceLine::Preemption(preemption) => *queue = Some(Queue::new(preemption.instance, preemption.time_us)),
            TraceLine::Outcome(_) => {
                event.entered_meanwhile = queue.take().map(|queue| queue.meanwhile(queue.since_us));
            }
            TraceLine::Signals(_)
            | TraceLine::Gateway(_)
            | TraceLine::Scheduling(_)
            | TraceLine::Load(_)
            | TraceLine::AdapterEviction(_)
            | TraceLine::Prefill(_) => {}
        }
        event.observed = event.observed.filter(|observed| !observed.is_empty());
        event.entered_meanwhile = event.entered_meanwhile.filter(|meanwhile| meanwhile.count > 0);
        self.events.push(event);
    }

    /// Updates the state of the queue from a line about another request.
    fn update_queue(&mut self, line: &TraceLine, queue: &mut Option<Queue>) {
        match line {
            TraceLine::Scheduling(scheduling) if scheduling.decision == BatchEntry::Enters => {
                let queue = queue.as_mut().filter(|queue| queue.instance == scheduling.instance);
                if let Some(queue) = queue.filter(|queue| queue.since_us <= scheduling.time_us) {
                    queue.entered.push((scheduling.time_us, scheduling.request));
                }
            }
            TraceLine::Preemption(preemption) if preemption.wanting == self.request => {
                self.events.push(HistoryEvent { line: line.clone(), observed: None, entered_meanwhile: None });
            }
            _ => {}
        }
    }
}

impl Queue {
    fn new(instance: u32, since_us: u64) -> Self {
        Self { instance, since_us, entered: Vec::new() }
    }

    fn meanwhile(&self, since_us: u64) -> EnteredRequests {
        EnteredRequests::new(self.entered.iter().filter(|(at, _)| *at >= since_us).map(|&(_, request)| request))
    }
}

impl Display for RequestHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Request {}\n", self.request)?;
        for event in &self.events {
            let time = event.line.time_us().map_or("-".to_owned(), seconds);
            let kind = event.line.kind().name();
            write!(f, "{time:>14} s  {kind:<10}  ")?;
            self.fmt_event(f, event)?;
        }
        Ok(())
    }
}

impl RequestHistory {
    fn fmt_event(
        &self,
        f: &mut fmt::Formatter<'_>,
        HistoryEvent { line, observed, entered_meanwhile }: &HistoryEvent,
    ) -> fmt::Result {
        match line {
            TraceLine::Admission(admission) => writeln!(f, "{}", self.admitted(admission))?,
            TraceLine::Routing(routing) => {
                let reason = if routing.reason.is_empty() { "no reason given" } else { &routing.reason };
                writeln!(f, "to instance {}: {reason}", routing.instance)?;
            }
            TraceLine::Preemption(preemption) if preemption.request != self.request => {
                let (victim, needed) = (preemption.request, plural(preemption.needed_kv_blocks.into(), "KV block"));
                writeln!(f, "request {victim} is preempted for it: it needs {needed}")?;
            }
            TraceLine::Gateway(gateway) => writeln!(f, "{gateway}")?,
            TraceLine::Scheduling(scheduling) => writeln!(f, "{scheduling}")?,
            TraceLine::Preemption(preemption) => writeln!(f, "{preemption}")?,
            TraceLine::Load(load) => writeln!(f, "{load}")?,
            TraceLine::AdapterEviction(eviction) => writeln!(f, "{eviction}")?,
            TraceLine::Prefill(prefill) => writeln!(f, "{prefill}")?,
            TraceLine::Outcome(outcome) => writeln!(f, "{outcome}")?,
            TraceLine::Signals(signals) => writeln!(f, "{signals}")?,
        }
        if let Some(meanwhile) = entered_meanwhile {
            let listed: Vec<String> = meanwhile.first.iter().map(u32::to_string).collect();
            let more = if meanwhile.count > meanwhile.first.len() { ", …" } else { "" };
            let count = plural(meanwhile.count as u64, "other request");
            writeln!(f, "      {count} entered from that queue before it: {}{more}", listed.join(", "))?;
        }
        if let Some(observed) = observed {
            let ages = observed.ages();
            writeln!(
                f,
                "      signals of the policy{}",
                if ages.is_empty() { String::new() } else { format!(" ({ages})") }
            )?;
            write!(f, "{observed}")?;
        }
        if let TraceLine::Outcome(outcome) = line {
            writeln!(f, "      {}", latency_parts(outcome))?;
        }
        Ok(())
    }

    fn admitted(&self, admission: &AdmissionLine) -> String {
        format!("{admission}; decided by {}", self.admission)
    }
}

/// The parts of its latency: waiting, first token, the rest.
fn latency_parts(outcome: &OutcomeLine) -> String {
    let OutcomeLine { scheduling_delay_us, ttft_us, e2e_us, .. } = *outcome;
    let Some(waited) = scheduling_delay_us else { return "it never entered a running batch".to_owned() };
    let mut parts = vec![format!("{} ms until it (last) entered the batch", ms(waited))];
    if let Some(ttft) = ttft_us {
        // A first token from before a preemption is earlier than the last entry into the batch.
        parts.push(format!("first token {} ms after its arrival", ms(ttft)));
        parts.extend(e2e_us.map(|e2e| format!("{} ms from that to the last", ms(e2e.saturating_sub(ttft)))));
    }
    parts.join("; ")
}
