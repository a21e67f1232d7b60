//! Groups of instances beside the first: `--group hardware=A100-SXM,tp=1,instances=2`.

use std::fmt::{self, Display};

use blis_config::DeploymentArgs;
use blis_diag::name_hint;
use blis_sim::cluster::StartMode;

use crate::entries::entries;
use crate::spec::parse::{count, instances, instances_or_zero, parallelism};
use crate::spec::{KEYS, NamedChoice as _, RoleName};
use crate::startup::{StartupSettings, start_mode, start_mode_text, start_times, start_times_text};

/// Instances that differ from the first group in what is set here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupSettings {
    /// Model, as of `--model`.
    pub model: Option<String>,
    /// GPU, as of `--hardware`.
    pub hardware: Option<String>,
    /// Tensor parallelism: GPUs that share each layer.
    pub tp: Option<u32>,
    /// Maximum batch size, requests.
    pub max_num_seqs: Option<u32>,
    /// Maximum tokens of a step.
    pub max_num_batched_tokens: Option<u32>,
    /// What its instances do, if prefill is apart from decode.
    pub role: Option<RoleName>,
    /// Size of a KV block, tokens: that of `--block-size-in-tokens`.
    pub block_size: Option<u32>,
    /// Instances at the start, ≥ 1: by default the fewest replicas.
    pub instances: u32,
    /// Fewest replicas, with an autoscaler.
    pub min: Option<u32>,
    /// Most replicas, with an autoscaler.
    pub max: Option<u32>,
    /// How long a replica takes to start, with an autoscaler.
    pub startup_time: Option<StartupSettings>,
    /// What is ready before a replica starts, with an autoscaler.
    pub start_mode: Option<StartMode>,
}

impl GroupSettings {
    /// Its deployment, where `base` is that of the first group. Another model or GPU has its own size and parallelism.
    #[must_use]
    pub fn deployment(&self, base: &DeploymentArgs) -> DeploymentArgs {
        let mut args = base.clone();
        if self.model.is_some() || self.hardware.is_some() {
            args.tensor_parallel_size = None;
            args.pipeline_parallel_size = None;
            args.total_kv_blocks = None;
        }
        args.model = self.model.clone().unwrap_or(args.model);
        args.hardware = self.hardware.clone().or(args.hardware);
        args.tensor_parallel_size = self.tp.or(args.tensor_parallel_size);
        args.batch.max_num_seqs = self.max_num_seqs.or(args.batch.max_num_seqs);
        args.batch.max_num_batched_tokens = self.max_num_batched_tokens.or(args.batch.max_num_batched_tokens);
        args
    }
}

/// A group of instances: `hardware=A100-SXM,tp=1,instances=2`.
pub(crate) fn group(text: &str) -> Result<GroupSettings, String> {
    let mut group = GroupSettings::default();
    entries(text, "a setting of the group and its value, like hardware=A100-SXM", |name, value| {
        set_group(&mut group, name, value)
    })?;
    if group.instances == 0 {
        group.instances = group.min.unwrap_or_default().max(1);
    }
    Ok(group)
}

/// Sets `name` of `group`.
///
/// # Errors
/// What the value must be, or which settings there are.
pub(crate) fn set_group(group: &mut GroupSettings, name: &str, value: &str) -> Result<(), String> {
    let message = |message: String| format!("`{name}` {message}");
    match name {
        "model" => group.model = Some(value.to_owned()),
        "hardware" => group.hardware = Some(value.to_owned()),
        "tp" => group.tp = Some(parallelism(value).map_err(message)?),
        "max-num-seqs" => group.max_num_seqs = Some(count(value).map_err(message)?),
        "max-num-batched-tokens" => group.max_num_batched_tokens = Some(count(value).map_err(message)?),
        "role" => group.role = Some(RoleName::read(value).map_err(message)?),
        "block-size" => group.block_size = Some(count(value).map_err(message)?),
        "instances" => group.instances = instances(value).map_err(message)?,
        "min" => group.min = Some(instances_or_zero(value).map_err(message)?),
        "max" => group.max = Some(instances(value).map_err(message)?),
        "startup-time" => {
            let phases = value.strip_prefix('(').and_then(|value| value.strip_suffix(')')).unwrap_or(value);
            group.startup_time = Some(start_times(phases).map_err(|message| format!("`startup-time`: {message}"))?);
        }
        "start-mode" => group.start_mode = Some(start_mode(value).map_err(message)?),
        _ => {
            let known: Vec<&str> = KEYS.iter().map(|key| key.in_group).filter(|known| !known.is_empty()).collect();
            return Err(format!("there is no setting `{name}` of a group: {}", name_hint(name, &known)));
        }
    }
    Ok(())
}

/// As the flag has it.
impl Display for GroupSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instances={}", self.instances)?;
        for (name, text) in [("model", &self.model), ("hardware", &self.hardware)] {
            text.iter().try_for_each(|text| write!(f, ",{name}={text}"))?;
        }
        let numbers = [
            ("tp", self.tp),
            ("max-num-seqs", self.max_num_seqs),
            ("max-num-batched-tokens", self.max_num_batched_tokens),
            ("block-size", self.block_size),
            ("min", self.min),
            ("max", self.max),
        ];
        for (name, number) in numbers {
            number.iter().try_for_each(|number| write!(f, ",{name}={number}"))?;
        }
        self.role.iter().try_for_each(|role| write!(f, ",role={role}"))?;
        self.startup_time.iter().try_for_each(|times| write!(f, ",startup-time=({})", start_times_text(times)))?;
        self.start_mode.iter().try_for_each(|mode| write!(f, ",start-mode={}", start_mode_text(mode)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_back() {
        for text in [
            "hardware=A100-SXM,tp=1,instances=2",
            "model=qwen/qwen3-14b",
            "min=0,max=4,max-num-seqs=64",
            "tp=2",
            "startup-time=100s,start-mode=hot:2",
            "startup-time=(weights-bandwidth=3GB/s,compile=gaussian(35s,5s)),tp=4",
        ] {
            let parsed = group(text).expect(text);
            assert_eq!(group(&parsed.to_string()), Ok(parsed), "{text}");
        }
        for text in [
            "",
            "hardware",
            "hardware=",
            "tp=0",
            "gpu=H100",
            "tp=1,tp=2",
            "instances=0",
            "startup-time=(compile=1s",
            "startup-time=9",
        ] {
            assert!(group(text).is_err(), "{text}");
        }
    }
}
