//! Parsers of the values of settings. Each refuses values that can never be valid, and its message says which are.

use std::num::NonZeroU32;
use std::path::PathBuf;

use blis_sim::ids::RequestId;
use blis_sim::units::Micros;

use blis_config::adapters::RANKS;
use blis_config::policy::{FilterSetting, ParameterInput, ScorerFault, ScorerName, WeightedScorer};
use blis_diag::{name_hint, quoted};
use blis_plugin::Kind;
use blis_workload::trace_v2::ThinkTime;

use super::NamedChoice;

mod service;

pub use service::{group, node_pool, scaling_rules, start_mode, start_times};
pub(super) use service::{set_group, set_node_pool};

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

/// One of the named values of `T`.
pub fn choice<T: NamedChoice>(text: &str) -> Result<T, String> {
    T::find(text).ok_or_else(|| {
        let known: Vec<&str> = T::ALL.iter().map(|choice| choice.name()).collect();
        format!("must be one of {}", known.join(", "))
    })
}

/// Any text: a name is checked where it is looked up.
pub fn name(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// A path that is not empty.
pub fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.into()) }
}

/// vLLM's two policies for queue and preemption together.
pub fn scheduling_policy(text: &str) -> Result<String, String> {
    let known = ["fcfs", "priority"].contains(&text);
    known.then(|| text.to_owned()).ok_or_else(|| "must be fcfs or priority".to_owned())
}

/// A switch: `true` or `false`.
pub fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "must be true or false".to_owned())
}

/// A whole number ≥ 1.
pub fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("must be a whole number from 1 to {}", u32::MAX)),
        Ok(number) => Ok(number),
    }
}

/// A number of LoRA adapters.
pub fn adapters(text: &str) -> Result<u32, String> {
    const MOST: u32 = 100_000;
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(format!("must be a whole number of adapters from 1 to {MOST}")),
    }
}

/// A rank for which vLLM allocates slots of LoRA adapters.
pub fn lora_rank(text: &str) -> Result<u32, String> {
    let known = text.parse().ok().filter(|rank| RANKS.contains(rank));
    known.ok_or_else(|| format!("must be one of {}", RANKS.map(|rank| rank.to_string()).join(", ")))
}

/// Like [`count`], as a type that cannot be 0.
pub fn nonzero(text: &str) -> Result<NonZeroU32, String> {
    count(text).and_then(|number| NonZeroU32::try_from(number).map_err(|error| error.to_string()))
}

/// A whole number ≥ 0.
pub fn count_or_zero(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u32::MAX))
}

/// Number of seeds of a comparison.
pub fn seeds(text: &str) -> Result<u32, String> {
    const MOST: u32 = 100_000;
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(format!("must be a whole number of seeds from 1 to {MOST}")),
    }
}

/// Number of threads; 0 for one per core.
pub fn threads(text: &str) -> Result<usize, String> {
    const MOST: usize = 1024;
    match text.parse() {
        Ok(number @ 0..=MOST) => Ok(number),
        _ => Err(format!("must be a whole number of threads from 0 to {MOST}")),
    }
}

/// A whole number of KV blocks ≥ 1.
pub fn blocks(text: &str) -> Result<u64, String> {
    count(text).map(u64::from)
}

/// Number of GPUs that share one instance.
pub fn parallelism(text: &str) -> Result<u32, String> {
    const MOST: u32 = 1024;
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(format!("must be a whole number of GPUs from 1 to {MOST}")),
    }
}

/// The number of a request, as `17` or `request_17`.
pub fn request(text: &str) -> Result<RequestId, String> {
    let number = text.strip_prefix("request_").unwrap_or(text);
    number.parse().map(RequestId).map_err(|_| "must be the number of a request, like 17 or request_17".to_owned())
}

/// Like [`parallelism`]; 0 selects the default of the model.
pub fn parallelism_or_zero(text: &str) -> Result<u32, String> {
    if text == "0" { Ok(0) } else { parallelism(text).map_err(|message| format!("{message}, or 0 for the default")) }
}

