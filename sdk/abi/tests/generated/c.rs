//! The C headers: rows, the functions of the table, and the exports of a WebAssembly module.

use blis_abi::decisions::{Function, Missing, NumberShape, OutputShape};
use blis_abi::{Ages, Event, Row as _, RowShape};

use super::{TableInput, VERSION, input_rows, inputs, is_flat, plain, record, split, wrapped};

const WIDTH: usize = 118;

/// The functions of 1.0, in the order of the table; `observe` follows them.
const FIRST: [Function; 9] = [
    Function::Admit,
    Function::Route,
    Function::Scores,
    Function::Priority,
    Function::Rank,
    Function::Victim,
    Function::Constants,
    Function::QueueingTime,
    Function::StepTime,
];

/// The functions of the C table, in its order; `None` is `observe`.
pub fn order() -> impl Iterator<Item = Option<Function>> {
    let later = Function::ALL.into_iter().filter(|function| !FIRST.contains(function));
    FIRST.into_iter().map(Some).chain([None]).chain(later.map(Some))
}

/// The names of the functions, in the order of the table.
pub fn slots() -> Vec<&'static str> {
    order().map(|function| function.map_or("observe", Function::name)).collect()
}

fn struct_name(row: &RowShape) -> String {
    format!("blis_{}", split(row.name, '_'))
}

fn number(ty: &str) -> &'static str {
    match ty {
        "i32" => "int32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "f64" => "double",
        _ => "uint32_t",
    }
}

fn comment(docs: &str, indent: &str) -> String {
    wrapped(&(plain(docs) + " */"), &format!("{indent}/* "), &format!("{indent} * "), WIDTH)
}

/// The structs of all rows.
pub fn rows() -> String {
    let results = Function::ALL.into_iter().filter_map(record).map(|(row, _)| row);
    input_rows().into_iter().chain(results).map(|row| declared(&row)).collect()
}

fn declared(row: &RowShape) -> String {
    let name = struct_name(row);
    let mut text = comment(row.docs, "") + &format!("typedef struct {name} {{\n");
    for fields in row.fields.chunk_by(|a, b| a.ty == b.ty) {
        let ty = number(fields[0].ty);
        for names in fields.chunks(8) {
            let names: Vec<_> = names.iter().map(|field| field.name).collect();
            text += &wrapped(&format!("{ty} {};", names.join(", ")), "    ", "        ", WIDTH);
        }
    }
    text + &format!("}} {name};\n\n")
}

/// The functions of the table.
pub fn functions() -> String {
    let mut text = String::new();
    for function in order() {
        let Some(function) = function else {
            text += "    /* Delivers an event, in simulated order and before any later decision. */\n    \
                     void (*observe)(const blis_host *host, void *state, const blis_event *event);\n";
            continue;
        };
        let state = if function.row().pure { "const void *state" } else { "void *state" };
        let parameters = ["const blis_host *host".to_owned(), state.to_owned()];
        let parameters = parameters.into_iter().chain(inputs(function).into_iter().flat_map(parameter));
        let parameters: Vec<_> = parameters.chain(stride(function)).chain(out(function)).collect();
        let before = format!("{} (*{})(", result(function), function.name());
        let comma = |i: usize| if i + 1 < parameters.len() { "," } else { ");" };
        text += &comment(&(function.docs().to_owned() + says_result(function)), "    ");
        // A parameter stays on one line: its spaces are not those at which lines break.
        let words = parameters.iter().enumerate().map(|(i, name)| name.replace(' ', "\u{a0}") + comma(i));
        let words = words.collect::<Vec<_>>().join(" ");
        let aligned = " ".repeat(4 + before.len());
        text += &wrapped_at_spaces(&words, &format!("    {before}"), &aligned).replace('\u{a0}', " ");
    }
    text
}

/// Like [`wrapped`], but only a plain space breaks a line.
fn wrapped_at_spaces(words: &str, first: &str, next: &str) -> String {
    let (mut text, mut width) = (first.to_owned(), first.len());
    for (i, word) in words.split(' ').enumerate() {
        let len = word.chars().count();
        if i > 0 && width + 1 + len > WIDTH {
            text = text + "\n" + next;
            width = next.len();
        } else if i > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += len;
    }
    text + "\n"
}

fn says_result(function: Function) -> &'static str {
    match function.row().output {
        OutputShape::Reason => " Returns 1 to admit; 0 to reject, with a reason that stays valid until the next call.",
        OutputShape::Chosen => " Returns BLIS_NONE_U32 for none.",
        OutputShape::Flag => " Returns 0 for no.",
        OutputShape::Numbers(_) => " Writes one number for each row.",
        OutputShape::Record { .. } => " Before the call the result has what holds if nothing is written.",
        OutputShape::Index | OutputShape::Integer | OutputShape::Duration | OutputShape::Number(_) => "",
    }
}

