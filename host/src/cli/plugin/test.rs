//! `blis plugin test`: single decisions of a policy, from fixture files and from the test functions of a script.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::bound::BoundArgs;
use super::super::output::OutputForm;
use super::bounded::{PLUGIN_WALL, bounded};
use super::kind::names;
use super::named::{Named, PluginSearchArgs, find_any, usage_error};
use super::printed::print_either;
use blis_diag::Location;
use blis_eval::error::RunError;
use blis_plugin::find::{Finder, PluginLocation, embedded_fixture};
use blis_plugin::fixture::{Fixture, FixtureCase};
use blis_plugin::{LoadedPlugin, TestFunction};

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Name or file of a plugin, or name of a built-in policy (KIND/NAME where two kinds have it)
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// Files with cases: inputs and expected outputs [default: NAME.test.yaml beside the plugin]
    #[arg(value_name = "FIXTURE")]
    fixtures: Vec<PathBuf>,
    #[command(flatten)]
    bound: BoundArgs,
    #[command(flatten)]
    search: PluginSearchArgs,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

/// The results of one plugin.
#[derive(Serialize, Deserialize)]
struct Tested {
    plugin: String,
    file: String,
    technology: String,
    kinds: String,
    rows: Vec<TestOutcome>,
}

/// The result of one case or test function.
#[derive(Serialize, Deserialize)]
struct TestOutcome {
    /// The fixture file or the script.
    file: String,
    name: String,
    kind: Option<String>,
    location: Option<Location>,
    expected: Option<String>,
    /// The output if it is not the expected one, or the message of a test function that failed.
    got: Option<String>,
}

pub(super) fn test(args: &TestArgs) -> Result<(), RunError> {
    let finder = args.search.finder();
    let found = find_any(&finder, &args.plugin)?;
    let fixtures = fixtures(&args.fixtures, &found)?;
    let about = format!("`{}`", blis_diag::printable(&args.plugin));
    let work = || tested(&finder, found, &fixtures);
    let tested: Tested = bounded(&args.bound, PLUGIN_WALL, &args.plugin, work)??;
    if tested.rows.is_empty() {
        return Err(RunError::usage(format_args!("there are no tests of {about}")).hint(missing(&tested.file)));
    }
    print_either(args.output, || tested.text(), &tested.document())?;
    let failed = tested.rows.iter().filter(|row| row.got.is_some()).count();
    if failed == 0 {
        return Ok(());
    }
    Err(RunError::runtime(format_args!("{failed} of {} tests failed", tested.rows.len()))
        .hint("each failed test shows what it expected and what it got"))
}

/// The fixture files at `paths`, or the one that belongs to the plugin.
fn fixtures(paths: &[PathBuf], found: &Named) -> Result<Vec<Fixture>, RunError> {
    if !paths.is_empty() {
        return paths.iter().map(|path| Fixture::read(path).map_err(RunError::refused)).collect();
    }
    let Named::Plugin(found) = found else { return Ok(Vec::new()) };
    let fixture = match &found.location {
        PluginLocation::File(path) => {
            let path = fixture_beside(path);
            path.is_file().then(|| Fixture::read(&path))
        }
        PluginLocation::Embedded(..) => embedded_fixture(&found.name).map(|(file, text)| Fixture::parse(&file, text)),
    };
    Ok(fixture.transpose().map_err(RunError::refused)?.into_iter().collect())
}

fn fixture_beside(plugin: &Path) -> PathBuf {
    plugin.with_extension("test.yaml")
}

/// What to do about missing tests of the plugin in `file`.
fn missing(file: &str) -> String {
    if !file.contains('.') {
        return "name a fixture file: see docs/plugins.md".to_owned();
    }
    let fixture = fixture_beside(Path::new(file));
    let functions = if file.ends_with(".rhai") { ", or functions `test_…()` in the script" } else { "" };
    format!("write {}{functions}, or name a fixture file: see docs/plugins.md", fixture.display())
}

fn tested(finder: &Finder, found: Named, fixtures: &[Fixture]) -> Result<Tested, RunError> {
    let (plugin, file, technology) = found.identity();
    let loaded = found.load(finder).map_err(usage_error)?;
    let description = loaded.plugin.description();
    fixtures.iter().try_for_each(|fixture| fixture.check(description)).map_err(RunError::refused)?;
    let cases = fixtures.iter().flat_map(|fixture| fixture.cases.iter().map(move |case| (fixture, case)));
    let mut rows: Vec<TestOutcome> = cases.map(|(fixture, case)| row_of_case(&loaded, fixture, case, finder)).collect();
    let functions = loaded.plugin.run_tests(&finder.limits).map_err(usage_error)?;
    rows.extend(functions.into_iter().map(|test| row_of_function(&file, test)));
    Ok(Tested { plugin, file, technology: technology.name().to_owned(), kinds: names(&description.kinds), rows })
}

fn row_of_case(loaded: &LoadedPlugin, fixture: &Fixture, case: &FixtureCase, finder: &Finder) -> TestOutcome {
    let mismatch = case.run(&*loaded.plugin, &finder.limits).err();
    let (expected, got) = mismatch.map_or((None, None), |mismatch| (Some(mismatch.expected), Some(mismatch.got)));
    TestOutcome {
        file: fixture.file.clone(),
        name: case.name.clone(),
        kind: Some(case.kind.name().to_owned()),
        location: Some(case.location.clone()),
        expected,
        got,
    }
}

fn row_of_function(file: &str, test: TestFunction) -> TestOutcome {
    let TestFunction { name, location, outcome } = test;
    TestOutcome { file: file.to_owned(), name, kind: None, location, expected: None, got: outcome.err() }
}

impl Tested {
    fn document(&self) -> Value {
        let row = |row: &TestOutcome| {
            json!({
                "name": row.name,
                "kind": row.kind,
                "file": row.file,
                "line": row.location.as_ref().and_then(|at| at.line),
                "column": row.location.as_ref().and_then(|at| at.column),
                "passed": row.got.is_none(),
                "expected": row.expected,
                "got": row.got,
            })
        };
        json!({
            "plugin": self.plugin,
            "file": self.file,
            "technology": self.technology,
            "passed": self.rows.iter().all(|row| row.got.is_none()),
            "tests": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{}: {}, for {}\n", self.file, self.technology, self.kinds);
        let mut file = "";
        for row in &self.rows {
            if row.file != file {
                file = &row.file;
                text += &format!("\n{file}\n");
            }
            text += &row.text();
        }
        let passed = self.rows.iter().filter(|row| row.got.is_none()).count();
        text += &format!("\n{passed} of {} tests passed\n", self.rows.len());
        text
    }
}

impl TestOutcome {
    fn text(&self) -> String {
        let Some(got) = &self.got else { return format!("✓ {}\n", self.name) };
        let at = self.location.as_ref().map_or_else(String::new, |at| format!("    {at}\n"));
        let got = got.replace('\n', "\n      ");
        match &self.expected {
            Some(expected) => format!("✗ {}\n{at}    expected {expected}\n    got      {got}\n", self.name),
            None => format!("✗ {}\n      {got}\n", self.name),
        }
    }
}
