//! The coefficients of the built-in latency models as parameters: `--policy-param latency.NAME=VALUE` replaces one of
//! them after the deployment's coefficients are known.

use std::sync::LazyLock;

use blis_plugin::PolicyParameter;

use super::coefficients::{BlackboxRow, Presets, TrainedDefaults, blackbox_rows};
use super::error::ConfigError;
use super::latency_kind::LatencyKind;
use super::physics::CoefficientFile;
use super::policy::Sourced;
use super::policy::parameter::{self, NumericParameter};
use blis_diag::Diagnostic;

/// Number of α coefficients of every latency model. The β coefficients follow them in the list of parameters.
pub(crate) const ALPHAS: usize = 3;

/// Model of the `blackbox` row that gives the listed defaults.
const LISTED_MODEL: &str = "llama-3.1-8b-instruct";

/// Name, largest value and meaning of a coefficient. The smallest value is 0.
type Coefficient = (&'static str, f64, &'static str);

/// Largest time per request or step, µs.
const LONG_US: f64 = 1e6;
/// Largest time per token or layer, µs.
const SHORT_US: f64 = 1e5;
/// Largest weight of a computed time.
const WEIGHT: f64 = 100.0;

const TRAINED_PHYSICS: [Coefficient; 14] = [
    ("arrival-us", LONG_US, "Host time per request before it is queued, µs"),
    ("completion-us", LONG_US, "Host time per request after its last token, µs"),
    ("output-token-us", SHORT_US, "Host time per output token, µs"),
    ("prefill-compute", WEIGHT, "Factor of the compute time of prefill"),
    ("decode-compute", WEIGHT, "Factor of the compute time of decode"),
    ("weight-loading", WEIGHT, "Factor of the time that loads weights from memory"),
    ("all-reduce", WEIGHT, "Factor of the tensor-parallel all-reduce time"),
    ("layer-us", SHORT_US, "Overhead per layer, µs"),
    ("request-us", SHORT_US, "Overhead per request in the running batch, µs"),
    ("step-us", LONG_US, "Overhead per step, µs"),
    ("interleaved-moe-layer-us", SHORT_US, "Overhead per MoE layer of a model that interleaves them, µs"),
    ("prefill-kv", WEIGHT, "Factor of the time that prefill writes KV"),
    ("decode-kv", WEIGHT, "Factor of the time that decode reads and writes KV"),
    ("dispatch", WEIGHT, "Factor of the token exchange between data-parallel ranks of experts"),
];

const PHYSICS: [Coefficient; 13] = [
    ("arrival-us", LONG_US, "Host time from arrival to the waiting queue, µs per request"),
    ("input-token-us", SHORT_US, "Host time per input token (tokenisation), µs"),
    ("first-token-us", LONG_US, "Host time from the end of the step of the first token to the client, µs"),
    ("gemm", WEIGHT, "Factor of matrix products; 1 is the measured curve of the GPU"),
    ("experts", WEIGHT, "Factor of routed experts"),
    ("decode-attention", WEIGHT, "Factor of attention in decode"),
    ("prefill-attention", WEIGHT, "Factor of attention in prefill"),
    ("collectives", WEIGHT, "Factor of all-reduces and of the exchange with experts"),
    ("sampling", WEIGHT, "Factor of sampling with top-k, top-p or penalties"),
    ("layer-us", SHORT_US, "Small kernels, µs per layer"),
    ("launch-us", SHORT_US, "Launching attention apart from CUDA graphs, µs per layer"),
    ("request-us", SHORT_US, "Sampling without restrictions and bookkeeping, µs per request in the running batch"),
    ("step-us", LONG_US, "Planning, input and output, µs per step"),
];

const BLACKBOX: [Coefficient; 6] = [
    ("arrival-us", LONG_US, "Host time per request before it is queued, µs"),
    ("input-token-us", SHORT_US, "Host time per input token, µs"),
    ("output-token-us", SHORT_US, "Host time per output token, µs"),
    ("step-us", LONG_US, "Step time without tokens, µs"),
    ("prefill-token-us", SHORT_US, "Step time per prefill token, µs"),
    ("decode-token-us", SHORT_US, "Step time per decode token, µs"),
];

