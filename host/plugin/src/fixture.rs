//! Fixture files: single decisions with their inputs and the expected outputs, for `blis plugin test`. One YAML file,
//! read strictly.
//!
//! ```text
//! fixture ── schema
//!   └─ case ── name, kind, parameters, the inputs of that kind, expect
//! ```
//!
//! Each case has a new guest. A routing case is repeated with several streams for ties, so that it does not pass by
//! the luck of one draw.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use blis_diag::yaml::{self, Document, Entries, Mark, Spanned, Word, explain};
use blis_diag::{Diagnostic, Location, name_hint, open_file, quoted, unreadable};
use blis_sim::latency::Batch;
use blis_sim::policy::{AdmissionDecision, BatchView, InstanceInfo, Rank, Staleness, Ties};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::check::setup;
use super::fields::{
    FieldError, FieldValue, NameTable, NamedInstance, NamedInstances, NamedQueued, NamedRequest, push_running,
    set_running, set_step,
};
use super::inputs::{GuestCall, GuestOutput};
use super::{Fault, GuestSetup, Kind, Limits, Plugin, PolicyDescription};

const BYTES_MAX: u64 = 4 << 20;
/// Streams for ties with which a routing case is repeated.
const DRAWS: u64 = 16;
/// Scores are equal within this share: a fixture has decimal numbers.
const SCORE_TOLERANCE: f64 = 1e-9;

/// The cases of a fixture file.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The file, as messages name it.
    pub file: String,
    pub cases: Vec<FixtureCase>,
    text: Arc<str>,
}

/// One decision, and what it should be.
#[derive(Clone, Debug)]
pub struct FixtureCase {
    /// The name, unique in the file.
    pub name: String,
    pub kind: Kind,
    /// Location of the case in the file.
    pub location: Location,
    kind_mark: Mark,
    parameters: Vec<(Word, f64)>,
    instances: Vec<InstanceInfo>,
    names: NameTable,
    /// One call; for scheduling one for each request of the queue.
    calls: Vec<GuestCall>,
    /// The names of the requests of the queue.
    labels: Vec<String>,
    expected: Expected,
}

/// The expected output.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    /// The chosen instance is one of these, if any are given; all scores, if given.
    Route {
        one_of: Vec<usize>,
        scores: Option<Vec<f64>>,
    },
    Admission {
        admit: bool,
        reason: Option<String>,
    },
    Priority(i64),
    /// Indices in the queue, in the order of service.
    Order(Vec<usize>),
    Victim(usize),
    Time(u64),
}

/// The output of a case that failed, beside the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub expected: String,
    /// The output, or the fault of the plugin.
    pub got: String,
}

impl Fixture {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read or is not a fixture file: with file, line and column.
    pub fn read(path: &Path) -> Result<Self, Diagnostic> {
        let file = blis_diag::display(path);
        let mut bytes = Vec::new();
        let read = open_file(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|error| unreadable(&file, &error))?;
        let wrong = |what: &str| Diagnostic::new(what).at(Location::file(Arc::clone(&file)));
        if bytes.len() as u64 > BYTES_MAX {
            return Err(wrong("the file is longer than 4 MiB").hint("is this a fixture file?"));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| wrong("the file is not UTF-8 text").hint("a fixture is a YAML file: see docs/plugins.md"))?;
        Self::parse(&file, &text)
    }

    /// Reads `text`, which messages call `file`.
    ///
    /// # Errors
    /// If it is not a fixture file: with file, line and column.
    pub fn parse(file: &str, text: &str) -> Result<Self, Diagnostic> {
        let reader = FixtureReader(Document { file: file.into(), text });
        let raw: Option<RawFixture> = reader.0.read().map_err(|error| reader.yaml(&error))?;
        let Some(raw) = raw else {
            let empty = Diagnostic::in_text(Location::start(file), text, "the fixture file is empty");
            return Err(empty.hint("it has `schema: 1` and `cases:`: see docs/plugins.md"));
        };
        Ok(Self { file: file.to_owned(), cases: reader.cases(raw)?, text: text.into() })
    }

