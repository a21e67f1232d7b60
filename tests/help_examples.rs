//! Every example of every help page, run as a shell runs it, in a folder that has the files of the repository.

use crate::macros::{Ended, assert_fits, blis};
use crate::shell::Shell;

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
    let lines = page.lines().take_while(|line| *line != "Examples:" && *line != "Options:");
    let names = lines.filter(is_command).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')).map(str::to_owned).collect()
}

/// Whether `line` printed text for people: no document, script, manual page or help, which may be wider.
fn is_text(line: &str, stdout: &str) -> bool {
    let others = ["completions", "--help", "blis man", "workload compose", "import llm-d", "blis export"];
    !stdout.starts_with(['{', '[']) && !others.iter().any(|other| line.contains(other))
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn every_example_of_every_help_page_runs() {
    let shell = Shell::new();
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
            let Ended { code, stdout, stderr, .. } = shell.run_on_terminal(&line);
            for made in [
                "my-search",
                "my-router",
                "my-router.rhai",
                "my-router.test.yaml",
                "my-admission",
                "my-admission.test.yaml",
                "my-c-router",
                "my-c-router.test.yaml",
            ] {
                let made = shell.folder().path(made);
                let _ = std::fs::remove_dir_all(&made).or_else(|_| std::fs::remove_file(&made));
            }
            if stderr.contains("No C compiler for WebAssembly") {
                eprintln!("skipped: {line}: {stderr}");
                continue;
            }
            assert_eq!(code, Some(0), "{line}: {stderr}");
            if is_text(&line, &stdout) {
                assert_fits(&line, &stdout);
            }
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} examples");
}
