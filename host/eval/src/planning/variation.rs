//! Settings with several values each: all combinations, each a specification of its own.

use std::collections::BTreeSet;

use blis_config::policy::SettingSource;
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::spec::{ExperimentSpec, SettingKey};

/// Combinations at most.
const MOST: usize = 10_000;

/// A setting and the values that are compared.
#[derive(Clone, Debug)]
pub struct Variation {
    pub(super) key: &'static SettingKey,
    pub(super) values: Vec<String>,
}

impl Variation {
    /// `NAME=VALUE,VALUE…`, a flag of `blis run` without its dashes.
    ///
    /// # Errors
    /// If there is no such flag, or a value is invalid or repeated.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((name, values)) = text.split_once('=') else {
            return Err(format!("`{text}` must be a flag and its values, like tp=1,2,4"));
        };
        let key = SettingKey::find(name.trim().trim_start_matches("--"))
            .map_err(|hint| format!("there is no flag `{}`: {hint}", name.trim()))?;
        if key.name == "seed" {
            return Err("`seed` cannot be varied: --seeds says how many seeds each point has".to_owned());
        }
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                return Err(format!("`{}` has the value `{value}` twice", key.name));
            }
            let refused = |message| format!("`{}` is `{value}`: {message}", key.name);
            ExperimentSpec::default().set(key, value, SettingSource::Flag("--vary".into())).map_err(refused)?;
        }
        Ok(Self { key, values })
    }
}

/// A setting of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariedSetting {
    /// The flag, without dashes.
    pub name: String,
    /// Its value, as on the command line.
    pub value: String,
}

/// All combinations of the values of `variations`, over `spec`; the last variation changes fastest.
///
/// # Errors
/// If a setting is varied twice, or there are too many combinations.
pub(crate) fn combinations(
    spec: &ExperimentSpec,
    variations: &[Variation],
) -> Result<Vec<(Vec<VariedSetting>, ExperimentSpec)>, RunError> {
    let names: BTreeSet<&str> = variations.iter().map(|variation| variation.key.name).collect();
    if names.len() < variations.len() {
        return Err(RunError::usage("a setting is varied twice").hint("give all of its values in one `--vary`"));
    }
    let count = variations.iter().fold(1_usize, |count, of| count.saturating_mul(of.values.len()));
    if count > MOST {
        let what = format!("there are {count} combinations of values, more than {MOST}");
        return Err(RunError::usage(what).hint("vary fewer settings at a time"));
    }
    let point = |number: usize| {
        let settings = settings_of(number, variations);
        let mut spec = spec.clone();
        for (key, value) in &settings {
            spec.unset(key);
            spec.set(key, value, SettingSource::Flag("--vary".into())).map_err(RunError::usage)?;
        }
        let settings = settings.into_iter().map(|(key, value)| VariedSetting { name: key.name.to_owned(), value });
        Ok((settings.collect(), spec))
    };
    (0..count).map(point).collect()
}

/// `tp=2 max-num-seqs=64`.
pub(crate) fn in_words(settings: &[VariedSetting]) -> String {
    let settings = settings.iter().map(|setting| format!("{}={}", setting.name, setting.value));
    settings.collect::<Vec<_>>().join(" ")
}

/// The settings of the point `number`; the last variation changes fastest.
fn settings_of(mut number: usize, variations: &[Variation]) -> Vec<(&'static SettingKey, String)> {
    let mut settings: Vec<(&'static SettingKey, String)> = Vec::new();
    for variation in variations.iter().rev() {
        settings.push((variation.key, variation.values[number % variation.values.len()].clone()));
        number /= variation.values.len();
    }
    settings.reverse();
    settings
}

/// # Errors
/// If `other` serves other requests than `base`, or is measured by other rules.
pub(crate) fn check_same_requests(base: &Experiment, name: &str, other: &Experiment) -> Result<(), RunError> {
    let differs = [
        (base.workload != other.workload, "the workload"),
        (base.seed != other.seed, "the seed"),
        ((base.horizon, base.warmup) != (other.horizon, other.warmup), "the time that is simulated"),
        (base.evaluation != other.evaluation, "the fitness"),
        (base.cluster.slo_targets != other.cluster.slo_targets, "the SLO targets"),
    ];
    match differs.into_iter().find(|(differs, _)| *differs) {
        Some((_, what)) => {
            Err(RunError::usage(format_args!("`{name}` changes {what}, which all share in a comparison"))
                .hint("`blis sweep` measures points that differ in it; pairs of runs need the same requests"))
        }
        None => Ok(()),
    }
}
