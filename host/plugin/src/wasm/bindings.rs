//! Interface types for components that are called through wasmtime's component layer. Wasmtime's macro generates them
//! from the WIT package; rows are converted to its records here.

#[allow(clippy::all, clippy::pedantic, missing_docs, unsafe_code, unused_qualifications, dead_code)]
mod package {
    wasmtime::component::bindgen!({ path: "../../sdk/wit/since-v1.1.0", world: "policy" });
}

pub(super) use package::blis::policy::types::{Ages, Event, Request};
pub(super) use package::exports::blis::policy::admission::Decision;
pub(super) use package::exports::blis::policy::plugin::{Description, InstanceInfo, ModelFact, Value};

use package::exports::blis::policy::plugin::Table;

use super::describe::RawDescription;
use crate::describe::{DeclaredNames, DeclaredParameter, DeclaredValue};
use crate::{OtherValue, ParameterValue, ValueTable};

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
    Event {
        at_us, ttft_us, e2e_us, kind, request, instance, input_tokens, generated_tokens, slo_class, tenant, session,
        prefix_group, block,
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
