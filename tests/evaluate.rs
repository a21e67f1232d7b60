//! Candidates through the program: verdicts, cheats, the same answer every time, parts of several machines, the server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::macros::{Scratch, blis, program, root};

/// A suite that takes a moment.
const SMALL: &str = "schema: 1
name: small
baseline: round-robin
weights: 'mean_e2e:0.5, mean_ttft:0.5'
seeds: {smoke: 1, train: 2, select: 2, test: 2}
run:
  model: meta-llama/llama-3.1-8b-instruct
  num-instances: 3
  num-requests: 60
  rate: 30
scenarios:
  - {name: chat, splits: [smoke, train, select], run: {prefix-tokens: 512}}
  - {name: long, splits: [train, test], run: {prompt-tokens: 2000}}
";

/// The small suite as a file.
fn small(dir: &Path) -> String {
    let path = dir.join("small.yaml");
    fs::write(&path, SMALL).expect("scratch");
    path.display().to_string()
}

/// A candidate that decides as the baseline does.
fn in_turn(dir: &Path) -> String {
    let path = dir.join("in-turn.rhai");
    let script =
        "fn init() { #{ next: 0 } }\nfn route(r, s) { let place = this.next % s.len; this.next += 1; place }\n";
    fs::write(&path, script).expect("scratch");
    path.display().to_string()
}

fn verdicts(words: &[&str]) -> Vec<Value> {
    let output = blis!(words);
    assert!(output.code == Some(0), "{words:?}: {}", output.stderr);
    let text = output.stdout;
    if text.starts_with("{\n") {
        return vec![serde_json::from_str(&text).expect("one document")];
    }
    text.lines().map(|line| serde_json::from_str(line).expect("a document a line")).collect()
}

fn score(verdict: &Value) -> f64 {
    verdict["combined_score"].as_f64().expect("a score")
}

fn adversaries() -> Vec<String> {
    let entries = fs::read_dir(root().join("tests/adversaries")).expect("adversaries");
    let mut paths: Vec<String> = entries.map(|entry| entry.expect("entry").path().display().to_string()).collect();
    paths.sort();
    assert!(paths.len() >= 30, "{}", paths.len());
    paths
}

