//! Rust: the functions of the C table, with a call of each, and the exports of the SDK for both technologies.

use std::fmt::Write as _;

use blis_abi::decisions::{Function, Kind, Missing, NumberShape, OutputShape};
use blis_abi::{Ages, Event, Field, Row as _, RowShape};

use super::{TableInput, VERSION, c, inputs, is_flat, plain, wrapped};

const WIDTH: usize = 120;

/// The type of a number in Rust.
fn number_shape(number: NumberShape) -> &'static str {
    match number {
        NumberShape::U32 => "u32",
        NumberShape::U64 => "u64",
        NumberShape::F64 => "f64",
    }
}

fn docs(text: &str, indent: &str) -> String {
    let comment = format!("{indent}/// ");
    wrapped(&plain(text), &comment, &comment, WIDTH)
}

/// The names of rows that all functions use, with or without those of lists, for a `use`.
fn rows_of_all(lists: bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for function in Function::ALL {
        for input in inputs(function) {
            match input {
                TableInput::Row(_, row) => names.push(row.name),
                TableInput::Rows(_, row) if lists => names.push(row.name),
                TableInput::Cluster => names.push("Ages"),
                TableInput::Rows(..) | TableInput::Now | TableInput::Number(..) => {}
            }
        }
        if let OutputShape::Record { shape, .. } = function.row().output {
            names.push(shape.name);
        }
    }
    names.push("Event");
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

// The C table.

/// Types of the parameters of a function of the table for one input.
fn c_types(input: TableInput) -> Vec<String> {
    let types: &[&str] = match input {
        TableInput::Row(_, row) => return vec![format!("*const {}", row.name)],
        TableInput::Cluster => &["*const Ages", "*const c_void", "usize"],
        TableInput::Now => &["u64"],
        TableInput::Number(_, shape) => &[number_shape(shape)],
        TableInput::Rows(..) => &["*const c_void", "usize"],
    };
    types.iter().map(|&ty| ty.to_owned()).collect()
}

/// Further parameters: the distance of rows, and where results are written.
fn c_more(function: Function) -> Vec<(&'static str, String)> {
    let shape = &function.row().inputs;
    let stride = (shape.cluster || !shape.lists.is_empty()).then(|| ("stride", "usize".to_owned()));
    let out = match function.row().output {
        OutputShape::Reason => Some(("reason", "*mut CText".to_owned())),
        OutputShape::Numbers(_) => Some(("numbers", "*mut f64".to_owned())),
        OutputShape::Record { shape, .. } => Some(("result", format!("*mut {}", shape.name))),
        _ => None,
    };
    stride.into_iter().chain(out).collect()
}

fn c_result(function: Function) -> &'static str {
    match function.row().output {
        OutputShape::Reason | OutputShape::Index | OutputShape::Chosen | OutputShape::Flag => " -> u32",
        OutputShape::Integer => " -> i64",
        OutputShape::Duration => " -> u64",
        OutputShape::Number(_) => " -> f64",
        OutputShape::Numbers(_) | OutputShape::Record { .. } => "",
    }
}

/// The type of `function` in the table.
fn c_function(function: Function) -> String {
    let types = ["*const CHost", "*mut c_void"].map(str::to_owned).into_iter();
    let types = types.chain(inputs(function).into_iter().flat_map(c_types));
    let types: Vec<_> = types.chain(c_more(function).into_iter().map(|(_, ty)| ty)).collect();
    format!("unsafe extern \"C\" fn({}){}", types.join(", "), c_result(function))
}

