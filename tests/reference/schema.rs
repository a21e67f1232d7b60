//! JSON schemas of the documents, from the types that are serialised: each type with fields is a part.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};
use syn::{Attribute, Fields, GenericArgument, GenericParam, Generics, ItemEnum, PathArguments, Type};

use super::attributes::{SerdeAttributes, separated, whole};
use super::doc::Doc;
use super::sources::{Declaration, DeclaredType, TypeSources, named};

/// Units at the end of names.
const UNITS: [(&str, &str); 11] = [
    ("_ms", "ms"),
    ("_us", "µs"),
    ("_s", "s"),
    ("_hours", "h"),
    ("_tokens", "tokens"),
    ("_blocks", "blocks"),
    ("_chunks", "chunks"),
    ("_bytes", "bytes"),
    ("_requests", "requests"),
    ("_rps", "requests/s"),
    ("_percent", "%"),
];

/// The schemas of several documents, which refer to the parts of each other.
pub(super) struct Schemas<'a> {
    sources: &'a TypeSources,
    /// Names of the values of types that macros declare.
    made_by_macros: &'a BTreeMap<&'static str, Vec<&'static str>>,
    /// The schema of the documents that are read now.
    document: String,
    parts: BTreeMap<String, SchemaPart>,
    /// Parts that others include: these are closed where they are referred to.
    included: BTreeSet<String>,
}

/// A type with fields.
struct SchemaPart {
    /// The schema that has it.
    document: String,
    /// Where it is declared.
    declared: String,
    schema: Value,
}

/// Where a type is named: the file, and the types of its parameters.
#[derive(Clone, Default)]
struct Scope {
    file: String,
    parameters: BTreeMap<String, (Type, Rc<Self>)>,
}

/// What a part is called, and the doc comment that describes it if it is not that of its type.
#[derive(Clone, Copy)]
struct PartName<'a> {
    name: &'a str,
    doc: Option<&'a Doc>,
}

/// A type behind references, boxes and the parameters that it stands for.
struct Bare {
    kind: Type,
    scope: Rc<Scope>,
    /// How many options are around it.
    options: usize,
}

/// The fields of an object.
#[derive(Default)]
struct Object {
    properties: Map<String, Value>,
    required: Vec<String>,
    includes: Vec<Value>,
    conditions: Vec<Value>,
    beside: Map<String, Value>,
    /// Whether there may be others.
    open: bool,
}

impl<'a> Schemas<'a> {
    pub fn new(sources: &'a TypeSources, made_by_macros: &'a BTreeMap<&'static str, Vec<&'static str>>) -> Self {
        let (parts, included) = (BTreeMap::new(), BTreeSet::new());
        Self { sources, made_by_macros, document: String::new(), parts, included }
    }

    /// Adds the schema `document` of documents of these types, by the names of their parts.
    pub fn add(&mut self, document: &str, types: &[(&str, &str)]) {
        document.clone_into(&mut self.document);
        for (name, kind) in types {
            let kind: Type = syn::parse_str(kind).unwrap_or_else(|error| panic!("{kind}: {error}"));
            let schema = self.of_type(&kind, &Rc::default(), Some(PartName { name, doc: None }));
            assert!(schema.get("$ref").is_some(), "`{name}` is no part of its own: {schema}");
        }
    }

    /// The parts of `document`, with references to those of others.
    pub fn parts(&self, document: &str) -> Map<String, Value> {
        let own = self.parts.iter().filter(|(_, part)| part.document == document);
        own.map(|(name, part)| (name.clone(), self.closed(name, part))).collect()
    }

    fn closed(&self, name: &str, part: &SchemaPart) -> Value {
        let mut schema = self.referring(&part.schema, &part.document);
        if schema.get("properties").is_some()
            && schema.get("additionalProperties").is_none()
            && !self.included.contains(name)
        {
            let key = if schema.get("allOf").is_some() { "unevaluatedProperties" } else { "additionalProperties" };
            schema[key] = false.into();
        }
        schema
    }