fn result(function: Function) -> &'static str {
    match function.row().output {
        OutputShape::Reason | OutputShape::Index | OutputShape::Chosen | OutputShape::Flag => "uint32_t",
        OutputShape::Integer => "int64_t",
        OutputShape::Duration => "uint64_t",
        OutputShape::Number(_) => "double",
        OutputShape::Numbers(_) | OutputShape::Record { .. } => "void",
    }
}

fn number_shape(number: NumberShape) -> &'static str {
    match number {
        NumberShape::U32 => "uint32_t",
        NumberShape::U64 => "uint64_t",
        NumberShape::F64 => "double",
    }
}

/// The parameters of a function of the table for one input.
fn parameter(input: TableInput) -> Vec<String> {
    match input {
        TableInput::Row(name, row) => vec![format!("const {} *{name}", struct_name(&row))],
        TableInput::Cluster => {
            ["const blis_ages *ages", "const void *instances", "size_t count"].map(str::to_owned).into()
        }
        TableInput::Now => vec!["uint64_t now_us".to_owned()],
        TableInput::Number(name, shape) => vec![format!("{} {name}", number_shape(shape))],
        TableInput::Rows(name, _) => vec![format!("const void *{name}"), format!("size_t {name}_count")],
    }
}

fn has_stride(function: Function) -> bool {
    function.row().inputs.cluster || !function.row().inputs.lists.is_empty()
}

fn stride(function: Function) -> Option<String> {
    has_stride(function).then(|| "size_t stride".to_owned())
}

fn out(function: Function) -> Option<String> {
    match function.row().output {
        OutputShape::Reason => Some("blis_text *reason".to_owned()),
        OutputShape::Numbers(_) => Some("double *numbers".to_owned()),
        OutputShape::Record { shape, .. } => Some(format!("{} *result", struct_name(&shape))),
        _ => None,
    }
}

/// The exports of a module, each a call of the function in the table.
pub fn exports() -> String {
    let mut text: String = Function::ALL.into_iter().map(export).collect();
    let event: Vec<_> =
        Event::SHAPE.fields.iter().map(|field| format!("{} {}", number(field.ty), field.name)).collect();
    let names: Vec<_> = Event::SHAPE.fields.iter().map(|field| field.name).collect();
    let head = format!("BLIS_W_DECISION(\"blis:policy/lifecycle@{VERSION}#observe\")\n");
    text += &head;
    text += &wrapped(&format!("void blis_w_observe({}) {{", event.join(", ")), "", "    ", WIDTH);
    text += &wrapped(&format!("const blis_event event = {{{}}};", names.join(", ")), "    ", "        ", WIDTH);
    text + "    blis_plugin_v1()->observe(&blis_w_host, blis_w_state, &event);\n    blis_w_done();\n}\n\n"
}

fn export(function: Function) -> String {
    let (name, inputs) = (function.name(), inputs(function));
    let path = format!("blis:policy/{}@{VERSION}#{}", function.interface(), function.row().wit);
    let mut text = String::new();
    let mut lines: Vec<String> = Vec::new();
    let parameters = if is_flat(function) {
        inputs.iter().flat_map(|&input| flat(input, &mut lines)).collect::<Vec<_>>().join(", ")
    } else {
        text += &format!("typedef struct blis_w_{name}_parameters {{\n");
        inputs.iter().flat_map(|&input| members(input)).for_each(|member| text += &format!("    {member};\n"));
        text += &format!("}} blis_w_{name}_parameters;\n\n");
        format!("const blis_w_{name}_parameters *given")
    };
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters };
    text += &format!("BLIS_W_DECISION(\"{path}\")\n");
    let (returned, make, called, done) = returning(function);
    text += &wrapped(&format!("{returned}blis_w_{name}({parameters}) {{"), "", "    ", WIDTH);
    lines.into_iter().chain(make).for_each(|line| text += &wrapped(&line, "    ", "        ", WIDTH));
    let arguments = inputs.iter().flat_map(|&input| arguments(input, is_flat(function)));
    let arguments: Vec<_> = ["&blis_w_host".to_owned(), "blis_w_state".to_owned()]
        .into_iter()
        .chain(arguments)
        .chain(has_stride(function).then(|| row_size(function)))
        .chain(passed(function))
        .collect();
    let may_be_missing = match function.row().missing {
        Missing::WithoutScores | Missing::Decides(_) => format!("if (blis_plugin_v1()->{name}) "),
        Missing::Never | Missing::InScripts(_) => String::new(),
    };
    let call = format!("{may_be_missing}{called}blis_plugin_v1()->{name}({});", arguments.join(", "));
    text += &wrapped(&call, "    ", "        ", WIDTH);
    text += &done;
    text + "}\n\n"
}

