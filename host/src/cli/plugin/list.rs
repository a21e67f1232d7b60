//! `blis plugin list`: what can be named, and why something cannot.

use clap::Args;
use serde_json::{Value, json};

use super::super::output::OutputForm;
use super::{Places, names, print_either, table};
use blis_config::policy::BuiltIn;
use blis_eval::error::Failure;
use blis_plugin::find::{Finder, Found};
use blis_plugin::{Fault, Kind, Loaded, Parameter};

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    places: Places,
    /// Form of the list; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

/// Something that can be named, or cannot.
#[derive(Debug, Default)]
struct Entry {
    name: String,
    kinds: Vec<Kind>,
    technology: &'static str,
    version: String,
    about: String,
    parameters: Vec<Parameter>,
    file: Option<String>,
    sha256: Option<String>,
    /// Why it cannot be used.
    error: Option<String>,
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let entries = entries(&args.places.finder());
    let document = entries.iter().map(Entry::document).collect::<Vec<_>>();
    print_either(args.output, || text(&entries), &document.into())
}

fn entries(finder: &Finder) -> Vec<Entry> {
    let mut all: Vec<Entry> = BuiltIn::all().iter().map(built_in).collect();
    all.extend(finder.all().into_iter().map(|found| match found {
        Ok(found) => of(finder, &found),
        Err(fault) => broken(&fault),
    }));
    // Built-ins are in front of plugins of the same name, as they are when it is looked up.
    all.sort_by(|a, b| (&a.name, &a.file, &a.kinds).cmp(&(&b.name, &b.file, &b.kinds)));
    all
}

fn built_in(row: &'static BuiltIn) -> Entry {
    let loaded = row.load();
    let name = row.name.to_owned();
    Entry { technology: loaded.plugin.technology().name(), ..Entry { name, ..Entry::default() } }.described(&loaded)
}

fn of(finder: &Finder, found: &Found) -> Entry {
    let entry = Entry {
        name: found.name.clone(),
        technology: found.technology.name(),
        file: Some(found.place.path().display().to_string()),
        ..Entry::default()
    };
    match finder.load(found) {
        Err(fault) => Entry { error: Some(fault.to_string()), ..entry },
        Ok(loaded) => Entry { sha256: Some(loaded.sha256.clone()), ..entry }.described(&loaded),
    }
}

/// What belongs to no single file.
fn broken(fault: &Fault) -> Entry {
    let file = fault.diagnostic.location.as_ref().map_or(String::new(), |location| location.file.to_string());
    let name = std::path::Path::new(&file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Entry { name, technology: "-", file: Some(file), error: Some(fault.to_string()), ..Entry::default() }
}

impl Entry {
    /// With what the policy says about itself.
    fn described(self, loaded: &Loaded) -> Self {
        let description = loaded.plugin.description();
        Self {
            kinds: description.kinds.clone(),
            version: description.version.clone(),
            about: description.about.clone(),
            parameters: description.parameters.clone(),
            ..self
        }
    }

    fn document(&self) -> Value {
        let parameter = |parameter: &Parameter| {
            let Parameter { name, default, min, max, about } = parameter;
            json!({ "name": name, "default": default, "min": min, "max": max, "about": about })
        };
        json!({
            "name": self.name,
            "technology": self.technology,
            "kinds": self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "version": self.version,
            "about": self.about,
            "parameters": self.parameters.iter().map(parameter).collect::<Vec<_>>(),
            "file": self.file,
            "sha256": self.sha256,
            "error": self.error,
        })
    }

    fn row(&self) -> Vec<String> {
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let short = self.sha256.as_deref().and_then(|sha| sha.get(..12)).unwrap_or("-");
        vec![
            self.name.clone(),
            or_dash(&names(&self.kinds)),
            self.technology.into(),
            or_dash(&self.version),
            short.into(),
            self.file.clone().unwrap_or_else(|| "-".into()),
        ]
    }
}

/// A table, then the parameters of those that have some, then what is wrong.
fn text(entries: &[Entry]) -> String {
    let (broken, whole): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.error.is_some());
    let rows: Vec<_> = whole.iter().map(|entry| entry.row()).collect();
    let mut text = table(&["NAME", "FOR", "RUN AS", "VERSION", "SHA-256", "FILE"], &rows);
    for entry in whole.iter().filter(|entry| !entry.parameters.is_empty()) {
        text += &format!("\nParameters of {}:\n", entry.name);
        let row = |parameter: &Parameter| {
            let Parameter { name, default, min, max, about } = parameter;
            vec![format!("  {name}"), format!("{default}"), format!("{min} to {max}"), about.clone()]
        };
        let rows: Vec<_> = entry.parameters.iter().map(row).collect();
        text += &table(&["  NAME", "DEFAULT", "RANGE", "WHAT IT IS"], &rows);
    }
    if !broken.is_empty() {
        text += "\nCannot be used:\n";
    }
    for entry in broken {
        let told = entry.error.as_deref().unwrap_or_default().replace('\n', "\n    ");
        text += &format!("  {}: {told}\n", entry.name);
    }
    text
}
