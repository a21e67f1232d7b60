//! The C interface (`sdk/c/blis_policy.h`), struct by struct: a native library exports one [`PolicyTable`] of
//! functions. Rows are at the root of this crate.

use core::ffi::c_void;
use core::ptr;

use crate::decisions::Function;
use crate::layout::structs;
use crate::rows::{
    Ages, Band, ChunkOffer, DrainGroup, Event, InstanceInfo, KvHit, LatencyConstants, PrefillChoice, Queued, Request,
    RoutedRequest, Running, StartingReplica, Step,
};

/// The version of the C interface, `BLIS_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;

/// The type of the only symbol that a library exports, `blis_plugin_v1`.
pub type EntryPoint = unsafe extern "C" fn() -> *const PolicyTable;

/// The structs with sizes in the table, in that order.
pub const STRUCTS: [(&str, usize); 7] = [
    ("blis_request", size_of::<Request>()),
    ("blis_ages", size_of::<Ages>()),
    ("blis_queued", size_of::<Queued>()),
    ("blis_running", size_of::<Running>()),
    ("blis_step", size_of::<Step>()),
    ("blis_event", size_of::<Event>()),
    ("blis_value", size_of::<CValue>()),
];

structs! {
    /// `blis_policy_v1`. Functions of kinds that the description does not name may be missing.
    #[derive(Clone, Copy, Debug)]
    pub struct PolicyTable {
        /// Version of the interface: [`ABI_VERSION`].
        pub abi_version: u32,
        /// Size of this struct, bytes.
        pub size: u32,
        /// Sizes of the [`STRUCTS`], bytes.
        pub struct_sizes: [u32; 7],
        /// Reserved; must be 0.
        pub reserved: u32,
        /// Returns the description, which is valid as long as the library.
        pub describe: Option<unsafe extern "C" fn() -> *const CDescription>,
        /// Creates a state; returns null, after a call of `fail`, if that is impossible.
        pub create: Option<unsafe extern "C" fn(*const CHost, *const CSetup) -> *mut c_void>,
        /// Frees a state that `create` returned.
        pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
        /// Writes a state into a buffer of the given capacity, and returns how many bytes the state needs.
        pub save: Option<unsafe extern "C" fn(*const CHost, *const c_void, *mut u8, usize) -> usize>,
        /// Restores a saved state; returns 0 if that is impossible.
        pub restore: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const u8, usize) -> u32>,
        /// Returns 1 to admit; 0 to reject, with a reason that stays valid until the next call.
        pub admit: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut CText,
        ) -> u32>,
        /// Returns the index of the chosen instance.
        pub route: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize,
        ) -> u32>,
        /// Writes one score per instance.
        pub scores: Option<unsafe extern "C" fn(
            *const CHost, *const c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut f64,
        )>,
        /// Returns the priority: a higher number goes first.
        pub priority: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request) -> i64>,
        /// Returns the rank: the smallest is scheduled first.
        pub rank: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, *const Queued) -> f64>,
        /// Returns the index of the preemption victim.
        pub victim: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, u64, u32, *const c_void, usize, usize,
        ) -> u32>,
        /// Writes the constant times of a latency model, µs.
        pub constants: Option<unsafe extern "C" fn(*const CHost, *const c_void, *mut LatencyConstants)>,
        /// Returns the time from arrival to the waiting queue, µs.
        pub queueing_time: Option<unsafe extern "C" fn(*const CHost, *const c_void, u32) -> u64>,
        /// Returns the duration of an engine step, µs.
        pub step_time: Option<unsafe extern "C" fn(*const CHost, *const c_void, *const Step) -> u64>,
        /// Delivers an event that the policy subscribes to.
        pub observe: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Event)>,
        /// Writes one number per instance: 0 leaves it out. Since 1.1; shorter tables do not have it.
        pub filter: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut f64,
        )>,
        /// Returns how full the service is: 1 is full. Since 1.1, as all that follow.
        pub saturation: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, u64, *const Ages, *const c_void, usize, usize,
        ) -> f64>,
        /// Writes one ceiling per band.
        pub ceilings: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, u64, f64, *const c_void, usize, usize, *mut f64,
        )>,
        /// Returns the index of the flow that is served next.
        pub fair_pick: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, u64, f64, *const Band, *const c_void, usize, usize,
        ) -> u32>,
        /// Returns the rank in the flow: the smallest goes first.
        pub order: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, u64) -> f64>,
        /// Returns the index of the request that is evicted; the largest number for none.
        pub evict: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, u64, *const Band, *const c_void, usize, usize,
        ) -> u32>,
        /// Writes one number of replicas per group; below 0 it says none.
        pub scale: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, u64, *const c_void, usize, *const c_void, usize, usize, *mut f64,
        )>,
        /// Returns the index of the replica that is removed.
        pub drain: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, *const DrainGroup, *const c_void, usize, usize,
        ) -> u32>,
        /// Returns the index of the node of a replica; the largest number for none.
        pub placement: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, *const StartingReplica, *const c_void, usize, usize,
        ) -> u32>,
        /// Writes one rank per chunk: the smallest is evicted first.
        pub keep: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, u64, *const c_void, usize, usize, *mut f64,
        )>,
        /// Writes for each chunk whether it is stored; 0 is no.
        pub store: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, *const ChunkOffer, *const c_void, usize, usize, *mut f64,
        )>,
        /// Returns whether a request loads what was found; 0 is no.
        pub load: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const KvHit) -> u32>,
        /// Writes where a request is prefilled and decoded: rows of the instances that decode, and of those that prefill.
        pub disaggregate: Option<unsafe extern "C" fn(
            *const CHost, *mut c_void, *const RoutedRequest, *const c_void, usize, *const c_void, usize, usize,
            *mut PrefillChoice,
        )>,
    }

    /// `blis_description`: what a policy is and needs.
    #[derive(Debug)]
    pub struct CDescription {
        /// Name of the policy, one word.
        pub name: CText,
        /// Version of the policy, in any form.
        pub version: CText,
        /// One line about the policy.
        pub about: CText,
        /// Names of [`crate::Kind`]s.
        pub kinds: CTexts,
        /// Names of [`crate::Column`]s, in the order of the rows.
        pub reads: CTexts,
        /// Names of events ([`crate::EventSet`]).
        pub events: CTexts,
        /// 1 if the table has `scores`.
        pub scores: u32,
        /// 1 if a step may get shorter as contexts grow.
        pub every_step: u32,
        /// Address of the first parameter.
        pub parameters: *const CParameter,
        /// Number of declared parameters.
        pub parameter_count: usize,
    }

    /// `blis_texts`: a list of texts.
    #[derive(Clone, Copy, Debug)]
    pub struct CTexts {
        /// Address of the first text.
        pub items: *const CText,
        /// Number of texts.
        pub count: usize,
    }

    /// `blis_value`: the value of a parameter.
    #[derive(Clone, Copy, Debug)]
    pub struct CValue {
        /// [`CValue::NUMBER`], [`CValue::TEXT`] or [`CValue::TABLE`].
        pub kind: u32,
        /// Of a table: numbers in a row.
        pub columns: u32,
        /// Of a number: itself.
        pub number: f64,
        /// Of a text: itself.
        pub text: CText,
        /// Of a table: address of the first number, row by row.
        pub numbers: *const f64,
        /// Of a table: number of all its numbers.
        pub count: usize,
    }

    /// `blis_parameter`: a value that users may set.
    #[derive(Debug)]
    pub struct CParameter {
        /// Name of the parameter, one word.
        pub name: CText,
        /// One line about the parameter.
        pub about: CText,
        /// The value unless the user sets one. Other values have the same case, and tables as many columns.
        pub default_value: CValue,
        /// Smallest number that is allowed.
        pub min: f64,
        /// Largest number that is allowed.
        pub max: f64,
    }

    /// `blis_text`: any bytes, without a terminating 0.
    #[derive(Clone, Copy, Debug)]
    pub struct CText {
        /// Address of the first byte.
        pub data: *const u8,
        /// Length of the text, bytes.
        pub len: usize,
    }

    /// `blis_host`: the functions that a policy may call during a call. The context is the first argument of each.
    #[derive(Debug)]
    pub struct CHost {
        /// Private data of the host.
        pub context: *mut c_void,
        /// Writes a line to the log of the run.
        pub log: unsafe extern "C" fn(*mut c_void, u32, CText),
        /// Reports that the call in progress cannot return a valid result.
        pub fail: unsafe extern "C" fn(*mut c_void, CText),
        /// Returns the next number of the policy's stream.
        pub random: unsafe extern "C" fn(*mut c_void) -> u64,
        /// Returns one of n equally good choices.
        pub pick: unsafe extern "C" fn(*mut c_void, u32) -> u32,
        /// The blocks of the prompt that may be shared: their number, and their address.
        pub prompt_blocks: unsafe extern "C" fn(*mut c_void, *mut *const u32) -> usize,
        /// Returns the text of a name.
        pub text: unsafe extern "C" fn(*mut c_void, u32) -> CText,
        /// The indices of instances that may differ from the previous decision: their number, and their address;
        /// `usize::MAX` if any may.
        pub changed: unsafe extern "C" fn(*mut c_void, *mut *const u32) -> usize,
    }

    /// `blis_setup`: the configuration of a state.
    #[derive(Debug)]
    pub struct CSetup {
        /// Name of the kind for which the state is used.
        pub kind: CText,
        /// Address of the first instance.
        pub instances: *const InstanceInfo,
        /// Number of instances of the service.
        pub instance_count: usize,
        /// Values of the parameters, as many as declared, in that order.
        pub parameters: *const CValue,
        /// Metadata of model and hardware.
        pub model_facts: *const CModelFact,
        /// Number of metadata values.
        pub model_fact_count: usize,
    }

    /// `blis_model_fact`: one number of the metadata.
    #[derive(Debug)]
    pub struct CModelFact {
        /// Name of the value, as `num_layers`.
        pub name: CText,
        /// The value, in the unit that its name implies.
        pub value: f64,
    }
}

