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
use crate::policy::{
    Admission, AdmissionDecision, Ceilings, Disaggregation, Drain, Eviction, Fairness, Filter, KvCache, Latency,
    Lifecycle, Ordering, Placement, Policy, Preemption, Priority, Routing, Saturation, Scaling, Scheduling,
};
use crate::rows::{
    Ages, Band, ChunkOffer, Cluster, DrainGroup, Event, Flow, Group, InFlight, KvChunk, KvHit, LatencyConstants, Node,
    PoolInstance, PrefillChoice, Queued, Replica, Request, RoutedRequest, Running, StartingReplica, Step,
};
use crate::testing;

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
        Self::with(table::PolicyTable {
            describe: Some(describe),
            create: Some(create::<P>),
            destroy: Some(destroy::<P>),
            save: Some(save_state::<P>),
            restore: Some(restore_state::<P>),
            ..table::PolicyTable::EMPTY
        })
    }

    const fn with(table: table::PolicyTable) -> Self {
        Self { table, policy: PhantomData }
    }
}

/// Adds the functions of a kind; each method has the name of its trait.
#[allow(non_snake_case, missing_docs)]
impl<P: Policy> NativeTable<P> {
    pub const fn Admission(self) -> Self
    where
        P: Admission,
    {
        Self::with(table::PolicyTable { admit: Some(admit::<P>), ..self.table })
    }

    pub const fn Routing(self) -> Self
    where
        P: Routing,
    {
        Self::with(table::PolicyTable { route: Some(route::<P>), scores: Some(scores::<P>), ..self.table })
    }

    pub const fn Filter(self) -> Self
    where
        P: Filter,
    {
        Self::with(table::PolicyTable { filter: Some(filter::<P>), ..self.table })
    }

    pub const fn Priority(self) -> Self
    where
        P: Priority,
    {
        Self::with(table::PolicyTable { priority: Some(priority::<P>), ..self.table })
    }

    pub const fn Scheduling(self) -> Self
    where
        P: Scheduling,
    {
        Self::with(table::PolicyTable { rank: Some(rank::<P>), ..self.table })
    }

    pub const fn Preemption(self) -> Self
    where
        P: Preemption,
    {
        Self::with(table::PolicyTable { victim: Some(victim::<P>), ..self.table })
    }

    pub const fn Latency(self) -> Self
    where
        P: Latency,
    {
        Self::with(table::PolicyTable {
            constants: Some(constants::<P>),
            queueing_time: Some(queueing_time::<P>),
            step_time: Some(step_time::<P>),
            ..self.table
        })
    }

    pub const fn Saturation(self) -> Self
    where
        P: Saturation,
    {
        Self::with(table::PolicyTable { saturation: Some(saturation::<P>), ..self.table })
    }

    pub const fn Ceilings(self) -> Self
    where
        P: Ceilings,
    {
        Self::with(table::PolicyTable { ceilings: Some(ceilings::<P>), ..self.table })
    }

    pub const fn Scaling(self) -> Self
    where
        P: Scaling,
    {
        Self::with(table::PolicyTable { scale: Some(scale::<P>), ..self.table })
    }

    pub const fn Drain(self) -> Self
    where
        P: Drain,
    {
        Self::with(table::PolicyTable { drain: Some(drain::<P>), ..self.table })
    }

    pub const fn Placement(self) -> Self
    where
        P: Placement,
    {
        Self::with(table::PolicyTable { placement: Some(placement::<P>), ..self.table })
    }

    pub const fn KvCache(self) -> Self
    where
        P: KvCache,
    {
        let functions =
            table::PolicyTable { keep: Some(keep::<P>), store: Some(store::<P>), load: Some(load::<P>), ..self.table };
        Self::with(functions)
    }

    pub const fn Disaggregation(self) -> Self
    where
        P: Disaggregation,
    {
        Self::with(table::PolicyTable { disaggregate: Some(disaggregate::<P>), ..self.table })
    }

    pub const fn Fairness(self) -> Self
    where
        P: Fairness,
    {
        Self::with(table::PolicyTable { fair_pick: Some(fair_pick::<P>), ..self.table })
    }

    pub const fn Ordering(self) -> Self
    where
        P: Ordering,
    {
        Self::with(table::PolicyTable { order: Some(order::<P>), ..self.table })
    }

    pub const fn Eviction(self) -> Self
    where
        P: Eviction,
    {
        Self::with(table::PolicyTable { evict: Some(evict::<P>), ..self.table })
    }

