//! `blis plugin new`: creates a working policy, to be changed.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::super::output::print_text;
use super::{KindName, toolchain};
use blis_eval::error::RunError;
use blis_plugin::Kind;

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Name of the policy: lower-case letters, digits and `-`, as my-router
    #[arg(value_name = "NAME")]
    name: String,
    /// Kind of decision
    #[arg(long, value_enum, value_name = "KIND")]
    kind: KindName,
    /// Language
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    lang: Language,
    /// Target folder [default: policies/ for scripts if there is one, else the current folder]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// A script: sandboxed, microseconds per decision
    Rhai,
    /// A crate: compiled to a sandboxed component, nearly as fast as a built-in
    Rust,
    /// A C file: compiled to a sandboxed component, or to a native library
    C,
}

/// The parts of a template that depend on the kind.
struct Template {
    about: &'static str,
    /// Name, default, smallest, largest, meaning.
    parameter: (&'static str, &'static str, &'static str, &'static str, &'static str),
    rust: &'static str,
    /// Imports of the Rust template, besides those of every kind.
    rust_uses: &'static str,
    rust_trait: &'static str,
    /// Columns that it reads, by the names of fields.
    reads: &'static [&'static str],
    c: &'static str,
    /// Functions of the policy.
    c_functions: &'static [&'static str],
    rhai: &'static str,
    /// Cases of `blis plugin test`, equal in all languages.
    fixture: &'static str,
}

fn template(kind: Kind) -> Template {
    macro_rules! texts {
        ($name:literal) => {
            (
                include_str!(concat!("templates/rust/", $name, ".rs.in")),
                include_str!(concat!("templates/c/", $name, ".c.in")),
                include_str!(concat!("templates/rhai/", $name, ".rhai.in")),
                include_str!(concat!("templates/fixtures/", $name, ".test.yaml.in")),
            )
        };
    }
    let (rust, c, rhai, fixture) = match kind {
        Kind::Admission => texts!("admission"),
        Kind::Routing => texts!("routing"),
        Kind::RoutingFilter => texts!("routing-filter"),
        Kind::Priority => texts!("priority"),
        Kind::Scheduling => texts!("scheduling"),
        Kind::Preemption => texts!("preemption"),
        Kind::Latency => texts!("latency"),
    };
    let with = |about, parameter, (rust_uses, rust_trait), reads, c_functions| Template {
        about,
        parameter,
        rust,
        rust_uses,
        rust_trait,
        reads,
        c,
        c_functions,
        rhai,
        fixture,
    };
    match kind {
        Kind::Admission => with(
            "Rejects classes of priority below 0 while many requests wait.",
            ("max_queue", "8.0", "0.0", "1000.0", "requests waiting per instance, on average"),
            ("Admission, AdmissionDecision, Cluster, Request", "Admission"),
            &["queue_depth"],
            &["admit"],
        ),
        Kind::Routing => with(
            "The instance with the fewest requests, waiting and in flight.",
            ("in_flight_weight", "1.0", "0.0", "100.0", "weight of a request in flight relative to a waiting one"),
            ("Cluster, Request, Routing, argmin", "Routing"),
            &["queue_depth", "in_flight"],
            &["route"],
        ),
        Kind::RoutingFilter => with(
            "Leaves out instances with long queues.",
            ("max_queue", "5.0", "1.0", "1000.0", "requests waiting from which an instance is left out"),
            ("Cluster, Filter, Request", "Filter"),
            &["queue_depth"],
            &["filter"],
        ),
        Kind::Priority => with(
            "By class, and within a class short prompts first.",
            ("per_class", "10000.0", "0.0", "1000000.0", "prompt tokens that one step of class priority is worth"),
            ("Priority, Request", "Priority"),
            &[],
            &["priority"],
        ),
        Kind::Scheduling => with(
            "Short prompts first, with an allowance for age, so that no request starves.",
            ("tokens_per_second", "1000.0", "0.0", "1000000.0", "prompt tokens that a second of waiting is worth"),
            ("Queued, Request, Scheduling", "Scheduling"),
            &[],
            &["rank"],
        ),
        Kind::Preemption => with(
            "The request with the most KV blocks and the fewest generated tokens.",
            ("blocks_per_token", "0.1", "0.0", "100.0", "KV blocks that a generated token is worth"),
            ("Preemption, Running, argmax", "Preemption"),
            &[],
            &["victim"],
        ),
        Kind::Latency => with(
            "A constant time plus a time per token and per token of context.",
            ("us_per_token", "20.0", "0.0", "1000000.0", "time per token, µs"),
            ("Latency, LatencyConstants, Step", "Latency"),
            &[],
            &["constants", "queueing_time", "step_time"],
        ),
    }
}

