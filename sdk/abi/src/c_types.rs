//! The C interface, struct by struct, but for the table of functions: what policies and host pass to each other.

use core::ffi::c_void;
use core::ptr;

use crate::layout::structs;
use crate::rows::{Ages, InstanceInfo, Request};

structs! {
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

/// What a function gets, each where its type has it.
#[derive(Clone, Copy, Debug)]
pub struct CArguments {
    /// The request of the decision.
    pub request: *const Request,
    /// Ages of the columns of the instances.
    pub ages: *const Ages,
    /// Time of the decision, µs.
    pub now_us: u64,
    /// The number, of a floating-point number the bits.
    pub number: u64,
    /// The row.
    pub row: *const c_void,
    /// Addresses and lengths of the lists; of a function that gets the instances, theirs.
    pub lists: [(*const c_void, usize); 2],
    /// Distance from one row of the lists to the next, bytes.
    pub stride: usize,
    /// Where numbers are written.
    pub numbers: *mut f64,
    /// Where a row is written.
    pub result: *mut c_void,
}

/// What a function returned.
#[derive(Clone, Copy, Debug)]
pub enum CResult {
    /// An index, or yes or no.
    Index(u32),
    /// A whole number; of one that may be below 0 the bits.
    Whole(u64),
    /// A floating-point number.
    Real(f64),
    /// 1 if the request is admitted, and the reason if it is not.
    Admitted(u32, CText),
    /// It wrote its result.
    Written,
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
