//! The table of `sdk/c/blis_policy.h`: a policy as a native library.
//!
//! A panic does not leave the library: it becomes a failure of that call, with message and source location.

#![allow(unsafe_code)] // the boundary itself

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};
use std::{ptr, slice};

use blis_abi::NONE_U32;
pub use blis_abi::table;
use blis_abi::table::{CHost, CText, CTexts, CValue};

use super::{Exported, description, kind_of, panic_text, reads, restored, save};
use crate::description::{Description, GivenValue, NumberTable, Setup};
use crate::policy::{AdmissionDecision, Policy};
use crate::testing;

#[rustfmt::skip]
mod exports;

/// # Safety
/// `data` points to `len` bytes.
unsafe fn owned(text: CText) -> String {
    // SAFETY: the same.
    String::from_utf8_lossy(unsafe { array(text.data, text.len) }).into_owned()
}

/// The state behind the pointer that the host holds.
struct NativeState<P> {
    policy: P,
    /// The latest reason of a rejection, which must outlive the call.
    reason: String,
}

/// `blis_policy_v1` for policy `P`.
#[derive(Debug)]
#[repr(transparent)]
pub struct NativeTable<P> {
    table: table::PolicyTable,
    policy: PhantomData<fn() -> P>,
}

impl<P: Policy> NativeTable<P> {
    /// A table without the functions of any kind.
    #[must_use]
    pub const fn new(describe: extern "C" fn() -> *const table::CDescription) -> Self {
        Self::of_table(table::PolicyTable {
            describe: Some(describe),
            create: Some(create::<P>),
            destroy: Some(destroy::<P>),
            save: Some(save_state::<P>),
            restore: Some(restore_state::<P>),
            ..table::PolicyTable::EMPTY
        })
    }

    const fn of_table(table: table::PolicyTable) -> Self {
        Self { table, policy: PhantomData }
    }

    const fn functions(&self) -> table::PolicyFunctions {
        self.table.functions
    }

    const fn with(self, functions: table::PolicyFunctions) -> Self {
        Self::of_table(table::PolicyTable { functions, ..self.table })
    }
}

/// A description that lives as long as the library.
#[derive(Debug)]
pub struct DescriptionCell(OnceLock<table::CDescription>);

// SAFETY: written once, and points only to leaked memory that is never written again.
unsafe impl Sync for DescriptionCell {}
// SAFETY: the same.
unsafe impl Send for DescriptionCell {}

impl DescriptionCell {
    /// An empty cell, filled in at the first call of `describe`.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The description of `P`; null if `describe` panics.
    pub fn of<P: Policy>(&'static self, exported: Exported) -> *const table::CDescription {
        let raw = || self.0.get_or_init(|| leak::<P>(description::<P>(exported), exported));
        catch_unwind(raw).map_or(ptr::null(), ptr::from_ref)
    }
}

impl Default for DescriptionCell {
    fn default() -> Self {
        Self::new()
    }
}

fn leak<P: Policy>(description: Description, exported: Exported) -> table::CDescription {
    let text = |text: String| CText::of(text.leak());
    let parameters = description.parameters.into_iter().map(|parameter| table::CParameter {
        name: text(parameter.name),
        about: text(parameter.about),
        default_value: lowered(parameter.default),
        min: parameter.min,
        max: parameter.max,
    });
    let parameters = parameters.collect::<Vec<_>>().leak();
    table::CDescription {
        name: text(description.name),
        version: text(description.version),
        about: text(description.about),
        kinds: texts(exported.names()),
        reads: texts(reads::<P>()),
        events: texts(description.events.names()),
        scores: u32::from(description.scores),
        every_step: u32::from(description.every_step),
        parameters: parameters.as_ptr(),
        parameter_count: parameters.len(),
    }
}

fn texts(names: impl Iterator<Item = &'static str>) -> CTexts {
    let items = names.map(CText::of).collect::<Vec<_>>().leak();
    CTexts { items: items.as_ptr(), count: items.len() }
}