pub(super) fn new(args: &NewArgs) -> Result<(), RunError> {
    let name = check_name(&args.name)?;
    let usual =
        || if args.lang == Language::Rhai && Path::new("policies").is_dir() { "policies".into() } else { ".".into() };
    let dir = args.dir.clone().unwrap_or_else(usual);
    let kind = Kind::from(args.kind);
    let target = if args.lang == Language::Rhai { dir.join(format!("{name}.rhai")) } else { dir.join(name) };
    if target.exists() {
        return Err(RunError::usage(format_args!("`{}` exists already", target.display()))
            .hint("choose another name, or another `--dir`; nothing is overwritten"));
    }
    let files = match args.lang {
        Language::Rhai => vec![(target.clone(), rhai(name, kind, &target).into_bytes())],
        Language::Rust => rust(name, kind).into_iter().map(|(path, content)| (target.join(path), content)).collect(),
        Language::C => c(name, kind).into_iter().map(|(path, content)| (target.join(path), content)).collect(),
    };
    let tested = if args.lang == Language::Rhai { target.clone() } else { target.join(format!("{name}.wasm")) };
    let fixture = tested.with_extension("test.yaml");
    if fixture.exists() {
        return Err(RunError::usage(format_args!("`{}` exists already", fixture.display()))
            .hint("choose another name, or another `--dir`; nothing is overwritten"));
    }
    let cases = filled(template(kind).fixture, name, kind).replace("@tested@", &tested.display().to_string());
    let files = files.into_iter().chain([(fixture, cases.into_bytes())]);
    for (path, content) in files {
        toolchain::write(&path, &content)
            .map_err(|error| RunError::runtime(format_args!("cannot write `{}`: {error}", path.display())))?;
    }
    print_text(next_steps(args.lang, name, &target))
}

fn next_steps(lang: Language, name: &str, target: &Path) -> String {
    let shown = target.display();
    let (main, build, checked) = match lang {
        Language::Rhai => (format!("{shown}"), String::new(), format!("{shown}")),
        Language::Rust => {
            (format!("{shown}/src/lib.rs"), format!("\n  blis plugin build {shown}"), format!("{shown}/{name}.wasm"))
        }
        Language::C => {
            (format!("{shown}/policy.c"), format!("\n  blis plugin build {shown}"), format!("{shown}/{name}.wasm"))
        }
    };
    format!(
        "The policy is in {main}. Change it, then{build}\n  blis plugin check {checked}\n  \
         blis plugin test {checked}\n  blis plugin bench {checked}\n"
    )
}

/// Checks that `name` can be a word on the command line, a file name and the name of a Rust crate.
fn check_name(name: &str) -> Result<&str, RunError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let sound = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(allowed) && name.len() <= 50;
    if sound && !name.ends_with('-') {
        return Ok(name);
    }
    Err(RunError::usage(format_args!("`{name}` cannot be the name of a policy"))
        .hint("use up to 50 small letters, digits and `-`, and begin with a letter, as in my-router"))
}

