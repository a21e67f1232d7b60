//! Flags of the simulation and its output.

use super::*;

pub(super) fn seed(t: &Trial) {
    if t.command == "run" {
        let out = |flags: &str| t.bare(flags).stdout;
        assert!(out("{} 1") == out("{} 1") && out("{} 42") == out("") && out("{} 1") != out("{} 2"));
    } else {
        let figures = |seed: u32| t.figures(&calm(), &format!("{{}} {seed}"));
        assert_eq!(figures(1), figures(2), "a recorded trace leaves nothing to chance");
        assert!(t.error(&calm(), "{} -1").contains("must be a whole number from 0"));
    }
}

pub(super) fn horizon(t: &Trial) {
    let figures = t.figures(&calm(), "{} 1000000");
    assert!(number(&figures, "vllm_estimated_duration_s") <= 1.0);
    let seen =
        ["completed_requests", "still_running", "still_queued", "still_arriving"].map(|key| number(&figures, key));
    assert!(seen[0] > 0.0 && seen[0] < 20.0 && seen.iter().sum::<f64>() < 20.0, "{seen:?}");
}

pub(super) fn warmup(t: &Trial) {
    let all = t.figures(&calm(), "");
    let cut = t.figures(&calm(), "{} 500ms");
    let of = |figures: &Value, key: &str| number(figures, key);
    assert!(of(&cut, "completed_requests") > 0.0 && of(&cut, "completed_requests") < of(&all, "completed_requests"));
    assert!(of(&cut, "ttft_count") < of(&all, "ttft_count"));
    let shorter = of(&all, "vllm_estimated_duration_s") - of(&cut, "vllm_estimated_duration_s");
    assert!((shorter - 0.5).abs() < 1e-6, "{shorter}");
    for service in ["steps", "itl_count", "mean_queue_length"] {
        assert_eq!(of(&cut, service), of(&all, service), "{service}: they are simulated");
    }
    assert!(t.on(&calm(), "{} 1h").stderr.contains("every request arrives in the first 3600 s"), "nothing is left");
}

pub(super) fn config(t: &Trial) {
    let file = t.file("settings.yaml", "cluster:\n  num-instances: 3\nrouting:\n  policy: least-loaded\n");
    let instances = |flags: &str| t.placements(&calm(), flags).into_iter().flatten().collect::<BTreeSet<u32>>().len();
    assert_eq!(instances(&format!("{{}} {file}")), 3);
    assert_eq!(instances(&format!("{{}} {file} --num-instances 2")), 2, "flags win");
}

pub(super) fn explain_config(t: &Trial) {
    let output = t.on(&calm(), "{} --seed 7 --scheduler sjf");
    assert_eq!(output.code, Some(0));
    let page = output.stdout;
    assert!(page.contains("\n  seed: 7  # flag --seed\n") && page.contains("\nscheduler: sjf  # flag --scheduler\n"));
    assert!(!page.contains("completed_requests"), "nothing is simulated");
}

pub(super) fn log(t: &Trial) {
    let message = |level: &str| t.on(&calm(), &format!("--max-model-len 200 {{}} {level}")).stderr;
    assert_eq!((message("off").as_str(), message("error").as_str()), ("", ""));
    assert!(message("warn").contains("WARN") && !message("warn").contains("INFO"));
    assert!(message("info").contains("INFO") && !message("info").contains("DEBUG"));
    // There nothing is too long for the model.
    let served = |level: &str| t.on(&calm(), &format!("{{}} {level}")).stderr;
    let debug = served("debug");
    for event in ["admitted", "routed", "scheduled", "step"] {
        // Behind the span of the experiment.
        let is_logged = |line: &str| line.contains("DEBUG experiment{") && line.contains(&format!(" {event} "));
        assert!(debug.lines().any(is_logged), "{event}: {debug}");
    }
    assert!(
        !debug.contains("TRACE")
            && served("trace").lines().any(|line| line.contains("TRACE ") && line.contains(" requests of the step "))
    );
}

pub(super) fn output(t: &Trial) {
    let out = |form: &str| t.on(&calm(), &format!("{{}} {form}")).stdout;
    assert!(out("text").contains("\nModel "));
    assert!(out("json") == out("auto") && serde_json::from_str::<Value>(&out("json")).is_ok());
}

/// The bar needs a terminal (see `output.rs`); elsewhere the flag must at least disturb nothing.
pub(super) fn no_progress(t: &Trial) {
    assert_eq!(t.on(&calm(), "{}").stdout, t.on(&calm(), "").stdout);
}

pub(super) fn metrics_path(t: &Trial) {
    let printed = t.figures(&calm(), "{} {dir}/metrics.json");
    let metrics: Value =
        serde_json::from_slice(&fs::read(t.folder.join("metrics.json")).expect("written")).expect("JSON");
    assert_eq!(metrics["requests"].as_array().map(Vec::len), Some(20));
    assert_eq!((&metrics["e2e_mean_ms"], &printed["requests"]), (&printed["e2e_mean_ms"], &Value::Null));
}

pub(super) fn export(t: &Trial) {
    t.figures(&calm(), "{} vllm-bench={dir}/bench.json");
    let bench: Value = serde_json::from_slice(&fs::read(t.folder.join("bench.json")).expect("written")).expect("JSON");
    assert_eq!((&bench["completed"], bench["itls"].as_array().map(Vec::len)), (&20.into(), Some(20)));
}

