//! What policies can know about output lengths before outputs are complete: a search over all signals of requests.
//!
//! A script returns every signal that it sees as the score of an instance, so that an observer gets the numbers as the
//! script computed them. The search correlates them with the output lengths of requests of the same kind: each signal, its
//! difference from the request before and from the next one, if that arrives while the request is still in service, and
//! differences and ratios of two of all these.

use std::collections::BTreeMap;

use blis_sim::ids::RequestId;
use blis_sim::observer::{Interests, SimEvent};
use blis_sim::outcome::Decision;

use super::*;
use crate::evaluation::candidate::CandidatePolicy;

/// Signals that the script returns, in this order.
const SIGNALS: [&str; 27] = [
    "r.max_output_tokens ?? 0",
    "r.id",
    "r.arrival",
    "r.now - r.arrival",
    "r.deadline ?? 0",
    "r.input_tokens",
    "r.prompt_blocks",
    "r.shared_blocks",
    "r.block_size",
    "r.class_priority",
    "r.client_priority ?? 0",
    "r.round_index",
    "r.tenant_in_flight ?? 0",
    "hash(r.session) % 1000003",
    "hash(r.prefix_group) % 1000003",
    "hash(r.tenant) % 1000003",
    "n",
    "first",
    "last",
    "last - first",
    "sum(r.blocks)",
    "sum(s.in_flight)",
    "sum(s.queue_depth)",
    "sum(s.batch_size)",
    "sum(s.free_kv_blocks)",
    "sum(s.cached_blocks)",
    "max(s.cached_blocks)",
];
/// Number of instances: one for each signal, and some behind them that get the requests.
const INSTANCES: usize = 48;
/// The signal that a client announces.
const ANNOUNCED: usize = 0;

/// One request as the script saw it, and what became of it.
#[derive(Clone, Debug, Default)]
struct SeenRequest {
    /// Requests of one kind have the same distribution of output lengths.
    kind: String,
    session: u32,
    at: Micros,
    ended: Micros,
    signals: Vec<f64>,
    /// The last key of its blocks, which no policy sees.
    hidden_key: f64,
    output: f64,
}

/// Records what the script returned.
#[derive(Default)]
struct SignalRecorder {
    names: Vec<String>,
    order: Vec<RequestId>,
    seen: BTreeMap<RequestId, SeenRequest>,
}

impl Observer for SignalRecorder {
    fn interests(&self) -> Interests {
        Interests::DECISIONS | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match event {
            SimEvent::Decision(Decision::Routing { request, cluster, scores, .. }) => {
                self.order.push(request.id);
                let client = &self.names[request.tags.client.index()];
                let seen = SeenRequest {
                    // The members of a cohort are alike.
                    kind: client.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
                    session: request.tags.session.0,
                    at: cluster.now,
                    signals: scores[..SIGNALS.len()].to_vec(),
                    hidden_key: request.shared_blocks().last().map_or(f64::NAN, f64::from),
                    ..SeenRequest::default()
                };
                self.seen.insert(request.id, seen);
            }
            SimEvent::Outcome(outcome) => {
                if let Some(seen) = self.seen.get_mut(&outcome.id).filter(|_| outcome.completed()) {
                    seen.ended = outcome.ended_at;
                    seen.output = f64::from(outcome.generated_tokens);
                }
            }
            _ => {}
        }
    }
}

/// All requests of one scenario of `suite`, in the order of their routing.
fn requests(suite: Suite, scenario: usize) -> Vec<SeenRequest> {
    let script = format!(
        "fn route(r, s) {{ if s.len < {INSTANCES} {{ return 0; }}
         let n = r.blocks.len; let first = if n > 0 {{ r.blocks[0] }} else {{ 0.0 }};
         let last = if n > 0 {{ r.blocks[n - 1] }} else {{ 0.0 }};
         let list = [{}]; list.pad(s.len, 0.0);
         list[{} + r.id % {}] = 1e300; list }}",
        SIGNALS.join(", "),
        SIGNALS.len(),
        INSTANCES - SIGNALS.len()
    );
    let prepared = EvaluationSuite::new(suite).expect("a suite");
    let script = CandidatePolicy::new("signals.rhai".to_owned(), Technology::Script, script.into_bytes());
    let loaded = script.load(&prepared.suite.limits).expect("it compiles");
    let policy = prepared.candidate(&loaded, &[]).expect("it routes");
    let recorder = |_: &Experiment, workload: &ScenarioWorkload| SignalRecorder {
        names: workload.names.texts().iter().map(|text| text.to_string()).collect(),
        ..SignalRecorder::default()
    };
    let limit = SimulationLimit { handle: &Arc::default(), budget: u64::MAX };
    let measured = prepared.simulate(&policy, RunKey { scenario, seed: 7 }, limit, recorder);
    let mut recorder = measured.map_err(|failure| failure.text()).expect("it runs").0.observer;
    recorder.order.iter().filter_map(|id| recorder.seen.remove(id)).filter(|seen| seen.output > 0.0).collect()
}

