//! `blis decisions show`: the lines of a trace, described in words.

use std::fmt::{self, Display};
use std::path::Path;

use super::line::{
    AdapterEvictionLine, AdapterRoom, AdmissionLine, BatchEntry, BatchObstacle, LineKind, LoadLine, OutcomeLine,
    OutcomeStatus, PoolInstanceLine, PreemptionLine, PrefillLine, RoutingLine, SchedulingLine, SignalsLine, TraceLine,
};
use super::read::TraceReader;
use super::seen::InstanceSignals;
use super::table::{ms, or_dash, plural, score, seconds};
use blis_sim::ids::InstanceIndex;
use blis_workload::TraceError;

/// Selects the lines that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineFilter {
    /// Lists the lines of this instance alone.
    pub instance: Option<InstanceIndex>,
    /// Start of the time window, µs.
    pub from_us: Option<u64>,
    /// End of the time window, µs.
    pub to_us: Option<u64>,
    /// Selected kinds; an empty list selects all but signals.
    pub kinds: Vec<LineKind>,
}

impl LineFilter {
    fn takes(&self, line: &TraceLine) -> bool {
        let kind =
            if self.kinds.is_empty() { line.kind() != LineKind::Signals } else { self.kinds.contains(&line.kind()) };
        let instance = self.instance.is_none() || line.instance() == self.instance;
        let from = self.from_us.is_none_or(|from| line.time_us().is_some_and(|at| at >= from));
        let to = self.to_us.is_none_or(|to| line.time_us().is_some_and(|at| at < to));
        kind && instance && from && to
    }
}

/// The lines of a trace that pass a filter.
pub struct Listing {
    reader: TraceReader,
    filter: LineFilter,
}

impl Listing {
    /// The lines of the trace at `path`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: &Path, filter: LineFilter) -> Result<Self, TraceError> {
        Ok(Self::new(TraceReader::open(path)?, filter))
    }

    /// The lines of `reader`.
    #[must_use]
    pub fn new(reader: TraceReader, filter: LineFilter) -> Self {
        Self { reader, filter }
    }

    /// The heading above the lines.
    #[must_use]
    pub fn heading(&self) -> String {
        let header = self.reader.header();
        let instances: u64 = header.instances.iter().map(|group| u64::from(group.count)).sum();
        format!(
            "{} on {}, {}, seed {}\n{}: admission {}, routing {}, priority {}, scheduling {}, preemption {}\n\n{}\n",
            header.model,
            header.hardware,
            plural(instances, "instance"),
            header.seed,
            header.workload,
            header.policies.admission,
            header.policies.routing,
            header.policies.priority,
            header.policies.scheduling,
            header.policies.preemption,
            row("s", "kind", "request", "instance", "")
        )
    }

    /// The next line in words, or as in the file; `None` at the end.
    ///
    /// # Errors
    /// If the rest of the trace cannot be read.
    pub fn next_text(&mut self, raw: bool) -> Result<Option<String>, TraceError> {
        while let Some(line) = self.reader.next_line()? {
            if self.filter.takes(&line) {
                return Ok(Some(if raw {
                    format!("{}\n", String::from_utf8_lossy(self.reader.text()))
                } else {
                    format!("{}\n", in_words(&line, self.reader.signals()))
                }));
            }
        }
        Ok(None)
    }
}

fn row(time: &str, kind: &str, request: &str, instance: &str, what: impl Display) -> String {
    format!("{time:>14}  {kind:<10}  {request:>7}  {instance:>8}  {what}").trim_end().to_owned()
}

