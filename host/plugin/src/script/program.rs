//! The functions of a script, translated from Rhai's syntax tree into a compact tree for our evaluator.
//!
//! Rhai's evaluator looks up the function for every operator, field and index by the types of its operands, and builds an
//! error where a value has no direct reference: some 800 instructions for each operation. The tree has local variables by
//! number, operators and callees by kind, and fields with the functions that read them.
//!
//! A function that the host calls is translated if it and all functions that it calls consist of what is here; otherwise
//! Rhai evaluates it. Results, errors, positions and the number of operations are those of Rhai, so nothing depends on which
//! of both evaluates a function.

use std::any::TypeId;
use std::collections::HashMap;
use std::num::{NonZeroU8, NonZeroUsize};
use std::ops::Range;

use rhai::{
    AST, ASTFlags, ASTNode, BinaryExpr, Expr, FnCallExpr, Ident, Identifier, ImmutableString, OpAssignment, Position,
    RangeCase, ScriptFuncDef, Stmt, SwitchCasesCollection,
};

use super::FUNCTIONS;
use super::engine::Kit;
use super::registry::Reader;
use super::scan::Scan;
use super::value::{Operator, ScriptValue};
use crate::Kind;
use crate::limits::VARIABLES;

/// The translated functions of a script.
pub(super) struct Program {
    /// In the order of the definitions; `None` for those that Rhai evaluates.
    pub functions: Box<[Option<TranslatedFunction>]>,
    /// The functions that the host calls, with their indices.
    entries: Vec<(&'static str, usize)>,
}

pub(super) struct TranslatedFunction {
    pub name: ImmutableString,
    /// Local variables and parameters that exist at the same time.
    pub slots: usize,
    pub body: ScriptBlock,
}

/// Statements, and the slots of the variables that they declare.
pub(super) struct ScriptBlock {
    pub statements: Box<[Statement]>,
    pub locals: Range<usize>,
}

pub(super) enum Statement {
    Noop,
    Expression(Expression),
    /// A call as a statement counts one operation less than as an expression.
    Call(Call),
    Binary(Box<Binary>),
    Block(ScriptBlock),
    Let(usize, Expression),
    Assign(Box<Assignment>),
    If(Box<(Expression, Position, ScriptBlock, ScriptBlock)>),
    Switch(Box<Switch>),
    Loop(ScriptBlock),
    While(Box<(Expression, Position, ScriptBlock)>),
    /// `do … while`, or `do … until` if true.
    Do(Box<(ScriptBlock, Expression, Position, bool)>),
    For(Box<For>),
    Break(Option<Box<Expression>>),
    Continue(Option<Box<Expression>>),
    Return(Option<Box<Expression>>),
    Throw(Option<Box<Expression>>, Position),
}

pub(super) struct Assignment {
    pub target: AssignmentTarget,
    pub operator: Option<AssignmentOperator>,
    pub position: Position,
    pub value: Expression,
    /// The variable at the root, for messages.
    pub name: ImmutableString,
    pub root_position: Position,
}

pub(super) enum AssignmentTarget {
    This,
    Local(usize),
    Chain(Chain),
}

pub(super) struct AssignmentOperator {
    pub operator: Option<Operator>,
    /// `+=` and `+`.
    pub names: [&'static str; 2],
}

pub(super) struct For {
    pub variable: usize,
    pub counter: Option<usize>,
    pub over: Expression,
    pub position: Position,
    pub body: ScriptBlock,
}

pub(super) struct Switch {
    pub value: Expression,
    pub cases: HashMap<u64, Box<[usize]>>,
    pub ranges: Box<[RangeCase]>,
    /// Conditions, `None` if always true, with their positions, and results.
    pub arms: Box<[(Option<(Expression, Position)>, Expression)]>,
    pub default: Option<usize>,
}

pub(super) enum Expression {
    Constant(ScriptValue),
    Local(usize),
    This(Position),
    Array(Box<[Expression]>),
    /// A text with `${…}` in it.
    Text(Box<[(Expression, Position)]>),
    Map(Box<[(Identifier, Expression)]>),
    And(Box<[(Expression, Position)]>),
    Or(Box<[(Expression, Position)]>),
    Coalesce(Box<[Expression]>),
    Block(Box<ScriptBlock>),
    Binary(Box<Binary>),
    Call(Box<Call>),
    Chain(Box<Chain>),
}

pub(super) struct Binary {
    pub operator: Operator,
    pub name: ImmutableString,
    pub operands: [Expression; 2],
    pub position: Position,
}

pub(super) struct Call {
    pub name: ImmutableString,
    /// The index of the function of the script; `None` for functions of the host.
    pub function: Option<usize>,
    pub arguments: Box<[Expression]>,
    pub position: Position,
}

/// `root.field[index].method(…)`.
pub(super) struct Chain {
    pub root: Root,
    pub root_position: Position,
    /// What is evaluated before the root, in this order.
    pub before: Box<[Before]>,
    pub steps: Box<[ChainStep]>,
}

pub(super) enum Root {
    This,
    Local(usize),
    Expression(Expression),
}

pub(super) enum Before {
    /// Counts an operation.
    Operation,
    /// An index or argument.
    Value(Expression),
    /// A literal index, which is no operation.
    Literal(ScriptValue),
}

pub(super) enum ChainStep {
    Index { index_position: Position, position: Position },
    Field(Box<FieldStep>),
    Method(Box<Method>),
}

pub(super) struct FieldStep {
    pub name: ImmutableString,
    pub getter: ImmutableString,
    pub setter: ImmutableString,
    /// The functions that read this field, by the type that has it.
    pub readers: Box<[(TypeId, Reader)]>,
    pub position: Position,
    pub dot_position: Position,
}

pub(super) struct Method {
    pub name: ImmutableString,
    pub function: Option<usize>,
    pub arguments: usize,
    pub position: Position,
}

/// Functions that work on the variables around them, or on closures.
const LEFT_TO_RHAI: [&str; 7] = ["call", "curry", "eval", "Fn", "is_def_var", "is_def_fn", "is_shared"];
/// Functions whose results only Rhai can iterate over. They may be kept in the state, where any function finds them.
const ITERATORS: [&str; 3] = ["range", "chars", "bits"];

impl Program {
    /// What the host calls in `ast`, as far as it can be translated; `scan` is that of the text.
    pub fn of(ast: &AST, scan: &Scan<'_>, kit: &Kit) -> Self {
        let definitions: Vec<&ScriptFuncDef> = ast.iter_fn_def().map(AsRef::as_ref).collect();
        let none = Self { functions: Box::default(), entries: Vec::new() };
        if scan.has_any(&ITERATORS) || definitions.iter().any(|definition| definition.this_type.is_some()) {
            return none;
        }
        let translated: Vec<Option<Translation>> =
            definitions.iter().map(|definition| Translator::function(ast, definition, &definitions, kit)).collect();
        let is_translated = |entry: usize| {
            let (mut open, mut seen) = (vec![entry], vec![false; definitions.len()]);
            while let Some(index) = open.pop() {
                if std::mem::replace(&mut seen[index], true) {
                    continue;
                }
                let Some(translation) = &translated[index] else { return false };
                open.extend(&translation.calls);
            }
            true
        };
        let entry = |&(name, _, parameters): &(&'static str, Option<Kind>, &[&str])| {
            let accepts = |&n: &usize| n == parameters.len() || (name == "init" && n == 0);
            let named = definitions.iter().enumerate().filter(|(_, definition)| definition.name == name);
            let mut found = named.filter(|(_, definition)| accepts(&definition.params.len())).map(|(index, _)| index);
            let index = found.next().filter(|&index| is_translated(index))?;
            found.next().is_none().then_some((name, index))
        };
        let entries: Vec<_> = FUNCTIONS.iter().filter_map(entry).collect();
        if entries.is_empty() {
            return none;
        }
        let functions = translated.into_iter().map(|one| one.map(|translation| translation.function));
        Self { functions: functions.collect(), entries }
    }

