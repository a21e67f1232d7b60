//! Workloads of several clients that have a name.

use super::arrival::Shape;
use super::lengths::Bounds;
use super::{Arrival, Client, Lengths, Prefix, Spec};

/// A workload with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// One client, Gamma arrivals with a coefficient of variation of 3.5 (BLIS).
    Bursty,
    /// Nine tenths of the requests are one tenant's batch work (BLIS).
    UnfairTenants,
    /// Four fifths of the prompts start with the same 50 tokens (BLIS).
    PrefixHeavy,
    /// A third each critical, standard and batch, of different lengths (BLIS).
    MixedSlo,
    /// Answers eight times as long as prompts (inference-perf's catalogue).
    Reasoning,
    /// Very long prompts, short answers (inference-perf's catalogue).
    SummarizationRag,
    /// Short prompts, answers of 500 to 8000 tokens (inference-perf's catalogue).
    SyntheticData,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Bursty,
        Self::UnfairTenants,
        Self::PrefixHeavy,
        Self::MixedSlo,
        Self::Reasoning,
        Self::SummarizationRag,
        Self::SyntheticData,
    ];

    /// As written on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bursty => "bursty",
            Self::UnfairTenants => "unfair-tenants",
            Self::PrefixHeavy => "prefix-heavy",
            Self::MixedSlo => "mixed-slo",
            Self::Reasoning => "reasoning",
            Self::SummarizationRag => "summarization-rag",
            Self::SyntheticData => "synthetic-data",
        }
    }

    /// The workload, at `rate` requests per second.
    #[must_use]
    pub fn spec(self, rate: f64) -> Spec {
        let clients = match self {
            Self::Bursty => vec![Client {
                arrival: Arrival::Gamma(Shape::Cv(3.5)),
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
            // The catalogue gives means and standard deviations; lognormal, as it has lengths elsewhere.
            Self::Reasoning => vec![Client::new(self.name(), 1.0, lognormal(1000.0, 800.0), lognormal(8000.0, 6500.0))],
            Self::SummarizationRag => {
                vec![Client::new(self.name(), 1.0, lognormal(15_000.0, 22_000.0), lognormal(500.0, 300.0))]
            }
            Self::SyntheticData => {
                let answers = Lengths::Uniform(Bounds { min: 500, max: 8000 });
                vec![Client::new(self.name(), 1.0, lognormal(500.0, 1200.0), answers)]
            }
        };
        Spec { aggregate_rate: rate, clients, ..Spec::default() }
    }
}

/// Poisson arrivals, exponential lengths.
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

    use super::super::GenerateOptions;
    use super::*;

    #[test]
    fn each_sends_what_its_name_says() {
        let options = GenerateOptions {
            seed: 1,
            block_size: NonZeroU32::new(16).unwrap(),
            horizon: Micros::MAX,
            num_requests: Some(20_000),
            timeout: None,
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
}
