//! A loaded library with a validated function table and description.

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;
use std::sync::Arc;

use blis_abi::decisions::Missing;
use blis_abi::table::{self, ABI_VERSION, CText, PolicyTable, STRUCTS};
use blis_sim::policy::Events;

use super::host::copied;
use crate::describe::{Declared, DeclaredNames, DeclaredParameter, DeclaredValue, parted};
use crate::limits::{DECLARED_NAMES, PARAMETERS, TABLE_NUMBERS};
use crate::{Fault, FaultKind, Function, Kind, Limits, PolicyDescription, ValueTable};

/// The hint for a library that was built for another version of the interface.
const REBUILD: &str = "build it anew with the sdk/c/blis_policy.h of this host";

/// A library with a validated table and description.
pub(super) struct Library {
    pub file: Arc<str>,
    pub table: PolicyTable,
    pub functions: LibraryFunctions,
    pub description: PolicyDescription,
}

/// The functions that every library has.
pub(super) struct LibraryFunctions {
    pub create: unsafe extern "C" fn(*const table::CHost, *const table::CSetup) -> *mut c_void,
    pub destroy: unsafe extern "C" fn(*mut c_void),
    pub save: unsafe extern "C" fn(*const table::CHost, *const c_void, *mut u8, usize) -> usize,
    pub restore: unsafe extern "C" fn(*const table::CHost, *mut c_void, *const u8, usize) -> u32,
}

impl Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Library {
    pub fn new(mut table: PolicyTable, file: Arc<str>, limits: &Limits) -> Result<Self, Fault> {
        let missing = |function: &str| {
            let what = format!("`{function}` is NULL in its table; fill it in");
            at(&file, FaultKind::MissingExport, &what)
        };
        let describe = table.describe.ok_or_else(|| missing("describe"))?;
        let functions = LibraryFunctions {
            create: table.create.ok_or_else(|| missing("create"))?,
            destroy: table.destroy.ok_or_else(|| missing("destroy"))?,
            save: table.save.ok_or_else(|| missing("save"))?,
            restore: table.restore.ok_or_else(|| missing("restore"))?,
        };
        // SAFETY: the header gives the function this type.
        let described = unsafe { describe() };
        // SAFETY: the header requires a description that stays valid.
        let description = unsafe { description(described, &file, limits) }?.checked(&file, limits)?;
        if let Some(function) = lacks(&table, &description) {
            return Err(missing(function));
        }
        table.functions.scores = table.functions.scores.filter(|_| description.scores);
        Ok(Self { file, table, functions, description })
    }

    #[cold]
    pub fn fault(&self, kind: FaultKind, what: &str) -> Fault {
        at(&self.file, kind, what)
    }
}

pub(super) fn at(file: &str, kind: FaultKind, what: &str) -> Fault {
    Fault::new(kind, what).at(blis_diag::Location::file(file))
}

/// The message of the loader, without the errors that wrap it.
pub(super) fn cause(error: &libloading::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string().replace(char::is_control, " ")
}

/// The table of `library`, if its version and struct sizes are those of this host.
pub(super) fn table_of(library: &'static libloading::Library, file: &str) -> Result<PolicyTable, Fault> {
    // SAFETY: the header gives a symbol of that name this type.
    let Ok(entry) = (unsafe { library.get::<table::EntryPoint>(b"blis_plugin_v1\0") }) else {
        return Err(no_entry(library, file));
    };
    // SAFETY: as above.
    let table = unsafe { entry() };
    if table.is_null() || !table.is_aligned() {
        return Err(at(
            file,
            FaultKind::MissingExport,
            "blis_plugin_v1 returned no table; return the address of a static one",
        ));
    }
    // SAFETY: every version of the table begins with two u32: its version and its size.
    let (version, size) = unsafe { ((&raw const (*table).abi_version).read(), (&raw const (*table).size).read()) };
    if version != ABI_VERSION {
        let what = format!("built for ABI {version}, this host offers {ABI_VERSION}");
        return Err(at(file, FaultKind::VersionSkew, &what).hint(REBUILD));
    }
    let first = offset_of!(PolicyTable, functions.filter);
    if (size as usize) < first {
        let what = format!("its table has {size} bytes, that of the first version of the interface has {first}");
        return Err(at(file, FaultKind::VersionSkew, &what).hint(REBUILD));
    }
    // SAFETY: at most its declared size is read; functions that it does not have yet are missing, which is all zeros, as
    // numbers may be.
    let table = unsafe {
        let mut ours = MaybeUninit::<PolicyTable>::zeroed();
        let bytes = (size as usize).min(size_of::<PolicyTable>());
        ptr::copy_nonoverlapping(table.cast::<u8>(), ours.as_mut_ptr().cast::<u8>(), bytes);
        ours.assume_init()
    };
    for ((name, ours), theirs) in STRUCTS.into_iter().zip(table.struct_sizes) {
        if ours != theirs as usize {
            let what = format!("built with a `{name}` of {theirs} bytes, this host's has {ours}");
            return Err(at(file, FaultKind::VersionSkew, &what).hint(REBUILD));
        }
    }
    Ok(table)
}