    pub const fn Lifecycle(self) -> Self
    where
        P: Lifecycle,
    {
        Self::with(table::PolicyTable { observe: Some(observe::<P>), ..self.table })
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

/// One call by the host of the policy behind `state`.
#[inline]
unsafe fn with_state<P, T>(
    host: *const CHost,
    state: *mut c_void,
    otherwise: T,
    function: impl FnOnce(&mut NativeState<P>) -> T,
) -> T {
    // SAFETY: `state` is from `create`, and the host uses it on one thread at a time.
    unsafe { call(host, otherwise, || function(&mut *state.cast())) }
}

/// The same for functions that do not change the state.
#[inline]
unsafe fn with_policy<P, T>(
    host: *const CHost,
    state: *const c_void,
    otherwise: T,
    function: impl FnOnce(&P) -> T,
) -> T {
    // SAFETY: as above.
    unsafe { call(host, otherwise, || function(&(*state.cast::<NativeState<P>>()).policy)) }
}

unsafe extern "C" fn admit<P: Admission>(
    host: *const CHost,
    state: *mut c_void,
    request: *const Request,
    ages: *const Ages,
    instances: *const c_void,
    count: usize,
    stride: usize,
    reason: *mut CText,
) -> u32 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: the host's arguments.
        let (request, ages, instances) = unsafe { (&*request, *ages, rows::<P::Signals>(instances, count, stride)) };
        let decision = state.policy.admit(request, &Cluster { ages, instances: &instances });
        let (admitted, text) = match decision {
            AdmissionDecision::Admit => (1, CText::EMPTY),
            AdmissionDecision::Reject(text) => {
                state.reason = text;
                (0, CText::of(&state.reason))
            }
        };
        // SAFETY: the same.
        unsafe { *reason = text };
        admitted
    };
    // SAFETY: the same.
    unsafe { with_state(host, state, 1, function) }
}

unsafe extern "C" fn route<P: Routing>(
    host: *const CHost,
    state: *mut c_void,
    request: *const Request,
    ages: *const Ages,
    instances: *const c_void,
    count: usize,
    stride: usize,
) -> u32 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: the host's arguments.
        let (request, ages, instances) = unsafe { (&*request, *ages, rows::<P::Signals>(instances, count, stride)) };
        let index = state.policy.route(request, &Cluster { ages, instances: &instances });
        u32::try_from(index).unwrap_or(u32::MAX)
    };
    // SAFETY: the same.
    unsafe { with_state(host, state, u32::MAX, function) }
}

unsafe extern "C" fn scores<P: Routing>(
    host: *const CHost,
    state: *const c_void,
    request: *const Request,
    ages: *const Ages,
    instances: *const c_void,
    count: usize,
    stride: usize,
    result: *mut f64,
) {
    let function = |policy: &P| {
        // SAFETY: the host's arguments.
        let (request, ages, instances) = unsafe { (&*request, *ages, rows::<P::Signals>(instances, count, stride)) };
        let mut scores = Vec::with_capacity(count);
        policy.scores(request, &Cluster { ages, instances: &instances }, &mut scores);
        assert!(scores.len() == count, "{} scores for {count} instances", scores.len());
        // SAFETY: `result` has room for `count` of them.
        unsafe { ptr::copy_nonoverlapping(scores.as_ptr(), result, count) };
    };
    // SAFETY: the same.
    unsafe { with_policy(host, state, (), function) }
}

unsafe extern "C" fn filter<P: Filter>(
    host: *const CHost,
    state: *mut c_void,
    request: *const Request,
    ages: *const Ages,
    instances: *const c_void,
    count: usize,
    stride: usize,
    result: *mut f64,
) {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: the host's arguments.
        let (request, ages, instances) = unsafe { (&*request, *ages, rows::<P::Signals>(instances, count, stride)) };
        let mut kept = Vec::with_capacity(count);
        state.policy.filter(request, &Cluster { ages, instances: &instances }, &mut kept);
        assert!(kept.len() == count, "{} numbers of filter for {count} instances", kept.len());
        // SAFETY: `result` has room for `count` of them.
        unsafe { ptr::copy_nonoverlapping(kept.as_ptr(), result, count) };
    };
    // SAFETY: the same.
    unsafe { with_state(host, state, (), function) }
}

unsafe extern "C" fn priority<P: Priority>(host: *const CHost, state: *mut c_void, request: *const Request) -> i64 {
    // SAFETY: the host's arguments, here and below.
    unsafe { with_state(host, state, 0, |state: &mut NativeState<P>| state.policy.priority(&*request)) }
}

