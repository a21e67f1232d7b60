//! Results of `vllm bench serve` and SGLang's `bench_serving`: one JSON object with one list per quantity, which has an
//! entry per request. Only the lists that a replay needs are read, and those of latencies where they are wanted.

use std::fmt;
use std::io::BufRead;
use std::sync::Arc;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::TraceError;
use super::json::{Documents, MeasuredNumber, Number, SECOND, deserialize_by_kind, need};
use super::names::Names;
use super::prefix::ROOT;
use super::recorded::RecordedTimes;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents};
use super::{TraceOptions, Workload};
use blis_diag::RowError;

/// One run of a benchmark. All lists have one entry per request. `TIMES`: whether the lists of latencies are read.
#[derive(Default)]
pub(super) struct BenchRun<const TIMES: bool> {
    /// Lengths of the prompts, tokens.
    input_lens: Option<Vec<u32>>,
    output_lens: Option<Vec<u32>>,
    /// Start times, s, of an arbitrary clock.
    pub start_times: Option<Vec<f64>>,
    /// One flag per request: whether it failed.
    errors: Option<Vec<bool>>,
    /// Duration of the run, s.
    pub duration: Option<f64>,
    /// Requests per second; infinite if all were sent at once.
    pub request_rate: Option<Rate>,
    model: Option<String>,
    /// Times to first token, s; `None` where there was none.
    ttfts: Option<Vec<Option<f64>>>,
    /// Sums of the gaps between tokens, s.
    gaps: Option<Vec<Option<f64>>>,
    /// End-to-end latencies, s.
    latencies: Option<Vec<Option<f64>>>,
}

/// A rate, which may be `inf` or text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rate {
    Finite(f64),
    Word(String),
}

/// Reads consecutive runs. `arrivals` gives the arrival times of so many requests, µs from the start of the run, and
/// the end of the run.
pub(super) fn read<const TIMES: bool>(
    input: impl BufRead,
    file: &str,
    options: &TraceOptions,
    detailed: &str,
    arrivals: impl Fn(&BenchRun<TIMES>, usize) -> Result<(Vec<u64>, u64), RowError>,
) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut documents: Documents<_, BenchRun<TIMES>> = Documents::new(input, &file);
    let (mut base, mut runs, mut failed) = (0_u64, 0_u64, 0_u64);
    while let Some(run) = if intake.wants_more() { documents.next()? } else { None } {
        let located = |fault: RowError| fault.at(&file, documents.line());
        let lengths = run.lengths(detailed).and_then(|(inputs, outputs)| {
            let (at, end) = arrivals(&run, inputs.len())?;
            Ok((inputs, outputs, at, end))
        });
        let (inputs, outputs, at, end) = lengths.map_err(located)?;
        intake.measured_with(run.model.as_deref());
        for (index, ((&input, &output), &at)) in inputs.iter().zip(outputs).zip(&at).enumerate() {
            let id = intake.next_id()?;
            if output == 0 || run.errors.as_ref().is_some_and(|errors| errors[index]) {
                failed += 1;
            } else if input == 0 {
                intake.bad(located(RowError::new(format!(
                    "`input_lens[{index}]` is 0: a prompt has at least one token"
                ))))?;
            } else if intake.wants_more() {
                let (arrival, terms) = (base.saturating_add(at), NamedMetadata::default());
                let times = if TIMES { run.times(index).map(Some) } else { Ok(None) };
                if let Some(times) = intake.valid(times, located)? {
                    intake.add_measured(TraceRow { arrival, id, input, output, prefix: ROOT, terms }, times);
                }
            }
        }
        base = base.saturating_add(end);
        runs += 1;
    }
    if runs > 1 {
        intake.notes.push(format!("{runs} consecutive runs"));
    }
    intake.note_left_out(failed, "failed request");
    intake.finish(Origin::Zero, SharedContents::default(), Names::default())
}

impl<const TIMES: bool> BenchRun<TIMES> {
    /// Input and output lengths, in lists of equal length. `detailed` is the option of the benchmark that writes them.
    fn lengths(&self, detailed: &str) -> Result<(&[u32], &[u32]), RowError> {
        let list = |list: &'_ Option<Vec<u32>>, name: &str| match list {
            Some(_) => Ok(()),
            None => Err(RowError::new(format!("the list is missing: `{name}`"))
                .hint(format!("the result contains no single requests; benchmark with `{detailed}`"))),
        };
        list(&self.input_lens, "input_lens").and(list(&self.output_lens, "output_lens"))?;
        let (inputs, outputs) = (self.input_lens.as_deref().unwrap_or(&[]), self.output_lens.as_deref().unwrap_or(&[]));
        let others = [
            ("output_lens", Some(outputs.len())),
            ("start_times", self.start_times.as_ref().map(Vec::len)),
            ("errors", self.errors.as_ref().map(Vec::len)),
            ("ttfts", self.ttfts.as_ref().map(Vec::len)),
            ("itls", self.gaps.as_ref().map(Vec::len)),
            ("latencies", self.latencies.as_ref().map(Vec::len)),
        ];
        let differs = others.into_iter().find_map(|(name, len)| Some((name, len.filter(|&len| len != inputs.len())?)));
        match differs {
            Some((name, len)) => Err(RowError::new(format!("{} `input_lens`, but {len} `{name}`", inputs.len()))),
            None => Ok((inputs, outputs)),
        }
    }

    /// The latencies of a request that succeeded: `ttfts[index]`, and `latencies[index]` or else the sum of `itls[index]`
    /// after the first token.
    fn times(&self, index: usize) -> Result<RecordedTimes, RowError> {
        let of = |list: &Option<Vec<Option<f64>>>| list.as_ref().and_then(|list| list[index]);
        if self.ttfts.is_none() || self.gaps.is_none() && self.latencies.is_none() {
            let missing = if self.ttfts.is_none() { "ttfts" } else { "itls" };
            return Err(RowError::new(format!("the list is missing: `{missing}`"))
                .hint("the result contains no latencies of single requests; benchmark with `--save-detailed`"));
        }
        let ttft = of(&self.ttfts);
        let e2e = of(&self.latencies).or_else(|| Some(ttft? + of(&self.gaps)?));
        ttft.zip(e2e).and_then(|(ttft, e2e)| RecordedTimes::new(ttft * 1e6, e2e * 1e6)).ok_or_else(|| {
            RowError::new(format!("request {index} has no valid latencies: `ttfts`, `itls` or `latencies`"))
        })
    }

    /// The end of the run, µs from its start, not before the last arrival.
    pub fn end(&self, last: u64) -> Result<u64, RowError> {
        let duration = self.duration.map_or(Ok(0), |seconds| Number::Real(seconds).micros("duration", SECOND))?;
        Ok(duration.max(last))
    }

    pub fn start_times(&self) -> Result<&[f64], RowError> {
        need(self.start_times.as_deref(), "start_times")
    }
}

