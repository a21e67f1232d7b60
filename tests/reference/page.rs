//! docs/json.md: the parts of all schemas as tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::documents::DOCUMENTS;

const INTRODUCTION: &str = "\
# Fields of JSON documents

Every field with its type and unit, made from the schemas in this folder, which are made from the types of the program:
`BLIS_RECORD=1 cargo test --workspace --test tests reference` writes both anew. Where no unit stands, the value has none. *Optional*
fields are left out where they do not apply. Shares are 0 to 1. [metrics.md](metrics.md) defines the figures,
[decisions.md](decisions.md) the lines of decision traces.
";

/// The page of the schemas that `schema` finds by their names.
pub(super) fn fields(schema: &impl Fn(&str) -> Value) -> String {
    let schemas: Vec<Value> = DOCUMENTS.iter().map(|document| schema(document.name)).collect();
    let parts = SchemaParts(&schemas);
    let mut page = INTRODUCTION.to_owned();
    let mut headings = BTreeSet::new();
    for (document, schema) in DOCUMENTS.iter().zip(&schemas) {
        let name = format!("{}.schema.json", document.name);
        let title = schema["title"].as_str().expect("a title");
        write!(page, "\n## {}\n\n{title}: [{name}]({name}).\n", document.heading).expect("a text");
        for (name, part) in definitions(schema).into_iter().filter(|(name, _)| !parts.is_inlined(name)) {
            write!(page, "\n### {}\n\n{}\n{}", heading_of(name), description(part), parts.table(part)).expect("a text");
            assert!(headings.insert(name.clone()), "two schemas have a part `{name}`: a link could mean either");
        }
    }
    page
}

/// The parts of all schemas.
struct SchemaParts<'a>(&'a [Value]);

impl SchemaParts<'_> {
    fn named(&self, name: &str) -> &Value {
        self.0.iter().find_map(|schema| schema["$defs"].get(name)).unwrap_or_else(|| panic!("no part `{name}`"))
    }

    /// Whether one part alone includes it, and its fields stand there.
    fn is_inlined(&self, name: &str) -> bool {
        let uses = |schema: &Value| schema.to_string().matches(&format!("#/$defs/{name}\"")).count();
        let includes = |schema: &Value| {
            let parts = schema["$defs"].as_object().into_iter().flat_map(|parts| parts.values());
            parts.flat_map(included).filter(|(included, _)| included == name).count()
        };
        let both = self.0.iter().map(|schema| (uses(schema), includes(schema)));
        both.fold((0, 0), |sum, (uses, includes)| (sum.0 + uses, sum.1 + includes)) == (1, 1)
    }

    /// The fields of an object as a table, or what a list holds.
    fn table(&self, object: &Value) -> String {
        if let Some(variants) = object["oneOf"].as_array() {
            return format!("\n{}", variants.iter().map(variant).collect::<String>());
        }
        let mut table = FieldTable::default();
        self.add_rows(object, false, &mut table);
        let others = match (table.others.join(", "), table.optional_others.join(", ")) {
            (always, sometimes) if sometimes.is_empty() => always,
            (always, sometimes) => format!("{always} and, if they apply, {sometimes}"),
        };
        let others = if others.is_empty() { others } else { format!("\nIt has the fields of {others}, and:\n") };
        let rows: String = table.rows.into_values().collect();
        match object.get("items").and_then(definition) {
            Some(name) => format!("\nA list of {}.\n", link(&name)),
            None if rows.is_empty() => others.replace(", and:", "."),
            None => format!("{others}\n| field | type | unit | meaning |\n|---|---|---|---|\n{rows}"),
        }
    }

    /// Adds the fields, and those of the parts that stand nowhere else.
    fn add_rows(&self, object: &Value, all_optional: bool, table: &mut FieldTable) {
        let required: Vec<&str> =
            object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in object["properties"].as_object().into_iter().flatten() {
            let optional = if required.contains(&name.as_str()) && !all_optional { "" } else { "*optional* " };
            let (unit, meaning) = (field["unit"].as_str().unwrap_or_default(), description(field).replace('|', "\\|"));
            let row = format!("| `{name}` | {optional}{} | {unit} | {meaning} |\n", kind(field));
            table.rows.insert(name.clone(), row);
        }
        for (name, is_optional) in included(object) {
            match is_optional {
                _ if self.is_inlined(&name) => self.add_rows(self.named(&name), all_optional || is_optional, table),
                true => table.optional_others.push(link(&name)),
                false => table.others.push(link(&name)),
            }
        }
    }
}

/// The table of an object.
#[derive(Default)]
struct FieldTable {
    /// A row for each field, by its name.
    rows: BTreeMap<String, String>,
    /// Links to parts of which it has the fields, too.
    others: Vec<String>,
    /// Links to parts of which it has all fields or none.
    optional_others: Vec<String>,
}

/// A line about a variant: its name, and a link to its fields.
fn variant(schema: &Value) -> String {
    let names = schema["properties"].as_object().into_iter().flatten();
    let names: Vec<String> = names.map(|(tag, name)| format!("`{tag}` is `{}`", name["const"])).collect();
    let parts: Vec<String> = included(schema).iter().map(|(name, _)| link(name)).collect();
    format!("* {}: {}\n", names.join(", ").replace('"', ""), parts.join(", "))
}

/// The parts that an object includes, and whether it may lack their fields.
fn included(object: &Value) -> Vec<(String, bool)> {
    let all = object["allOf"].as_array().into_iter().flatten();
    let names = all.filter_map(|one| match definition(one) {
        Some(name) => Some((name, false)),
        None => Some((definition(one["anyOf"].get(0)?)?, true)),
    });
    names.collect()
}

/// The definitions of a schema: whole documents first, which no other contains.
fn definitions(schema: &Value) -> Vec<(&String, &Value)> {
    let parts = &schema["$defs"];
    let text = parts.to_string();
    let mut definitions: Vec<(&String, &Value)> = parts.as_object().expect("definitions").iter().collect();
    definitions.sort_by_key(|(name, _)| text.contains(&format!("\"#/$defs/{name}\"")));
    definitions
}

/// What a part or a field is, with links to pages.
fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().expect("a description");
    let mut parts = text.split("docs/");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (page, rest) = part.split_at(part.find(".md").expect("a page") + ".md".len());
        format!("{text}[{page}]({page}){rest}")
    })
}

/// The type of a field in words.
fn kind(field: &Value) -> String {
    if let Some(name) = definition(field) {
        return link(&name);
    }
    if let Some(choices) = field["oneOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if let Some(choices) = field["enum"].as_array() {
        let names: Vec<String> = choices.iter().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
        return names.join(", ") + if choices.contains(&Value::Null) { " or null" } else { "" };
    }
    let types = match &field["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        one => one.as_str().unwrap_or("any").to_owned(),
    };
    match (field.get("items"), field.get("additionalProperties").filter(|values| values.is_object())) {
        (Some(item), _) => format!("{types} of {}", kind(item)),
        (None, Some(values)) => format!("object: {} by name", kind(values)),
        (None, None) => types,
    }
}

/// The name of the definition that a schema refers to.
fn definition(schema: &Value) -> Option<String> {
    Some(schema.get("$ref")?.as_str()?.rsplit_once("#/$defs/")?.1.to_owned())
}

fn link(name: &str) -> String {
    format!("[{}](#{})", heading_of(name), heading_of(name).replace(' ', "-"))
}

fn heading_of(name: &str) -> String {
    name.replace('_', " ")
}
