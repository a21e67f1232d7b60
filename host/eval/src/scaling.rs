//! The settings of autoscaling and of groups.

use blis_config::policy::{ParameterInput, PolicySettings, ScalingRow, ScalingUse, SettingSource, Sourced};
use blis_plugin::Kind;
use blis_sim::cluster::{DelayedActuation, ScalingLoop, StartMode};
use blis_sim::rng::Stream;
use blis_sim::scaling::{Behaviour, ReplicaLimits, ScalingPolicy};
use blis_sim::units::Micros;

use crate::error::RunError;
use crate::group::GroupSettings;
use crate::spec::{ExperimentSpec, ParityName, PolicyParam};
use crate::startup::StartupSettings;

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
    pub start: StartupSettings,
    pub mode: StartMode,
}

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
            let mut parameters = spec.policy_param.iter().flatten();
            return match parameters.position(|parameter| parameter.kind == Kind::Scaling) {
                Some(index) => {
                    let what = "of a scaling policy needs `--autoscaler`";
                    Err(spec.misplaced_item("policy-param", index, what, "set both, or neither"))
                }
                None => Ok(None),
            };
        };
        let is_blis = spec.parity == Some(ParityName::Blis);
        check_parity(spec, name, &refuse)?;
        let built_in = ScalingRow::find(name)
            .map(|_| ScalingUse::choose(&sourced(spec, "autoscaler", name.clone()), &parameters(spec)))
            .transpose()
            .map_err(RunError::refused)?;
        // BLIS has no limits, and no phases of a start.
        let (least, most) = if is_blis { (0, u32::MAX) } else { (spec.min_replicas(), spec.max_replicas()) };
        let min = spec.min_replicas.unwrap_or(least);
        let max = spec.max_replicas.unwrap_or(most.max(min));
        if min > max {
            let what = format!("is {min}, but `--max-replicas` {max}");
            return Err(refuse("min-replicas", &what, "raise the largest number, or lower the smallest"));
        }
        if let Some(first) = spec.num_instances.filter(|first| !(min..=max).contains(first)) {
            let what = format!("is {first}, but the autoscaler keeps {min} to {max} replicas");
            let hint = "it is the number at the start: choose one within `--min-replicas` and `--max-replicas`";
            return Err(refuse("num-instances", &what, hint));
        }
        if min == 0 && !is_blis && !spec.flow_control() {
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
            scrape: spec.scrape_interval(),
            sync: spec.scaling_interval(),
            start: spec.startup_time.unwrap_or(if is_blis {
                StartupSettings::NONE
            } else {
                StartupSettings::default()
            }),
            mode: spec.start_mode(),
        }))
    }

    /// The loop in which `policy` sets the numbers of replicas.
    pub(crate) fn control(&self, policy: Box<dyn ScalingPolicy>, seed: u64) -> ScalingLoop {
        let delay = self.built_in.as_ref().and_then(ScalingUse::actuation_delay);
        ScalingLoop {
            policy,
            sync: self.sync,
            // BLIS reads the signals at the moment of its decision.
            scrape: if delay.is_some() { self.sync } else { self.scrape },
            behaviour: Some(self.behaviour.clone()),
            actuation: delay.map(|delay| DelayedActuation { delay, delays: Stream::new(seed, "actuation delays") }),
        }
    }
}

/// The name of BLIS's own loop.
const BLIS_LOOP: &str = "blis-v2";

/// Refuses BLIS's loop without `--parity blis`, others with it, and settings that it has not.
fn check_parity(
    spec: &ExperimentSpec,
    autoscaler: &str,
    refuse: &impl Fn(&str, &str, &str) -> RunError,
) -> Result<(), RunError> {
    let is_blis = spec.parity == Some(ParityName::Blis);
    match (is_blis, autoscaler == BLIS_LOOP) {
        (false, false) => return Ok(()),
        (true, false) => {
            let hint = "BLIS's own loop is `--autoscaler blis-v2`; leave out one of them";
            return Err(refuse("autoscaler", "cannot be used with `--parity blis`", hint));
        }
        (false, true) => {
            let hint = "it goes to zero without demand and never comes back; `wva-v2` is the analyzer that it copies";
            return Err(refuse("autoscaler", "is `blis-v2`, which needs `--parity blis`", hint));
        }
        (true, true) => {}
    }
    if spec.node_pool.is_none() {
        let hint =
            "BLIS starts further instances on nodes only: set `min` and `max` of a pool to the number of its nodes";
        return Err(refuse("autoscaler", "is `blis-v2`, which needs `--node-pool`", hint));
    }
    Ok(())
}

/// The limits of a group, of which `own` are the settings unless it is the first; without an autoscaler the `initial` number.
pub(crate) fn limits(settings: Option<&ScalingSettings>, own: Option<&GroupSettings>, initial: u32) -> ReplicaLimits {
    let Some(settings) = settings else { return ReplicaLimits { min: initial, max: initial } };
    ReplicaLimits {
        min: own.and_then(|group| group.min).unwrap_or(settings.min),
        max: own.and_then(|group| group.max).unwrap_or(settings.max),
    }
}

/// Refuses policies that would have no effect: a fixed number of instances has no drain and no placement. Flags are refused
/// before.
///
/// # Errors
/// The first such policy of a bundle, or parameter.
pub(crate) fn check_policies(policies: &PolicySettings, scaling: Option<&ScalingSettings>) -> Result<(), RunError> {
    let used = [Kind::Drain, Kind::Placement].into_iter().find_map(|kind| policies.used(kind));
    match used.filter(|_| scaling.is_none()) {
        Some(used) => {
            let what = format!("the {} `{}` has no effect without `--autoscaler`", used.kind.what(), used.name());
            Err(RunError::usage(what).hint("set both, or neither"))
        }
        None => Ok(()),
    }
}

/// Refuses groups that contradict other settings. `refuse` makes the error about a setting, where it is set.
///
/// # Errors
/// The first contradiction.
pub(crate) fn check_groups(spec: &ExperimentSpec, scaling: Option<&ScalingSettings>) -> Result<(), RunError> {
    let groups = spec.group.iter().flatten();
    if groups.clone().next().is_none() {
        return Ok(());
    }
    for (index, group) in groups.enumerate() {
        let wrong = |what: String, hint: &str| Err(spec.misplaced_item("group", index, &what, hint));
        let of_scaling = [
            (group.min.is_some(), "min"),
            (group.max.is_some(), "max"),
            (group.startup_time.is_some(), "startup-time"),
            (group.start_mode.is_some(), "start-mode"),
        ];
        if let Some((_, name)) = of_scaling.into_iter().find(|(is_set, _)| scaling.is_none() && *is_set) {
            return wrong(format!("has `{name}`, which needs `--autoscaler`"), "set both, or neither");
        }
        let ReplicaLimits { min, max } = limits(scaling, Some(group), group.instances);
        if !(min..=max).contains(&group.instances) {
            let what = format!("has {} instances, which are not within {min} to {max} replicas", group.instances);
            return wrong(what, "it is the number at the start: change `instances`, `min` or `max`");
        }
        if min == 0 && !spec.flow_control() {
            let hint = "requests that find no replica wait in the gateway's queue; without it they are rejected";
            return wrong("has `min=0`, which needs `--flow-control`".to_owned(), hint);
        }
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
