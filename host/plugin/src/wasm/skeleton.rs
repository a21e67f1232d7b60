//! The skeleton of a standard component: the component with a module whose functions do nothing.
//!
//! Wasmtime checks the types of a component only when it compiles it. The skeleton has the same types, and compiles at
//! once; so of a standard component nothing but its module is compiled, and that once.

use std::ops::Range;

use wasmparser::{BinaryReader, Parser, Payload, RefType, ValType};

/// Bytes of a header: magic number and version.
const HEADER_BYTES: usize = 8;
/// Section of a core module with the bodies of functions.
const CODE_SECTION: u8 = 10;
/// Sections of a core module that stay: types, imports, functions, tables, memories, globals, exports, tags. What initialises
/// memory and tables is left out, and so is the start function.
const KEPT_SECTIONS: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 13];

/// The skeleton of `component`, whose only module of its own lies in `module`. `None` if a function returns something
/// that has no zero.
pub(super) fn of(component: &[u8], module: &Range<usize>) -> Option<Vec<u8>> {
    let emptied = emptied(&component[module.clone()])?;
    let mut skeleton = component.get(..HEADER_BYTES)?.to_vec();
    let mut reader = BinaryReader::new(component.get(HEADER_BYTES..)?, HEADER_BYTES);
    while !reader.eof() {
        let (id, size) = (reader.read_u8().ok()?, reader.read_var_u32().ok()? as usize);
        let start = reader.original_position();
        let bytes = reader.read_bytes(size).ok()?;
        section(&mut skeleton, id, if (start..start + size) == *module { &emptied } else { bytes });
    }
    Some(skeleton)
}

/// `module` with functions that return zeros.
fn emptied(module: &[u8]) -> Option<Vec<u8>> {
    let mut emptied = module.get(..HEADER_BYTES)?.to_vec();
    // Results of the types of functions, by number; `None` for other types.
    let mut types: Vec<Option<Vec<ValType>>> = Vec::new();
    let mut functions: Vec<u32> = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.ok()?;
        match &payload {
            Payload::TypeSection(section) => {
                for group in section.clone() {
                    for kind in group.ok()?.into_types() {
                        let function = match &kind.composite_type.inner {
                            wasmparser::CompositeInnerType::Func(function) => Some(function.results().to_vec()),
                            _ => None,
                        };
                        types.push(function);
                    }
                }
            }
            Payload::FunctionSection(section) => {
                for kind in section.clone() {
                    functions.push(kind.ok()?);
                }
            }
            Payload::CodeSectionStart { .. } => {
                let mut code = Vec::new();
                push_number(&mut code, functions.len());
                for kind in &functions {
                    let body = body(types.get(*kind as usize)?.as_ref()?)?;
                    push_number(&mut code, body.len());
                    code.extend(body);
                }
                section(&mut emptied, CODE_SECTION, &code);
            }
            _ => {}
        }
        if let Some((id, range)) = payload.as_section()
            && KEPT_SECTIONS.contains(&id)
        {
            section(&mut emptied, id, module.get(range)?);
        }
    }
    Some(emptied)
}

/// A body without local variables that returns zeros.
fn body(results: &[ValType]) -> Option<Vec<u8>> {
    let mut body = vec![0];
    for result in results {
        match *result {
            ValType::I32 => body.extend([0x41, 0]),
            ValType::I64 => body.extend([0x42, 0]),
            ValType::F32 => body.extend([0x43, 0, 0, 0, 0]),
            ValType::F64 => body.extend([0x44, 0, 0, 0, 0, 0, 0, 0, 0]),
            ValType::V128 => {
                body.extend([0xfd, 0x0c]);
                body.extend([0; 16]);
            }
            ValType::Ref(RefType::FUNCREF) => body.extend([0xd0, 0x70]),
            ValType::Ref(RefType::EXTERNREF) => body.extend([0xd0, 0x6f]),
            ValType::Ref(_) => return None,
        }
    }
    body.push(0x0b);
    Some(body)
}

fn section(to: &mut Vec<u8>, id: u8, content: &[u8]) {
    to.push(id);
    push_number(to, content.len());
    to.extend(content);
}

/// Appends `number` as LEB128.
fn push_number(to: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}
