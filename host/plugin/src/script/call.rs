//! State of the call in progress on this thread: its resource use, its input, and the host functions `random`, `pick`
//! and `changed`.
//!
//! All guests on all threads share the functions registered with the script engine; these thread-local values tell the
//! functions which guest they serve.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blis_sim::cluster::Abort;
use blis_sim::ids::RequestId;
use blis_sim::policy::Ties;
use blis_sim::rng::{Generator, Stream};
use rand::Rng as _;
use rhai::{Dynamic, EvalAltResult, FLOAT, INT, Position};

use super::registry::{Registry, ScriptError};
use crate::limits::{
    BYTES_PER_NUMBER, BYTES_PER_OPERATION, CALL_S, CLOCK_OPERATIONS, LOG_NUMBERS, MEMORY_OPERATIONS,
    NUMBERS_PER_OPERATION, UNCHARGED_BYTES,
};
use crate::meter::{MemoryMark, MemoryUse};
use crate::text::plain;
use crate::{FaultKind, Limits};

/// An error of the host in a script: its text, for messages.
#[derive(Clone, Debug)]
pub(super) struct HostError {
    pub kind: FaultKind,
    pub text: String,
}

/// An error for an operation that is not possible; the script may catch it.
pub(super) fn failure(text: String) -> ScriptError {
    host_error(FaultKind::Trap, text)
}

fn host_error(kind: FaultKind, text: String) -> ScriptError {
    Box::new(EvalAltResult::ErrorRuntime(Dynamic::from(HostError { kind, text }), Position::NONE))
}

/// An error for an exceeded limit; the script cannot catch it.
fn exhausted(kind: FaultKind, text: String) -> ScriptError {
    Box::new(EvalAltResult::ErrorTerminated(Dynamic::from(HostError { kind, text }), Position::NONE))
}

thread_local! {
    static CALL: ScriptCall = ScriptCall::default();
    /// Operations so far. By itself, because it changes with every operation: a constant needs no check at each access. The
    /// engine's own count begins anew after each call of a closure by a function of the host.
    static STEPS: Cell<u64> = const { Cell::new(0) };
    /// The operation at which the limits are checked next: every one, once a limit is exceeded.
    static CHECK_AT: Cell<u64> = const { Cell::new(0) };
}

#[derive(Default)]
struct ScriptCall {
    began: Cell<Option<Instant>>,
    /// Column elements processed so far, and the limit.
    numbers: Cell<u64>,
    numbers_allowed: Cell<u64>,
    /// Of the numbers, those that stand for entries of arrays and object maps: see [`ScriptCall::charge_counting`].
    entries: Cell<u64>,
    longest_column: Cell<usize>,
    steps_allowed: Cell<u64>,
    memory: Cell<MemoryMark>,
    /// Bytes that the call may hold, and that it may allocate.
    memory_allowed: Cell<MemoryUse>,
    /// Bytes of the arrays and object maps that the call was given with the state: see [`ScriptCall::charge_counting`].
    state_bytes: Cell<u64>,
    /// An error where none could be returned.
    pending: RefCell<Option<HostError>>,
    /// The limit that the call has exceeded. Within `${…}` the engine does not pass the error on, but writes a text of its own.
    exceeded: RefCell<Option<HostError>>,
    abort: RefCell<Option<Abort>>,
    request: Cell<RequestId>,
    stream: Cell<Option<Stream>>,
    ties: Cell<Option<Ties>>,
    changed: RefCell<Option<Vec<u32>>>,
    generator: RefCell<Option<Generator>>,
    log: RefCell<ScriptLog>,
    constants: RefCell<Option<ScriptConstants>>,
}

/// Constants of a script and their values.
pub(super) type ScriptConstants = Arc<[(String, Dynamic)]>;

/// The log lines that a guest may still write.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptLog {
    pub path: Arc<str>,
    pub lines_left: u32,
    pub unwritten: u64,
    pub line_bytes: usize,
}

