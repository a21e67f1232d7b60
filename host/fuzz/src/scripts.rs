//! Scripts written from random bytes by the grammar of the language: unlike random text, most of them load and run.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use arbitrary::{Result, Unstructured};
use blis_plugin::check::setup;
use blis_plugin::inputs::{GuestCall, ties};
use blis_plugin::{FaultKind, Limits, Plugin, script};

/// The page that lists all functions.
const PAGE: &str = include_str!("../../../sdk/rhai/README.md");

/// Functions that the host calls, and their arguments.
const DECISIONS: [(&str, &str); 19] = [
    ("admit", "r, s"),
    ("route", "r, s"),
    ("filter", "r, s"),
    ("priority", "r"),
    ("rank", "r, q"),
    ("victim", "b"),
    ("step_time", "b"),
    ("saturation", "s"),
    ("ceilings", "q, b"),
    ("fair_pick", "b, f"),
    ("order", "r, q"),
    ("evict", "b, f"),
    ("scale", "g"),
    ("drain", "g, r"),
    ("placement", "r, n"),
    ("keep", "c"),
    ("store", "t, c"),
    ("load", "h"),
    ("disaggregate", "r, d, p, link"),
];
const FIELDS: [(&str, &[&str]); 6] = [
    ("r", &["id", "now", "deadline", "input_tokens", "max_output_tokens", "blocks", "session", "class_priority"]),
    ("s", &["queue_depth", "kv_utilization", "in_flight", "cached_blocks", "id", "len", "indices"]),
    ("q", &["now", "priority", "turn", "preemptions"]),
    ("b", &["now", "len"]),
    ("g", &["now", "len", "history", "model", "queued", "ready", "replicas", "kv_used", "saturation", "next_ready"]),
    ("f", &["now", "len", "indices", "tenant", "queued", "served_decayed", "head_rank", "id", "dispatched_at"]),
];
const LITERALS: [&str; 28] = [
    "0",
    "1",
    "2",
    "-1",
    "7",
    "100",
    "4096",
    "65536",
    "9223372036854775807",
    "0.0",
    "0.5",
    "-2.5",
    "1e300",
    "(0.0/0.0)",
    "(1.0/0.0)",
    "true",
    "false",
    "()",
    "\"\"",
    "\"x\"",
    "\"a,b\"",
    "'c'",
    "[]",
    "[1, 2.5, 3]",
    "#{}",
    "#{ a: 1, b: [] }",
    "column(4, 1.5)",
    "column([3, 1, 2, 0])",
];
const OPERATORS: [&str; 23] = [
    "+", "-", "*", "/", "%", "**", "<", "<=", ">", ">=", "==", "!=", "&&", "||", "&", "|", "^", "<<", ">>", "??", "in",
    "..", "..=",
];
const ASSIGNMENTS: [&str; 7] = ["=", "=", "+=", "-=", "*=", "%=", "**="];
/// Deepest nesting of expressions and blocks.
const DEPTH: usize = 6;

/// The names in the page that are functions, with the numbers of arguments with which a script that calls them loads.
pub fn functions() -> &'static [(String, Vec<usize>)] {
    static FUNCTIONS: OnceLock<Vec<(String, Vec<usize>)>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let words = PAGE.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split('(').next());
        let is_name =
            |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let mut names: Vec<&str> = words.filter(is_name).collect();
        names.sort_unstable();
        names.dedup();
        let loads = |name: &str, n: usize| {
            let source = format!("fn admit(r, s) {{ {name}({}) }}", vec!["1"; n].join(", "));
            script::load(Path::new("fuzz.rhai"), &source, &Limits::default()).is_ok()
        };
        let taken = |name: &str| (0..5).filter(|n| loads(name, *n)).collect::<Vec<_>>();
        names.into_iter().map(|name| (name.to_owned(), taken(name))).filter(|(_, taken)| !taken.is_empty()).collect()
    })
}

