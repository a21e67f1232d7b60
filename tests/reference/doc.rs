//! What a doc comment says about a field or a type, beside its attributes: CONTRIBUTING.md has the convention.

use serde_json::{Value, json};
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Type};

/// The first paragraph of a doc comment: its text, then what its last sentences state.
#[derive(Clone, Default)]
pub(super) struct Doc {
    /// The text without these sentences.
    pub text: String,
    /// ``One of `a`, `b`.``: the values of a text.
    pub one_of: Vec<String>,
    /// ``JSON: `TYPE`.``: a type with the same JSON, where the declaration does not say it.
    pub json: Option<Type>,
    /// `Unit: requests.`
    pub unit: Option<String>,
    /// `Unit: share, 0 to 1.`: limits of a number by the names of JSON schemas.
    pub limits: Vec<(&'static str, Value)>,
    /// `One or more.`, `Two or more.`, `Not empty.`: limits of a list or a text, likewise.
    pub least: Option<(&'static str, u64)>,
    /// ``Always if `field` is `value`.``: when an optional field is there.
    pub always_if: Option<FieldCondition>,
    /// ``Only if `field` is `value`.``: otherwise it is not there.
    pub only_if: Option<FieldCondition>,
    /// ``Beside `field`.``: the field that is there where this one is.
    pub beside: Option<String>,
}

/// A field and some of its values.
#[derive(Clone)]
pub(super) struct FieldCondition {
    field: String,
    values: Vec<Value>,
}

impl FieldCondition {
    /// The condition in a sentence, which names field and values.
    fn of(sentence: &str) -> Option<Self> {
        let mut names = quoted(sentence).into_iter();
        let value = |text: String| text.parse::<u64>().map_or(Value::from(text), Value::from);
        Some(Self { field: names.next()?, values: names.map(value).collect() })
    }

    /// It as a schema.
    pub fn schema(&self) -> Value {
        json!({"properties": {&self.field: {"enum": self.values}}, "required": [self.field]})
    }
}

impl Doc {
    /// That of `attributes`, which belong to `location`.
    pub fn of(attributes: &[Attribute], location: &str) -> Self {
        let lines = attributes.iter().filter_map(line_of).map(|line| line.trim().to_owned());
        let text = lines.skip_while(String::is_empty).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let (text, unit) = without(text, "Unit: ");
        let (text, json) = without(text, "JSON: ");
        let (text, one_of) = without(text, "One of ");
        let json = json.map(|name| {
            syn::parse_str(name.trim_matches('`'))
                .unwrap_or_else(|error| panic!("{location}: `JSON: {name}.`: {error}"))
        });
        let (unit, limits) = match unit.as_deref().map(|unit| unit.split_once(", ").unwrap_or((unit, ""))) {
            Some((unit, limits)) => (Some(unit.to_owned()), limits_of(limits, location)),
            None => (None, Vec::new()),
        };
        let sentences = || text.trim_end_matches('.').split(". ");
        let after = |start: &str| sentences().find_map(|sentence| sentence.strip_prefix(start));
        let least = sentences().find_map(|sentence| match sentence {
            "One or more" => Some(("minItems", 1)),
            "Two or more" => Some(("minItems", 2)),
            "Not empty" => Some(("minLength", 1)),
            _ => None,
        });
        let always_if = after("Always if ").and_then(FieldCondition::of);
        let only_if = after("Only if ").and_then(FieldCondition::of);
        let beside = after("Beside ").and_then(|field| quoted(field).pop());
        let one_of = one_of.iter().flat_map(|names| quoted(names)).collect();
        Self { text, one_of, json, unit, limits, least, always_if, only_if, beside }
    }

    /// Refuses a text that cannot describe what is in a document.
    pub fn check(&self, location: &str) {
        assert!(!self.text.is_empty(), "{location}: no doc comment, which is its description");
        assert!(!self.text.contains("`None`"), "{location}: JSON has no `None`: write `null`, or that it is absent");
        assert!(!self.text.contains("[`"), "{location}: readers of a document have no links into the code");
    }
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn line_of(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The text without its last sentence if that begins with `start`, and the rest of that sentence.
fn without(text: String, start: &str) -> (String, Option<String>) {
    let last = text.strip_suffix('.').unwrap_or(&text);
    let cut = match last.strip_prefix(start) {
        Some(rest) => Some(("", rest)),
        None => last.rsplit_once(&format!(". {start}")),
    };
    match cut {
        Some((before, rest)) if !rest.contains(". ") => {
            (if before.is_empty() { String::new() } else { format!("{before}.") }, Some(rest.to_owned()))
        }
        _ => (text, None),
    }
}

/// `0 to 1`, `0 to below 4` and `1 or more`.
fn limits_of(text: &str, location: &str) -> Vec<(&'static str, Value)> {
    let number = |text: &str| match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => json!(whole),
        (_, Ok(number)) => json!(number),
        _ => panic!("{location}: `{text}` is no limit of a unit"),
    };
    match (text.strip_suffix(" or more"), text.split_once(" to ")) {
        _ if text.is_empty() => Vec::new(),
        (Some(least), _) => vec![("minimum", number(least))],
        (_, Some((least, most))) => match most.strip_prefix("below ") {
            Some(most) => vec![("minimum", number(least)), ("exclusiveMaximum", number(most))],
            None => vec![("minimum", number(least)), ("maximum", number(most))],
        },
        _ => panic!("{location}: `{text}` are no limits of a unit"),
    }
}
