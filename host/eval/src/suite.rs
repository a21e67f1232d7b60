//! A suite: the scenarios on which candidates are evaluated. One YAML file, parsed strictly like policy bundles.
//!
//! ```text
//! suite ── reference, baseline, weights, classes, gates, limits
//!   └─ scenario ── flags of `blis run`, a workload, the splits it belongs to
//! ```
//!
//! A scenario is written as the flags of `blis run`, so that everything that can be simulated can be part of a suite,
//! and a scenario can be tried on the command line. Seeds are not written down: they follow from suite, split, epoch and
//! scenario.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::charges::ClassRule;
use super::{FitnessScale, FitnessWeights};
use blis_diag::yaml::{self, Document, Entries, NumberRange, Spanned, Word, explain};
use blis_diag::{Diagnose, Diagnostic, Location, nearest, quoted};
use blis_plugin::decisions::Area;
use blis_plugin::{Kind, Surroundings};
use strum::{EnumString, IntoStaticStr};

/// The suites that are built into the program.
static SUITES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../examples/suites");

/// Longer files are refused as suites, bytes.
pub const BYTES_MAX: u64 = 4 << 20;

/// The scenarios on which candidates are evaluated, and the rules of the evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// The name in commands and results.
    pub name: String,
    /// A description; may be empty.
    pub about: String,
    /// The file, as messages name it.
    pub file: String,
    /// SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// Raised whenever scores change their meaning; scores of different versions must not be compared.
    pub version: u32,
    /// The policy that gates compare with: a routing policy, the path of a bundle, or built-in policies of several kinds
    /// joined by ` + `.
    pub baseline: String,
    /// The policy that scores are relative to, likewise: the best built-in policy for what candidates may decide. The
    /// baseline if the suite names none.
    pub reference: String,
    /// What `blis suite rebase` found when it chose the reference.
    pub rebased: Option<RebaseRecord>,
    /// Further policies that feedback and the held-out report compare candidates with.
    pub reference_policies: Vec<String>,
    /// The kinds of decisions that candidates may make. Other functions of a candidate are not used.
    pub decides: Vec<Kind>,
    /// The objectives: figures with their weights.
    pub weights: FitnessWeights,
    /// Number of seeds of each scenario, by split.
    pub seeds: BTreeMap<Split, u32>,
    /// What is different from the usual about SLO classes, by name; `default` is the class of requests without one.
    pub classes: BTreeMap<String, ClassSetting>,
    /// What a candidate must not do, whatever its score.
    pub gates: Gates,
    /// The score relative to the baseline from which the next stage is run.
    pub promote: BTreeMap<Split, f64>,
    /// The resources that a candidate may use.
    pub limits: SuiteLimits,
    /// Folders outside its own that it may read, as the command line grants.
    pub paths: Vec<PathBuf>,
    /// At least one in `smoke` and one in `train`.
    pub scenarios: Vec<Scenario>,
}

/// What the command line grants a suite and its candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuiteGrants {
    /// Components as large as those with an interpreter inside.
    pub large_components: bool,
    /// Folders outside its own that the suite may read.
    pub paths: Vec<PathBuf>,
}

/// The stage in which a scenario is run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Split {
    /// The first stage: a short check whether the candidate is promising.
    Smoke,
    /// The scenarios that a search learns from.
    Train,
    /// Other requests, for choosing among candidates that did well in train.
    Select,
    /// Held out: for reports only.
    Test,
}

/// One scenario of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name, unique in the suite.
    pub name: String,
    /// The group of similar scenarios; the name of the scenario if it belongs to none.
    pub family: String,
    /// The splits that it belongs to, at least one.
    pub splits: Vec<Split>,
    /// Flags of `blis run` without dashes, those of the suite first.
    pub flags: Vec<(String, String)>,
    /// A workload specification, instead of workload flags.
    pub workload: Option<String>,
    /// Location in the file of the suite.
    pub location: Location,
}

/// How a choice of the reference came about.
#[derive(Clone, Debug, PartialEq)]
pub struct RebaseRecord {
    /// The program that chose it.
    pub program: String,
    /// Policies and their scores relative to the baseline, best first.
    pub scores: Vec<(String, f64)>,
}

/// What a suite says about an SLO class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSetting {
    /// Value of a completed request, relative to those of other classes; 1 if not set.
    pub value: Option<f64>,
    /// Whether its requests may be shed; by the priority of the class if not set.
    pub sheddable: Option<bool>,
    /// The least completed share that a candidate must leave it, unless the baseline completes less.
    pub floor: f64,
}