/// Writes a script; the random bytes decide.
struct ScriptWriter<'a, 'b> {
    random: &'a mut Unstructured<'b>,
    text: String,
    variables: Vec<String>,
    /// Numbers of arguments of the script's own functions.
    helpers: Vec<usize>,
    closures: usize,
    in_closure: bool,
}

/// A script that makes a decision of one kind.
///
/// # Errors
/// If too few random bytes are left.
pub fn write_script(random: &mut Unstructured<'_>) -> Result<String> {
    let mut writer = ScriptWriter {
        random,
        text: "// @param weight 2 0 10\nconst LIMIT = 12;\n".to_owned(),
        variables: Vec::new(),
        helpers: Vec::new(),
        closures: 0,
        in_closure: false,
    };
    for index in 0..writer.random.int_in_range(0..=2)? {
        let names = ["x", "y", "z"];
        let count = writer.random.int_in_range(0..=3)?;
        writer.function(&format!("helper{index}"), &names[..count])?;
        writer.helpers.push(count);
    }
    let (name, arguments) = *writer.random.choose(&DECISIONS)?;
    writer.function(name, &arguments.split(", ").collect::<Vec<_>>())?;
    if writer.random.ratio(1, 4)? {
        writer.function("init", &[])?;
    }
    Ok(writer.text)
}

impl ScriptWriter<'_, '_> {
    fn function(&mut self, name: &str, arguments: &[&str]) -> Result<()> {
        self.variables = arguments.iter().map(|&name| name.to_owned()).collect();
        let _ = write!(self.text, "fn {name}({}) ", arguments.join(", "));
        self.block(DEPTH, true)?;
        self.text.push('\n');
        Ok(())
    }

    /// Statements in braces, with a value at the end.
    fn block(&mut self, depth: usize, has_value: bool) -> Result<()> {
        let outer = self.variables.len();
        self.text.push_str("{ ");
        for _ in 0..self.random.int_in_range(0..=4)? {
            self.statement(depth.saturating_sub(1))?;
        }
        if has_value {
            self.expression(depth.saturating_sub(1))?;
        }
        self.text.push_str(" }");
        self.variables.truncate(outer);
        Ok(())
    }

    /// Most statements may fail without an end of the call.
    fn statement(&mut self, depth: usize) -> Result<()> {
        if depth == 0 {
            return Ok(());
        }
        if self.random.ratio(1, 2)? {
            self.text.push_str("try { ");
            let outer = self.variables.len();
            self.bare_statement(depth)?;
            self.variables.truncate(outer);
            self.text.push_str("} catch { } ");
            return Ok(());
        }
        self.bare_statement(depth)
    }

    fn bare_statement(&mut self, depth: usize) -> Result<()> {
        match self.random.int_in_range(0..=14)? {
            0..=3 => {
                let name = format!("v{}", self.variables.len());
                self.attempt(&name, depth)?;
                self.variables.push(name);
            }
            4..=5 => {
                self.assigned()?;
                let operator = self.random.choose(&ASSIGNMENTS)?;
                let _ = write!(self.text, " {operator} ");
                self.expression(depth)?;
            }
            6 => {
                self.assigned()?;
                self.index()?;
                self.text.push_str(" = ");
                self.expression(depth - 1)?;
            }
            7 => {
                self.text.push_str("this.a = ");
                self.expression(depth)?;
            }
            8 => {
                self.text.push_str("if ");
                self.condition(depth - 1)?;
                self.text.push(' ');
                self.block(depth - 1, false)?;
            }
            9..=10 => {
                let name = format!("v{}", self.variables.len());
                let _ = write!(self.text, "for {name} in ");
                self.expression(depth - 1)?;
                self.variables.push(name);
                self.text.push(' ');
                self.block(depth - 1, false)?;
                self.variables.pop();
            }
            11 => {
                self.text.push_str("while ");
                self.condition(depth - 1)?;
                self.text.push(' ');
                self.block(depth - 1, false)?;
            }
            12 => {
                self.text.push_str("try ");
                self.block(depth - 1, false)?;
                self.text.push_str(" catch ");
                self.block(depth - 1, false)?;
            }
            13 => {
                self.text.push_str("loop { if ");
                self.condition(depth - 1)?;
                self.text.push_str(" { break; } ");
                self.statement(depth - 1)?;
                self.text.push('}');
            }
            _ => self.call(depth)?,
        }
        self.text.push_str("; ");
        Ok(())
    }

