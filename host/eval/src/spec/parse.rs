//! Values of settings that have parts, from text and as text. A parser refuses what can never be valid, and its message says
//! what is.

use std::fmt::{self, Display};

use blis_sim::units::Micros;

use blis_config::policy::{FilterSetting, ParameterInput, WeightedScorer};
use blis_diag::{name_hint, quoted};
use blis_plugin::Kind;

pub use super::kind::*;
pub use crate::duration::duration;
pub use crate::scaling_rules::scaling_rules;

/// The value of `policy-param`: a parameter of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyParam {
    /// Kind of the policy that has it.
    pub kind: Kind,
    /// Name of the parameter.
    pub name: String,
    /// Value of the parameter.
    pub value: ParameterInput,
}

/// The value of `routing-scorers`: scorers with their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ScorerList(pub Vec<WeightedScorer>);

/// The value of `routing-filters`: filters with their parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterList(pub Vec<FilterSetting>);

/// The value of `slo-ttft` and the other SLO flags: class and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetList(pub Vec<(String, Micros)>);

/// Tenants with their weights, in the order of the text; none twice.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightList(pub Vec<(String, f64)>);

/// A parameter of a policy: `KIND.NAME=VALUE`.
pub fn policy_param(text: &str) -> Result<PolicyParam, String> {
    let parts = text.split_once('.').and_then(|(kind, rest)| Some((kind, rest.split_once('=')?)));
    let Some((kind, (name, value))) = parts.filter(|(_, (name, _))| !name.is_empty()) else {
        return Err("must be KIND.NAME=VALUE, as in routing.queue-depth=2".into());
    };
    let Some(kind) = Kind::of(kind) else {
        return Err(format!(
            "unknown kind {}: {}",
            quoted(kind.as_bytes()),
            name_hint(kind, &Kind::ALL.map(Kind::name))
        ));
    };
    Ok(PolicyParam { kind, name: name.to_owned(), value: ParameterInput::Word(value.to_owned()) })
}

/// Filters with their parameters: `prefix-cache-affinity:affinity=0.7,saturation,mine.rhai`.
pub fn filters(text: &str) -> Result<FilterList, String> {
    FilterSetting::parse_list(text).map(FilterList)
}

/// Scorers with their weights: `queue-depth:2,mine.rhai:1`.
pub fn scorers(text: &str) -> Result<ScorerList, String> {
    WeightedScorer::parse_list(text).map(ScorerList)
}

/// The class in a list of targets that stands for every class without a target of its own.
pub const EVERY_CLASS: &str = "*";

/// `class=duration,…`; a duration alone is the target of every other class.
pub fn targets(text: &str) -> Result<TargetList, String> {
    let mut targets: Vec<(String, Micros)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some((class, target)) = part.split_once('=').or(duration(part).ok().map(|_| (EVERY_CLASS, part))) else {
            return Err(format!("`{part}` must be a time, like 500ms, or a class and a time, like critical=100ms"));
        };
        let class = class.trim();
        if class.is_empty() {
            return Err(format!("`{part}` names no class; requests without one are in the class `default`"));
        }
        if targets.iter().any(|(other, _)| other == class) {
            return Err(format!("class `{class}` is repeated"));
        }
        let target = duration(target.trim()).map_err(|message| format!("class `{class}`: {message}"))?;
        targets.push((class.to_owned(), target));
    }
    Ok(TargetList(targets))
}

/// Tenants and their weights, as in `a=3,b=0.5`.
pub fn weights(text: &str) -> Result<WeightList, String> {
    let mut weights: Vec<(String, f64)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some((tenant, weight)) = part.split_once('=').filter(|(tenant, _)| !tenant.trim().is_empty()) else {
            return Err(format!("`{part}` must be a tenant and its weight, like team-a=3"));
        };
        let tenant = tenant.trim();
        if weights.iter().any(|(other, _)| other == tenant) {
            return Err(format!("tenant `{tenant}` is repeated"));
        }
        let weight = above_0(weight.trim()).map_err(|message| format!("weight of tenant `{tenant}`: {message}"))?;
        weights.push((tenant.to_owned(), weight));
    }
    Ok(WeightList(weights))
}

