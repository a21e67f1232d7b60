//! Service-level objectives as text: `ttft_p99=500ms`, `critical.tpot_mean=60ms`.

use std::fmt::{self, Display};

use blis_diag::name_hint;
use blis_sim::units::Micros;
use serde::{Serialize, Serializer};
use strum::VariantNames as _;

use crate::load_warnings::LIVES;
use crate::spec::parse;

/// A limit of one statistic of one latency, for all requests or those of one class.
///
/// The latency of a request that does not complete (rejected, dropped, timed out, evicted) is infinite: as long as more than 1 % of
/// the requests are rejected, no p99 is met, and a mean is met only if all complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slo {
    /// `None`: all requests. `default` is the class of requests without one.
    pub class: Option<String>,
    pub metric: SloMetric,
    pub statistic: SloStatistic,
    /// The largest value that meets it.
    pub limit: Micros,
}

/// A latency that an SLO limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantNames)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum SloMetric {
    /// Time to first token.
    Ttft,
    /// Time per output token: the mean of a request after its first token.
    Tpot,
    /// Single inter-token latencies, pooled over the requests of a run.
    Itl,
    /// End-to-end latency of the request.
    E2e,
}

/// A statistic of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantNames)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum SloStatistic {
    Mean,
    P50,
    P90,
    P95,
    P99,
}

impl Slo {
    /// `[CLASS.]METRIC_STATISTIC=TIME`.
    ///
    /// # Errors
    /// Which part is wrong, and what is known.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((name, limit)) = text.split_once('=') else {
            return Err(format!("`{text}` must be a figure and a time, like ttft_p99=500ms"));
        };
        let (class, figure) = match name.trim().rsplit_once('.') {
            Some(("", _)) => return Err(format!("`{text}` names no class; without one, leave out the dot")),
            Some((class, figure)) => (Some(class.to_owned()), figure),
            None => (None, name.trim()),
        };
        let (figure, limit) = one_spelling(figure, limit.trim());
        let Some((metric, statistic)) = figure.rsplit_once('_') else {
            return Err(format!("`{figure}` must be a latency and a statistic, like ttft_p99"));
        };
        let unknown = |what: &str, name: &str, known: &[&str]| {
            format!("there is no {what} `{name}` ({}): {}", known.join(", "), name_hint(name, known))
        };
        let metric = metric.parse().map_err(|_| unknown("latency", metric, SloMetric::VARIANTS))?;
        let statistic = statistic.parse().map_err(|_| unknown("statistic", statistic, SloStatistic::VARIANTS))?;
        if metric == SloMetric::Itl && class.is_some() {
            return Err(format!("`{name}`: inter-token latencies are pooled over all classes; use tpot for a class"));
        }
        let limit = parse::duration(&limit).map_err(|message| format!("`{name}`: {message}"))?;
        Ok(Self { class, metric, statistic, limit })
    }

    /// Figures of a service without limits: TTFT p90 and TPOT p50.
    #[must_use]
    pub fn without_limits() -> Vec<Self> {
        let figure = |metric, statistic| Self { class: None, metric, statistic, limit: Micros::MAX };
        vec![figure(SloMetric::Ttft, SloStatistic::P90), figure(SloMetric::Tpot, SloStatistic::P50)]
    }

    /// As it is written on the command line; the figure alone if it has no limit.
    #[must_use]
    pub fn text(&self) -> String {
        if self.limit == Micros::MAX { self.figure() } else { self.to_string() }
    }

    /// The figure without its limit, as `critical.ttft_p99`.
    #[must_use]
    pub fn figure(&self) -> String {
        let class = self.class.as_ref().map(|class| format!("{class}.")).unwrap_or_default();
        format!("{class}{}_{}", self.metric.into_str(), self.statistic.into_str())
    }
}

