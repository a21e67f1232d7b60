//! The C interface (`sdk/c/blis_policy.h`), struct by struct: a native library is one [`Table`] of functions. Rows are
//! at the root of this crate.

use core::ffi::c_void;
use core::ptr;

use crate::layout::structs;
use crate::rows::{Ages, Constants, Event, Instance, InstanceInfo, Queued, Request, Running, Step};

/// `BLIS_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;

/// The one symbol of a library.
pub type Entry = unsafe extern "C" fn() -> *const Table;

/// The structs whose sizes a table names, in that order.
pub const STRUCTS: [(&str, usize); 7] = [
    ("blis_request", size_of::<Request>()),
    ("blis_ages", size_of::<Ages>()),
    ("blis_instance", size_of::<Instance>()),
    ("blis_queued", size_of::<Queued>()),
    ("blis_running", size_of::<Running>()),
    ("blis_step", size_of::<Step>()),
    ("blis_event", size_of::<Event>()),
];

structs! {
    /// `blis_policy_v1`. A function of a kind that the description does not name may be missing.
    #[derive(Clone, Copy, Debug)]
    pub struct Table {
        /// [`ABI_VERSION`].
        pub abi_version: u32,
        /// Its own size.
        pub size: u32,
        /// Those of [`STRUCTS`].
        pub struct_sizes: [u32; 7],
        /// 0.
        pub reserved: u32,
        /// The description, valid as long as the library.
        pub describe: Option<unsafe extern "C" fn() -> *const Description>,
        /// A state; null, after `fail`, if there can be none.
        pub create: Option<unsafe extern "C" fn(*const Host, *const Setup) -> *mut c_void>,
        /// Frees a state.
        pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
        /// Writes a state into a buffer of that capacity, and returns how many bytes it needs.
        pub save: Option<unsafe extern "C" fn(*const Host, *const c_void, *mut u8, usize) -> usize>,
        /// 0 if the state cannot be restored.
        pub restore: Option<unsafe extern "C" fn(*const Host, *mut c_void, *const u8, usize) -> u32>,
        /// 1 to admit; 0 to reject, with a reason that stays valid until the next call.
        pub admit: Option<unsafe extern "C" fn(
            *const Host, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut Text,
        ) -> u32>,
        /// The index of an instance.
        pub route: Option<unsafe extern "C" fn(
            *const Host, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize,
        ) -> u32>,
        /// Fills in one score per instance.
        pub scores: Option<unsafe extern "C" fn(
            *const Host, *const c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut f64,
        )>,
        /// Higher is more urgent.
        pub priority: Option<unsafe extern "C" fn(*const Host, *mut c_void, *const Request) -> i64>,
        /// The smallest is served first.
        pub rank: Option<unsafe extern "C" fn(*const Host, *mut c_void, *const Request, *const Queued) -> f64>,
        /// The index of the victim.
        pub victim: Option<unsafe extern "C" fn(
            *const Host, *mut c_void, u64, u32, *const c_void, usize, usize,
        ) -> u32>,
        /// The rare terms of a latency model.
        pub constants: Option<unsafe extern "C" fn(*const Host, *const c_void, *mut Constants)>,
        /// µs from arrival to the waiting queue.
        pub queueing_time: Option<unsafe extern "C" fn(*const Host, *const c_void, u32) -> u64>,
        /// µs of an engine step.
        pub step_time: Option<unsafe extern "C" fn(*const Host, *const c_void, *const Step) -> u64>,
        /// Something happened that the policy wants.
        pub notice: Option<unsafe extern "C" fn(*const Host, *mut c_void, *const Event)>,
    }

    /// `blis_description`.
    #[derive(Debug)]
    pub struct Description {
        /// Name of the policy.
        pub name: Text,
        /// Its own version.
        pub version: Text,
        /// What it is, in a line.
        pub about: Text,
        /// Bits of [`crate::Kind`].
        pub kinds: u32,
        /// Bits of [`crate::Reads`].
        pub reads: u32,
        /// Bits of [`crate::Events`].
        pub events: u32,
        /// 1 if the table has `scores`.
        pub scores: u32,
        /// 1 if a step may get shorter as contexts grow.
        pub every_step: u32,
        /// Number of parameters.
        pub parameter_count: u32,
        /// The parameters.
        pub parameters: *const Parameter,
    }

    /// `blis_parameter`.
    #[derive(Debug)]
    pub struct Parameter {
        /// Its name.
        pub name: Text,
        /// What it is, in a line.
        pub about: Text,
        /// Its value unless set.
        pub default_value: f64,
        /// The smallest value allowed.
        pub min: f64,
        /// The largest.
        pub max: f64,
    }

    /// `blis_text`: need not end in 0, may be anything.
    #[derive(Clone, Copy, Debug)]
    pub struct Text {
        /// Its first byte.
        pub data: *const u8,
        /// Bytes.
        pub len: usize,
    }

    /// `blis_host`: what a policy may ask for during a call. The context is the first argument of every function.
    #[derive(Debug)]
    pub struct Host {
        /// The host's own.
        pub context: *mut c_void,
        /// A line for the log of the run.
        pub log: unsafe extern "C" fn(*mut c_void, u32, Text),
        /// The call under way cannot be answered.
        pub fail: unsafe extern "C" fn(*mut c_void, Text),
        /// The next number of the policy's stream.
        pub random: unsafe extern "C" fn(*mut c_void) -> u64,
        /// One of n equally good choices.
        pub pick: unsafe extern "C" fn(*mut c_void, u32) -> u32,
        /// The blocks of the prompt that may be shared: how many, and where.
        pub prompt_blocks: unsafe extern "C" fn(*mut c_void, *mut *const u32) -> usize,
        /// The text of a name.
        pub text: unsafe extern "C" fn(*mut c_void, u32) -> Text,
        /// The instances that may differ from the decision before: how many, and where; `usize::MAX` if any may.
        pub changed: unsafe extern "C" fn(*mut c_void, *mut *const u32) -> usize,
    }

    /// `blis_setup`.
    #[derive(Debug)]
    pub struct Setup {
        /// The bit of the kind that the state is used for.
        pub kind: u32,
        /// Number of instances.
        pub instance_count: u32,
        /// The instances.
        pub instances: *const InstanceInfo,
        /// Values of the parameters, as many as declared, in that order.
        pub parameters: *const f64,
        /// What is known about model and hardware.
        pub facts: *const Fact,
        /// How many facts.
        pub fact_count: usize,
    }

    /// `blis_fact`.
    #[derive(Debug)]
    pub struct Fact {
        /// Its name, as `num_layers`.
        pub name: Text,
        /// Its value.
        pub value: f64,
    }
}

impl Text {
    /// No text.
    pub const EMPTY: Self = Self { data: ptr::null(), len: 0 };

    /// `text`, for as long as it lives.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self { data: text.as_ptr(), len: text.len() }
    }
}

impl Table {
    /// Of this version, without functions.
    pub const EMPTY: Self = {
        let mut struct_sizes = [0; STRUCTS.len()];
        let mut i = 0;
        while i < STRUCTS.len() {
            struct_sizes[i] = STRUCTS[i].1 as u32;
            i += 1;
        }
        Self {
            abi_version: ABI_VERSION,
            size: size_of::<Self>() as u32,
            struct_sizes,
            reserved: 0,
            describe: None,
            create: None,
            destroy: None,
            save: None,
            restore: None,
            admit: None,
            route: None,
            scores: None,
            priority: None,
            rank: None,
            victim: None,
            constants: None,
            queueing_time: None,
            step_time: None,
            notice: None,
        }
    };
}