    /// `schema` with references as `document` has them.
    fn referring(&self, schema: &Value, document: &str) -> Value {
        match schema {
            Value::Array(items) => items.iter().map(|item| self.referring(item, document)).collect(),
            Value::Object(fields) => {
                let mut object = Map::new();
                for (key, value) in fields {
                    match (key.as_str(), value.as_str()) {
                        ("$ref" | "$include", Some(name)) => {
                            let of = &self.parts[name].document;
                            let urn = if of == document { String::new() } else { format!("urn:blis:{of}:1") };
                            object.insert("$ref".to_owned(), format!("{urn}#/$defs/{name}").into());
                            if key == "$ref" && self.included.contains(name) {
                                object.insert("unevaluatedProperties".to_owned(), false.into());
                            }
                        }
                        _ => drop(object.insert(key.clone(), self.referring(value, document))),
                    }
                }
                object.into()
            }
            other => other.clone(),
        }
    }

    /// The schema of a value of type `kind`; a part gets `name` if there is one.
    fn of_type(&mut self, kind: &Type, scope: &Rc<Scope>, name: Option<PartName<'_>>) -> Value {
        let bare = bare(kind, scope);
        let schema = self.of_bare(&bare, name);
        if bare.options > 0 { or_null(schema) } else { schema }
    }

    fn of_bare(&mut self, bare: &Bare, name: Option<PartName<'_>>) -> Value {
        match &bare.kind {
            Type::Array(list) => {
                let length =
                    whole(&list.len).unwrap_or_else(|| panic!("{}: an array of no fixed length", bare.scope.file));
                let items = self.of_type(&list.elem, &bare.scope, None);
                json!({"type": "array", "items": items, "minItems": length, "maxItems": length})
            }
            Type::Slice(list) => json!({"type": "array", "items": self.of_type(&list.elem, &bare.scope, None)}),
            Type::Tuple(tuple) => {
                let items: Vec<Value> = tuple.elems.iter().map(|item| self.of_type(item, &bare.scope, None)).collect();
                json!({"type": "array", "prefixItems": items, "minItems": items.len(), "items": false})
            }
            Type::Path(path) => self.of_path(&path.path, &bare.scope, name),
            _ => panic!("{}: a type that is not supported", bare.scope.file),
        }
    }

    fn of_path(&mut self, path: &syn::Path, scope: &Rc<Scope>, name: Option<PartName<'_>>) -> Value {
        let arguments = arguments(path);
        let kind = named(path);
        match kind.as_str() {
            "bool" => json!({"type": "boolean"}),
            "str" | "String" | "PathBuf" | "Path" => json!({"type": "string"}),
            "f32" | "f64" => json!({"type": "number"}),
            "u8" | "u16" | "u32" | "u64" | "usize" => json!({"type": "integer", "minimum": 0}),
            "NonZeroU32" | "NonZeroU64" | "NonZeroUsize" => json!({"type": "integer", "minimum": 1}),
            "i8" | "i16" | "i32" | "i64" | "isize" => json!({"type": "integer"}),
            "Value" => json!({}),
            "Vec" | "VecDeque" | "BTreeSet" => {
                json!({"type": "array", "items": self.of_type(arguments[0], scope, None)})
            }
            "Map" | "BTreeMap" | "HashMap" => {
                let (keys, values) = (self.of_type(arguments[0], scope, None), self.of_type(arguments[1], scope, None));
                let mut schema = json!({"type": "object", "additionalProperties": values});
                if values == json!({}) {
                    schema = json!({"type": "object"});
                }
                if keys.get("enum").is_some() {
                    schema["propertyNames"] = keys;
                }
                schema
            }
            _ => self.of_declared(&kind, &arguments, scope, name),
        }
    }

