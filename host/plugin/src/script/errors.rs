//! Errors of the script engine in plain words, with the line and a hint.

use std::fmt::Write as _;
use std::sync::Arc;

use rhai::{Dynamic, EvalAltResult, ParseError, ParseErrorType, Position};

use super::call::{HostError, too_many_steps};
use super::column::Column;
use super::engine::Kit;
use super::entries::is_entry;
use super::header::near;
use super::scan::{LoopSpan, Scan, SourceSpan};
use super::texts::text_of_number;
use crate::limits::{ENTRIES, FAULT_BYTES, TEXT_BYTES};
use crate::text::{is_invisible, plain};
use crate::{Fault, FaultKind};
use blis_diag::{Diagnostic, Location};

/// A script's text and path, for messages.
#[derive(Clone, Debug)]
pub(super) struct ScriptSource {
    pub path: Arc<str>,
    pub text: Arc<str>,
}

impl ScriptSource {
    /// A fault at `span`, or of the script as a whole.
    pub fn fault(&self, kind: FaultKind, span: Option<SourceSpan<'_>>, text: &str) -> Fault {
        let Some(span) = span else { return Fault::new(kind, plain(text, FAULT_BYTES)).at(self.location()) };
        let len = span.text.chars().count() as u64;
        self.fault_at(kind, span.line, span.column, len, text)
    }

    /// A fault of the comment or code in `line`.
    pub fn fault_in_line(&self, kind: FaultKind, line: u64, text: &str) -> Fault {
        let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        let shown = self.text.split('\n').nth(index).unwrap_or_default();
        let column = shown.chars().take_while(|c| c.is_whitespace()).count() as u64 + 1;
        self.fault_at(kind, line, column, shown.trim().chars().count() as u64, text)
    }

    fn fault_at(&self, kind: FaultKind, line: u64, column: u64, len: u64, text: &str) -> Fault {
        let (location, text) = (self.location().characters(line, column, len), &*plain(text, FAULT_BYTES));
        if !self.text.contains(is_invisible) {
            return Fault::of(kind, Diagnostic::in_text(location, &self.text, text));
        }
        // One character for another, so that columns stay.
        let shown: String = self.text.chars().map(|c| if is_invisible(c) { '\u{fffd}' } else { c }).collect();
        Fault::of(kind, Diagnostic::in_text(location, &shown, text))
    }

    /// The script as a whole.
    fn location(&self) -> Location {
        Location::file(Arc::clone(&self.path))
    }

    /// A fault at `position`.
    pub fn fault_by(&self, kind: FaultKind, position: Position, text: &str) -> Fault {
        let Some(line) = position.line() else { return self.fault(kind, None, text) };
        let column = position.position().unwrap_or(1) as u64;
        let shown = self.text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default();
        let rest = shown.chars().skip((column.saturating_sub(1)) as usize);
        let len = rest.take_while(|&c| c == '_' || c.is_alphanumeric()).count() as u64;
        self.fault_at(kind, line as u64, column, len, text)
    }

    /// The first line that assigns to `path`.
    pub fn assignment_of(&self, path: &str) -> Option<u64> {
        let assigns = |line: &str| {
            line.match_indices(path).any(|(at, _)| {
                let rest = line[at + path.len()..].trim_start();
                rest.starts_with('=') && !rest.starts_with("==")
            })
        };
        let code = self.text.split('\n').map(|line| line.split("//").next().unwrap_or_default());
        code.zip(1..).find(|(line, _)| assigns(line)).map(|(_, number)| number)
    }

    /// The script does not compile.
    pub fn syntax(&self, error: &ParseError, kit: &Kit, visible: &[&str]) -> Fault {
        let (kind, text) = syntax_text(error.err_type(), visible);
        self.fault_by(kind, error.position(), &plain(&text, kit.limits.message_bytes))
    }

