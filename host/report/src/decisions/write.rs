//! The writer of a trace: an [`Observer`] that writes every decision and the end of every request as a line.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use blis_sim::ids::InstanceIndex;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{
    AdapterEviction, Decision, DisaggregationChoice, GatewayChoice, GatewayDecision, LoadDecision, Outcome,
    PreemptionDecision, SchedulingDecision, SchedulingResult, SignalColumns, Status, WaitReason,
};
use blis_sim::policy::flow::Flow;
use blis_sim::policy::kv_cache::CacheTier;
use blis_sim::policy::{AdapterSlotUse, AdmissionDecision, ClusterView, Reads, Reason, RequestView, RoutingDecision};
use blis_sim::request::Name;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::gateway::QueueDecision;
use super::json::{JsonLines, key};
use super::line::{BatchObstacle, DecisionHeader, EndLine, HeaderLine, OutcomeStatus};
use crate::file::DraftFile;
use crate::{score, score_regret};
use blis_workload::Names;

/// Writes decisions and ends of requests at once; its memory does not grow with the run.
pub struct DecisionLog<'a, W: Write> {
    lines: JsonLines<W>,
    names: &'a Names,
    /// Number of best instances that are listed with a routing decision (`--counterfactual-k`).
    candidates: usize,
    block_size: u32,
    signals: Written,
    scratch: String,
}

/// The periodic signals as they were last written.
#[derive(Debug, Default)]
struct Written {
    /// Number of times that they were written.
    reading: u64,
    /// [`blis_sim::policy::Versions::load`] at that time; 0 before the first.
    version: u64,
    cache_hit_rate: Vec<f64>,
    preemption_count: Vec<u64>,
}

impl<'a, W: Write> DecisionLog<'a, W> {
    /// Writes to `out`, with the `candidates` best instances of each routing decision.
    ///
    /// # Panics
    /// Never: a header can be written as JSON.
    pub fn new(out: W, header: &DecisionHeader, names: &'a Names, candidates: usize) -> Self {
        let mut lines = JsonLines::new(out);
        let text = serde_json::to_string(&HeaderLine { kind: "header", header }).expect("a header is JSON");
        lines.begin(text.strip_suffix('}').unwrap_or(&text));
        lines.end();
        let block_size = header.instances.first().map_or(1, |group| group.block_size);
        Self { lines, names, candidates, block_size, signals: Written::default(), scratch: String::new() }
    }

    /// Writes the last line.
    ///
    /// # Errors
    /// The first write error.
    pub fn finish(mut self) -> io::Result<W> {
        let lines = self.lines.count();
        let text = serde_json::to_string(&EndLine { kind: "end", lines })?;
        self.lines.begin(text.strip_suffix('}').unwrap_or(&text));
        self.lines.end();
        self.lines.finish()
    }

    fn admission(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        read: Reads,
        decision: &AdmissionDecision,
    ) {
        self.reading(cluster, read);
        self.lines.begin("{\"kind\":\"admission\"");
        self.lines.int(key!("request"), request.id.0);
        self.lines.int(key!("time_us"), cluster.now.0);
        match decision {
            AdmissionDecision::Admit => self.lines.raw(",\"admitted\":true"),
            AdmissionDecision::Reject(reason) => {
                self.lines.raw(",\"admitted\":false");
                self.reason(reason);
            }
        }
        self.lines.int(key!("input_tokens"), request.input_tokens);
        if let Some(tokens) = request.max_output_tokens {
            self.lines.int(key!("max_output_tokens"), tokens);
        }
        if let Some(deadline) = request.deadline {
            self.lines.int(key!("deadline_us"), deadline.0);
        }
        let tags = request.tags;
        self.lines.text_unless_empty(key!("class"), self.names.text(tags.slo_class));
        self.lines.text_unless_empty(key!("tenant"), self.names.text(tags.tenant));
        self.lines.text_unless_empty(key!("model"), self.names.text(tags.model));
        if read.in_flight && tags.tenant != Name::NONE {
            self.lines.int(key!("tenant_in_flight"), cluster.tenant_in_flight(tags.tenant));
        }
        self.seen(cluster, SignalColumns { current: read, read });
        self.lines.end();
    }