    /// Checks that a plugin with this `description` has the kinds and the parameters of the cases.
    ///
    /// # Errors
    /// The first that it does not have, or a parameter out of its range.
    pub fn check(&self, description: &PolicyDescription) -> Result<(), Diagnostic> {
        let document = Document { file: self.file.as_str().into(), text: &self.text };
        for case in &self.cases {
            if !description.kinds.contains(&case.kind) {
                let kinds: Vec<&str> = description.kinds.iter().map(|kind| kind.name()).collect();
                let what = format!("`{}` does not implement {}", description.name, case.kind);
                return Err(document.wrong(case.kind_mark, what, format!("it implements {}", kinds.join(", "))));
            }
            for (name, value) in &case.parameters {
                let known: Vec<&str> = description.parameters.iter().map(|one| one.name.as_str()).collect();
                let Some(parameter) = description.parameters.iter().find(|one| one.name == name.value) else {
                    let what = format!("`{}` has no parameter {}", description.name, quoted(name.value.as_bytes()));
                    let hint = if known.is_empty() { "it has none".to_owned() } else { name_hint(&name.value, &known) };
                    return Err(document.wrong(name.referenced, what, hint));
                };
                if !(parameter.min..=parameter.max).contains(value) {
                    let hint = format!("it must be from {} to {}", parameter.min, parameter.max);
                    return Err(document.wrong(name.referenced, format!("`{}` is {value}", parameter.name), hint));
                }
            }
        }
        Ok(())
    }
}

impl FixtureCase {
    /// Makes the decision with a new guest of `plugin`.
    ///
    /// # Errors
    /// If the output is not the expected one, or the plugin fails.
    pub fn run(&self, plugin: &dyn Plugin, limits: &Limits) -> Result<(), Mismatch> {
        let setup = self.setup(plugin, limits);
        let got = match &self.expected {
            Expected::Route { one_of, scores } => self.route(plugin, &setup, one_of, scores.as_deref()),
            Expected::Order(order) => self.order(plugin, &setup, order),
            _ => self.outputs(plugin, &setup, 0).map(|outputs| outputs.first().and_then(|output| self.compare(output))),
        };
        match got {
            Ok(None) => Ok(()),
            Ok(Some(got)) => Err(Mismatch { expected: self.expectation(), got }),
            Err(fault) => Err(Mismatch { expected: self.expectation(), got: fault.to_string() }),
        }
    }

    fn setup(&self, plugin: &dyn Plugin, limits: &Limits) -> GuestSetup {
        let mut setup = setup(plugin, self.kind, self.instances.len(), limits);
        let declared = &plugin.description().parameters;
        for (parameter, value) in declared.iter().zip(&mut setup.parameters) {
            if let Some((_, given)) = self.parameters.iter().find(|(name, _)| name.value == parameter.name) {
                *value = *given;
            }
        }
        if matches!(self.kind, Kind::Admission | Kind::Routing) {
            setup.instances = self.instances.clone().into();
        }
        setup.names = self.names.texts().into();
        setup
    }

    /// The outputs of all calls, with stream number `draw` for ties.
    fn outputs(&self, plugin: &dyn Plugin, setup: &GuestSetup, draw: u64) -> Result<Vec<GuestOutput>, Fault> {
        let mut guest = plugin.start(setup)?;
        let ties = Ties::Random(Stream::new(draw, "router"));
        self.calls.iter().map(|call| call.run(&mut guest, &ties)).collect()
    }

