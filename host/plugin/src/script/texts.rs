//! Texts of values, as `to_string`, `${…}` and `+` with a text make them: priced by their length, and never much longer than
//! a text may be. The same number has the same text everywhere, also in a column and in a message.

use std::fmt::Write as _;

use rhai::{Array, Dynamic, Engine, FLOAT, ImmutableString, Map, NativeCallContext};

use super::call;
use super::column::Column;
use super::registry::{Registry, ScriptError};
use super::table::Table;
use crate::FaultKind;
use crate::limits::{SHOWN_DEPTH, SHOWN_NUMBERS, TEXT_BYTES};

pub(super) fn register(to: &mut Registry) {
    for (name, number) in [("to_string", text_of_number as fn(FLOAT) -> String), ("to_debug", exact_text_of_number)] {
        to.add(name, move |context: NativeCallContext, a: &mut Array| {
            ValueText::new(context.engine(), number).of(|text| text.array(a))
        });
        to.add(name, move |context: NativeCallContext, m: &mut Map| {
            ValueText::new(context.engine(), number).of(|text| text.map(m))
        });
        to.add(name, move |context: NativeCallContext, c: Column| {
            ValueText::new(context.engine(), number).of(|text| text.column(&c))
        });
        to.add(name, move |context: NativeCallContext, t: &mut Table| {
            ValueText::new(context.engine(), number).of(|text| text.table(t))
        });
        to.add(name, number);
    }
    to.add("to_debug", |context: NativeCallContext, value: ImmutableString| {
        ValueText::new(context.engine(), exact_text_of_number).of(|text| text.quoted(&value))
    });
    to.add("log", |context: NativeCallContext, text: Dynamic| -> Result<(), ScriptError> {
        if text.is_int() || text.is_float() {
            let text =
                "`log` writes a text to the log of the run; for logarithms there are ln(x), log10(x) and log2(x)";
            return Err(call::failure(text.to_owned()));
        }
        call::log(&text_of(context.engine(), &text))
    });
    for (name, change) in [("to_upper", str::to_uppercase as fn(&str) -> String), ("to_lower", str::to_lowercase)] {
        to.add(name, move |text: &str| changed_case(text, change));
    }
    for (name, change) in [("make_upper", str::to_uppercase as fn(&str) -> String), ("make_lower", str::to_lowercase)] {
        to.add(name, move |text: &mut ImmutableString| *text = changed_case(text, change));
    }
}

fn changed_case(text: &str, change: fn(&str) -> String) -> ImmutableString {
    call::charge_later(text.len());
    change(text).into()
}

/// The text of a number with a fraction: its shortest digits. That of zero has no sign, because the compiler, which evaluates
/// `${…}` of literals, shows none.
pub(super) fn text_of_number(x: FLOAT) -> String {
    Dynamic::from_float(x).to_string()
}

/// The text of a number with a fraction by `to_debug`, with the sign of zero.
pub(super) fn exact_text_of_number(x: FLOAT) -> String {
    format!("{x:?}")
}

/// The text of `value`; if that is longer than a text may be, its beginning, and the call fails. Texts inside of arrays and object
/// maps are quoted.
///
/// It returns no error: within `${…}` the language would replace one by a text of its own.
pub(super) fn text_of(engine: &Engine, value: &Dynamic) -> String {
    match value.as_immutable_string_ref() {
        Ok(text) => text.to_string(),
        Err(_) if value.is_unit() => String::new(),
        Err(_) if value.is_char() => value.to_string(),
        Err(_) => ValueText::new(engine, text_of_number).of(|text| text.value(value)),
    }
}

struct ValueText<'a> {
    engine: &'a Engine,
    number: fn(FLOAT) -> String,
    text: String,
    depth: usize,
    values: usize,
}

impl<'a> ValueText<'a> {
    fn new(engine: &'a Engine, number: fn(FLOAT) -> String) -> Self {
        Self { engine, number, text: String::new(), depth: 0, values: 0 }
    }

    /// The text that `write` makes, charged.
    fn of(mut self, write: impl FnOnce(&mut Self)) -> String {
        write(&mut self);
        call::charge_later(self.text.len() + 8 * self.values);
        if self.is_full() {
            call::fail_later(FaultKind::OutOfMemory, format!("a text of more than {TEXT_BYTES} bytes"));
            self.text.truncate(self.text.floor_char_boundary(TEXT_BYTES));
        }
        self.text
    }

    fn is_full(&self) -> bool {
        self.text.len() > TEXT_BYTES
    }

    fn value(&mut self, value: &Dynamic) {
        self.values += 1;
        if let Ok(array) = value.as_array_ref() {
            self.array(&array);
        } else if let Ok(map) = value.as_map_ref() {
            self.map(&map);
        } else if let Ok(text) = value.as_immutable_string_ref() {
            self.quoted(&text);
        } else if let Some(column) = value.read_lock::<Column>() {
            self.column(&column);
        } else if let Some(table) = value.read_lock::<Table>() {
            self.table(&table);
        } else if let Ok(x) = value.as_float() {
            self.text.push_str(&(self.number)(x));
        } else if value.is_unit() {
            self.text.push_str("()");
        } else if let Ok(c) = value.as_char() {
            let _ = write!(self.text, "{c:?}");
        } else if value.is_int() || value.is_bool() {
            let _ = write!(self.text, "{value}");
        } else {
            self.text.push_str(self.engine.map_type_name(value.type_name()));
        }
    }

    /// Writes what is inside of an array or object map; of what is nested deeply, only that it is there.
    fn inside(&mut self, open: &str, close: &str, write: impl FnOnce(&mut Self)) {
        self.text.push_str(open);
        if self.depth == SHOWN_DEPTH {
            self.text.push('…');
        } else {
            self.depth += 1;
            write(self);
            self.depth -= 1;
        }
        self.text.push_str(close);
    }

    fn array(&mut self, array: &Array) {
        self.inside("[", "]", |text| {
            for (index, item) in array.iter().enumerate() {
                if text.is_full() {
                    return;
                }
                text.text.push_str(if index > 0 { ", " } else { "" });
                text.value(item);
            }
        });
    }

    fn map(&mut self, map: &Map) {
        self.inside("#{", "}", |text| {
            for (index, (name, item)) in map.iter().enumerate() {
                if text.is_full() {
                    return;
                }
                text.text.push_str(if index > 0 { ", " } else { "" });
                text.quoted(name);
                text.text.push_str(": ");
                text.value(item);
            }
        });
    }

    /// The first numbers of a column.
    fn column(&mut self, column: &Column) {
        self.text.push('[');
        for (index, &x) in column.values().iter().take(SHOWN_NUMBERS).enumerate() {
            self.text.push_str(if index > 0 { ", " } else { "" });
            self.text.push_str(&(self.number)(x));
        }
        self.text.push_str(if column.len() > SHOWN_NUMBERS { ", …]" } else { "]" });
    }

    /// The first entries of a table.
    fn table(&mut self, table: &Table) {
        self.text.push('{');
        for (index, (key, x)) in table.entries().take(SHOWN_NUMBERS).enumerate() {
            let _ = write!(self.text, "{}{key}: {}", if index > 0 { ", " } else { "" }, (self.number)(x));
        }
        self.text.push_str(if table.len() > SHOWN_NUMBERS { ", …}" } else { "}" });
    }

    fn quoted(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            if self.is_full() {
                return;
            }
            if c == '\'' { self.text.push(c) } else { self.text.extend(c.escape_debug()) }
        }
        self.text.push('"');
    }
}
