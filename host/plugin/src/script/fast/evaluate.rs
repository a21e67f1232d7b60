//! Evaluates [`Expression`]s. Numbers have the results of `operators.rs` and columns those of `column.rs`.

use std::cmp::Ordering;

use rhai::{Dynamic, FLOAT, INT, Map};

use super::columns::{Columns, FastValue, MOST_VARIABLES};
use super::compile::{Expression, Statement, Statements, TableOperation};
use super::function::{ArgumentsOfCall, FastFunction, FastMemory, FastOutput, FastResult};
use crate::Limits;
use crate::limits::NUMBERS_PER_OPERATION;
use crate::script::call::CHARGED_WITH_EACH;
use crate::script::column::{self, Column, LeastAndMost, first_best, larger, smaller, truth};
use crate::script::operations::Operation;
use crate::script::operators::exact;
use crate::script::table::{CHARGED_FOR_KEY, Table};

/// `None` ends the evaluation: with [`Evaluation::returned`], or because the script engine has to make this call.
type ValueResult<'a> = Option<FastValue<'a>>;

struct Evaluation<'a, 'm> {
    function: &'a FastFunction,
    arguments: ArgumentsOfCall<'a>,
    state: &'m mut Dynamic,
    limits: &'m Limits,
    memory: &'m mut FastMemory,
    variables: [FastValue<'a>; MOST_VARIABLES],
    /// The value of the statement `return` that ended the function.
    returned: Option<FastValue<'a>>,
    operations: u64,
    numbers: u64,
    numbers_allowed: u64,
}

pub(super) fn call<'a>(
    function: &'a FastFunction,
    arguments: ArgumentsOfCall<'a>,
    state: &mut Dynamic,
    limits: &Limits,
    memory: &'a mut FastMemory,
) -> Option<FastOutput<'a>> {
    memory.columns.clear();
    memory.overwritten.clear();
    let mut evaluation = Evaluation {
        function,
        arguments,
        state,
        limits,
        memory,
        variables: [FastValue::Unit; MOST_VARIABLES],
        returned: None,
        // That of the call itself.
        operations: 1,
        numbers: 0,
        numbers_allowed: limits.operations_per_call.saturating_mul(NUMBERS_PER_OPERATION),
    };
    let output = evaluation.block(&function.body).or(evaluation.returned);
    let Some(output) = output.filter(|_| evaluation.operations <= limits.operations_per_call) else {
        evaluation.undo();
        return None;
    };
    let (operations, numbers) = (evaluation.operations, evaluation.numbers);
    let output = match output {
        FastValue::Unit => FastResult::Value(Dynamic::UNIT),
        FastValue::Bool(value) => FastResult::Value(Dynamic::from_bool(value.get())),
        FastValue::Int(value) => FastResult::Value(Dynamic::from_int(value)),
        FastValue::Float(value) => FastResult::Value(Dynamic::from_float(value.get())),
        FastValue::View(column) => FastResult::Column(column.values()),
        FastValue::Own(_) => FastResult::Column(memory.columns.of(output).unwrap_or_default()),
    };
    Some(FastOutput { output, operations, numbers })
}

/// Appends `f` of each number of `values` to `made`. By itself, so that the compiler computes several at once.
#[inline(never)]
fn each_number(made: &mut Vec<f64>, values: &[f64], f: impl Fn(f64) -> f64) {
    made.extend(values.iter().map(|&x| f(x)));
}

/// As [`each_number`], of two columns.
#[inline(never)]
fn each_pair(made: &mut Vec<f64>, left: &[f64], right: &[f64], f: impl Fn(f64, f64) -> f64) {
    made.extend(left.iter().zip(right).map(|(&a, &b)| f(a, b)));
}

/// Changes each number of `values` to `f` of it.
#[inline(never)]
fn change_each(values: &mut [f64], f: impl Fn(f64) -> f64) {
    values.iter_mut().for_each(|x| *x = f(*x));
}

