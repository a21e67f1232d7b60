//! `blis evaluate init`: a project for a search tool, ready to run.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use include_dir::{Dir, DirEntry, include_dir};

use super::super::output::print_text;
use blis_eval::error::RunError;
use blis_eval::suite::Suite;

static TEMPLATES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../sdk/python/templates");

#[derive(Debug, Args)]
pub(in crate::cli) struct InitArgs {
    /// Search tool
    #[arg(value_enum, value_name = "TOOL")]
    tool: Tool,
    /// Folder of the project: new, or empty
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Suite of scenarios: chat, shared-prefix, agentic, stale-signals, slo-tiers, long-context, gateway, tenants, overload, kv-eviction, kv-offload, disaggregation, or a file
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: String,
}

/// Names of the folders of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum Tool {
    /// OpenEvolve
    Openevolve,
    /// GEPA
    Gepa,
    /// ShinkaEvolve
    Shinka,
    /// SkyDiscover
    Skydiscover,
    /// One evaluation on many machines: a Slurm array, a Kubernetes job
    Cluster,
}

pub(super) fn init(args: &InitArgs) -> Result<(), RunError> {
    let suite = Suite::open(&args.suite).map_err(RunError::refused)?;
    // A file is found from the project, too.
    let name = match Suite::built_in().contains(&args.suite) {
        true => suite.name,
        false => fs::canonicalize(&args.suite).map_err(RunError::usage)?.display().to_string(),
    };
    let dir = &args.dir;
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) || dir.is_file() {
        return Err(
            RunError::usage(format_args!("`{}` exists and is not empty", dir.display())).hint("name a new folder")
        );
    }
    let template = TEMPLATES.get_dir(<&str>::from(args.tool));
    let template = template.ok_or_else(|| RunError::runtime("the program has no such template"))?;
    let mut written = Vec::new();
    let values = [("{{suite}}", name), ("{{environment}}", environment())];
    write(template, template.path(), dir, &values, &mut written)
        .map_err(|error| RunError::runtime(format_args!("cannot write into `{}`: {error}", dir.display())))?;
    written.sort();
    let list: String = written.iter().map(|path| format!("  {}\n", path.display())).collect();
    print_text(format_args!("{list}next: {}\n", dir.join("README.md").display()))
}

/// Commands for a shell that has the Python package: in a new environment, or that of this program.
fn environment() -> String {
    let program = std::env::current_exe().and_then(fs::canonicalize).unwrap_or_default();
    let new = |package: &str| format!("python3 -m venv venv\n. venv/bin/activate\npip install {package}");
    if let Some(environment) = environment_of(&program) {
        return format!(". {}", quoted(&environment.join("bin").join("activate")));
    }
    match package_of(&program) {
        Some(package) => new(&quoted(&package)),
        None => new(&format!("blis_sim-{}-py3-none-….whl    # the wheel of this release", env!("CARGO_PKG_VERSION"))),
    }
}

/// The virtual environment in which the program was installed with the package.
fn environment_of(program: &Path) -> Option<PathBuf> {
    let environment = program.parent()?.parent()?;
    environment.join("pyvenv.cfg").is_file().then(|| environment.to_owned())
}

/// What `pip install` can install: the wheel beside the program, or the folder of the package in its repository.
fn package_of(program: &Path) -> Option<PathBuf> {
    let prefix = format!("blis_sim-{}-", env!("CARGO_PKG_VERSION"));
    let is_wheel = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&prefix) && name.ends_with(".whl")
    };
    let folder = program.parent()?;
    let mut wheels = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_wheel);
    let in_repository = || {
        let packages = program.ancestors().map(|folder| folder.join("sdk").join("python"));
        packages.into_iter().find(|package| package.join("pyproject.toml").is_file())
    };
    wheels.next().or_else(in_repository)
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-+".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Text in the templates, and what replaces it.
type TemplateValues = [(&'static str, String)];

fn write(
    from: &Dir<'_>,
    root: &Path,
    to: &Path,
    values: &TemplateValues,
    written: &mut Vec<PathBuf>,
) -> std::io::Result<()> {
    for entry in from.entries() {
        match entry {
            DirEntry::Dir(dir) => write(dir, root, to, values, written)?,
            DirEntry::File(file) => {
                let path = to.join(file.path().strip_prefix(root).unwrap_or(file.path()));
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                let template = file.contents_utf8().unwrap_or_default().to_owned();
                let text = values.iter().fold(template, |text, (name, value)| text.replace(name, value));
                fs::write(&path, text)?;
                if path.extension().is_some_and(|extension| extension == "sh") {
                    make_executable(&path)?;
                }
                written.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_beside_the_program_or_in_its_repository() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("my repository/target/debug/blis");
        fs::create_dir_all(program.parent().expect("a folder")).expect("it can be created");
        fs::write(&program, "").expect("it can be written");
        assert_eq!((package_of(&program), environment_of(&program)), (None, None));
        let package = folder.path().join("my repository/sdk/python");
        fs::create_dir_all(&package).expect("it can be created");
        fs::write(package.join("pyproject.toml"), "").expect("it can be written");
        assert_eq!(package_of(&program), Some(package));
        let wheel = program.with_file_name(format!("blis_sim-{}-py3-none-any.whl", env!("CARGO_PKG_VERSION")));
        fs::write(&wheel, "").expect("it can be written");
        assert_eq!(package_of(&program), Some(wheel));
        let environment = folder.path().join("my repository/target");
        fs::write(environment.join("pyvenv.cfg"), "").expect("it can be written");
        assert_eq!(environment_of(&program), Some(environment));
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted(Path::new("/opt/blis-0.1/a_b.whl")), "/opt/blis-0.1/a_b.whl");
        assert_eq!(quoted(Path::new("/it's here")), r"'/it'\''s here'");
    }
}
