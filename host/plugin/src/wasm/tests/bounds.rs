//! What a file declares is bounded before anything is built from it: files of 64 kB to 1 MB of every kind of declaration.

use std::sync::LazyLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;

/// CPU time in which a file is refused. 0.1 s are promised of the optimised program; this one is not.
const REFUSED_S: f64 = 0.5;

const MODULE: &[u8] = b"\0asm\x01\0\0\0";
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const HOST: &str = "blis:policy/host@1.1.0";

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn name(text: &str) -> Vec<u8> {
    [leb(text.len()), text.as_bytes().to_vec()].concat()
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [vec![id], leb(content.len()), content.to_vec()].concat()
}

/// A section with `count` items, of which `item` makes each.
fn items(id: u8, count: usize, item: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    section(id, &[leb(count), (0..count).flat_map(item).collect()].concat())
}

fn module(sections: &[Vec<u8>]) -> Vec<u8> {
    [MODULE.to_vec(), sections.concat()].concat()
}

fn component(sections: &[Vec<u8>]) -> Vec<u8> {
    [COMPONENT.to_vec(), sections.concat()].concat()
}

/// The types of instances, or components, inside each other.
fn nested_types(leading: u8, depth: usize) -> Vec<u8> {
    section(7, &[leb(1), [leading, 1, 1].repeat(depth), vec![leading, 0]].concat())
}

/// A type that doubles at each of `depth` steps, in the parameters of many functions.
fn doubled(depth: usize) -> Vec<u8> {
    let mut types = vec![vec![0x6f, 2, 0x7f, 0x7f]];
    types.extend((0..depth).map(|step| [vec![0x6f, 2], leb(step), leb(step)].concat()));
    let mut declarations: Vec<Vec<u8>> = types.iter().map(|ty| [vec![1], ty.clone()].concat()).collect();
    for number in 0..400 {
        declarations.push([vec![1, 0x40, 1], name("a"), leb(depth), vec![1, 0]].concat());
        declarations.push([vec![4, 0], name(&format!("f{number}")), vec![1], leb(depth + 1 + number)].concat());
    }
    let instance = [vec![0x42], leb(declarations.len()), declarations.concat()].concat();
    component(&[items(7, 1, |_| instance.clone()), items(10, 1, |_| [vec![0], name(HOST), vec![5, 0]].concat())])
}

