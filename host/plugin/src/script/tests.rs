//! Scripts as plugins: their outputs and their failures.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use blis_sim::cluster::Abort;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::latency::Batch;
use blis_sim::policy::flow::{Band, Flow, InFlight};
use blis_sim::policy::{
    AdmissionDecision, BatchView, ClusterView, Event, EventKind, InstanceInfo, LeastLoaded, QueuedView, Reads,
    RequestView, RoutingPolicy, Signals, StepBudget, StepState, Ties, Versions, Weighted,
};
use blis_sim::request::{Content, Name, Request, Span, Tags};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use proptest::prelude::*;

use super::*;
use crate::Kind;
use crate::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, GroupRow, NodeRow, PoolInstanceRow, PrefillChoiceRow, ReplicaRow,
    RoutedRequestRow, StartingReplicaRow, TierHitRow,
};
use crate::{LatencyConstants, inputs};

mod agreement;
mod counting;
mod differential;
mod hostile;
mod page;
mod steps;
mod watchdog;

/// Instances and their signals.
#[derive(Clone, Debug)]
struct ScriptService {
    now: Micros,
    instances: Vec<InstanceInfo>,
    signals: Signals,
}

impl ScriptService {
    fn idle(n: usize) -> Self {
        let info = |id| InstanceInfo {
            id,
            max_num_seqs: 64,
            total_kv_blocks: 1000,
            block_size: 16,
            ..InstanceInfo::default()
        };
        let signals = Signals::idle(vec![1000; n]);
        Self { now: Micros(1000), instances: (0..n).map(InstanceIndex::at).map(info).collect(), signals }
    }

    fn with(mut self, change: impl FnOnce(&mut Signals)) -> Self {
        change(&mut self.signals);
        self
    }

    fn view(&self) -> ClusterView<'_> {
        ClusterView {
            now: self.now,
            instances: &self.instances,
            signals: &self.signals,
            staleness: blis_sim::policy::Staleness {
                load: Micros(20),
                cached_blocks: Micros(30),
                in_flight: Micros::ZERO,
            },
            versions: Versions::default(),
            in_flight_changes: blis_sim::policy::Changes::UNKNOWN,
            tenants_in_flight: &[0, 0, 5],
            scores: &[],
        }
    }
}

/// A request of class 1, tenant 2 and session 3; two of its six blocks are shared.
fn request(id: u32) -> Request {
    let mut request = Request::new(RequestId(id), Micros(400), 100, 50);
    request.deadline = Some(Micros(9000));
    request.max_output_tokens = Some(64);
    request.tags = Tags { slo_class: Name(1), tenant: Name(2), session: Name(3), ..Tags::default() };
    request.content = Content::shared(&[Span { first: 7, len: 2 }]);
    request
}

fn seen(request: &Request) -> RequestView<'_> {
    RequestView::new(request, -1, 16)
}

fn setup(kind: Kind, plugin: &dyn Plugin) -> GuestSetup {
    GuestSetup {
        kind,
        parameters: plugin.description().parameters.iter().map(|parameter| parameter.default).collect(),
        others: Vec::new(),
        instances: ScriptService::idle(2).instances.into(),
        names: ["", "batch", "acme", "chat-3"].map(Box::from).to_vec().into(),
        model_facts: vec![("num_layers".to_owned(), 32.0)].into(),
        stream: Stream::new(42, "plugin"),
        explain: false,
        limits: Limits::default(),
        abort: Abort::default(),
    }
}

fn script(source: &str) -> Result<Arc<dyn Plugin>, Fault> {
    load(Path::new("test.rhai"), source, &Limits::default())
}

fn guest(kind: Kind, source: &str) -> Box<dyn Guest> {
    start(kind, script(source).unwrap_or_else(|fault| panic!("{fault}")).as_ref())
}

fn start(kind: Kind, plugin: &dyn Plugin) -> Box<dyn Guest> {
    let guest = plugin.start(&setup(kind, plugin));
    guest.unwrap_or_else(|fault| panic!("{fault}"))
}

/// Numbers that differ in the last digit were equal, and nothing was less than infinity.
#[test]
fn numbers_compare_as_in_ieee_754() {
    let equal_to_rust: Vec<(String, String)> = [
        ("5.0 < 1.0/0.0", (5.0 < f64::INFINITY).to_string()),
        ("0.9999999999999999 < 1.0", true.to_string()),
        ("0.9999999999999999 == 1", false.to_string()),
        ("1 != 1.0000000000000002", true.to_string()),
        ("0.0/0.0 == 0.0/0.0", false.to_string()),
        ("0.0/0.0 != 0.0/0.0", true.to_string()),
        ("0.0/0.0 >= 1", false.to_string()),
        ("-0.0 == 0", true.to_string()),
        ("[1.0].contains(1.0000000000000002)", false.to_string()),
        ("2.0 ** 0.5", format!("{:?}", libm::pow(2.0, 0.5))),
        ("10.0 ** -3", format!("{:?}", libm::pow(10.0, -3.0))),
        ("2 ** 10", "1024".to_owned()),
        // Whole numbers were rounded to compare them.
        ("9007199254740993 == 9007199254740992.0", false.to_string()),
        ("9007199254740993 > 9007199254740992.0", true.to_string()),
        ("9223372036854775807 < 9223372036854775808.0", true.to_string()),
        ("9007199254740993 in [9007199254740992.0]", false.to_string()),
        ("[9007199254740992.0].index_of(9007199254740993)", "-1".to_owned()),
        ("column(1, 9007199254740992.0).contains(9007199254740993)", false.to_string()),
        ("(column(1, 9007199254740992.0) < 9007199254740993)[0]", "1.0".to_owned()),
        ("[9007199254740993, 9007199254740992.0].order()[1]", "9007199254740993".to_owned()),
        ("to_int(-2.5)", "-2".to_owned()),
        ("(-9223372036854775808.0).to_int() + 1", "-9223372036854775807".to_owned()),
    ]
    .map(|(expression, value)| (expression.to_owned(), value))
    .into();
    for (expression, value) in equal_to_rust {
        assert_eq!(value_of(&expression), value, "{expression}");
    }
    assert_eq!(value_of("{ let x = 2.0; x **= 0.5; x }"), format!("{:?}", libm::pow(2.0, 0.5)));
}

