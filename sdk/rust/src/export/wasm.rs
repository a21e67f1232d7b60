//! The exports of `sdk/wit/since-v1.1.0/policy.wit` by the rules of the component model's canonical ABI, without
//! generated code: `blis` builds the component from the names of the exports.
//!
//! * Parameters of more than 16 numbers are passed as one pointer to all of them; results of more
//!   than one number are returned as a pointer. Records lie in memory as `repr(C)` structs do.
//! * The host writes the parameters of decisions to memory that [`input`] returns, which it keeps from call to call. Other
//!   parameters, and results of its functions, it allocates with [`realloc`] in an arena that is emptied when the call
//!   returns: no `malloc` and `free` per call. The host copies results before its next call, so they lie in fields of
//!   [`ModulePolicy`] and need no function that frees them.

#![allow(unsafe_code)] // the boundary itself

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::sync::Once;

pub use blis_abi::canonical::{ChosenIndex, ValueRecord};
use blis_abi::{Row, canonical};

use super::{Exported, description, kind_of, panic_text, reads, restored, save};
use crate::description::{GivenValue, NumberTable, Setup};
use crate::policy::{AdmissionDecision, Policy};
use crate::rows::{Ages, Cluster, InstanceInfo, Signals};

#[rustfmt::skip]
mod exports;

mod imports {
    #[link(wasm_import_module = "blis:policy/host@1.1.0")]
    unsafe extern "C" {
        pub fn log(level: u32, text: *const u8, len: usize);
        pub safe fn random() -> u64;
        pub safe fn pick(n: u32) -> u32;
        #[link_name = "prompt-blocks"]
        pub fn prompt_blocks(result: *mut super::HostList<u32>);
        pub fn text(name: u32, result: *mut super::HostList<u8>);
        pub fn changed(result: *mut super::HostChanged);
    }
}

pub fn log(level: u32, message: &str) {
    // SAFETY: the host reads the message during the call.
    unsafe { imports::log(level, message.as_ptr(), message.len()) }
}

pub use imports::{pick, random};

pub fn prompt_blocks() -> Vec<u32> {
    let mut list = empty();
    // SAFETY: the host writes the elements into the arena, and their address into `list`.
    unsafe {
        imports::prompt_blocks(&raw mut list);
        slice(list).to_vec()
    }
}

pub fn text(name: u32) -> String {
    let mut list = empty();
    // SAFETY: as above.
    let bytes = unsafe {
        imports::text(name, &raw mut list);
        slice(list)
    };
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn changed<T>(look: impl FnOnce(Option<&[u32]>) -> T) -> T {
    let mut changed = HostChanged { is_known: 0, indices: empty() };
    // SAFETY: the host writes the elements into the arena, where they stay until the call ends, which is after `look`,
    // and their address into `changed`.
    let indices = unsafe {
        imports::changed(&raw mut changed);
        (changed.is_known != 0).then(|| slice(changed.indices))
    };
    look(indices)
}

/// `list<T>` in memory.
pub type HostList<T> = canonical::List<*const T>;
/// A `result<_, string>`, or a `decision`.
pub type HostRefusal = canonical::Refusal<HostList<u8>>;
type HostChanged = canonical::ChangedIndices<HostList<u32>>;
type HostModelFact = canonical::ModelFact<HostList<u8>>;
type HostParameter = canonical::ParameterRecord<HostList<u8>>;
type HostTexts = HostList<HostList<u8>>;
type HostDescription = canonical::DescriptionRecord<HostList<u8>, HostTexts, HostList<HostParameter>>;

const fn empty<T>() -> HostList<T> {
    list(std::ptr::null(), 0)
}

fn list_of<T>(slice: &[T]) -> HostList<T> {
    list(slice.as_ptr(), slice.len())
}

/// # Safety
/// The host wrote it, and this call has not returned.
pub unsafe fn slice<'a, T>(list: HostList<T>) -> &'a [T] {
    if list.len == 0 {
        return &[];
    }
    // SAFETY: the host has written `len` elements where `realloc` returned memory.
    unsafe { std::slice::from_raw_parts(list.start, list.len as usize) }
}

/// # Safety
/// The host wrote them, and this call has not returned.
#[inline]
pub unsafe fn rows<'a, T>(start: *const T, len: usize) -> &'a [T] {
    // SAFETY: promised by the caller.
    unsafe { slice(list(start, len)) }
}

/// # Safety
/// The host wrote the numbers of `instances`, and this call has not returned.
#[inline]
pub unsafe fn cluster<'a, S: Signals>(ages: Ages, count: usize, instances: HostList<f64>) -> Cluster<'a, S> {
    assert!(instances.len as usize == count * S::COLUMNS.len(), "the host has other columns than describe() lists");
    // Rows without columns have no memory.
    let start =
        if S::COLUMNS.is_empty() { std::ptr::NonNull::dangling().as_ptr() } else { instances.start.cast::<S>() };
    // SAFETY: `S` is a number for each of its columns, and the host wrote that many numbers for each instance; with no
    // instance, `realloc` returned an address of the arena.
    Cluster { ages, instances: if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, count) } } }
}