    /// `cluster` are the instances that could be chosen; columns have `all`.
    fn routing(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        all: &ClusterView<'_>,
        columns: SignalColumns,
        choice: &RoutingDecision,
        scores: &[f64],
    ) {
        self.reading(all, columns.current);
        self.lines.begin("{\"kind\":\"routing\"");
        self.lines.int(key!("request"), request.id.0);
        self.lines.int(key!("time_us"), cluster.now.0);
        self.lines.int(key!("instance"), cluster.instances[choice.target].id.0);
        self.reason(&choice.reason);
        self.seen(all, columns);
        if cluster.len() == all.len() && !scores.is_empty() {
            self.lines.floats(key!("scores"), scores);
        } else if !scores.is_empty() {
            let mut of_all = vec![f64::NAN; all.len()];
            for (info, &score) in cluster.instances.iter().zip(scores) {
                of_all[info.id.index()] = score;
            }
            self.lines.floats(key!("scores"), &of_all);
        }
        if self.candidates > 0 {
            self.lines.float(key!("score_regret"), score_regret(cluster, scores, choice.target));
            self.list_candidates(cluster, scores);
        }
        self.lines.end();
    }

    /// Writes the periodic signals, if they were refreshed.
    fn reading(&mut self, cluster: &ClusterView<'_>, current: Reads) {
        let (written, signals) = (&mut self.signals, cluster.signals);
        let same = written.version != 0 && written.version == cluster.versions.load;
        if !current.load || same {
            return;
        }
        let first = written.reading == 0;
        written.version = cluster.versions.load;
        written.reading += 1;
        self.lines.begin("{\"kind\":\"signals\"");
        self.lines.int(key!("reading"), written.reading);
        self.lines.int(key!("time_us"), cluster.now.saturating_sub(cluster.staleness.load).0);
        self.lines.ints(key!("queue_depth"), &signals.queue_depth);
        self.lines.ints(key!("batch_size"), &signals.batch_size);
        self.lines.ints(key!("free_kv_blocks"), &signals.free_kv_blocks);
        if first || written.cache_hit_rate != signals.cache_hit_rate {
            self.lines.floats(key!("cache_hit_rate"), &signals.cache_hit_rate);
            written.cache_hit_rate.clone_from(&signals.cache_hit_rate);
        }
        if first || written.preemption_count != signals.preemption_count {
            self.lines.ints(key!("preemption_count"), &signals.preemption_count);
            written.preemption_count.clone_from(&signals.preemption_count);
        }
        if current.waiting_tokens {
            self.lines.ints(key!("waiting_tokens"), &signals.waiting_tokens);
        }
        self.lines.end();
    }

