//! The C header has the structs and constants of this crate: in its text, and in the layout that a C compiler gives it.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use blis_abi::decisions::OutputShape;
use blis_abi::table::{
    ABI_VERSION, CDescription, CHost, CModelFact, CParameter, CSetup, CText, CTexts, CValue, PolicyFunctions,
    PolicyTable, STRUCTS,
};
use blis_abi::{Ages, Event, EventKind, Field, Function, InstanceInfo, Layout, Request, Row as _, RowShape};

/// A struct of the header, with the layout that this crate gives it.
struct HeaderStruct {
    name: String,
    size: usize,
    fields: Vec<Field>,
}

impl HeaderStruct {
    fn of<S: Layout>() -> Self {
        Self { name: c_name("blis", S::NAME), size: size_of::<S>(), fields: S::FIELDS.to_vec() }
    }

    fn row(row: &RowShape) -> Self {
        Self { name: c_name("blis", row.name), size: row.size, fields: row.fields.to_vec() }
    }

    /// The table of functions: in C one struct, in Rust two.
    fn table() -> Self {
        let (functions, head) = PolicyTable::FIELDS.split_last().expect("it has fields");
        let moved = |field: &Field| Field { offset: functions.offset + field.offset, ..*field };
        let fields = head.iter().copied().chain(PolicyFunctions::FIELDS.iter().map(moved)).collect();
        Self { name: "blis_policy_v1".to_owned(), size: size_of::<PolicyTable>(), fields }
    }

    fn all() -> Vec<Self> {
        let mut rows = vec![Request::SHAPE, Ages::SHAPE];
        for function in Function::ALL {
            let inputs = &function.row().inputs;
            rows.extend(inputs.row.iter().chain(inputs.lists));
            if let OutputShape::Record { shape, .. } = function.row().output {
                rows.push(shape);
            }
        }
        rows.push(Event::SHAPE);
        let mut known = Vec::new();
        rows.retain(|row| {
            !known.contains(&row.name) && {
                known.push(row.name);
                true
            }
        });
        let others = [
            Self::of::<CValue>(),
            Self::of::<CText>(),
            Self::of::<CTexts>(),
            Self::of::<CParameter>(),
            Self::of::<CDescription>(),
            Self::of::<CHost>(),
            Self::of::<InstanceInfo>(),
            Self::of::<CModelFact>(),
            Self::of::<CSetup>(),
            Self::table(),
        ];
        rows.iter().map(Self::row).chain(others).collect()
    }
}

/// `InstanceInfo` as `blis_instance_info`, `CSetup` as `blis_setup`.
fn c_name(prefix: &str, name: &str) -> String {
    let bare = name.strip_prefix('C').filter(|rest| rest.starts_with(char::is_uppercase)).unwrap_or(name);
    bare.chars().fold(prefix.to_owned(), |mut text, letter| {
        if letter.is_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
        text
    })
}

/// The constants of the header, with their values in this crate.
fn constants() -> Vec<(String, u32)> {
    let mut all = vec![
        ("BLIS_ABI_VERSION".to_owned(), ABI_VERSION),
        ("BLIS_IS_NUMBER".to_owned(), CValue::NUMBER),
        ("BLIS_IS_TEXT".to_owned(), CValue::TEXT),
        ("BLIS_IS_TABLE".to_owned(), CValue::TABLE),
    ];
    all.extend(EventKind::ALL.map(|kind| (c_name("BLIS", &format!("{kind:?}")).to_uppercase(), kind as u32)));
    all
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../c")
}

/// The text of the header without its comments.
fn header() -> String {
    let text = fs::read_to_string(folder().join("blis_policy.h")).expect("readable");
    let mut parts = text.split("/*");
    let mut code = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| code.push_str(part.split_once("*/").expect("comments end").1));
    code
}

/// The fields in the body of `typedef struct NAME { … }`: the text before each name, and the name.
fn fields<'h>(header: &'h str, name: &str) -> Vec<(&'h str, &'h str)> {
    let (_, body) = header.split_once(&format!("typedef struct {name} {{")).expect("the header has the struct");
    let (body, _) = body.split_once(&format!("}} {name};")).expect("it ends");
    let declarations = body.split(';').map(str::trim).filter(|declaration| !declaration.is_empty());
    declarations.flat_map(declared).collect()
}

