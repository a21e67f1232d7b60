//! A script's `route`, `filter` or `admit` as a plugin of llm-d's endpoint picker: a file in Go.

mod go;
mod signals;

use rhai::Position;

use self::go::{COUNTS, GoWriter, camel, exported};
use self::signals::{GoSignal, GoSource, OF_ENDPOINT, OF_REQUEST};
use super::source::ExportedScript;
use super::term::{DecisionTerm, TermForm, ValueShape};
use crate::script::{Operation, inputs};
use crate::{Fault, FaultKind, Kind, Plugin as _, PolicyParameter};

const TEMPLATE: &str = include_str!("llm_d_plugin/template.go.in");

/// A plugin in Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoPlugin {
    /// The file.
    pub text: String,
    /// Signals that the endpoint picker does not have, as `s.ttft_ewma`: they are to be filled in.
    pub missing: Vec<String>,
}

/// The plugin for `script`, of which the values of parameters become the defaults.
///
/// # Errors
/// If the script has none or several of `route`, `filter` and `admit`, or something in it that has no form in Go; or if a parameter
/// is not the script's, or out of range.
pub fn llm_d_plugin(script: &ExportedScript) -> Result<GoPlugin, Fault> {
    let (interface, decision) = read(script)?;
    Ok(GoFile::of(script, &decision, interface, &script.values()?).text(script))
}

/// What a plugin decides, and the function of the script that does: a Scorer, a Filter or an Admitter.
#[derive(Debug)]
struct GoInterface {
    kind: Kind,
    function: &'static str,
}

const INTERFACES: [GoInterface; 3] = [
    GoInterface { kind: Kind::Routing, function: "route" },
    GoInterface { kind: Kind::RoutingFilter, function: "filter" },
    GoInterface { kind: Kind::Admission, function: "admit" },
];

/// The decision of a script, with its parameters by name unless constants of the script depend on them.
fn read(script: &ExportedScript) -> Result<(&'static GoInterface, DecisionTerm), Fault> {
    let found: Vec<_> = INTERFACES.iter().filter(|interface| script.plugin.has(interface.function)).collect();
    let [interface] = found[..] else {
        let text = "it needs one of `route`, `filter` and `admit`: a plugin is a Scorer, a Filter or an Admitter of llm-d's endpoint picker";
        return Err(script.plugin.fault(FaultKind::MissingExport, Position::NONE, text));
    };
    let code = script.plugin.code_with_names(&script.values()?)?;
    let known = inputs(interface.kind, interface.function).map(|(_, fields)| fields).unwrap_or_default();
    let shape = |argument: usize, field: &str| {
        let argument = ["r", "s"][argument.min(1)];
        let found = known.iter().find(|one| one.argument == argument && one.field == field)?;
        match found.is_column {
            true if argument == "r" => None,
            true => Some(ValueShape::Column),
            false if TEXTS.contains(&field) => None,
            false => Some(ValueShape::Whole),
        }
    };
    let decision = DecisionTerm::read(script, &code, interface.function, 2, &shape)?;
    let mut fault = None;
    decision.each(&mut |term| {
        if matches!(term.form, TermForm::Apply(Operation::First, _)) && fault.is_none() {
            let text = "one instance by its number has no form in a plugin: endpoints have no order";
            fault = Some(script.refused(term.at, text));
        }
    });
    match fault {
        Some(fault) => Err(fault),
        None => Ok((interface, decision)),
    }
}

/// Fields of requests that are texts.
const TEXTS: [&str; 8] = ["slo_class", "tenant", "session", "model", "client", "prefix_group", "adapter", "name"];

/// The parts of a file.
struct GoFile {
    interface: &'static GoInterface,
    body: String,
    /// Those that it reads, with their values as defaults.
    parameters: Vec<PolicyParameter>,
    request: Vec<String>,
    endpoint: Vec<String>,
    missing: Vec<String>,
}

