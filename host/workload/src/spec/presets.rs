//! Named workloads of several clients.

use blis_sim::units::Micros;

use super::arrival::IntervalShape;
use super::client::{Client, MultiTurn, Prefix, Turns};
use super::lengths::Bounds;
use super::specification::Spec;
use super::{Arrival, Empirical, Lengths};

/// A named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Preset {
    /// One client with Gamma arrivals, coefficient of variation 3.5 (BLIS).
    Bursty,
    /// Nine tenths of the requests are batch work of one tenant (BLIS).
    UnfairTenants,
    /// Four fifths of the prompts share a prefix of 50 tokens (BLIS).
    PrefixHeavy,
    /// A third of the requests each critical, standard and batch, with different lengths (BLIS).
    MixedSlo,
    /// Outputs eight times as long as inputs (inference-perf's catalogue).
    Reasoning,
    /// Very long inputs, short outputs (inference-perf's catalogue).
    SummarizationRag,
    /// Short inputs, outputs of 500 to 8000 tokens (inference-perf's catalogue).
    SyntheticData,
    /// Chats of people (inference-perf's catalogue).
    InteractiveChat,
    /// Coding agents with a whole repository as context (inference-perf's catalogue).
    CodeGeneration,
    /// Agents that search and read (inference-perf's catalogue).
    DeepResearch,
}

impl Preset {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The workload at `rate` requests per second; of conversations, at `rate` new conversations per second.
    #[must_use]
    pub fn spec(self, rate: f64) -> Spec {
        let clients = match self {
            Self::Bursty => vec![Client {
                arrival: Arrival::Gamma(IntervalShape::Cv(3.5)),
                ..client("bursty", 1.0, "tenant-A", "batch", 512.0, 256.0)
            }],
            Self::UnfairTenants => vec![
                client("batch-heavy", 0.9, "tenant-A", "batch", 1024.0, 512.0),
                Client {
                    streaming: true,
                    input: Lengths::gaussian(128.0, 50.0, 10, 2048),
                    ..client("critical-light", 0.1, "tenant-B", "critical", 1.0, 64.0)
                },
            ],
            Self::PrefixHeavy => vec![
                Client {
                    prefix: Some(Prefix { group: "system-prompt".to_owned(), tokens: 50 }),
                    ..client("with-prefix", 0.8, "tenant-A", "batch", 256.0, 128.0)
                },
                client("without-prefix", 0.2, "tenant-B", "standard", 512.0, 256.0),
            ],
            Self::MixedSlo => vec![
                Client {
                    input: Lengths::gaussian(64.0, 20.0, 10, 256),
                    ..client("critical", 0.33, "tenant-A", "critical", 1.0, 32.0)
                },
                Client {
                    input: Lengths::gaussian(256.0, 100.0, 32, 2048),
                    ..client("standard", 0.34, "tenant-B", "standard", 1.0, 128.0)
                },
                client("batch", 0.33, "tenant-C", "batch", 1024.0, 512.0),
            ],
            // The catalogue gives means and standard deviations; its other lengths are lognormal.
            Self::Reasoning => vec![Client::new(self.name(), 1.0, lognormal(1000.0, 800.0), lognormal(8000.0, 6500.0))],
            Self::SummarizationRag => {
                vec![Client::new(self.name(), 1.0, lognormal(15_000.0, 22_000.0), lognormal(500.0, 300.0))]
            }
            Self::SyntheticData => {
                let outputs = Lengths::Uniform(Bounds { min: 500, max: 8000 });
                vec![Client::new(self.name(), 1.0, lognormal(500.0, 1200.0), outputs)]
            }
            Self::InteractiveChat | Self::CodeGeneration | Self::DeepResearch => vec![self.conversations()],
        };
        Spec { aggregate_rate: rate, clients, ..Spec::default() }
    }
}

/// Means, standard deviations and bounds are those of the catalogue. Its `input_sequence_length` is in front of the
/// first prompt, as in its own configurations of `conversation_replay`; `time_between_turns` is the think time.
impl Preset {
    /// Sessions in closed loop with growing prompts.
    fn conversations(self) -> Client {
        let within = |min, max| Bounds { min, max };
        let lognormal = |mean, std_dev, min, max| Lengths::lognormal_of(mean, std_dev, within(min, max));
        let (system, input, output, rounds, think_time_ms, opening) = match self {
            Self::CodeGeneration => (
                3000,
                lognormal(1500.0, 1200.0, 100, 10_000),
                lognormal(425.0, 825.0, 50, 10_000),
                lognormal(540.0, 48_600.0, 1, 3000),
                lognormal(15_000.0, 55_000.0, 1000, 1_000_000),
                lognormal(160_000.0, 233_600.0, 10_000, 990_000),
            ),
            Self::DeepResearch => (
                2000,
                lognormal(3000.0, 2500.0, 500, 15_000),
                // "Bimodal" from 50 to 4000, 300 ± 850: two lengths, of which the shorter is the minimum, with that
                // mean and standard deviation.
                two_lengths(50, 300.0, 850.0),
                Lengths::gaussian(15.0, 8.5, 2, 50),
                Lengths::gaussian(25_000.0, 12_000.0, 5000, 60_000),
                Lengths::Exponential { mean: 45_000.0, bounds: within(2000, 150_000) },
            ),
            _ => (
                1000,
                lognormal(50.0, 40.0, 10, 1000),
                Lengths::gaussian(300.0, 150.0, 10, 1000),
                lognormal(4.0, 2.5, 1, 15),
                lognormal(45_000.0, 40_000.0, 5000, 300_000),
                lognormal(4000.0, 2500.0, 500, 15_000),
            ),
        };
        let max_rounds = match self {
            Self::CodeGeneration => 3000,
            Self::DeepResearch => 50,
            _ => 15,
        };
        Client {
            prefix: Some(Prefix { group: "system-prompt".to_owned(), tokens: system }),
            multi_turn: Some(MultiTurn {
                max_rounds,
                think_time: Micros::ZERO,
                accumulate: true,
                single_session: false,
            }),
            turns: Turns { rounds: Some(rounds), think_time_ms: Some(think_time_ms), opening: Some(opening) },
            closed_loop: true,
            ..Client::new(self.name(), 1.0, input, output)
        }
    }
}