/// As [`change_each`], with the number of `others` at the same index.
#[inline(never)]
fn change_pairs(values: &mut [f64], others: &[f64], f: impl Fn(f64, f64) -> f64) {
    values.iter_mut().zip(others).for_each(|(x, &other)| *x = f(*x, other));
}

/// Changes each number of `values` to `f` of it and of `other`, a number or a column as long.
fn change_with(values: &mut [f64], columns: &Columns, other: FastValue<'_>, f: impl Fn(f64, f64) -> f64) -> Option<()> {
    match columns.of(other) {
        Some(others) if others.len() == values.len() => change_pairs(values, others, f),
        Some(_) => return None,
        None => {
            let other = short_number(other)?;
            change_each(values, |x| f(x, other));
        }
    }
    Some(())
}

impl<'a> Evaluation<'a, '_> {
    fn block(&mut self, block: &'a Statements) -> ValueResult<'a> {
        let mut latest = FastValue::Unit;
        for statement in block {
            self.memory.columns.release(latest);
            latest = self.statement(statement)?;
        }
        Some(latest)
    }

    fn statement(&mut self, statement: &'a Statement) -> ValueResult<'a> {
        match statement {
            Statement::Set { variable, value, operations } => {
                self.operations += operations;
                let value = self.evaluate(value)?;
                // What the variable of a block that has ended held is not released: there are few of these.
                self.variables[*variable] = value;
                Some(FastValue::Unit)
            }
            Statement::Update { variable, pair, value } => {
                self.operations += 3;
                let value = self.evaluate(value)?;
                let present = self.variables[*variable];
                // For other types the script engine first looks for the operator with `=`, in vain.
                let updates = matches!(
                    (present, value),
                    (FastValue::Int(_), FastValue::Int(_))
                        | (FastValue::Float(_), FastValue::Float(_) | FastValue::Int(_))
                );
                self.operations += u64::from(!updates);
                self.variables[*variable] = self.pair(*pair, present, value)?;
                Some(FastValue::Unit)
            }
            Statement::Value { value, operations } => {
                self.operations += operations;
                self.evaluate(value)
            }
            Statement::If(condition) => {
                self.operations += 1;
                let FastValue::Bool(holds) = self.evaluate(&condition.holds)? else { return None };
                self.block(if holds.get() { &condition.then } else { &condition.otherwise })
            }
            Statement::Block(block) => {
                self.operations += 1;
                self.block(block)
            }
            Statement::Return(value) => {
                self.operations += 1;
                self.returned = Some(self.evaluate(value)?);
                None
            }
        }
    }

    fn evaluate(&mut self, expression: &'a Expression) -> ValueResult<'a> {
        self.operations += 1;
        match expression {
            Expression::Unit => Some(FastValue::Unit),
            Expression::Bool(value) => Some(FastValue::of_bool(*value)),
            Expression::Int(value) => Some(FastValue::Int(*value)),
            Expression::Float(value) => Some(FastValue::of_float(*value)),
            Expression::Variable(number) => {
                let value = self.variables[*number];
                self.memory.columns.share(value);
                Some(value)
            }
            Expression::Argument(number) => self.argument(*number),
            Expression::Number(argument, get) => {
                self.operations += 2;
                get(self.arguments[*argument]).and_then(|value| self.field(&value))
            }
            Expression::Column(argument, get) => {
                self.operations += 2;
                get(self.arguments[*argument])?.downcast_ref().map(FastValue::View)
            }
            Expression::Pair(pair, operands) => {
                let [left, right] = &**operands;
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                self.operations += 1;
                self.pair(*pair, left, right)
            }
            Expression::Single(single, operand) => {
                let operand = self.evaluate(operand)?;
                self.operations += 1;
                let result = self.single(*single, operand);
                self.memory.columns.release(operand);
                result
            }
            Expression::Select(operands) => self.select(operands),
            Expression::Filled(value, len) => {
                let len = self.evaluate(len)?;
                self.operations += 1;
                self.filled(*value, len)
            }
            Expression::All(operands) => self.until(operands, false),
            Expression::Any(operands) => self.until(operands, true),
            Expression::Block(block) => self.block(block),
            Expression::Table(table, operation, arguments) => self.table(*table, *operation, arguments),
            Expression::Method(more, expression) => {
                self.operations += more;
                self.operations -= 1;
                self.evaluate(expression)
            }
        }
    }

    /// The value of a field that is no column of the view. It may be a column that is made at each access, as the indices.
    fn field(&mut self, value: &Dynamic) -> Option<FastValue<'a>> {
        if let Some(scalar) = scalar(value) {
            return Some(scalar);
        }
        let column = value.read_lock::<Column>()?;
        let most = self.limits.memory_bytes / size_of::<f64>();
        self.memory.columns.make(most, |_, made| {
            made.extend_from_slice(column.values());
            Some(())
        })
    }

    fn argument(&self, number: usize) -> ValueResult<'a> {
        let argument = self.arguments[number];
        if let Some(&value) = argument.downcast_ref::<FLOAT>() {
            return Some(FastValue::of_float(value));
        }
        argument.downcast_ref::<Dynamic>().and_then(scalar)
    }

    /// Whether one of the operands is `value`: those after it are not evaluated.
    fn until(&mut self, operands: &'a [Expression], value: bool) -> ValueResult<'a> {
        for operand in operands {
            let FastValue::Bool(found) = self.evaluate(operand)? else { return None };
            if found.get() == value {
                return Some(FastValue::of_bool(value));
            }
        }
        Some(FastValue::of_bool(!value))
    }

    /// Counts an operation on `numbers` entries.
    fn charge(&mut self, numbers: usize) -> Option<()> {
        self.numbers += (numbers + CHARGED_WITH_EACH) as u64;
        (self.numbers <= self.numbers_allowed).then_some(())
    }

    /// A new column from an operation that counts as one on each of its `len` entries.
    fn make(&mut self, len: usize, fill: impl FnOnce(&Columns, &mut Vec<f64>) -> Option<()>) -> Option<FastValue<'a>> {
        self.charge(len)?;
        let most = self.limits.memory_bytes / size_of::<f64>();
        self.memory.columns.make(most, fill)
    }

    /// As [`Self::make`] in the memory of `value`, if it is a column of this call that nothing else uses; `None` if it is not.
    fn change(
        &mut self,
        value: FastValue<'a>,
        change: impl FnOnce(&Columns, &mut [f64]) -> Option<()>,
    ) -> Option<Option<FastValue<'a>>> {
        let most = self.limits.memory_bytes / size_of::<f64>();
        let len = self.memory.columns.of(value)?.len();
        let changed = self.memory.columns.change(value, most, change)?;
        Some(self.charge(len).and(changed))
    }

    fn pair(&mut self, pair: Operation, left: FastValue<'a>, right: FastValue<'a>) -> ValueResult<'a> {
        let result = match (left, right) {
            (FastValue::View(_) | FastValue::Own(_), _) | (_, FastValue::View(_) | FastValue::Own(_)) => {
                self.pair_of_columns(pair, left, right)
            }
            _ => numbers(pair, left, right),
        };
        self.memory.columns.release(left);
        self.memory.columns.release(right);
        result
    }

    fn pair_of_columns(&mut self, pair: Operation, left: FastValue<'a>, right: FastValue<'a>) -> Option<FastValue<'a>> {
        match pair {
            Operation::Add => self.zip(left, right, |a, b| a + b),
            Operation::Subtract => self.zip(left, right, |a, b| a - b),
            Operation::Multiply => self.zip(left, right, |a, b| a * b),
            Operation::Divide => self.zip(left, right, |a, b| a / b),
            Operation::Remainder => self.zip(left, right, |a, b| a % b),
            Operation::Power => self.zip(left, right, libm::pow),
            Operation::Less => self.zip(left, right, |a, b| truth(a < b)),
            Operation::LessOrEqual => self.zip(left, right, |a, b| truth(a <= b)),
            Operation::Greater => self.zip(left, right, |a, b| truth(a > b)),
            Operation::GreaterOrEqual => self.zip(left, right, |a, b| truth(a >= b)),
            Operation::Equal => self.zip(left, right, |a, b| truth(a == b)),
            Operation::NotEqual => self.zip(left, right, |a, b| truth(a != b)),
            Operation::And => self.zip(truth_value(left)?, truth_value(right)?, |a, b| truth(a != 0.0 && b != 0.0)),
            Operation::Or => self.zip(truth_value(left)?, truth_value(right)?, |a, b| truth(a != 0.0 || b != 0.0)),
            Operation::Larger => self.zip(left, right, larger),
            Operation::Smaller => self.zip(left, right, smaller),
            _ => None,
        }
    }

    fn zip(&mut self, left: FastValue<'a>, right: FastValue<'a>, f: impl Fn(f64, f64) -> f64) -> Option<FastValue<'a>> {
        let columns = &self.memory.columns;
        let len = columns.of(left).or_else(|| columns.of(right))?.len();
        if let Some(changed) = self.change(left, |columns, values| change_with(values, columns, right, &f)) {
            return changed;
        }
        if let Some(changed) = self.change(right, |columns, values| change_with(values, columns, left, |b, a| f(a, b)))
        {
            return changed;
        }
        self.make(len, |columns, made| {
            match (columns.of(left), columns.of(right)) {
                (Some(a), Some(b)) if a.len() == b.len() => each_pair(made, a, b, f),
                (Some(a), None) => {
                    let b = short_number(right)?;
                    each_number(made, a, |a| f(a, b));
                }
                (None, Some(b)) => {
                    let a = short_number(left)?;
                    each_number(made, b, |b| f(a, b));
                }
                _ => return None,
            }
            Some(())
        })
    }

    fn single(&mut self, single: Operation, operand: FastValue<'a>) -> Option<FastValue<'a>> {
        match (single, operand) {
            (Operation::Not, FastValue::Bool(value)) => Some(FastValue::of_bool(!value.get())),
            (Operation::Negative, FastValue::Int(value)) => value.checked_neg().map(FastValue::Int),
            (Operation::ToFloat, FastValue::Int(value)) => Some(FastValue::of_float(value as FLOAT)),
            (Operation::Absolute, FastValue::Int(_)) => None,
            (_, FastValue::Float(value)) => of_number(single).map(|f| FastValue::of_float(f(value.get()))),
            (_, FastValue::Int(value)) if single != Operation::Negative => {
                of_number(single).map(|f| FastValue::of_float(f(value as FLOAT)))
            }
            (_, FastValue::View(_) | FastValue::Own(_)) => self.single_of_column(single, operand),
            _ => None,
        }
    }

    fn single_of_column(&mut self, single: Operation, operand: FastValue<'a>) -> Option<FastValue<'a>> {
        let len = self.memory.columns.of(operand)?.len();
        match single {
            Operation::Negative => self.each(operand, |x| -x),
            Operation::Not => self.each(operand, |x| truth(x == 0.0)),
            Operation::Absolute => self.each(operand, f64::abs),
            Operation::Floor => self.each(operand, f64::floor),
            Operation::Ceiling => self.each(operand, f64::ceil),
            Operation::FewestBest | Operation::MostBest => {
                let scale = LeastAndMost::of(self.memory.columns.of(operand)?);
                if single == Operation::FewestBest {
                    return self.each(operand, |x| scale.fewest_best(x));
                }
                self.each(operand, |x| scale.most_best(x))
            }
            Operation::Length => Some(FastValue::Int(len as INT)),
            Operation::ToFloat => None,
            _ => match of_number(single) {
                Some(f) => self.each(operand, f),
                None => {
                    self.charge(len)?;
                    reduced(single, self.memory.columns.of(operand)?)
                }
            },
        }
    }

    fn each(&mut self, operand: FastValue<'a>, f: impl Fn(f64) -> f64) -> Option<FastValue<'a>> {
        let changed = self.change(operand, |_, values| {
            change_each(values, &f);
            Some(())
        });
        if let Some(changed) = changed {
            return changed;
        }
        let len = self.memory.columns.of(operand)?.len();
        self.make(len, |columns, made| {
            each_number(made, columns.of(operand)?, f);
            Some(())
        })
    }

    fn select(&mut self, operands: &'a [Expression; 3]) -> ValueResult<'a> {
        let [mask, then, otherwise] = operands;
        let (mask, then, otherwise) = (self.evaluate(mask)?, self.evaluate(then)?, self.evaluate(otherwise)?);
        self.operations += 1;
        let len = self.memory.columns.of(mask)?.len();
        let selected = self.make(len, |columns, made| {
            let mask = columns.of(mask)?;
            match (columns.of(then), columns.of(otherwise)) {
                (Some(a), Some(b)) if a.len() == len && b.len() == len => {
                    made.extend(mask.iter().zip(a).zip(b).map(|((&m, &a), &b)| if m != 0.0 { a } else { b }));
                }
                (Some(a), None) if a.len() == len => {
                    let b = number(otherwise)?;
                    made.extend(mask.iter().zip(a).map(|(&m, &a)| if m != 0.0 { a } else { b }));
                }
                (None, Some(b)) if b.len() == len => {
                    let a = number(then)?;
                    made.extend(mask.iter().zip(b).map(|(&m, &b)| if m != 0.0 { a } else { b }));
                }
                (None, None) => {
                    let (a, b) = (number(then)?, number(otherwise)?);
                    made.extend(mask.iter().map(|&m| if m != 0.0 { a } else { b }));
                }
                _ => return None,
            }
            Some(())
        });
        for operand in [mask, then, otherwise] {
            self.memory.columns.release(operand);
        }
        selected
    }

    fn filled(&mut self, value: f64, len: FastValue<'a>) -> ValueResult<'a> {
        let FastValue::Int(len) = len else { return None };
        let len = usize::try_from(len).ok().filter(|&len| len <= self.limits.collection_size)?;
        self.make(len, |_, made| {
            made.resize(len, value);
            Some(())
        })
    }

    fn table(&mut self, number: usize, operation: TableOperation, arguments: &'a [Expression; 2]) -> ValueResult<'a> {
        // The chain with the field and with its method, `this`, the field.
        self.operations += 4;
        let [first, second] = arguments;
        let (keys, value) = (self.evaluate(first)?, self.evaluate(second)?);
        self.operations += 1;
        let result = match operation {
            TableOperation::Add => self.add_to_entry(number, keys, value),
            TableOperation::Get => self.entries(number, keys, value),
            TableOperation::Set => self.set_entries(number, keys, value),
        };
        self.memory.columns.release(keys);
        self.memory.columns.release(value);
        result
    }

    fn entries(&mut self, table: usize, keys: FastValue<'a>, missing: FastValue<'a>) -> Option<FastValue<'a>> {
        let len = self.memory.columns.of(keys)?.len();
        let missing = number(missing)?;
        self.charge(len.saturating_mul(CHARGED_FOR_KEY))?;
        let most = self.limits.memory_bytes / size_of::<f64>();
        let Self { state, memory: FastMemory { columns, .. }, function, .. } = self;
        with_table(state, function.tables.get(table)?, |table| {
            columns.make(most, |columns, made| {
                table.find_all(columns.of(keys)?, |found| made.push(found.unwrap_or(missing))).ok()
            })
        })
    }

    fn set_entries(
        &mut self,
        number_of_table: usize,
        keys: FastValue<'a>,
        new: FastValue<'a>,
    ) -> Option<FastValue<'a>> {
        let len = self.memory.columns.of(keys)?.len();
        self.charge(len.saturating_mul(CHARGED_FOR_KEY))?;
        self.charge(0)?;
        let longest = self.limits.collection_size;
        let Self { state, memory: FastMemory { columns, overwritten }, function, .. } = self;
        let keys = columns.of(keys)?;
        let before = |key, found| overwritten.push((number_of_table, key, found));
        with_table(state, function.tables.get(number_of_table)?, |table| {
            if table.is_shared() {
                return None;
            }
            match columns.of(new) {
                Some(new) if new.len() == len => table.set_all(keys, new.iter().copied(), longest, before).ok(),
                Some(_) => None,
                None => table.set_all(keys, std::iter::repeat_n(number(new)?, len), longest, before).ok(),
            }
        })?;
        Some(FastValue::Unit)
    }

    fn add_to_entry(
        &mut self,
        number_of_table: usize,
        key: FastValue<'a>,
        more: FastValue<'a>,
    ) -> Option<FastValue<'a>> {
        let FastValue::Int(key) = key else { return None };
        let more = number(more)?;
        self.charge(0)?;
        let longest = self.limits.collection_size;
        let Self { state, memory: FastMemory { overwritten, .. }, function, .. } = self;
        with_table(state, function.tables.get(number_of_table)?, |table| {
            let found = table.entry(key);
            if table.is_shared() || (found.is_none() && table.len() >= longest) {
                return None;
            }
            let sum = found.unwrap_or(0.0) + more;
            overwritten.push((number_of_table, key, found));
            table.replace(key, Some(sum));
            Some(FastValue::of_float(sum))
        })
    }

    /// Makes all tables as they were before the call.
    fn undo(&mut self) {
        let Self { state, memory: FastMemory { overwritten, .. }, function, .. } = self;
        while let Some((table, key, before)) = overwritten.pop() {
            let name = function.tables.get(table).map_or("", String::as_str);
            with_table(state, name, |table| {
                table.replace(key, before);
                Some(())
            });
        }
    }
}

/// What `change` does with the table called `name`, if the state has one.
fn with_table<T>(state: &mut Dynamic, name: &str, change: impl FnOnce(&mut Table) -> Option<T>) -> Option<T> {
    let mut fields = state.write_lock::<Map>()?;
    let mut table = fields.get_mut(name)?.write_lock::<Table>()?;
    change(&mut table)
}

fn scalar<'a>(value: &Dynamic) -> Option<FastValue<'a>> {
    if let Ok(value) = value.as_float() {
        Some(FastValue::of_float(value))
    } else if let Ok(value) = value.as_int() {
        Some(FastValue::Int(value))
    } else if let Ok(value) = value.as_bool() {
        Some(FastValue::of_bool(value))
    } else {
        value.is_unit().then_some(FastValue::Unit)
    }
}

/// A number or truth value, where both are numbers.
fn number(value: FastValue<'_>) -> Option<f64> {
    match value {
        FastValue::Int(value) => Some(value as f64),
        FastValue::Float(value) => Some(value.get()),
        FastValue::Bool(value) => Some(truth(value.get())),
        _ => None,
    }
}

/// A number beside a column, unless it has more digits than an entry of a column.
fn short_number(value: FastValue<'_>) -> Option<f64> {
    match value {
        FastValue::Int(value) if value.unsigned_abs() <= 1 << 53 => Some(value as f64),
        FastValue::Float(value) => Some(value.get()),
        _ => None,
    }
}

/// A truth value as the number that stands for it, or a column.
fn truth_value(value: FastValue<'_>) -> Option<FastValue<'_>> {
    match value {
        FastValue::Bool(value) => Some(FastValue::of_float(truth(value.get()))),
        FastValue::View(_) | FastValue::Own(_) => Some(value),
        _ => None,
    }
}

/// The function of one number, if it is one.
fn of_number(single: Operation) -> Option<fn(f64) -> f64> {
    Some(match single {
        Operation::Negative => |x| -x,
        Operation::Absolute => f64::abs,
        Operation::Root => libm::sqrt,
        Operation::Exponential => libm::exp,
        Operation::Logarithm => libm::log,
        Operation::Floor => f64::floor,
        Operation::Ceiling => f64::ceil,
        Operation::Round => f64::round,
        _ => return None,
    })
}

/// One value of all entries.
fn reduced<'a>(single: Operation, values: &[f64]) -> Option<FastValue<'a>> {
    let of_some = |value: f64| (!values.is_empty()).then_some(FastValue::of_float(value));
    match single {
        Operation::Sum => Some(FastValue::of_float(column::total(values.iter().copied()))),
        Operation::Mean => of_some(column::mean(values)),
        Operation::Largest => of_some(column::extremes(values).1),
        Operation::Smallest => of_some(column::extremes(values).0),
        // To the end, several at once.
        Operation::IsAny => Some(FastValue::of_bool(values.iter().fold(false, |any, &x| any | (x != 0.0)))),
        Operation::IsAll => Some(FastValue::of_bool(values.iter().fold(true, |all, &x| all & (x != 0.0)))),
        Operation::Count => Some(FastValue::Int(values.iter().filter(|&&x| x != 0.0).count() as INT)),
        Operation::IndexOfLargest => first_best(values, |x, best| x > best).map(|index| FastValue::Int(index as INT)),
        Operation::IndexOfSmallest => first_best(values, |x, best| x < best).map(|index| FastValue::Int(index as INT)),
        _ => None,
    }
}

/// An operation on two values without columns.
fn numbers<'a>(pair: Operation, left: FastValue<'a>, right: FastValue<'a>) -> Option<FastValue<'a>> {
    match (left, right) {
        (FastValue::Int(a), FastValue::Int(b)) => whole(pair, a, b),
        (FastValue::Float(a), FastValue::Float(b)) => {
            let (a, b) = (a.get(), b.get());
            fractions(pair, a, b, a.partial_cmp(&b))
        }
        (FastValue::Float(a), FastValue::Int(b)) => {
            let a = a.get();
            fractions(pair, a, b as FLOAT, exact(b, a).map(Ordering::reverse))
        }
        (FastValue::Int(a), FastValue::Float(b)) => {
            let b = b.get();
            fractions(pair, a as FLOAT, b, exact(a, b))
        }
        (FastValue::Bool(a), FastValue::Bool(b)) => {
            let (a, b) = (a.get(), b.get());
            Some(FastValue::of_bool(match pair {
                Operation::Equal => a == b,
                Operation::NotEqual => a != b,
                Operation::And => a && b,
                Operation::Or => a || b,
                _ => return None,
            }))
        }
        (FastValue::Unit, _) | (_, FastValue::Unit) => {
            let equal = matches!((left, right), (FastValue::Unit, FastValue::Unit));
            match pair {
                Operation::Equal => Some(FastValue::of_bool(equal)),
                Operation::NotEqual => Some(FastValue::of_bool(!equal)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn whole<'a>(pair: Operation, a: INT, b: INT) -> Option<FastValue<'a>> {
    match pair {
        Operation::Add => a.checked_add(b).map(FastValue::Int),
        Operation::Subtract => a.checked_sub(b).map(FastValue::Int),
        Operation::Multiply => a.checked_mul(b).map(FastValue::Int),
        Operation::Larger => Some(FastValue::Int(a.max(b))),
        Operation::Smaller => Some(FastValue::Int(a.min(b))),
        _ => compared(pair, Some(a.cmp(&b))),
    }
}

fn fractions<'a>(pair: Operation, a: FLOAT, b: FLOAT, order: Option<Ordering>) -> Option<FastValue<'a>> {
    Some(FastValue::of_float(match pair {
        Operation::Add => a + b,
        Operation::Subtract => a - b,
        Operation::Multiply => a * b,
        Operation::Divide => a / b,
        Operation::Remainder => a % b,
        Operation::Power => libm::pow(a, b),
        Operation::Larger => larger(a, b),
        Operation::Smaller => smaller(a, b),
        _ => return compared(pair, order),
    }))
}

/// The result of a comparison; `None` if `pair` is another operation.
fn compared<'a>(pair: Operation, order: Option<Ordering>) -> Option<FastValue<'a>> {
    Some(FastValue::of_bool(match pair {
        Operation::Less => order == Some(Ordering::Less),
        Operation::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operation::Greater => order == Some(Ordering::Greater),
        Operation::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        Operation::Equal => order == Some(Ordering::Equal),
        Operation::NotEqual => order != Some(Ordering::Equal),
        _ => return None,
    }))
}
