//! The two ways to call functions give the same results; only their speed differs.

use std::sync::LazyLock;

use blis_sim::policy::Reads;

use super::*;
use crate::inputs::{self, NAMES};

/// The components in `policies/`, by name.
fn committed() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let files = fs::read_dir(folder).expect("is there").map(|entry| entry.expect("readable").path());
    let mut found: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
        .map(|path| {
            (path.file_name().expect("named").to_string_lossy().into_owned(), fs::read(&path).expect("readable"))
        })
        .collect();
    found.sort();
    assert!(found.len() >= 5, "they are committed");
    found
}

/// A component by its name, called directly and through the component layer.
type NamedWays = (String, [Arc<dyn Plugin>; 2]);

/// The committed components, called directly and through the component layer. They are compiled once for all tests.
static BOTH_WAYS: LazyLock<Vec<NamedWays>> = LazyLock::new(|| {
    let both = |(name, bytes): (String, Vec<u8>)| {
        assert!(is_standard(&bytes), "{name} takes the fast way");
        let plugins = [Way::Fastest, Way::Typed].map(|way| load_by(way, &name, &bytes).expect("loads"));
        (name, plugins)
    };
    committed().into_iter().map(both).collect()
});

fn fixture() -> Vec<u8> {
    component(LEAST_LOADED)
}

fn component(text: &str) -> Vec<u8> {
    componentize(Path::new("router.wasm"), &wat::parse_str(text).expect("assembles")).expect("a component")
}

fn is_standard(component: &[u8]) -> bool {
    let file = PluginPath::new(Path::new("router.wasm"));
    standard::main_module(component, &inspect::component(&file, component).expect("fits")).is_some()
}

#[test]
fn both_ways_return_the_same() {
    for (name, [fast, typed]) in &*BOTH_WAYS {
        assert_eq!(fast.description(), typed.description(), "{name}");
        for kind in fast.description().kinds.clone() {
            let setup = GuestSetup {
                kind,
                parameters: fast.description().parameters.iter().map(|parameter| parameter.default).collect(),
                others: Vec::new(),
                instances: inputs::instances(9).into(),
                names: NAMES.map(Box::from).into(),
                model_facts: [("num_layers".to_owned(), 32.0), ("total_params".to_owned(), 8e9)].into(),
                explain: true,
                ..setup(kind)
            };
            let mut guests = [fast, typed].map(|plugin| plugin.start(&setup).map_err(|fault| fault.to_string()));
            if let [Err(fast), Err(typed)] = &guests {
                assert_eq!(fast, typed, "{name} refuses");
                continue;
            }
            let plausible = (0..40).map(|item| GuestCall::plausible(kind, 9, item));
            let extreme = GuestCall::extreme(kind, 9).into_iter().map(|(_, question)| question);
            for question in plausible.chain(extreme) {
                let ties = Ties::Random(Stream::new(1, "ties"));
                let results = guests.each_mut().map(|guest| {
                    question.run(&mut **guest.as_mut().expect("starts"), &ties).map_err(|fault| fault.to_string())
                });
                assert_eq!(results[0], results[1], "{name}: {question:?}");
            }
            let states = guests.each_mut().map(|guest| guest.as_mut().expect("starts").save().expect("saves"));
            assert_eq!(states[0], states[1], "{name}");
        }
    }
}

