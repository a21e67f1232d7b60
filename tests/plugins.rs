//! `blis plugin` from outside: what it lists, starts, checks and refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::macros::{Ended, Scratch, blis};

/// A folder of its own, gone with the test.
struct Folder(Scratch);

impl Folder {
    fn new() -> Self {
        Self(Scratch::new())
    }

    /// `blis plugin <arguments>` in this folder.
    fn blis(&self, arguments: &str) -> Ended {
        blis!(in &self.0, "plugin", arguments)
    }

    /// As [`Self::blis`], which must succeed.
    fn done(&self, arguments: &str) -> String {
        self.blis(arguments).done().stdout
    }

    /// The list that it prints, whether all is well or not.
    fn json(&self, arguments: &str) -> Vec<Value> {
        let ended = self.blis(&format!("{arguments} --output json"));
        let document: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("blis plugin {arguments}: {error}: {}", ended.stderr));
        document.as_array().expect("a list").clone()
    }

    /// The message about `arguments`, which are invalid.
    fn refused(&self, arguments: &str) -> String {
        let message = self.blis(arguments).refused();
        assert!(message.contains("hint: "), "{message}");
        message
    }

    fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        self.0.write(file, content);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const KINDS: [&str; 15] = [
    "admission",
    "routing",
    "routing-filter",
    "priority",
    "scheduling",
    "preemption",
    "latency",
    "saturation",
    "ceilings",
    "fairness",
    "ordering",
    "eviction",
    "scaling",
    "drain",
    "placement",
];

/// Whether `source` could be compiled to the library `out`; not without a C compiler.
#[allow(clippy::print_stdout, reason = "a test that skips says so")]
pub fn compiled(source: &Path, flag: Option<&str>, out: &Path) -> bool {
    let header = format!("-I{}/../sdk/c", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]).args(flag).arg(source);
    let Ok(built) = command.arg("-o").arg(out).arg(header).output() else {
        println!("skipped: there is no C compiler");
        return false;
    };
    assert!(built.status.success(), "{}", text(&built.stderr));
    true
}

/// The source of a native library of the tests.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("plugin/src/native/fixtures/{name}.c"))
}

fn failed(checked: &Value) -> Vec<String> {
    let checks = checked["checks"].as_array().expect("checks").iter();
    checks
        .filter(|check| check["passed"] == false)
        .map(|check| format!("{}: {}", check["check"], check["detail"]))
        .collect()
}

/// Every kind passes the conformance kit as it comes out of `new`.
#[test]
fn a_new_c_policy_passes_the_check() {
    let folder = Folder::new();
    for kind in KINDS {
        folder.done(&format!("new my-{kind} --kind {kind} --lang c"));
        let out = folder.0.join(format!("my-{kind}.so"));
        // With the headers that came with it, not ours.
        let source = folder.0.join(format!("my-{kind}/policy.c"));
        if !compiled(&source, None, &out) {
            return;
        }
        let checked = folder.json(&format!("check my-{kind} --policy-dir . --allow-native --no-cost"));
        assert_eq!(failed(&checked[0]), [""; 0], "{kind}");
        assert_eq!(checked[0]["kinds"], Value::from(vec![kind]));
        assert!(checked[0]["checks"].as_array().is_some_and(|checks| checks.len() > 7), "{kind}");
    }
}

#[test]
fn a_new_script_passes_the_check() {
    let folder = Folder::new();
    for kind in KINDS {
        folder.done(&format!("new my-{kind} --kind {kind} --lang rhai"));
        let checked = folder.json(&format!("check my-{kind}.rhai --no-cost"));
        assert_eq!(failed(&checked[0]), [""; 0], "{kind}");
        assert_eq!(checked[0]["kinds"], Value::from(vec![kind]));
        assert_eq!(checked[0]["usage"].as_array().map(Vec::len), Some(4), "{kind}");
    }
}

