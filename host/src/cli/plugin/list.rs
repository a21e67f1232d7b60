//! `blis plugin list`: policies by name, with the reason where one cannot be used.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::super::bound::{BoundArgs, CommandBound};
use super::super::output::OutputForm;
use super::super::workers::default_worker_settings;
use super::documents::{ParameterDocument, PluginList, PolicyDocument};
use super::kind::names;
use super::named::PluginSearchArgs;
use super::printed::{print_either, table};
use blis_config::policy::BuiltIn;
use blis_diag::printable;
use blis_eval::error::RunError;
use blis_eval::worker::{self, TimeLimit, WorkerFailure};
use blis_plugin::find::{Finder, PluginFile};
use blis_plugin::{Fault, Kind, LoadedPlugin, PolicyParameter};

/// CPU time to load one file: several times what an honest plugin takes.
const CPU_OF_A_FILE: Duration = Duration::from_secs(1);
/// The same for a policy of this program: an unoptimised build compiles the largest in some three seconds.
const CPU_OF_A_SHIPPED_FILE: Duration = Duration::from_secs(20);
/// Files that take longer than that, before the rest is listed without being read.
const SLOW_FILES: usize = 5;

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    bound: BoundArgs,
    #[command(flatten)]
    search: PluginSearchArgs,
    /// Form of the list; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

/// A policy, or a file that cannot be used as one.
#[derive(Debug, Default)]
struct Entry {
    name: String,
    kinds: Vec<Kind>,
    technology: &'static str,
    version: String,
    about: String,
    parameters: Vec<PolicyParameter>,
    /// The defaults depend on the deployment, so none is shown.
    defaults_by_deployment: bool,
    /// Where the defaults come from, if not from the registry alone.
    defaults_note: Option<&'static str>,
    file: Option<String>,
    sha256: Option<String>,
    /// The reason why it cannot be used.
    error: Option<String>,
}

pub(super) fn list(args: &ListArgs) -> Result<(), RunError> {
    let mut finder = args.search.finder();
    finder.limits.listing = true;
    let listed = listed(&finder, &args.bound.start())?;
    let document: PluginList = listed.iter().map(|one| one.document.clone()).collect();
    print_either(args.output, || text(&listed), &document)
}

/// What is printed about a policy, or about a file that cannot be used as one.
#[derive(Serialize, Deserialize)]
struct Listed {
    name: String,
    file: Option<String>,
    /// Numbers of its kinds.
    kinds: Vec<usize>,
    error: Option<String>,
    document: PolicyDocument,
    row: Vec<String>,
    details: String,
}

fn listed(finder: &Finder, bound: &CommandBound) -> Result<Vec<Listed>, RunError> {
    let mut all: Vec<Listed> = BuiltIn::all().iter().map(|row| built_in(row).listed()).collect();
    let mut slow = 0;
    for found in finder.all() {
        all.push(match found {
            Ok(found) if slow == SLOW_FILES => {
                let error = format!("not read, because {SLOW_FILES} files before it took too long: {CHECK}");
                Entry { error: Some(error), ..Entry::of_file(&found) }.listed()
            }
            Ok(found) => isolated(finder, &found, bound, &mut slow)?,
            Err(fault) => broken(&fault).listed(),
        });
    }
    // A built-in policy comes before a plugin of the same name, as when a run looks up a name.
    all.sort_by(|a, b| (&a.name, &a.file, &a.kinds).cmp(&(&b.name, &b.file, &b.kinds)));
    Ok(all)
}

/// What loads a file that the list leaves out.
const CHECK: &str = "`blis plugin check FILE` reads a file alone, with more time";

/// The plugin in a file, loaded in a process of its own. Adds one to `slow` if that takes too long.
fn isolated(finder: &Finder, found: &PluginFile, bound: &CommandBound, slow: &mut usize) -> Result<Listed, RunError> {
    let settings = default_worker_settings(Some(NonZeroUsize::MIN));
    let cpu = if found.is_shipped() { CPU_OF_A_SHIPPED_FILE } else { CPU_OF_A_FILE };
    let limit = bound.left(TimeLimit::Cpu(cpu))?;
    let worker = worker::start(&settings, limit, || entry(finder, found).listed())?;
    worker.wait().or_else(|failure| {
        if let Some(error) = bound.ended(&failure) {
            return Err(error);
        }
        let error = match failure {
            WorkerFailure::CpuTime | WorkerFailure::WallLimit(_) => {
                *slow += 1;
                format!("not read, because that takes more than {} s: {CHECK}", CPU_OF_A_FILE.as_secs())
            }
            failure => format!("loading it: {failure}"),
        };
        Ok(Entry { error: Some(error), ..Entry::of_file(found) }.listed())
    })
}

fn built_in(row: &'static BuiltIn) -> Entry {
    let loaded = row.load();
    let name = row.name.to_owned();
    let technology = loaded.plugin.technology().name();
    let (defaults_by_deployment, defaults_note) = (row.defaults_by_deployment(), row.defaults_note());
    Entry { name, technology, defaults_by_deployment, defaults_note, ..Entry::default() }.described(&loaded)
}

fn entry(finder: &Finder, found: &PluginFile) -> Entry {
    let entry = Entry::of_file(found);
    match finder.load(found) {
        Err(fault) => Entry { error: Some(fault.to_string()), ..entry },
        Ok(loaded) => Entry { sha256: Some(loaded.sha256.clone()), ..entry }.described(&loaded),
    }
}