/// Between two decisions few rows change, and only these are written to where the rows of the call before lie.
#[test]
fn rows_that_stay_arrive_both_ways() {
    const N: usize = 9;
    let mut compared = 0;
    for (name, plugins) in &*BOTH_WAYS {
        let reading = |kind: &Kind| matches!(kind, Kind::Routing | Kind::RoutingFilter | Kind::Saturation);
        for kind in plugins[0].description().kinds.iter().copied().filter(reading) {
            let [mut fast, mut typed] = plugins.each_ref().map(|plugin| {
                let parameters = plugin.description().parameters.iter().map(|parameter| parameter.default).collect();
                plugin.start(&GuestSetup { parameters, explain: true, ..setup(kind) }).expect("starts")
            });
            let mut service = inputs::SyntheticService::new(N);
            for decision in 0..200 {
                // Reports of the load only: otherwise every row would change at every decision.
                service.advance(Reads { cached_blocks: decision % 50 == 0, ..plugins[0].description().reads });
                assert_eq!(output(&mut *fast, &service), output(&mut *typed, &service), "{name}: decision {decision}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 1000, "{compared}");
}

/// The result of `guest` about `service`, and the numbers that it computes.
fn output(guest: &mut dyn Guest, service: &inputs::SyntheticService) -> (Result<f64, Fault>, Vec<f64>) {
    let (request, cluster, mut numbers) = (service.request(), service.cluster(), Vec::new());
    let result = match guest.kind() {
        Kind::Routing => guest.route(&request, &cluster, &Ties::LowestIndex, &mut numbers).map(|index| index as f64),
        Kind::RoutingFilter => guest.filter(&request, &cluster, &Ties::LowestIndex, None, &mut numbers).map(|()| 0.0),
        _ => guest.saturation(&cluster),
    };
    (result, numbers)
}

/// A guest that returns memory for inputs that it does not have, or not for numbers of 64 bits.
#[test]
fn impossible_memory_for_inputs_is_a_fault() {
    let with_input = |at: &str| {
        let input = format!(r#"(func (export "blis_input") (param i32) (result i32) (i32.const {at}))"#);
        let mut guest = start(&routing(&input, "")).expect("starts");
        route(guest.as_mut(), &[3, 1, 4], &mut Vec::new()).map_err(|fault| fault.to_string())
    };
    assert_eq!(with_input("65536"), Ok(1));
    for (at, why) in [("65540", "not aligned"), ("131064", "beyond end of memory"), ("-8", "beyond end of memory")] {
        let fault = with_input(at).expect_err(at);
        assert!(fault.contains(why), "{at}: {fault}");
    }
    // Of a function of that name with another type the host makes no use: it calls such a module by its component.
    let other_type = r#"(func (export "blis_input") (result i32) (i32.const 65536))"#;
    let mut guest = start(&routing(other_type, "")).expect("starts");
    assert_eq!(route(guest.as_mut(), &[3, 1, 4], &mut Vec::new()), Ok(1));
}

#[test]
fn host_functions_work_both_ways() {
    let text = routing(
        r#"(import "blis:policy/host@1.0.0" "text" (func $text (param i32 i32)))
        (import "blis:policy/host@1.0.0" "prompt-blocks" (func $blocks (param i32)))"#,
        "(call $blocks (i32.const 700))
        (call $text (i32.const 1) (i32.const 720))
        (return (i32.add
          (i32.load offset=8 (i32.load (i32.const 700)))
          (i32.load8_u (i32.load (i32.const 720)))))",
    );
    let results = [Way::Fastest, Way::Typed].map(|way| {
        let plugin = load_by(way, "router.wasm", &component(&text));
        let mut guest = plugin.and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing))).expect("starts");
        route(guest.as_mut(), &[0], &mut Vec::new())
    });
    assert_eq!(results, [Ok(40 + usize::from(b'g')), Ok(40 + usize::from(b'g'))]);
}

/// A guest that uses `changed`: it returns the number of indices plus the first of them, or 100 for none; four indices
/// make it trap.
const USES_CHANGED: [&str; 2] = [
    r#"(import "blis:policy/host@1.0.0" "changed" (func $changed (param i32)))"#,
    "(call $changed (i32.const 700))
    (if (i32.eqz (i32.load8_u (i32.const 700))) (then (return (i32.const 100))))
    (if (i32.eq (i32.load (i32.const 708)) (i32.const 4)) (then (unreachable)))
    (return (i32.add
      (i32.mul (i32.load (i32.const 708)) (i32.const 10))
      (if (result i32) (i32.load (i32.const 708))
        (then (i32.load (i32.load (i32.const 704)))) (else (i32.const 0)))))",
];

#[test]
fn changed_works_both_ways() {
    let text = routing(USES_CHANGED[0], USES_CHANGED[1]);
    for way in [Way::Fastest, Way::Typed] {
        let plugin = load_by(way, "router.wasm", &component(&text)).expect("loads");
        let mut guest = router(plugin.as_ref(), &GuestSetup { explain: true, ..setup(Kind::Routing) }).expect("starts");
        let reads = Reads { cached_blocks: false, ..plugin.description().reads };
        let mut service = inputs::SyntheticService::new(9);
        let mut advance = |decisions| {
            (0..decisions).for_each(|_| service.advance(reads));
            service.clone()
        };
        let call = |guest: &mut dyn Guest, service: &inputs::SyntheticService| {
            guest.number_of_route(&service.request(), &service.cluster(), &Ties::LowestIndex, &mut Vec::new())
        };
        // The index of the request's instance in decisions 0, 1, 2 …: 7 further every time. All signals are refreshed
        // every ninth decision.
        let results: Vec<_> = (0..11).map(|_| call(guest.as_mut(), &advance(1)).expect("a result")).collect();
        assert_eq!(results, [100, 27, 25, 23, 21, 28, 26, 24, 22, 100, 27], "{way:?}");
        let later = advance(1);
        let mut fork = guest.fork().expect("forks");
        assert_eq!([&mut fork, &mut guest].map(|guest| call(guest.as_mut(), &later)), [Ok(100), Ok(25)], "{way:?}");
        assert_eq!(call(guest.as_mut(), &later), Ok(0), "nothing did");
        let state = guest.save().expect("saves");
        guest.restore(&state).expect("restores");
        assert_eq!([(); 2].map(|()| call(guest.as_mut(), &later)), [Ok(100), Ok(0)], "{way:?}");
        let later = advance(2);
        call(guest.as_mut(), &later).expect_err("four are too much");
        assert_eq!([(); 2].map(|()| call(guest.as_mut(), &later)), [Ok(100), Ok(0)], "{way:?}");
    }
}

#[test]
fn the_result_area_is_checked() {
    let at = |address: &str| {
        let text = routing(USES_CHANGED[0], &USES_CHANGED[1].replacen("700", address, 1));
        let results = [Way::Fastest, Way::Typed].map(|way| {
            let plugin = load_by(way, "router.wasm", &component(&text));
            let mut guest = plugin.and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing))).expect("starts");
            route(guest.as_mut(), &[0], &mut Vec::new()).expect_err("out of bounds").kind
        });
        assert_eq!(results, [FaultKind::Trap; 2], "{address}");
    };
    ["702", "131064", "-4"].into_iter().for_each(at);
}