unsafe extern "C" fn rank<P: Scheduling>(
    host: *const CHost,
    state: *mut c_void,
    request: *const Request,
    queued: *const Queued,
) -> f64 {
    // SAFETY: as above.
    unsafe { with_state(host, state, 0.0, |state: &mut NativeState<P>| state.policy.rank(&*request, &*queued)) }
}

unsafe extern "C" fn victim<P: Preemption>(
    host: *const CHost,
    state: *mut c_void,
    now_us: u64,
    requester: u32,
    batch: *const c_void,
    count: usize,
    stride: usize,
) -> u32 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let batch = unsafe { rows::<Running>(batch, count, stride) };
        u32::try_from(state.policy.victim(now_us, requester as usize, &batch)).unwrap_or(u32::MAX)
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, u32::MAX, function) }
}

unsafe extern "C" fn constants<P: Latency>(host: *const CHost, state: *const c_void, result: *mut LatencyConstants) {
    // SAFETY: as above.
    unsafe { *result = with_policy(host, state, LatencyConstants::default(), P::constants) }
}

unsafe extern "C" fn queueing_time<P: Latency>(host: *const CHost, state: *const c_void, input_tokens: u32) -> u64 {
    // SAFETY: as above.
    unsafe { with_policy(host, state, 0, |policy: &P| policy.queueing_time(input_tokens)) }
}

unsafe extern "C" fn step_time<P: Latency>(host: *const CHost, state: *const c_void, step: *const Step) -> u64 {
    // SAFETY: as above.
    unsafe { with_policy(host, state, 1, |policy: &P| policy.step_time(&*step)) }
}

unsafe extern "C" fn saturation<P: Saturation>(
    host: *const CHost,
    state: *mut c_void,
    now_us: u64,
    ages: *const Ages,
    instances: *const c_void,
    count: usize,
    stride: usize,
) -> f64 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let (ages, instances) = unsafe { (*ages, rows::<P::Signals>(instances, count, stride)) };
        state.policy.saturation(now_us, &Cluster { ages, instances: &instances })
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, 1.0, function) }
}

unsafe extern "C" fn ceilings<P: Ceilings>(
    host: *const CHost,
    state: *mut c_void,
    now_us: u64,
    saturation: f64,
    bands: *const c_void,
    count: usize,
    stride: usize,
    result: *mut f64,
) {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let bands = unsafe { rows::<Band>(bands, count, stride) };
        let mut ceilings = Vec::with_capacity(count);
        state.policy.ceilings(now_us, saturation, &bands, &mut ceilings);
        assert!(ceilings.len() == count, "{} ceilings for {count} bands", ceilings.len());
        // SAFETY: `result` has room for `count` of them.
        unsafe { ptr::copy_nonoverlapping(ceilings.as_ptr(), result, count) };
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, (), function) }
}

unsafe extern "C" fn scale<P: Scaling>(
    host: *const CHost,
    state: *mut c_void,
    now_us: u64,
    groups: *const c_void,
    count: usize,
    history: *const c_void,
    history_count: usize,
    stride: usize,
    result: *mut f64,
) {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let [groups, history] = unsafe { [rows::<Group>(groups, count, stride), rows(history, history_count, stride)] };
        let mut replicas = Vec::with_capacity(count);
        state.policy.scale(now_us, &groups, &history, &mut replicas);
        assert!(replicas.len() == count, "{} numbers of replicas for {count} groups", replicas.len());
        // SAFETY: `result` has room for `count` of them.
        unsafe { ptr::copy_nonoverlapping(replicas.as_ptr(), result, count) };
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, (), function) }
}

unsafe extern "C" fn fair_pick<P: Fairness>(
    host: *const CHost,
    state: *mut c_void,
    now_us: u64,
    saturation: f64,
    band: *const Band,
    flows: *const c_void,
    count: usize,
    stride: usize,
) -> u32 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let (band, flows) = unsafe { (&*band, rows::<Flow>(flows, count, stride)) };
        u32::try_from(state.policy.fair_pick(now_us, saturation, band, &flows)).unwrap_or(u32::MAX)
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, u32::MAX, function) }
}

unsafe extern "C" fn order<P: Ordering>(
    host: *const CHost,
    state: *mut c_void,
    request: *const Request,
    expires_us: u64,
) -> f64 {
    // SAFETY: as above.
    unsafe { with_state(host, state, 0.0, |state: &mut NativeState<P>| state.policy.order(&*request, expires_us)) }
}

