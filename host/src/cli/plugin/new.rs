//! `blis plugin new`: creates a working policy, to be changed.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use include_dir::{Dir, include_dir};

use super::super::output::print_text;
use super::kind::kind_parser;
use super::toolchain;
use blis_eval::error::RunError;
use blis_plugin::decisions::Missing;
use blis_plugin::{Function, Kind};

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Name of the policy: lower-case letters, digits and `-`, as my-router
    #[arg(value_name = "NAME")]
    name: String,
    /// Kind of decision
    #[arg(long, value_parser = kind_parser(), value_name = "KIND")]
    kind: Kind,
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

/// The templates: those of all kinds, and a file for each kind.
static TEMPLATES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/src/cli/plugin/templates");

/// The template of a kind: lines `name: value`, then a section for each language and one for the cases of `blis plugin test`,
/// each below a line `==> name`.
#[derive(Clone, Copy)]
struct Template {
    kind: Kind,
    text: &'static str,
}

/// The template `file`.
fn template_text(file: &str) -> &'static str {
    let text = TEMPLATES.get_file(file).and_then(include_dir::File::contents_utf8);
    text.unwrap_or_else(|| panic!("there is no template {file}: every kind has one"))
}

impl Template {
    fn new(kind: Kind) -> Self {
        Self { kind, text: template_text(&format!("kinds/{kind}.in")) }
    }

    /// The section `name`.
    fn section(self, name: &str) -> &'static str {
        let mut sections = self.text.split("==> ").filter_map(|section| section.split_once('\n'));
        sections.find_map(|(found, text)| (found == name).then_some(text)).unwrap_or_default()
    }

    /// What it imports, in front of two empty lines, and the rest.
    fn imports_and_rest(self, language: &str) -> (&'static str, &'static str) {
        let section = self.section(language);
        section.split_once("\n\n\n").unwrap_or(("", section))
    }

    /// The value of the line `name`.
    fn value(self, name: &str) -> &'static str {
        let mut lines = self.text.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(found, value)| (found == name).then_some(value)).unwrap_or_default()
    }

    /// The columns that it reads, by the names of fields.
    fn reads(self) -> Vec<&'static str> {
        self.value("reads").split(", ").filter(|name| !name.is_empty()).collect()
    }

    /// The names of the columns that it reads, each written by `shown`.
    fn columns(self, shown: impl Fn(&str) -> String) -> String {
        self.reads().iter().map(|field| shown(&field.replace('_', "-"))).collect::<Vec<_>>().join(", ")
    }

    /// The functions that a table for C needs, as its entries.
    fn entries(self) -> String {
        let needed = |function: &&Function| matches!(function.row().missing, Missing::Never | Missing::InScripts(_));
        let mut names: Vec<&str> = self.kind.functions().iter().filter(needed).map(|one| one.name()).collect();
        names.sort_unstable();
        names.into_iter().map(|function| format!("    .{function} = {function},\n")).collect()
    }

    /// `text` with the values for the placeholders that templates of all languages have.
    fn filled(self, text: &str, name: &str) -> String {
        let text = text.replace("@use@", self.value("use")).replace("@name@", name).replace("@kind@", self.kind.name());
        let values = ["about", "parameter", "default", "min", "max", "meaning"];
        let text = values.into_iter().fold(text, |text, key| text.replace(&format!("@{key}@"), self.value(key)));
        text.replace("@Type@", &type_name(name))
    }
}

