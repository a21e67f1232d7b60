//! Pages to look at: one for each command that has a result, and of results that were written before. How they look in a
//! browser is checked by `.ci/pages`.

use std::fs;

use serde_json::Value;

use crate::macros::{Scratch, blis};

/// The data of a page as its script reads them.
fn data_of(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"data\">").expect("an element for the data");
    serde_json::from_str(data.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn every_command_with_a_result_has_a_page() {
    const LOAD: &str = "--model qwen/qwen3-14b --num-requests 300 --output-tokens 20 --no-progress --output json";
    let folder = Scratch::new();
    for (name, line) in [
        ("run", format!("run {LOAD} --rate 5")),
        ("compare", format!("compare round-robin least-loaded {LOAD} --num-instances 2 --rate 10 --seeds 2")),
        ("sweep", format!("sweep {LOAD} --vary rate=2,4 --seeds 1")),
        ("size", format!("size {LOAD} --rate 5 --slo ttft_p90=500ms --seeds 2")),
        ("advise", format!("advise {LOAD} --rate 5 --slo ttft_p90=500ms --seeds 2 --tp 1")),
        (
            "capacity",
            format!(
                "capacity {LOAD} --output-tokens 100 --num-requests 3000 --slo ttft_p90=500ms,tpot_p50=20ms --seeds 2"
            ),
        ),
    ] {
        let path = folder.path(&format!("{name}.html"));
        let printed = blis!(line, "--report", &path).whole_json();
        let page = fs::read_to_string(&path).expect("written");
        assert_eq!(data_of(&page)["results"][0]["result"], printed, "blis {name}");
        assert_eq!(data_of(&page)["results"][0]["charts"].is_object(), name == "run", "blis {name}");
    }
}

#[test]
fn names_of_a_trace_are_text() {
    let folder = Scratch::new();
    let clients = ["1", "2"].map(|tenant| {
        format!(
            "  - {{ id: c{tenant}, tenant_id: '<script>alert({tenant})</script>', rate_fraction: 0.5, arrival: {{ process: poisson }}, \
             input_distribution: {{ type: constant, params: {{ value: 100 }} }}, \
             output_distribution: {{ type: constant, params: {{ value: 10 }} }} }}\n"
        )
    });
    let spec = folder.write(
        "spec.yaml",
        format!("version: '2'\nnum_requests: 40\naggregate_rate: 10\nclients:\n{}", clients.concat()),
    );
    let page = folder.path("page.html");
    blis!("run --model qwen/qwen3-14b --workload-spec", spec, "--report", &page).done();
    let page = fs::read_to_string(page).expect("written");
    assert!(!page.contains("<script>alert"), "a tenant starts a script");
    let charts = &data_of(&page)["results"][0]["charts"];
    let tenants: Vec<_> =
        charts["latencies"].as_array().expect("groups").iter().map(|one| one["name"].clone()).collect();
    assert!(tenants.contains(&"<script>alert(1)</script>".into()), "{tenants:?}");
}

#[test]
fn results_are_viewed_together() {
    let folder = Scratch::new();
    let line = "run --model qwen/qwen3-14b --num-requests 20 --rate 5 --no-progress --output json";
    let results = [("one.json", "1"), ("two.json", "2")].map(|(name, seed)| {
        let result = blis!(line, "--seed", seed);
        (folder.write(name, &result.stdout), result.json())
    });
    let page = folder.path("both.html");
    let ended = blis!("view", &results[0].0, &results[1].0, "--report", &page);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let data = data_of(&fs::read_to_string(&page).expect("written"));
    let shown = data["results"].as_array().expect("a list");
    assert_eq!(
        shown.iter().map(|one| one["name"].as_str().expect("a name")).collect::<Vec<_>>(),
        ["one.json", "two.json"]
    );
    assert!(shown.iter().zip(&results).all(|(shown, (_, result))| shown["result"] == *result));
}

#[test]
fn figures_for_papers_have_their_numbers_beside_them() {
    const LOAD: &str = "--model qwen/qwen3-14b --num-requests 300 --output-tokens 20 --no-progress";
    let folder = Scratch::new();
    let run = folder.path("run.json");
    blis!(format!("run {LOAD} --rate 5 --metrics-path"), &run).done();
    let done: Value = serde_json::from_str(&fs::read_to_string(&run).expect("written")).expect("JSON");
    let sweep =
        folder.write("sweep.json", &blis!(format!("sweep {LOAD} --vary rate=2,4 --seeds 1 --output json")).stdout);
    let compare =
        blis!(format!("compare round-robin least-loaded {LOAD} --num-instances 2 --rate 10 --seeds 2 --output json"));
    let compare = folder.write("compare.json", &compare.stdout);
    let (sweep, compare) = (sweep.display().to_string(), compare.display().to_string());
    for (file, flags, rows) in [
        (&run, "--figure ttft", 300),
        (&run, "--kind percentiles --figure e2e", 45),
        (&sweep, "", 2),
        (&sweep, "--kind pareto", 2),
        (&compare, "--kind differences --figure p90_e2e", 1),
    ] {
        let out = folder.path("figure.svg");
        let ended = blis!(format!("plot {flags} --out"), &out, file);
        assert_eq!(ended.code, Some(0), "{flags}: {}", ended.stderr);
        let svg = fs::read_to_string(&out).expect("written");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{flags}: {svg}");
        let csv = fs::read_to_string(folder.join("figure.csv")).expect("written");
        assert_eq!(csv.lines().count(), rows + 1, "{flags}: {csv}");
        if flags == "--figure ttft" {
            let last = csv.lines().last().expect("a row").split(',').nth(1).expect("a latency").to_owned();
            assert_eq!(last.parse().ok(), done["ttft_max_ms"].as_f64(), "{csv}");
        }
    }
    blis!("plot", &run, "--out", folder.path("figure.png")).done();
    assert!(fs::read(folder.join("figure.png")).expect("written").starts_with(b"\x89PNG\r\n\x1a\n"));
    let ended = blis!("plot", &run, "--out", folder.path("figure.pdf"));
    assert!(ended.code == Some(2) && ended.stderr.contains("rsvg-convert --format pdf"), "{}", ended.stderr);
    let ended = blis!("plot", &run, &sweep, "--out", folder.path("figure.svg"));
    assert!(ended.code == Some(2) && ended.stderr.contains("`sweep` cannot be drawn as `cdf`"), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let folder = Scratch::new();
    let (bad, empty) = (folder.write("bad.json", "{\n\"a\": }"), folder.write("empty.json", ""));
    let page = folder.path("page.html");
    for (file, message) in [
        (bad.display().to_string(), "bad.json` is not JSON: expected value at line 2 column 6"),
        (empty.display().to_string(), "empty.json` is empty"),
        (folder.path("no.json"), "no.json` does not exist\nhint: check the path and the current folder"),
    ] {
        let ended = blis!("view", &file, "--report", &page);
        assert_eq!(ended.code, Some(2), "{file}");
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
    }
    assert!(!folder.join("page.html").exists());
}
