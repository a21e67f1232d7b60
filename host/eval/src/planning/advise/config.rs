//! What is recommended for: checked settings.

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::planning::variation::Variation;
use crate::planning::{PlanConfig, Slo, end_of_runs};
use crate::spec::{ExperimentSpec, SettingKey};

use super::budget::{Budget, Weights};
use super::space::{self, Space};

/// What `blis advise` searches, with checked settings.
pub struct AdviseConfig {
    pub(super) space: Space,
    /// The first design, for the requests of its block size and for the rules of runs.
    pub(super) plan: PlanConfig,
    pub(super) budget: Budget,
    /// Share of the draws of the model's error that may fail.
    pub(super) risk: f64,
    /// Whether all deployments are listed.
    pub(super) all: bool,
    pub(super) slos: Vec<Slo>,
    pub(super) threads: usize,
}

/// What beside the settings of a deployment says what is searched.
#[derive(Clone, Debug)]
pub struct AdviseOptions {
    pub budget: Budget,
    /// Formats of weights beside those that are published.
    pub weights: Vec<Weights>,
    /// Values that replace those of an axis, or add one.
    pub variations: Vec<Variation>,
    /// Share of the draws of the model's error that may fail, 0 to 1.
    pub risk: f64,
    /// Whether all deployments are listed, not only the best of each kind.
    pub all: bool,
    /// Seeds of the search, counted from that of the settings.
    pub seeds: u32,
    /// Number of threads; 0 for one per core.
    pub threads: usize,
}

impl AdviseConfig {
    /// The service of the first deployment.
    #[must_use]
    pub fn base(&self) -> &Experiment {
        &self.plan.base
    }

    /// The seeds of the search.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        self.plan.seeds()
    }

    /// `spec`: the workload, and the settings that all deployments have; several models, GPUs and routing policies are separated by commas.
    ///
    /// # Errors
    /// If a setting is invalid, or no deployment is possible.
    pub fn new(spec: &ExperimentSpec, slos: &[Slo], options: &AdviseOptions) -> Result<Self, RunError> {
        if spec.num_instances.is_some() && crate::disaggregation::has_roles(spec) {
            let what = "`--num-instances` cannot be used with numbers of instances by role";
            return Err(RunError::usage(what).hint("leave out one of them"));
        }
        // Users need an end, which the length of the runs replaces.
        let mut with_end = spec.clone();
        let has_end = end_of_runs(&mut with_end);
        let space = Space::new(&with_end, options.budget, &options.weights, &options.variations)?;
        let first = space.designs.first().ok_or_else(|| space::without_designs(&space))?;
        let mut with_first = first.spec.clone();
        with_first.unset(SettingKey::named("num-instances"));
        if !has_end {
            with_first.unset(SettingKey::named("num-requests"));
        }
        let plan = PlanConfig::new(with_first, slos, options.seeds, options.threads)?;
        plan.check_equal_replicas("advise")?;
        if matches!(options.budget, Budget::UsdPerHour(_)) && plan.base.prices.is_none() {
            return Err(RunError::usage("`--budget` needs prices of GPUs")
                .hint("add `--prices FILE`, as examples/autoscaling/prices.yaml; or limit GPUs: `--max-gpus 8`"));
        }
        Ok(Self {
            plan,
            space,
            budget: options.budget,
            risk: options.risk,
            all: options.all,
            slos: slos.to_vec(),
            threads: options.threads,
        })
    }

    /// The experiment of each design that is tried, behind its settings in words.
    pub fn experiments(&self) -> impl Iterator<Item = (String, &Experiment)> {
        self.space
            .designs
            .iter()
            .map(|design| (crate::planning::variation::in_words(&design.settings), &design.service))
    }
}