/// Files of about `size` bytes, each full of one thing.
fn files(size: usize) -> Vec<(&'static str, Vec<u8>)> {
    let function_type = || items(1, 1, |_| vec![0x60, 0, 0]);
    let one_function = || [items(3, 1, |_| vec![0]), items(10, 1, |_| vec![2, 0, 0x0b])].concat();
    let exports = |item: &dyn Fn(usize) -> Vec<u8>, count: usize| {
        let body = items(10, 1, |_| vec![2, 0, 0x0b]);
        module(&[function_type(), items(3, 1, |_| vec![0]), items(7, count, item), body])
    };
    let embedded = |content: Vec<u8>| module(&[section(0, &[name("component-type:x"), content].concat())]);
    let imports = |item: &dyn Fn(usize) -> Vec<u8>, count: usize| module(&[function_type(), items(2, count, item)]);
    let import = |module: &str, field: &str| [name(module), name(field), vec![0, 0]].concat();
    let long = "x".repeat(90_000);
    let nested = |depth: usize| (0..depth).fold(component(&[]), |inner, _| component(&[section(4, &inner)]));
    vec![
        ("one import, again and again", imports(&|_| import(HOST, "log"), size / 30)),
        ("two imports and again", imports(&|i| import(HOST, if i == 0 { "pick" } else { "log" }), 900)),
        ("imports without names", imports(&|_| import("", ""), size / 4)),
        ("different imports", imports(&|i| import(HOST, &format!("log{i}")), size / 34)),
        ("imports of different versions", imports(&|i| import(&format!("blis:policy/host@1.0.{i}"), "log"), size / 34)),
        ("long names of imports", imports(&|i| import(HOST, &format!("{i}{long}")), 1 + size / 90_000)),
        ("types", module(&[items(1, size / 3, |_| vec![0x60, 0, 0])])),
        (
            "wide types",
            module(&[items(1, 1 + size / 904, |_| [vec![0x60], leb(900), vec![0x7f; 900], vec![0]].concat())]),
        ),
        (
            "a group of types",
            module(&[items(1, 1, |_| [vec![0x4e], leb(size / 3), [0x60, 0, 0].repeat(size / 3)].concat())]),
        ),
        ("empty groups of types", module(&[items(1, size / 2, |_| vec![0x4e, 0])])),
        ("one export, again and again", exports(&|_| [name("a"), vec![0, 0]].concat(), size / 4)),
        ("an export twice", exports(&|_| [name("a"), vec![0, 0]].concat(), 2)),
        (
            "different exports",
            exports(&|i| [name(&format!("blis:policy/routing@1.1.0#f{i}")), vec![0, 0]].concat(), size / 34),
        ),
        ("long names of exports", exports(&|i| [name(&format!("{i}{long}")), vec![0, 0]].concat(), 1 + size / 90_000)),
        ("globals", module(&[items(6, size / 5, |_| vec![0x7f, 0, 0x41, 0, 0x0b])])),
        ("tables", module(&[items(4, size / 3, |_| vec![0x70, 0, 0])])),
        ("memories", module(&[items(5, size / 2, |_| vec![0, 0])])),
        ("tags", module(&[function_type(), items(13, size / 2, |_| vec![0, 0])])),
        (
            "functions",
            module(&[function_type(), items(3, size / 4, |_| vec![0]), items(10, size / 4, |_| vec![2, 0, 0x0b])]),
        ),
        (
            "segments of elements",
            module(&[
                function_type(),
                items(4, 1, |_| vec![0x70, 0, 1]),
                items(9, size / 5, |_| vec![0, 0x41, 0, 0x0b, 0]),
            ]),
        ),
        (
            "segments of data",
            module(&[items(5, 1, |_| vec![0, 1]), items(11, size / 5, |_| vec![0, 0x41, 0, 0x0b, 0])]),
        ),
        ("custom sections", [MODULE.to_vec(), section(0, &[0]).repeat(size / 3)].concat()),
        ("custom sections of a component", [COMPONENT.to_vec(), section(0, &[0]).repeat(size / 3)].concat()),
        ("types of a component", component(&[items(7, size / 4, |_| vec![0x40, 0, 1, 0])])),
        ("sections of types", component(&[items(7, 1, |_| vec![0x40, 0, 1, 0]).repeat(size / 8)])),
        ("instance types inside each other", component(&[nested_types(0x42, size / 3)])),
        ("component types inside each other", component(&[nested_types(0x41, size / 3)])),
        ("a few types inside each other", component(&[nested_types(0x42, 20)])),
        ("types that double", doubled(19)),
        (
            "one import of a component, again and again",
            component(&[
                items(7, 1, |_| vec![0x40, 0, 1, 0]),
                items(10, size / 5, |_| [vec![0], name("a"), vec![1, 0]].concat()),
            ]),
        ),
        (
            "imports of a component",
            component(&[
                items(7, 1, |_| vec![0x42, 0]),
                items(10, size / 30, |i| [vec![0], name(&format!("blis:policy/host@1.0.{i}")), vec![5, 0]].concat()),
            ]),
        ),
        (
            "exports of a component",
            component(&[
                items(7, 1, |_| vec![0x40, 0, 1, 0]),
                items(11, size / 10, |i| [vec![0], name(&format!("a{i}")), vec![3, 0, 0]].concat()),
            ]),
        ),
        ("instances", component(&[items(5, size / 2, |_| vec![1, 0])])),
        ("core instances", component(&[items(2, size / 2, |_| vec![1, 0])])),
        ("aliases", component(&[items(7, 1, |_| vec![0x40, 0, 1, 0]), items(6, size / 4, |_| vec![3, 2, 0, 0])])),
        ("components beside each other", component(&[section(4, COMPONENT).repeat(size / 10)])),
        ("components inside each other", nested((size / 12).min(1500))),
        ("modules in a component", component(&[section(1, MODULE).repeat(size / 10)])),
        ("canonical functions", component(&[items(8, size / 2, |_| vec![2, 0])])),
        ("core types of a component", component(&[items(3, size / 3, |_| vec![0x60, 0, 0])])),
        (
            "a type of a module",
            component(&[items(3, 1, |_| [vec![0x50], leb(size / 4), [1, 0x60, 0, 0].repeat(size / 4)].concat())]),
        ),
        ("embedded types", embedded(component(&[items(7, size / 4, |_| vec![0x40, 0, 1, 0])]))),
        ("embedded types inside each other", embedded(component(&[nested_types(0x42, size / 3)]))),
        ("embedded nonsense", embedded(vec![b'a'; size])),
        ("one function of everything", [MODULE.to_vec(), function_type(), one_function()].concat()),
    ]
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a clock")
}