/// An error that belongs to no single file.
fn broken(fault: &Fault) -> Entry {
    let file = fault.diagnostic.location.as_ref().map_or(String::new(), |location| location.file.to_string());
    let name = std::path::Path::new(&file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Entry { name, technology: "-", file: Some(file), error: Some(fault.to_string()), ..Entry::default() }
}

impl Entry {
    /// A plugin that is not loaded yet.
    fn of_file(found: &PluginFile) -> Self {
        Self {
            name: found.name.clone(),
            technology: found.technology.name(),
            file: Some(blis_diag::display(&found.location.path()).to_string()),
            ..Self::default()
        }
    }

    fn listed(self) -> Listed {
        let number = |kind: &Kind| Kind::ALL.iter().position(|one| one == kind).unwrap_or_default();
        Listed {
            kinds: self.kinds.iter().map(number).collect(),
            document: self.document(),
            row: self.row(),
            details: self.details(),
            name: self.name,
            file: self.file,
            error: self.error,
        }
    }

    /// Adds the description that the policy gives.
    fn described(self, loaded: &LoadedPlugin) -> Self {
        let description = loaded.plugin.description();
        Self {
            kinds: description.kinds.clone(),
            version: description.version.clone(),
            about: description.about.clone(),
            parameters: description.parameters.clone(),
            ..self
        }
    }

    fn document(&self) -> PolicyDocument {
        let parameter = |parameter: &PolicyParameter| ParameterDocument {
            about: parameter.about.clone(),
            default: (!self.defaults_by_deployment).then_some(parameter.default),
            max: parameter.max,
            min: parameter.min,
            name: parameter.name.clone(),
        };
        PolicyDocument {
            about: self.about.clone(),
            defaults_note: self.defaults_note.map(str::to_owned),
            error: self.error.clone(),
            file: self.file.clone(),
            kinds: self.kinds.iter().map(|kind| kind.name().to_owned()).collect(),
            name: self.name.clone(),
            parameters: self.parameters.iter().map(parameter).collect(),
            sha256: self.sha256.clone(),
            technology: self.technology.to_owned(),
            version: self.version.clone(),
        }
    }

    fn row(&self) -> Vec<String> {
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let short = self.sha256.as_deref().and_then(|sha| sha.get(..12)).unwrap_or("-");
        vec![
            printable(&self.name).into_owned(),
            or_dash(&names(&self.kinds)),
            self.technology.into(),
            or_dash(&self.version),
            short.into(),
        ]
    }

    /// The name; with the kind in front if policies of two kinds have the name.
    fn title(&self) -> String {
        match (BuiltIn::named(&self.name), &self.kinds[..], &self.file) {
            (Err(_), [kind], None) => format!("{kind}/{}", self.name),
            _ => printable(&self.name).into_owned(),
        }
    }

    /// Name, description, file and parameters.
    fn details(&self) -> String {
        let mut text = format!("\n{}\n", self.title());
        let file = self.file.as_ref().map(|file| format!("File: {file}"));
        let (about, note) = (Some(self.about.clone()).filter(|about| !about.is_empty()), self.defaults_note);
        for line in [about, note.map(str::to_owned), file].into_iter().flatten() {
            text += &wrapped(&line);
        }
        if self.parameters.is_empty() {
            return text;
        }
        text += &format!("Parameters of {}:\n", self.title());
        let row = |parameter: &PolicyParameter| {
            let PolicyParameter { name, default, min, max, .. } = parameter;
            let default = if self.defaults_by_deployment { "by deployment".to_owned() } else { default.to_string() };
            vec![format!("  {name}"), default, format!("{min} to {max}")]
        };
        let rows: Vec<_> = self.parameters.iter().map(row).collect();
        let table = table(&["  NAME", "DEFAULT", "RANGE"], &rows);
        let mut lines = table.lines();
        text += &format!("{}\n", lines.next().unwrap_or_default());
        for (line, parameter) in lines.zip(&self.parameters) {
            text += &format!("{line}\n");
            if !parameter.about.is_empty() {
                text += &wrapped(&format!("    {}", parameter.about));
            }
        }
        text
    }
}

/// Width of a line, columns.
const WIDTH: usize = 80;

/// `text`, indented as it begins, in lines that fit; a word alone may be longer.
fn wrapped(text: &str) -> String {
    use unicode_width::UnicodeWidthStr as _;
    let indent = " ".repeat(2 + text.len() - text.trim_start().len());
    let mut lines = vec![indent.clone()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.width());
        if line > indent.len() && line + 1 + word.width() > WIDTH {
            lines.push(indent.clone());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.len() > indent.len() { " " } else { "" };
            *line += word;
        }
    }
    lines.join("\n") + "\n"
}

/// A table of the policies, then their details, then the files that cannot be used.
fn text(listed: &[Listed]) -> String {
    let (broken, whole): (Vec<_>, Vec<_>) = listed.iter().partition(|one| one.error.is_some());
    let rows: Vec<_> = whole.iter().map(|one| one.row.clone()).collect();
    let mut text = table(&["NAME", "FOR", "RUN AS", "VERSION", "SHA-256"], &rows);
    whole.iter().for_each(|one| text += &one.details);
    if !broken.is_empty() {
        text += "\nCannot be used:\n";
    }
    for one in broken {
        let error = one.error.as_deref().unwrap_or_default().replace('\n', "\n    ");
        text += &format!("  {}: {error}\n", printable(&one.name));
    }
    text
}