    /// Writes the signals that are maintained, and the names of those that the policy did not read.
    fn seen(&mut self, cluster: &ClusterView<'_>, SignalColumns { current, read }: SignalColumns) {
        if current.load {
            self.lines.int(key!("reading"), self.signals.reading);
            self.lines.int(key!("reading_age_us"), cluster.staleness.load.0);
        }
        if current.in_flight {
            self.lines.ints(key!("in_flight"), &cluster.signals.in_flight);
        }
        if current.cached_blocks {
            self.lines.ints(key!("cached_blocks"), &cluster.signals.cached_blocks);
            self.lines.int(key!("cached_blocks_age_us"), cluster.staleness.cached_blocks.0);
        }
        if read.tokens {
            self.lines.ints(key!("in_flight_tokens"), &cluster.signals.in_flight_tokens);
            self.lines.ints(key!("in_flight_output"), &cluster.signals.in_flight_output);
        }
        if read.latencies {
            self.lines.floats(key!("ttft_ewma_us"), &cluster.signals.ttft_ewma);
            self.lines.floats(key!("itl_ewma_us"), &cluster.signals.itl_ewma);
        }
        if read.adapters && cluster.signals.adapter_slots != AdapterSlotUse::None {
            self.lines.ints(key!("adapter_active"), &cluster.signals.adapter_active);
            self.lines.ints(key!("adapter_waiting"), &cluster.signals.adapter_waiting);
            self.lines.ints(key!("free_adapter_slots"), &cluster.signals.free_adapter_slots);
        }
        match (current.load && !read.load, current.in_flight && !read.in_flight) {
            (true, true) => self.lines.raw(",\"unread\":[\"reading\",\"in_flight\"]"),
            (true, false) => self.lines.raw(",\"unread\":[\"reading\"]"),
            (false, true) => self.lines.raw(",\"unread\":[\"in_flight\"]"),
            (false, false) => {}
        }
    }

    fn reason(&mut self, reason: &Reason) {
        self.scratch.clear();
        match reason {
            Reason::TierShed { .. }
            | Reason::GaieSaturated { .. }
            | Reason::Probabilistic { .. }
            | Reason::LatencySlo { .. } => {
                self.scratch.push_str(&reason.text(&|name| self.names.text(name)));
            }
            _ => write!(self.scratch, "{reason}").expect("a String takes everything"),
        }
        self.lines.text_unless_empty(key!("reason"), &self.scratch);
    }

    /// Best first, of equal scores the lowest number; the chosen instance may be among them.
    fn list_candidates(&mut self, cluster: &ClusterView<'_>, scores: &[f64]) {
        let mut best: Vec<(usize, f64)> = (0..cluster.len()).map(|i| (i, score(cluster, scores, i))).collect();
        best.sort_by(|one, other| other.1.total_cmp(&one.1));
        self.lines.raw(",\"candidates\":[");
        for (rank, &(i, score)) in best.iter().take(self.candidates).enumerate() {
            self.lines.int(if rank == 0 { "{\"instance\":" } else { ",{\"instance\":" }, cluster.instances[i].id.0);
            self.lines.float(key!("score"), score);
            self.lines.raw("}");
        }
        self.lines.raw("]");
    }

    fn scheduling(&mut self, decision: &SchedulingDecision) {
        self.lines.begin("{\"kind\":\"scheduling\"");
        self.lines.int(key!("request"), decision.request.0);
        self.lines.int(key!("time_us"), decision.now.0);
        self.lines.int(key!("instance"), decision.instance.0);
        match decision.result {
            SchedulingResult::Scheduled { cached_tokens, num_tokens } => {
                self.lines.raw(",\"decision\":\"enters\"");
                self.lines.int(key!("num_tokens"), num_tokens);
                self.lines.int(key!("cached_blocks"), cached_tokens / self.block_size);
            }
            SchedulingResult::Waits(reason) => {
                self.lines.raw(",\"decision\":\"waits\"");
                self.lines.name(key!("obstacle"), BatchObstacle::from(reason).into());
                match reason {
                    WaitReason::UnsplitPrompt { num_tokens } => self.lines.int(key!("num_tokens"), num_tokens),
                    WaitReason::KvBlocks { needed } => self.lines.int(key!("needed_kv_blocks"), needed),
                    _ => {}
                }
            }
        }
        self.lines.int(key!("waited_us"), decision.waited.0);
        self.lines.int(key!("waiting"), decision.waiting);
        self.lines.int(key!("running"), decision.running);
        self.lines.int(key!("free_kv_blocks"), decision.free_kv_blocks);
        self.lines.int(key!("token_budget"), decision.token_budget);
        self.lines.int_unless_0(key!("priority"), decision.priority);
        self.lines.int_unless_0(key!("generated_tokens"), decision.generated_tokens);
        self.lines.int_unless_0(key!("preemptions"), decision.preemptions);
        self.lines.end();
    }