/// Whatever they try, each has a verdict, none scores more than the baseline would, and the next one is judged.
#[test]
fn no_adversary_scores_more_than_the_baseline() {
    let dir = Scratch::new();
    let tiers = dir.join("tiers.yaml");
    let text = "schema: 1\nname: tiers\ndecides: [admission, routing, priority, scheduling]\n\
        weights: 'mean_e2e:0.5, slo_attainment:0.5'\nseeds: {smoke: 1, train: 2}\n\
        run: {model: meta-llama/llama-3.1-8b-instruct, num-instances: 3, max-num-seqs: 8, slo-e2e: 'critical=4s,batch=20s'}\n\
        scenarios:\n  - name: overload\n    splits: [smoke, train]\n    workload: |\n      version: \"2\"\n      \
        aggregate_rate: 40\n      num_requests: 400\n      clients:\n";
    let class = |name: &str| {
        format!(
            "        - {{id: {name}, slo_class: {name}, rate_fraction: 1, arrival: {{process: poisson}}, \
             input_distribution: {{type: gaussian, params: {{mean: 300, std_dev: 100, min: 10, max: 900}}}}, \
             output_distribution: {{type: exponential, params: {{mean: 100}}}}}}\n"
        )
    };
    fs::write(&tiers, format!("{text}{}{}", class("critical"), class("batch"))).expect("scratch");
    let tiers = tiers.display().to_string();
    let paths = adversaries();
    let mut told = String::new();
    for suite in [&small(&dir), &tiers] {
        let mut words = vec!["evaluate", "--suite", suite, "--feedback-bytes", "0", "--wall-s", "600"];
        words.extend(paths.iter().map(String::as_str));
        let all = verdicts(&words);
        assert_eq!(all.len(), paths.len());
        for (path, verdict) in paths.iter().zip(&all) {
            let baseline = match verdict["stage"].as_str() {
                Some("smoke") => 1.5,
                Some("train") => 2.5,
                _ => 0.0,
            };
            let score = score(verdict);
            assert!(score <= baseline + 1e-9, "{path} scored {score} in {suite}: {verdict:#}");
            let valid = verdict["status"] == "ok";
            assert_eq!(valid, score > 0.0, "{path}: {verdict:#}");
            assert_eq!(valid, verdict["artifacts"]["error"].is_null(), "{path} is told why: {verdict:#}");
            let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let suite = Path::new(suite).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            told.push_str(&format!("{suite:<6} {name:<28} {}\n", verdict["status"].as_str().unwrap_or_default()));
        }
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_verdict_is_the_same_on_any_number_of_threads_and_from_the_cache() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let cache = dir.join("cache").display().to_string();
    let candidate = in_turn(&dir);
    let evaluate = |more: &[&str]| {
        let words = ["evaluate", &candidate, "--suite", &suite, "--stage", "select"];
        let mut verdict = verdicts(&[&words[..], more].concat()).remove(0);
        let cost = verdict["cost"].take();
        (verdict, cost)
    };
    let (one, _) = evaluate(&["--threads", "1"]);
    assert_eq!(score(&one), 3.5, "{one:#}");
    assert_eq!(one, evaluate(&["--threads", "2", "--verify"]).0);
    let (fresh, cost) = evaluate(&["--cache", &cache]);
    assert_eq!((&fresh, &cost["cache"]), (&one, &json!("miss")));
    let (known, cost) = evaluate(&["--cache", &cache]);
    assert_eq!((&known, &cost["cache"]), (&one, &json!("hit")));
    let (other, _) = evaluate(&["--epoch", "1"]);
    assert_ne!(one["hashes"]["result"], other["hashes"]["result"]);
}

#[test]
fn verdicts_keep_to_their_schema() {
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(root().join("docs/verdict.schema.json")).expect("schema"))
            .expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let dir = Scratch::new();
    let suite = small(&dir);
    let good = in_turn(&dir);
    let paths = [
        good.as_str(),
        "policies/rhai-least-loaded.rhai",
        "tests/adversaries/loop.rhai",
        "tests/adversaries/broken.rhai",
        "tests/adversaries/nan.rhai",
        "tests/adversaries/always-first.rhai",
    ];
    let words = [&["evaluate", "--suite", &suite, "--stage", "select"][..], &paths[..]].concat();
    let all = verdicts(&words);
    let keys = |verdict: &Value, part: &str| -> Vec<String> {
        verdict[part].as_object().expect("an object").keys().cloned().collect()
    };
    for verdict in &all {
        let wrong: Vec<String> = validator.iter_errors(verdict).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}: {verdict:#}");
        // Tools average and bin them: a key that is missing costs the candidate.
        assert_eq!(keys(verdict, "metrics"), keys(&all[0], "metrics"));
        assert_eq!(keys(verdict, "features"), keys(&all[0], "features"));
    }
}

