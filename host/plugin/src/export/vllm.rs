//! A script's `keep` as a cache policy of vLLM: the Python class that vLLM 0.33 loads by `cache_policy_module_path`.
//!
//! The class ranks chunks when they are touched, as the CPU tier does with the script (`blis_sim::offload::RankedChunks`). Of a script it
//! can have what depends on the chunk alone: numbers, arithmetic, comparisons, `&`, `|`, `min`, `max`, `abs`, `sqrt`, `exp`, `ln`,
//! `floor`, `ceil`, `select`, variables, parameters, and the fields of [`FIELDS`].

use rhai::{ASTFlags, Expr, Position, Stmt};

use super::source::ExportedScript;
use crate::script::each_statement;
use crate::{Fault, Kind};

/// Fields of chunks that a cache policy of vLLM can have, with their Python expressions.
const FIELDS: [(&str, &str); 10] = [
    ("created", "chunk.created"),
    ("created_us", "chunk.created"),
    ("last_use", "chunk.last_use"),
    ("last_use_us", "chunk.last_use"),
    ("previous_use", "chunk.previous_use"),
    ("previous_use_us", "chunk.previous_use"),
    ("uses", "chunk.uses"),
    ("touch", "chunk.touch"),
    ("now", "now"),
    ("now_us", "now"),
];

/// Functions of one number, with those of the Python module.
const FUNCTIONS: [(&str, &str); 9] = [
    ("-", "-"),
    ("abs", "abs"),
    ("sqrt", "_sqrt"),
    ("exp", "_exp"),
    ("ln", "_ln"),
    ("floor", "_floor"),
    ("ceil", "_ceil"),
    ("ceiling", "_ceil"),
    ("to_float", ""),
];

const TEMPLATE: &str = include_str!("vllm/template.py.in");

/// The Python module for `script`.
///
/// # Errors
/// If the script has no `keep`, or something in it that a cache policy of vLLM cannot have; or if a parameter is not the script's,
/// or out of range.
pub fn vllm_cache_policy(script: &ExportedScript) -> Result<String, Fault> {
    script.needs("keep", "ranks chunks", Kind::KvCache)?;
    if let Some(function) = ["store", "load"].into_iter().find(|name| script.plugin.has(name)) {
        let text = format!("`{function}` has no counterpart in vLLM: its cache policies only rank; leave it out");
        return Err(script.refused(Position::NONE, &text));
    }
    let body = PythonWriter { script, variables: Vec::new() }.body(&script.values()?)?;
    let class: String = script.name().split(|c: char| !c.is_ascii_alphanumeric()).map(capitalized).collect();
    Ok(script.fill(TEMPLATE, |_| true, &[("@class@", format!("{class}CachePolicy")), ("@rank@", body)]))
}

/// The name of a Python class: `lru` becomes `Lru`.
fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// A Python expression, and whether it is a whole number in the script.
struct PythonValue {
    text: String,
    is_whole: bool,
}

fn real(text: String) -> PythonValue {
    PythonValue { text, is_whole: false }
}

/// Writes the body of `keep` in Python.
struct PythonWriter<'a> {
    script: &'a ExportedScript,
    /// Variables of the script, and whether they are whole numbers.
    variables: Vec<(String, bool)>,
}

