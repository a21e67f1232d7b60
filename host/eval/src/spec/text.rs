//! Values of settings as text that [`super::parse`] reads.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use blis_sim::cluster::{PhaseTime, StartMode, StartTimes};
use blis_sim::scaling::{Change, ScalingRules, Select};
use blis_sim::units::Micros;
use blis_workload::trace_v2::ThinkTime;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::parse::EVERY_CLASS;
use super::{FilterList, PolicyParam, ScorerList, TargetList, WeightList};
use crate::group::GroupSettings;
use crate::node_pool::NodePoolSettings;
use crate::startup::StartupSettings;

/// The `Display` text of the value.
pub(super) fn text(value: &impl Display) -> Vec<String> {
    vec![value.to_string()]
}

pub(super) fn texts<T: Display>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

pub(super) fn path(path: &Path) -> Vec<String> {
    vec![shown(path)]
}

pub(super) fn paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| shown(path)).collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Whole µs, without a unit.
pub(super) fn micros(time: &Micros) -> Vec<String> {
    vec![time.0.to_string()]
}

pub(super) fn seconds(time: &Micros) -> Vec<String> {
    vec![time.as_secs_f64().to_string()]
}

pub(super) fn milliseconds(time: &Micros) -> Vec<String> {
    vec![time.as_millis_f64().to_string()]
}

/// `lognormal:…`; a constant is written as `think-time-ms`.
pub(super) fn think_time(time: &ThinkTime) -> Vec<String> {
    vec![think_time_text(time)]
}

/// The distribution in the form that the flag takes.
pub(crate) fn think_time_text(time: &ThinkTime) -> String {
    match *time {
        ThinkTime::Constant(time) => format!("constant:{}ms", time.as_millis_f64()),
        ThinkTime::LogNormal { mu, sigma, min, max } => {
            let (min, max) = (min.0, Some(max).filter(|&max| max != Micros::MAX));
            let min = if min > 0 { format!(",min={min}us") } else { String::new() };
            let max = max.map_or(String::new(), |max| format!(",max={}us", max.0));
            format!("lognormal:mu={mu},sigma={sigma}{min}{max}")
        }
    }
}

/// `window=30s,100%/60s`, in whole µs.
pub(super) fn scaling_rules(rules: &ScalingRules) -> Vec<String> {
    vec![scaling_rules_text(rules)]
}

/// The rules in the form that the flag takes.
pub(crate) fn scaling_rules_text(rules: &ScalingRules) -> String {
    let mut text = format!("window={}", time_text(rules.window));
    match rules.select {
        Select::Disabled => return "disabled".to_owned(),
        Select::Min => text.push_str(",select=min"),
        Select::Max => {}
    }
    for &(change, period) in &rules.policies {
        let period = time_text(period);
        match change {
            Change::Percent(percent) => text.push_str(&format!(",{percent}%/{period}")),
            Change::Pods(pods) => text.push_str(&format!(",{pods}/{period}")),
        }
    }
    text
}

pub(super) fn start_times(times: &StartupSettings) -> Vec<String> {
    vec![start_times_text(times)]
}

/// The phases in the form that the flag takes.
pub(crate) fn start_times_text(settings: &StartupSettings) -> String {
    let StartTimes { process, weights, compile, warm_up, wake } = settings.times;
    let weights = match settings.bandwidth {
        Some(bandwidth) => ("weights-bandwidth", bandwidth_text(bandwidth)),
        None => ("weights", phase_text(weights)),
    };
    let phases = [
        ("process", phase_text(process)),
        weights,
        ("compile", phase_text(compile)),
        ("warm-up", phase_text(warm_up)),
        ("wake", phase_text(wake)),
    ];
    phases.map(|(name, time)| format!("{name}={time}")).join(",")
}

fn phase_text(PhaseTime { mean, deviation }: PhaseTime) -> String {
    match deviation {
        Micros::ZERO => time_text(mean),
        _ => format!("gaussian({},{})", time_text(mean), time_text(deviation)),
    }
}

/// Whole GB/s or MB/s as such, others in bytes per second.
fn bandwidth_text(bandwidth: f64) -> String {
    let units = [(1e9, "GB/s"), (1e6, "MB/s")];
    let whole = units.into_iter().find(|(unit, _)| bandwidth % unit == 0.0);
    let (unit, name) = whole.unwrap_or((1.0, "B/s"));
    format!("{}{name}", bandwidth / unit)
}