/// Requests per second. Times are whole µs up to 2^63, so higher and lower rates cannot be represented.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = finite(text).filter(|rate| (1e-6..=1e6).contains(rate));
    rate.ok_or_else(|| "must be a number of requests per second from 0.000001 to 1000000".to_owned())
}

/// A factor that times are multiplied with.
pub fn scale(text: &str) -> Result<f64, String> {
    let scale = finite(text).filter(|scale| (1e-6..=1e6).contains(scale));
    scale.ok_or_else(|| "must be a number from 0.000001 to 1000000".to_owned())
}

/// A time with a unit, as `500ms`; `None` for a bare number, which keeps the unit of its setting.
fn with_unit(text: &str) -> Option<Result<Micros, String>> {
    let has_unit = text.ends_with(|c: char| c.is_alphabetic()) && text.starts_with(|c: char| c.is_ascii_digit());
    has_unit.then(|| duration(text))
}

/// Seconds, 0 to 1e12 (30 000 years); or a time with a unit.
pub fn seconds_from_0(text: &str) -> Result<Micros, String> {
    if let Some(time) = with_unit(text) {
        return time;
    }
    let seconds = finite(text).filter(|seconds| (0.0..=1e12).contains(seconds));
    seconds
        .map(Micros::from_secs_f64)
        .ok_or_else(|| "must be a number of seconds from 0 to 1e12, or a time like 500ms".to_owned())
}

/// A duration in seconds, at least 1 µs.
pub fn seconds_above_0(text: &str) -> Result<Micros, String> {
    let message = || "must be a number of seconds from 0.000001 to 1e12, or a time like 500ms".to_owned();
    seconds_from_0(text).ok().filter(|&time| time > Micros::ZERO).ok_or_else(message)
}

/// The width of bins in milliseconds, at least 1 µs.
pub fn bins(text: &str) -> Result<Micros, String> {
    if let Some(time) = with_unit(text) {
        return time;
    }
    let ms = finite(text).filter(|ms| (1e-3..=1e12).contains(ms));
    ms.map(|ms| Micros::from_f64(ms * 1e3))
        .ok_or_else(|| "must be a number of ms from 0.001 to 1e12, or a time like 3s".to_owned())
}

