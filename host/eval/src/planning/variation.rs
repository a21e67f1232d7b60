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
        let values = match range(values) {
            Some(range) => range.map_err(|message| format!("`{}`: {message}", key.name))?,
            None => values.split(',').map(|value| value.trim().to_owned()).collect(),
        };
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

/// The numbers of `from:to:step`, both ends included, with as many decimals as are written; `None` if `values` is no range.
fn range(values: &str) -> Option<Result<Vec<String>, String>> {
    /// More points are refused by all commands.
    const MOST: f64 = 10_000.0;
    let parts: Vec<&str> = values.split(':').map(str::trim).collect();
    let numbers: Vec<f64> = parts.iter().map_while(|part| part.parse().ok()).collect();
    let ([_, _, _], [from, to, step]) = (&parts[..], &numbers[..]) else { return None };
    let decimals = parts.iter().map(|part| part.split_once('.').map_or(0, |(_, decimals)| decimals.len())).max();
    let count = ((to - from) / step + 1e-9).floor();
    if !(count.is_finite() && *step > 0.0 && (0.0..MOST).contains(&count)) {
        return Some(Err(format!("`{values}` is no range: from:to:step goes up, by a step above 0, as 10:50:10")));
    }
    let value = |index: u32| format!("{:.*}", decimals.unwrap_or(0), from + f64::from(index) * step);
    Some(Ok((0..=count as u32).map(value).collect()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_its_values() {
        let values = |text: &str| Variation::parse(text).map(|variation| variation.values);
        assert_eq!(values("rate=10:50:10").expect("a range"), ["10", "20", "30", "40", "50"]);
        assert_eq!(values("rate=0.5:1:0.25").expect("a range"), ["0.50", "0.75", "1.00"]);
        for wrong in ["rate=50:10:10", "rate=1:2:0", "rate=1:2:-1", "rate=1:1e9:1"] {
            assert!(values(wrong).expect_err(wrong).contains("is no range"), "{wrong}");
        }
    }
}