/// `max(0.0/0.0, 1)` was 1 and `max(1, 0.0/0.0)` NaN; that of a column was always NaN. The sum of nothing was -0.
#[test]
fn not_a_number_stays_in_minima_and_maxima() {
    for expression in
        ["max(0.0/0.0, 1)", "max(1, 0.0/0.0)", "min(0.0/0.0, 1.0)", "min(1.0, 0.0/0.0)", "(0.0/0.0).max(1)"]
    {
        assert_eq!(value_of(expression), "NaN", "{expression}");
    }
    assert_eq!(value_of("[max(1, 2), min(1, 2.5), max(2.5, 1)]"), "[2, 1.0, 2.5]");
    assert_eq!(value_of("[1 / zeros(0).sum(), 1 / dot(zeros(0), zeros(0))]"), "[inf, inf]");
}

/// Before, a cancelled simulation continued until the call returned.
#[test]
fn a_call_ends_with_the_simulation() {
    let plugin = script("fn route(r, s) { loop { } }").unwrap_or_else(|fault| panic!("{fault}"));
    let setup = setup(Kind::Routing, plugin.as_ref());
    let guest = plugin.start(&setup);
    let mut guest = guest.unwrap_or_else(|fault| panic!("{fault}"));
    let mut kind = || route_on(guest.as_mut(), &ScriptService::idle(2)).expect_err("it loops").kind;
    assert_eq!(kind(), FaultKind::OutOfFuel);
    setup.abort.set();
    assert_eq!(kind(), FaultKind::OutOfTime);
}

fn router(body: &str) -> Box<dyn Guest> {
    guest(Kind::Routing, &format!("fn route(r, s) {{ {body} }}"))
}

fn route_on(guest: &mut dyn Guest, service: &ScriptService) -> Result<(usize, Vec<f64>), Fault> {
    let mut scores = Vec::new();
    let index = guest.route(&seen(&request(9)), &service.view(), &Ties::LowestIndex, &mut scores)?;
    Ok((index, scores))
}

/// The value of the expression, read from the reason of a rejection.
fn value_of(expression: &str) -> String {
    let source = format!("fn admit(r, s) {{ `${{{expression}}}` }}");
    let service = ScriptService::idle(3).with(|signals| {
        signals.queue_depth = vec![4, 1, 2];
        signals.in_flight_tokens = vec![70, 0, 0];
        signals.in_flight_output = vec![30, 50, 0];
        // Seven blocks are more than the 100 tokens of the prompt.
        signals.cached_blocks = vec![6, 0, 7];
        signals.waiting_tokens[0] = 7;
        signals.free_kv_blocks[1] -= 10;
        (signals.ttft_ewma[0], signals.itl_ewma[0]) = (7.0, 2.0);
    });
    match guest(Kind::Admission, &source).admit(&seen(&request(9)), &service.view()) {
        Ok(AdmissionDecision::Reject(reason)) => reason.to_string(),
        other => panic!("{expression}: {other:?}"),
    }
}

#[test]
fn columns_are_computed_with_as_numbers_are() {
    let values = [
        ("s.queue_depth", "[4.0, 1.0, 2.0]"),
        ("s.queue_depth + 1", "[5.0, 2.0, 3.0]"),
        ("1 - s.queue_depth * 0.5", "[-1.0, 0.5, 0.0]"),
        ("-s.queue_depth / s.queue_depth", "[-1.0, -1.0, -1.0]"),
        ("1 / (s.queue_depth - 1)", "[0.3333333333333333, inf, 1.0]"),
        ("s.queue_depth ** 2 % 3", "[1.0, 1.0, 1.0]"),
        ("s.queue_depth > 1 & s.queue_depth < 4", "[0.0, 0.0, 1.0]"),
        ("!(s.queue_depth == 2) | false", "[1.0, 1.0, 0.0]"),
        ("select(s.queue_depth >= 2, s.queue_depth, -1)", "[4.0, -1.0, 2.0]"),
        ("max(s.queue_depth, 2) - min(3, s.queue_depth)", "[1.0, 1.0, 0.0]"),
        ("clamp(s.queue_depth, 1.5, 3)", "[3.0, 1.5, 2.0]"),
        ("fewest_best(s.queue_depth)", "[0.0, 1.0, 0.6666666666666666]"),
        ("most_best(s.queue_depth)", "[1.0, 0.0, 0.3333333333333333]"),
        ("most_best(s.batch_size)", "[1.0, 1.0, 1.0]"),
        ("rank_of(s.queue_depth)", "[2.0, 0.0, 1.0]"),
        ("sqrt(s.queue_depth) + exp(s.batch_size)", "[3.0, 2.0, 2.414213562373095]"),
        (
            "[sum(s.queue_depth), s.queue_depth.mean(), max(s.queue_depth), min(s.queue_depth)]",
            "[7.0, 2.3333333333333335, 4.0, 1.0]",
        ),
        ("[median(s.queue_depth), quantile(s.queue_depth, 0.25), std(s.batch_size)]", "[2.0, 1.5, 0.0]"),
        ("[argmax(s.queue_depth), argmin(s.queue_depth), s.queue_depth.len, len(s), s.len]", "[0, 1, 3, 3, 3]"),
        ("[any(s.queue_depth > 3), all(s.queue_depth > 3), count(s.queue_depth > 1)]", "[true, false, 2]"),
        ("s.queue_depth[1] + s[0].queue_depth", "5.0"),
        ("let x = zeros(s.len); x[2] = 7; x += 1; x", "[1.0, 1.0, 8.0]"),
        ("let sum = 0; for q in s.queue_depth { sum += q; } for x in s { sum += x.queue_depth; } sum", "14.0"),
        ("column([1, 2.5, true]).map(|x| x * 2)", "[2.0, 5.0, 2.0]"),
        ("one_hot(3, 1) + indices(3) + s.indices + ones(3)", "[1.0, 4.0, 5.0]"),
        ("share(s.queue_depth) * 7", "[4.0, 1.0, 2.0]"),
        ("s.effective_load + s.in_flight + s.id", "[4.0, 2.0, 4.0]"),
        ("s.free_kv_blocks / s.total_kv_blocks * s.max_num_seqs", "[64.0, 63.36, 64.0]"),
        ("[s.now, s.load_staleness, s.cached_blocks_staleness]", "[1000, 20, 30]"),
        ("s.in_flight_tokens + s.in_flight_output", "[100.0, 50.0, 0.0]"),
        ("s.cached_tokens_gpu + s.cached_tokens_cpu", "[96.0, 0.0, 100.0]"),
        ("s.waiting_tokens + s.running_tokens", "[7.0, 160.0, 0.0]"),
        ("s.ttft_ewma - s.itl_ewma", "[5.0, 0.0, 0.0]"),
        ("s.staleness + s.role + s.group + s.price + s.score", "[20.0, 20.0, 20.0]"),
        ("s[2].cached_tokens_gpu", "100.0"),
    ];
    for (expression, value) in values {
        assert_eq!(value_of(expression), value, "{expression}");
    }
}