/// A coefficient of a latency model, µs per unit of work. Steps longer than 11 days are refused.
pub fn coefficient(text: &str) -> Result<f64, String> {
    let number = finite(text).filter(|number| (0.0..=1e12).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1e12".to_owned())
}

/// A share: above 0, at most 1.
pub fn share(text: &str) -> Result<f64, String> {
    let number = finite(text).filter(|&number| number > 0.0 && number <= 1.0);
    number.ok_or_else(|| "must be a number above 0 and at most 1".to_owned())
}

/// A share: from 0 to 1.
pub fn share_or_zero(text: &str) -> Result<f64, String> {
    let number = finite(text).filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

/// A share of a whole, from 0 on and below 1.
pub fn part(text: &str) -> Result<f64, String> {
    let number = finite(text).filter(|number| (0.0..1.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 on and below 1".to_owned())
}

/// Number of tokens; 0 is allowed.
pub fn tokens(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number of tokens from 0 to {}", u64::MAX))
}

/// A number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number of bytes from 0 to {}", u64::MAX))
}

/// Seconds until a request times out; negative for no deadline.
pub fn timeout(text: &str) -> Result<f64, String> {
    if let Some(time) = with_unit(text) {
        return time.map(Micros::as_secs_f64);
    }
    let seconds = finite(text).filter(|seconds| !(0.0..1e-6).contains(seconds));
    seconds.ok_or_else(|| {
        "must be a number of seconds from 0.000001 on, a time like 90s, or negative for no deadline".to_owned()
    })
}

/// Think time between an output and the next prompt, ms. Fractions of a µs are dropped.
pub fn think_time(text: &str) -> Result<Micros, String> {
    const MOST: f64 = 1e12;
    if let Some(time) = with_unit(text) {
        return time;
    }
    let ms = finite(text).filter(|ms| (0.0..=MOST).contains(ms));
    ms.map(|ms| Micros::from_f64(ms * 1e3))
        .ok_or_else(|| format!("must be a number of milliseconds from 0 to {MOST:e}, or a time like 2s"))
}

/// `lognormal:mu=2.0,sigma=0.6,min=3s,max=30s`.
pub fn think_time_dist(text: &str) -> Result<ThinkTime, String> {
    const FORM: &str = "must look like lognormal:mu=2.0,sigma=0.6,min=3s,max=30s";
    let Some(parameters) = text.strip_prefix("lognormal:") else { return Err(FORM.to_owned()) };
    let (mut mu, mut sigma, mut min, mut max) = (None, None, None, None);
    for parameter in parameters.split(',') {
        let (name, value) = parameter.split_once('=').ok_or(FORM)?;
        let (name, value) = (name.trim(), value.trim());
        let number =
            || finite(value).ok_or_else(|| format!("`{name}` must be a number, not {}", quoted(value.as_bytes())));
        let time = || duration(value).map_err(|message| format!("`{name}`: {message}"));
        let before = match name {
            "mu" => mu.replace(number()?).is_some(),
            "sigma" => sigma.replace(number()?).is_some(),
            "min" => min.replace(time()?).is_some(),
            "max" => max.replace(time()?).is_some(),
            _ => return Err(format!("there is no `{name}`: {}", name_hint(name, &["mu", "sigma", "min", "max"]))),
        };
        if before {
            return Err(format!("`{name}` is repeated"));
        }
    }
    let (Some(mu), Some(sigma)) = (mu, sigma) else { return Err(format!("`mu` and `sigma` are needed: {FORM}")) };
    let (min, max) = (min.unwrap_or(Micros::ZERO), max.unwrap_or(Micros::MAX));
    if sigma < 0.0 {
        return Err("`sigma` must be at least 0".to_owned());
    }
    if min > max {
        Err("`min` is longer than `max`".to_owned())
    } else {
        Ok(ThinkTime::LogNormal { mu, sigma, min, max })
    }
}

/// Number of users of a closed loop.
pub fn users(text: &str) -> Result<u32, String> {
    const MOST: u32 = 10_000_000;
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(format!("must be a whole number of users from 1 to {MOST}")),
    }
}

/// A point in simulated time, µs.
pub fn horizon(text: &str) -> Result<Micros, String> {
    if let Some(time) = with_unit(text) {
        return time;
    }
    match text.parse() {
        Ok(us @ 1..=i64::MAX) => Ok(Micros(us.unsigned_abs())),
        _ => Err(format!("must be a time like 10s, or a whole number of microseconds from 1 to {}", i64::MAX)),
    }
}

/// Number of instances of a cluster.
pub fn instances(text: &str) -> Result<u32, String> {
    const MOST: u32 = 65_536;
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(format!("must be a whole number of instances from 1 to {MOST}")),
    }
}

/// Like [`instances`]; or 0.
pub fn instances_or_zero(text: &str) -> Result<u32, String> {
    if text == "0" { Ok(0) } else { instances(text).map_err(|_| "must be a whole number from 0 to 65536".to_owned()) }
}

/// A delay of every request, µs, at most 11 days.
pub fn delay(text: &str) -> Result<Micros, String> {
    const MOST: u64 = 1_000_000_000_000;
    let us = with_unit(text).map_or_else(|| text.parse().ok(), |time| time.ok().map(|time| time.0));
    match us {
        Some(us @ 0..=MOST) => Ok(Micros(us)),
        _ => Err(format!("must be a time like 5ms, or a whole number of microseconds from 0 to {MOST}")),
    }
}

/// The time between two events that repeat, at least 1 µs.
pub fn interval_above_0(text: &str) -> Result<Micros, String> {
    let message = || "must be a time like 1ms, or a whole number of microseconds, above 0".to_owned();
    interval(text).ok().filter(|&time| time > Micros::ZERO).ok_or_else(message)
}

/// The refresh interval of a signal, µs. The largest value means that it is never refreshed.
pub fn interval(text: &str) -> Result<Micros, String> {
    if let Some(time) = with_unit(text) {
        return time;
    }
    match text.parse() {
        Ok(us @ 0..=i64::MAX) => Ok(Micros(us.unsigned_abs())),
        _ => Err(format!("must be a time like 50ms, or a whole number of microseconds from 0 to {}", i64::MAX)),
    }
}

/// A finite number above 0.
pub fn above_0(text: &str) -> Result<f64, String> {
    finite(text).filter(|&number| number > 0.0).ok_or_else(|| "must be a number above 0".to_owned())
}

/// A finite number ≥ 0.
pub fn from_0(text: &str) -> Result<f64, String> {
    finite(text).filter(|&number| number >= 0.0).ok_or_else(|| "must be a number from 0 on".to_owned())
}

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
    let filters: Vec<FilterSetting> = text.split(',').map(|part| filter(part.trim())).collect::<Result<_, String>>()?;
    FilterSetting::check(&filters).map_err(|(_, what, hint)| format!("{what}; {hint}"))?;
    Ok(FilterList(filters))
}

