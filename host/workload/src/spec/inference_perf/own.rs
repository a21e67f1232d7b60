//! inference-perf's own configuration file: `load` and `data`, which describe the requests. Sections about servers,
//! reports and the like concern a real run and are skipped.

use serde::Deserialize;
use serde::de::IgnoredAny;

use blis_sim::units::Micros;

use super::super::client::{Client, Timeout};
use super::super::error::SpecFileError;
use super::super::lengths::{Bounds, LONGEST, Lengths};
use super::super::raw::{Spanned, Word};
use super::super::read::{ABOVE_0, FROM_0, SpecReader};
use super::super::specification::Spec;
use super::super::window::{Window, WindowRate};
use super::super::{Arrival, PromptCycle};
use super::countable::countable;
use super::sweep;
use super::sweep::RawSweep;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPerfFile {
    load: Option<Spanned<RawLoad>>,
    data: Option<Spanned<RawData>>,
    api: Option<IgnoredAny>,
    server: Option<IgnoredAny>,
    tokenizer: Option<IgnoredAny>,
    metrics: Option<IgnoredAny>,
    report: Option<IgnoredAny>,
    storage: Option<IgnoredAny>,
    circuit_breakers: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawLoad {
    #[serde(rename = "type")]
    kind: Option<Word>,
    interval: Option<IgnoredAny>,
    stages: Option<Vec<Spanned<RawPerfStage>>>,
    sweep: Option<Spanned<RawSweep>>,
    num_workers: Option<IgnoredAny>,
    worker_max_concurrency: Option<IgnoredAny>,
    worker_max_tcp_connections: Option<IgnoredAny>,
    base_seed: Option<Word>,
    lora_traffic_split: Option<Spanned<IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPerfStage {
    rate: Option<Word>,
    duration: Option<Word>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawData {
    #[serde(rename = "type")]
    kind: Option<Word>,
    path: Option<IgnoredAny>,
    input_distribution: Option<Spanned<RawNormal>>,
    output_distribution: Option<Spanned<RawNormal>>,
    shared_prefix: Option<Spanned<RawShared>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawNormal {
    min: Option<Word>,
    max: Option<Word>,
    mean: Option<Word>,
    std_dev: Option<Word>,
    total_count: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawShared {
    num_groups: Option<Word>,
    num_prompts_per_group: Option<Word>,
    system_prompt_len: Option<Word>,
    question_len: Option<Word>,
    output_len: Option<Word>,
    question_len_std: Option<Word>,
    question_len_min: Option<Word>,
    question_len_max: Option<Word>,
    output_len_std: Option<Word>,
    output_len_min: Option<Word>,
    output_len_max: Option<Word>,
    enable_multi_turn_chat: Option<Word>,
}

/// Whether `text` is such a file: other specifications have no `load`.
pub(in super::super) fn is_own(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("load:"))
}

pub(in super::super) fn parse(reader: &SpecReader<'_>) -> Result<Spec, SpecFileError> {
    const SHAPES: [&str; 3] = ["synthetic", "random", "shared_prefix"];
    let raw: RawPerfFile = reader.yaml()?.unwrap_or_default();
    let missing = |key: &str| {
        SpecFileError::whole(
            reader.file(),
            format!("`{key}` is missing"),
            "an inference-perf file has `load` and `data`",
        )
    };
    let load = raw.load.ok_or_else(|| missing("load"))?;
    let data = raw.data.ok_or_else(|| missing("data"))?;
    let arrival = arrival(reader, &load.value)?;
    let stages = stages(reader, &load)?;
    let kind = reader.needs("data", "type", data.value.kind.as_ref(), data.referenced)?;
    let shape = SHAPES.into_iter().find(|shape| *shape == kind.value).ok_or_else(|| {
        let what = format!("data: `type` is `{}`, which is not generated here", kind.value);
        reader.wrong(kind.referenced, what, "`synthetic`, `random` and `shared_prefix` are; a recording can be a trace")
    })?;
    let seed = reader.whole("load", "base_seed", load.value.base_seed.as_ref(), 0..=u64::MAX)?;
    let mut spec = if shape == "shared_prefix" {
        shared_prefix(reader, &data, &stages, arrival)?
    } else {
        synthetic(reader, &data, &stages, arrival)?
    };
    spec.seed = seed;
    if let Some(split) = &load.value.lora_traffic_split {
        let what = format!("{}: the split over adapters is not read", reader.location(split.referenced));
        spec.warnings.push((
            what,
            "the base model serves all requests; clients of a specification can name adapters (`adapter`)".to_owned(),
        ));
    }
    Ok(spec)
}

fn arrival(reader: &SpecReader<'_>, load: &RawLoad) -> Result<Arrival, SpecFileError> {
    match &load.kind {
        None => Ok(Arrival::Constant),
        Some(kind) if kind.value == "constant" => Ok(Arrival::Constant),
        Some(kind) if kind.value == "poisson" => Ok(Arrival::Poisson),
        Some(kind) => {
            let what = format!("load: `type` is `{}`, which is not simulated yet", kind.value);
            Err(reader.wrong(kind.referenced, what, "`constant` and `poisson` are"))
        }
    }
}

fn stages(reader: &SpecReader<'_>, load: &Spanned<RawLoad>) -> Result<Vec<(f64, f64)>, SpecFileError> {
    if let Some(sweep) = &load.value.sweep {
        if load.value.stages.as_ref().is_some_and(|stages| !stages.is_empty()) {
            let what = "load: `stages` and `sweep` both define how the rate changes";
            return Err(reader.wrong(sweep.referenced, what, "keep one of them"));
        }
        return sweep::stages(reader, sweep);
    }
    let mut stages = Vec::new();
    for (index, stage) in load.value.stages.iter().flatten().enumerate() {
        let subject = format!("load: stage {}", index + 1);
        let number = |key, word: &Option<Word>| {
            let number = reader.number(&subject, key, word.as_ref(), ABOVE_0)?;
            reader.needs(&subject, key, number, stage.referenced)
        };
        let (rate, duration) = (number("rate", &stage.value.rate)?, number("duration", &stage.value.duration)?);
        countable(reader, &subject, rate, duration, stage.referenced)?;
        stages.push((rate, duration));
    }
    if stages.is_empty() {
        let hint = "add `stages`, each with `rate` and `duration`";
        return Err(reader.wrong(load.referenced, "load: there is no stage", hint));
    }
    Ok(stages)
}

/// One client with normally distributed lengths.
fn synthetic(
    reader: &SpecReader<'_>,
    data: &Spanned<RawData>,
    stages: &[(f64, f64)],
    arrival: Arrival,
) -> Result<Spec, SpecFileError> {
    let lengths = |key, raw: &Option<Spanned<RawNormal>>| {
        let raw = reader.needs("data", key, raw.as_ref(), data.referenced)?;
        normal(reader, &format!("data: {key}"), raw)
    };
    let input = lengths("input_distribution", &data.value.input_distribution)?;
    let output = lengths("output_distribution", &data.value.output_distribution)?;
    Ok(one_client(stages, Client { arrival, ..Client::new("inference-perf", 1.0, input, output) }))
}

/// `client` in all stages, one after the other.
fn one_client(stages: &[(f64, f64)], client: Client) -> Spec {
    let mut start = Micros::ZERO;
    let mut windows = Vec::new();
    for &(rate, seconds) in stages {
        let end = start.saturating_add(Micros::from_secs_f64(seconds).max(Micros(1)));
        windows.push(Window { rate: WindowRate::Exact(rate), ..Window::usual(start, end) });
        start = end;
    }
    let aggregate_rate = stages.iter().map(|(rate, _)| rate).sum();
    Spec { aggregate_rate, clients: vec![Client { windows, ..client }], ..Spec::default() }
}

fn normal(reader: &SpecReader<'_>, subject: &str, raw: &Spanned<RawNormal>) -> Result<Lengths, SpecFileError> {
    let needed = |key, word: &Option<Word>, range| {
        let number = reader.number(subject, key, word.as_ref(), range)?;
        reader.needs(subject, key, number, raw.referenced)
    };
    let (mean, std_dev) = (needed("mean", &raw.value.mean, ABOVE_0)?, needed("std_dev", &raw.value.std_dev, FROM_0)?);
    let bound = |key, word: &Option<Word>| reader.whole(subject, key, word.as_ref(), 0..=LONGEST);
    let min = bound("min", &raw.value.min)?.unwrap_or(1).max(1);
    let max = bound("max", &raw.value.max)?.unwrap_or(LONGEST);
    if min > max {
        let what = format!("{subject}: `min` is {min}, more than `max`, {max}");
        return Err(reader.wrong(raw.referenced, what, "the minimum must not exceed the maximum"));
    }
    Ok(Lengths::Gaussian { mean, std_dev, bounds: Bounds { min, max } })
}

/// Fixed prompts in groups that share a system prompt: request `i` has prompt `i` modulo their number. With
/// `enable_multi_turn_chat` it is the next round of user `i`, and waits for the one before.
fn shared_prefix(
    reader: &SpecReader<'_>,
    data: &Spanned<RawData>,
    stages: &[(f64, f64)],
    arrival: Arrival,
) -> Result<Spec, SpecFileError> {
    const SUBJECT: &str = "data: shared_prefix";
    let section = reader.needs("data", "shared_prefix", data.value.shared_prefix.as_ref(), data.referenced)?;
    let (raw, at) = (&section.value, section.referenced);
    let count = |key, word: &Option<Word>, least| {
        let count = reader.whole(SUBJECT, key, word.as_ref(), least..=1_000_000_u32)?;
        reader.needs(SUBJECT, key, count, at)
    };
    let lengths = |key: &str, mean: u32, words: [&Option<Word>; 3]| {
        let [std_dev, min, max] = words;
        let std_dev = reader.number(SUBJECT, &format!("{key}_std"), std_dev.as_ref(), FROM_0)?.unwrap_or(0.0);
        let bound =
            |end, word: &Option<Word>| reader.whole(SUBJECT, &format!("{key}_{end}"), word.as_ref(), 1..=LONGEST);
        let (min, max) = (bound("min", min)?.unwrap_or(1), bound("max", max)?.unwrap_or(LONGEST));
        if min > max {
            let what = format!("{SUBJECT}: `{key}_min` is {min}, more than `{key}_max`, {max}");
            return Err(reader.wrong(at, what, "the minimum must not exceed the maximum"));
        }
        let bounds = Bounds { min, max };
        Ok(if std_dev > 0.0 {
            Lengths::Gaussian { mean: mean.into(), std_dev, bounds }
        } else {
            Lengths::Constant(mean)
        })
    };
    let prompts = PromptCycle {
        groups: count("num_groups", &raw.num_groups, 1)?,
        prompts_per_group: count("num_prompts_per_group", &raw.num_prompts_per_group, 1)?,
        system_tokens: count("system_prompt_len", &raw.system_prompt_len, 0)?,
        conversations: reader
            .switch(SUBJECT, "enable_multi_turn_chat", raw.enable_multi_turn_chat.as_ref())?
            .unwrap_or(false),
    };
    prompts.check().map_err(|(what, hint)| reader.wrong(at, format!("{SUBJECT}: {what}"), hint))?;
    let (question, output) = (count("question_len", &raw.question_len, 1)?, count("output_len", &raw.output_len, 1)?);
    let input =
        lengths("question_len", question, [&raw.question_len_std, &raw.question_len_min, &raw.question_len_max])?;
    let output = lengths("output_len", output, [&raw.output_len_std, &raw.output_len_min, &raw.output_len_max])?;
    let client = Client {
        arrival,
        slo_class: "standard".to_owned(),
        prompts: Some(prompts),
        timeout: Timeout::Never,
        ..Client::new("inference-perf", 1.0, input, output)
    };
    Ok(one_client(stages, client))
}

#[cfg(test)]
mod tests {
    use super::super::super::NoFiles;
    use super::*;

    const FILE: &str = "\
load:
  type: poisson
  stages:
    - { rate: 4, duration: 30 }
    - { rate: 8, duration: 30 }
  base_seed: 3
api: { type: completion, streaming: true }
server: { type: vllm, base_url: http://0.0.0.0 }
data:
  type: random
  input_distribution: { min: 10, max: 100, mean: 50, std_dev: 10, total_count: 100 }
  output_distribution: { mean: 20, std_dev: 0 }
";
    const SHARED: &str = "\
load: { type: constant, stages: [{ rate: 10, duration: 10 }] }
data:
  type: shared_prefix
  shared_prefix: { num_groups: 2, num_prompts_per_group: 5, system_prompt_len: 64, question_len: 10, output_len: 5 }
";

    fn error(text: &str) -> String {
        Spec::parse("perf.yaml", text, &NoFiles).unwrap_err().to_string()
    }

    #[test]
    fn stages_become_windows_of_one_client() {
        let spec = Spec::parse("perf.yaml", FILE, &NoFiles).unwrap();
        let rates: Vec<_> = spec.clients[0].windows.iter().map(|window| (window.start.0, window.rate)).collect();
        assert_eq!(rates, [(0, WindowRate::Exact(4.0)), (30_000_000, WindowRate::Exact(8.0))]);
        assert_eq!((spec.seed, spec.clients[0].arrival), (Some(3), Arrival::Poisson));
        assert_eq!(spec.clients[0].input, Lengths::gaussian(50.0, 10.0, 10, 100));
    }

    #[test]
    fn prompts_are_sent_in_turn() {
        let client = |text: &str| {
            let spec = Spec::parse("perf.yaml", text, &NoFiles).unwrap();
            assert_eq!((spec.clients.len(), spec.warnings.len(), spec.aggregate_rate), (1, 0, 10.0));
            spec.clients[0].clone()
        };
        let single = client(SHARED);
        let prompts = PromptCycle { groups: 2, prompts_per_group: 5, system_tokens: 64, conversations: false };
        assert_eq!((single.prompts, single.arrival), (Some(prompts), Arrival::Constant));
        assert_eq!((single.input, single.output), (Lengths::Constant(10), Lengths::Constant(5)));
        let chat = client(&SHARED.replace("output_len: 5", "output_len: 5, enable_multi_turn_chat: true"));
        assert_eq!(chat.prompts, Some(PromptCycle { conversations: true, ..prompts }));
        let spread = client(&SHARED.replace("output_len: 5", "output_len: 5, output_len_std: 2, output_len_max: 9"));
        assert_eq!(spread.output, Lengths::gaussian(5.0, 2.0, 1, 9));
    }

    /// The file of a benchmark of which the requests were measured (`../shared/data/fidelity`): 100 prompts, which come
    /// again after 100 requests, in two stages of Poisson arrivals.
    #[test]
    fn the_file_of_a_measured_benchmark_gives_its_requests() {
        const MEASURED: &str = "\
load: { type: poisson, stages: [{ rate: 8, duration: 600 }, { rate: 20, duration: 600 }] }
data:
  type: shared_prefix
  shared_prefix: { num_groups: 20, num_prompts_per_group: 5, system_prompt_len: 100, question_len: 447, output_len: 248 }
";
        let spec = Spec::parse("perf.yaml", MEASURED, &NoFiles).unwrap();
        let requests: Vec<_> = spec.generate(&super::super::super::tests::options()).unwrap().requests.collect();
        let number = requests.len() as f64;
        assert!((number / 16_800.0 - 1.0).abs() < 0.03, "{number}, five standard deviations");
        assert!(requests.iter().all(|request| (request.input_tokens, request.output_tokens) == (547, 248)));
        assert!((0..requests.len() - 100).all(|at| requests[at].content == requests[at + 100].content));
        assert!((1..100).all(|at| requests[at].content != requests[0].content));
        let late = requests.iter().filter(|request| request.arrival.0 >= 600_000_000).count() as f64;
        assert!((late / number - 20.0 / 28.0).abs() < 0.02, "{late}");
    }

    #[test]
    fn what_is_not_simulated_is_reported() {
        insta::assert_snapshot!(error(&FILE.replace("type: poisson", "type: concurrent")), @r"
        perf.yaml:2:9: load: `type` is `concurrent`, which is not simulated yet
          2 |   type: concurrent
            |         ^^^^^^^^^^
        hint: `constant` and `poisson` are
        ");
        insta::assert_snapshot!(error(&FILE.replace("random", "shareGPT")), @r"
        perf.yaml:10:9: data: `type` is `shareGPT`, which is not generated here
          10 |   type: shareGPT
             |         ^^^^^^^^
        hint: `synthetic`, `random` and `shared_prefix` are; a recording can be a trace
        ");
        insta::assert_snapshot!(error(&FILE.replace("mean: 20", "maen: 20")), @r"
        perf.yaml:12:26: unknown key `maen`
          12 |   output_distribution: { maen: 20, std_dev: 0 }
             |                          ^^^^
        hint: did you mean `mean`?
        ");
        insta::assert_snapshot!(error(&FILE.replace("duration: 30", "")), @r"
        perf.yaml:4:7: load: stage 1: `duration` is missing
          4 |     - { rate: 4,  }
            |       ^
        hint: add `duration: …`
        ");
    }
}
