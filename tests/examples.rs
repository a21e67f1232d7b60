//! The commands of `README.md` and of `examples/`, run as they stand there: what they print must
//! be what stands below them, and what the text claims must hold.
//!
//! A `rhai` block is saved under the last name ending in `.rhai` before it, for the commands that follow.
//! After a command, a `text` block is an excerpt of what a terminal shows (each line whole, in
//! order) and a `json` block an excerpt of the JSON document (each field exactly).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::macros::{Ended, Scratch, ended, program, root};
use crate::shared::shared;

const PREFIX: &str = "cargo run --release -- ";

/// Every reader is told to fetch this file; it is too large to be kept here.
const AZURE: &str = "AzureLLMInferenceTrace_conv.csv";

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn commands_print_what_stands_below_them() {
    let mut checked = 0;
    for page in pages() {
        for example in Example::all_of(&page) {
            example.check();
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} commands");
}

#[test]
fn every_example_is_listed_and_has_an_answer() {
    let list = fs::read_to_string(root().join("examples/README.md")).expect("examples/README.md");
    for page in pages().into_iter().filter(|page| page.starts_with(root().join("examples"))) {
        let folder = page.parent().expect("a folder").file_name().unwrap_or_default().to_string_lossy();
        if folder != "examples" {
            assert!(list.contains(&format!("]({folder}/README.md)")), "{folder} is not listed");
            let examples = Example::all_of(&page);
            assert!(!examples.is_empty(), "{folder} has no command");
            assert!(examples.iter().all(|example| !example.excerpts.is_empty()), "{folder}: a command without answer");
        }
    }
}

#[test]
fn less_bandwidth_is_slower() {
    let [h100, l40s] = answers("replay-a-trace");
    assert!(h100["itl_mean_ms"].as_f64() < l40s["itl_mean_ms"].as_f64().map(|ms| ms / 3.0));
    assert_eq!(h100["completed_requests"], l40s["completed_requests"]);
}

#[test]
fn prefix_caching_halves_the_time_to_first_token() {
    let [with, without] = answers("prefix-caching");
    assert!(2.0 * figure(&with, "ttft_mean_ms") < figure(&without, "ttft_mean_ms"));
}

#[test]
fn reserving_whole_prompts_avoids_preemptions() {
    let [roomy, tight, reserving, caching] = answers("kv-pressure");
    let preemptions = |answer| figure(answer, "preemption_count");
    assert!(preemptions(&roomy) < preemptions(&tight) / 10.0);
    assert!(preemptions(&reserving) < preemptions(&tight) / 10.0);
    assert!(preemptions(&caching) < preemptions(&tight));
    for saving in [&reserving, &caching] {
        assert!(figure(saving, "e2e_mean_ms") < 0.9 * figure(&tight, "e2e_mean_ms"));
    }
}

#[test]
fn smaller_chunks_trade_gaps_for_waiting() {
    let [whole, chunked, small] = answers("long-prompts");
    let gaps = [&small, &chunked, &whole].map(|answer| figure(answer, "itl_max_ms"));
    assert!(gaps.is_sorted_by(|a, b| 1.2 * a < *b), "{gaps:?}");
    let waits = [&whole, &chunked, &small].map(|answer| figure(answer, "ttft_max_ms"));
    assert!(waits.is_sorted_by(|a, b| 1.2 * a < *b), "{waits:?}");
}

#[test]
fn urgent_requests_get_through() {
    let page = root().join("examples/priorities/README.md");
    let text = fs::read_to_string(&page).expect("README");
    let mut means = Vec::new();
    for (example, order) in Example::all_of(&page).iter().zip(["by arrival", "by priority"]) {
        let requests = example.metrics_file()["requests"].take();
        for class in ["critical", "batch"] {
            let [ttft, e2e] = ["ttft_ms", "e2e_ms"].map(|field| mean_seconds(&requests, class, field));
            let row = format!("| {order} | {class} | {ttft:.2} s | {e2e:.2} s |");
            assert!(text.contains(&row), "not in {}: {row}", page.display());
            means.push(ttft);
        }
    }
    assert!(means[2] < means[0] / 20.0 && means[3] < means[1] * 1.1, "{means:?}");
}

#[test]
fn earlier_turns_are_found_again() {
    let page = root().join("examples/shared-tokens/README.md");
    let text = fs::read_to_string(&page).expect("README");
    let examples = Example::all_of(&page);
    let metrics = examples[0].metrics_file();
    let requests = metrics["requests"].as_array().expect("requests");
    for request in requests {
        let id = request["requestID"].as_str().expect("an id");
        let row = format!("| {id} | {} | {} |", request["num_prefill_tokens"], request["num_cached_tokens"]);
        assert!(text.contains(&row), "not in {}: {row}", page.display());
    }
}

#[test]
fn a_shared_beginning_is_worth_a_route() {
    let [in_turn, by_prefix, on_trace, on_one_prefix] = answers("cluster-routing");
    assert!(figure(&by_prefix, "ttft_mean_ms") < 0.8 * figure(&in_turn, "ttft_mean_ms"));
    let results = |answer: &Value, figure: &str| {
        let differences = answer["metrics"][figure]["differences"].as_array().expect("differences").clone();
        differences.iter().map(|difference| difference["result"].as_str().expect("a result").to_owned()).collect()
    };
    let p99: Vec<String> = results(&on_trace, "p99_ttft");
    assert_eq!(p99, ["worse", "worse", "worse", "better"]);
    let mean: Vec<String> = results(&on_one_prefix, "mean_ttft");
    assert_eq!(mean, ["undecided", "undecided"]);
    let values = &on_one_prefix["metrics"]["mean_ttft"]["values"];
    let (default, bundle): (Vec<f64>, Vec<f64>) =
        (0..5).map(|seed| (ms(&values[1][seed]), ms(&values[2][seed]))).unzip();
    assert_eq!(default.iter().filter(|&&ttft| ttft > 1000.0).count(), 2, "the trap closes: {default:?}");
    assert!(bundle.iter().all(|&ttft| ttft < 100.0), "{bundle:?}");
}

#[test]
fn who_waits_for_answers_waits_less() {
    let [waiting, rushing, users] = answers("closed-loop");
    assert!(figure(&rushing, "ttft_mean_ms") > 3.0 * figure(&waiting, "ttft_mean_ms"));
    assert!((figure(&rushing, "responses_per_sec") / figure(&waiting, "responses_per_sec") - 1.0).abs() < 0.05);
    assert_eq!(waiting["sessions"]["cancelled"], 0);
    assert!(rushing["sessions"]["cancelled"].is_null(), "in open loop a session has no state");
    assert_eq!(figure(&users["sessions"], "count"), 200.0);
}

#[test]
fn whoever_rejects_everything_loses() {
    let page = root().join("examples/policy-bundle/README.md");
    let mut examples = Example::all_of(&page);
    assert!(examples.pop().expect("the last").arguments.contains(&"--explain-config".to_owned()));
    let answers: Vec<Value> =
        examples.iter().map(|example| json(&example.output(Some("json")).expect("ours").stdout)).collect();
    let scores: Vec<f64> = answers.iter().map(|answer| figure(&answer["fitness"], "score")).collect();
    let [in_turn, tiers, without_shedding, reject_all] = scores[..] else { panic!("{scores:?}") };
    assert!((in_turn - 0.5).abs() < 1e-9 && tiers > in_turn && without_shedding > tiers, "{scores:?}");
    assert!(reject_all == 0.0, "{scores:?}");
    assert!(figure(&answers[1], "slo_attainment") > 5.0 * figure(&answers[0], "slo_attainment"));
}

fn ms(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// A command on a page, and the excerpts of its answer.
struct Example {
    page: PathBuf,
    arguments: Vec<String>,
    /// The language of the block, and its text.
    excerpts: Vec<(String, String)>,
    /// Scripts that the reader has saved by then: name and text.
    saved: Vec<(String, String)>,
}

impl Example {
    fn all_of(page: &Path) -> Vec<Self> {
        let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let mut examples: Vec<Self> = Vec::new();
        let mut saved = Vec::new();
        for (language, block) in blocks(&text) {
            if language == "rhai" {
                let before = &text[..text.find(&block).expect("it is from there")];
                let name = before.rsplit('`').find(|word| word.ends_with(".rhai"));
                saved.push((name.expect("the page says where to save it").to_owned(), block));
            } else if language == "sh" {
                let joined = block.replace("\\\n", " ");
                let commands = joined.lines().filter_map(|line| line.trim().strip_prefix(PREFIX));
                examples.extend(commands.map(|command| Self {
                    page: page.to_owned(),
                    arguments: command.split_whitespace().map(str::to_owned).collect(),
                    excerpts: Vec::new(),
                    saved: saved.clone(),
                }));
            } else if let Some(example) = examples.last_mut().filter(|_| ["text", "json"].contains(&language.as_str()))
            {
                example.excerpts.push((language, block));
            }
        }
        examples
    }

    fn check(&self) {
        if self.output(None).is_none() {
            return; // its trace is not there, as was said
        }
        for (language, excerpt) in &self.excerpts {
            let form = if language == "json" { "json" } else { "text" };
            let output = self.output(Some(form)).expect("it was there before");
            let printed = output.stdout;
            if form == "json" {
                let (excerpt, document) = (json(excerpt), json(&printed));
                for (field, expected) in excerpt.as_object().expect("an object") {
                    assert_eq!(&document[field], expected, "{}: {field}", self.what());
                }
            } else {
                let mut lines = printed.lines();
                for line in excerpt.lines() {
                    assert!(lines.any(|printed| printed == line), "{}\nnot printed: {line}\n{printed}", self.what());
                }
            }
        }
        if self.arguments.iter().any(|argument| argument == "--metrics-path") {
            fs::remove_file(scratch(&self.arguments)).expect("written by the command");
        }
    }

    fn metrics_file(&self) -> Value {
        let path = scratch(&self.arguments);
        self.output(None).expect("a trace of our own");
        let document = json(&fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        fs::remove_file(path).expect("written just now");
        document
    }

    /// Runs the command; `None` if its trace is not there.
    fn output(&self, form: Option<&str>) -> Option<Ended> {
        let mut command = program!();
        let reader = reader(&self.saved);
        command.current_dir(reader.as_deref().unwrap_or(root()));
        let mut before = "";
        for argument in &self.arguments {
            if argument == AZURE {
                command.arg(shared(&format!("data/traces/azure-2023/{AZURE}"))?);
            } else if before == "--metrics-path" {
                command.arg(scratch(&self.arguments));
            } else {
                command.arg(argument);
            }
            before = argument;
        }
        if let Some(form) = form {
            command.args(["--output", form]);
        }
        let ended = ended(&mut command);
        assert_eq!(ended.code, Some(0), "{}: {}", self.what(), ended.stderr);
        Some(ended)
    }

    fn what(&self) -> String {
        format!("{}: blis {}", self.page.display(), self.arguments.join(" "))
    }
}

/// Where a reader types the commands: the repository, or a copy of it with what the page told to save.
fn reader(saved: &[(String, String)]) -> Option<Scratch> {
    if saved.is_empty() {
        return None;
    }
    let folder = Scratch::new();
    for entry in ["examples", "policies"] {
        copy(&root().join(entry), &folder.join(entry));
    }
    for (name, text) in saved {
        folder.write(name, text);
    }
    Some(folder)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry").path();
        let target = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).expect("a file");
        }
    }
}