/// A distribution of `least` and one longer length with this mean and standard deviation; the longer one has the
/// probability p with (mean − least)² (1 − p) / p = std_dev².
fn two_lengths(least: u32, mean: f64, std_dev: f64) -> Lengths {
    let above = mean - f64::from(least);
    let p = 1.0 / (1.0 + (std_dev / above) * (std_dev / above));
    let longer = f64::from(least) + (above / p).round();
    let weights = [(least, 1.0 - p), (longer as u32, p)];
    Empirical::new(weights).map_or(Lengths::Constant(least), |counted| Lengths::Empirical(counted.into()))
}

/// A client with Poisson arrivals and exponential lengths.
fn client(id: &str, share: f64, tenant: &str, class: &str, input: f64, output: f64) -> Client {
    Client {
        tenant_id: tenant.to_owned(),
        slo_class: class.to_owned(),
        ..Client::new(id, share, Lengths::exponential(input), Lengths::exponential(output))
    }
}

fn lognormal(mean: f64, std_dev: f64) -> Lengths {
    Lengths::lognormal_of(mean, std_dev, Bounds::NONE)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use blis_sim::units::Micros;

    use super::super::options::GenerateOptions;
    use super::*;

    #[test]
    fn each_sends_what_its_name_says() {
        let options = GenerateOptions {
            seed: 1,
            block_size: NonZeroU32::new(16).unwrap(),
            horizon: Micros::MAX,
            num_requests: Some(20_000),
            timeout: None,
            as_in_blis: false,
        };
        let mean = |preset: Preset, of: fn(&blis_sim::request::Request) -> f64| {
            preset.spec(10.0).generate(&options).unwrap().requests.map(|r| of(&r)).sum::<f64>() / 20_000.0
        };
        let output = |r: &blis_sim::request::Request| f64::from(r.output_tokens);
        let near =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.05, "{value}, not {expected}");
        near(mean(Preset::Bursty, output), 256.0);
        near(mean(Preset::UnfairTenants, output), 0.9 * 512.0 + 0.1 * 64.0);
        near(mean(Preset::PrefixHeavy, |r| f64::from(r.content.shared_blocks())), 0.8 * 3.0);
        near(mean(Preset::MixedSlo, output), 0.33 * 32.0 + 0.34 * 128.0 + 0.33 * 512.0);
        near(mean(Preset::Reasoning, output), 8000.0);
        near(mean(Preset::SummarizationRag, |r| f64::from(r.input_tokens)), 15_000.0);
        near(mean(Preset::SyntheticData, output), 4250.0);
    }

    /// Means as drawn; bounds cut the tails, and numbers of rounds are rounded.
    #[test]
    fn conversations_are_as_long_as_the_catalogue_says() {
        let drawn = |preset: Preset| {
            let options = GenerateOptions {
                seed: 1,
                block_size: NonZeroU32::new(16).unwrap(),
                horizon: Micros::from_secs_f64(40_000.0),
                num_requests: None,
                timeout: None,
                as_in_blis: false,
            };
            preset.spec(0.1).generate_immediate(&options).unwrap().requests.collect::<Vec<_>>()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        for (preset, opening, rounds, output, pause) in [
            (Preset::InteractiveChat, 1000.0 + 4000.0 + 50.0, 4.0, 300.0, 45.0),
            (Preset::DeepResearch, 2000.0 + 45_000.0 + 3000.0, 15.0, 300.0, 25.0),
        ] {
            let requests = drawn(preset);
            let first: Vec<f64> =
                requests.iter().filter(|r| r.tags.round_index == 0).map(|r| f64::from(r.input_tokens)).collect();
            let outputs: Vec<f64> = requests.iter().map(|r| f64::from(r.output_tokens)).collect();
            let mut last = std::collections::BTreeMap::new();
            let mut pauses = Vec::new();
            for request in &requests {
                if let Some(before) = last.insert(request.tags.session, request.arrival) {
                    pauses.push((request.arrival - before).as_secs_f64());
                }
            }
            let per_session = requests.len() as f64 / first.len() as f64;
            for (what, value, expected) in [
                ("opening", mean(&first), opening),
                ("rounds", per_session, rounds),
                ("output", mean(&outputs), output),
                ("pause", mean(&pauses), pause),
            ] {
                assert!((value / expected - 1.0).abs() < 0.06, "{} {what}: {value}, not {expected}", preset.name());
            }
        }
        let code = drawn(Preset::CodeGeneration);
        assert!(code.iter().any(|request| request.input_tokens > 500_000), "whole repositories");
    }
}
