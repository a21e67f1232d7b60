//! LoRA adapters of an experiment: from its settings to the adapters of a deployment and the costs of those that requests name.

use std::sync::Arc;

use blis_config::Deployment;
use blis_config::adapters::AdapterArgs;
use blis_sim::adapters::AdapterSettings;
use blis_workload::Names;

use crate::error::RunError;
use crate::spec::{ExperimentSpec, ParityName};

/// The adapters that `spec` describes; `None` if they are off.
///
/// # Errors
/// If a setting has no effect, or the file of `--lora-config` is invalid.
pub(crate) fn adapters(spec: &ExperimentSpec) -> Result<Option<AdapterArgs>, RunError> {
    let as_in_blis = spec.parity() == ParityName::Blis;
    let on = spec.enable_lora.unwrap_or(spec.lora_config.is_some());
    if !on {
        return Ok(None);
    }
    let file = spec.lora_config.as_deref().map(AdapterArgs::load).transpose().map_err(RunError::refused)?;
    let file = file.unwrap_or_default();
    Ok(Some(AdapterArgs {
        slots: spec.max_loras.or(file.slots),
        host_slots: spec.max_cpu_loras.or(file.host_slots),
        max_rank: spec.max_lora_rank.or(file.max_rank),
        load_base_us: spec.lora_load_base_latency_us.or(file.load_base_us),
        load_bandwidth: spec.lora_load_bandwidth_bytes_us.or(file.load_bandwidth),
        footprint: spec.lora_footprint_bytes_per_rank.or(file.footprint),
        as_in_blis,
        ..file
    }))
}

/// The adapters that the instances of `deployment` may load: those that the requests of a workload with the names `names` ask
/// for.
///
/// # Errors
/// If one of them is not declared, or belongs to another model.
pub(crate) fn settings(
    deployment: &Deployment,
    model: &str,
    names: &Names,
) -> Result<Option<Arc<AdapterSettings>>, RunError> {
    let Some(adapters) = &deployment.adapters else { return Ok(None) };
    let used = names.adapters().map(|(adapter, model)| (adapter, names.text(adapter), names.text(model)));
    let settings = adapters.settings(used, &[model, &deployment.model]).map_err(RunError::refused)?;
    Ok(Some(Arc::new(settings)))
}

/// A note if requests name adapters and these are off.
pub(crate) fn unserved(is_on: bool, names: &Names) -> Option<String> {
    let (first, _) = names.adapters().next().filter(|_| !is_on)?;
    let name = names.text(first);
    Some(format!("requests name LoRA adapters, such as `{name}`; the base model serves them without `--enable-lora`"))
}