#[cold]
fn no_entry(library: &'static libloading::Library, file: &str) -> Fault {
    let newer = (2..=9).find(|version| {
        let name = format!("blis_plugin_v{version}\0");
        // SAFETY: the symbol is looked up, not called.
        unsafe { library.get::<table::EntryPoint>(name.as_bytes()) }.is_ok()
    });
    if let Some(version) = newer {
        let what = format!("built for ABI {version}, this host offers {ABI_VERSION}");
        return at(file, FaultKind::VersionSkew, &what).hint(REBUILD);
    }
    at(file, FaultKind::MissingExport, "no plugin: it does not export `blis_plugin_v1`")
        .hint("sdk/c/blis_policy.h declares it; in C++ it needs `extern \"C\"`")
}

/// A copy of the description that the library returned.
///
/// # Safety
/// `described` is NULL or points to a valid description with valid texts and parameters.
unsafe fn description(
    described: *const table::CDescription,
    file: &str,
    limits: &Limits,
) -> Result<PolicyDescription, Fault> {
    if described.is_null() || !described.is_aligned() {
        return Err(at(
            file,
            FaultKind::MissingExport,
            "describe returned nothing; return the address of a static description",
        ));
    }
    // SAFETY: the caller guarantees it.
    let raw = unsafe { described.read() };
    let count = raw.parameter_count;
    if count > PARAMETERS || (count > 0 && (raw.parameters.is_null() || !raw.parameters.is_aligned())) {
        let what = format!("describe: {count} parameters, or a NULL instead of them; there may be {PARAMETERS}");
        return Err(at(file, FaultKind::OutOfRange, &what));
    }
    // SAFETY: the caller guarantees it.
    let text = |text: CText| unsafe { copied(text, limits.message_bytes) };
    let texts = |what: &str, list: table::CTexts| {
        if list.count > DECLARED_NAMES || (list.count > 0 && (list.items.is_null() || !list.items.is_aligned())) {
            let what =
                format!("describe: {} {what}, or a NULL instead of them; there may be {DECLARED_NAMES}", list.count);
            return Err(at(file, FaultKind::OutOfRange, &what));
        }
        // SAFETY: the caller guarantees that there are so many.
        Ok((0..list.count).map(|i| text(unsafe { list.items.add(i).read() })).collect())
    };
    let names = DeclaredNames {
        kinds: texts("kinds", raw.kinds)?,
        reads: texts("columns", raw.reads)?,
        events: texts("events", raw.events)?,
    };
    let Declared { kinds, columns, reads, events } = names.known().map_err(|(kind, what)| at(file, kind, &what))?;
    let value = |value: table::CValue, name: &str| match value.kind {
        table::CValue::NUMBER => Ok(DeclaredValue::Number(value.number)),
        table::CValue::TEXT => Ok(DeclaredValue::Text(text(value.text))),
        table::CValue::TABLE if value.count <= TABLE_NUMBERS && (value.count == 0 || !value.numbers.is_null()) => {
            // SAFETY: the caller guarantees that there are so many.
            let numbers = (0..value.count).map(|i| unsafe { value.numbers.add(i).read() }).collect();
            Ok(DeclaredValue::Table(ValueTable { columns: value.columns, numbers }))
        }
        _ => {
            let what = format!(
                "describe: the default of parameter `{name}` is no number, no text, and no table of at most \
                 {TABLE_NUMBERS} numbers"
            );
            Err(at(file, FaultKind::OutOfRange, &what))
        }
    };
    let parameter = |i: usize| {
        // SAFETY: the caller guarantees that there are `count` of them.
        let parameter = unsafe { raw.parameters.add(i).read() };
        let table::CParameter { name, about, default_value, min, max } = parameter;
        let name = text(name);
        Ok(DeclaredParameter { default: value(default_value, &name)?, about: text(about), name, min, max })
    };
    let (parameters, others) = parted((0..count).map(parameter).collect::<Result<_, Fault>>()?);
    Ok(PolicyDescription {
        name: text(raw.name),
        version: text(raw.version),
        about: text(raw.about),
        kinds,
        columns,
        reads,
        events,
        scores: raw.scores != 0,
        every_step: raw.every_step != 0,
        parameters,
        others,
    })
}

/// The first function that the description requires and `table` lacks.
fn lacks(table: &PolicyTable, description: &PolicyDescription) -> Option<&'static str> {
    let is_needed = |function: &Function| match function.row().missing {
        Missing::Never | Missing::InScripts(_) => true,
        Missing::WithoutScores => description.scores,
        Missing::Decides(_) => false,
    };
    let of_kinds = Kind::ALL.into_iter().filter(|kind| description.kinds.contains(kind));
    let mut needed = of_kinds.flat_map(Kind::functions).copied().filter(is_needed);
    let lacks_observe = description.events != Events::NONE && table.functions.observe.is_none();
    let missing = needed.find(|&function| !table.functions.has(function)).map(Function::name);
    missing.or(lacks_observe.then_some("observe"))
}