/// `PolicyFunctions` of the crate of the tables.
pub fn functions() -> String {
    let rows = rows_of_all(false);
    let mut text = String::from(
        "//! The functions of kinds in the C table, and a call of each.\n\n#![allow(unsafe_code, reason = \"the boundary itself\")]\n\nuse core::ffi::c_void;\n\n",
    );
    text += "use crate::c_types::{CArguments, CHost, CResult, CText};\nuse crate::decisions::Function;\nuse crate::layout::structs;\n";
    let _ = write!(text, "use crate::rows::{{{rows}}};\n\nstructs! {{\n");
    text += "    /// The functions of kinds, in the order in which they were added: hosts accept tables that end after any of them.\n";
    text += "    #[derive(Clone, Copy, Debug)]\n    pub struct PolicyFunctions {\n";
    for function in c::order() {
        let (about, name, ty) = match function {
            Some(function) => (function.docs(), function.name(), c_function(function)),
            None => (
                "Delivers an event that the policy subscribes to.",
                "observe",
                "unsafe extern \"C\" fn(*const CHost, *mut c_void, *const Event)".to_owned(),
            ),
        };
        text += &docs(about, "        ");
        let _ = writeln!(text, "        pub {name}: Option<{ty}>,");
    }
    text += "    }\n}\n\nimpl PolicyFunctions {\n    /// None of them.\n    pub const NONE: Self = Self {\n";
    c::slots().iter().for_each(|name| writeln!(text, "        {name}: None,").expect("a text"));
    text += "    };\n\n    /// Whether it has `function`.\n    #[must_use]\n    pub const fn has(&self, function: Function) -> bool {\n";
    text += "        match function {\n";
    for function in Function::ALL {
        let _ = writeln!(text, "            Function::{function:?} => self.{}.is_some(),", function.name());
    }
    // Before this file is written anew, the table of decisions has more functions than it.
    text += "            #[allow(unreachable_patterns)]\n            _ => false,\n";
    text += "        }\n    }\n\n    /// Calls `function`; `None` if there is none.\n    ///\n    /// # Safety\n    \
             /// The functions are as the header says, `host` and `state` are theirs, and the addresses in `given` are those of rows that\n    \
             /// the table of decisions names for `function`, and of room for its results.\n    #[inline]\n    \
             #[must_use]\n    pub unsafe fn call(\n        &self,\n        function: Function,\n        host: *const CHost,\n        \
             state: *mut c_void,\n        given: &CArguments,\n    ) -> Option<CResult> {\n        \
             let CArguments { request, ages, now_us, number, row, lists, stride, numbers, result } = *given;\n        \
             let [(first, count), (second, others)] = lists;\n        let real = f64::from_bits(number);\n        \
             // SAFETY: as the caller guarantees.\n        Some(unsafe {\n            match function {\n";
    Function::ALL.into_iter().for_each(|function| text += &call(function));
    text + "                #[allow(unreachable_patterns)]\n                _ => return None,\n            }\n        })\n    }\n}\n"
}

/// The arm that calls `function`.
fn call(function: Function) -> String {
    let mut lists = ["first, count", "second, others"].into_iter();
    let shape = &function.row().inputs;
    let given = |input: TableInput| {
        match input {
            TableInput::Row("request", _) if shape.request => "request",
            TableInput::Row(..) => "row.cast()",
            TableInput::Cluster => "ages, first, count",
            TableInput::Now => "now_us",
            TableInput::Number(_, NumberShape::F64) => "real",
            TableInput::Number(_, NumberShape::U32) => "number as u32",
            TableInput::Number(_, NumberShape::U64) => "number",
            TableInput::Rows(..) => lists.next().expect("at most two lists"),
        }
        .to_owned()
    };
    let more = |(name, _): (&str, String)| match name {
        "reason" => "&raw mut reason".to_owned(),
        "result" => "result.cast()".to_owned(),
        other => other.to_owned(),
    };
    let given = inputs(function).into_iter().map(given).chain(c_more(function).into_iter().map(more));
    let given = ["host", "state"].map(str::to_owned).into_iter().chain(given).collect::<Vec<_>>().join(", ");
    let called = format!("self.{}?({given})", function.name());
    let body = match function.row().output {
        OutputShape::Reason => {
            format!("{{ let mut reason = CText::EMPTY; let admitted = {called}; CResult::Admitted(admitted, reason) }}")
        }
        OutputShape::Index | OutputShape::Chosen | OutputShape::Flag => format!("CResult::Index({called}),"),
        OutputShape::Integer => format!("CResult::Whole({called}.cast_unsigned()),"),
        OutputShape::Duration => format!("CResult::Whole({called}),"),
        OutputShape::Number(_) => format!("CResult::Real({called}),"),
        OutputShape::Numbers(_) | OutputShape::Record { .. } => format!("{{ {called}; CResult::Written }}"),
    };
    format!("                Function::{function:?} => {body}\n")
}