/// Conditions that are checked before any score, relative to the baseline under the same requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gates {
    /// By how much the completed share of a scenario may be below the baseline's.
    pub completed: f64,
    /// By how much the mean end-to-end latency of a class may exceed the baseline's, as a share of it.
    pub worst_class: f64,
    /// By how much SLO attainment may be below the baseline's, if the weights are about cost.
    pub attainment: f64,
}

/// Resources that a candidate may use, per call and in total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuiteLimits {
    /// Rhai operations per decision.
    pub operations_per_call: u64,
    /// WebAssembly fuel per decision, roughly instructions.
    pub fuel_per_call: u64,
    /// Rhai operations of all decisions of one simulation together, per request of the simulation.
    pub operations_per_request: u64,
    /// WebAssembly fuel of all decisions of one simulation together, per request of the simulation.
    pub fuel_per_request: u64,
    /// Linear memory of a component, MiB.
    pub memory_mb: u64,
    /// Whether components may have an interpreter inside (Python, JavaScript): compiling one may take a minute.
    pub large_components: bool,
    /// Wall time of a whole evaluation, seconds.
    pub wall_s: f64,
}

/// Why a suite cannot be used: its file is invalid or cannot be read, or there is no suite of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct SuiteError(#[from] Diagnostic);

impl Diagnose for SuiteError {
    fn diagnostic(&self) -> Diagnostic {
        self.0.clone()
    }
}

impl Split {
    /// The lower end of the score band; scores of the held-out split are never returned to a search.
    #[must_use]
    pub const fn band(self) -> f64 {
        match self {
            Self::Smoke => 1.0,
            Self::Train => 2.0,
            Self::Select => 3.0,
            Self::Test => 0.0,
        }
    }

    const fn usual_seeds(self) -> u32 {
        match self {
            Self::Smoke => 1,
            Self::Train | Self::Select => 5,
            Self::Test => 20,
        }
    }
}

/// What to do about a `name` that is none of those built in.
pub(crate) fn hint_of_built_in(name: &str, names: &[String]) -> String {
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let others = || format!("built in are {}; others are named by their file", names.join(", "));
    nearest(name, &known).map_or_else(others, |near| format!("did you mean `{near}`?"))
}

impl Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.into_str())
    }
}

impl Suite {
    /// The built-in suite called `name`, or the one in the file `name`.
    ///
    /// # Errors
    /// If there is none, or its file is invalid.
    pub fn open(name: &str) -> Result<Self, SuiteError> {
        let error = |what: String, hint: String| SuiteError(Diagnostic::new(what).hint(hint));
        if let Some(file) = SUITES.get_file(format!("{name}.yaml")) {
            let path = format!("examples/suites/{name}.yaml");
            return Self::parse(&path, file.contents_utf8().unwrap_or_default());
        }
        let path = Path::new(name);
        // A folder of that name, or a link that leads nowhere, is read, so that the message says what it is.
        if path.symlink_metadata().is_err() {
            let hint = hint_of_built_in(name, &Self::built_in());
            return Err(error(format!("there is no suite {}", quoted(name.as_bytes())), hint));
        }
        let unreadable = |source: std::io::Error| {
            let hint = "a suite is a YAML file: see docs/evaluate.md".to_owned();
            error(format!("the suite `{name}` cannot be read: {source}"), hint)
        };
        let text = blis_diag::read_text(path, BYTES_MAX).map_err(|source| match source.kind() {
            std::io::ErrorKind::FileTooLarge => {
                error(format!("the suite `{name}` is longer than 4 MiB"), "is this the right file?".to_owned())
            }
            _ => unreadable(source),
        })?;
        Self::parse(name, &text)
    }

    /// The same suite with what the command line grants.
    #[must_use]
    pub fn granted(mut self, granted: &SuiteGrants) -> Self {
        self.limits.large_components = granted.large_components;
        self.paths.clone_from(&granted.paths);
        self
    }

    /// Where its files may lie, and its policies are found.
    #[must_use]
    pub fn surroundings(&self) -> Surroundings {
        let folder = Path::new(&self.file).parent().unwrap_or(Path::new("")).to_owned();
        Surroundings { folder, allowed: self.paths.clone() }
    }

