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
    /// A Zig file: compiled to a sandboxed component
    Zig,
    /// A Python file in a large component with its interpreter: sandboxed, some 100 times slower than Rust
    Python,
    /// A JavaScript file in a large component with its engine: sandboxed, some 100 times slower than Rust
    #[value(name = "javascript")]
    JavaScript,
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
    /// Functions of the policy, in the table for C.
    c_functions: &'static [&'static str],
    zig: &'static str,
    /// What it imports, and after two empty lines its class.
    python: &'static str,
    javascript: &'static str,
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
                include_str!(concat!("templates/zig/", $name, ".zig.in")),
                include_str!(concat!("templates/python/", $name, ".py.in")),
                include_str!(concat!("templates/javascript/", $name, ".js.in")),
                include_str!(concat!("templates/rhai/", $name, ".rhai.in")),
                include_str!(concat!("templates/fixtures/", $name, ".test.yaml.in")),
            )
        };
    }
    let (rust, c, zig, python, javascript, rhai, fixture) = match kind {
        Kind::Admission => texts!("admission"),
        Kind::Routing => texts!("routing"),
        Kind::RoutingFilter => texts!("routing-filter"),
        Kind::Priority => texts!("priority"),
        Kind::Scheduling => texts!("scheduling"),
        Kind::Preemption => texts!("preemption"),
        Kind::Latency => texts!("latency"),
        Kind::Saturation => texts!("saturation"),
        Kind::Ceilings => texts!("ceilings"),
        Kind::Fairness => texts!("fairness"),
        Kind::Ordering => texts!("ordering"),
        Kind::Eviction => texts!("eviction"),
        Kind::Scaling => texts!("scaling"),
        Kind::Drain => texts!("drain"),
        Kind::Placement => texts!("placement"),
        Kind::KvCache => texts!("kv-cache"),
        Kind::Disaggregation => texts!("disaggregation"),
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
        zig,
        python,
        javascript,
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
        Kind::Saturation => with(
            "How full the fullest instance is, by waiting requests.",
            ("full_queue", "5.0", "0.1", "1000.0", "requests waiting with which an instance is full"),
            ("Cluster, Saturation", "Saturation"),
            &["queue_depth"],
            &["saturation"],
        ),
        Kind::Ceilings => with(
            "Bands of priority below 0 wait earlier.",
            ("sheddable_limit", "0.7", "0.0", "10.0", "saturation from which on bands of priority below 0 wait"),
            ("Band, Ceilings", "Ceilings"),
            &[],
            &["ceilings"],
        ),
        Kind::Fairness => with(
            "The tenant that was served the fewest tokens.",
            ("output_weight", "2.0", "0.0", "1000.0", "prompt tokens that an output token counts as"),
            ("Band, Fairness, Flow", "Fairness"),
            &[],
            &["fair_pick"],
        ),
        Kind::Ordering => with(
            "Short prompts first, with an allowance for age.",
            ("tokens_per_second", "1000.0", "0.0", "1000000.0", "prompt tokens that a second of waiting is worth"),
            ("Ordering, Request", "Ordering"),
            &[],
            &["order"],
        ),
        Kind::Eviction => with(
            "The youngest request in flight, unless all have run for long.",
            ("longest_s", "10.0", "0.0", "100000.0", "age from which on a request is not evicted, seconds"),
            ("Band, Eviction, InFlight", "Eviction"),
            &[],
            &["evict"],
        ),
        Kind::Scaling => with(
            "A replica for so many requests, and none while one waits for a GPU.",
            ("per_replica", "16.0", "0.1", "100000.0", "requests for one replica, waiting and running"),
            ("Group, Scaling", "Scaling"),
            &[],
            &["scale"],
        ),
        Kind::Drain => with(
            "The replica with the least to do, by requests and used KV cache.",
            ("kv_weight", "32.0", "0.0", "100000.0", "requests that a full KV cache is worth"),
            ("Drain, Replica, DrainGroup", "Drain"),
            &[],
            &["drain"],
        ),
        Kind::Placement => with(
            "The fullest node, unless a replica can be the first of its group on another one.",
            ("spread_weight", "4.0", "0.0", "1000.0", "free GPUs that a replica of the same group is worth"),
            ("Node, Placement, StartingReplica", "Placement"),
            &[],
            &["placement"],
        ),
        Kind::KvCache => with(
            "Evicts the chunk that was used least recently, where each use counts as some seconds.",
            ("use_s", "60.0", "0.0", "1000000.0", "seconds that a use is worth"),
            ("KvCache, KvChunk", "KvCache"),
            &[],
            &["keep"],
        ),
        Kind::Disaggregation => with(
            "Prefills long prompts on the instance with the least to compute, if the decode instance has more.",
            ("least_tokens", "512.0", "0.0", "1000000.0", "tokens that are not cached from which on a prompt is long"),
            ("Disaggregation, PoolInstance, PrefillChoice, RoutedRequest", "Disaggregation"),
            &[],
            &["disaggregate"],
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
    let in_folder = |files: Vec<(PathBuf, Vec<u8>)>| {
        files.into_iter().map(|(path, content)| (target.join(path), content)).collect::<Vec<_>>()
    };
    let files = match args.lang {
        Language::Rhai => vec![(target.clone(), rhai(name, kind, &target).into_bytes())],
        Language::Rust => in_folder(rust(name, kind)),
        Language::C => in_folder(c(name, kind)),
        Language::Zig => in_folder(zig(name, kind)),
        Language::Python => in_folder(python(name, kind)),
        Language::JavaScript => in_folder(javascript(name, kind)),
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
    let Some(source) = lang.source() else {
        return steps(&shown.to_string(), "", &shown.to_string(), "");
    };
    let npm = if lang == Language::JavaScript { format!("\n  npm install --prefix {shown}") } else { String::new() };
    let build = format!("{npm}\n  blis plugin build {shown}");
    let allow = if lang.is_interpreted() { " --allow-large-components" } else { "" };
    steps(&format!("{shown}/{source}"), &build, &format!("{shown}/{name}.wasm"), allow)
}

/// What to do with the policy in the file `main`; `checked` is what `build` makes of it.
fn steps(main: &str, build: &str, checked: &str, allow: &str) -> String {
    format!(
        "The policy is in {main}. Change it, then{build}\n  blis plugin check {checked}{allow}\n  \
         blis plugin test {checked}{allow}\n  blis plugin bench {checked}{allow}\n"
    )
}

impl Language {
    /// The file to change, in the folder of the policy; `None` for a script, which has no folder.
    fn source(self) -> Option<&'static str> {
        Some(match self {
            Self::Rhai => return None,
            Self::Rust => "src/lib.rs",
            Self::C => "policy.c",
            Self::Zig => "policy.zig",
            Self::Python => "policy.py",
            Self::JavaScript => "policy.js",
        })
    }

    /// Whether components have the interpreter of the language inside.
    fn is_interpreted(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript)
    }
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
        Kind::Saturation => format!("blis run … --flow-control --saturation-detector {name}"),
        Kind::Ceilings => format!("blis run … --flow-control --usage-limit-policy {name}"),
        Kind::Ordering => format!("blis run … --flow-control --dispatch-order {name}"),
        Kind::Fairness => format!("blis run … --flow-control --fairness-policy {name}"),
        Kind::Eviction => format!("blis run … --flow-control --in-flight-eviction --eviction-policy {name}"),
        Kind::Scaling => format!("blis run … --autoscaler {name}"),
        Kind::Drain => format!("blis run … --autoscaler queue --drain-policy {name}"),
        Kind::KvCache => format!("blis run … --kv-offloading-size 100 --kv-cache-policy {name}"),
        Kind::Disaggregation => {
            format!("blis run … --prefill-instances 2 --decode-instances 2 --disaggregation-policy {name}")
        }
        Kind::RoutingFilter => format!("blis run … --routing-policy weighted --routing-filters {name}"),
        _ => format!("blis run … --{kind}-policy {name}"),
    }
}

