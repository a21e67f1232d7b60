//! Bands, flows and requests in flight from named values, for the kinds of flow control.

use blis_sim::ids::RequestId;
use blis_sim::policy::flow::{Band, Flow, InFlight, flow_of};
use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::{FieldError, FieldValue, LATEST_US, NameTable, real, time, whole, word};

const BAND: [&str; 3] = ["priority", "queued", "oldest_wait"];

/// An empty band of priority 0.
pub(crate) fn band() -> Band {
    Band::default()
}

/// Sets a field of `band`.
pub(crate) fn set_band(band: &mut Band, name: &str, value: &FieldValue) -> Result<(), FieldError> {
    match name {
        "priority" => band.priority = whole(name, value, i32::MIN..=i32::MAX)?,
        "queued" => band.queued = whole(name, value, 0..=u32::MAX)?,
        "oldest_wait" | "oldest_wait_us" => band.oldest_wait_us = time(name, value)?.0,
        _ => return Err(FieldError::unknown("a band", name, &BAND)),
    }
    Ok(())
}

const FLOW: [&str; 15] = [
    "tenant",
    "queued",
    "in_flight",
    "dispatched",
    "served_input",
    "served_output",
    "served_decayed",
    "head_id",
    "head_rank",
    "head_turn",
    "head_wait",
    "head_deadline",
    "head_input_tokens",
    "head_max_output_tokens",
    "head_slo_class",
];

/// The flow at `index` of a list: one request of one token, enqueued after those of the flows before.
pub(crate) fn flow(index: usize) -> Flow {
    let head = Request::new(RequestId(index as u32), Micros::ZERO, 1, 1);
    Flow { tenant_order: index as u32, head_turn: index as u64, ..flow_of(&head) }
}

/// Sets a field of `flow` at the time `now`.
pub(crate) fn set_flow(
    flow: &mut Flow,
    now: Micros,
    name: &str,
    value: &FieldValue,
    names: &mut NameTable,
) -> Result<(), FieldError> {
    if *value == FieldValue::Nothing && FLOW.contains(&name) {
        return Ok(());
    }
    match name {
        "tenant" => flow.tenant = names.name(word(name, value)?).0,
        "queued" => flow.queued = whole(name, value, 1..=u32::MAX)?,
        "in_flight" => flow.in_flight = whole(name, value, 0..=u32::MAX)?,
        "dispatched" => flow.dispatched = whole(name, value, 0..=LATEST_US)?,
        "served_input" => flow.served_input = whole(name, value, 0..=LATEST_US)?,
        "served_output" => flow.served_output = whole(name, value, 0..=LATEST_US)?,
        "served_decayed" => (flow.served_decayed, flow.served_as_of_us) = (real(name, value, 0.0)?, now.0),
        "head_id" => flow.head_id = whole(name, value, 0..=u32::MAX - 1)?,
        "head_rank" => flow.head_rank = real(name, value, f64::MIN)?,
        "head_turn" => flow.head_turn = whole(name, value, 0..=LATEST_US)?,
        "head_wait" | "head_wait_us" => flow.head_wait_us = time(name, value)?.0,
        "head_deadline" | "head_deadline_us" => flow.head_deadline_us = time(name, value)?.0,
        "head_input_tokens" => flow.head_input_tokens = whole(name, value, 1..=u32::MAX)?,
        "head_max_output_tokens" => flow.head_max_output_tokens = whole(name, value, 0..=u32::MAX - 1)?,
        "head_slo_class" => flow.head_slo_class = names.name(word(name, value)?).0,
        _ => return Err(FieldError::unknown("a flow", name, &FLOW)),
    }
    Ok(())
}

const IN_FLIGHT: [&str; 5] = ["id", "priority", "dispatched_at", "input_tokens", "tenant"];

/// The request in flight at `index` of a list: of one token and priority -1, dispatched at 0.
pub(crate) fn in_flight(index: usize) -> InFlight {
    InFlight { id: index as u32, priority: -1, input_tokens: 1, ..InFlight::default() }
}

/// Sets a field of `request`.
pub(crate) fn set_in_flight(
    request: &mut InFlight,
    name: &str,
    value: &FieldValue,
    names: &mut NameTable,
) -> Result<(), FieldError> {
    match name {
        "id" => request.id = whole(name, value, 0..=u32::MAX - 1)?,
        "priority" => request.priority = whole(name, value, i32::MIN..=-1)?,
        "dispatched_at" | "dispatched_at_us" => request.dispatched_us = time(name, value)?.0,
        "input_tokens" => request.input_tokens = whole(name, value, 1..=u32::MAX)?,
        "tenant" => request.tenant = names.name(word(name, value)?).0,
        _ => return Err(FieldError::unknown("a request in flight", name, &IN_FLIGHT)),
    }
    Ok(())
}
