//! Evaluates translated functions ([`Program`]) with the results, errors and numbers of operations of Rhai's evaluator.
//!
//! What is frequent is computed here: numbers, variables, object maps, arrays, columns, fields of views. Everything else is a
//! call of the function that Rhai would call ([`Evaluator::native`]), and so is everything that fails, for its error.

use std::hash::{Hash as _, Hasher as _};

use rhai::{
    Array, Caches, Dynamic, EvalAltResult, EvalContext, FnArgsVec, FnPtr, FuncArgs, GlobalRuntimeState, INT,
    Identifier, ImmutableString, Map, Position, Scope,
};

use super::call;
use super::column::Column;
use super::engine::{HOST_CALL_LEVELS, Kit};
use super::program::{
    Assignment, AssignmentTarget, Before, Binary, Call, Chain, ChainStep, Expression, FieldStep, For, Method, Program,
    Root, ScriptBlock, Statement, Switch, TranslatedFunction,
};
use super::registry::ScriptError;
use super::value::{Operator, ScriptValue, dynamic};
use super::views::ClusterObject;

/// Why statements end before the last one.
pub(super) enum EarlyEnd {
    Break(ScriptValue),
    Continue,
    Return(ScriptValue),
    Error(ScriptError),
}

impl From<ScriptError> for EarlyEnd {
    fn from(error: ScriptError) -> Self {
        Self::Error(error)
    }
}

type ScriptCompletion<T = ScriptValue> = Result<T, EarlyEnd>;

const GET: &str = "index$get$";
const SET: &str = "index$set$";

pub(super) struct Evaluator<'a> {
    program: &'a Program,
    kit: &'a Kit,
    global: &'a mut GlobalRuntimeState,
    caches: &'a mut Caches,
    /// Local variables of all functions in progress, and arguments and indices that are evaluated.
    stack: Vec<ScriptValue>,
    /// Where the variables of the current function begin.
    base: usize,
    this: Option<Dynamic>,
    operations: u64,
    most_operations: u64,
    /// The number of operations at which limits are checked next.
    next_check: u64,
    /// The number of operations that the engine has reported.
    reported: u64,
    depth: usize,
    most_depth: usize,
}

impl<'a> Evaluator<'a> {
    pub fn new(
        program: &'a Program,
        kit: &'a Kit,
        global: &'a mut GlobalRuntimeState,
        caches: &'a mut Caches,
        stack: Vec<ScriptValue>,
    ) -> Self {
        let most_operations = kit.engine.max_operations();
        let most_depth = kit.engine.max_call_levels().saturating_sub(HOST_CALL_LEVELS);
        Self {
            program,
            kit,
            global,
            caches,
            stack,
            base: 0,
            this: None,
            operations: 0,
            most_operations,
            next_check: next_check(0, most_operations),
            reported: 0,
            depth: 0,
            most_depth,
        }
    }

    /// Calls the function with this index for the host, with `this` bound; returns the memory of the stack as well.
    pub fn run(
        mut self,
        index: usize,
        this: &mut Dynamic,
        arguments: FnArgsVec<Dynamic>,
    ) -> (Result<Dynamic, ScriptError>, Vec<ScriptValue>) {
        if self.function(index).is_ok_and(|function| function.body.statements.is_empty()) {
            return (Ok(Dynamic::UNIT), self.stack);
        }
        self.stack.extend(arguments.into_iter().map(ScriptValue::from));
        self.this = Some(std::mem::take(this));
        let output = match self.enter(index, 0, Position::NONE) {
            Ok(value) => Ok(dynamic(value)),
            Err(EarlyEnd::Error(error)) => Err(match *error {
                EvalAltResult::ErrorInFunctionCall(_, _, inner, _) => inner,
                _ => error,
            }),
            Err(_) => Ok(Dynamic::UNIT),
        };
        *this = self.this.take().unwrap_or_default();
        if self.operations != self.reported {
            call::set_steps(self.operations);
        }
        self.stack.clear();
        (output, self.stack)
    }

    #[inline]
    fn operation(&mut self) -> ScriptCompletion<()> {
        self.operations += 1;
        if self.operations < self.next_check { Ok(()) } else { self.check() }
    }

    #[cold]
    fn check(&mut self) -> ScriptCompletion<()> {
        if self.operations > self.most_operations {
            // Rhai does not report the operation that is one too many.
            self.operations -= 1;
            return Err(EarlyEnd::Error(EvalAltResult::ErrorTooManyOperations(Position::NONE).into()));
        }
        self.next_check = next_check(self.operations, self.most_operations);
        match call::progress(self.operations) {
            Some(reason) => Err(EarlyEnd::Error(EvalAltResult::ErrorTerminated(reason, Position::NONE).into())),
            None => Ok(()),
        }
    }

    /// Calls a function of the script, whose arguments are the values of the stack from `at` on.
    fn call_function(&mut self, index: usize, at: usize, position: Position) -> ScriptCompletion {
        let function = self.function(index)?;
        if function.body.statements.is_empty() {
            self.stack.truncate(at);
            return Ok(ScriptValue::Unit);
        }
        self.depth += 1;
        let output = self.enter(index, at, position);
        self.depth -= 1;
        output
    }