/// Memory that is never freed: `describe` is called once per module.
fn leaked_text(text: &str) -> HostList<u8> {
    list_of(text.to_owned().leak().as_bytes())
}

fn leaked_texts<'a>(texts: impl Iterator<Item = &'a str>) -> HostTexts {
    list_of(texts.map(leaked_text).collect::<Vec<_>>().leak())
}

fn lowered(value: GivenValue) -> ValueRecord {
    let address = |start: *const u8| start as usize as u32;
    match value {
        GivenValue::Number(number) => ValueRecord::number(number),
        GivenValue::Text(text) => {
            let text = text.leak();
            ValueRecord::new(ValueRecord::TEXT, [address(text.as_ptr()), text.len() as u32, 0, 0])
        }
        GivenValue::Table(NumberTable { columns, numbers }) => {
            let numbers = numbers.leak();
            let payload = [columns as u32, address(numbers.as_ptr().cast()), numbers.len() as u32, 0];
            ValueRecord::new(ValueRecord::TABLE, payload)
        }
    }
}

/// # Safety
/// The host wrote it, and this call has not returned.
unsafe fn lifted(value: &ValueRecord) -> GivenValue {
    let [first, second, third, _] = value.payload;
    match value.case {
        ValueRecord::NUMBER => GivenValue::Number(value.as_number()),
        // SAFETY: the same.
        ValueRecord::TEXT => GivenValue::Text(unsafe { owned(list(first as usize as *const u8, second as usize)) }),
        _ => {
            // SAFETY: the same.
            let numbers = unsafe { slice(list(second as usize as *const f64, third as usize)) };
            GivenValue::Table(NumberTable { columns: first as usize, numbers: numbers.to_vec() })
        }
    }
}

/// The policy of this module, and the memory of its latest result.
pub struct ModulePolicy<P>(UnsafeCell<Inner<P>>);

struct Inner<P> {
    /// `None` before the first call of `configure`.
    policy: Option<P>,
    numbers: Vec<f64>,
    bytes: Vec<u8>,
    text: String,
    refusal: HostRefusal,
    list: (usize, usize),
    chosen: ChosenIndex,
    /// The latest row that was returned.
    record: [u64; MOST_WORDS],
}

/// Most numbers of 64 bits that a returned row takes.
const MOST_WORDS: usize = 16;

// SAFETY: a module without shared memory has one thread, and the host makes one call at a time.
unsafe impl<P> Sync for ModulePolicy<P> {}

