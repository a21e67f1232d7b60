//! Autoscaling of an experiment: from settings to replicas that come and go.

use blis_config::Deployment;
use blis_config::policy::{ParameterInput, ScalingRow, ScalingUse, SettingSource, Sourced};
use blis_plugin::Kind;
use blis_sim::cluster::{DrainChoice, ReplicaGroup, ReplicaSettings, ScalingLoop, StartMode, StartTimes};
use blis_sim::instance::InstanceConfig;
use blis_sim::request::Name;
use blis_sim::scaling::{Behaviour, ReplicaLimits, ScalingPolicy};
use blis_sim::units::Micros;

use crate::error::RunError;
use crate::spec::{DrainName, ExperimentSpec, ParityName, PolicyParam, defaults};

/// The settings of autoscaling, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingSettings {
    /// The policy that is built in; `None` if a plugin decides (`PolicySettings`).
    pub built_in: Option<ScalingUse>,
    /// Fewest replicas.
    pub min: u32,
    /// Most replicas.
    pub max: u32,
    /// Time between two measurements of the signals.
    pub scrape: Micros,
    /// Time between two decisions.
    pub sync: Micros,
    /// How fast replicas are added, removed, and when a service goes to zero: the policy's own rules where no setting
    /// says otherwise.
    pub behaviour: Behaviour,
    pub start: StartTimes,
    pub mode: StartMode,
    pub drain: DrainName,
}

/// The settings that have no effect without an autoscaler.
const NEEDS_AUTOSCALER: [&str; 10] = [
    "min-replicas",
    "max-replicas",
    "scrape-interval",
    "scaling-interval",
    "scale-up",
    "scale-down",
    "cooldown-period",
    "startup-time",
    "start-mode",
    "drain-policy",
];

impl ScalingSettings {
    /// The settings of `spec`; `None` without an autoscaler. `refuse` makes the error about a setting, where it is set.
    ///
    /// # Errors
    /// A setting without effect, or one that contradicts another.
    pub(crate) fn new(
        spec: &ExperimentSpec,
        refuse: impl Fn(&str, &str, &str) -> RunError,
    ) -> Result<Option<Self>, RunError> {
        let Some(name) = &spec.autoscaler else {
            if let Some(name) = NEEDS_AUTOSCALER.into_iter().find(|name| spec.has(name)) {
                return Err(refuse(name, "needs `--autoscaler`", "set both, or neither"));
            }
            if let Some((name, _)) = parameters(spec).first() {
                let what = format!("`scaling.{name}` needs `--autoscaler`");
                return Err(RunError::usage(what).hint("set both, or neither"));
            }
            return Ok(None);
        };
        if spec.parity == Some(ParityName::Blis) {
            let hint = "BLIS's own loop scales to zero and never recovers; leave out one of them";
            return Err(refuse("autoscaler", "cannot be used with `--parity blis`", hint));
        }
        let built_in = ScalingRow::find(name)
            .map(|_| ScalingUse::choose(&sourced(spec, "autoscaler", name.clone()), &parameters(spec)))
            .transpose()
            .map_err(RunError::refused)?;
        let min = spec.min_replicas.unwrap_or(defaults::MIN_REPLICAS);
        let max = spec.max_replicas.unwrap_or(defaults::MAX_REPLICAS.max(min));
        if min > max {
            let what = format!("is {min}, but `--max-replicas` {max}");
            return Err(refuse("min-replicas", &what, "raise the largest number, or lower the smallest"));
        }
        if let Some(first) = spec.num_instances.filter(|first| !(min..=max).contains(first)) {
            let what = format!("is {first}, but the autoscaler keeps {min} to {max} replicas");
            let hint = "it is the number at the start: choose one within `--min-replicas` and `--max-replicas`";
            return Err(refuse("num-instances", &what, hint));
        }
        if min == 0 && spec.flow_control != Some(true) {
            let hint = "requests that find no replica wait in the gateway's queue; without it they are rejected";
            return Err(refuse("min-replicas", "is 0 and needs `--flow-control`", hint));
        }
        let own = built_in.as_ref().map_or_else(Behaviour::kubernetes, |used| used.build(Vec::new).behaviour());
        Ok(Some(Self {
            behaviour: Behaviour {
                up: spec.scale_up.clone().unwrap_or(own.up),
                down: spec.scale_down.clone().unwrap_or(own.down),
                cooldown: spec.cooldown_period.unwrap_or(own.cooldown),
            },
            built_in,
            min,
            max,
            scrape: spec.scrape_interval.unwrap_or(defaults::SCRAPE_INTERVAL),
            sync: spec.scaling_interval.unwrap_or(defaults::SCALING_INTERVAL),
            start: spec.startup_time.unwrap_or_default(),
            mode: spec.start_mode.unwrap_or(StartMode::Cold),
            drain: spec.drain_policy.unwrap_or(DrainName::Newest),
        }))
    }

    /// The replicas of a service of which each is like `instance` on `deployment`, `initial` of them at the start, for
    /// requests to the models `serves`; `price` is that of a GPU, dollars per hour.
    pub(crate) fn build(
        &self,
        instance: InstanceConfig,
        deployment: &Deployment,
        serves: Vec<Name>,
        initial: u32,
        price: Option<f64>,
        policy: Box<dyn ScalingPolicy>,
    ) -> ReplicaSettings {
        ReplicaSettings {
            groups: vec![ReplicaGroup {
                instance,
                serves,
                initial,
                limits: ReplicaLimits { min: self.min, max: self.max },
                gpus: deployment.gpus(),
                pools: Vec::new(),
                price,
                start: self.start,
                mode: self.mode,
                drain: match self.drain {
                    DrainName::Newest => DrainChoice::Newest,
                    DrainName::Emptiest => DrainChoice::Emptiest,
                },
            }],
            pools: Vec::new(),
            scheduled: Vec::new(),
            scaling: Some(ScalingLoop {
                policy,
                sync: self.sync,
                scrape: self.scrape,
                behaviour: Some(self.behaviour.clone()),
            }),
        }
    }
}

/// The parameters of the autoscaler that are set.
fn parameters(spec: &ExperimentSpec) -> Vec<(String, Sourced<ParameterInput>)> {
    let all = spec.policy_param.iter().flatten().enumerate();
    let own = all.filter(|(_, param)| param.kind == Kind::Scaling);
    own.map(|(index, PolicyParam { name, value, .. })| {
        let flag = SettingSource::Flag("--policy-param".into());
        let source = spec.item_source("policy-param", index, flag);
        (name.clone(), Sourced { value: value.clone(), source })
    })
    .collect()
}

fn sourced<T>(spec: &ExperimentSpec, name: &str, value: T) -> Sourced<T> {
    Sourced { value, source: spec.source(name, SettingSource::Flag(format!("--{name}").into())) }
}