impl GoFile {
    fn of(script: &ExportedScript, decision: &DecisionTerm, interface: &'static GoInterface, values: &[f64]) -> Self {
        let names = |argument: usize| decision.fields(argument).into_iter().map(|(name, _)| name);
        let is_number = |name: &String| {
            let mut found = false;
            decision.each(&mut |term| {
                found |= matches!(&term.form, TermForm::Field(1, known) if known == name) && !term.is_column();
            });
            found
        };
        let (numbers, endpoint): (Vec<String>, Vec<String>) =
            names(1).filter(|name| !COUNTS.contains(&name.as_str())).partition(is_number);
        // Numbers of the service are beside those of the request.
        let request: Vec<String> = names(0).chain(numbers.iter().map(|name| format!("service_{name}"))).collect();
        let of_request = request.iter().filter(|name| signal(&OF_REQUEST, name).is_none());
        let of_endpoint = endpoint.iter().filter(|name| signal(&OF_ENDPOINT, name).is_none());
        let shown = |name: &String| match name.strip_prefix("service_") {
            Some(number) => format!("s.{number}"),
            None => format!("r.{name}"),
        };
        let missing = of_request.map(shown).chain(of_endpoint.map(|name| format!("s.{name}"))).collect();
        let mut used = Vec::new();
        decision.each(&mut |term| {
            if let TermForm::Parameter(name) = &term.form {
                used.push(name.clone());
            }
        });
        let declared = script.plugin.description().parameters.iter().zip(values);
        let parameters = declared
            .filter(|(parameter, _)| used.contains(&parameter.name))
            .map(|(parameter, &default)| PolicyParameter { default, ..parameter.clone() })
            .collect();
        Self { interface, body: GoWriter::body(decision), parameters, request, endpoint, missing }
    }

    fn text(self, script: &ExportedScript) -> GoPlugin {
        let words: Vec<&str> =
            script.name().split(|c: char| !c.is_ascii_alphanumeric()).filter(|one| !one.is_empty()).collect();
        let package: String = words.concat().to_ascii_lowercase();
        let package =
            if package.starts_with(|c: char| c.is_ascii_alphabetic()) { package } else { format!("p{package}") };
        let fills = [
            ("@values@", self.of_parameters(", ", |name, one| format!("{name}: {}", one.default))),
            ("@parameters@\n", self.parameter_fields()),
            ("@defaults@", self.of_parameters(", ", |name, one| format!("{}: {:?}", exported(name), one.default))),
            ("@requestFields@\n", fields(&self.request)),
            ("@endpointFields@\n", fields(&self.endpoint)),
            ("@requestReads@\n", reads(&self.request, &OF_REQUEST, "\tr", |_| true)),
            ("@metrics@\n", self.endpoint_reads(GoSource::Metrics, "\t\ts")),
            ("@load@\n", self.endpoint_reads(GoSource::InFlight, "\ts")),
            ("@prefix@\n", self.endpoint_reads(GoSource::Prefix, "\ts")),
            ("@fillRequest@\n", self.to_fill_in("r")),
            ("@fillEndpoint@\n", self.to_fill_in("s")),
            ("@body@\n", self.body.clone()),
            ("@ranges@\n", self.ranges()),
            ("@consumes@\n", self.consumes()),
            ("@function@", self.interface.function.to_owned()),
            ("@package@", package),
            ("@type@", words.join("-")),
        ];
        let kind = self.interface.kind;
        let prefix = self.reads(GoSource::Prefix) || self.reads(GoSource::RequestBlocks);
        let has = |flag: &str| match flag {
            "parameters" => !self.parameters.is_empty(),
            "tokens" => self.signals().any(|signal| signal.value.contains("TokenizedPrompt")),
            "time" => self.signals().any(|signal| signal.value.contains("time.")),
            "metrics" => self.reads(GoSource::Metrics),
            "load" => self.reads(GoSource::InFlight),
            "endpointPrefix" => self.reads(GoSource::Prefix),
            "blocks" => self.reads(GoSource::RequestBlocks),
            "prefix" => prefix,
            "consumes" => prefix || self.reads(GoSource::InFlight),
            "missing" => !self.missing.is_empty(),
            "errors" => !self.missing.is_empty() || kind == Kind::Admission,
            "fillRequest" => self.missing.iter().any(|name| self.is_of_request(name)),
            "fillEndpoint" => self.missing.iter().any(|name| !self.is_of_request(name)),
            "profile" => kind != Kind::Admission,
            "scorer" => kind == Kind::Routing,
            "filter" => kind == Kind::RoutingFilter,
            _ => kind == Kind::Admission,
        };
        GoPlugin { text: script.fill(TEMPLATE, has, &fills), missing: self.missing }
    }

