//! `blis plugin replay`: the recorded decisions of admission and routing, made again by a plugin from the recorded
//! signals. One guest of each kind makes all of them in order, so a state develops as in a run, except that the signals
//! are those after the recorded decisions, not after its own.
//!
//! The trace is read twice: first its names are collected and its columns are checked, then decisions are made.

use std::fmt::{self, Display};
use std::path::Path;

use blis_diag::{Diagnose, Diagnostic, RowError};
use blis_plugin::{Fault, Guest, GuestSetup, Kind, Limits, LoadedPlugin, OtherValue, PolicyDescription};
use blis_sim::cluster::Abort;
use blis_sim::ids::RequestId;
use blis_sim::policy::{AdmissionDecision, Events, Ties};
use blis_sim::rng::Stream;
use blis_workload::{Names, TraceError};
use serde::Serialize;
use serde_json::{Map, Value};
use strum::EnumCount as _;

use super::line::{AdmissionLine, DecisionHeader, DecisionSignals, LineKind, RoutingLine, SignalsLine, TraceLine};
use super::read::TraceReader;
use super::seen::SignalsOfInstance;
use super::table::{TextTable, or_dash, plural, score, seconds};
use super::view::{RecordedService, missing};
use crate::plugins::other_value;

/// The plugin that makes the decisions, and its settings.
#[derive(Clone, Debug)]
pub struct ReplayedPolicy<'a> {
    pub loaded: &'a LoadedPlugin,
    /// The kinds to be replayed, with the values of the parameters; only kinds that are [replayable](is_replayable).
    pub kinds: Vec<(Kind, ReplayedParameters)>,
    /// Whether the first of equally good instances is chosen, and not one that the recorded seed determines.
    pub lowest_index: bool,
    pub limits: Limits,
}

/// The values of all parameters, in the order of their declaration.
#[derive(Clone, Debug)]
pub struct ReplayedParameters {
    pub numbers: Vec<f64>,
    /// Of those that are no numbers.
    pub others: Vec<OtherValue>,
}

impl ReplayedParameters {
    /// The values by the names of `description`.
    fn named(&self, description: &PolicyDescription) -> Map<String, Value> {
        let numbers = description.parameters.iter().map(|one| &one.name).zip(self.numbers.iter().map(|&v| v.into()));
        let others = description.others.iter().map(|one| &one.name).zip(self.others.iter().map(other_value));
        numbers.chain(others).map(|(name, value)| (name.clone(), value)).collect()
    }
}

/// Whether lines of a trace hold everything that a decision of `kind` depends on.
#[must_use]
pub fn is_replayable(kind: Kind) -> bool {
    matches!(kind, Kind::Admission | Kind::Routing)
}

/// The decisions of a plugin, compared with those recorded.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReplay {
    plugin: String,
    file: String,
    technology: &'static str,
    sha256: String,
    /// Path of the trace.
    trace: String,
    recorded: TracedRun,
    /// Number of decisions that were made again.
    decisions: u64,
    /// Number of those that differ from the recorded ones.
    differ: u64,
    kinds: Vec<ReplayedKind>,
    /// The first decisions that differ.
    differences: Vec<Difference>,
    not_replayed: Vec<NotReplayed>,
    /// Inputs that the trace does not hold, and the values that the plugin got instead.
    assumed: Vec<Assumption>,
}

/// The run of the trace.
#[derive(Clone, Debug, Serialize)]
struct TracedRun {
    program: String,
    model: String,
    hardware: String,
    seed: u64,
    config_sha256: String,
}

/// The replay of one kind.
#[derive(Clone, Debug, Serialize)]
struct ReplayedKind {
    kind: &'static str,
    recorded_policy: String,
    /// Values of the plugin's parameters by name.
    parameters: Map<String, Value>,
    decisions: u64,
    differ: u64,
    /// Decisions for another instance with the same, best score. They do not count as different.
    #[serde(skip_serializing_if = "Option::is_none")]
    equal_scores: Option<u64>,
}