/// What scripts read is what compiled plugins declare, and is kept up to date for them alike.
#[test]
fn a_script_reads_the_columns_that_it_names() {
    let description = |body: &str| {
        let plugin = script(&format!("fn route(r, s) {{ {body} }}")).unwrap_or_else(|fault| panic!("{fault}"));
        (plugin.description().columns.clone(), plugin.description().reads)
    };
    use crate::Column;
    let (columns, reads) = description("-s.in_flight_tokens");
    assert_eq!((columns, reads), (vec![Column::InFlightTokens], Reads { tokens: true, ..Reads::NOTHING }));
    let (columns, reads) = description("-s.ttft_ewma - s.waiting_tokens");
    assert_eq!(columns, [Column::WaitingTokens, Column::TtftEwma]);
    assert_eq!(reads, Reads { load: true, waiting_tokens: true, latencies: true, ..Reads::NOTHING });
    let by_tier = Reads { cached_blocks: true, cpu_cached_blocks: true, ..Reads::NOTHING };
    assert_eq!(description("s.cached_tokens_cpu + s.price").1, by_tier);
    assert_eq!(description("s.cached_tokens_remote + s.price").1, Reads::NOTHING);
    assert_eq!(description("s.cached_tokens_gpu").1, Reads { cached_blocks: true, ..Reads::NOTHING });
    assert_eq!(description("s.running_tokens").1, Reads { load: true, ..Reads::NOTHING });
}

#[test]
fn filters_and_scorers_return_a_column() {
    let service = ScriptService::idle(3).with(|signals| signals.queue_depth = vec![4, 1, 2]);
    let kept = |body: &str| {
        let mut guest = guest(Kind::RoutingFilter, &format!("fn filter(r, s) {{ {body} }}"));
        let mut kept = Vec::new();
        guest.filter(&seen(&request(9)), &service.view(), &Ties::LowestIndex, None, &mut kept).map(|()| kept)
    };
    assert_eq!(kept("s.queue_depth < 3"), Ok(vec![0.0, 1.0, 1.0]));
    assert_eq!(kept("[1, 0, 2.5]"), Ok(vec![1.0, 0.0, 2.5]));
    let scores = |body: &str| {
        let mut scores = Vec::new();
        router(body).scores(&seen(&request(9)), &service.view(), &Ties::LowestIndex, None, &mut scores).map(|()| scores)
    };
    assert_eq!(scores("-s.queue_depth"), Ok(vec![-4.0, -1.0, -2.0]));
    let message = |result: Result<Vec<f64>, Fault>| result.expect_err("no column").to_string();
    insta::assert_snapshot!(
        [message(kept("true")), message(kept("let all = ones(2);")), message(scores("1"))].join("\n"),
        @"
        test.rhai:1:1: filter returned a truth value; it must return a column, 0 for instances that it leaves out, as `s.queue_depth < 5`
          1 | fn filter(r, s) { true }
            | ^^^^^^^^^^^^^^^^^^^^^^^^ [trap]
        test.rhai:1:1: filter returned nothing; it must return a column, 0 for instances that it leaves out, as `s.queue_depth < 5`: does its last line end in `;`?
          1 | fn filter(r, s) { let all = ones(2); }
            | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ [trap]
        test.rhai:1:1: route returned a whole number; as a scorer it must return a column of scores
          1 | fn route(r, s) { 1 }
            | ^^^^^^^^^^^^^^^^^^^^ [trap]
        "
    );
    let both = script("fn filter(r, s) { s.queue_depth < 3 }\nfn route(r, s) { -s.queue_depth }");
    let both = both.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(both.description().kinds, [Kind::Routing, Kind::RoutingFilter]);
}