    /// What is wrong with the choices; `None` if nothing is.
    fn route(
        &self,
        plugin: &dyn Plugin,
        setup: &GuestSetup,
        one_of: &[usize],
        scores: Option<&[f64]>,
    ) -> Result<Option<String>, Fault> {
        let (mut chosen, mut computed) = (BTreeSet::new(), Vec::new());
        for draw in 0..DRAWS {
            for output in self.outputs(plugin, setup, draw)? {
                if let GuestOutput::Index(index, bits) = output {
                    chosen.insert(index);
                    computed = bits.into_iter().map(f64::from_bits).collect();
                }
            }
        }
        let right = one_of.is_empty() || chosen.iter().all(|index| one_of.contains(index));
        let near = |(&a, &b): (&f64, &f64)| a == b || (a - b).abs() <= SCORE_TOLERANCE * a.abs().max(b.abs());
        let right_scores =
            scores.is_none_or(|scores| scores.len() == computed.len() && scores.iter().zip(&computed).all(near));
        if right && right_scores {
            return Ok(None);
        }
        let chosen: Vec<usize> = chosen.into_iter().collect();
        let tied = if chosen.len() > 1 { ", by the draw among equally good ones" } else { "" };
        let shown = match (computed.is_empty(), scores) {
            (false, _) => format!(", scores {}", numbers(&computed)),
            (true, Some(_)) => ", no scores: the policy computes none".to_owned(),
            (true, None) => String::new(),
        };
        Ok(Some(format!("instance {}{tied}{shown}", alternatives(&chosen))))
    }

    /// The order of service if it is not `expected`.
    fn order(&self, plugin: &dyn Plugin, setup: &GuestSetup, expected: &[usize]) -> Result<Option<String>, Fault> {
        let ranks: Vec<f64> = self
            .outputs(plugin, setup, 0)?
            .into_iter()
            .filter_map(|output| if let GuestOutput::Rank(bits) = output { Some(f64::from_bits(bits)) } else { None })
            .collect();
        let turn = |index: usize| self.calls[index].queued().map_or(0, |queued| queued.turn);
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by_key(|&index| (Rank::real(ranks[index]), turn(index)));
        let in_order: Vec<f64> = order.iter().map(|&index| ranks[index]).collect();
        Ok((order != expected).then(|| format!("{} (ranks {})", self.labelled(&order), numbers(&in_order))))
    }

    /// The output as text if it is not the expected one.
    fn compare(&self, output: &GuestOutput) -> Option<String> {
        match (&self.expected, output) {
            (Expected::Admission { admit, reason }, GuestOutput::Decision(decision)) => {
                let (admitted, why) = match decision {
                    AdmissionDecision::Admit => (true, String::new()),
                    AdmissionDecision::Reject(why) => (false, why.to_string()),
                };
                let right = admitted == *admit && reason.as_ref().is_none_or(|reason| *reason == why);
                (!right).then(|| admission(admitted, Some(&why).filter(|why| !why.is_empty())))
            }
            (Expected::Priority(expected), GuestOutput::Priority(got)) => {
                (expected != got).then(|| format!("priority {got}"))
            }
            (Expected::Victim(expected), GuestOutput::Index(got, _)) => {
                (expected != got).then(|| format!("victim {got}"))
            }
            (Expected::Time(expected), GuestOutput::Micros(got)) => (expected != got).then(|| format!("{got} µs")),
            (_, other) => Some(format!("{other:?}")),
        }
    }

    /// The expected output as text.
    fn expectation(&self) -> String {
        match &self.expected {
            Expected::Route { one_of, scores } => {
                let instance = (!one_of.is_empty()).then(|| format!("instance {}", alternatives(one_of)));
                let scores = scores.as_ref().map(|scores| format!("scores {}", numbers(scores)));
                instance.into_iter().chain(scores).collect::<Vec<_>>().join(", ")
            }
            Expected::Admission { admit, reason } => admission(*admit, reason.as_ref()),
            Expected::Priority(priority) => format!("priority {priority}"),
            Expected::Order(order) => self.labelled(order),
            Expected::Victim(index) => format!("victim {index}"),
            Expected::Time(us) => format!("{us} µs"),
        }
    }