impl<P: Policy> ModulePolicy<P> {
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Inner {
            policy: None,
            numbers: Vec::new(),
            bytes: Vec::new(),
            text: String::new(),
            refusal: HostRefusal { refused: 0, text: empty() },
            list: (0, 0),
            chosen: ChosenIndex { is_some: 0, index: 0 },
            record: [0; MOST_WORDS],
        }))
    }

    /// One call by the host: runs `function`, then empties the arena.
    #[inline]
    fn call<T>(&self, function: impl FnOnce(&mut Inner<P>) -> T) -> T {
        // SAFETY: calls do not overlap: the host enters no module that it is in.
        let result = function(unsafe { &mut *self.0.get() });
        empty_arena();
        result
    }

    pub fn describe(&self, exported: Exported) -> *const u8 {
        report_panics();
        let description = description::<P>(exported);
        let parameters = description.parameters.into_iter().map(|parameter| HostParameter {
            name: leaked_text(&parameter.name),
            about: leaked_text(&parameter.about),
            default: lowered(parameter.default),
            min: parameter.min,
            max: parameter.max,
        });
        let parameters: Vec<_> = parameters.collect();
        let raw = Box::leak(Box::new(HostDescription {
            name: leaked_text(&description.name),
            version: leaked_text(&description.version),
            about: leaked_text(&description.about),
            kinds: leaked_texts(exported.names()),
            reads: leaked_texts(reads::<P>()),
            events: leaked_texts(description.events.names()),
            scores: description.scores,
            every_step: description.every_step,
            parameters: list_of(parameters.leak()),
        }));
        (&raw const *raw).cast()
    }

    /// # Safety
    /// Called by the host, as are all functions below.
    pub unsafe fn configure(
        &self,
        kind: HostList<u8>,
        parameters: HostList<ValueRecord>,
        instances: HostList<InstanceInfo>,
        model_facts: HostList<u64>,
    ) -> *const HostRefusal {
        report_panics();
        // SAFETY: written by the host; `model_facts` are `HostModelFact`s, a type that is private here.
        let (values, instances, model_facts) = unsafe {
            let model_facts = HostList { start: model_facts.start.cast::<HostModelFact>(), len: model_facts.len };
            (slice(parameters), slice(instances), slice(model_facts))
        };
        self.call(|inner| {
            let declared = P::describe().parameters;
            assert!(declared.len() == values.len(), "the host has other parameters than describe() declares");
            let setup = Setup {
                // SAFETY: written by the host, as the values.
                kind: kind_of(&unsafe { owned(kind) }),
                instances: instances.to_vec(),
                parameters: declared
                    .into_iter()
                    .zip(values)
                    .map(|(parameter, value)| (parameter.name, unsafe { lifted(value) }))
                    .collect(),
                // SAFETY: written by the host.
                model_facts: model_facts
                    .iter()
                    .map(|model_fact| (unsafe { owned(model_fact.name) }, model_fact.value))
                    .collect(),
            };
            let made = P::new(&setup).map(|policy| inner.policy = Some(policy));
            inner.refuse(made.err())
        })
    }

    pub unsafe fn save(&self) -> *const (usize, usize) {
        self.call(|inner| {
            inner.bytes = save(inner.policy());
            inner.list = (inner.bytes.as_ptr() as usize, inner.bytes.len());
            &raw const inner.list
        })
    }

    pub unsafe fn restore(&self, state: HostList<u8>) -> *const HostRefusal {
        self.call(|inner| {
            // SAFETY: written by the host.
            let made = restored(unsafe { slice(state) }).map(|policy| inner.policy = Some(policy));
            inner.refuse(made.err())
        })
    }

    /// A call that admits or rejects, and below one for each other form of output.
    pub fn reason(&self, function: impl FnOnce(&mut P) -> AdmissionDecision) -> *const HostRefusal {
        self.call(|inner| {
            let decided = function(inner.policy());
            inner.refuse(match decided {
                AdmissionDecision::Admit => None,
                AdmissionDecision::Reject(reason) => Some(reason),
            })
        })
    }

    #[inline]
    pub fn index(&self, function: impl FnOnce(&mut P) -> usize) -> usize {
        self.number(function)
    }

    #[inline]
    pub fn chosen(&self, function: impl FnOnce(&mut P) -> Option<usize>) -> *const ChosenIndex {
        self.call(|inner| {
            let index = function(inner.policy());
            inner.chosen = ChosenIndex { is_some: u8::from(index.is_some()), index: index.unwrap_or(0) as u32 };
            &raw const inner.chosen
        })
    }

    #[inline]
    pub fn number<T>(&self, function: impl FnOnce(&mut P) -> T) -> T {
        self.call(|inner| function(inner.policy()))
    }

    #[inline]
    pub fn flag(&self, function: impl FnOnce(&mut P) -> bool) -> u32 {
        self.number(function).into()
    }

    /// The numbers that `push` pushes, as a list for the host.
    #[inline]
    pub fn numbers(&self, push: impl FnOnce(&mut P, &mut Vec<f64>)) -> *const (usize, usize) {
        self.call(|inner| {
            let mut numbers = std::mem::take(&mut inner.numbers);
            numbers.clear();
            push(inner.policy(), &mut numbers);
            inner.numbers = numbers;
            inner.list = (inner.numbers.as_ptr() as usize, inner.numbers.len());
            &raw const inner.list
        })
    }

    pub fn record<R: Row>(&self, function: impl FnOnce(&mut P) -> R) -> *const R {
        const { assert!(size_of::<R>() <= size_of::<[u64; MOST_WORDS]>() && align_of::<R>() <= align_of::<u64>()) };
        self.call(|inner| {
            let row = function(inner.policy());
            let record = (&raw mut inner.record).cast::<R>();
            // SAFETY: the memory has room for the row, as asserted, and nothing else refers to it.
            unsafe { record.write(row) };
            record.cast_const()
        })
    }
}