impl<'de, const TIMES: bool> Deserialize<'de> for BenchRun<TIMES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BenchVisitor<const TIMES: bool>;
        impl<'de, const TIMES: bool> Visitor<'de> for BenchVisitor<TIMES> {
            type Value = BenchRun<TIMES>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the results of a benchmark")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BenchRun<TIMES>, A::Error> {
                let mut run = BenchRun::default();
                while let Some(key) = map.next_key::<String>()? {
                    let twice = match key.as_str() {
                        "input_lens" => {
                            run.input_lens.replace(map.next_value_seed(CheckedList("input_lens", count))?).is_some()
                        }
                        "output_lens" => {
                            run.output_lens.replace(map.next_value_seed(CheckedList("output_lens", count))?).is_some()
                        }
                        "start_times" => {
                            run.start_times.replace(map.next_value_seed(CheckedList("start_times", seconds))?).is_some()
                        }
                        "errors" => run.errors.replace(map.next_value_seed(CheckedList("errors", failed))?).is_some(),
                        "ttfts" if TIMES => {
                            run.ttfts.replace(map.next_value_seed(CheckedList("ttfts", measured))?).is_some()
                        }
                        "itls" if TIMES => {
                            run.gaps.replace(map.next_value_seed(CheckedList("itls", gap_sum))?).is_some()
                        }
                        "latencies" if TIMES => {
                            run.latencies.replace(map.next_value_seed(CheckedList("latencies", measured))?).is_some()
                        }
                        "duration" => run.duration.replace(map.next_value::<Number>()?.real()).is_some(),
                        "request_rate" => run.request_rate.replace(map.next_value()?).is_some(),
                        "model_id" => std::mem::replace(&mut run.model, map.next_value()?).is_some(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            false
                        }
                    };
                    if twice {
                        return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                }
                Ok(run)
            }
        }
        deserializer.deserialize_map(BenchVisitor::<TIMES>)
    }
}

fn count(item: Number, name: &str) -> Result<u32, RowError> {
    item.count(name)
}

fn seconds(item: Number, _: &str) -> Result<f64, RowError> {
    Ok(item.real())
}

fn measured(item: MeasuredNumber, _: &str) -> Result<Option<f64>, RowError> {
    Ok(item.0)
}

/// The sum of the gaps of one request, s; `None` if one of them is missing.
fn gap_sum(gaps: Vec<MeasuredNumber>, _: &str) -> Result<Option<f64>, RowError> {
    Ok(gaps.into_iter().map(|gap| gap.0).sum())
}

/// vLLM writes an error text for every request, an empty one if it succeeded; other tools write `null`.
fn failed(error: Option<HasError>, _: &str) -> Result<bool, RowError> {
    Ok(error.is_some_and(|HasError(present)| present))
}

/// Whether there is an error text, without the text.
struct HasError(bool);

deserialize_by_kind!(HasError, "an error message", deserialize_str, {
    visit_str(text: &str) => Ok(HasError(!text.is_empty())),
});

/// The list of a given name, each of its items converted by a check.
struct CheckedList<I, O>(&'static str, fn(I, &str) -> Result<O, RowError>);

impl<'de, I: Deserialize<'de>, O> DeserializeSeed<'de> for CheckedList<I, O> {
    type Value = Vec<O>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<O>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, I: Deserialize<'de>, O> Visitor<'de> for CheckedList<I, O> {
    type Value = Vec<O>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the list `{}`", self.0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<O>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            let name = format!("{}[{}]", self.0, list.len());
            list.push(self.1(item, &name).map_err(|fault| de::Error::custom(fault.what()))?);
        }
        Ok(list)
    }
}

deserialize_by_kind!(Rate, "a rate, `inf` or `trace`", deserialize_any, {
    visit_u64(rate: u64) => Ok(Rate::Finite(rate as f64)),
    visit_f64(rate: f64) => Ok(Rate::Finite(rate)),
    visit_str(word: &str) => {
        let finite = word.parse().ok().filter(|rate: &f64| rate.is_finite());
        // An empty text replaces Python's `Infinity` here.
        let word = if word.is_empty() { "inf" } else { word };
        Ok(finite.map_or_else(|| Rate::Word(word.to_owned()), Rate::Finite))
    },
});