#[test]
fn exit_codes_tell_hosts_from_candidates() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let code = |words: &[&str]| {
        let output = blis!([&["evaluate", "--suite", &suite][..], words].concat());
        (output.code.expect("no signal"), output.stderr)
    };
    assert_eq!(code(&["tests/adversaries/loop.rhai"]).0, 0);
    assert_eq!(code(&["tests/adversaries/loop.rhai", "--strict-exit"]).0, 4);
    assert_eq!(code(&["tests/adversaries/throws.rhai", "--strict-exit"]).0, 3);
    assert_eq!(code(&["tests/adversaries/broken.rhai", "--strict-exit"]).0, 2);
    assert_eq!(code(&["policies/rhai-least-loaded.rhai", "--strict-exit"]).0, 0);
    // The last one was told, whatever came before it.
    let several = ["tests/adversaries/throws.rhai", "tests/adversaries/loop.rhai", "policies/rhai-least-loaded.rhai"];
    assert_eq!(code(&[&several[..], &["--strict-exit"]].concat()).0, 3);
    let (endless, told) = code(&["policies/rhai-least-loaded.rhai", "--wall-s", "1e30"]);
    assert_eq!(endless, 2, "no panic: {told}");
    let (missing, told) = code(&["nobody.rhai"]);
    assert_eq!(missing, 2);
    assert!(told.starts_with("error: the candidate `nobody.rhai` cannot be read"), "{told}");
    let (unknown, told) = code(&["policies/rhai-least-loaded.rhai", "--suite", "chatt"]);
    assert_eq!(unknown, 2);
    insta::assert_snapshot!(told, @r"
    error: there is no suite `chatt`
    hint: did you mean `chat`?
    ");
    fs::write(dir.join("wrong.yaml"), SMALL.replace("rate: 30", "rat: 30")).expect("scratch");
    let wrong = dir.join("wrong.yaml").display().to_string();
    let (code, told) = code(&["policies/rhai-least-loaded.rhai", "--suite", &wrong]);
    assert_eq!(code, 2);
    insta::assert_snapshot!(told.replace(&dir.display().to_string(), "DIR"));
}

#[test]
fn any_number_of_parts_makes_the_same_verdicts() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let candidate = in_turn(&dir);
    let merged = |count: usize| {
        let folders: Vec<String> =
            (0..count).map(|index| dir.join(format!("{count}-{index}")).display().to_string()).collect();
        for (index, folder) in folders.iter().enumerate().rev() {
            let shard = format!("{index}/{count}");
            let candidates = [candidate.as_str(), "tests/adversaries/nan.rhai"];
            let words = ["--suite", &suite, "--stage", "select", "--shard", &shard, "--out", folder];
            let output = blis!([&["evaluate"][..], &candidates, &words].concat());
            assert!(output.code == Some(0), "{}", output.stderr);
        }
        let words: Vec<&str> = ["merge"].into_iter().chain(folders.iter().map(String::as_str)).collect();
        verdicts(&words)
    };
    let whole = merged(1);
    assert_eq!((whole.len(), whole[1]["status"].as_str()), (2, Some("trap")));
    assert_eq!(whole, merged(3));
    let directly = verdicts(&["evaluate", &candidate, "--suite", &suite, "--stage", "select"]);
    assert_eq!(score(&whole[0]), score(&directly[0]));
    let lacking = blis!(["merge", &dir.join("3-0").display().to_string()]);
    insta::assert_snapshot!(lacking.stderr, @r"
    error: parts are missing: 1/3, 2/3
    hint: run them with `blis evaluate --shard`, and merge again
    ");
}

#[test]
fn parts_that_were_changed_or_do_not_belong_together_are_refused() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let write = |candidate: &str, out: &str| {
        let out = dir.join(out).display().to_string();
        let words = ["evaluate", candidate, "--suite", &suite, "--stage", "smoke", "--shard", "0/1", "--out", &out];
        blis!(words).done();
        out
    };
    let part = |folder: &str| Path::new(folder).join("part-0-of-1.json");
    let refused = |folders: &[&str]| {
        let output = blis!([&["merge"], folders].concat());
        assert_eq!(output.code, Some(2), "{}", output.stdout);
        output.stderr.lines().next().unwrap_or_default().to_owned()
    };
    let one = write("policies/rhai-least-loaded.rhai", "one");
    assert_eq!(verdicts(&["merge", &one, &one]).len(), 1, "the same part twice is the same");
    let text = fs::read_to_string(part(&one)).expect("a part");
    let mut forged: Value = serde_json::from_str(&text).expect("JSON");
    let figure = &mut forged["candidates"][0]["runs"][0]["facts"]["figures"]["mean_e2e"];
    assert!(figure.is_number(), "{}", forged["candidates"][0]["runs"][0]);
    *figure = json!(0.001);
    let other = dir.join("forged");
    fs::create_dir_all(&other).expect("scratch");
    fs::write(other.join("part-0-of-1.json"), forged.to_string()).expect("scratch");
    let other = other.display().to_string();
    assert_eq!(refused(&[&other]), "error: part 0 was changed after it was written");
    fs::write(&suite, SMALL.replace("rate: 30", "rate: 31")).expect("scratch");
    assert!(refused(&[&one]).starts_with("error: part 0 is of another suite than `small` is now"));
    fs::write(&suite, SMALL).expect("scratch");
    forged["runs_sha256"] = json!("0");
    fs::write(Path::new(&other).join("part-0-of-1.json"), forged.to_string()).expect("scratch");
    assert_eq!(refused(&[&one, &other]), "error: there are two different parts 0");
}