    fn preemption(&mut self, decision: &PreemptionDecision) {
        self.lines.begin("{\"kind\":\"preemption\"");
        self.lines.int(key!("request"), decision.victim.0);
        self.lines.int(key!("time_us"), decision.now.0);
        self.lines.int(key!("instance"), decision.instance.0);
        self.lines.int(key!("wanting"), decision.requester.0);
        self.lines.int(key!("needed_kv_blocks"), decision.needed_kv_blocks);
        self.lines.int(key!("free_kv_blocks"), decision.free_kv_blocks);
        self.lines.int(key!("waiting"), decision.waiting);
        self.lines.int(key!("running"), decision.running);
        self.lines.int(key!("computed_tokens"), decision.computed_tokens);
        self.lines.int(key!("generated_tokens"), decision.generated_tokens);
        self.lines.int_unless_0(key!("preemptions"), decision.preemptions);
        self.lines.end();
    }

    fn load(&mut self, decision: &LoadDecision) {
        let LoadDecision { instance, hit, loads } = decision;
        self.lines.begin("{\"kind\":\"load\"");
        self.lines.int(key!("request"), hit.request);
        self.lines.int(key!("time_us"), hit.now_us);
        self.lines.int(key!("instance"), instance.0);
        self.lines.bool(key!("loads"), *loads);
        self.lines.int(key!("gpu_tokens"), hit.gpu_tokens);
        self.lines.int(key!("tokens"), hit.tokens);
        self.lines.int(key!("bytes"), hit.bytes);
        self.lines.int_unless_0(key!("queued_bytes"), hit.queued_bytes);
        self.lines.int_unless_0(key!("prefill_tokens"), hit.prefill_tokens);
        self.lines.int(key!("waiting"), hit.waiting);
        self.lines.int(key!("running"), hit.running);
        self.lines.end();
    }

    fn adapter_eviction(&mut self, eviction: &AdapterEviction<'_>) {
        self.lines.begin("{\"kind\":\"adapter_eviction\"");
        self.lines.int(key!("request"), eviction.request.0);
        self.lines.int(key!("time_us"), eviction.now.0);
        self.lines.int(key!("instance"), eviction.instance.0);
        self.lines.text(key!("adapter"), self.names.text(eviction.adapter));
        self.lines.text(key!("from"), if eviction.tier == CacheTier::AdapterSlots { "gpu" } else { "host" });
        self.lines.text(key!("evicted"), self.names.text(eviction.evicted));
        self.lines.raw(",\"candidates\":[");
        for (number, (&name, &rank)) in eviction.candidates.iter().zip(eviction.ranks).enumerate() {
            self.lines.text(if number == 0 { "{\"adapter\":" } else { ",{\"adapter\":" }, self.names.text(name));
            self.lines.float(key!("rank"), rank);
            self.lines.raw("}");
        }
        self.lines.raw("]");
        self.lines.end();
    }

    fn prefill(&mut self, choice: &DisaggregationChoice<'_>) {
        self.lines.begin("{\"kind\":\"prefill\"");
        self.lines.int(key!("request"), choice.request.id.0);
        self.lines.int(key!("time_us"), choice.now.0);
        self.lines.int(key!("input_tokens"), choice.request.input_tokens);
        self.lines.int(key!("decode"), choice.decode.0);
        self.lines.bool(key!("remote"), choice.disaggregate);
        for (key, instance) in [(key!("prefill"), choice.prefill), (key!("encode"), choice.encode)] {
            if let Some(instance) = instance {
                self.lines.int(key, instance.0);
            }
        }
        self.pool(key!("decodes"), choice, choice.decodes);
        self.pool(key!("prefills"), choice, choice.prefills);
        self.lines.end();
    }