#[test]
fn columns_are_not_changed_behind_each_others_back() {
    let source = "let a = s.queue_depth; let b = a; b[0] = 9; b += 1; `${a} ${b} ${s.queue_depth}`";
    assert_eq!(value_of(source), "[4.0, 1.0, 2.0] [10.0, 2.0, 3.0] [4.0, 1.0, 2.0]");
}

#[test]
fn requests_show_only_known_fields() {
    let values = [
        ("[r.id, r.now, r.arrival, r.deadline, r.input_tokens, r.max_output_tokens]", "[9, 1000, 400, 9000, 100, 64]"),
        ("[r.class_priority, r.client_priority ?? 7, r.round_index, r.tenant_in_flight]", "[-1, 7, 0, 5]"),
        ("[r.prompt_blocks, r.shared_blocks, r.block_size, r.blocks.len]", "[6, 2, 16, 2]"),
        ("r.blocks", "[7.0, 8.0]"),
        (
            "[r.slo_class, r.tenant, r.session, r.model, r.client, r.prefix_group]",
            r#"["batch", "acme", "chat-3", "", "", ""]"#,
        ),
    ];
    for (expression, value) in values {
        assert_eq!(value_of(expression), value, "{expression}");
    }
}

#[test]
fn whole_and_other_numbers_mix() {
    let values = [
        ("max(1, 2.5) + 1", "3.5"),
        (
            "[sqrt(9), pow(2, 3), pow(2.0, 3), exp(0), floor(7 / 2.0), clamp(5, 1, 3), clamp(0.5, 1, 3)]",
            "[3.0, 8.0, 8.0, 1.0, 3.0, 3, 1.0]",
        ),
        ("float(7) / 2", "3.5"),
        ("7 / 2", "3"),
        ("[1.0 / 0, hash(\"a\") == hash(\"a\"), hash(\"a\") == hash(\"b\"), hash(3) >= 0]", "[inf, true, false, true]"),
        ("[3, 1, 2].order()", "[1, 2, 3]"),
        ("let a = [3, 1, 2]; a.sort(|x, y| y - x); a", "[3, 2, 1]"),
        ("[1, 2, 3].map(|x, i| x * i)", "[0, 2, 6]"),
        ("[1, 2].map(|x| x + 0.5).sum()", "4.0"),
    ];
    for (expression, value) in values {
        assert_eq!(value_of(expression), value, "{expression}");
    }
}

#[test]
fn the_best_score_wins_and_ties_are_the_hosts() {
    let service = ScriptService::idle(5).with(|signals| signals.queue_depth = vec![3, 1, 2, 1, 1]);
    let mut least = router("-s.queue_depth");
    assert_eq!(route_on(least.as_mut(), &service).unwrap(), (1, vec![-3.0, -1.0, -2.0, -1.0, -1.0]));
    let ties = Ties::Random(Stream::new(7, "router"));
    let mut indices = [0; 5];
    for id in 0..100 {
        let index = least.route(&seen(&request(id)), &service.view(), &ties, &mut Vec::new()).unwrap();
        assert_eq!(index, [1, 3, 4][ties.pick(RequestId(id), 3)]);
        indices[index] += 1;
    }
    assert!(indices[1] > 10 && indices[3] > 10 && indices[4] > 10, "{indices:?}");
    let index = |body: &str| route_on(router(body).as_mut(), &service).unwrap().0;
    assert_eq!(index("2"), 2);
    assert_eq!(index("3.0"), 3);
    assert_eq!(index("[0, 1, 5, 2, 0.5]"), 2, "an array of scores");
    assert_eq!(
        index(
            "if s.len > 9 { return 0; } let best = 0; for i in 0..s.len { if s.queue_depth[i] < s.queue_depth[best] { best = i; } } best"
        ),
        1
    );
    assert_eq!(index("r.id % s.len"), 4);
}

fn signals(n: usize) -> impl Strategy<Value = ScriptService> {
    let counts = || prop::collection::vec(0_u32..12, n);
    (counts(), counts(), counts(), counts(), prop::collection::vec(0_u32..=8, n)).prop_map(
        move |(queue, batch, in_flight, cached, used)| {
            ScriptService::idle(n).with(|signals| {
                signals.queue_depth = queue;
                signals.batch_size = batch;
                signals.in_flight = in_flight;
                signals.cached_blocks = cached;
                signals.kv_utilization = used.iter().map(|&used| f64::from(used) / 8.0).collect();
            })
        },
    )
}

fn policy(file: &str) -> Arc<dyn Plugin> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(file);
    load_file(&path, &Limits::default()).unwrap_or_else(|fault| panic!("{fault}"))
}

proptest! {
    #[test]
    fn scripts_choose_as_the_built_ins_do(services in prop::collection::vec(signals(7), 1..12), seed: u64) {
        let ties = Ties::Random(Stream::new(seed, "router"));
        let pairs: [(&str, Box<dyn RoutingPolicy>); 2] = [
            ("rhai-least-loaded.rhai", Box::new(LeastLoaded::default())),
            ("prefix-then-load.rhai", Box::new(Weighted::default())),
        ];
        for (file, mut built_in) in pairs {
            let plugin = policy(file);
            let mut guest = start(Kind::Routing, plugin.as_ref());
            for (id, service) in services.iter().enumerate() {
                let request = request(id as u32);
                let choice = built_in.route(&seen(&request), &service.view(), &ties, &mut Vec::new());
                let index = guest.route(&seen(&request), &service.view(), &ties, &mut Vec::new()).unwrap();
                prop_assert_eq!(index, choice.target, "{} {:?}", file, service.signals);
            }
        }
    }
}