impl Display for PolicyParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}={}", self.kind, self.name, self.value)
    }
}

impl Display for ScorerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}

impl Display for FilterList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::KEYS;

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "0", "-1", "1.5", "1e3", "4294967296", "many"] {
            assert!(count(text).is_err() && blocks(text).is_err(), "{text}");
        }
        for text in ["", "NaN", "inf", "-inf", "-0.5", "x"] {
            assert!(rate(text).is_err() && coefficient(text).is_err() && share(text).is_err(), "{text}");
        }
        assert!(rate("0").is_err() && rate("1e-300").is_err() && rate("1e7").is_err() && coefficient("1e13").is_err());
        assert!(timeout("1e-9").is_err() && share("0").is_err() && share("1.01").is_err());
        assert!(timeout("0").is_err() && timeout("-0.0").is_err() && timeout("NaN").is_err());
        assert!(parallelism("0").is_err() && parallelism("1025").is_err() && parallelism_or_zero("1025").is_err());
        for text in ["0", "-1", "9223372036854775808", "1e6"] {
            assert!(horizon(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_are_inclusive() {
        assert_eq!((count("1"), count("4294967295")), (Ok(1), Ok(u32::MAX)));
        assert_eq!((count_or_zero("0"), parallelism_or_zero("0"), parallelism("1024")), (Ok(0), Ok(0), Ok(1024)));
        assert_eq!((share("1"), coefficient("0"), timeout("-1")), (Ok(1.0), Ok(0.0), Ok(-1.0)));
        assert_eq!((horizon("1"), horizon("9223372036854775807")), (Ok(Micros(1)), Ok(Micros::MAX)));
    }

    #[test]
    fn lists_are_taken_apart() {
        let list = scorers("queue-depth:2, load-aware : .5").expect("legal");
        let pairs: Vec<(&str, f64)> = list.0.iter().map(|scorer| (scorer.name.name(), scorer.weight)).collect();
        assert_eq!(pairs, [("queue-depth", 2.0), ("load-aware", 0.5)]);
        let list = targets("critical=60ms, standard = 120ms").expect("legal");
        assert_eq!(list.0, [("critical".to_owned(), Micros(60_000)), ("standard".to_owned(), Micros(120_000))]);
        for text in ["", ",", "queue-depth:", "queue-depth:0", "queue-depth:inf", ":1", "queue-depth:1,"] {
            assert!(scorers(text).is_err(), "{text}");
        }
        for text in ["", ",", "a", "a=", "=1s", "a=1s,", "a=1s,a=1s"] {
            assert!(targets(text).is_err(), "{text}");
        }
        assert!(instances("65536").is_ok() && instances("65537").is_err() && instances("0").is_err());
        assert!(delay("1000000000000").is_ok() && delay("1000000000001").is_err() && interval("-1").is_err());
        assert!(above_0("0").is_err() && above_0("inf").is_err() && from_0("0").is_ok() && from_0("-1").is_err());
    }

    /// `--start 0s` was refused by a message that allows 0.
    #[test]
    fn times_that_may_be_0_may_be_0_with_a_unit() {
        let times = KEYS.iter().filter(|key| key.validate("5ms").is_ok());
        let differ = times.filter(|key| key.validate("0").is_ok() != key.validate("0s").is_ok());
        assert_eq!(differ.map(|key| key.name).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_an_error(text in "[0-9.a-zµ:=,/% -]{0,24}") {
            let _ = (scorers(&text), targets(&text), duration(&text));
            let all = KEYS.iter().map(|key| key.validate(&text));
            all.for_each(drop);
        }
    }
}
