//! The configuration of llm-d's endpoint picker (`EndpointPickerConfig`), read into a policy bundle and written from
//! one.
//!
//! ```text
//! EndpointPickerConfig ─ import ─→ EndpointPicker ─ to_bundle ─→ bundle
//!        ↑───────────── to_config ──────┘ ↑─────── of_bundle ───────┘
//! ```
//!
//! What a plugin type is here stands in one table (`plugins.rs`). A bundle that was imported is the same, byte for byte,
//! after export and import.

mod admitter;
mod bundle;
mod config;
mod disaggregation;
mod gateway;
pub(super) mod plugins;
mod read;
#[cfg(test)]
mod tests;
mod value;

use super::{BuiltInFilter, PolicyUse, WeightedScorer};
pub use read::{Imported, import, load};

/// What both a bundle and llm-d's configuration can say.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointPicker {
    /// When requests of a negative priority are rejected; `None` for never.
    pub shedding: Option<Saturation>,
    /// A plugin that admits requests, as our admission policy; `None` beside `shedding`, since there is one policy.
    pub admitter: Option<PolicyUse>,
    /// Flow control; `None` if it is off.
    pub gateway: Option<GatewaySettings>,
    /// How an instance is chosen: that of the whole request, or with `disaggregation` the one that decodes it.
    pub profile: Profile,
    /// Prefill apart from decode; `None` without it.
    pub disaggregation: Option<RoleProfiles>,
    /// KV blocks that the record of sent prompts holds of each instance, a whole number; `None` without the scorer that reads it.
    pub sent_blocks: Option<f64>,
}

/// How an instance is chosen among those that fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// In their order; none twice.
    pub filters: Vec<BuiltInFilter>,
    /// Built-in ones, a list that [`WeightedScorer::check`] accepts.
    pub scorers: Vec<WeightedScorer>,
}

/// Which instances compute parts of a request for the one that decodes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleProfiles {
    /// Whether another instance prefills: `always` or `prefix-threshold`. `None` if none does, or all do
    /// (`prefill_first`).
    pub decider: Option<PolicyUse>,
    /// Whether the instance that prefills is chosen first; every request is then prefilled elsewhere.
    pub prefill_first: bool,
    /// How the instance that prefills is chosen; `Some` with a decider or `prefill_first`, and only then.
    pub prefill: Option<Profile>,
    /// How the instance that encodes images is chosen; `None` if none does.
    pub encode: Option<Profile>,
}

/// Settings of flow control that are not the default of llm-d, by the names of the flags, in one order.
pub type GatewaySettings = Vec<(&'static str, String)>;

/// The service is saturated if the mean over its instances of the larger share is 1 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturation {
    /// Waiting requests of a saturated instance, above 0.
    pub queue_depth: f64,
    /// Used share of its KV blocks, above 0 and at most 1.
    pub kv_utilization: f64,
}

/// llm-d's `lruCapacityPerServer` without a setting.
const SENT_BLOCKS: f64 = 31_250.0;

/// The largest whole number that is read and written.
const WHOLE_MAX: f64 = 1e15;

impl Saturation {
    /// llm-d's default, that of its `utilization-detector`.
    pub const DEFAULT: Self = Self { queue_depth: 5.0, kv_utilization: 0.8 };
    /// The thresholds by which llm-d's published configurations turn the detector off.
    const OFF: Self = Self { queue_depth: 999_999_999.0, kv_utilization: 1.0 };
}
