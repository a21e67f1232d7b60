//! Native libraries built by a C compiler. Without a compiler these tests print that they skip.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use blis_abi::AnyRows;
use blis_sim::cluster::Abort;
use blis_sim::ids::RequestId;
use blis_sim::policy::{
    AdmissionDecision, BatchView, EventKind, Reads, Reason, RequestView, RoutingPolicy as _, StepBudget, StepState,
    Ties,
};
use blis_sim::request::Tags;
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use rand::Rng as _;

use super::*;
use crate::inputs::{self, DecisionPoint, GuestCall, GuestOutput};
use crate::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, GroupRow, NodeRow, PoolInstanceRow, PrefillChoiceRow, ReplicaRow,
    RoutedRequestRow, StartingReplicaRow, TierHitRow,
};
use crate::{Function, Inputs, Kind, Output};

/// A temporary folder, removed after the test.
struct LibraryFolder(PathBuf);

impl LibraryFolder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("blis-native-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// The library built from `source` with `-Dflag`; `None` without a compiler.
    fn library(&self, source: &str, flag: &str) -> Option<PathBuf> {
        let here = env!("CARGO_MANIFEST_DIR");
        let out = self.0.join(format!("{source}{flag}.so"));
        let source = PathBuf::from(format!("{here}/src/native/fixtures/{source}.c"));
        let header = format!("-I{here}/../../sdk/c");
        let built = Command::new("cc")
            .args(["-std=c11", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", &header])
            .args((!flag.is_empty()).then(|| format!("-D{flag}")))
            .arg("-o")
            .arg(&out)
            .arg(source)
            .output();
        let Ok(built) = built else {
            println!("skipped: there is no C compiler");
            return None;
        };
        // Some wrong libraries have unused functions.
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(out)
    }

    /// The message for the library built from `source` with `flag`, without the path of the folder.
    fn fault(&self, source: &str, flag: &str) -> Option<String> {
        let fault = load(&self.library(source, flag)?, &Limits::default()).expect_err("wrong");
        Some(self.shorter(&fault))
    }

    fn shorter(&self, fault: &Fault) -> String {
        fault.to_string().replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for LibraryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn setup(kind: Kind, parameters: &[f64], explain: bool) -> GuestSetup {
    GuestSetup {
        kind,
        parameters: parameters.to_vec(),
        others: Vec::new(),
        instances: inputs::instances(4).into(),
        names: inputs::NAMES.into_iter().map(Box::from).collect(),
        model_facts: [("num_layers".to_owned(), 32.0)].into(),
        stream: Stream::new(42, "plugin"),
        explain,
        limits: Limits::default(),
        abort: Abort::default(),
    }
}

fn start(kind: Kind, plugin: &dyn Plugin, parameters: &[f64], explain: bool) -> Box<dyn Guest> {
    plugin.start(&setup(kind, parameters, explain)).expect("a guest")
}

const TIES: fn() -> Ties = || Ties::Random(Stream::new(42, "router"));

#[test]
fn a_router_decides_as_the_built_in_does() {
    let folder = LibraryFolder::new("router");
    let Some(library) = folder.library("router", "") else { return };
    let plugin = load(&library, &Limits::default()).expect("a plugin");
    assert_eq!(plugin.technology(), Technology::Native);
    insta::assert_debug_snapshot!(plugin.description(), @r#"
    PolicyDescription {
        name: "test-router",
        version: "1.2.3",
        about: "The fewest requests",
        kinds: [
            Routing,
        ],
        columns: [
            QueueDepth,
            BatchSize,
            InFlight,
        ],
        reads: Reads {
            load: true,
            in_flight: true,
            cached_blocks: false,
            cpu_cached_blocks: false,
            tokens: false,
            latencies: false,
            waiting_tokens: false,
            adapters: false,
        },
        events: Events {
            routed: false,
            first_token: false,
            completed: false,
            ended: false,
            rejected: false,
            blocks: false,
        },
        scores: true,
        every_step: false,
        parameters: [
            PolicyParameter {
                name: "bias",
                default: 0.0,
                min: 0.0,
                max: 100.0,
                about: "Added to the load of every instance but the first",
            },
        ],
        others: [],
    }
    "#);
    let mut guest = start(Kind::Routing, plugin.as_ref(), &[0.0], false);
    let mut built_in = blis_sim::policy::LeastLoaded::default();
    for item in 0..2000 {
        let point = DecisionPoint::plausible(1 + (item % 40) as usize, item);
        let (request, cluster) = (point.request(), point.cluster());
        let expected = built_in.route(&request, &cluster, &TIES(), &mut Vec::new()).target;
        let mut scores = Vec::new();
        assert_eq!(guest.route(&request, &cluster, &TIES(), &mut scores), Ok(expected), "decision {item}");
        assert!(scores.is_empty(), "not requested");
    }
}

#[test]
fn parameters_and_scores_arrive() {
    let folder = LibraryFolder::new("scores");
    let Some(library) = folder.library("router", "") else { return };
    let plugin = load(&library, &Limits::default()).expect("a plugin");
    let mut guest = start(Kind::Routing, plugin.as_ref(), &[100.0], true);
    let point = DecisionPoint::plausible(4, 3);
    let (cluster, mut scores) = (point.cluster(), Vec::new());
    let target = guest.route(&point.request(), &cluster, &TIES(), &mut scores).expect("a result");
    let loads: Vec<f64> = (0..4).map(|i| cluster.effective_load(i) as f64).collect();
    assert_eq!(scores, [-loads[0], -loads[1] - 100.0, -loads[2] - 100.0, -loads[3] - 100.0]);
    assert_eq!(target, 0, "the others carry 100 more");
    let wrong = plugin.start(&setup(Kind::Routing, &[], false)).expect_err("a parameter is missing");
    assert_eq!(folder.shorter(&wrong), "router.so: 0 values for its 1 parameters [refused]");
    let wrong = plugin.start(&setup(Kind::Latency, &[0.0], false)).expect_err("it has none");
    assert_eq!(folder.shorter(&wrong), "router.so: it does not implement `latency` [missing-export]");
}

#[test]
fn a_fork_and_a_restored_guest_go_on_as_the_original() {
    let folder = LibraryFolder::new("fork");
    let Some(library) = folder.library("router", "FAILS") else { return };
    let plugin = load(&library, &Limits::default()).expect("a plugin");
    let mut guest = plugin.start(&setup(Kind::Routing, &[0.0], false)).expect("a guest");
    let call = |guest: &mut dyn Guest| GuestCall::plausible(Kind::Routing, 4, 5).run(guest, &TIES());
    let first = call(&mut *guest).expect("a result");
    assert_eq!(call(&mut *guest), Ok(first.clone()));
    let state = guest.save().expect("a state");
    let mut fork = guest.fork().expect("a fork");
    let mut restored = plugin.start(&setup(Kind::Routing, &[0.0], false)).expect("a guest");
    restored.restore(&state).expect("it takes its own");
    for guest in [&mut guest, &mut fork, &mut restored] {
        let third = call(&mut **guest).expect_err("it counts");
        assert_eq!(folder.shorter(&third), "routerFAILS.so: route failed: the third is one too many [refused]");
        assert_eq!(call(&mut **guest), Ok(first.clone()), "it accepts further calls");
    }
    assert_eq!(guest.save(), fork.save());
    let foreign = guest.restore(b"short").expect_err("not its own");
    assert_eq!(folder.shorter(&foreign), "routerFAILS.so: restore refused this state [refused]");
}

#[test]
fn a_library_gets_what_changed() {
    let folder = LibraryFolder::new("changed");
    let Some(library) = folder.library("changed", "") else { return };
    let plugin = load(&library, &Limits::default()).expect("a plugin");
    let (mut service, mut guest) = (inputs::SyntheticService::new(9), start(Kind::Routing, plugin.as_ref(), &[], true));
    // Number of changes that the library got. Before each decision `scores` is called, for which the result is the
    // same.
    let call = |guest: &mut dyn Guest, service: &inputs::SyntheticService, class_priority| {
        let (mut request, mut scores) = (service.request(), Vec::new());
        request.class_priority = class_priority;
        let result = guest.number_of_route(&request, &service.cluster(), &TIES(), &mut scores)?;
        assert_eq!(scores, [result as f64; 9]);
        Ok::<_, Fault>(result)
    };
    let reads = Reads { cached_blocks: false, ..plugin.description().reads };
    let mut advance = |decisions| {
        (0..decisions).for_each(|_| service.advance(reads));
        service.clone()
    };
    // All signals are refreshed every nine decisions.
    let results: Vec<_> = (0..20).map(|_| call(&mut *guest, &advance(1), 0).expect("a result")).collect();
    assert_eq!(results, [100, 2, 2, 2, 2, 2, 2, 2, 2, 100, 2, 2, 2, 2, 2, 2, 2, 2, 100, 2]);
    assert_eq!(call(&mut *guest, &advance(3), 0), Ok(6), "those of three decisions");
    let mut fork = guest.fork().expect("a fork");
    let later = advance(1);
    assert_eq!((call(&mut *fork, &later, 0), call(&mut *guest, &later, 0)), (Ok(100), Ok(2)), "a copy begins anew");
    call(&mut *guest, &later, 13).expect_err("bad luck");
    assert_eq!(call(&mut *guest, &later, 0), Ok(100), "it may have missed a result");
    assert_eq!(call(&mut *guest, &later, 0), Ok(0));
    guest.restore(&[]).expect("it takes anything");
    assert_eq!((call(&mut *guest, &later, 0), call(&mut *guest, &later, 0)), (Ok(100), Ok(0)));
    let unrelated = DecisionPoint::plausible(9, 1);
    let chosen = guest.number_of_route(&later.request(), &unrelated.cluster(), &TIES(), &mut Vec::new());
    assert_eq!(chosen, Ok(100), "a cluster without information about changes");

    let mut gate = start(Kind::Admission, plugin.as_ref(), &[], true);
    let mut admit = |service: &inputs::SyntheticService| gate.admit(&service.request(), &service.cluster());
    let decision = |text: &str| Ok(AdmissionDecision::Reject(Reason::Text(text.into())));
    assert_eq!([admit(&later), admit(&advance(1))], [decision("any"), decision("few")]);
}

#[test]
fn what_is_wrong_is_named() {
    let folder = LibraryFolder::new("wrong");
    let flags = [
        "WRONG_VERSION",
        "SHORT_TABLE",
        "WRONG_SIZES",
        "NO_ROUTE",
        "NO_SAVE",
        "NO_TABLE",
        "NO_NAME",
        "NEW_KIND",
        "NEW_COLUMN",
        "MANY_PARAMETERS",
        "NO_DESCRIPTION",
    ];
    let mut messages = String::new();
    for (source, flag) in flags.map(|flag| ("router", flag)).into_iter().chain([("other", ""), ("other", "NEWER")]) {
        let Some(fault) = folder.fault(source, flag) else { return };
        messages += &fault;
        messages.push('\n');
    }
    insta::assert_snapshot!(messages, @r#"
    routerWRONG_VERSION.so: built for ABI 2, this host offers 1
    hint: build it anew with the sdk/c/blis_policy.h of this host [version-skew]
    routerSHORT_TABLE.so: its table has 48 bytes, that of the first version of the interface has 160
    hint: build it anew with the sdk/c/blis_policy.h of this host [version-skew]
    routerWRONG_SIZES.so: built with a `blis_queued` of 32 bytes, this host's has 24
    hint: build it anew with the sdk/c/blis_policy.h of this host [version-skew]
    routerNO_ROUTE.so: `route` is NULL in its table; fill it in [missing-export]
    routerNO_SAVE.so: `save` is NULL in its table; fill it in [missing-export]
    routerNO_TABLE.so: blis_plugin_v1 returned no table; return the address of a static one [missing-export]
    routerNO_NAME.so: describe: the name is ""; it must be a word of letters, digits, `-`, `_` and `.` [out-of-range]
    routerNEW_KIND.so: describe: kind `teleport` is not one of this host (interface 1.1): admission, routing, routing-filter, priority, scheduling, preemption, latency, saturation, ceilings, fairness, ordering, eviction, scaling, drain, placement, kv-cache, disaggregation, batching; correct the name, or use a newer blis [version-skew]
    routerNEW_COLUMN.so: describe: column `cached-tokens-disk` is not one of this host (interface 1.1): id, total-kv-blocks, max-num-seqs, queue-depth, batch-size, kv-utilization, free-kv-blocks, cache-hit-rate, preemption-count, in-flight, cached-blocks, in-flight-tokens, in-flight-output, cached-tokens-gpu, cached-tokens-cpu, cached-tokens-remote, waiting-tokens, running-tokens, role, group, price, ttft-ewma, itl-ewma, staleness, score, adapter-active, adapter-waiting, free-adapter-slots; correct the name, or use a newer blis [version-skew]
    routerMANY_PARAMETERS.so: describe: 18446744073709551615 parameters, or a NULL instead of them; there may be 256 [out-of-range]
    routerNO_DESCRIPTION.so: describe returned nothing; return the address of a static description [missing-export]
    other.so: no plugin: it does not export `blis_plugin_v1`
    hint: sdk/c/blis_policy.h declares it; in C++ it needs `extern "C"` [missing-export]
    otherNEWER.so: built for ABI 2, this host offers 1
    hint: build it anew with the sdk/c/blis_policy.h of this host [version-skew]
    "#);
}

#[test]
fn a_guest_that_cannot_be_made_says_why() {
    let folder = LibraryFolder::new("refuse");
    let mut messages = String::new();
    for flag in ["REFUSES", "SILENT"] {
        let Some(library) = folder.library("router", flag) else { return };
        let plugin = load(&library, &Limits::default()).expect("a plugin");
        let fault = plugin.start(&setup(Kind::Routing, &[0.0], false)).expect_err("it does not want to");
        writeln!(messages, "{}", folder.shorter(&fault)).expect("text");
    }
    let Some(library) = folder.library("router", "LARGE_STATE") else { return };
    let plugin = load(&library, &Limits::default()).expect("a plugin");
    let fault = plugin.start(&setup(Kind::Routing, &[0.0], false)).expect("a guest").fork().expect_err("too large");
    writeln!(messages, "{}", folder.shorter(&fault)).expect("text");
    insta::assert_snapshot!(messages, @r#"
    routerREFUSES.so: create: it needs two instances [refused]
    routerSILENT.so: create returned NULL without a reason; it should call host->fail [refused]
    routerLARGE_STATE.so: save needs 1099511627776 bytes; a state may have 16777216: keep less in it [out-of-memory]
    "#);
}

#[test]
fn what_is_no_library_is_refused() {
    let folder = LibraryFolder::new("none");
    let path = folder.0.join("text.so");
    fs::write(&path, "fn route() {}").expect("a file");
    let fault = |path: &Path| load(path, &Limits::default()).expect_err("no library");
    let refusal = fault(&path);
    assert_eq!(refusal.kind, FaultKind::Unreadable);
    assert!(folder.shorter(&refusal).starts_with("text.so: not a library for this machine: "), "{refusal}");
    let refusal = crate::find::read(&path, 12).expect_err("too long");
    assert_eq!(folder.shorter(&refusal), "text.so: it has 13 bytes; a plugin may have 12 [unreadable]");
    let refusal = crate::find::read(&folder.0, 12).expect_err("a folder");
    assert_eq!(folder.shorter(&refusal).lines().count(), 1, "{refusal}");
    let refusal = fault(&folder.0.join("no.so"));
    assert!(folder.shorter(&refusal).starts_with("no.so: "), "{refusal}");
}

#[test]
fn every_kind_and_every_question_to_the_host() {
    let folder = LibraryFolder::new("everything");
    let Some(library) = folder.library("everything", "") else { return };
    let plugin = load(&library, &Limits::default()).expect("a plugin");
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !kind.is_flow_control()).collect();
    assert_eq!(plugin.description().kinds, kinds, "it reads the cached blocks of a request");
    let call = |kind, question: &GuestCall| {
        question.run(&mut *plugin.start(&setup(kind, &[], true)).expect("a guest"), &TIES())
    };
    let call_once = |kind| call(kind, &GuestCall::plausible(kind, 4, 1));

    // Names, staleness of the signals and the number of rows.
    let point = DecisionPoint::plausible(3, 1);
    let (request, cluster) = (point.request(), point.cluster());
    let text = format!("{} 3 {}", inputs::NAMES[request.tags.tenant.index()], cluster.staleness.load.0);
    assert_eq!(
        start(Kind::Admission, plugin.as_ref(), &[], true).admit(&request, &cluster),
        Ok(AdmissionDecision::Reject(Reason::Text(text.into())))
    );
    let with = |input_tokens| blis_sim::request::Request::new(RequestId(1), Micros::ZERO, input_tokens, 1);
    let (seven, eight) = (with(7), with(8));
    let admit =
        |request| start(Kind::Admission, plugin.as_ref(), &[], true).admit(&RequestView::new(request, 0, 16), &cluster);
    assert_eq!(admit(&seven), Ok(AdmissionDecision::Admit));
    let neither = admit(&eight).expect_err("neither");
    assert_eq!(
        folder.shorter(&neither),
        "everything.so: admit returned 2; it must be 1 to admit or 0 to reject [out-of-range]"
    );

    // What a filter writes arrives in the order of the instances.
    let mut kept = Vec::new();
    let filter =
        start(Kind::RoutingFilter, plugin.as_ref(), &[], true).filter(&request, &cluster, &TIES(), None, &mut kept);
    assert_eq!(filter, Ok(()));
    assert_eq!(kept, cluster.signals.in_flight.iter().map(|&n| f64::from(n)).collect::<Vec<_>>());

    // The groups of a decision and those of decisions before.
    let group = |queued, completed| GroupRow { queued, completed, ..GroupRow::default() };
    let (groups, history) = ([group(3, 0), group(5, 0)], [9, 9, 10, 20].map(|completed| group(0, completed)));
    let mut targets = Vec::new();
    let scaled = start(Kind::Scaling, plugin.as_ref(), &[], true).scale(cluster.now, &groups, &history, &mut targets);
    assert_eq!((scaled, targets), (Ok(()), vec![51.0, 53.0]));
    let group = DrainGroupRow { replicas: 20, ..DrainGroupRow::default() };
    let replicas = [3, 4].map(|batch_size| ReplicaRow { batch_size, ..ReplicaRow::default() });
    let rows = [AnyRows::one(&group), AnyRows::new(&replicas)];
    let inputs = Inputs::at(Micros::ZERO, &rows);
    let drained = start(Kind::Drain, plugin.as_ref(), &[], true).call(Function::Drain, inputs, &mut Vec::new());
    assert_eq!(drained, Ok(Output::Index(27)));
    let nodes = [8, 2].map(|free_gpus| NodeRow { free_gpus, ..NodeRow::default() });
    let placed = |gpus| {
        let replica = StartingReplicaRow { gpus, ..StartingReplicaRow::default() };
        start(Kind::Placement, plugin.as_ref(), &[], true).placement(&replica, &nodes)
    };
    assert_eq!([placed(2), placed(4)], [Ok(Some(1)), Ok(None)]);
    let chunks = [1, 3].map(|count| ChunkRow { uses: count, offers: count, ..ChunkRow::default() });
    let mut tier = start(Kind::KvCache, plugin.as_ref(), &[], true);
    let mut numbers = Vec::new();
    tier.keep(Micros(9), &chunks, &mut numbers).expect("ranks");
    assert_eq!(numbers, [10.0, 12.0]);
    numbers.clear();
    let offer = ChunkOfferRow { fill: 2.0, ..ChunkOfferRow::default() };
    tier.store(&offer, &chunks, &mut numbers).expect("numbers");
    assert_eq!(numbers, [0.0, 1.0]);
    let mut loads = |tokens| tier.load(&TierHitRow { tokens, prefill_tokens: 4, ..TierHitRow::default() });
    assert_eq!([loads(5), loads(4)], [Ok(true), Ok(false)]);
    let pool = [7, 3].map(|uncached_tokens| PoolInstanceRow { uncached_tokens, ..PoolInstanceRow::default() });
    let mut apart = start(Kind::Disaggregation, plugin.as_ref(), &[], true);
    let mut prefilled = |chosen| {
        let request = RoutedRequestRow { chosen, transfer_tokens: 5, ..RoutedRequestRow::default() };
        apart.disaggregate(&request, &pool, &pool)
    };
    let choice = |remote| Ok(PrefillChoiceRow::new(remote).prefilled_by(1));
    assert_eq!([prefilled(0), prefilled(1)], [choice(true), choice(false)]);

    let state = StepState { max_num_batched_tokens: 100, decoding: 30, waiting: 4, ..StepState::default() };
    let budget = start(Kind::Batching, plugin.as_ref(), &[], true).record(Function::Budget, Micros::ZERO, &state);
    assert_eq!(budget, Ok(StepBudget { prefill_tokens: 70, reserve: 4, ..StepBudget::default() }));

    // The blocks of the prompt, ties as the router breaks them, and no scores where there are none.
    let alone = DecisionPoint::plausible(1, 1);
    let sum = alone.request().shared_blocks().fold(0_u32, u32::wrapping_add);
    let mut scores = Vec::new();
    let result = start(Kind::Routing, plugin.as_ref(), &[], true).number_of_route(
        &alone.request(),
        &alone.cluster(),
        &TIES(),
        &mut scores,
    );
    assert_eq!((result, scores.len()), (Ok(sum as usize), 0));
    assert_eq!(call_once(Kind::Routing), Ok(GuestOutput::Index(TIES().pick(RequestId(1), 4), Vec::new())));

    // The guest's own stream, by request, from the start at every call.
    let mut drawn = Stream::new(42, "plugin").at(1);
    let expected = (drawn.next_u64() ^ drawn.next_u64()).cast_signed();
    let mut guest = start(Kind::Priority, plugin.as_ref(), &[], true);
    for _ in 0..2 {
        assert_eq!(guest.priority(&request, cluster.now), Ok(expected));
    }

    let rank = f64::from(DecisionPoint::plausible(4, 1).request().input_tokens) + 2.0 / 1000.0;
    assert_eq!(call_once(Kind::Scheduling), Ok(GuestOutput::Number(rank.to_bits())));

    let batch = BatchView {
        id: (0..9).map(RequestId).collect(),
        priority: vec![0; 9],
        arrival: vec![Micros(1); 9],
        deadline: vec![None; 9],
        class_priority: vec![0; 9],
        tags: vec![Tags::default(); 9],
        input_tokens: vec![1; 9],
        computed_tokens: vec![1; 9],
        generated_tokens: vec![0; 9],
        kv_blocks: vec![3, 1, 4, 1, 5, 9, 2, 6, 5],
        preemptions: vec![0; 9],
        ..BatchView::default()
    };
    let most = batch.kv_blocks.iter().max().copied();
    let victim = start(Kind::Preemption, plugin.as_ref(), &[], true).victim(&batch).expect("a result");
    assert_eq!(batch.kv_blocks.get(victim).copied(), most);
    let of_equals = |last_of_ties| {
        let batch = BatchView { kv_blocks: vec![8; 9], last_of_ties, ..batch.clone() };
        start(Kind::Preemption, plugin.as_ref(), &[], true).victim(&batch)
    };
    assert_eq!([of_equals(false), of_equals(true)], [Ok(0), Ok(8)], "as the built-in: the first in vLLM, not in BLIS");

    let step = inputs::step(9, 1);
    let mut latency = start(Kind::Latency, plugin.as_ref(), &[], true);
    assert_eq!(latency.step_time(&step), Ok(1 + step.prefill_tokens * 3 + step.decode_context));
    assert_eq!(latency.queueing_time(21), Ok(42));
    let constants = super::super::LatencyConstants {
        shortest_step_us: 1,
        output_token_us: 2,
        post_decode_us: 3,
        scheduling_us: 4,
        preemption_us: 5,
    };
    assert_eq!(latency.constants(), Ok(constants));

    // Events are counted in the state.
    let all = plugin.description().events;
    let event = (0..).find_map(|item| inputs::event(4, item, all).filter(|e| e.kind == EventKind::Completed));
    let event = event.expect("one of them");
    let mut guest = start(Kind::Routing, plugin.as_ref(), &[], true);
    let before = guest.save().expect("a state");
    guest.observe(&event).expect("observes");
    assert_eq!(before.len(), 1000);
    assert_ne!(guest.save().expect("a state"), before);
    let refused = guest.observe(&blis_sim::policy::Event { kind: EventKind::Rejected, ..event });
    assert_eq!(
        refused.map_err(|fault| folder.shorter(&fault)),
        Err("everything.so: observe failed: no rejections [refused]".to_owned())
    );
}
