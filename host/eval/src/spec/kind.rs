//! What settings take: how a text is read, which values are allowed, and how a value is written.
//!
//! A kind is a constant, so that the table of settings names it, and everything about its values (messages,
//! help, the JSON schema) follows from its [`Range`].

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;

use blis_config::adapters::RANKS;
use blis_sim::cluster::StartMode;
use blis_sim::engine_version::EngineVersion;
use blis_sim::scaling::ScalingRules;
use blis_sim::units::Micros;
use blis_workload::trace_v2::ThinkTime;

use super::named_choice::NamedChoice;
use super::parse::{self, FilterList, PolicyParam, ScorerList, TargetList, WeightList};
use crate::duration;
use crate::group::{self, GroupSettings};
use crate::node_pool::{self, NodePoolSettings};
use crate::scaling_rules;
use crate::startup::{self, StartupSettings};
use crate::think_time;

/// How a setting is written in YAML and JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// A number, whole or with decimals.
    Number,
    /// A switch, `true` or `false`.
    Switch,
    /// A word, a name, a path.
    Text,
    /// A list of numbers.
    Numbers,
    /// A list of words.
    Texts,
}

impl ValueForm {
    /// Whether a file may have a list.
    #[must_use]
    pub fn is_list(self) -> bool {
        matches!(self, Self::Numbers | Self::Texts)
    }
}

/// The values that a setting can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Whole numbers of a unit (empty for none), both ends included.
    Whole { least: u64, most: u64, unit: &'static str },
    /// Finite numbers of a unit.
    Number { least: f64, most: f64, unit: &'static str, ends: RangeEnds },
    /// Times with a unit, or bare numbers in a unit of their own; µs, both ends included.
    Time { unit: TimeUnit, least: u64, most: u64 },
    /// A path. In a suite it is one in the folder of the suite.
    Path,
    /// Others: what a value must be, as messages say it.
    Text(&'static str),
}

/// Which ends of a range belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeEnds {
    Both,
    /// All but the least one.
    Most,
    /// All but the greatest one.
    Least,
}

/// The unit of a bare number that is a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// A whole number of microseconds.
    Us,
    /// A number of milliseconds.
    Ms,
    /// A number of seconds.
    S,
}

impl Range {
    /// What a value must be: `must be …`.
    pub(crate) fn message(&self) -> String {
        match *self {
            Self::Whole { least, most, unit } => {
                format!("must be a whole number{} from {least} to {most}", in_unit(unit))
            }
            Self::Number { least, most, unit, ends } => {
                let from = if ends == RangeEnds::Most { "above" } else { "from" };
                let to = match ends {
                    _ if most == f64::MAX => String::new(),
                    RangeEnds::Both => format!(" to {most}"),
                    RangeEnds::Most => format!(" and at most {most}"),
                    RangeEnds::Least => format!(" on and below {most}"),
                };
                format!("must be a number{} {from} {least}{to}", in_unit(unit))
            }
            Self::Time { unit, least, most } => {
                let (name, scale) = unit.name_and_micros();
                let number = |us: u64| if unit == TimeUnit::Us { us.to_string() } else { plain(us as f64 / scale) };
                let whole = if unit == TimeUnit::Us { "whole " } else { "" };
                format!(
                    "must be a time like 500ms, or a {whole}number of {name} from {} to {}",
                    number(least),
                    number(most)
                )
            }
            Self::Path => "must be a path".to_owned(),
            Self::Text(message) => message.to_owned(),
        }
    }

    fn contains(&self, number: f64) -> bool {
        let Self::Number { least, most, ends, .. } = *self else { return false };
        let is_end = ends == RangeEnds::Most && number == least || ends == RangeEnds::Least && number == most;
        (least..=most).contains(&number) && !is_end
    }
}

fn in_unit(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!(" of {unit}") }
}

/// Large round numbers in scientific notation.
fn plain(number: f64) -> String {
    if number >= 1e9 { format!("{number:e}") } else { number.to_string() }
}