fn lowered(value: GivenValue) -> CValue {
    let nothing = CValue::number(0.0);
    match value {
        GivenValue::Number(number) => CValue::number(number),
        GivenValue::Text(text) => CValue { kind: CValue::TEXT, text: CText::of(text.leak()), ..nothing },
        GivenValue::Table(NumberTable { columns, numbers }) => {
            let numbers = numbers.leak();
            let (start, count) = (numbers.as_ptr(), numbers.len());
            CValue { kind: CValue::TABLE, columns: columns as u32, numbers: start, count, ..nothing }
        }
    }
}

/// # Safety
/// The value is valid.
unsafe fn lifted(value: &CValue) -> GivenValue {
    match value.kind {
        CValue::NUMBER => GivenValue::Number(value.number),
        // SAFETY: promised by the caller.
        CValue::TEXT => GivenValue::Text(unsafe { owned(value.text) }),
        _ => {
            // SAFETY: the same.
            let numbers = unsafe { array(value.numbers, value.count) };
            GivenValue::Table(NumberTable { columns: value.columns as usize, numbers: numbers.to_vec() })
        }
    }
}

thread_local! {
    /// The host of the call in progress; null between calls.
    static HOST: Cell<*const CHost> = const { Cell::new(ptr::null()) };
    /// The message of the latest panic.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// One call by the host; returns `otherwise` if the policy panics.
///
/// # Safety
/// `host` is valid during the call.
#[inline]
unsafe fn call<T>(host: *const CHost, otherwise: T, function: impl FnOnce() -> T) -> T {
    let result = HOST.with(|cell| {
        cell.set(host);
        let result = catch_unwind(AssertUnwindSafe(function));
        cell.set(ptr::null());
        result
    });
    result.unwrap_or_else(|_| {
        // SAFETY: promised by the caller.
        unsafe { fail(host, &PANIC.take()) };
        otherwise
    })
}

/// # Safety
/// `host` is valid.
#[cold]
unsafe fn fail(host: *const CHost, message: &str) {
    // SAFETY: the host's own function; it reads the message during the call.
    unsafe { ((*host).fail)((*host).context, CText::of(message)) }
}

/// Keeps the messages of panics during calls for the host; all others go to the previous panic hook.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(
            move |info| {
                if HOST.get().is_null() { before(info) } else { PANIC.set(panic_text(info)) }
            },
        ));
    });
}

/// # Safety
/// `start` points to `len` values, unless there are none.
unsafe fn array<'a, T>(start: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    let start = if size_of::<T>() == 0 { ptr::NonNull::dangling().as_ptr() } else { start };
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts(start, len) }
}

/// Rows that are `stride` bytes apart: borrowed if the distance is the size of `T`, otherwise copies of their
/// beginnings.
///
/// # Safety
/// `start` points to `count` rows of `stride` bytes, each of which begins with a `T`.
#[inline]
unsafe fn rows<'a, T: Copy>(start: *const c_void, count: usize, stride: usize) -> Cow<'a, [T]> {
    if stride == size_of::<T>() {
        // SAFETY: promised by the caller.
        return Cow::Borrowed(unsafe { array(start.cast(), count) });
    }
    assert!(stride > size_of::<T>(), "the host's rows of {stride} bytes are shorter than this SDK's");
    // SAFETY: promised by the caller.
    Cow::Owned((0..count).map(|i| unsafe { start.byte_add(i * stride).cast::<T>().read_unaligned() }).collect())
}

unsafe extern "C" fn create<P: Policy>(host: *const CHost, setup: *const table::CSetup) -> *mut c_void {
    keep_panics();
    // SAFETY: the host passes valid pointers, here and in all functions below.
    let made = unsafe { call(host, Err("it panicked".to_owned()), || P::new(&read(&*setup, P::describe()))) };
    match made {
        Ok(policy) => Box::into_raw(Box::new(NativeState { policy, reason: String::new() })).cast(),
        Err(message) => {
            // SAFETY: as above.
            unsafe { fail(host, &message) };
            ptr::null_mut()
        }
    }
}

