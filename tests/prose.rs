//! What documents say in prose is owned: every flag and command that they name exists, with a value that it takes, and the figures of
//! README.md are those of records.

use std::collections::BTreeSet;

use blis_eval::spec::SettingKey;
use serde_json::Value;

use crate::macros::{blis, root};
use crate::markdown::documents;

/// Flags of other programs that documents name, with the programs.
const OF_OTHERS: &[(&str, &[&str])] = &[
    (
        "cargo",
        &[
            "all-targets",
            "bench",
            "bin",
            "check",
            "ignored",
            "json",
            "locked",
            "manifest-path",
            "no-deps",
            "nocapture",
            "profile",
            "release",
            "tests",
        ],
    ),
    ("vllm bench serve", &["append-result", "goodput", "save-detailed", "save-result"]),
    ("GenAI-Perf and guidellm", &["measurement-interval", "output-details"]),
    ("scripts of sdk/ and .ci/", &["list"]),
    ("componentize-py and jco", &["aot", "disable", "env", "stub-wasi", "sync"]),
    (
        "ray and python -m blis_sim.ray",
        &["actors", "address", "generate", "head", "node-ip-address", "port", "program"],
    ),
    ("curl", &["unix-socket"]),
    ("rsvg-convert", &["format"]),
    (
        "templates of GEPA, OpenEvolve, ShinkaEvolve and SkyDiscover",
        &["checkpoint", "generations", "iterations", "max-metric-calls", "search"],
    ),
    ("valgrind", &["cache-sim", "tool"]),
    ("apt-get", &["no-install-recommends"]),
];

/// Flags that help leaves out.
const HIDDEN: [&str; 1] = ["simulation"];

/// The documents that say what is; CHANGELOG.md says what was.
fn today() -> impl Iterator<Item = String> {
    documents().into_iter().filter(|name| name != "CHANGELOG.md")
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("a document")
}

/// The words that begin with `--`, each with the word after it.
fn flags(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let starts = text.match_indices("--").map(|(at, _)| at);
    starts.filter_map(|at| {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let name = &text[at + 2..];
        let end = name.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_'));
        let (name, rest) = name.split_at(end.unwrap_or(name.len()));
        let starts_word = !before.is_alphanumeric() && !"-_".contains(before);
        let is_name = starts_word && name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
        let value = rest.strip_prefix([' ', '=']).unwrap_or_default();
        let end = value.find(|c: char| c.is_whitespace() || "`,;:)|".contains(c)).unwrap_or(value.len());
        is_name.then_some((name, &value[..end]))
    })
}

#[test]
fn every_flag_in_prose_exists() {
    let page = ::blis::cli::flags_page();
    let known: BTreeSet<&str> = flags(&page).map(|(name, _)| name).collect();
    let others: BTreeSet<&str> = OF_OTHERS.iter().flat_map(|(_, names)| *names).copied().collect();
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for name in today().filter(|name| name != "docs/flags.md") {
        let text = text_of(&name);
        for (flag, value) in flags(&text) {
            let dashed = flag.replace('_', "-");
            let is_known = known.contains(flag) || known.contains(dashed.as_str()) || HIDDEN.contains(&flag);
            if !is_known {
                used.insert(flag.to_owned());
            }
            if !is_known && !others.contains(flag) {
                wrong.push(format!("{name}: `--{flag}` is no flag"));
            }
            // A closed set of values: prose names none that is not in it.
            let key = SettingKey::get(flag).filter(|key| key.name == flag && !(key.choices)().is_empty());
            let is_word =
                !value.is_empty() && value.chars().all(|c| c.is_ascii_lowercase() || "-.0123456789".contains(c));
            if let Some(key) = key.filter(|_| is_word && value.len() > 2 && !value.starts_with('-'))
                && key.validate(value).is_err()
                && !PROSE.contains(&value)
            {
                wrong.push(format!("{name}: `--{flag} {value}` is refused"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} flags:\n{}", wrong.len(), wrong.join("\n"));
    let unused: Vec<&&str> = others.iter().filter(|name| !used.contains(**name)).collect();
    assert!(unused.is_empty(), "documents do not name these any more: {unused:?}");
}

/// Words of sentences that follow a flag.
const PROSE: [&str; 12] =
    ["and", "with", "says", "are", "the", "under", "for", "may", "sets", "where", "like", "against"];

/// Commands in code: `blis` and a word.
#[test]
fn every_command_in_prose_exists() {
    let page = ::blis::cli::flags_page();
    let known: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("## blis ")?.split(' ').next()).collect();
    let hidden = ["help", "convert", "compose", "completion"];
    let mut wrong = Vec::new();
    for name in today() {
        let text = text_of(&name);
        for (at, _) in text.match_indices("`blis ") {
            let rest = &text[at + "`blis ".len()..];
            let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(rest.len());
            let word = &rest[..end];
            let is_word = word.starts_with(|c: char| c.is_ascii_lowercase());
            if is_word && !known.contains(word) && !hidden.contains(&word) {
                wrong.push(format!("{name}: `blis {word}` is no command"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} commands:\n{}", wrong.len(), wrong.join("\n"));
}

/// The gains that README.md names are those of the records, all of them.
#[test]
fn gains_in_the_readme_are_those_of_records() {
    let readme = text_of("README.md");
    let records = std::fs::read_dir(root().join("examples/discoveries")).expect("a folder");
    let mut checked = 0;
    for folder in records.map(|entry| entry.expect("an entry").path()).filter(|path| path.join("record.yaml").is_file())
    {
        let suite = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(folder.join("record.yaml")).expect("a record");
        let record: Value = serde_yaml::from_str(&text).expect("YAML");
        let score = record["held_out"]["score"].as_f64().expect("a score");
        let words = readme.split_whitespace().collect::<Vec<_>>();
        let after = words.iter().skip_while(|word| !word.ends_with(&format!("`{suite}`"))).nth(1);
        let gain: f64 = after.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no gain of `{suite}`"));
        // Records have four digits, README.md three.
        assert!((gain - 100.0 * (score - 1.0)).abs() < 0.051, "`{suite}` {gain} %, but {score} in the record");
        checked += 1;
    }
    let named = readme.matches("` +").count();
    assert_eq!(checked, named, "README.md names gains without a record");
}

/// What README.md says is not simulated is refused by its flags.
#[test]
fn what_is_not_simulated_is_refused() {
    let readme = text_of("README.md");
    let (_, missing) = readme.split_once("Not simulated yet: ").expect("a list");
    for what in missing.trim().trim_end_matches('.').split(", ") {
        let flag = match what {
            "speculative decoding" => "--speculative-config={}",
            other => panic!("no flag of {other} is known"),
        };
        let message = blis!("run", "--model", "qwen/qwen3-14b", flag).refused();
        assert!(message.contains(&format!("is not simulated yet: {what}")), "{message}");
    }
}
