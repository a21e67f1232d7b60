//! Instructions of one call of each kind of decision: by a script, a component and a native library, with 4, 64 and 256
//! instances, flows, chunks or whatever the decision is about.
//!
//! `cargo bench --bench calls [-- FILTER] [--json FILE]`
//!
//! Counted by `valgrind --tool=callgrind`, so that neither the load of the machine nor its clock matters: the program
//! starts itself under it, and the counter runs only inside of `count_calls`. A call includes the check of its output.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what a benchmark is for")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own files")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use blis_plugin::inputs::{GuestCall, ties, traffic};
use blis_plugin::wasm::{CompileCache, WasmSettings, componentize};
use blis_plugin::{FaultKind, Guest, Kind, Limits, Plugin, check, native, script, wasm};
use clap::Parser;

/// Numbers of instances, or of other rows.
const SIZES: [usize; 3] = [4, 64, 256];

#[derive(Debug, Parser)]
struct CallOptions {
    /// Only calls with this text in their name, as `component kv-cache`
    filter: Option<String>,
    /// Also write the figures to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Set for the process under valgrind
    #[arg(long, hide = true)]
    counted: bool,
    /// Set by `cargo bench`; without it every call is made once, as a test
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let options = CallOptions::parse();
    let subjects = Called::all(options.filter.as_deref())?;
    if options.counted || !options.bench {
        return subjects.iter().try_for_each(Called::run);
    }
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !valgrind.is_ok_and(|status| status.success()) {
        eprintln!("skipped: valgrind is not installed");
        return Ok(());
    }
    let counts = count(options.filter.as_deref(), subjects.len())?;
    let mut json = String::from("{\n");
    for (index, (subject, instructions)) in subjects.iter().zip(&counts).enumerate() {
        let per_call = instructions / subject.calls.len() as u64;
        println!("{:<34} {per_call:>9}", subject.name);
        let comma = if index + 1 < subjects.len() { "," } else { "" };
        writeln!(json, "  \"{}\": {per_call}{comma}", subject.name)?;
    }
    if let Some(path) = &options.json {
        fs::write(path, json + "}\n").with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The instructions of all calls of each subject, in their order.
fn count(filter: Option<&str>, subjects: usize) -> Result<Vec<u64>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let out = folder.join("profile");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=calls::count_calls", "--dump-after=calls::count_calls"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .arg("--counted")
        .args(filter)
        .output()
        .context("valgrind does not start")?;
    ensure!(output.status.success(), "under valgrind: {}", String::from_utf8_lossy(&output.stderr));
    (1..=subjects).map(|number| collected(&out.with_extension(number.to_string()))).collect()
}

/// The instructions in a profile.
fn collected(profile: &Path) -> Result<u64> {
    let text = fs::read_to_string(profile).with_context(|| profile.display().to_string())?;
    let total = text.lines().find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
    total.and_then(|number| number.trim().parse().ok()).with_context(|| format!("no sum in {}", profile.display()))
}

/// Calls of one kind that are counted together.
struct Called {
    name: String,
    plugin: Arc<dyn Plugin>,
    kind: Kind,
    n: usize,
    calls: Vec<GuestCall>,
}

impl Called {
    fn all(filter: Option<&str>) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for (technology, plugins) in [("script", scripts()?), ("component", components()?), ("native", libraries()?)] {
            for (kind, plugin) in plugins {
                for n in SIZES {
                    let name = format!("{technology} {kind} {n}");
                    if filter.is_none_or(|text| name.contains(text)) {
                        let calls = traffic(kind, n);
                        all.push(Self { name, plugin: Arc::clone(&plugin), kind, n, calls });
                    }
                }
            }
        }
        Ok(all)
    }

    fn run(&self) -> Result<()> {
        let setup = check::setup(&*self.plugin, self.kind, self.n, &Limits::default());
        let mut guest = self.plugin.start(&setup)?;
        // The first round allocates memory that later ones use again.
        warm_up(&mut *guest, &self.calls).with_context(|| self.name.clone())?;
        count_calls(&mut *guest, &self.calls);
        Ok(())
    }
}

fn warm_up(guest: &mut dyn Guest, calls: &[GuestCall]) -> Result<()> {
    let ties = ties();
    for call in calls {
        match call.run(guest, &ties) {
            // Fixtures return what they get, which need not be an index: the call and its check cost the same.
            Err(fault) if fault.kind == FaultKind::OutOfRange => {}
            output => drop(output?),
        }
    }
    Ok(())
}

/// What is counted: a function of its own; valgrind starts and stops the counter by its name.
#[inline(never)]
fn count_calls(guest: &mut dyn Guest, calls: &[GuestCall]) {
    let ties = ties();
    for call in calls {
        let _ = std::hint::black_box(call.run(guest, &ties));
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The first of the scripts that reimplement built-in policies, for each kind.
fn scripts() -> Result<Vec<(Kind, Arc<dyn Plugin>)>> {
    let folder = repository().join("examples/built-ins");
    let mut files = fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "rhai"));
    files.sort();
    let plugins: Result<Vec<_>, _> = files.iter().map(|file| script::load_file(file, &Limits::default())).collect();
    Ok(of_kinds(&plugins?))
}

fn components() -> Result<Vec<(Kind, Arc<dyn Plugin>)>> {
    let settings = WasmSettings {
        raw_nan: false,
        cache: CompileCache::Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls-compiled")),
    };
    let load = |name: &str, bytes: &[u8]| wasm::load(Path::new(name), bytes, &Limits::default(), &settings);
    let mut plugins = Vec::new();
    for name in ["rust-built-ins", "rust-flow-control", "rust-queue-scaler"] {
        let bytes = fs::read(repository().join(format!("policies/{name}.wasm")))?;
        plugins.push(load(name, &bytes)?);
    }
    let others = wat::parse_str(include_str!("others.wat"))?;
    plugins.push(load("others", &componentize(Path::new("others.wasm"), &others)?)?);
    Ok(of_kinds(&plugins))
}

/// Libraries built by the C compiler; none without one.
fn libraries() -> Result<Vec<(Kind, Arc<dyn Plugin>)>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls-libraries");
    fs::create_dir_all(&folder)?;
    let mut plugins = Vec::new();
    for name in ["everything", "flow"] {
        let library = folder.join(format!("{name}.so"));
        let built = Command::new("cc")
            .args(["-std=c11", "-shared", "-fPIC", "-O2"])
            .arg(format!("-I{}", repository().join("sdk/c").display()))
            .arg("-o")
            .arg(&library)
            .arg(repository().join(format!("host/plugin/src/native/fixtures/{name}.c")))
            .status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("native libraries are left out: there is no C compiler");
            return Ok(Vec::new());
        }
        plugins.push(native::load(&library, &Limits::default())?);
    }
    Ok(of_kinds(&plugins))
}

/// Each kind with the first of `plugins` that has it.
fn of_kinds(plugins: &[Arc<dyn Plugin>]) -> Vec<(Kind, Arc<dyn Plugin>)> {
    let first = |kind: Kind| plugins.iter().find(|plugin| plugin.description().kinds.contains(&kind));
    Kind::ALL.into_iter().filter_map(|kind| Some((kind, Arc::clone(first(kind)?)))).collect()
}