// The traits of the SDK.

/// A trait for each kind.
pub fn traits() -> String {
    let rows = rows_of_all(true).replace("Ages, ", "").replace("Event, ", "");
    let mut text = String::from("//! The traits of policies, one for each kind of decision.\n\n");
    let _ = write!(text, "use super::{{AdmissionDecision, Policy}};\nuse crate::rows::{{Cluster, {rows}}};\n\n");
    for kind in Kind::ALL {
        text += &docs(kind.docs(), "");
        let _ = writeln!(text, "pub trait {}: Policy {{", kind.row().rust);
        let methods: Vec<_> = kind.functions().iter().map(|&function| method(function)).collect();
        text += &methods.join("\n");
        text += "}\n\n";
    }
    text.trim_end().to_owned() + "\n"
}

fn method(function: Function) -> String {
    let parameter = |input: TableInput| match input {
        TableInput::Row(name, row) => (name, format!("&{}", row.name)),
        TableInput::Cluster => ("cluster", "&Cluster<'_, Self::Signals>".to_owned()),
        TableInput::Now => ("now_us", "u64".to_owned()),
        // An index in a list, or a number of its own.
        TableInput::Number(name, NumberShape::U32) if !function.row().inputs.lists.is_empty() => {
            (name, "usize".to_owned())
        }
        TableInput::Number(name, shape) => (name, number_shape(shape).to_owned()),
        TableInput::Rows(name, row) => (name, format!("&[{}]", row.name)),
    };
    let (result, says) = match function.row().output {
        OutputShape::Reason => (" -> AdmissionDecision".to_owned(), ""),
        OutputShape::Index => (" -> usize".to_owned(), ""),
        OutputShape::Chosen => (" -> Option<usize>".to_owned(), ""),
        OutputShape::Flag => (" -> bool".to_owned(), ""),
        OutputShape::Numbers(_) => (String::new(), " Pushed onto `numbers`, one for each row."),
        OutputShape::Record { shape, .. } => (format!(" -> {}", shape.name), ""),
        _ => (c_result(function).to_owned(), " NaN is a fault."),
    };
    let says = if matches!(function.row().output, OutputShape::Number(_)) || !says.contains("NaN") { says } else { "" };
    let pushed =
        matches!(function.row().output, OutputShape::Numbers(_)).then(|| ("numbers", "&mut Vec<f64>".to_owned()));
    let parameters: Vec<_> = inputs(function).into_iter().map(parameter).chain(pushed).collect();
    let names = parameters.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let own = if function.row().pure { "&self" } else { "&mut self" };
    let typed: Vec<_> =
        [own.to_owned()].into_iter().chain(parameters.iter().map(|(name, ty)| format!("{name}: {ty}"))).collect();
    let unused = format!("        let _ = ({names});\n");
    let body = match (function.row().missing, &function.row().output) {
        (Missing::Never, _) => ";\n".to_owned(),
        (Missing::WithoutScores, _) => format!(" {{\n{unused}    }}\n"),
        (Missing::Decides(number) | Missing::InScripts(number), shape) => {
            let (used, value) = match shape {
                OutputShape::Numbers(_) => {
                    let list = inputs(function)
                        .iter()
                        .find_map(|input| if let TableInput::Rows(name, _) = input { Some(*name) } else { None });
                    ("", format!("numbers.resize({}.len(), {number:?});", list.expect("a list")))
                }
                OutputShape::Flag => (&*unused, (number != 0.0).to_string()),
                OutputShape::Record { shape, .. } => ("", format!("{}::default()", shape.name)),
                _ => (&*unused, format!("{number:.0}")),
            };
            let row = match inputs(function).iter().find(|input| matches!(input, TableInput::Row(..) | TableInput::Now))
            {
                Some(_) if used.is_empty() && names.contains("numbers") => {
                    let first = parameters[0].0;
                    if first == "numbers" { String::new() } else { format!("        let _ = {first};\n") }
                }
                _ => String::new(),
            };
            format!(" {{\n{used}{row}        {value}\n    }}\n").replace("let _ = ();\n", "")
        }
    };
    let about = docs(&(function.docs().to_owned() + says), "    ");
    format!("{about}    fn {}({}){result}{body}", function.name(), typed.join(", "))
        .replace("let _ = (hit);", "let _ = hit;")
        .replace("let _ = (input_tokens);", "let _ = input_tokens;")
}

