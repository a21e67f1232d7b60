//! `load.sweep`: stages up to the rate at which the service is saturated.
//!
//! inference-perf measures that rate before it generates the stages. Here the file has to contain it.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::error::SpecFileError;
use super::super::raw::{Spanned, Word};
use super::super::read::{NumberRange, SpecReader};
use super::countable::countable;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSweep {
    #[serde(rename = "type")]
    kind: Option<Word>,
    num_stages: Option<Word>,
    stage_duration: Option<Word>,
    /// The rate that the other keys are for measuring: an addition of this program.
    saturation_rate: Option<Word>,
    num_requests: Option<IgnoredAny>,
    timeout: Option<IgnoredAny>,
    saturation_percentile: Option<IgnoredAny>,
}

/// Rate of the first stage of all sweeps, requests per second.
const FIRST_RATE: f64 = 1.0;
const ABOVE_FIRST: NumberRange =
    NumberRange { fits: |rate| rate > FIRST_RATE && rate <= 1e9, text: "a number above 1, up to 1e9" };
const SECONDS: NumberRange = NumberRange { fits: |seconds| seconds > 0.0, text: "a number above 0" };
/// Number of stages if the file has none, as in inference-perf.
const USUAL_STAGES: u32 = 5;
const USUAL_SECONDS: f64 = 180.0;

/// Rate and duration in s of each stage.
pub(super) fn stages(reader: &SpecReader<'_>, sweep: &Spanned<RawSweep>) -> Result<Vec<(f64, f64)>, SpecFileError> {
    const SUBJECT: &str = "load: sweep";
    let raw = &sweep.value;
    let kind = reader.needs(SUBJECT, "type", raw.kind.as_ref(), sweep.referenced)?;
    let geometric = reader.one_of(SUBJECT, "type", kind, &["linear", "geometric"])? == "geometric";
    let count = reader.whole(SUBJECT, "num_stages", raw.num_stages.as_ref(), 1..=10_000_u32)?.unwrap_or(USUAL_STAGES);
    let seconds =
        reader.number(SUBJECT, "stage_duration", raw.stage_duration.as_ref(), SECONDS)?.unwrap_or(USUAL_SECONDS);
    let saturation = reader.number(SUBJECT, "saturation_rate", raw.saturation_rate.as_ref(), ABOVE_FIRST)?;
    let saturation = saturation.ok_or_else(|| {
        let what =
            "load: sweep: inference-perf measures the rate at which the service is saturated, which is unknown here";
        let hint = "add `saturation_rate: …` to the sweep, in requests per second: what inference-perf logs as \
                    `Saturation point estimated at`, or the rate from which `blis run` shows queues that grow";
        reader.wrong(sweep.referenced, what, hint)
    })?;
    countable(reader, "load: the last stage of the sweep", saturation, seconds, sweep.referenced)?;
    Ok(rates(saturation, count, geometric).map(|rate| (rate, seconds)).collect())
}

/// Rates from 1 to `saturation` in equal steps, or in steps that shrink by a constant factor, so that most stages are
/// close to saturation. Rounded to two decimals, as in inference-perf.
fn rates(saturation: f64, count: u32, geometric: bool) -> impl Iterator<Item = f64> {
    (0..count).map(move |stage| {
        let done = if count > 1 { f64::from(stage) / f64::from(count - 1) } else { 0.0 };
        let rate = if geometric {
            FIRST_RATE + saturation - libm::pow(saturation, 1.0 - done)
        } else {
            FIRST_RATE + (saturation - FIRST_RATE) * done
        };
        (rate * 100.0).round() / 100.0
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::NoFiles;
    use super::super::super::specification::Spec;
    use super::super::super::window::WindowRate;

    const FILE: &str = "\
load:
  type: poisson
  interval: 15
  sweep: { type: linear, timeout: 60, num_stages: 4, stage_duration: 30, saturation_percentile: 95, saturation_rate: 16 }
data:
  type: random
  input_distribution: { min: 10, max: 100, mean: 50, std_dev: 10 }
  output_distribution: { mean: 20, std_dev: 0 }
";

    fn windows(text: &str) -> Vec<(u64, f64)> {
        let spec = Spec::parse("perf.yaml", text, &NoFiles).unwrap();
        let rate = |rate| if let WindowRate::Exact(rate) = rate { rate } else { panic!("{rate:?}") };
        spec.clients[0].windows.iter().map(|window| (window.start.0 / 1_000_000, rate(window.rate))).collect()
    }

    /// Sweeps were once refused.
    #[test]
    fn a_sweep_with_its_saturation_rate_becomes_stages() {
        assert_eq!(windows(FILE), [(0, 1.0), (30, 6.0), (60, 11.0), (90, 16.0)]);
        let geometric = FILE.replace("linear", "geometric").replace("num_stages: 4", "num_stages: 5");
        // 17 - 16, 17 - 8, 17 - 4, 17 - 2, 17 - 1.
        assert_eq!(windows(&geometric), [(0, 1.0), (30, 9.0), (60, 13.0), (90, 15.0), (120, 16.0)]);
        let usual = FILE.replace("num_stages: 4, stage_duration: 30, ", "").replace("16 }", "9.333 }");
        assert_eq!(windows(&usual), [(0, 1.0), (180, 3.08), (360, 5.17), (540, 7.25), (720, 9.33)]);
    }

    #[test]
    fn what_a_sweep_needs_is_reported() {
        let error = |from: &str, to: &str| Spec::parse("perf.yaml", &FILE.replace(from, to), &NoFiles).unwrap_err();
        insta::assert_snapshot!(error(", saturation_rate: 16", ""), @r"
        perf.yaml:4:10: load: sweep: inference-perf measures the rate at which the service is saturated, which is unknown here
          4 |   sweep: { type: linear, timeout: 60, num_stages: 4, stage_duration: 30, saturation_percentile: 95 }
            |          ^
        hint: add `saturation_rate: …` to the sweep, in requests per second: what inference-perf logs as `Saturation point estimated at`, or the rate from which `blis run` shows queues that grow
        ");
        insta::assert_snapshot!(error("saturation_rate: 16", "saturation_rate: 1"), @r"
        perf.yaml:4:118: load: sweep: `saturation_rate` is `1`
          4 | …: 30, saturation_percentile: 95, saturation_rate: 1 }
            |                                                    ^
        hint: it must be a number above 1, up to 1e9
        ");
        insta::assert_snapshot!(error("linear", "quadratic"), @r"
        perf.yaml:4:18: load: sweep: `type` is `quadratic`
          4 |   sweep: { type: quadratic, timeout: 60, num_stages: 4, stage_duration: 30, saturation_percentile: 9…
            |                  ^^^^^^^^^
        hint: known are linear, geometric
        ");
        insta::assert_snapshot!(error("  interval: 15", "  stages: [{ rate: 1, duration: 2 }]"), @r"
        perf.yaml:4:10: load: `stages` and `sweep` both define how the rate changes
          4 |   sweep: { type: linear, timeout: 60, num_stages: 4, stage_duration: 30, saturation_percentile: 95, …
            |          ^
        hint: keep one of them
        ");
    }
}