impl<P> Inner<P> {
    #[inline]
    fn policy(&mut self) -> &mut P {
        self.policy.as_mut().expect("configure comes first, and succeeds")
    }

    fn refuse(&mut self, text: Option<String>) -> *const HostRefusal {
        self.refusal.refused = u8::from(text.is_some());
        self.text = text.unwrap_or_default();
        self.refusal.text = list_of(self.text.as_bytes());
        &raw const self.refusal
    }
}

/// # Safety
/// The host wrote it, and this call has not returned.
unsafe fn owned(text: HostList<u8>) -> String {
    // SAFETY: the same.
    String::from_utf8_lossy(unsafe { slice(text) }).into_owned()
}

/// A list of parameters, for the macro.
pub const fn list<T>(start: *const T, len: usize) -> HostList<T> {
    HostList { start, len: len as u32 }
}

/// Makes a panic write its message and location to the log of the run before it traps.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|info| log(0, &panic_text(info)))));
}

/// Memory for the parameters that the host passes.
struct CallArena {
    start: *mut u8,
    size: usize,
    used: usize,
    /// Blocks of this call that became too small.
    outgrown: Vec<(*mut u8, usize)>,
}

const ALIGN: usize = 16;
const FIRST_BLOCK_BYTES: usize = 4096;

struct Global(UnsafeCell<CallArena>);

// SAFETY: one thread, as above.
unsafe impl Sync for Global {}

static ARENA: Global =
    Global(UnsafeCell::new(CallArena { start: std::ptr::null_mut(), size: 0, used: 0, outgrown: Vec::new() }));

/// The export `cabi_realloc`.
///
/// # Safety
/// Only the host calls it.
#[inline]
pub unsafe fn realloc(old: *mut u8, old_size: usize, align: usize, size: usize) -> *mut u8 {
    // SAFETY: only the host calls this, at times when no other function of this file uses the arena.
    let arena = unsafe { &mut *ARENA.0.get() };
    let offset = arena.used.next_multiple_of(align.clamp(1, ALIGN));
    let fresh = match offset.checked_add(size) {
        Some(end) if end <= arena.size => {
            arena.used = end;
            // SAFETY: within the block.
            unsafe { arena.start.add(offset) }
        }
        _ => arena.grow(size),
    };
    if old_size > 0 {
        // SAFETY: both are blocks of this arena that do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(old, fresh, old_size.min(size)) };
    }
    fresh
}

impl CallArena {
    /// Allocates a larger block, of which the first `size` bytes are in use. The previous block stays until the call
    /// returns, because parameters lie in it.
    #[cold]
    fn grow(&mut self, size: usize) -> *mut u8 {
        if self.size > 0 {
            self.outgrown.push((self.start, self.size));
        }
        let twice = size.saturating_add(self.size).max(FIRST_BLOCK_BYTES).checked_next_power_of_two();
        let layout = Layout::from_size_align(twice.unwrap_or(usize::MAX), ALIGN).expect("fits the address space");
        // SAFETY: not of size 0.
        self.start = unsafe { alloc(layout) };
        if self.start.is_null() {
            handle_alloc_error(layout);
        }
        (self.size, self.used) = (layout.size(), size);
        self.start
    }

