//! Messages about command lines that clap refuses: clap's text in the form of ours, with a hint for the mistakes that users
//! of vLLM, its benchmarks and BLIS make.

use std::ffi::OsString;

use blis_diag::{Diagnostic, nearest};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{flags, help};

/// clap's message in the form of ours: `error: …`, then `hint: …`.
pub(super) fn reworded(error: &clap::Error, words: &[OsString]) -> Diagnostic {
    let known = match error.kind() {
        ErrorKind::UnknownArgument => unknown_flag(error, words),
        ErrorKind::InvalidSubcommand => unknown_command(error),
        ErrorKind::MissingRequiredArgument => missing(error, words),
        _ => None,
    };
    known.unwrap_or_else(|| of_clap(error, words))
}

/// clap's own words and suggestion, without usage.
fn of_clap(error: &clap::Error, words: &[OsString]) -> Diagnostic {
    let text = error.to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or_default();
    let message = message.split("\n\nFor more information").next().unwrap_or_default().trim_end();
    let (message, tip) = message.split_once("\n\n  tip: ").map_or((message, None), |(text, tip)| (text, Some(tip)));
    let hint = hint_of_value(error).or_else(|| Some(tip?.replace("\n  tip: ", "; ")));
    Diagnostic::new(message).hint(hint.unwrap_or_else(|| help_hint(words)))
}

fn help_hint(words: &[OsString]) -> String {
    match command_of(words) {
        Some(command) => format!("`{command} --help` describes every flag"),
        None => "`blis help` lists the commands, `blis COMMAND --help` describes every flag".to_owned(),
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

/// A flag of another program, or one without a near name: clap suggests names that only share letters.
fn unknown_flag(error: &clap::Error, words: &[OsString]) -> Option<Diagnostic> {
    let flag = text(error, ContextKind::InvalidArg)?;
    if let Some(explained) = flags::explain(flag) {
        return Some(explained);
    }
    let command = command_of(words);
    let unknown = format!("error: unexpected argument '{flag}' found");
    if !flag.starts_with('-') {
        return None;
    }
    if flag == "--model" {
        return Some(Diagnostic::new(unknown).hint("`blis run --model NAME` simulates a server"));
    }
    let suggested = text(error, ContextKind::SuggestedArg)?;
    let is_near = nearest(flag, &[suggested]).is_some() || flag.starts_with(suggested) || suggested.starts_with(flag);
    if is_near || command.is_none() { None } else { Some(Diagnostic::new(unknown).hint(help_hint(words))) }
}

/// Words of other programs for our commands, and a hint for each.
const COMMANDS: &[(&str, &str)] = &[
    ("simulate", "`blis run` simulates a workload"),
    ("sim", "`blis run` simulates a workload"),
    ("bench", "`blis run` simulates what `vllm bench serve` measures; `blis plugin bench` times a policy"),
    ("benchmark", "`blis run` simulates what `vllm bench serve` measures; `blis plugin bench` times a policy"),
    ("trace", "`blis decisions` analyses recorded decisions, `blis replay` simulates a recorded trace"),
    ("report", "`blis evaluate held-out` compares candidates, `blis decisions` analyses runs"),
    ("policies", "`blis plugin list` lists the policies"),
    ("policy", "`blis plugin list` lists the policies"),
    ("list", "`blis plugin list`, `blis models` and `blis hardware` list what is built in"),
    ("gpus", "`blis hardware` lists the GPUs"),
    ("optimize", "`blis search` searches policies, `blis tune` parameter values"),
];

fn unknown_command(error: &clap::Error) -> Option<Diagnostic> {
    let word = text(error, ContextKind::InvalidSubcommand)?;
    let unknown = Diagnostic::new(format!("error: unknown command `{word}`"));
    if let Some((_, hint)) = COMMANDS.iter().find(|(name, _)| *name == word) {
        return Some(unknown.hint(*hint));
    }
    let suggested = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.iter().map(String::as_str).collect(),
        Some(ContextValue::String(name)) => vec![name.as_str()],
        _ => Vec::new(),
    };
    Some(match nearest(word, &suggested) {
        Some(name) => unknown.hint(format!("did you mean `{name}`?")),
        None if word.contains('/') => unknown.hint(format!("`blis run --model {word}` simulates a server")),
        None => unknown.hint("`blis help` lists the commands"),
    })
}

fn missing(error: &clap::Error, words: &[OsString]) -> Option<Diagnostic> {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::InvalidArg) else { return None };
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = quoted.split_last()?;
    let what = match others {
        [] => format!("error: {last} is missing"),
        _ => format!("error: {} and {last} are missing", others.join(", ")),
    };
    let hint = match names.as_slice() {
        [name] if name.starts_with("--model ") => "`blis models` lists the built-in models".to_owned(),
        [name] if name.starts_with("<CANDIDATE>") => {
            "name a script, a component or a built-in policy: `blis evaluate weighted`".to_owned()
        }
        _ => help_hint(words),
    };
    Some(Diagnostic::new(what).hint(hint))
}

/// A hint for a value that means something to other programs.
fn hint_of_value(error: &clap::Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let (flag, value) = (text(error, ContextKind::InvalidArg)?, text(error, ContextKind::InvalidValue)?);
    let (flag, placeholder) = flag.split_once(' ').unwrap_or((flag, ""));
    match (flag, value) {
        ("--rate", "inf") => {
            return Some("all requests at once: `--rate 1000000`; N of them in flight: `--concurrency N`".to_owned());
        }
        ("--stage", "test" | "held-out") => {
            return Some("`blis evaluate held-out` runs candidates on the held-out split".to_owned());
        }
        ("--workload", "sharegpt" | "random" | "sonnet" | "burstgpt" | "custom" | "hf") => {
            return Some(
                "`--prompt-tokens` and `--output-tokens` set random lengths; `--workload-trace FILE` reads recorded requests"
                    .to_owned(),
            );
        }
        ("--lang", "python") => {
            return Some("Python runs searches, not policies: write them in Rhai, Rust or C".to_owned());
        }
        _ => {}
    }
    if placeholder == "<N>" {
        return thousands(value);
    }
    let percent = value.trim_end_matches('%').parse::<f64>().ok().filter(|percent| (5.0..=100.0).contains(percent))?;
    (placeholder == "<SHARE>").then(|| format!("it is a share: {} for {percent} %", percent / 100.0))
}

/// `8k` as vLLM reads it.
fn thousands(value: &str) -> Option<String> {
    let (digits, factor) = match value.char_indices().last()? {
        (end, 'k') => (&value[..end], 1000),
        (end, 'K') => (&value[..end], 1024),
        (end, 'm') => (&value[..end], 1_000_000),
        (end, 'M') => (&value[..end], 1 << 20),
        _ => return None,
    };
    let number = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    Some(format!("write the number: {number}"))
}

/// The command that the words name: `blis`, then the commands below it; `None` for `blis` alone.
fn command_of(words: &[OsString]) -> Option<String> {
    let mut command = &help::command();
    let mut path = "blis".to_owned();
    let texts = words.iter().skip(1).map_while(|word| word.to_str());
    for text in texts {
        let Some(below) = command.find_subcommand(text) else { break };
        command = below;
        path = format!("{path} {text}");
    }
    (path != "blis").then_some(path)
}