/// A decision that differs.
#[derive(Clone, Debug, Serialize)]
struct Difference {
    kind: &'static str,
    time_us: u64,
    request: u32,
    #[serde(flatten)]
    decisions: Decisions,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Decisions {
    Admission { recorded: Admitted, replayed: Admitted },
    Routing { recorded: Box<ChosenInstance>, replayed: Box<ChosenInstance> },
}

#[derive(Clone, Debug, Serialize)]
struct Admitted {
    admitted: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// The instance of a decision, with its signals. The `score` among them is that of the recorded policy.
#[derive(Clone, Copy, Debug, Serialize)]
struct ChosenInstance {
    #[serde(flatten)]
    signals: SignalsOfInstance,
    /// The score of the replayed plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed_score: Option<f64>,
}

/// Recorded decisions that were not made again.
#[derive(Clone, Debug, Serialize)]
struct NotReplayed {
    kind: &'static str,
    decisions: u64,
    reason: &'static str,
}

/// An input that the trace does not hold.
#[derive(Clone, Copy, Debug, Serialize)]
struct Assumption {
    input: &'static str,
    value: &'static str,
}

/// Why a trace cannot be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// The trace is invalid, or holds too little for this plugin.
    Trace(TraceError),
    /// The plugin refuses to start.
    Start(Fault),
    /// The plugin fails at a decision.
    Decision(Box<Diagnostic>),
}

impl From<TraceError> for ReplayError {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl Diagnose for ReplayError {
    fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Trace(error) => error.diagnostic(),
            Self::Start(fault) => fault.diagnostic(),
            Self::Decision(diagnostic) => diagnostic.as_ref().clone(),
        }
    }
}

impl PolicyReplay {
    /// Replays the trace at `path`; the first `limit` differences are kept.
    ///
    /// # Errors
    /// If the trace cannot be read or lacks a column that the plugin reads, or the plugin fails.
    pub fn read(path: &Path, policy: &ReplayedPolicy<'_>, limit: usize) -> Result<Self, ReplayError> {
        let survey = TraceSurvey::read(&mut TraceReader::open(path)?, policy)?;
        let mut reader = TraceReader::open(path)?;
        let service =
            RecordedService::new(reader.header(), survey.names.clone()).map_err(|error| reader.fault(error))?;
        let mut replay = Self::new(path, policy, reader.header(), &survey);
        let mut guests = Guests::start(policy, reader.header(), service)?;
        while let Some(line) = reader.next_line()? {
            let difference = match &line {
                TraceLine::Admission(line) => guests.admission(line, &reader)?,
                TraceLine::Routing(line) => guests.routing(line, &reader)?,
                TraceLine::Outcome(line) => {
                    guests.service.forget(RequestId(line.request));
                    None
                }
                _ => None,
            };
            replay.differences.extend(difference.filter(|_| replay.differences.len() < limit));
        }
        replay.count(&guests);
        Ok(replay)
    }

    fn new(path: &Path, policy: &ReplayedPolicy<'_>, header: &DecisionHeader, survey: &TraceSurvey) -> Self {
        let LoadedPlugin { name, file, sha256, plugin, .. } = policy.loaded;
        let header = header.clone();
        let kind = |(kind, values): &(Kind, ReplayedParameters)| ReplayedKind {
            kind: kind.name(),
            recorded_policy: match kind {
                Kind::Admission => header.policies.admission.clone(),
                _ => header.policies.routing.clone(),
            },
            parameters: values.named(plugin.description()),
            decisions: 0,
            differ: 0,
            equal_scores: None,
        };
        Self {
            plugin: name.clone(),
            file: file.clone(),
            technology: plugin.technology().name(),
            sha256: sha256.clone(),
            trace: path.display().to_string(),
            decisions: 0,
            differ: 0,
            kinds: policy.kinds.iter().map(kind).collect(),
            differences: Vec::new(),
            not_replayed: survey.not_replayed(policy),
            assumed: survey.assumed(policy),
            recorded: TracedRun {
                program: header.program,
                model: header.model,
                hardware: header.hardware,
                seed: header.seed,
                config_sha256: header.config_sha256,
            },
        }
    }

    /// Number of decisions that differ from the recorded ones.
    #[must_use]
    pub fn differ(&self) -> u64 {
        self.differ
    }

    /// Number of decisions that were made again.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    fn count(&mut self, guests: &Guests) {
        for kind in &mut self.kinds {
            let counts = if kind.kind == Kind::Admission.name() { guests.admissions } else { guests.routings };
            (kind.decisions, kind.differ) = (counts.decisions, counts.differ);
            kind.equal_scores = Some(counts.equal_scores).filter(|_| kind.kind == Kind::Routing.name());
            self.decisions += counts.decisions;
            self.differ += counts.differ;
        }
    }
}

/// What is known of the trace before the first decision.
#[derive(Debug, Default)]
struct TraceSurvey {
    names: Names,
    /// Whether a request names a tenant.
    tenants: bool,
    /// Number of lines by kind.
    lines: [u64; LineKind::COUNT],
}