    fn labelled(&self, order: &[usize]) -> String {
        let labels: Vec<&str> = order.iter().map(|&index| self.labels[index].as_str()).collect();
        format!("order {}", labels.join(", "))
    }
}

fn admission(admit: bool, reason: Option<&String>) -> String {
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{}{reason}", if admit { "admitted" } else { "rejected" })
}

/// `1`, `1 or 2`, `1, 2 or 3`.
fn alternatives(indices: &[usize]) -> String {
    let texts: Vec<String> = indices.iter().map(usize::to_string).collect();
    match texts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => texts.concat(),
    }
}

fn numbers(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFixture {
    schema: Word,
    cases: Spanned<Vec<RawCase>>,
}

/// A request, an instance or a step: names and values.
type Record = Entries<Spanned<FieldValue>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    name: Word,
    kind: Word,
    parameters: Option<Entries<Word>>,
    now: Option<Word>,
    request: Option<Spanned<Record>>,
    instances: Option<Spanned<Vec<Spanned<Record>>>>,
    load_staleness: Option<Word>,
    cached_blocks_staleness: Option<Word>,
    queue: Option<Spanned<Vec<Spanned<Record>>>>,
    batch: Option<Spanned<Vec<Spanned<Record>>>>,
    requester: Option<Word>,
    step: Option<Spanned<Record>>,
    tokens: Option<Word>,
    expect: Spanned<RawExpect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    instance: Option<Word>,
    one_of: Option<Vec<Word>>,
    scores: Option<Vec<Word>>,
    admit: Option<Word>,
    reason: Option<Word>,
    priority: Option<Word>,
    order: Option<Spanned<Vec<Word>>>,
    victim: Option<Word>,
    step_time_us: Option<Word>,
    queueing_time_us: Option<Word>,
}

/// What belongs to a kind: keys of a case, and keys of its `expect`.
fn keys_of(kind: Kind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        Kind::Admission => {
            (&["now", "request", "instances", "load_staleness", "cached_blocks_staleness"], &["admit", "reason"])
        }
        Kind::Routing => (
            &["now", "request", "instances", "load_staleness", "cached_blocks_staleness"],
            &["instance", "one_of", "scores"],
        ),
        Kind::Priority => (&["now", "request"], &["priority"]),
        Kind::Scheduling => (&["now", "queue"], &["order"]),
        Kind::Preemption => (&["now", "batch", "requester"], &["victim"]),
        Kind::Latency => (&["step", "tokens"], &["step_time_us", "queueing_time_us"]),
    }
}

/// Turns the values of a file into cases, and reports mistakes with their locations.
struct FixtureReader<'a>(Document<'a>);