// The exports of the SDK.

/// The arguments of the method of a trait, each from the parameter of an export: `row` and `list` stand before its name.
fn arguments(function: Function, row: &str, list: &str) -> Vec<String> {
    let argument = |input: TableInput| match input {
        TableInput::Row(name, _) => format!("{row}{name}"),
        TableInput::Cluster => "&cluster".to_owned(),
        TableInput::Now => "now_us".to_owned(),
        // An index is `usize` in a trait.
        TableInput::Number(name, NumberShape::U32) => format!("{name} as _"),
        TableInput::Number(name, _) => name.to_owned(),
        TableInput::Rows(name, _) => format!("{list}{name}"),
    };
    let pushed = matches!(function.row().output, OutputShape::Numbers(_)).then(|| "numbers".to_owned());
    inputs(function).into_iter().map(argument).chain(pushed).collect()
}

/// The helper of the SDK for the output of `function`, and the parameters of its closure.
fn helper(function: Function) -> (&'static str, &'static str) {
    match function.row().output {
        OutputShape::Reason => ("reason", "policy"),
        OutputShape::Index => ("index", "policy"),
        OutputShape::Chosen => ("chosen", "policy"),
        OutputShape::Integer | OutputShape::Duration | OutputShape::Number(_) => ("number", "policy"),
        OutputShape::Flag => ("flag", "policy"),
        OutputShape::Numbers(_) => ("numbers", "policy, numbers"),
        OutputShape::Record { .. } => ("record", "policy"),
    }
}

/// The exports of a native library.
pub fn native() -> String {
    let rows = rows_of_all(true);
    let traits: Vec<_> = Kind::ALL.map(|kind| kind.row().rust).into();
    let mut text = String::from("//! The functions of kinds in the table of a native library.\n\n");
    text += &format!(
        "use std::ffi::c_void;\n\nuse blis_abi::table::{{CHost, CText, PolicyFunctions}};\n\nuse super::{{NativeTable, rows, with_policy}};\nuse crate::policy::{{{}, Lifecycle, Policy}};\nuse crate::rows::{{Cluster, {rows}}};\n\n",
        traits.join(", ")
    );
    text += "/// Adds the functions of a kind; each method has the name of its trait.\n#[allow(non_snake_case, missing_docs)]\n\
             impl<P: Policy> NativeTable<P> {\n";
    for kind in Kind::ALL {
        let set: Vec<_> =
            kind.functions().iter().map(|function| format!("{0}: Some({0}::<P>)", function.name())).collect();
        text += &builder(kind.row().rust, &set.join(", "));
    }
    text += &builder("Lifecycle", "observe: Some(observe::<P>)");
    text += "}\n\n";
    Function::ALL.into_iter().for_each(|function| text += &native_export(function));
    text + "unsafe extern \"C\" fn observe<P: Lifecycle>(host: *const CHost, state: *mut c_void, event: *const Event) {\n    \
            // SAFETY: the host's arguments.\n    unsafe { with_policy(host, state, (), |policy: &mut P| policy.observe(&*event)) }\n}\n"
}

fn builder(name: &str, set: &str) -> String {
    format!(
        "    pub const fn {name}(self) -> Self\n    where\n        P: {name},\n    {{\n        \
         let functions = PolicyFunctions {{ {set}, ..self.functions() }};\n        self.with(functions)\n    }}\n\n"
    )
}