    fn of_declared(&mut self, kind: &str, arguments: &[&Type], scope: &Rc<Scope>, name: Option<PartName<'_>>) -> Value {
        if let Some(names) = self.made_by_macros.get(kind) {
            return json!({"enum": names});
        }
        let found = self.sources.find(kind, &scope.file).cloned();
        let DeclaredType { file, declaration } =
            found.unwrap_or_else(|| panic!("{}: unknown type `{kind}`", scope.file));
        let inside = |generics: &Generics| scope_inside(generics, &file, arguments, scope);
        let location = format!("{file}: `{}`", with_arguments(kind, arguments, scope));
        match declaration {
            Declaration::ByHand(doc) => {
                let json = doc
                    .json
                    .as_ref()
                    .unwrap_or_else(|| panic!("{location}: `impl Serialize` without ``JSON: `TYPE`.``"));
                let schema = self.of_type(json, &Rc::new(Scope { file, ..Scope::default() }), name);
                self.list(schema, name, &location, &doc)
            }
            Declaration::Alias(item) => {
                let own = separated(kind, '_');
                let doc = Doc::of(&item.attrs, &location);
                let part = PartName {
                    name: name.map_or(&*own, |given| given.name),
                    doc: name.and_then(|given| given.doc).or(Some(&doc)),
                };
                let schema = self.of_type(&item.ty, &inside(&item.generics), Some(part));
                self.list(schema, name, &location, &doc)
            }
            Declaration::Enum(item) if SerdeAttributes::of(&item.attrs).untagged => {
                let scope = inside(&item.generics);
                let variants = item.variants.iter().map(|variant| match &variant.fields {
                    Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                        self.of_type(&fields.unnamed[0].ty, &scope, None)
                    }
                    _ => panic!("{location}: variants that are not one value are not supported"),
                });
                json!({"oneOf": variants.collect::<Vec<_>>()})
            }
            Declaration::Enum(item) if SerdeAttributes::of(&item.attrs).tag.is_some() => {
                let scope = inside(&item.generics);
                let own = separated(kind, '_');
                let name = name.map_or(&*own, |given| given.name);
                let doc = Doc::of(&item.attrs, &location);
                self.part(name, &location, &doc, |schemas, location| schemas.tagged(&item, &scope, location))
            }
            Declaration::Enum(item) => names_of(&item, &location),
            Declaration::Struct(item) => {
                let scope = inside(&item.generics);
                let serde = SerdeAttributes::of(&item.attrs);
                match &item.fields {
                    Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                        self.of_type(&fields.unnamed[0].ty, &scope, name)
                    }
                    Fields::Named(fields) if serde.transparent => self.of_type(&fields.named[0].ty, &scope, name),
                    fields => {
                        let wrapped = self.wrapped(fields, &scope);
                        let (own, attributes) = wrapped.unwrap_or_else(|| (kind.to_owned(), item.attrs.clone()));
                        let own = separated(own.trim_end_matches("Json").trim_end_matches("Document"), '_');
                        let doc = Doc::of(&attributes, &location);
                        let given = name.unwrap_or(PartName { name: &own, doc: None });
                        let object = |schemas: &mut Self, location: &str| {
                            schemas.object(fields, &serde, &scope, location).schema()
                        };
                        self.part(given.name, &location, given.doc.unwrap_or(&doc), object)
                    }
                }
            }
        }
    }

    /// The name and the attributes of the type that an object adds something to: the parameter that it begins with.
    fn wrapped(&self, fields: &Fields, scope: &Rc<Scope>) -> Option<(String, Vec<Attribute>)> {
        let field = fields.iter().next().filter(|field| is_parameter(field, scope))?;
        let bare = bare(&field.ty, scope);
        let Type::Path(path) = &bare.kind else { return None };
        let name = named(&path.path);
        match &self.sources.find(&name, &bare.scope.file)?.declaration {
            Declaration::Struct(item) => Some((name, item.attrs.clone())),
            _ => None,
        }
    }

    /// The variants of an enumeration, each with the fields of its type and its name.
    fn tagged(&mut self, item: &ItemEnum, scope: &Rc<Scope>, location: &str) -> Value {
        let of = SerdeAttributes::of(&item.attrs);
        let tag = of.tag.clone().unwrap_or_default();
        let variants = item.variants.iter().map(|variant| {
            let Fields::Unnamed(fields) = &variant.fields else {
                panic!("{location}: variants that are not one value are not supported")
            };
            let mut object = Object::default();
            self.flatten(&fields.unnamed[0].ty, false, scope, &mut object);
            let name = SerdeAttributes::of(&variant.attrs).name(&variant.ident.to_string(), &of);
            object.properties.insert(tag.clone(), json!({"const": name}));
            object.required.push(tag.clone());
            let mut schema = object.schema();
            schema["unevaluatedProperties"] = false.into();
            schema
        });
        json!({"oneOf": variants.collect::<Vec<_>>()})
    }

    /// The schema of a whole document that is a list, as a part.
    fn list(&mut self, schema: Value, name: Option<PartName<'_>>, location: &str, doc: &Doc) -> Value {
        match name {
            Some(given) if schema.get("$ref").is_none() => self.part(given.name, location, doc, |_, _| schema),
            _ => schema,
        }
    }

    /// A reference to the part `name`, which is made if it is not there.
    fn part(&mut self, name: &str, location: &str, doc: &Doc, schema: impl FnOnce(&mut Self, &str) -> Value) -> Value {
        match self.parts.get(name) {
            Some(part) => {
                assert!(part.declared == location, "{location} and {} are both the part `{name}`", part.declared);
            }
            None => {
                let part =
                    SchemaPart { document: self.document.clone(), declared: location.to_owned(), schema: Value::Null };
                self.parts.insert(name.to_owned(), part);
                let mut schema = schema(self, location);
                self.describe(&mut schema, doc, "", location);
                self.parts.get_mut(name).expect("it was inserted").schema = schema;
            }
        }
        json!({"$ref": name})
    }

    fn object(&mut self, fields: &Fields, of: &SerdeAttributes, scope: &Rc<Scope>, location: &str) -> Object {
        let mut object = Object::default();
        for field in fields {
            let serde = SerdeAttributes::of(&field.attrs);
            let own = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let location = format!("{location}, `{own}`");
            if serde.skip {
                continue;
            }
            let doc = Doc::of(&field.attrs, &location);
            let kind = doc.json.as_ref().unwrap_or(&field.ty);
            assert!(!serde.by_hand || doc.json.is_some(), "{location}: a function writes it: say ``JSON: `TYPE`.``");
            if serde.flatten {
                self.flatten(kind, doc.json.is_none() && is_parameter(field, scope), scope, &mut object);
                continue;
            }
            let name = serde.name(&own, of);
            let mut schema = match &serde.skip_if {
                Some(function) => self.unless(function, kind, scope),
                None => {
                    object.required.push(name.clone());
                    self.of_type(kind, scope, None)
                }
            };
            self.describe(&mut schema, &doc, &name, &location);
            object.add_conditions(&doc, &name);
            object.properties.insert(name, schema);
        }
        object
    }

    /// The schema of a field that is left out where `function` is true.
    fn unless(&mut self, function: &str, kind: &Type, scope: &Rc<Scope>) -> Value {
        let bare = bare(kind, scope);
        let mut schema = self.of_bare(&bare, None);
        let least = match (function, schema["type"].as_str()) {
            ("is_none", _) if bare.options == 1 => return schema,
            ("is_empty", Some("array")) => "minItems",
            ("is_empty", Some("object")) => "minProperties",
            ("is_empty", Some("string")) => "minLength",
            (_, Some("integer")) if schema["minimum"] == 0 => "minimum",
            _ => return if bare.options > 0 { or_null(schema) } else { schema },
        };
        schema[least] = 1.into();
        schema
    }

    /// Adds the fields of a flattened one: those of a parameter as if they were its own, others by reference.
    fn flatten(&mut self, kind: &Type, is_parameter: bool, scope: &Rc<Scope>, object: &mut Object) {
        let bare = bare(kind, scope);
        match &bare.kind {
            Type::Tuple(none) if none.elems.is_empty() => return,
            Type::Path(path) if ["Map", "BTreeMap"].contains(&named(&path.path).as_str()) => {
                object.open = true;
                return;
            }
            _ => {}
        }
        if let (true, 0, Type::Path(path)) = (is_parameter, bare.options, &bare.kind) {
            let name = named(&path.path);
            let found = self.sources.find(&name, &bare.scope.file).cloned();
            if let Some(DeclaredType { file, declaration: Declaration::Struct(item) }) = found {
                let location = format!("{file}: `{name}`");
                let inside = scope_inside(&item.generics, &file, &arguments(&path.path), &bare.scope);
                object.add(self.object(&item.fields, &SerdeAttributes::of(&item.attrs), &inside, &location));
                return;
            }
        }
        let schema = self.of_bare(&bare, None);
        let name = schema["$ref"].as_str().unwrap_or_else(|| panic!("{}: only objects are flattened", scope.file));
        self.included.insert(name.to_owned());
        let include = json!({"$include": name});
        object.includes.push(if bare.options > 0 { json!({"anyOf": [include, true]}) } else { include });
    }

    /// Adds what the doc comment says, and the unit.
    fn describe(&self, schema: &mut Value, doc: &Doc, name: &str, location: &str) {
        doc.check(location);
        if !doc.one_of.is_empty() {
            let text = innermost(schema);
            assert!(holds(text, "string"), "{location}: only texts are one of several");
            let null = text["type"].is_array().then_some(Value::Null);
            *text = json!({"enum": doc.one_of.iter().map(|name| json!(name)).chain(null).collect::<Vec<_>>()});
        }
        if doc.text.starts_with("SHA-256 of") && holds(schema, "string") {
            schema["pattern"] = "^[0-9a-f]{64}$".into();
        }
        if let Some((limit, least)) = doc.least {
            schema[limit] = least.into();
        }
        let has_number = has_number(schema);
        for (limit, value) in &doc.limits {
            innermost(schema)[limit] = value.clone();
        }
        let unit = doc.unit.as_deref().or_else(|| {
            let of_name = UNITS.iter().find(|(end, _)| has_number && name.ends_with(end));
            of_name.map(|(_, unit)| *unit)
        });
        assert!(
            !has_number || unit.is_some(),
            "{location}: a number has a unit, at the end of its doc comment or of its name"
        );
        if let Some(unit) = unit {
            schema["unit"] = unit.into();
        }
        schema["description"] = doc.text.clone().into();
    }
}