/// The small suite without limits on operations: what a candidate does there ends by the clock or by a request, however
/// fast the machine is.
fn unlimited(dir: &Path) -> String {
    let path = dir.join("unlimited.yaml");
    let limits = "limits: {operations_per_call: 1000000000, operations_per_request: 1000000000}\n";
    fs::write(&path, format!("{SMALL}{limits}")).expect("scratch");
    path.display().to_string()
}

/// What depends on the clock may be otherwise another time.
#[test]
fn what_the_wall_limit_ended_is_not_kept() {
    let dir = Scratch::new();
    let (suite, cache) = (unlimited(&dir), dir.join("cache").display().to_string());
    let evaluate = |candidate: &str, more: &[&str]| {
        let words = ["evaluate", candidate, "--suite", &suite, "--cache", &cache];
        verdicts(&[&words[..], more].concat()).remove(0)
    };
    let late = evaluate("tests/adversaries/loop.rhai", &["--wall-s", "0.001"]);
    assert_eq!((late["status"].as_str(), late["stopped"].as_str()), (Some("limit"), Some("it took more than 0.001 s")));
    assert!(!Path::new(&cache).exists(), "nothing is kept");
    assert_eq!(evaluate("policies/rhai-least-loaded.rhai", &[])["status"], "ok");
    assert!(Path::new(&cache).exists(), "a verdict that no clock ended is kept");
}

