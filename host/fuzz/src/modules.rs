//! Modules of WebAssembly with random code: valid, so that they reach the compiler and are called.

use std::path::Path;

use arbitrary::{Result, Unstructured};
use blis_plugin::wasm::{CompileCache, WasmSettings};
use blis_plugin::{Limits, wasm};
use wasm_encoder::{CodeSection, ConstExpr, DataSection, Function, RawSection};
use wasm_smith::{Config, Module};
use wasmparser::{ExternalKind, Parser, Payload, TypeRef};

/// A router as the SDKs build it, for the imports and exports of its module.
const ROUTER: &[u8] = include_bytes!("../../../policies/c-least-loaded.wasm");

/// The functions with which a router with otherwise random code can be loaded: the end of the name, and the address that
/// it returns.
const FIXED: [(&str, i32); 6] = [
    ("cabi_realloc", 8192),
    ("blis_input", 16384),
    ("#describe", 16),
    ("#configure", 672),
    ("#save", 640),
    ("#restore", 672),
];
/// What lies at these addresses: the description of a router without parameters, its texts, lists of its kinds and columns, the
/// saved state of 8 bytes; and a result `ok`, all zeros.
const MEMORY: [(i32, &[u8]); 4] = [
    (16, b"\0\x01\0\0\x0c\0\0\0\x10\x01\0\0\x05\0\0\0 \x01\0\0\x0f\0\0\0P\x01\0\0\x01\0\0\0X\x01\0\0\x01\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0"),
    (256, b"least-loaded\0\0\0\01.0.0\0\0\0\0\0\0\0\0\0\0\0fewest requests\0routing\0in-flight"),
    (336, b"0\x01\0\0\x07\0\0\08\x01\0\0\x09\0\0\0"),
    (640, b"\x90\x02\0\0\x08\0\0\0"),
];

/// A module from `random`: with the exports of a router, or with any.
///
/// # Errors
/// If too few random bytes are left.
fn write(random: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let is_router = random.ratio(7, 8)?;
    let config = Config {
        module_shape: is_router.then(|| router().to_vec()),
        allow_start_export: !is_router && random.arbitrary()?,
        max_data_segments: if is_router { 0 } else { 10 },
        max_instructions: *random.choose(&[20, 100, 1000, 5000])?,
        max_funcs: *random.choose(&[10, 100])?,
        max_memory32_bytes: 1 << 24,
        max_memories: 1,
        allow_floats: true,
        bulk_memory_enabled: !is_router && random.arbitrary()?,
        simd_enabled: random.ratio(1, 8)?,
        reference_types_enabled: random.ratio(1, 8)?,
        gc_enabled: false,
        exceptions_enabled: false,
        memory64_enabled: false,
        threads_enabled: false,
        tail_call_enabled: random.ratio(1, 8)?,
        relaxed_simd_enabled: false,
        custom_page_sizes_enabled: false,
        wide_arithmetic_enabled: false,
        extended_const_enabled: false,
        multi_value_enabled: true,
        ..Config::default()
    };
    let fixed = is_router && random.ratio(7, 8)?;
    let module = Module::new(config, random)?.to_bytes();
    Ok(if fixed { with_fixed_functions(&module).unwrap_or(module) } else { module })
}

/// The module of [`ROUTER`], or that itself.
fn router() -> &'static [u8] {
    for payload in Parser::new(0).parse_all(ROUTER) {
        if let Ok(Payload::ModuleSection { unchecked_range, .. }) = payload {
            return &ROUTER[unchecked_range.start..unchecked_range.end];
        }
    }
    ROUTER
}

/// `module` with [`FIXED`] functions and the [`MEMORY`] that they need; `None` if it has no such functions.
fn with_fixed_functions(module: &[u8]) -> Option<Vec<u8>> {
    let (mut imported, mut fixed) = (0, Vec::new());
    let mut code = CodeSection::new();
    let mut result = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.ok()?;
        match &payload {
            Payload::ImportSection(section) => {
                let imports = section.clone().into_imports().collect::<std::result::Result<Vec<_>, _>>().ok()?;
                imported = imports.iter().filter(|import| matches!(import.ty, TypeRef::Func(_))).count() as u32;
            }
            Payload::ExportSection(section) => {
                for export in section.clone() {
                    let export = export.ok()?;
                    let address = FIXED.iter().find(|(name, _)| export.name.ends_with(name));
                    if let (ExternalKind::Func, Some((_, address))) = (export.kind, address) {
                        fixed.push((export.index, *address));
                    }
                }
            }
            Payload::CodeSectionEntry(body) => {
                match fixed.iter().find(|(index, _)| *index == imported + code.len()) {
                    Some((_, address)) => {
                        let mut function = Function::new([]);
                        function.instructions().i32_const(*address).end();
                        code.function(&function);
                    }
                    None => {
                        code.raw(body.as_bytes());
                    }
                }
                continue;
            }
            Payload::CodeSectionStart { .. } => continue,
            _ => {}
        }
        if let Some((id, range)) = payload.as_section() {
            result.section(&RawSection { id, data: module.get(range)? });
        }
    }
    result.section(&code);
    let mut data = DataSection::new();
    for (address, bytes) in MEMORY {
        data.active(0, &ConstExpr::i32_const(address), bytes.iter().copied());
    }
    result.section(&data);
    (fixed.len() >= FIXED.len()).then(|| result.finish())
}

/// How far a module came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Too few random bytes.
    Nothing,
    Refused,
    Called,
}

/// A module made of `bytes` loads, within the bounds of the compiler, and is called, or is refused.
pub fn generated_module(bytes: &[u8], limits: &Limits) -> Reached {
    let Ok(module) = write(&mut Unstructured::new(bytes)) else { return Reached::Nothing };
    let settings = WasmSettings { cache: CompileCache::Disabled, ..WasmSettings::default() };
    match wasm::load(Path::new("fuzz.wasm"), &module, limits, &settings) {
        Ok(plugin) => {
            crate::call_a_few_times(&*plugin, limits);
            Reached::Called
        }
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            Reached::Refused
        }
    }
}