impl Object {
    fn add(&mut self, other: Self) {
        self.properties.extend(other.properties);
        self.required.extend(other.required);
        self.includes.extend(other.includes);
        self.conditions.extend(other.conditions);
        self.beside.extend(other.beside);
        self.open |= other.open;
    }

    /// When the field `name` is there, as its doc comment says.
    fn add_conditions(&mut self, doc: &Doc, name: &str) {
        if let Some(condition) = &doc.always_if {
            self.conditions.push(json!({"if": condition.schema(), "then": {"required": [name]}}));
        }
        if let Some(condition) = &doc.only_if {
            self.conditions.push(json!({"if": {"required": [name]}, "then": condition.schema()}));
        }
        if let Some(other) = &doc.beside {
            self.beside.insert(name.to_owned(), json!([other]));
        }
    }

    fn schema(self) -> Value {
        let mut schema = json!({"type": "object", "properties": self.properties, "required": self.required});
        let all: Vec<Value> = self.includes.into_iter().chain(self.conditions).collect();
        if !all.is_empty() {
            schema["allOf"] = all.into();
        }
        if !self.beside.is_empty() {
            schema["dependentRequired"] = self.beside.into();
        }
        if self.open {
            schema["additionalProperties"] = true.into();
        }
        schema
    }
}

