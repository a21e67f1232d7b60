//! Rhai scripts as plugins: compiled from text within a millisecond and limited in all resources.
//!
//! ```text
//! text ── scan ──► header (`// @param` …) ── compile ──► Script ── start ──► ScriptGuest ── call ──► output
//! ```
//!
//! A script defines a function for each kind of decision it makes (`route(r, s)`, `admit(r, s)` …); these functions
//! determine its kinds. It reads the cluster as columns and computes with whole columns; the host chooses the instance
//! with the highest score. `sdk/rhai/README.md` documents all that scripts may use, and a test compares that page with
//! this code.

mod call;
mod code;
mod column;
mod definitions;
mod engine;
mod entries;
mod errors;
mod evaluation;
mod expression;
mod fast;
mod folding;
mod guest;
mod header;
mod inputs;
mod keda;
mod llm_d_plugin;
mod names;
mod operators;
mod registry;
mod rows;
mod sandbox;
mod scan;
mod state;
mod step_views;
mod table;
mod term;
mod testing;
#[cfg(test)]
mod tests;
mod texts;
mod values;
mod views;
mod vllm;

use std::io;
use std::path::Path;
use std::sync::Arc;

use rhai::AST;

pub use self::definitions::definitions;
pub use self::expression::{ExpressionError, ExpressionForm, ScriptExpression, expression};
pub use self::inputs::{ScriptInput, inputs};
pub use self::keda::{KedaSettings, keda_scaled_object};
pub use self::llm_d_plugin::{GoPlugin, llm_d_plugin};

use self::code::{Script, ScriptFunction, SpecializedCode};
use self::engine::Kit;
use self::entries::ENTRIES;
use self::errors::ScriptSource;
use self::guest::ScriptGuest;
use self::header::{ScriptHeader, near};
use self::scan::{Scan, SourceSpan};
use self::views::UsedFields;
pub use self::vllm::vllm_cache_policy;
use blis_diag::{Location, read_bytes};

use super::limits::{
    CONSTANTS, DECLARED_VARIABLES, EXPANDED_TOKENS, FUNCTION_PARAMETERS, FUNCTIONS as FUNCTIONS_OF_A_SCRIPT,
    SCRIPT_BYTES, SCRIPT_TOKENS,
};
use super::{Fault, FaultKind, Guest, GuestSetup, Kind, Limits, Plugin, PolicyDescription, Technology, TestFunction};

/// A script compiled with the default values of its parameters.
#[derive(Debug)]
struct ScriptPlugin {
    script: Arc<Script>,
    code: SpecializedCode,
}

/// Loads the script in the file at `path`.
///
/// # Errors
/// If the file cannot be read, or as [`load`].
pub fn load_file(path: &Path, limits: &Limits) -> Result<Arc<dyn Plugin>, Fault> {
    load(path, &read_file(path, limits)?, limits)
}

/// As [`vllm_cache_policy`], of the script in the file at `path`.
///
/// # Errors
/// If the file cannot be read, or as [`vllm_cache_policy`].
pub fn vllm_cache_policy_of_file(path: &Path, parameters: &[(String, f64)], limits: &Limits) -> Result<String, Fault> {
    vllm_cache_policy(path, &read_file(path, limits)?, parameters, limits)
}

/// As [`keda_scaled_object`], of the script in the file at `path`.
///
/// # Errors
/// If the file cannot be read, or as [`keda_scaled_object`].
pub fn keda_scaled_object_of_file(
    path: &Path,
    parameters: &[(String, f64)],
    settings: &KedaSettings,
    limits: &Limits,
) -> Result<String, Fault> {
    keda_scaled_object(path, &read_file(path, limits)?, parameters, settings, limits)
}

/// As [`llm_d_plugin`], of the script in the file at `path`.
///
/// # Errors
/// If the file cannot be read, or as [`llm_d_plugin`].
pub fn llm_d_plugin_of_file(path: &Path, parameters: &[(String, f64)], limits: &Limits) -> Result<GoPlugin, Fault> {
    llm_d_plugin(path, &read_file(path, limits)?, parameters, limits)
}

/// The text in the file at `path`.
fn read_file(path: &Path, limits: &Limits) -> Result<String, Fault> {
    let fault = |text: String| Fault::new(FaultKind::Unreadable, text).at(Location::file(blis_diag::display(path)));
    let most = limits.file_bytes.min(SCRIPT_BYTES);
    let bytes = read_bytes(path, most).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => fault(too_long(most)),
        _ => fault(format!("it cannot be read: {error}")),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        fault(format!("line {line} is not UTF-8 text: is this a script?"))
    })
}

