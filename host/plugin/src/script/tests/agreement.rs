//! Our evaluator and Rhai's: equal results, errors with their positions, states and numbers of operations.
//!
//! In tests every call that our evaluator makes is made by Rhai's as well, on copies ([`check`]), so that all tests of scripts
//! compare both. The programs here use what a script may consist of.

use rhai::Dynamic;

use super::*;
use crate::script::call;
use crate::script::column::Column;
use crate::script::registry::ScriptError;
use crate::script::table::Table;

/// What a call led to.
#[derive(Debug, PartialEq)]
pub(in crate::script) struct CallEffect {
    output: Result<String, String>,
    state: String,
    operations: u64,
}

impl CallEffect {
    pub fn of(output: &Result<Dynamic, ScriptError>, state: &Dynamic) -> Self {
        let output = output.as_ref().map(shown).map_err(|error| format!("{error:?}"));
        Self { output, state: shown(state), operations: call::used().0 }
    }
}

/// Panics if our evaluator and Rhai's disagree.
pub(in crate::script) fn check(rhai: &CallEffect, ours: &CallEffect) {
    assert_eq!(rhai, ours, "Rhai's evaluator, and ours");
}

fn shown(value: &Dynamic) -> String {
    if let Ok(items) = value.as_array_ref() {
        return format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    if let Ok(map) = value.as_map_ref() {
        let entries = map.iter().map(|(name, value)| format!("{name}: {}", shown(value)));
        return format!("#{{{}}}", entries.collect::<Vec<_>>().join(", "));
    }
    if let Some(column) = value.read_lock::<Column>() {
        return format!("{:?}", column.values());
    }
    if let Some(table) = value.read_lock::<Table>() {
        return format!("{:?}", table.entries().collect::<Vec<_>>());
    }
    format!("{value:?}")
}

/// Functions that the programs call.
const HELPERS: &str = "
fn init() { #{ n: 0, x: 1.5, c: column([1.0, 2.0, 3.0]), a: [1, 2, [3, 4]], m: #{ k: 1, c: zeros(2), deep: #{ z: 0 } },
    t: table(), text: \"abc\", f: |v| v + 1 } }
fn twice(v) { v * 2 }
fn first(v) { for x in v { return x; } }
fn nothing() { }
fn fails(v) { v.missing.field }
fn count(n) { if n <= 0 { 0 } else { 1 + count(n - 1) } }
fn bump(by) { this.n += by; this.n }
fn set_all() { this.x = 9.0; this.m.k = [1]; }
fn grow() { this.push(7); this.len() }
";

/// Bodies of `admit(r, s)`, with the state of `init` in `this`.
const BODIES: &[&str] = &[
    "this.n += 1; this.x *= 2; this.x -= 1; this.x /= 4.0; this.n % 2 == 1",
    "this.c[0] += 5; this.c[1] = 7; this.c[2] -= 0.5; this.c[0] > this.c[1]",
    "this.c[3] = 1",
    "this.c[-1] += 1",
    "this.c[0.0] += 1; this.c[1.5]",
    "this.c[\"x\"]",
    "this.c[0] = \"x\"",
    "this.c[1] = true; this.c[1] == 1.0",
    "let d = this.c; d[0] = 9; this.c[0] = 4; d[0] + this.c[0]",
    "let d = this.c; this.c[0] += 1; d += 1; d[0] == this.c[0]",
    "this.c += 1; this.c = this.c * 2; this.c.sum()",
    "this.a[0] = 5; this.a[2][1] += 3; this.a[-1][0] = this.a[1]; this.a[2]",
    "this.a[9]",
    "this.a[-4] = 1",
    "this.a[\"x\"] += 1",
    "this.a.push(4); this.a.len() + this.a.pop()",
    "this.m.k += 1; this.m[\"k\"] += 1; this.m.new = 3; this.m[\"other\"] = 4; this.m.k",
    "this.m.deep.z = 5; this.m.deep.y ?? 7",
    "this.m.none.z",
    "this.m.none.z = 1",
    "this.m.none[0]",
    "this.m[1]",
    "this.m.c[1] += 2; this.m.c[0] = this.m.c[1]; this.m.c.sum()",
    "this.t[5] = 1.5; this.t[5] += 1; this.t[r.id] = r.input_tokens; this.t[7] ?? 2; 5 in this.t",
    "this.t[8] += 1",
    "this.t.add(3, 2); add(this.t, 3, 4); this.t.remove(3)",
    "let t = this.t; t[1] = 1; add(t, 1, 2); t.len() + this.t.len()",
    "this.text += \"d\"; this.text.len() == 4 && this.text == \"abcd\"",
    "this.text[0] = 'x'; this.text[1..3] = \"yz\"; this.text[-1]",
    "this.text[9]",
    "this.text[0] = 5",
    "let n = 5; n[0] = false; n[3] = true; n[0..2]",
    "5[70]",
    "this.f(1)",
    "this.m.k(1)",
    "let m = #{ g: |v| v * 3 }; m.g(4)",
    "[3, 1, 2].map(|v| v * 2).filter(|v| v > 2).len()",
    "this.c.map(|v| v + 1).max()",
    "let a = [3, 1, 2]; a.sort(|x, y| x - y); a",
    "twice(4) + twice(1.5) - twice(this.n)",
    "let a = [1]; first(a)",
    "first(5)",
    "nothing() == ()",
    "fails(this.m)",
    "fails(5)",
    "twice(twice(fails(r)))",
    "count(20)",
    "count(31)",
    "count(32)",
    "count(100)",
    "this.bump(2) + this.bump(3)",
    "this.set_all(); this.m.k",
    "this.a.grow() + this.a[2].grow()",
    "let a = [1]; a.grow(); a.grow(); a",
    "this.m.none.grow()",
    "[1, 2].grow()",
    "bump(2)",
    "twice(this)",
    "this == 1",
    "len(this) + this.len()",
    "let x = 1; let y = x + { x = 5; x }; y",
    "let x = 1; max(x, { x = 7; 2 })",
    "let x = 1; let x = x + 1; { let x = 10; x += 1; } x",
    "let x = if r.id > 3 { 1 } else if r.id > 1 { 2 } else { 3 }; x",
    "if r.id { 1 } else { 2 }",
    "let i = 0; while i < 10 { i += 1; if i == 3 { continue; } if i == 6 { break; } } i",
    "let i = 0; let v = while true { i += 1; if i > 4 { break i * 2; } }; v",
    "let i = 0; loop { i += 1; if i > 4 { break; } }",
    "let i = 0; do { i += 1; } while i < 5; do { i -= 1; if i == 2 { break; } } until i == 0; i",
    "let n = 0; for i in 0..5 { n += i; } for i in 1..=3 { n *= i; } n",
    "let n = 0; for (x, i) in [5, 6, 7] { n += x * i; } n",
    "let n = 0.0; for x in this.c { n += x; } n",
    "let n = 0; for x in s { n += x.index; } for i in 0..s.len { n += s.in_flight[i]; } n",
    "let n = 0; for ch in \"aba\" { if ch == 'a' { n += 1; } } n",
    "let from = 1; let to = 4; let n = 0; for i in from..to { n += i; } n",
    "for i in 5 { }",
    "for i in 0.5..2 { }",
    "for i in 0..10 { } 1",
    "let over = 0..3; let n = 0; for i in over { n += i; } n",
    "let a = []; for i in 0..3 { a.push(|v| v); } a.len()",
    "let best = for i in 0..5 { if i == 3 { break i; } }; best",
    "switch r.id { 9 => 1, 2 => 2, _ => 3 }",
    "switch r.tenant { \"acme\" if r.id == 9 => \"yes\", \"acme\" => \"no\", _ => \"none\" }",
    "switch r.id { 0..5 => 1, 5..=9 => 2, _ => 3 }",
    "switch this.x { 1.5 => 1, _ => 2 }",
    "switch this.c { 1 => 1, _ => 2 }",
    "switch [1, 2] { [1, 2] => 1, _ => 2 }",
    "switch 'x' { 'x' | 'y' => 1 }",
    "return 1; 2",
    "{ return r.id; }",
    "throw \"stop\"",
    "throw",
    "throw #{ a: 1 }",
    "r.id > 1 && r.now >= 0 || fails(1)",
    "r.id && true",
    "true || 5",
    "false || 5",
    "this.none ?? this.m.none ?? 3",
    "[this.n, this.x, r.id, [1, r.now]]",
    "#{ a: this.n, b: [r.id], c: this.c, d: #{ e: 1 } }",
    "`${r.id} and ${this.x} and ${this.c} and ${this.a} and ${()} and text`",
    "-this.x + -r.id + !true",
    "-this.m",
    "!5",
    "9223372036854775807 + r.id",
    "r.id / 0",
    "r.id % 0",
    "r.id - \"x\"",
    "r.id < \"x\"",
    "r.id == \"x\"",
    "() == r.deadline",
    "r.client_priority == () && r.deadline != ()",
    "(r.id, 1).x",
    "r.missing",
    "let q = r; q.missing",
    "let q = r; q.id = 5",
    "let q = s; q.in_flight[0] += 5; q.in_flight[0]",
    "let q = s; q.in_flight = 5",
    "s[0].in_flight + s[1].index",
    "s[5]",
    "s.in_flight[7]",
    "s.in_flight.len + s.indices.len() + s.len()",
    "s.queue_depth + s.in_flight * 2 - 1 > 0",
    "(s.queue_depth + 1).sum() == s.len",
    "type_of(r.id) + type_of(this.x) + type_of(this.c)",
    "random() + pick(3) + random()",
    "log(\"line\"); log(1)",
    "max(this.x, 1) + min(2, r.id) + abs(-3.5) + sqrt(2) + floor(2.5)",
    "undefined_method(1)",
    "this.undefined_method(1)",
    "let x = 5; x.undefined()",
    "let x = 1; x += 1.5; x",
    "let x = 1; x += \"a\"; x",
    "let x = \"a\"; x += 1; x",
    "let x = 1.5; x += 1; x **= 2; x",
    "let x = 7; x <<= 2; x |= 1; x ^= 3; x & 14",
    "let x = true; x &= false; x",
    "let x; x = 5; x",
    "this = 5",
    "this = #{}; this.len()",
    "this += 1",
    "let x = [1, 2, 3, 4]; x[1..3]",
    "let a = [[1, 2], [3]]; a[0][1] = a[1][0]; a[0].push(9); a",
    "let a = [1]; a[0] = [a, a]; a",
    "let m = #{}; for i in 0..30 { m[`k${i}`] = i; } m.len()",
    "let a = []; a.pad(4000, 0); this.a = a; this.m.k = a; this.m.k.len()",
    "let a = []; loop { a = [a, a]; }",
    "let t = \"x\"; loop { t = `${t}${t}`; }",
    "loop { }",
    "let x = 0; loop { x += 1; }",
    "for i in 0..10000000 { }",
    "while true { nothing(); }",
    "this.c = column(65536, 1.0); loop { this.c = this.c + 1; }",
    "try { fails(1) } catch (e) { 5 }",
    "const X = 5; X + 1",
    "this.x = this.c; this.x[0] += 1; this.c[0]",
    "let e = this.m; e.k = 5; e.deep.z = 1; this.m.k",
];

#[test]
fn programs_end_as_in_rhai() {
    let service = ScriptService::idle(2).with(|signals| signals.in_flight = vec![3, 4]);
    let mut translated = 0;
    for body in BODIES {
        let source = format!("{HELPERS}\nfn admit(r, s) {{\n    {body}\n}}");
        let Ok(plugin) = script(&source) else { continue };
        let mut guest = start::<dyn AdmissionGuest>(plugin.as_ref());
        for id in [9, 2] {
            // The calls are compared where they are made.
            let _ = guest.admit(&seen(&request(id)), &service.view());
        }
        translated += 1;
    }
    assert!(translated > BODIES.len() * 8 / 10, "{translated} of {} load", BODIES.len());
}

/// The policy that is measured in docs/performance.md: every function of it is translated.
#[test]
fn a_policy_with_state_and_events_is_translated() {
    let source = include_str!("track-latency.rhai");
    let plugin = compile("test.rhai".as_ref(), source, &Limits::default(), engine::kit(&Limits::default())).unwrap();
    for name in ["init", "route", "observe"] {
        assert!(plugin.code.program.entry(name).is_some(), "{name}");
    }
    let mut guest = start::<dyn RoutingGuest>(&plugin);
    let service = ScriptService::idle(2);
    let tags = Tags { prefix_group: Name(1), ..Tags::default() };
    let event = |kind, at, request| Event {
        at: Micros(at),
        kind,
        request: RequestId(request),
        instance: Some(InstanceIndex(0)),
        input_tokens: 100,
        generated_tokens: 5,
        ttft: None,
        e2e: None,
        tags,
        block: 0,
    };
    let mut scores = Vec::new();
    let mut choose = |guest: &mut Box<dyn RoutingGuest>, request: &Request| {
        guest.route(&seen(request), &service.view(), &Ties::LowestIndex, &mut scores).unwrap()
    };
    let mut grouped = request(1);
    assert_eq!(choose(&mut guest, &grouped), 0);
    for (kind, at) in [(EventKind::Routed, 0), (EventKind::FirstToken, 500_000)] {
        guest.observe(&event(kind, at, 1)).unwrap();
    }
    assert_eq!(choose(&mut guest, &grouped), 1, "the other one is loaded and slow");
    guest.observe(&event(EventKind::Completed, 600_000, 1)).unwrap();
    for at in 0..40 {
        guest.observe(&event(EventKind::Routed, 700_000, 10 + at)).unwrap();
        guest.observe(&event(EventKind::FirstToken, 700_000, 10 + at)).unwrap();
        guest.observe(&event(EventKind::Completed, 700_000, 10 + at)).unwrap();
    }
    grouped.tags.prefix_group = Name(1);
    assert_eq!(choose(&mut guest, &grouped), 0, "its prefix is there");
}

/// What cannot be translated is left to Rhai as a whole, and so are functions that call it.
#[test]
fn functions_are_translated_as_a_whole_or_not_at_all() {
    let entry = |source: &str, name: &str| {
        let plugin =
            compile("test.rhai".as_ref(), source, &Limits::default(), engine::kit(&Limits::default())).unwrap();
        plugin.code.program.entry(name).is_some()
    };
    assert!(entry("fn route(r, s) { let f = |x| x; s.queue_depth }", "route"));
    assert!(!entry("fn route(r, s) { let f = |x| x; f.call(1) }", "route"));
    assert!(!entry("fn helper(x) { try { x.y } catch { 1 } }\nfn route(r, s) { helper(r) }", "route"));
    let mixed = "fn init() { try { #{} } catch { } }\nfn route(r, s) { this.x ?? 1 }";
    assert!(!entry(mixed, "init") && entry(mixed, "route"));
    assert!(!entry("const T = table();\nfn route(r, s) { T[1] ?? 1 }", "route"));
    assert!(!entry("fn init() { #{ r: range(0, 9, 2) } }\nfn route(r, s) { 1 }", "route"), "iterators may be kept");
}