fn native_export(function: Function) -> String {
    let (name, policy) = (function.name(), function.kind().row().rust);
    let parameter = |input: TableInput| match input {
        TableInput::Row(name, row) => vec![format!("{name}: *const {}", row.name)],
        TableInput::Cluster => {
            ["ages: *const Ages", "instances: *const c_void", "count: usize"].map(str::to_owned).into()
        }
        TableInput::Now => vec!["now_us: u64".to_owned()],
        TableInput::Number(name, shape) => vec![format!("{name}: {}", number_shape(shape))],
        TableInput::Rows(name, _) => vec![format!("{name}: *const c_void"), format!("{name}_count: usize")],
    };
    let parameters = ["host: *const CHost", "state: *mut c_void"].map(str::to_owned).into_iter();
    let parameters = parameters.chain(inputs(function).into_iter().flat_map(parameter));
    let more = c_more(function)
        .into_iter()
        .map(|(name, ty)| format!("{}: {ty}", if name == "numbers" { "result" } else { name }));
    let parameters = parameters.chain(more).collect::<Vec<_>>().join(", ");
    let mut body = String::new();
    for input in inputs(function) {
        match input {
            TableInput::Cluster => {
                body += "            let instances = rows::<P::Signals>(instances, count, stride);\n            \
                         let cluster = Cluster { ages: *ages, instances: &instances };\n";
            }
            TableInput::Rows(name, row) => {
                body += &format!("            let {name} = rows::<{}>({name}, {name}_count, stride);\n", row.name);
            }
            TableInput::Row(..) | TableInput::Now | TableInput::Number(..) => {}
        }
    }
    let arguments = arguments(function, "&*", "&").join(", ");
    let (helper, closure) = helper(function);
    let given = match function.row().output {
        OutputShape::Reason => "host, state, reason".to_owned(),
        OutputShape::Numbers(_) => {
            let list = inputs(function)
                .into_iter()
                .find_map(|input| if let TableInput::Rows(name, _) = input { Some(name) } else { None });
            let count = list.map_or("count".to_owned(), |list| format!("{list}_count"));
            format!("host, state, \"{}\", {count}, result", list.unwrap_or("instances"))
        }
        OutputShape::Record { .. } => "host, state, result".to_owned(),
        _ => "host, state".to_owned(),
    };
    let closure = closure.replace("policy", "policy: &mut P");
    let (end, last) = match function.row().output {
        OutputShape::Numbers(_) => (";", ";"),
        OutputShape::Record { .. } => ("", ";"),
        _ => ("", ""),
    };
    format!(
        "unsafe extern \"C\" fn {name}<P: {policy}>({parameters}){} {{\n    // SAFETY: the host's arguments.\n    unsafe {{\n        \
         super::{helper}({given}, |{closure}| {{\n{body}            policy.{name}({arguments}){end}\n        }}){last}\n    }}\n}}\n\n",
        c_result(function),
    )
}

/// The macro with the exports of a module, by the name of the trait.
pub fn wasm() -> String {
    let mut text = String::from("//! The exports of a WebAssembly module for each trait, by the canonical ABI.\n\n");
    text += "/// The exports of one trait. Uses `GUEST` and `__sdk` of `export_policy!`.\n#[doc(hidden)]\n#[macro_export]\n\
             macro_rules! __blis_wasm {\n";
    for kind in Kind::ALL {
        let exports: String = kind.functions().iter().map(|&function| wasm_export(function)).collect();
        text += &format!("    ({}) => {{\n{exports}    }};\n", kind.row().rust);
    }
    let (parameters, row) = (flat_row(&Event::SHAPE, ""), row_literal(&Event::SHAPE, ""));
    text + &format!(
        "    (Lifecycle) => {{\n        #[unsafe(export_name = \"blis:policy/lifecycle@{VERSION}#observe\")]\n        \
         extern \"C\" fn observe({}) {{\n            GUEST.number(|policy| $crate::Lifecycle::observe(policy, &{row}))\n        }}\n    }};\n}}\n",
        parameters.join(", ")
    )
}

fn flat_row(row: &RowShape, prefix: &str) -> Vec<String> {
    row.fields.iter().map(|Field { name, ty, .. }| format!("{prefix}{name}: {ty}")).collect()
}

fn row_literal(row: &RowShape, prefix: &str) -> String {
    let fields: Vec<_> = row.fields.iter().map(|field| format!("{0}: {prefix}{0}", field.name)).collect();
    format!("$crate::{} {{ {} }}", row.name, fields.join(", "))
}