#[test]
fn a_component_of_more_than_one_module_is_not_standard() {
    let bytes = fixture();
    assert!(is_standard(&bytes));
    // Adds a module at the end, which could not be one of the table modules.
    let with = |module: &str| {
        let module = wat::parse_str(module).expect("assembles");
        let mut more = bytes.clone();
        more.extend([1, u8::try_from(module.len()).expect("small")]);
        more.extend(module);
        is_standard(&more)
    };
    assert!(with(r#"(module (table (export "$imports") 1 funcref))"#));
    assert!(!with("(module (memory 1))"));
    assert!(!with(r#"(module (func (export "blis:policy/routing@1.0.0#route")))"#));
}

#[test]
fn a_function_to_be_called_after_a_number_is_not_standard() {
    let after = |function: &str| {
        changed(&[(
            ";; imports",
            &format!(
                r#"(func (export "cabi_post_blis:policy/{function}") (param i32) (global.set $top (i32.const 4096)))"#
            ),
        )])
    };
    assert!(is_standard(&component(&after("plugin@1.0.0#save"))));
    assert!(!is_standard(&component(&after("routing@1.0.0#route"))));
}

#[test]
fn post_return_functions_are_called() {
    // `observe` counts in the state, as `route` does.
    let text = changed(&[(
        ";; imports",
        r#"(func (export "cabi_post_blis:policy/routing-scores@1.0.0#scores") (param i32)
          (i64.store (i32.const 656) (i64.add (i64.load (i32.const 656)) (i64.const 100))))"#,
    )]);
    let counts = [Way::Fastest, Way::Typed].map(|way| {
        let plugin = load_by(way, "router.wasm", &component(&text));
        let explain = GuestSetup { explain: true, ..setup(Kind::Routing) };
        let mut guest = plugin.and_then(|plugin| router(plugin.as_ref(), &explain)).expect("starts");
        route(guest.as_mut(), &[1, 0], &mut Vec::new()).expect("routes");
        guest.save().expect("saves")[0]
    });
    assert_eq!(counts, [101, 101]);
}

#[test]
fn it_is_initialized_before_anything_else() {
    let text = changed(&[(";; imports", r#"(func (export "_initialize") (i64.store (i32.const 656) (i64.const 7)))"#)]);
    let counts = [Way::Fastest, Way::Typed].map(|way| {
        let plugin = load_by(way, "router.wasm", &component(&text));
        let mut guest = plugin.and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing))).expect("starts");
        guest.save().expect("saves")[0]
    });
    assert_eq!(counts, [7, 7]);
}

/// Versions with the same first number only add names; without a new name a guest of any of them runs.
#[test]
fn guests_of_earlier_and_later_versions_decide_alike() {
    for way in [Way::Fastest, Way::Typed] {
        let targets = |version: &str| {
            let text = changed(&[("@1.0.0#", &format!("@{version}#"))]);
            let bytes = wat::parse_str(text).expect("assembles");
            let plugin = load_by(way, "router.wasm", &bytes).unwrap_or_else(|fault| panic!("{version}: {fault}"));
            let mut guest = router(plugin.as_ref(), &setup(Kind::Routing)).expect("starts");
            [[3, 1, 2], [0, 4, 4], [7, 7, 6]]
                .map(|in_flight| route(guest.as_mut(), &in_flight, &mut Vec::new()).expect("routes"))
        };
        assert_eq!(targets("1.0.0"), [1, 0, 2], "{way:?}");
        for version in ["1.1.0", "1.1.7", "1.2.0"] {
            assert_eq!(targets(version), targets("1.0.0"), "{way:?} {version}");
        }
    }
}

/// The fixture's scores as a filter: 0 for all instances if the weight is 0, else numbers below 0.
#[test]
fn a_filter_is_asked_for_a_number_for_each_instance() {
    let text = changed(&[
        ("(data (i32.const 336) \"routing\")", "(data (i32.const 336) \"routing-filter\")"),
        (
            r#"(data (i32.const 704) "\50\01\00\00" "\07\00\00\00")"#,
            r#"(data (i32.const 704) "\50\01\00\00" "\0e\00\00\00")"#,
        ),
        ("routing-scores@1.0.0#scores", "routing-filter@1.0.0#filter"),
    ]);
    for way in [Way::Fastest, Way::Typed] {
        let plugin = load_by(way, "filter.wasm", &wat::parse_str(&text).expect("assembles"));
        let plugin = plugin.unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(plugin.description().kinds, [Kind::RoutingFilter]);
        for (weight, expected) in [(2.0, [-10.0, -6.0]), (0.0, [0.0, 0.0])] {
            let setup = GuestSetup { parameters: vec![weight], ..setup(Kind::RoutingFilter) };
            let guest = plugin.start(&setup);
            let (mut guest, mut kept) = (guest.expect("starts"), Vec::new());
            with_view(&[2, 0], |request, cluster| guest.filter(request, cluster, &Ties::LowestIndex, None, &mut kept))
                .expect("filters");
            assert_eq!(kept, expected, "{way:?}");
        }
    }
}

/// Operations that make a NaN of `$load`, which is 0, and of NaNs with other bits; none can be computed before the run.
const NANS: [&str; 8] = [
    "(f64.div (local.get $load) (local.get $load))",
    "(f64.sub (f64.div (f64.const 1) (local.get $load)) (f64.div (f64.const 1) (local.get $load)))",
    "(f64.sqrt (f64.sub (local.get $load) (f64.const 1)))",
    "(f64.mul (local.get $load) (f64.const inf))",
    "(f64.add (local.get $load) (f64.const -nan:0x123))",
    "(f64.min (local.get $load) (f64.const -nan:0x123))",
    "(f64.nearest (f64.add (local.get $load) (f64.const nan:0x8000000000001)))",
    "(f64.promote_f32 (f32.div (f32.demote_f64 (local.get $load)) (f32.demote_f64 (local.get $load))))",
];

/// Which instance is chosen by whether the NaN of `operation` has other bits than the canonical one.
fn bits_differ(operation: &str, settings: &WasmSettings) -> bool {
    let body = format!(
        "(local.set $load (f64.convert_i32_u (i32.sub (local.get $count) (local.get $count))))
         (return (i64.ne (i64.reinterpret_f64 {operation}) (i64.const 0x7ff8000000000000)))"
    );
    let bytes = wat::parse_str(routing("", &body)).expect("the fixture assembles");
    let plugin = load(Path::new("router.wasm"), &bytes, &Limits::default(), settings).expect("loads");
    let mut guest = router(plugin.as_ref(), &setup(Kind::Routing)).expect("starts");
    route(guest.as_mut(), &[1, 1], &mut Vec::new()).expect("decides") == 1
}

#[test]
fn a_guest_sees_one_nan_on_every_processor() {
    for operation in NANS {
        assert!(!bits_differ(operation, &settings()), "{operation}");
    }
    // Without it a guest on this processor sees others: the test can fail.
    if cfg!(target_arch = "x86_64") {
        let raw = WasmSettings { raw_nan: true, ..settings() };
        assert!(NANS.iter().any(|operation| bits_differ(operation, &raw)));
    }
}
