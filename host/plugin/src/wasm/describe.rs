//! Validation of the description that a guest returns.

use wasmtime::component::{ComponentType, Lift};

use super::fault::PluginPath;
use crate::describe::{Declared, DeclaredNames, DeclaredParameter, DeclaredValue, parted};
use crate::limits::{ABOUT_BYTES, NAME_BYTES, PARAMETERS};
use crate::text::plain;
use crate::{Column, Fault, FaultKind, Kind, OtherParameter, PolicyDescription};

/// `description`, as a guest returns it. Some names may be unknown to this host.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(super) struct RawDescription {
    pub name: String,
    pub version: String,
    pub about: String,
    pub kinds: Vec<String>,
    pub reads: Vec<String>,
    pub events: Vec<String>,
    pub scores: bool,
    #[component(name = "every-step")]
    pub every_step: bool,
    pub parameters: Vec<DeclaredParameter>,
}

pub(super) fn checked(file: &PluginPath, declared: RawDescription) -> Result<PolicyDescription, Fault> {
    let refuse = |what: String| Err(file.fault(FaultKind::OutOfRange, format_args!("describe: {what}")));
    if !is_name(&declared.name) {
        return refuse(format!(
            "{:?} is no name; use 1 to {NAME_BYTES} of a-z A-Z 0-9 _ - .",
            plain(&declared.name, NAME_BYTES)
        ));
    }
    if declared.version.len() > NAME_BYTES {
        return refuse(format!("the version has {} bytes, at most {NAME_BYTES} are allowed", declared.version.len()));
    }
    if declared.parameters.len() > PARAMETERS {
        return refuse(format!("{} parameters, at most {PARAMETERS} are allowed", declared.parameters.len()));
    }
    let names = DeclaredNames { kinds: declared.kinds, reads: declared.reads, events: declared.events };
    let Declared { kinds, columns, reads, events } = names.known().map_err(|(kind, what)| file.fault(kind, what))?;
    if kinds.is_empty() {
        let all = Kind::ALL.map(Kind::name).join(", ");
        return refuse(format!("no kind of policy; name at least one of {all}"));
    }
    let mut parameters: Vec<DeclaredParameter> = Vec::with_capacity(declared.parameters.len());
    for raw in declared.parameters {
        let parameter = parameter(file, raw)?;
        if parameters.iter().any(|known| known.name == parameter.name) {
            return refuse(format!("two parameters are called {:?}", parameter.name));
        }
        parameters.push(parameter);
    }
    let (parameters, others) = parted(parameters);
    if let Some((name, what)) = others.iter().find_map(refused_default) {
        return refuse(format!("the default of parameter {name} cannot be: {what}"));
    }
    let description = PolicyDescription {
        name: declared.name,
        version: plain(&declared.version, NAME_BYTES),
        about: plain(&declared.about, ABOUT_BYTES),
        kinds,
        columns,
        reads,
        events,
        scores: declared.scores,
        every_step: declared.every_step,
        parameters,
        others,
    };
    match description.unreadable_column(Column::name) {
        Some(what) => Err(file.fault(FaultKind::Refused, format_args!("describe: {what}"))),
        None => Ok(description),
    }
}

fn refused_default(parameter: &OtherParameter) -> Option<(&str, String)> {
    parameter.refusal(&parameter.default).map(|what| (parameter.name.as_str(), what))
}

fn parameter(file: &PluginPath, raw: DeclaredParameter) -> Result<DeclaredParameter, Fault> {
    let DeclaredParameter { name, default: value, min, max, about } = raw;
    let refuse = |kind, what: String| Err(file.fault(kind, format_args!("describe: {what}")));
    if !is_name(&name) {
        let what = format!(
            "{:?} is no name of a parameter; use 1 to {NAME_BYTES} of a-z A-Z 0-9 _ - .",
            plain(&name, NAME_BYTES)
        );
        return refuse(FaultKind::OutOfRange, what);
    }
    let about = plain(&about, ABOUT_BYTES);
    let DeclaredValue::Number(default) = value else {
        return Ok(DeclaredParameter { name, about, default: value, min, max });
    };
    if [default, min, max].iter().any(|number| number.is_nan()) {
        return refuse(FaultKind::NotANumber, format!("parameter {name}: {default}, {min} to {max}: NaN is no value"));
    }
    if !(min <= default && default <= max) {
        let what = format!("parameter {name}: its default {default} must lie between its limits, {min} and {max}");
        return refuse(FaultKind::OutOfRange, what);
    }
    Ok(DeclaredParameter { name, about, default: value, min, max })
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(allowed)
}