/// The library made of `source`; `None` without a C compiler.
#[allow(clippy::print_stdout, reason = "a test that skips says so")]
fn library(dir: &Path, name: &str, source: &str) -> Option<String> {
    let (text, out) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.so")));
    fs::write(&text, source).expect("scratch");
    let header = format!("-I{}", root().join("sdk/c").display());
    let fixtures = format!("-I{}", root().join("host/plugin/src/native/fixtures").display());
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2", "-shared", "-fPIC", &header, &fixtures]).arg(text).arg("-o").arg(&out);
    let Ok(built) = command.output() else {
        println!("skipped: there is no C compiler");
        return None;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(out.display().to_string())
}

/// Incumbents, parts, reports and requests loaded them into the host's own process.
#[test]
fn native_code_is_loaded_nowhere_but_in_a_child_and_if_allowed() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mark = dir.join("was-loaded");
    let source = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void loaded(void) {{ fclose(fopen(\"{}\", \"w\")); }}\n",
        mark.display()
    );
    let Some(library) = library(&dir, "loaded", &source) else { return };
    let (good, out) = ("policies/rhai-least-loaded.rhai", dir.join("parts").display().to_string());
    let ways: [&[&str]; 6] = [
        &["evaluate", &library],
        &["evaluate", &library, "--native-here"],
        &["evaluate", good, "--incumbent", &library, "--allow-native"],
        &["evaluate", &library, "--allow-native", "--shard", "0/1", "--out", &out],
        &["report", &library],
        &["tune", &library],
    ];
    for words in ways {
        let output = blis!([words, &["--suite", &suite]].concat());
        assert_eq!(output.code, Some(2), "{words:?}: {}", output.stderr);
    }
    let mut server = Server::start(&["--stdio", "--suite", &suite]);
    for ask in [
        json!({"candidate": {"path": library}}),
        json!({"candidate": {"source": "fn route(r, s) { 0 }"}, "incumbent": {"path": library}}),
        json!({"candidate": {"path": library, "lang": "wasm"}}),
    ] {
        server.say(&ask.to_string());
        let answer = server.hear();
        assert!(answer["error"].as_str().is_some_and(|told| told.contains("native code")), "{answer}");
    }
    server.end();
    assert!(!mark.exists(), "somebody loaded it");
}

/// A verdict was any JSON on standard output, and its end was waited for.
#[test]
fn native_code_cannot_print_its_verdict_or_keep_the_host_waiting() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let Some(good) = library(&dir, "good", "#include \"router.c\"\n") else { return };
    let cache = dir.join("cache").display().to_string();
    let evaluate = |path: &str, more: &[&str]| {
        let words = ["evaluate", path, "--suite", &suite, "--allow-native", "--cache", &cache, "--feedback-bytes", "0"];
        verdicts(&[&words[..], more].concat()).remove(0)
    };
    // One waits until its time is up, and the child sees it; the other waits for ever, and has to be killed.
    for (name, wait) in [("late", "sleep(1);"), ("endless", "for (;;) pause();")] {
        let waits = format!("__attribute__((constructor)) static void waits(void) {{ {wait} }}");
        let source = format!("#include <unistd.h>\n{waits}\n#include \"router.c\"\n");
        let Some(late) = library(&dir, name, &source) else { return };
        let late = evaluate(&late, &["--wall-s", "0.001"]);
        assert_eq!(late["status"], "limit", "{name}: {late:#}");
        assert!(!Path::new(&cache).exists(), "it depends on the clock: {late:#}");
    }
    let verdict = evaluate(&good, &[]);
    assert_eq!((verdict["status"].as_str(), &verdict["cost"]["cache"]), (Some("ok"), &json!("miss")), "{verdict:#}");
    assert_eq!(evaluate(&good, &[])["cost"]["cache"], "hit");
    // What a child says of the good one, in the mouth of another, which leaves a process behind. This test would not
    // end if the host waited for that.
    let printed = serde_json::to_string(&verdict.to_string()).expect("JSON");
    let forger = format!(
        "#include <unistd.h>\n#include <string.h>\n__attribute__((constructor)) static void forge(void) {{\n\
         const char *text = {printed}; if (fork() == 0) for (;;) pause();\n\
         if (write(1, text, strlen(text)) < 0) _exit(1);\n_exit(0); }}\n"
    );
    let Some(forger) = library(&dir, "forger", &forger) else { return };
    let forged = evaluate(&forger, &[]);
    assert_eq!((forged["status"].as_str(), score(&forged)), (Some("trap"), 0.0), "{forged:#}");
}

#[test]
fn tuning_finds_the_parameter_that_counts() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let script = "// @param load 0 0 4 weight of what an instance has to do\n// @param idle 1 0 4 of nothing\n\
                  fn route(r, s) { -s.in_flight * load - s.indices * 0.01 }\n";
    let (path, tuned) = (dir.join("one.rhai"), dir.join("tuned.rhai"));
    fs::write(&path, script).expect("scratch");
    let (path, tuned) = (path.display().to_string(), tuned.display().to_string());
    let words = ["tune", &path, "--suite", &suite, "--evals", "20", "--output", "json", "--write", &tuned];
    let found = verdicts(&words).remove(0);
    assert_eq!(found, verdicts(&words).remove(0), "the same every time");
    let gain = |name: &str| {
        let parameters = found["parameters"].as_array().expect("parameters");
        let one = parameters.iter().find(|one| one["name"] == name).expect(name);
        one["gain"]["mean"].as_f64().expect("a number")
    };
    assert!(gain("load") > 0.05, "{found:#}");
    assert_eq!(gain("idle"), 0.0);
    let written = fs::read_to_string(&tuned).expect("written");
    assert!(written.contains("weight of what an instance has to do") && !written.contains("load 0 0 4"), "{written}");
    let text = blis!(["report", &tuned, "--suite", &suite, "--output", "text"]).stdout;
    assert!(text.contains("against\n  round-robin"), "{text}");
}

/// `blis serve --stdio`.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        let mut program = program!("serve", words);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("blis starts");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("piped")));
        Self { child, input, output }
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{line}").and_then(|()| input.flush()).expect("it listens");
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

fn ask(id: usize, source: &str) -> String {
    json!({"id": id.to_string(), "candidate": {"lang": "rhai", "source": source}, "feedback_bytes": 200}).to_string()
}

#[test]
fn a_server_goes_on_whatever_it_is_sent() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = Server::start(&["--stdio", "--suite", &suite, "--threads", "2"]);
    let nonsense = [
        "{",
        "[]",
        "{\"id\": \"1\"}",
        "{\"candidate\": 5}",
        "{\"candidate\": \"fn route(r, s) { 0 }\", \"suite\": \"other\"}",
        "{\"candidate\": \"fn route(r, s) { 0 }\", \"stage\": \"test\"}",
        "{\"candidate\": \"fn route(r, s) { 0 }\", \"wall\": 5}",
        "{\"candidate\": \"fn route(r, s) { 0 }\", \"scenario\": \"nowhere\"}",
        "{\"cancel\": \"nobody\"}",
    ];
    let mut told = String::new();
    for line in nonsense {
        server.say(line);
        let answer = server.hear();
        assert!(answer.get("error").is_some() || answer["found"] == false, "{answer}");
        told.push_str(&format!("{answer}\n"));
    }
    insta::assert_snapshot!(told);
    let good = "fn route(r, s) { -s.in_flight }";
    let sources = [good, "fn route(r, s) { loop { } }", good, "fn route(", good];
    sources.iter().enumerate().for_each(|(id, source)| server.say(&ask(id, source)));
    let mut answers: Vec<Value> = sources.iter().map(|_| server.hear()).collect();
    answers.sort_by_key(|answer| answer["id"].as_str().map(str::to_owned));
    let statuses: Vec<&str> = answers.iter().filter_map(|answer| answer["status"].as_str()).collect();
    assert_eq!(statuses, ["ok", "limit", "ok", "rejected", "ok"]);
    assert_eq!(answers[0]["hashes"], answers[4]["hashes"], "equal candidates, equal answers");
    server.say("{\"id\": 7, \"candidate\": \"fn route(r, s) { -s.in_flight }\", \"scenario\": \"long\"}");
    let one = server.hear();
    assert_eq!((one["id"].as_str(), one["scenarios"].as_array().map(Vec::len)), (Some("7"), Some(2)), "{one:#}");
    server.say("{\"task\": true}");
    let task = server.hear();
    assert_eq!(task["scenarios"].as_array().map(Vec::len), Some(2));
    assert!(!task.to_string().contains("\"test\""), "nothing of what is held out: {task}");
    server.end();
}

