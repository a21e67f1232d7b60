//! The documentation for script authors, `sdk/rhai/README.md`, lists every function and field, and no others.

use std::collections::BTreeSet;

use super::*;
use crate::inputs::{ChunksState, DrainState, GatewayState, PlacementState, PoolsState, ScalingState, TierHitState};

const PAGE: &str = include_str!("../../../../../sdk/rhai/README.md");

/// The texts between backticks, split into words.
fn words() -> BTreeSet<&'static str> {
    let code = PAGE.split('`').skip(1).step_by(2);
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
    let of_tests = &testing::TEST_HELPERS;
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
            call_all(&mut guest, &request(id)).unwrap_or_else(|fault| panic!("{fault}"));
        }
        guest.fork().unwrap_or_else(|fault| panic!("{fault}"));
    }
}

fn call_all(guest: &mut StartedGuest, request: &Request) -> Result<(), Fault> {
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
    match guest {
        StartedGuest::Admission(guest) => guest.admit(&view, &service.view()).map(|_| ()),
        StartedGuest::Routing(guest) => {
            let mut scores = Vec::new();
            guest.route(&view, &service.view(), &Ties::LowestIndex, &mut scores).map(|_| ())
        }
        StartedGuest::RoutingFilter(guest) => {
            let mut kept = Vec::new();
            guest.filter(&view, &service.view(), &Ties::LowestIndex, &mut kept)
        }
        StartedGuest::Priority(guest) => guest.priority(&view, Micros(5)).map(|_| ()),
        StartedGuest::Scheduling(guest) => {
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
        StartedGuest::Preemption(guest) => {
            let batch = BatchView {
                id: [1, 2].map(RequestId).into(),
                priority: vec![0; 2],
                arrival: vec![Micros(1); 2],
                deadline: vec![None; 2],
                class_priority: vec![0; 2],
                tags: vec![request.tags; 2],
                input_tokens: vec![1; 2],
                computed_tokens: vec![1; 2],
                generated_tokens: vec![1; 2],
                kv_blocks: vec![8; 2],
                preemptions: vec![0; 2],
                ..BatchView::default()
            };
            guest.victim(&batch).map(|_| ())
        }
        StartedGuest::Latency(guest) => {
            let constants = guest.constants()?;
            guest.queueing_time(100)?;
            let mut step = Batch::default();
            step.add_decode(100);
            let time = guest.step_time(&step)?;
            assert!(time >= constants.shortest_step_us, "{time}");
            Ok(())
        }
        StartedGuest::Saturation(guest) => guest.saturation(&service.view()).map(|_| ()),
        StartedGuest::Ordering(guest) => guest.order(&view, Micros(5), Micros::MAX).map(|_| ()),
        StartedGuest::Ceilings(guest) => GatewayState::plausible(2, 1).ceilings(guest.as_mut(), &mut Vec::new()),
        StartedGuest::Fairness(guest) => GatewayState::plausible(2, 1).fair_pick(guest.as_mut()).map(|_| ()),
        StartedGuest::Eviction(guest) => GatewayState::plausible(2, 1).evict(guest.as_mut()).map(|_| ()),
        StartedGuest::Scaling(guest) => ScalingState::plausible(2, 3).scale(guest.as_mut(), &mut Vec::new()),
        StartedGuest::Drain(guest) => DrainState::plausible(2, 3).drain(guest.as_mut()).map(|_| ()),
        StartedGuest::Placement(guest) => PlacementState::plausible(2, 3).placement(guest.as_mut()).map(|_| ()),
        StartedGuest::KvCache(guest) => {
            ChunksState::plausible(2, 3).keep(guest.as_mut(), &mut Vec::new())?;
            ChunksState::plausible(2, 3).store(guest.as_mut(), &mut Vec::new())?;
            TierHitState::plausible(3).load(guest.as_mut()).map(|_| ())
        }
        StartedGuest::Disaggregation(guest) => PoolsState::plausible(2, 3).disaggregate(guest.as_mut()).map(|_| ()),
    }
}
