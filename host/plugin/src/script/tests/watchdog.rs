//! Every function and operator of the engine, called with values at the limits of their types: each call ends with a
//! value or an error, and each loop of such calls at a deterministic limit.
//!
//! What a single call may do between two checks of the limits is bounded by what it may allocate.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rhai::{AST, Array, Dynamic, EvalAltResult, Map, Scope};

use super::*;
use crate::limits::NUMBERS_PER_OPERATION;
use crate::meter::MemoryMark;
use crate::script::call::{self, HostError, ScriptCallInput, ScriptConstants};
use crate::script::engine::{Kit, LANGUAGE_FUNCTIONS, kit};
use crate::script::scan::Scan;
use crate::script::values::NameTexts;
use crate::script::views::{ClusterFields, ClusterObject, RequestFields, RequestObject, UsedFields};

/// A call that takes longer than this, hangs: the machine's speed does not matter.
const HANGS: Duration = Duration::from_secs(30);
/// What one call may allocate: see `limits::MEMORY_OPERATIONS`.
const MOST_BYTES: u64 = 1 << 30;
/// Combinations of two and more operands that are drawn from all of them, for each operand after the first.
const DRAWN: usize = 40;
/// The same in the heavy test.
const MANY_DRAWN: usize = 200;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Values at the limits of their types, in Rhai.
const VALUES: &str = r#"
fn values() {
    let inf = 1.0 / 0.0;
    [
        [0], [1], [-1], [7], [65536], [9223372036854775807], [-9223372036854775807 - 1],
        [0.0], [-0.0], [0.5], [1e300], [inf], [-inf], [inf - inf],
        [()], [true], ['x'], [""], ["x"], ["xx"], [[]], [[3, 1.5, 2]], [[()]], [#{}], [#{ a: 1 }],
        [0..10], [5..=2], [|x| x], [|x, y| x < y], [|| [0]],
    ]
}
fn large(i) {
    switch i {
        0 => { let t = "x"; t.pad(8000, 'x'); t }
        1 => { let t = "ö"; t.pad(4000, "ß"); t }
        2 => { let a = []; a.pad(4095, 1); a }
        3 => { let a = []; a.pad(4000, ""); a }
        4 => { let a = []; for i in 0..12 { a = [a]; } a }
        5 => { let m = #{}; for i in 0..300 { m[`k${i}`] = i; } m }
        6 => column(0, 0),
        7 => column(65536, 1),
        8 => indices(3),
        9 => { let t = ""; t.pad(8000, ' '); t }
        10 => { let t = ""; t.pad(8000, '0'); t }
        11 => { let a = []; a.pad(200, column(65536, 1.5)); a }
        12 => { let t = table(); for i in 0..500 { t[i] = 1.5; } [t, t, #{ t: t }] }
        _ => ()
    }
}
"#;

/// The number of values of `large`.
const LARGE: i64 = 13;

/// Depth of what is nested: about as deep as one call of a script can make it with the memory that it may allocate.
const DEEP: usize = 2000;

/// Arrays, and object maps, inside each other. In a script each would be a copy of all those inside.
fn nested() -> [Dynamic; 2] {
    [
        (0..DEEP).fold(Dynamic::from_array(Vec::new()), |inside, _| Dynamic::from_array(vec![inside])),
        (0..DEEP).fold(Dynamic::from_map(Map::new()), |inside, _| Dynamic::from_map([("x".into(), inside)].into())),
    ]
}

/// The expressions to evaluate, with the names `a`, `b` … for their operands.
fn expressions(kit: &Kit) -> Vec<(usize, String)> {
    let mut all = BTreeSet::new();
    let mut call = |name: &str, n: usize| {
        let operands = &NAMES[..n];
        if name.starts_with(|c: char| c.is_alphabetic()) {
            all.insert((n, format!("{name}({})", operands.join(", "))));
            if n > 0 {
                all.insert((n, format!("a.{name}({})", operands[1..].join(", "))));
            }
        } else if n == 2 {
            all.insert((n, format!("a {name} b")));
        } else {
            all.insert((n, format!("{name}a")));
        }
    };
    for (name, numbers) in &kit.names.functions {
        numbers.iter().for_each(|&n| call(name, n));
    }
    for name in LANGUAGE_FUNCTIONS {
        // Of Rhai's own functions the numbers of arguments are not known.
        (0..=NAMES.len()).for_each(|n| call(name, n));
    }
    for operator in ["^", "<<", ">>", "&&", "||", "??", "in", "!in"] {
        call(operator, 2);
    }
    let others = [
        (1, "`${a}${a}`"),
        (1, "`${[a, #{ a: a }]}`"),
        (1, "\"x\" + a"),
        (1, "a + \"x\""),
        (1, "{ let t = \"x\"; t += a; t }"),
        (1, "log(a)"),
        (1, "{ try { throw a } catch (e) { `${e}` } }"),
        (1, "{ for x in a { x; } 0 }"),
        (1, "{ for x in a { break; } 0 }"),
        (1, "{ let x = a; x.y = 1; x }"),
        (1, "a.len"),
        (2, "a[b]"),
        (2, "{ a += b; a }"),
        (2, "{ a -= b; a }"),
        (2, "{ a *= b; a }"),
        (2, "{ a %= b; a }"),
        (2, "{ a **= b; a }"),
        (2, "{ a <<= b; a }"),
        (2, "a..b"),
        (2, "a..=b"),
        (2, "{ for x in a..b { break; } 0 }"),
        (2, "[a, b]"),
        (2, "#{ a: a, b: b }"),
        (2, "switch a { 0 => 1, 0..10 => 2, \"x\" => b, _ => 0 }"),
        (3, "{ a[b] = c; a }"),
        (3, "{ a[b] += c; a }"),
        (3, "a[b][c]"),
        (3, "a[b..c]"),
        (3, "{ a[b..c] = a; a }"),
    ];
    all.extend(others.map(|(n, text)| (n, text.to_owned())));
    all.into_iter().collect()
}

fn limits(operations_per_call: u64) -> Limits {
    Limits { operations_per_call, ..Limits::default() }
}

/// The views that a script gets, by whose fields names would be known.
fn views() -> [Dynamic; 2] {
    let scan = Scan::of("fn admit(r, s) { r.blocks; r.session; s.queue_depth; s.kv_utilization }");
    let used = UsedFields::by(&scan);
    let service = ScriptService::idle(3);
    let request = request(9);
    let names: NameTexts = ["", "batch", "acme", "chat-3"].map(Box::from).to_vec().into();
    let fields = RequestFields::new(&seen(&request), Micros(1000), Some(5), &used, &names);
    let mut cluster = ClusterFields::default();
    cluster.update(Some(&seen(&request)), &service.view(), &used);
    [Dynamic::from(RequestObject(Arc::new(fields))), Dynamic::from(ClusterObject(Arc::new(cluster)))]
}

/// An expression with its code, and the values of its operands.
struct WatchedCall {
    kit: Arc<Kit>,
    ast: AST,
    values: Vec<Dynamic>,
}

/// How a call ended.
struct CallOutcome {
    result: Result<Dynamic, Box<EvalAltResult>>,
    allocated: u64,
    numbers: u64,
}

impl WatchedCall {
    fn new(kit: Arc<Kit>, n: usize, expression: &str) -> Option<Self> {
        let operands = NAMES[..n].join(", ");
        let same = ["let b = a;", "let c = a;", "let d = a;"][..n.saturating_sub(1)].concat();
        let source = format!(
            "{VALUES}
            fn once({operands}) {{ {expression} }}
            fn often({operands}) {{ loop {{ {expression}; }} }}
            fn aliased(a) {{ {same} loop {{ {expression}; }} }}"
        );
        // What does not compile, is refused.
        let ast = kit.engine.compile(source).ok()?;
        let mut subject = Self { kit, ast, values: Vec::new() };
        let usual = kit_for_values();
        let value = |name: &str, of: Vec<Dynamic>| {
            begin(&usual.limits);
            usual.engine.call_fn::<Dynamic>(&mut Scope::new(), &subject.ast, name, of).unwrap_or_else(|e| panic!("{e}"))
        };
        let small: Array = value("values", Vec::new()).cast();
        let mut values: Vec<Dynamic> = small.into_iter().flat_map(Dynamic::cast::<Array>).collect();
        values.extend((0..LARGE).map(|i| value("large", vec![Dynamic::from_int(i)])));
        values.extend(nested());
        values.extend(views());
        subject.values = values;
        Some(subject)
    }

    fn call(&self, function: &str, of: Vec<Dynamic>) -> CallOutcome {
        begin(&self.kit.limits);
        let mark = MemoryMark::now();
        let result = self.kit.engine.call_fn::<Dynamic>(&mut Scope::new(), &self.ast, function, of);
        CallOutcome { result, allocated: mark.used().allocated, numbers: call::used().1 }
    }

    /// The combinations of the values for `n` operands; at most `drawn` of them for each operand after the first.
    fn combinations(&self, n: usize, drawn: usize) -> Vec<Vec<usize>> {
        let values = self.values.len();
        let all = values.pow(n as u32);
        let drawn = drawn.saturating_mul(n.saturating_sub(1));
        let chosen: Vec<usize> = if n <= 1 || drawn >= all {
            (0..all).collect()
        } else {
            let mut state = 1_u64;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % all
            };
            (0..drawn).map(|_| next()).collect()
        };
        chosen.into_iter().map(|one| (0..n).map(|i| one / values.pow(i as u32) % values).collect()).collect()
    }
}

fn kit_for_values() -> Arc<Kit> {
    kit(&Limits::default())
}

fn begin(limits: &Limits) {
    let about = ScriptCallInput {
        request: RequestId(9),
        stream: Stream::new(42, "plugin"),
        ties: None,
        changed: Some(vec![0, 1]),
        bytes: 0,
    };
    call::begin(limits, &ScriptConstants::default(), &Abort::default(), about);
}

/// What the loop of calls ended with; `None` for an error that the script may catch.
fn fault(error: &EvalAltResult) -> Option<FaultKind> {
    match error {
        EvalAltResult::ErrorInFunctionCall(_, _, inner, _) => fault(inner),
        EvalAltResult::ErrorRuntime(value, _) | EvalAltResult::ErrorTerminated(value, _) => {
            value.read_lock::<HostError>().map(|error| error.kind)
        }
        EvalAltResult::ErrorTooManyOperations(_) => Some(FaultKind::OutOfFuel),
        _ => None,
    }
}

/// Calls the expression once and in loops, and reports every call that begins. Returns whether a loop ended at a limit.
fn exercise(kit: &Arc<Kit>, (n, expression): (usize, &str), drawn: usize, begun: &Sender<String>) -> bool {
    let Some(subject) = WatchedCall::new(Arc::clone(kit), n, expression) else { return false };
    let mut has_loops = false;
    for combination in subject.combinations(n, drawn) {
        let of: Vec<Dynamic> = combination.iter().map(|&i| subject.values[i].clone()).collect();
        let what = || format!("`{expression}` of the values {combination:?}");
        begun.send(what()).ok();
        let once = subject.call("once", of.clone());
        assert!(once.allocated < MOST_BYTES, "{} allocated {} bytes", what(), once.allocated);
        if once.result.is_err() {
            assert_ne!(
                once.result.as_ref().err().and_then(|error| fault(error)),
                Some(FaultKind::OutOfTime),
                "{}",
                what()
            );
            continue;
        }
        let is_alias = combination.iter().all(|i| *i == combination[0]) && n > 1;
        for function in ["often", "aliased"].into_iter().take(1 + usize::from(is_alias)) {
            let often = if function == "often" {
                subject.call(function, of.clone())
            } else {
                subject.call(function, of[..1].to_vec())
            };
            let error = often.result.expect_err("a loop without end");
            let kind = fault(&error);
            assert_ne!(kind, Some(FaultKind::OutOfTime), "{}: {error}", what());
            let most = kit.limits.operations_per_call * NUMBERS_PER_OPERATION;
            assert!(often.numbers <= most + (1 << 20), "{} handled {} numbers", what(), often.numbers);
        }
        has_loops = true;
    }
    has_loops
}

/// Waits for the thread, and panics if no call begins or ends in a long time.
fn watch<T>(worker: thread::JoinHandle<T>, begun: &Receiver<String>) -> T {
    let mut latest = String::new();
    loop {
        match begun.recv_timeout(HANGS) {
            Ok(next) => latest = next,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("{latest} does not end"),
        }
    }
    worker.join().unwrap_or_else(|_| panic!("{latest} panicked"))
}

/// Exercises the expressions with `n` operands. Returns the number of those with a loop that ended at a limit.
fn exercise_all(operations: u64, drawn: usize, n: impl Fn(usize) -> bool) -> usize {
    let kit = kit(&limits(operations));
    let all = expressions(&kit).into_iter().filter(|(operands, _)| n(*operands));
    let ends_at_a_limit = |(n, expression): &(usize, String)| {
        let (sender, receiver) = channel();
        let (kit, expression, n) = (Arc::clone(&kit), expression.clone(), *n);
        watch(thread::spawn(move || exercise(&kit, (n, &expression), drawn, &sender)), &receiver)
    };
    all.filter(ends_at_a_limit).count()
}

#[test]
fn calls_of_up_to_one_operand_end() {
    assert!(exercise_all(400, DRAWN, |n| n <= 1) > 100);
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn calls_of_two_operands_end() {
    assert!(exercise_all(200, DRAWN, |n| n == 2) > 100);
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn calls_of_three_operands_and_more_end() {
    assert!(exercise_all(200, DRAWN, |n| n > 2) > 20);
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn calls_of_all_pairs_of_operands_end() {
    assert!(exercise_all(500, usize::MAX, |n| n == 2) > 100);
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn calls_of_many_combinations_of_operands_end() {
    assert!(exercise_all(1000, MANY_DRAWN, |n| n <= 1) > 100);
    assert!(exercise_all(200, MANY_DRAWN, |n| n > 2) > 20);
}
