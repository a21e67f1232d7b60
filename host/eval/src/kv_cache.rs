//! The policy of the CPU tier of an experiment, and of its room for LoRA adapters.

use blis_config::policy::{PolicySettings, TierPolicy};
use blis_plugin::Kind;
use blis_sim::instance::InstanceConfig;
use blis_sim::policy::kv_cache::KvCacheChoice;

use crate::error::RunError;
use crate::spec::{ExperimentSpec, ParityName};

/// The policy that ranks nothing.
const ARC: &str = "arc";

/// The setting that has vLLM's name for two of the policies.
const EVICTION: &str = "kv-offloading-eviction-policy";

/// Gives `instance` the built-in policy of `policies`, if one was chosen.
pub(crate) fn attach_built_in(instance: &mut InstanceConfig, policies: &PolicySettings) {
    let has_any = instance.offload.is_some() || instance.adapters.is_some();
    match (policies.kv_cache(), &mut instance.offload) {
        (Some(TierPolicy::Own(eviction)), Some(tier)) => tier.eviction = eviction,
        (Some(TierPolicy::Ranking(policy)), _) if has_any => instance.policies.kv_cache = KvCacheChoice::Custom(policy),
        _ => {}
    }
}

/// Refuses a policy of KV tiers without a tier or adapters, and one that contradicts vLLM's name for it.
///
/// # Errors
/// The first contradiction.
pub(crate) fn check(policies: &PolicySettings, spec: &ExperimentSpec) -> Result<(), RunError> {
    let Some(used) = policies.used(Kind::KvCache) else { return Ok(()) };
    let name = used.name();
    let has_adapters = spec.enable_lora.unwrap_or(spec.lora_config.is_some());
    // Adaptive replacement is a part of the CPU tier, and BLIS's slots have their own order.
    let ranks_adapters = has_adapters && name != ARC && spec.parity() != ParityName::Blis;
    let has_tier = spec.kv_offloading_size.is_some_and(|size| size > 0.0);
    if !has_tier && !ranks_adapters {
        let what = format!("the {} `{name}` has no effect without `--kv-offloading-size`", used.kind.what());
        let hint = match has_adapters {
            true => "give the CPU tier a size, in GiB, or leave it out: it ranks no adapters",
            false => "give the CPU tier a size, in GiB, or turn on adapters (`--enable-lora`), or leave it out",
        };
        return Err(RunError::usage(what).hint(hint));
    }
    let eviction = spec.kv_offloading_eviction_policy.map(|name| name.to_string());
    match eviction.filter(|eviction| eviction != name) {
        Some(eviction) => {
            let what = format!("is `{eviction}`, and the {} is `{name}`", used.kind.what());
            Err(spec.misplaced(EVICTION, &what, "both name the policy of the CPU tier: leave out one of them"))
        }
        None => Ok(()),
    }
}