/// What the `N` commands of an example answer, as JSON.
fn answers<const N: usize>(example: &str) -> [Value; N] {
    let examples = Example::all_of(&root().join("examples").join(example).join("README.md"));
    let answer = |example: &Example| example.output(Some("json")).map(|output| output.stdout);
    let documents: Vec<Value> = examples.iter().filter_map(answer).map(|text| json(&text)).collect();
    documents.try_into().unwrap_or_else(|found: Vec<Value>| panic!("{example}: {} commands, not {N}", found.len()))
}

fn figure(answer: &Value, field: &str) -> f64 {
    answer[field].as_f64().unwrap_or_else(|| panic!("no number `{field}`"))
}

fn mean_seconds(requests: &Value, class: &str, field: &str) -> f64 {
    let of_class = requests.as_array().expect("requests").iter().filter(|request| request["slo_class"] == class);
    let samples: Vec<f64> = of_class.map(|request| figure(request, field)).collect();
    samples.iter().sum::<f64>() / samples.len() as f64 / 1e3
}

/// `README.md`, `examples/README.md` and the page of every example.
fn pages() -> Vec<PathBuf> {
    let examples = root().join("examples");
    let folders = fs::read_dir(&examples).expect("examples").map(|entry| entry.expect("entry").path());
    let mut pages: Vec<PathBuf> = folders.filter(|path| path.is_dir()).map(|path| path.join("README.md")).collect();
    pages.extend([root().join("README.md"), examples.join("README.md")]);
    pages.sort();
    pages
}

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Where the metrics file of a command goes instead: tests run side by side.
fn scratch(arguments: &[String]) -> PathBuf {
    let after = arguments.iter().skip_while(|argument| *argument != "--metrics-path").nth(1);
    let name = after.map_or("none", |path| Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or("x"));
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    std::env::temp_dir().join(format!("blis-example-{}-{thread}-{name}", std::process::id()))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
