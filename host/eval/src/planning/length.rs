//! How many requests a run needs before its figures mean something.

use crate::error::RunError;
use crate::open;

use super::load_run::LoadRun;
use super::slo::{self, Slo};
use super::{PlanConfig, load};

/// Half the width of the interval of a capacity, as a share of it, up to which runs are lengthened.
pub(super) const TOLERANCE: f64 = 0.05;
/// Requests of a run at most, unless the settings say how many.
const MOST: u64 = 40_000;
/// The same of sessions that begin at a rate: what they need follows from their life, and may be long.
const MOST_OF_SESSIONS: u64 = 2_000_000;
/// Requests beyond the percentile of an SLO that a run needs: with fewer its value is that of single requests.
const FEWEST_BEYOND: f64 = 10.0;
/// The fewest requests of sessions: those from which a growth of 1 % of the arrivals differs from chance.
const FEWEST_OF_SESSIONS: u64 = 4000;
/// Requests of a run at most where longer ones would only tell apart what is close together.
const MOST_TO_DECIDE: u64 = 100_000;
/// Mean end-to-end latencies that the arrivals of a run must last, so that the service is full for most of it.
const LATENCIES: f64 = 10.0;

/// The number of requests of each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunLength {
    /// That of the settings or of the trace.
    Fixed,
    /// Chosen; it grows until the figures tell enough, up to `most`.
    Chosen { requests: u64, most: u64 },
}

impl RunLength {
    /// # Errors
    /// If the specification of the requests cannot be expanded.
    pub(super) fn new(config: &PlanConfig) -> Result<Self, RunError> {
        if config.has_fixed_length {
            return Ok(Self::Fixed);
        }
        let tails = config.slos.iter().filter_map(|slo| slo.statistic.tail());
        let beyond = tails.map(|tail| (2.0 * FEWEST_BEYOND / tail / (1.0 - load::WARMUP)).ceil() as u64);
        let requests = beyond.max().unwrap_or(0).max(1000);
        let Some(sessions) = open::steady_sessions(&config.base)? else {
            return Ok(Self::Chosen { requests, most: MOST });
        };
        let needed_s = sessions.needed_s(slo::lives(&config.slos), load::FIRST_LATENCY_S);
        let needed = sessions.requests_per_s() * needed_s;
        Ok(Self::Chosen {
            requests: requests.max(needed.ceil() as u64).max(FEWEST_OF_SESSIONS),
            most: MOST_OF_SESSIONS,
        })
    }

    /// Requests of a run; `None` if the settings or the trace say how many.
    pub(super) fn requests(self) -> Option<u64> {
        match self {
            Self::Fixed => None,
            Self::Chosen { requests, .. } => Some(requests),
        }
    }

    /// The length of the next attempt, if `wanted` requests are needed; `None` if runs cannot be longer.
    pub(super) fn extended(self, wanted: u64) -> Option<Self> {
        let Self::Chosen { requests, most } = self else { return None };
        let next = wanted.min(4 * requests).min(most);
        (next > requests).then_some(Self::Chosen { requests: next, most })
    }

    /// Requests that a run like `run` would need to be long enough; `None` if it is.
    pub(super) fn needed_by(self, run: &LoadRun) -> Option<u64> {
        let missing = missing_time(run)?;
        Some((self.requests()? as f64 * missing * 1.2).ceil() as u64)
    }

    /// Requests that an interval would need to be narrow enough, which reaches `half` (a share) to either side.
    pub(super) fn narrowed(self, half: f64) -> Option<u64> {
        let requests = self.requests()? as f64;
        let wanted = || (requests * (half / TOLERANCE).powi(2)).ceil() as u64;
        if half > TOLERANCE { self.to_decide(wanted()) } else { None }
    }

    /// As many of the `wanted` requests as a decision is worth; `None` if runs have as many already.
    pub(super) fn to_decide(self, wanted: u64) -> Option<u64> {
        Some(wanted.min(MOST_TO_DECIDE)).filter(|&wanted| Some(wanted) > self.requests())
    }