impl PythonWriter<'_> {
    /// The statements of `keep`, indented as those of a method.
    fn body(mut self, values: &[f64]) -> Result<String, Fault> {
        let code = self.script.plugin.code(values)?;
        let view = code.shared_lib().get_script_fn("keep", 1).map(|function| function.params[0].to_string());
        let view = view.unwrap_or_default();
        let (mut lines, mut fault, mut returned) = (Vec::new(), None, false);
        each_statement(&code, "keep", 1, |statement| match self.statement(statement, &view) {
            Ok((line, returns)) => {
                returned |= returns;
                lines.push(line);
                true
            }
            Err(found) => {
                fault = Some(found);
                false
            }
        });
        match fault {
            Some(fault) => Err(fault),
            None if !returned => Err(self.refused(Position::NONE, "`keep` returns nothing")),
            None => Ok(lines.iter().map(|line| format!("        {line}\n")).collect::<String>().trim_end().to_owned()),
        }
    }

    /// A statement, and whether it returns the rank.
    fn statement(&mut self, statement: &Stmt, view: &str) -> Result<(String, bool), Fault> {
        match statement {
            Stmt::Expr(value) => Ok((format!("return {}", self.value(value, view)?.text), true)),
            Stmt::FnCall(call, at) => {
                let value = self.call(&call.name, &call.args, *at, view)?;
                Ok((format!("return {}", value.text), true))
            }
            Stmt::Return(Some(value), flags, _) if !flags.intersects(ASTFlags::BREAK) => {
                Ok((format!("return {}", self.value(value, view)?.text), true))
            }
            Stmt::Var(definition, ..) => {
                let (name, value, _) = &**definition;
                let value = self.value(value, view)?;
                self.variables.push((name.name.to_string(), value.is_whole));
                Ok((format!("v_{} = {}", name.name, value.text), false))
            }
            other => {
                let text =
                    "only `let` and the rank itself can be exported: a class of vLLM has the expression of the rank";
                Err(self.refused(other.position(), text))
            }
        }
    }

    fn value(&self, expression: &Expr, view: &str) -> Result<PythonValue, Fault> {
        Ok(match expression {
            Expr::FloatConstant(value, _) => real(python_number(**value)),
            #[allow(clippy::cast_precision_loss)]
            Expr::IntegerConstant(value, _) => PythonValue { text: python_number(*value as f64), is_whole: true },
            Expr::BoolConstant(value, _) => real(python_number(f64::from(u8::from(*value)))),
            Expr::Variable(name, ..) => {
                let known = self.variables.iter().rev().find(|(known, _)| *known == name.1.as_str());
                let Some((name, is_whole)) = known else {
                    let text = format!("`{}` itself is no number: use its fields", name.1);
                    return Err(self.refused(expression.start_position(), &text));
                };
                PythonValue { text: format!("v_{name}"), is_whole: *is_whole }
            }
            Expr::FnCall(call, at) => self.call(&call.name, &call.args, *at, view)?,
            Expr::Dot(chain, ..) => match (&chain.lhs, &chain.rhs) {
                (Expr::Variable(name, ..), Expr::Property(property, at)) if name.1 == view => {
                    self.field(&property.2, *at)?
                }
                (_, Expr::MethodCall(call, at)) => {
                    let arguments: Vec<Expr> = std::iter::once(chain.lhs.clone()).chain(call.args.clone()).collect();
                    self.call(&call.name, &arguments, *at, view)?
                }
                (_, other) => return Err(self.refused(other.start_position(), NOT_KNOWN)),
            },
            other => return Err(self.refused(other.start_position(), NOT_KNOWN)),
        })
    }

    fn field(&self, name: &str, at: Position) -> Result<PythonValue, Fault> {
        match FIELDS.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Ok(PythonValue { text: (*text).to_owned(), is_whole: *text == "now" }),
            None => {
                let text = format!(
                    "a cache policy of vLLM does not know `{name}`: it has created, last_use, previous_use, uses, touch and now"
                );
                Err(self.refused(at, &text))
            }
        }
    }

    fn call(&self, name: &str, arguments: &[Expr], at: Position, view: &str) -> Result<PythonValue, Fault> {
        let values: Vec<PythonValue> = arguments.iter().map(|one| self.value(one, view)).collect::<Result<_, _>>()?;
        let texts: Vec<&str> = values.iter().map(|value| value.text.as_str()).collect();
        let are_whole = values.iter().all(|value| value.is_whole);
        Ok(match (name, &texts[..]) {
            ("+" | "-" | "*", [a, b]) => PythonValue { text: format!("({a} {name} {b})"), is_whole: are_whole },
            ("/", [_, _]) if are_whole => {
                let text =
                    "a whole number divided by a whole number is rounded: write one of them with a point, as in 2.0";
                return Err(self.refused(at, text));
            }
            ("/", [a, b]) => real(format!("_divide({a}, {b})")),
            ("<" | "<=" | ">" | ">=" | "==" | "!=", [a, b]) => real(format!("float({a} {name} {b})")),
            ("&", [a, b]) => real(format!("float({a} != 0.0 and {b} != 0.0)")),
            ("|", [a, b]) => real(format!("float({a} != 0.0 or {b} != 0.0)")),
            ("!", [a]) => real(format!("float({a} == 0.0)")),
            ("max", [a, b]) => PythonValue { text: format!("_larger({a}, {b})"), is_whole: are_whole },
            ("min", [a, b]) => PythonValue { text: format!("_smaller({a}, {b})"), is_whole: are_whole },
            ("select" | "where" | "if_else", [condition, then, otherwise]) => {
                real(format!("({then} if {condition} != 0.0 else {otherwise})"))
            }
            (_, [a]) => match FUNCTIONS.iter().find(|(known, _)| *known == name) {
                Some((_, function)) => {
                    let keeps = matches!(name, "-" | "abs");
                    PythonValue { text: format!("{function}({a})"), is_whole: keeps && are_whole }
                }
                None => return Err(self.refused(at, &format!("`{name}` {NOT_KNOWN}"))),
            },
            _ => return Err(self.refused(at, &format!("`{name}` {NOT_KNOWN}"))),
        })
    }

    fn refused(&self, at: Position, text: &str) -> Fault {
        self.script.refused(at, text)
    }
}

const NOT_KNOWN: &str = "cannot be exported: there are arithmetic, comparisons, `&`, `|`, min, max, abs, sqrt, exp, ln, floor, ceil, \
                         select, variables, parameters, and fields of the chunk";

fn python_number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "float(\"nan\")".to_owned(),
        _ if value.is_infinite() => format!("float(\"{}inf\")", if value < 0.0 { "-" } else { "" }),
        _ => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests;
