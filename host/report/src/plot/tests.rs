use std::io::Read as _;

use serde_json::json;

use super::*;

fn input(name: &str, document: Value) -> PlotInput {
    PlotInput { name: name.to_owned(), document }
}

/// A run: request `n`, from 1 to 100, arrives at `n` s and has a TTFT of `n` ms; and one timed out.
fn run(name: &str) -> PlotInput {
    let mut requests: Vec<Value> = (1..=100)
        .map(|n| json!({"arrived_at": n, "ttft_ms": n, "itl_ms": 10, "e2e_ms": 100 + n, "status": "completed"}))
        .collect();
    requests.push(json!({"arrived_at": 5, "ttft_ms": 1e9, "itl_ms": 0, "e2e_ms": 1e9, "status": "timed_out"}));
    input(name, json!({"requests": requests}))
}

fn sweep() -> PlotInput {
    let point = |rate: u32, replicas: u32, ms: f64, cost: f64, within: bool, best: bool| {
        json!({"settings": [{"name": "rate", "value": rate.to_string()}, {"name": "num-instances", "value": replicas.to_string()}],
               "measured": {"values_ms": [ms, 9.0], "cost": cost, "meets_slos": within, "non_dominated": best}})
    };
    let points = [
        point(10, 1, 400.0, 0.1, true, true),
        point(5, 1, 200.0, 0.2, true, false),
        point(20, 1, 900.0, 0.05, false, true),
        point(10, 2, 100.0, 0.3, true, true),
    ];
    input("sweep.json", json!({"figures": ["ttft_p90=500ms", "tpot_p50=20ms"], "points": points}))
}

fn compare() -> PlotInput {
    let differences = json!([{"candidate": "b,<i>", "mean": -5.0, "low": -8.0, "high": -2.0, "result": "better"}]);
    let metric = json!({"unit": "ms", "means": [50.0, 45.0], "differences": differences});
    input("compare.json", json!({"policies": ["a", "b,<i>"], "metrics": {"mean_ttft": metric}, "seeds": [1, 2]}))
}

fn rows(figure: &PlotFigure) -> Vec<String> {
    figure.csv().lines().skip(1).map(str::to_owned).collect()
}

/// How often an SVG has this text.
fn count(svg: &str, text: &str) -> usize {
    svg.matches(&format!(">\n{text}\n</text>")).count()
}

#[test]
fn a_distribution_has_a_line_for_each_run_and_its_numbers_beside_it() {
    let figure = plot(None, Some("ttft"), &[run("one"), run("<two>")]).expect("drawn");
    assert_eq!(figure.csv().lines().next(), Some("line,\"TTFT, ms\",\"requests within, %\",knee"));
    assert_eq!(rows(&figure).len(), 200, "what timed out is in no distribution");
    assert_eq!((&*rows(&figure)[0], &*rows(&figure)[99]), ("one (100),1,1,", "one (100),100,100,"));
    let svg = figure.svg();
    let line =
        |colour: &str| svg.matches(&format!("<polyline fill=\"none\" opacity=\"1\" stroke=\"{colour}\"")).count();
    assert_eq!((line("#0072B2"), line("#D55E00")), (2, 2), "a line and its sample in the legend: {svg}");
    assert!(count(&svg, "&lt;two&gt; (100)") == 1 && !svg.contains("<two>"));
}

#[test]
fn percentiles_are_those_of_each_window() {
    let figure = plot(Some(FigureKind::Percentiles), None, &[run("one")]).expect("drawn");
    let rows = rows(&figure);
    // 100 requests are 5 windows of 20; the median of the first, 1 to 20 ms.
    assert_eq!(rows.len(), 15);
    assert!(rows[0].starts_with("p50,") && rows[0].ends_with(",10.5,"), "{}", rows[0]);
    assert!(rows[14].starts_with("p99,") && rows[14].contains(",99.81,"), "{}", rows[14]);
}

#[test]
fn a_sweep_has_its_knee_and_limit() {
    let figure = plot(None, Some("ttft_p90"), &[sweep()]).expect("drawn");
    assert_eq!(
        rows(&figure),
        ["num-instances=1,5,200,", "num-instances=1,10,400,knee", "num-instances=1,20,900,", "num-instances=2,10,100,"]
    );
    assert_eq!((count(&figure.svg(), "ttft_p90=500ms"), count(&figure.svg(), "knee")), (1, 1));
    let mut with_seeds = sweep();
    with_seeds.document["points"][1]["measured"]["ranges_ms"] = json!([{"low": 150.0, "high": 250.0}]);
    let bars = plot(None, Some("ttft_p90"), &[with_seeds]).expect("drawn");
    assert_eq!(
        (&*rows(&bars)[0], &*rows(&bars)[1]),
        ("num-instances=1,5,200,,150,250", "num-instances=1,10,400,knee,,")
    );
    let lines = |figure: &PlotFigure| figure.svg().matches("<polyline").count();
    assert_eq!(lines(&bars), lines(&figure) + 3, "a bar with two ends");
    let pareto = plot(Some(FigureKind::Pareto), None, &[sweep()]).expect("drawn");
    assert_eq!(
        rows(&pareto),
        ["non-dominated,0.05,900,", "non-dominated,0.1,400,", "non-dominated,0.3,100,", "dominated,0.2,200,"]
    );
}