impl FixtureReader<'_> {
    fn cases(&self, raw: RawFixture) -> Result<Vec<FixtureCase>, Diagnostic> {
        if raw.schema.value != "1" {
            let what = format!("fixtures of schema {} are not supported", quoted(raw.schema.value.as_bytes()));
            return Err(self.0.wrong(raw.schema.referenced, what, "this program reads `schema: 1`"));
        }
        if raw.cases.value.is_empty() {
            return Err(self.0.wrong(raw.cases.referenced, "there are no cases", "add one, or remove the file"));
        }
        let mut cases: Vec<FixtureCase> = Vec::new();
        for one in raw.cases.value {
            let at_name = one.name.referenced;
            let case = self.case(one)?;
            if cases.iter().any(|known| known.name == case.name) {
                let what = format!("there are two cases {}", quoted(case.name.as_bytes()));
                return Err(self.0.wrong(at_name, what, "use unique names"));
            }
            cases.push(case);
        }
        Ok(cases)
    }

    fn case(&self, raw: RawCase) -> Result<FixtureCase, Diagnostic> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == raw.kind.value).ok_or_else(|| {
            let known = Kind::ALL.map(Kind::name);
            let what = format!("unknown kind {}", quoted(raw.kind.value.as_bytes()));
            self.0.wrong(raw.kind.referenced, what, name_hint(&raw.kind.value, &known))
        })?;
        self.check_keys(&raw, kind)?;
        let parameters = raw.parameters.as_ref().map_or(&[][..], |entries| &entries.0);
        let parameters = parameters
            .iter()
            .map(|(name, word)| Ok((name.clone(), self.0.number(format_args!("`{}`", name.value), word, yaml::ANY)?)))
            .collect::<Result<_, Diagnostic>>()?;
        let mut inputs =
            Inputs { reader: self, names: NameTable::default(), instances: Vec::new(), labels: Vec::new() };
        let calls = inputs.calls(&raw, kind)?;
        let Inputs { names, instances, labels, .. } = inputs;
        let expected = self.expected(&raw.expect, kind, calls.len(), instances.len(), &labels, &calls)?;
        Ok(FixtureCase {
            name: raw.name.value,
            kind,
            location: self.0.location(raw.name.referenced),
            kind_mark: raw.kind.referenced,
            parameters,
            instances,
            names,
            calls,
            labels,
            expected,
        })
    }

    /// Refuses keys that belong to other kinds.
    fn check_keys(&self, raw: &RawCase, kind: Kind) -> Result<(), Diagnostic> {
        fn at<T>(value: Option<&Spanned<T>>) -> Option<Mark> {
            value.map(|value| value.referenced)
        }
        let first = |words: Option<&Vec<Word>>| words.and_then(|words| words.first()).map(|word| word.referenced);
        let given = [
            ("now", at(raw.now.as_ref())),
            ("request", at(raw.request.as_ref())),
            ("instances", at(raw.instances.as_ref())),
            ("load_staleness", at(raw.load_staleness.as_ref())),
            ("cached_blocks_staleness", at(raw.cached_blocks_staleness.as_ref())),
            ("queue", at(raw.queue.as_ref())),
            ("batch", at(raw.batch.as_ref())),
            ("requester", at(raw.requester.as_ref())),
            ("step", at(raw.step.as_ref())),
            ("tokens", at(raw.tokens.as_ref())),
        ];
        let expect = &raw.expect.value;
        let expected = [
            ("instance", at(expect.instance.as_ref())),
            ("one_of", first(expect.one_of.as_ref())),
            ("scores", first(expect.scores.as_ref())),
            ("admit", at(expect.admit.as_ref())),
            ("reason", at(expect.reason.as_ref())),
            ("priority", at(expect.priority.as_ref())),
            ("order", at(expect.order.as_ref())),
            ("victim", at(expect.victim.as_ref())),
            ("step_time_us", at(expect.step_time_us.as_ref())),
            ("queueing_time_us", at(expect.queueing_time_us.as_ref())),
        ];
        let (keys, outputs) = keys_of(kind);
        for (all, known) in [(&given, keys), (&expected, outputs)] {
            let other = all.iter().find_map(|(key, at)| at.filter(|_| !known.contains(key)).map(|at| (key, at)));
            if let Some((key, at)) = other {
                let what = format!("`{key}` does not belong to a case of {kind}");
                return Err(self.0.wrong(at, what, format!("{kind} has {}", known.join(", "))));
            }
        }
        Ok(())
    }

    fn expected(
        &self,
        raw: &Spanned<RawExpect>,
        kind: Kind,
        calls: usize,
        instances: usize,
        labels: &[String],
        inputs: &[GuestCall],
    ) -> Result<Expected, Diagnostic> {
        let expect = &raw.value;
        let missing = |keys: &str| self.0.wrong(raw.referenced, "nothing is expected", format!("add {keys}"));
        let index = |name: &'static str, len: usize| {
            move |word: &Word| self.0.whole(format_args!("`{name}`"), word, 0..=len.saturating_sub(1))
        };
        match kind {
            Kind::Routing => {
                let one_of = expect.one_of.iter().flatten().map(index("one_of", instances));
                let one = expect.instance.iter().map(index("instance", instances));
                let one_of: Vec<usize> = one.chain(one_of).collect::<Result<_, _>>()?;
                let score = |word: &Word| self.0.number("a score", word, yaml::ANY);
                let scores = expect.scores.as_ref().map(|words| words.iter().map(score).collect::<Result<Vec<_>, _>>());
                let scores = scores.transpose()?;
                if let (Some(scores), Some(word)) = (&scores, expect.scores.iter().flatten().next())
                    && scores.len() != instances
                {
                    let what = format!("there are {} scores for {instances} instances", scores.len());
                    return Err(self.0.wrong(word.referenced, what, "give one for each instance"));
                }
                if one_of.is_empty() && scores.is_none() {
                    return Err(missing("`instance: 0`, `one_of: [0, 1]` or `scores: […]`"));
                }
                Ok(Expected::Route { one_of, scores })
            }
            Kind::Admission => {
                let word = expect.admit.as_ref().ok_or_else(|| missing("`admit: true` or `admit: false`"))?;
                let admit = match word.value.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(self.0.out_of_range("`admit`", word, "`true` or `false`")),
                };
                if let (true, Some(reason)) = (admit, &expect.reason) {
                    return Err(self.0.wrong(reason.referenced, "a request is admitted without a reason", "remove it"));
                }
                Ok(Expected::Admission { admit, reason: expect.reason.as_ref().map(|word| word.value.clone()) })
            }
            Kind::Priority => {
                let word = expect.priority.as_ref().ok_or_else(|| missing("`priority: 0`"))?;
                Ok(Expected::Priority(self.0.whole("`priority`", word, i64::MIN..=i64::MAX)?))
            }
            Kind::Scheduling => {
                let order = expect.order.as_ref().ok_or_else(|| missing("`order: […]`"))?;
                self.order(order, labels).map(Expected::Order)
            }
            Kind::Preemption => {
                let len =
                    inputs.first().map_or(0, |call| if let GuestCall::Victim(batch) = call { batch.len() } else { 0 });
                let word = expect.victim.as_ref().ok_or_else(|| missing("`victim: 0`"))?;
                Ok(Expected::Victim(index("victim", len)(word)?))
            }
            Kind::Latency => {
                debug_assert_eq!(calls, 1, "a step, or a number of tokens");
                let of_step = matches!(inputs.first(), Some(GuestCall::Step(_)));
                let (name, word, other) = if of_step {
                    ("step_time_us", &expect.step_time_us, &expect.queueing_time_us)
                } else {
                    ("queueing_time_us", &expect.queueing_time_us, &expect.step_time_us)
                };
                if let Some(other) = other {
                    let hint = "a `step` has a `step_time_us`, `tokens` have a `queueing_time_us`";
                    return Err(self.0.wrong(other.referenced, "this is the output for another input", hint));
                }
                let word = word.as_ref().ok_or_else(|| missing(&format!("`{name}: 1`")))?;
                Ok(Expected::Time(self.0.whole(format_args!("`{name}`"), word, 0..=u64::MAX)?))
            }
        }
    }

    /// Indices of all requests of the queue, from their names or indices.
    fn order(&self, order: &Spanned<Vec<Word>>, labels: &[String]) -> Result<Vec<usize>, Diagnostic> {
        let mut indices: Vec<usize> = Vec::new();
        for word in &order.value {
            let position = labels.iter().position(|label| *label == word.value);
            let number = || word.value.parse().ok().filter(|&index: &usize| index < labels.len());
            let Some(index) = position.or_else(number) else {
                let known: Vec<&str> = labels.iter().map(String::as_str).collect();
                let what = format!("there is no request {} in the queue", quoted(word.value.as_bytes()));
                return Err(self.0.wrong(word.referenced, what, name_hint(&word.value, &known)));
            };
            if indices.contains(&index) {
                let what = format!("{} is given twice", quoted(word.value.as_bytes()));
                return Err(self.0.wrong(word.referenced, what, "name each request once"));
            }
            indices.push(index);
        }
        if indices.len() != labels.len() {
            let what = format!("the order has {} of the {} requests of the queue", indices.len(), labels.len());
            return Err(self.0.wrong(order.referenced, what, "name each request once"));
        }
        Ok(indices)
    }

    fn time(&self, name: impl Display, word: Option<&Word>) -> Result<Option<Micros>, Diagnostic> {
        let latest = i64::MAX.cast_unsigned();
        word.map(|word| self.0.whole(name, word, 0..=latest).map(Micros)).transpose()
    }

    fn yaml(&self, error: &yaml::Error) -> Diagnostic {
        let (what, hint) = explain(error);
        let location = error.location().map_or_else(|| Location::start(self.0.file.clone()), |at| self.0.location(at));
        Diagnostic::in_text(location, self.0.text, what).hint(hint)
    }
}

