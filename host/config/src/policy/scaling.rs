//! The scaling policies: one row each, from which names, help and parameters follow (`--autoscaler`).

use std::ops::RangeInclusive;

use blis_plugin::PolicyParameter;
use blis_sim::cluster::PhaseTime;
use blis_sim::scaling::hpa::TOLERANCE;
use blis_sim::scaling::{
    BlisAnalyzer, BlisSettings, Hpa, ScalingPolicy, Schedule, SignalSet, WvaV1, WvaV1Settings, WvaV2, WvaV2Settings,
};
use blis_sim::units::Micros;

use super::parameter::{self, NumericParameter, ParameterInput, ParameterValues, number_of};
use super::{PolicyError, SettingSource, Sourced};
use blis_diag::{Diagnostic, name_hint, quoted};

/// A scaling policy of this program.
#[derive(Debug)]
pub struct ScalingRow {
    /// Name as users write it.
    pub name: &'static str,
    /// Summary in one line, for help and lists.
    pub about: &'static str,
    parameters: &'static [NumericParameter],
    build: ScalingBuild,
}

/// How the policy is built from the values of its parameters.
#[derive(Debug)]
enum ScalingBuild {
    Signals(fn(&ParameterValues) -> SignalSet),
    Wva1(fn(&ParameterValues) -> WvaV1Settings),
    Wva2(fn(&ParameterValues) -> WvaV2Settings),
    Static,
    Perfect,
    Blis,
}

