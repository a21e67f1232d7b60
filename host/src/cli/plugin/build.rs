//! `blis plugin build` and `pack`: sources, or a core module, become a component.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::output::print_text;
use super::kind::names;
use super::named::{find, load, usage_error};
use super::toolchain;
use blis_eval::error::RunError;
use blis_plugin::Limits;
use blis_plugin::find::{Finder, read, sha256};
use blis_plugin::wasm::componentize;

/// Longer manifests are refused.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// Folder of a Rust crate, or with a policy.c, .zig, .py or .js; or such a file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// File to write [default: beside the sources, named after the crate, folder or file]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct PackArgs {
    /// Core WebAssembly module
    #[arg(value_name = "FILE")]
    module: PathBuf,
    /// File to write [default: the module's name, ending in .component.wasm]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn build(args: &BuildArgs) -> Result<(), RunError> {
    let (source, default_out) = source(&args.path)?;
    let compiled = toolchain::compile(&source)?;
    let out = args.out.as_ref().unwrap_or(&default_out);
    // Of a language with an interpreter, the tool makes a component, and a large one.
    if is_interpreted(&source) { write_component(&compiled, out, true) } else { pack_module(&source, &compiled, out) }
}

pub(super) fn pack(args: &PackArgs) -> Result<(), RunError> {
    let core = read(&args.module, Limits::default().file_bytes).map_err(usage_error)?;
    let out = args.out.clone().unwrap_or_else(|| args.module.with_extension("component.wasm"));
    pack_module(&args.module, &core, &out)
}

/// Files that `sdk/build-guest.sh` compiles.
const SOURCES: [&str; 4] = ["c", "zig", "py", "js"];

fn is_interpreted(source: &Path) -> bool {
    source.extension().is_some_and(|extension| extension == "py" || extension == "js")
}

/// The source to compile, and the default output file.
fn source(path: &Path) -> Result<(PathBuf, PathBuf), RunError> {
    let metadata = fs::metadata(path)
        .map_err(|error| RunError::usage(blis_diag::unreadable(&path.display().to_string(), &error)))?;
    if metadata.is_file() {
        if path.extension().is_some_and(|extension| SOURCES.iter().any(|known| extension == *known)) {
            return Ok((path.to_owned(), path.with_extension("wasm")));
        }
        return Err(neither(path));
    }
    let manifest = path.join("Cargo.toml");
    if manifest.is_file() {
        let name = package_name(&manifest)?;
        return Ok((path.to_owned(), path.join(format!("{name}.wasm"))));
    }
    let policy =
        SOURCES.map(|extension| path.join("policy").with_extension(extension)).into_iter().find(|file| file.is_file());
    if let Some(policy) = policy {
        let folder = fs::canonicalize(path).map_err(RunError::usage)?;
        let name = folder.file_name().unwrap_or("policy".as_ref()).to_string_lossy().into_owned();
        return Ok((policy, path.join(format!("{name}.wasm"))));
    }
    Err(neither(path))
}

fn neither(path: &Path) -> RunError {
    RunError::usage(format_args!(
        "`{}` is neither a Rust crate nor a policy in C, Zig, Python or JavaScript",
        path.display()
    ))
    .hint("name a folder with a Cargo.toml or a policy.c, .zig, .py or .js, or a file with such an ending")
}

fn package_name(manifest: &Path) -> Result<String, RunError> {
    let wrong = |message: String| RunError::usage(format_args!("{}: {message}", manifest.display()));
    let text = blis_diag::read_text(manifest, MANIFEST_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
    let table = text.parse::<toml::Table>().map_err(|error| wrong(error.message().to_owned()))?;
    let name = table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    name.map(str::to_owned)
        .ok_or_else(|| wrong("it has no `name` in `[package]`".into()).hint("name the crate's own folder"))
}

/// Writes the component of `core`, the module compiled from `source`.
fn pack_module(source: &Path, core: &[u8], out: &Path) -> Result<(), RunError> {
    write_component(&componentize(source, core).map_err(usage_error)?, out, false)
}

/// Writes `component`, and loads it to check that it is a plugin.
fn write_component(component: &[u8], out: &Path, large: bool) -> Result<(), RunError> {
    toolchain::write(out, component)
        .map_err(|error| RunError::runtime(format_args!("cannot write `{}`: {error}", out.display())))?;
    let mut finder = Finder::new(Vec::new());
    finder.limits.large_components = large;
    let found = find(&finder, &out.to_string_lossy())?;
    let loaded = load(&finder, &found)?;
    let description = loaded.plugin.description();
    let hash = sha256(component);
    print_text(format_args!(
        "{}: {} bytes, sha256 {hash}\n{} {}, for {}\n",
        out.display(),
        component.len(),
        description.name,
        description.version,
        names(&description.kinds)
    ))
}