/// # Safety
/// `setup` is the host's, with as many parameters as `description` declares.
unsafe fn read(setup: &table::CSetup, description: Description) -> Setup {
    let declared = description.parameters;
    // SAFETY: promised by the caller.
    let (instances, values, model_facts) = unsafe {
        (
            array(setup.instances, setup.instance_count),
            array(setup.parameters, declared.len()),
            array(setup.model_facts, setup.model_fact_count),
        )
    };
    Setup {
        // SAFETY: promised by the caller, as for the values.
        kind: kind_of(&unsafe { owned(setup.kind) }),
        instances: instances.to_vec(),
        // SAFETY: promised by the caller: each value is a number, text or table of the host.
        parameters: declared
            .into_iter()
            .zip(values)
            .map(|(parameter, value)| (parameter.name, unsafe { lifted(value) }))
            .collect(),
        // SAFETY: promised by the caller.
        model_facts: model_facts
            .iter()
            .map(|model_fact| (unsafe { owned(model_fact.name) }, model_fact.value))
            .collect(),
    }
}

unsafe extern "C" fn destroy<P>(state: *mut c_void) {
    if !state.is_null() {
        // SAFETY: made by `create`, and not used again. A panic in a destructor ends here.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(state.cast::<NativeState<P>>()) })));
    }
}

unsafe extern "C" fn save_state<P: Policy>(
    host: *const CHost,
    state: *const c_void,
    buffer: *mut u8,
    capacity: usize,
) -> usize {
    // SAFETY: `state` is from `create`.
    let bytes = unsafe { call(host, Vec::new(), || save(&(*state.cast::<NativeState<P>>()).policy)) };
    if bytes.len() <= capacity && !bytes.is_empty() {
        // SAFETY: the buffer has room for `capacity` bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len()) };
    }
    bytes.len()
}

unsafe extern "C" fn restore_state<P: Policy>(
    host: *const CHost,
    state: *mut c_void,
    bytes: *const u8,
    len: usize,
) -> u32 {
    // SAFETY: `state` is from `create`, and `bytes` has `len` of them.
    let made = unsafe {
        call(host, Err("it panicked".to_owned()), || {
            restored(array(bytes, len)).map(|policy| (*state.cast::<NativeState<P>>()).policy = policy)
        })
    };
    // SAFETY: the host is valid.
    made.map_err(|message| unsafe { fail(host, &message) }).is_ok().into()
}

/// One call by the host that uses the policy of `state`; returns `otherwise` if it panics.
///
/// # Safety
/// `state` is from [`create`], and the host uses it on one thread at a time; what `function` reads are the host's arguments. The
/// same holds for the calls below, one for each form of output; what they write to is the host's.
#[inline]
unsafe fn with_policy<P, T>(
    host: *const CHost,
    state: *mut c_void,
    otherwise: T,
    function: impl FnOnce(&mut P) -> T,
) -> T {
    // SAFETY: promised by the caller.
    unsafe { call(host, otherwise, || function(&mut (*state.cast::<NativeState<P>>()).policy)) }
}

unsafe fn reason<P>(
    host: *const CHost,
    state: *mut c_void,
    text: *mut CText,
    function: impl FnOnce(&mut P) -> AdmissionDecision,
) -> u32 {
    let function = || {
        // SAFETY: promised by the caller.
        let state = unsafe { &mut *state.cast::<NativeState<P>>() };
        let (admitted, reason) = match function(&mut state.policy) {
            AdmissionDecision::Admit => (1, CText::EMPTY),
            AdmissionDecision::Reject(reason) => {
                state.reason = reason;
                (0, CText::of(&state.reason))
            }
        };
        // SAFETY: the same.
        unsafe { *text = reason };
        admitted
    };
    // SAFETY: the same.
    unsafe { call(host, 1, function) }
}

#[inline]
unsafe fn index<P>(host: *const CHost, state: *mut c_void, function: impl FnOnce(&mut P) -> usize) -> u32 {
    // SAFETY: promised by the caller.
    unsafe { with_policy(host, state, NONE_U32, |policy| u32::try_from(function(policy)).unwrap_or(NONE_U32)) }
}

