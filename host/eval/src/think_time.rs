//! Think times as settings have them: `lognormal:mu=2.0,sigma=0.6,min=3s,max=30s`.

use blis_diag::{name_hint, quoted};
use blis_sim::units::Micros;
use blis_workload::trace_v2::ThinkTime;

use crate::duration::duration;

/// `lognormal:mu=2.0,sigma=0.6,min=3s,max=30s`.
pub(crate) fn think_time_dist(text: &str) -> Result<ThinkTime, String> {
    const FORM: &str = "must look like lognormal:mu=2.0,sigma=0.6,min=3s,max=30s";
    let Some(parameters) = text.strip_prefix("lognormal:") else { return Err(FORM.to_owned()) };
    let (mut mu, mut sigma, mut min, mut max) = (None, None, None, None);
    for parameter in parameters.split(',') {
        let (name, value) = parameter.split_once('=').ok_or(FORM)?;
        let (name, value) = (name.trim(), value.trim());
        let number = || {
            value
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .ok_or_else(|| format!("`{name}` must be a number, not {}", quoted(value.as_bytes())))
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::parse::think_time;

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
}
