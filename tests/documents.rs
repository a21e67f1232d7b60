//! The links of all documents lead somewhere, and every block says what it is.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::macros::root;
use crate::markdown::{Document, documents};

#[test]
fn every_link_leads_somewhere() {
    let documents: BTreeMap<String, Document> =
        documents().into_iter().map(|name| (name.clone(), Document::read(&name))).collect();
    let mut broken = Vec::new();
    let mut checked = 0;
    for document in documents.values() {
        for link in &document.links {
            if is_elsewhere(&link.target) {
                continue;
            }
            checked += 1;
            if let Err(reason) = follow(&link.target, document, &documents) {
                broken.push(format!("{}:{}: {}: {reason}", document.name, link.line, link.target));
            }
        }
    }
    assert!(broken.is_empty(), "{} broken links:\n{}", broken.len(), broken.join("\n"));
    assert!(checked > 100 || documents.is_empty(), "only {checked} links");
}

#[test]
fn every_block_names_its_language() {
    let languages = ["c", "json", "python", "rhai", "rust", "sh", "text", "toml", "yaml"];
    let mut wrong = Vec::new();
    for document in documents().iter().map(|name| Document::read(name)) {
        let unknown = document.blocks.iter().filter(|block| !languages.contains(&block.language.as_str()));
        wrong.extend(unknown.map(|block| format!("{}:{}: `{}`", document.name, block.line, block.language)));
    }
    assert!(wrong.is_empty(), "languages of blocks are {}:\n{}", languages.join(", "), wrong.join("\n"));
}

#[test]
fn anchors_are_those_of_github() {
    let page = "# A *b* `c_d`: e, f-g!\n\n## Same\n\n## Same\n\n## Same-1\n\n## α₁ Über [x](y)\n\n<a id=\"here\"></a>\n\n[u][v]\n";
    let document = Document::parse("page.md", page.to_owned());
    let anchors: Vec<&str> = document.anchors.iter().map(String::as_str).collect();
    assert_eq!(anchors, ["a-b-c_d-e-f-g", "here", "same", "same-1", "same-1-1", "α-über-x"]);
    let links: Vec<(usize, &str)> = document.links.iter().map(|link| (link.line, link.target.as_str())).collect();
    assert_eq!(links, [(9, "y"), (13, "[v], which is not defined")]);
}

#[test]
fn broken_links_are_found() {
    let text = "# Top\n[1](#top) [2](#bottom) [3](README.md) [4](docs/README.md#nowhere) [5](../README.md) [6](deny.toml#L1)\n";
    let page = Document::parse("PAGE.md", text.to_owned());
    let others = BTreeMap::from(["README.md", "docs/README.md"].map(|name| (name.to_owned(), Document::read(name))));
    let found: Vec<bool> = page.links.iter().map(|link| follow(&link.target, &page, &others).is_ok()).collect();
    assert_eq!(found, [true, false, true, false, false, true]);
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Why a link of `page` leads nowhere.
fn follow(target: &str, page: &Document, documents: &BTreeMap<String, Document>) -> Result<(), &'static str> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    if path.is_empty() {
        return if page.anchors.contains(anchor.unwrap_or_default()) {
            Ok(())
        } else {
            Err("no such heading on this page")
        };
    }
    let folder = Path::new(&page.name).parent().unwrap_or(Path::new(""));
    let path = normalized(&folder.join(path)).ok_or("outside of the repository")?;
    if !root().join(&path).exists() {
        return Err("no such file");
    }
    let Some(anchor) = anchor else { return Ok(()) };
    match documents.get(&path.display().to_string()) {
        Some(document) if document.anchors.contains(anchor) => Ok(()),
        Some(_) => Err("no such heading on that page"),
        None if anchor.starts_with('L') => Ok(()),
        None => Err("only documents have headings"),
    }
}

/// The path without `.` and `..`; `None` if it leaves the repository.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => whole.push(name),
            Component::CurDir => {}
            Component::ParentDir if whole.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(whole)
}