    fn variable(&mut self) -> Result<()> {
        let names = if self.variables.is_empty() { &["weight".to_owned()][..] } else { &self.variables };
        self.text.push_str(self.random.choose(names)?);
        Ok(())
    }

    /// A variable that is no constant.
    fn assigned(&mut self) -> Result<()> {
        if self.variables.is_empty() {
            self.text.push_str("this.b");
            return Ok(());
        }
        self.variable()
    }

    /// An index in brackets. Literals of other types would be refused when the script is loaded.
    fn index(&mut self) -> Result<()> {
        self.text.push('[');
        if self.random.ratio(1, 2)? {
            let index = self.random.choose(&["0", "1", "-1", "3", "4096"])?;
            self.text.push_str(index);
        } else {
            self.variable()?;
        }
        self.text.push(']');
        Ok(())
    }

    /// Mostly a truth value.
    fn condition(&mut self, depth: usize) -> Result<()> {
        match self.random.int_in_range(0..=4)? {
            0 => self.expression(depth),
            1 => {
                self.text.push_str("random() < 0.9");
                Ok(())
            }
            2 => {
                self.text.push_str("any(");
                self.expression(depth)?;
                self.text.push(')');
                Ok(())
            }
            _ => {
                self.text.push('(');
                self.leaf()?;
                let operator = self.random.choose(&["<", "<=", "==", "!="])?;
                let _ = write!(self.text, " {operator} ");
                self.leaf()?;
                self.text.push(')');
                Ok(())
            }
        }
    }

    /// An expression, for which there is another value if it fails.
    fn attempt(&mut self, name: &str, depth: usize) -> Result<()> {
        let _ = write!(self.text, "let {name} = 1; try {{ {name} = ");
        self.expression(depth)?;
        self.text.push_str("; } catch { }");
        Ok(())
    }

    fn expression(&mut self, depth: usize) -> Result<()> {
        if depth == 0 || self.random.is_empty() {
            return self.leaf();
        }
        match self.random.int_in_range(0..=15)? {
            0..=2 => self.leaf(),
            3..=5 => {
                self.text.push('(');
                self.expression(depth - 1)?;
                let operator = self.random.choose(&OPERATORS)?;
                let _ = write!(self.text, " {operator} ");
                self.expression(depth - 1)?;
                self.text.push(')');
                Ok(())
            }
            6 => {
                let operator = self.random.choose(&["-", "!"])?;
                let _ = write!(self.text, "({operator}");
                self.expression(depth - 1)?;
                self.text.push(')');
                Ok(())
            }
            7..=11 => self.call(depth),
            12 => {
                self.variable()?;
                self.index()
            }
            13 => {
                let (open, close) = *self.random.choose(&[("[", "]"), ("#{ a: ", " }"), ("`x${", "}`")])?;
                self.text.push_str(open);
                self.expression(depth - 1)?;
                if open == "[" {
                    self.text.push_str(", ");
                    self.expression(depth - 1)?;
                }
                self.text.push_str(close);
                Ok(())
            }
            14 => {
                self.text.push_str("if ");
                self.condition(depth - 1)?;
                self.text.push(' ');
                self.block(depth - 1, true)?;
                self.text.push_str(" else ");
                self.block(depth - 1, true)
            }
            _ => self.closure(depth - 1),
        }
    }

