//! Names in a script, checked when it is loaded: a misspelt one may stand in a branch that a run takes hours later.

use std::collections::BTreeSet;

use rhai::AST;

use super::code::Script;
use super::engine::LANGUAGE_FUNCTIONS;
use super::entries::ENTRIES;
use super::header::near;
use super::scan::{Alias, NameUse, Scan, SourceSpan};
use crate::{Fault, FaultKind};

/// What stands before `(` and is no function.
const KEYWORDS: [&str; 14] =
    ["if", "else", "while", "until", "for", "in", "loop", "do", "switch", "return", "throw", "catch", "let", "const"];

/// Functions of the language that the page about scripts does not name, as methods.
const OTHER_METHODS: [&str; 20] = [
    "bits",
    "bytes",
    "chars",
    "end",
    "exclusive",
    "get_bit",
    "get_bits",
    "inclusive",
    "is_exclusive",
    "is_inclusive",
    "is_shared",
    "set_bit",
    "set_bits",
    "start",
    "step",
    "to_binary",
    "to_degrees",
    "to_hex",
    "to_octal",
    "to_radians",
];

/// The functions that test functions may call besides those of every script.
pub(super) const TEST_HELPERS: [&str; 22] = [
    "assert",
    "band",
    "bands",
    "batch",
    "chunks",
    "cluster",
    "decodes",
    "flows",
    "groups",
    "in_flight",
    "link",
    "nodes",
    "prefills",
    "queued",
    "drain_group",
    "replicas",
    "request",
    "routed",
    "starting",
    "step",
    "tier",
    "tier_hit",
];

/// Refuses functions and methods that do not exist or take another number of arguments, and fields that the arguments of the
/// host and their entries do not have.
///
/// # Errors
/// The first such name.
pub(super) fn check(script: &Script, scan: &Scan<'_>, ast: &AST) -> Result<(), Fault> {
    let mut known: BTreeSet<&str> = script.kit.functions().copied().collect();
    known.extend(ast.iter_functions().map(|function| function.name));
    // The compiler drops functions that another of the same name replaces.
    known.extend(scan.functions.iter().map(|function| function.text));
    for used in &scan.uses {
        match *used {
            NameUse::Call(name, arguments) => {
                check_function(script, scan, &known, name)?;
                check_arguments(script, scan, ast, name, arguments)?;
            }
            NameUse::Method(name) => check_method(script, scan, &known, name)?,
            NameUse::Field { function, variable, indexed, name } => {
                let what = view(script, scan, function, variable, 0);
                if let Some(what) = if indexed { what.and_then(entry) } else { what } {
                    check_field(script, what, name)?;
                }
            }
        }
    }
    Ok(())
}

/// Refuses functions and variables with the name of another thing, which would hide it or be hidden.
///
/// # Errors
/// The first such name.
pub(super) fn check_declarations(script: &Script, scan: &Scan<'_>) -> Result<(), Fault> {
    let refused = |span: SourceSpan<'_>, text: String| Err(script.source.fault(FaultKind::Syntax, Some(span), &text));
    for (function, parameters) in scan.functions.iter().zip(&scan.parameters) {
        let name = function.text;
        let is_of_host = script.kit.functions().any(|known| *known == name)
            && !TEST_HELPERS.contains(&name)
            && ENTRIES.iter().all(|known| known.name != name);
        if is_of_host {
            return refused(*function, format!("`{name}` is a function of the host: give this one another name"));
        }
        let is_called_by_host = ENTRIES.iter().any(|known| known.name == name);
        let hidden = script.description.parameters.iter().find(|one| parameters.contains(&one.name.as_str()));
        if let Some(hidden) = hidden.filter(|_| is_called_by_host) {
            let hidden = &hidden.name;
            let text = format!(
                "`{name}` has the argument `{hidden}`, which hides the parameter `// @param {hidden}`: rename one"
            );
            return refused(*function, text);
        }
    }
    for declared in &scan.top_level {
        if script.description.parameters.iter().any(|one| one.name == declared.text) {
            let name = declared.text;
            return refused(
                *declared,
                format!("`{name}` is a parameter of the script (`// @param {name}`): rename one"),
            );
        }
    }
    Ok(())
}

fn check_function(script: &Script, scan: &Scan<'_>, known: &BTreeSet<&str>, name: SourceSpan<'_>) -> Result<(), Fault> {
    if scan.tests.contains(name.text) && !scan.is_in_test(name) {
        let text = format!("`{}` is a test: only tests may call it", name.text);
        return Err(script.source.fault(FaultKind::UnknownName, Some(name), &text));
    }
    if KEYWORDS.contains(&name.text) || scan.variables.contains(name.text) || known.contains(name.text) {
        return Ok(());
    }
    if TEST_HELPERS.contains(&name.text) {
        if scan.is_in_test(name) {
            return Ok(());
        }
        let text = format!("`{}` is available to test functions only: `fn test_…()`", name.text);
        return Err(script.source.fault(FaultKind::UnknownName, Some(name), &text));
    }
    let text = format!("there is no function `{}`{}", name.text, near(name.text, known, ""));
    Err(script.source.fault(FaultKind::UnknownName, Some(name), &text))
}