    fn pool(&mut self, key: &'static str, choice: &DisaggregationChoice<'_>, pool: &[InstanceIndex]) {
        let (signals, reads) = (choice.cluster.signals, choice.reads);
        self.lines.raw(key);
        self.lines.raw("[");
        for (position, instance) in pool.iter().enumerate() {
            let index = instance.index();
            self.lines.int(if position == 0 { "{\"instance\":" } else { ",{\"instance\":" }, instance.0);
            if reads.cached_blocks {
                let cached = signals.cached_tokens(choice.request, index);
                self.lines.int(key!("uncached_tokens"), choice.request.input_tokens - cached);
            }
            if reads.tokens {
                self.lines.int(key!("in_flight_tokens"), signals.in_flight_tokens[index]);
            }
            if reads.in_flight {
                self.lines.int(key!("in_flight"), signals.in_flight[index]);
            }
            if reads.load {
                self.lines.int(key!("queue_depth"), signals.queue_depth[index]);
                self.lines.int(key!("batch_size"), signals.batch_size[index]);
                self.lines.int(key!("free_kv_blocks"), signals.free_kv_blocks[index]);
            }
            self.lines.raw("}");
        }
        self.lines.raw("]");
    }

    fn ended(&mut self, outcome: &Outcome) {
        self.lines.begin("{\"kind\":\"outcome\"");
        self.lines.int(key!("request"), outcome.id.0);
        if !matches!(outcome.status, Status::Queued | Status::Running | Status::Arriving | Status::InGateway) {
            self.lines.int(key!("time_us"), outcome.ended_at.0);
        }
        self.lines.name(key!("status"), OutcomeStatus::from(outcome.status).into());
        if let Some(instance) = outcome.instance {
            self.lines.int(key!("instance"), instance.0);
        }
        self.lines.int(key!("arrival_us"), outcome.arrival.0);
        self.lines.int(key!("input_tokens"), outcome.input_tokens);
        self.lines.int(key!("output_tokens"), outcome.output_tokens);
        self.lines.int(key!("generated_tokens"), outcome.generated_tokens);
        let times = [
            (key!("ttft_us"), outcome.ttft),
            (key!("e2e_us"), outcome.e2e),
            (key!("scheduling_delay_us"), outcome.scheduling_delay),
        ];
        for (key, time) in times {
            if let Some(time) = time {
                self.lines.int(key, time.0);
            }
        }
        self.lines.int_unless_0(key!("cached_blocks"), outcome.cached_tokens / self.block_size);
        self.lines.int_unless_0(key!("preemptions"), outcome.preemptions);
        self.lines.end();
    }
}

