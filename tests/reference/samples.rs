//! Schemas of small types.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::schema::Schemas;
use super::sources::TypeSources;

/// The schema of the type `SampleDocument` in `text`.
fn schema(text: &str) -> Value {
    let sources = TypeSources::of_text(text);
    let none = BTreeMap::new();
    let mut schemas = Schemas::new(&sources, &none);
    schemas.add("sample", &[("whole", "SampleDocument")]);
    json!({"$ref": "#/$defs/whole", "$defs": schemas.parts("sample")})
}

const WHOLE: &str = "
/// A document.
#[derive(Serialize)]
struct SampleDocument<'a> {
    /// Time of the first. One of `a`, `b`.
    #[serde(rename = \"kind\")]
    name: &'a str,
    /// Shares of each. Unit: share, 0 to 1.
    shares: Option<[f64; 2]>,
    /// Lengths by state, in tokens.
    #[serde(skip_serializing_if = \"BTreeMap::is_empty\")]
    length_tokens: BTreeMap<State, u32>,
    /// Those that come to nothing.
    #[serde(skip_serializing_if = \"is_zero\")]
    lost_requests: u64,
    #[serde(flatten)]
    both: Option<Pair>,
    #[serde(skip)]
    hidden: Unknown,
    /// Made by a function. JSON: `Vec<State>`.
    #[serde(serialize_with = \"states\")]
    states: Unknown,
}

#[derive(Serialize)]
#[serde(rename_all = \"kebab-case\")]
enum State {
    AtRest,
    #[serde(rename = \"on\")]
    Moving,
}

/// Two values, or none.
#[derive(Serialize)]
struct Pair {
    /// The first one.
    one: bool,
    /// The second one.
    two: Option<String>,
}
";

#[test]
fn a_schema_says_what_serde_writes() {
    let schema = schema(WHOLE);
    let whole = &schema["$defs"]["whole"];
    assert_eq!(
        whole["properties"],
        json!({
            "kind": {"description": "Time of the first.", "enum": ["a", "b"]},
            "shares": {"description": "Shares of each.", "type": ["array", "null"], "minItems": 2, "maxItems": 2,
                       "items": {"type": "number", "minimum": 0, "maximum": 1}, "unit": "share"},
            "length_tokens": {"description": "Lengths by state, in tokens.", "type": "object", "minProperties": 1,
                              "propertyNames": {"enum": ["at-rest", "on"]},
                              "additionalProperties": {"type": "integer", "minimum": 0}, "unit": "tokens"},
            "lost_requests": {"description": "Those that come to nothing.", "type": "integer", "minimum": 1, "unit": "requests"},
            "states": {"description": "Made by a function.", "type": "array", "items": {"enum": ["at-rest", "on"]}},
        })
    );
    assert_eq!(whole["required"], json!(["kind", "shares", "states"]));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let least = json!({"kind": "a", "shares": null, "states": []});
    let with = |more: Value| {
        let mut document = least.clone();
        document.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        validator.is_valid(&document)
    };
    assert!(with(json!({})) && with(json!({"one": true, "two": null})) && with(json!({"length_tokens": {"on": 3}})));
    let refused = [
        json!({"kind": "c"}),
        json!({"other": 1}),
        json!({"one": true}),
        json!({"lost_requests": 0}),
        json!({"shares": [0.5, 1.5]}),
        json!({"length_tokens": {"off": 3}}),
    ];
    assert_eq!(refused.map(with), [false; 6]);
}

#[test]
fn variants_and_conditions_are_in_a_schema() {
    let schema = schema(
        "
/// A line.
#[derive(Serialize)]
#[serde(tag = \"kind\", rename_all = \"snake_case\")]
enum SampleDocument { AtRest(Rest), Moving(Motion) }

/// A pause.
#[derive(Serialize)]
struct Rest {
    /// Why it pauses. Not empty.
    why: String,
}

/// A motion.
#[derive(Serialize)]
struct Motion {
    /// Where to. One of `up`, `down`.
    to: String,
    /// How far. Always if `to` is `up`. Only if `to` is `up`. Unit: m.
    #[serde(skip_serializing_if = \"Option::is_none\")]
    far: Option<u32>,
    /// Steps of it. Beside `far`. Two or more. Unit: m.
    #[serde(skip_serializing_if = \"Option::is_none\")]
    steps: Option<Vec<u32>>,
    /// Its end, `null` if it is unknown. JSON: `Option<Option<bool>>`.
    #[serde(skip_serializing_if = \"Option::is_none\")]
    end: Option<bool>,
}
",
    );
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let valid = [
        json!({"kind": "at_rest", "why": "it is"}),
        json!({"kind": "moving", "to": "down"}),
        json!({"kind": "moving", "to": "up", "far": 3, "steps": [1, 2], "end": null}),
    ];
    assert_eq!(valid.map(|document| validator.is_valid(&document)), [true; 3]);
    let invalid = [
        json!({"kind": "resting", "why": "it is"}),
        json!({"kind": "at_rest", "why": ""}),
        json!({"kind": "at_rest", "why": "it is", "to": "up"}),
        json!({"kind": "moving", "to": "up"}),
        json!({"kind": "moving", "to": "down", "far": 3}),
        json!({"kind": "moving", "to": "down", "steps": [1, 2]}),
        json!({"kind": "moving", "to": "up", "far": 3, "steps": [1]}),
    ];
    assert_eq!(invalid.map(|document| validator.is_valid(&document)), [false; 7]);
}

#[test]
#[should_panic = "`size`: a number has a unit, at the end of its doc comment or of its name"]
fn a_number_has_a_unit() {
    schema("/// A document.\n#[derive(Serialize)]\nstruct SampleDocument {\n /// Its size.\n size: u32 }");
}

#[test]
#[should_panic = "`name`: no doc comment, which is its description"]
fn a_field_has_a_description() {
    schema("/// A document.\n#[derive(Serialize)]\nstruct SampleDocument { name: String }");
}

#[test]
#[should_panic = "`name`: JSON has no `None`: write `null`, or that it is absent"]
fn a_description_is_about_json() {
    schema(
        "/// A document.\n#[derive(Serialize)]\nstruct SampleDocument {\n /// A name; `None` without one.\n name: Option<String> }",
    );
}

#[test]
#[should_panic = "`impl Serialize` without ``JSON: `TYPE`.``"]
fn what_is_written_by_hand_says_its_form() {
    schema("struct SampleDocument;\nimpl Serialize for SampleDocument {}");
}