impl TraceSurvey {
    /// Reads and checks the whole trace.
    fn read(reader: &mut TraceReader, policy: &ReplayedPolicy<'_>) -> Result<Self, TraceError> {
        let mut survey = Self::default();
        while let Some(line) = reader.next_line()? {
            survey.lines[line.kind() as usize] += 1;
            let lack = match &line {
                TraceLine::Admission(line) => {
                    for text in [&line.class, &line.tenant, &line.model] {
                        survey.names.intern(text);
                    }
                    survey.tenants |= !line.tenant.is_empty();
                    lack(policy, Kind::Admission, &line.seen(), reader.signals())
                }
                TraceLine::Routing(line) => lack(policy, Kind::Routing, &line.seen(), reader.signals()),
                TraceLine::Prefill(_) => by_role(policy),
                _ => None,
            };
            if let Some(lack) = lack {
                return Err(reader.fault(lack));
            }
        }
        Ok(survey)
    }

    fn not_replayed(&self, policy: &ReplayedPolicy<'_>) -> Vec<NotReplayed> {
        const NOT_ASKED: &str = "the plugin does not make these decisions, or `--kind` leaves them out";
        let is_replayed = |kind| policy.kinds.iter().any(|(replayed, _)| *replayed == kind);
        let rows = [
            (LineKind::Admission, is_replayed(Kind::Admission), NOT_ASKED),
            (LineKind::Routing, is_replayed(Kind::Routing), NOT_ASKED),
            (
                LineKind::Scheduling,
                false,
                "lines hold the head of the queue at a step, not the request as it joined the queue",
            ),
            (LineKind::Preemption, false, "lines hold the victim, not the other requests of the running batch"),
        ];
        let left_out = rows.into_iter().filter(|(_, is_replayed, _)| !is_replayed);
        left_out
            .map(|(kind, _, reason)| NotReplayed { kind: kind.name(), decisions: self.lines[kind as usize], reason })
            .filter(|row| row.decisions > 0)
            .collect()
    }

    fn assumed(&self, policy: &ReplayedPolicy<'_>) -> Vec<Assumption> {
        let routes = policy.kinds.iter().any(|(kind, _)| *kind == Kind::Routing);
        let rows = [
            (true, "keys of the prompt's blocks", "no block is shared with another request"),
            (true, "session, client, prefix group, adapter, round, client's priority and targets", "none"),
            (true, "priority of the class", "the default table"),
            (true, "facts of the model", "none"),
            (
                self.tenants && routes,
                "requests in flight of the tenant at routing",
                "as at its admission if recorded there, else 0",
            ),
            (
                routes && !policy.lowest_index,
                "choice among equal instances",
                "`--tie-break random` with the recorded seed",
            ),
            (routes && policy.lowest_index, "choice among equal instances", "`--tie-break lowest-index`"),
            (policy.loaded.plugin.description().events != Events::NONE, "events", "none is delivered"),
        ];
        rows.into_iter().filter(|(applies, ..)| *applies).map(|(_, input, value)| Assumption { input, value }).collect()
    }
}

/// The error of a decision of `kind` without a column that the plugin reads.
fn lack(
    policy: &ReplayedPolicy<'_>,
    kind: Kind,
    seen: &DecisionSignals<'_>,
    signals: Option<&SignalsLine>,
) -> Option<RowError> {
    policy.kinds.iter().find(|(replayed, _)| *replayed == kind)?;
    let reads = policy.loaded.plugin.description().reads;
    let waiting = reads.waiting_tokens && signals.is_none_or(|signals| signals.waiting_tokens.is_none());
    let name = &policy.loaded.name;
    let column = missing(reads, seen).or_else(|| waiting.then_some("waiting_tokens"))?;
    let hint = match (kind, column) {
        (
            Kind::Routing,
            "cached_blocks" | "in_flight_tokens" | "ttft_ewma_us" | "waiting_tokens" | "adapter_active",
        ) => "record a run with a routing policy that reads it: `--routing-policy weighted`, or the plugin itself",
        (Kind::Routing, _) => "record the run with `--counterfactual-k 2`, or with a routing policy that reads it",
        _ => {
            "record a run with an admission policy that reads it: `--admission-policy` with the plugin itself; or leave \
             admission out with `--kind routing`"
        }
    };
    let what = format!("no `{column}`, which `{name}` reads for {kind}: the recorded policy did not read it");
    Some(RowError::new(what).hint(hint))
}

/// The error of routing decisions among instances by role.
fn by_role(policy: &ReplayedPolicy<'_>) -> Option<RowError> {
    policy.kinds.iter().find(|(replayed, _)| *replayed == Kind::Routing)?;
    let what = "instances have roles: routing policies chose among those that decode, which is not replayed";
    let hint = "record a run without roles; or leave routing out with `--kind admission`";
    Some(RowError::new(what).hint(hint))
}

