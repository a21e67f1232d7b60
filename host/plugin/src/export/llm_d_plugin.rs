//! A script's `route`, `filter` or `admit` as a plugin of llm-d's endpoint picker: a file in Go.

mod go;
mod signals;

use std::fmt::Write as _;

use rhai::Position;

use self::go::{COUNTS, GoWriter, camel, exported};
use self::signals::{GoSignal, GoSource, OF_ENDPOINT, OF_REQUEST};
use super::source::ExportedScript;
use super::term::{DecisionTerm, TermForm, ValueShape};
use crate::script::{Operation, inputs};
use crate::{Fault, FaultKind, Kind, Plugin as _};

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

/// What a plugin does.
#[derive(Debug)]
struct GoInterface {
    kind: Kind,
    /// The function of the script that decides it.
    function: &'static str,
    /// What the decision returns, in words.
    result: &'static str,
    /// Its methods.
    methods: &'static str,
}

const INTERFACES: [GoInterface; 3] = [
    GoInterface {
        kind: Kind::Routing,
        function: "route",
        result: "the score of each endpoint, of which the highest is the best.",
        methods: include_str!("llm_d_plugin/scorer.go.in"),
    },
    GoInterface {
        kind: Kind::RoutingFilter,
        function: "filter",
        result: "not 0 for each endpoint that may be used.",
        methods: include_str!("llm_d_plugin/filter.go.in"),
    },
    GoInterface {
        kind: Kind::Admission,
        function: "admit",
        result: "not 0 for a request that is admitted, the same for each endpoint.",
        methods: include_str!("llm_d_plugin/admitter.go.in"),
    },
];

