//! Flags of evaluation: fitness, decision traces, regret.

use super::*;

pub(super) fn fitness_weights(t: &Trial) {
    let score =
        |weights: &str| number(&t.figures(&calm(), &format!("--num-instances 2 {{}} {weights}"))["fitness"], "score");
    // Round-robin against itself.
    assert_eq!(score("p99_ttft:1,throughput:2"), 1.0);
    assert!(t.figures(&calm(), "")["fitness"].is_null());
    assert!(t.error(&calm(), "{} p99_tft:1").contains("did you mean `p99_ttft`?"));
}

pub(super) fn fitness_scale(t: &Trial) {
    let fitness =
        |scale: &str| t.figures(&calm(), &format!("--fitness-weights throughput:1 {{}} {scale}"))["fitness"].clone();
    assert_eq!(number(&fitness("ratio"), "score"), 1.0);
    let (blis, figures) = (fitness("blis"), t.figures(&calm(), ""));
    let per_second = number(&figures, "responses_per_sec");
    assert!((number(&blis, "score") - per_second / (per_second + 100.0)).abs() < 1e-12);
}

pub(super) fn baseline(t: &Trial) {
    let score = |baseline: &str| {
        let flags = format!("--num-instances 3 --fitness-weights mean_e2e:1 {{}} {baseline}");
        number(&t.figures(&calm(), &flags)["fitness"], "score")
    };
    assert!(score("always-busiest") > score("round-robin"), "an easier opponent");
    assert!(t.error(&calm(), "--fitness-weights mean_e2e:1 {} round-robbin").contains("did you mean `round-robin`?"));
}

pub(super) fn trace_level(t: &Trial) {
    let figures = t.figures(&calm(), "{} decisions --summarize-trace");
    assert_eq!(number(&figures["decisions"], "total_decisions"), 20.0);
    assert!(t.error(&calm(), "{} none --summarize-trace").contains("needs `--trace-level decisions`"));
    assert!(t.error(&calm(), "--summarize-trace").contains("`--trace-level decisions`"));
}

pub(super) fn trace_path(t: &Trial) {
    let printed = t.figures(&calm(), "--num-instances 2 --trace-level decisions {} {dir}/d.jsonl");
    let lines = fs::read_to_string(t.folder.join("d.jsonl")).expect("written");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |what: &'static str| lines.iter().filter(move |line| line["kind"] == what);
    assert_eq!(["admission", "routing", "scheduling", "outcome"].map(|what| of(what).count()), [20; 4]);
    let chosen: Vec<_> = of("routing").map(|line| line["instance"].as_u64().map(|number| number as u32)).collect();
    assert_eq!(chosen, t.placements(&calm(), "--num-instances 2"));
    assert_eq!(printed, t.figures(&calm(), "--num-instances 2"), "watching changes nothing");
}

pub(super) fn counterfactual_k(t: &Trial) {
    let routed = |flags: &str| {
        let lines = t.decisions(&calm(), &format!("--num-instances 4 --routing-policy always-busiest {flags}"));
        lines.into_iter().filter(|line| line["kind"] == "routing").collect::<Vec<Value>>()
    };
    let candidates = |line: &Value| {
        let all = line["candidates"].as_array()?.clone();
        Some(all.into_iter().map(|one| (one["instance"].as_u64(), number(&one, "score"))).collect::<Vec<_>>())
    };
    assert!(routed("").iter().chain(&routed("{} 0")).all(|line| candidates(line).is_none()));
    let two = routed("{} 2");
    // The fourth request meets three on instance 0; the others are idle.
    let best = candidates(&two[3]).expect("candidates");
    assert_eq!(best, [(Some(1), -0.0), (Some(2), -0.0)], "two of four, best first, then in order");
    assert!(two[3]["instance"] == 0 && number(&two[3], "score_regret") >= 3.0, "{}", two[3]);
    let all = candidates(&routed("{} 99")[3]).expect("candidates");
    assert_eq!((all.len(), all[3].0, -all[3].1), (4, Some(0), number(&two[3], "score_regret")));
}

pub(super) fn summarize_trace(t: &Trial) {
    let flags = "--num-instances 2 --routing-policy always-busiest --trace-level decisions";
    assert_eq!(t.figures(&calm(), flags)["decisions"], Value::Null);
    let summary = t.figures(&calm(), &format!("{flags} {{}}"))["decisions"].clone();
    assert_eq!([number(&summary, "admitted"), number(&summary, "rejected")], [20.0, 0.0]);
    assert_eq!(summary["target_distribution"], serde_json::json!({"0": 20}));
    assert!(number(&summary, "max_regret") >= 3.0, "the other one was idle");
    assert!(t.summary(&calm(), &format!("{flags} {{}}")).contains("\nTotal Decisions: 20\n"));
}

/// The regret of routing everything to one of four.
pub(super) fn regretted(t: &Trial, flags: &str) -> Value {
    let flags = format!("--num-instances 4 --routing-policy always-busiest --regret outcome {flags}");
    t.figures(&pressed(), &flags)["regret"].clone()
}

pub(super) fn regret(t: &Trial) {
    assert_eq!(t.figures(&calm(), "")["regret"], Value::Null);
    let regret = t.figures(&calm(), "{} outcome")["regret"].clone();
    assert_eq!(number(&regret["kinds"]["admission"], "decisions"), 20.0);
    assert!(t.summary(&calm(), "{} outcome").contains("\nOutcome regret: request-seconds per decision"));
}

pub(super) fn regret_samples(t: &Trial) {
    let evaluated = |flags: &str| number(&regretted(t, flags)["kinds"]["routing"]["uniform"], "evaluated");
    assert!(evaluated("{} 4") < evaluated("{} 16"));
    assert!(t.error(&calm(), "{} 0").contains("invalid value '0'"));
}

pub(super) fn regret_alternatives(t: &Trial) {
    let branches = |flags: &str| regretted(t, flags)["worst"][0]["branches"].as_array().expect("branches").len();
    assert_eq!([branches("{} 1"), branches("{} 2"), branches(""), branches("{} 9")], [2, 3, 4, 4]);
}

pub(super) fn regret_window(t: &Trial) {
    let window = |flags: &str| number(&regretted(t, flags), "window_s");
    assert_eq!(window("{} 2.5"), 2.5);
    assert!(window("") >= 1.0);
}

pub(super) fn regret_path(t: &Trial) {
    regretted(t, "{} {dir}/r.jsonl --regret-samples 8");
    let lines = fs::read_to_string(t.folder.join("r.jsonl")).expect("written");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Some of those that are late may be among those at random.
    let routing = lines.iter().filter(|line| line["kind"] == "routing").count();
    assert!((6..=8).contains(&routing), "{routing}");
    assert!(lines.iter().all(|line| line["branches"].as_array().is_some_and(|branches| branches.len() > 1)));
    assert!(t.error(&calm(), "{} {dir}/r.jsonl").contains("add `--regret outcome`"));
}
