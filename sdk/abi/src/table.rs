//! The C interface (`sdk/c/blis_policy.h`), struct by struct: a native library exports one [`PolicyTable`] of
//! functions. Rows are at the root of this crate.

use core::ffi::c_void;

pub use crate::c_types::{
    CArguments, CDescription, CHost, CModelFact, CParameter, CResult, CSetup, CText, CTexts, CValue,
};
pub use crate::functions::PolicyFunctions;
use crate::layout::structs;
use crate::rows::{Ages, Event, Queued, Request, Running, Step};

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
        /// The functions of kinds.
        pub functions: PolicyFunctions,
    }
}

impl PolicyTable {
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
            functions: PolicyFunctions::NONE,
        }
    };
}
