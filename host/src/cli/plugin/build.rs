//! `blis plugin build` and `pack`: sources, or a core module, become a component.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::output::print_text;
use super::{names, toolchain, usage_error};
use blis_eval::error::RunError;
use blis_plugin::Limits;
use blis_plugin::find::{Finder, read, sha256};
use blis_plugin::wasm::componentize;

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// Folder of a Rust crate or with a policy.c, or a C file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// File to write [default: beside the sources, named after the crate, the folder or the C file]
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
    let core = toolchain::compile(&source)?;
    write_component(&source, &core, args.out.as_ref().unwrap_or(&default_out))
}

pub(super) fn pack(args: &PackArgs) -> Result<(), RunError> {
    let core = read(&args.module, Limits::default().file_bytes).map_err(usage_error)?;
    let out = args.out.clone().unwrap_or_else(|| args.module.with_extension("component.wasm"));
    write_component(&args.module, &core, &out)
}

/// The source to compile, and the default output file.
fn source(path: &Path) -> Result<(PathBuf, PathBuf), RunError> {
    let metadata = fs::metadata(path)
        .map_err(|error| RunError::usage(blis_diag::unreadable(&path.display().to_string(), &error)))?;
    if metadata.is_file() {
        if path.extension().is_some_and(|extension| extension == "c") {
            return Ok((path.to_owned(), path.with_extension("wasm")));
        }
        return Err(neither(path));
    }
    let manifest = path.join("Cargo.toml");
    if manifest.is_file() {
        let name = package_name(&manifest)?;
        return Ok((path.to_owned(), path.join(format!("{name}.wasm"))));
    }
    let policy = path.join("policy.c");
    if policy.is_file() {
        let folder = fs::canonicalize(path).map_err(RunError::usage)?;
        let name = folder.file_name().unwrap_or("policy".as_ref()).to_string_lossy().into_owned();
        return Ok((policy, path.join(format!("{name}.wasm"))));
    }
    Err(neither(path))
}

fn neither(path: &Path) -> RunError {
    RunError::usage(format_args!("`{}` is neither a Rust crate nor a C file", path.display()))
        .hint("name a folder with a Cargo.toml or a policy.c, or a file that ends in `.c`")
}

fn package_name(manifest: &Path) -> Result<String, RunError> {
    let wrong = |message: String| RunError::usage(format_args!("{}: {message}", manifest.display()));
    let text = fs::read_to_string(manifest).map_err(|error| wrong(error.to_string()))?;
    let table = text.parse::<toml::Table>().map_err(|error| wrong(error.message().to_owned()))?;
    let name = table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    name.map(str::to_owned)
        .ok_or_else(|| wrong("it has no `name` in `[package]`".into()).hint("name the crate's own folder"))
}

/// Writes the component of `core`, the module compiled from `source`, and loads it to check that it is a plugin.
fn write_component(source: &Path, core: &[u8], out: &Path) -> Result<(), RunError> {
    let component = componentize(source, core).map_err(usage_error)?;
    toolchain::write(out, &component)
        .map_err(|error| RunError::runtime(format_args!("cannot write `{}`: {error}", out.display())))?;
    let finder = Finder::new(Vec::new());
    let found = super::find(&finder, &out.to_string_lossy())?;
    let loaded = super::load(&finder, &found)?;
    let description = loaded.plugin.description();
    let hash = sha256(&component);
    print_text(format_args!(
        "{}: {} bytes, sha256 {hash}\n{} {}, for {}\n",
        out.display(),
        component.len(),
        description.name,
        description.version,
        names(&description.kinds)
    ))
}