/// The scope inside of a type with these parameters, which is named in `outside` with `arguments`.
fn scope_inside(generics: &Generics, file: &str, arguments: &[&Type], outside: &Rc<Scope>) -> Rc<Scope> {
    let names = generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => Some(parameter.ident.to_string()),
        _ => None,
    });
    let parameters = names.zip(arguments.iter().map(|&kind| (kind.clone(), outside.clone()))).collect();
    Rc::new(Scope { file: file.to_owned(), parameters })
}

/// A type by its name, with the types that its parameters stand for.
fn with_arguments(name: &str, arguments: &[&Type], scope: &Rc<Scope>) -> String {
    let texts = arguments.iter().map(|argument| match bare(argument, scope) {
        Bare { kind: Type::Path(path), scope, .. } => {
            with_arguments(&named(&path.path), &self::arguments(&path.path), &scope)
        }
        _ => "…".to_owned(),
    });
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() { name.to_owned() } else { format!("{name}<{}>", texts.join(", ")) }
}

/// Whether a flattened field has a parameter of its type as its type.
fn is_parameter(field: &syn::Field, scope: &Scope) -> bool {
    let Type::Path(path) = &field.ty else { return false };
    let is_one = |name: &syn::Ident| scope.parameters.contains_key(&name.to_string());
    SerdeAttributes::of(&field.attrs).flatten && path.path.get_ident().is_some_and(is_one)
}

