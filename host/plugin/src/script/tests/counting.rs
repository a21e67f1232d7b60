//! What the engine does without counting it as operations: looking at all entries of arrays and object maps, and what closures
//! do that functions of the host call.

use rhai::Dynamic;

use super::*;
use crate::limits::UNCHARGED_BYTES;

/// Of as many operations, a call may handle 1.6 million column elements.
const OPERATIONS: u64 = 100_000;

/// What the plugin of `source` decides, with fewer operations than usual.
fn outcome(source: &str) -> Result<usize, Fault> {
    let limits = Limits { operations_per_call: OPERATIONS, ..Limits::default() };
    let plugin = load(Path::new("test.rhai"), source, &limits)?;
    let setup = GuestSetup { limits, ..setup(Kind::Routing, plugin.as_ref()) };
    let mut guest = plugin.start(&setup)?;
    route_on(guest.as_mut(), &ScriptService::idle(2)).map(|(index, _)| index)
}

fn outcome_of_body(body: &str) -> Result<usize, Fault> {
    outcome(&format!("fn route(r, s) {{ {body} 0 }}"))
}

/// 600 object maps inside each other.
const NESTED: &str = "let m = #{}; for i in 0..600 { m = #{ x: m }; }";

/// Such loops ended at the limit of wall-clock time only.
#[test]
fn looking_at_many_values_is_charged() {
    let loops =
        ["m.len()", "m.x.len()", "m.keys()", "m.y = 1", "let k = #{ x: 1 }; k.mixin(m)", "switch m { 1 => 2, _ => 3 }"];
    outcome_of_body(NESTED).expect("what is inside of each other may be made");
    for one in loops {
        let fault = outcome_of_body(&format!("{NESTED} loop {{ {one}; }}")).expect_err(one);
        assert_eq!(fault.kind, FaultKind::OutOfFuel, "{one}: {fault}");
        assert!(!fault.to_string().contains("steps in one call"), "{one}: {fault}");
    }
    let fault = outcome_of_body(&format!("{NESTED} loop {{ m.len(); }}")).expect_err("it ends");
    insta::assert_snapshot!(fault.message(), @r"
    test.rhai:1:66: in `route`: its arrays and object maps are too large for so many steps (does a loop not end?): whenever a method is called on one or an entry changes, the interpreter looks at all entries inside; use columns and tables, at which it does not
      1 | fn route(r, s) { let m = #{}; for i in 0..600 { m = #{ x: m }; } loop { m.len(); } 0 }
        |                                                                  ^^^^
    ");
}

/// As above, of a state that earlier calls have made.
#[test]
fn looking_at_a_large_state_is_charged() {
    let source = "fn init() { #{ all: #{} } }
        fn route(r, s) {
            if this.all.len() < 2000 { for i in 0..100 { this.all[`k${this.all.len()}`] = #{ a: 1 }; } return 0; }
            loop { this.all.len(); }
        }";
    let mut guest = guest(Kind::Routing, source);
    let service = ScriptService::idle(2);
    let fault = (0..21).find_map(|_| route_on(guest.as_mut(), &service).err()).expect("it loops");
    assert_eq!(fault.kind, FaultKind::OutOfFuel, "{fault}");
    assert!(fault.to_string().contains("too large for so many steps"), "{fault}");
}

/// A fifth of the operations, over the largest array and a large object map; and columns and tables, of which the engine does not look
/// at the inside.
#[test]
fn loops_over_large_flat_values_are_free_enough() {
    for body in [
        "let a = []; a.pad(4096, 1.5); for i in 0..2000 { a[i] += a.len(); }",
        "let m = #{}; for i in 0..1000 { m[`k${i}`] = i; } for i in 0..1000 { m[`k${i}`] += m.len(); }",
        "let c = zeros(65536); for i in 0..10000 { c[i] += 1.5; }",
        "let t = table(); for i in 0..8000 { t[i] = 1.5; } for i in 0..4000 { t.remove(i); }",
    ] {
        outcome_of_body(body).unwrap_or_else(|fault| panic!("{body}: {fault}"));
    }
}

/// The engine forgets the operations of a closure when a function of the host has called it.
#[test]
fn operations_of_closures_are_counted() {
    for body in [
        "let a = []; a.pad(50, 0); a.map(|x| { for i in 0..2000 { x += i; } x });",
        "let a = []; a.pad(50, 0); a.for_each(|| { let x = 0; for i in 0..9000 { x += i; } });",
        "zeros(50).map(|x| { for i in 0..2000 { x += i; } x });",
    ] {
        let fault = outcome_of_body(body).expect_err(body);
        assert!(fault.to_string().contains("more than 100000 steps in one call"), "{fault}");
    }
}

/// Within `${…}` the engine drops the error of a limit and goes on with a text of its own: of eight such operations, one looked at
/// the limits, so that a loop could pass them all.
#[test]
fn a_limit_exceeded_in_a_text_ends_the_call() {
    for phase in 0..8 {
        let before = "let z = r.id;".repeat(phase);
        for body in ["`${m}`;", "`${m}`; let z = 1;", "`${m}`; let z = 1; z = 2;", "`${m}${m}`;", "let t = `${m}`; t;"]
        {
            let fault = outcome_of_body(&format!("{NESTED} {before} loop {{ {body} }}")).expect_err(body);
            assert_eq!(fault.kind, FaultKind::OutOfFuel, "{body}: {fault}");
            assert!(!fault.to_string().contains("steps in one call"), "{body}: {fault}");
        }
    }
}

/// A copy was charged for another state than its original, until its state was checked.
#[test]
fn a_copy_is_charged_as_its_original() {
    let source = "fn init() { #{ all: [] } }
        fn route(r, s) { if this.all.len() < 3000 { for i in 0..300 { this.all.push(#{ a: i }); } } 0 }";
    let mut original = guest(Kind::Routing, source);
    let service = ScriptService::idle(2);
    for _ in 0..11 {
        route_on(original.as_mut(), &service).unwrap();
        let mut copy: Box<dyn Guest> = original.fork().unwrap();
        assert_eq!(format!("{original:?}"), format!("{copy:?}"));
        route_on(copy.as_mut(), &service).unwrap();
    }
}

#[test]
fn the_size_of_a_state_is_about_its_memory() {
    let nested = (0..40).fold(Dynamic::UNIT, |inside, _| Dynamic::from_map([("x".into(), inside)].into()));
    let flat = Dynamic::from_array(vec![Dynamic::from_int(1); 4096]);
    let wide = (0..1000).map(|i| (format!("{i}").into(), Dynamic::from_int(i))).collect();
    let column = Dynamic::from(column::Column::new([0.0; 1000]));
    let small = Dynamic::from_map([("load".into(), column)].into());
    for (value, values, least, most) in [
        (nested, 41, 40 * 450, 40 * 512),
        (flat, 4097, 4096 * 16, 4096 * 20),
        (Dynamic::from_map(wide), 1001, 1000 * 40, 1000 * 100),
        (small, 2, 1, UNCHARGED_BYTES / 16),
    ] {
        let size = state::check(&value).unwrap();
        assert_eq!(size.values, values);
        assert!((least..=most).contains(&size.bytes), "{size:?}");
    }
}
