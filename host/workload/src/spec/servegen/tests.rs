use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use blis_sim::units::Micros;

use super::super::arrival::IntervalShape;
use super::super::client::ClientLoad;
use super::super::options::GenerateOptions;
use super::super::specification::Spec;
use super::super::window::{Window, WindowRate};
use super::super::{Arrival, Empirical, Lengths};
use super::*;
use crate::profile::WorkloadProfile;

/// A folder in memory.
struct MemoryFolder(BTreeMap<&'static str, String>);

impl Files for MemoryFolder {
    fn read(&self, path: &Path) -> io::Result<String> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.0.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn names(&self, _path: &Path) -> io::Result<Vec<String>> {
        Ok(self.0.keys().map(|&name| name.to_owned()).collect())
    }
}

/// Two clients: `0` is active in the morning of both days, `10` at midnight.
fn folder() -> MemoryFolder {
    let mut busy = String::new();
    for day in [0, 86_400] {
        for window in 0..3 {
            let rate = if day == 0 { 1.0 } else { 3.0 };
            busy += &format!("{},{rate},2.0,Gamma,0.25,{}\n", day + 28_800 + window * 600, 2.0);
        }
    }
    let night = "0,0.5,1.5,Weibull\n600,0.5,1.5,Weibull\n1200,0.5,1.5,Weibull\n1800,0,0,\n";
    let lengths = "{\"0\": {\"input_tokens\": \"{}\", \"output_tokens\": \"{}\"}, \
                   \"21600\": {\"input_tokens\": \"{100: 0.5, 400: 0.5}\", \"output_tokens\": \"{50: 1.0}\"}}";
    MemoryFolder(BTreeMap::from([
        ("chunk-0-trace.csv", busy),
        ("chunk-0-dataset.json", lengths.to_owned()),
        ("chunk-10-trace.csv", night.to_owned()),
        ("chunk-10-dataset.json", lengths.to_owned()),
    ]))
}

fn read(folder: &MemoryFolder, options: &ServeGenOptions) -> Result<Senders, SpecFileError> {
    load(folder, Path::new("data"), "data", options)
}

/// The folder read in BLIS's way.
const BLIS: ServeGenReading = ServeGenReading::Blis;

fn cohorts(folder: &MemoryFolder) -> Result<Vec<Cohort>, SpecFileError> {
    read(folder, &ServeGenOptions { reading: BLIS, ..ServeGenOptions::default() }).map(|senders| senders.cohorts)
}

/// The folder with other files, read as measured.
fn changed(files: &[(&'static str, &str)]) -> Result<Senders, SpecFileError> {
    let mut folder = folder();
    folder.0.extend(files.iter().map(|&(name, text)| (name, text.to_owned())));
    read(&folder, &ServeGenOptions::default())
}

fn counted(weights: &[(u32, f64)]) -> Option<Lengths> {
    Empirical::new(weights.iter().copied()).map(|counted| Lengths::Empirical(counted.into()))
}

#[test]
fn every_row_becomes_a_window_of_its_client() {
    let senders = read(&folder(), &ServeGenOptions::default()).unwrap();
    let ids: Vec<_> = senders.clients.iter().map(|client| (client.id.as_str(), client.windows.len())).collect();
    assert_eq!(
        (ids, senders.cohorts.len()),
        (vec![("chunk-0", 6), ("chunk-10", 3)], 0),
        "a row without a rate is none"
    );
    let second = &senders.clients[0].windows[4];
    let (start, end) = (Micros((86_400 + 28_800 + 600) * 1_000_000), Micros((86_400 + 28_800 + 1200) * 1_000_000));
    assert_eq!(
        *second,
        Window {
            rate: WindowRate::Weight(3.0),
            arrival: Some(Arrival::Gamma(IntervalShape::Own { shape: 0.25, scale_us: 2e6 })),
            input: counted(&[(100, 0.5), (400, 0.5)]),
            output: counted(&[(50, 1.0)]),
            ..Window::usual(start, end)
        }
    );
    assert_eq!(senders.clients[1].windows[0].arrival, Some(Arrival::Weibull(IntervalShape::Cv(1.5))));
}

#[test]
fn a_part_of_the_measurements_starts_at_0() {
    let options = ServeGenOptions { start_secs: 28_900, duration_secs: Some(700), ..ServeGenOptions::default() };
    let clients = read(&folder(), &options).unwrap().clients;
    let [client] = &clients[..] else { panic!("{clients:?}") };
    let spans: Vec<_> = client.windows.iter().map(|window| (window.start.0, window.end.0)).collect();
    assert_eq!(spans, [(0, 500_000_000), (500_000_000, 700_000_000)]);
}

/// Once, all times had one lognormal distribution without bounds.
#[test]
fn lengths_are_those_counted_at_the_time() {
    let trace = "0,1,1,Gamma,1,1\n600,1,1,Weibull,1,1\n";
    let lengths = r#"{"600": {"input_tokens": "{7: 0.25, 9: 0.75}", "output_tokens": "{3: 1}", "reason_ratio": "{40: 1}"},
                      "0": {"input_tokens": "{5: 1}", "output_tokens": "{2: 1}", "reason_ratio": "{80: 1}"}}"#;
    let files = BTreeMap::from([("chunk-0-trace.csv", trace.to_owned()), ("chunk-0-dataset.json", lengths.to_owned())]);
    let clients = read(&MemoryFolder(files), &ServeGenOptions::default()).unwrap().clients;
    let spec = Spec { clients, ..Spec::default() };
    let drawn: Vec<_> = spec.requests(&options()).unwrap().0.collect();
    assert_eq!(drawn.len(), 1200);
    let (early, late) = drawn.split_at(600);
    let all = |drawn: &[super::super::DrawnRequest], output, ratio: f64| {
        drawn.iter().all(|d| d.request.output_tokens == output && (d.reason_ratio - ratio).abs() < 1e-12)
    };
    assert!(all(early, 2, 0.8) && all(late, 3, 0.4), "outputs, and the share of reasoning in them");
    assert!(early.iter().all(|d| d.request.input_tokens == 5 && d.request.arrival < Micros(600_000_000)));
    let short = late.iter().filter(|d| d.request.input_tokens == 7).count();
    assert_eq!(short + late.iter().filter(|d| d.request.input_tokens == 9).count(), 600);
    // Mean 150, standard deviation √(600 · ¼ · ¾).
    assert!((short as f64 - 150.0).abs() < 2.576 * 10.6, "{short}");
}

#[test]
fn a_misspelt_key_is_no_reason_to_guess_lengths() {
    let dataset = |text: &str| changed(&[("chunk-0-dataset.json", text)]).unwrap_err();
    insta::assert_snapshot!(dataset("{\"0\":\n {\"input_token\": \"{5: 1}\", \"output_tokens\": \"{5: 1}\"}}"), @r#"
    data/chunk-0-dataset.json:2:4: start `0`: unknown key `input_token`
      2 |  {"input_token": "{5: 1}", "output_tokens": "{5: 1}"}}
        |    ^^^^^^^^^^^
    hint: did you mean `input_tokens`?
    "#);
    insta::assert_snapshot!(dataset("{\"0\": {\"text_tokens\": \"{5: 1}\"}}"), @r#"
    data/chunk-0-dataset.json:1:9: start `0`: unknown key `text_tokens`
      1 | {"0": {"text_tokens": "{5: 1}"}}
        |         ^^^^^^^^^^^
    hint: folders of multimodal clients cannot be read: give their parts as `multimodal` of a client
    "#);
    insta::assert_snapshot!(dataset("{}"), @r"
    data/chunk-0-trace.csv:1:7: the client sends, but data/chunk-0-dataset.json has no start with `input_tokens` and `output_tokens`
      1 | 28800,1,2.0,Gamma,0.25,2
        |       ^
    hint: complete the file, or set the rate to 0
    ");
    insta::assert_snapshot!(dataset("{\"0\": {\"input_tokens\": \"{5: 1}\"}}"), @r"
    data/chunk-0-trace.csv:1:7: the client sends, but data/chunk-0-dataset.json has no start with `input_tokens` and `output_tokens`
      1 | 28800,1,2.0,Gamma,0.25,2
        |       ^
    hint: complete the file, or set the rate to 0
    ");
    insta::assert_snapshot!(dataset("{\"0\": {\"input_tokens\": \"{5: -1, 6: 1}\", \"output_tokens\": \"{5: 1}\"}}"), @r#"
    data/chunk-0-dataset.json:1:26: `5: -1` is no `tokens: probability`
      1 | {"0": {"input_tokens": "{5: -1, 6: 1}", "output_tokens": "{5: 1}"}}
        |                          ^^^^^
    hint: it is {"start": {"input_tokens": "{tokens: probability, …}", "output_tokens": …}, …}
    "#);
    insta::assert_snapshot!(dataset("{\"0\": {\"input_tokens\": \"{5: 0}\", \"output_tokens\": \"{5: 1}\"}}"), @r#"
    data/chunk-0-dataset.json:1:25: no probability is above 0, or they add up to infinity
      1 | {"0": {"input_tokens": "{5: 0}", "output_tokens": "{5: 1}"}}
        |                         ^^^^^^
    hint: it is {"start": {"input_tokens": "{tokens: probability, …}", "output_tokens": …}, …}
    "#);
    insta::assert_snapshot!(dataset("{\"0\": {\"input_tokens\": \"{5: 1}\", \"input_tokens\": \"{6: 1}\"}}"), @r#"
    data/chunk-0-dataset.json:1:47: no ServeGen dataset: `input_tokens` is given twice
      1 | {"0": {"input_tokens": "{5: 1}", "input_tokens": "{6: 1}"}}
        |                                               ^
    hint: it is {"start": {"input_tokens": "{tokens: probability, …}", "output_tokens": …}, …}
    "#);
}

#[test]
fn an_unknown_pattern_is_not_poisson() {
    let trace = |text: &str| changed(&[("chunk-0-trace.csv", text)]).unwrap_err();
    insta::assert_snapshot!(trace("0,1,1,Gama,0.5,1\n"), @r"
    data/chunk-0-trace.csv:1:7: the pattern is `Gama`; did you mean `Gamma`?
      1 | 0,1,1,Gama,0.5,1
        |       ^^^^
    hint: a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second
    ");
    insta::assert_snapshot!(trace("0,1,0,Gamma\n"), @r"
    data/chunk-0-trace.csv:1:5: the cv is 0, but without a shape must be a number from 0.001 to 100
      1 | 0,1,0,Gamma
        |     ^
    hint: a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second
    ");
    insta::assert_snapshot!(trace("0,1,0,Weibull,0.001,1\n"), @r"
    data/chunk-0-trace.csv:1:15: the shape is 0.001, but must be a number from 0.01 to 10000
      1 | 0,1,0,Weibull,0.001,1
        |               ^^^^^
    hint: a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second
    ");
    insta::assert_snapshot!(trace("0,1,1,,,\n0,1,1,,,\n"), @r"
    data/chunk-0-trace.csv:2:1: the start is 0 s, not after that of the row before, 0 s
      2 | 0,1,1,,,
        | ^
    hint: a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second
    ");
    insta::assert_snapshot!(trace("start,rate,cv,pattern\n"), @r"
    data/chunk-0-trace.csv: there is no row
    hint: a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second
    ");
}

/// Once, the first row was read as a header, and its requests were lost.
#[test]
fn a_mark_of_the_encoding_hides_no_row() {
    let dataset = folder().0["chunk-0-dataset.json"].clone();
    let files = [
        ("chunk-0-trace.csv", "\u{feff}0,1,1,Gamma,0.5,1\r\n600,1,1,,,\r\n"),
        ("chunk-0-dataset.json", &format!("\u{feff}{dataset}")),
    ];
    let senders = changed(&files).unwrap();
    assert_eq!(senders.clients[0].windows.len(), 2);
    let files = [("chunk-0-trace.csv", "\u{feff}start,rate,cv,pattern\n600,1,1,\n")];
    assert_eq!(changed(&files).unwrap().clients[0].windows.len(), 1);
}

#[test]
fn lengths_of_another_time_come_with_a_warning() {
    let (what, _) = read(&folder(), &ServeGenOptions::default()).unwrap().warnings.remove(0);
    assert_eq!(
        what,
        "data/chunk-10-trace.csv:1: the client sends, but its lengths are unknown: nothing at 0 s in \
         data/chunk-10-dataset.json; those from 21600 s on are used"
    );
}

/// BLIS assumes 512 ± 128 and 128 ± 32 tokens.
#[test]
fn guessed_lengths_come_with_a_warning() {
    let mut folder = folder();
    folder.0.insert("chunk-0-dataset.json", "{}".to_owned());
    let senders = read(&folder, &ServeGenOptions { reading: BLIS, ..ServeGenOptions::default() }).unwrap();
    assert_eq!(senders.cohorts[1].client.input, Lengths::gaussian(512.0, 128.0, 1, 32_768));
    let message = |(what, _): &(String, String)| {
        what.starts_with("data/chunk-0-trace.csv:1: the client sends, but data/chunk-0-dataset.json has no")
    };
    assert!(senders.warnings.iter().any(message), "{:?}", senders.warnings);
}

fn options() -> GenerateOptions {
    GenerateOptions {
        seed: 42,
        block_size: std::num::NonZeroU32::new(16).unwrap(),
        horizon: Micros::MAX,
        num_requests: None,
        timeout: None,
        as_in_blis: false,
    }
}

#[test]
fn active_clients_become_cohorts_of_their_time_of_day() {
    let cohorts = cohorts(&folder()).unwrap();
    let ids: Vec<&str> = cohorts.iter().map(|cohort| cohort.client.id.as_str()).collect();
    assert_eq!(ids, ["midnight-critical", "morning-critical"]);
    let spikes: Vec<_> =
        cohorts.iter().map(|cohort| cohort.spike.unwrap()).map(|s| (s.start.0, s.duration.0, s.trace_rate)).collect();
    assert_eq!(spikes, [(0, 600_000_000, Some(0.5)), (780_000_000, 600_000_000, Some(2.0))], "the mean of both days");
    assert_eq!(cohorts[0].client.arrival, Arrival::Weibull(IntervalShape::Cv(1.5)));
    assert_eq!(cohorts[1].client.arrival, Arrival::Gamma(IntervalShape::Own { shape: 0.25, scale_us: 2e6 }));
    let Lengths::LogNormal { mu, sigma, .. } = cohorts[1].client.input else { panic!("{:?}", cohorts[1].client.input) };
    // ln 100 and ln 400 differ by 2 ln 2: their mean is ln 200, their standard deviation ln 2.
    assert!((mu - 200_f64.ln()).abs() < 1e-12 && (sigma - 2_f64.ln()).abs() < 1e-12, "{mu} {sigma}");
    assert_eq!((cohorts[1].population, cohorts[1].client.load), (1, ClientLoad::Share(1.0)));
}

#[test]
fn thinking_clients_become_one_window() {
    let mut folder = folder();
    for name in ["chunk-0-dataset.json", "chunk-10-dataset.json"] {
        let lengths = folder.0[name].replace(
            "\"output_tokens\": \"{50: 1.0}\"",
            "\"output_tokens\": \"{50: 1.0}\", \"reason_ratio\": \"{70: 1.0}\"",
        );
        folder.0.insert(name, lengths);
    }
    let cohorts = cohorts(&folder).unwrap();
    let [cohort] = &cohorts[..] else { panic!("{cohorts:?}") };
    assert_eq!((cohort.client.id.as_str(), cohort.client.arrival), ("reasoning-critical", Arrival::Poisson));
    assert_eq!(cohort.client.reason_ratio, Some(Lengths::Empirical(Empirical::new([(70, 1.0)]).unwrap().into())));
    assert!(!cohort.client.is_closed_loop());
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let broken = |name: &'static str, text: &str| {
        let mut folder = folder();
        folder.0.insert(name, text.to_owned());
        cohorts(&folder).unwrap_err().to_string()
    };
    insta::assert_snapshot!(broken("chunk-0-trace.csv", "0,1,1,Gamma,0.5,1\n600,x,1,Gamma,0.5,1\n"), @r"
    data/chunk-0-trace.csv:2:5: the rate is `x`, but must be a number from 0 to 1000000
      2 | 600,x,1,Gamma,0.5,1
        |     ^
    hint: a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second
    ");
    insta::assert_snapshot!(broken("chunk-0-trace.csv", "0,1,1\n"), @r"
    data/chunk-0-trace.csv:1:1: 3 fields; a row has 4 or 6
      1 | 0,1,1
        | ^
    hint: a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second
    ");
    insta::assert_snapshot!(broken("chunk-0-dataset.json", "{\"0\": {\"input_tokens\": 3}}"), @r#"
    data/chunk-0-dataset.json:1:24: no ServeGen dataset: invalid type: integer `3`, expected a string
      1 | {"0": {"input_tokens": 3}}
        |                        ^
    hint: it is {"start": {"input_tokens": "{tokens: probability, …}", "output_tokens": …}, …}
    "#);
    insta::assert_snapshot!(broken("chunk-0-dataset.json", "{\"0\": {\"input_tokens\": \"{1: 0.5, 2}\"}}"), @r#"
    data/chunk-0-dataset.json:1:34: `2` is no `tokens: probability`
      1 | {"0": {"input_tokens": "{1: 0.5, 2}"}}
        |                                  ^
    hint: it is {"start": {"input_tokens": "{tokens: probability, …}", "output_tokens": …}, …}
    "#);
    insta::assert_snapshot!(cohorts(&MemoryFolder(BTreeMap::new())).unwrap_err(), @r"
    data: no file `chunk-<id>-trace.csv` in this folder
    hint: a ServeGen folder has one, and a `-dataset.json`, per client
    ");
    let mut silent = folder();
    silent.0.retain(|name, _| name.starts_with("chunk-0"));
    silent.0.insert("chunk-0-trace.csv", "0,0,0,,0,0\n".to_owned());
    insta::assert_snapshot!(cohorts(&silent).unwrap_err(), @r"
    data: no client of this folder is ever active
    hint: a client is `chunk-<id>-trace.csv` with rates above 0, and `chunk-<id>-dataset.json`; `start_secs` and `duration_secs` may leave out all of it
    ");
}

/// The folder that ServeGen publishes, if it lies beside the repository.
fn published() -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/traces/servegen-deepseek-r1"));
    if path.exists() {
        return Some(path);
    }
    #[allow(clippy::print_stderr, reason = "a test that did nothing must say so")]
    {
        eprintln!("skipped: {} is not there", path.display());
    }
    None
}

/// Means of 1268 input and 1527 output tokens are published for all 73 clients; the folder has the 20 largest, at three
/// times of the day.
#[test]
fn the_published_clients_are_read_as_blis_does() {
    let Some(path) = published() else { return };
    let spec = Spec::load_with(&path, BLIS, crate::spec::Beside).unwrap();
    let rate: f64 = spec.cohorts.iter().map(|cohort| cohort.spike.unwrap().trace_rate.unwrap()).sum();
    let requests: Vec<_> = spec.generate(&options()).unwrap().requests.collect();
    let expected = rate * 600.0;
    assert!((requests.len() as f64 / expected - 1.0).abs() < 0.01, "{} of {expected}", requests.len());
    assert!(requests.is_sorted_by_key(|request| request.arrival));
    let output = requests.iter().map(|request| f64::from(request.output_tokens)).sum::<f64>() / requests.len() as f64;
    assert!((500.0..3000.0).contains(&output), "{output}");
}

/// Two hours that contain the begin of another period: the whole day would take a minute.
const PART: (u32, u32) = (18_000, 25_200);

/// Number of requests, and of requests by length, over the rows of the part in all files: rate times the distribution
/// of the period.
fn mixture(path: &Path, key: &str) -> (f64, BTreeMap<u32, f64>) {
    let (mut requests, mut mixture) = (0.0, BTreeMap::new());
    for entry in std::fs::read_dir(path).unwrap() {
        let trace = entry.unwrap().path();
        let Some(lengths) = trace.to_str().unwrap().strip_suffix("-trace.csv") else { continue };
        let lengths = std::fs::read_to_string(format!("{lengths}-dataset.json")).unwrap();
        let lengths: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(&lengths).unwrap();
        for row in std::fs::read_to_string(&trace).unwrap().lines() {
            let fields: Vec<&str> = row.split(',').collect();
            let (start, rate): (u32, f64) = (fields[0].parse().unwrap(), fields[1].parse().unwrap());
            if !(PART.0..PART.1).contains(&start) || rate == 0.0 {
                continue;
            }
            requests += rate * 600.0;
            let period = &lengths[&(start / 21_600 * 21_600).to_string()][key];
            for pair in period.trim_matches(['{', '}']).split(", ") {
                let (tokens, probability) = pair.split_once(": ").unwrap();
                *mixture.entry(tokens.parse().unwrap()).or_default() +=
                    rate * 600.0 * probability.parse::<f64>().unwrap();
            }
        }
    }
    (requests, mixture)
}

/// Shares of lengths below, and of at most, `tokens`.
fn ranks(mixture: &BTreeMap<u32, f64>, tokens: u32) -> std::ops::RangeInclusive<f64> {
    let all: f64 = mixture.values().sum();
    let below: f64 = mixture.range(..tokens).map(|(_, weight)| weight).sum();
    let upto: f64 = mixture.range(..=tokens).map(|(_, weight)| weight).sum();
    below / all - 0.005..=upto / all + 0.005
}

/// `blis workload inspect` shows the figures of the folder's files.
#[test]
fn the_published_clients_send_what_was_measured() {
    let Some(path) = published() else { return };
    let whole = Spec::load(&path).unwrap();
    let windows: usize = whole.clients.iter().map(|client| client.windows.len()).sum();
    assert_eq!((whole.clients.len(), windows, &whole.warnings[..]), (20, 1499, &[][..]));
    let part =
        ServeGenOptions { start_secs: PART.0, duration_secs: Some(PART.1 - PART.0), ..ServeGenOptions::default() };
    let clients = load(&crate::spec::Beside(path.clone()), Path::new(""), "data", &part).unwrap().clients;
    let spec = Spec { clients, ..Spec::default() };
    let profile = WorkloadProfile::new(spec.generate_immediate(&options()).unwrap(), 16).unwrap();
    for (key, lengths) in [("input_tokens", &profile.input_tokens), ("output_tokens", &profile.output_tokens)] {
        let (requests, mixture) = mixture(&path, key);
        assert!((profile.requests as f64 - requests).abs() < 20.0, "{} of {requests}", profile.requests);
        for (share, tokens) in [(0.5, lengths.p50), (0.9, lengths.p90), (0.99, lengths.p99)] {
            assert!(ranks(&mixture, tokens).contains(&share), "{key}: {tokens} at {:?}", ranks(&mixture, tokens));
        }
        let longest = *mixture.keys().next_back().unwrap();
        assert!(
            lengths.max <= longest && ranks(&mixture, lengths.max).contains(&1.0),
            "{key}: {} of {longest}",
            lengths.max
        );
    }
}