/// Columns of an unchanged version are not read again; all others are.
#[test]
fn versions_are_heeded() {
    let mut guest = router("s.queue_depth * 100 + s.cached_blocks * 10 + s.in_flight");
    let mut service = ScriptService::idle(2);
    let mut call = |service: &ScriptService, load, cached_blocks| {
        let view = ClusterView { versions: Versions { load, cached_blocks, instances: 0 }, ..service.view() };
        let mut scores = Vec::new();
        guest.route(&seen(&request(1)), &view, &Ties::LowestIndex, &mut scores).unwrap();
        scores
    };
    assert_eq!(call(&service, 1, 1), [0.0, 0.0]);
    service.signals.queue_depth = vec![1, 2];
    service.signals.cached_blocks = vec![3, 4];
    service.signals.in_flight = vec![5, 6];
    assert_eq!(call(&service, 1, 1), [5.0, 6.0]);
    assert_eq!(call(&service, 2, 1), [105.0, 206.0]);
    assert_eq!(call(&service, 2, 0), [135.0, 246.0]);
    assert_eq!(call(&ScriptService::idle(3), 2, 1), [0.0; 3], "other instances");
}

/// Of the router's columns only the entries that changed are written, not those of a column that the script has kept.
#[test]
fn columns_follow_what_changed() {
    const SOURCE: &str = r"
fn init() { #{ kept: zeros(9), sum: 0.0 } }

fn route(r, s) {
    if sum(this.kept) != this.sum { throw `${this.kept}`; }
    if r.input_tokens % 3 == 0 { this.kept = s.in_flight_tokens; this.sum = sum(s.in_flight_tokens); }
    s.id + s.queue_depth + s.cached_tokens_gpu + s.in_flight * 1e6 + s.in_flight_tokens + s.ttft_ewma / 7 + s.effective_load
}";
    let plugin = script(SOURCE).expect("loads");
    let mut kept = start(Kind::Routing, &*plugin);
    let mut service = inputs::SyntheticService::new(9);
    for decision in 0..300 {
        service.advance(plugin.description().reads);
        let scores = |guest: &mut dyn Guest| {
            let mut scores = Vec::new();
            let routed = guest.route(&service.request(), &service.cluster(), &Ties::LowestIndex, &mut scores);
            routed.map(|_| scores).map_err(|fault| fault.to_string())
        };
        let anew = scores(&mut *start(Kind::Routing, &*plugin));
        assert!(anew.is_ok(), "{anew:?}");
        assert_eq!(scores(&mut *kept), anew, "decision {decision}");
    }
}

#[test]
fn every_kind_has_its_function() {
    let source = r#"
        // @name all-kinds
        // @about Everything.
        // @version 2
        // @events completed, blocks
        // @every_step
        // @param weight 2 0 10 of something
        fn init(info) { #{ seen: 0, layers: info.model_facts.num_layers, kind: info.kind, slots: info.instances[1].max_num_seqs } }
        fn admit(r, s) { r.class_priority >= 0 || s.len > 2 }
        fn route(r, s) { -s.in_flight }
        fn filter(r, s) { s.in_flight < 9 }
        fn priority(r) { -r.input_tokens * weight }
        fn rank(r, q) { q.priority + q.turn / 8.0 - q.generated_tokens - q.preemptions }
        fn victim(b) { b.kv_blocks + if b.tenant[0] == "acme" { 0 } else { 1 } }
        fn step_time(b) { 100 + b.tokens * 2.25 + this.layers }
        fn queueing_time(tokens) { tokens * 3 }
        fn constants() { #{ shortest_step_us: 50, post_decode_us: 7 } }
        fn saturation(s) { s.in_flight[1] + s.now / 4.0 }
        fn ceilings(saturation, b) { b.queued / 100 + saturation }
        fn fair_pick(b, f) { if f.tenant[1] == "acme" && b.saturation < 1.0 { 1 } else { f.head_wait } }
        fn order(r, expires) { r.input_tokens + expires }
        fn evict(b, f) { if b.priority > f.priority[0] + 3 { f.input_tokens } else { () } }
        fn scale(g) { g.queued + g.before(1).completed + if g.model[1] == "acme" { 100 } else { 0 } }
        fn drain(g, r) { if g.model == "acme" && g.replicas > 3 { r.batch_size } else { 0 } }
        fn placement(r, n) { if r.model == "acme" && r.gpus < 3 { n.node - n.free_gpus } else { () } }
        fn keep(c) { c.uses + c.now }
        fn store(t, c) { c.offers > 1.0 + t.fill }
        fn load(h) { h.tokens > h.prefill_tokens }
        fn disaggregate(r, d, p, link) { #{ remote: d.uncached[d.chosen] > link.tokens, prefill: -p.in_flight } }
        fn budget(v) { #{ prefill_tokens: v.max_num_batched_tokens - v.decoding, reserve: 2.4 * v.waiting } }
        fn observe(e) { if e.kind == "completed" { this.seen += e.e2e; } else { this.block = e.block; } }
    "#;
    let plugin = script(source).unwrap();
    let description = plugin.description();
    assert_eq!((description.name.as_str(), description.version.as_str()), ("all-kinds", "2"));
    assert_eq!(description.kinds, Kind::ALL);
    // `batch_size` of a replica has the name of a column of the cluster.
    assert_eq!(description.reads, Reads { load: true, in_flight: true, ..Default::default() });
    assert!(description.events.completed && description.events.blocks && !description.events.routed);
    assert!(description.every_step && description.parameters[0].about == "of something");
    let plugin = plugin.as_ref();
    let request = request(9);
    let view = seen(&request);
    let service = ScriptService::idle(2);
    assert!(matches!(start(Kind::Admission, plugin).admit(&view, &service.view()), Ok(AdmissionDecision::Reject(_))));
    assert!(matches!(
        start(Kind::Admission, plugin).admit(&view, &ScriptService::idle(3).view()),
        Ok(AdmissionDecision::Admit)
    ));
    assert_eq!(start(Kind::Priority, plugin).priority(&view, Micros(1)), Ok(-200));
    let queued =
        QueuedView { now: Micros(5), request: view, priority: 3, generated_tokens: 10, preemptions: 1, turn: 4 };
    assert_eq!(start(Kind::Scheduling, plugin).rank(&queued), Ok(3.0 + 0.5 - 10.0 - 1.0));
    let batch = BatchView {
        id: [4, 5, 6].map(RequestId).into(),
        priority: vec![0; 3],
        arrival: vec![Micros(1); 3],
        deadline: vec![None; 3],
        class_priority: vec![0; 3],
        tags: vec![request.tags; 3],
        input_tokens: vec![1; 3],
        computed_tokens: vec![1; 3],
        generated_tokens: vec![1; 3],
        kv_blocks: vec![8, 8, 2],
        preemptions: vec![0; 3],
        ..BatchView::default()
    };
    let of_equals = |last_of_ties| start(Kind::Preemption, plugin).victim(&BatchView { last_of_ties, ..batch.clone() });
    assert_eq!([of_equals(false), of_equals(true)], [Ok(0), Ok(1)], "as the built-in: the first in vLLM, not in BLIS");
    let mut latency = start(Kind::Latency, plugin);
    let mut step = Batch::default();
    step.add_prefill(10, 0, 10);
    assert_eq!(latency.step_time(&step), Ok(155), "154.5");
    assert_eq!(latency.queueing_time(100), Ok(300));
    let constants = LatencyConstants {
        shortest_step_us: 50,
        output_token_us: 0,
        post_decode_us: 7,
        scheduling_us: 0,
        preemption_us: 0,
    };
    assert_eq!(latency.constants(), Ok(constants));
    assert_eq!(start(Kind::Saturation, plugin).saturation(&service.view()), Ok(service.view().now.0 as f64 / 4.0));
    let band = Band { priority: 4, queued: 25, oldest_wait_us: 7 };
    let mut ceilings = Vec::new();
    start(Kind::Ceilings, plugin).ceilings(Micros(9), 0.5, &[band], &mut ceilings).expect("a ceiling");
    assert_eq!(ceilings, [0.75]);
    let flows =
        [0, 1].map(|index| Flow { tenant: request.tags.tenant.0, ..crate::fields::rows::usual(index, Micros::ZERO) });
    let pick = |saturation| start(Kind::Fairness, plugin).fair_pick(Micros(9), saturation, band, &flows);
    assert_eq!([pick(0.5), pick(1.5)], [Ok(1), Ok(0)]);
    assert_eq!(start(Kind::Ordering, plugin).order(&view, Micros(9), Micros(50)), Ok(150.0));
    let in_flight =
        [0, 1].map(|index| InFlight { input_tokens: index + 5, ..crate::fields::rows::usual(0, Micros::ZERO) });
    let evict = |priority| start(Kind::Eviction, plugin).evict(Micros(9), Band { priority, ..band }, &in_flight);
    assert_eq!([evict(4), evict(2)], [Ok(Some(1)), Ok(None)]);
    let group = |queued, completed| GroupRow { queued, completed, model: request.tags.tenant.0, ..GroupRow::default() };
    let (groups, before) = ([group(1, 0), group(2, 0)], [9, 9, 10, 20].map(|completed| group(0, completed)));
    let mut targets = Vec::new();
    start(Kind::Scaling, plugin).scale(Micros(9), &groups, &before, &mut targets).expect("targets");
    assert_eq!(targets, [111.0, 122.0]);
    let model = request.tags.tenant.0;
    let replicas = [3, 5, 4].map(|batch_size| ReplicaRow { batch_size, ..ReplicaRow::default() });
    let drained = |replicas_of| {
        let group = DrainGroupRow { model, replicas: replicas_of, ..DrainGroupRow::default() };
        start(Kind::Drain, plugin).drain(&group, &replicas)
    };
    assert_eq!([drained(4), drained(2)], [Ok(1), Ok(0)]);
    let nodes = [(4, 8), (5, 2)].map(|(node, free_gpus)| NodeRow { node, free_gpus, ..NodeRow::default() });
    let placed = |gpus| {
        let replica = StartingReplicaRow { model, gpus, ..StartingReplicaRow::default() };
        start(Kind::Placement, plugin).placement(&replica, &nodes)
    };
    assert_eq!([placed(2), placed(4)], [Ok(Some(1)), Ok(None)]);
    let chunks = [1, 3].map(|count| ChunkRow { uses: count, offers: count, ..ChunkRow::default() });
    let mut numbers = Vec::new();
    start(Kind::KvCache, plugin).keep(Micros(9), &chunks, &mut numbers).expect("ranks");
    assert_eq!(numbers, [10.0, 12.0]);
    numbers.clear();
    start(Kind::KvCache, plugin).store(&ChunkOfferRow::default(), &chunks, &mut numbers).expect("numbers");
    assert_eq!(numbers, [0.0, 1.0]);
    let loads = |tokens| {
        let hit = TierHitRow { tokens, prefill_tokens: 4, ..TierHitRow::default() };
        start(Kind::KvCache, plugin).load(&hit)
    };
    assert_eq!([loads(5), loads(4)], [Ok(true), Ok(false)]);
    let pool =
        [7, 3].map(|count| PoolInstanceRow { uncached_tokens: count, in_flight: count, ..PoolInstanceRow::default() });
    let prefilled = |chosen| {
        let request = RoutedRequestRow { chosen, transfer_tokens: 5, ..RoutedRequestRow::default() };
        start(Kind::Disaggregation, plugin).disaggregate(&request, &pool, &pool)
    };
    let choice = |remote| Ok(PrefillChoiceRow::new(remote).prefilled_by(1));
    assert_eq!([prefilled(0), prefilled(1)], [choice(true), choice(false)]);
    let state = StepState { max_num_batched_tokens: 100, decoding: 30, waiting: 4, ..StepState::default() };
    let budget = start(Kind::Batching, plugin).record(crate::Function::Budget, Micros::ZERO, &state);
    assert_eq!(budget, Ok(StepBudget { prefill_tokens: 70, reserve: 10, ..StepBudget::default() }));
    let event = Event {
        at: Micros(9),
        kind: EventKind::Completed,
        request: RequestId(9),
        instance: Some(InstanceIndex(1)),
        input_tokens: 100,
        generated_tokens: 5,
        ttft: None,
        e2e: Some(Micros(70)),
        tags: request.tags,
        block: 0,
    };
    let mut fresh = latency.save().unwrap();
    latency.observe(&event).unwrap();
    assert_ne!(latency.save().unwrap(), fresh);
    latency.restore(&fresh).unwrap();
    fresh = latency.save().unwrap();
    latency.observe(&Event { kind: EventKind::BlockStored, e2e: None, block: 5, ..event }).unwrap();
    assert!(latency.used().is_some_and(|steps| steps > 0));
    assert_ne!(latency.save().unwrap(), fresh);
    assert_eq!(latency.used(), Some(0), "the operations of a call are charged once");
}

#[test]
fn a_fork_goes_on_alike_and_apart() {
    let source = "
        fn init() { #{ turns: 0, log: [column(2, 1.5)] } }
        fn route(r, s) { this.turns += 1; this.log.push(this.turns); (this.turns + pick(2) + floor(random() * 4)) % s.len }
    ";
    let mut original = guest(Kind::Routing, source);
    let service = ScriptService::idle(64);
    let call = |guest: &mut dyn Guest, id| {
        let ties = Ties::Random(Stream::new(1, "router"));
        guest.route(&seen(&request(id)), &service.view(), &ties, &mut Vec::new()).unwrap()
    };
    let _ = (call(original.as_mut(), 1), call(original.as_mut(), 2));
    let mut fork = original.fork().unwrap();
    let mut restored = guest(Kind::Routing, source);
    restored.restore(&original.save().unwrap()).unwrap();
    let path: Vec<_> = (3..20).map(|id| call(original.as_mut(), id)).collect();
    assert_eq!(path, (3..20).map(|id| call(fork.as_mut(), id)).collect::<Vec<_>>());
    assert_eq!(path, (3..20).map(|id| call(restored.as_mut(), id)).collect::<Vec<_>>());
    assert_eq!(original.save().unwrap(), fork.save().unwrap());
    let _ = call(fork.as_mut(), 20);
    assert_ne!(original.save().unwrap(), fork.save().unwrap(), "nothing is shared");
}

#[test]
fn a_script_gets_what_changed() {
    // The test calls the script with four changed indices, of which the state has too few.
    let source = "// @events routed
        fn describe() {
            let indices = changed();
            if indices == () { return `any of ${this.calls}`; }
            this.calls += 1;
            if indices.len == 4 { throw `too much`; }
            `${indices}`
        }
        fn init() { #{ calls: 0 } }
        fn admit(r, s) { this.describe() }
        fn observe(e) { if changed() != () { throw `no decision`; } }
    ";
    let mut guest = guest(Kind::Admission, source);
    let reads = Reads { load: true, in_flight: true, ..Reads::NOTHING };
    let mut service = inputs::SyntheticService::new(9);
    let mut advance = |decisions| {
        (0..decisions).for_each(|_| service.advance(reads));
        service.clone()
    };
    let call = |guest: &mut dyn Guest, service: &inputs::SyntheticService| match guest
        .admit(&service.request(), &service.cluster())
    {
        Ok(AdmissionDecision::Reject(reason)) => reason.to_string(),
        other => panic!("{other:?}"),
    };
    let outputs: Vec<_> = (0..5).map(|_| call(guest.as_mut(), &advance(1))).collect();
    assert_eq!(outputs, ["any of 0", "[7, 4]", "[5, 8]", "[3, 3]", "[1, 7]"]);
    let event = inputs::event(9, 0, blis_sim::policy::Events { routed: true, ..blis_sim::policy::Events::NONE });
    guest.observe(&event.expect("one")).expect("no decision");
    let later = advance(1);
    let mut fork = guest.fork().expect("forks");
    assert_eq!([&mut fork, &mut guest].map(|guest| call(guest.as_mut(), &later)), ["any of 4", "[8, 2]"]);
    let state = guest.save().expect("saves");
    guest.restore(&state).expect("restores");
    assert_eq!([(); 2].map(|()| call(guest.as_mut(), &later)), ["any of 5", "[]"]);
    let later = advance(2);
    guest.admit(&later.request(), &later.cluster()).expect_err("four are too much");
    assert_eq!(call(guest.as_mut(), &later), "any of 7", "it may have missed a result");
}

#[test]
fn randomness_depends_on_request_and_turn_only() {
    let mut guest = router("let a = random(); let b = random(); [a, b]");
    let mut call = |id| {
        let mut scores = Vec::new();
        guest.route(&seen(&request(id)), &ScriptService::idle(2).view(), &Ties::LowestIndex, &mut scores).unwrap();
        scores
    };
    let first = call(1);
    assert!(first.iter().all(|x| (0.0..1.0).contains(x)) && first[0] != first[1], "{first:?}");
    assert_ne!(first, call(2));
    assert_eq!(first, call(1));
}

#[test]
fn parameters_and_constants_are_seen_everywhere() {
    let source = "
        // @param alpha 0.5 0 1
        // @param beta 2 0 9 the other
        const GAMMA = sqrt(16.0) + beta;
        const TABLE = #{ batch: 10.0, other: 1.0 };
        fn helper(x) { x * alpha }
        fn route(r, s) { let f = |x| x + beta; [helper(8), f.call(GAMMA), TABLE[r.slo_class]] }
    ";
    let plugin = script(source).unwrap();
    let scores = |parameters: &[f64]| {
        let setup = GuestSetup { parameters: parameters.to_vec(), ..setup(Kind::Routing, plugin.as_ref()) };
        let mut guest = plugin.start(&setup).unwrap();
        route_on(guest.as_mut(), &ScriptService::idle(3)).unwrap().1
    };
    assert_eq!(scores(&[0.5, 2.0]), [4.0, 8.0, 10.0]);
    assert_eq!(scores(&[0.25, 1.0]), [2.0, 6.0, 10.0]);
    let wrong = GuestSetup { parameters: vec![1.0], ..setup(Kind::Routing, plugin.as_ref()) };
    assert_eq!(plugin.start(&wrong).unwrap_err().kind, FaultKind::Refused);
}

#[test]
fn only_columns_with_their_name_in_the_code_are_read() {
    let reads = |code: &str| script(&format!("fn admit(r, s) {{ {code}; true }}")).unwrap().description().reads;
    let reads = [
        "true",
        "s.queue_depth",
        "s.load_staleness",
        "r.tenant_in_flight",
        "s.effective_load",
        "`${s.cached_blocks}`",
        "1 // s.in_flight\n",
    ]
    .map(reads)
    .map(|reads| [reads.load, reads.in_flight, reads.cached_blocks].map(u8::from));
    assert_eq!(reads, [[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]]);
}

/// One number per request in flight does not fit an object map.
#[test]
fn a_column_of_keys_reads_and_sets_many_numbers() {
    const SOURCE: &str = r"
fn init() { #{ kept: table() } }

fn route(r, s) {
    // Ascending and far apart, in any order, twice the same; the first numbers are new, the second are there.
    for keys in [s.indices * 7.0, 100.0 - s.indices * 3.0, s.indices % 3, s.queue_depth] {
        for numbers in [s.indices + 0.5, -s.indices] {
            let one_by_one = this.kept;
            for i in 0..s.len { one_by_one[to_int(keys[i])] = numbers[i]; }
            let before = this.kept.contains(keys);
            for i in 0..s.len { if (before[i] == 1.0) != (to_int(keys[i]) in this.kept) { throw `contains ${i}`; } }
            this.kept.set(keys, numbers);
            if `${this.kept}` != `${one_by_one}` { throw `${keys}: ${this.kept} instead of ${one_by_one}`; }
            let read = this.kept.get(keys + 1, -9.0);
            for i in 0..s.len {
                let one = one_by_one[to_int(keys[i]) + 1] ?? -9.0;
                if read[i] != one { throw `${keys[i]}: ${read[i]} instead of ${one}`; }
            }
        }
    }
    this.kept.set(s.indices, 5);
    this.kept.get(s.indices, 0.0)
}";
    let mut guest = guest(Kind::Routing, SOURCE);
    for n in [0, 1, 2, 9, 40] {
        let service = ScriptService::idle(n).with(|signals| {
            signals.queue_depth = (0..n as u32).map(|i| i * 37 % 11).collect();
        });
        let mut scores = Vec::new();
        let request = request(1);
        let routed = guest.scores(&seen(&request), &service.view(), &Ties::LowestIndex, None, &mut scores);
        assert_eq!(routed.map_err(|fault| fault.to_string()), Ok(()), "{n}");
        assert_eq!(scores, vec![5.0; n]);
    }
    let fault = |body: &str| {
        let mut guest = start(Kind::Routing, &*script(&format!("fn route(r, s) {{ {body} }}")).expect("loads"));
        let service = ScriptService::idle(2);
        let fault = guest.route(&seen(&request(1)), &service.view(), &Ties::LowestIndex, &mut Vec::new());
        fault.expect_err("is wrong").to_string()
    };
    let fraction = fault("table().get(s.indices + 0.5, 0)");
    assert!(fraction.contains("a key of a table is a whole number, not 0.5"), "{fraction}");
    let lengths = fault("let t = table(); t.set(s.indices, zeros(3)); 0");
    assert!(lengths.contains("2 keys and 3 numbers: each key gets one"), "{lengths}");
    let large = fault("let t = table(); t.set(indices(65536), 0); t.set(indices(65536) + 65536, 0); 0");
    assert!(large.contains("a table of more than 65536 numbers"), "{large}");
}

#[test]
fn a_table_keeps_many_numbers() {
    let text = "
fn init() { #{ sent: table() } }
fn route(r, s) {
    for i in 0..20000 { this.sent[i] = i; }
    let copy = this.sent;
    copy[7] = 0.5;
    let t = table();
    t[-3] = 2;
    let checks = [
        this.sent.len == 20000, len(this.sent) == 20000, this.sent[7] == 7.0, copy[7] == 0.5,
        this.sent[20000] == (), 19999 in this.sent, !(20000 in this.sent),
        this.sent.remove(7) == 7.0, this.sent.remove(7) == (), this.sent.len == 19999, copy.len == 20000,
        t.add(-3, 1) == 3.0, t.add(4, 0.5) == 0.5, t.keys().to_array() == [-3.0, 4.0], t.values().to_array() == [3.0, 0.5],
        t.sum() == 3.5, t.to_string() == \"{-3: 3.0, 4: 0.5}\",
    ];
    t.clear();
    if t.len != 0 || checks.contains(false) { throw `${checks}`; }
    -s.in_flight
}
";
    page::exercise(&script(text).unwrap_or_else(|fault| panic!("{fault}")));
}
