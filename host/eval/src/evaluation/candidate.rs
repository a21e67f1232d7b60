//! A candidate: the bytes of a policy, and the technology that runs them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use blis_config::policy::{Ambiguous, BuiltIn};
use blis_diag::{Diagnostic, nearest, read_bytes, read_stdin};

use crate::error::RunError;
use crate::result_figures::Traits;
use crate::suite::{SuiteLimits, hex};
use blis_plugin::{Fault, FaultKind, Limits, LoadedPlugin, Technology, native, script, wasm};

/// Larger files are refused as candidates.
pub(super) const BYTES_MAX: u64 = 32 << 20;

/// The policy under evaluation, before it is compiled.
#[derive(Clone, Debug)]
pub struct CandidatePolicy {
    /// The file name in messages for the terminal.
    pub file: String,
    pub technology: Technology,
    pub bytes: Arc<[u8]>,
    /// SHA-256 of the bytes as they were read, hexadecimal.
    pub sha256: String,
}

impl CandidatePolicy {
    /// The built-in policy called `path`, if there is one; else the file, or standard input if `path` is `-`.
    pub fn read(path: &str, lang: Option<Technology>) -> Result<Self, RunError> {
        let named = BuiltIn::named(path).map_err(|Ambiguous { what, hint }| RunError::usage(what).hint(hint))?;
        if let Some(row) = named.filter(|_| lang.is_none()) {
            return Ok(Self::new(row.full_name(), Technology::BuiltIn, row.identity().into_bytes()));
        }
        let read = if path == "-" { read_stdin(BYTES_MAX) } else { read_bytes(Path::new(path), BYTES_MAX) };
        let bytes = read.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                RunError::usage(format_args!("the candidate `{path}` is larger than 32 MiB"))
                    .hint("is this the right file?")
            }
            _ => unreadable(path, &error),
        })?;
        Self::of_file(path, lang, bytes)
    }

    /// The candidate in `bytes`, which were read from `path`.
    pub(super) fn of_file(path: &str, lang: Option<Technology>, bytes: Vec<u8>) -> Result<Self, RunError> {
        let technology = lang.or_else(|| Technology::of(Path::new(path)));
        if let (None, Some(what)) = (technology, other_language(path)) {
            return Err(RunError::usage(format_args!("the candidate `{path}` is {what}, not a policy"))
                .hint("a policy is a Rhai script (.rhai) or a WebAssembly component (.wasm): `blis plugin new`"));
        }
        // Standard input has no file name, so the content shows the technology.
        let technology = technology.unwrap_or(match bytes.starts_with(b"\0asm") {
            true => Technology::Component,
            false => Technology::Script,
        });
        let file = if path == "-" { "candidate.rhai".to_owned() } else { path.to_owned() };
        Ok(Self::new(file, technology, bytes))
    }

    pub fn new(file: String, technology: Technology, bytes: Vec<u8>) -> Self {
        let sha256 = hex(&Sha256::digest(&bytes));
        Self { file, technology, bytes: bytes.into(), sha256 }
    }

    /// The source of a script, without the code fences that language models leave around it.
    fn source(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        (self.technology == Technology::Script).then(|| without_fences(text))
    }

    /// Properties of the source; zero for candidates without one.
    pub fn traits(&self) -> Traits {
        let Some(source) = self.source() else { return Traits::default() };
        let script::ScriptProfile { lines, signals, constants } = script::profile(&source);
        Traits { source_lines: lines, signals, constants }
    }

    /// Compiles the candidate under the limits of a suite. Native code is always refused: it would run in this
    /// process.
    pub fn load(&self, limits: &SuiteLimits) -> Result<LoadedPlugin, Fault> {
        if self.technology == Technology::Native {
            return Err(Fault::of(FaultKind::NotAllowed, native_code(&self.file)));
        }
        self.load_here(limits)
    }

    fn built_in(&self) -> Result<LoadedPlugin, Fault> {
        let row = BuiltIn::named(&self.file).ok().flatten();
        let unknown = || Fault::new(FaultKind::Unreadable, format!("{}: it is not a built-in policy", self.file));
        row.map(BuiltIn::load).ok_or_else(unknown)
    }

    /// As [`Self::load`], but loads native code as well: only for a process that may be killed.
    pub fn load_here(&self, limits: &SuiteLimits) -> Result<LoadedPlugin, Fault> {
        let limits = limits_of(limits);
        // The file name is always the same, because search tools choose any name, and equal candidates must get equal
        // results.
        let path = match self.technology {
            Technology::Script => Path::new("candidate.rhai"),
            Technology::Component => Path::new("candidate.wasm"),
            Technology::Native | Technology::BuiltIn => Path::new(&self.file),
        };
        let plugin = match self.technology {
            Technology::Script => match self.source() {
                Some(source) => script::load(path, &source, &limits)?,
                None => {
                    return Err(Fault::new(FaultKind::Unreadable, "candidate.rhai: it is not UTF-8 text"));
                }
            },
            Technology::Component => {
                wasm::load_known(path, &self.bytes, &self.sha256, &limits, &wasm::WasmSettings::default())?
            }
            Technology::Native => native::load(path, &limits)?,
            Technology::BuiltIn => return self.built_in(),
        };
        let (file, sha256) = (path.display().to_string(), self.sha256.clone());
        Ok(LoadedPlugin { name: NAME.to_owned(), file, sha256, bytes: self.bytes.len() as u64, plugin })
    }
}