/// A description of `line`, which follows the line `signals`.
fn in_words(line: &TraceLine, signals: Option<&SignalsLine>) -> String {
    let what = match line {
        TraceLine::Signals(signals) => signals.to_string(),
        TraceLine::Admission(admission) => admission.to_string(),
        TraceLine::Gateway(gateway) => gateway.to_string(),
        TraceLine::Routing(routing) => routing_text(routing, signals),
        TraceLine::Scheduling(scheduling) => scheduling.to_string(),
        TraceLine::Preemption(preemption) => preemption.to_string(),
        TraceLine::Load(load) => load.to_string(),
        TraceLine::AdapterEviction(eviction) => eviction.to_string(),
        TraceLine::Prefill(prefill) => prefill.to_string(),
        TraceLine::Outcome(outcome) => outcome.to_string(),
    };
    let time = or_dash(line.time_us(), seconds);
    let request = or_dash(line.request(), |request| request.to_string());
    let instance = or_dash(line.instance(), |instance| instance.to_string());
    row(&time, line.kind().name(), &request, &instance, what)
}

/// A description of a routing decision, with the signals of the chosen instance.
fn routing_text(routing: &RoutingLine, signals: Option<&SignalsLine>) -> String {
    let observed = InstanceSignals::of_chosen(routing, signals);
    let reason = if routing.reason.is_empty() { "chosen" } else { &routing.reason };
    let observed = if observed.is_empty() { String::new() } else { format!("; it had {observed}") };
    match routing.score_regret {
        Some(regret) if regret > 0.0 => format!("{reason}{observed}; score regret {}", score(regret)),
        _ => format!("{reason}{observed}"),
    }
}

impl Display for SignalsLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |column: &[u32]| column.iter().map(|&entry| u64::from(entry)).sum::<u64>();
        let (waiting, running, free) = (sum(&self.queue_depth), sum(&self.batch_size), sum(&self.free_kv_blocks));
        write!(f, "reading {}: {waiting} queued, {running} running, {free} blocks free in total", self.reading)
    }
}

impl Display for AdmissionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.admitted { "admitted" } else { "rejected" })?;
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        write!(f, ": {} in", plural(self.input_tokens.into(), "token"))?;
        for (what, name) in [("class", &self.class), ("tenant", &self.tenant), ("model", &self.model)] {
            if !name.is_empty() {
                write!(f, ", {what} {name}")?;
            }
        }
        match self.tenant_in_flight {
            Some(count) => write!(f, "; its tenant had {count} in flight"),
            None => Ok(()),
        }
    }
}

impl Display for SchedulingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decision {
            BatchEntry::Enters => {
                let tokens = plural(self.num_tokens.unwrap_or(0).into(), "token");
                write!(f, "enters the batch of {} with {tokens}", self.running)?;
                if let Some(blocks) = self.cached_blocks.filter(|&blocks| blocks > 0) {
                    write!(f, " and {} from the cache", plural(blocks.into(), "block"))?;
                }
            }
            BatchEntry::Waits => {
                f.write_str("waits at the head of the queue: ")?;
                self.fmt_obstacle(f)?;
            }
        }
        write!(f, "; waited {} ms, {} more in the queue", ms(self.waited_us), self.waiting.saturating_sub(1))?;
        match self.preemptions {
            0 => Ok(()),
            times => write!(f, ", preempted {} before", plural(times.into(), "time")),
        }
    }
}

impl SchedulingLine {
    fn fmt_obstacle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.obstacle {
            Some(BatchObstacle::TokenBudget) => {
                write!(f, "the {} of the batch use the whole token budget of the step", self.running)
            }
            Some(BatchObstacle::BatchFull) => write!(f, "all {} batch slots are taken", self.running),
            Some(BatchObstacle::PrefillInterval) => f.write_str("prefill waits for a later step"),
            Some(BatchObstacle::KvTransfer) => {
                f.write_str("blocks of its prompt are read from a lower tier, or written to it")
            }
            Some(BatchObstacle::UnsplitPrompt) => {
                let tokens = plural(self.num_tokens.unwrap_or(0).into(), "token");
                write!(f, "its {tokens} must not be chunked, and {} of the token budget are left", self.token_budget)
            }
            Some(BatchObstacle::AdapterSlot) => f.write_str("its adapter has no slot"),
            Some(BatchObstacle::KvBlocks) => {
                let needed = plural(self.needed_kv_blocks.unwrap_or(0).into(), "KV block");
                write!(f, "it takes {needed}, and {} are free ({} running)", self.free_kv_blocks, self.running)
            }
            None => f.write_str("no reason recorded"),
        }
    }
}