/// Compiling one takes minutes; what can be seen without is that cargo understands it.
#[test]
fn a_new_crate_has_all_it_needs() {
    let folder = Folder::new();
    for kind in KINDS {
        folder.done(&format!("new my-{kind} --kind {kind} --lang rust"));
        let crate_folder = folder.0.join(format!("my-{kind}"));
        let source = fs::read_to_string(crate_folder.join("src/lib.rs")).expect("a source");
        assert!(!source.contains('@'), "something was not filled in: {source}");
        assert!(["blis-sdk", "blis-abi"].iter().all(|name| crate_folder.join(name).join("src/lib.rs").is_file()));
        let manifest = fs::read_to_string(crate_folder.join("Cargo.toml")).expect("a manifest");
        assert!(manifest.contains("[workspace.dependencies"), "{manifest}");
    }
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(folder.0.join("my-routing"))
        .output()
        .expect("cargo");
    assert!(cargo.status.success(), "{}", text(&cargo.stderr));
    let metadata: Value = serde_json::from_slice(&cargo.stdout).expect("JSON");
    assert_eq!(metadata["packages"].as_array().map(Vec::len), Some(3), "the policy and the two crates of the SDK");
}

#[test]
fn nothing_is_overwritten() {
    let folder = Folder::new();
    folder.write("mine.rhai", "fn route(r, s) { -s.queue_depth }");
    folder.done("new mine --kind routing --lang c");
    for lang in ["rhai", "rust", "c", "zig", "python", "javascript"] {
        let message = folder.refused(&format!("new mine --kind routing --lang {lang}"));
        assert!(message.contains("exists already"), "{message}");
    }
    assert_eq!(fs::read_to_string(folder.0.join("mine.rhai")).expect("a file").len(), 33);
    for name in ["Mine", "1st", "a/b", "../up", "two-", "a b"] {
        let name = name.replace(' ', "_");
        folder.refused(&format!("new {name} --kind routing --lang rhai"));
    }
}