/// `uint32_t id, input_tokens`, `size_t (*save)(…)` or `uint32_t struct_sizes[7]`.
fn declared(declaration: &str) -> Vec<(&str, &str)> {
    if let Some((result, rest)) = declaration.split_once("(*") {
        return vec![(result, rest.split_once(')').expect("a pointer to a function").0)];
    }
    let first_name = declaration.split(',').next().expect("one at least").trim();
    let (ty, _) = first_name.rsplit_once([' ', '*']).expect("a type and a name");
    let names = declaration[ty.len()..].split(',').map(|name| name.trim_matches([' ', '*', '\n']));
    names.map(|name| (ty.trim(), name.split('[').next().unwrap_or(name))).collect()
}

/// The C type of a numeric field.
fn number(ty: &str) -> Option<&'static str> {
    Some(match ty {
        "u32" => "uint32_t",
        "i32" => "int32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "f64" => "double",
        "usize" => "size_t",
        _ => return None,
    })
}

#[test]
fn the_header_has_every_field_in_order() {
    let header = header();
    for HeaderStruct { name, fields: ours, .. } in HeaderStruct::all() {
        let theirs = fields(&header, &name);
        let names: Vec<_> = theirs.iter().map(|&(_, field)| field).collect();
        assert_eq!(names, ours.iter().map(|field| field.name).collect::<Vec<_>>(), "{name}");
        for (ours, (ty, field)) in ours.iter().zip(theirs) {
            if let Some(number) = number(ours.ty) {
                assert_eq!(ty, number, "{name}.{field}");
            }
        }
    }
    assert_eq!(header.matches("typedef struct blis_").count(), HeaderStruct::all().len(), "a struct that is not here");
}

#[test]
fn the_header_has_every_constant() {
    let header = header();
    let mut theirs = vec![("BLIS_ABI_VERSION".to_owned(), 1)];
    assert!(header.contains("#define BLIS_ABI_VERSION 1u"));
    for body in header.split("enum {").skip(1).map(|rest| rest.split('}').next().unwrap_or_default()) {
        for (index, member) in (0..).zip(body.split(',')) {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            let value = if value.is_empty() { index } else { value.trim().parse().expect("a number") };
            theirs.push((name.trim().to_owned(), value));
        }
    }
    let mut ours = constants();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
}

/// Assertions about the header, as source for a C compiler.
fn assertions() -> String {
    let mut text = "#include \"blis_policy.h\"\n".to_owned();
    let mut check = |what: String, value: usize| {
        let _ = writeln!(text, "_Static_assert({what} == {value}, \"{what}\");");
    };
    for HeaderStruct { name, size, fields } in HeaderStruct::all() {
        check(format!("sizeof({name})"), size);
        for Field { name: field, offset, size, .. } in fields {
            check(format!("offsetof({name}, {field})"), offset);
            check(format!("sizeof((({name} *)0)->{field})"), size);
        }
    }
    constants().into_iter().for_each(|(name, value)| check(name, value as usize));
    text
}

#[test]
#[allow(clippy::print_stdout, reason = "a test that skips says so")]
fn a_c_compiler_agrees() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout.c");
    fs::write(&source, assertions()).expect("written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    let command = command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]).arg(folder());
    let Ok(output) = command.arg(&source).output() else {
        println!("skipped: there is no C compiler `{compiler}`");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_table_names_the_sizes_in_the_order_of_the_header() {
    let all = HeaderStruct::all();
    for (name, size) in STRUCTS {
        assert!(all.iter().any(|known| known.name == name && known.size == size), "{name}");
    }
    let header = header();
    let positions: Vec<_> = STRUCTS.iter().map(|(name, _)| header.find(&format!("typedef struct {name} {{"))).collect();
    assert!(positions.is_sorted(), "in another order");
    assert_eq!(PolicyTable::EMPTY.struct_sizes.map(|size| size as usize), STRUCTS.map(|(_, size)| size));
}