    /// A call of the script's `function` by the host ended with `error`.
    pub fn runtime(&self, error: &EvalAltResult, kit: &Kit, function: &str) -> Fault {
        let mut error = error;
        let mut position = Position::NONE;
        let mut callers = String::new();
        let mut inside = function.to_owned();
        while let EvalAltResult::ErrorInFunctionCall(name, _, inner, called_at) = error {
            let line = called_at.line().map_or_else(String::new, |line| format!(" in line {line}"));
            let _ = write!(callers, "\n  called from `{inside}`{line}");
            inside.clone_from(name);
            position = *called_at;
            error = inner;
        }
        if inside.starts_with("anon$") {
            "a closure".clone_into(&mut inside);
        }
        if !error.position().is_none() {
            position = error.position();
        }
        let (kind, mut text) = runtime_text(error, kit);
        let scan = Scan::of(&self.text);
        let endless = if kind == FaultKind::OutOfFuel { scan.endless(position, &inside) } else { Vec::new() };
        if let [one, another, ..] = endless.as_slice() {
            let more = if endless.len() > 2 { " and more" } else { "" };
            let _ = write!(text, " (there are loops in lines {} and {}{more})", one.keyword.line, another.keyword.line);
        }
        if let [one] = endless.as_slice()
            && position.is_none()
        {
            one.function.clone_into(&mut inside);
        }
        let text = format!("in `{inside}`: {}", plain(&text, kit.limits.message_bytes));
        let mut fault = if let [one] = endless.as_slice() {
            self.fault(kind, Some(one.keyword), &text)
        } else if position.is_none() {
            // The engine does not report where a limit was exceeded; the function is known.
            let span = scan.functions.iter().find(|span| span.text == inside).copied();
            self.fault(kind, span, &text)
        } else {
            self.fault_by(kind, position, &text)
        };
        // For deep recursion the first few callers are enough.
        let shown = callers.lines().rev().filter(|line| !line.is_empty()).take(4);
        let shown: String = shown.map(|line| format!("\n{line}")).collect();
        if !shown.is_empty() {
            let excerpt = fault.diagnostic.excerpt.take().unwrap_or_default();
            fault.diagnostic.excerpt = Some(format!("{excerpt}{shown}").into());
        }
        fault
    }
}

impl<'a> Scan<'a> {
    /// The loops that may have used up what a call of `inside` may: the innermost one around `position`; if that is not known,
    /// one in each line of `inside` and of functions that only the script calls, without loops over ranges and collections if
    /// there are others.
    fn endless(&self, position: Position, inside: &str) -> Vec<LoopSpan<'a>> {
        if let Some(line) = position.line() {
            let (line, column) = (line as u64, position.position().unwrap_or(1) as u64);
            return self.loops.iter().rfind(|one| one.contains(line, column)).copied().into_iter().collect();
        }
        let is_entered = |name: &str| name.is_empty() || is_entry(name) || self.tests.contains(name);
        let is_reached = |one: &&LoopSpan<'a>| one.function == inside || !is_entered(one.function);
        let (over, others): (Vec<_>, Vec<_>) =
            self.loops.iter().filter(is_reached).copied().partition(|one| one.keyword.text == "for");
        let mut found: Vec<LoopSpan<'a>> = if others.is_empty() { over } else { others };
        found.dedup_by_key(|one| one.keyword.line);
        found
    }
}

fn syntax_text(error: &ParseErrorType, visible: &[&str]) -> (FaultKind, String) {
    let text = match error {
        ParseErrorType::VariableUndefined(name) => {
            let hint = near(name, visible, "");
            format!(
                "there is no `{name}` here{hint}{} a function or closure sees what it is given, `this`, parameters \
                 (`// @param`) and constants (`const x = …;` outside of functions), and no variable around it",
                if hint.is_empty() { ":" } else { "" }
            )
        }
        ParseErrorType::Reserved(word) => not_available(word),
        ParseErrorType::ExprTooDeep => {
            return (FaultKind::TooDeep, "expressions or blocks are nested too deeply: use more variables".to_owned());
        }
        ParseErrorType::LiteralTooLarge(what, most) => {
            return (FaultKind::OutOfMemory, format!("{} of this literal is more than {most}", what.to_lowercase()));
        }
        ParseErrorType::TooManyFunctions => "there are too many functions".to_owned(),
        ParseErrorType::UnexpectedEOF => "the script ends in the middle: a bracket or brace is not closed".to_owned(),
        ParseErrorType::AssignmentToConstant(name) => format!("`{name}` is a constant and cannot be changed"),
        other => {
            let text = other.to_string();
            if let Some((word, _)) = text.split_once('\'').and_then(|(_, rest)| rest.split_once("' is disabled")) {
                return (FaultKind::Syntax, not_available(word));
            }
            let text = text.replacen("Expecting", "expected", 1);
            if text.contains("';' to terminate") { format!("{text}: is the `;` missing?") } else { text }
        }
    };
    (FaultKind::Syntax, text)
}

/// The message for a `word` that is reserved or disabled.
fn not_available(word: &str) -> String {
    match word {
        "print" | "debug" => format!("there is no `{word}`: `log(text)` writes to the log of the run"),
        "Fn" | "curry" => format!("there is no `{word}`: write a closure, as in `|x| x + 1`"),
        _ => format!("`{word}` is not available to policies"),
    }
}