    fn function(&self, index: usize) -> ScriptCompletion<&'a TranslatedFunction> {
        let program: &'a Program = self.program;
        program.functions[index].as_ref().ok_or_else(|| {
            let text = "a function that was not translated was called".to_owned();
            EarlyEnd::Error(EvalAltResult::ErrorSystem(text, "evaluator".into()).into())
        })
    }

    fn enter(&mut self, index: usize, at: usize, position: Position) -> ScriptCompletion {
        let function = self.function(index)?;
        let base = std::mem::replace(&mut self.base, at);
        let output = self.body(function, position);
        self.base = base;
        self.stack.truncate(at);
        match output {
            Err(EarlyEnd::Return(value)) => Ok(value),
            Err(EarlyEnd::Error(mut error)) => Err(EarlyEnd::Error(if error.is_system_exception() {
                error.set_position(position);
                error
            } else {
                let name = function.name.to_string();
                EvalAltResult::ErrorInFunctionCall(name, String::new(), error, position).into()
            })),
            other => other,
        }
    }

    fn body(&mut self, function: &'a TranslatedFunction, position: Position) -> ScriptCompletion {
        self.operation()?;
        if self.depth > self.most_depth {
            return Err(EarlyEnd::Error(EvalAltResult::ErrorStackOverflow(position).into()));
        }
        self.stack.resize(self.base + function.slots, ScriptValue::Unit);
        self.statements(&function.body.statements)
    }

    fn statements(&mut self, statements: &'a [Statement]) -> ScriptCompletion {
        let mut last = ScriptValue::Unit;
        for statement in statements {
            last = self.statement(statement)?;
        }
        Ok(last)
    }

    fn block(&mut self, block: &'a ScriptBlock) -> ScriptCompletion {
        let output = self.statements(&block.statements);
        self.forget(block);
        output
    }

    /// Ends the variables of a block: a column with one owner is changed without a copy.
    #[inline]
    fn forget(&mut self, block: &ScriptBlock) {
        for slot in block.locals.clone() {
            self.stack[self.base + slot] = ScriptValue::Unit;
        }
    }

    fn statement(&mut self, statement: &'a Statement) -> ScriptCompletion {
        self.operation()?;
        match statement {
            Statement::Noop => Ok(ScriptValue::Unit),
            Statement::Expression(expression) => self.expression(expression),
            Statement::Call(call) => self.call(call),
            Statement::Binary(binary) => self.binary(binary),
            Statement::Block(block) => self.block(block),
            Statement::Let(slot, value) => {
                let value = writable(self.expression(value)?);
                self.stack[self.base + slot] = value;
                Ok(ScriptValue::Unit)
            }
            Statement::Assign(assignment) => self.assign(assignment),
            Statement::If(parts) => {
                let (test, position, body, branch) = &**parts;
                if self.test(test, *position)? { self.block(body) } else { self.block(branch) }
            }
            Statement::Switch(switch) => self.switch(switch),
            Statement::Loop(body) => {
                if body.statements.is_empty() {
                    loop {
                        self.operation()?;
                    }
                }
                loop {
                    if let Some(value) = self.iteration(body)? {
                        return Ok(value);
                    }
                }
            }
            Statement::While(parts) => {
                let (test, position, body) = &**parts;
                while self.test(test, *position)? {
                    if let Some(value) = self.iteration(body)? {
                        return Ok(value);
                    }
                }
                Ok(ScriptValue::Unit)
            }
            Statement::Do(parts) => self.do_loop(&parts.0, &parts.1, parts.2, parts.3),
            Statement::For(parts) => self.for_loop(parts),
            Statement::Break(value) => Err(EarlyEnd::Break(self.optional(value.as_deref())?)),
            Statement::Continue(value) => {
                self.optional(value.as_deref())?;
                Err(EarlyEnd::Continue)
            }
            Statement::Return(value) => Err(EarlyEnd::Return(self.optional(value.as_deref())?)),
            Statement::Throw(value, position) => {
                let value = dynamic(self.optional(value.as_deref())?);
                Err(EarlyEnd::Error(EvalAltResult::ErrorRuntime(value, *position).into()))
            }
        }
    }

    fn optional(&mut self, expression: Option<&'a Expression>) -> ScriptCompletion {
        expression.map_or(Ok(ScriptValue::Unit), |expression| self.expression(expression))
    }

    /// Runs the body of a loop once; the value of `break`, if it ended the loop.
    fn iteration(&mut self, body: &'a ScriptBlock) -> ScriptCompletion<Option<ScriptValue>> {
        // `break` and `continue` may stand among arguments, which are then left on the stack.
        let height = self.stack.len();
        let output = self.block(body);
        self.stack.truncate(height);
        match output {
            Ok(_) | Err(EarlyEnd::Continue) => Ok(None),
            Err(EarlyEnd::Break(value)) => Ok(Some(value)),
            Err(end) => Err(end),
        }
    }

    fn do_loop(
        &mut self,
        body: &'a ScriptBlock,
        test: &'a Expression,
        position: Position,
        until: bool,
    ) -> ScriptCompletion {
        let height = self.stack.len();
        loop {
            let output = self.block(body);
            self.stack.truncate(height);
            match output {
                Ok(_) => {}
                // As in Rhai, `continue` goes on without the test.
                Err(EarlyEnd::Continue) => continue,
                Err(EarlyEnd::Break(value)) => return Ok(value),
                Err(end) => return Err(end),
            }
            if self.test(test, position)? == until {
                return Ok(ScriptValue::Unit);
            }
        }
    }

    fn test(&mut self, test: &'a Expression, position: Position) -> ScriptCompletion<bool> {
        match self.expression(test)? {
            ScriptValue::Truth(value) => Ok(value),
            other => Err(self.mismatch("bool", other.type_name(), position)),
        }
    }

    fn mismatch(&self, expected: &str, got: &str, position: Position) -> EarlyEnd {
        let expected = self.kit.engine.map_type_name(expected).to_owned();
        EarlyEnd::Error(EvalAltResult::ErrorMismatchDataType(expected, got.to_owned(), position).into())
    }

    fn for_loop(&mut self, parts: &'a For) -> ScriptCompletion {
        let over = self.iterated(&parts.over)?;
        let output = self.iterate(parts, over);
        for slot in parts.counter.into_iter().chain([parts.variable]) {
            self.stack[self.base + slot] = ScriptValue::Unit;
        }
        output
    }

    /// What a loop iterates over. A range of whole numbers needs no value of Rhai.
    fn iterated(&mut self, over: &'a Expression) -> ScriptCompletion<Iterated> {
        let Expression::Call(call) = over else { return self.expression(over).map(Iterated::Value) };
        if !matches!(call.name.as_str(), ".." | "..=")
            || !matches!(call.arguments.first(), Some(Expression::Constant(_)))
        {
            return self.expression(over).map(Iterated::Value);
        }
        self.operation()?;
        let [first, last] = &*call.arguments else { return self.call(call).map(Iterated::Value) };
        let (first, last) = (self.expression(first)?, self.expression(last)?);
        let (&ScriptValue::Whole(first), &ScriptValue::Whole(last)) = (&first, &last) else {
            let (mut first, mut last) = (dynamic(first), dynamic(last));
            let range = self.native(&call.name, &mut [&mut first, &mut last], false, call.position)?;
            return Ok(Iterated::Value(ScriptValue::from(range)));
        };
        self.operation()?;
        Ok(if call.name == ".." { Iterated::Range(first, last) } else { Iterated::Inclusive(first, last) })
    }

    fn iterate(&mut self, parts: &'a For, over: Iterated) -> ScriptCompletion {
        match over {
            Iterated::Range(first, last) => self.each(parts, (first..last).map(ScriptValue::Whole)),
            Iterated::Inclusive(first, last) => self.each(parts, (first..=last).map(ScriptValue::Whole)),
            Iterated::Value(ScriptValue::Other(value)) => {
                if value.is_array() {
                    let items = value.into_array().unwrap_or_default();
                    return self.each(parts, items.into_iter().map(ScriptValue::from));
                }
                if value.is_string() {
                    let characters: Vec<char> =
                        value.as_immutable_string_ref().map(|text| text.chars().collect()).unwrap_or_default();
                    return self
                        .each(parts, characters.into_iter().map(|one| ScriptValue::Other(Dynamic::from_char(one))));
                }
                let value = match value.try_cast_result::<Column>() {
                    Ok(column) => return self.each(parts, column.into_iter().map(ScriptValue::Number)),
                    Err(value) => value,
                };
                let value = match value.try_cast_result::<ClusterObject>() {
                    Ok(cluster) => {
                        return self.each(parts, cluster.into_iter().map(|one| ScriptValue::Other(Dynamic::from(one))));
                    }
                    Err(value) => value,
                };
                let value = match value.try_cast_result::<std::ops::Range<INT>>() {
                    Ok(range) => return self.each(parts, range.map(ScriptValue::Whole)),
                    Err(value) => value,
                };
                match value.try_cast_result::<std::ops::RangeInclusive<INT>>() {
                    Ok(range) => self.each(parts, range.map(ScriptValue::Whole)),
                    Err(_) => Err(EarlyEnd::Error(EvalAltResult::ErrorFor(parts.position).into())),
                }
            }
            Iterated::Value(_) => Err(EarlyEnd::Error(EvalAltResult::ErrorFor(parts.position).into())),
        }
    }

    fn each(&mut self, parts: &'a For, values: impl Iterator<Item = ScriptValue>) -> ScriptCompletion {
        let is_empty = parts.body.statements.is_empty();
        for (index, value) in values.enumerate() {
            if is_empty {
                self.operation()?;
                continue;
            }
            if let Some(counter) = parts.counter {
                self.stack[self.base + counter] = ScriptValue::Whole(index as INT);
            }
            self.stack[self.base + parts.variable] = value;
            if let Some(value) = self.iteration(&parts.body)? {
                return Ok(value);
            }
        }
        Ok(ScriptValue::Unit)
    }

    fn switch(&mut self, switch: &'a Switch) -> ScriptCompletion {
        let value = dynamic(self.expression(&switch.value)?);
        let mut found = None;
        if is_hashable(&value) {
            let mut hasher = ahash::AHasher::default();
            value.hash(&mut hasher);
            if let Some(arms) = switch.cases.get(&hasher.finish()) {
                for &arm in arms {
                    if self.arm_holds(switch, arm)? {
                        found = Some(arm);
                        break;
                    }
                }
            }
            if found.is_none() {
                for range in switch.ranges.iter().filter(|range| range.contains(&value)) {
                    if self.arm_holds(switch, range.index())? {
                        found = Some(range.index());
                        break;
                    }
                }
            }
        }
        match found.or(switch.default) {
            Some(arm) => self.expression(&switch.arms[arm].1),
            None => Ok(ScriptValue::Unit),
        }
    }

    fn arm_holds(&mut self, switch: &'a Switch, arm: usize) -> ScriptCompletion<bool> {
        match &switch.arms[arm].0 {
            None => Ok(true),
            Some((test, position)) => self.test(test, *position),
        }
    }

    fn expression(&mut self, expression: &'a Expression) -> ScriptCompletion {
        self.operation()?;
        match expression {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Local(slot) => Ok(self.stack[self.base + slot].clone()),
            Expression::Binary(binary) => self.binary(binary),
            Expression::Chain(chain) => self.chain(chain, None),
            Expression::Call(call) => self.call(call),
            Expression::Block(block) => self.block(block),
            Expression::This(position) => match &self.this {
                Some(this) => Ok(ScriptValue::from(this.clone())),
                None => Err(unbound(*position)),
            },
            Expression::And(parts) => self.every(parts, true),
            Expression::Or(parts) => self.every(parts, false),
            Expression::Coalesce(parts) => {
                let mut value = ScriptValue::Unit;
                for part in parts {
                    value = self.expression(part)?;
                    if !matches!(value, ScriptValue::Unit) {
                        break;
                    }
                }
                Ok(value)
            }
            Expression::Array(items) => self.array(items),
            Expression::Map(entries) => self.map(entries),
            Expression::Text(parts) => self.text(parts),
        }
    }

    /// Whether all parts are `expected`, up to the first that is not; inverted if `expected` is false.
    fn every(&mut self, parts: &'a [(Expression, Position)], expected: bool) -> ScriptCompletion {
        for (part, position) in parts {
            if self.test(part, *position)? != expected {
                return Ok(ScriptValue::Truth(!expected));
            }
        }
        Ok(ScriptValue::Truth(expected))
    }

    fn array(&mut self, items: &'a [Expression]) -> ScriptCompletion {
        let mut array = Array::with_capacity(items.len());
        for item in items {
            let value = dynamic(self.expression(item)?);
            let is_large = is_container(&value);
            array.push(value);
            if is_large {
                let so_far = Dynamic::from_array(array);
                self.kit.engine.ensure_data_size_within_limits(&so_far)?;
                array = so_far.into_array().unwrap_or_default();
            }
        }
        Ok(ScriptValue::Other(Dynamic::from_array(array)))
    }

    fn map(&mut self, entries: &'a [(Identifier, Expression)]) -> ScriptCompletion {
        let mut map = Map::new();
        for (name, value) in entries {
            let value = dynamic(self.expression(value)?);
            let is_large = is_container(&value);
            map.insert(name.clone(), value);
            if is_large {
                let so_far = Dynamic::from_map(map);
                self.kit.engine.ensure_data_size_within_limits(&so_far)?;
                map = so_far.try_cast::<Map>().unwrap_or_default();
            }
        }
        Ok(ScriptValue::Other(Dynamic::from_map(map)))
    }

    fn text(&mut self, parts: &'a [(Expression, Position)]) -> ScriptCompletion {
        let mut text = String::new();
        for (part, position) in parts {
            let mut value = dynamic(self.expression(part)?);
            if let Ok(part) = value.as_immutable_string_ref() {
                text.push_str(&part);
            } else {
                match self.native("to_string", &mut [&mut value], true, *position) {
                    Ok(shown) if shown.is_string() => text.push_str(&shown.into_immutable_string().unwrap_or_default()),
                    Ok(other) => text.push_str(self.kit.engine.map_type_name(other.type_name())),
                    Err(_) => text.push_str(self.kit.engine.map_type_name(&value.to_string())),
                }
            }
            let so_far = Dynamic::from(ImmutableString::from(text.as_str()));
            self.kit.engine.ensure_data_size_within_limits(&so_far)?;
        }
        Ok(ScriptValue::Other(Dynamic::from(ImmutableString::from(text))))
    }

    fn binary(&mut self, binary: &'a Binary) -> ScriptCompletion {
        let [left, right] = &binary.operands;
        // A variable is read after the other operand is evaluated.
        if let Expression::Local(slot) = left {
            self.operation()?;
            let right = self.expression(right)?;
            let at = self.base + slot;
            if let Some(value) = self.stack[at].combine(binary.operator, &right) {
                self.operation()?;
                return Ok(value);
            }
            let mut right = dynamic(right);
            return self.with_local(at, |this, left| {
                this.native(&binary.name, &mut [left, &mut right], true, binary.position).map(ScriptValue::from)
            });
        }
        if let (Expression::This(position), true) = (left, self.this.is_some()) {
            self.operation()?;
            let mut right = dynamic(self.expression(right)?);
            return self.with_this(*position, |this, left| {
                this.native(&binary.name, &mut [left, &mut right], true, binary.position).map(ScriptValue::from)
            });
        }
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        if let Some(value) = left.combine(binary.operator, &right) {
            self.operation()?;
            return Ok(value);
        }
        let (mut left, mut right) = (dynamic(left), dynamic(right));
        self.native(&binary.name, &mut [&mut left, &mut right], false, binary.position).map(ScriptValue::from)
    }

    /// Hands out a variable as a value of Rhai, which may be changed.
    fn with_local<T>(&mut self, at: usize, f: impl FnOnce(&mut Self, &mut Dynamic) -> T) -> T {
        let mut value = dynamic(std::mem::take(&mut self.stack[at]));
        let output = f(self, &mut value);
        self.stack[at] = ScriptValue::from(value);
        output
    }

    fn with_this<T>(
        &mut self,
        position: Position,
        f: impl FnOnce(&mut Self, &mut Dynamic) -> ScriptCompletion<T>,
    ) -> ScriptCompletion<T> {
        let Some(mut this) = self.this.take() else { return Err(unbound(position)) };
        let output = f(self, &mut this);
        self.this = Some(this);
        output
    }

    fn call(&mut self, call: &'a Call) -> ScriptCompletion {
        let (at, position) = (self.stack.len(), call.position);
        let (first, rest) = match &*call.arguments {
            [] => (None, &call.arguments[..]),
            [first, rest @ ..] => (Some(first), rest),
        };
        // The first argument is passed by reference if it is a variable or `this`; it is read after the others.
        let by_reference = match first {
            Some(Expression::Local(slot)) => Some(Reference::Local(self.base + slot)),
            Some(Expression::This(position)) if self.this.is_some() => Some(Reference::This(*position)),
            _ => None,
        };
        match (first, &by_reference) {
            (Some(_), Some(_)) => {
                self.operation()?;
                self.stack.push(ScriptValue::Unit);
            }
            (Some(first), None) => {
                let value = self.expression(first)?;
                self.stack.push(value);
            }
            (None, _) => {}
        }
        for argument in rest {
            let value = self.expression(argument)?;
            self.stack.push(value);
        }
        if let Some(function) = call.function {
            match by_reference {
                Some(Reference::Local(slot)) => self.stack[at] = self.stack[slot].clone(),
                Some(Reference::This(_)) => {
                    self.stack[at] =
                        self.this.as_ref().map_or(ScriptValue::Unit, |this| ScriptValue::from(this.clone()));
                }
                None => {}
            }
            let this = self.this.take();
            let output = self.call_function(function, at, position);
            self.this = this;
            return output;
        }
        let mut arguments: FnArgsVec<Dynamic> = self.stack.drain(at..).map(dynamic).collect();
        let output = match by_reference {
            None => {
                let mut arguments: FnArgsVec<&mut Dynamic> = arguments.iter_mut().collect();
                self.native(&call.name, &mut arguments, false, position)
            }
            Some(Reference::Local(slot)) => self.with_local(slot, |this, first| {
                let rest = arguments.iter_mut().skip(1);
                let mut arguments: FnArgsVec<&mut Dynamic> = std::iter::once(first).chain(rest).collect();
                this.native(&call.name, &mut arguments, true, position)
            }),
            Some(Reference::This(at)) => self.with_this(at, |this, first| {
                let rest = arguments.iter_mut().skip(1);
                let mut arguments: FnArgsVec<&mut Dynamic> = std::iter::once(first).chain(rest).collect();
                this.native(&call.name, &mut arguments, true, position)
            }),
        };
        output.map(ScriptValue::from)
    }

    /// Calls a function of the host as Rhai does; it counts the operation.
    fn native(
        &mut self,
        name: &str,
        arguments: &mut [&mut Dynamic],
        by_reference: bool,
        position: Position,
    ) -> ScriptCompletion<Dynamic> {
        self.in_engine(position, |context| context.call_native_fn_raw(name, by_reference, arguments))
    }

    fn in_engine(
        &mut self,
        position: Position,
        f: impl FnOnce(&mut EvalContext<'_, '_, '_, '_, '_, '_>) -> Result<Dynamic, ScriptError>,
    ) -> ScriptCompletion<Dynamic> {
        self.global.num_operations = self.operations;
        self.global.level = HOST_CALL_LEVELS + self.depth;
        let mut scope = Scope::new();
        let mut context = EvalContext::new(&self.kit.engine, self.global, self.caches, &mut scope, None);
        let output = f(&mut context);
        self.operations = self.global.num_operations;
        self.reported = self.operations;
        self.next_check = next_check(self.operations, self.most_operations);
        output.map_err(|mut error| {
            if error.position().is_none() {
                error.set_position(position);
            }
            EarlyEnd::Error(error)
        })
    }

    fn assign(&mut self, assignment: &'a Assignment) -> ScriptCompletion {
        match &assignment.target {
            AssignmentTarget::Local(slot) => {
                let value = self.expression(&assignment.value)?;
                self.operation()?;
                let at = self.base + slot;
                match &assignment.operator {
                    None => self.stack[at] = writable(value),
                    Some(operator) => {
                        let sum = operator.operator.and_then(|operator| assigned(&self.stack[at], operator, &value));
                        if let Some(sum) = sum {
                            self.operation()?;
                            self.stack[at] = sum;
                        } else {
                            self.with_local(at, |this, target| this.update(target, assignment, value))?;
                        }
                    }
                }
            }
            AssignmentTarget::This => {
                if self.this.is_none() {
                    return Err(unbound(assignment.root_position));
                }
                let value = self.expression(&assignment.value)?;
                self.operation()?;
                self.with_this(assignment.root_position, |this, target| this.update(target, assignment, value))?;
            }
            AssignmentTarget::Chain(chain) => {
                let value = self.expression(&assignment.value)?;
                self.chain(chain, Some((assignment, value)))?;
            }
        }
        Ok(ScriptValue::Unit)
    }

    /// Changes `target` by an assignment.
    fn update(&mut self, target: &mut Dynamic, assignment: &'a Assignment, value: ScriptValue) -> ScriptCompletion<()> {
        if target.is_read_only() {
            let name = assignment.name.to_string();
            return Err(EarlyEnd::Error(
                EvalAltResult::ErrorAssignmentToConstant(name, assignment.root_position).into(),
            ));
        }
        let Some(operator) = &assignment.operator else {
            *target = dynamic(writable(value));
            return Ok(());
        };
        if let Some(kind) = operator.operator
            && let Some(sum) = assigned_to(target, kind, &value)
        {
            self.operation()?;
            *target = dynamic(sum);
            return Ok(());
        }
        let mut value = dynamic(value);
        let [with, without] = operator.names;
        match self.native(with, &mut [target, &mut value], true, assignment.position) {
            Ok(_) => {}
            Err(EarlyEnd::Error(error)) if is_missing(&error, with) => {
                let sum = self.native(without, &mut [target, &mut value], true, assignment.position)?;
                *target = sum;
            }
            Err(end) => return Err(end),
        }
        self.check_size(target)
    }

    fn check_size(&self, value: &Dynamic) -> ScriptCompletion<()> {
        if is_container(value) {
            self.kit.engine.ensure_data_size_within_limits(value)?;
        }
        Ok(())
    }

    fn chain(&mut self, chain: &'a Chain, assignment: Option<(&'a Assignment, ScriptValue)>) -> ScriptCompletion {
        let at = self.stack.len();
        let output = self.chain_at(chain, at, assignment);
        self.stack.truncate(at);
        output
    }

    fn chain_at(
        &mut self,
        chain: &'a Chain,
        at: usize,
        assignment: Option<(&'a Assignment, ScriptValue)>,
    ) -> ScriptCompletion {
        for before in &chain.before {
            match before {
                Before::Operation => self.operation()?,
                Before::Literal(value) => self.stack.push(value.clone()),
                Before::Value(expression) => {
                    let value = self.expression(expression)?;
                    self.stack.push(value);
                }
            }
        }
        let walk = Walk { steps: &chain.steps, at, is_temporary: false };
        match &chain.root {
            Root::This => {
                self.operation()?;
                let walked = self.with_this(chain.root_position, |this, root| this.walk(root, walk, assignment))?;
                Ok(walked.value)
            }
            Root::Local(slot) => {
                self.operation()?;
                let local = self.base + slot;
                let walked = self.with_local(local, |this, root| this.walk(root, walk, assignment))?;
                Ok(walked.value)
            }
            Root::Expression(root) => {
                let mut root = dynamic(self.expression(root)?);
                Ok(self.walk(&mut root, Walk { is_temporary: true, ..walk }, assignment)?.value)
            }
        }
    }

    /// Goes on with the steps of a chain from `target` on.
    fn walk(
        &mut self,
        target: &mut Dynamic,
        walk: Walk<'a>,
        assignment: Option<(&'a Assignment, ScriptValue)>,
    ) -> ScriptCompletion<Walked> {
        let Some((step, rest)) = walk.steps.split_first() else { return Ok(Walked::of(ScriptValue::copy_of(target))) };
        match step {
            ChainStep::Index { index_position, position } => {
                let next = Walk { steps: rest, at: walk.at + 1, is_temporary: false };
                let index = std::mem::take(&mut self.stack[walk.at]);
                let positions = (*index_position, *position);
                match assignment {
                    Some((assignment, value)) if rest.is_empty() => {
                        self.assign_index(target, index, positions, assignment, value)
                    }
                    assignment => self.walk_index(target, index, positions, next, assignment),
                }
            }
            ChainStep::Field(field) => {
                self.walk_field(target, field, Walk { steps: rest, is_temporary: false, ..walk }, assignment)
            }
            ChainStep::Method(method) => {
                let value = self.method(target, method, walk)?;
                if rest.is_empty() {
                    return Ok(Walked::of(value));
                }
                let next = Walk { steps: rest, at: walk.at + method.arguments, is_temporary: true };
                self.walk(&mut dynamic(value), next, assignment)
            }
        }
    }

    fn walk_field(
        &mut self,
        target: &mut Dynamic,
        field: &'a FieldStep,
        next: Walk<'a>,
        assignment: Option<(&'a Assignment, ScriptValue)>,
    ) -> ScriptCompletion<Walked> {
        let is_last = next.steps.is_empty();
        if target.is_map() {
            self.operation()?;
            let mut is_new = false;
            let changes_size;
            {
                let Ok(mut map) = target.as_map_mut() else { return Ok(Walked::of(ScriptValue::Unit)) };
                let found = map.get_mut(field.name.as_str());
                match (found, assignment) {
                    (Some(item), None) if is_last => return Ok(Walked::of(ScriptValue::copy_of(item))),
                    (None, None) if is_last => return Ok(Walked::of(ScriptValue::Unit)),
                    (Some(item), assignment) if !is_last => return self.walk(item, next, assignment),
                    (None, assignment) if !is_last => {
                        let next = Walk { is_temporary: true, ..next };
                        return self.walk(&mut Dynamic::default(), next, assignment);
                    }
                    (found, Some((assignment, value))) => {
                        is_new |= found.is_none();
                        let item = match found {
                            Some(item) => item,
                            None => map.entry(field.name.as_str().into()).or_insert(Dynamic::UNIT),
                        };
                        let before = is_container(item);
                        self.update(item, assignment, value)?;
                        changes_size = before || is_container(item);
                    }
                    _ => return Ok(Walked::of(ScriptValue::Unit)),
                }
            }
            if is_new || changes_size {
                self.check_size(target)?;
            }
            return Ok(Walked { value: ScriptValue::Unit, is_changed: true });
        }
        if is_last && let Some((assignment, value)) = assignment {
            return self.assign_field(target, field, assignment, value);
        }
        let mut value = self.field(target, field)?;
        if is_last {
            return Ok(Walked::of(ScriptValue::from(value)));
        }
        let walked = self.walk(&mut value, next, assignment)?;
        if walked.is_changed {
            self.set_field(target, field, value, true)?;
        }
        Ok(walked)
    }

    /// The field of a value that is not an object map.
    fn field(&mut self, target: &mut Dynamic, field: &'a FieldStep) -> ScriptCompletion<Dynamic> {
        let kind = target.type_id();
        if let Some((_, reader)) = field.readers.iter().find(|(known, _)| *known == kind)
            && let Some(Ok(value)) = reader(target)
        {
            self.operation()?;
            self.check_size(&value)?;
            return Ok(value);
        }
        match self.native(&field.getter, &mut [&mut *target], true, field.position) {
            Err(EarlyEnd::Error(error)) if matches!(*error, EvalAltResult::ErrorDotExpr(..)) => {
                let mut name = Dynamic::from(field.name.clone());
                match self.native(GET, &mut [target, &mut name], true, field.dot_position) {
                    Err(EarlyEnd::Error(other)) if matches!(*other, EvalAltResult::ErrorIndexingType(..)) => {
                        Err(EarlyEnd::Error(error))
                    }
                    other => other,
                }
            }
            other => other,
        }
    }

    fn assign_field(
        &mut self,
        target: &mut Dynamic,
        field: &'a FieldStep,
        assignment: &'a Assignment,
        value: ScriptValue,
    ) -> ScriptCompletion<Walked> {
        let new = if assignment.operator.is_some() {
            let mut old = self.field(target, field)?;
            self.update(&mut old, assignment, value)?;
            old
        } else {
            dynamic(value)
        };
        self.set_field(target, field, new, false)?;
        Ok(Walked { value: ScriptValue::Unit, is_changed: true })
    }

    /// Writes a field of a value that is not an object map; `if_possible` passes over those that cannot be written.
    fn set_field(
        &mut self,
        target: &mut Dynamic,
        field: &'a FieldStep,
        mut value: Dynamic,
        if_possible: bool,
    ) -> ScriptCompletion<()> {
        match self.native(&field.setter, &mut [&mut *target, &mut value], true, field.position) {
            Err(EarlyEnd::Error(error)) if matches!(*error, EvalAltResult::ErrorDotExpr(..)) => {
                let mut name = Dynamic::from(field.name.clone());
                match self.native(SET, &mut [target, &mut name, &mut value], true, field.dot_position) {
                    Err(EarlyEnd::Error(other)) if matches!(*other, EvalAltResult::ErrorIndexingType(..)) => {
                        if if_possible {
                            Ok(())
                        } else {
                            Err(EarlyEnd::Error(error))
                        }
                    }
                    other => other.map(|_| ()),
                }
            }
            other => other.map(|_| ()),
        }
    }

    fn walk_index(
        &mut self,
        target: &mut Dynamic,
        index: ScriptValue,
        positions: (Position, Position),
        next: Walk<'a>,
        assignment: Option<(&'a Assignment, ScriptValue)>,
    ) -> ScriptCompletion<Walked> {
        self.operation()?;
        let is_last = next.steps.is_empty();
        if target.is_array() {
            let Ok(mut array) = target.as_array_mut() else { return Ok(Walked::of(ScriptValue::Unit)) };
            let item = self.item(&mut array, &index, positions.0)?;
            return if is_last {
                Ok(Walked::of(ScriptValue::copy_of(item)))
            } else {
                self.walk(item, next, assignment)
            };
        }
        if target.is_map() {
            let Ok(mut map) = target.as_map_mut() else { return Ok(Walked::of(ScriptValue::Unit)) };
            let name = self.key(&index, positions.0)?;
            return match map.get_mut(name.as_str()) {
                Some(item) if is_last => Ok(Walked::of(ScriptValue::copy_of(item))),
                None if is_last => Ok(Walked::of(ScriptValue::Unit)),
                Some(item) => self.walk(item, next, assignment),
                None => self.walk(&mut Dynamic::default(), Walk { is_temporary: true, ..next }, assignment),
            };
        }
        if let Some(value) = self.part(target, &index, positions.0) {
            let mut value = value?;
            return if is_last {
                Ok(Walked::of(ScriptValue::from(value)))
            } else {
                self.walk(&mut value, Walk { is_temporary: true, ..next }, assignment)
            };
        }
        let value = self.get_index(target, &index, positions.1)?;
        if is_last {
            return Ok(Walked::of(value));
        }
        let mut item = dynamic(value);
        let walked = self.walk(&mut item, Walk { is_temporary: true, ..next }, assignment)?;
        if walked.is_changed {
            let mut index = dynamic(index);
            match self.native(SET, &mut [target, &mut index, &mut item], true, positions.1) {
                Err(EarlyEnd::Error(error)) if matches!(*error, EvalAltResult::ErrorIndexingType(..)) => {}
                other => drop(other?),
            }
        }
        Ok(walked)
    }

    /// A bit, character or part of a whole number or text; `None` of other values.
    fn part(&mut self, target: &Dynamic, index: &ScriptValue, position: Position) -> Option<ScriptCompletion<Dynamic>> {
        if !target.is_int() && !target.is_string() {
            return None;
        }
        Some(self.in_part("get", (target.clone(), dynamic(index.clone())), position))
    }

    fn set_part(
        &mut self,
        target: &mut Dynamic,
        index: ScriptValue,
        item: Dynamic,
        position: Position,
    ) -> ScriptCompletion<()> {
        *target = self.in_part("set", (target.clone(), dynamic(index), item), position)?;
        Ok(())
    }

    /// Rhai's own access to parts of values, of which there is no function.
    fn in_part(&mut self, function: &str, arguments: impl FuncArgs, position: Position) -> ScriptCompletion<Dynamic> {
        let kit = self.kit;
        let output = kit.engine.call_fn::<Dynamic>(&mut Scope::new(), kit.parts(), function, arguments);
        // The engine has counted operations that are not those of the script.
        self.reported = u64::MAX;
        output.map_err(|error| {
            let mut error = match *error {
                EvalAltResult::ErrorInFunctionCall(_, _, inner, _) => inner,
                _ => error,
            };
            error.set_position(position);
            EarlyEnd::Error(error)
        })
    }

    /// The item of an array.
    fn item<'i>(
        &self,
        array: &'i mut Array,
        index: &ScriptValue,
        position: Position,
    ) -> ScriptCompletion<&'i mut Dynamic> {
        let &ScriptValue::Whole(at) = index else { return Err(self.mismatch("i64", index.type_name(), position)) };
        let len = array.len();
        let inside = if at < 0 {
            usize::try_from(at.unsigned_abs()).ok().and_then(|back| len.checked_sub(back))
        } else {
            usize::try_from(at).ok()
        };
        let item = inside.and_then(|inside| array.get_mut(inside));
        item.ok_or_else(|| EarlyEnd::Error(EvalAltResult::ErrorArrayBounds(len, at, position).into()))
    }

    /// The name of an entry of an object map.
    fn key(&self, index: &ScriptValue, position: Position) -> ScriptCompletion<ImmutableString> {
        if let ScriptValue::Other(index) = index
            && let Ok(name) = index.as_immutable_string_ref()
        {
            return Ok(name.clone());
        }
        Err(self.mismatch(std::any::type_name::<ImmutableString>(), index.type_name(), position))
    }

    /// The value at an index of something that is neither an array nor an object map.
    fn get_index(&mut self, target: &mut Dynamic, index: &ScriptValue, position: Position) -> ScriptCompletion {
        if let (Some(column), &ScriptValue::Whole(at)) = (target.read_lock::<Column>(), index)
            && let Some(&value) = usize::try_from(at).ok().and_then(|at| column.values().get(at))
        {
            self.operation()?;
            return Ok(ScriptValue::Number(value));
        }
        let mut index = dynamic(index.clone());
        self.native(GET, &mut [target, &mut index], true, position).map(ScriptValue::from)
    }

    fn assign_index(
        &mut self,
        target: &mut Dynamic,
        index: ScriptValue,
        positions: (Position, Position),
        assignment: &'a Assignment,
        value: ScriptValue,
    ) -> ScriptCompletion<Walked> {
        self.operation()?;
        let changed = Walked { value: ScriptValue::Unit, is_changed: true };
        if target.is_array() {
            let Ok(mut array) = target.as_array_mut() else { return Ok(changed) };
            let item = self.item(&mut array, &index, positions.0)?;
            self.update(item, assignment, value)?;
            self.check_size(item)?;
            return Ok(changed);
        }
        if target.is_map() {
            let Ok(mut map) = target.as_map_mut() else { return Ok(changed) };
            let name = self.key(&index, positions.0)?;
            let item = match map.get_mut(name.as_str()) {
                Some(item) => item,
                None => map.entry(name.as_str().into()).or_insert(Dynamic::UNIT),
            };
            self.update(item, assignment, value)?;
            self.check_size(item)?;
            return Ok(changed);
        }
        if let Some(item) = self.part(target, &index, positions.0) {
            let mut item = item?;
            self.update(&mut item, assignment, value)?;
            self.check_size(&item)?;
            self.set_part(target, index, item, assignment.position)?;
            return Ok(changed);
        }
        let mut new = dynamic(value);
        if assignment.operator.is_some()
            && let Ok(old) = self.get_index(target, &index, positions.1)
        {
            let mut sum = dynamic(old);
            self.update(&mut sum, assignment, ScriptValue::from(new))?;
            self.check_size(&sum)?;
            new = sum;
        }
        let whole = if let ScriptValue::Whole(at) = index { Some(at) } else { None };
        if let (Some(at), false) = (whole, target.is_read_only())
            && let Some(mut column) = target.write_lock::<Column>()
            && column.set_number(at, &new)
        {
            self.operation()?;
            return Ok(changed);
        }
        let mut index = dynamic(index);
        self.native(SET, &mut [target, &mut index, &mut new], true, positions.1).map(|_| changed)
    }

    fn method(&mut self, target: &mut Dynamic, method: &'a Method, walk: Walk<'a>) -> ScriptCompletion {
        let position = method.position;
        let stored = target.as_map_ref().ok().and_then(|map| {
            map.get(method.name.as_str()).and_then(|value| value.read_lock::<FnPtr>().map(|stored| stored.clone()))
        });
        if let (Some(index), None) = (method.function, &stored) {
            // Arguments of later steps stay where they are.
            let at = self.stack.len();
            for argument in walk.at..walk.at + method.arguments {
                let value = std::mem::take(&mut self.stack[argument]);
                self.stack.push(value);
            }
            let this = self.this.replace(std::mem::take(target));
            let output = self.call_function(index, at, position);
            *target = std::mem::replace(&mut self.this, this).unwrap_or_default();
            return output;
        }
        let arguments = &mut self.stack[walk.at..walk.at + method.arguments];
        let mut values: FnArgsVec<Dynamic> = arguments.iter_mut().map(|value| dynamic(std::mem::take(value))).collect();
        let mut arguments: FnArgsVec<&mut Dynamic> = std::iter::once(target).chain(values.iter_mut()).collect();
        let by_reference = !walk.is_temporary;
        let output = match stored {
            // A closure in an object map is a method of it.
            Some(closure) => self.in_engine(position, |context| {
                context.call_fn_raw(closure.fn_name(), by_reference, true, &mut arguments)
            }),
            None => self.native(&method.name, &mut arguments, by_reference, position),
        };
        output.map(ScriptValue::from)
    }
}

/// The steps that remain, where their arguments are on the stack, and whether the target is a temporary value.
#[derive(Clone, Copy)]
struct Walk<'a> {
    steps: &'a [ChainStep],
    at: usize,
    is_temporary: bool,
}