/// The inputs of a case while they are read.
struct Inputs<'r, 'a> {
    reader: &'r FixtureReader<'a>,
    names: NameTable,
    instances: Vec<InstanceInfo>,
    labels: Vec<String>,
}

impl Inputs<'_, '_> {
    fn calls(&mut self, raw: &RawCase, kind: Kind) -> Result<Vec<GuestCall>, Diagnostic> {
        let now = self.reader.time("`now`", raw.now.as_ref())?;
        let reader = self.reader;
        let missing = |what: &str| {
            let hint = format!("add `{what}: …`");
            reader.0.wrong(raw.kind.referenced, format!("a case of {kind} needs `{what}`"), hint)
        };
        match kind {
            Kind::Admission | Kind::Routing => {
                if kind == Kind::Routing && raw.instances.as_ref().is_none_or(|list| list.value.is_empty()) {
                    return Err(missing("instances"));
                }
                let instances = self.instances(raw.instances.as_ref())?;
                let request = self.request(raw.request.as_ref(), now)?;
                let of = |word, name| self.reader.time(name, word).map(Option::unwrap_or_default);
                let staleness = Staleness {
                    load: of(raw.load_staleness.as_ref(), "`load_staleness`")?,
                    cached_blocks: of(raw.cached_blocks_staleness.as_ref(), "`cached_blocks_staleness`")?,
                    in_flight: Micros::ZERO,
                };
                let call = if kind == Kind::Routing { GuestCall::route } else { GuestCall::admit };
                self.instances = instances.infos.clone();
                Ok(vec![call(&request, &instances, staleness)])
            }
            Kind::Priority => {
                let request = self.request(raw.request.as_ref(), now)?;
                Ok(vec![GuestCall::priority(&request)])
            }
            Kind::Scheduling => {
                let queue = raw.queue.as_ref().filter(|queue| !queue.value.is_empty());
                let queue = queue.ok_or_else(|| missing("queue"))?;
                queue.value.iter().enumerate().map(|(index, one)| self.queued(index, one, now)).collect()
            }
            Kind::Preemption => {
                let batch = raw.batch.as_ref().filter(|batch| !batch.value.is_empty());
                let batch = batch.ok_or_else(|| missing("batch"))?;
                self.batch(&batch.value, now, raw.requester.as_ref()).map(|batch| vec![GuestCall::Victim(batch)])
            }
            Kind::Latency => match (&raw.step, &raw.tokens) {
                (Some(step), None) => self.step(step).map(|step| vec![GuestCall::Step(step)]),
                (None, Some(tokens)) => {
                    Ok(vec![GuestCall::Queueing(self.reader.0.whole("`tokens`", tokens, 0..=u32::MAX)?)])
                }
                (None, None) => Err(missing("step")),
                (Some(_), Some(tokens)) => {
                    let hint = "keep one of `step` and `tokens`, or make two cases of it";
                    Err(self.reader.0.wrong(tokens.referenced, "a case has one input", hint))
                }
            },
        }
    }