#[test]
fn what_is_broken_is_listed_with_its_reason() {
    let folder = Folder::new();
    let library = folder.0.join("good.so");
    if !compiled(&fixture("router"), None, &library) {
        return;
    }
    folder.write("broken.wasm", "no WebAssembly");
    folder.write("aa.so", "no library");
    folder.write("notes.txt", "");
    let all = folder.json("list --policy-dir . --allow-native");
    let named = |name: &str| all.iter().find(|entry| entry["name"] == name);
    let names: Vec<_> = all.iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert_eq!(named("least-loaded").map(|entry| &entry["technology"]), Some(&Value::from("built-in")));
    let good = named("good").expect("listed");
    assert_eq!(
        (&good["kinds"][0], &good["error"], &good["version"]),
        (&"routing".into(), &Value::Null, &"1.2.3".into())
    );
    assert_eq!(good["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(good["parameters"][0]["max"], 100.0);
    for name in ["broken", "aa"] {
        let message = named(name).and_then(|entry| entry["error"].as_str()).expect("listed with its reason");
        assert!(message.ends_with("[unreadable]"), "{message}");
    }
    assert_eq!(named("notes"), None);
    let sandboxed = folder.json("list --policy-dir .");
    let message = sandboxed.iter().find(|entry| entry["name"] == "good").and_then(|entry| entry["error"].as_str());
    assert!(message.is_some_and(|message| message.contains("--allow-native")), "{message:?}");
    let read = folder.done("list --policy-dir . --allow-native --output text");
    assert!(read.contains("Parameters of good:") && read.contains("Cannot be used:"), "{read}");
}

#[test]
fn plugins_that_break_the_interface_fail_the_check() {
    let folder = Folder::new();
    let library = folder.0.join("fails.so");
    if !compiled(&fixture("router"), Some("-DFAILS"), &library) {
        return;
    }
    let arguments = "check fails --policy-dir . --allow-native";
    let output = folder.blis(&format!("{arguments} --output text"));
    assert_eq!(output.code, Some(1), "{}", output.stdout);
    assert!(output.stdout.contains("✗ routing: outputs are in range\n"), "{}", output.stdout);
    assert!(output.stderr.contains("checks failed\nhint: "), "{}", output.stderr);
    let checked = folder.json(arguments);
    assert_eq!(checked[0]["passed"], false);
    assert!(failed(&checked[0]).iter().any(|message| message.contains("the third is one too many")), "{checked:?}");
    // A file that does not load is one failed check.
    folder.write("broken.so", "no library");
    let checked = folder.json("check broken --policy-dir . --allow-native");
    assert_eq!((failed(&checked[0]).len(), checked[0]["checks"].as_array().map(Vec::len)), (1, Some(1)));
}

#[test]
fn costs_stand_beside_the_built_in() {
    let folder = Folder::new();
    if !compiled(&fixture("router"), None, &folder.0.join("router.so")) {
        return;
    }
    let rows = folder.json("bench router --policy-dir . --allow-native");
    let sizes: Vec<_> = rows.iter().filter_map(|row| row["n"].as_u64()).collect();
    assert_eq!(sizes, [4, 16, 64, 256, 1024]);
    assert!(rows.iter().all(|row| row["built_in"] == "least-loaded" && row["cpu_ns_per_call"].as_f64() > Some(0.0)));
}

#[test]
fn nonsense_is_one_error_with_one_hint() {
    let folder = Folder::new();
    folder.write("x.so", "");
    folder.write("text.txt", "");
    folder.write("text.wasm", "text");
    for arguments in [
        "check no-such-plugin",
        "check no/such/file.rhai",
        "check ./text.txt",
        "bench x --policy-dir .",
        "check x --policy-dir nowhere",
        "build nowhere",
        "build text.txt",
        "pack nowhere.wasm",
        "new x",
        "new x --kind cooking --lang c",
    ] {
        folder.refused(arguments);
    }
    let message = folder.refused("bench x --policy-dir .");
    assert!(message.contains("--allow-native"), "{message}");
}

/// A library that hangs ends with the limit, whatever the command.
#[test]
fn what_hangs_ends_with_the_limit() {
    let folder = Scratch::new();
    let (source, out) = (folder.join("hang.c"), folder.join("hang.so"));
    fs::write(
        &source,
        "#include <unistd.h>\n__attribute__((constructor)) static void hang(void) { for (;;) pause(); }\n",
    )
    .expect("scratch");
    if !compiled(&source, None, &out) {
        return;
    }
    for command in ["check", "test", "bench"] {
        let ended = blis!("plugin", command, out, "--allow-native --wall-s 0.3").with_code(1);
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        assert!(shown.contains("it took more than 0.3 s, and was ended"), "{command}: {shown}");
    }
    let ended = blis!("plugin replay", out, folder.join("trace.jsonl"), "--allow-native --wall-s 0.3").with_code(1);
    assert!(ended.stderr.contains("it took more than 0.3 s, and was ended"), "{}", ended.stderr);
}

/// One file may take a second of CPU time, and five may take longer: what comes after them is listed without being read.
#[test]
fn a_list_is_not_held_up_by_files_that_take_long() {
    let folder = Folder::new();
    folder.write(
        "spin.c",
        "__attribute__((constructor)) static void spin(void) { for (volatile int i = 0;; i = !i) {} }\n",
    );
    let first = folder.0.join("a0.so");
    if !compiled(&folder.0.join("spin.c"), None, &first) {
        return;
    }
    for number in 1..6 {
        fs::copy(&first, folder.0.join(format!("a{number}.so"))).expect("scratch");
    }
    folder.write("b.rhai", "fn route(r, s) { 0 }");
    let all = folder.json("list --policy-dir . --allow-native");
    let error = |name: &str| all.iter().find(|entry| entry["name"] == name).map(|entry| entry["error"].clone());
    let alone = "`blis plugin check FILE` reads a file alone, with more time";
    for (name, expected) in [
        ("a0", format!("not read, because that takes more than 1 s: {alone}")),
        ("a4", format!("not read, because that takes more than 1 s: {alone}")),
        ("a5", format!("not read, because 5 files before it took too long: {alone}")),
        ("b", format!("not read, because 5 files before it took too long: {alone}")),
    ] {
        assert_eq!(error(name), Some(expected.into()), "{name}");
    }
    assert_eq!(error("least-loaded"), Some(Value::Null));
}

/// The name of a file may have any character but a slash.
#[test]
fn names_of_files_stay_on_their_line() {
    let folder = Scratch::new();
    fs::write(folder.join("a\u{1b}[31mb\nc.rhai"), "fn route(r, s) { 0 }").expect("scratch");
    fs::write(folder.join("x\u{1b}[2Jy.rhai"), "fn route(r, s) { 0").expect("scratch");
    let text = blis!(in &folder, "plugin list --policy-dir . --output text").done().stdout;
    assert!(!text.contains('\u{1b}'), "{text}");
    for line in [
        "a\\u{1b}[31mb\\nc         routing",
        "  File: ./a\\u{1b}[31mb\\nc.rhai",
        "  x\\u{1b}[2Jy: ./x\\u{1b}[2Jy.rhai:1:",
    ] {
        assert!(text.lines().any(|one| one.starts_with(line)), "{line}: {text}");
    }
    let ended = blis!(in &folder, "plugin check", folder.join("x\u{1b}[2Jy.rhai"), "--output text").with_code(1);
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains('\u{1b}'), "{}", ended.stdout);
}