/// `suite` with an instance for each signal and with `count` requests.
fn widened(mut suite: Suite, count: usize) -> Suite {
    // The script that records signals is a routing policy.
    suite.decides = vec![Kind::Routing];
    (suite.baseline, suite.reference) = ("round-robin".to_owned(), "round-robin".to_owned());
    suite.reference_policies.clear();
    // Roles would divide the instances.
    let has_roles = |name: &str| ["prefill-", "decode-", "pd-"].iter().any(|prefix| name.starts_with(prefix));
    for scenario in &mut suite.scenarios {
        scenario.flags.retain(|(name, _)| !has_roles(name));
        let more = [("num-instances", INSTANCES.to_string()), ("num-requests", count.to_string())];
        scenario.flags.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    suite
}

/// A suite with one workload.
fn of_workload(clients: &str) -> Suite {
    let text = format!(
        "schema: 1\nname: one\nweights: mean_e2e:1\nrun: {{model: meta-llama/llama-3.1-8b-instruct}}\nscenarios:\n  \
         - name: only\n    splits: [smoke, train]\n    workload: |\n      version: \"2\"\n      aggregate_rate: 20\n      \
         clients:\n{clients}"
    );
    widened(Suite::parse("one.yaml", &text).expect("a suite"), 1500)
}

/// One kind of client, with prompts of constant length, so that nothing hides what prompts show.
fn client(more: &str) -> String {
    format!(
        "        - {{id: a, rate_fraction: 1, arrival: {{process: poisson}}, input_distribution: {{type: constant, params: \
         {{value: 320}}}}, output_distribution: {{type: exponential, params: {{mean: 200}}}}{more}}}\n"
    )
}

/// A predictor and how well it does: |r| between it and the output length, and that times √n.
#[derive(Clone, Debug, Default)]
struct Predictor {
    name: String,
    r: f64,
    significance: f64,
}

/// |r| of the pairs without gaps, and their number.
fn correlation(predictor: &[f64], output: &[f64]) -> (f64, usize) {
    let pairs: Vec<(f64, f64)> =
        predictor.iter().zip(output).filter(|(x, _)| x.is_finite()).map(|(&x, &y)| (x, y)).collect();
    let n = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (a, b) in &pairs {
        xx += (a - x) * (a - x);
        yy += (b - y) * (b - y);
        xy += (a - x) * (b - y);
    }
    let varies = xx > 1e-9 * (1.0 + x * x) && yy > 0.0;
    (if varies { (xy / (xx * yy).sqrt()).abs() } else { 0.0 }, pairs.len())
}

/// The position of each value in their order, with gaps where there are gaps. Equal values share their mean position.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).filter(|&index| values[index].is_finite()).collect();
    order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    let mut ranks = vec![f64::NAN; values.len()];
    let mut start = 0;
    while start < order.len() {
        let equal = order[start..].iter().take_while(|&&index| values[index] == values[order[start]]).count();
        for &index in &order[start..start + equal] {
            ranks[index] = start as f64 + equal as f64 / 2.0;
        }
        start += equal;
    }
    ranks
}

