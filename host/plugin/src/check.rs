//! The conformance checks: does a plugin have the properties that the simulator relies on? No check depends on the
//! speed of the machine.
//!
//! Each check tests one property: outputs are in range for any number of instances and at the limits of every field;
//! equal inputs give equal outputs in every run; a forked guest continues as the original does; a saved state is
//! complete.

use blis_sim::cluster::Abort;
use blis_sim::latency::Batch;
use blis_sim::policy::{Changes, ClusterView, Events, RequestView, Ties, Versions};
use blis_sim::rng::Stream;

use super::inputs::{self, Answer, Question};
use super::{Fault, Kind, LatencyGuest, Limits, Plugin, Setup, StartedGuest, Technology};

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
    /// Empty for native libraries and built-in policies, whose instructions are not counted.
    pub usage: Vec<Usage>,
    /// Checks that do not apply: the kind, the check and the reason.
    pub not_applicable: Vec<(Kind, &'static str, &'static str)>,
}

/// Checks that do not apply to built-in policies, with the reason.
const NOT_OF_BUILT_INS: [(&str, &str); 2] = [
    ("a restored state goes on as the saved one", "a built-in policy is copied, not saved"),
    ("stays within its limits", "a built-in policy has none"),
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

/// The setup of a guest for `kind` in a service of `n` instances, with the default values of the parameters.
#[must_use]
pub fn setup(plugin: &dyn Plugin, kind: Kind, n: usize, limits: &Limits) -> Setup {
    let of_one = matches!(kind, Kind::Scheduling | Kind::Preemption | Kind::Latency);
    let facts = [("num_layers", 32.0), ("hidden_size", 4096.0), ("tensor_parallel_size", 1.0)];
    Setup {
        kind,
        parameters: plugin.description().parameters.iter().map(|parameter| parameter.default).collect(),
        instances: inputs::instances(if of_one { 1 } else { n }).into(),
        names: inputs::NAMES.into_iter().map(Box::from).collect(),
        facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        stream: Stream::new(42, "plugin"),
        explain: plugin.description().scores,
        limits: *limits,
        abort: Abort::default(),
    }
}

/// The tie-breaking of all calls in the checks.
#[must_use]
pub fn ties() -> Ties {
    Ties::Random(Stream::new(42, "router"))
}

/// A plugin that is checked for one kind.
struct Subject<'a> {
    plugin: &'a dyn Plugin,
    kind: Kind,
    limits: Limits,
}