/// A scaling policy with the values of its parameters.
#[derive(Clone, Debug)]
pub struct ScalingUse {
    pub row: &'static ScalingRow,
    /// Where the policy was selected.
    pub source: SettingSource,
    /// All parameters, in the order of the row.
    pub parameters: Vec<(&'static str, Sourced<f64>)>,
}

impl PartialEq for ScalingUse {
    fn eq(&self, other: &Self) -> bool {
        self.row.name == other.row.name && self.parameters == other.parameters
    }
}

const fn number(name: &'static str, default: f64, range: RangeInclusive<f64>, about: &'static str) -> NumericParameter {
    NumericParameter::new(name, default, range, about)
}

const COUNT: RangeInclusive<f64> = 0.001..=1e6;
const SHARE: RangeInclusive<f64> = 0.001..=1.0;
const HPA_TOLERANCE: NumericParameter =
    number("tolerance", TOLERANCE, 0.0..=10.0, "Share by which a signal may differ from its target without a change");
const QUEUED: NumericParameter = number("queued", 1.0, COUNT, "Queued requests for one replica");
const RUNNING: NumericParameter = number("running", 16.0, COUNT, "Running requests for one replica");

static ROWS: &[ScalingRow] = &[
    ScalingRow {
        name: "queue",
        about: "Requests in the gateway's queue, and running requests (llm-d's guide keda-epp)",
        parameters: &[QUEUED, RUNNING, HPA_TOLERANCE],
        build: ScalingBuild::Signals(|set| SignalSet::Queue { queued: set.get("queued"), running: set.get("running") }),
    },
    ScalingRow {
        name: "saturation",
        about: "Saturation of the pool, as flow control has it",
        parameters: &[number("target", 0.7, 0.001..=100.0, "Saturation to be kept"), HPA_TOLERANCE],
        build: ScalingBuild::Signals(|set| SignalSet::Saturation { target: set.get("target") }),
    },
    ScalingRow {
        name: "queue-guard",
        about: "As queue, less what starting replicas will serve",
        parameters: &[QUEUED, RUNNING, HPA_TOLERANCE],
        build: ScalingBuild::Signals(|set| SignalSet::QueueGuard {
            queued: set.get("queued"),
            running: set.get("running"),
        }),
    },
    ScalingRow {
        name: "token-aware",
        about: "Uncached prompt tokens in flight, and KV cache in use (llm-d's guide keda-epp-token-aware)",
        parameters: &[
            number("prefill-rate", 15_928.0, 1.0..=1e9, "Prompt tokens that a replica prefills per second"),
            number("prefill-s", 1.5, 0.001..=1e6, "Seconds of prefill in flight for one replica"),
            number("kv", 0.8, SHARE, "Share of used KV blocks of one replica"),
            HPA_TOLERANCE,
        ],
        build: ScalingBuild::Signals(|set| SignalSet::TokenAware {
            prefill_rate: set.get("prefill-rate"),
            prefill_s: set.get("prefill-s"),
            kv: set.get("kv"),
        }),
    },
    ScalingRow {
        name: "slo-aware",
        about: "P90 of TTFT and of TPOT over their SLOs (llm-d's guide slo-aware)",
        parameters: &[
            number("ttft-ms", 3000.0, 0.001..=1e9, "SLO of the P90 of TTFT, ms"),
            number("tpot-ms", 100.0, 0.001..=1e9, "SLO of the P90 of TPOT, ms"),
            number("up", 0.55, 0.001..=2.0, "Share of the SLO above which replicas are added"),
            number("down", 0.4, 0.001..=2.0, "Share of the SLO below which replicas are removed, below up"),
            HPA_TOLERANCE,
        ],
        build: ScalingBuild::Signals(|set| SignalSet::SloAware {
            ttft: Micros::from_f64(set.get("ttft-ms") * 1e3),
            tpot: Micros::from_f64(set.get("tpot-ms") * 1e3),
            up: set.get("up"),
            down: set.get("down"),
        }),
    },
    ScalingRow {
        name: "wva-v1",
        about: "Spare capacity of unsaturated replicas (llm-d's Workload Variant Autoscaler, first analyzer)",
        parameters: &[
            number("kv", 0.8, SHARE, "Share of used KV blocks from which on a replica is saturated"),
            number("queue", 5.0, COUNT, "Waiting requests from which on a replica is saturated"),
            number("spare-kv", 0.1, 0.0..=1.0, "Mean share of KV blocks to spare below which a replica is added"),
            number("spare-queue", 3.0, 0.0..=1e6, "Mean waiting requests to spare below which a replica is added"),
        ],
        build: ScalingBuild::Wva1(|set| WvaV1Settings {
            kv: set.get("kv"),
            queue: set.get("queue"),
            spare_kv: set.get("spare-kv"),
            spare_queue: set.get("spare-queue"),
        }),
    },
    ScalingRow {
        name: "wva-v2",
        about: "Demand over capacity in tokens (llm-d's Workload Variant Autoscaler, second analyzer)",
        parameters: &[
            number("kv", 0.8, SHARE, "Share of the KV cache that counts as capacity"),
            number("queue", 5.0, COUNT, "Waiting requests from which on the tokens held are the capacity"),
            number("up", 0.85, SHARE, "Share of the capacity in use after replicas were added"),
            number("down", 0.7, SHARE, "Share of the capacity below which replicas are removed"),
        ],
        build: ScalingBuild::Wva2(|set| WvaV2Settings {
            kv: set.get("kv"),
            queue: set.get("queue"),
            up: set.get("up"),
            down: set.get("down"),
        }),
    },
    ScalingRow {
        name: "static",
        about: "Always the same number, for comparison",
        parameters: &[number("replicas", 1.0, 0.0..=65_536.0, "Number of replicas")],
        build: ScalingBuild::Static,
    },
    ScalingRow {
        name: "perfect",
        about: "Arrival rate over the rate of a replica, known in advance: a bound, for comparison",
        parameters: &[
            number("rate", 1.0, 1e-6..=1e6, "Requests per second that a replica serves within the SLO"),
            number("interval-s", 15.0, 0.001..=1e6, "Interval of the arrival rate, s"),
            number("lead-s", 0.0, 0.0..=1e6, "Time by which replicas are added before they are needed, s"),
        ],
        build: ScalingBuild::Perfect,
    },
    ScalingRow {
        name: "blis-v2",
        about: "BLIS's own loop, for --parity blis: it goes to zero without demand and never comes back",
        parameters: &[
            number("kv", 0.8, SHARE, "Share of the KV cache that counts as capacity"),
            number("up", 0.8, 0.001..=10.0, "Share of the capacity in use above which replicas are added"),
            number("down", 0.4, 0.001..=10.0, "Share of the capacity below which replicas are removed, below up"),
            number("avg-input", 512.0, 0.0..=1e9, "Tokens of a waiting request"),
            number("up-window-s", 0.0, 0.0..=1e6, "Seconds for which replicas must be missing"),
            number("down-window-s", 0.0, 0.0..=1e6, "Seconds for which replicas must be too many"),
            number("delay-s", 0.0, 0.0..=1e6, "Mean time from a decision to its effect, s"),
            number("delay-sd-s", 0.0, 0.0..=1e6, "Its standard deviation, s"),
        ],
        build: ScalingBuild::Blis,
    },
];

impl ScalingRow {
    /// All rows, in the order of help.
    #[must_use]
    pub fn all() -> &'static [Self] {
        ROWS
    }