impl CText {
    /// The empty text, with a null pointer.
    pub const EMPTY: Self = Self { data: ptr::null(), len: 0 };

    /// The bytes of `text`, valid as long as `text` lives.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self { data: text.as_ptr(), len: text.len() }
    }
}

impl CValue {
    /// Kind of a number.
    pub const NUMBER: u32 = 0;
    /// Kind of a text.
    pub const TEXT: u32 = 1;
    /// Kind of a table.
    pub const TABLE: u32 = 2;

    /// The value of a number.
    #[must_use]
    pub const fn number(number: f64) -> Self {
        Self { kind: Self::NUMBER, columns: 0, number, text: CText::EMPTY, numbers: ptr::null(), count: 0 }
    }
}

impl PolicyTable {
    /// Whether it has `function`.
    #[must_use]
    pub const fn has(&self, function: Function) -> bool {
        match function {
            Function::Admit => self.admit.is_some(),
            Function::Route => self.route.is_some(),
            Function::Scores => self.scores.is_some(),
            Function::Filter => self.filter.is_some(),
            Function::Priority => self.priority.is_some(),
            Function::Rank => self.rank.is_some(),
            Function::Victim => self.victim.is_some(),
            Function::Constants => self.constants.is_some(),
            Function::QueueingTime => self.queueing_time.is_some(),
            Function::StepTime => self.step_time.is_some(),
            Function::Saturation => self.saturation.is_some(),
            Function::Ceilings => self.ceilings.is_some(),
            Function::FairPick => self.fair_pick.is_some(),
            Function::Order => self.order.is_some(),
            Function::Evict => self.evict.is_some(),
            Function::Scale => self.scale.is_some(),
            Function::Drain => self.drain.is_some(),
            Function::Placement => self.placement.is_some(),
            Function::Keep => self.keep.is_some(),
            Function::Store => self.store.is_some(),
            Function::Load => self.load.is_some(),
            Function::Disaggregate => self.disaggregate.is_some(),
        }
    }

    /// A table of this version, without functions.
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
            observe: None,
            filter: None,
            saturation: None,
            ceilings: None,
            fair_pick: None,
            order: None,
            evict: None,
            scale: None,
            drain: None,
            placement: None,
            keep: None,
            store: None,
            load: None,
            disaggregate: None,
        }
    };
}
