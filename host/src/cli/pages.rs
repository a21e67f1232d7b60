//! `blis completions` and `blis man`: generated from the same tree as the help.

use std::io;
use std::path::{Path, PathBuf};

use blis_eval::error::RunError;
use clap::{Args, Command};
use clap_complete::Shell;

use super::output::print;

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Folder for the pages: blis.1, and one for every command
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// `blis completions`.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), RunError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "blis", &mut script);
    print(String::from_utf8_lossy(&script))
}

/// `blis man`.
pub(super) fn man(args: &ManArgs, mut root: Command) -> Result<(), RunError> {
    let failed =
        |error: io::Error| RunError::runtime(format_args!("cannot write into `{}`: {error}", args.dir.display()));
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    root.build();
    let count = write_pages(&root, "blis", &args.dir).map_err(failed)?;
    print(format_args!("{count} pages written to {}\n", args.dir.display()))
}

/// Writes the pages of `command` and of its subcommands.
fn write_pages(command: &Command, name: &str, dir: &Path) -> io::Result<usize> {
    let title = name.replace(' ', "-");
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name("blis").display_name(name.to_owned()))
        .title(title.to_uppercase())
        .render(&mut page)?;
    std::fs::write(dir.join(format!("{title}.1")), page)?;
    let below = command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set());
    below
        .map(|below| write_pages(below, &format!("{name} {}", below.get_name()), dir))
        .try_fold(1, |sum, count| count.map(|count| sum + count))
}