unsafe extern "C" fn drain<P: Drain>(
    host: *const CHost,
    state: *mut c_void,
    group: *const DrainGroup,
    replicas: *const c_void,
    count: usize,
    stride: usize,
) -> u32 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let (group, replicas) = unsafe { (&*group, rows::<Replica>(replicas, count, stride)) };
        u32::try_from(state.policy.drain(group, &replicas)).unwrap_or(NONE_U32)
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, NONE_U32, function) }
}

unsafe extern "C" fn placement<P: Placement>(
    host: *const CHost,
    state: *mut c_void,
    replica: *const StartingReplica,
    nodes: *const c_void,
    count: usize,
    stride: usize,
) -> u32 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let (replica, nodes) = unsafe { (&*replica, rows::<Node>(nodes, count, stride)) };
        let Some(index) = state.policy.placement(replica, &nodes) else { return NONE_U32 };
        // The largest index stands for none.
        u32::try_from(index).unwrap_or(NONE_U32 - 1)
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, NONE_U32, function) }
}

unsafe extern "C" fn keep<P: KvCache>(
    host: *const CHost,
    state: *mut c_void,
    now_us: u64,
    chunks: *const c_void,
    count: usize,
    stride: usize,
    result: *mut f64,
) {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let chunks = unsafe { rows::<KvChunk>(chunks, count, stride) };
        let mut ranks = Vec::with_capacity(count);
        state.policy.keep(now_us, &chunks, &mut ranks);
        assert!(ranks.len() == count, "{} ranks for {count} chunks", ranks.len());
        // SAFETY: `result` has room for `count` of them.
        unsafe { ptr::copy_nonoverlapping(ranks.as_ptr(), result, count) };
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, (), function) }
}

unsafe extern "C" fn store<P: KvCache>(
    host: *const CHost,
    state: *mut c_void,
    offer: *const ChunkOffer,
    chunks: *const c_void,
    count: usize,
    stride: usize,
    result: *mut f64,
) {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let (offer, chunks) = unsafe { (&*offer, rows::<KvChunk>(chunks, count, stride)) };
        let mut stored = Vec::with_capacity(count);
        state.policy.store(offer, &chunks, &mut stored);
        assert!(stored.len() == count, "{} numbers of store for {count} chunks", stored.len());
        // SAFETY: `result` has room for `count` of them.
        unsafe { ptr::copy_nonoverlapping(stored.as_ptr(), result, count) };
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, (), function) }
}

unsafe extern "C" fn load<P: KvCache>(host: *const CHost, state: *mut c_void, hit: *const KvHit) -> u32 {
    // SAFETY: as above.
    unsafe { with_state(host, state, 1, |state: &mut NativeState<P>| u32::from(state.policy.load(&*hit))) }
}

unsafe extern "C" fn disaggregate<P: Disaggregation>(
    host: *const CHost,
    state: *mut c_void,
    request: *const RoutedRequest,
    decode: *const c_void,
    decode_count: usize,
    prefill: *const c_void,
    prefill_count: usize,
    stride: usize,
    result: *mut PrefillChoice,
) {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let (request, decode) = unsafe { (&*request, rows::<PoolInstance>(decode, decode_count, stride)) };
        // SAFETY: as above.
        let prefill = unsafe { rows::<PoolInstance>(prefill, prefill_count, stride) };
        let choice = state.policy.disaggregate(request, &decode, &prefill);
        // SAFETY: the host's result.
        unsafe { *result = choice };
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, (), function) }
}

unsafe extern "C" fn evict<P: Eviction>(
    host: *const CHost,
    state: *mut c_void,
    now_us: u64,
    demand: *const Band,
    in_flight: *const c_void,
    count: usize,
    stride: usize,
) -> u32 {
    let function = |state: &mut NativeState<P>| {
        // SAFETY: as above.
        let (demand, in_flight) = unsafe { (&*demand, rows::<InFlight>(in_flight, count, stride)) };
        let victim = state.policy.evict(now_us, demand, &in_flight);
        let Some(index) = victim else { return NONE_U32 };
        // The largest index stands for none.
        u32::try_from(index).unwrap_or(NONE_U32 - 1)
    };
    // SAFETY: as above.
    unsafe { with_state(host, state, NONE_U32, function) }
}

unsafe extern "C" fn observe<P: Lifecycle>(host: *const CHost, state: *mut c_void, event: *const Event) {
    // SAFETY: as above.
    unsafe { with_state(host, state, (), |state: &mut NativeState<P>| state.policy.observe(&*event)) }
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