    /// The index of the function that the host calls by `name`; `None` if Rhai evaluates it.
    pub fn entry(&self, name: &str) -> Option<usize> {
        self.entries.iter().find(|(known, _)| *known == name).map(|(_, index)| *index)
    }
}

struct Translation {
    function: TranslatedFunction,
    /// The functions that it calls.
    calls: Vec<usize>,
}

/// Translates one function. Each method returns `None` for what is left to Rhai.
struct Translator<'a> {
    kit: &'a Kit,
    definitions: &'a [&'a ScriptFuncDef],
    calls: Vec<usize>,
    /// Variables that exist at this point, and the most at any point.
    depth: usize,
    slots: usize,
}

impl<'a> Translator<'a> {
    fn function(
        ast: &AST,
        definition: &ScriptFuncDef,
        definitions: &'a [&'a ScriptFuncDef],
        kit: &'a Kit,
    ) -> Option<Translation> {
        let parameters = definition.params.len();
        if parameters > VARIABLES {
            return None;
        }
        let mut translator = Self { kit, definitions, calls: Vec::new(), depth: parameters, slots: parameters };
        let body = translator.block(&body_of(ast, definition))?;
        let function = TranslatedFunction { name: definition.name.clone(), slots: translator.slots, body };
        Some(Translation { function, calls: translator.calls })
    }

    fn block(&mut self, block: &[Stmt]) -> Option<ScriptBlock> {
        self.block_with(block, 0)
    }

    /// A block before which `more` variables are declared that end with it.
    fn block_with(&mut self, block: &[Stmt], more: usize) -> Option<ScriptBlock> {
        let depth = self.depth;
        for _ in 0..more {
            self.declare()?;
        }
        let first = self.depth;
        let statements = block.iter().map(|statement| self.statement(statement)).collect::<Option<_>>()?;
        let locals = first..self.depth;
        self.depth = depth;
        Some(ScriptBlock { statements, locals })
    }

    /// The slot of a new variable.
    fn declare(&mut self) -> Option<usize> {
        let slot = self.depth;
        self.depth += 1;
        self.slots = self.slots.max(self.depth);
        (slot < VARIABLES).then_some(slot)
    }

    /// The slot of the variable that is the `index`-th last one.
    fn slot(&self, index: usize) -> Option<usize> {
        self.depth.checked_sub(index).filter(|_| index > 0)
    }

    fn statement(&mut self, statement: &Stmt) -> Option<Statement> {
        Some(match statement {
            Stmt::Noop(_) => Statement::Noop,
            Stmt::Expr(expression) => Statement::Expression(self.expression(expression)?),
            Stmt::FnCall(call, position) => self.call_statement(call, *position)?,
            Stmt::Block(block) => Statement::Block(self.block(block.statements())?),
            Stmt::Var(definition, flags, _) => {
                let (_, value, index) = &**definition;
                if !flags.is_empty() {
                    return None;
                }
                let value = self.expression(value)?;
                let slot = match index {
                    Some(index) => self.slot(index.get())?,
                    None => self.declare()?,
                };
                Statement::Let(slot, value)
            }
            Stmt::Assignment(assignment) => {
                let (operator, BinaryExpr { lhs, rhs }) = &**assignment;
                Statement::Assign(Box::new(self.assignment(operator, lhs, rhs)?))
            }
            Stmt::If(parts, _) => {
                let test = self.expression(&parts.expr)?;
                let position = parts.expr.position();
                Statement::If(Box::new((
                    test,
                    position,
                    self.block(parts.body.statements())?,
                    self.block(parts.branch.statements())?,
                )))
            }
            Stmt::Switch(parts, _) => Statement::Switch(Box::new(self.switch(&parts.0, &parts.1)?)),
            Stmt::While(parts, _) if matches!(parts.expr, Expr::Unit(..) | Expr::BoolConstant(true, ..)) => {
                Statement::Loop(self.block(parts.body.statements())?)
            }
            Stmt::While(parts, _) => {
                let test = self.expression(&parts.expr)?;
                Statement::While(Box::new((test, parts.expr.position(), self.block(parts.body.statements())?)))
            }
            Stmt::Do(parts, flags, _) => {
                let (body, test) = (self.block(parts.body.statements())?, self.expression(&parts.expr)?);
                let until = flags.contains(ASTFlags::NEGATED);
                Statement::Do(Box::new((body, test, parts.expr.position(), until)))
            }
            Stmt::For(parts, _) => {
                let (_, counter, flow) = &**parts;
                let over = self.expression(&flow.expr)?;
                let position = flow.expr.start_position();
                let first = self.depth;
                let more = 1 + usize::from(counter.is_some());
                let body = self.block_with(flow.body.statements(), more)?;
                let counter = counter.as_ref().map(|_| first);
                Statement::For(Box::new(For { variable: first + more - 1, counter, over, position, body }))
            }
            Stmt::BreakLoop(value, flags, _) => {
                let value = self.optional(value.as_deref())?;
                if flags.contains(ASTFlags::BREAK) { Statement::Break(value) } else { Statement::Continue(value) }
            }
            Stmt::Return(value, flags, position) => {
                let value = self.optional(value.as_deref())?;
                if flags.contains(ASTFlags::BREAK) {
                    Statement::Throw(value, *position)
                } else {
                    Statement::Return(value)
                }
            }
            _ => return None,
        })
    }

    #[expect(clippy::option_option, reason = "the outer one is whether it can be translated")]
    fn optional(&mut self, expression: Option<&Expr>) -> Option<Option<Box<Expression>>> {
        match expression {
            Some(expression) => Some(Some(Box::new(self.expression(expression)?))),
            None => Some(None),
        }
    }

    fn call_statement(&mut self, call: &FnCallExpr, position: Position) -> Option<Statement> {
        Some(match self.function_call(call, position)? {
            Expression::Call(call) => Statement::Call(*call),
            Expression::Binary(binary) => Statement::Binary(binary),
            _ => return None,
        })
    }

    fn assignment(&mut self, operator: &OpAssignment, target: &Expr, value: &Expr) -> Option<Assignment> {
        let value = self.expression(value)?;
        let (target, root) = match target {
            Expr::ThisPtr(_) => (AssignmentTarget::This, target),
            Expr::Variable(variable, short, _) => (AssignmentTarget::Local(self.variable(variable.0, *short)?), target),
            Expr::Index(parts, ..) | Expr::Dot(parts, ..) => (AssignmentTarget::Chain(self.chain(target)?), &parts.lhs),
            _ => return None,
        };
        let name = if let Expr::Variable(variable, ..) = root { variable.1.clone() } else { ImmutableString::new() };
        let position = operator.position();
        let operator = operator.get_op_assignment_info().map(|(_, _, _, with, _, without)| AssignmentOperator {
            operator: Operator::of(without),
            names: [with, without],
        });
        Some(Assignment { target, operator, position, value, name, root_position: root.start_position() })
    }

    fn switch(&mut self, value: &Expr, cases: &SwitchCasesCollection) -> Option<Switch> {
        let value = self.expression(value)?;
        let arms = cases.expressions.iter().map(|arm| {
            let test = match &arm.lhs {
                Expr::BoolConstant(true, _) => None,
                Expr::BoolConstant(false, _) => return None,
                test => Some((self.expression(test)?, test.position())),
            };
            Some((test, self.expression(&arm.rhs)?))
        });
        let arms = arms.collect::<Option<_>>()?;
        let by_hash = cases.cases.iter().map(|(&hash, case)| (hash, case.blocks.iter().copied().collect())).collect();
        let ranges = cases.ranges.iter().cloned().collect();
        Some(Switch { value, cases: by_hash, ranges, arms, default: cases.def_case })
    }

    fn variable(&self, long: Option<NonZeroUsize>, short: Option<NonZeroU8>) -> Option<usize> {
        self.slot(short.map_or_else(|| long.map_or(0, NonZeroUsize::get), |short| usize::from(short.get())))
    }

    fn expressions(&mut self, expressions: &[Expr]) -> Option<Box<[Expression]>> {
        expressions.iter().map(|expression| self.expression(expression)).collect()
    }

    fn with_positions(&mut self, expressions: &[Expr]) -> Option<Box<[(Expression, Position)]>> {
        let one = |expression: &Expr| Some((self.expression(expression)?, expression.position()));
        expressions.iter().map(one).collect()
    }

    fn expression(&mut self, expression: &Expr) -> Option<Expression> {
        Some(match expression {
            Expr::DynamicConstant(..)
            | Expr::IntegerConstant(..)
            | Expr::CharConstant(..)
            | Expr::StringConstant(..)
            | Expr::BoolConstant(..)
            | Expr::FloatConstant(..)
            | Expr::Unit(..) => Expression::Constant(ScriptValue::from(expression.get_literal_value(None)?)),
            Expr::Variable(variable, short, _) => Expression::Local(self.variable(variable.0, *short)?),
            Expr::ThisPtr(position) => Expression::This(*position),
            Expr::InterpolatedString(parts, _) => Expression::Text(self.with_positions(parts)?),
            Expr::Array(items, _) => Expression::Array(self.expressions(items)?),
            Expr::Map(entries, _) => {
                let one = |(name, value): &(Ident, Expr)| Some((name.name.as_str().into(), self.expression(value)?));
                Expression::Map(entries.0.iter().map(one).collect::<Option<_>>()?)
            }
            Expr::And(parts, _) => Expression::And(self.with_positions(parts)?),
            Expr::Or(parts, _) => Expression::Or(self.with_positions(parts)?),
            Expr::Coalesce(parts, _) => Expression::Coalesce(self.expressions(parts)?),
            Expr::Stmt(block) => Expression::Block(Box::new(self.block(block.statements())?)),
            Expr::FnCall(call, position) => self.function_call(call, *position)?,
            Expr::Index(..) | Expr::Dot(..) => Expression::Chain(Box::new(self.chain(expression)?)),
            _ => return None,
        })
    }

    /// An argument: literals of arrays and object maps are one operation.
    fn argument(&mut self, expression: &Expr) -> Option<Expression> {
        match expression.get_literal_value(None) {
            Some(value) => Some(Expression::Constant(ScriptValue::from(value))),
            None => self.expression(expression),
        }
    }

    fn arguments(&mut self, expressions: &[Expr]) -> Option<Box<[Expression]>> {
        expressions.iter().map(|expression| self.argument(expression)).collect()
    }

    fn function_call(&mut self, call: &FnCallExpr, position: Position) -> Option<Expression> {
        let is_operator = call.op_token.is_some();
        if call.capture_parent_scope || (!is_operator && LEFT_TO_RHAI.contains(&call.name.as_str())) {
            return None;
        }
        let arguments = self.arguments(&call.args)?;
        let name = call.name.clone();
        if let (true, Some(operator)) = (is_operator, Operator::of(&name)) {
            match <[Expression; 2]>::try_from(arguments.into_vec()) {
                Ok(operands) => {
                    return Some(Expression::Binary(Box::new(Binary { operator, name, operands, position })));
                }
                Err(arguments) => {
                    let arguments = arguments.into_boxed_slice();
                    return Some(Expression::Call(Box::new(Call { name, function: None, arguments, position })));
                }
            }
        }
        let function = if call.hashes.is_native_only() { None } else { self.callee(&name, arguments.len()) };
        Some(Expression::Call(Box::new(Call { name, function, arguments, position })))
    }

    /// The function of the script with this name and number of arguments.
    fn callee(&mut self, name: &str, arguments: usize) -> Option<usize> {
        let is_it = |definition: &&ScriptFuncDef| definition.name == name && definition.params.len() == arguments;
        let found = self.definitions.iter().position(is_it)?;
        self.calls.push(found);
        Some(found)
    }

    /// `root.field[index].method(…)`; the order of what is evaluated is that of Rhai.
    fn chain(&mut self, chain: &Expr) -> Option<Chain> {
        let (Expr::Index(parts, ..) | Expr::Dot(parts, ..)) = chain else { return None };
        let BinaryExpr { lhs, rhs } = &**parts;
        let mut before = Vec::new();
        match (chain, rhs) {
            (Expr::Dot(..), Expr::Property(..)) => {}
            (Expr::Dot(..), Expr::MethodCall(call, _)) if call.args.is_empty() => {}
            (Expr::Index(..), _) if rhs.get_literal_value(None).is_some() => {
                before.push(Before::Literal(ScriptValue::from(rhs.get_literal_value(None)?)));
            }
            _ => self.before(chain, rhs, &mut before)?,
        }
        let (root, root_position) = match lhs {
            Expr::ThisPtr(position) => (Root::This, *position),
            Expr::Variable(variable, short, position) => (Root::Local(self.variable(variable.0, *short)?), *position),
            _ => (Root::Expression(self.expression(lhs)?), lhs.position()),
        };
        let mut steps = Vec::new();
        self.steps(chain, rhs, &mut steps)?;
        Some(Chain { root, root_position, before: before.into(), steps: steps.into() })
    }

    /// What is evaluated for the step `expression` below `parent`, and for those after it.
    fn before(&mut self, parent: &Expr, expression: &Expr, before: &mut Vec<Before>) -> Option<()> {
        before.push(Before::Operation);
        match (parent, expression) {
            (Expr::Dot(..), Expr::MethodCall(call, _)) => {
                for argument in &call.args {
                    before.push(Before::Value(self.argument(argument)?));
                }
            }
            (Expr::Dot(..), Expr::Property(..)) => {}
            (_, Expr::Index(parts, ..) | Expr::Dot(parts, ..)) if continues(parent) => {
                match (parent, &parts.lhs) {
                    (Expr::Dot(..), Expr::Property(..)) => {}
                    (Expr::Dot(..), Expr::MethodCall(call, _)) => {
                        for argument in &call.args {
                            before.push(Before::Value(self.argument(argument)?));
                        }
                    }
                    (Expr::Index(..), index) => before.push(Before::Value(self.expression(index)?)),
                    _ => return None,
                }
                self.before(expression, &parts.rhs, before)?;
            }
            (Expr::Index(..), _) => before.push(Before::Value(self.expression(expression)?)),
            _ => return None,
        }
        Some(())
    }

    fn steps(&mut self, parent: &Expr, expression: &Expr, steps: &mut Vec<ChainStep>) -> Option<()> {
        if parent.options().contains(ASTFlags::NEGATED) {
            return None;
        }
        let (this, rest) = match expression {
            Expr::Index(parts, ..) | Expr::Dot(parts, ..) if continues(parent) => (&parts.lhs, Some(&parts.rhs)),
            _ => (expression, None),
        };
        let position = parent.position();
        steps.push(match (parent, this) {
            (Expr::Index(..), index) => ChainStep::Index { index_position: index.start_position(), position },
            (Expr::Dot(..), Expr::Property(property, at)) => {
                let (getter, setter, name) = &**property;
                ChainStep::Field(Box::new(FieldStep {
                    name: name.clone(),
                    getter: getter.0.clone(),
                    setter: setter.0.clone(),
                    readers: self.kit.readers.get(name.as_str()).cloned().unwrap_or_default().into(),
                    position: *at,
                    dot_position: position,
                }))
            }
            (Expr::Dot(..), Expr::MethodCall(call, at)) => {
                if LEFT_TO_RHAI.contains(&call.name.as_str()) {
                    return None;
                }
                let arguments = call.args.len();
                let function = if call.hashes.is_native_only() { None } else { self.callee(&call.name, arguments) };
                ChainStep::Method(Box::new(Method { name: call.name.clone(), function, arguments, position: *at }))
            }
            _ => return None,
        });
        match rest {
            Some(rest) => self.steps(expression, rest, steps),
            None => Some(()),
        }
    }
}

/// The statements of a function: Rhai hands them out only one by one, and those of all functions.
fn body_of(ast: &AST, definition: &ScriptFuncDef) -> Vec<Stmt> {
    let (name, parameters) = (definition.name.as_str(), definition.params.len());
    // (`clone_functions_only_filtered` of Rhai 1.27 does not filter.)
    let mut alone = ast.clone_functions_only();
    alone.retain_functions(|_, _, other, n| other == name && n == parameters);
    let mut statements = Vec::new();
    alone.walk(&mut |path: &[ASTNode<'_>]| {
        if let [ASTNode::Stmt(statement)] = path {
            statements.push((*statement).clone());
        }
        true
    });
    statements
}

/// Whether a chain goes on behind `parent`, so that what stands there is not an index by itself.
fn continues(parent: &Expr) -> bool {
    !parent.options().contains(ASTFlags::BREAK)
}
