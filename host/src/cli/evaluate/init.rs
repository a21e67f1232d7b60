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
    /// Suite of scenarios: chat, slo-tiers, long-context, or a file
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: String,
}

/// Names of the folders of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

impl Tool {
    fn folder(self) -> &'static str {
        match self {
            Self::Openevolve => "openevolve",
            Self::Gepa => "gepa",
            Self::Shinka => "shinka",
            Self::Skydiscover => "skydiscover",
            Self::Cluster => "cluster",
        }
    }
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
    let template = TEMPLATES.get_dir(args.tool.folder());
    let template = template.ok_or_else(|| RunError::runtime("the program has no such template"))?;
    let mut written = Vec::new();
    write(template, template.path(), dir, &name, &mut written)
        .map_err(|error| RunError::runtime(format_args!("cannot write into `{}`: {error}", dir.display())))?;
    written.sort();
    let list: String = written.iter().map(|path| format!("  {}\n", path.display())).collect();
    print_text(format_args!("{list}next: {}\n", dir.join("README.md").display()))
}

fn write(from: &Dir<'_>, root: &Path, to: &Path, suite: &str, written: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in from.entries() {
        match entry {
            DirEntry::Dir(dir) => write(dir, root, to, suite, written)?,
            DirEntry::File(file) => {
                let path = to.join(file.path().strip_prefix(root).unwrap_or(file.path()));
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                let text = file.contents_utf8().unwrap_or_default().replace("{{suite}}", suite);
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
