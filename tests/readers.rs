//! Every reader of the program × everything that is no file to read: a device without an end, a sparse gigabyte, gzip that grows to
//! gigabytes, a pipe without a writer, a folder, a circle of links. Each is refused with one error, in a few seconds and 200 MB.
//!
//! The table has a command for each reader. A new one belongs into it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use wait4::Wait4 as _;

use crate::macros::{Scratch, program};

/// Most memory of a command that refuses its input, bytes.
const MOST_BYTES: u64 = 200 << 20;
/// Most CPU time of it, promised of the optimised program; the other takes longer. Wall time depends on what else runs, so that it only
/// tells a command that waits for ever.
const MOST_CPU: Duration = Duration::from_secs(if cfg!(debug_assertions) { 15 } else { 5 });
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// A reader: a command in which `{}` stands for the file, and the name of the file.
struct ReaderCase {
    line: &'static str,
    file: &'static str,
    /// Whether a folder is an input of its own.
    takes_folders: bool,
    /// Whether the command evaluates what it reads, so that a file without a policy is a result, with another exit code.
    has_result: bool,
}

const fn reader(line: &'static str, file: &'static str) -> ReaderCase {
    ReaderCase { line, file, takes_folders: false, has_result: false }
}

const fn reader_or_folder(line: &'static str, file: &'static str) -> ReaderCase {
    ReaderCase { line, file, takes_folders: true, has_result: false }
}

const fn evaluator(line: &'static str, file: &'static str) -> ReaderCase {
    ReaderCase { line, file, takes_folders: false, has_result: true }
}

const READERS: &[ReaderCase] = &[
    // The deployment.
    reader("run --model qwen/qwen3-14b --latency-model physics --coefficients {} --num-requests 1", "c.yaml"),
    reader_or_folder("run --model qwen/qwen3-14b --hardware H100 --hardware-config {} --num-requests 1", "g.yaml"),
    reader("run --model qwen/qwen3-14b --hardware-config . --num-requests 1", "in-folder.yaml"),
    reader("run --model ./ --num-requests 1", "config.json"),
    reader("run --model qwen/qwen3-14b --model-config-folder . --num-requests 1", "config.json"),
    reader("run --model qwen/qwen3-14b --parity blis --kv-offload-config {} --num-requests 1", "k.yaml"),
    reader("run --model qwen/qwen3-14b --lora-config {} --num-requests 1", "l.yaml"),
    reader("run --model qwen/qwen3-14b --prices {} --num-requests 1", "p.yaml"),
    reader("run --config {}", "c.yaml"),
    reader("run --model qwen/qwen3-14b --policy-config {} --num-requests 1", "b.yaml"),
    reader("compare round-robin {} --model qwen/qwen3-14b --num-requests 1", "b.yaml"),
    reader("run --model qwen/qwen3-14b --fitness-weights throughput:1 --baseline {} --num-requests 1", "b.yaml"),
    // Workloads.
    reader_or_folder("run --model qwen/qwen3-14b --workload-spec {} --num-requests 1", "w.yaml"),
    reader("run --model qwen/qwen3-14b --workload-spec . --num-requests 1", "chunk-0-trace.csv"),
    reader("workload compose {}", "w.yaml"),
    reader("workload inspect {}", "t.jsonl"),
    reader("run --model qwen/qwen3-14b --workload-trace {}", "t.csv"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format azure", "t.csv"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format mooncake", "t.jsonl"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format blis-csv", "t.csv"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format bailian", "t.jsonl"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format burstgpt", "t.csv"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format vllm-bench", "t.json"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format sglang-bench", "t.json"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format aiperf", "t.jsonl"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format guidellm", "t.json"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format otel", "t.json"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format vllm-vcr", "t.jsonl"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format csv --rate 1", "t.csv"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format sharegpt --rate 1", "t.json"),
    reader("run --model qwen/qwen3-14b --workload-trace {} --trace-format trace-v2", "t.yaml"),
    reader("replay --model qwen/qwen3-14b --trace-header {} --trace-data good.csv", "h.yaml"),
    reader("replay --model qwen/qwen3-14b --trace-header good.yaml --trace-data {}", "d.csv"),
    reader("calibrate --model qwen/qwen3-14b --workload-trace {}", "t.json"),
    // Results and recordings.
    reader_or_folder("view {} --report page.html", "r.json"),
    reader("view . --report page.html", "history.jsonl"),
    reader("plot {} --out f.svg", "r.json"),
    reader("decisions show {}", "d.jsonl"),
    reader("decisions top {}", "d.jsonl"),
    reader("plugin replay round-robin {}", "d.jsonl"),
    reader_or_folder("fit {} --out c.yaml", "m.csv"),
    reader("fit . --out c.yaml", "runs.csv"),
    reader_or_folder("validate {}", "m.csv"),
    reader("fit good.csv --out new.yaml --base {}", "c.yaml"),
    reader("search chat --evaluations 1 --archive {}", "a.sqlite"),
    // Policies, suites and records.
    evaluator("evaluate {} --stage smoke", "c.rhai"),
    evaluator("evaluate {} --stage smoke", "c.wasm"),
    evaluator("evaluate least-loaded --incumbent {} --stage smoke", "i.rhai"),
    reader("evaluate held-out {}", "c.rhai"),
    evaluator("evaluate shinka-evaluate --program_path {} --results_dir out", "c.rhai"),
    reader("evaluate least-loaded --suite {} --stage smoke", "s.yaml"),
    reader("evaluate --record {}", "record.yaml"),
    reader("evaluate merge .", "part-0-of-1.json"),
    reader("tune {}", "c.rhai"),
    reader("suite rebase {} --dry-run", "s.yaml"),
    reader("run --model qwen/qwen3-14b --routing-policy ./{} --num-requests 1", "p.rhai"),
    reader("run --model qwen/qwen3-14b --routing-policy ./{} --num-requests 1", "p.wasm"),
    evaluator("plugin check ./{}", "p.rhai"),
    evaluator("plugin check ./{}", "p.wasm"),
    reader("plugin pack {}", "p.wasm"),
    reader("plugin test round-robin {}", "f.yaml"),
    reader("plugin build .", "Cargo.toml"),
    reader_or_folder("import llm-d {}", "e.yaml"),
    reader("export llm-d {}", "b.yaml"),
    reader("export vllm-cache-policy {}", "p.rhai"),
    reader("serve --stdio --suite {}", "s.yaml"),
    reader("serve --http 127.0.0.1:0 --token-file {}", "token"),
];

/// What is no file to read, by name.
const HAZARDS: [&str; 8] = [
    "/dev/zero",
    "/dev/full",
    "sparse gigabyte",
    "bomb of zeros",
    "bomb of spaces",
    "pipe",
    "folder",
    "circle of links",
];

/// Makes the hazard `name` at `path`. `bombs` are the bytes of the two.
fn make(name: &str, path: &Path, bombs: &[Vec<u8>; 2]) {
    let made = match name {
        "sparse gigabyte" => File::create(path).and_then(|file| file.set_len(1 << 30)),
        "bomb of zeros" => fs::write(path, &bombs[0]),
        "bomb of spaces" => fs::write(path, &bombs[1]),
        "folder" => fs::create_dir(path),
        "circle of links" => symlink(path, path),
        "pipe" => Command::new("mkfifo").arg(path).status().map(|ended| assert!(ended.success())),
        device => symlink(device, path),
    };
    made.unwrap_or_else(|error| panic!("{name} at {}: {error}", path.display()));
}

/// Gzip of a gigabyte of `byte`.
fn bomb(byte: u8) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Members of 16 MiB, so that the test is fast.
    let chunk = vec![byte; 16 << 20];
    encoder.write_all(&chunk).expect("memory");
    let member = encoder.finish().expect("memory");
    member.repeat(64)
}