#[test]
fn a_scenario_alone_is_run_in_the_stage_that_was_asked_for() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = Server::start(&["--stdio", "--suite", &suite]);
    let mut asked = |more: &str| {
        server.say(&format!("{{\"candidate\": \"fn route(r, s) {{ -s.in_flight }}\", \"feedback_bytes\": 0, {more}}}"));
        server.hear()
    };
    for (stage, band) in [("smoke", 1.0), ("train", 2.0), ("select", 3.0)] {
        let one = asked(&format!("\"scenario\": \"chat\", \"stage\": \"{stage}\""));
        assert_eq!(one["stage"], stage, "{one:#}");
        assert_eq!(score(&one).floor(), band);
    }
    assert_eq!(asked("\"scenario\": \"long\"")["stage"], "train");
    let other = asked("\"scenario\": \"long\", \"stage\": \"smoke\"");
    assert_eq!(other["error"], "the scenario `long` is not of smoke: `stage` must be train");
    assert_eq!(asked("\"seed\": 1")["error"], "`seed` needs a `scenario`: which one?");
    let task = asked("\"task\": true");
    assert_eq!(task["scenarios"][0]["seeds"], json!({"smoke": 1, "train": 2, "select": 2}));
    server.end();
}

/// A pipe that nobody writes to stopped all others, and messages quoted what was in the file.
#[test]
fn a_server_reads_scripts_and_components_only() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = Server::start(&["--stdio", "--suite", &suite, "--threads", "1"]);
    let (pipe, secret) = (dir.join("pipe.rhai"), dir.join("secret"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    fs::write(&secret, "hunter2: {\n").expect("scratch");
    let mut told = String::new();
    for (path, lang) in [(&pipe, "rhai"), (&secret, "rhai"), (&secret, "wasm"), (&dir.join("none.rhai"), "rhai")] {
        server.say(&json!({"id": "1", "candidate": {"path": path, "lang": lang}}).to_string());
        told.push_str(&format!("{}\n", server.hear()).replace(&dir.display().to_string(), "DIR"));
    }
    assert!(!told.contains("hunter2"), "{told}");
    insta::assert_snapshot!(told, @r#"
    {"error":"the candidate `DIR/pipe.rhai` is no regular file","id":"1"}
    {"error":"`DIR/secret` is no script (*.rhai) and no component; scripts of other names are sent as `source`","id":"1"}
    {"error":"`DIR/secret` is no script (*.rhai) and no component; scripts of other names are sent as `source`","id":"1"}
    {"error":"the candidate `DIR/none.rhai` cannot be read: No such file or directory (os error 2)","id":"1"}
    "#);
    server.say(&json!({"id": "1", "candidate": {"path": in_turn(&dir)}, "stage": "smoke"}).to_string());
    assert_eq!(score(&server.hear()), 1.5);
    server.end();
}

#[test]
fn who_cancels_is_told_so_and_ids_are_used_once_at_a_time() {
    let dir = Scratch::new();
    let suite = unlimited(&dir);
    let mut server = Server::start(&["--stdio", "--suite", &suite, "--threads", "1"]);
    // Hundreds of millions of operations, unless it is cancelled.
    let slow = "fn route(r, s) { let x = 0; for i in 0..1000000 { x += i; } -s.in_flight }";
    server.say(&ask(1, slow));
    server.say(&ask(1, slow));
    assert_eq!(server.hear()["error"], "the id `1` is in use: wait for its answer, or take another");
    server.say("{\"cancel\": \"1\"}");
    assert_eq!(server.hear(), json!({"cancel": "1", "found": true}));
    let cancelled = server.hear();
    assert_eq!((cancelled["status"].as_str(), cancelled["stopped"].as_str()), (Some("host_error"), Some("cancelled")));
    assert_eq!(cancelled["artifacts"]["error"], "the request was cancelled; the candidate was not judged");
    server.end();
}

/// Looking at decisions took thirty times as long as the verdict, and no limit ended it.
#[test]
fn texts_about_decisions_take_no_more_than_their_share() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = Server::start(&["--stdio", "--suite", &suite]);
    let mut decisions = |source: &str| {
        server.say(&json!({"candidate": source, "scenario": "chat"}).to_string());
        let answer = server.hear();
        assert_eq!((answer["status"].as_str(), &answer["stopped"]), (Some("ok"), &Value::Null), "{answer:#}");
        answer["artifacts"]["worst_decisions"].as_str().unwrap_or_default().to_owned()
    };
    let light = decisions("fn route(r, s) { 0 }");
    assert!(light.starts_with("Decisions of chat that cost most"), "{light}");
    let heavy = decisions("fn route(r, s) { let x = 0; for i in 0..6000 { x += i; } 0 }");
    assert!(heavy.starts_with("Decisions were not looked at: "), "{heavy}");
    server.end();
}

#[test]
fn http_has_a_budget_and_the_routes_of_gepa() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = Server::start(&["--http", "127.0.0.1:0", "--suite", &suite, "--budget", "3"]);
    let listening = server.hear();
    let address = listening["listening"].as_str().expect("an address").trim_start_matches("http://").to_owned();
    let request_from = |from: &str, method: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\n{from}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answered");
        let code: u32 = text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (code, serde_json::from_str::<Value>(&body).unwrap_or(Value::Null))
    };
    let request = |method: &str, path: &str, body: &str| request_from("Host: localhost", method, path, body);
    let candidate = "{\"candidate\": \"fn route(r, s) { -s.in_flight }\", \"example_id\": \"long#1\"}";
    // A page in a browser on this machine reaches it, too.
    for from in ["Host: evil.example", "X: none", "Host: localhost\r\nOrigin: http://evil.example"] {
        assert_eq!(request_from(from, "POST", "/evaluate", candidate).0, 403, "{from}");
    }
    let (code, answer) = request("POST", "/evaluate", candidate);
    assert_eq!((code, &answer["budget"]), (200, &json!({"used": 1, "limit": 3})), "{answer}");
    assert_eq!(answer["score"], answer["info"]["combined_score"]);
    // A candidate as GEPA has it: its one component by name.
    let many = "{\"candidate\": {\"policy\": \"fn route(r, s) { 0 }\"}, \"example_ids\": [\"chat\", \"long#0\"]}";
    assert_eq!(request("POST", "/evaluate", "{\"candidate\": {\"a\": \"x\", \"b\": \"y\"}}").0, 400);
    let (code, answer) = request("POST", "/evaluate_examples", many);
    assert_eq!((code, answer["results"].as_array().map(Vec::len)), (200, Some(2)), "{answer}");
    let (code, answer) = request("POST", "/evaluate", candidate);
    assert_eq!((code, answer["error"].as_str()), (429, Some("the budget is used up")));
    assert_eq!(request("POST", "/evaluate", "nonsense").0, 400);
    let (code, status) = request("GET", "/status", "");
    assert_eq!((code, &status["answered"]), (200, &json!(3)));
    assert_eq!(request("GET", "/task", "").0, 200);
    assert_eq!(request("GET", "/elsewhere", "").0, 404);
    server.child.kill().expect("killed");
    server.child.wait().expect("ended");
    let open = blis!(["serve", "--http", "0.0.0.0:0"]);
    assert_eq!(open.code, Some(2));
}