impl TimeUnit {
    fn name_and_micros(self) -> (&'static str, f64) {
        match self {
            Self::Us => ("microseconds", 1.0),
            Self::Ms => ("milliseconds", 1e3),
            Self::S => ("seconds", 1e6),
        }
    }
}

/// How values of a setting are read and written.
pub struct ValueKind<T> {
    /// How files write it.
    pub form: ValueForm,
    /// The values that are allowed.
    pub range: Range,
    read: fn(&Range, &str) -> Result<T, String>,
    write: fn(&Range, &T) -> Vec<String>,
    /// Adds a further value to one that is there, for lists; `None`: it replaces it.
    join: Option<fn(&mut T, T)>,
    /// The names of a closed set with their meanings.
    pub choices: fn() -> Vec<Choice>,
}

/// A name of a closed set, and its meaning in one line.
pub type Choice = (&'static str, &'static str);

impl<T> Clone for ValueKind<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ValueKind<T> {}

impl<T> ValueKind<T> {
    /// The value of `text`.
    ///
    /// # Errors
    /// What it must be.
    pub fn read(&self, text: &str) -> Result<T, String> {
        (self.read)(&self.range, text)
    }

    /// The texts that [`Self::read`] reads as `value`: several for a list.
    pub(super) fn write(&self, value: &T) -> Vec<String> {
        (self.write)(&self.range, value)
    }

    /// Sets `field` to the value of `text`, or adds it to a list.
    pub(super) fn set(&self, field: &mut Option<T>, text: &str) -> Result<(), String> {
        let value = self.read(text)?;
        match (self.join, field.as_mut()) {
            (Some(join), Some(known)) => join(known, value),
            _ => *field = Some(value),
        }
        Ok(())
    }
}

const fn whole<T: TryFrom<u64> + Display>(least: u64, most: u64, unit: &'static str) -> ValueKind<T> {
    let read: fn(&Range, &str) -> Result<T, String> = |range, text| {
        let Range::Whole { least, most, .. } = *range else { return Err(range.message()) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| range.message())
    };
    ValueKind { read, ..shown(ValueForm::Number, Range::Whole { least, most, unit }) }
}

const fn number(least: f64, most: f64, unit: &'static str, ends: RangeEnds) -> ValueKind<f64> {
    let read: fn(&Range, &str) -> Result<f64, String> =
        |range, text| text.parse().ok().filter(|&number| range.contains(number)).ok_or_else(|| range.message());
    ValueKind { read, ..shown(ValueForm::Number, Range::Number { least, most, unit, ends }) }
}

const fn time(unit: TimeUnit, least: u64, most: u64) -> ValueKind<Micros> {
    let write: fn(&Range, &Micros) -> Vec<String> = |range, time| {
        vec![match range {
            Range::Time { unit: TimeUnit::Ms, .. } => time.as_millis_f64().to_string(),
            Range::Time { unit: TimeUnit::S, .. } => time.as_secs_f64().to_string(),
            _ => time.0.to_string(),
        }]
    };
    ValueKind { form: ValueForm::Number, range: Range::Time { unit, least, most }, ..texted(read_time, write) }
}

fn read_time(range: &Range, text: &str) -> Result<Micros, String> {
    let Range::Time { unit, least, most } = *range else { return Err(range.message()) };
    let (_, scale) = unit.name_and_micros();
    let time = match duration::with_unit(text) {
        Some(time) => time.map(|time| time.0).ok(),
        None if unit == TimeUnit::Us => text.parse().ok(),
        // Compared before it is rounded: what is below 1 µs is not 0.
        None => {
            let us = text.parse().ok().map(|number: f64| number * scale);
            us.filter(|us| (least as f64..=most as f64).contains(us)).map(|us| Micros::from_f64(us).0)
        }
    };
    time.filter(|us| (least..=most).contains(us)).map(Micros).ok_or_else(|| range.message())
}

/// A kind that is written as it is displayed and reads nothing; the others change it.
const fn shown<T: Display>(form: ValueForm, range: Range) -> ValueKind<T> {
    ValueKind { form, range, ..texted(|range, _| Err(range.message()), |_, value| vec![value.to_string()]) }
}

