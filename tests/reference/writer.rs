//! JSON with a line for each part that fits into one.

use serde_json::Value;

/// Columns of a line.
const WIDTH: usize = 140;

pub(super) fn written(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text + "\n"
}

fn write(value: &Value, indent: usize, text: &mut String) {
    let line = in_a_line(value);
    let (open, parts, close) = match value {
        _ if indent > 0 && line.chars().count() + 2 * indent <= WIDTH => return text.push_str(&line),
        Value::Array(items) => ('[', items.iter().map(|item| (String::new(), item)).collect::<Vec<_>>(), ']'),
        Value::Object(fields) => {
            ('{', fields.iter().map(|(name, value)| (format!("{}: ", Value::from(&**name)), value)).collect(), '}')
        }
        _ => return text.push_str(&line),
    };
    text.push(open);
    for (number, (name, part)) in parts.iter().enumerate() {
        text.push_str(if number == 0 { "\n" } else { ",\n" });
        text.push_str(&"  ".repeat(indent + 1));
        text.push_str(name);
        write(part, indent + 1, text);
    }
    text.push('\n');
    text.push_str(&"  ".repeat(indent));
    text.push(close);
}

fn in_a_line(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(in_a_line).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}: {}", Value::from(&**name), in_a_line(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}