/// The parameters of an export for one input, and in `lines` what makes a row of them.
fn flat(input: TableInput, lines: &mut Vec<String>) -> Vec<String> {
    let mut fields = |row: &RowShape, name: &str| {
        let names: Vec<_> = row.fields.iter().map(|field| format!("{name}_{}", field.name)).collect();
        lines.push(format!("const {} {name} = {{{}}};", struct_name(row), names.join(", ")));
        row.fields.iter().zip(names).map(|(field, name)| format!("{} {name}", number(field.ty))).collect()
    };
    match input {
        TableInput::Row(name, row) => fields(&row, name),
        TableInput::Cluster => {
            let mut all: Vec<String> = fields(&Ages::SHAPE, "ages");
            lines.push("(void)numbers;".to_owned());
            all.extend(["uint32_t count", "const double *instances", "size_t numbers"].map(str::to_owned));
            all
        }
        TableInput::Now => vec!["uint64_t now_us".to_owned()],
        TableInput::Number(name, shape) => vec![format!("{} {name}", number_shape(shape))],
        TableInput::Rows(name, row) => {
            vec![format!("const {} *{name}", struct_name(&row)), format!("size_t {name}_count")]
        }
    }
}

/// The members of the parameters in memory for one input.
fn members(input: TableInput) -> Vec<String> {
    match input {
        TableInput::Row(name, row) => vec![format!("{} {name}", struct_name(&row))],
        TableInput::Cluster => {
            ["blis_ages ages", "uint32_t count", "const double *instances", "size_t numbers"].map(str::to_owned).into()
        }
        other => flat(other, &mut Vec::new()),
    }
}

/// What the function in the table gets for one input.
fn arguments(input: TableInput, flat: bool) -> Vec<String> {
    let from = if flat { "" } else { "given->" };
    match input {
        TableInput::Row(name, _) => vec![format!("&{from}{name}")],
        TableInput::Cluster => vec![format!("&{from}ages"), format!("{from}instances"), format!("{from}count")],
        TableInput::Now => vec![format!("{from}now_us")],
        TableInput::Number(name, _) => vec![format!("{from}{name}")],
        TableInput::Rows(name, _) => vec![format!("{from}{name}"), format!("{from}{name}_count")],
    }
}

fn row_size(function: Function) -> String {
    match function.row().inputs.lists.first() {
        Some(list) => format!("sizeof({})", struct_name(list)),
        None => "blis_w_stride".to_owned(),
    }
}

/// What the function in the table writes to.
fn passed(function: Function) -> Option<String> {
    match function.row().output {
        OutputShape::Reason => Some("&decision.text".to_owned()),
        OutputShape::Numbers(_) => Some("numbers".to_owned()),
        OutputShape::Record { .. } => Some("&result".to_owned()),
        _ => None,
    }
}

/// Number of rows of which each gets a number.
fn count(function: Function) -> String {
    let from = if is_flat(function) { "" } else { "given->" };
    match inputs(function)
        .iter()
        .find_map(|input| if let TableInput::Rows(name, _) = input { Some(*name) } else { None })
    {
        Some(list) => format!("(uint32_t){from}{list}_count"),
        None => format!("{from}count"),
    }
}

/// Of an export: its type, the lines before the call, what stands before the call, and the lines after it.
fn returning(function: Function) -> (String, Vec<String>, String, String) {
    let done = |result: &str| format!("    blis_w_done();\n    return {result};\n");
    let simple = |ty: &str| (format!("{ty} "), vec![], format!("const {ty} result = "), done("result"));
    match &function.row().output {
        OutputShape::Reason => (
            "const blis_w_refusal *".to_owned(),
            vec!["static blis_w_refusal decision;".to_owned()],
            "decision.refused = !".to_owned(),
            done("&decision"),
        ),
        OutputShape::Chosen => {
            let after = "    result.is_some = result.index != BLIS_NONE_U32;\n".to_owned();
            let before = vec!["static blis_w_index result;".to_owned()];
            ("const blis_w_index *".to_owned(), before, "result.index = ".to_owned(), after + &done("&result"))
        }
        OutputShape::Flag => {
            let before = vec!["uint32_t result = 1;".to_owned()];
            ("uint32_t ".to_owned(), before, "result = 0 != ".to_owned(), done("result"))
        }
        OutputShape::Numbers(_) => (
            "const blis_w_list *".to_owned(),
            vec![match function.row().missing {
                // What holds for every row without the function.
                Missing::Decides(number) => format!("double *numbers = blis_w_filled({}, {number});", count(function)),
                _ => format!("double *numbers = blis_w_room_for({});", count(function)),
            }],
            String::new(),
            done("&blis_w_numbers"),
        ),
        OutputShape::Record { shape, flags, default } => {
            let ty = struct_name(shape);
            let words = default.iter().map(|word| format!("{word}u")).collect::<Vec<_>>().join(", ");
            let before = vec![format!("static {ty} result;"), format!("result = ({ty}){{{words}}};")];
            let flag = |field: &blis_abi::Field| format!("    result.{0} = result.{0} != 0;\n", field.name);
            let flags: String = shape.fields[..*flags].iter().map(flag).collect();
            (format!("const {ty} *"), before, String::new(), flags + &done("&result"))
        }
        _ => simple(result(function)),
    }
}