/// The error of a candidate that is no file that can be read.
fn unreadable(path: &str, error: &io::Error) -> RunError {
    let known: Vec<&str> = BuiltIn::all().iter().map(|row| row.name).collect();
    match nearest(path, &known) {
        Some(name) if error.kind() == io::ErrorKind::NotFound => {
            RunError::usage(format_args!("there is no file and no built-in policy `{path}`"))
                .hint(format_args!("did you mean `{name}`?"))
        }
        _ => RunError::usage(format_args!("the candidate `{path}` cannot be read: {error}"))
            .hint("name a file, a built-in policy (`blis plugin list`), or `-` for standard input"),
    }
}

/// What a file with the ending of `path` holds, if that is neither a script nor a component.
fn other_language(path: &str) -> Option<&'static str> {
    Some(match Path::new(path).extension()?.to_str()? {
        "py" => "a Python program",
        "rs" | "c" | "h" | "go" | "js" | "ts" => "source code",
        "yaml" | "yml" | "json" | "toml" => "a file of settings",
        "md" | "csv" | "jsonl" | "gz" => "a file of data",
        _ => return None,
    })
}

/// Why native code is not loaded, with a hint.
pub(super) fn native_code(file: &str) -> Diagnostic {
    Diagnostic::new(format!("`{file}` is native code, which runs with your rights")).hint(
        "if you trust it, `blis evaluate --allow-native` evaluates it in a child process; in all other cases, \
         compile it to a component",
    )
}

/// Name of the candidate among the policies. No built-in policy and no file has this name.
pub const NAME: &str = "candidate";

/// The limits of a call, in the form that plugins take.
pub fn limits_of(limits: &SuiteLimits) -> Limits {
    Limits {
        fuel_per_call: limits.fuel_per_call,
        operations_per_call: limits.operations_per_call,
        memory_bytes: usize::try_from(limits.memory_mb << 20).unwrap_or(usize::MAX),
        log_lines: 0,
        large_components: limits.large_components,
        ..Limits::default()
    }
}

/// Replaces code fences, and the prose of a model around them, by empty lines, so that line numbers stay the same.
/// Search tools that do not recognise the fence of a language keep its tag as the first line, one more in every
/// generation.
fn without_fences(text: &str) -> String {
    let fence = |line: &str| line.trim_start().starts_with("```");
    let blank = |line: &str| line.trim().is_empty();
    let lines: Vec<&str> = text.lines().collect();
    let head = lines.iter().take_while(|line| fence(line) || is_tag(line) || blank(line)).count();
    let tail = lines.iter().rev().take_while(|line| line.trim() == "```" || blank(line)).count();
    let mut code = head..lines.len().saturating_sub(tail).max(head);
    // There is a further fence if prose stands before the block or after it.
    if let Some(at) = lines[code.clone()].iter().position(|line| fence(line)) {
        let at = code.start + at;
        let opened = lines[..head].iter().any(|line| fence(line));
        code = if opened { code.start..at } else { at + 1..code.end };
        let closed = lines[code.clone()].iter().position(|line| fence(line));
        code.end = closed.map_or(code.end, |closed| code.start + closed);
    }
    let kept = lines.iter().enumerate().map(|(index, line)| if code.contains(&index) { *line } else { "" });
    kept.collect::<Vec<_>>().join("\n")
}

/// Whether the line is only the tag of a language, as it follows a fence. No statement has this form.
fn is_tag(line: &str) -> bool {
    const TAGS: [&str; 18] = [
        "rhai",
        "rust",
        "rs",
        "javascript",
        "js",
        "typescript",
        "ts",
        "go",
        "golang",
        "python",
        "py",
        "c",
        "c++",
        "cpp",
        "java",
        "text",
        "txt",
        "plaintext",
    ];
    TAGS.iter().any(|tag| line.trim().eq_ignore_ascii_case(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_become_empty_lines() {
        assert_eq!(without_fences("rust\nrust\n```rhai\nfn route(r, s) { 0 }\n```\n"), "\n\n\nfn route(r, s) { 0 }\n");
        assert_eq!(without_fences("fn f() {}\nlet rust = 1;"), "fn f() {}\nlet rust = 1;");
        assert_eq!(without_fences("```\n```"), "\n");
        assert_eq!(without_fences(""), "");
        for tag in ["rs", "Rust", "Rhai", "python", "ts", "c++"] {
            assert_eq!(without_fences(&format!("{tag}\nfn f() {{}}")), "\nfn f() {}", "{tag}");
        }
    }

    #[test]
    fn prose_around_the_code_is_removed() {
        let block = "Here it is:\n```rhai\nfn f() {}\n```\nIt is better.";
        assert_eq!(without_fences(block), "\n\nfn f() {}\n\n");
        assert_eq!(without_fences("```\nfn f() {}\n```\nIt is better."), "\nfn f() {}\n\n");
        assert_eq!(without_fences("So:\n```\nfn f() {}"), "\n\nfn f() {}");
    }
}
