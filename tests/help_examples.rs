//! Every example of every help page, run as a shell runs it, in a folder that has the files of the repository.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::macros::{Ended, Scratch, assert_fits, blis, ended, root};

/// The examples of `page`, as they stand at its end: each a line for a shell.
fn examples(page: &str) -> Vec<String> {
    let (_, examples) = page.split_once("Examples:\n").unwrap_or_else(|| panic!("no examples: {page}"));
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in examples.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(line.trim_end_matches('\\')),
            None => lines.push(line.trim_end_matches('\\').to_owned()),
        }
        goes_on = line.ends_with('\\');
    }
    lines
}

/// The commands of a page: of its groups, or of clap's list.
fn commands(page: &str) -> Vec<String> {
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  #");
    let lines =
        page.lines().take_while(|line| *line != "Examples:" && *line != "Options:" && *line != "Not there yet:");
    let names = lines.filter(is_command).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')).map(str::to_owned).collect()
}

/// Runs `line` in `folder` with its output on a terminal and its messages in a pipe. Without `script`, which makes the
/// terminal, both go to pipes.
fn on_terminal(line: &str, folder: &Path, path: &str) -> Ended {
    let shell = "bash -e -o pipefail -c \"$LINE\" 2> messages";
    let has_script = Command::new("script").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut command = Command::new(if has_script { "script" } else { "sh" });
    if has_script {
        command.args(["-qec", shell, "/dev/null"]);
    } else {
        eprintln!("there is no `script` to make a terminal: {line} prints into a pipe");
        command.args(["-c", shell]);
    }
    command.current_dir(folder).env("PATH", path).env("LINE", line).env("TERM", "xterm").stdin(Stdio::null());
    let mut ended = ended(&mut command);
    ended.stderr = std::fs::read_to_string(folder.join("messages")).expect("written by the shell");
    ended
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn every_example_of_every_help_page_runs() {
    let folder = Scratch::new();
    for name in ["examples", "policies", "plugins", "sdk", "docs", "tests"] {
        std::os::unix::fs::symlink(root().join(name), folder.path(name)).expect("scratch");
    }
    let program = Path::new(env!("CARGO_BIN_EXE_blis")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut pages = vec![String::new()];
    let mut checked = 0;
    while let Some(path_of_page) = pages.pop() {
        let page = blis!(format!("{path_of_page} --help")).done().stdout;
        if !page.contains("Usage:") {
            continue;
        }
        let is_group = path_of_page.is_empty() || page.contains("Commands:");
        pages.extend(
            commands(&page)
                .into_iter()
                .filter(|name| is_group && name != "help")
                .map(|name| format!("{path_of_page} {name}")),
        );
        for line in examples(&page) {
            let Ended { code, stdout, stderr, .. } = on_terminal(&line, &folder, &path);
            if stderr.contains("No C compiler for WebAssembly") {
                eprintln!("skipped: {line}: {stderr}");
                continue;
            }
            assert_eq!(code, Some(0), "{line}: {stderr}");
            if !["--output json", "completions", "--help"].iter().any(|other| line.contains(other)) {
                assert_fits(&line, &stdout);
            }
            checked += 1;
            for made in ["my-search", "my-router", "my-router.rhai", "my-admission", "my-c-router"] {
                let made = folder.path(made);
                let _ = std::fs::remove_dir_all(&made).or_else(|_| std::fs::remove_file(&made));
            }
        }
    }
    assert!(checked > 50, "only {checked} examples");
}
