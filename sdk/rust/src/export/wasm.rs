//! The exports of `sdk/wit/since-v1.1.0/policy.wit` by the rules of the component model's canonical ABI, without
//! generated code: `blis` builds the component from the names of the exports.
//!
//! * Parameters of more than 16 numbers are passed as one pointer to all of them ([`HostDecision`]); results of more
//!   than one number are returned as a pointer. Records lie in memory as `repr(C)` structs do.
//! * The host writes the parameters of decisions to memory that [`input`] returns, which it keeps from call to call. Other
//!   parameters, and results of its functions, it allocates with [`realloc`] in an arena that is emptied when the call
//!   returns: no `malloc` and `free` per call. The host copies results before its next call, so they lie in fields of
//!   [`ModulePolicy`] and need no function that frees them.

#![allow(unsafe_code)] // the boundary itself

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::sync::Once;

use blis_abi::canonical;
pub use blis_abi::canonical::{ChosenIndex, OrderParameters, RankParameters, ValueRecord};

use super::{Exported, description, kind_of, panic_text, reads, restored, save};
use crate::description::{GivenValue, NumberTable, Setup};
use crate::policy::{
    Admission, AdmissionDecision, Ceilings, Disaggregation, Drain, Eviction, Fairness, Filter, KvCache, Latency,
    Lifecycle, Ordering, Placement, Policy, Preemption, Priority, Routing, Saturation, Scaling, Scheduling,
};
use crate::rows::{
    Ages, Band, ChunkOffer, Cluster, DrainGroup, Event, Flow, Group, InFlight, InstanceInfo, KvChunk, KvHit,
    LatencyConstants, Node, PoolInstance, PrefillChoice, Replica, Request, RoutedRequest, Running, Signals,
    StartingReplica, Step,
};

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
/// The parameters of `admit`, `route`, `scores` and `filter`.
pub type HostDecision = canonical::DecisionParameters<HostList<f64>>;
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
unsafe fn slice<'a, T>(list: HostList<T>) -> &'a [T] {
    if list.len == 0 {
        return &[];
    }
    // SAFETY: the host has written `len` elements where `realloc` returned memory.
    unsafe { std::slice::from_raw_parts(list.start, list.len as usize) }
}

/// # Safety
/// The host wrote it, and this call has not returned.
#[inline]
unsafe fn cluster<S: Signals>(decision: &HostDecision) -> Cluster<'_, S> {
    let HostDecision { ages, count, instances, .. } = *decision;
    // SAFETY: promised by the caller.
    unsafe { cluster_of(ages, count as usize, instances) }
}