/// Replaces the placeholders that templates of all languages have.
fn filled(text: &str, name: &str, kind: Kind) -> String {
    let Template { about, parameter: (parameter, default, min, max, meaning), .. } = template(kind);
    let values = [
        ("@name@", name),
        ("@kind@", kind.name()),
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
    let names = columns(&template, |name| format!("BLIS_TEXT(\"{name}\")"));
    let (row, reads) = if names.is_empty() {
        (String::new(), String::new())
    } else {
        let about = "/* What the policy reads about an instance: the columns in `reads`, in that order. */";
        let fields = template.reads.join(", ");
        let row = format!("{about}\ntypedef struct seen {{\n    double {fields};\n}} seen;\n\n");
        (row, format!("\n    .reads = BLIS_LIST({names}),"))
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
    own.into_iter().chain(headers()).collect()
}

/// The headers of the SDK, which go beside policies in C and Zig.
fn headers() -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    let headers = toolchain::files("c").into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "h"));
    headers.map(|(path, content)| (path, content.to_vec()))
}

fn zig(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = template(kind);
    let row = if template.reads.is_empty() {
        String::new()
    } else {
        let about = "/// What the policy reads about an instance: the columns in `reads`, in that order.";
        let fields: Vec<String> = template.reads.iter().map(|field| format!("{field}: f64")).collect();
        format!("{about}\nconst Seen = extern struct {{ {} }};\n\n", fields.join(", "))
    };
    let entries: String =
        template.c_functions.iter().map(|function| format!("    .{function} = {function},\n")).collect();
    let source = include_str!("templates/zig/policy.zig.in")
        .replace("@zig_row@", &row)
        .replace("@names@", &columns(&template, |name| format!("text(\"{name}\")")))
        .replace("@entries@", &entries)
        .replace("@body@", template.zig);
    let own = [(PathBuf::from("policy.zig"), filled(&source, name, kind).into_bytes())];
    own.into_iter().chain(headers()).collect()
}