    /// The row called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        ROWS.iter().find(|row| row.name == name)
    }

    /// Its parameters, as those of other policies.
    #[must_use]
    pub fn parameters(&self) -> Vec<PolicyParameter> {
        self.parameters.iter().map(PolicyParameter::from).collect()
    }
}

impl ScalingUse {
    /// The policy called `name` with its defaults and the values that are `given` for its parameters; the last value of a
    /// name counts.
    ///
    /// # Errors
    /// If there is no such policy or parameter, or a value is out of range.
    pub fn choose(name: &Sourced<String>, given: &[(String, Sourced<ParameterInput>)]) -> Result<Self, PolicyError> {
        let Some(row) = ScalingRow::find(name) else {
            let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            let what = format!("unknown autoscaler {}", quoted(name.as_bytes()));
            return Err(wrong(&name.source, what, name_hint(name, &names)));
        };
        let declared = row.parameters();
        let mut parameters: Vec<_> =
            row.parameters.iter().map(|one| (one.name, Sourced::default_value(one.default))).collect();
        for (name, value) in given {
            let set = || {
                let known = declared.iter().any(|one| one.name == *name);
                let number = if known { number_of(row.name, name, &value.value)? } else { 0.0 };
                Ok((parameter::find_number(row.name, &declared, name, number)?, number))
            };
            let (index, number) = set().map_err(|(what, hint)| wrong(&value.source, what, hint))?;
            parameters[index].1 = value.clone().map(|_| number);
        }
        let chosen = Self { row, source: name.source.clone(), parameters };
        chosen.check()?;
        Ok(chosen)
    }