/// Stands for the request in a call about none.
pub(super) const NO_REQUEST: RequestId = RequestId(0);

/// The input of a call as far as host functions need it.
#[derive(Clone, Debug)]
pub(super) struct ScriptCallInput {
    pub request: RequestId,
    pub stream: Stream,
    pub ties: Option<Ties>,
    /// Indices of the instances that may differ from those of the previous call; `None` if any may.
    pub changed: Option<Vec<u32>>,
    /// Bytes of the arrays and object maps of the state and of the arguments.
    pub bytes: u64,
}

/// Begins a call: stores its input and resets its use of resources.
pub(super) fn begin(limits: &Limits, constants: &ScriptConstants, abort: &Abort, about: ScriptCallInput) {
    STEPS.set(0);
    CHECK_AT.set(MEMORY_OPERATIONS);
    CALL.with(|call| {
        call.began.set(None);
        *call.pending.borrow_mut() = None;
        *call.exceeded.borrow_mut() = None;
        *call.abort.borrow_mut() = Some(abort.clone());
        call.numbers.set(0);
        call.entries.set(0);
        call.numbers_allowed.set(limits.operations_per_call.saturating_mul(NUMBERS_PER_OPERATION));
        call.longest_column.set(limits.collection_size);
        call.steps_allowed.set(limits.operations_per_call.max(1));
        call.memory_allowed.set(MemoryUse {
            held: limits.memory_bytes as u64,
            allocated: limits.operations_per_call.saturating_mul(BYTES_PER_OPERATION),
            ..MemoryUse::default()
        });
        call.state_bytes.set(about.bytes);
        call.request.set(about.request);
        call.stream.set(Some(about.stream));
        call.ties.set(about.ties);
        *call.changed.borrow_mut() = about.changed;
        *call.constants.borrow_mut() = (!constants.is_empty()).then(|| Arc::clone(constants));
        *call.generator.borrow_mut() = None;
        call.memory.set(MemoryMark::now());
    });
}

/// The value of the constant `name` in the running script.
pub(super) fn constant(name: &str) -> Option<Dynamic> {
    CALL.with(|call| {
        let constants = call.constants.borrow();
        constants.as_ref()?.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    })
}

/// Swaps the log of this thread's call with that of a guest.
pub(super) fn swap_log(log: &mut ScriptLog) {
    CALL.with(|call| std::mem::swap(&mut *call.log.borrow_mut(), log));
}

/// Operations of the call so far, and column elements processed.
pub(super) fn used() -> (u64, u64) {
    (STEPS.get(), CALL.with(|call| call.numbers.get().saturating_sub(call.entries.get())))
}

/// Bytes of the arrays and object maps that the call has added and still holds, about.
pub(super) fn added() -> u64 {
    CALL.with(|call| call.memory.get().used().values)
}

/// The engine calls this at every operation.
#[inline]
pub(super) fn progress(_: u64) -> Option<Dynamic> {
    // The checks of the clock are among those of memory.
    const { assert!(CLOCK_OPERATIONS.is_multiple_of(MEMORY_OPERATIONS)) };
    let steps = STEPS.get() + 1;
    STEPS.set(steps);
    if steps >= CHECK_AT.get() { check(steps) } else { None }
}

/// The error of a call that exceeds a limit after `steps` operations.
fn check(steps: u64) -> Option<Dynamic> {
    CALL.with(|call| {
        if call.exceeded.borrow().is_none() {
            CHECK_AT.set(steps + MEMORY_OPERATIONS);
            let error = call.check(steps)?;
            CHECK_AT.set(0);
            *call.exceeded.borrow_mut() = Some(error);
        }
        call.exceeded.borrow().clone().map(Dynamic::from)
    })
}

