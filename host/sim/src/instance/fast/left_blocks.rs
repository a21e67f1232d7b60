//! KV blocks that stay when their request has left queue and batch.

use crate::ids::RequestId;
use crate::instance::offloading::StoreFence;
use crate::kv::fast::HeldBlocks;

/// KV blocks that are being loaded for a request that has ended.
#[derive(Clone, Debug)]
pub(super) struct AbandonedLoad {
    pub id: RequestId,
    pub holding: HeldBlocks,
    pub tokens: u32,
}

/// KV blocks without a request in queue or batch.
#[derive(Clone, Debug)]
pub(super) struct StayingBlocks {
    pub holding: HeldBlocks,
    /// Tokens with blocks, and how many of them are generated.
    pub tokens: u32,
    pub known: u32,
    /// Those that are being stored in the CPU tier.
    pub fence: Option<StoreFence>,
}
