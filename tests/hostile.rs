//! The hostile corpora, of this repository (`adversaries/`) and, where it is present, beside it (`../shared/cases/hostile`): every file through
//! everything that takes a candidate, under a view of the file system that cannot be written to.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::evaluate::small;
use crate::macros::{Scratch, program, root};

/// CPU time in which each command ends, s. An unoptimised program takes several times as long.
const CPU_S: f64 = if cfg!(debug_assertions) { 40.0 } else { 8.0 };
/// Time after which it hangs, whatever else the machine does.
const HANGS: Duration = Duration::from_secs(120);
/// Memory of a command, bytes.
const MEMORY_BYTES: u64 = 1_500_000_000;

#[expect(clippy::print_stderr, reason = "a test that skips says so")]
fn corpus() -> Vec<PathBuf> {
    let folders = ["tests/adversaries", "../shared/cases/hostile/rhai", "../shared/cases/hostile/wasm"];
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in folders {
        match fs::read_dir(root().join(folder)) {
            Ok(entries) => files.extend(entries.flatten().map(|entry| entry.path())),
            Err(error) => eprintln!("skipped: {folder}: {error}"),
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rhai" || extension == "wasm"));
    files.sort();
    files
}

/// Whether this process may make a view of the file system of its own.
fn can_unshare() -> bool {
    let made = Command::new("unshare").args(["-m", "sh", "-c", "mount -o remount,ro,bind / /"]).output();
    made.is_ok_and(|made| made.status.success())
}

/// `command` in a view of the file system in which nothing but `scratch` can be written to.
fn read_only(command: &Command, scratch: &Path) -> Command {
    let scratch = scratch.display();
    let script = format!(
        "mount --bind '{scratch}' '{scratch}' && mount -o remount,ro,bind / / && \
         for m in /tmp /var /root /home; do mount --rbind $m $m 2>/dev/null && mount -o remount,ro,bind $m 2>/dev/null; done; \
         mount --bind '{scratch}' '{scratch}' 2>/dev/null; exec \"$@\""
    );
    let mut inside = Command::new("unshare");
    inside.args(["-m", "sh", "-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        inside.current_dir(folder);
    }
    inside
}

/// How a command ended.
struct CommandEnd {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    cpu_s: f64,
    memory_bytes: u64,
}

fn run(mut command: Command) -> CommandEnd {
    use wait4::Wait4 as _;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut pipes = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let (id, start) = (child.id(), Instant::now());
    let reader = std::thread::spawn(move || {
        let mut text = (Vec::new(), Vec::new());
        let _ = pipes.0.read_to_end(&mut text.0);
        let _ = pipes.1.read_to_end(&mut text.1);
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (shown(&text.0), shown(&text.1))
    });
    let watch = std::thread::spawn(move || {
        while start.elapsed() < HANGS {
            if !Path::new(&format!("/proc/{id}")).exists() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        true
    });
    let ended = child.wait4().expect("it ends");
    let (stdout, stderr) = reader.join().expect("a thread");
    assert!(!watch.join().expect("a thread"), "it hangs: {stdout}{stderr}");
    let usage = ended.rusage;
    CommandEnd {
        code: ended.status.code(),
        stdout,
        stderr,
        cpu_s: (usage.utime + usage.stime).as_secs_f64(),
        memory_bytes: usage.maxrss,
    }
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn nothing_hostile_crashes_hangs_fills_or_writes() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let confined = can_unshare();
    if !confined {
        eprintln!("skipped: a read-only view of the file system needs root and `unshare`; the rest runs without");
    }
    let start = |mut command: Command| {
        command.env("XDG_CACHE_HOME", dir.path("cache"));
        let mut whole = if confined { read_only(&command, Path::new(&dir.path(""))) } else { command };
        whole.env("XDG_CACHE_HOME", dir.path("cache"));
        run(whole)
    };
    let honest =
        start(program!("evaluate policies/rhai-least-loaded.rhai --stage smoke --output json --suite", &suite));
    assert_eq!(honest.code, Some(0), "{}", honest.stderr);
    let files = corpus();
    assert!(files.len() > 40, "{} files", files.len());
    for file in &files {
        let name = file.display().to_string();
        let commands = [
            program!("evaluate", file, "--stage smoke --wall-s 5 --output json --suite", &suite),
            program!("plugin check", file, "--no-cost --wall-s 6 --output json"),
            program!(
                "run --model qwen/qwen3-14b --num-instances 2 --num-requests 5 --rate 5 --output json --routing-policy",
                file
            ),
        ];
        for command in commands {
            let words = format!("{name}: {:?}", command.get_args().next());
            let CommandEnd { code, stdout, stderr, cpu_s, memory_bytes } = start(command);
            // An exit code, and no signal.
            assert!(matches!(code, Some(0..=2)), "{words}: {code:?}\n{stdout}{stderr}");
            assert!(cpu_s <= CPU_S, "{words}: {cpu_s} s");
            assert!(memory_bytes <= MEMORY_BYTES, "{words}: {memory_bytes} bytes");
        }
    }
    // All of them in one list, which refuses or describes each.
    let folder = dir.path("all");
    fs::create_dir_all(&folder).expect("scratch");
    for file in &files {
        let name = file.file_name().expect("a file");
        fs::copy(file, Path::new(&folder).join(name)).expect("scratch");
    }
    let listed = start(program!("plugin list --output json --policy-dir", &folder));
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("a document");
    assert!(listed.as_array().is_some_and(|all| all.len() > files.len()));
    let again = start(program!("evaluate policies/rhai-least-loaded.rhai --stage smoke --output json --suite", &suite));
    let hashes = |text: &str| serde_json::from_str::<Value>(text).map(|document| document["hashes"].clone()).ok();
    assert_eq!(hashes(&again.stdout), hashes(&honest.stdout), "an honest candidate after all of them");
}