fn python(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = template(kind);
    let (imports, class) = template.python.split_once("\n\n\n").unwrap_or(("", template.python));
    let source = include_str!("templates/python/policy.py.in")
        .replace("@imports@", imports)
        .replace("@names@", &columns(&template, |name| format!("\"{name}\"")))
        .replace("@body@", class.trim_end());
    vec![(PathBuf::from("policy.py"), filled(&source, name, kind).into_bytes())]
}

fn javascript(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = template(kind);
    let imports = if kind == Kind::Routing { "import { pick } from \"blis:policy/host@1.1.0\";\n\n" } else { "" };
    let source = include_str!("templates/javascript/policy.js.in")
        .replace("@imports@", imports)
        .replace("@names@", &columns(&template, |name| format!("\"{name}\"")))
        .replace("@body@", template.javascript.trim_end());
    let package = filled(include_str!("templates/javascript/package.json.in"), name, kind);
    [
        ("policy.js", filled(&source, name, kind)),
        ("package.json", package),
        (".gitignore", "/node_modules\n/*.wasm\n".into()),
    ]
    .map(|(path, content)| (PathBuf::from(path), content.into_bytes()))
    .into()
}

/// The names of the columns that a template reads, each written by `shown`.
fn columns(template: &Template, shown: impl Fn(&str) -> String) -> String {
    template.reads.iter().map(|field| shown(&field.replace('_', "-"))).collect::<Vec<_>>().join(", ")
}

/// `my-router` as `MyRouter`.
fn type_name(name: &str) -> String {
    let upper = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    name.split('-').map(upper).collect()
}
