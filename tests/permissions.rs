//! No file, suite, record, request or environment variable grants a permission: every permission, in every format, in every command
//! that reads it. A library whose loading leaves a mark shows that nothing native runs.

use std::process::Command;

use blis_eval::spec::{KEYS, Permission, Range};

use crate::macros::{Scratch, blis, root};

/// A small suite with further lines in the settings of all scenarios and among its own keys.
fn suite(run: &str, own: &str) -> String {
    format!(
        "schema: 1\nname: stranger\nweights: mean_ttft:1\n{own}run:\n  model: qwen/qwen3-14b\n  num-instances: 2\n  num-requests: 20\n{run}\
         scenarios:\n  - {{name: one, splits: [smoke, train, select, test]}}\n"
    )
}

/// The commands that read a suite, after which its name stands.
fn commands() -> [Vec<&'static str>; 7] {
    [
        vec!["evaluate", "least-loaded", "--stage", "smoke", "--suite"],
        vec!["evaluate", "held-out", "least-loaded", "--suite"],
        vec!["tune", "token-aware", "--evals", "1", "--suite"],
        vec!["suite", "rebase", "--dry-run"],
        vec!["serve", "--stdio", "--suite"],
        vec!["search", "--evaluations", "1"],
        vec!["evaluate", "--record"],
    ]
}

/// Every way to give a file: the words of a command, and the file that they name.
fn ways(folder: &Scratch, name: &str, suite: &str) -> Vec<Vec<String>> {
    let file = format!("{name}.yaml");
    folder.write(&file, suite);
    let record = format!("{name}-record.yaml");
    folder.write("found.rhai", "fn route(r, s) { 0 }\n");
    let sha256 = "b25ffe54afa31be87f15dbc560626951700461e02a7f8092adef1c47fbac309c";
    folder.write(
        &record,
        format!(
            "schema: 1\nabout: a claim\nsuite: {file}\nsuite_version: 1\npolicy: found.rhai\nsha256: {sha256}\n\
             held_out: {{score: 1.1, low: 1.0, high: 1.2}}\nbetter_than: [round-robin]\n\
             found: {{command: none, seed: 1, number: 1, evaluations: 1, cpu_s: 1}}\n"
        ),
    );
    let file = folder.join(&file).display().to_string();
    let record = folder.join(&record).display().to_string();
    let words = commands().into_iter().map(|command| {
        let named = if command.contains(&"--record") { &record } else { &file };
        command.into_iter().map(str::to_owned).chain([named.clone()]).collect()
    });
    words.collect()
}

fn refused(words: &[String], env: Option<(&str, &str)>) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blis"));
    command.args(words).current_dir(root()).stdin(std::process::Stdio::null());
    if let Some((name, value)) = env {
        command.env(name, value);
    }
    let output = command.output().expect("it starts");
    let text = [output.stderr, output.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code().unwrap_or(-1), text)
}