    fn instances(&mut self, raw: Option<&Spanned<Vec<Spanned<Record>>>>) -> Result<NamedInstances, Diagnostic> {
        let mut instances = NamedInstances::default();
        for (index, record) in raw.map_or(&[][..], |list| &list.value).iter().enumerate() {
            let mut instance = NamedInstance::new(index);
            self.fill(record, |name, value, _| instance.set(name, value))?;
            instances.push(&instance).map_err(|error| self.at(record.referenced, error))?;
        }
        Ok(instances)
    }

    fn request(&mut self, raw: Option<&Spanned<Record>>, now: Option<Micros>) -> Result<NamedRequest, Diagnostic> {
        let mut request = NamedRequest::new(0);
        request.now = now;
        let Some(record) = raw else { return Ok(request) };
        self.fill(record, |name, value, names| request.set(name, value, names))?;
        request.finish().map_err(|error| self.at(record.referenced, error))
    }

    fn queued(&mut self, index: usize, record: &Spanned<Record>, now: Option<Micros>) -> Result<GuestCall, Diagnostic> {
        let mut queued = NamedQueued::new(index);
        queued.request.now = now;
        let mut label = index.to_string();
        self.fill(record, |name, value, names| {
            if let ("name", FieldValue::Word(text)) = (name, value) {
                label.clone_from(text);
            }
            queued.set(name, value, names)
        })?;
        if self.labels.contains(&label) {
            let what = format!("there are two requests {}", quoted(label.as_bytes()));
            return Err(self.reader.0.wrong(record.referenced, what, "use unique names"));
        }
        self.labels.push(label);
        queued.request = queued.request.finish().map_err(|error| self.at(record.referenced, error))?;
        Ok(GuestCall::rank(&queued))
    }