impl ScriptCall {
    /// The limit that the call exceeds after `steps` operations.
    fn check(&self, steps: u64) -> Option<HostError> {
        if let Some(error) = self.pending.borrow().clone() {
            return Some(error);
        }
        let used = self.memory.get().used();
        if let Some(error) = self.memory_error(used) {
            return Some(error);
        }
        if steps > self.steps_allowed.get() {
            return Some(too_many_steps(self.steps_allowed.get()));
        }
        self.charge_counting(used);
        if self.numbers.get() > self.numbers_allowed.get() {
            return Some(self.too_many_numbers());
        }
        if !steps.is_multiple_of(CLOCK_OPERATIONS) {
            return None;
        }
        if self.abort.borrow().as_ref().is_some_and(Abort::is_set) {
            let text = "the simulation was cancelled".to_owned();
            return Some(HostError { kind: FaultKind::OutOfTime, text });
        }
        let now = Instant::now();
        let Some(began) = self.began.get() else {
            self.began.set(Some(now));
            return None;
        };
        (now.duration_since(began) > Duration::from_secs(CALL_S))
            .then(|| HostError { kind: FaultKind::OutOfTime, text: format!("it took more than {CALL_S} s") })
    }

    /// The error of a call that holds or has allocated more memory than it may.
    fn memory_error(&self, used: MemoryUse) -> Option<HostError> {
        let allowed = self.memory_allowed.get();
        if used.held > allowed.held {
            let text = format!("it holds more than {} MiB in one call", allowed.held >> 20);
            return Some(HostError { kind: FaultKind::OutOfMemory, text });
        }
        (used.allocated > allowed.allocated).then(|| {
            let text = format!("it copied more than {} MiB in one call", allowed.allocated >> 20);
            HostError { kind: FaultKind::OutOfFuel, text }
        })
    }

    /// Charges the operations since the last check for what the engine may look at in each of them: at every call of a method
    /// and every assignment to an entry it counts what is inside of an array or object map, however deep.
    fn charge_counting(&self, used: MemoryUse) {
        let bytes = used.values.saturating_add(self.state_bytes.get()).saturating_sub(UNCHARGED_BYTES);
        let numbers = bytes / (BYTES_PER_NUMBER / MEMORY_OPERATIONS);
        self.entries.set(self.entries.get().saturating_add(numbers));
        self.numbers.set(self.numbers.get().saturating_add(numbers));
    }

    /// The error of a call that has processed more column elements than it may.
    fn too_many_numbers(&self) -> HostError {
        let allowed = self.numbers_allowed.get();
        let text = if self.entries.get() > allowed / 2 {
            "its arrays and object maps are too large for so many steps (does a loop not end?): whenever a method is called on \
             one or an entry changes, the interpreter looks at all entries inside; use columns and tables, at which it does not"
                .to_owned()
        } else {
            format!("it handled more than {allowed} numbers of columns in one call")
        };
        HostError { kind: FaultKind::OutOfFuel, text }
    }
}

/// The error of a call of more than `most` operations.
pub(super) fn too_many_steps(most: u64) -> HostError {
    HostError { kind: FaultKind::OutOfFuel, text: format!("more than {most} steps in one call: does a loop not end?") }
}

/// Column elements that every operation on columns counts as, in addition to those that it processes.
pub(super) const CHARGED_WITH_EACH: usize = 8;

/// Charges the call for `numbers` column elements before they are processed.
pub(super) fn charge(numbers: usize) -> Result<(), ScriptError> {
    CALL.with(|call| {
        let allowed = call.numbers_allowed.get();
        let sum = call.numbers.get().saturating_add((numbers + CHARGED_WITH_EACH) as u64);
        if sum <= allowed {
            call.numbers.set(sum);
            return Ok(());
        }
        // What follows in this call fails as well, however little it looks at.
        call.numbers.set(allowed);
        let HostError { kind, text } = call.too_many_numbers();
        Err(exhausted(kind, text))
    })
}

/// Charges for `numbers` column elements where no error can be returned: the call ends within a few operations.
pub(super) fn charge_later(numbers: usize) {
    CALL.with(|call| call.numbers.set(call.numbers.get().saturating_add(numbers as u64)));
}