/// The best predictor of output lengths among the signals and their combinations, beside the announced limit.
fn search(all: &[SeenRequest]) -> (Predictor, Predictor) {
    /// Fewer pairs show nothing.
    const FEWEST: usize = 300;
    let mut kinds: Vec<&str> = all.iter().map(|one| one.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let (mut best, mut announced) = (Predictor::default(), Predictor::default());
    for kind in kinds {
        let own: Vec<usize> = (0..all.len()).filter(|&index| all[index].kind == kind).collect();
        let outputs: Vec<f64> = own.iter().map(|&index| all[index].output).collect();
        let output = ranks(&outputs);
        let features = features(all, &own);
        let mut consider = |name: &dyn Fn() -> String, values: &[f64]| {
            let (r, n) = correlation(values, &output);
            let significance = r * (n as f64).sqrt();
            if n >= FEWEST && significance > best.significance {
                best = Predictor { name: format!("{kind}: {}", name()), r, significance };
            }
        };
        for (name, values) in &features[1..] {
            consider(&|| name.clone(), &ranks(values));
        }
        for (index, (one, x)) in features.iter().enumerate() {
            for (other, y) in &features[..index] {
                let pairs = || x.iter().zip(y);
                let difference: Vec<f64> = pairs().map(|(x, y)| x - y).collect();
                consider(&|| format!("({one}) - ({other})"), &difference);
                let ratio: Vec<f64> = pairs().map(|(x, y)| if *y == 0.0 { f64::NAN } else { x / y }).collect();
                consider(&|| format!("({one}) / ({other})"), &ratio);
            }
        }
        let (r, n) = correlation(&ranks(&features[ANNOUNCED].1), &output);
        let significance = r * (n as f64).sqrt();
        if significance > announced.significance {
            announced = Predictor { name: kind.to_owned(), r, significance };
        }
    }
    (best, announced)
}

/// The signals of the requests `own` among `all`, and their differences from other requests. The first is the announced
/// limit.
fn features(all: &[SeenRequest], own: &[usize]) -> Vec<(String, Vec<f64>)> {
    let in_service = |index: usize, later: usize| all[later].at < all[index].ended;
    let next = |index: usize| Some(index + 1).filter(|&later| later < all.len() && in_service(index, later));
    let mut next_of_session = vec![None; all.len()];
    let mut latest: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, one) in all.iter().enumerate().filter(|(_, one)| one.session != 0) {
        if let Some(before) = latest.insert(one.session, index) {
            next_of_session[before] = Some(index).filter(|&later| in_service(before, later));
        }
    }
    let mut features = Vec::new();
    for (number, signal) in SIGNALS.iter().enumerate() {
        let value = |index: usize| all[index].signals[number];
        let apart = |from: &dyn Fn(usize) -> Option<usize>| -> Vec<f64> {
            own.iter().map(|&index| from(index).map_or(f64::NAN, |other| value(other) - value(index))).collect()
        };
        features.push(((*signal).to_owned(), own.iter().map(|&index| value(index)).collect()));
        features.push((format!("{signal} of the next request"), apart(&next)));
        features.push((format!("{signal} of the next round"), apart(&|index| next_of_session[index])));
        features.push((format!("{signal} of the request before"), apart(&|index| index.checked_sub(1))));
    }
    // Constant ones only take time, but the first must stay the announced one.
    let varies = |values: &[f64]| {
        let mut finite = values.iter().filter(|value| value.is_finite());
        finite.next().is_some_and(|first| finite.any(|value| value != first))
    };
    let mut number = 0;
    features.retain(|(_, values)| {
        number += 1;
        number == 1 || varies(values)
    });
    features
}

/// √n · r of noise is standard normal; the largest of ten thousand is about 4.
const NOISE: f64 = 6.0;

fn shows_nothing(name: &str, all: &[SeenRequest]) {
    let (best, announced) = search(all);
    println!("{name}: {} requests, announced r = {:.3}, best r = {:.3}: {}", all.len(), announced.r, best.r, best.name);
    assert!(announced.significance < NOISE, "{name}: the announced limit is the length: {announced:?}");
    assert!(best.significance < NOISE.max(announced.significance), "{name}: {best:?}");
}

#[test]
fn no_signal_of_generated_requests_shows_their_output_lengths() {
    let turns = "reasoning: {multi_turn: {max_rounds: 5, think_time_us: 50000, context_growth: accumulate}}";
    let workloads = [
        ("single requests", String::new()),
        ("shared prompts", ", prefix_group: p, prefix_length: 640".to_owned()),
        ("sessions in closed loop", format!(", {turns}")),
        ("sessions in open loop", format!(", {turns}, closed_loop: false")),
    ];
    for (name, more) in workloads {
        shows_nothing(name, &requests(of_workload(&client(&more)), 0));
    }
    // Where the gaps between requests are as long as their service, those still in service tell that they are long, as they
    // do in production.
    let is_sparse = |suite: &Suite| suite.decides.contains(&Kind::KvCache);
    let suites = Suite::built_in().into_iter().map(|suite| Suite::open(&suite).expect("built in"));
    for suite in suites.filter(|suite| !is_sparse(suite)) {
        let suite = widened(suite, 1200);
        let scenario = suite.scenarios_in(crate::suite::Split::Train)[0];
        shows_nothing(&suite.name.clone(), &requests(suite, scenario));
    }
}

/// The search finds lengths where they are: announced as in BLIS, and in the order of the keys of blocks.
#[test]
fn the_search_finds_what_is_shown() {
    let blis = requests(of_workload(&client(", max_tokens: length")), 0);
    assert!(search(&blis).1.r > 0.99, "{:?}", search(&blis));
    let turns = ", reasoning: {multi_turn: {max_rounds: 5, think_time_us: 50000, context_growth: accumulate}}";
    let mut keys = requests(of_workload(&client(turns)), 0);
    let last = SIGNALS.iter().position(|signal| *signal == "last").expect("there is one");
    keys.iter_mut().for_each(|one| one.signals[last] = one.hidden_key);
    assert!(search(&keys).0.significance > NOISE, "{:?}", search(&keys).0);
}