/// The guests in the course of the trace.
struct Guests {
    name: String,
    admission: Option<Box<dyn Guest>>,
    routing: Option<Box<dyn Guest>>,
    service: RecordedService,
    ties: Ties,
    scores: Vec<f64>,
    admissions: ReplayCounts,
    routings: ReplayCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReplayCounts {
    decisions: u64,
    differ: u64,
    equal_scores: u64,
}

impl Guests {
    fn start(
        policy: &ReplayedPolicy<'_>,
        header: &DecisionHeader,
        service: RecordedService,
    ) -> Result<Self, ReplayError> {
        let LoadedPlugin { name, plugin, .. } = policy.loaded;
        let start = |kind: Kind| -> Result<Option<Box<dyn Guest>>, ReplayError> {
            let Some((_, parameters)) = policy.kinds.iter().find(|(replayed, _)| *replayed == kind) else {
                return Ok(None);
            };
            let setup = GuestSetup {
                kind,
                parameters: parameters.numbers.clone(),
                others: parameters.others.clone(),
                instances: service.instances.clone(),
                names: service.names.texts().into(),
                model_facts: [].into(),
                // As in a run of the same seed.
                stream: Stream::new(header.seed, &format!("plugin:{name}:{kind}")),
                explain: plugin.description().scores,
                limits: policy.limits,
                abort: Abort::default(),
            };
            plugin.start(&setup).map(Some).map_err(ReplayError::Start)
        };
        let admission = start(Kind::Admission)?;
        let routing = start(Kind::Routing)?;
        let ties =
            if policy.lowest_index { Ties::LowestIndex } else { Ties::Random(Stream::new(header.seed, "router")) };
        Ok(Self {
            name: name.clone(),
            admission,
            routing,
            service,
            ties,
            scores: Vec::new(),
            admissions: ReplayCounts::default(),
            routings: ReplayCounts::default(),
        })
    }

    fn admission(&mut self, line: &AdmissionLine, reader: &TraceReader) -> Result<Option<Difference>, ReplayError> {
        let (id, service) = (RequestId(line.request), &mut self.service);
        service.arrive(line);
        let mut difference = None;
        if let Some(guest) = &mut self.admission {
            service.advance(line.time_us, &line.seen(), reader.signals());
            let (request, cluster) = service.views(id).ok_or_else(|| unknown(reader, id))?;
            let decision = guest.admit(&request, &cluster);
            let decision = decision.map_err(|fault| failed(&self.name, Kind::Admission, id, line.time_us, fault))?;
            let (admitted, reason) = match decision {
                AdmissionDecision::Admit => (true, String::new()),
                AdmissionDecision::Reject(reason) => (false, reason.text(&|name| service.names.text(name))),
            };
            self.admissions.decisions += 1;
            if admitted != line.admitted {
                self.admissions.differ += 1;
                difference = Some(Difference {
                    kind: Kind::Admission.name(),
                    time_us: line.time_us,
                    request: line.request,
                    decisions: Decisions::Admission {
                        recorded: Admitted { admitted: line.admitted, reason: line.reason.clone() },
                        replayed: Admitted { admitted, reason },
                    },
                });
            }
        }
        if !line.admitted {
            service.forget(id);
        }
        Ok(difference)
    }

