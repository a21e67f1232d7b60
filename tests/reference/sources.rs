//! The declarations of the types that are serialised, from the sources of the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, ItemEnum, ItemStruct, ItemType, Type};

use super::doc::Doc;

/// A type as it is declared.
#[derive(Clone)]
pub(super) enum Declaration {
    Struct(ItemStruct),
    Enum(ItemEnum),
    Alias(ItemType),
    /// A type with an `impl Serialize`: the doc comment of that.
    ByHand(Box<Doc>),
}

/// A declaration and its file.
#[derive(Clone)]
pub(super) struct DeclaredType {
    pub file: String,
    pub declaration: Declaration,
}

/// All declarations by name.
pub(super) struct TypeSources(BTreeMap<String, Vec<DeclaredType>>);

impl TypeSources {
    /// Reads the files below `host` that serialise something.
    pub fn read(root: &Path) -> Self {
        let mut sources = Self(BTreeMap::new());
        let mut files = Vec::new();
        find(&root.join("host"), &mut files);
        for path in files {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if text.contains("Serialize") {
                sources.add_file(&path.strip_prefix(root).unwrap_or(&path).display().to_string(), &text);
            }
        }
        sources
    }

    /// The declarations of one file.
    pub fn of_text(text: &str) -> Self {
        let mut sources = Self(BTreeMap::new());
        sources.add_file("text.rs", text);
        sources
    }

    fn add_file(&mut self, file: &str, text: &str) {
        for text in [Some(text.to_owned()), with_common_fields(text)].into_iter().flatten() {
            let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
            self.add(parsed.items, file);
        }
    }

    fn add(&mut self, items: Vec<Item>, file: &str) {
        for item in items {
            let (name, declaration) = match item {
                Item::Struct(item) if derives(&item.attrs) => (item.ident.to_string(), Declaration::Struct(item)),
                Item::Enum(item) if derives(&item.attrs) => (item.ident.to_string(), Declaration::Enum(item)),
                Item::Type(item) => (item.ident.to_string(), Declaration::Alias(item)),
                Item::Impl(item) if item.trait_.as_ref().is_some_and(|of| named(&of.1) == "Serialize") => {
                    let Type::Path(of) = &*item.self_ty else { continue };
                    (named(&of.path), Declaration::ByHand(Box::new(Doc::of(&item.attrs, file))))
                }
                _ => continue,
            };
            self.0.entry(name).or_default().push(DeclaredType { file: file.to_owned(), declaration });
        }
    }

    /// What `name` means in `file`: a type of that file, else of its crate, else of any.
    pub fn find(&self, name: &str, file: &str) -> Option<&DeclaredType> {
        let all = self.0.get(name)?;
        let in_crate = |declared: &&DeclaredType| declared.file.split("/src/").next() == file.split("/src/").next();
        let here: Vec<_> = all.iter().filter(|declared| declared.file == file).collect();
        let near: Vec<_> = all.iter().filter(in_crate).collect();
        let found = [here, near, all.iter().collect()].into_iter().find(|found| !found.is_empty())?;
        let files: Vec<_> = found.iter().map(|declared| declared.file.as_str()).collect();
        assert!(
            found.len() == 1,
            "{file}: `{name}` may be that of {}: names in documents are unique",
            files.join(", ")
        );
        Some(found[0])
    }
}

/// The structures that a macro declares with fields of their own `before` and `after` those that all have.
fn with_common_fields(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("$($before)*")?;
    let (common, rest) = rest.split_once("$($after)*")?;
    let (_, calls) = rest.split_once("\nwith_signals! {\n")?;
    let (calls, _) = calls.split_once("\n}\n")?;
    let ended = calls.replace("after {}", "after {\n        }").replace("        }\n    }", "    }");
    let own = ended.replace("pub struct ", "#[derive(Serialize)]\npub struct ").replace("        before {", "");
    Some(own.replace("        }\n        after {", common))
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.ends_with("target") {
            find(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn derives(attributes: &[Attribute]) -> bool {
    let mut found = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let seen = attribute.parse_nested_meta(|meta| {
            found |= named(&meta.path) == "Serialize";
            Ok(())
        });
        seen.expect("a list of traits");
    }
    found
}

/// The last name of a path.
pub(super) fn named(path: &syn::Path) -> String {
    path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
}
