//! Names in a script, checked when it is loaded: a misspelt one may stand in a branch that a run takes hours later.

use rhai::AST;

use super::FUNCTIONS;
use super::code::Script;
use super::engine::LANGUAGE_FUNCTIONS;
use super::header::near;
use super::scan::{NameUse, Scan, SourceSpan};
use super::testing::TEST_HELPERS;
use crate::{Fault, FaultKind};

/// What stands before `(` and is no function.
const KEYWORDS: [&str; 14] =
    ["if", "else", "while", "until", "for", "in", "loop", "do", "switch", "return", "throw", "catch", "let", "const"];

/// What scripts call the arguments of the functions that the host calls; `None` for those that are no views.
const ARGUMENTS: [(&str, &[Option<&str>]); 9] = [
    ("admit", &[Some("request"), Some("cluster")]),
    ("route", &[Some("request"), Some("cluster")]),
    ("priority", &[Some("request")]),
    ("rank", &[Some("request"), Some("queued request")]),
    ("victim", &[Some("running batch")]),
    ("step_time", &[Some("step")]),
    ("queueing_time", &[None]),
    ("observe", &[Some("event")]),
    ("init", &[None]),
];

/// Refuses functions that do not exist or take another number of arguments, and fields that the arguments of the host do not have.
///
/// # Errors
/// The first such name.
pub(super) fn check(script: &Script, scan: &Scan<'_>, ast: &AST) -> Result<(), Fault> {
    debug_assert!(ARGUMENTS.iter().all(|(name, _)| FUNCTIONS.iter().any(|(known, ..)| known == name)));
    for used in &scan.uses {
        match *used {
            NameUse::Call(name, arguments) => {
                check_function(script, scan, name)?;
                check_arguments(script, scan, ast, name, arguments)?;
            }
            NameUse::Field { function, variable, name } => {
                // A local variable may hide the argument.
                if let Some(what) = argument(ast, function, variable).filter(|_| !scan.variables.contains(variable)) {
                    check_field(script, what, name)?;
                }
            }
        }
    }
    Ok(())
}

fn check_function(script: &Script, scan: &Scan<'_>, name: SourceSpan<'_>) -> Result<(), Fault> {
    if scan.tests.contains(name.text) && !scan.is_in_test(name) {
        let text = format!("`{}` is a test: only tests may call it", name.text);
        return Err(script.source.fault(FaultKind::UnknownName, Some(name), &text));
    }
    let mut known: Vec<&str> = script.kit.functions().map(|name| *name as &str).collect();
    known.extend(scan.functions.iter().map(|function| function.text));
    if KEYWORDS.contains(&name.text) || scan.variables.contains(name.text) || known.contains(&name.text) {
        return Ok(());
    }
    if TEST_HELPERS.contains(&name.text) {
        if scan.is_in_test(name) {
            return Ok(());
        }
        let text = format!("`{}` is available to test functions only: `fn test_…()`", name.text);
        return Err(script.source.fault(FaultKind::UnknownName, Some(name), &text));
    }
    let text = format!("there is no function `{}`{}", name.text, near(name.text, &known, ""));
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

/// What the `variable` of the `function` is, if it is an argument that the host passes.
fn argument(ast: &AST, function: &str, variable: &str) -> Option<&'static str> {
    let (_, arguments) = ARGUMENTS.iter().find(|(name, _)| *name == function)?;
    let definition = ast.iter_functions().find(|f| f.name == function && f.params.len() == arguments.len())?;
    let index = definition.params.iter().position(|parameter| *parameter == variable)?;
    arguments[index]
}

fn check_field(script: &Script, what: &str, name: SourceSpan<'_>) -> Result<(), Fault> {
    let Some(known) = script.kit.names.fields.get(what) else { return Ok(()) };
    // A method without parentheses has a message of its own.
    if known.contains(name.text) || script.kit.functions().any(|function| *function == name.text) {
        return Ok(());
    }
    let article = if what == "event" { "an" } else { "a" };
    let text = format!("{article} {what} has no field `{}`{}", name.text, near(name.text, known, ""));
    Err(script.source.fault(FaultKind::UnknownName, Some(name), &text))
}