/// A name, and values of its parameters: `saturation:queue-depth=3`.
fn filter(text: &str) -> Result<FilterSetting, String> {
    let message = |(what, hint): (String, String)| format!("{what}; {hint}");
    let mut parts = text.split(':').map(str::trim);
    let mut filter = FilterSetting::named(parts.next().unwrap_or_default()).map_err(message)?;
    for part in parts {
        let Some((name, value)) = part.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
            let parameters = filter.built_in().and_then(|filter| filter.parameters().next());
            let example = parameters.map(|(one, value)| format!(", like {}={value}", one.name)).unwrap_or_default();
            return Err(format!("`{part}`: must be a parameter of `{}` and its value{example}", filter.name()));
        };
        filter.set(name, ParameterInput::Word(value.to_owned())).map_err(message)?;
    }
    Ok(filter)
}

/// Scorers with their weights: `queue-depth:2,mine.rhai:1`.
pub fn scorers(text: &str) -> Result<ScorerList, String> {
    let scorers: Result<Vec<WeightedScorer>, String> =
        text.split(',').enumerate().map(|(index, part)| scorer(part.trim(), index + 1)).collect();
    let scorers = scorers?;
    WeightedScorer::check(&scorers).map_err(|ScorerFault { what, hint, .. }| format!("{what}; {hint}"))?;
    Ok(ScorerList(scorers))
}

/// A name, a weight, and values of a plugin's parameters: `mine.rhai:2:cache=3`.
fn scorer(text: &str, number: usize) -> Result<WeightedScorer, String> {
    let mut parts = text.split(':').map(str::trim);
    let (Some(name), Some(weight)) = (parts.next(), parts.next()) else {
        return Err(format!("scorer {number}, `{text}`: must be a name and a weight, like queue-depth:1"));
    };
    let name = ScorerName::of(name)
        .map_err(|hint| format!("scorer {number}: unknown scorer {}; {hint}", quoted(name.as_bytes())))?;
    let weight = weight
        .parse()
        .map_err(|_| format!("scorer {number}, `{name}`: the weight is `{weight}`; it must be a number above 0"))?;
    let mut given = Vec::new();
    for part in parts {
        let assigned = part.split_once('=').filter(|_| matches!(name, ScorerName::Plugin(_)));
        let Some((parameter, value)) = assigned else {
            return Err(format!("scorer {number}, `{name}`: `{part}` must be a parameter of a plugin and its value"));
        };
        given.push((parameter.trim().to_owned(), ParameterInput::Word(value.trim().to_owned())));
    }
    Ok(WeightedScorer { name, weight, given })
}

/// The class in a list of targets that stands for every class without a target of its own.
pub const EVERY_CLASS: &str = "*";

