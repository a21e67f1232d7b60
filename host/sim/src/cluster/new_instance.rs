//! The engine that makes instances during a simulation.

use std::fmt;
use std::sync::Arc;

use crate::instance::{InstanceConfig, InstancePolicies};

/// Makes instances of an engine.
pub(super) struct NewInstance<I>(pub Arc<dyn Fn(InstanceConfig) -> I + Send + Sync>);

impl<I> NewInstance<I> {
    /// An instance without requests, which takes the room of one that is gone: with as little memory as possible, and
    /// without the policies of the other.
    pub fn gone(&self, config: InstanceConfig) -> I {
        (self.0)(InstanceConfig {
            max_num_seqs: 1,
            total_kv_blocks: 1,
            policies: InstancePolicies::default(),
            adapters: None,
            ..config
        })
    }
}

impl<I> Clone for NewInstance<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I> fmt::Debug for NewInstance<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewInstance")
    }
}