pub(super) fn start_mode(mode: &StartMode) -> Vec<String> {
    vec![start_mode_text(mode)]
}

/// The mode in the form that the flag takes.
pub(crate) fn start_mode_text(mode: &StartMode) -> String {
    match mode {
        StartMode::Cold => "cold".to_owned(),
        StartMode::Warm => "warm".to_owned(),
        StartMode::Hot { pool } => format!("hot:{pool}"),
    }
}

/// Whole seconds as such, other times in µs.
fn time_text(time: Micros) -> String {
    match time.0 {
        0 => "0".to_owned(),
        us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
        us => format!("{us}us"),
    }
}

/// As the flag has it.
impl Display for GroupSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instances={}", self.instances)?;
        for (name, text) in [("model", &self.model), ("hardware", &self.hardware)] {
            text.iter().try_for_each(|text| write!(f, ",{name}={text}"))?;
        }
        let numbers = [
            ("tp", self.tp),
            ("max-num-seqs", self.max_num_seqs),
            ("max-num-batched-tokens", self.max_num_batched_tokens),
            ("block-size", self.block_size),
            ("min", self.min),
            ("max", self.max),
        ];
        for (name, number) in numbers {
            number.iter().try_for_each(|number| write!(f, ",{name}={number}"))?;
        }
        self.role.iter().try_for_each(|role| write!(f, ",role={role}"))?;
        self.startup_time.iter().try_for_each(|times| write!(f, ",startup-time=({})", start_times_text(times)))?;
        self.start_mode.iter().try_for_each(|mode| write!(f, ",start-mode={}", start_mode_text(mode)))
    }
}

/// As the flag has it.
impl Display for NodePoolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, hardware, gpus_per_node, min, max, provisioning, price } = self;
        write!(f, "name={name}")?;
        hardware.iter().try_for_each(|hardware| write!(f, ",hardware={hardware}"))?;
        write!(f, ",gpus-per-node={gpus_per_node},min={min},max={max},provisioning={}", time_text(*provisioning))?;
        price.iter().try_for_each(|price| write!(f, ",price={price}"))
    }
}

impl Display for PolicyParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}={}", self.kind, self.name, self.value)
    }
}

impl Display for ScorerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&texts(&self.0).join(","))
    }
}

impl Display for FilterList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&texts(&self.0).join(","))
    }
}

/// A target as lists of targets have it.
pub(crate) fn target_text(class: &str, target: Micros) -> String {
    if class == EVERY_CLASS { format!("{}us", target.0) } else { format!("{class}={}us", target.0) }
}

impl Display for TargetList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<String> = self.0.iter().map(|(class, target)| target_text(class, *target)).collect();
        f.write_str(&targets.join(","))
    }
}

impl Display for WeightList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights: Vec<String> = self.0.iter().map(|(tenant, weight)| format!("{tenant}={weight}")).collect();
        f.write_str(&weights.join(","))
    }
}

/// The text of a number, serialized as a number.
pub(super) struct NumberText<'a>(pub &'a str);

impl Serialize for NumberText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(whole) = self.0.parse::<u64>() {
            return serializer.serialize_u64(whole);
        }
        match self.0.parse::<f64>() {
            Ok(number) => serializer.serialize_f64(number),
            Err(_) => serializer.serialize_str(self.0),
        }
    }
}

/// A scalar or a list of scalars, as text. `null` is an empty list.
pub(super) struct ScalarTexts(pub Vec<String>);

impl<'de> Deserialize<'de> for ScalarTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = ScalarTexts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a word, true, false or a list of them")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<ScalarTexts, E> {
                Ok(ScalarTexts(vec![value.to_string()]))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<ScalarTexts, E> {
                Ok(ScalarTexts(vec![value.to_string()]))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ScalarTexts, E> {
                Ok(ScalarTexts(vec![value.to_string()]))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<ScalarTexts, E> {
                Ok(ScalarTexts(vec![value.to_string()]))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<ScalarTexts, E> {
                Ok(ScalarTexts(vec![value.to_owned()]))
            }

            fn visit_unit<E: de::Error>(self) -> Result<ScalarTexts, E> {
                Ok(ScalarTexts(Vec::new()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ScalarTexts, A::Error> {
                let mut all = Vec::new();
                while let Some(ScalarTexts(item)) = items.next_element()? {
                    all.extend(item);
                }
                Ok(ScalarTexts(all))
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}
