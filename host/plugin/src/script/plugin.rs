//! Compiles a script: its functions, description and kinds, with all checks that need no call.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use blis_abi::EventSet;
use rhai::{AST, Position, Scope};

use super::code::{Script, ScriptFunction, SpecializedCode};
use super::engine::{Kit, kit, too_long_number};
use super::entries::ENTRIES;
use super::errors::ScriptSource;
use super::header::{ScriptHeader, near};
use super::names;
use super::scan::{Scan, SourceSpan};
use super::views::UsedFields;
use crate::decisions::Area;
use crate::limits::{
    CONSTANTS, DECLARED_VARIABLES, EXPANDED_TOKENS, FUNCTION_PARAMETERS, FUNCTIONS as FUNCTIONS_OF_A_SCRIPT,
    SCRIPT_BYTES, SCRIPT_TOKENS,
};
use crate::rows::events_of;
use crate::{Fault, FaultKind, Kind, Limits, PolicyDescription};

/// A script compiled with the default values of its parameters.
pub(crate) struct ScriptPlugin {
    pub(super) script: Arc<Script>,
    pub(super) code: SpecializedCode,
}

/// Omits the engine: its hundreds of functions would flood the output.
impl fmt::Debug for ScriptPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptPlugin").field("description", &self.script.description).finish_non_exhaustive()
    }
}

impl ScriptPlugin {
    /// The plugin of the script `source`, which messages call `path`.
    pub(crate) fn read(path: &Path, source: &str, limits: &Limits) -> Result<Self, Fault> {
        compile(path, source, limits, kit(limits))
    }

    /// Whether the script has a function of this name that the host calls.
    pub(crate) fn has(&self, function: &str) -> bool {
        self.script.function(function).is_some()
    }

    /// A fault at a position, or of the script as a whole.
    pub(crate) fn fault(&self, kind: FaultKind, at: Position, text: &str) -> Fault {
        self.script.source.fault_by(kind, at, text)
    }

    /// The code with these values for the parameters.
    pub(crate) fn code(&self, values: &[f64]) -> Result<Arc<AST>, Fault> {
        Ok(self.script.compile(values)?.ast)
    }

    /// The same with the parameters by name, unless constants of the script depend on them.
    pub(crate) fn code_with_names(&self, values: &[f64]) -> Result<Arc<AST>, Fault> {
        let code = self.code(values)?;
        if !self.script.constants.is_empty() {
            return Ok(code);
        }
        let mut scope = Scope::new();
        for (parameter, &value) in self.script.description.parameters.iter().zip(values) {
            scope.push(parameter.name.as_str(), value);
        }
        self.script.compile_in(&scope).map(Arc::new)
    }
}

/// Compiles the script `source` for the engine of `kit`.
pub(super) fn compile(path: &Path, source: &str, limits: &Limits, kit: Arc<Kit>) -> Result<ScriptPlugin, Fault> {
    // Editors write a byte order mark in front of some files.
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let text = ScriptSource { path: blis_diag::display(path), text: source.into() };
    let most = limits.file_bytes.min(SCRIPT_BYTES);
    if source.len() as u64 > most {
        return Err(text.fault(FaultKind::Unreadable, None, &too_long(most)));
    }
    let scan = Scan::of(source);
    if let Some(error) = too_much(&scan) {
        return Err(text.fault(FaultKind::OutOfFuel, None, &error));
    }
    if let Some(number) = scan.long_number {
        return Err(text.fault(FaultKind::Syntax, Some(number), &too_long_number(number.text)));
    }
    let header =
        ScriptHeader::of(&scan).map_err(|error| text.fault(FaultKind::Syntax, Some(error.span), &error.text))?;
    let used_fields = UsedFields::by(&scan);
    let mut script = Script {
        description: describe(path, &header, &used_fields),
        source: text,
        functions: Vec::new(),
        used_fields,
        constants: scan.constants.iter().map(|&name| name.to_owned()).collect(),
        kit,
    };
    names::check_declarations(&script, &scan)?;
    let defaults: Vec<_> = header.parameters.iter().map(|parameter| parameter.default).collect();
    let code = script.compile(&defaults)?;
    script.functions = entries(&code.ast, &scan, &script.source)?;
    script.description.kinds = kinds(&script, &scan, &header)?;
    if let Some(what) = script.description.unreadable_column(crate::Column::field) {
        let span = scan.functions.iter().find(|span| span.text == "saturation").copied();
        return Err(script.source.fault(FaultKind::Refused, span, &what));
    }
    names::check(&script, &scan, &code.ast)?;
    Ok(ScriptPlugin { script: Arc::new(script), code })
}

pub(super) fn too_long(most: u64) -> String {
    format!("it has more than {most} bytes, which is more than a script may have")
}

