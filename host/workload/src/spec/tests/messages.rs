//! Mistakes are reported with location and hint; valid specifications are accepted.

use super::super::arrival::IntervalShape;
use super::*;

const CLIENT: &str = "\
aggregate_rate: 10
num_requests: 5
clients:
  - id: chat
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: constant, params: { value: 100 } }
    output_distribution: { type: constant, params: { value: 10 } }
";

/// The client with one line replaced, or with more lines after it.
fn with(line: &str, by: &str) -> String {
    assert!(CLIENT.contains(line), "{line}");
    CLIENT.replace(line, by)
}

fn and(more: &str) -> String {
    format!("{CLIENT}    {more}\n")
}

#[test]
fn everything_the_schema_has_is_understood() {
    let spec = parse(include_str!("everything.yaml"));
    assert_eq!((spec.seed, spec.num_requests, spec.horizon), (Some(7), Some(1000), Some(secs(60))));
    assert_eq!((spec.aggregate_rate, spec.category.as_str()), (25.0, "language"));
    assert_eq!(spec.goodput_slo_targets["critical"].ttft_ms, Some(200.0));
    let [chat, vision] = &spec.clients[..] else { panic!("{:?}", spec.clients) };
    assert_eq!(chat.arrival, Arrival::Gamma(IntervalShape::Cv(2.5)));
    assert_eq!(chat.prefix, Some(Prefix { group: "system".into(), tokens: 64 }));
    assert_eq!(
        chat.multi_turn,
        Some(MultiTurn { max_rounds: 3, think_time: secs(5), accumulate: true, single_session: false })
    );
    assert_eq!(
        (chat.closed_loop, chat.timeout, chat.slo_target),
        (false, Timeout::After(secs(30)), Some(Micros(500_000)))
    );
    assert_eq!(chat.windows.iter().map(|w| w.rate).collect::<Vec<_>>(), [WindowRate::Usual, WindowRate::Weight(2.0)]);
    assert_eq!(chat.network.unwrap().transfer_secs(25_000), 0.008);
    assert_eq!(vision.arrival, Arrival::Weibull(IntervalShape::Own { shape: 0.7, scale_us: 90_000.0 }));
    let parts = vision.multimodal.as_ref().unwrap();
    assert_eq!(parts.items[0], Some((Lengths::Constant(576), Lengths::gaussian(2.0, 1.0, 1, 4))));
    let cohort = &spec.cohorts[0];
    assert_eq!((cohort.population, cohort.prefix_sharing), (20, PrefixSharing::PerMember));
    assert_eq!(cohort.windows().len(), 24 + 1 + 11);
    assert!(matches!(cohort.client.input, Lengths::ParetoLogNormal { .. }));
    assert_eq!(spec.warnings.len(), 1, "{:?}", spec.warnings);
    let media: Vec<u32> = requests(&spec).0.iter().map(|request| request.media_tokens).collect();
    assert!(media.iter().all(|tokens| tokens % 576 == 0), "{media:?}");
    assert!(media.iter().any(|&tokens| tokens > 576) && media.contains(&0), "{media:?}");
}