/// The names of the variants of an enumeration without fields.
fn names_of(item: &ItemEnum, location: &str) -> Value {
    let of = SerdeAttributes::of(&item.attrs);
    let names = item.variants.iter().map(|variant| {
        assert!(variant.fields.is_empty(), "{location}: variants with fields: say ``JSON: `TYPE`.`` where it is used");
        SerdeAttributes::of(&variant.attrs).name(&variant.ident.to_string(), &of)
    });
    json!({"enum": names.collect::<Vec<_>>()})
}

/// `kind` without references, boxes and options, and what its parameter stands for.
fn bare(kind: &Type, scope: &Rc<Scope>) -> Bare {
    let under = |kind: &Type, options: usize| {
        let bare = bare(kind, scope);
        Bare { options: bare.options + options, ..bare }
    };
    match kind {
        Type::Reference(reference) => under(&reference.elem, 0),
        Type::Paren(paren) => under(&paren.elem, 0),
        Type::Path(path) => {
            let name = named(&path.path);
            match name.as_str() {
                "Option" => under(arguments(&path.path)[0], 1),
                "Box" | "Arc" | "Rc" | "Cow" => under(arguments(&path.path)[0], 0),
                _ => match scope.parameters.get(&name) {
                    Some((kind, outside)) => bare(kind, outside),
                    None => Bare { kind: kind.clone(), scope: scope.clone(), options: 0 },
                },
            }
        }
        _ => Bare { kind: kind.clone(), scope: scope.clone(), options: 0 },
    }
}

/// The types in the angle brackets of a path.
fn arguments(path: &syn::Path) -> Vec<&Type> {
    let last = path.segments.last().map(|segment| &segment.arguments);
    let Some(PathArguments::AngleBracketed(arguments)) = last else { return Vec::new() };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    });
    types.collect()
}

fn or_null(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) if fields.is_empty() => return schema,
        _ => {}
    }
    if let Some(Value::Array(names)) = schema.get_mut("enum") {
        names.push(Value::Null);
        return schema;
    }
    match schema.get("type").cloned() {
        Some(kind) => schema["type"] = json!([kind, "null"]),
        None => return json!({"oneOf": [schema, {"type": "null"}]}),
    }
    schema
}

fn holds(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|one| one == kind),
        one => one == kind,
    }
}

/// What a list or an object by names holds, or the schema itself.
fn innermost(schema: &mut Value) -> &mut Value {
    let below = ["items", "additionalProperties"].into_iter().find(|key| schema.get(key).is_some_and(Value::is_object));
    match below {
        Some(key) => innermost(&mut schema[key]),
        None => schema,
    }
}

fn has_number(schema: &Value) -> bool {
    let lists = ["prefixItems", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    let below = ["items", "additionalProperties"].into_iter().filter_map(|key| schema.get(key));
    holds(schema, "number") || holds(schema, "integer") || lists.chain(below).any(has_number)
}