/// # Safety
/// The host wrote the numbers of `instances`, and this call has not returned.
#[inline]
unsafe fn cluster_of<'a, S: Signals>(ages: Ages, count: usize, instances: HostList<f64>) -> Cluster<'a, S> {
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
    constants: LatencyConstants,
    chosen: ChosenIndex,
    choice: PrefillChoice,
}

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
            constants: LatencyConstants {
                shortest_step_us: 1,
                output_token_us: 0,
                post_decode_us: 0,
                scheduling_us: 0,
                preemption_us: 0,
            },
            chosen: ChosenIndex { is_some: 0, index: 0 },
            choice: PrefillChoice { remote: 0, decode: 0, prefill: 0 },
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

    /// One call by the host that uses the policy.
    #[inline]
    fn with_policy<T>(&self, function: impl FnOnce(&mut P) -> T) -> T {
        self.call(|inner| function(inner.policy()))
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

    pub unsafe fn admit(&self, decision: *const HostDecision) -> *const HostRefusal
    where
        P: Admission,
    {
        // SAFETY: written by the host.
        let decision = unsafe { &*decision };
        self.call(|inner| {
            // SAFETY: the same.
            let decided = inner.policy().admit(&decision.request, &unsafe { cluster(decision) });
            inner.refuse(match decided {
                AdmissionDecision::Admit => None,
                AdmissionDecision::Reject(reason) => Some(reason),
            })
        })
    }

    #[inline]
    pub unsafe fn route(&self, decision: *const HostDecision) -> usize
    where
        P: Routing,
    {
        // SAFETY: written by the host.
        let decision = unsafe { &*decision };
        // SAFETY: the same.
        self.with_policy(|policy| policy.route(&decision.request, &unsafe { cluster(decision) }))
    }

    pub unsafe fn scores(&self, decision: *const HostDecision) -> *const (usize, usize)
    where
        P: Routing,
    {
        // SAFETY: written by the host.
        unsafe { self.numbers(decision, |policy, request, cluster, scores| policy.scores(request, cluster, scores)) }
    }

    pub unsafe fn filter(&self, decision: *const HostDecision) -> *const (usize, usize)
    where
        P: Filter,
    {
        // SAFETY: written by the host.
        unsafe { self.numbers(decision, |policy, request, cluster, kept| policy.filter(request, cluster, kept)) }
    }

    /// The numbers that `compute` pushes, as a list for the host.
    ///
    /// # Safety
    /// The host wrote `decision`.
    unsafe fn numbers(
        &self,
        decision: *const HostDecision,
        compute: impl FnOnce(&mut P, &Request, &Cluster<'_, P::Signals>, &mut Vec<f64>),
    ) -> *const (usize, usize) {
        // SAFETY: promised by the caller.
        let decision = unsafe { &*decision };
        // SAFETY: the same.
        self.pushed(|policy, numbers| compute(policy, &decision.request, &unsafe { cluster(decision) }, numbers))
    }

    /// The numbers that `push` pushes, as a list for the host.
    fn pushed(&self, push: impl FnOnce(&mut P, &mut Vec<f64>)) -> *const (usize, usize) {
        self.call(|inner| {
            let mut numbers = std::mem::take(&mut inner.numbers);
            numbers.clear();
            push(inner.policy(), &mut numbers);
            inner.numbers = numbers;
            inner.list = (inner.numbers.as_ptr() as usize, inner.numbers.len());
            &raw const inner.list
        })
    }

    pub unsafe fn priority(&self, request: *const Request) -> i64
    where
        P: Priority,
    {
        // SAFETY: written by the host.
        self.with_policy(|policy| policy.priority(unsafe { &*request }))
    }

    pub unsafe fn rank(&self, joining: *const RankParameters) -> f64
    where
        P: Scheduling,
    {
        // SAFETY: written by the host.
        let joining = unsafe { &*joining };
        self.with_policy(|policy| policy.rank(&joining.request, &joining.queued))
    }

    pub unsafe fn victim(&self, now_us: u64, requester: usize, batch: HostList<Running>) -> usize
    where
        P: Preemption,
    {
        // SAFETY: written by the host.
        self.with_policy(|policy| policy.victim(now_us, requester, unsafe { slice(batch) }))
    }

    pub fn constants(&self) -> *const LatencyConstants
    where
        P: Latency,
    {
        self.call(|inner| {
            inner.constants = inner.policy().constants();
            &raw const inner.constants
        })
    }

    pub fn queueing_time(&self, input_tokens: u32) -> u64
    where
        P: Latency,
    {
        self.with_policy(|policy| policy.queueing_time(input_tokens))
    }

    pub fn step_time(&self, step: &Step) -> u64
    where
        P: Latency,
    {
        self.with_policy(|policy| policy.step_time(step))
    }

    pub unsafe fn saturation(&self, now_us: u64, ages: Ages, count: usize, instances: HostList<f64>) -> f64
    where
        P: Saturation,
    {
        // SAFETY: written by the host.
        self.with_policy(|policy| policy.saturation(now_us, &unsafe { cluster_of(ages, count, instances) }))
    }

    pub unsafe fn ceilings(&self, now_us: u64, saturation: f64, bands: HostList<Band>) -> *const (usize, usize)
    where
        P: Ceilings,
    {
        // SAFETY: written by the host.
        self.pushed(|policy, ceilings| policy.ceilings(now_us, saturation, unsafe { slice(bands) }, ceilings))
    }

    pub unsafe fn scale(&self, now_us: u64, groups: HostList<Group>, history: HostList<Group>) -> *const (usize, usize)
    where
        P: Scaling,
    {
        // SAFETY: written by the host.
        let (groups, history) = unsafe { (slice(groups), slice(history)) };
        self.pushed(|policy, replicas| policy.scale(now_us, groups, history, replicas))
    }

    pub unsafe fn drain(&self, group: &DrainGroup, replicas: HostList<Replica>) -> usize
    where
        P: Drain,
    {
        // SAFETY: written by the host.
        self.with_policy(|policy| policy.drain(group, unsafe { slice(replicas) }))
    }

    pub unsafe fn keep(&self, now_us: u64, chunks: HostList<KvChunk>) -> *const (usize, usize)
    where
        P: KvCache,
    {
        // SAFETY: written by the host.
        let chunks = unsafe { slice(chunks) };
        self.pushed(|policy, ranks| policy.keep(now_us, chunks, ranks))
    }

    pub unsafe fn store(&self, offer: &ChunkOffer, chunks: HostList<KvChunk>) -> *const (usize, usize)
    where
        P: KvCache,
    {
        // SAFETY: written by the host.
        let chunks = unsafe { slice(chunks) };
        self.pushed(|policy, stored| policy.store(offer, chunks, stored))
    }

    pub fn load(&self, hit: &KvHit) -> u32
    where
        P: KvCache,
    {
        self.with_policy(|policy| u32::from(policy.load(hit)))
    }

    pub unsafe fn disaggregate(
        &self,
        request: &RoutedRequest,
        decode: HostList<PoolInstance>,
        prefill: HostList<PoolInstance>,
    ) -> *const PrefillChoice
    where
        P: Disaggregation,
    {
        self.call(|inner| {
            // SAFETY: written by the host.
            let (decode, prefill) = unsafe { (slice(decode), slice(prefill)) };
            inner.choice = inner.policy().disaggregate(request, decode, prefill);
            &raw const inner.choice
        })
    }

    pub unsafe fn placement(&self, replica: &StartingReplica, nodes: HostList<Node>) -> *const ChosenIndex
    where
        P: Placement,
    {
        self.call(|inner| {
            // SAFETY: written by the host.
            let node = inner.policy().placement(replica, unsafe { slice(nodes) });
            inner.chosen = ChosenIndex { is_some: u8::from(node.is_some()), index: node.unwrap_or(0) as u32 };
            &raw const inner.chosen
        })
    }

    pub unsafe fn fair_pick(&self, now_us: u64, saturation: f64, band: &Band, flows: HostList<Flow>) -> usize
    where
        P: Fairness,
    {
        // SAFETY: written by the host.
        self.with_policy(|policy| policy.fair_pick(now_us, saturation, band, unsafe { slice(flows) }))
    }

    pub unsafe fn order(&self, enqueued: *const OrderParameters) -> f64
    where
        P: Ordering,
    {
        // SAFETY: written by the host.
        let enqueued = unsafe { &*enqueued };
        self.with_policy(|policy| policy.order(&enqueued.request, enqueued.expires_us))
    }

    pub unsafe fn evict(&self, now_us: u64, demand: &Band, in_flight: HostList<InFlight>) -> *const ChosenIndex
    where
        P: Eviction,
    {
        self.call(|inner| {
            // SAFETY: written by the host.
            let victim = inner.policy().evict(now_us, demand, unsafe { slice(in_flight) });
            inner.chosen = ChosenIndex { is_some: u8::from(victim.is_some()), index: victim.unwrap_or(0) as u32 };
            &raw const inner.chosen
        })
    }

    pub fn observe(&self, event: &Event)
    where
        P: Lifecycle,
    {
        self.with_policy(|policy| policy.observe(event));
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

/// The exports of one interface. Uses `GUEST`, `EXPORTED` and `__sdk` of `export_policy!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __blis_wasm {
    (Plugin) => {
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
    (Admission) => {
        #[unsafe(export_name = "blis:policy/admission@1.1.0#admit")]
        unsafe extern "C" fn admit(decision: *const __sdk::wasm::HostDecision) -> *const __sdk::wasm::HostRefusal {
            unsafe { GUEST.admit(decision) }
        }
    };
    (Routing) => {
        #[unsafe(export_name = "blis:policy/routing@1.1.0#route")]
        unsafe extern "C" fn route(decision: *const __sdk::wasm::HostDecision) -> usize {
            unsafe { GUEST.route(decision) }
        }

        #[unsafe(export_name = "blis:policy/routing-scores@1.1.0#scores")]
        unsafe extern "C" fn scores(decision: *const __sdk::wasm::HostDecision) -> *const (usize, usize) {
            unsafe { GUEST.scores(decision) }
        }
    };
    (Filter) => {
        #[unsafe(export_name = "blis:policy/routing-filter@1.1.0#filter")]
        unsafe extern "C" fn filter(decision: *const __sdk::wasm::HostDecision) -> *const (usize, usize) {
            unsafe { GUEST.filter(decision) }
        }
    };
    (Priority) => {
        #[unsafe(export_name = "blis:policy/priority@1.1.0#priority")]
        unsafe extern "C" fn priority(request: *const $crate::Request) -> i64 {
            unsafe { GUEST.priority(request) }
        }
    };
    (Scheduling) => {
        #[unsafe(export_name = "blis:policy/scheduling@1.1.0#rank")]
        unsafe extern "C" fn rank(joining: *const __sdk::wasm::RankParameters) -> f64 {
            unsafe { GUEST.rank(joining) }
        }
    };
    (Preemption) => {
        #[unsafe(export_name = "blis:policy/preemption@1.1.0#victim")]
        unsafe extern "C" fn victim(now_us: u64, requester: usize, batch: *const $crate::Running, len: usize) -> usize {
            unsafe { GUEST.victim(now_us, requester, __sdk::wasm::list(batch, len)) }
        }
    };
    (Latency) => {
        #[unsafe(export_name = "blis:policy/latency@1.1.0#constants")]
        extern "C" fn constants() -> *const $crate::LatencyConstants {
            GUEST.constants()
        }

        #[unsafe(export_name = "blis:policy/latency@1.1.0#queueing-time")]
        extern "C" fn queueing_time(input_tokens: u32) -> u64 {
            GUEST.queueing_time(input_tokens)
        }

        #[unsafe(export_name = "blis:policy/latency@1.1.0#step-time")]
        extern "C" fn step_time(
            prefill_requests: u64,
            prefill_tokens: u64,
            prefill_tokens_squared: u64,
            prefill_tokens_by_input: u64,
            prefill_tokens_by_context: u64,
            prefill_context: u64,
            decode_requests: u64,
            decode_context: u64,
        ) -> u64 {
            GUEST.step_time(&$crate::Step {
                prefill_requests,
                prefill_tokens,
                prefill_tokens_squared,
                prefill_tokens_by_input,
                prefill_tokens_by_context,
                prefill_context,
                decode_requests,
                decode_context,
            })
        }
    };
    (Saturation) => {
        #[unsafe(export_name = "blis:policy/saturation@1.1.0#saturation")]
        unsafe extern "C" fn saturation(
            now_us: u64,
            periodic_us: u64,
            cache_us: u64,
            gateway_us: u64,
            pipeline_us: u64,
            count: usize,
            instances: *const f64,
            numbers: usize,
        ) -> f64 {
            let ages = $crate::Ages { periodic_us, cache_us, gateway_us, pipeline_us };
            unsafe { GUEST.saturation(now_us, ages, count, __sdk::wasm::list(instances, numbers)) }
        }
    };
    (Ceilings) => {
        #[unsafe(export_name = "blis:policy/ceilings@1.1.0#ceilings")]
        unsafe extern "C" fn ceilings(
            now_us: u64,
            saturation: f64,
            bands: *const $crate::Band,
            count: usize,
        ) -> *const (usize, usize) {
            unsafe { GUEST.ceilings(now_us, saturation, __sdk::wasm::list(bands, count)) }
        }
    };
    (Scaling) => {
        #[unsafe(export_name = "blis:policy/scaling@1.1.0#scale")]
        unsafe extern "C" fn scale(
            now_us: u64,
            groups: *const $crate::Group,
            count: usize,
            history: *const $crate::Group,
            history_count: usize,
        ) -> *const (usize, usize) {
            let history = __sdk::wasm::list(history, history_count);
            unsafe { GUEST.scale(now_us, __sdk::wasm::list(groups, count), history) }
        }
    };
    (Drain) => {
        #[unsafe(export_name = "blis:policy/drain@1.1.0#drain")]
        unsafe extern "C" fn drain(
            now_us: u64,
            price: f64,
            group: u32,
            model: u32,
            gpus: u32,
            min_replicas: u32,
            max_replicas: u32,
            replicas: u32,
            rows: *const $crate::Replica,
            count: usize,
        ) -> usize {
            let group = $crate::DrainGroup { now_us, price, group, model, gpus, min_replicas, max_replicas, replicas };
            unsafe { GUEST.drain(&group, __sdk::wasm::list(rows, count)) }
        }
    };
    (KvCache) => {
        #[unsafe(export_name = "blis:policy/kv-cache@1.1.0#keep")]
        unsafe extern "C" fn keep(now_us: u64, chunks: *const $crate::KvChunk, count: usize) -> *const (usize, usize) {
            unsafe { GUEST.keep(now_us, __sdk::wasm::list(chunks, count)) }
        }

        #[unsafe(export_name = "blis:policy/kv-cache@1.1.0#store-chunks")]
        unsafe extern "C" fn store(
            now_us: u64,
            queued_bytes: u64,
            fill: f64,
            tier: u32,
            capacity: u32,
            chunks: *const $crate::KvChunk,
            count: usize,
        ) -> *const (usize, usize) {
            let offer = $crate::ChunkOffer { now_us, queued_bytes, fill, tier, capacity };
            unsafe { GUEST.store(&offer, __sdk::wasm::list(chunks, count)) }
        }

        #[unsafe(export_name = "blis:policy/kv-cache@1.1.0#load")]
        extern "C" fn load(
            now_us: u64,
            bytes: u64,
            queued_bytes: u64,
            bandwidth: f64,
            request: u32,
            gpu_tokens: u32,
            tokens: u32,
            input_tokens: u32,
            prefill_tokens: u32,
            waiting: u32,
            running: u32,
            slo_class: u32,
            tenant: u32,
            session: u32,
            prefix_group: u32,
            round: u32,
        ) -> u32 {
            GUEST.load(&$crate::KvHit {
                now_us,
                bytes,
                queued_bytes,
                bandwidth,
                request,
                gpu_tokens,
                tokens,
                input_tokens,
                prefill_tokens,
                waiting,
                running,
                slo_class,
                tenant,
                session,
                prefix_group,
                round,
            })
        }
    };
    (Disaggregation) => {
        #[unsafe(export_name = "blis:policy/disaggregation@1.1.0#disaggregate")]
        unsafe extern "C" fn disaggregate(
            now_us: u64,
            transfer_us_per_token: f64,
            request: u32,
            input_tokens: u32,
            chosen: u32,
            transfers: u32,
            transfer_tokens: u32,
            slo_class: u32,
            tenant: u32,
            session: u32,
            prefix_group: u32,
            round: u32,
            decode: *const $crate::PoolInstance,
            decode_count: usize,
            prefill: *const $crate::PoolInstance,
            prefill_count: usize,
        ) -> *const $crate::PrefillChoice {
            let request = $crate::RoutedRequest {
                now_us,
                transfer_us_per_token,
                request,
                input_tokens,
                chosen,
                transfers,
                transfer_tokens,
                slo_class,
                tenant,
                session,
                prefix_group,
                round,
            };
            let decode = __sdk::wasm::list(decode, decode_count);
            unsafe { GUEST.disaggregate(&request, decode, __sdk::wasm::list(prefill, prefill_count)) }
        }
    };
    (Placement) => {
        #[unsafe(export_name = "blis:policy/placement@1.1.0#placement")]
        unsafe extern "C" fn placement(
            now_us: u64,
            created_us: u64,
            id: u32,
            group: u32,
            model: u32,
            gpus: u32,
            nodes: *const $crate::Node,
            count: usize,
        ) -> *const __sdk::wasm::ChosenIndex {
            let replica = $crate::StartingReplica { now_us, created_us, id, group, model, gpus };
            unsafe { GUEST.placement(&replica, __sdk::wasm::list(nodes, count)) }
        }
    };
    (Fairness) => {
        #[unsafe(export_name = "blis:policy/fairness@1.1.0#fair-pick")]
        unsafe extern "C" fn fair_pick(
            now_us: u64,
            saturation: f64,
            oldest_wait_us: u64,
            priority: i32,
            queued: u32,
            flows: *const $crate::Flow,
            count: usize,
        ) -> usize {
            let band = $crate::Band { oldest_wait_us, priority, queued };
            unsafe { GUEST.fair_pick(now_us, saturation, &band, __sdk::wasm::list(flows, count)) }
        }
    };
    (Ordering) => {
        #[unsafe(export_name = "blis:policy/ordering@1.1.0#order")]
        unsafe extern "C" fn order(enqueued: *const __sdk::wasm::OrderParameters) -> f64 {
            unsafe { GUEST.order(enqueued) }
        }
    };
    (Eviction) => {
        #[unsafe(export_name = "blis:policy/eviction@1.1.0#evict")]
        unsafe extern "C" fn evict(
            now_us: u64,
            oldest_wait_us: u64,
            priority: i32,
            queued: u32,
            in_flight: *const $crate::InFlight,
            count: usize,
        ) -> *const __sdk::wasm::ChosenIndex {
            let demand = $crate::Band { oldest_wait_us, priority, queued };
            unsafe { GUEST.evict(now_us, &demand, __sdk::wasm::list(in_flight, count)) }
        }
    };
    (Lifecycle) => {
        #[unsafe(export_name = "blis:policy/lifecycle@1.1.0#observe")]
        extern "C" fn observe(
            at_us: u64,
            ttft_us: u64,
            e2e_us: u64,
            kind: u32,
            request: u32,
            instance: u32,
            input_tokens: u32,
            generated_tokens: u32,
            slo_class: u32,
            tenant: u32,
            session: u32,
            prefix_group: u32,
            block: u32,
        ) {
            GUEST.observe(&$crate::Event {
                at_us,
                ttft_us,
                e2e_us,
                kind,
                request,
                instance,
                input_tokens,
                generated_tokens,
                slo_class,
                tenant,
                session,
                prefix_group,
                block,
            });
        }
    };
}