fn runtime_text(error: &EvalAltResult, kit: &Kit) -> (FaultKind, String) {
    use EvalAltResult as E;
    let limits = &kit.limits;
    let text = match error {
        E::ErrorRuntime(value, _) | E::ErrorTerminated(value, _) => return thrown_value(value),
        E::ErrorTooManyOperations(_) => {
            let error = too_many_steps(limits.operations_per_call.max(1));
            return (error.kind, error.text);
        }
        E::ErrorStackOverflow(_) => {
            let most = limits.call_depth;
            return (FaultKind::TooDeep, format!("more than {most} functions called inside each other"));
        }
        E::ErrorDataTooLarge(what, _) => return (FaultKind::OutOfMemory, too_large(what, kit)),
        E::ErrorTooManyVariables(_) => return (FaultKind::OutOfMemory, "there are too many variables".to_owned()),
        E::ErrorParsing(error, _) => return syntax_text(error, &[]),
        E::ErrorFunctionNotFound(signature, _) => return (FaultKind::UnknownName, no_function(signature, kit)),
        E::ErrorDotExpr(text, _) => return (FaultKind::UnknownName, no_field(text, kit)),
        E::ErrorVariableNotFound(name, _) => return (FaultKind::UnknownName, format!("there is no `{name}` here")),
        E::ErrorPropertyNotFound(name, _) => format!("there is no `{name}` in this object map"),
        E::ErrorMismatchDataType(expected, got, _) | E::ErrorMismatchOutputType(expected, got, _) => {
            mismatch(expected, got)
        }
        E::ErrorIndexingType(text, _) => {
            let (what, index) = text.trim_end_matches(']').split_once(" [").unwrap_or((text, ""));
            format!("{} has no [{}]", article(what), word(index))
        }
        E::ErrorArrayBounds(0, index, _) => format!("there is no index {index}: the array is empty"),
        E::ErrorArrayBounds(len, index, _) => {
            format!("there is no index {index}: the array has the indices 0 to {}", len - 1)
        }
        E::ErrorStringBounds(len, index, _) => format!("there is no index {index}: the text has {len} characters"),
        E::ErrorArithmetic(text, _) => {
            let hint = if text.contains("ivision by zero") || text.contains("odulo") {
                "; whole numbers cannot be divided by zero: check first, or divide by a number with a fraction (`x / float(y)`)"
            } else {
                "; whole numbers have 64 bits: count in numbers with a fraction (`float(x)`)"
            };
            format!("{text}{hint}")
        }
        E::ErrorUnboundThis(_) => {
            "`this` is known in functions that the host calls; call a helper as `this.helper(…)` to hand it on"
                .to_owned()
        }
        E::ErrorFor(_) => {
            "`for` goes over ranges (`0..s.len`), arrays, columns, texts and the instances `s`".to_owned()
        }
        E::ErrorAssignmentToConstant(name, _) => format!("`{name}` is a constant and cannot be changed"),
        E::ErrorNonPureMethodCallOnConstant(name, _) => format!("`{name}` would change a constant"),
        other => {
            let mut other = other.to_string();
            if let Some(at) = other.rfind(" (line ") {
                other.truncate(at);
            }
            other
        }
    };
    (FaultKind::Trap, text)
}

fn thrown_value(value: &Dynamic) -> (FaultKind, String) {
    if let Some(error) = value.read_lock::<HostError>() {
        return (error.kind, error.text.clone());
    }
    if value.is_unit() {
        return (FaultKind::Trap, "it threw an error".to_owned());
    }
    let mut text = "it threw: ".to_owned();
    show(value, 0, &mut text);
    (FaultKind::Trap, text)
}

/// Entries of an array, object map or column that a message shows, and the depth of those inside each other.
const SHOWN: usize = 64;
const SHOWN_DEPTH: usize = 6;

/// Appends `value` as scripts write it; of large values the beginning.
fn show(value: &Dynamic, depth: usize, text: &mut String) {
    let quoted = depth > 0;
    if let Some(column) = value.read_lock::<Column>() {
        let shown: Vec<String> = column.values().iter().take(SHOWN).map(|&x| text_of_number(x)).collect();
        let more = if column.len() > SHOWN { ", …" } else { "" };
        let _ = write!(text, "[{}{more}]", shown.join(", "));
    } else if let Ok(array) = value.as_array_ref() {
        text.push('[');
        for (index, item) in array.iter().enumerate().take(SHOWN) {
            text.push_str(if index > 0 { ", " } else { "" });
            if depth == SHOWN_DEPTH { text.push('…') } else { show(item, depth + 1, text) }
        }
        text.push_str(if array.len() > SHOWN { ", …]" } else { "]" });
    } else if let Ok(map) = value.as_map_ref() {
        text.push_str("#{");
        for (index, (name, item)) in map.iter().enumerate().take(SHOWN) {
            let _ = write!(text, "{}{name:?}: ", if index > 0 { ", " } else { "" });
            if depth == SHOWN_DEPTH { text.push('…') } else { show(item, depth + 1, text) }
        }
        text.push_str(if map.len() > SHOWN { ", …}" } else { "}" });
    } else if let Ok(words) = value.as_immutable_string_ref() {
        let words = words.as_str();
        let _ = if quoted { write!(text, "{words:?}") } else { write!(text, "{words}") };
    } else if value.is_fnptr() {
        text.push_str("a function");
    } else if let Ok(x) = value.as_float() {
        text.push_str(&text_of_number(x));
    } else if value.is_unit() || value.is_int() || value.is_bool() || value.is_char() {
        let _ = write!(text, "{value}");
    } else {
        text.push_str(&article(value.type_name()));
    }
}