/// A kind with a parser of its own, which says what is wrong, and a text of its own.
const fn texted<T>(read: fn(&Range, &str) -> Result<T, String>, write: fn(&Range, &T) -> Vec<String>) -> ValueKind<T> {
    ValueKind { form: ValueForm::Text, range: Range::Text(""), read, write, join: None, choices: Vec::new }
}

/// A kind with a parser of its own that is written as it is displayed.
const fn parsed<T: Display>(form: ValueForm, read: fn(&Range, &str) -> Result<T, String>) -> ValueKind<T> {
    ValueKind { read, ..shown(form, Range::Text("")) }
}

/// Values that are added to those before: `read` reads one text.
const fn several<T: Display>(form: ValueForm, read: fn(&Range, &str) -> Result<Vec<T>, String>) -> ValueKind<Vec<T>> {
    let write: fn(&Range, &Vec<T>) -> Vec<String> = |_, values| values.iter().map(T::to_string).collect();
    ValueKind { form, join: Some(|known, mut further| known.append(&mut further)), ..texted(read, write) }
}

/// A closed set of named values as the value of a setting.
pub trait ChoiceKind: NamedChoice {
    /// Any of them.
    const KIND: ValueKind<Self> = ValueKind {
        choices: || Self::VARIANTS.iter().map(|choice| (choice.name(), choice.about())).collect(),
        ..texted(|_, text| Self::read(text), |_, value| vec![value.name().to_owned()])
    };
}

impl<T: NamedChoice> ChoiceKind for T {}