pub(super) fn trace_output(t: &Trial) {
    t.figures(&calm(), "{} {dir}/out");
    let header = fs::read_to_string(t.folder.join("out.yaml")).expect("written");
    assert!(header.starts_with("trace_version: 3\n"), "{header}");
    assert_eq!(fs::read_to_string(t.folder.join("out.csv")).expect("written").lines().count(), 21);
}

/// Starts of engine steps by instance, s.
fn exported_steps(t: &Trial, flags: &str) -> Vec<(u64, f64)> {
    t.figures(&calm(), &format!("--num-instances 2 --export perfetto={{dir}}/p.json {flags}"));
    let trace: Value = serde_json::from_slice(&fs::read(t.folder.join("p.json")).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list").clone();
    let is_step = |event: &&Value| event["name"].as_str().is_some_and(|name| name.ends_with(" step"));
    events
        .iter()
        .filter(is_step)
        .map(|step| (step["pid"].as_u64().expect("a number") - 2, number(step, "ts") / 1e6))
        .collect()
}

pub(super) fn export_from(t: &Trial) {
    let (all, late) = (exported_steps(t, ""), exported_steps(t, "{} 1s"));
    assert!(all.iter().any(|&(_, at)| at < 0.8) && !late.is_empty());
    assert!(late.iter().all(|&(_, at)| at > 0.9), "{late:?}");
    assert!(t.error(&calm(), "{} 1s --export otel={dir}/o").contains("the other formats have the whole run"));
}

pub(super) fn export_to(t: &Trial) {
    let early = exported_steps(t, "{} 1s");
    assert!(!early.is_empty() && early.iter().all(|&(_, at)| at < 1.0), "{early:?}");
    let message = t.error(&calm(), "{} 1s --export-from 1s --export perfetto={dir}/p");
    assert!(message.contains("is not before"), "{message}");
}

pub(super) fn export_instances(t: &Trial) {
    let all = exported_steps(t, "");
    assert!(all.iter().any(|&(instance, _)| instance == 0));
    let second = exported_steps(t, "{} 1");
    assert!(!second.is_empty() && second.iter().all(|&(instance, _)| instance == 1), "{second:?}");
}

/// The lines of a timeline for the cluster.
fn timeline_of(t: &Trial, flags: &str) -> Vec<Vec<String>> {
    t.figures(&calm(), flags);
    let text = fs::read_to_string(t.folder.join("over.csv")).expect("written");
    let rows = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    rows.filter(|row| row[1] == "cluster").collect()
}

pub(super) fn timeline(t: &Trial) {
    let rows = timeline_of(t, "{} {dir}/over.csv");
    let sum = |column: usize| rows.iter().map(|row| row[column].parse::<u64>().expect("a number")).sum::<u64>();
    assert_eq!((sum(7), sum(8)), (20, 20), "arrivals and completions");
    assert!(sum(3) > 0, "requests run");
    t.figures(&calm(), "{} {dir}/t.parquet");
    let file = fs::read(t.folder.join("t.parquet")).expect("written");
    assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "a Parquet file");
    let message = t.error(&calm(), "{} {dir}/t.arrow");
    assert!(message.contains("t.csv") && message.contains("t.parquet"), "{message}");
}

pub(super) fn interval(t: &Trial) {
    let [each, coarse] =
        ["100ms", "1s"].map(|interval| timeline_of(t, &format!("--timeline {{dir}}/over.csv {{}} {interval}")));
    assert_eq!((&*each[1][0], &*coarse[1][0]), ("100000", "1000000"));
    // The state at a moment does not depend on the moments between.
    let state = |row: &Vec<String>| row[2..5].to_vec();
    assert!(coarse.len() > 2);
    for (index, row) in coarse.iter().enumerate().take(coarse.len() - 1) {
        assert_eq!(state(row), state(&each[10 * index]), "{row:?}");
    }
    assert!(t.error(&calm(), "{} 1s").contains("--timeline"));
}

pub(super) fn report(t: &Trial) {
    let figures = t.figures(&calm(), "{} {dir}/page.html");
    let page = fs::read_to_string(t.folder.join("page.html")).expect("written");
    let (_, data) = page.split_once("id=\"data\">").expect("data");
    let data: Value = serde_json::from_str(data.split_once("</script>").expect("an end").0).expect("JSON");
    let mut shown = data["results"][0]["result"].clone();
    shown.as_object_mut().expect("figures").remove("run").expect("what the run was");
    assert_eq!(shown, figures, "the page has what is printed");
    assert_eq!(data["results"][0]["charts"]["slowest"].as_array().map(Vec::len), Some(10));
}

pub(super) fn results_path(t: &Trial) {
    t.figures(&calm(), "{} {dir}/results.json");
    let results: Value =
        serde_json::from_slice(&fs::read(t.folder.join("results.json")).expect("written")).expect("JSON");
    assert_eq!(results.as_array().map(Vec::len), Some(20));
    assert!(number(&results[0], "ttft_us") > 0.0);
}

pub(super) fn help(t: &Trial) {
    let output = blis!(t.command, t.flag);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.contains(&format!("Usage: blis {}", t.command)));
}