#[test]
fn declarations_are_refused_before_anything_is_built() {
    for size in [64 << 10, 257 << 10, 1 << 20] {
        for (what, bytes) in files(size) {
            let before = cpu();
            let fault = load_bytes(&bytes).map(|_| ()).expect_err(what);
            let took = (cpu() - before).as_secs_f64();
            assert!(took < REFUSED_S, "{what}, {size} bytes: {took} s, {fault}");
            let text = fault.to_string();
            assert!(text.len() < 2000, "{what}: {} bytes", text.len());
        }
    }
}

#[test]
fn a_refusal_says_what_and_how_many() {
    let of = |what: &str| {
        let (_, bytes) = files(64 << 10).into_iter().find(|(name, _)| *name == what).expect("a file");
        load_bytes(&bytes).map(|_| ()).expect_err("refused").to_string()
    };
    insta::assert_snapshot!(of("types"), @r"
    router.wasm: has 21845 types; at most 2000 are read
    hint: build it for size, without what it does not use; no policy needs so much [out-of-fuel]
    ");
    insta::assert_snapshot!(of("two imports and again"), @r"
    router.wasm: imports `blis:policy/host@1.1.0/log` twice
    hint: build it again: no compiler does that [syntax]
    ");
    insta::assert_snapshot!(of("a few types inside each other"), @r"
    router.wasm: has modules, components or types nested deeper than 8
    hint: build it for size, without what it does not use; no policy needs so much [out-of-fuel]
    ");
    let doubled = of("types that double");
    assert!(doubled.contains("each counted as often as it is used"), "{doubled}");
}

/// Of `blis plugin list`, which is the strictest.
static LISTING: LazyLock<Limits> = LazyLock::new(|| Limits { listing: true, ..Limits::default() });

/// What takes long to compile: a name, what a module needs for it, and a piece of the body of a function.
fn costly_pieces() -> [(&'static str, &'static str, String); 15] {
    [
        ("calls", "(func $f)", "(call $f)".to_owned()),
        (
            "calls of many values",
            "(func $g (result WIDE) (unreachable)) (func $h (param WIDE))",
            "(call $h (call $g))".to_owned(),
        ),
        ("branches to many targets", "", format!("(block (br_table {} (i32.const 0)))", "0 ".repeat(1000))),
        ("floats", "", "(drop (f64.div (f64.sqrt (f64.const 2)) (f64.add (f64.const 1) (f64.const 2))))".to_owned()),
        ("vectors", "", "(drop (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 (v128.const i64x2 1 2) (v128.const i64x2 3 4)))".to_owned()),
        ("float vectors", "", "(drop (f64x2.div (f64x2.sqrt (v128.const i64x2 1 2)) (v128.const i64x2 3 4)))".to_owned()),
        ("copies of memory", "", "(memory.copy (i32.const 0) (i32.const 9) (i32.const 9))".to_owned()),
        ("divisions", "", "(drop (i64.rem_s (i64.const 1) (i64.const 2)))".to_owned()),
        ("blocks", "", "(block (br_if 0 (i32.const 1)))".to_owned()),
        ("loads", "", "(drop (i64.load offset=8 (i32.const 8)))".to_owned()),
        ("indirect calls", "(type $t (func)) (table $many 1 funcref)", "(call_indirect $many (type $t) (i32.const 0))".to_owned()),
        ("loops", "", "(loop (br_if 0 (i32.const 0)))".to_owned()),
        ("loops in conditions", "", "(if (i32.const 1) (then (loop (br_if 0 (i32.const 0)))))".to_owned()),
        ("growing tables", "(table $many 1 funcref)", "(drop (table.grow $many (ref.null func) (i32.const 0)))".to_owned()),
        ("copies of tables", "(table $many 1 funcref)", "(table.copy $many $many (i32.const 0) (i32.const 0) (i32.const 0))".to_owned()),
    ]
}

/// The router of the tests with `count` pieces of code, `in_each` to a function, after `head`.
fn with_code(head: &str, pieces: &[&str], count: usize, in_each: usize) -> Vec<u8> {
    let text = LEAST_LOADED.trim_end().strip_suffix(')').expect("a module");
    let head = head.replace("WIDE", &"i32 ".repeat(90));
    let mut all = pieces.iter().copied().cycle().take(count);
    let mut functions = String::new();
    for _ in 0..count.div_ceil(in_each) {
        functions += "(func ";
        functions.extend(all.by_ref().take(in_each));
        functions.push(')');
    }
    wat::parse_str(format!("{text} {head} {functions})")).unwrap_or_else(|error| panic!("{head}: {error}"))
}

/// The CPU seconds that compiling `bytes` takes, and whether it was refused.
fn compiled(bytes: &[u8]) -> (f64, Result<(), Fault>) {
    let before = cpu();
    let loaded = load(Path::new("router.wasm"), bytes, &LISTING, &settings()).map(|_| ());
    ((cpu() - before).as_secs_f64(), loaded)
}

/// Seconds that the slowest shipped component takes.
fn slowest_shipped() -> f64 {
    let shipped = fs::read_dir("../../policies").expect("they are there").flatten().map(|entry| entry.path());
    let shipped = shipped.filter(|path| path.extension().is_some_and(|extension| extension == "wasm"));
    let times = shipped.map(|path| {
        let (took, loaded) = compiled(&fs::read(&path).expect("readable"));
        loaded.unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
        took
    });
    times.fold(0.0, f64::max)
}

/// The most pieces of which `module` is not refused, and the time to compile it beside `most`, the slowest shipped component.
fn check_largest(what: &str, most: f64, module: impl Fn(usize) -> Vec<u8>) {
    let is_accepted = |count| {
        let (file, bytes) = (PluginPath::new(Path::new("router.wasm")), module(count));
        parts::check(&file, &bytes, &LISTING).and_then(|()| effort::check(&file, &bytes, &LISTING)).is_ok()
    };
    let (mut passes, mut step) = (0, 64);
    while is_accepted(step) {
        step *= 2;
    }
    while step > 0 {
        if is_accepted(passes + step) {
            passes += step;
        }
        step /= 2;
    }
    let (took, loaded) = compiled(&module(passes));
    eprintln!("{what}: {passes} pieces, {took:.2} s beside {most:.2} s, {:?}", loaded.map_err(|fault| fault.kind));
    assert!(took <= 2.0 * most, "{what}: {passes} pieces take {took} s, a shipped component at most {most} s");
}

/// Costly code: what is accepted compiles within twice the time of the slowest shipped component, in the same build. `#[ignore]`: it
/// compiles each of them.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn code_that_passes_is_compiled_in_the_time_of_a_shipped_component() {
    let most = slowest_shipped();
    for (what, head, piece) in costly_pieces() {
        let in_each = 2000_usize.min(200_000 / piece.len());
        check_largest(what, most, |count| with_code(head, &[&piece], count, in_each.min(count)));
    }
}

/// Random mixtures of that code, nested, in functions of any size.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn mixtures_that_pass_are_compiled_in_the_time_of_a_shipped_component() {
    let most = slowest_shipped();
    let all = costly_pieces();
    let seed = std::env::var("BLIS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut state: u64 = seed;
    let mut below = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    for number in 0..8 {
        let chosen: Vec<_> = {
            let count = 2 + below(3);
            (0..count).map(|_| &all[below(all.len())]).collect()
        };
        let mut heads: Vec<&str> = chosen.iter().map(|(_, head, _)| *head).collect();
        heads.sort_unstable();
        heads.dedup();
        // Indirect calls bring the table.
        if heads.iter().any(|head| head.contains("$t ")) {
            heads.retain(|head| *head != "(table $many 1 funcref)");
        }
        // Blocks cost so much that a nested mixture has few pieces: half of them have none.
        let deepest = [1, 1, 3, 12][below(4)];
        let pieces: Vec<String> = chosen
            .iter()
            .flat_map(|(_, _, piece)| {
                let nested = below(deepest);
                let piece = format!("{}{piece}{}", "(block ".repeat(nested), ")".repeat(nested));
                vec![piece; 1 + below(19)]
            })
            .collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let longest = pieces.iter().map(|piece| piece.len()).max().unwrap_or(1);
        let in_each = (1 + below(3000)).min(200_000 / longest).max(1);
        let names: Vec<&str> = chosen.iter().map(|(name, ..)| *name).collect();
        check_largest(&format!("seed {seed}, {number}: {names:?}, {in_each} to a function"), most, |count| {
            with_code(&heads.concat(), &pieces, count, in_each)
        });
    }
}