    /// Refuses thresholds that contradict each other.
    fn check(&self) -> Result<(), PolicyError> {
        let of = |name: &str| self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        // Of wva-v2, `up` is the larger one as well.
        match (of("down"), of("up")) {
            (Some(down), Some(up)) if down.value >= up.value => {
                let what = format!("`down` of the autoscaler `{}` is {}, and `up` {}", self.row.name, **down, **up);
                let source = if down.source == SettingSource::Default { &up.source } else { &down.source };
                Err(wrong(
                    source,
                    what,
                    "`down` must be below `up`: else replicas are added and removed in turn".into(),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The policy. `arrivals` are the arrival times of all requests, in order, which only a bound reads.
    pub fn build(&self, arrivals: impl FnOnce() -> Vec<Micros>) -> Box<dyn ScalingPolicy> {
        let values = ParameterValues(self.parameters.iter().map(|(name, one)| ((*name).to_owned(), **one)).collect());
        match &self.row.build {
            ScalingBuild::Signals(signals) => Box::new(Hpa::new(signals(&values), values.get("tolerance"))),
            ScalingBuild::Wva1(settings) => Box::new(WvaV1::new(settings(&values))),
            ScalingBuild::Wva2(settings) => Box::new(WvaV2::new(settings(&values))),
            ScalingBuild::Static => Box::new(Schedule::constant(values.get("replicas").round() as u32)),
            ScalingBuild::Perfect => {
                let (interval, lead) = (values.get("interval-s"), values.get("lead-s"));
                let seconds = Micros::from_secs_f64;
                Box::new(Schedule::perfect(arrivals(), values.get("rate"), seconds(interval), seconds(lead)))
            }
            ScalingBuild::Blis => Box::new(BlisAnalyzer::new(BlisSettings {
                kv: values.get("kv"),
                up: values.get("up"),
                down: values.get("down"),
                input: values.get("avg-input"),
                up_window: Micros::from_secs_f64(values.get("up-window-s")),
                down_window: Micros::from_secs_f64(values.get("down-window-s")),
            })),
        }
    }

    /// The time from a decision of BLIS's loop to its effect; `None` for other policies.
    #[must_use]
    pub fn actuation_delay(&self) -> Option<PhaseTime> {
        let seconds = |name: &str| {
            let found = self.parameters.iter().find(|(known, _)| *known == name);
            Micros::from_secs_f64(found.map_or(0.0, |(_, seconds)| seconds.value))
        };
        let is_blis = matches!(self.row.build, ScalingBuild::Blis);
        is_blis.then(|| PhaseTime { mean: seconds("delay-s"), deviation: seconds("delay-sd-s") })
    }

    /// Whether [`Self::build`] reads the arrivals of all requests.
    #[must_use]
    pub fn reads_arrivals(&self) -> bool {
        matches!(self.row.build, ScalingBuild::Perfect)
    }
}

fn wrong(source: &SettingSource, what: String, hint: String) -> PolicyError {
    let diagnostic = Diagnostic::new(what).hint(hint);
    match source.location() {
        Some(location) => diagnostic.at(location.clone()).into(),
        None => diagnostic.into(),
    }
}

#[cfg(test)]
mod tests {
    use blis_diag::Diagnose as _;

    use super::*;

    fn choose(name: &str, given: &[(&str, &str)]) -> Result<ScalingUse, String> {
        let flag = |text: &str| Sourced::flag("--policy-param", ParameterInput::Word(text.to_owned()));
        let given: Vec<_> = given.iter().map(|(name, value)| ((*name).to_owned(), flag(value))).collect();
        let chosen = ScalingUse::choose(&Sourced::flag("--autoscaler", name.to_owned()), &given);
        chosen.map_err(|error| {
            let diagnostic = error.diagnostic();
            format!("{}; {}", diagnostic.without_hint(), diagnostic.hint.as_deref().unwrap_or_default())
        })
    }

    #[test]
    fn every_row_builds_with_its_defaults_and_its_limits() {
        for row in ScalingRow::all() {
            assert!(!row.about.is_empty() && !row.about.ends_with('.'), "{}", row.name);
            let chosen = choose(row.name, &[]).expect("its defaults");
            let policy = chosen.build(|| vec![Micros::ZERO, Micros(1_000_000)]);
            assert!(!format!("{policy:?}").is_empty());
            for parameter in row.parameters().iter().filter(|one| !["up", "down"].contains(&one.name.as_str())) {
                for value in [parameter.min, parameter.max] {
                    let given = [(parameter.name.as_str(), value.to_string())];
                    let given: Vec<_> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    choose(row.name, &given).expect("a value in range").build(Vec::new);
                }
            }
        }
    }

    #[test]
    fn values_reach_the_policy_and_the_last_one_counts() {
        let chosen = choose("slo-aware", &[("tpot-ms", "50"), ("tpot-ms", "60"), ("up", "0.8")]).expect("valid");
        let values: Vec<_> = chosen.parameters.iter().map(|(name, value)| (*name, **value)).collect();
        let expected = [("ttft-ms", 3000.0), ("tpot-ms", 60.0), ("up", 0.8), ("down", 0.4), ("tolerance", 0.1)];
        assert_eq!(values, expected);
        let policy = format!("{:?}", chosen.build(Vec::new));
        assert!(policy.contains("60000") && policy.contains("up: 0.8"), "{policy}");
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let mistake = |name, given: &[(&str, &str)]| choose(name, given).expect_err("a mistake");
        insta::assert_snapshot!([
            mistake("slo-awere", &[]),
            mistake("queue", &[("quued", "1")]),
            mistake("queue", &[("queued", "0")]),
            mistake("queue", &[("queued", "many")]),
            mistake("slo-aware", &[("down", "0.6")]),
            mistake("wva-v2", &[("up", "0.5")]),
        ].join("\n"), @"
        unknown autoscaler `slo-awere`; did you mean `slo-aware`?
        `queue` has no parameter `quued`; did you mean `queued`?
        parameter `queued` of `queue` is 0; it must be a number from 0.001 to 1000000
        parameter `queued` of `queue` is `many`; it must be a number
        `down` of the autoscaler `slo-aware` is 0.6, and `up` 0.55; `down` must be below `up`: else replicas are added and removed in turn
        `down` of the autoscaler `wva-v2` is 0.7, and `up` 0.5; `down` must be below `up`: else replicas are added and removed in turn
        ");
    }
}
