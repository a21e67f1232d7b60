//! What a comparison is about: the difference of interest, the primary figures, how often it is looked at.

use blis_stats::{MOST_LOOKS, level_of_look, widening};
use serde::Serialize;

use crate::error::RunError;
use crate::figures::Figure;

/// The first row with `--fitness-weights`.
pub(crate) const FITNESS: &str = "fitness";
/// The figures that a conclusion is about, without a fitness.
const PRIMARY: [Figure; 4] = [Figure::MeanTtft, Figure::P99Ttft, Figure::MeanE2e, Figure::Throughput];

/// What a comparison is about.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonRules {
    /// A difference of interest, as a share of the figure of the baseline: ≥ 0.
    pub margin: f64,
    /// The figures that the conclusion is about; empty for the fitness, or without one for [`PRIMARY`].
    primary: Vec<&'static str>,
    /// How often results are looked at before more seeds are run: 1 to 5.
    pub looks: usize,
}

impl Default for ComparisonRules {
    fn default() -> Self {
        Self { margin: 0.01, primary: Vec::new(), looks: 1 }
    }
}

impl ComparisonRules {
    /// `primary`: the figures that the conclusion is about; none for the usual ones. `until_decided`: seeds double until it is decided.
    ///
    /// # Errors
    /// If there is no such figure.
    pub fn new(margin: f64, primary: &[String], until_decided: bool) -> Result<Self, RunError> {
        let key = |name: &String| match name.as_str() {
            FITNESS => Ok(FITNESS),
            name => Figure::named(name).map(Figure::key).ok_or_else(|| {
                RunError::usage(format_args!("`--primary {name}`: there is no such figure"))
                    .hint("name figures of `blis compare --output json`, as p99_ttft or ttft_p99, or fitness")
            }),
        };
        let primary = primary.iter().map(key).collect::<Result<_, RunError>>()?;
        Ok(Self { margin, primary, looks: if until_decided { MOST_LOOKS } else { 1 } })
    }

    /// Whether the conclusion is about the figure `key`.
    pub(crate) fn is_primary(&self, key: &str, has_fitness: bool) -> bool {
        match (&self.primary[..], has_fitness) {
            ([], true) => key == FITNESS,
            ([], false) => PRIMARY.iter().any(|figure| figure.key() == key),
            (chosen, _) => chosen.contains(&key),
        }
    }

    /// The probability below which a difference is clear at one of the looks.
    pub(crate) fn level(&self) -> f64 {
        level_of_look(self.looks)
    }

    /// By which factor intervals become wider because they are looked at several times.
    pub(crate) fn widening(&self) -> f64 {
        widening(self.looks)
    }
}

/// Whether a difference of deployments keeps its sign if the latency model errs as it did elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSign {
    /// The name of the deployment.
    pub candidate: String,
    /// The primary figure that is clear without errors of the model.
    pub figure: &'static str,
    /// Equally likely errors of the times of prefill and decode, at the same quantile for both deployments. Unit: draws.
    pub draws: u64,
    /// Draws in which the difference has the same sign. Unit: draws.
    pub same_sign: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_both_spellings_and_unknown_ones_are_refused() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chosen = ComparisonRules::new(0.02, &names(&["ttft_p99", "p99_e2e"]), false).expect("figures");
        assert!(chosen.is_primary("p99_ttft", true) && chosen.is_primary("p99_e2e", false));
        assert!(!chosen.is_primary("mean_ttft", false) && !chosen.is_primary(FITNESS, true));
        let refused = ComparisonRules::new(0.02, &names(&["speed"]), false).expect_err("no figure").text();
        assert!(refused.contains("`--primary speed`") && refused.contains("p99_ttft"), "{refused}");
    }

    #[test]
    fn several_looks_need_more_than_one() {
        let one = ComparisonRules::default();
        let many = ComparisonRules::new(0.01, &[], true).expect("no figures");
        assert!((one.level() - 0.05).abs() < 1e-9 && (one.widening() - 1.0).abs() < 1e-12);
        assert!(many.level() < 0.02 && many.widening() > 1.2, "{} {}", many.level(), many.widening());
    }
}
