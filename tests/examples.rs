//! The commands of all documents, run as they stand there: what they print must be what stands below them, and what
//! the text claims must hold.
//!
//! Every line of a `sh` block is a command of the program, begun with `cargo run --release --` or `blis`. A block with
//! others has the comment `<!-- not run: REASON -->` directly above its fence; its commands are only compared with
//! `docs/flags.md` (`reference.rs`), as are those in sentences. The commands of a page run in their order
//! in one folder, so that one may read what another wrote. A block below a paragraph that says to save it as `NAME` is
//! saved there.
//!
//! After a command, up to the next heading, a `text` block is what a terminal shows, or an excerpt of it (each line
//! whole, in order), and a `json` block an excerpt of the JSON document (each field exactly). Above an excerpt, the page
//! says that it is one. Where figures changed for a reason, the excerpts are renewed by
//!
//! ```sh
//! BLIS_RECORD=1 cargo test --workspace --test tests examples::commands -- --ignored
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::macros::{Ended, root};
use crate::markdown::{Block, Document, documents};
use crate::shared::shared;
use crate::shell::Shell;

const PREFIX: &str = "cargo run --release -- ";

/// Every reader has to download this file; it is too large to be kept here.
const AZURE: &str = "AzureLLMInferenceTrace_conv.csv";

/// Documents that `blis evaluate init` writes into projects: their commands run in such a project, which has a small suite and,
/// where a search or its user would write a policy, a shipped one.
const TEMPLATES: &str = "sdk/python/templates/";
const SUITE_OF_PROJECTS: &str = "sdk/python/tests/small.yaml";
const POLICIES_OF_PROJECTS: [&str; 6] = [
    "a.rhai",
    "b.rhai",
    "best.rhai",
    "run/best/best_program.rhai",
    "run/best/main.rhai",
    "run/checkpoints/checkpoint_10/best_program.rhai",
];

/// Number of blocks with a comment `not run`, over all documents: a new one is counted here, on purpose.
const NOT_RUN: usize = 44;

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn commands_print_what_stands_below_them() {
    let pages: Vec<Document> = pages().collect();
    let checked: usize = pages.iter().map(check_page).sum();
    assert!(checked > 50 || pages.is_empty(), "only {checked} commands");
}

/// Runs the commands of a page in their order; returns how many there are.
fn check_page(page: &Document) -> usize {
    let examples = Example::all_of(page);
    let shell = Shell::new();
    if let Some(template) = page.name.strip_prefix(TEMPLATES) {
        fill_project(&shell, template.split('/').next().unwrap_or_default());
    }
    examples.iter().for_each(|example| example.check(&shell));
    examples.len()
}

/// Makes the folder of `shell` a project of `template`, as it is after a search.
fn fill_project(shell: &Shell, template: &str) {
    let init =
        shell.run(&format!("blis evaluate init {template} project --suite {SUITE_OF_PROJECTS} && mv project/* ."));
    assert_eq!(init.code, Some(0), "{template}: {}", init.stderr);
    let policy = fs::read(root().join("policies/prefix-then-load.rhai")).expect("it is shipped");
    for name in POLICIES_OF_PROJECTS {
        shell.folder().write(name, &policy);
    }
}

