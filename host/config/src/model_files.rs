//! Where the `config.json` of a model lies in a folder: beside others by name, alone, or in the cache of Hugging Face's hub.

use std::fs;
use std::path::{Path, PathBuf};

use blis_diag::{Diagnostic, nearest};

use super::error::ConfigError;

/// Longer files name no snapshot.
const REF_BYTES_MAX: u64 = 4096;
/// Folders are searched up to so many entries.
const ENTRIES_MAX: usize = 100_000;

/// The config of the model `name` (short, lower case; `organisation` as given) in a folder of its own below `folder`: `<name>/`,
/// `<organisation>/<name>/` or `models--<organisation>--<name>/`, in any case.
///
/// # Errors
/// If a folder of the hub's cache has several snapshots and does not say which.
pub(super) fn named(folder: &Path, organisation: Option<&str>, name: &str) -> Result<Option<PathBuf>, ConfigError> {
    let mut folders: Vec<PathBuf> = child(folder, name).into_iter().collect();
    if let Some(organisation) = organisation {
        folders.extend(child(folder, organisation).and_then(|inner| child(&inner, name)));
        folders.extend(child(folder, &format!("models--{organisation}--{name}")));
    } else {
        let end = format!("--{name}");
        let cached = |entry: &String| entry.starts_with("models--") && entry.ends_with(&end);
        folders.extend(children(folder).into_iter().filter(|child| cached(&child.lower)).map(|child| child.path));
    }
    for folder in folders {
        if let Some(config) = within(&folder)? {
            return Ok(Some(config));
        }
    }
    Ok(None)
}

/// The config of the one model of a folder: `config.json`, or that of a snapshot in the hub's cache (`snapshots/<hash>/`, chosen by
/// `refs/main`).
///
/// # Errors
/// If there are several snapshots and none is chosen.
pub(super) fn within(folder: &Path) -> Result<Option<PathBuf>, ConfigError> {
    let plain = folder.join("config.json");
    if exists(&plain) {
        return Ok(Some(plain));
    }
    let snapshots = folder.join("snapshots");
    if !snapshots.is_dir() {
        return Ok(None);
    }
    let main = folder.join("refs").join("main");
    if let Ok(text) = blis_diag::read_text(&main, REF_BYTES_MAX) {
        let hash = text.trim();
        let plain = !hash.is_empty() && hash.chars().all(|c| c.is_ascii_alphanumeric());
        let config = snapshots.join(hash).join("config.json");
        return if plain && exists(&config) {
            Ok(Some(config))
        } else {
            let what = format!("`refs/main` names the snapshot `{hash}`, and it has no `config.json`");
            Err(ConfigError::in_file(
                folder,
                Diagnostic::new(what).hint("download it again, or give the snapshot's own folder"),
            ))
        };
    }
    let mut found: Vec<PathBuf> =
        children(&snapshots).into_iter().map(|child| child.path.join("config.json")).collect();
    found.retain(|config| exists(config));
    match found.len() {
        0 => Ok(None),
        1 => Ok(found.pop()),
        several => {
            let what = format!("{several} snapshots, and no `refs/main` that chooses one");
            Err(ConfigError::in_file(folder, Diagnostic::new(what).hint("give the snapshot's own folder")))
        }
    }
}

/// A name in the folder that is like this one, to ask for.
pub(super) fn like(folder: &Path, name: &str) -> Option<String> {
    let names: Vec<String> = children(folder).into_iter().map(|child| child.lower).collect();
    let short: Vec<&str> = names.iter().map(|name| name.rsplit("--").next().unwrap_or(name)).collect();
    nearest(name, &short).map(str::to_owned)
}

/// An entry of a folder, with its name in lower case.
struct Child {
    lower: String,
    path: PathBuf,
}

/// The entry with that name, in the case as given if it is there.
fn child(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    if exact.is_dir() {
        return Some(exact);
    }
    let name = name.to_lowercase();
    children(folder).into_iter().find(|child| child.lower == name).map(|child| child.path)
}

/// The entries of a folder, sorted; none if it cannot be read.
fn children(folder: &Path) -> Vec<Child> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let entry =
        |entry: fs::DirEntry| Child { lower: entry.file_name().to_string_lossy().to_lowercase(), path: entry.path() };
    let mut children: Vec<Child> = entries.map(entry).collect();
    children.sort_by(|a, b| a.path.cmp(&b.path));
    children
}

/// Whether a file is there, readable or not.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