    fn batch(
        &mut self,
        records: &[Spanned<Record>],
        now: Option<Micros>,
        requester: Option<&Word>,
    ) -> Result<BatchView, Diagnostic> {
        let mut batch = BatchView { now: now.unwrap_or_default(), last_of_ties: true, ..BatchView::default() };
        for record in records {
            push_running(&mut batch);
            self.fill(record, |name, value, names| set_running(&mut batch, name, value, names))?;
        }
        let last = batch.len() - 1;
        let requester = requester.map(|word| self.reader.0.whole("`requester`", word, 0..=last)).transpose()?;
        batch.requester = requester.unwrap_or(last);
        Ok(batch)
    }

    fn step(&mut self, record: &Spanned<Record>) -> Result<Batch, Diagnostic> {
        let mut step = Batch::default();
        self.fill(record, |name, value, _| set_step(&mut step, name, value))?;
        Ok(step)
    }

    /// Sets all fields of `record`, and locates the first that cannot be set.
    fn fill(
        &mut self,
        record: &Spanned<Record>,
        mut set: impl FnMut(&str, &FieldValue, &mut NameTable) -> Result<(), FieldError>,
    ) -> Result<(), Diagnostic> {
        for (name, value) in &record.value.0 {
            set(&name.value, &value.value, &mut self.names).map_err(|error| {
                let at = if error.of_name { name.referenced } else { value.referenced };
                self.at(at, error)
            })?;
        }
        Ok(())
    }

    fn at(&self, at: Mark, error: FieldError) -> Diagnostic {
        self.reader.0.wrong(at, error.what, error.hint)
    }
}

impl<'de> Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = FieldValue;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value or a list of values")
            }

            fn visit_unit<E>(self) -> Result<FieldValue, E> {
                Ok(FieldValue::Nothing)
            }

            fn visit_bool<E>(self, value: bool) -> Result<FieldValue, E> {
                Ok(FieldValue::Word(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<FieldValue, E> {
                Ok(FieldValue::Word(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<FieldValue, E> {
                Ok(FieldValue::Word(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<FieldValue, E> {
                Ok(FieldValue::Word(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<FieldValue, E> {
                Ok(FieldValue::Word(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FieldValue, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(FieldValue::List(items))
            }
        }

        deserializer.deserialize_any(AnyValue)
    }
}