    fn leaf(&mut self) -> Result<()> {
        match self.random.int_in_range(0..=3)? {
            0 => self.variable(),
            1 => {
                let views: Vec<_> =
                    FIELDS.iter().filter(|(view, _)| self.variables.iter().any(|name| name == view)).collect();
                if views.is_empty() {
                    return self.variable();
                }
                let (view, fields) = self.random.choose(&views)?;
                let field = self.random.choose(fields)?;
                let _ = write!(self.text, "{view}.{field}");
                Ok(())
            }
            _ => {
                self.text.push_str(self.random.choose(&LITERALS)?);
                Ok(())
            }
        }
    }

    /// A function of the engine or of the script, as a function or as a method.
    fn call(&mut self, depth: usize) -> Result<()> {
        let depth = depth.saturating_sub(1);
        let (name, mut count) = if !self.helpers.is_empty() && self.random.ratio(1, 6)? {
            let index = self.random.choose_index(self.helpers.len())?;
            (format!("helper{index}"), self.helpers[index])
        } else {
            let (name, taken) = self.random.choose(functions())?;
            (name.clone(), *self.random.choose(taken)?)
        };
        if count > 0 && !name.starts_with("helper") && self.random.ratio(1, 2)? {
            self.expression(depth)?;
            self.text.push('.');
            count -= 1;
        }
        let _ = write!(self.text, "{name}(");
        for index in 0..count {
            if index > 0 {
                self.text.push_str(", ");
            }
            // Many functions take a function last.
            if index + 1 == count && self.random.ratio(1, 6)? { self.closure(depth)? } else { self.expression(depth)? }
        }
        self.text.push(')');
        Ok(())
    }

    /// A closure, which sees its arguments only.
    fn closure(&mut self, depth: usize) -> Result<()> {
        if self.closures > 20 || self.in_closure {
            return self.leaf();
        }
        self.closures += 1;
        self.in_closure = true;
        let count = self.random.int_in_range(1..=2)?;
        let arguments = ["x".to_owned(), "y".to_owned()];
        let _ = write!(self.text, "|{}| ", arguments[..count].join(", "));
        let outer = std::mem::replace(&mut self.variables, arguments[..count].to_vec());
        let result = self.expression(depth.min(2));
        self.variables = outer;
        self.in_closure = false;
        result
    }
}

/// A script written from `bytes` loads or is refused; its decisions end at deterministic limits, and are the same again.
/// Returns why it did not load.
///
/// # Errors
/// The message of the fault.
pub fn written_script(bytes: &[u8], limits: &Limits) -> std::result::Result<(), String> {
    let mut random = Unstructured::new(bytes);
    let text = write_script(&mut random).map_err(|error| error.to_string())?;
    let plugin = match script::load(Path::new("fuzz.rhai"), &text, limits) {
        Ok(plugin) => plugin,
        Err(fault) => {
            assert_ne!(fault.kind, FaultKind::OutOfTime, "{text}");
            return Err(fault.to_string());
        }
    };
    let first = outcomes(&*plugin, limits, &text);
    assert_eq!(first, outcomes(&*plugin, limits, &text), "the second evaluation differs:\n{text}");
    Ok(())
}

/// Results and faults of some decisions.
fn outcomes(plugin: &dyn Plugin, limits: &Limits, text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for &kind in &plugin.description().kinds {
        let mut guest = match plugin.start(&setup(plugin, kind, 4, limits)) {
            Ok(guest) => guest,
            Err(fault) => {
                assert_ne!(fault.kind, FaultKind::OutOfTime, "{text}");
                all.push(fault.to_string());
                continue;
            }
        };
        for item in 0..2 {
            let result = GuestCall::plausible(kind, 4, item).run(&mut *guest, &ties());
            if let Err(fault) = &result {
                assert_ne!(fault.kind, FaultKind::OutOfTime, "{text}");
            }
            all.push(result.map_or_else(|fault| fault.to_string(), |output| format!("{output:?}")));
        }
        all.push(guest.save().map_or_else(|fault| fault.to_string(), |state| format!("{state:?}")));
    }
    all
}