#[test]
fn differences_are_in_percent_of_the_baseline() {
    let figure = plot(None, None, &[compare()]).expect("drawn");
    assert_eq!(
        figure.csv(),
        "figure,candidate,\"difference from a, %\",low,high,result\nmean_ttft,\"b,<i>\",-10,-16,-4,better\n"
    );
    assert!(figure.svg().contains("<polygon") && count(&figure.svg(), "b,&lt;i&gt;: mean_ttft") == 1);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let message = |kind, figure, inputs: &[PlotInput]| plot(kind, figure, inputs).expect_err("refused").to_string();
    let nothing = input("x.json", json!({"a": 1}));
    for (found, expected) in [
        (message(None, None, std::slice::from_ref(&nothing)), "`x.json` is no result that a figure is made of"),
        (
            message(Some(FigureKind::Sweep), None, &[compare()]),
            "`compare.json` cannot be drawn as `sweep`, which needs the result of `blis sweep",
        ),
        (message(None, None, &[sweep(), sweep()]), "`sweep` shows one result, and there are 2"),
        (message(None, None, &[run("a"), nothing]), "`x.json` cannot be drawn as `cdf`"),
        (message(None, Some("x"), &[sweep()]), "`sweep.json` has no `x`; it has ttft_p90, tpot_p50"),
        (message(None, Some("x"), &[run("a")]), "`a` has no `x`; it has ttft, tpot, e2e, scheduling_delay"),
        (message(None, Some("x"), &[compare()]), "`compare.json` has no `x`; it has mean_ttft"),
        (message(None, None, &[input("empty", json!({"requests": []}))]), "`empty` has no values of `TTFT, ms`"),
    ] {
        assert!(found.starts_with(expected), "{found}");
    }
}

/// Values of any size have ticks, and a drawing without values that are no numbers.
#[test]
fn scales_have_ticks() {
    for values in [[0.0, 0.0], [1.0, 1.0], [-5.0, 3.0], [1e-9, 1e9], [120.0, 121.0], [1e300, 1e301]] {
        let points = json!(values.map(|value| json!({"settings": [{"name": "rate", "value": format!("{value}")}],
            "measured": {"values_ms": [value], "cost": 1, "meets_slos": true, "non_dominated": true}})));
        for kind in [FigureKind::Sweep, FigureKind::Pareto] {
            let Ok(figure) = plot(Some(kind), None, &[input("s", json!({"figures": ["ttft"], "points": points}))])
            else {
                assert_eq!((kind, values[0] == values[1]), (FigureKind::Sweep, true), "{values:?}");
                continue;
            };
            let svg = figure.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf\"") && !svg.contains("2147483"), "{values:?}: {svg}");
            assert!(svg.matches("text-anchor=\"middle\"").count() > 3, "{values:?}: {svg}");
        }
    }
}

/// A PNG as rows of pixels, if all its checksums are right.
fn pixels(png: &[u8]) -> Vec<Vec<[u8; 3]>> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().expect("four"));
    let mut rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("a PNG");
    let (mut width, mut compressed, mut kinds) = (0, Vec::new(), Vec::new());
    while !rest.is_empty() {
        let length = number(rest) as usize;
        let (kind, content) = (&rest[4..8], &rest[8..8 + length]);
        let mut sum = flate2::Crc::new();
        sum.update(&rest[4..8 + length]);
        assert_eq!(sum.sum(), number(&rest[8 + length..]), "{kind:?}");
        match kind {
            b"IHDR" => width = number(content) as usize,
            b"IDAT" => compressed.extend_from_slice(content),
            _ => {}
        }
        kinds.push(String::from_utf8_lossy(kind).into_owned());
        rest = &rest[12 + length..];
    }
    assert_eq!(kinds, ["IHDR", "pHYs", "IDAT", "IEND"]);
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&*compressed).read_to_end(&mut bytes).expect("zlib");
    let row = |row: &[u8]| {
        assert_eq!(row[0], 0, "no filter");
        row[1..].chunks(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
    };
    bytes.chunks(1 + 3 * width).map(row).collect()
}

/// A PNG is the picture of the SVG, three times as large: lines in their colours, and texts.
#[test]
fn a_png_has_the_lines_and_texts_of_the_svg() {
    let one = pixels(&plot(None, Some("ttft"), &[run("one")]).expect("drawn").png());
    assert_eq!((one.len(), one[0].len()), (3 * 420, 3 * 640), "400 points, and one line of the legend");
    let of = |picture: &[Vec<[u8; 3]>], rows: std::ops::Range<usize>, wanted: [u8; 3]| {
        picture[rows].iter().flatten().filter(|&&pixel| pixel == wanted).count()
    };
    assert!(of(&one, 0..1200, [0x00, 0x72, 0xb2]) > 5_000, "the line");
    let (blue, ink) = (of(&one, 1200..1260, [0x00, 0x72, 0xb2]), of(&one, 1200..1260, [0x22; 3]));
    assert!(blue > 300 && ink > 300, "the legend: {blue} pixels of its line, {ink} of its text");
    let other = pixels(&plot(None, Some("ttft"), &[run("two")]).expect("drawn").png());
    assert_eq!(one[..1200], other[..1200]);
    assert_ne!(one[1200..], other[1200..], "names differ");
    // Turned text, left of the axis.
    let label: usize =
        one[400..700].iter().map(|row| row[..60].iter().filter(|&&pixel| pixel == [0x22; 3]).count()).sum();
    assert!(label > 300, "{label} pixels of the label");
}

/// A letter that the font does not have is a box, not nothing.
#[test]
fn letters_without_a_glyph_are_boxes() {
    let [missing, blank] = ["\u{6587}\u{5b57}", ""].map(|name| plot(None, None, &[run(name)]).expect("drawn").png());
    assert_ne!(pixels(&missing)[1200..], pixels(&blank)[1200..]);
}
