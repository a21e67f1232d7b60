use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::super::{Load, Spec};
use super::*;

/// A folder in memory.
struct Folder(BTreeMap<&'static str, String>);

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<String> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.0.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn names(&self, _path: &Path) -> io::Result<Vec<String>> {
        Ok(self.0.keys().map(|&name| name.to_owned()).collect())
    }
}

/// Two clients: `0` is active in the morning of both days, `10` at midnight.
fn folder() -> Folder {
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
    Folder(BTreeMap::from([
        ("chunk-0-trace.csv", busy),
        ("chunk-0-dataset.json", lengths.to_owned()),
        ("chunk-10-trace.csv", night.to_owned()),
        ("chunk-10-dataset.json", lengths.to_owned()),
    ]))
}

fn cohorts(folder: &Folder) -> Result<Vec<Cohort>, SpecFileError> {
    load(folder, Path::new("data"), "data", &Options::default())
}

#[test]
fn active_clients_become_cohorts_of_their_time_of_day() {
    let cohorts = cohorts(&folder()).unwrap();
    let ids: Vec<&str> = cohorts.iter().map(|cohort| cohort.client.id.as_str()).collect();
    assert_eq!(ids, ["midnight-critical", "morning-critical"]);
    let spikes: Vec<_> =
        cohorts.iter().map(|cohort| cohort.spike.unwrap()).map(|s| (s.start.0, s.duration.0, s.trace_rate)).collect();
    assert_eq!(spikes, [(0, 600_000_000, Some(0.5)), (780_000_000, 600_000_000, Some(2.0))], "the mean of both days");
    assert_eq!(cohorts[0].client.arrival, Arrival::Weibull(Shape::Cv(1.5)));
    assert_eq!(cohorts[1].client.arrival, Arrival::Gamma(Shape::Own { shape: 0.25, scale_us: 2e6 }));
    let Lengths::LogNormal { mu, sigma, .. } = cohorts[1].client.input else { panic!("{:?}", cohorts[1].client.input) };
    // ln 100 and ln 400 lie 2 ln 2 apart: their mean is ln 200, their standard deviation ln 2.
    assert!((mu - 200_f64.ln()).abs() < 1e-12 && (sigma - 2_f64.ln()).abs() < 1e-12, "{mu} {sigma}");
    assert_eq!((cohorts[1].population, cohorts[1].client.load), (1, Load::Share(1.0)));
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
    assert!(!cohort.client.waits_for_answers());
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
    data/chunk-0-dataset.json:1:24: no ServeGen dataset: invalid type: integer `3`, expected a string at line 1 column 24
      1 | {"0": {"input_tokens": 3}}
        |                        ^
    hint: it is {"start": {"input_tokens": "{tokens: probability, …}", "output_tokens": …}, …}
    "#);
    insta::assert_snapshot!(broken("chunk-0-dataset.json", "{\"0\": {\"input_tokens\": \"{1: 0.5, 2}\"}}"), @r#"
    data/chunk-0-dataset.json: start `0`: input_tokens: `2` is no `tokens: probability`
    hint: it is {"start": {"input_tokens": "{tokens: probability, …}", "output_tokens": …}, …}
    "#);
    insta::assert_snapshot!(cohorts(&Folder(BTreeMap::new())).unwrap_err(), @r"
    data: no file `chunk-<id>-trace.csv` in this folder
    hint: a ServeGen folder has one, and a `-dataset.json`, per client
    ");
    let mut silent = folder();
    silent.0.retain(|name, _| name.starts_with("chunk-0"));
    silent.0.insert("chunk-0-trace.csv", "0,0,0,,0,0\n".to_owned());
    insta::assert_snapshot!(cohorts(&silent).unwrap_err(), @r"
    data: no client of this folder is ever active
    hint: a client is `chunk-<id>-trace.csv` with rates above 0, and `chunk-<id>-dataset.json`
    ");
}

/// 1268 prompt and 1527 answer tokens on average are stated for all 73 clients; here are the 20
/// largest, at three times of the day.
#[test]
fn the_published_clients_are_read() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/traces/servegen-deepseek-r1"));
    if !path.exists() {
        #[allow(clippy::print_stderr, reason = "a test that did nothing must say so")]
        {
            eprintln!("skipped: {} is not there", path.display());
        }
        return;
    }
    let spec = Spec::load(&path).unwrap();
    let rate: f64 = spec.cohorts.iter().map(|cohort| cohort.spike.unwrap().trace_rate.unwrap()).sum();
    let options = super::super::GenerateOptions {
        seed: 42,
        block_size: std::num::NonZeroU32::new(16).unwrap(),
        horizon: Micros::MAX,
        num_requests: None,
        timeout: None,
    };
    let requests: Vec<_> = spec.generate(&options).unwrap().requests.collect();
    let expected = rate * 600.0;
    assert!((requests.len() as f64 / expected - 1.0).abs() < 0.01, "{} of {expected}", requests.len());
    assert!(requests.is_sorted_by_key(|request| request.arrival));
    let output = requests.iter().map(|request| f64::from(request.output_tokens)).sum::<f64>() / requests.len() as f64;
    assert!((500.0..3000.0).contains(&output), "{output}");
}
