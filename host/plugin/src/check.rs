//! The conformance checks: does a plugin have the properties that the simulator relies on? No check depends on the
//! speed of the machine.
//!
//! Each check tests one property: outputs are in range for any number of instances and at the limits of every field;
//! equal inputs give equal outputs in every run; a forked guest continues as the original does; a saved state is
//! complete.

use std::ops::Range;

use blis_sim::cluster::Abort;
use blis_sim::latency::Batch;
use blis_sim::policy::{Changes, ClusterView, Events, StepMemory, Versions};
use blis_sim::rng::Stream;

use super::inputs::{self, GuestCall, GuestOutput, ties};
use super::{Fault, FaultKind, Guest, GuestSetup, Kind, Limits, Plugin, Technology};

/// Numbers of instances (or of requests in a batch) for which plugins are called.
pub const SIZES: [usize; 3] = [1, 4, 1000];
/// Numbers of instances for which the cost of a call is measured.
pub const COST_SIZES: [usize; 4] = [4, 64, 256, 1000];
/// Calls of a sequence before the guest is forked or saved, and calls afterwards.
const BEFORE: u64 = 100;
const AFTER: u64 = 200;

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The kind that the check is about; `None` for the plugin as a whole.
    pub kind: Option<Kind>,
    /// The property that should hold.
    pub what: &'static str,
    /// What was observed; on failure, what is wrong and what to do.
    pub outcome: Result<String, String>,
}

/// The resources that calls of one kind use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub kind: Kind,
    /// Number of instances, or of requests in the batch.
    pub n: usize,
    /// The largest use of a call: fuel (components) or operations (scripts).
    pub most: u64,
    /// The limit of a call, in the same unit.
    pub limit: u64,
}

/// All results of the conformance checks.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Checks in the order in which they ran.
    pub checks: Vec<Check>,
    /// Empty for native libraries and built-in policies: their instructions are not counted.
    pub usage: Vec<Usage>,
    /// Checks that do not apply: the kind, the check and the reason.
    pub not_applicable: Vec<(Kind, &'static str, &'static str)>,
}

/// Checks that do not apply to built-in policies, with the reason.
const NOT_OF_BUILT_INS: [(&str, &str); 2] = [
    ("a restored state continues as the saved one", "a built-in policy is copied, not saved"),
    ("calls stay within the limits", "a built-in policy has none"),
];

impl Findings {
    /// Whether no check failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.outcome.is_ok())
    }
}

/// Runs all checks of `plugin`, for each of `kinds`.
#[must_use]
pub fn check(plugin: &dyn Plugin, kinds: &[Kind], limits: &Limits) -> Findings {
    let mut findings = Findings::default();
    for &kind in kinds {
        let subject = Subject { plugin, kind, limits: *limits };
        subject.check(&mut findings);
    }
    findings
}

/// Starts `plugin` and makes one decision of `kind` about a plausible request, with default parameters: what is misspelt in
/// a script shows before a simulation.
///
/// # Errors
/// The fault of the start or of the decision.
pub fn try_once(plugin: &dyn Plugin, kind: Kind, limits: &Limits) -> Result<(), Fault> {
    let mut guest = plugin.start(&setup(plugin, kind, 4, limits))?;
    GuestCall::plausible(kind, 4, 0).run(&mut *guest, &ties()).map(|_| ())
}

/// The setup of a guest for `kind` in a service of `n` instances, with the default values of the parameters.
#[must_use]
pub fn setup(plugin: &dyn Plugin, kind: Kind, n: usize, limits: &Limits) -> GuestSetup {
    let of_one = matches!(kind, Kind::Scheduling | Kind::Preemption | Kind::Latency);
    let model_facts = [("num_layers", 32.0), ("hidden_size", 4096.0), ("tensor_parallel_size", 1.0)];
    GuestSetup {
        kind,
        parameters: plugin.description().parameters.iter().map(|parameter| parameter.default).collect(),
        others: plugin.description().others.iter().map(|parameter| parameter.default.clone()).collect(),
        instances: inputs::instances(if of_one { 1 } else { n }).into(),
        names: inputs::names(kind, n).into(),
        model_facts: model_facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        stream: Stream::new(42, "plugin"),
        explain: plugin.description().scores,
        limits: *limits,
        abort: Abort::default(),
    }
}

/// A plugin that is checked for one kind.
struct Subject<'a> {
    plugin: &'a dyn Plugin,
    kind: Kind,
    limits: Limits,
}

/// Outputs, or the name of the call that failed, with its fault.
type Outputs = Result<Vec<GuestOutput>, (String, Fault)>;

