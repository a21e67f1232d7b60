//! The SDK that the program carries, and the script in it that compiles guests.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use include_dir::{Dir, include_dir};
use tempfile::TempDir;

use blis_eval::error::RunError;

/// Longer modules are refused: a Python interpreter in a component has some 40 MB.
const MODULE_BYTES_MAX: u64 = 256 << 20;

/// The repository's `sdk/`.
static SDK: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../sdk");
/// The workspace, which has the versions of what `sdk/rust` depends on.
const WORKSPACE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));

/// Exit code of `sdk/build-guest.sh` where there is no compiler.
const NO_COMPILER: i32 = 3;

/// Files below `sdk/<folder>`: their paths below it, and their content.
pub(super) fn files(folder: &str) -> Vec<(PathBuf, &'static [u8])> {
    fn collect(dir: &'static Dir<'static>, root: &Path, to: &mut Vec<(PathBuf, &'static [u8])>) {
        let files =
            dir.files().filter_map(|file| Some((file.path().strip_prefix(root).ok()?.to_owned(), file.contents())));
        to.extend(files);
        dir.dirs().for_each(|dir| collect(dir, root, to));
    }
    let mut all = Vec::new();
    if let Some(dir) = SDK.get_dir(folder) {
        collect(dir, Path::new(folder), &mut all);
    }
    all
}

/// The crates of the SDK: folder in the repository, and folder beside a new policy to which the crate is copied.
const CRATES: [(&str, &str); 2] = [("rust", "blis-sdk"), ("abi", "blis-abi")];

/// The crates of the SDK, without their tests, which need this repository.
pub(super) fn sdk_crates() -> Vec<(PathBuf, Vec<u8>)> {
    CRATES.into_iter().flat_map(|(folder, name)| sdk_crate(folder, name)).collect()
}

/// The crate `sdk/<folder>` as the folder `name`.
fn sdk_crate(folder: &str, name: &'static str) -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    let kept = files(folder).into_iter().filter(|(path, _)| !path.starts_with("tests"));
    let without_tests = |content: &[u8]| {
        let mut manifest = parsed(&String::from_utf8_lossy(content));
        manifest.remove("dev-dependencies");
        toml::to_string(&manifest).unwrap_or_default().into_bytes()
    };
    kept.map(move |(path, content)| {
        let content = if path == Path::new("Cargo.toml") { without_tests(content) } else { content.to_vec() };
        (Path::new(name).join(path), content)
    })
}

/// The workspace tables from which the crates of the SDK inherit their settings.
pub(super) fn workspace_of_sdk() -> String {
    let workspace = parsed(WORKSPACE).remove("workspace").and_then(|table| table.try_into::<toml::Table>().ok());
    let mut workspace = workspace.unwrap_or_default();
    let mut wanted = toml::Table::new();
    if let Some(toml::Value::Table(all)) = workspace.get_mut("dependencies") {
        let needed: Vec<String> = CRATES.into_iter().flat_map(|(folder, _)| dependencies(folder)).collect();
        wanted.extend(needed.into_iter().filter_map(|name| Some((name.clone(), moved(all.remove(&name)?)))));
    }
    let mut kept = toml::Table::new();
    kept.insert("dependencies".into(), wanted.into());
    for table in ["package", "lints"] {
        kept.extend(workspace.remove(table).map(|value| (table.to_owned(), value)));
    }
    let mut document = toml::Table::new();
    document.insert("workspace".into(), kept.into());
    toml::to_string(&document).unwrap_or_default()
}

/// The dependencies of the crate `sdk/<folder>`.
fn dependencies(folder: &str) -> Vec<String> {
    let manifest = SDK.get_file(format!("{folder}/Cargo.toml")).and_then(|file| file.contents_utf8());
    let manifest = manifest.map(parsed).unwrap_or_default();
    manifest
        .get("dependencies")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(toml::Table::keys)
        .cloned()
        .collect()
}

/// A dependency of the workspace. A crate of the SDK becomes a path dependency on its folder beside the policy.
fn moved(dependency: toml::Value) -> toml::Value {
    let path = dependency.get("path").and_then(toml::Value::as_str);
    let ours = CRATES.into_iter().find(|(folder, _)| path.is_some_and(|path| path == format!("sdk/{folder}")));
    ours.map_or(dependency, |(_, name)| toml::Table::from_iter([("path".to_owned(), name.into())]).into())
}

fn parsed(text: &str) -> toml::Table {
    text.parse().unwrap_or_default()
}

/// Compiles `source`, the folder of a Rust crate or a file, to a core module, of Python and JavaScript to a component.
pub(super) fn compile(source: &Path) -> Result<Vec<u8>, RunError> {
    let scratch = scratch_folder()?;
    let unwritable =
        |error: io::Error| RunError::runtime(format_args!("cannot write to `{}`: {error}", scratch.path().display()));
    for folder in ["c", "wit"] {
        for (path, content) in files(folder) {
            write(&scratch.path().join(folder).join(path), content).map_err(unwritable)?;
        }
    }
    let script = SDK.get_file("build-guest.sh").map(|file| file.contents()).unwrap_or_default();
    let (script_path, out) = (scratch.path().join("build-guest.sh"), scratch.path().join("out.wasm"));
    write(&script_path, script).map_err(unwritable)?;
    let command = Command::new("bash")
        .arg(&script_path)
        .arg(source)
        .arg(&out)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let command = command.map_err(|error| {
        RunError::runtime(format_args!("cannot run bash: {error}"))
            .hint("install bash, or compile by hand as sdk/build-guest.sh does")
    })?;
    let output = command.wait_with_output().map_err(RunError::runtime)?;
    let messages = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => blis_diag::read_bytes(&out, MODULE_BYTES_MAX)
            .map_err(|error| RunError::runtime(format_args!("the compiler wrote no module: {error}"))),
        Some(NO_COMPILER) => {
            let (first, rest) = messages.trim_end().split_once('\n').unwrap_or((messages.trim_end(), ""));
            let ways: Vec<_> = rest.lines().map(|way| way.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            Err(RunError::runtime(first).hint(ways.join("; or ")))
        }
        _ => {
            // The messages of the compiler are printed in full, for the author of the policy.
            let _ = io::stderr().write_all(&output.stderr);
            Err(RunError::runtime(format_args!("`{}` does not compile", source.display()))
                .hint("see the messages of the compiler above"))
        }
    }
}

/// Writes a file, and creates its folders.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, content)
}

/// A new folder that only this user can enter, under an unpredictable name; removed when it is dropped.
fn scratch_folder() -> Result<TempDir, RunError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("blis-build-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    let folder = builder.tempdir();
    folder.map_err(|error| {
        RunError::runtime(format_args!("cannot create a temporary folder: {error}"))
            .hint("set TMPDIR to a folder that can be written to")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression (D6): a name that can be predicted, in a folder that all users share, and links were followed.
    #[cfg(unix)]
    #[test]
    fn the_folder_of_a_build_is_new_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let (one, other) = (scratch_folder().expect("a folder"), scratch_folder().expect("a folder"));
        assert_ne!(one.path(), other.path());
        for folder in [&one, &other] {
            let known = folder.path().symlink_metadata().expect("it is there");
            assert!(known.is_dir());
            assert_eq!(known.permissions().mode() & 0o777, 0o700);
        }
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
    }
}
