//! The decision of a script as one expression, for export into other languages: [`DecisionTerm::read`].
//!
//! A function has such an expression if its result follows from numbers, fields of its arguments, parameters, `let`, `if`, and
//! [`Operation`]s. Calls of functions of the script itself are written out.

use rhai::{AST, ASTFlags, Expr, FnCallExpr, Position, Stmt};

use super::source::ExportedScript;
use crate::script::{Operation, each_statement};
use crate::{Fault, Plugin as _};

/// Calls of functions of the script within each other that are read.
const MOST_CALLS: usize = 16;
/// Variables and operations of a decision that are read.
const MOST_TERMS: usize = 4096;

/// What a function returns, with the variables that it uses.
#[derive(Clone, Debug)]
pub(super) struct DecisionTerm {
    /// Names and values, in the order in which they are computed: each uses earlier ones only.
    pub variables: Vec<(String, ScriptTerm)>,
    pub value: ScriptTerm,
}

/// An expression, with where it is written.
#[derive(Clone, Debug)]
pub(super) struct ScriptTerm {
    pub at: Position,
    pub form: TermForm,
    pub shape: ValueShape,
}

#[derive(Clone, Debug)]
pub(super) enum TermForm {
    Number(f64),
    /// A field of the argument of this number.
    Field(usize, String),
    /// A parameter of the script by name.
    Parameter(String),
    /// One of [`DecisionTerm::variables`].
    Variable(usize),
    Apply(Operation, Vec<ScriptTerm>),
    /// A value that may be absent, and what stands for it then.
    OrElse(Box<(ScriptTerm, ScriptTerm)>),
}

/// What a value is in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueShape {
    /// A whole number: division of two of them would be rounded.
    Whole,
    Real,
    Truth,
    /// A number for each row.
    Column,
}

const NO_FORM: &str = "has no form outside of scripts: there are numbers, fields, parameters, `let`, `if`, arithmetic, comparisons, \
                       min, max, abs, sqrt, exp, ln, floor, ceil, round, pow, select, sum, mean, fewest_best, most_best";

impl Operation {
    /// Whether expressions of other languages may have it.
    fn has_form(self) -> bool {
        use Operation::{Count, IndexOfLargest, IndexOfSmallest, IsAll, IsAny, Length, Remainder};
        !matches!(self, Count | IndexOfLargest | IndexOfSmallest | IsAll | IsAny | Length | Remainder)
    }

    /// Whether it turns a column into a number.
    pub fn is_over_rows(self) -> bool {
        matches!(self, Self::Sum | Self::Mean | Self::Smallest | Self::Largest | Self::First)
    }

    /// Whether the result is 1 or 0.
    pub fn is_truth(self) -> bool {
        use Operation::{And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Not, NotEqual, Or};
        matches!(self, Less | LessOrEqual | Greater | GreaterOrEqual | Equal | NotEqual | And | Or | Not)
    }

    /// The operator between two arguments that Rust, Go, PromQL and KEDA's formulas share.
    pub fn sign(self) -> Option<&'static str> {
        Some(match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            _ => return None,
        })
    }
}

impl DecisionTerm {
    /// The expression of the function `name`, which has `arguments` arguments.
    ///
    /// # Errors
    /// The first part that has no form, with its location.
    pub fn read(
        script: &ExportedScript,
        ast: &AST,
        name: &str,
        arguments: usize,
        shape_of: &dyn Fn(usize, &str) -> Option<ValueShape>,
    ) -> Result<Self, Fault> {
        let mut reader =
            TermReader { script, ast, shape_of, variables: Vec::new(), bindings: Vec::new(), calls: 0, terms: 0 };
        let (names, statements) = reader
            .function(name, arguments)
            .ok_or_else(|| reader.refused(Position::NONE, &format!("there is no function `{name}`")))?;
        let bindings = names.into_iter().enumerate().map(|(number, name)| (name, NamedValue::Argument(number)));
        reader.bindings = bindings.collect();
        let value = reader.value_of(&statements.iter().collect::<Vec<_>>(), Position::NONE)?;
        Ok(Self { variables: reader.variables, value })
    }

    /// The names of the fields of argument `argument` that are read, each once, in the order in which they are.
    pub fn fields(&self, argument: usize) -> Vec<(String, Position)> {
        let mut found: Vec<(String, Position)> = Vec::new();
        self.each(&mut |term| {
            if let TermForm::Field(of, name) = &term.form
                && *of == argument
                && found.iter().all(|(known, _)| known != name)
            {
                found.push((name.clone(), term.at));
            }
        });
        found
    }