struct Walked {
    value: ScriptValue,
    /// Whether the target may have changed.
    is_changed: bool,
}

impl Walked {
    fn of(value: ScriptValue) -> Self {
        Self { value, is_changed: false }
    }
}

enum Iterated {
    Range(INT, INT),
    Inclusive(INT, INT),
    Value(ScriptValue),
}

enum Reference {
    Local(usize),
    This(Position),
}

/// The next number of operations at which memory or the number itself is checked.
fn next_check(operations: u64, most: u64) -> u64 {
    let step = crate::limits::MEMORY_OPERATIONS;
    (operations / step + 1).saturating_mul(step).min(most.saturating_add(1).max(operations + 1))
}

fn unbound(position: Position) -> EarlyEnd {
    EarlyEnd::Error(EvalAltResult::ErrorUnboundThis(position).into())
}

/// Whether the value has a size that is limited.
#[inline]
fn is_container(value: &Dynamic) -> bool {
    value.is_array() || value.is_map() || value.is_string()
}

/// A value for a variable or entry, which may be changed even if it was read from a constant.
fn writable(value: ScriptValue) -> ScriptValue {
    match value {
        ScriptValue::Other(value) if value.is_read_only() => ScriptValue::Other(value.clone()),
        value => value,
    }
}

/// `target operator= value` of numbers; `None` for what Rhai has to compute or to refuse.
#[inline]
fn assigned(target: &ScriptValue, operator: Operator, value: &ScriptValue) -> Option<ScriptValue> {
    let is_arithmetic = matches!(
        operator,
        Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder
    );
    match (target, value) {
        (ScriptValue::Whole(_), ScriptValue::Whole(_))
        | (ScriptValue::Number(_), ScriptValue::Whole(_) | ScriptValue::Number(_))
            if is_arithmetic =>
        {
            target.combine(operator, value)
        }
        _ => None,
    }
}

fn assigned_to(target: &Dynamic, operator: Operator, value: &ScriptValue) -> Option<ScriptValue> {
    if !target.is_int() && !target.is_float() {
        return None;
    }
    assigned(&ScriptValue::copy_of(target), operator, value)
}

fn is_missing(error: &EvalAltResult, operator: &str) -> bool {
    matches!(error, EvalAltResult::ErrorFunctionNotFound(signature, _) if signature.starts_with(operator))
}

/// Whether Rhai compares a value with the cases of a `switch`.
fn is_hashable(value: &Dynamic) -> bool {
    if let Ok(items) = value.as_array_ref() {
        return items.iter().all(is_hashable);
    }
    if let Ok(map) = value.as_map_ref() {
        return map.values().all(is_hashable);
    }
    if let Some(closure) = value.read_lock::<FnPtr>() {
        return closure.curry().iter().all(is_hashable);
    }
    !value.is_variant()
}