/// `x.name(…)` calls a function, or a closure in an object map.
fn check_method(script: &Script, scan: &Scan<'_>, known: &BTreeSet<&str>, name: SourceSpan<'_>) -> Result<(), Fault> {
    let is_known = known.contains(name.text) || scan.keys.contains(name.text) || OTHER_METHODS.contains(&name.text);
    if is_known || (TEST_HELPERS.contains(&name.text) && scan.is_in_test(name)) {
        return Ok(());
    }
    let text = format!("there is no function `{}`{}", name.text, near(name.text, known, ""));
    Err(script.source.fault(FaultKind::UnknownName, Some(name), &text))
}

fn check_arguments(
    script: &Script,
    scan: &Scan<'_>,
    ast: &AST,
    name: SourceSpan<'_>,
    arguments: Option<usize>,
) -> Result<(), Fault> {
    let Some(given) = arguments else { return Ok(()) };
    // A variable may hold a closure; of the language's own functions the numbers of arguments are not known.
    if scan.variables.contains(name.text) || LANGUAGE_FUNCTIONS.contains(&name.text) || KEYWORDS.contains(&name.text) {
        return Ok(());
    }
    let mut taken = script.kit.names.functions.get(name.text).cloned().unwrap_or_default();
    taken.extend(ast.iter_functions().filter(|f| f.name == name.text).map(|f| f.params.len()));
    if taken.is_empty() || taken.contains(&given) {
        return Ok(());
    }
    let taken: Vec<String> = taken.iter().map(usize::to_string).collect();
    let plural = if taken == ["1"] { "" } else { "s" };
    let text = format!("`{}` takes {} argument{plural}, not {given}", name.text, taken.join(" or "));
    Err(script.source.fault(FaultKind::UnknownName, Some(name), &text))
}

/// What the `variable` in the function with this number is, if it is a view or an entry of one beyond doubt.
fn view(script: &Script, scan: &Scan<'_>, function: usize, variable: &str, depth: usize) -> Option<&'static str> {
    const LONGEST_CHAIN: usize = 8;
    let is_global = script.constants.iter().any(|name| name == variable)
        || script.description.parameters.iter().any(|parameter| parameter.name == variable);
    if depth > LONGEST_CHAIN || is_global {
        return None;
    }
    let Some(alias) = scan.aliases.get(&(function, variable)) else { return argument(scan, function, variable) };
    // A variable with the name of an argument is one of the two.
    match alias.filter(|_| !is_parameter(scan, function, variable))? {
        Alias::Of(other) => view(script, scan, function, other, depth + 1),
        Alias::EntryOf(other) => view(script, scan, function, other, depth + 1).and_then(entry),
    }
}

/// What the entries of a view are.
fn entry(what: &str) -> Option<&'static str> {
    (what == "cluster").then_some("instance")
}

fn is_parameter(scan: &Scan<'_>, function: usize, variable: &str) -> bool {
    let parameters = function.checked_sub(1).and_then(|index| scan.parameters.get(index));
    parameters.is_some_and(|parameters| parameters.contains(&variable))
}

/// What the `variable` is, if it is an argument that the host passes.
fn argument(scan: &Scan<'_>, function: usize, variable: &str) -> Option<&'static str> {
    let index = function.checked_sub(1)?;
    let (name, parameters) = (scan.functions.get(index)?.text, scan.parameters.get(index)?);
    let arguments = &ENTRIES.iter().find(|known| known.name == name)?.views;
    if arguments.len() != parameters.len() {
        return None;
    }
    arguments[parameters.iter().position(|parameter| *parameter == variable)?]
}

fn check_field(script: &Script, what: &str, name: SourceSpan<'_>) -> Result<(), Fault> {
    let Some(known) = script.kit.names.fields.get(what) else { return Ok(()) };
    // A method without parentheses has a message of its own.
    if known.contains(name.text) || script.kit.functions().any(|function| *function == name.text) {
        return Ok(());
    }
    let article = if matches!(what, "event" | "instance") { "an" } else { "a" };
    let text = format!("{article} {what} has no field `{}`{}", name.text, near(name.text, known, ""));
    Err(script.source.fault(FaultKind::UnknownName, Some(name), &text))
}
