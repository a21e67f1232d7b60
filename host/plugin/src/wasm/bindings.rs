//! Interface types for components that are called through wasmtime's component layer. Wasmtime's macro generates them
//! from the WIT package; rows are converted to its records here.

#[allow(clippy::all, clippy::pedantic, missing_docs, unsafe_code, unused_qualifications, dead_code)]
mod package {
    wasmtime::component::bindgen!({ path: "../../sdk/wit/since-v1.0.0", world: "policy" });
}

pub(super) use package::blis::policy::types::{Event, Instance, Queued, Request, Running, Staleness, Step};
pub(super) use package::exports::blis::policy::admission::Decision as AdmissionDecision;
pub(super) use package::exports::blis::policy::latency::LatencyConstants as ConstantsRecord;
pub(super) use package::exports::blis::policy::plugin::{Description, InstanceInfo, Kinds, ModelFact};

use super::describe::RawDescription;
use crate::{Kind, LatencyConstants, PolicyParameter};

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
        now_us, arrival_us, deadline_us, id, input_tokens, max_output_tokens, prompt_blocks, shared_blocks, block_size,
        class_priority, client_priority, slo_class, tenant, session, model, client, prefix_group, round_index,
        tenant_in_flight,
    }
    Staleness { load_us, cached_blocks_us }
    Instance {
        kv_utilization, cache_hit_rate, preemption_count, queue_depth, batch_size, in_flight, cached_blocks,
        free_kv_blocks, total_kv_blocks,
    }
    Queued { priority, turn, generated_tokens, preemptions }
    Running {
        arrival_us, deadline_us, priority, id, input_tokens, computed_tokens, generated_tokens, kv_blocks, preemptions,
        class_priority, slo_class, tenant, session,
    }
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

impl From<Kind> for Kinds {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Admission => Self::ADMISSION,
            Kind::Routing => Self::ROUTING,
            Kind::Priority => Self::PRIORITY,
            Kind::Scheduling => Self::SCHEDULING,
            Kind::Preemption => Self::PREEMPTION,
            Kind::Latency => Self::LATENCY,
        }
    }
}

impl From<Description> for RawDescription {
    fn from(description: Description) -> Self {
        let Description { name, version, about, kinds, reads, events, scores, every_step, parameters } = description;
        let parameters = parameters.into_iter().map(|parameter| PolicyParameter {
            name: parameter.name,
            default: parameter.default,
            min: parameter.min,
            max: parameter.max,
            about: parameter.about,
        });
        let ([kinds], [reads], [events]) = (kinds.as_array(), reads.as_array(), events.as_array());
        Self { name, version, about, kinds, reads, events, scores, every_step, parameters: parameters.collect() }
    }
}