    #[cold]
    fn drop_outgrown(&mut self) {
        for (start, size) in self.outgrown.drain(..) {
            // SAFETY: allocated with this layout in `grow`, and nothing points to it any more.
            unsafe { dealloc(start, Layout::from_size_align_unchecked(size, ALIGN)) };
        }
    }
}

#[inline]
fn empty_arena() {
    // SAFETY: there is one thread, and no parameter of the call is in use.
    let arena = unsafe { &mut *ARENA.0.get() };
    arena.used = 0;
    if !arena.outgrown.is_empty() {
        arena.drop_outgrown();
    }
}

/// Memory in which the host writes the parameters of decisions.
struct InputBlock(UnsafeCell<(*mut u8, usize)>);

// SAFETY: one thread, as above.
unsafe impl Sync for InputBlock {}

static INPUT: InputBlock = InputBlock(UnsafeCell::new((std::ptr::null_mut(), 0)));

/// The export `blis_input`: the address of at least `size` bytes, which are the host's until it calls this again. Without it
/// the host would call [`realloc`] for every list of every decision, and write all rows anew each time.
///
/// # Safety
/// Only the host calls it, and not during another call.
pub unsafe fn input(size: usize) -> *mut u8 {
    // SAFETY: only the host calls this, when no parameter is in use.
    let (start, before) = unsafe { &mut *INPUT.0.get() };
    if *before > 0 {
        // SAFETY: allocated with this layout below.
        unsafe { dealloc(*start, Layout::from_size_align_unchecked(*before, ALIGN)) };
    }
    let layout = Layout::from_size_align(size.max(1), ALIGN).expect("fits the address space");
    // SAFETY: not of size 0.
    *start = unsafe { alloc(layout) };
    if start.is_null() {
        handle_alloc_error(layout);
    }
    *before = layout.size();
    *start
}

/// The exports of every policy. Uses `GUEST`, `EXPORTED` and `__sdk` of `export_policy!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __blis_wasm_plugin {
    () => {
        #[unsafe(export_name = "cabi_realloc")]
        unsafe extern "C" fn cabi_realloc(old: *mut u8, old_size: usize, align: usize, size: usize) -> *mut u8 {
            unsafe { __sdk::wasm::realloc(old, old_size, align, size) }
        }

        #[unsafe(export_name = "blis_input")]
        unsafe extern "C" fn blis_input(size: usize) -> *mut u8 {
            unsafe { __sdk::wasm::input(size) }
        }

        #[unsafe(export_name = "blis:policy/plugin@1.1.0#describe")]
        extern "C" fn describe() -> *const u8 {
            GUEST.describe(EXPORTED)
        }

        #[unsafe(export_name = "blis:policy/plugin@1.1.0#configure")]
        unsafe extern "C" fn configure(
            kind: *const u8,
            kind_len: usize,
            parameters: *const __sdk::wasm::ValueRecord,
            parameter_count: usize,
            instances: *const $crate::InstanceInfo,
            instance_count: usize,
            model_facts: *const u64,
            model_fact_count: usize,
        ) -> *const __sdk::wasm::HostRefusal {
            let kind = __sdk::wasm::list(kind, kind_len);
            let parameters = __sdk::wasm::list(parameters, parameter_count);
            let instances = __sdk::wasm::list(instances, instance_count);
            unsafe { GUEST.configure(kind, parameters, instances, __sdk::wasm::list(model_facts, model_fact_count)) }
        }

        #[unsafe(export_name = "blis:policy/plugin@1.1.0#save")]
        unsafe extern "C" fn save() -> *const (usize, usize) {
            unsafe { GUEST.save() }
        }

        #[unsafe(export_name = "blis:policy/plugin@1.1.0#restore")]
        unsafe extern "C" fn restore(state: *const u8, len: usize) -> *const __sdk::wasm::HostRefusal {
            unsafe { GUEST.restore(__sdk::wasm::list(state, len)) }
        }
    };
}