impl<W: Write> DecisionLog<'_, W> {
    fn gateway(&mut self, decision: &GatewayDecision<'_>) {
        self.lines.begin("{\"kind\":\"gateway\"");
        self.lines.int(key!("request"), decision.request.0);
        self.lines.int(key!("time_us"), decision.now.0);
        self.lines.name(key!("decision"), QueueDecision::from(&decision.choice).into());
        if let GatewayChoice::Refused = decision.choice {
            self.lines.name(key!("reason"), "flow-control-queue-rejected");
        }
        if let Some(saturation) = decision.saturation {
            self.lines.float(key!("saturation"), saturation);
        }
        self.bands(decision);
        match decision.choice {
            GatewayChoice::Displaced { by } => self.lines.int(key!("by"), by.0),
            GatewayChoice::Dispatched { band, flows, waited } => {
                self.lines.int(key!("band"), band);
                self.lines.int(key!("waited_us"), waited.0);
                self.flows(flows);
            }
            GatewayChoice::Evicted { instance, demand, candidates } => {
                self.lines.int(key!("band"), demand);
                self.lines.int(key!("instance"), instance.0);
                let ids: Vec<u32> = candidates.iter().map(|request| request.id).collect();
                self.lines.ints(key!("candidates"), &ids);
            }
            GatewayChoice::Refused | GatewayChoice::Expired | GatewayChoice::TimedOut => {}
        }
        self.lines.end();
    }

    fn bands(&mut self, decision: &GatewayDecision<'_>) {
        self.lines.raw(",\"bands\":[");
        for (rank, band) in decision.bands.iter().enumerate() {
            self.lines.int(if rank == 0 { "{\"priority\":" } else { ",{\"priority\":" }, band.priority);
            self.lines.int(key!("queued"), band.queued);
            self.lines.int(key!("oldest_wait_us"), band.oldest_wait_us);
            if let Some(&ceiling) = decision.ceilings.get(rank) {
                self.lines.float(key!("ceiling"), ceiling);
            }
            self.lines.raw("}");
        }
        self.lines.raw("]");
    }

    fn flows(&mut self, flows: &[Flow]) {
        self.lines.raw(",\"flows\":[");
        for (index, flow) in flows.iter().enumerate() {
            self.lines.int(if index == 0 { "{\"queued\":" } else { ",{\"queued\":" }, flow.queued);
            self.lines.text_unless_empty(key!("tenant"), self.names.text(Name(flow.tenant)));
            self.lines.int(key!("head"), flow.head_id);
            self.lines.int(key!("head_wait_us"), flow.head_wait_us);
            self.lines.int(key!("in_flight"), flow.in_flight);
            self.lines.int(key!("dispatched"), flow.dispatched);
            self.lines.int(key!("served_input_tokens"), flow.served_input);
            self.lines.int(key!("served_output_tokens"), flow.served_output);
            self.lines.raw("}");
        }
        self.lines.raw("]");
    }
}

impl<W: Write> DecisionLog<'_, W> {
    fn decided(&mut self, decision: &Decision<'_>) {
        match *decision {
            Decision::Admission { request, cluster, columns, decision } => {
                self.admission(request, cluster, columns.read, decision);
            }
            Decision::Gateway(ref decision) => self.gateway(decision),
            Decision::Disaggregation(ref choice) => self.prefill(choice),
            Decision::Routing { request, cluster, all, columns, choice, scores } => {
                self.routing(request, cluster, all, columns, choice, scores);
            }
            Decision::Scheduling(ref decision) => self.scheduling(decision),
            Decision::Preemption(ref decision) => self.preemption(decision),
            Decision::Load(ref decision) => self.load(decision),
            Decision::AdapterEviction(ref eviction) => self.adapter_eviction(eviction),
        }
    }
}

impl<W: Write> Observer for DecisionLog<'_, W> {
    /// Without candidates, only the signals that the policies read: maintaining others can cost more than the rest of
    /// the run.
    #[inline]
    fn interests(&self) -> Interests {
        let interests = Interests::DECISIONS | Interests::SCHEDULING | Interests::OUTCOMES;
        if self.candidates == 0 { interests } else { interests | Interests::LOAD | Interests::IN_FLIGHT }
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        match event {
            SimEvent::Decision(decision) => self.decided(decision),
            SimEvent::Outcome(outcome) => self.ended(outcome),
            _ => {}
        }
    }
}
/// A file for a trace, gzip-compressed if its name ends with `.gz`.
pub enum TraceFile {
    Plain(DraftFile),
    /// A gzip-compressed file.
    Gzip(Box<GzEncoder<DraftFile>>),
}

impl TraceFile {
    /// An empty file for `path`, where it appears when it is finished.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = DraftFile::create(path)?;
        let is_gzip = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
        Ok(if is_gzip { Self::Gzip(Box::new(GzEncoder::new(file, Compression::fast()))) } else { Self::Plain(file) })
    }

    /// Writes the rest of the file, and gives it its name.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.commit(),
            Self::Gzip(is_gzip) => is_gzip.finish()?.commit(),
        }
    }
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(is_gzip) => is_gzip.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            // A compressed file is flushed at its end only: larger blocks compress better.
            Self::Gzip(_) => Ok(()),
        }
    }
}
