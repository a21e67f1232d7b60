//! Exports: one policy in Rust as a WebAssembly module or as a native library.

#[cfg(not(target_arch = "wasm32"))]
pub mod native;
#[cfg(target_arch = "wasm32")]
pub mod wasm;

use std::panic::PanicHookInfo;

use crate::description::{Description, EventSet, Kind};
use crate::policy::Policy;
use crate::rows::Signals;

/// The kinds that `export_policy!` names, and whether it names `Lifecycle`.
#[derive(Clone, Copy, Debug)]
pub struct Exported {
    /// By [`Kind`] as a number.
    kinds: [bool; Kind::ALL.len()],
    lifecycle: bool,
}

impl Exported {
    /// Nothing.
    pub const NOTHING: Self = Self { kinds: [false; Kind::ALL.len()], lifecycle: false };

    /// The kind with the trait `name`, or `Lifecycle`.
    ///
    /// # Panics
    /// If there is no such trait; `export_policy!` calls it at compile time.
    #[must_use]
    pub const fn one(name: &str) -> Self {
        let (mut exported, mut kind) = (Self::NOTHING, 0);
        while kind < Kind::ALL.len() && !is_equal(name, Kind::ALL[kind].row().rust) {
            kind += 1;
        }
        if kind < Kind::ALL.len() {
            exported.kinds[kind] = true;
        } else {
            assert!(is_equal(name, "Lifecycle"), "export_policy! names the traits of kinds, and Lifecycle");
            exported.lifecycle = true;
        }
        exported
    }

    /// These, and those of `other`.
    #[must_use]
    pub const fn and(mut self, other: Self) -> Self {
        let mut kind = 0;
        while kind < other.kinds.len() {
            self.kinds[kind] |= other.kinds[kind];
            kind += 1;
        }
        self.lifecycle |= other.lifecycle;
        self
    }

    /// The names of the kinds.
    fn names(self) -> impl Iterator<Item = &'static str> {
        Kind::ALL.into_iter().filter(move |&kind| self.kinds[kind as usize]).map(Kind::name)
    }
}

const fn is_equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut equal = 0;
    while equal < a.len() && equal < b.len() && a[equal] == b[equal] {
        equal += 1;
    }
    equal == a.len() && equal == b.len()
}

/// The names of the columns that `P` reads.
fn reads<P: Policy>() -> impl Iterator<Item = &'static str> {
    <P::Signals as Signals>::COLUMNS.iter().map(|column| column.name())
}

/// The kind called `name`, for which the host uses the policy.
fn kind_of(name: &str) -> Kind {
    Kind::of(name).unwrap_or_else(|| panic!("the host uses the policy as `{name}`, a kind that this SDK does not have"))
}

/// The description of `P`, checked against what is exported.
fn description<P: Policy>(exported: Exported) -> Description {
    let description = P::describe();
    assert!(
        description.events == EventSet::NONE || exported.lifecycle,
        "`{}` subscribes to events: add Lifecycle to export_policy!",
        description.name
    );
    assert!(
        !description.scores || exported.kinds[Kind::Routing as usize],
        "`{}` implements scores, which belong to routing: add Routing to export_policy!",
        description.name
    );
    description
}

/// Serialises the state of `policy`. Equal states give equal bytes.
fn save<P: Policy>(policy: &P) -> Vec<u8> {
    match postcard::to_allocvec(policy) {
        Ok(bytes) => bytes,
        Err(error) => panic!("the state cannot be saved: {error}"),
    }
}

/// Deserialises the policy with the state `bytes`.
fn restored<P: Policy>(bytes: &[u8]) -> Result<P, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((policy, [])) => Ok(policy),
        Ok((_, rest)) => Err(format!("not a state of this policy: {} bytes too many", rest.len())),
        Err(error) => Err(format!("not a state of this policy: {error}")),
    }
}

/// The message of a panic, with its source location.
fn panic_text(info: &PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("panic");
    match info.location() {
        Some(at) => format!("panicked at {}:{}:{}: {what}", at.file(), at.line(), at.column()),
        None => format!("panicked: {what}"),
    }
}

/// Exports a policy: its type, and the traits that it implements.
///
/// ```text
/// blis_sdk::export_policy!(MyPolicy: Routing, Lifecycle);
/// ```
///
/// Used once per crate, with a `crate-type` that contains `"cdylib"`.
#[macro_export]
macro_rules! export_policy {
    ($policy:ty: $($kind:ident),+ $(,)?) => {
        #[allow(non_camel_case_types, unsafe_code, clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]
        const _: () = {
            use $crate::export as __sdk;

            type __Policy = $policy;
            const EXPORTED: __sdk::Exported = __sdk::Exported::NOTHING$(.and(__sdk::Exported::one(stringify!($kind))))+;

            #[cfg(target_arch = "wasm32")]
            static GUEST: __sdk::wasm::ModulePolicy<__Policy> = __sdk::wasm::ModulePolicy::new();
            #[cfg(target_arch = "wasm32")]
            $crate::__blis_wasm_plugin!();
            $(
                #[cfg(target_arch = "wasm32")]
                $crate::__blis_wasm!($kind);
            )+

            #[cfg(not(target_arch = "wasm32"))]
            extern "C" fn describe() -> *const __sdk::native::table::CDescription {
                static DESCRIPTION: __sdk::native::DescriptionCell = __sdk::native::DescriptionCell::new();
                DESCRIPTION.of::<__Policy>(EXPORTED)
            }

            #[cfg(not(target_arch = "wasm32"))]
            static TABLE: __sdk::native::NativeTable<__Policy> =
                __sdk::native::NativeTable::<__Policy>::new(describe)$(.$kind())+;

            #[cfg(not(target_arch = "wasm32"))]
            #[unsafe(no_mangle)]
            extern "C" fn blis_plugin_v1() -> *const __sdk::native::NativeTable<__Policy> {
                &raw const TABLE
            }
        };
    };
}