/// `figure` and `limit` as they are spelled here: `ttft_p95_ms=500` and `p95_ttft=500ms` are `ttft_p95=500ms`.
fn one_spelling(figure: &str, limit: &str) -> (String, String) {
    let (figure, unit) = figure.strip_suffix("_ms").map_or((figure, ""), |figure| (figure, "ms"));
    let has_unit = limit.chars().any(char::is_alphabetic);
    let limit = if has_unit { limit.to_owned() } else { format!("{limit}{unit}") };
    let swapped = figure
        .split_once('_')
        .filter(|(statistic, metric)| statistic.parse::<SloStatistic>().is_ok() && metric.parse::<SloMetric>().is_ok());
    (swapped.map_or(figure.to_owned(), |(statistic, metric)| format!("{metric}_{statistic}")), limit)
}

impl SloStatistic {
    /// The share of the requests that may exceed the limit of a percentile; `None` for a mean.
    #[must_use]
    pub const fn tail(self) -> Option<f64> {
        match self {
            Self::Mean => None,
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.1),
            Self::P95 => Some(0.05),
            Self::P99 => Some(0.01),
        }
    }
}

impl Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.figure())?;
        match self.limit.0 {
            us if us % 1_000_000 == 0 => write!(f, "{}s", us / 1_000_000),
            us if us % 1000 == 0 => write!(f, "{}ms", us / 1000),
            us => write!(f, "{us}us"),
        }
    }
}

/// As it is written on the command line. JSON: `String`.
impl Serialize for Slo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Mean lives of sessions that a run of them lasts after its warm-up: ten, and twenty if a percentile above 95 is of interest
/// (`../shared/reference/statistics.md`, §3).
pub(super) fn lives(slos: &[Slo]) -> f64 {
    let is_high = slos.iter().any(|slo| slo.statistic.tail().is_some_and(|tail| tail < 0.05));
    if is_high { 2.0 * LIVES } else { LIVES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_names_class_latency_and_statistic() {
        let slo = Slo::parse("critical.ttft_p99=1.5s").expect("valid");
        let expected = (Some("critical".to_owned()), SloMetric::Ttft, SloStatistic::P99, Micros(1_500_000));
        assert_eq!((slo.class, slo.metric, slo.statistic, slo.limit), expected);
        let dotted = Slo::parse("tier.1.e2e_mean=2m").expect("valid");
        assert_eq!((dotted.class.as_deref(), dotted.limit), (Some("tier.1"), Micros(120_000_000)));
    }

    /// As results spell figures, and as `blis compare` does.
    #[test]
    fn other_spellings_of_a_figure_mean_the_same() {
        let one = Slo::parse("ttft_p95=500ms").expect("valid");
        for other in ["ttft_p95_ms=500", "p95_ttft=500ms", "p95_ttft_ms=0.5s", "ttft_p95_ms=500ms"] {
            assert_eq!(Slo::parse(other).expect(other), one, "{other}");
        }
    }

    #[test]
    fn mistakes_name_the_part_and_what_is_known() {
        for (text, part) in [
            ("ttft_p99", "must be a figure and a time"),
            ("ttft=1s", "must be a latency and a statistic"),
            ("tfft_p99=1s", "there is no latency `tfft` (ttft, tpot, itl, e2e)"),
            ("ttft_p98=1s", "there is no statistic `p98` (mean, p50, p90, p95, p99)"),
            ("ttft_p99=500", "must be a time"),
            ("ttft_p99=0s", "must be a time"),
            (".ttft_p99=1s", "names no class"),
            ("batch.itl_p99=1s", "use tpot for a class"),
            ("", "must be a figure and a time"),
        ] {
            let message = Slo::parse(text).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            class in prop::option::of("[a-z][a-z0-9.-]{0,8}"),
            metric in prop::sample::select(vec![SloMetric::Ttft, SloMetric::Tpot, SloMetric::E2e]),
            statistic in prop::sample::select(SloStatistic::VARIANTS).prop_map(|name| name.parse().expect("a name")),
            us in 1u64..10_000_000_000,
        ) {
            let slo = Slo { class, metric, statistic, limit: Micros(us) };
            prop_assert_eq!(Slo::parse(&slo.to_string()), Ok(slo));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = Slo::parse(&text);
        }
    }
}