/// Outputs, or the name of the input whose call failed, with its fault.
type Answers = Result<Vec<Answer>, (String, Fault)>;

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
        add("starts and answers at the ends of its parameters", self.parameters());
        add("answers in range", self.sizes());
        add("answers in range at the edges", self.edges());
        if self.kind == Kind::Latency {
            add("promises about steps hold", self.steps());
        }
        if self.kind == Kind::Routing && self.plugin.description().scores {
            add("explaining changes no decision", self.explained());
        }
        if matches!(self.kind, Kind::Admission | Kind::Routing) {
            add("what changed is all that changes an answer", self.told_what_changed());
        }
        add("two guests agree", self.agree());
        add("a fork goes on as the original", self.fork());
        if self.plugin.technology() == Technology::BuiltIn {
            findings.not_applicable.extend(NOT_OF_BUILT_INS.map(|(what, why)| (self.kind, what, why)));
            return;
        }
        add("a restored state goes on as the saved one", self.restore());
        if self.plugin.technology() != Technology::Native {
            match self.usage() {
                Ok(usage) => findings.usage.extend(usage),
                Err(told) => {
                    add("stays within its limits", Err(told));
                }
            }
        }
    }

    fn start(&self, n: usize) -> Result<StartedGuest, Fault> {
        self.plugin.start(&setup(self.plugin, self.kind, n, &self.limits))
    }

    /// Outputs for the inputs `items` with `n` instances; events that the plugin subscribes to come in between.
    fn sequence(&self, guest: &mut StartedGuest, n: usize, items: std::ops::Range<u64>) -> Answers {
        let (events, ties) = (self.plugin.description().events, ties());
        let mut answers = Vec::new();
        for item in items {
            let event = (events != Events::NONE).then(|| inputs::event(n, item, events)).flatten();
            let questions = event.map(Question::Notice).into_iter().chain([Question::plausible(self.kind, n, item)]);
            for question in questions {
                let answer = question.ask(guest, &ties);
                answers.push(answer.map_err(|fault| (format!("question {item} about N = {n}"), fault))?);
            }
        }
        Ok(answers)
    }

    fn parameters(&self) -> Result<String, String> {
        let parameters = &self.plugin.description().parameters;
        if parameters.is_empty() {
            return Ok("it has none".into());
        }
        let usual = setup(self.plugin, self.kind, 4, &self.limits);
        for (place, parameter) in parameters.iter().enumerate() {
            for value in [parameter.min, parameter.max] {
                let mut setup = usual.clone();
                setup.parameters[place] = value;
                let told = |fault: &Fault| {
                    format!("{} = {value}: {fault}; narrow the range, or make sense of its ends", parameter.name)
                };
                let mut guest = self.plugin.start(&setup).map_err(|fault| told(&fault))?;
                self.sequence(&mut guest, 4, 0..5).map_err(|(_, fault)| told(&fault))?;
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
            self.sequence(&mut guest, n, 0..50).map_err(|(question, fault)| format!("{question}: {fault}"))?;
        }
        Ok(format!("50 questions each about N = {}", list(&sizes)))
    }

    fn edges(&self) -> Result<String, String> {
        let sizes = self.possible_sizes();
        let mut asked = 0;
        for &n in &sizes {
            for (name, question) in Question::extreme(self.kind, n) {
                let told = |fault: Fault| format!("{name}, N = {n}: {fault}");
                let mut guest = self.start(n).map_err(told)?;
                question.ask(&mut guest, &ties()).map_err(told)?;
                asked += 1;
            }
        }
        Ok(format!("{asked} questions: all 0, the largest numbers there are, all alike, one idle"))
    }

    /// Checks `shortest_step` and the effect of context, on which the simulator relies to skip steps.
    fn steps(&self) -> Result<String, String> {
        let guest = self.start(1).and_then(StartedGuest::into_kind::<dyn LatencyGuest>);
        let mut guest = guest.map_err(|fault| fault.to_string())?;
        let constants = guest.constants().map_err(|fault| fault.to_string())?;
        let shortest = constants.shortest_step;
        if shortest == 0 {
            return Err("the shortest step is 0 µs; it must be at least 1".into());
        }
        let mut step_time = |batch: &Batch| guest.step_time(batch).map_err(|fault| fault.to_string());
        for requests in [1_u64, 2, 16, 200] {
            let mut previous = 0;
            for context in [0, 1, 100, 10_000, 1_000_000] {
                let batch = Batch { decode_requests: requests, decode_context: requests * context, ..Batch::default() };
                let us = step_time(&batch)?;
                if us != step_time(&batch)? {
                    return Err(
                        "the same step takes another time when asked again; it may depend on the step alone".into()
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
        let silent = Setup { explain: false, ..usual.clone() };
        let places = |setup: &Setup| {
            let mut guest = self.plugin.start(setup).map_err(|fault| fault.to_string())?;
            let answers =
                self.sequence(&mut guest, 4, 0..AFTER).map_err(|(question, fault)| format!("{question}: {fault}"))?;
            let place = |answer| match answer {
                Answer::Place(place, _) => Answer::Place(place, Vec::new()),
                other => other,
            };
            Ok::<_, String>(answers.into_iter().map(place).collect::<Vec<_>>())
        };
        match first_difference(&places(&usual)?, &places(&silent)?) {
            None => Ok(format!("{AFTER} decisions")),
            Some(place) => {
                Err(format!("answer {place} differs when scores are asked for; `scores` must change nothing"))
            }
        }
    }

    /// One guest gets the indices that changed between two decisions; for the other one any row may have changed.
    fn told_what_changed(&self) -> Result<String, String> {
        let description = self.plugin.description();
        let sizes = [4, 40];
        for n in sizes {
            let mut guests = [self.start(n).map_err(|f| f.to_string())?, self.start(n).map_err(|f| f.to_string())?];
            let mut service = inputs::Service::new(n);
            for item in 0..AFTER {
                // Some events are followed by no decision of this policy.
                (0..1 + item % 3).for_each(|_| service.go_on(description.reads));
                let known = service.cluster();
                let unknown =
                    ClusterView { versions: Versions::default(), in_flight_changes: Changes::UNKNOWN, ..known };
                let mut answers = Vec::new();
                for (guest, cluster) in guests.iter_mut().zip([known, unknown]) {
                    let heard = inputs::event(n, item, description.events).map_or(Ok(()), |event| guest.notice(&event));
                    let answer = heard.and_then(|()| decide(guest, &service.request(), &cluster));
                    answers.push(answer.map_err(|fault| format!("decision {item} about N = {n}: {fault}"))?);
                }
                if answers[0] != answers[1] {
                    return Err(format!(
                        "decision {item} about N = {n}: {:?} if it learns what changed, {:?} if anything may have; keep \
                         nothing of instances that `changed` names, and ask at every decision",
                        answers[0], answers[1]
                    ));
                }
            }
        }
        Ok(format!("{AFTER} decisions each about N = {}", list(&sizes)))
    }

    fn agree(&self) -> Result<String, String> {
        let run = || {
            let mut guest = self.start(4).map_err(|fault| fault.to_string())?;
            self.sequence(&mut guest, 4, 0..AFTER).map_err(|(question, fault)| format!("{question}: {fault}"))
        };
        // Two runs in sequence, then two in parallel: state that they share shows as a difference.
        let (first, second) = (run()?, run()?);
        let (mut a, mut b) = (self.start(4).map_err(|f| f.to_string())?, self.start(4).map_err(|f| f.to_string())?);
        let mut side_by_side = Vec::new();
        for item in 0..AFTER {
            for guest in [&mut a, &mut b] {
                let answers = self.sequence(guest, 4, item..item + 1);
                side_by_side.push(answers.map_err(|(question, fault)| format!("{question}: {fault}"))?);
            }
        }
        let of = |which: usize| side_by_side.iter().skip(which).step_by(2).flatten().cloned().collect::<Vec<_>>();
        for (other, how) in [
            (&second, "a second guest"),
            (&of(0), "one of two side by side"),
            (&of(1), "the other of two side by side"),
        ] {
            if let Some(place) = first_difference(&first, other) {
                return Err(format!(
                    "{how} gives another answer to question {place}: {:?}, not {:?}; keep everything in the state, \
                     nothing in globals, and use no randomness but the host's",
                    other.get(place),
                    first.get(place)
                ));
            }
        }
        Ok(format!("{AFTER} decisions, one after the other and side by side"))
    }

    fn fork(&self) -> Result<String, String> {
        let mut original = self.warmed_up()?;
        let mut fork = original.fork().map_err(|fault| format!("it cannot be forked: {fault}"))?;
        self.go_on_alike(&mut original, &mut fork, "the fork")
    }

    fn restore(&self) -> Result<String, String> {
        let told = |fault: Fault| fault.to_string();
        let mut original = self.warmed_up()?;
        let state = original.save().map_err(told)?;
        let mut restored = self.start(4).map_err(told)?;
        restored.restore(&state).map_err(|fault| format!("it does not take its own state: {fault}"))?;
        if restored.save().map_err(told)? != state {
            return Err("saved again, the restored state has other bytes; save and restore must be inverse, and the \
                        same state must give the same bytes"
                .into());
        }
        let bytes = state.len();
        self.go_on_alike(&mut original, &mut restored, "the restored one").map(|told| format!("{bytes} bytes; {told}"))
    }

    fn warmed_up(&self) -> Result<StartedGuest, String> {
        let mut guest = self.start(4).map_err(|fault| fault.to_string())?;
        self.sequence(&mut guest, 4, 0..BEFORE).map_err(|(question, fault)| format!("{question}: {fault}"))?;
        Ok(guest)
    }

    fn go_on_alike(
        &self,
        original: &mut StartedGuest,
        other: &mut StartedGuest,
        which: &str,
    ) -> Result<String, String> {
        let go_on = |guest: &mut StartedGuest| {
            let answers = self.sequence(guest, 4, BEFORE..BEFORE + AFTER);
            answers.map_err(|(question, fault)| format!("{question}: {fault}"))
        };
        let (expected, seen) = (go_on(original)?, go_on(other)?);
        match first_difference(&expected, &seen) {
            None => Ok(format!("{AFTER} decisions after {BEFORE}")),
            Some(place) => Err(format!(
                "{which} gives another answer {place} questions later: {:?}, not {:?}; save and restore everything that \
                 answers depend on",
                seen.get(place),
                expected.get(place)
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
                let answer = Question::plausible(self.kind, n, item).ask(&mut guest, &ties());
                answer.map_err(|fault| format!("question {item} about N = {n}: {fault}"))?;
                most = most.max(guest.used());
            }
            all.extend(most.map(|most| Usage { kind: self.kind, n, most, limit }));
        }
        Ok(all)
    }
}

/// An admission or routing decision about a service with the signals of `cluster`.
fn decide(guest: &mut StartedGuest, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<Answer, Fault> {
    match guest {
        StartedGuest::Admission(guest) => guest.admit(request, cluster).map(Answer::Verdict),
        StartedGuest::Routing(guest) => {
            let mut scores = Vec::new();
            let place = guest.route(request, cluster, &ties(), &mut scores)?;
            Ok(Answer::Place(place, scores.into_iter().map(f64::to_bits).collect()))
        }
        other => Err(other.mismatch()),
    }
}

/// The index of the first pair that differs; past the end if one is shorter.
fn first_difference(a: &[Answer], b: &[Answer]) -> Option<usize> {
    let differs = a.iter().zip(b).position(|(a, b)| a != b);
    differs.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))
}

fn list(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
