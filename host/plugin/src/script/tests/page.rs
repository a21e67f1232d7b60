//! The documentation for script authors, `sdk/rhai/README.md` with the fields of rows in `docs/kinds.md`, lists every function and field.

use std::collections::BTreeSet;

use super::*;
use crate::inputs::GuestCall;

const PAGE: &str = include_str!("../../../../../sdk/rhai/README.md");
const KINDS: &str = include_str!("../../../../../docs/kinds.md");

/// The texts between backticks, split into words.
fn words() -> BTreeSet<&'static str> {
    let code = [PAGE, KINDS].into_iter().flat_map(|page| page.split('`').skip(1).step_by(2));
    code.flat_map(|code| code.split(|c: char| c != '_' && !c.is_ascii_alphanumeric())).collect()
}

fn examples() -> Vec<&'static str> {
    PAGE.split("```rhai\n").skip(1).map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

#[test]
fn the_page_names_everything() {
    let kit = engine::kit(&Limits::default());
    let (words, operators) =
        (words(), ["!", "!=", "%", "&", "*", "**", "+", "-", "/", "<", "<=", "==", ">", ">=", "|"]);
    let functions = kit.functions().filter(|name| !operators.contains(name));
    let fields = kit.names.fields.values().flatten();
    let of_tests = &names::TEST_HELPERS;
    let missing: Vec<_> = functions.chain(fields).chain(of_tests).filter(|name| !words.contains(*name)).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    for operator in operators {
        assert!(PAGE.contains(operator), "{operator}");
    }
}

/// Each Rhai function named on the page accepts some arguments.
#[test]
fn the_language_has_the_functions_named() {
    let kit = engine::kit(&Limits::default());
    for name in engine::LANGUAGE_FUNCTIONS {
        let arguments = ["", "1", "1.0", "'a'", "\"a\"", "[1]", "#{}", "|x| x", "0..1"];
        let first = arguments.iter().skip(1);
        let calls = first.flat_map(|a| arguments.iter().flat_map(move |b| arguments.map(|c| (*a, *b, c))));
        let known = calls.chain([("", "", "")]).any(|(a, b, c)| {
            let given: Vec<_> = [a, b, c].into_iter().filter(|argument| !argument.is_empty()).collect();
            let result = kit.engine.eval::<rhai::Dynamic>(&format!("{name}({})", given.join(", ")));
            !matches!(result.map_err(|error| *error), Err(rhai::EvalAltResult::ErrorFunctionNotFound(..)))
        });
        assert!(known, "{name}");
    }
}

#[test]
fn every_example_of_the_page_works() {
    let examples = examples();
    assert!(examples.len() >= 8, "{}", examples.len());
    for example in examples {
        exercise(&script(example).unwrap_or_else(|fault| panic!("{fault}\n{example}")));
    }
}

#[test]
fn every_script_of_the_repository_works() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let scripts: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "rhai")).collect();
    assert!(scripts.len() >= 4);
    for path in scripts {
        let plugin = load_file(&path, &Limits::default()).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(!plugin.description().about.is_empty(), "{}", path.display());
        assert_eq!(plugin.description().name, path.file_stem().unwrap().to_string_lossy());
        exercise(&plugin);
    }
}

/// Calls all functions of the plugin, several times.
pub(super) fn exercise(plugin: &Arc<dyn Plugin>) {
    for &kind in &plugin.description().kinds {
        let mut guest = plugin.start(&setup(kind, plugin.as_ref())).unwrap_or_else(|fault| panic!("{fault}"));
        for id in 0..5 {
            call_all(&mut *guest, &request(id)).unwrap_or_else(|fault| panic!("{fault}"));
        }
        guest.fork().unwrap_or_else(|fault| panic!("{fault}"));
    }
}

fn call_all(guest: &mut dyn Guest, request: &Request) -> Result<(), Fault> {
    let view = seen(request);
    let service = ScriptService::idle(2);
    let event = Event {
        at: Micros(9),
        kind: EventKind::Completed,
        request: request.id,
        instance: Some(InstanceIndex(1)),
        input_tokens: 100,
        generated_tokens: 5,
        ttft: Some(Micros(7)),
        e2e: Some(Micros(70)),
        tags: request.tags,
        block: 0,
    };
    guest.observe(&event)?;
    let made =
        |guest: &mut dyn Guest, call: GuestCall| call.make(guest, &Ties::LowestIndex, &mut Vec::new()).map(|_| ());
    match guest.kind() {
        Kind::Admission => guest.admit(&view, &service.view()).map(|_| ()),
        Kind::Routing => guest.route(&view, &service.view(), &Ties::LowestIndex, &mut Vec::new()).map(|_| ()),
        Kind::RoutingFilter => guest.filter(&view, &service.view(), &Ties::LowestIndex, None, &mut Vec::new()),
        Kind::Priority => guest.priority(&view, Micros(5)).map(|_| ()),
        Kind::Scheduling => {
            let queued = QueuedView {
                now: Micros(5),
                request: view,
                priority: 0,
                generated_tokens: 1,
                preemptions: 1,
                turn: -1,
            };
            guest.rank(&queued).map(|_| ())
        }
        Kind::Latency => {
            let constants = guest.constants()?;
            guest.queueing_time(100)?;
            let mut step = Batch::default();
            step.add_decode(100);
            let time = guest.step_time(&step)?;
            assert!(time >= constants.shortest_step_us, "{time}");
            Ok(())
        }
        Kind::Saturation => guest.saturation(&service.view()).map(|_| ()),
        Kind::Ordering => guest.order(&view, Micros(5), Micros::MAX).map(|_| ()),
        kind => (0..4).try_for_each(|item| made(guest, GuestCall::plausible(kind, 2, item))),
    }
}