#[test]
fn every_command_can_be_run_or_says_why_not() {
    let mut wrong = Vec::new();
    let mut not_run = Vec::new();
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            let location = format!("{}:{}", page.name, block.line);
            let others: Vec<String> = lines(block).into_iter().filter(|line| program_line(line).is_none()).collect();
            match reason(block) {
                Some("") => wrong.push(format!("{location}: no reason")),
                Some(reason) => not_run.push(format!("{location}: {reason}")),
                None => {
                    let others = others.iter().map(|line| format!("{location}: not a command of the program: {line}"));
                    wrong.extend(others);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "write `<!-- not run: REASON -->` above the block:\n{}", wrong.join("\n"));
    let is_known = not_run.len() == NOT_RUN || documents().is_empty();
    assert!(is_known, "{} blocks are not run, not {NOT_RUN}:\n{}", not_run.len(), not_run.join("\n"));
}

#[test]
fn every_example_is_listed_and_has_output() {
    let list = fs::read_to_string(root().join("examples/README.md")).expect("examples/README.md");
    let entries = fs::read_dir(root().join("examples")).expect("examples").map(|entry| entry.expect("an entry").path());
    for path in entries.filter(|path| path.is_dir()) {
        let folder = path.file_name().unwrap_or_default().to_string_lossy();
        assert!(list.contains(&format!("]({folder}/README.md)")), "{folder} is not listed");
        let examples = examples(&folder);
        assert!(!examples.is_empty(), "{folder} has no command");
        assert!(examples.iter().all(|example| !example.outputs.is_empty()), "{folder}: a command without output");
    }
}

#[test]
fn less_bandwidth_is_slower() {
    let [h100, l40s] = results_of("replay-a-trace");
    assert!(h100["itl_mean_ms"].as_f64() < l40s["itl_mean_ms"].as_f64().map(|ms| ms / 3.0));
    assert_eq!(h100["completed_requests"], l40s["completed_requests"]);
}

#[test]
fn prefix_caching_halves_the_time_to_first_token() {
    let [with, without] = results_of("prefix-caching");
    assert!(2.0 * figure(&with, "ttft_mean_ms") < figure(&without, "ttft_mean_ms"));
}

#[test]
fn reserving_whole_prompts_avoids_preemptions() {
    let [roomy, tight, reserving, caching] = results_of("kv-pressure");
    let preemptions = |document| figure(document, "preemption_count");
    assert!(preemptions(&roomy) < preemptions(&tight) / 10.0);
    assert!(preemptions(&reserving) < preemptions(&tight) / 10.0);
    assert!(preemptions(&caching) < preemptions(&tight));
    for saving in [&reserving, &caching] {
        assert!(figure(saving, "e2e_mean_ms") < 0.9 * figure(&tight, "e2e_mean_ms"));
    }
}

/// The bounds are those around the published figures: TTFT 25 % less, 21 % more tokens, and no change where the cache suffices.
#[test]
fn a_cpu_tier_helps_as_published_where_the_cache_is_too_small() {
    let [off, on, fits_off, fits_on] = results_of("cpu-tier");
    let change = |off: &Value, on: &Value, name: &str| figure(on, name) / figure(off, name) - 1.0;
    let [ttft, tokens] = ["ttft_mean_ms", "tokens_per_sec"].map(|name| change(&off, &on, name));
    assert!((-0.40..=-0.12).contains(&ttft), "{ttft}");
    assert!((0.10..=0.35).contains(&tokens), "{tokens}");
    for name in ["ttft_mean_ms", "tokens_per_sec"] {
        assert!(change(&fits_off, &fits_on, name).abs() < 0.03, "{name}");
    }
}

#[test]
fn smaller_chunks_trade_gaps_for_waiting() {
    let [whole, chunked, small] = results_of("long-prompts");
    let gaps = [&small, &chunked, &whole].map(|document| figure(document, "itl_max_ms"));
    assert!(gaps.is_sorted_by(|a, b| 1.2 * a < *b), "{gaps:?}");
    let waits = [&whole, &chunked, &small].map(|document| figure(document, "ttft_max_ms"));
    assert!(waits.is_sorted_by(|a, b| 1.2 * a < *b), "{waits:?}");
}

#[test]
fn critical_requests_overtake_others() {
    let page = page("priorities");
    let mut means = Vec::new();
    for (example, order) in Example::all_of(&page).iter().zip(["by arrival", "by priority"]) {
        let requests = example.metrics_file()["requests"].take();
        for class in ["critical", "batch"] {
            let [ttft, e2e] = ["ttft_ms", "e2e_ms"].map(|field| mean_seconds(&requests, class, field));
            let row = format!("| {order} | {class} | {ttft:.2} s | {e2e:.2} s |");
            assert!(page.text.contains(&row), "not in {}: {row}", page.name);
            means.push(ttft);
        }
    }
    assert!(means[2] < means[0] / 20.0 && means[3] < means[1] * 1.1, "{means:?}");
}

#[test]
fn earlier_turns_hit_the_prefix_cache() {
    let page = page("shared-tokens");
    let metrics = Example::all_of(&page)[0].metrics_file();
    let requests = metrics["requests"].as_array().expect("requests");
    for request in requests {
        let id = request["requestID"].as_str().expect("an id");
        let row = format!("| {id} | {} | {} |", request["num_prefill_tokens"], request["num_cached_tokens"]);
        assert!(page.text.contains(&row), "not in {}: {row}", page.name);
    }
}

#[test]
fn shared_prefixes_are_worth_routing_by() {
    let [in_turn, by_prefix, on_trace, on_one_prefix] = results_of("cluster-routing");
    assert!(figure(&by_prefix, "ttft_mean_ms") < 0.8 * figure(&in_turn, "ttft_mean_ms"));
    let results = |document: &Value, figure: &str| {
        let differences = document["metrics"][figure]["differences"].as_array().expect("differences").clone();
        differences.iter().map(|difference| difference["result"].as_str().expect("a result").to_owned()).collect()
    };
    let p99: Vec<String> = results(&on_trace, "p99_ttft");
    assert_eq!(p99, ["undecided"; 4], "400 requests of one trace show nothing about others");
    let mean: Vec<String> = results(&on_one_prefix, "mean_ttft");
    assert_eq!(mean, ["undecided"; 2], "a third of a percent is chance among eight differences");
    let values = &on_one_prefix["metrics"]["mean_ttft"]["values"];
    let (default, bundle): (Vec<f64>, Vec<f64>) =
        (0..5).map(|seed| (ms(&values[1][seed]), ms(&values[2][seed]))).unzip();
    assert_eq!(default.iter().filter(|&&ttft| ttft > 1000.0).count(), 1, "the trap closes: {default:?}");
    assert!(bundle.iter().all(|&ttft| ttft < 100.0), "{bundle:?}");
}

#[test]
fn closed_loop_queues_less() {
    let [waiting, rushing, users] = results_of("closed-loop");
    assert!(figure(&rushing, "ttft_mean_ms") > 3.0 * figure(&waiting, "ttft_mean_ms"));
    assert!((figure(&rushing, "responses_per_sec") / figure(&waiting, "responses_per_sec") - 1.0).abs() < 0.05);
    assert_eq!(waiting["sessions"]["cancelled"], 0);
    assert!(rushing["sessions"]["cancelled"].is_null(), "in open loop a session has no state");
    assert_eq!(figure(&users["sessions"], "count"), 200.0);
}

#[test]
fn rejecting_everything_scores_zero() {
    let mut examples = examples("policy-bundle");
    assert!(examples.pop().expect("the last").command.contains("--explain-config"));
    let documents: Vec<Value> = examples.iter().map(|example| json(&example.document().expect("ours"))).collect();
    let scores: Vec<f64> = documents.iter().map(|document| figure(&document["fitness"], "score")).collect();
    let [in_turn, tiers, without_shedding, reject_all] = scores[..] else { panic!("{scores:?}") };
    assert!(in_turn == 1.0 && tiers > in_turn && without_shedding > tiers, "{scores:?}");
    assert!(reject_all == 0.0, "{scores:?}");
    assert!(figure(&documents[1], "slo_attainment") > 5.0 * figure(&documents[0], "slo_attainment"));
}

fn ms(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// A command on a page, and what stands below it.
struct Example {
    /// The page and the line of the block, for messages.
    location: String,
    /// As a shell runs it.
    command: String,
    outputs: Vec<Output>,
    /// Files that the page says to save by then: name and text.
    saved: BTreeMap<String, String>,
}

/// A block below a command.
struct Output {
    is_json: bool,
    text: String,
    /// Whether the page says above that there is more.
    may_be_excerpt: bool,
}

impl Example {
    fn all_of(page: &Document) -> Vec<Self> {
        let mut examples: Vec<Self> = Vec::new();
        let mut saved = BTreeMap::new();
        let mut section = 0;
        for block in &page.blocks {
            let above = page.above(block);
            let language = block.language.as_str();
            if let Some(name) = file_name(above) {
                saved.insert(name, block.text.clone());
            } else if language == "sh" && reason(block).is_some() {
                section = 0;
            } else if language == "sh" {
                section = block.section;
                let location = format!("{}:{}", page.name, block.line);
                let commands = lines(block).into_iter().filter_map(|line| program_line(&line));
                let example =
                    |command| Self { location: location.clone(), command, outputs: Vec::new(), saved: saved.clone() };
                examples.extend(commands.map(example));
            } else if let Some(example) = examples.last_mut().filter(|_| block.section == section)
                && ["text", "json"].contains(&language)
            {
                let may_be_excerpt = above.to_lowercase().contains("excerpt");
                let output = Output { is_json: language == "json", text: block.text.clone(), may_be_excerpt };
                example.outputs.push(output);
            }
        }
        examples
    }

    fn check(&self, shell: &Shell) {
        if self.outputs.is_empty() {
            self.run(shell, None);
        }
        for output in &self.outputs {
            let form = if output.is_json { "json" } else { "text" };
            let Some(ended) = self.run(shell, Some(form)) else { return };
            if std::env::var_os("BLIS_RECORD").is_some() {
                self.renew(output, &ended.stdout);
                continue;
            }
            output.check(&ended.stdout, &format!("{}: {}", self.location, self.command));
        }
    }

    /// Writes what was printed now into the page.
    fn renew(&self, output: &Output, printed: &str) {
        let (name, _) = self.location.split_once(':').expect("page and line");
        let path = root().join(name);
        let page = fs::read_to_string(&path).expect("a page");
        let renewed = output.renewed(printed);
        if page.contains(&output.text) && renewed != output.text {
            fs::write(&path, page.replacen(&output.text, &renewed, 1)).expect("a page");
        }
    }

    /// What it prints, as JSON; `None` if its trace is not there.
    fn document(&self) -> Option<String> {
        self.run(&Shell::new(), Some("json")).map(|ended| ended.stdout)
    }

    /// The file of `--metrics-path`.
    fn metrics_file(&self) -> Value {
        let shell = Shell::new();
        self.run(&shell, None).expect("a trace of our own");
        let path = self.command.split_whitespace().skip_while(|word| *word != "--metrics-path").nth(1);
        json(&shell.folder().read(path.expect("its path").trim_start_matches("/tmp/")))
    }

    /// Runs the command; `None` if its trace is not there. What it would write into `/tmp` lies in the folder of the
    /// shell: tests run side by side.
    fn run(&self, shell: &Shell, form: Option<&str>) -> Option<Ended> {
        let folder = shell.folder();
        for (name, text) in &self.saved {
            folder.write(name, text);
        }
        if self.command.contains(AZURE) && !folder.join(AZURE).exists() {
            let trace = shared(&format!("data/traces/azure-2023/{AZURE}"))?;
            symlink(trace, folder.join(AZURE)).expect("scratch");
        }
        let mut line = self.command.replace("/tmp/", "");
        // What is exported has the form of another program.
        let has_form = !line.contains(['|', '>', ';', '&']) && !line.contains("blis export ");
        if let Some(form) = form.filter(|_| has_form) {
            line.push_str(&format!(" --output {form}"));
        }
        let ended = shell.run(&line);
        assert_eq!(ended.code, Some(0), "{}: {line}: {}", self.location, ended.stderr);
        Some(ended)
    }
}

impl Output {
    /// The block with the figures of `printed`: each line replaced by the next one with the same label.
    fn renewed(&self, printed: &str) -> String {
        if self.is_json {
            let document = json(printed);
            let mut text = self.text.clone();
            for (field, old) in json(&self.text).as_object().expect("an object") {
                text = text.replace(&format!("\"{field}\": {old}"), &format!("\"{field}\": {}", document[field]));
            }
            return text;
        }
        if !self.may_be_excerpt {
            return printed.to_owned();
        }
        let label = |line: &str| {
            let end = line.trim_start().find("  ").map_or(line.len(), |end| end + line.len() - line.trim_start().len());
            line[..end].to_owned()
        };
        let mut lines = printed.lines();
        let renewed = self.text.lines().map(|old| {
            let mut rest = lines.clone();
            match rest.find(|line| *line == old || label(line) == label(old)) {
                Some(line) => {
                    lines = rest;
                    line
                }
                None => old,
            }
        });
        renewed.flat_map(|line| [line, "\n"]).collect()
    }

    fn check(&self, printed: &str, what: &str) {
        if self.is_json {
            let (expected, document) = (json(&self.text), json(printed));
            for (field, expected) in expected.as_object().expect("an object") {
                assert_eq!(&document[field], expected, "{what}: {field}");
            }
            assert!(
                self.may_be_excerpt || expected == document,
                "{what}: the page does not say that this is an excerpt"
            );
        } else {
            let mut lines = printed.lines();
            for line in self.text.lines() {
                assert!(lines.any(|printed| printed == line), "{what}\nnot printed: {line}\n{printed}");
            }
            let is_whole = self.text.trim_end() == printed.trim_end();
            assert!(
                self.may_be_excerpt || is_whole,
                "{what}: the page does not say that this is an excerpt:\n{printed}"
            );
        }
    }
}

/// The name of the file that the paragraph at the end of `above` says to save what follows as.
fn file_name(above: &str) -> Option<String> {
    let (_, paragraph) = above.trim_end().rsplit_once("\n\n")?;
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let paragraph = words.join(" ");
    let (_, name) = paragraph.to_lowercase().contains("save").then_some(&paragraph)?.rsplit_once(" as `")?;
    Some(name.split_once('`')?.0.to_owned()).filter(|name| name.contains('.'))
}

/// The lines of a `sh` block as a shell reads them, without comments.
fn lines(block: &Block) -> Vec<String> {
    let joined = block.text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// The line with the program's name, if it is a command of the program.
fn program_line(line: &str) -> Option<String> {
    let rest = line.strip_prefix(PREFIX).or_else(|| line.strip_prefix("blis "))?;
    Some(format!("blis {rest}"))
}

/// Why a block is not run.
fn reason(block: &Block) -> Option<&str> {
    block.comment.as_deref()?.strip_prefix("not run:").map(str::trim)
}

/// The documents with commands to run.
fn pages() -> impl Iterator<Item = Document> {
    let filled = |name: String| {
        let page = Document::read(&name);
        if !name.starts_with(TEMPLATES) {
            return page;
        }
        Document::parse(&name, page.text.replace("{{suite}}", SUITE_OF_PROJECTS))
    };
    documents().into_iter().map(filled)
}

/// The page of an example.
fn page(example: &str) -> Document {
    Document::read(&format!("examples/{example}/README.md"))
}

fn examples(example: &str) -> Vec<Example> {
    Example::all_of(&page(example))
}

/// What the `N` commands of an example print, as JSON.
fn results_of<const N: usize>(example: &str) -> [Value; N] {
    let documents: Vec<Value> =
        examples(example).iter().filter_map(Example::document).map(|text| json(&text)).collect();
    documents.try_into().unwrap_or_else(|found: Vec<Value>| panic!("{example}: {} commands, not {N}", found.len()))
}

fn figure(document: &Value, field: &str) -> f64 {
    document[field].as_f64().unwrap_or_else(|| panic!("no number `{field}`"))
}

fn mean_seconds(requests: &Value, class: &str, field: &str) -> f64 {
    let of_class = requests.as_array().expect("requests").iter().filter(|request| request["slo_class"] == class);
    let samples: Vec<f64> = of_class.map(|request| figure(request, field)).collect();
    samples.iter().sum::<f64>() / samples.len() as f64 / 1e3
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