    /// # Errors
    /// If `run`, which meets the SLOs, is too short to show that; with the length that would do.
    pub(super) fn check(self, run: &LoadRun, slos: &[Slo]) -> Result<(), RunError> {
        if let Some(missing) = missing_time(run) {
            let seconds = run.load.map_or(0.0, |load| load.arrivals_s);
            let why = if run.needed_s > LATENCIES * run.mean_e2e_s {
                format!("sessions begin for {seconds:.1} s, and their steady state needs {:.1} s", run.needed_s)
            } else {
                let latency = run.mean_e2e_s;
                format!(
                    "requests arrive for {seconds:.1} s, less than {LATENCIES} mean end-to-end latencies ({latency:.1} s each)"
                )
            };
            return Err(RunError::runtime(format_args!("too short to tell: {why}")).hint(format_args!(
                "{:.1} times as many requests would do: `--num-requests`, or a longer trace (`--repeat`)",
                missing * 1.1
            )));
        }
        for (slo, result) in slos.iter().zip(&run.results) {
            let beyond = slo.statistic.tail().map_or(FEWEST_BEYOND, |tail| result.samples as f64 * tail);
            if beyond < FEWEST_BEYOND {
                let factor = FEWEST_BEYOND / beyond.max(0.1);
                return Err(RunError::runtime(format_args!(
                    "too short to tell: {} samples have {beyond:.1} beyond {}, fewer than {FEWEST_BEYOND}",
                    result.samples,
                    slo.figure()
                ))
                .hint(format_args!(
                    "{factor:.1} times as many requests would do: `--num-requests`, or a longer trace (`--repeat`)"
                )));
            }
        }
        Ok(())
    }
}

/// Whether a longer run like `run` may show that the requests in flight only became more while the service filled.
pub(super) fn may_only_fill(run: &LoadRun) -> bool {
    run.is_undecided() && missing_time(run).is_some()
}

/// By which factor the arrivals of a run would have to last longer; `None` if they are long enough, or clients wait for
/// outputs, so that there are always as many.
fn missing_time(run: &LoadRun) -> Option<f64> {
    let load = run.load.filter(|load| load.state.is_some())?;
    let factor = (LATENCIES * run.mean_e2e_s).max(run.needed_s) / load.arrivals_s;
    (factor > 1.0).then_some(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_report::{LoadReport, LoadState};

    use crate::planning::load_run::{MeanGpus, ServedRates, SloResult};

    /// A run of `samples` requests that arrive for `arrivals_s` seconds, with latencies of 2 s.
    fn run(arrivals_s: f64, samples: u64, is_open: bool) -> LoadRun {
        let load = LoadReport {
            offered_rps: 1.0,
            served_rps: 1.0,
            arrivals_s,
            in_flight_mean: 2.0,
            in_flight_growth_rps: 0.0,
            state: is_open.then_some(LoadState::Steady),
        };
        let results = vec![SloResult { value_ms: Some(1.0), excess: -0.01, samples }];
        LoadRun {
            results,
            load: Some(load),
            mean_e2e_s: 2.0,
            needed_s: 0.0,
            attainment: Some(1.0),
            held: MeanGpus::default(),
            rates: ServedRates::default(),
            synchronised: None,
        }
    }

    fn slos() -> Vec<Slo> {
        vec![Slo::parse("ttft_p99=1s").expect("valid")]
    }

    #[test]
    fn errors_say_how_much_longer_a_run_must_be() {
        let refused = RunLength::Fixed.check(&run(5.0, 5000, true), &slos()).expect_err("too short").text();
        assert!(refused.contains("5.0 s") && refused.contains("4.4 times as many requests"), "{refused}");
        let refused = RunLength::Fixed.check(&run(50.0, 250, true), &slos()).expect_err("too few").text();
        assert!(refused.contains("2.5 beyond ttft_p99") && refused.contains("4.0 times as many"), "{refused}");
        assert_eq!(RunLength::Fixed.check(&run(20.0, 1000, true), &slos()), Ok(()));
        assert_eq!(RunLength::Fixed.check(&run(1.0, 1000, false), &slos()), Ok(()), "users wait for outputs");
    }

    #[test]
    fn runs_are_lengthened_up_to_a_limit_and_fixed_ones_never() {
        let chosen = |requests| RunLength::Chosen { requests, most: MOST };
        let length = chosen(1000);
        assert_eq!(length.needed_by(&run(10.0, 1000, true)), Some(2400));
        assert_eq!(length.needed_by(&run(20.0, 1000, true)), None);
        assert_eq!(length.extended(2400), Some(chosen(2400)));
        assert_eq!(length.extended(1_000_000), Some(chosen(4000)));
        assert_eq!(chosen(MOST).extended(1_000_000), None);
        assert_eq!((length.narrowed(0.1), length.narrowed(0.04)), (Some(4000), None));
        assert_eq!((RunLength::Fixed.extended(9), RunLength::Fixed.narrowed(1.0)), (None, None));
    }
}