#[inline]
unsafe fn chosen<P>(host: *const CHost, state: *mut c_void, function: impl FnOnce(&mut P) -> Option<usize>) -> u32 {
    // The largest index stands for none.
    let index = |index| u32::try_from(index).unwrap_or(NONE_U32 - 1);
    // SAFETY: promised by the caller.
    unsafe { with_policy(host, state, NONE_U32, |policy| function(policy).map_or(NONE_U32, index)) }
}

#[inline]
unsafe fn number<P, T: Default>(host: *const CHost, state: *mut c_void, function: impl FnOnce(&mut P) -> T) -> T {
    // SAFETY: promised by the caller.
    unsafe { with_policy(host, state, T::default(), function) }
}

#[inline]
unsafe fn flag<P>(host: *const CHost, state: *mut c_void, function: impl FnOnce(&mut P) -> bool) -> u32 {
    // SAFETY: promised by the caller.
    unsafe { with_policy(host, state, 1, |policy| function(policy).into()) }
}

#[inline]
unsafe fn numbers<P>(
    host: *const CHost,
    state: *mut c_void,
    of: &str,
    count: usize,
    result: *mut f64,
    function: impl FnOnce(&mut P, &mut Vec<f64>),
) {
    let function = |policy: &mut P| {
        let mut numbers = Vec::with_capacity(count);
        function(policy, &mut numbers);
        assert!(numbers.len() == count, "{} numbers for {count} {of}", numbers.len());
        // SAFETY: `result` has room for `count` of them.
        unsafe { ptr::copy_nonoverlapping(numbers.as_ptr(), result, count) };
    };
    // SAFETY: promised by the caller.
    unsafe { with_policy(host, state, (), function) }
}

#[inline]
unsafe fn record<P, R>(host: *const CHost, state: *mut c_void, result: *mut R, function: impl FnOnce(&mut P) -> R) {
    // SAFETY: promised by the caller.
    unsafe { with_policy(host, state, (), |policy| *result = function(policy)) }
}

/// Calls the host of the call in progress, or the host of the test if there is none.
#[inline]
fn with_host<T>(function: impl FnOnce(&CHost) -> T, in_tests: impl FnOnce(&mut testing::Host) -> T) -> T {
    let host = HOST.get();
    if host.is_null() {
        return testing::call(in_tests);
    }
    // SAFETY: not null only during a call, when it is valid.
    function(unsafe { &*host })
}

pub(crate) fn log(level: u32, message: &str) {
    // SAFETY: the host's own functions with its own context, here and below.
    with_host(
        |host| unsafe { (host.log)(host.context, level, CText::of(message)) },
        |host| host.logged.push((level, message.to_owned())),
    );
}

pub(crate) fn random() -> u64 {
    // SAFETY: as above.
    with_host(|host| unsafe { (host.random)(host.context) }, testing::Host::next)
}

pub(crate) fn pick(n: u32) -> u32 {
    // SAFETY: as above.
    with_host(|host| unsafe { (host.pick)(host.context, n) }, |host| host.pick(n))
}

pub(crate) fn prompt_blocks() -> Vec<u32> {
    let read = |host: &CHost| {
        let mut blocks = ptr::null();
        // SAFETY: as above; the blocks are valid during the call.
        unsafe {
            let count = (host.prompt_blocks)(host.context, &raw mut blocks);
            array(blocks, count).to_vec()
        }
    };
    with_host(read, |host| host.prompt_blocks.clone())
}

pub(crate) fn changed<T>(look: impl FnOnce(Option<&[u32]>) -> T) -> T {
    let host = HOST.get();
    if host.is_null() {
        return look(testing::call(|host| host.changed.clone()).as_deref());
    }
    let mut indices = ptr::null();
    // SAFETY: as above; the indices are valid during the call, which ends after `look`.
    let changed = unsafe {
        let count = ((*host).changed)((*host).context, &raw mut indices);
        if count == usize::MAX { None } else { Some(array(indices, count)) }
    };
    look(changed)
}

pub(crate) fn text(name: u32) -> String {
    // SAFETY: as above; the text is valid during the call.
    with_host(
        |host| unsafe { owned((host.text)(host.context, name)) },
        |host| host.texts.get(&name).cloned().unwrap_or_default(),
    )
}