pub(super) fn new(args: &NewArgs) -> Result<(), RunError> {
    let name = check_name(&args.name)?;
    let usual =
        || if args.lang == Language::Rhai && Path::new("policies").is_dir() { "policies".into() } else { ".".into() };
    let dir = args.dir.clone().unwrap_or_else(usual);
    let kind = args.kind;
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
    let template = Template::new(kind);
    let cases = template.filled(template.section("fixture"), name).replace("@tested@", &tested.display().to_string());
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

fn rhai(name: &str, kind: Kind, file: &Path) -> String {
    let template = Template::new(kind);
    template.filled(&template.section("rhai").replace("@file@", &file.display().to_string()), name)
}

fn rust(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = Template::new(kind);
    let (signals, reads) = match template.reads().join(", ") {
        none if none.is_empty() => (String::new(), "()"),
        fields => {
            let about = "    /// What the policy reads about an instance.";
            (format!("\nblis_sdk::signals! {{\n{about}\n    pub struct Seen {{ {fields} }}\n}}\n"), "Seen")
        }
    };
    let mut uses: Vec<&str> = template.value("rust").split(", ").chain(["Description", "Policy", "Setup"]).collect();
    // As rustfmt sorts them: types, then functions.
    uses.sort_unstable_by_key(|name| (name.starts_with(char::is_lowercase), *name));
    let source = template_text("lib.rs.in")
        .replace("Description, Policy, @uses@, Setup", &uses.join(", "))
        .replace("@signals@", &signals)
        .replace("@reads@", reads)
        .replace("@Trait@", kind.row().rust)
        .replace("@body@", template.section("rust"));
    let manifest = format!("{}{}", template_text("Cargo.toml.in"), toolchain::workspace_of_sdk());
    let own = [
        (PathBuf::from("Cargo.toml"), template.filled(&manifest, name).into_bytes()),
        (PathBuf::from("src/lib.rs"), template.filled(&source, name).into_bytes()),
        (PathBuf::from(".gitignore"), b"/target\n/*.wasm\n".to_vec()),
    ];
    own.into_iter().chain(toolchain::sdk_crates()).collect()
}

fn c(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = Template::new(kind);
    let names = template.columns(|name| format!("BLIS_TEXT(\"{name}\")"));
    let (row, reads) = if names.is_empty() {
        (String::new(), String::new())
    } else {
        let about = "/* What the policy reads about an instance: the columns in `reads`, in that order. */";
        let fields = template.reads().join(", ");
        let row = format!("{about}\ntypedef struct seen {{\n    double {fields};\n}} seen;\n\n");
        (row, format!("\n    .reads = BLIS_LIST({names}),"))
    };
    let source = template_text("policy.c.in")
        .replace("@KIND@", kind.name())
        .replace("@c_row@", &row)
        .replace("@c_reads@", &reads)
        .replace("@entries@", &template.entries())
        .replace("@body@", template.section("c"));
    let own = [(PathBuf::from("policy.c"), template.filled(&source, name).into_bytes())];
    own.into_iter().chain(headers()).collect()
}

/// The headers of the SDK, which go beside policies in C and Zig.
fn headers() -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    let headers = toolchain::files("c").into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "h"));
    headers.map(|(path, content)| (path, content.to_vec()))
}

fn zig(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = Template::new(kind);
    let row = if template.reads().is_empty() {
        String::new()
    } else {
        let about = "/// What the policy reads about an instance: the columns in `reads`, in that order.";
        let fields: Vec<String> = template.reads().iter().map(|field| format!("{field}: f64")).collect();
        format!("{about}\nconst Seen = extern struct {{ {} }};\n\n", fields.join(", "))
    };
    let source = template_text("policy.zig.in")
        .replace("@zig_row@", &row)
        .replace("@names@", &template.columns(|name| format!("text(\"{name}\")")))
        .replace("@entries@", &template.entries())
        .replace("@body@", template.section("zig"));
    let own = [(PathBuf::from("policy.zig"), template.filled(&source, name).into_bytes())];
    own.into_iter().chain(headers()).collect()
}

fn python(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = Template::new(kind);
    let (imports, class) = template.imports_and_rest("python");
    let source = template_text("policy.py.in")
        .replace("@imports@", imports)
        .replace("@names@", &template.columns(|name| format!("\"{name}\"")))
        .replace("@body@", class.trim_end());
    vec![(PathBuf::from("policy.py"), template.filled(&source, name).into_bytes())]
}

fn javascript(name: &str, kind: Kind) -> Vec<(PathBuf, Vec<u8>)> {
    let template = Template::new(kind);
    let (imports, body) = template.imports_and_rest("javascript");
    let imports = if imports.is_empty() { String::new() } else { format!("{imports}\n\n") };
    let source = template_text("policy.js.in")
        .replace("@imports@", &imports)
        .replace("@names@", &template.columns(|name| format!("\"{name}\"")))
        .replace("@body@", body.trim_end());
    let package = template.filled(template_text("package.json.in"), name);
    [
        ("policy.js", template.filled(&source, name)),
        ("package.json", package),
        (".gitignore", "/node_modules\n/*.wasm\n".into()),
    ]
    .map(|(path, content)| (PathBuf::from(path), content.into_bytes()))
    .into()
}

/// `my-router` as `MyRouter`.
fn type_name(name: &str) -> String {
    let upper = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    name.split('-').map(upper).collect()
}
