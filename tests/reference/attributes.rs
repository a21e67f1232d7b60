//! The attributes of serde that change what is written.

use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Token};

use super::sources::named;

/// Those of a type, a field or a variant.
#[derive(Default)]
pub(super) struct SerdeAttributes {
    pub rename: Option<String>,
    pub rename_all: Option<String>,
    pub flatten: bool,
    pub skip: bool,
    pub transparent: bool,
    pub untagged: bool,
    /// The field that has the name of the variant.
    pub tag: Option<String>,
    /// The name of the function after which a field is left out.
    pub skip_if: Option<String>,
    /// Whether a function or a tag decides what is written: the doc comment has to say it.
    pub by_hand: bool,
}

impl SerdeAttributes {
    pub fn of(attributes: &[Attribute]) -> Self {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            let read = attribute.parse_nested_meta(|meta| {
                let name = named(&meta.path);
                let value =
                    if meta.input.peek(Token![=]) { Some(meta.value()?.parse::<LitStr>()?.value()) } else { None };
                if meta.input.peek(syn::token::Paren) {
                    meta.parse_nested_meta(|meta| meta.value()?.parse::<Expr>().map(drop))?;
                }
                match name.as_str() {
                    "rename" => found.rename = value,
                    "rename_all" => found.rename_all = value,
                    "flatten" => found.flatten = true,
                    "skip" | "skip_serializing" => found.skip = true,
                    "transparent" => found.transparent = true,
                    "skip_serializing_if" => {
                        found.skip_if = value.map(|path| path.rsplit("::").next().unwrap_or_default().to_owned());
                    }
                    "serialize_with" | "with" | "into" | "content" => found.by_hand = true,
                    "tag" => found.tag = value,
                    "untagged" => found.untagged = true,
                    _ => {}
                }
                Ok(())
            });
            read.expect("attributes that serde reads, too");
        }
        found
    }

    /// The name in JSON of what is called `name`, of a type with the attributes `of`.
    pub fn name(&self, name: &str, of: &Self) -> String {
        let written = name.trim_start_matches("r#");
        self.rename
            .clone()
            .unwrap_or_else(|| of.rename_all.as_deref().map_or(written.to_owned(), |case| cased(written, case)))
    }
}

fn cased(name: &str, case: &str) -> String {
    match case {
        "snake_case" => separated(name, '_'),
        "kebab-case" => separated(name, '-'),
        "lowercase" => name.to_lowercase(),
        _ => panic!("`{name}`: names in {case} are not supported"),
    }
}

/// The words of a name in lower case.
pub(super) fn separated(name: &str, by: char) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(by);
        }
        words.push(if letter == '_' { by } else { letter.to_ascii_lowercase() });
    }
    words
}

/// A whole number, as the length of an array.
pub(super) fn whole(expression: &Expr) -> Option<u64> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        _ => None,
    }
}