macro_rules! kinds {
    ($($(#[$doc:meta])+ $read:ident $kind:ident: $type:ty = $value:expr;)+) => {
        $($(#[$doc])+ pub const $kind: ValueKind<$type> = $value;)+
        $(
            $(#[$doc])+
            ///
            /// # Errors
            /// What the value must be.
            pub fn $read(text: &str) -> Result<$type, String> {
                $kind.read(text)
            }
        )+
    };
}

const U32: u64 = u32::MAX as u64;
/// 30 000 years, µs: the longest time that a number in other units than µs can say.
const LONGEST: u64 = 1_000_000_000_000_000_000;

kinds! {
    /// A whole number ≥ 1.
    count COUNT: u32 = whole(1, U32, "");
    /// A whole number ≥ 0.
    count_or_zero COUNT_OR_ZERO: u32 = whole(0, U32, "");
    /// As [`COUNT`], for readers that need a type without 0.
    nonzero NONZERO: NonZeroU32 = parsed(ValueForm::Number, |_, text| { count(text).and_then(|number| NonZeroU32::try_from(number).map_err(|error| error.to_string())) });
    /// A whole number of KV blocks ≥ 1.
    blocks BLOCKS: u64 = whole(1, U32, "blocks");
    /// Number of GPUs that share one instance.
    parallelism PARALLELISM: u32 = whole(1, 1024, "GPUs");
    /// As [`PARALLELISM`]; 0 selects the default of the model.
    parallelism_or_zero PARALLELISM_OR_ZERO: u32 = whole(0, 1024, "GPUs (0: the default)");
    /// Number of instances of a cluster.
    instances INSTANCES: u32 = whole(1, 65_536, "instances");
    /// As [`INSTANCES`]; or 0.
    instances_or_zero INSTANCES_OR_ZERO: u32 = whole(0, 65_536, "instances");
    /// The length of a request, tokens: 0 for the model's, -1 or `auto` for the longest that fits.
    model_len MODEL_LEN: i64 = ValueKind {
        read: |range, text| match text {
            "auto" | "-1" => Ok(-1),
            text => text.parse::<u32>().map(i64::from).map_err(|_| range.message()),
        },
        ..shown(ValueForm::Number, Range::Text("must be a whole number from 0 to 4294967295, or -1 for the longest that fits"))
    };
    /// A version of vLLM.
    engine_version ENGINE_VERSION: EngineVersion = parsed(ValueForm::Text, |_, text| text.parse());
    /// Number of LoRA adapters.
    adapters ADAPTERS: u32 = whole(1, 100_000, "adapters");
    /// A rank for which vLLM allocates slots of LoRA adapters.
    lora_rank LORA_RANK: u32 = parsed(ValueForm::Number, |_, text| { let known = text.parse().ok().filter(|rank| RANKS.contains(rank)); known.ok_or_else(|| format!("must be one of {}", RANKS.map(|rank| rank.to_string()).join(", "))) });
    /// Number of tokens; 0 is allowed.
    tokens TOKENS: u64 = whole(0, u64::MAX, "tokens");
    /// Number of bytes; 0 is allowed.
    bytes BYTES: u64 = whole(0, u64::MAX, "bytes");
    /// Memory of a GPU.
    memory MEMORY: u64 = whole(0, 1 << 50, "bytes");
    /// Number of users of a closed loop.
    users USERS: u32 = whole(1, 10_000_000, "users");
    /// Number of seeds of a comparison.
    seeds SEEDS: u32 = whole(1, 100_000, "seeds");
    /// Number of threads; 0 for one per core.
    threads THREADS: usize = whole(0, 1024, "threads");
    /// A seed: any whole number of 64 bits.
    seed SEED: u64 = whole(0, u64::MAX, "");
    /// Requests per second. Times are whole µs up to 2^63, so higher and lower rates cannot be represented.
    rate RATE: f64 = number(1e-6, 1e6, "requests per second", RangeEnds::Both);
    /// A factor that times are multiplied with.
    scale SCALE: f64 = number(1e-6, 1e6, "", RangeEnds::Both);
    /// A coefficient of a latency model, µs per unit of work. Steps longer than 11 days are refused.
    coefficient COEFFICIENT: f64 = number(0.0, 1e12, "", RangeEnds::Both);
    /// A share: above 0, at most 1.
    share SHARE: f64 = number(0.0, 1.0, "", RangeEnds::Most);
    /// A share: from 0 to 1.
    share_or_zero SHARE_OR_ZERO: f64 = number(0.0, 1.0, "", RangeEnds::Both);
    /// A share of a whole, from 0 on and below 1.
    part PART: f64 = number(0.0, 1.0, "", RangeEnds::Least);
    /// A finite number above 0.
    above_0 ABOVE_0: f64 = number(0.0, f64::MAX, "", RangeEnds::Most);
    /// A finite number ≥ 0.
    from_0 FROM_0: f64 = number(0.0, f64::MAX, "", RangeEnds::Both);
    /// Seconds until a request times out; negative for no deadline.
    timeout TIMEOUT: f64 = ValueKind {
        read: |range, text| {
            let seconds = match duration::with_unit(text) {
                Some(time) => Some(time?.as_secs_f64()),
                None => text.parse().ok().filter(|seconds: &f64| seconds.is_finite()),
            };
            seconds.filter(|seconds| !(0.0..1e-6).contains(seconds)).ok_or_else(|| range.message())
        },
        ..shown(ValueForm::Number, Range::Text(
            "must be a number of seconds from 0.000001 on, a time like 90s, or negative for no deadline"
        ))
    };
    /// Seconds from 0 on, or a time with a unit.
    seconds_from_0 SECONDS_FROM_0: Micros = time(TimeUnit::S, 0, LONGEST);
    /// Seconds, or a time with a unit, at least 1 µs.
    seconds_above_0 SECONDS_ABOVE_0: Micros = time(TimeUnit::S, 1, LONGEST);
    /// The width of bins in milliseconds, at least 1 µs.
    bins BINS: Micros = time(TimeUnit::Ms, 1, LONGEST / 1000);
    /// Think time between an output and the next prompt, ms. Fractions of a µs are dropped.
    think_time THINK_TIME: Micros = time(TimeUnit::Ms, 0, LONGEST / 1000);
    /// A point in simulated time, µs.
    horizon HORIZON: Micros = time(TimeUnit::Us, 1, i64::MAX as u64);
    /// A delay of every request, µs, at most 11 days.
    delay DELAY: Micros = time(TimeUnit::Us, 0, 1_000_000_000_000);
    /// The refresh interval of a signal, µs. The largest value means that it is never refreshed.
    interval INTERVAL: Micros = time(TimeUnit::Us, 0, i64::MAX as u64);
    /// The time between two events that repeat, at least 1 µs.
    interval_above_0 INTERVAL_ABOVE_0: Micros = time(TimeUnit::Us, 1, i64::MAX as u64);
    /// A switch: `true` or `false`.
    switch SWITCH: bool = parsed(ValueForm::Switch, |_, text| text.parse().map_err(|_| "must be true or false".to_owned()));
    /// Any text: a name is checked where it is looked up.
    name NAME: String = parsed(ValueForm::Text, |_, text| match text { "" => Err("must not be empty".to_owned()), name => Ok(name.to_owned()), });
    /// vLLM's two policies for queue and preemption together.
    scheduling_policy SCHEDULING_POLICY: String = parsed(ValueForm::Text, |_, text| match text { "fcfs" | "priority" => Ok(text.to_owned()), _ => Err("must be fcfs or priority".to_owned()), });
    /// A path that is not empty.
    path PATH: PathBuf = ValueKind { range: Range::Path, ..texted(|_, text| name(text).map(PathBuf::from), |_, path| vec![path.display().to_string()]) };
}

macro_rules! further {
    ($($(#[$doc:meta])+ $kind:ident: $type:ty = $value:expr;)+) => {
        $($(#[$doc])+ pub const $kind: ValueKind<$type> = $value;)+
    };
}

further! {
    /// A path, added to those before.
    PATHS: Vec<PathBuf> = ValueKind { form: ValueForm::Texts, range: Range::Path, join: Some(|known, mut further| known.append(&mut further)), ..texted(|_, text| path(text).map(|path| vec![path]), |_, paths| paths.iter().map(|path| path.display().to_string()).collect()) };
    /// Coefficients between commas. Files add them one by one.
    COEFFICIENTS: Vec<f64> = several(ValueForm::Numbers, |_, text| text.split(',').map(|part| coefficient(part.trim())).collect());
    /// A parameter of a policy, added to those before.
    POLICY_PARAMS: Vec<PolicyParam> = several(ValueForm::Texts, |_, text| parse::policy_param(text).map(|one| vec![one]));
    /// A group of instances, added to those before.
    GROUPS: Vec<GroupSettings> = several(ValueForm::Texts, |_, text| group::group(text).map(|one| vec![one]));
    /// A node pool, added to those before.
    NODE_POOLS: Vec<NodePoolSettings> = several(ValueForm::Texts, |_, text| node_pool::node_pool(text).map(|one| vec![one]));
    /// Filters with their parameters.
    FILTERS: FilterList = parsed(ValueForm::Text, |_, text| parse::filters(text));
    /// Scorers with their weights.
    SCORERS: ScorerList = parsed(ValueForm::Text, |_, text| parse::scorers(text));
    /// Targets by class.
    TARGETS: TargetList = parsed(ValueForm::Text, |_, text| parse::targets(text));
    /// Weights by tenant.
    WEIGHTS: WeightList = parsed(ValueForm::Text, |_, text| parse::weights(text));
    /// A distribution of think times.
    THINK_TIME_DIST: ThinkTime = texted(|_, text| think_time::think_time_dist(text), |_, value| vec![think_time::think_time_text(value)]);
    /// How fast the number of replicas may change.
    SCALING_RULES: ScalingRules = texted(|_, text| scaling_rules::scaling_rules(text), |_, value| vec![scaling_rules::scaling_rules_text(value)]);
    /// How long a replica takes to start.
    START_TIMES: StartupSettings = texted(|_, text| startup::start_times(text), |_, value| vec![startup::start_times_text(value)]);
    /// What is ready before a replica starts.
    START_MODE: StartMode = texted(|_, text| startup::start_mode(text), |_, value| vec![startup::start_mode_text(value)]);
}
