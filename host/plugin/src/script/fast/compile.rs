//! From the syntax tree of the script engine to [`Statements`]. Each part has the number of operations that the engine counts for it.

use rhai::{AST, ASTFlags, Expr, FLOAT, INT, Stmt, StmtBlock};

use super::columns::MOST_VARIABLES;
use crate::script::operations::Operation;
use crate::script::registry::{ColumnGetter, KnownNames, NumberGetter};
use crate::script::tree::each_statement;

/// Statements in their order. The value is that of the last.
pub(super) type Statements = Box<[Statement]>;

pub(super) enum Statement {
    Set {
        variable: usize,
        value: Expression,
        operations: u64,
    },
    /// `variable += value` and the like, also what the optimizer of the script engine makes of `variable = variable + value`.
    Update {
        variable: usize,
        pair: Operation,
        value: Expression,
    },
    Value {
        value: Expression,
        operations: u64,
    },
    If(Box<Condition>),
    Block(Statements),
    Return(Expression),
}

pub(super) struct Condition {
    pub holds: Expression,
    pub then: Statements,
    pub otherwise: Statements,
}

pub(super) enum Expression {
    Unit,
    Bool(bool),
    Int(INT),
    Float(FLOAT),
    Variable(usize),
    /// An argument that is a number.
    Argument(usize),
    Number(usize, NumberGetter),
    Column(usize, ColumnGetter),
    /// An operation on two numbers, or on a column and a number or a column.
    Pair(Operation, Box<[Expression; 2]>),
    /// An operation on one number or column.
    Single(Operation, Box<Expression>),
    /// For each entry of the first a number of the second or of the third.
    Select(Box<[Expression; 3]>),
    /// Entries as many as the operand, of this value.
    Filled(f64, Box<Expression>),
    All(Box<[Expression]>),
    Any(Box<[Expression]>),
    Block(Statements),
    /// An operation on the table of this number.
    Table(usize, TableOperation, Box<[Expression; 2]>),
    /// The same as a method of its first operand, with operations in addition.
    Method(u64, Box<Expression>),
}

/// An operation on a table of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableOperation {
    Add,
    Get,
    Set,
}

/// The operators that may stand before `=`.
const UPDATES: [&str; 4] = ["+", "-", "*", "/"];

const FILLED: [(&str, f64); 2] = [("zeros", 0.0), ("ones", 1.0)];
/// Operations on tables, of two arguments.
const TABLE: [(&str, TableOperation); 3] =
    [("add", TableOperation::Add), ("get", TableOperation::Get), ("set", TableOperation::Set)];

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
enum Binding {
    Argument(usize),
    Variable { number: usize, constant: bool },
}

struct Compiler<'a> {
    known: &'a KnownNames,
    views: &'a [Option<&'static str>],
    bindings: Vec<(String, Binding)>,
    variables: usize,
    /// Blocks inside of expressions: variables must not be assigned there, since another operand may be read later.
    inside: usize,
    tables: Vec<String>,
    /// Operations on tables so far.
    table_operations: usize,
}