    /// The names of the built-in suites, sorted.
    #[must_use]
    pub fn built_in() -> Vec<String> {
        let paths = SUITES.files().map(include_dir::File::path);
        let suites = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let mut names: Vec<String> = suites.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
        names.sort();
        names
    }

    /// Parses `text`, the content of `file`.
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub fn parse(file: &str, text: &str) -> Result<Self, SuiteError> {
        let reader = SuiteReader(Document { file: file.into(), text });
        let raw: Option<RawSuite> = reader.0.read().map_err(|error| reader.yaml(&error))?;
        let Some(raw) = raw else {
            let empty = Diagnostic::in_text(Location::start(file), text, "the suite is empty");
            return Err(empty.hint("see examples/suites/chat.yaml").into());
        };
        Ok(reader.suite(raw)?)
    }

    /// The rule of the class `name` (empty for requests without a class), if `usual` is that of its priority.
    #[must_use]
    pub(crate) fn class_rule(&self, name: &str, usual: ClassRule) -> ClassRule {
        let name = if name.is_empty() { "default" } else { name };
        let ClassSetting { value, sheddable, .. } = self.classes.get(name).copied().unwrap_or_default();
        ClassRule { value: value.unwrap_or(usual.value), sheddable: sheddable.unwrap_or(usual.sheddable) }
    }