    fn routing(&mut self, line: &RoutingLine, reader: &TraceReader) -> Result<Option<Difference>, ReplayError> {
        let Some(guest) = &mut self.routing else { return Ok(None) };
        let id = RequestId(line.request);
        self.service.advance(line.time_us, &line.seen(), reader.signals());
        let (request, cluster) = self.service.views(id).ok_or_else(|| unknown(reader, id))?;
        self.scores.clear();
        let target = guest.route(&request, &cluster, &self.ties, &mut self.scores);
        let target = target.map_err(|fault| failed(&self.name, Kind::Routing, id, line.time_us, fault))?;
        self.service.forget(id);
        self.routings.decisions += 1;
        let recorded = line.instance as usize;
        if target == recorded {
            return Ok(None);
        }
        let best = self.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if self.scores.get(recorded).is_some_and(|&score| score == best) {
            self.routings.equal_scores += 1;
            return Ok(None);
        }
        self.routings.differ += 1;
        let chosen = |i: usize| {
            Box::new(ChosenInstance {
                signals: SignalsOfInstance::routing(line, reader.signals(), i),
                replayed_score: self.scores.get(i).copied().filter(|score| score.is_finite()),
            })
        };
        Ok(Some(Difference {
            kind: Kind::Routing.name(),
            time_us: line.time_us,
            request: line.request,
            decisions: Decisions::Routing { recorded: chosen(recorded), replayed: chosen(target) },
        }))
    }
}

/// The error of a decision about a request that the trace has not introduced.
fn unknown(reader: &TraceReader, request: RequestId) -> ReplayError {
    let what = format!("request {request} is routed, and no line before admits it");
    let hint = "the file is damaged; write it anew with `blis run --trace-level decisions --trace-path FILE`";
    reader.fault(RowError::new(what).hint(hint)).into()
}

/// The error of the plugin `plugin` that failed at `time_us` µs of the run.
fn failed(plugin: &str, kind: Kind, request: RequestId, time_us: u64, fault: Fault) -> ReplayError {
    let mut diagnostic = fault.diagnostic;
    let at = seconds(time_us);
    diagnostic.what = format!("{plugin}: {kind} of request {request} at {at} s fails: {}", diagnostic.what);
    ReplayError::Decision(diagnostic)
}

impl Display for PolicyReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TracedRun { program, model, hardware, seed, .. } = &self.recorded;
        writeln!(f, "{} ({}, {})", self.plugin, self.file, self.technology)?;
        writeln!(f, "{}: {program}, {model} on {hardware}, seed {seed}\n", self.trace)?;
        for kind in &self.kinds {
            let same = kind.equal_scores.filter(|&count| count > 0);
            let same = same.map_or_else(String::new, |count| {
                format!("; {} for another instance with the same score", plural(count, "decision"))
            });
            let ReplayedKind { kind, recorded_policy, decisions, differ, .. } = kind;
            writeln!(f, "{kind}: {differ} of {decisions} differ from `{recorded_policy}`{same}")?;
        }
        if !self.differences.is_empty() {
            writeln!(f, "\nThe first {}:", plural(self.differences.len() as u64, "difference"))?;
            self.differences.iter().try_for_each(|difference| write!(f, "\n{difference}"))?;
        }
        if !self.not_replayed.is_empty() {
            f.write_str("\nNot replayed:\n")?;
        }
        for NotReplayed { kind, decisions, reason } in &self.not_replayed {
            writeln!(f, "  {}: {reason}", plural(*decisions, &format!("{kind} decision")))?;
        }
        f.write_str("\nNot in the trace, so assumed:\n")?;
        self.assumed.iter().try_for_each(|Assumption { input, value }| writeln!(f, "  {input}: {value}"))
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, time_us, request, decisions } = self;
        let start = format!("{kind} of request {request} at {} s", seconds(*time_us));
        match decisions {
            Decisions::Admission { recorded, replayed } => writeln!(f, "{start}: {recorded}, replayed: {replayed}"),
            Decisions::Routing { recorded, replayed } => {
                let (from, to) = (recorded.signals.instance, replayed.signals.instance);
                writeln!(f, "{start}: instance {from}, replayed: {to}")?;
                write!(f, "{}", instances([("recorded", recorded.as_ref()), ("replayed", replayed.as_ref())]))
            }
        }
    }
}

impl Display for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.admitted { "admitted" } else { "rejected" })?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, " ({})", self.reason) }
    }
}

/// The signals and scores of two instances.
fn instances(rows: [(&str, &ChosenInstance); 2]) -> TextTable {
    type Cell = fn(&ChosenInstance) -> Option<String>;
    let columns: [(&str, Cell); 7] = [
        ("queued", |one| one.signals.load.map(|load| load.queue_depth.to_string())),
        ("running", |one| one.signals.load.map(|load| load.batch_size.to_string())),
        ("free blocks", |one| one.signals.load.map(|load| load.free_kv_blocks.to_string())),
        ("in flight", |one| one.signals.in_flight.map(|count| count.to_string())),
        ("cached", |one| one.signals.cached_blocks.map(|count| count.to_string())),
        ("score", |one| one.signals.score.map(score)),
        ("replayed", |one| one.replayed_score.map(score)),
    ];
    let there = |(_, cell): &&(&str, Cell)| rows.iter().any(|(_, one)| cell(one).is_some());
    let shown: Vec<_> = columns.iter().filter(there).collect();
    let headings = ["instance"].into_iter().chain(shown.iter().map(|(name, _)| *name)).chain([""]);
    let mut table = TextTable::new(4, headings);
    for (role, one) in rows {
        let mut row = vec![one.signals.instance.to_string()];
        row.extend(shown.iter().map(|(_, cell)| or_dash(cell(one), |text| text)));
        row.push(role.to_owned());
        table.row(row);
    }
    table
}