#[test]
fn version_one_has_other_names_for_classes() {
    let class = |version: &str, name: &str| {
        parse(&format!("{version}{}", and(&format!("slo_class: {name}")))).clients[0].slo_class.clone()
    };
    assert_eq!([class("", "realtime"), class("version: \"1\"\n", "interactive")], ["critical", "standard"]);
    insta::assert_snapshot!(error(&format!("version: 2\n{}", and("slo_class: realtime"))), @r"
    spec.yaml:10:16: client `chat`: `slo_class` is `realtime`
      10 |     slo_class: realtime
         |                ^^^^^^^^
    hint: known are critical, standard, sheddable, batch, background
    ");
}

#[test]
fn whole_numbers_may_be_written_with_exponents() {
    let spec = parse(&with("num_requests: 5", "horizon: 6e7"));
    assert_eq!(spec.horizon, Some(secs(60)));
}

#[test]
fn unknown_keys_are_shown_with_the_nearest() {
    insta::assert_snapshot!(error(&with("rate_fraction", "rate_fration")), @r"
    spec.yaml:5:5: unknown key `rate_fration`
      5 |     rate_fration: 1
        |     ^^^^^^^^^^^^
    hint: did you mean `rate_fraction`?
    ");
    insta::assert_snapshot!(error(&with("{ value: 100 }", "{ vlaue: 100 }")), @r"
    spec.yaml:7:53: client `chat`: input_distribution: unknown parameter `vlaue`
      7 |     input_distribution: { type: constant, params: { vlaue: 100 } }
        |                                                     ^^^^^
    hint: did you mean `value`?
    ");
    insta::assert_snapshot!(error(&with("poisson", "poison")), @r"
    spec.yaml:6:25: client `chat`: arrival: `process` is `poison`
      6 |     arrival: { process: poison }
        |                         ^^^^^^
    hint: did you mean `poisson`?
    ");
    insta::assert_snapshot!(error(&with("type: constant, params: { value: 100 }", "type: gausian")), @r"
    spec.yaml:7:33: client `chat`: input_distribution: `type` is `gausian`
      7 |     input_distribution: { type: gausian }
        |                                 ^^^^^^^
    hint: did you mean `gaussian`?
    ");
    insta::assert_snapshot!(error(&and("population: 3")), @r"
    spec.yaml:9:17: client `chat`: `population` belongs to a cohort
      9 |     population: 3
        |                 ^
    hint: move it from `clients` to `cohorts`, or leave it out
    ");
}

#[test]
fn values_out_of_range_name_client_and_field() {
    insta::assert_snapshot!(error(&with("rate_fraction: 1", "rate_fraction: -1")), @r"
    spec.yaml:5:20: client `chat`: `rate_fraction` is `-1`
      5 |     rate_fraction: -1
        |                    ^^
    hint: it must be a number from 0 to 1e9
    ");
    insta::assert_snapshot!(error(&with("rate_fraction: 1", "rate_fraction: 0")), @r"
    spec.yaml:5:20: client `chat`: `rate_fraction` is `0`
      5 |     rate_fraction: 0
        |                    ^
    hint: its share of the aggregate rate is a number above 0
    ");
    insta::assert_snapshot!(error(&with("{ process: poisson }", "{ process: weibull, cv: 20 }")), @r"
    spec.yaml:6:38: client `chat`: arrival: `cv` is out of range
      6 |     arrival: { process: weibull, cv: 20 }
        |                                      ^^
    hint: it must be a number from 0.01 to 10.4
    ");
    insta::assert_snapshot!(error(&with("{ process: poisson }", "{ process: gamma, shape: 2 }")), @r"
    spec.yaml:6:14: client `chat`: arrival: `shape` and `scale` go together
      6 |     arrival: { process: gamma, shape: 2 }
        |              ^
    hint: give both, instead of the rate, or only `cv`
    ");
    insta::assert_snapshot!(error(&with("type: constant, params: { value: 100 }", "type: gaussian, params: { mean: 5, std_dev: 1, min: 9, max: 3 }")), @r"
    spec.yaml:7:79: client `chat`: input_distribution: `min` is 9, more than `max`, 3
      7 |     input_distribution: { type: gaussian, params: { mean: 5, std_dev: 1, min: 9, max: 3 } }
        |                                                                               ^
    hint: the minimum must not exceed the maximum
    ");
    insta::assert_snapshot!(error(&with("type: constant, params: { value: 100 }", "type: gaussian, params: { mean: 5, std_dev: 1, min: 1 }")), @r"
    spec.yaml:7:33: client `chat`: input_distribution: params: `max` is missing
      7 |     input_distribution: { type: gaussian, params: { mean: 5, std_dev: 1, min: 1 } }
        |                                 ^^^^^^^^
    hint: add `max: …`
    ");
    insta::assert_snapshot!(error(&with("type: constant, params: { value: 100 }", "type: empirical, params: { 10: 0 }")), @r"
    spec.yaml:7:33: client `chat`: input_distribution: no probability is above 0
      7 |     input_distribution: { type: empirical, params: { 10: 0 } }
        |                                 ^^^^^^^^^
    hint: at least one number of tokens needs a probability above 0
    ");
    insta::assert_snapshot!(error(&and("lifecycle: { windows: [{ start_us: 5, end_us: 5 }] }")), @r"
    spec.yaml:9:28: client `chat`: window: `end_us` 5 is not after `start_us` 5
      9 |     lifecycle: { windows: [{ start_us: 5, end_us: 5 }] }
        |                            ^
    hint: a window ends after it starts
    ");
    insta::assert_snapshot!(error(&and("reasoning: { multi_turn: { max_rounds: 0 } }")), @r"
    spec.yaml:9:44: client `chat`: multi_turn: `max_rounds` is `0`
      9 |     reasoning: { multi_turn: { max_rounds: 0 } }
        |                                            ^
    hint: it must be a whole number from 1 to 1000000
    ");
}

#[test]
fn contradictions_are_refused() {
    insta::assert_snapshot!(error(&and("concurrency: 4")), @r"
    spec.yaml:4:9: client `chat`: `rate_fraction` and `concurrency` both define how much it sends
      4 |   - id: chat
        |         ^^^^
    hint: keep one of them
    ");
    insta::assert_snapshot!(error(&with("aggregate_rate: 10", "aggregate_rate: 0")), @r"
    spec.yaml:4:9: client `chat` has no rate: `aggregate_rate` is 0, and each of its `lifecycle` windows needs a `trace_rate`
      4 |   - id: chat
        |         ^^^^
    hint: set `aggregate_rate`, in requests per second, or give every rate
    ");
    insta::assert_snapshot!(error(&format!("{CLIENT}inference_perf: {{}}\n")), @r"
    spec.yaml: `clients` and `inference_perf` both define the requests
    hint: keep one of them
    ");
    insta::assert_snapshot!(error("seed: 3\n"), @r"
    spec.yaml: no client sends requests
    hint: name `clients`, at least one
    ");
    insta::assert_snapshot!(error(""), @r"
    spec.yaml: the specification is empty
    hint: name `clients`, at least one
    ");
    let second = CLIENT.lines().skip(3).collect::<Vec<_>>().join("\n").replace("chat", "batch");
    insta::assert_snapshot!(error(&format!("{CLIENT}{second}\n    slo_class: batch\n")), @r"
    spec.yaml:4:9: client `chat` has no `slo_class`, client `batch` has one
      4 |   - id: chat
        |         ^^^^
    hint: name a class for all clients and cohorts, or for none
    ");
    let sessions = |more: &str| error(&with("rate_fraction: 1", &format!("sessions: 4{more}")));
    insta::assert_snapshot!(error(&and("sessions: 4")), @r"
    spec.yaml:5:20: client `chat`: `rate_fraction` cannot be used with `sessions`
      5 |     rate_fraction: 1
        |                    ^
    hint: keep the one that defines how much it sends
    ");
    insta::assert_snapshot!(sessions(""), @r"
    spec.yaml:5:15: client `chat`: `sessions` without `multi_turn`
      5 |     sessions: 4
        |               ^
    hint: describe its rounds under `reasoning`, `multi_turn`; users with one request at a time are `concurrency`
    ");
    let turns = "reasoning: { multi_turn: { max_rounds: 2";
    insta::assert_snapshot!(sessions(&format!("\n    closed_loop: false\n    {turns} }} }}")), @r"
    spec.yaml:6:18: client `chat`: `sessions` with `closed_loop: false`
      6 |     closed_loop: false
        |                  ^^^^^
    hint: a session begins when another has ended: leave it out
    ");
    insta::assert_snapshot!(sessions(&format!("\n    {turns}, single_session: true }} }}")), @r"
    spec.yaml:6:63: client `chat`: `single_session` with `sessions`
      6 |     reasoning: { multi_turn: { max_rounds: 2, single_session: true } }
        |                                                               ^^^^
    hint: leave it out: `sessions: 1` has one session at a time
    ");
    insta::assert_snapshot!(sessions(&format!("\n    think_time_us: 5\n    {turns} }} }}")), @r"
    spec.yaml:6:20: client `chat`: `think_time_us` cannot be used with `sessions`
      6 |     think_time_us: 5
        |                    ^
    hint: the think time of sessions is under `reasoning`, `multi_turn`
    ");
    let users = second.replace("rate_fraction: 1", "concurrency: 2");
    insta::assert_snapshot!(error(&format!("{}{users}\n", and("reasoning: { multi_turn: { max_rounds: 2 } }"))), @r"
    spec.yaml:4:9: client `chat` has `multi_turn`, client `batch` has `concurrency`
      4 |   - id: chat
        |         ^^^^
    hint: put them in specifications of their own
    ");
}

/// A specification of one file with any name.
struct SingleFile(&'static str);

impl Files for SingleFile {
    fn read(&self, _path: &Path) -> std::io::Result<String> {
        Ok(self.0.to_owned())
    }

    fn names(&self, _path: &Path) -> std::io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

#[test]
fn probabilities_may_come_from_a_file() {
    let text = with("type: constant, params: { value: 100 }", "type: empirical, file: lengths.csv");
    let expected = Lengths::Empirical(Empirical::new([(10, 1.0), (20, 3.0)]).unwrap().into());
    for file in
        ["tokens,probability\n10,0.25\n\n20,0.75\n", "10,1\n20,3", "{\"10\": 0.25, \"20\": 0.75}", "[[20, 3], [10, 1]]"]
    {
        let spec = Spec::parse("spec.yaml", &text, &SingleFile(file)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(spec.clients[0].input, expected, "{file}");
    }
    let fault = |file| Spec::parse("spec.yaml", &text, &SingleFile(file)).unwrap_err().to_string();
    insta::assert_snapshot!(fault("10,0.25\nten,0.75\n"), @r#"
    spec.yaml:7:50: lengths.csv:2: `ten,0.75` is no `tokens,probability`
      7 |     input_distribution: { type: empirical, file: lengths.csv }
        |                                                  ^^^^^^^^^^^
    hint: a line is `tokens,probability`; JSON is {"tokens": probability, …}
    "#);
    insta::assert_snapshot!(fault("{\"10\": 0.25,\n \"20\" 1}"), @r#"
    spec.yaml:7:50: lengths.csv:2: expected `:` at line 2 column 7
      7 |     input_distribution: { type: empirical, file: lengths.csv }
        |                                                  ^^^^^^^^^^^
    hint: a line is `tokens,probability`; JSON is {"tokens": probability, …}
    "#);
    insta::assert_snapshot!(error(&text), @r"
    spec.yaml:7:50: `lengths.csv` does not exist
      7 |     input_distribution: { type: empirical, file: lengths.csv }
        |                                                  ^^^^^^^^^^^
    hint: paths are relative to the specification
    ");
}

#[test]
fn inference_perf_stages_become_clients() {
    let text = "\
seed: 1
inference_perf:
  stages:
    - { rate: 8, duration: 10 }
  shared_prefix:
    num_unique_system_prompts: 2
    num_users_per_system_prompt: 2
    system_prompt_len: 100
    question_len: 50
    output_len: 20
";
    let (requests, _) = requests(&parse(text));
    assert_eq!(requests.len(), 80);
    assert!(requests.iter().all(|r| r.arrival < secs(10) && r.input_tokens == 150 && r.content.shared_blocks() == 6));
    insta::assert_snapshot!(error(&text.replace("rate: 8, ", "")), @r"
    spec.yaml:3:3: inference_perf: stage 1: `rate` is missing
      3 |   stages:
        |   ^
    hint: add `rate: …`
    ");
}