impl Display for PreemptionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needed = plural(self.needed_kv_blocks.into(), "KV block");
        let wanting = if self.wanting == self.request { "it".to_owned() } else { format!("request {}", self.wanting) };
        write!(f, "preempted in a batch of {}: {wanting} needs {needed}, ", self.running)?;
        let lost = plural(self.computed_tokens.into(), "computed token");
        write!(f, "{} are free; {lost} to compute again, {} generated", self.free_kv_blocks, self.generated_tokens)
    }
}

impl Display for LoadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = plural(self.tokens.into(), "token");
        let does = if self.loads { "loads" } else { "computes" };
        write!(f, "{does} {found} that the CPU tier has, {} bytes behind {}", self.bytes, self.queued_bytes)
    }
}

impl Display for AdapterEvictionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room = match self.from {
            AdapterRoom::Gpu => "the slot",
            AdapterRoom::Host => "the room in host memory",
        };
        let number = self.candidates.len();
        write!(f, "adapter {} takes {room} of {}, one of {number} that no request uses", self.adapter, self.evicted)
    }
}

impl Display for PrefillLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.remote, self.prefill) {
            (false, _) => write!(f, "prefills it itself")?,
            (true, None) => write!(f, "another instance prefills it")?,
            (true, Some(instance)) => write!(f, "instance {instance} prefills it")?,
        }
        let of = |list: &[PoolInstanceLine], instance: u32| list.iter().find(|one| one.instance == instance).cloned();
        let prefill = self.prefill.and_then(|instance| of(&self.prefills, instance));
        for seen in of(&self.decodes, self.decode).into_iter().chain(prefill.filter(|_| self.remote)) {
            if let Some(uncached) = seen.uncached_tokens {
                write!(f, "; {} lacks {} of {}", seen.instance, uncached, self.input_tokens)?;
            }
            if let Some(tokens) = seen.in_flight_tokens {
                write!(f, "; {} has {} in flight", seen.instance, plural(tokens, "prompt token"))?;
            }
        }
        Ok(())
    }
}

impl Display for OutcomeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status.in_words())?;
        if let Some(ttft) = self.ttft_us {
            write!(f, ": TTFT {} ms", ms(ttft))?;
        }
        if let Some(e2e) = self.e2e_us {
            write!(f, ", E2E {} ms", ms(e2e))?;
        }
        write!(f, "; {} in, {} of {} out", self.input_tokens, self.generated_tokens, self.output_tokens)?;
        if self.cached_blocks > 0 {
            write!(f, ", {} cached", plural(self.cached_blocks.into(), "block"))?;
        }
        match self.preemptions {
            0 => Ok(()),
            times => write!(f, ", preempted {}", plural(times.into(), "time")),
        }
    }
}

impl OutcomeStatus {
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::LengthCapped => "completed, cut off at the maximum model length",
            Self::TimedOut => "timed out",
            Self::Evicted => "evicted by the gateway",
            Self::DroppedPromptTooLong => "dropped: the prompt alone is too long",
            Self::DroppedBudgetTooLong => "dropped: input and output are too long",
            Self::DroppedKvTooSmall => "dropped: larger than the KV cache",
            Self::DroppedNoDecodeBlocks => "dropped: no instance that decodes had the KV blocks for it",
            Self::Queued => "still queued at the end",
            Self::Running => "still running at the end",
            Self::Arriving => "still between client and instance at the end",
            Self::RejectedByAdmission => "rejected by the admission policy",
            Self::RejectedByRouting => "rejected: no instance serves its model",
            Self::RejectedNoReplica => "rejected: no replica of its model was active",
            Self::RejectedByServer => "rejected: the API server had too many requests",
            Self::InGateway => "still in the gateway's queue at the end",
            Self::RejectedGatewayFull => "rejected: the gateway's queue had no room",
            Self::DisplacedInGateway => "displaced from the gateway's queue",
            Self::ExpiredInGateway => "expired in the gateway's queue",
        }
    }
}