/// The parameters of a latency model: its α coefficients, then its β coefficients. The default of `blackbox` is one
/// row of its table, that of `physics` the general fit; deployments have others.
pub(crate) fn parameters(kind: LatencyKind) -> &'static [NumericParameter] {
    static ALL: LazyLock<[Vec<NumericParameter>; 3]> = LazyLock::new(|| {
        let trained = TrainedDefaults::get();
        let physics = &CoefficientFile::embedded().general;
        let blackbox = preset_row(LISTED_MODEL).expect("every preset names a row: a test reads them");
        [
            listed(&TRAINED_PHYSICS, trained.alpha.iter().chain(&trained.beta)),
            listed(&PHYSICS, physics.alpha.to_array().iter().chain(&physics.beta.to_array())),
            listed(&BLACKBOX, blackbox.alpha.iter().chain(&blackbox.beta)),
        ]
    });
    let [trained_physics, physics, blackbox] = &*ALL;
    match kind {
        LatencyKind::TrainedPhysics => trained_physics,
        LatencyKind::Physics => physics,
        LatencyKind::Blackbox => blackbox,
        LatencyKind::Roofline => &[],
    }
}

fn listed<'a>(coefficients: &[Coefficient], defaults: impl Iterator<Item = &'a f64>) -> Vec<NumericParameter> {
    let each = coefficients.iter().zip(defaults);
    each.map(|(&(name, max, about), &default)| NumericParameter::new(name, default, 0.0..=max, about)).collect()
}

/// The `blackbox` row of a model's preset.
fn preset_row(model: &str) -> Option<&'static BlackboxRow> {
    let presets = Presets::get();
    let tensor_parallel_size = presets.tensor_parallel_size(model)?;
    blackbox_rows().iter().find(|row| {
        row.model == model
            && row.hardware == presets.hardware
            && row.tensor_parallel_size == tensor_parallel_size
            && row.vllm_version == presets.vllm_version(model)
    })
}

/// Replaces the coefficients that `values` name in those of a latency model.
///
/// # Errors
/// If a name is none of the model's parameters, or a value is out of range.
pub(crate) fn replace(
    kind: LatencyKind,
    values: &[(String, Sourced<f64>)],
    alpha: &mut [f64],
    beta: &mut [f64],
) -> Result<(), ConfigError> {
    let declared: Vec<PolicyParameter> = parameters(kind).iter().map(PolicyParameter::from).collect();
    for (name, value) in values {
        let index = parameter::find_number(kind.name(), &declared, name, value.value).map_err(|(what, hint)| {
            let diagnostic = Diagnostic::new(what).hint(hint);
            ConfigError::Parameter(match value.source.location() {
                Some(location) => diagnostic.at(location.clone()),
                None => diagnostic,
            })
        })?;
        let slot = if index < ALPHAS { alpha.get_mut(index) } else { beta.get_mut(index - ALPHAS) };
        *slot.expect("no list of coefficients is given, and the defaults are complete: a test counts them") =
            value.value;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::latency::{PhysicsAlpha, PhysicsBeta};
    use strum::VariantArray as _;

    #[test]
    fn names_follow_the_order_of_the_lists() {
        let names = |kind| parameters(kind).iter().map(|one| one.name.replace('-', "_")).collect::<Vec<_>>();
        assert_eq!(names(LatencyKind::Physics), [&PhysicsAlpha::NAMES[..], &PhysicsBeta::NAMES].concat());
        let trained = TrainedDefaults::get();
        assert_eq!(names(LatencyKind::TrainedPhysics).len(), trained.alpha.len() + trained.beta.len());
        assert_eq!((names(LatencyKind::Blackbox).len(), names(LatencyKind::Roofline).len()), (6, 0));
        for &kind in LatencyKind::VARIANTS {
            for NumericParameter { name, default, min, max, about, .. } in parameters(kind) {
                assert!(min <= default && default <= max && !about.is_empty(), "{kind}: {name}");
            }
        }
    }

    #[test]
    fn a_name_replaces_its_coefficient() {
        let all = parameters(LatencyKind::TrainedPhysics);
        for (index, parameter) in all.iter().enumerate() {
            let (mut alpha, mut beta) = (vec![0.0; ALPHAS], vec![0.0; all.len() - ALPHAS]);
            let value = [(parameter.name.to_owned(), Sourced::default_value(7.0))];
            replace(LatencyKind::TrainedPhysics, &value, &mut alpha, &mut beta).expect("it is in range");
            let found = alpha.iter().chain(&beta).position(|&value| value == 7.0);
            assert_eq!(found, Some(index), "{}", parameter.name);
        }
    }
}