/// The peak of the memory of the program that this process started as `process`, so far, bytes.
///
/// A child has the memory of this process, peak included, until it has become the program: then it runs another file. The system may
/// start it before that (`vfork`), so that `rusage` of an ended process has the peak of both.
fn peak(process: u32) -> u64 {
    let entry = |name: &str| format!("/proc/{process}/{name}");
    let file = |link: &str| fs::read_link(link).ok();
    if file(&entry("exe")) == file("/proc/self/exe") {
        return 0;
    }
    let status = fs::read_to_string(entry("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Why the command is at fault; `None` if it refuses its input as it should.
fn fault(words: &[String], has_result: bool, folder: &Path) -> Option<String> {
    let (out, err) = (folder.join("stdout"), folder.join("stderr"));
    let files = [&out, &err].map(|path| File::create(path).expect("scratch"));
    let [stdout, stderr] = files;
    let mut program = program!(words);
    let mut child =
        program.current_dir(folder).stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().expect("blis");
    let (begun, mut most) = (Instant::now(), 0);
    let code = loop {
        most = peak(child.id()).max(most);
        if let Some(ended) = child.try_wait().expect("a child") {
            break ended.code();
        }
        if most > 2 * MOST_BYTES || begun.elapsed() > HANGS_AFTER {
            let _ = child.kill();
            let _ = child.wait();
            return Some(format!("no end after {:.1} s and {} MB", begun.elapsed().as_secs_f64(), most >> 20));
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    let output = fs::read_to_string(&err).unwrap_or_default();
    let errors = output.lines().filter(|line| line.starts_with("error: ")).count();
    let is_refused = code == Some(2) && errors == 1;
    let is_result = has_result && (code == Some(0) || code == Some(1) && errors == 1);
    if !(is_refused || is_result) || output.contains("panicked") {
        return Some(format!("exit code {code:?}: {}", output.trim()));
    }
    (most > MOST_BYTES).then(|| format!("{} MB: {}", most >> 20, output.trim()))
}

/// The words of a command line in which `{}` stands for `file`.
fn words(line: &str, file: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.replace("{}", file)).collect()
}

#[test]
fn every_reader_refuses_a_device_without_an_end() {
    every_reader_refuses(&HAZARDS[..1]);
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn every_reader_refuses_what_is_no_file() {
    every_reader_refuses(&HAZARDS[1..]);
}

fn every_reader_refuses(hazards: &[&'static str]) {
    let bombs = [bomb(0), bomb(b' ')];
    let cases: Vec<(&ReaderCase, &str)> =
        READERS.iter().flat_map(|reader| hazards.iter().map(move |hazard| (reader, *hazard))).collect();
    let cases: Vec<_> =
        cases.into_iter().filter(|(reader, hazard)| *hazard != "folder" || !reader.takes_folders).collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(8) {
            scope.spawn(|| {
                while let Some((reader, hazard)) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let folder = Scratch::new();
                    folder.write("good.yaml", "trace_version: 3\ntime_unit: microseconds\n");
                    folder.write("good.csv", "a,b\n1,2\n");
                    make(hazard, &folder.join(reader.file), &bombs);
                    if let Some(fault) = fault(&words(reader.line, reader.file), reader.has_result, &folder) {
                        let what = format!("{} [{} is {hazard}]: {fault}", reader.line, reader.file);
                        faults.lock().expect("no panic").push(what);
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic");
    assert!(faults.is_empty(), "{} of {} at fault:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// The CPU time of a few of them, which the system tells of ended processes.
#[test]
fn endless_input_costs_no_time() {
    let folder = Scratch::new();
    fs::write(folder.join("spaces.json"), bomb(b' ')).expect("scratch");
    for line in
        ["run --model qwen/qwen3-14b --workload-trace spaces.json --trace-format otel", "fit spaces.json --out c.yaml"]
    {
        let mut program = program!(words(line, ""));
        let child = program.current_dir(&*folder).stderr(Stdio::null()).spawn().expect("blis");
        let used = child.wait4().expect("it ends").rusage;
        assert!(used.utime + used.stime < MOST_CPU, "{line}: {used:?}");
    }
}

/// A pipe of a shell is read, and standard input that does not end is refused.
#[test]
fn pipes_of_shells_are_read() {
    let blis = env!("CARGO_BIN_EXE_blis");
    let run = |script: &str| {
        let mut bash = Command::new("bash");
        let ended = bash.args(["-c", script]).env("BLIS", blis).current_dir(crate::macros::root()).output();
        let ended = ended.expect("bash");
        (
            ended.status.code(),
            String::from_utf8_lossy(&ended.stdout).into_owned() + &*String::from_utf8_lossy(&ended.stderr),
        )
    };
    let rows = "printf 'arrival_s,prompt_tokens,output_tokens\\n0,10,2\\n1,10,2\\n'";
    let (code, output) = run(&format!(
        "$BLIS run --model qwen/qwen3-14b --output json --trace-format csv --workload-trace <({rows} | gzip)"
    ));
    assert!(code == Some(0) && output.contains("\"completed_requests\": 2"), "{output}");
    let (code, output) =
        run(&format!("{rows} | $BLIS run --model qwen/qwen3-14b --output json --trace-format csv --workload-trace -"));
    assert!(code == Some(0) && output.contains("\"completed_requests\": 2"), "{output}");
    let (code, output) = run("$BLIS run --output json --config <(printf 'model: qwen/qwen3-14b\\nnum-requests: 2\\n')");
    assert_eq!(code, Some(0), "{output}");
    for endless in ["< /dev/zero", "< <(cat /dev/zero)", "< <(yes '')"] {
        let (code, output) =
            run(&format!("$BLIS run --model qwen/qwen3-14b --trace-format mooncake --workload-trace - {endless}"));
        assert!(code == Some(2) && output.starts_with("error: "), "{endless}: {code:?} {output}");
    }
}

/// Regression: a command was held to use 245 MB, those of this process, because it was measured before it had become the program.
#[test]
fn memory_of_this_process_is_not_that_of_its_children() {
    assert_eq!(peak(std::process::id()), 0);
    let mut bash = Command::new("bash");
    let mut other = bash.args(["-c", "echo; read"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash");
    // It is another program once it has written something.
    other.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("a line");
    assert!(peak(other.id()) > 0);
    drop(other.stdin.take());
    other.wait().expect("it ends");
}