impl Subject<'_> {
    fn check(&self, findings: &mut Findings) {
        let mut add = |what, outcome: Result<String, String>| {
            let passed = outcome.is_ok();
            findings.checks.push(Check { kind: Some(self.kind), what, outcome });
            passed
        };
        if !add("starts with its defaults", self.start(4).map(|_| String::new()).map_err(|fault| fault.to_string())) {
            return;
        }
        // Each further check would take the time of the limit again.
        type CheckStep<'a> = (&'static str, fn(&Subject<'a>) -> Result<String, String>);
        let first: [CheckStep<'_>; 3] = [
            ("works at both ends of each parameter", Self::parameters),
            ("outputs are in range", Self::sizes),
            ("outputs are in range for extreme inputs", Self::edges),
        ];
        for (what, step) in first {
            let outcome = step(self);
            let is_exhausted = outcome.as_ref().is_err_and(|text| reached_limit(text));
            add(what, outcome);
            if is_exhausted {
                return;
            }
        }
        if self.kind == Kind::Latency {
            add("step times have the declared properties", self.steps());
        }
        if self.kind == Kind::Routing && self.plugin.description().scores {
            add("computing scores changes no decision", self.explained());
        }
        if self.kind.reads_instances() {
            add("`changed` names all instances that affect an output", self.changed_indices());
        }
        add("two guests return the same outputs", self.agree());
        add("a fork continues as the original", self.fork());
        if self.plugin.technology() == Technology::BuiltIn {
            findings.not_applicable.extend(NOT_OF_BUILT_INS.map(|(what, why)| (self.kind, what, why)));
            return;
        }
        add("a restored state continues as the saved one", self.restore());
        if self.plugin.technology() != Technology::Native {
            match self.usage() {
                Ok(usage) => findings.usage.extend(usage),
                Err(message) => {
                    add("calls stay within the limits", Err(message));
                }
            }
        }
    }

    fn start(&self, n: usize) -> Result<Box<dyn Guest>, Fault> {
        self.plugin.start(&setup(self.plugin, self.kind, n, &self.limits))
    }

    /// As [`Self::sequence`], with the fault and where it was as text.
    fn outputs(&self, guest: &mut dyn Guest, n: usize, items: Range<u64>) -> Result<Vec<GuestOutput>, String> {
        self.sequence(guest, n, items).map_err(|(call, fault)| format!("{call}: {fault}"))
    }

    /// Outputs for the inputs `items` with `n` instances; events that the plugin subscribes to are delivered in between.
    fn sequence(&self, guest: &mut dyn Guest, n: usize, items: Range<u64>) -> Outputs {
        let (events, ties) = (self.plugin.description().events, ties());
        let mut outputs = Vec::new();
        for item in items {
            let event = (events != Events::NONE).then(|| inputs::event(n, item, events)).flatten();
            let calls = event.map(GuestCall::Observe).into_iter().chain([GuestCall::plausible(self.kind, n, item)]);
            for call in calls {
                let output = call.run(guest, &ties);
                outputs.push(output.map_err(|fault| (format!("call {item} with N = {n}"), fault))?);
            }
        }
        Ok(outputs)
    }

    fn parameters(&self) -> Result<String, String> {
        let parameters = &self.plugin.description().parameters;
        if parameters.is_empty() {
            return Ok("it has none".into());
        }
        let usual = setup(self.plugin, self.kind, 4, &self.limits);
        for (index, parameter) in parameters.iter().enumerate() {
            for value in [parameter.min, parameter.max] {
                let mut setup = usual.clone();
                setup.parameters[index] = value;
                let message = |fault: &Fault| {
                    format!("{} = {value}: {fault}; narrow the range, or handle its ends", parameter.name)
                };
                let mut guest = self.plugin.start(&setup).map_err(|fault| message(&fault))?;
                self.sequence(&mut *guest, 4, 0..5).map_err(|(_, fault)| message(&fault))?;
            }
        }
        Ok(format!("{} parameters", parameters.len()))
    }

    /// Possible numbers of instances: a service without instances calls its admission policy only.
    fn possible_sizes(&self) -> Vec<usize> {
        let none = (self.kind == Kind::Admission).then_some(0);
        none.into_iter().chain(SIZES).collect()
    }

    fn sizes(&self) -> Result<String, String> {
        let sizes = self.possible_sizes();
        for &n in &sizes {
            let mut guest = self.start(n).map_err(|fault| format!("N = {n}: {fault}"))?;
            self.outputs(&mut *guest, n, 0..50)?;
        }
        Ok(format!("50 calls each with N = {}", list(&sizes)))
    }

    fn edges(&self) -> Result<String, String> {
        let sizes = self.possible_sizes();
        let mut calls = 0;
        for &n in &sizes {
            for (name, call) in GuestCall::extreme(self.kind, n) {
                let message = |fault: Fault| format!("{name}, N = {n}: {fault}");
                let mut guest = self.start(n).map_err(message)?;
                call.run(&mut *guest, &ties()).map_err(message)?;
                calls += 1;
            }
        }
        Ok(format!("{calls} calls: all 0, the largest numbers, all equal, one idle instance"))
    }

    /// Checks `shortest_step_us` and the effect of context, on which the simulator relies to skip steps.
    fn steps(&self) -> Result<String, String> {
        let mut guest = self.start(1).map_err(|fault| fault.to_string())?;
        let constants = guest.constants().map_err(|fault| fault.to_string())?;
        let shortest = constants.shortest_step_us;
        if shortest == 0 {
            return Err("shortest_step_us is 0; it must be at least 1".into());
        }
        let mut step_time = |batch: &Batch| guest.step_time(batch).map_err(|fault| fault.to_string());
        for requests in [1_u64, 2, 16, 200] {
            let mut previous = 0;
            for context in [0, 1, 100, 10_000, 1_000_000] {
                let batch = Batch { decode_requests: requests, decode_context: requests * context, ..Batch::default() };
                let us = step_time(&batch)?;
                if us != step_time(&batch)? {
                    return Err(
                        "the same step has a different time in a second call; it must depend on the step only".into()
                    );
                }
                if us < shortest {
                    return Err(format!(
                        "{requests} requests of {context} tokens take {us} µs, less than its shortest step of {shortest}"
                    ));
                }
                if us < previous && !self.plugin.description().every_step {
                    return Err(format!(
                        "{requests} requests take {previous} µs with a shorter context and {us} with {context} tokens; \
                         declare every_step, or never let a step get shorter with more context"
                    ));
                }
                previous = us;
            }
        }
        Ok(format!("no step is shorter than {shortest} µs"))
    }

    fn explained(&self) -> Result<String, String> {
        let usual = setup(self.plugin, self.kind, 4, &self.limits);
        let silent = GuestSetup { explain: false, ..usual.clone() };
        let indices = |setup: &GuestSetup| {
            let mut guest = self.plugin.start(setup).map_err(|fault| fault.to_string())?;
            let outputs = self.outputs(&mut *guest, 4, 0..AFTER)?;
            let index = |output| match output {
                GuestOutput::Index(index, _) => GuestOutput::Index(index, Vec::new()),
                other => other,
            };
            Ok::<_, String>(outputs.into_iter().map(index).collect::<Vec<_>>())
        };
        match first_difference(&indices(&usual)?, &indices(&silent)?) {
            None => Ok(format!("{AFTER} decisions")),
            Some(index) => {
                Err(format!("output {index} differs when scores are computed; `scores` must change nothing"))
            }
        }
    }

    /// One guest gets the indices that changed between two decisions; for the other one any row may have changed.
    fn changed_indices(&self) -> Result<String, String> {
        let description = self.plugin.description();
        let sizes = [4, 40];
        for n in sizes {
            let mut guests = [self.start(n).map_err(|f| f.to_string())?, self.start(n).map_err(|f| f.to_string())?];
            let mut service = inputs::SyntheticService::new(n);
            for item in 0..AFTER {
                // Some events are followed by no decision of this policy.
                (0..1 + item % 3).for_each(|_| service.advance(description.reads));
                let known = service.cluster();
                let unknown =
                    ClusterView { versions: Versions::default(), in_flight_changes: Changes::UNKNOWN, ..known };
                let mut outputs = Vec::new();
                for (guest, cluster) in guests.iter_mut().zip([known, unknown]) {
                    let observed =
                        inputs::event(n, item, description.events).map_or(Ok(()), |event| guest.observe(&event));
                    let (mut memory, mut numbers) = (StepMemory::default(), Vec::new());
                    let output = observed.and_then(|()| {
                        inputs::decide(&mut **guest, &service.request(), &cluster, &mut memory, &mut numbers)
                    });
                    let output = output.map(|output| (output, numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>()));
                    outputs.push(output.map_err(|fault| format!("decision {item} with N = {n}: {fault}"))?);
                }
                if outputs[0] != outputs[1] {
                    return Err(format!(
                        "decision {item} with N = {n}: {:?} with the indices from `changed`, {:?} if any row may have changed; \
                         discard values of instances that `changed` names, and call it at every decision",
                        outputs[0], outputs[1]
                    ));
                }
            }
        }
        Ok(format!("{AFTER} decisions each with N = {}", list(&sizes)))
    }

    fn agree(&self) -> Result<String, String> {
        let run = || {
            let mut guest = self.start(4).map_err(|fault| fault.to_string())?;
            self.outputs(&mut *guest, 4, 0..AFTER)
        };
        // Two runs in sequence, then two in parallel: state that they share shows as a difference.
        let (first, second) = (run()?, run()?);
        let (mut a, mut b) = (self.start(4).map_err(|f| f.to_string())?, self.start(4).map_err(|f| f.to_string())?);
        let mut in_parallel = Vec::new();
        for item in 0..AFTER {
            for guest in [&mut a, &mut b] {
                in_parallel.push(self.outputs(&mut **guest, 4, item..item + 1)?);
            }
        }
        let of = |which: usize| in_parallel.iter().skip(which).step_by(2).flatten().cloned().collect::<Vec<_>>();
        for (other, how) in
            [(&second, "a second guest"), (&of(0), "one of two in parallel"), (&of(1), "the other of two in parallel")]
        {
            if let Some(index) = first_difference(&first, other) {
                return Err(format!(
                    "{how} returns another output in call {index}: {:?}, not {:?}; keep everything in the state, \
                     nothing in globals, and use no randomness but the host's",
                    other.get(index),
                    first.get(index)
                ));
            }
        }
        Ok(format!("{AFTER} decisions, in sequence and in parallel"))
    }

    fn fork(&self) -> Result<String, String> {
        let mut original = self.warmed_up()?;
        let mut fork = original.fork().map_err(|fault| format!("it cannot be forked: {fault}"))?;
        self.continue_alike(&mut *original, &mut *fork, "the fork")
    }

    fn restore(&self) -> Result<String, String> {
        let message = |fault: Fault| fault.to_string();
        let mut original = self.warmed_up()?;
        let state = original.save().map_err(message)?;
        let mut restored = self.start(4).map_err(message)?;
        restored.restore(&state).map_err(|fault| format!("it cannot restore its own state: {fault}"))?;
        if restored.save().map_err(message)? != state {
            return Err("saved again, the restored state has other bytes; save and restore must be inverse, and the \
                        same state must give the same bytes"
                .into());
        }
        let bytes = state.len();
        self.continue_alike(&mut *original, &mut *restored, "the restored one")
            .map(|message| format!("{bytes} bytes; {message}"))
    }

    fn warmed_up(&self) -> Result<Box<dyn Guest>, String> {
        let mut guest = self.start(4).map_err(|fault| fault.to_string())?;
        self.outputs(&mut *guest, 4, 0..BEFORE)?;
        Ok(guest)
    }

    fn continue_alike(&self, original: &mut dyn Guest, other: &mut dyn Guest, which: &str) -> Result<String, String> {
        let advance = |guest: &mut dyn Guest| self.outputs(guest, 4, BEFORE..BEFORE + AFTER);
        let (expected, actual) = (advance(original)?, advance(other)?);
        match first_difference(&expected, &actual) {
            None => Ok(format!("{AFTER} decisions after {BEFORE}")),
            Some(index) => Err(format!(
                "{which} returns another output {index} calls later: {:?}, not {:?}; save and restore everything that \
                 outputs depend on",
                actual.get(index),
                expected.get(index)
            )),
        }
    }

    /// The largest resource use of a call, by number of instances.
    fn usage(&self) -> Result<Vec<Usage>, String> {
        let limit = match self.plugin.technology() {
            Technology::Script => self.limits.operations_per_call,
            _ => self.limits.fuel_per_call,
        };
        let mut all = Vec::new();
        for n in COST_SIZES {
            let mut guest = self.start(n).map_err(|fault| fault.to_string())?;
            let mut most = None;
            for item in 0..50 {
                let output = GuestCall::plausible(self.kind, n, item).run(&mut *guest, &ties());
                output.map_err(|fault| format!("call {item} with N = {n}: {fault}"))?;
                most = most.max(guest.used());
            }
            all.extend(most.map(|most| Usage { kind: self.kind, n, most, limit }));
        }
        Ok(all)
    }
}

/// Whether a failed check says that a call reached a limit.
fn reached_limit(text: &str) -> bool {
    [FaultKind::OutOfFuel, FaultKind::OutOfMemory, FaultKind::OutOfTime]
        .into_iter()
        .any(|kind| text.contains(&format!("[{}]", kind.name())))
}

/// The index of the first pair that differs; past the end if one is shorter.
fn first_difference(a: &[GuestOutput], b: &[GuestOutput]) -> Option<usize> {
    let differs = a.iter().zip(b).position(|(a, b)| a != b);
    differs.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))
}

fn list(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