/// Killed in between, it has lost nothing of what it answered: the next one answers the same from the cache.
#[test]
fn what_was_answered_survives_the_server() {
    let dir = Scratch::new();
    let (suite, cache) = (small(&dir), dir.join("cache").display().to_string());
    let words = ["--stdio", "--suite", &suite, "--cache", &cache];
    let mut server = Server::start(&words);
    server.say(&ask(1, "fn route(r, s) { -s.in_flight }"));
    let first = server.hear();
    server.say(&ask(2, "fn route(r, s) { let x = 0; for i in 0..5000 { x += i; } 0 }"));
    server.child.kill().expect("killed");
    server.child.wait().expect("ended");
    let mut server = Server::start(&words);
    server.say(&ask(1, "fn route(r, s) { -s.in_flight }"));
    let again = server.hear();
    assert_eq!((&again["hashes"], &again["cost"]["cache"]), (&first["hashes"], &json!("hit")));
    server.end();
}

#[test]
fn projects_are_written_once_and_name_their_suite() {
    let dir = Scratch::new();
    for tool in ["openevolve", "gepa", "shinka", "skydiscover", "cluster"] {
        let project = dir.join(tool).display().to_string();
        let init = || blis!(["init", tool, &project, "--suite", "long-context"]);
        let output = init();
        assert!(output.code == Some(0), "{tool}: {}", output.stderr);
        let readme = fs::read_to_string(dir.join(tool).join("README.md")).expect("a README");
        assert!(readme.contains("long-context") && !readme.contains("{{"), "{tool}: {readme}");
        let again = init();
        assert_eq!(again.code, Some(2), "what is there is not overwritten");
        let seed = dir.join(tool).join("seed.rhai");
        if tool != "cluster" {
            let verdict = verdicts(&["evaluate", &seed.display().to_string(), "--suite", &small(&dir)]).remove(0);
            assert_eq!(score(&verdict), 2.5, "{tool} starts from the baseline: {verdict:#}");
        }
    }
    assert_eq!(blis!(["init", "gepa", &dir.join("x").display().to_string(), "--suite", "none"]).code, Some(2));
}