/// What is more than a script may have: the compiler takes the square of some of it.
fn too_much(scan: &Scan<'_>) -> Option<String> {
    let bounds = [
        (scan.tokens, SCRIPT_TOKENS, "words, numbers and signs"),
        (scan.expanded, EXPANDED_TOKENS, "words, numbers and signs with constants written out"),
        (scan.functions.len(), FUNCTIONS_OF_A_SCRIPT, "functions"),
        (scan.constants.len(), CONSTANTS, "constants"),
        (scan.most_parameters, FUNCTION_PARAMETERS, "parameters of one function"),
        (scan.most_declared, DECLARED_VARIABLES, "variables declared in one function"),
    ];
    let (found, most, what) = bounds.into_iter().find(|(found, most, _)| found > most)?;
    Some(format!("it has {found} {what}; a script may have {most}"))
}

fn describe(path: &Path, header: &ScriptHeader, used_fields: &UsedFields) -> PolicyDescription {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    PolicyDescription {
        name: header.name.clone().or(stem).unwrap_or_else(|| "script".to_owned()),
        version: header.version.clone(),
        about: header.about.clone(),
        kinds: Vec::new(),
        columns: used_fields.columns(),
        reads: used_fields.reads(),
        events: events_of(header.events),
        scores: true,
        every_step: header.every_step,
        parameters: header.parameters.clone(),
        others: Vec::new(),
    }
}

/// The functions that the host calls, checked for the right number of parameters.
fn entries(ast: &AST, scan: &Scan<'_>, source: &ScriptSource) -> Result<Vec<ScriptFunction>, Fault> {
    let mut entries = Vec::new();
    for entry in &*ENTRIES {
        let (name, parameters) = (entry.name, entry.parameters);
        let definitions: Vec<_> = scan.functions.iter().filter(|span| span.text == name).collect();
        let Some(first) = definitions.first() else { continue };
        let arities: Vec<_> = ast.iter_functions().filter(|f| f.name == name).map(|f| f.params.len()).collect();
        let accepts = |&n: &usize| n == parameters.len() || (name == "init" && n == 0);
        let Some(arity) = arities.iter().copied().find(accepts) else {
            let form = parameters.join(", ");
            let text = format!(
                "{name} takes {} parameter{} ({form}); line {} has {}",
                parameters.len(),
                if parameters.len() == 1 { "" } else { "s" },
                first.line,
                arities.first().copied().unwrap_or_default()
            );
            return Err(source.fault(FaultKind::MissingExport, Some(**first), &text));
        };
        let last_line = definitions.iter().map(|span| span.last_line).max().unwrap_or(1);
        entries.push(ScriptFunction { name, parameters: arity, last_line });
    }
    Ok(entries)
}

/// The kinds that the script implements.
fn kinds(script: &Script, scan: &Scan<'_>, header: &ScriptHeader) -> Result<Vec<Kind>, Fault> {
    let fault =
        |span: Option<SourceSpan<'_>>, text: &str| Err(script.source.fault(FaultKind::MissingExport, span, text));
    let has = |name: &str| script.function(name).is_some();
    let mut kinds: Vec<_> = ENTRIES.iter().filter(|entry| has(entry.name)).filter_map(|entry| entry.kind).collect();
    kinds.dedup();
    let span = |name: &str| scan.functions.iter().find(|span| span.text == name).copied();
    for name in ["queueing_time", "constants"] {
        if has(name) && !has("step_time") {
            return fault(span(name), &format!("`{name}` belongs to a latency model, which has `step_time(b)`"));
        }
    }
    let subscribed = header.events != EventSet::NONE;
    if has("observe") && !subscribed {
        let text = "`observe` is never called: name its events, as in `// @events completed, routed`";
        return fault(span("observe"), text);
    }
    if subscribed && !has("observe") {
        return fault(None, "it subscribes to events (`// @events`) but has no function `observe(e)`");
    }
    if kinds.is_empty() {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        let hint = scan.functions.iter().map(|span| near(span.text, &names, "")).find(|hint| !hint.is_empty());
        let text = format!("it has none of the functions that policies are made of: {}", functions());
        return fault(scan.functions.first().copied(), &(text + hint.as_deref().unwrap_or_default()));
    }
    Ok(kinds)
}

/// The functions that make a kind, in words.
fn functions() -> String {
    let area = |kind: Kind| match kind.area() {
        Area::Front | Area::Engine => "",
        Area::FlowControl => "and for flow control ",
        Area::Replicas => "and for autoscaling ",
        Area::KvTiers => "and for KV tiers ",
        Area::Roles => "and for prefill apart from decode ",
    };
    let mut entries: Vec<_> = ENTRIES.iter().filter_map(|entry| Some((entry.kind?, entry))).collect();
    entries.sort_by_key(|(kind, _)| kind.area());
    let mut before = "";
    let functions = entries.into_iter().map(|(kind, entry)| {
        let area = area(kind);
        let shown = if area == before { "" } else { area };
        before = area;
        format!("{shown}{}({})", entry.name, entry.parameters.join(", "))
    });
    functions.collect::<Vec<_>>().join(", ")
}