    /// The seed with the number `turn` under which `blis suite rebase` compares policies in a scenario: no stage has it.
    #[must_use]
    pub fn rebase_seed(&self, scenario: &str, turn: u32) -> u64 {
        let digest = Sha256::digest(format!("{}:{scenario}:rebase:{turn}", self.name));
        u64::from(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }

    /// The seed with the number `turn` of the scenario at the index `scenario` in `split`. It differs between splits,
    /// epochs and scenarios, so that the runs of an evaluation are independent, and is the same for all candidates. It
    /// has at most 32 bits, so that any reader of JSON keeps it exactly.
    #[must_use]
    pub fn seed(&self, split: Split, epoch: u64, scenario: usize, turn: u32) -> u64 {
        let epoch = if split == Split::Test { 0 } else { epoch };
        // Names have no colon; an index that does not exist has the empty name.
        let scenario = self.scenarios.get(scenario).map_or("", |scenario| scenario.name.as_str());
        let digest = Sha256::digest(format!("{}:{split}:{epoch}:{scenario}:{turn}", self.name));
        u64::from(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }

    /// The name or path with which [`Self::open`] finds the suite.
    #[must_use]
    pub fn name_or_file(&self) -> String {
        if Self::built_in().contains(&self.name) { self.name.clone() } else { self.file.clone() }
    }

    /// The indices of the scenarios in `split`.
    #[must_use]
    pub fn scenarios_in(&self, split: Split) -> Vec<usize> {
        (0..self.scenarios.len()).filter(|&index| self.scenarios[index].splits.contains(&split)).collect()
    }

    /// Number of seeds of each scenario in `split`.
    #[must_use]
    pub fn seeds_of(&self, split: Split) -> u32 {
        self.seeds.get(&split).copied().unwrap_or(split.usual_seeds())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSuite {
    schema: Word,
    name: Word,
    about: Option<String>,
    version: Option<Word>,
    baseline: Option<Word>,
    reference: Option<Word>,
    rebased: Option<RawRebase>,
    reference_policies: Option<Vec<Word>>,
    decides: Option<Vec<Word>>,
    weights: Word,
    seeds: Option<Entries<Word>>,
    classes: Option<Entries<RawClass>>,
    gates: Option<RawGates>,
    promote: Option<Entries<Word>>,
    limits: Option<RawLimits>,
    run: Option<Entries<Word>>,
    scenarios: Spanned<Vec<RawScenario>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRebase {
    program: Word,
    scores: Entries<Word>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawClass {
    value: Option<Word>,
    sheddable: Option<Word>,
    floor: Option<Word>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawGates {
    completed: Option<Word>,
    worst_class: Option<Word>,
    attainment: Option<Word>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawLimits {
    operations_per_call: Option<Word>,
    fuel_per_call: Option<Word>,
    operations_per_request: Option<Word>,
    fuel_per_request: Option<Word>,
    memory_mb: Option<Word>,
    large_components: Option<Word>,
    wall_s: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: Word,
    family: Option<Word>,
    splits: Spanned<Vec<Word>>,
    run: Option<Entries<Word>>,
    workload: Option<String>,
}

/// Parses the values of a file, and reports mistakes with their locations.
struct SuiteReader<'a>(Document<'a>);

const SHARE: NumberRange = NumberRange { fits: |number| (0.0..=1.0).contains(&number), text: "a number from 0 to 1" };
const UP_TO_1000: NumberRange =
    NumberRange { fits: |number| (0.0..=1000.0).contains(&number), text: "a number from 0 to 1000" };
const VALUE: NumberRange =
    NumberRange { fits: |number| number > 0.0 && number <= 1000.0, text: "above 0, at most 1000" };
const SECONDS: NumberRange =
    NumberRange { fits: |number| number > 0.0 && number <= 86_400.0, text: "above 0, at most 86400" };

impl SuiteReader<'_> {
    fn suite(&self, raw: RawSuite) -> Result<Suite, Diagnostic> {
        if raw.schema.value != "1" {
            let what = format!("suites of schema {} are not supported", quoted(raw.schema.value.as_bytes()));
            return Err(self.0.wrong(raw.schema.referenced, what, "this program reads `schema: 1`"));
        }
        let shared = raw.run.map_or(Vec::new(), |run| run.0);
        let mut scenarios: Vec<Scenario> = Vec::new();
        let at = raw.scenarios.referenced;
        for one in raw.scenarios.value {
            let at_name = one.name.referenced;
            let scenario = self.scenario(one, &shared)?;
            if scenarios.iter().any(|known| known.name == scenario.name) {
                let what = format!("there are two scenarios `{}`", scenario.name);
                return Err(self.0.wrong(at_name, what, "use unique names"));
            }
            scenarios.push(scenario);
        }
        for needed in [Split::Smoke, Split::Train] {
            if !scenarios.iter().any(|scenario| scenario.splits.contains(&needed)) {
                let hint = format!("add `{needed}` to the splits of one");
                return Err(self.0.wrong(at, format!("no scenario belongs to `{needed}`"), hint));
            }
        }
        let baseline = raw.baseline.map_or_else(|| "round-robin".to_owned(), |word| word.value);
        Ok(Suite {
            paths: Vec::new(),
            name: self.name(&raw.name)?,
            about: raw.about.unwrap_or_default().trim().to_owned(),
            file: self.0.file.to_string(),
            hash: hex(&Sha256::digest(self.0.text)),
            version: raw.version.map_or(Ok(1), |word| self.0.whole("a version", &word, 1..=1_000_000))?,
            reference: raw.reference.map_or_else(|| baseline.clone(), |word| word.value),
            baseline,
            rebased: raw.rebased.map(|raw| self.rebased(raw)).transpose()?,
            classes: self.classes(raw.classes)?,
            reference_policies: raw.reference_policies.unwrap_or_default().into_iter().map(|word| word.value).collect(),
            decides: self.decides(raw.decides)?,
            weights: self.weights(&raw.weights)?,
            seeds: self.by_split(raw.seeds, |word| self.0.whole("a number of seeds", word, 1..=1000))?,
            gates: self.gates(raw.gates.unwrap_or_default())?,
            promote: self.by_split(raw.promote, |word| self.0.number("a score", word, UP_TO_1000))?,
            limits: self.limits(&raw.limits.unwrap_or_default())?,
            scenarios,
        })
    }

    fn scenario(&self, raw: RawScenario, shared: &[(Word, Word)]) -> Result<Scenario, Diagnostic> {
        let own = raw.run.map_or(Vec::new(), |run| run.0);
        // Flags of the scenario win over those of the suite.
        let inherited = shared.iter().filter(|(name, _)| !own.iter().any(|(known, _)| known.value == name.value));
        let flags = inherited.chain(&own).map(|(name, value)| (name.value.clone(), value.value.clone())).collect();
        if raw.splits.value.is_empty() {
            return Err(self.0.wrong(raw.splits.referenced, "the scenario belongs to no split", SPLITS));
        }
        let splits = raw.splits.value.iter().map(|word| self.split(word)).collect::<Result<_, _>>()?;
        let name = self.name(&raw.name)?;
        let family = raw.family.as_ref().map(|word| self.name(word)).transpose()?;
        Ok(Scenario {
            family: family.unwrap_or_else(|| name.clone()),
            name,
            splits,
            flags,
            workload: raw.workload,
            location: self.0.location(raw.name.referenced),
        })
    }

    /// A name: names become keys of results and parts of file names.
    fn name(&self, word: &Word) -> Result<String, Diagnostic> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if word.value.is_empty() || word.value.len() > 64 || !word.value.chars().all(fits) {
            let what = format!("{} cannot be a name", quoted(word.value.as_bytes()));
            return Err(self.0.wrong(word.referenced, what, "up to 64 of letters, digits, `-`, `_` and `.`"));
        }
        Ok(word.value.clone())
    }

    fn split(&self, word: &Word) -> Result<Split, Diagnostic> {
        word.value.parse().map_err(|_| {
            let what = format!("there is no split {}", quoted(word.value.as_bytes()));
            self.0.wrong(word.referenced, what, SPLITS)
        })
    }

    fn by_split<T>(
        &self,
        entries: Option<Entries<Word>>,
        value: impl Fn(&Word) -> Result<T, Diagnostic>,
    ) -> Result<BTreeMap<Split, T>, Diagnostic> {
        let entries = entries.map_or(Vec::new(), |entries| entries.0);
        entries.iter().map(|(split, word)| Ok((self.split(split)?, value(word)?))).collect()
    }

    fn decides(&self, words: Option<Vec<Word>>) -> Result<Vec<Kind>, Diagnostic> {
        let Some(words) = words else { return Ok(vec![Kind::Routing]) };
        let kind = |word: &Word| {
            let found = Kind::of(&word.value).filter(|kind| kind.is_decision());
            found.ok_or_else(|| {
                let what = format!("candidates cannot decide {}", quoted(word.value.as_bytes()));
                self.0.wrong(word.referenced, what, decided_kinds())
            })
        };
        words.iter().map(kind).collect()
    }

    fn weights(&self, word: &Word) -> Result<FitnessWeights, Diagnostic> {
        FitnessWeights::parse(&word.value, FitnessScale::Ratio).map_err(|error| {
            let Diagnostic { what, hint, .. } = error.diagnostic();
            // The excerpt of the error quotes a flag, so it is replaced.
            self.0.wrong(word.referenced, what, hint.unwrap_or_default())
        })
    }

    fn rebased(&self, raw: RawRebase) -> Result<RebaseRecord, Diagnostic> {
        let scores = raw.scores.0.into_iter().map(|(policy, score)| {
            let score = self.0.number("a score", &score, UP_TO_1000)?;
            Ok((policy.value, score))
        });
        Ok(RebaseRecord { program: raw.program.value, scores: scores.collect::<Result<_, Diagnostic>>()? })
    }

    fn classes(&self, raw: Option<Entries<RawClass>>) -> Result<BTreeMap<String, ClassSetting>, Diagnostic> {
        let entries = raw.map_or(Vec::new(), |entries| entries.0);
        let class = |(name, raw): (Word, RawClass)| {
            let value = raw.value.map(|word| self.0.number("a value", &word, VALUE)).transpose()?;
            let sheddable = raw.sheddable.map(|word| self.switch(&word)).transpose()?;
            let floor = raw.floor.map_or(Ok(0.0), |word| self.0.number("a floor", &word, SHARE))?;
            Ok((name.value, ClassSetting { value, sheddable, floor }))
        };
        entries.into_iter().map(class).collect()
    }

    fn switch(&self, word: &Word) -> Result<bool, Diagnostic> {
        match word.value.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => {
                let what = format!("{} is neither true nor false", quoted(other.as_bytes()));
                Err(self.0.wrong(word.referenced, what, "write `true` or `false`"))
            }
        }
    }

    fn gates(&self, raw: RawGates) -> Result<Gates, Diagnostic> {
        let number = |word: Option<Word>, name: &str, range, usual| {
            word.map_or(Ok(usual), |word| self.0.number(name, &word, range))
        };
        Ok(Gates {
            completed: number(raw.completed, "`completed`", SHARE, 0.02)?,
            worst_class: number(raw.worst_class, "`worst_class`", UP_TO_1000, 0.5)?,
            attainment: number(raw.attainment, "`attainment`", SHARE, 0.02)?,
        })
    }

    fn limits(&self, raw: &RawLimits) -> Result<SuiteLimits, Diagnostic> {
        let usual = SuiteLimits::default();
        let whole = |word: &Option<Word>, name: &str, usual, most| {
            word.as_ref().map_or(Ok(usual), |word| self.0.whole(name, word, 1..=most))
        };
        if let Some(word) = &raw.large_components
            && self.switch(word)?
        {
            let what = "`large_components` is granted by the flag `--allow-large-components` of the command line only";
            let hint = "leave it out here, and give the flag if you trust the suite";
            return Err(self.0.wrong(word.referenced, what, hint));
        }
        let wall = raw.wall_s.as_ref().map(|word| self.0.number("`wall_s`", word, SECONDS)).transpose()?;
        Ok(SuiteLimits {
            operations_per_call: whole(
                &raw.operations_per_call,
                "`operations_per_call`",
                usual.operations_per_call,
                1_000_000_000,
            )?,
            fuel_per_call: whole(&raw.fuel_per_call, "`fuel_per_call`", usual.fuel_per_call, 1_000_000_000_000)?,
            operations_per_request: whole(
                &raw.operations_per_request,
                "`operations_per_request`",
                usual.operations_per_request,
                1_000_000_000,
            )?,
            fuel_per_request: whole(
                &raw.fuel_per_request,
                "`fuel_per_request`",
                usual.fuel_per_request,
                1_000_000_000_000,
            )?,
            memory_mb: whole(&raw.memory_mb, "`memory_mb`", usual.memory_mb, 4096)?,
            large_components: usual.large_components,
            wall_s: wall.unwrap_or(usual.wall_s),
        })
    }

    fn yaml(&self, error: &yaml::Error) -> Diagnostic {
        let (what, hint) = explain(error);
        let location = error.location().map_or_else(|| Location::start(self.0.file.clone()), |at| self.0.location(at));
        Diagnostic::in_text(location, self.0.text, what).hint(hint)
    }
}

/// What candidates may decide, each with what a service needs for it.
fn decided_kinds() -> String {
    let condition = |kind: Kind| match kind.area() {
        Area::Front | Area::Engine => "",
        Area::FlowControl => "with flow control ",
        Area::Replicas => "with an autoscaler ",
        Area::KvTiers => "with a CPU tier ",
        Area::Roles => "with instances that prefill apart from others ",
    };
    let mut kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_decision()).collect();
    kinds.sort_by_key(|kind| kind.area());
    let groups = kinds.chunk_by(|a, b| condition(*a) == condition(*b));
    let names = groups.map(|group| {
        let names: Vec<&str> = group.iter().map(|kind| kind.name()).collect();
        let list = match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => names.concat(),
        };
        format!("{}{list}", condition(group[0]))
    });
    names.chain(["latency is not a decision".to_owned()]).collect::<Vec<_>>().join("; ")
}

const SPLITS: &str = "it must be smoke, train, select or test";

impl Default for SuiteLimits {
    fn default() -> Self {
        Self {
            operations_per_call: 100_000,
            fuel_per_call: 20_000_000,
            operations_per_request: 20_000,
            fuel_per_request: 2_000_000,
            memory_mb: 64,
            large_components: false,
            wall_s: 60.0,
        }
    }
}

/// The bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two scenarios: one in all splits, one in train only.
    pub(crate) fn suite() -> Suite {
        Suite::parse(
            "suite.yaml",
            "schema: 1\nname: small\nweights: mean_e2e:1\nseeds: {smoke: 1, train: 4, select: 5}\n\
             run: {model: qwen3-14b, rate: 5}\nscenarios:\n  - name: one\n    splits: [smoke, train, select, test]\n\
             \u{20}   run: {rate: 7, num-requests: 20}\n  - {name: two, family: others, splits: [train]}\n",
        )
        .unwrap()
    }

    fn refused(text: &str) -> String {
        Suite::parse("s.yaml", text).expect_err(text).to_string()
    }

    #[test]
    fn a_suite_defines_its_runs() {
        let suite = suite();
        assert_eq!((suite.baseline.as_str(), &suite.decides[..]), ("round-robin", &[Kind::Routing][..]));
        assert_eq!((suite.reference.as_str(), suite.version), ("round-robin", 1), "without a rebase");
        assert_eq!((suite.scenarios_in(Split::Smoke), suite.scenarios_in(Split::Train)), (vec![0], vec![0, 1]));
        let flags: Vec<String> =
            suite.scenarios[0].flags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(flags, ["model=qwen3-14b", "rate=7", "num-requests=20"], "its own win");
        assert_eq!((suite.scenarios[1].family.as_str(), suite.seeds_of(Split::Train)), ("others", 4));
    }

    #[test]
    fn classes_have_values_and_may_be_shed() {
        let text = "schema: 1\nname: s\nversion: 3\nreference: weighted + sjf\nweights: critical.p90_ttft:1\n\
                    classes: {batch: {value: 0.5, sheddable: false}, default: {floor: 0.25}}\n\
                    rebased: {program: blis 1, scores: {\"weighted + sjf\": 1.5, weighted: 1.25}}\n\
                    scenarios: [{name: a, splits: [smoke, train]}]";
        let suite = Suite::parse("s.yaml", text).unwrap();
        assert_eq!(
            (suite.reference.as_str(), suite.baseline.as_str(), suite.version),
            ("weighted + sjf", "round-robin", 3)
        );
        let usual = ClassRule { value: 1.0, sheddable: true };
        assert_eq!(suite.class_rule("batch", usual), ClassRule { value: 0.5, sheddable: false });
        assert_eq!(suite.class_rule("", usual), usual);
        assert_eq!(suite.classes["default"].floor, 0.25);
        assert_eq!(suite.rebased.unwrap().scores, [("weighted + sjf".to_owned(), 1.5), ("weighted".to_owned(), 1.25)]);
    }

    #[test]
    fn seeds_follow_from_split_epoch_scenario_and_turn() {
        let suite = suite();
        let seed = |split, epoch, scenario, turn| suite.seed(split, epoch, scenario, turn);
        assert_eq!(seed(Split::Train, 0, 1, 0), seed(Split::Train, 0, 1, 0));
        let all = [
            seed(Split::Train, 0, 0, 0),
            seed(Split::Train, 0, 0, 1),
            seed(Split::Train, 0, 1, 0),
            seed(Split::Train, 1, 0, 0),
            seed(Split::Select, 0, 0, 0),
        ];
        assert!(all.iter().enumerate().all(|(index, one)| !all[..index].contains(one)), "{all:?}");
        assert_eq!(seed(Split::Test, 0, 0, 3), seed(Split::Test, 9, 0, 3), "held-out seeds do not depend on the epoch");
        assert!(!all.contains(&suite.rebase_seed("one", 0)));
        assert_ne!(suite.rebase_seed("one", 0), suite.rebase_seed("two", 0), "scenarios are independent");
    }

    #[test]
    fn mistakes_show_their_line() {
        let head = "schema: 1\nname: s\nweights: mean_e2e:1\n";
        let one = "scenarios: [{name: a, splits: [smoke, train]}]\n";
        let texts = [
            String::new(),
            "schema: 2\nname: s\nweights: mean_e2e:1\nscenarios: []".to_owned(),
            format!("{head}scenarios: [{{name: a, splits: [smoke]}}]"),
            format!("{head}scenarios: [{{name: a, splits: [smoke, practice]}}]"),
            format!("{head}scenarios: [{{name: a, splits: [smoke, train]}}, {{name: a, splits: [test]}}]"),
            format!("{head}{one}gates: {{completed: 2}}"),
            format!("{head}{one}decides: [latency]"),
            format!("{head}{one}seeds: {{train: 0}}"),
            format!("{head}{one}baselin: x"),
            format!("schema: 1\nname: s\nweights: speed:1\n{one}"),
            format!("schema: 1\nname: a/b\nweights: mean_e2e:1\n{one}"),
            format!("{head}{one}limits: {{wall_s: -1}}"),
            format!("{head}{one}classes: {{batch: {{value: 0}}}}"),
            format!("{head}{one}classes: {{batch: {{sheddable: perhaps}}}}"),
            format!("{head}{one}version: 0"),
            format!("schema: 1\nname: s\nweights: critical.jain:1\n{one}"),
        ];
        let messages: Vec<String> = texts.iter().map(|text| refused(text)).collect();
        insta::assert_snapshot!(messages.join("\n\n"));
    }

    #[test]
    fn the_built_in_suites_are_valid() {
        let names = Suite::built_in();
        let known = "agentic chat disaggregation gateway kv-eviction kv-offload long-context overload shared-prefix slo-tiers stale-signals tenants";
        assert_eq!(names.join(" "), known);
        for name in names {
            let suite = Suite::open(&name).unwrap();
            assert_eq!(suite.name, name);
            assert!(
                [Split::Smoke, Split::Train, Split::Select, Split::Test]
                    .into_iter()
                    .all(|split| !suite.scenarios_in(split).is_empty()),
                "{name} has all splits"
            );
        }
    }
}