pub(super) fn function(
    ast: &AST,
    name: &str,
    views: &[Option<&'static str>],
    known: &KnownNames,
) -> Option<(Statements, Vec<String>)> {
    let definition = ast.shared_lib().get_script_fn(name, views.len())?;
    let mut compiler = Compiler {
        known,
        views,
        bindings: Vec::new(),
        variables: 0,
        inside: 0,
        tables: Vec::new(),
        table_operations: 0,
    };
    for (number, parameter) in definition.params.iter().enumerate() {
        compiler.bindings.push((parameter.to_string(), Binding::Argument(number)));
    }
    let mut body = Vec::new();
    let known = each_statement(ast, name, views.len(), |statement| {
        compiler.statement(statement).map(|statement| body.push(statement)).is_some()
    });
    known.then(|| (body.into(), compiler.tables))
}

impl Compiler<'_> {
    fn block(&mut self, statements: &StmtBlock) -> Option<Statements> {
        let (bindings, variables) = (self.bindings.len(), self.variables);
        let block = statements.iter().map(|statement| self.statement(statement)).collect();
        self.bindings.truncate(bindings);
        self.variables = variables;
        block
    }

    fn statement(&mut self, statement: &Stmt) -> Option<Statement> {
        Some(match statement {
            Stmt::Noop(_) => Statement::Value { value: Expression::Unit, operations: 0 },
            Stmt::Expr(expression) => Statement::Value { value: self.expression(expression)?, operations: 1 },
            // Its own operation is that of the statement.
            Stmt::FnCall(call, _) => {
                let value = self.function(call.name.as_str(), call.args.iter(), call.capture_parent_scope)?;
                Statement::Value { value, operations: 0 }
            }
            Stmt::Var(definition, flags, _) if !flags.intersects(ASTFlags::EXPORTED) => {
                let (name, value, _) = &**definition;
                let value = self.expression(value)?;
                let variable = self.variables;
                self.variables += 1;
                if self.variables > MOST_VARIABLES {
                    return None;
                }
                let constant = flags.intersects(ASTFlags::CONSTANT);
                self.bindings.push((name.name.to_string(), Binding::Variable { number: variable, constant }));
                Statement::Set { variable, value, operations: 1 }
            }
            Stmt::Assignment(assignment) if self.inside == 0 => {
                let Expr::Variable(name, ..) = &assignment.1.lhs else { return None };
                let Binding::Variable { number: variable, constant: false } = self.binding(&name.1)? else {
                    return None;
                };
                let value = self.expression(&assignment.1.rhs)?;
                match assignment.0.get_op_assignment_info() {
                    None => Statement::Set { variable, value, operations: 2 },
                    Some((.., operator)) if UPDATES.contains(&operator) => {
                        Statement::Update { variable, pair: Operation::called(operator, 2)?, value }
                    }
                    Some(_) => return None,
                }
            }
            Stmt::If(parts, _) => Statement::If(Box::new(Condition {
                holds: self.expression(&parts.expr)?,
                then: self.block(&parts.body)?,
                otherwise: self.block(&parts.branch)?,
            })),
            Stmt::Block(block) => Statement::Block(self.block(block)?),
            Stmt::Return(Some(value), flags, _) if !flags.intersects(ASTFlags::BREAK) => {
                Statement::Return(self.expression(value)?)
            }
            _ => return None,
        })
    }

    fn binding(&self, name: &str) -> Option<Binding> {
        self.bindings.iter().rev().find(|(known, _)| known == name).map(|&(_, binding)| binding)
    }

    fn expression(&mut self, expression: &Expr) -> Option<Expression> {
        Some(match expression {
            Expr::Unit(_) => Expression::Unit,
            Expr::BoolConstant(value, _) => Expression::Bool(*value),
            Expr::IntegerConstant(value, _) => Expression::Int(*value),
            Expr::FloatConstant(value, _) => Expression::Float(**value),
            Expr::Variable(name, ..) => match self.binding(&name.1)? {
                Binding::Argument(number) if self.views.get(number)?.is_none() => Expression::Argument(number),
                Binding::Argument(_) => return None,
                Binding::Variable { number, .. } => Expression::Variable(number),
            },
            Expr::FnCall(call, _) => self.function(&call.name, call.args.iter(), call.capture_parent_scope)?,
            Expr::And(operands, _) => Expression::All(self.expressions(operands.iter())?),
            Expr::Or(operands, _) => Expression::Any(self.expressions(operands.iter())?),
            Expr::Stmt(block) => {
                self.inside += 1;
                let block = self.block(block);
                self.inside -= 1;
                Expression::Block(block?)
            }
            Expr::Dot(chain, flags, _) if !flags.intersects(ASTFlags::NEGATED) => self.chain(&chain.lhs, &chain.rhs)?,
            _ => return None,
        })
    }

    fn expressions<'e>(&mut self, expressions: impl Iterator<Item = &'e Expr>) -> Option<Box<[Expression]>> {
        expressions.map(|expression| self.expression(expression)).collect()
    }

    fn function<'e>(
        &mut self,
        name: &str,
        arguments: impl ExactSizeIterator<Item = &'e Expr>,
        captures: bool,
    ) -> Option<Expression> {
        if captures {
            return None;
        }
        let arguments = self.expressions(arguments)?;
        function_of(name, arguments.into_vec())
    }

    /// `left.right`, where `right` is a field, a method, or a field and one of its methods.
    fn chain(&mut self, left: &Expr, right: &Expr) -> Option<Expression> {
        match (left, right) {
            (Expr::Variable(name, ..), Expr::Property(property, _)) => match self.binding(&name.1)? {
                Binding::Argument(number) => self.field(number, &property.2),
                Binding::Variable { number, .. } if property.2 == "len" => {
                    Some(Expression::Single(Operation::Length, Box::new(Expression::Variable(number))))
                }
                Binding::Variable { .. } => None,
            },
            (Expr::ThisPtr(_), Expr::Dot(rest, flags, _)) if !flags.intersects(ASTFlags::NEGATED) => {
                let (Expr::Property(table, _), Expr::MethodCall(call, _)) = (&rest.lhs, &rest.rhs) else { return None };
                self.table(&table.2, &call.name, call.args.iter())
            }
            // The chain counts as one more if the method has arguments.
            (_, Expr::MethodCall(call, _)) if !matches!(left, Expr::ThisPtr(_)) => {
                let tables = self.table_operations;
                let arguments = std::iter::once(left).chain(call.args.iter());
                let arguments = self.expressions(arguments)?;
                // The engine evaluates the arguments first, which makes a difference if tables change meanwhile.
                if arguments.len() > 1 && self.table_operations > tables {
                    return None;
                }
                let more = u64::from(arguments.len() > 1);
                Some(Expression::Method(more, Box::new(function_of(&call.name, arguments.into_vec())?)))
            }
            (Expr::Variable(name, ..), Expr::Dot(rest, flags, _)) if !flags.intersects(ASTFlags::NEGATED) => {
                let (Expr::Property(property, _), Expr::MethodCall(call, _)) = (&rest.lhs, &rest.rhs) else {
                    return None;
                };
                let Binding::Argument(number) = self.binding(&name.1)? else { return None };
                let mut arguments = vec![self.field(number, &property.2)?];
                arguments.extend(self.expressions(call.args.iter())?);
                Some(Expression::Method(1, Box::new(function_of(&call.name, arguments)?)))
            }
            _ => None,
        }
    }

    fn field(&self, argument: usize, name: &str) -> Option<Expression> {
        let view = (*self.views.get(argument)?)?;
        if let Some(column) = self.known.columns.get(&(view, name)) {
            return Some(Expression::Column(argument, column.clone()));
        }
        Some(Expression::Number(argument, self.known.numbers.get(&(view, name))?.clone()))
    }

    fn table<'e>(
        &mut self,
        table: &str,
        method: &str,
        arguments: impl Iterator<Item = &'e Expr>,
    ) -> Option<Expression> {
        let &(_, operation) = TABLE.iter().find(|(known, _)| *known == method)?;
        let arguments = self.expressions(arguments)?.into_vec().try_into().ok()?;
        self.table_operations += 1;
        let number = self.tables.iter().position(|known| known == table).unwrap_or_else(|| {
            self.tables.push(table.to_owned());
            self.tables.len() - 1
        });
        Some(Expression::Table(number, operation, Box::new(arguments)))
    }
}

/// The operation called `name` on `arguments`.
fn function_of(name: &str, mut arguments: Vec<Expression>) -> Option<Expression> {
    if let ([_], Some(&(_, value))) = (&arguments[..], FILLED.iter().find(|(known, _)| *known == name)) {
        return Some(Expression::Filled(value, Box::new(arguments.pop()?)));
    }
    let operation = Operation::called(name, arguments.len())?;
    Some(match arguments.len() {
        1 => Expression::Single(operation, Box::new(arguments.pop()?)),
        2 => Expression::Pair(operation, Box::new(arguments.try_into().ok()?)),
        _ => Expression::Select(Box::new(arguments.try_into().ok()?)),
    })
}