/// Compiles the script `source`; messages call it `path`.
///
/// # Errors
/// If it does not compile, has no function for any kind of decision, or a function has the wrong parameters.
pub fn load(path: &Path, source: &str, limits: &Limits) -> Result<Arc<dyn Plugin>, Fault> {
    Ok(Arc::new(compile(path, source, limits, engine::kit(limits))?))
}

/// Compiles the script `source` for the engine of `kit`.
fn compile(path: &Path, source: &str, limits: &Limits, kit: Arc<Kit>) -> Result<ScriptPlugin, Fault> {
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
        return Err(text.fault(FaultKind::Syntax, Some(number), &engine::too_long_number(number.text)));
    }
    let header =
        ScriptHeader::of(&scan).map_err(|error| text.fault(FaultKind::Syntax, Some(error.span), &error.text))?;
    let mut script = Script {
        description: describe(path, &header, &scan),
        source: text,
        functions: Vec::new(),
        used_fields: UsedFields::by(&scan),
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

fn too_long(most: u64) -> String {
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

fn describe(path: &Path, header: &ScriptHeader, scan: &Scan<'_>) -> PolicyDescription {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    PolicyDescription {
        name: header.name.clone().or(stem).unwrap_or_else(|| "script".to_owned()),
        version: header.version.clone(),
        about: header.about.clone(),
        kinds: Vec::new(),
        columns: UsedFields::by(scan).columns(),
        reads: UsedFields::by(scan).reads(),
        events: header.events,
        scores: true,
        every_step: header.every_step,
        parameters: header.parameters.clone(),
        others: Vec::new(),
    }
}

/// Whether the host calls a function of this name.
fn is_entry(name: &str) -> bool {
    ENTRIES.iter().any(|entry| entry.name == name)
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
    let subscribed = header.events != blis_sim::policy::Events::NONE;
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
        let text = "it has none of the functions that policies are made of: admit(r, s), route(r, s), filter(r, s), \
                    priority(r), rank(r, q), victim(b), step_time(b), and for flow control saturation(s), ceilings(saturation, \
                    b), fair_pick(b, f), order(r, expires), evict(b, f), and for autoscaling scale(g), drain(g, r), placement(r, n), and for KV tiers keep(c), store(t, c), load(h)";
        return fault(scan.functions.first().copied(), &format!("{text}{}", hint.unwrap_or_default()));
    }
    Ok(kinds)
}

impl Plugin for ScriptPlugin {
    fn description(&self) -> &PolicyDescription {
        &self.script.description
    }

    fn technology(&self) -> Technology {
        Technology::Script
    }

    fn start(&self, setup: &GuestSetup) -> Result<Box<dyn Guest>, Fault> {
        let declared = &self.script.description.parameters;
        let defaults = declared.iter().map(|parameter| parameter.default);
        let code = if setup.parameters.iter().copied().eq(defaults) {
            self.code.clone()
        } else if setup.parameters.len() == declared.len() {
            self.script.compile(&setup.parameters)?
        } else {
            let text = format!("it has {} parameters and was given {}", declared.len(), setup.parameters.len());
            return Err(self.script.source.fault(FaultKind::Refused, None, &text));
        };
        Ok(Box::new(ScriptGuest::start(Arc::clone(&self.script), code, setup)?))
    }

    fn run_tests(&self, limits: &Limits) -> Result<Vec<TestFunction>, Fault> {
        testing::run(self, limits)
    }
}

/// Features of a script with which a search keeps its candidates diverse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptProfile {
    /// Number of lines with code.
    pub lines: usize,
    /// Number of different fields of requests, clusters and the like that the code reads.
    pub signals: usize,
    /// Number of numeric literals in the code and of parameters.
    pub constants: usize,
}

/// The features of `source`, which need not compile.
#[must_use]
pub fn profile(source: &str) -> ScriptProfile {
    let scan = Scan::of(source);
    let kit = engine::kit(&Limits::default());
    let fields: std::collections::BTreeSet<&str> = kit.names.fields.values().flatten().copied().collect();
    let code = || source.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let numbers = |line: &str| {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
        words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).count()
    };
    ScriptProfile {
        lines: code().filter(|line| !line.is_empty()).count(),
        signals: scan.words.iter().filter(|word| fields.contains(*word)).count(),
        constants: code().map(numbers).sum::<usize>()
            + scan.comments.iter().filter(|comment| comment.text.starts_with("@param ")).count(),
    }
}
