//! The settings of autoscaling and of groups.

use blis_config::policy::{ParameterInput, ScalingRow, ScalingUse, SettingSource, Sourced};
use blis_plugin::Kind;
use blis_sim::cluster::{ScalingLoop, StartMode, StartTimes};
use blis_sim::scaling::{Behaviour, ReplicaLimits, ScalingPolicy};
use blis_sim::units::Micros;

use crate::error::RunError;
use crate::group::GroupSettings;
use crate::spec::{DrainName, ExperimentSpec, ParityName, PolicyParam, RegretName, TraceLevelName, defaults};

/// The settings of autoscaling, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingSettings {
    /// The policy that is built in; `None` if a plugin decides (`PolicySettings`).
    pub built_in: Option<ScalingUse>,
    /// Fewest replicas, unless a group has its own limit.
    pub min: u32,
    /// Most replicas, unless a group has its own limit.
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
        check_recording(spec, "autoscaler", "--autoscaler", &refuse)?;
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

    /// The loop in which `policy` sets the numbers of replicas.
    pub(crate) fn control(&self, policy: Box<dyn ScalingPolicy>) -> ScalingLoop {
        ScalingLoop { policy, sync: self.sync, scrape: self.scrape, behaviour: Some(self.behaviour.clone()) }
    }
}

/// The limits of a group, of which `own` are the settings unless it is the first; without an autoscaler the `initial` number.
pub(crate) fn limits(settings: Option<&ScalingSettings>, own: Option<&GroupSettings>, initial: u32) -> ReplicaLimits {
    let Some(settings) = settings else { return ReplicaLimits { min: initial, max: initial } };
    ReplicaLimits {
        min: own.and_then(|group| group.min).unwrap_or(settings.min),
        max: own.and_then(|group| group.max).unwrap_or(settings.max),
    }
}

/// Refuses groups that contradict other settings. `refuse` makes the error about a setting, where it is set.
///
/// # Errors
/// The first contradiction.
pub(crate) fn check_groups(
    spec: &ExperimentSpec,
    scaling: Option<&ScalingSettings>,
    refuse: impl Fn(&str, &str, &str) -> RunError,
) -> Result<(), RunError> {
    let groups = spec.group.iter().flatten();
    if groups.clone().next().is_none() {
        return Ok(());
    }
    if spec.parity == Some(ParityName::Blis) {
        return Err(refuse("group", "cannot be used with `--parity blis`", "leave out one of them"));
    }
    check_recording(spec, "group", "--group", &refuse)?;
    for group in groups {
        let wrong = |what: String, hint: &str| Err(RunError::usage(format!("`--group {group}`: {what}")).hint(hint));
        if scaling.is_none() && (group.min.is_some() || group.max.is_some()) {
            return wrong("`min` and `max` need `--autoscaler`".to_owned(), "set both, or neither");
        }
        let ReplicaLimits { min, max } = limits(scaling, Some(group), group.instances);
        if !(min..=max).contains(&group.instances) {
            let what = format!("{} instances are not within {min} to {max} replicas", group.instances);
            return wrong(what, "it is the number at the start: change `instances`, `min` or `max`");
        }
        if min == 0 && spec.flow_control != Some(true) {
            let hint = "requests that find no replica wait in the gateway's queue; without it they are rejected";
            return wrong("`min=0` needs `--flow-control`".to_owned(), hint);
        }
    }
    Ok(())
}

/// Refuses `setting`, a flag called `flag`, with what assumes one group of a fixed number of instances.
fn check_recording(
    spec: &ExperimentSpec,
    setting: &str,
    flag: &str,
    refuse: &impl Fn(&str, &str, &str) -> RunError,
) -> Result<(), RunError> {
    if spec.trace_level.is_some_and(|level| level != TraceLevelName::None) {
        let hint = "a decision trace has a fixed number of equal instances; leave out one of them";
        return Err(refuse("trace-level", &format!("cannot be used with `{flag}`"), hint));
    }
    if spec.regret.is_some_and(|regret| regret != RegretName::None) {
        let hint = "branches compare runs with the same instances; leave out one of them";
        return Err(refuse(setting, "cannot be used with counterfactual regret", hint));
    }
    Ok(())
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