impl GoInterface {
    /// Whether it is about the request, before there is a profile of scorers and filters.
    fn is_admitter(&self) -> bool {
        self.kind == Kind::Admission
    }
}

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
    parameters: Vec<(String, f64, f64, f64)>,
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
            .map(|(parameter, &value)| (parameter.name.clone(), value, parameter.min, parameter.max))
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
            ("@config@", self.config(&words.join("-"))),
            ("@imports@", self.imports()),
            ("@filled@", self.filled()),
            ("@parameters@", self.parameter_fields()),
            ("@defaults@", self.defaults()),
            ("@requestFields@", fields(&self.request)),
            ("@endpointFields@", fields(&self.endpoint)),
            ("@requestReads@", self.request_reads()),
            ("@endpointReads@", self.endpoint_reads()),
            ("@missing@", self.missing_functions()),
            ("@result@", self.interface.result.to_owned()),
            ("@body@", self.body.clone()),
            ("@check@", self.check()),
            ("@ranges@", self.ranges()),
            ("@consumes@", self.consumes()),
            ("@interface@", self.interface.methods.to_owned()),
            ("@function@", self.interface.function.to_owned()),
            ("@package@", package),
            ("@type@", words.join("-")),
        ];
        GoPlugin { text: script.fill(TEMPLATE, &fills), missing: self.missing }
    }

    fn config(&self, name: &str) -> String {
        let mut lines = vec![
            "apiVersion: llm-d.ai/v1alpha1".to_owned(),
            "kind: EndpointPickerConfig".to_owned(),
            "plugins:".to_owned(),
            format!("- type: {name}"),
        ];
        if !self.parameters.is_empty() {
            let all: Vec<String> = self.parameters.iter().map(|(name, value, ..)| format!("{name}: {value}")).collect();
            lines.push(format!("  parameters: {{{}}}", all.join(", ")));
        }
        if self.signals().any(|signal| signal.value.contains("TokenizedPrompt")) {
            lines.push("- type: token-producer # its parameters are the model and a server: modelName, url".to_owned());
        }
        if self.reads(GoSource::InFlight) {
            lines.push("- type: inflight-load-producer".to_owned());
        }
        if self.reads_prefix() {
            lines.push("- type: approx-prefix-cache-producer".to_owned());
        }
        lines.push("- type: max-score-picker".to_owned());
        lines.extend(["schedulingProfiles:", "- name: default", "  plugins:"].map(str::to_owned));
        if !self.interface.is_admitter() {
            lines.push(format!("  - pluginRef: {name}"));
        }
        lines.push("  - pluginRef: max-score-picker".to_owned());
        lines.iter().map(|line| format!("//\t{line}\n")).collect()
    }

    fn signals(&self) -> impl Iterator<Item = &'static GoSignal> {
        let of_request = self.request.iter().filter_map(|name| signal(&OF_REQUEST, name));
        of_request.chain(self.endpoint.iter().filter_map(|name| signal(&OF_ENDPOINT, name)))
    }

    fn reads(&self, source: GoSource) -> bool {
        self.signals().any(|signal| signal.source == source)
    }

    fn reads_prefix(&self) -> bool {
        self.reads(GoSource::Prefix) || self.reads(GoSource::RequestBlocks)
    }

    fn imports(&self) -> String {
        const ROUTER: &str = "github.com/llm-d/llm-d-router/pkg/epp/framework";
        let mut text = "\t\"context\"\n\t\"encoding/json\"\n".to_owned();
        if !self.missing.is_empty() || self.interface.is_admitter() {
            text += "\t\"errors\"\n";
        }
        text += "\t\"fmt\"\n\t\"math\"\n";
        if self.signals().any(|signal| signal.value.contains("time.")) {
            text += "\t\"time\"\n";
        }
        let _ =
            write!(text, "\n\tfwkplugin \"{ROUTER}/interface/plugin\"\n\tfwksched \"{ROUTER}/interface/scheduling\"\n");
        if self.reads(GoSource::InFlight) {
            let _ = writeln!(text, "\tattrconcurrency \"{ROUTER}/plugins/datalayer/attribute/concurrency\"");
        }
        if self.reads_prefix() {
            let _ = writeln!(text, "\tattrprefix \"{ROUTER}/plugins/datalayer/attribute/prefix\"");
        }
        text
    }

    fn filled(&self) -> String {
        if self.missing.is_empty() {
            return String::new();
        }
        "\n// filledIn says that the functions fillRequest and fillEndpoint below are filled in: until then there is no plugin.\n\
         const filledIn = false\n"
            .to_owned()
    }

    fn check(&self) -> String {
        if self.missing.is_empty() {
            return String::new();
        }
        "\tif !filledIn {\n\t\treturn nil, errors.New(PluginType + \": fill in fillRequest and fillEndpoint, and set filledIn to true\")\n\t}\n"
            .to_owned()
    }

    fn parameter_fields(&self) -> String {
        let width = self.parameters.iter().map(|(name, ..)| exported(name).len()).max().unwrap_or(0);
        let line =
            |(name, ..): &(String, f64, f64, f64)| format!("\t{:width$} float64 `json:\"{name}\"`\n", exported(name));
        self.parameters.iter().map(line).collect()
    }

    fn defaults(&self) -> String {
        let all: Vec<String> =
            self.parameters.iter().map(|(name, value, ..)| format!("{}: {value:?}", exported(name))).collect();
        all.join(", ")
    }

    fn ranges(&self) -> String {
        let line = |(name, _, min, max): &(String, f64, f64, f64)| {
            let field = exported(name);
            format!(
                "\tif !(parameters.{field} >= {min:?} && parameters.{field} <= {max:?}) {{\n\t\treturn nil, fmt.Errorf(\"{name} of %s is %v; \
                 it must be from {min} to {max}\", PluginType, parameters.{field})\n\t}}\n"
            )
        };
        self.parameters.iter().map(line).collect()
    }

    fn request_reads(&self) -> String {
        let mut text = String::new();
        if self.reads(GoSource::RequestBlocks) {
            text += READ_BLOCK_SIZE;
        }
        for name in &self.request {
            if let Some(signal) = signal(&OF_REQUEST, name) {
                let _ = writeln!(text, "\tr.{} = {}", camel(name), signal.value);
            }
        }
        if self.missing.iter().any(|name| self.is_of_request(name)) {
            text += "\tfillRequest(request, &r)\n";
        }
        text
    }

    fn endpoint_reads(&self) -> String {
        let mut text = String::new();
        for (source, opening, closing) in [
            (GoSource::Metrics, "\tif metrics := endpoint.GetMetrics(); metrics != nil {\n", "\t}\n"),
            (GoSource::InFlight, READ_LOAD, ""),
            (GoSource::Prefix, READ_PREFIX, ""),
        ] {
            let of_source = self.endpoint.iter().filter_map(|name| signal(&OF_ENDPOINT, name));
            let lines: Vec<&GoSignal> = of_source.filter(|signal| signal.source == source).collect();
            if lines.is_empty() {
                continue;
            }
            let indent = if closing.is_empty() { "\t" } else { "\t\t" };
            text += opening;
            for signal in lines {
                let _ = writeln!(text, "{indent}s.{} = {}", camel(signal.field), signal.value);
            }
            text += closing;
        }
        if self.missing.iter().any(|name| !self.is_of_request(name)) {
            text += "\tfillEndpoint(endpoint, &s)\n";
        }
        text
    }

    /// Whether a missing signal is one of the request or of the service.
    fn is_of_request(&self, shown: &str) -> bool {
        let name = shown.split_once('.').map_or(shown, |(_, name)| name);
        shown.starts_with("r.") || self.request.iter().any(|one| *one == format!("service_{name}"))
    }

    fn missing_functions(&self) -> String {
        let (of_request, of_endpoint): (Vec<&String>, Vec<&String>) =
            self.missing.iter().partition(|name| self.is_of_request(name));
        let lines = |names: &[&String], variable: &str| -> String {
            let line = |name: &&String| {
                let (argument, field) = name.split_once('.').unwrap_or(("s", name));
                let field =
                    if variable == "r" && argument == "s" { format!("service_{field}") } else { field.to_owned() };
                format!("\t// FILL IN: {name}\n\t{variable}.{} = math.NaN()\n", camel(&field))
            };
            names.iter().map(line).collect()
        };
        let mut text = String::new();
        if !of_request.is_empty() {
            let _ = write!(
                text,
                "\n// fillRequest sets what the endpoint picker does not tell of a request: FILL IN each of them. Times are in µs; numbers\n\
                 // that a request does not have stay math.NaN().\n\
                 func fillRequest(request *fwksched.InferenceRequest, r *requestSignals) {{\n{}}}\n",
                lines(&of_request, "r")
            );
        }
        if !of_endpoint.is_empty() {
            let _ = write!(
                text,
                "\n// fillEndpoint sets what the endpoint picker does not tell of an endpoint: FILL IN each of them. Times are in µs.\n\
                 func fillEndpoint(endpoint fwksched.Endpoint, s *endpointSignals) {{\n{}}}\n",
                lines(&of_endpoint, "s")
            );
        }
        text
    }

    fn consumes(&self) -> String {
        let all = [
            (self.reads(GoSource::InFlight), "attrconcurrency.InFlightLoadDataKey:", "attrconcurrency.InFlightLoad{}"),
            (self.reads_prefix(), "attrprefix.PrefixCacheMatchInfoDataKey:", "attrprefix.PrefixCacheMatchInfo{}"),
        ];
        let read: Vec<_> = all.into_iter().filter(|(is_read, ..)| *is_read).collect();
        // As `gofmt` aligns them.
        let width = read.iter().map(|(_, key, _)| key.len()).max().unwrap_or(0);
        let keys: String = read.iter().map(|(_, key, value)| format!("\t\t{key:width$} {value},\n")).collect();
        if keys.is_empty() {
            return String::new();
        }
        format!(
            "\n// Consumes returns the data that the decision reads.\nfunc (p *Plugin) Consumes() fwkplugin.DataDependencies {{\n\treturn \
             fwkplugin.DataDependencies{{Required: map[fwkplugin.DataKey]any{{\n{keys}\t}}}}\n}}\n"
        )
    }
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

/// The tokens in a block; those of vLLM's default if no endpoint says.
const READ_BLOCK_SIZE: &str = include_str!("llm_d_plugin/read_block_size.go.in");

/// The load of an endpoint; none without requests of this endpoint picker.
const READ_LOAD: &str = include_str!("llm_d_plugin/read_load.go.in");

/// The prefix of the prompt that an endpoint has.
const READ_PREFIX: &str = include_str!("llm_d_plugin/read_prefix.go.in");

#[cfg(test)]
mod tests;