    fn signals(&self) -> impl Iterator<Item = &'static GoSignal> {
        let of_request = self.request.iter().filter_map(|name| signal(&OF_REQUEST, name));
        of_request.chain(self.endpoint.iter().filter_map(|name| signal(&OF_ENDPOINT, name)))
    }

    fn reads(&self, source: GoSource) -> bool {
        self.signals().any(|signal| signal.source == source)
    }

    fn of_parameters(&self, separator: &str, text: impl Fn(&str, &PolicyParameter) -> String) -> String {
        self.parameters.iter().map(|one| text(&one.name, one)).collect::<Vec<_>>().join(separator)
    }

    fn parameter_fields(&self) -> String {
        let width = self.parameters.iter().map(|one| exported(&one.name).len()).max().unwrap_or(0);
        self.of_parameters("", |name, _| format!("\t{:width$} float64 `json:\"{name}\"`\n", exported(name)))
    }

    fn ranges(&self) -> String {
        self.of_parameters("", |name, PolicyParameter { min, max, .. }| {
            let field = exported(name);
            format!(
                "\tif !(parameters.{field} >= {min:?} && parameters.{field} <= {max:?}) {{\n\t\treturn nil, fmt.Errorf(\"{name} of %s is %v; \
                 it must be from {min} to {max}\", PluginType, parameters.{field})\n\t}}\n"
            )
        })
    }

    fn endpoint_reads(&self, source: GoSource, variable: &str) -> String {
        reads(&self.endpoint, &OF_ENDPOINT, variable, |signal| signal.source == source)
    }

    /// Whether a missing signal is one of the request or of the service.
    fn is_of_request(&self, shown: &str) -> bool {
        let name = shown.split_once('.').map_or(shown, |(_, name)| name);
        shown.starts_with("r.") || self.request.iter().any(|one| *one == format!("service_{name}"))
    }

    /// The missing signals of `variable`.
    fn to_fill_in(&self, variable: &str) -> String {
        let line = |name: &String| {
            let (argument, field) = name.split_once('.').unwrap_or(("s", name));
            let field = if variable == "r" && argument == "s" { format!("service_{field}") } else { field.to_owned() };
            format!("\t// FILL IN: {name}\n\t{variable}.{} = math.NaN()\n", camel(&field))
        };
        self.missing.iter().filter(|name| self.is_of_request(name) == (variable == "r")).map(line).collect()
    }

    fn consumes(&self) -> String {
        let all = [
            (self.reads(GoSource::InFlight), "attrconcurrency.InFlightLoadDataKey:", "attrconcurrency.InFlightLoad{}"),
            (
                self.reads(GoSource::Prefix) || self.reads(GoSource::RequestBlocks),
                "attrprefix.PrefixCacheMatchInfoDataKey:",
                "attrprefix.PrefixCacheMatchInfo{}",
            ),
        ];
        let read: Vec<_> = all.into_iter().filter(|(is_read, ..)| *is_read).collect();
        // As `gofmt` aligns them.
        let width = read.iter().map(|(_, key, _)| key.len()).max().unwrap_or(0);
        read.iter().map(|(_, key, value)| format!("\t\t{key:width$} {value},\n")).collect()
    }
}

/// Sets the fields of a structure that are known, and `wanted`.
fn reads(names: &[String], known: &'static [GoSignal], variable: &str, wanted: impl Fn(&GoSignal) -> bool) -> String {
    let known = names.iter().filter_map(|name| signal(known, name)).filter(|signal| wanted(signal));
    known.map(|signal| format!("{variable}.{} = {}\n", camel(signal.field), signal.value)).collect()
}

fn signal(table: &'static [GoSignal], name: &str) -> Option<&'static GoSignal> {
    table.iter().find(|signal| signal.field == name)
}

/// Fields of a structure, aligned as `gofmt` does.
fn fields(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| camel(name)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    names.iter().map(|name| format!("\t{name:width$} float64\n")).collect()
}

#[cfg(test)]
mod tests;
