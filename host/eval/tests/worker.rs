//! Workers, in a program with one thread: what a test harness is not.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]

use std::sync::Mutex;
use std::time::Duration;

use blis_eval::worker::{self, TimeLimit, WorkerFailure, WorkerSettings};

/// A limit that only the worker that never ends may reach.
const LONG: Duration = Duration::from_secs(300);
const SHORT: Duration = Duration::from_millis(200);

static MESSAGES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn settings() -> WorkerSettings {
    WorkerSettings {
        memory_bytes: 1 << 30,
        threads: 1,
        message: |line| MESSAGES.lock().expect("one thread").extend_from_slice(line),
    }
}

fn failure(wall: Duration, work: fn()) -> WorkerFailure {
    let worker = worker::start(&settings(), TimeLimit::Total(wall), work).expect("a process starts");
    worker.wait().expect_err("the worker fails")
}

fn results_arrive() {
    let shared = vec![0.1 + 0.2, f64::MIN_POSITIVE, -0.0];
    let work = || (shared.clone(), "x".repeat(3 << 20));
    let result = worker::run(&settings(), TimeLimit::Total(LONG), "a test", work);
    let (numbers, text) = result.expect("the worker ends");
    assert_eq!(
        numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
        shared.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    );
    assert_eq!(text.len(), 3 << 20, "more than a pipe holds");
}

fn messages_are_passed_on() {
    let work = || {
        use std::io::Write as _;
        (0..20_000).for_each(|number| writeln!(std::io::stderr(), "line {number}").expect("a pipe"));
        std::io::stderr().write_all(b"the end").expect("a pipe");
    };
    worker::run(&settings(), TimeLimit::Total(LONG), "a test", work).expect("the worker ends");
    let text = String::from_utf8(std::mem::take(&mut *MESSAGES.lock().expect("one thread"))).expect("text");
    assert_eq!(text.lines().count(), 20_001);
    assert!(text.ends_with("line 19999\nthe end"), "{}", &text[text.len() - 40..]);
}

fn an_endless_loop_ends_at_the_limit() {
    let spin = || loop {
        std::hint::spin_loop();
    };
    assert_eq!(failure(SHORT, spin), WorkerFailure::WallLimit(SHORT));
    let worker = worker::start(&settings(), TimeLimit::BetweenSimulations(SHORT), spin).expect("a process starts");
    assert_eq!(worker.wait().expect_err("the worker fails"), WorkerFailure::WallLimit(SHORT));
}

/// Linux only: other systems have no limit of this kind.
fn too_much_memory_is_a_failure() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let grow = || {
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            all.push(vec![1; 16 << 20]);
            std::hint::black_box(&all);
        }
    };
    assert_eq!(failure(LONG, grow), WorkerFailure::Memory);
}

fn a_full_stack_is_a_failure() {
    fn deep(depth: u64) -> u64 {
        let page = std::hint::black_box([depth; 512]);
        if depth == u64::MAX { 0 } else { deep(depth + 1) + page[0] }
    }
    assert_eq!(
        failure(LONG, || {
            std::hint::black_box(deep(0));
        }),
        WorkerFailure::Stack
    );
}

fn a_panic_is_a_defect_of_the_host() {
    let WorkerFailure::Panic(message) = failure(LONG, || panic!("an impossible number")) else {
        panic!("another failure")
    };
    assert!(message.contains("an impossible number"), "{message}");
}

fn other_ends_are_crashes() {
    assert_eq!(failure(LONG, || std::process::exit(3)), WorkerFailure::Crash("exit code 3".to_owned()));
    assert_eq!(failure(LONG, || std::process::abort()), WorkerFailure::Crash("signal 6".to_owned()));
}

fn workers_start_threads_of_their_own() {
    let work = || std::thread::spawn(|| 7).join().expect("it ends");
    assert_eq!(worker::run(&settings(), TimeLimit::Total(LONG), "a test", work), Ok(7));
}

fn errors_name_what_was_done() {
    let spin = || loop {
        std::hint::spin_loop();
    };
    let failure =
        worker::run::<()>(&settings(), TimeLimit::Total(SHORT), "`policy.rhai`", spin).expect_err("it is late");
    let text = "`policy.rhai`: it took more than 0.2 s, and was ended\n\
                hint: look for endless loops and for values that grow without bound";
    assert_eq!(failure.text(), text);
}

fn main() {
    let all: [(&str, fn()); 9] = [
        ("results_arrive", results_arrive),
        ("messages_are_passed_on", messages_are_passed_on),
        ("an_endless_loop_ends_at_the_limit", an_endless_loop_ends_at_the_limit),
        ("too_much_memory_is_a_failure", too_much_memory_is_a_failure),
        ("a_full_stack_is_a_failure", a_full_stack_is_a_failure),
        ("a_panic_is_a_defect_of_the_host", a_panic_is_a_defect_of_the_host),
        ("other_ends_are_crashes", other_ends_are_crashes),
        ("workers_start_threads_of_their_own", workers_start_threads_of_their_own),
        ("errors_name_what_was_done", errors_name_what_was_done),
    ];
    for (name, test) in all {
        test();
        let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("test {name} ... ok\n").as_bytes());
    }
}
