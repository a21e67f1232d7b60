//! How fast the number of replicas may change, as settings have it: `window=30s,100%/60s`.

use blis_sim::scaling::{Change, ScalingRules, Select};
use blis_sim::units::Micros;

use crate::duration::{duration, or_zero, time_text};
use crate::spec::parse::count;

/// How fast the number of replicas may change in one direction: `window=30s,100%/60s,4/60s`, with `select=min` for the
/// smaller of the changes, or `disabled`.
pub fn scaling_rules(text: &str) -> Result<ScalingRules, String> {
    const FORM: &str = "must look like window=30s,100%/60s,4/60s, or be disabled";
    let mut rules = ScalingRules { window: Micros::ZERO, policies: Vec::new(), select: Select::Max };
    if text.trim() == "disabled" {
        return Ok(ScalingRules { select: Select::Disabled, ..rules });
    }
    let (mut window, mut select) = (None, None);
    for part in text.split(',').map(str::trim) {
        if let Some(time) = part.strip_prefix("window=") {
            if window.replace(or_zero(time)?).is_some() {
                return Err("`window` is repeated".to_owned());
            }
        } else if let Some(name) = part.strip_prefix("select=") {
            let value = match name {
                "max" => Select::Max,
                "min" => Select::Min,
                _ => return Err(format!("`{part}`: must be select=max or select=min")),
            };
            if select.replace(value).is_some() {
                return Err("`select` is repeated".to_owned());
            }
        } else {
            let (change, period) = part.split_once('/').ok_or_else(|| format!("`{part}`: {FORM}"))?;
            let number = |text: &str| count(text).map_err(|message| format!("`{part}`: the change {message}"));
            let change = match change.strip_suffix('%') {
                Some(percent) => Change::Percent(number(percent)?),
                None => Change::Pods(number(change)?),
            };
            rules.policies.push((change, duration(period)?));
        }
    }
    rules.window = window.unwrap_or_default();
    rules.select = select.unwrap_or(Select::Max);
    Ok(rules)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_scaling_come_back() {
        for text in ["window=30s,100%/60s,4/60s", "window=0,select=min,1/120s", "disabled", "window=0"] {
            let rules = scaling_rules(text).expect(text);
            let written = scaling_rules_text(&rules);
            assert_eq!(scaling_rules(&written), Ok(rules), "{text}: {written}");
        }
        let rules = scaling_rules("100%/15s, 4/15s").expect("legal");
        let period = Micros(15_000_000);
        assert_eq!(rules.policies, [(Change::Percent(100), period), (Change::Pods(4), period)]);
        assert_eq!((rules.window, rules.select), (Micros::ZERO, Select::Max));
        for text in ["", "4", "x/1s", "0/1s", "4/", "4/1", "window=1", "window=1s,window=1s", "select=none", "4/1s,"] {
            assert!(scaling_rules(text).is_err(), "{text}");
        }
    }
}
