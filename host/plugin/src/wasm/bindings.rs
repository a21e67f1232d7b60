//! Interface types for components that are called through wasmtime's component layer. Wasmtime's macro generates them
//! from the WIT package; rows are converted to its records here.

#[allow(clippy::all, clippy::pedantic, missing_docs, unsafe_code, unused_qualifications, dead_code)]
mod package {
    wasmtime::component::bindgen!({ path: "../../sdk/wit/since-v1.1.0", world: "policy" });
}

pub(super) use package::blis::policy::types::{
    Ages, Band, ChunkOffer, DrainGroup, Event, Flow, Group, InFlight, KvChunk, KvHit, Node, PoolInstance, Queued,
    Replica, Request, RoutedRequest, Running, StartingReplica, Step,
};
pub(super) use package::exports::blis::policy::admission::Decision as AdmissionDecision;
pub(super) use package::exports::blis::policy::disaggregation::PrefillChoice;
pub(super) use package::exports::blis::policy::latency::LatencyConstants as ConstantsRecord;
pub(super) use package::exports::blis::policy::plugin::{Description, InstanceInfo, ModelFact, Value};

use package::exports::blis::policy::plugin::Table;

use super::describe::RawDescription;
use crate::describe::{DeclaredNames, DeclaredParameter, DeclaredValue};
use crate::{LatencyConstants, OtherValue, ParameterValue, ValueTable};

/// Converts rows to records with the same fields. A missing or additional field does not compile; the types are equal.
macro_rules! records {
    ($($record:ident { $($field:ident),* $(,)? })*) => {$(
        impl From<&blis_abi::$record> for $record {
            fn from(row: &blis_abi::$record) -> Self {
                let blis_abi::$record { $($field),* } = *row;
                Self { $($field),* }
            }
        }
    )*};
}

records! {
    Request {
        now_us, arrival_us, deadline_us, slo_ttft_us, slo_itl_us, id, input_tokens, max_output_tokens, prompt_blocks, shared_blocks, block_size,
        class_priority, client_priority, slo_class, tenant, session, model, client, prefix_group, round_index,
        tenant_in_flight, adapter, stage,
    }
    Ages { periodic_us, cache_us, gateway_us, pipeline_us }
    Queued { priority, turn, generated_tokens, preemptions }
    Running {
        arrival_us, deadline_us, priority, id, input_tokens, computed_tokens, generated_tokens, kv_blocks, preemptions,
        class_priority, slo_class, tenant, session,
    }
    Band { oldest_wait_us, priority, queued }
    Flow {
        served_decayed, head_rank, served_as_of_us, head_turn, head_wait_us, head_deadline_us, dispatched, served_input,
        served_output, tenant, tenant_order, queued, in_flight, head_id, head_input_tokens, head_max_output_tokens,
        head_slo_class,
    }
    Group {
        now_us, scraped_us, next_ready_us, kv_tokens, in_flight_tokens, queued_tokens, oldest_wait_us, ttft_p90_us, tpot_p90_us, input_tokens, cached_tokens, output_tokens, price, kv_used, kv_used_max, saturation, model, gpus, min_replicas, max_replicas, max_num_seqs, max_num_batched_tokens, replicas, ready, loading, pending, draining, queue_depth, queue_depth_max, batch_size, in_flight, queued, arrived, completed,
    }
    InFlight { dispatched_us, id, priority, input_tokens, tenant }
    DrainGroup { now_us, price, group, model, gpus, min_replicas, max_replicas, replicas }
    Replica {
        created_us, active_since_us, in_flight_tokens, kv_utilization, id, state, instance, queue_depth, batch_size, in_flight,
        pool, node, on_node, group_on_node,
    }
    StartingReplica { now_us, created_us, id, group, model, gpus }
    KvChunk {
        created_us, last_use_us, previous_use_us, tier, position, tokens, uses, offers, touch, slo_class, tenant, session,
        prefix_group, round, input_tokens, client, adapter,
    }
    ChunkOffer { now_us, queued_bytes, fill, tier, capacity }
    KvHit {
        now_us, bytes, queued_bytes, bandwidth, request, gpu_tokens, tokens, input_tokens, prefill_tokens, waiting, running,
        slo_class, tenant, session, prefix_group, round,
    }
    RoutedRequest {
        now_us, transfer_us_per_token, request, input_tokens, chosen, transfers, transfer_tokens, slo_class, tenant, session,
        prefix_group, round,
    }
    PoolInstance {
        in_flight_tokens, kv_utilization, instance, queue_depth, batch_size, in_flight, uncached_tokens, free_kv_blocks,
        transfers, transfer_tokens,
    }
    Node { ready_us, price, pool, node, gpus, free_gpus, replicas, group_replicas }
    Step {
        prefill_requests, prefill_tokens, prefill_tokens_squared, prefill_tokens_by_input, prefill_tokens_by_context,
        prefill_context, decode_requests, decode_context,
    }
    Event {
        at_us, ttft_us, e2e_us, kind, request, instance, input_tokens, generated_tokens, slo_class, tenant, session,
        prefix_group, block,
    }
}

impl From<ConstantsRecord> for LatencyConstants {
    fn from(constants: ConstantsRecord) -> Self {
        let ConstantsRecord { shortest_step_us, output_token_us, post_decode_us, scheduling_us, preemption_us } =
            constants;
        Self { shortest_step_us, output_token_us, post_decode_us, scheduling_us, preemption_us }
    }
}

impl From<ParameterValue<'_>> for Value {
    fn from(value: ParameterValue<'_>) -> Self {
        match value {
            ParameterValue::Number(number) => Self::Number(number),
            ParameterValue::Text(text) => Self::Text(text.to_owned()),
            ParameterValue::Table(ValueTable { columns, numbers }) => {
                Self::Table(Table { columns: *columns, numbers: numbers.clone() })
            }
        }
    }
}

impl From<Value> for DeclaredValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(number),
            Value::Text(text) => Self::Other(OtherValue::Text(text)),
            Value::Table(Table { columns, numbers }) => Self::Other(OtherValue::Table(ValueTable { columns, numbers })),
        }
    }
}

impl From<Description> for RawDescription {
    fn from(description: Description) -> Self {
        let Description { name, version, about, kinds, reads, events, scores, every_step, parameters } = description;
        let parameters = parameters.into_iter().map(|parameter| DeclaredParameter {
            name: parameter.name,
            about: parameter.about,
            default: parameter.default.into(),
            min: parameter.min,
            max: parameter.max,
        });
        let names = DeclaredNames { kinds, reads, events };
        Self { name, version, about, names, scores, every_step, parameters: parameters.collect() }
    }
}
