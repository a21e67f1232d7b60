//! What can bind a service: one table of causes, each with the knobs that relieve it.

use serde::{Serialize, Serializer};

use super::knob::KnobName;

/// A cause of the time of requests, or of limits that are missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    KvBlocks,
    BatchSlots,
    TokenBudget,
    OwnPrefill,
    Interference,
    Decode,
    Preemption,
    ColdCache,
    HotInstance,
    GatewayQueue,
    Transfer,
    AdapterLoad,
    ColdStart,
    /// Delays that no load changes.
    Fixed,
    /// A deadline or an SLO below the time that a request takes alone. It has no share of the time.
    Infeasible,
}

/// Number of causes that have a share of the time: all but [`Cause::Infeasible`].
pub(super) const TIMED: usize = Cause::Infeasible as usize;

/// What is known about a cause.
pub(super) struct CauseRow {
    pub cause: Cause,
    /// The name of the cause in documents.
    pub name: &'static str,
    /// What a request does meanwhile, as tables show it.
    pub text: &'static str,
    /// The beginning of a conclusion.
    pub binds: &'static str,
    /// How a conclusion continues behind a share of the time.
    pub is: &'static str,
    /// The knobs that relieve it.
    pub knobs: &'static [KnobName],
}

use KnobName as K;

/// All causes, in the order of [`Cause`].
pub(super) const CAUSES: [CauseRow; TIMED + 1] = [
    CauseRow {
        cause: Cause::KvBlocks,
        name: "kv_blocks",
        text: "queue for KV blocks",
        binds: "KV blocks bind",
        is: "waiting for blocks",
        knobs: &[K::KvFp8, K::KvBlocks, K::GpuMemory, K::WeightsFp8, K::TensorParallel, K::Replicas],
    },
    CauseRow {
        cause: Cause::BatchSlots,
        name: "batch_slots",
        text: "queue for batch slots",
        binds: "Batch slots bind",
        is: "waiting for a slot of the batch",
        knobs: &[K::SeqsDouble, K::Replicas, K::TensorParallel],
    },
    CauseRow {
        cause: Cause::TokenBudget,
        name: "token_budget",
        text: "queue for the token budget",
        binds: "The token budget of steps binds",
        is: "waiting for the token budget",
        knobs: &[K::TokensDouble, K::Replicas, K::TensorParallel],
    },
    CauseRow {
        cause: Cause::OwnPrefill,
        name: "own_prefill",
        text: "own prefill",
        binds: "Prefill compute binds",
        is: "the request's own prefill",
        knobs: &[K::TensorParallel, K::WeightsFp8],
    },
    CauseRow {
        cause: Cause::Interference,
        name: "interference",
        text: "prefill of others",
        binds: "Interference of prefill binds",
        is: "the prefill of others in the same steps",
        knobs: &[K::PrefillApart, K::TokensHalf, K::LongPrefill, K::Replicas, K::TensorParallel],
    },
    CauseRow {
        cause: Cause::Decode,
        name: "decode",
        text: "decode steps",
        binds: "Decode steps bind",
        is: "decode steps",
        knobs: &[K::TensorParallel, K::WeightsFp8, K::KvFp8, K::SeqsHalf, K::Replicas, K::Async],
    },
    CauseRow {
        cause: Cause::Preemption,
        name: "preemption",
        text: "preemption and recomputation",
        binds: "Preemption binds",
        is: "computing again after preemptions",
        knobs: &[
            K::KvFp8,
            K::KvBlocks,
            K::GpuMemory,
            K::WeightsFp8,
            K::SeqsHalf,
            K::TensorParallel,
            K::Replicas,
            K::CpuTier,
        ],
    },
    CauseRow {
        cause: Cause::ColdCache,
        name: "cold_cache",
        text: "prefill of tokens known elsewhere",
        binds: "A cold cache binds",
        is: "prefill of tokens that the service had computed",
        knobs: &[
            K::RouteWeighted,
            K::RouteTokenAware,
            K::RoutePrefix,
            K::PrefixCaching,
            K::CpuTier,
            K::KvBlocks,
            K::KvFp8,
            K::GpuMemory,
        ],
    },
    CauseRow {
        cause: Cause::HotInstance,
        name: "hot_instance",
        text: "excess of hot instances",
        binds: "One hot instance binds",
        is: "the excess of instances over the median one",
        knobs: &[K::RouteLeastLoaded, K::RouteRoundRobin, K::RouteWeighted, K::RouteTokenAware, K::RoutePrefix],
    },
    CauseRow {
        cause: Cause::GatewayQueue,
        name: "gateway_queue",
        text: "queue of the gateway",
        binds: "The gateway's queue binds",
        is: "waiting at the gateway",
        knobs: &[K::NoGateway, K::GatewayDouble, K::Replicas],
    },
    CauseRow {
        cause: Cause::Transfer,
        name: "transfer",
        text: "transfer of KV blocks",
        binds: "The transfer of KV blocks binds",
        is: "the transfer of KV blocks",
        knobs: &[K::TransferLink, K::PrefillTogether, K::TierBandwidth],
    },
    CauseRow {
        cause: Cause::AdapterLoad,
        name: "adapter_load",
        text: "loads of LoRA adapters, and their slots",
        binds: "LoRA adapters bind",
        is: "loading adapters and waiting for their slots",
        knobs: &[K::AdaptersDouble, K::AdaptersQuadruple, K::AdaptersHost, K::AdapterRouting, K::Replicas],
    },
    CauseRow {
        cause: Cause::ColdStart,
        name: "cold_start",
        text: "waiting while replicas start",
        binds: "The start of replicas binds",
        is: "waiting while replicas start",
        knobs: &[K::MinReplicas, K::StartWarm, K::StartHot],
    },
    CauseRow {
        cause: Cause::Fixed,
        name: "fixed",
        text: "fixed delays: routing, tokenisation, HTTP",
        binds: "Fixed delays bind",
        is: "routing, tokenisation and HTTP",
        knobs: &[],
    },
    CauseRow {
        cause: Cause::Infeasible,
        name: "infeasible",
        text: "a limit below the time that one request takes alone",
        binds: "Infeasible",
        is: "",
        knobs: &[K::TensorParallel, K::WeightsFp8, K::Deadline, K::TokensDouble, K::PrefillTogether, K::TransferLink],
    },
];

impl Cause {
    pub(super) fn row(self) -> &'static CauseRow {
        &CAUSES[self as usize]
    }

    /// Whether `knob` relieves it.
    pub(super) fn is_relieved_by(self, knob: KnobName) -> bool {
        self.row().knobs.contains(&knob)
    }

    /// The name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The causes that `knob` relieves.
    pub(super) fn relieved_by(knob: KnobName) -> Vec<Self> {
        CAUSES.iter().map(|row| row.cause).filter(|cause| cause.is_relieved_by(knob)).collect()
    }
}

/// The name of its row. JSON: `String`.
impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_in_the_order_of_the_causes_and_each_but_fixed_delays_has_knobs() {
        for (index, row) in CAUSES.iter().enumerate() {
            assert_eq!(row.cause as usize, index, "{}", row.name);
            assert_eq!(row.knobs.is_empty(), row.cause == Cause::Fixed, "{}", row.name);
        }
    }

    #[test]
    fn every_knob_but_load_and_admission_relieves_a_cause() {
        for row in super::super::knob::KNOBS {
            let changes_traffic = matches!(row.name, K::Rate | K::ShedBatch);
            assert!(changes_traffic || !Cause::relieved_by(row.name).is_empty(), "{}", row.key);
        }
    }
}
