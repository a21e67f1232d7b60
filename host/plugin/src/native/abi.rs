//! The C interface as it lies in memory: `sdk/c/blis_policy.h`, struct by struct. What policies see
//! is in [`crate::rows`].

use std::ffi::c_void;

use crate::rows::{AgesRow, EventRow, InstanceRow, QueuedRow, RequestRow, RunningRow, StepRow};

/// `BLIS_ABI_VERSION`.
pub(super) const ABI_VERSION: u32 = 1;

/// The one symbol of a library.
pub(super) type Entry = unsafe extern "C" fn() -> *const Table;

/// The structs whose sizes a table names, in that order.
pub(super) const STRUCTS: [(&str, usize); 7] = [
    ("blis_request", size_of::<RequestRow>()),
    ("blis_ages", size_of::<AgesRow>()),
    ("blis_instance", size_of::<InstanceRow>()),
    ("blis_queued", size_of::<QueuedRow>()),
    ("blis_running", size_of::<RunningRow>()),
    ("blis_step", size_of::<StepRow>()),
    ("blis_event", size_of::<EventRow>()),
];

/// `blis_text`: need not end in 0, may be anything.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Text {
    pub data: *const u8,
    pub len: usize,
}

impl Text {
    pub const EMPTY: Self = Self { data: std::ptr::null(), len: 0 };

    /// `text`, for as long as it lives.
    pub fn of(text: &str) -> Self {
        Self { data: text.as_ptr(), len: text.len() }
    }
}

/// `blis_parameter`.
#[repr(C)]
pub(super) struct Parameter {
    pub name: Text,
    pub about: Text,
    pub default_value: f64,
    pub min: f64,
    pub max: f64,
}

/// `blis_description`.
#[repr(C)]
pub(super) struct Description {
    pub name: Text,
    pub version: Text,
    pub about: Text,
    pub kinds: u32,
    pub reads: u32,
    pub events: u32,
    pub scores: u32,
    pub every_step: u32,
    pub parameter_count: u32,
    pub parameters: *const Parameter,
}

/// `blis_host`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Host {
    pub context: *mut c_void,
    pub log: unsafe extern "C" fn(*mut c_void, u32, Text),
    pub fail: unsafe extern "C" fn(*mut c_void, Text),
    pub random: unsafe extern "C" fn(*mut c_void) -> u64,
    pub pick: unsafe extern "C" fn(*mut c_void, u32) -> u32,
    pub prompt_blocks: unsafe extern "C" fn(*mut c_void, *mut *const u32) -> usize,
    pub text: unsafe extern "C" fn(*mut c_void, u32) -> Text,
    pub changed: unsafe extern "C" fn(*mut c_void, *mut *const u32) -> usize,
}

/// `blis_instance_info`.
#[repr(C)]
pub(super) struct InstanceInfo {
    pub id: u32,
    pub max_num_seqs: u32,
    pub total_kv_blocks: u32,
    pub block_size: u32,
}

/// `blis_fact`.
#[repr(C)]
pub(super) struct Fact {
    pub name: Text,
    pub value: f64,
}

/// `blis_setup`.
#[repr(C)]
pub(super) struct Setup {
    pub kind: u32,
    pub instance_count: u32,
    pub instances: *const InstanceInfo,
    pub parameters: *const f64,
    pub facts: *const Fact,
    pub fact_count: usize,
}

/// `blis_constants`.
#[derive(Default)]
#[repr(C)]
pub(super) struct Constants {
    pub shortest_step: u64,
    pub output_token: u64,
    pub post_decode: u64,
    pub scheduling: u64,
    pub preemption: u64,
}

type State = *mut c_void;

/// `blis_policy_v1`. Any function may be missing.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Table {
    pub abi_version: u32,
    pub size: u32,
    pub struct_sizes: [u32; 7],
    pub reserved: u32,
    pub describe: Option<unsafe extern "C" fn() -> *const Description>,
    pub create: Option<unsafe extern "C" fn(*const Host, *const Setup) -> State>,
    pub destroy: Option<unsafe extern "C" fn(State)>,
    pub save: Option<unsafe extern "C" fn(*const Host, State, *mut u8, usize) -> usize>,
    pub restore: Option<unsafe extern "C" fn(*const Host, State, *const u8, usize) -> u32>,
    pub admit: Option<
        unsafe extern "C" fn(
            *const Host,
            State,
            *const RequestRow,
            *const AgesRow,
            *const InstanceRow,
            usize,
            usize,
            *mut Text,
        ) -> u32,
    >,
    pub route: Option<
        unsafe extern "C" fn(
            *const Host,
            State,
            *const RequestRow,
            *const AgesRow,
            *const InstanceRow,
            usize,
            usize,
        ) -> u32,
    >,
    pub scores: Option<
        unsafe extern "C" fn(
            *const Host,
            State,
            *const RequestRow,
            *const AgesRow,
            *const InstanceRow,
            usize,
            usize,
            *mut f64,
        ),
    >,
    pub priority: Option<unsafe extern "C" fn(*const Host, State, *const RequestRow) -> i64>,
    pub rank: Option<unsafe extern "C" fn(*const Host, State, *const RequestRow, *const QueuedRow) -> f64>,
    pub victim: Option<unsafe extern "C" fn(*const Host, State, u64, u32, *const RunningRow, usize, usize) -> u32>,
    pub constants: Option<unsafe extern "C" fn(*const Host, State, *mut Constants)>,
    pub queueing_time: Option<unsafe extern "C" fn(*const Host, State, u32) -> u64>,
    pub step_time: Option<unsafe extern "C" fn(*const Host, State, *const StepRow) -> u64>,
    pub notice: Option<unsafe extern "C" fn(*const Host, State, *const EventRow)>,
}

// What a C compiler says of the header on 64-bit machines, which a test asks it.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Text>() == 16 && size_of::<Parameter>() == 56 && size_of::<Description>() == 80);
    assert!(size_of::<Host>() == 64 && size_of::<InstanceInfo>() == 16 && size_of::<Fact>() == 24);
    assert!(size_of::<Setup>() == 40 && size_of::<Constants>() == 40 && size_of::<Table>() == 40 + 15 * 8);
};