/// Fails the call where no error can be returned: it ends within a few operations, or with [`finish`].
pub(super) fn fail_later(kind: FaultKind, text: String) {
    CALL.with(|call| *call.pending.borrow_mut() = Some(HostError { kind, text }));
}

/// The result of a call, which is an error if one was left for later.
pub(super) fn finish<T>(result: Result<T, ScriptError>) -> Result<T, ScriptError> {
    let (pending, exceeded) = CALL.with(|call| (call.pending.borrow_mut().take(), call.exceeded.borrow_mut().take()));
    match (pending, exceeded) {
        (Some(HostError { kind, text }), _) => Err(exhausted(kind, text)),
        (None, Some(HostError { kind, text })) if result.is_ok() => Err(exhausted(kind, text)),
        _ => result,
    }
}

/// Checks a length that a script passes.
pub(super) fn length(len: INT) -> Result<usize, ScriptError> {
    let longest = longest();
    let Ok(len) = usize::try_from(len) else {
        return Err(failure(format!("a column has a length of 0 or more, not {len}")));
    };
    if len > longest {
        let text = format!("a column of {len} numbers; the longest has {longest}");
        return Err(exhausted(FaultKind::OutOfMemory, text));
    }
    charge(len)?;
    Ok(len)
}

/// Numbers that a column or table may have, at most.
pub(super) fn longest() -> usize {
    CALL.with(|call| call.longest_column.get())
}

/// Checks that a table of `len` numbers may get another one, of `longest` at most.
pub(super) fn room_in_table(len: usize, longest: usize) -> Result<(), ScriptError> {
    if len < longest {
        return Ok(());
    }
    Err(exhausted(FaultKind::OutOfMemory, format!("a table of more than {longest} numbers")))
}

pub(super) fn register(to: &mut Registry) {
    to.engine.register_type_with_name::<HostError>("error");
    to.add("to_string", |error: HostError| error.text);
    to.add("random", || -> FLOAT {
        // An f64 holds 53 bits exactly.
        (next() >> 11) as f64 / (1_u64 << 53) as f64
    });
    to.add("pick", |n: INT| -> Result<INT, ScriptError> {
        let choices = usize::try_from(n).ok().filter(|&n| n > 0);
        let choices = choices.ok_or_else(|| failure(format!("`pick` needs 1 choice or more, not {n}")))?;
        Ok(CALL.with(|call| {
            let fallback = || call.stream.get().map_or(Ties::LowestIndex, Ties::Random);
            call.ties.get().unwrap_or_else(fallback).pick(call.request.get(), choices) as INT
        }))
    });
    to.add("changed", || -> Result<Dynamic, ScriptError> {
        CALL.with(|call| {
            let changed = call.changed.borrow();
            let Some(indices) = &*changed else { return Ok(Dynamic::UNIT) };
            charge(indices.len())?;
            Ok(Dynamic::from_array(indices.iter().map(|&index| Dynamic::from_int(index.into())).collect()))
        })
    });
}

/// Writes a line to the log of the run.
pub(super) fn log(text: &str) -> Result<(), ScriptError> {
    charge(LOG_NUMBERS + text.len())?;
    write(text);
    Ok(())
}

fn next() -> u64 {
    CALL.with(|call| {
        let mut generator = call.generator.borrow_mut();
        let stream = call.stream.get().unwrap_or_else(|| Stream::new(0, "script"));
        generator.get_or_insert_with(|| stream.at(u64::from(call.request.get().0))).next_u64()
    })
}

fn write(text: &str) {
    CALL.with(|call| {
        let mut log = call.log.borrow_mut();
        if log.lines_left == 0 {
            log.unwritten += 1;
            return;
        }
        log.lines_left -= 1;
        // What the log of the program keeps is not the script's.
        let start = MemoryMark::now();
        tracing::info!(target: "plugin", "{}: {}", log.path, plain(text, log.line_bytes));
        if log.lines_left == 0 {
            tracing::info!(target: "plugin", "{}: further lines are not written", log.path);
        }
        call.memory.set(call.memory.get().without(start));
    });
}