fn wasm_export(function: Function) -> String {
    let (name, policy) = (function.name(), function.kind().row().rust);
    let path = format!("blis:policy/{}@{VERSION}#{}", function.interface(), function.row().wit);
    let result = match function.row().output {
        OutputShape::Reason => " -> *const __sdk::wasm::HostRefusal".to_owned(),
        OutputShape::Index => " -> usize".to_owned(),
        OutputShape::Chosen => " -> *const __sdk::wasm::ChosenIndex".to_owned(),
        OutputShape::Numbers(_) => " -> *const (usize, usize)".to_owned(),
        OutputShape::Record { shape, .. } => format!(" -> *const $crate::{}", shape.name),
        _ => c_result(function).to_owned(),
    };
    let (parameters, before) = if is_flat(function) { flat(function) } else { in_memory(function) };
    let arguments = arguments(function, "", "").join(", ");
    let (helper, closure) = helper(function);
    format!(
        "        #[unsafe(export_name = \"{path}\")]\n        unsafe extern \"C\" fn {name}({parameters}){result} {{\n{before}            \
         GUEST.{helper}(|{closure}| $crate::{policy}::{name}(policy, {arguments}))\n        }}\n"
    )
    .replace("(policy, )", "(policy)")
}

/// Parameters that are passed one by one, and what makes the arguments of them.
fn flat(function: Function) -> (String, String) {
    let (mut parameters, mut before) = (Vec::new(), String::new());
    for input in inputs(function) {
        match input {
            TableInput::Row(name, row) => {
                let prefix = format!("{name}_");
                parameters.extend(flat_row(&row, &prefix));
                before += &format!("            let {name} = &{};\n", row_literal(&row, &prefix));
            }
            TableInput::Cluster => {
                parameters.extend(flat_row(&Ages::SHAPE, ""));
                parameters.extend(["count: usize", "instances: *const f64", "numbers: usize"].map(str::to_owned));
                before += &format!(
                    "            let cluster = unsafe {{ __sdk::wasm::cluster({}, count, __sdk::wasm::list(instances, numbers)) }};\n",
                    row_literal(&Ages::SHAPE, "")
                );
            }
            TableInput::Now => parameters.push("now_us: u64".to_owned()),
            TableInput::Number(name, shape) => parameters.push(format!("{name}: {}", number_shape(shape))),
            TableInput::Rows(name, row) => {
                parameters.extend([format!("{name}: *const $crate::{}", row.name), format!("{name}_count: usize")]);
                before += &format!("            let {name} = unsafe {{ __sdk::wasm::rows({name}, {name}_count) }};\n");
            }
        }
    }
    (parameters.join(", "), before)
}

/// The parameter of a function that gets the address of its inputs, and what makes the arguments of them.
fn in_memory(function: Function) -> (String, String) {
    let (mut members, mut before) = (Vec::new(), String::new());
    for input in inputs(function) {
        match input {
            TableInput::Row(name, row) => {
                members.push(format!("{name}: $crate::{}", row.name));
                before += &format!("            let {name} = &given.{name};\n");
            }
            TableInput::Cluster => {
                members.extend(
                    ["ages: $crate::Ages", "count: u32", "instances: __sdk::wasm::HostList<f64>"].map(str::to_owned),
                );
                before += "            let cluster = unsafe { __sdk::wasm::cluster(given.ages, given.count as usize, given.instances) };\n";
            }
            TableInput::Now => {
                members.push("now_us: u64".to_owned());
                before += "            let now_us = given.now_us;\n";
            }
            TableInput::Number(name, shape) => {
                members.push(format!("{name}: {}", number_shape(shape)));
                before += &format!("            let {name} = given.{name};\n");
            }
            TableInput::Rows(name, row) => {
                members.push(format!("{name}: __sdk::wasm::HostList<$crate::{}>", row.name));
                before += &format!("            let {name} = unsafe {{ __sdk::wasm::slice(given.{name}) }};\n");
            }
        }
    }
    let declared = format!(
        "            #[repr(C)]\n            struct GivenParameters {{ {} }}\n            \
         // SAFETY: written by the host.\n            let given = unsafe {{ &*given.cast::<GivenParameters>() }};\n",
        members.join(", ")
    );
    ("given: *const u64".to_owned(), declared + &before)
}