/// `class=duration,…`; a duration alone is the target of every other class.
pub fn targets(text: &str) -> Result<TargetList, String> {
    let mut targets: Vec<(String, Micros)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some((class, target)) = part.split_once('=').or(with_unit(part).map(|_| (EVERY_CLASS, part))) else {
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

/// A duration in Go's format: `1m30s`, `1.5s`, `500us`. At least 1 µs; fractions of a µs are cut off, which changes no
/// comparison with whole µs.
///
/// # Errors
/// If `text` is no such duration.
pub fn duration(text: &str) -> Result<Micros, String> {
    const UNITS: [(&str, u128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let message = || format!("`{text}` must be a time of 1 µs to 292 years, like 100ms, 1.5s or 1m30s");
    let (mut rest, mut ns) = (text, 0u128);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(message)?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let &(_, unit) = UNITS.iter().find(|&&(name, _)| name == unit).ok_or_else(message)?;
        ns += nanoseconds(number, unit).ok_or_else(message)?;
        rest = behind;
    }
    match u64::try_from(ns / 1_000) {
        Ok(us) if us > 0 && ns <= i64::MAX as u128 => Ok(Micros(us)),
        _ => Err(message()),
    }
}

/// `number` × `unit`, cut off at whole ns.
fn nanoseconds(number: &str, unit: u128) -> Option<u128> {
    /// More digits have no use and would overflow.
    const DIGITS: usize = 20;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > DIGITS || fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(DIGITS)];
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    Some(digits(whole)? * unit + digits(fraction)? * unit / 10u128.pow(fraction.len() as u32))
}

/// A duration, or 0.
fn or_zero(text: &str) -> Result<Micros, String> {
    if ["0", "0s", "0ms"].contains(&text) { Ok(Micros::ZERO) } else { duration(text) }
}

/// A seed: any whole number of 64 bits.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    fn invalid_think_times_are_refused() {
        assert_eq!(think_time("0"), Ok(Micros::ZERO));
        assert_eq!(think_time("0.25"), Ok(Micros(250)));
        assert!(think_time("-1").is_err() && think_time("NaN").is_err() && think_time("1e13").is_err());
        let message = |text: &str| think_time_dist(text).unwrap_err();
        assert!(message("normal:mu=1").starts_with("must look like lognormal:mu=2.0"));
        assert_eq!(message("lognormal:mu=1,sigma=-1"), "`sigma` must be at least 0");
        assert_eq!(message("lognormal:mu=1,sigma=1,min=3s,max=2s"), "`min` is longer than `max`");
        assert_eq!(message("lognormal:mu=1,mu=1"), "`mu` is repeated");
        assert!(message("lognormal:mu=1,sigm=1").starts_with("there is no `sigm`: did you mean `sigma`"));
        assert!(message("lognormal:mu=x,sigma=1").contains("`mu` must be a number"));
        assert!(message("lognormal:mu=1,sigma=1,min=3").starts_with("`min`: "));
        let open = ThinkTime::LogNormal { mu: -1.0, sigma: 0.0, min: Micros::ZERO, max: Micros::MAX };
        assert_eq!(think_time_dist("lognormal:mu=-1, sigma=0"), Ok(open));
    }

    #[test]
    fn durations_are_those_of_go() {
        let table = [
            ("100ms", 100_000),
            ("1.5s", 1_500_000),
            ("1m30s", 90_000_000),
            ("1h1m1s1ms1us1000ns", 3_661_001_002),
            ("2µs", 2),
            ("2μs", 2),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("1999ns", 1),
            ("0.3333333333333333333333333333333s", 333_333),
            ("9223372036s", 9_223_372_036_000_000),
        ];
        for (text, us) in table {
            assert_eq!(duration(text), Ok(Micros(us)), "{text}");
        }
        for text in ["", "0", "5", "s", ".s", "1.2.3s", "1d", "-1s", "+1s", "1 s", "1ms5", "999ns", "0s", "1e3s", "١s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["9223372037s", "99999999999999999999h", "999999999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
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

    proptest! {
        #[test]
        fn any_text_is_a_value_or_an_error(text in "[0-9.a-zµ:=,/% -]{0,24}") {
            let _ = (scorers(&text), targets(&text), duration(&text));
            let _ = (scaling_rules(&text), start_times(&text), start_mode(&text), group(&text), node_pool(&text));
        }

        #[test]
        fn whole_durations_come_back(us in 1u64..=9_223_372_036_854_775) {
            prop_assert_eq!(duration(&format!("{us}us")), Ok(Micros(us)));
            prop_assert_eq!(duration(&format!("{}ms{}us", us / 1_000, us % 1_000)), Ok(Micros(us)));
            prop_assert_eq!(duration(&format!("{}.{:06}s", us / 1_000_000, us % 1_000_000)), Ok(Micros(us)));
        }
    }
}
