//! What a guest says about itself, checked.

use blis_sim::policy::{Events, Reads};

use super::bindings::{Columns, EventSet, Kinds, WireDescription, WireParameter};
use super::fault::{File, excerpt};
use crate::{Description, Fault, FaultKind, Kind, Parameter};

/// Bytes of a name or a version.
const NAME: usize = 64;
/// Bytes of a line that says what something is.
const ABOUT: usize = 500;
/// Numbers that users may set.
const PARAMETERS: usize = 256;

pub(super) fn checked(file: &File, wire: WireDescription) -> Result<Description, Fault> {
    let refuse = |what: String| Err(file.fault(FaultKind::OutOfRange, format_args!("describe: {what}")));
    if !is_name(&wire.name) {
        return refuse(format!("{:?} is no name; use 1 to {NAME} of a-z A-Z 0-9 _ - .", excerpt(&wire.name, NAME)));
    }
    if wire.version.len() > NAME {
        return refuse(format!("the version has {} bytes, at most {NAME} are allowed", wire.version.len()));
    }
    if wire.parameters.len() > PARAMETERS {
        return refuse(format!("{} parameters, at most {PARAMETERS} are allowed", wire.parameters.len()));
    }
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|&kind| wire.kinds.contains(Kinds::from(kind))).collect();
    if kinds.is_empty() {
        let all = Kind::ALL.map(Kind::name).join(", ");
        return refuse(format!("no kind of policy; name at least one of {all}"));
    }
    let mut parameters: Vec<Parameter> = Vec::with_capacity(wire.parameters.len());
    for declared in wire.parameters {
        let parameter = parameter(file, declared)?;
        if parameters.iter().any(|known| known.name == parameter.name) {
            return refuse(format!("two parameters are called {:?}", parameter.name));
        }
        parameters.push(parameter);
    }
    Ok(Description {
        name: wire.name,
        version: excerpt(&wire.version, NAME),
        about: excerpt(&wire.about, ABOUT),
        kinds,
        reads: reads(wire.reads),
        events: events(wire.events),
        scores: wire.scores,
        every_step: wire.every_step,
        parameters,
    })
}

fn parameter(file: &File, wire: WireParameter) -> Result<Parameter, Fault> {
    let WireParameter { name, default, min, max, about } = wire;
    let refuse = |kind, what: String| Err(file.fault(kind, format_args!("describe: {what}")));
    if !is_name(&name) {
        let what =
            format!("{:?} is no name of a parameter; use 1 to {NAME} of a-z A-Z 0-9 _ - .", excerpt(&name, NAME));
        return refuse(FaultKind::OutOfRange, what);
    }
    if [default, min, max].iter().any(|number| number.is_nan()) {
        return refuse(FaultKind::NotANumber, format!("parameter {name}: {default}, {min} to {max}: NaN is no value"));
    }
    if !(min <= default && default <= max) {
        let what = format!("parameter {name}: its default {default} must lie between its limits, {min} and {max}");
        return refuse(FaultKind::OutOfRange, what);
    }
    Ok(Parameter { name, default, min, max, about: excerpt(&about, ABOUT) })
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=NAME).contains(&text.len()) && text.chars().all(allowed)
}

fn reads(wire: Columns) -> Reads {
    Reads {
        load: wire.contains(Columns::LOAD),
        in_flight: wire.contains(Columns::IN_FLIGHT),
        cached_blocks: wire.contains(Columns::CACHED_BLOCKS),
    }
}

fn events(wire: EventSet) -> Events {
    Events {
        routed: wire.contains(EventSet::ROUTED),
        first_token: wire.contains(EventSet::FIRST_TOKEN),
        completed: wire.contains(EventSet::COMPLETED),
        ended: wire.contains(EventSet::ENDED),
        rejected: wire.contains(EventSet::REJECTED),
        blocks: wire.contains(EventSet::BLOCKS),
    }
}