fn too_large(what: &str, kit: &Kit) -> String {
    let entries = ENTRIES.min(kit.limits.collection_size);
    match what {
        "Length of string" => format!("a text of more than {} bytes", TEXT_BYTES.min(kit.limits.collection_size)),
        "Size of object map" => {
            format!(
                "an object map of more than {entries} entries, those of object maps inside counted; a `table()` holds more numbers"
            )
        }
        _ => format!("an array of more than {entries} entries, those of arrays inside counted"),
    }
}

/// `signature` has the form `foo (i64, column)`.
fn no_function(signature: &str, kit: &Kit) -> String {
    let (name, arguments) = signature.split_once(" (").unwrap_or((signature, ")"));
    let arguments: Vec<_> = arguments.trim_end_matches(')').split(", ").filter(|word| !word.is_empty()).collect();
    let nothing = if arguments.contains(&"()") {
        "; nothing, `()`, is what a missing entry or field holds: give another value with `??`"
    } else {
        ""
    };
    let given: Vec<_> = arguments.iter().map(|argument| article(argument)).collect();
    if name.starts_with("anon$") {
        let plural = if given.len() == 1 { "" } else { "s" };
        return format!("the closure does not take {} argument{plural}", given.len());
    }
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return format!("`{name}` does not work on {}{nothing}", given.join(" and "));
    }
    let known = kit.functions().any(|known| *known == name);
    let hint = if known { String::new() } else { near(name, kit.functions(), "") };
    match given.len() {
        0 => format!("there is no function `{name}` without arguments{hint}"),
        _ => format!("there is no function `{name}` of {}{hint}{nothing}", given.join(" and ")),
    }
}

/// `text` has the form `Unknown property 'x' - a getter is not registered for type 'column'`.
fn no_field(text: &str, kit: &Kit) -> String {
    let quoted: Vec<_> = text.split('\'').skip(1).step_by(2).collect();
    let [field, what, ..] = quoted[..] else { return text.to_owned() };
    let what = what.rsplit("::").next().unwrap_or(what);
    if text.starts_with("No writable") {
        return format!("`{field}` of {} cannot be changed", article(what));
    }
    let hint = kit.names.fields.get(what).map_or_else(String::new, |names| near(field, names, ""));
    let nothing = if what == "()" { ": nothing, `()`, is what a missing entry or field holds" } else { "" };
    format!("{} has no field `{field}`{hint}{nothing}", article(what))
}

fn mismatch(expected: &str, got: &str) -> String {
    let hint = match (word(expected).as_str(), word(got).as_str()) {
        ("truth value", "column") => {
            "; `&` and `|` combine columns, `any(column)` and `all(column)` make a truth value of one"
        }
        ("truth value", "nothing") => "; compare with `()` if something may be missing",
        _ => "",
    };
    format!("{} is needed here, not {}{hint}", article(expected), article(got))
}

/// The type name that script authors use for a type name of the engine.
fn word(name: &str) -> String {
    match name.trim() {
        "i64" => "whole number",
        "f64" => "number",
        "bool" => "truth value",
        "()" => "nothing",
        "string" | "&str | ImmutableString | String" => "text",
        "char" => "character",
        "map" => "object map",
        "Fn" => "function",
        // Some messages of the engine contain Rust type paths.
        other => match other.rsplit("::").next().unwrap_or(other) {
            "Column" => "column",
            "FnPtr" => "function",
            "Range<i64>" | "RangeInclusive<i64>" => "range",
            "Table" => "table",
            "RequestObject" => "request",
            "ClusterObject" => "cluster",
            "InstanceObject" => "instance",
            "EventObject" => "event",
            other => other,
        },
    }
    .to_owned()
}

fn article(name: &str) -> String {
    let word = word(name);
    match word.chars().next() {
        _ if word == "nothing" => word,
        Some('a' | 'e' | 'i' | 'o') => format!("an {word}"),
        _ => format!("a {word}"),
    }
}
