//! Errors of building a latency model.

use thiserror::Error;

use crate::model::ModelConfig;

/// A latency model does not fit its coefficients, its model or its GPUs.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{}\nhint: {}", self.what(), self.hint())]
pub enum LatencyError {
    /// The number of coefficients is wrong.
    CoefficientCount {
        /// Name of the latency model.
        model: &'static str,
        /// The list of coefficients: `alpha` or `beta`.
        name: &'static str,
        /// Number of coefficients that the model takes.
        expected: &'static str,
        /// Number of coefficients that were given.
        actual: usize,
    },
    /// A coefficient is negative, infinite or not a number.
    CoefficientValue {
        /// The list of coefficients: `alpha` or `beta`.
        name: &'static str,
        /// Index of the coefficient, from 0.
        index: usize,
        /// The invalid value of the coefficient.
        value: f64,
    },
    /// A number of the model, the GPU or the deployment is zero, although it may not be.
    Missing {
        /// Its name in `config.json`, in the hardware file, or among the options.
        field: &'static str,
    },
    /// Heads cannot be split evenly over the GPUs.
    HeadsNotDivisible {
        /// The kind of heads: `attention` or `KV`.
        kind: &'static str,
        /// Number of heads of the model.
        heads: u32,
        /// Tensor-parallel degree (number of GPUs).
        tensor: u32,
    },
    /// A token visits no expert, or more experts than there are.
    ExpertsPerToken {
        /// Number of experts per token in the config.
        experts_per_token: u32,
        /// Number of routed experts in a layer.
        experts: u32,
    },
    /// A mixture of experts of unknown size.
    ExpertCountUnknown,
    /// Data parallelism with a model without experts, or with a formula that does not cover it.
    DataParallel {
        /// Data-parallel degree (number of ranks).
        data: u32,
    },
    /// More pipeline stages than layers, or none.
    PipelineStages {
        /// Number of pipeline stages.
        stages: u32,
        /// Number of layers of the model.
        layers: u32,
    },
    /// The GPU's attainable share of peak is unknown.
    MfuUnknown,
}

impl LatencyError {
    /// The message without its hint.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::CoefficientCount { model, name, expected, actual } => {
                format!("{model} takes {expected} {name} coefficients, not {actual}")
            }
            Self::CoefficientValue { name, index, value } => format!("{name}[{index}] is {value}"),
            Self::Missing { field } => format!("`{field}` is missing or zero"),
            Self::HeadsNotDivisible { kind, heads, tensor } => {
                format!("{heads} {kind} heads cannot be split over tensor parallel size {tensor}")
            }
            Self::ExpertsPerToken { experts_per_token, experts } => {
                format!("`num_experts_per_tok` is {experts_per_token}, and the model has {experts} experts")
            }
            Self::ExpertCountUnknown => {
                "the config describes a mixture of experts, but not how many experts it has".into()
            }
            Self::DataParallel { data } => format!(
                "data parallel size {data} needs a mixture-of-experts model and the physics or trained-physics latency \
                 model"
            ),
            Self::PipelineStages { stages, layers } => {
                format!("{layers} layers cannot be divided over {stages} pipeline stages")
            }
            Self::MfuUnknown => "roofline needs `mfu_prefill` and `mfu_decode`".into(),
        }
    }

    /// The hint: what to change.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::CoefficientCount { name, .. } => format!("set as many with `--{name}-coeffs`"),
            Self::CoefficientValue { .. } => "coefficients are finite and not negative".into(),
            Self::Missing { .. } => "correct the file or the flag that sets it".into(),
            Self::HeadsNotDivisible { heads, .. } => {
                format!("choose a `--tensor-parallel-size` that divides {heads}")
            }
            Self::ExpertsPerToken { experts, .. } => format!("correct the config: from 1 to {experts}"),
            Self::ExpertCountUnknown => "add `num_experts` to the config".into(),
            Self::DataParallel { data } => {
                format!("drop `--data-parallel-size`: {data} replicas of a dense model are `--num-instances {data}`")
            }
            Self::PipelineStages { layers, .. } => {
                format!("choose a `--pipeline-parallel-size` from 1 to {layers}")
            }
            Self::MfuUnknown => "add them to the hardware file, each in (0, 1]".into(),
        }
    }
}

/// Checks that coefficients are finite and at least 0.
pub(super) fn check_coefficients(name: &'static str, values: &[f64]) -> Result<(), LatencyError> {
    match values.iter().position(|value| !(value.is_finite() && *value >= 0.0)) {
        None => Ok(()),
        Some(index) => Err(LatencyError::CoefficientValue { name, index, value: values[index] }),
    }
}

/// Checks that numbers by which formulas divide or multiply are above 0.
pub(super) fn check_nonzero(fields: &[(&'static str, f64)]) -> Result<(), LatencyError> {
    match fields.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
        None => Ok(()),
        Some(&(field, _)) => Err(LatencyError::Missing { field }),
    }
}

/// Checks the numbers of the architecture that every formula uses.
pub(super) fn check_model(model: &ModelConfig) -> Result<(), LatencyError> {
    check_nonzero(&[
        ("num_hidden_layers", f64::from(model.num_hidden_layers)),
        ("hidden_size", f64::from(model.hidden_size)),
        ("num_attention_heads", f64::from(model.num_attention_heads)),
        ("num_key_value_heads", f64::from(model.num_key_value_heads)),
        ("intermediate_size", f64::from(model.intermediate_size)),
        ("torch_dtype", model.dtype_bytes),
        ("weight bytes", model.weight_bytes),
    ])?;
    if model.moe_without_expert_count { Err(LatencyError::ExpertCountUnknown) } else { Ok(()) }
}