/// Each flag of each permission, among the settings of a suite, of a scenario, of a `--config` file and of its sections.
#[test]
fn no_format_grants_a_permission() {
    let folder = Scratch::new();
    let mut wrong = Vec::new();
    let mut check = |words: &[String], flag: &str| {
        let (code, text) = refused(words, None);
        if code != 2 || !text.contains(&format!("--{flag}")) || text.contains("panicked") {
            wrong.push(format!("{}: {code} {text}", words.join(" ")));
        }
    };
    for (number, permission) in Permission::all().enumerate() {
        for (index, flag) in permission.flags().iter().enumerate() {
            // Every command for the first flag of a permission, one for the others.
            let commands = if index == 0 { usize::MAX } else { 1 };
            let name = format!("suite-{number}-{index}");
            for words in ways(&folder, &name, &suite(&format!("  {flag}: true\n"), "")).iter().take(commands) {
                check(words, flag);
            }
            for text in [format!("{flag}: true\n"), format!("cluster:\n  {flag}: x\n")] {
                let config = format!("config-{number}-{index}.yaml");
                folder.write(&config, format!("model: qwen/qwen3-14b\n{text}"));
                let config = folder.join(&config).display().to_string();
                for further in [&[][..], &["--explain-config"]] {
                    let words: Vec<&str> =
                        ["run", "--config", &config].into_iter().chain(further.iter().copied()).collect();
                    check(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(), flag);
                }
            }
        }
    }
    let large = suite("", "limits: {large_components: true}\n");
    for words in ways(&folder, "large", &large) {
        check(&words, "allow-large-components");
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

/// A library of a stranger, named in every way, is not loaded: its constructor would leave a mark.
#[test]
fn no_way_runs_native_code_of_a_stranger() {
    let folder = Scratch::new();
    let mark = folder.join("mark");
    let source = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void mark(void) {{ FILE *f = fopen(\"{}\", \"w\"); if (f) fclose(f); }}\n",
        mark.display()
    );
    folder.write("evil.c", &source);
    let library = folder.join("evil.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(folder.join("evil.c")).status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no C compiler");
        return;
    }
    let path = library.display().to_string();
    let mut tried = 0;
    let mut run = |words: &[String], env: Option<(&str, &str)>| {
        let (code, text) = refused(words, env);
        assert!(!mark.exists(), "{} has loaded it", words.join(" "));
        assert!(code != 0 && !text.contains("panicked"), "{}: {code} {text}", words.join(" "));
        tried += 1;
    };
    for (number, run_section) in [
        "  allow-native: true\n  routing-policy: ./evil.so\n".to_owned(),
        "  routing-policy: ./evil.so\n".to_owned(),
        format!("  routing-policy: {path}\n"),
        "  policy-dir: .\n  routing-policy: evil\n".to_owned(),
        "  scheduler: ./evil.so\n".to_owned(),
        "  latency-model: ./evil.so\n".to_owned(),
        "  routing-policy: weighted\n  routing-scorers: ./evil.so:1\n".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        for words in ways(&folder, &format!("native-{number}"), &suite(run_section, "")) {
            run(&words, None);
        }
    }
    for own in ["reference: ./evil.so\n", "baseline: ./evil.so\n", "reference_policies: [./evil.so]\n"] {
        let name = own.split(':').next().unwrap_or_default();
        for words in ways(&folder, name, &suite("", own)) {
            run(&words, Some(("BLIS_ALLOW_NATIVE", "1")));
        }
    }
    for (number, text) in [
        format!("allow-native: true\nrouting-policy: {path}\n"),
        format!("routing-policy: {path}\n"),
        format!("routing: {{policy: {path}}}\n"),
    ]
    .iter()
    .enumerate()
    {
        let config = format!("native-{number}-config.yaml");
        folder.write(&config, format!("model: qwen/qwen3-14b\n{text}"));
        let config = folder.join(&config).display().to_string();
        for further in [&[][..], &["--explain-config"]] {
            let words: Vec<&str> = ["run", "--config", &config].into_iter().chain(further.iter().copied()).collect();
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            run(&words, Some(("BLIS_ALLOW_NATIVE", "1")));
        }
    }
    assert!(tried > 70, "{tried}");
    // With the flag the user has chosen it: then it is loaded, and is no policy.
    let granted = blis!("run", "--model", "qwen/qwen3-14b", "--allow-native", "--routing-policy", &path).with_code(2);
    assert!(mark.exists(), "{}", granted.stderr);
}

/// A suite reads nothing outside its folder, whatever links it has there, unless a flag names the folder: every setting that is a
/// path, models and policies that are files, and the files of specifications.
#[test]
fn a_suite_reads_its_own_folder_only() {
    let folder = Scratch::new();
    folder.write("secret.csv", "a secret\n");
    folder.write("secret.rhai", "fn route(r, s) { a secret }\n");
    folder.write("private/config.json", "a secret\n");
    folder.write("suites/own/lengths.csv", "a secret\n");
    std::os::unix::fs::symlink(folder.join("secret.csv"), folder.join("suites/link.csv")).expect("a link");
    std::os::unix::fs::symlink(folder.join("private"), folder.join("suites/models")).expect("a link");
    let secret = folder.join("secret.csv").display().to_string();
    let mut all: Vec<String> = Vec::new();
    for key in KEYS.iter().filter(|key| key.suites && key.range == Range::Path && key.permission.is_none()) {
        let names = ["../secret.csv", "link.csv", "./link.csv", "sub/../../secret.csv", "../missing", &secret];
        let texts =
            names.map(|name| suite(&format!("  {}: {name}\n", key.name), "").replace("  num-requests: 20\n", ""));
        all.extend(texts);
    }
    assert!(all.len() > 60, "{}", all.len());
    let private = folder.join("private").display().to_string();
    // Found from the working folder, it would be a folder with a `config.json`.
    let around = format!("examples/{}{}", "../".repeat(20), private.trim_start_matches('/'));
    for model in [&private, &around, "./../private", "../private", "./models"] {
        all.push(suite("", "").replace("model: qwen/qwen3-14b", &format!("model: {model}")));
    }
    all.push(suite(&format!("  group: model={private},instances=1\n"), ""));
    for policy in ["../secret.rhai", "./../secret.rhai", &folder.join("secret.rhai").display().to_string()] {
        all.push(suite(&format!("  routing-policy: {policy}\n"), ""));
        all.extend(["reference", "baseline"].map(|key| suite("", &format!("{key}: {policy}\n"))));
        all.push(suite("", &format!("reference_policies: [{policy}]\n")));
    }
    let lengths = |file: &str| {
        format!(
            "clients:\n- id: a\n  rate_fraction: 1\n  arrival: {{process: poisson}}\n\
             \x20 input_distribution: {{type: empirical, file: {file}}}\n\
             \x20 output_distribution: {{type: constant, params: {{value: 5}}}}\naggregate_rate: 1\nversion: \"2\"\n"
        )
    };
    let of_file = suite("  workload-spec: own/spec.yaml\n", "").replace("  num-requests: 20\n", "");
    for file in ["../secret.csv", "link.csv", &secret] {
        let inline = format!("workload: |\n      {}", lengths(file).replace('\n', "\n      "));
        let splits = "splits: [smoke, train, select, test]";
        let flow = format!("{{name: one, {splits}}}");
        all.push(suite("", "").replace(&flow, &format!("name: one\n    {splits}\n    {inline}")));
        let from_own = if file == secret { file.to_owned() } else { format!("../{file}") };
        let servegen = format!("version: \"2\"\naggregate_rate: 1\nservegen_data: {{path: {from_own}}}\n");
        for specification in [lengths(&from_own), servegen] {
            folder.write("suites/own/spec.yaml", specification);
            check_refused(&folder, std::slice::from_ref(&of_file));
        }
    }
    check_refused(&folder, &all);
}

/// Each of the suites is refused with the flag that would allow it, and shows nothing of what it names.
fn check_refused(folder: &Scratch, suites: &[String]) {
    for text in suites {
        folder.write("suites/suite.yaml", text);
        let file = folder.join("suites/suite.yaml").display().to_string();
        let words = ["evaluate", "least-loaded", "--stage", "smoke", "--suite", &file].map(str::to_owned);
        let (code, message) = refused(&words, None);
        assert!(code == 2 && message.contains("--allow-path"), "{text}\n{code} {message}");
        assert!(!message.contains("a secret"), "{text}\n{message}");
    }
}

/// Every document says what its command line granted, whatever command prints it.
#[test]
fn documents_say_what_was_granted() {
    let folder = Scratch::new();
    let suite = "--suite sdk/python/tests/small.yaml";
    let model = "--model qwen/qwen3-14b --num-requests 5 --output json";
    let [page, requests] = ["page.html", "requests.json"].map(|name| folder.path(name));
    for (line, granted) in [
        (format!("run {model}"), &[][..]),
        (format!("run {model} --metrics-path {requests}"), &["write-files"]),
        (format!("run {model} --report {page} --allow-native"), &["native-code", "write-files"]),
        (format!("compare round-robin weighted {model} --report {page}"), &["write-files"]),
        (format!("evaluate round-robin --stage smoke {suite} --output json --allow-path ."), &["read-paths"]),
        (
            format!("evaluate held-out round-robin {suite} --output json --allow-large-components"),
            &["large-components"],
        ),
    ] {
        let document = blis!(&line).whole_json();
        assert_eq!(document["run"]["granted"], serde_json::json!(granted), "{line}");
    }
    // Lists do not say it.
    assert!(blis!("plugin list --allow-native --output json").whole_json().is_array());
    let plain = blis!("evaluate round-robin --stage smoke --output json", suite).whole_json();
    assert_eq!(plain["run"]["granted"], serde_json::json!([]));
    let lines = blis!("evaluate round-robin weighted --stage smoke --allow-native --output json", suite).done().stdout;
    assert_eq!(lines.matches("\"granted\":[\"native-code\"]").count(), 2, "{lines}");
    let shown = std::fs::read_to_string(&page).expect("a page");
    assert!(shown.contains("\"granted\":[\"write-files\"]"), "the page of `compare`");
}