/// The flag that selects the policy, for the comments of a template.
fn usage(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Scheduling => format!("blis run … --scheduler {name}"),
        Kind::Latency => format!("blis run … --latency-model {name}"),
        Kind::RoutingFilter => format!("blis run … --routing-policy weighted --routing-filters {name}"),
        _ => format!("blis run … --{kind}-policy {name}"),
    }
}

/// Replaces the placeholders that templates of all languages have.
fn filled(text: &str, name: &str, kind: Kind) -> String {
    let Template { about, parameter: (parameter, default, min, max, meaning), .. } = template(kind);
    let values = [
        ("@name@", name),
        ("@Type@", &type_name(name)),
        ("@about@", about),
        ("@use@", &usage(name, kind)),
        ("@parameter@", parameter),
        ("@default@", default),
        ("@min@", min),
        ("@max@", max),
        ("@meaning@", meaning),
    ];
    values.into_iter().fold(text.to_owned(), |text, (key, value)| text.replace(key, value))
}

fn rhai(name: &str, kind: Kind, file: &Path) -> String {
    filled(&template(kind).rhai.replace("@file@", &file.display().to_string()), name, kind)
}

fn rust(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = template(kind);
    let (signals, reads) = match template.reads.join(", ") {
        none if none.is_empty() => (String::new(), "()"),
        fields => {
            let about = "    /// What the policy reads about an instance.";
            (format!("\nblis_sdk::signals! {{\n{about}\n    pub struct Seen {{ {fields} }}\n}}\n"), "Seen")
        }
    };
    let mut uses: Vec<&str> = template.rust_uses.split(", ").chain(["Description", "Policy", "Setup"]).collect();
    // As rustfmt sorts them: types, then functions.
    uses.sort_unstable_by_key(|name| (name.starts_with(char::is_lowercase), *name));
    let source = include_str!("templates/rust/lib.rs.in")
        .replace("Description, Policy, @uses@, Setup", &uses.join(", "))
        .replace("@signals@", &signals)
        .replace("@reads@", reads)
        .replace("@Trait@", template.rust_trait)
        .replace("@body@", template.rust);
    let manifest = format!("{}{}", include_str!("templates/rust/Cargo.toml.in"), toolchain::workspace_of_sdk());
    let own = [
        (PathBuf::from("Cargo.toml"), filled(&manifest, name, kind).into_bytes()),
        (PathBuf::from("src/lib.rs"), filled(&source, name, kind).into_bytes()),
        (PathBuf::from(".gitignore"), b"/target\n/*.wasm\n".to_vec()),
    ];
    own.into_iter().chain(toolchain::sdk_crates()).collect()
}

fn c(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = template(kind);
    let names: Vec<String> =
        template.reads.iter().map(|field| format!("BLIS_TEXT(\"{}\")", field.replace('_', "-"))).collect();
    let (row, reads) = if names.is_empty() {
        (String::new(), String::new())
    } else {
        let about = "/* What the policy reads about an instance: the columns in `reads`, in that order. */";
        let fields = template.reads.join(", ");
        let row = format!("{about}\ntypedef struct seen {{\n    double {fields};\n}} seen;\n\n");
        (row, format!("\n    .reads = BLIS_LIST({}),", names.join(", ")))
    };
    let entries: String =
        template.c_functions.iter().map(|function| format!("    .{function} = {function},\n")).collect();
    let source = include_str!("templates/c/policy.c.in")
        .replace("@KIND@", kind.name())
        .replace("@c_row@", &row)
        .replace("@c_reads@", &reads)
        .replace("@entries@", &entries)
        .replace("@body@", template.c);
    let own = [(PathBuf::from("policy.c"), filled(&source, name, kind).into_bytes())];
    let headers = toolchain::files("c").into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "h"));
    own.into_iter().chain(headers.map(|(path, content)| (path, content.to_vec()))).collect()
}

/// `my-router` as `MyRouter`.
fn type_name(name: &str) -> String {
    let upper = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    name.split('-').map(upper).collect()
}