    /// Calls `visit` for each term.
    pub fn each(&self, visit: &mut dyn FnMut(&ScriptTerm)) {
        self.variables.iter().for_each(|(_, value)| value.each(visit));
        self.value.each(visit);
    }
}

impl ScriptTerm {
    fn each(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        match &self.form {
            TermForm::Apply(_, arguments) => arguments.iter().for_each(|argument| argument.each(visit)),
            TermForm::OrElse(parts) => {
                parts.0.each(visit);
                parts.1.each(visit);
            }
            _ => {}
        }
    }

    pub fn is_column(&self) -> bool {
        self.shape == ValueShape::Column
    }
}

/// What a name stands for.
#[derive(Clone, Debug)]
enum NamedValue {
    Argument(usize),
    Variable(usize, ValueShape),
}

struct TermReader<'a> {
    script: &'a ExportedScript,
    ast: &'a AST,
    /// The shape of a field of an argument, by number and name; `None` if it is no number.
    shape_of: &'a dyn Fn(usize, &str) -> Option<ValueShape>,
    variables: Vec<(String, ScriptTerm)>,
    bindings: Vec<(String, NamedValue)>,
    calls: usize,
    terms: usize,
}

impl TermReader<'_> {
    /// The names of the parameters and the statements of a function of the script.
    fn function(&self, name: &str, arguments: usize) -> Option<(Vec<String>, Vec<Stmt>)> {
        let definition = self.ast.shared_lib().get_script_fn(name, arguments)?;
        let names = definition.params.iter().map(ToString::to_string).collect();
        let mut statements = Vec::new();
        each_statement(self.ast, name, arguments, |statement| {
            statements.push(statement.clone());
            true
        });
        Some((names, statements))
    }

    /// The value that statements return, or end with.
    fn value_of(&mut self, statements: &[&Stmt], at: Position) -> Result<ScriptTerm, Fault> {
        let known = self.bindings.len();
        let value = self.value_in_scope(statements, at);
        self.bindings.truncate(known);
        value
    }

    fn value_in_scope(&mut self, statements: &[&Stmt], at: Position) -> Result<ScriptTerm, Fault> {
        let Some((first, rest)) = statements.split_first() else {
            return Err(self.refused(at, "this returns nothing in some cases: every branch needs a value"));
        };
        match first {
            Stmt::Noop(_) => self.value_in_scope(rest, at),
            Stmt::Var(definition, flags, _) if !flags.intersects(ASTFlags::EXPORTED) => {
                let (name, value, _) = &**definition;
                let value = self.term(value)?;
                self.bind(name.name.to_string(), value);
                self.value_in_scope(rest, at)
            }
            Stmt::Return(Some(value), flags, _) if !flags.intersects(ASTFlags::BREAK) => self.term(value),
            Stmt::Expr(value) if rest.is_empty() => self.term(value),
            Stmt::FnCall(call, at) if rest.is_empty() => self.called(call, None, *at),
            Stmt::Block(block) if rest.is_empty() => self.value_of(&block.iter().collect::<Vec<_>>(), at),
            Stmt::If(parts, at) => {
                let condition = self.term(&parts.expr)?;
                if condition.is_column() {
                    return Err(self.refused(condition.at, "a column is no condition of `if`: use `select`"));
                }
                let body: Vec<&Stmt> = parts.body.iter().collect();
                if !rest.is_empty() && !body.last().is_some_and(|last| matches!(last, Stmt::Return(..))) {
                    return Err(self.refused(*at, "an `if` in front of other statements must return"));
                }
                let then = self.value_of(&body, *at)?;
                let otherwise: Vec<&Stmt> = parts.branch.iter().chain(rest.iter().copied()).collect();
                let otherwise = self.value_of(&otherwise, *at)?;
                self.apply(Operation::Select, vec![condition, then, otherwise], *at)
            }
            other => {
                let text =
                    "loops, assignments and state have no form outside of scripts: only `let`, `if` and the result";
                Err(self.refused(other.position(), text))
            }
        }
    }

    fn bind(&mut self, name: String, value: ScriptTerm) {
        self.bindings.push((name.clone(), NamedValue::Variable(self.variables.len(), value.shape)));
        self.variables.push((name, value));
    }

    fn term(&mut self, expression: &Expr) -> Result<ScriptTerm, Fault> {
        let at = expression.start_position();
        let made = |form, shape| Ok(ScriptTerm { at, form, shape });
        match expression {
            Expr::FloatConstant(number, _) => made(TermForm::Number(**number), ValueShape::Real),
            #[allow(clippy::cast_precision_loss)]
            Expr::IntegerConstant(number, _) => made(TermForm::Number(*number as f64), ValueShape::Whole),
            Expr::BoolConstant(truth, _) => made(TermForm::Number(f64::from(u8::from(*truth))), ValueShape::Truth),
            Expr::Variable(name, ..) => match self.binding(&name.1) {
                Some(NamedValue::Variable(number, shape)) => made(TermForm::Variable(number), shape),
                Some(NamedValue::Argument(_)) => {
                    Err(self.refused(at, &format!("`{}` itself is no number: use its fields", name.1)))
                }
                None => self.parameter(&name.1, at),
            },
            Expr::FnCall(call, at) => self.called(call, None, *at),
            Expr::And(operands, at) => self.joined(Operation::And, operands, *at),
            Expr::Or(operands, at) => self.joined(Operation::Or, operands, *at),
            Expr::Coalesce(operands, at) => match &operands[..] {
                [value, instead] => {
                    let parts = (self.term(value)?, self.term(instead)?);
                    let shape = parts.0.shape;
                    Ok(ScriptTerm { at: *at, form: TermForm::OrElse(Box::new(parts)), shape })
                }
                _ => Err(self.refused(*at, NO_FORM)),
            },
            Expr::Stmt(block) => self.value_of(&block.iter().collect::<Vec<_>>(), at),
            Expr::Dot(chain, flags, _) if !flags.intersects(ASTFlags::NEGATED) => {
                self.chain(&chain.lhs, &chain.rhs, at)
            }
            other => Err(self.refused(other.start_position(), &format!("this {NO_FORM}"))),
        }
    }

    fn binding(&self, name: &str) -> Option<NamedValue> {
        self.bindings.iter().rev().find(|(known, _)| known == name).map(|(_, binding)| binding.clone())
    }

    fn parameter(&self, name: &str, at: Position) -> Result<ScriptTerm, Fault> {
        if self.script.plugin.description().parameters.iter().any(|known| known.name == *name) {
            return Ok(ScriptTerm { at, form: TermForm::Parameter(name.to_owned()), shape: ValueShape::Real });
        }
        Err(self.refused(at, &format!("`{name}` {NO_FORM}")))
    }

    fn joined(&mut self, operation: Operation, operands: &[Expr], at: Position) -> Result<ScriptTerm, Fault> {
        let mut terms = operands.iter().map(|one| self.term(one)).collect::<Result<Vec<_>, _>>()?.into_iter();
        let first = terms.next().ok_or_else(|| self.refused(at, NO_FORM))?;
        terms.try_fold(first, |joined, next| self.apply(operation, vec![joined, next], at))
    }

    /// `left.right`, where `right` is a field, a method, or a field and what follows it.
    fn chain(&mut self, left: &Expr, right: &Expr, at: Position) -> Result<ScriptTerm, Fault> {
        if matches!(left, Expr::ThisPtr(_)) {
            let text = "the state of a script, `this`, has no form outside of scripts: run the script, or a component made of it";
            return Err(self.refused(at, text));
        }
        match right {
            Expr::MethodCall(call, method) => {
                let object = self.term(left)?;
                self.called(call, Some(object), *method)
            }
            Expr::Property(..) => self.field(left, right),
            Expr::Dot(rest, ..) => {
                let object = self.field(left, &rest.lhs)?;
                match &rest.rhs {
                    Expr::MethodCall(call, method) => self.called(call, Some(object), *method),
                    other => Err(self.refused(other.start_position(), &format!("this {NO_FORM}"))),
                }
            }
            Expr::Index(rest, ..) if matches!(rest.rhs, Expr::IntegerConstant(0, _)) => {
                let object = self.field(left, &rest.lhs)?;
                self.apply(Operation::First, vec![object], at)
            }
            Expr::Index(rest, ..) => {
                Err(self.refused(rest.rhs.start_position(), "a row by number has no form outside of scripts"))
            }
            other => Err(self.refused(other.start_position(), &format!("this {NO_FORM}"))),
        }
    }

    fn field(&mut self, left: &Expr, right: &Expr) -> Result<ScriptTerm, Fault> {
        let (Expr::Variable(name, ..), Expr::Property(property, _)) = (left, right) else {
            return Err(self.refused(right.start_position(), &format!("this {NO_FORM}")));
        };
        let at = left.start_position();
        let Some(NamedValue::Argument(number)) = self.binding(&name.1) else {
            return Err(self.refused(at, &format!("`{}.{}` {NO_FORM}", name.1, property.2)));
        };
        let Some(shape) = (self.shape_of)(number, &property.2) else {
            return Err(self.refused(at, &format!("`{}.{}` is no number", name.1, property.2)));
        };
        Ok(ScriptTerm { at, form: TermForm::Field(number, property.2.to_string()), shape })
    }

    fn called(&mut self, call: &FnCallExpr, object: Option<ScriptTerm>, at: Position) -> Result<ScriptTerm, Fault> {
        let name = call.name.as_str();
        if matches!(name, "zeros" | "ones") {
            return Ok(ScriptTerm {
                at,
                form: TermForm::Apply(Operation::Repeated, vec![number(f64::from(u8::from(name == "ones")), at)]),
                shape: ValueShape::Column,
            });
        }
        let mut arguments: Vec<ScriptTerm> = object.into_iter().collect();
        for argument in &call.args {
            arguments.push(self.term(argument)?);
        }
        if let Some((names, statements)) = self.function(name, arguments.len()) {
            return self.inlined(names, arguments, &statements, at);
        }
        if let ("clamp" | "clip", [_, _, _]) = (name, &arguments[..]) {
            let [value, low, high] = <[ScriptTerm; 3]>::try_from(arguments).expect("three");
            let above = self.apply(Operation::Larger, vec![value, low], at)?;
            return self.apply(Operation::Smaller, vec![above, high], at);
        }
        if let ("to_float", Some(value)) = (name, arguments.first()) {
            return Ok(ScriptTerm { shape: real(value.shape), ..value.clone() });
        }
        match Operation::called(name, arguments.len()).filter(|operation| operation.has_form()) {
            Some(operation) => self.apply(operation, arguments, at),
            None => Err(self.refused(at, &format!("`{name}` {NO_FORM}"))),
        }
    }

    /// The body of a function of the script, with its parameters as variables.
    fn inlined(
        &mut self,
        names: Vec<String>,
        values: Vec<ScriptTerm>,
        body: &[Stmt],
        at: Position,
    ) -> Result<ScriptTerm, Fault> {
        self.calls += 1;
        if self.calls > MOST_CALLS {
            return Err(self.refused(at, "functions of the script call each other too deeply for an expression"));
        }
        let outside = std::mem::take(&mut self.bindings);
        names.into_iter().zip(values).for_each(|(name, value)| self.bind(name, value));
        let value = self.value_of(&body.iter().collect::<Vec<_>>(), at);
        self.bindings = outside;
        self.calls -= 1;
        value
    }

    fn apply(&mut self, operation: Operation, arguments: Vec<ScriptTerm>, at: Position) -> Result<ScriptTerm, Fault> {
        self.terms += 1;
        if self.terms > MOST_TERMS {
            return Err(self.refused(at, &format!("the decision has more than {MOST_TERMS} operations")));
        }
        let are_whole = arguments.iter().all(|one| one.shape == ValueShape::Whole);
        if are_whole && matches!(operation, Operation::Divide | Operation::Power) {
            let text = "this is computed in whole numbers: write one of them with a point, as in 2.0";
            return Err(self.refused(at, text));
        }
        let shape = match operation {
            _ if operation.is_over_rows() => ValueShape::Real,
            _ if arguments.iter().any(ScriptTerm::is_column) => ValueShape::Column,
            _ if operation.is_truth() => ValueShape::Truth,
            Operation::Add | Operation::Subtract | Operation::Multiply | Operation::Smaller | Operation::Larger
                if are_whole =>
            {
                ValueShape::Whole
            }
            Operation::Negative | Operation::Absolute if are_whole => ValueShape::Whole,
            _ => ValueShape::Real,
        };
        Ok(ScriptTerm { at, form: TermForm::Apply(operation, arguments), shape })
    }

    fn refused(&self, at: Position, text: &str) -> Fault {
        self.script.refused(at, text)
    }
}

fn number(value: f64, at: Position) -> ScriptTerm {
    ScriptTerm { at, form: TermForm::Number(value), shape: ValueShape::Real }
}

fn real(shape: ValueShape) -> ValueShape {
    if shape == ValueShape::Column { ValueShape::Column } else { ValueShape::Real }
}

/// A number as expr-lang, PromQL and Go have it; a negative one in parentheses.
pub(super) fn literal(value: f64) -> String {
    if value < 0.0 { format!("({value:?})") } else { format!("{value:?}") }
}
