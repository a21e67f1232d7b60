//! Parses length distributions and arrival processes.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use super::super::arrival::{Arrival, IntervalShape};
use super::super::error::SpecFileError;
use super::super::lengths::{Bounds, Empirical, LONGEST, Lengths};
use super::super::raw::{Entries, RawArrival, RawLengths, Word};
use super::super::read::{ABOVE_0, ANY, FROM_0, NumberRange, real};
use super::parser::Parser;
use blis_diag::yaml::{Mark, Spanned};
use blis_diag::{Location, name_hint, quoted};

const TYPES: [&str; 7] =
    ["gaussian", "exponential", "lognormal", "pareto_lognormal", "uniform", "constant", "empirical"];
/// Valid shapes of an arrival process.
const SHAPES: RangeInclusive<f64> = 1e-4..=1e4;
const SCALES_US: RangeInclusive<f64> = 1e-6..=1e18;
const PROCESSES: [&str; 4] = ["poisson", "constant", "gamma", "weibull"];

impl Parser<'_> {
    /// Parses an arrival process.
    pub fn arrival(&self, subject: &str, raw: &Spanned<RawArrival>) -> Result<Arrival, SpecFileError> {
        let (reader, subject) = (&self.reader, format!("{subject}: arrival"));
        let RawArrival { process, cv, shape, scale } = &raw.value;
        let process = reader.needs(&subject, "process", process.as_ref(), raw.referenced)?;
        let name = reader.one_of(&subject, "process", process, &PROCESSES)?;
        // 0 means that it is not given.
        let number = |key, word: Option<&Word>| {
            reader.number(&subject, key, word, FROM_0).map(|number| number.filter(|&number| number > 0.0))
        };
        let form = match (number("shape", shape.as_ref())?, number("scale", scale.as_ref())?) {
            (Some(shape), Some(scale_us)) => IntervalShape::Own { shape, scale_us },
            (None, None) => IntervalShape::Cv(number("cv", cv.as_ref())?.unwrap_or(1.0)),
            _ => {
                let what = format!("{subject}: `shape` and `scale` go together");
                return Err(reader.wrong(raw.referenced, what, "give both, instead of the rate, or only `cv`"));
            }
        };
        let in_range = |cvs: RangeInclusive<f64>| match form {
            IntervalShape::Cv(value) if cvs.contains(&value) => Ok(()),
            IntervalShape::Cv(_) => {
                let (least, most) = cvs.into_inner();
                let word = cv.as_ref().map_or(raw.referenced, |word| word.referenced);
                let what = format!("{subject}: `cv` is out of range");
                Err(reader.wrong(word, what, format!("it must be a number from {least} to {most}")))
            }
            IntervalShape::Own { shape, scale_us } if SHAPES.contains(&shape) && SCALES_US.contains(&scale_us) => {
                Ok(())
            }
            IntervalShape::Own { shape, scale_us } => {
                let what = format!("{subject}: shape {shape} with scale {scale_us} µs");
                let hint = "a shape is from 0.0001 to 10000, a scale from 1e-6 to 1e18 µs";
                Err(reader.wrong(raw.referenced, what, hint))
            }
        };
        match name {
            "constant" => Ok(Arrival::Constant),
            "gamma" => in_range(Arrival::GAMMA_CV).map(|()| Arrival::Gamma(form)),
            "weibull" => in_range(Arrival::WEIBULL_CV).map(|()| Arrival::Weibull(form)),
            _ => Ok(Arrival::Poisson),
        }
    }

    /// Parses a mandatory distribution.
    pub fn needed_lengths(
        &self,
        subject: &str,
        key: &str,
        raw: Option<&Spanned<RawLengths>>,
        at: Mark,
    ) -> Result<Lengths, SpecFileError> {
        let lengths = self.lengths(subject, key, raw)?;
        self.reader.needs(subject, key, lengths, at)
    }

    /// Parses a distribution; `None` if it is not given.
    pub fn lengths(
        &self,
        subject: &str,
        key: &str,
        raw: Option<&Spanned<RawLengths>>,
    ) -> Result<Option<Lengths>, SpecFileError> {
        let Some(raw) = raw else { return Ok(None) };
        let subject = format!("{subject}: {key}");
        let kind = self.reader.needs(&subject, "type", raw.value.kind.as_ref(), raw.referenced)?;
        let name = self.reader.one_of(&subject, "type", kind, &TYPES)?;
        if let (Some(file), false) = (&raw.value.file, name == "empirical") {
            let what = format!("{subject}: `file` with a distribution that is not empirical");
            return Err(self.reader.wrong(file.referenced, what, "leave it out, or use `type: empirical`"));
        }
        if name == "empirical" {
            return self.empirical(&subject, &raw.value, kind.referenced).map(Some);
        }
        let params = Params { parser: self, subject, at: kind.referenced, entries: raw.value.params.as_ref() };
        params.lengths(name).map(Some)
    }

    fn empirical(&self, subject: &str, raw: &RawLengths, at: Mark) -> Result<Lengths, SpecFileError> {
        let (empirical, at) = match (&raw.params, &raw.file) {
            (Some(params), None) => {
                let mut weights = Vec::new();
                for (tokens, probability) in &params.0 {
                    let weight = self.reader.number(subject, &tokens.value, Some(probability), ANY)?;
                    let count = real(&tokens.value).filter(|tokens| (0.0..=f64::from(LONGEST)).contains(tokens));
                    let Some(count) = count else {
                        let what = format!("{subject}: {} is no number of tokens", quoted(tokens.value.as_bytes()));
                        return Err(self.reader.wrong(
                            tokens.referenced,
                            what,
                            "write `tokens: probability`, a line each",
                        ));
                    };
                    weights.push((count as u32, weight.unwrap_or(0.0)));
                }
                (Empirical::new(weights), at)
            }
            (None, Some(file)) => (self.counted(file)?, file.referenced),
            (None, None) => {
                let what = format!("{subject}: `params` is missing");
                return Err(self.reader.wrong(at, what, "give the probabilities in `params`, or a `file` of them"));
            }
            (Some(_), Some(file)) => {
                let what = format!("{subject}: `params` and `file` both give the probabilities");
                return Err(self.reader.wrong(file.referenced, what, "keep one of them"));
            }
        };
        let empirical = empirical.ok_or_else(|| {
            let hint = "at least one number of tokens needs a probability above 0";
            self.reader.wrong(at, format!("{subject}: no probability is above 0"), hint)
        })?;
        Ok(Lengths::Empirical(Arc::new(empirical)))
    }

    /// Reads a file of lengths and probabilities, CSV or JSON.
    fn counted(&self, file: &Word) -> Result<Option<Empirical>, SpecFileError> {
        let text = self.files.read(Path::new(&file.value)).map_err(|error| {
            let reason = blis_diag::unreadable(&file.value, &error);
            self.reader.wrong(file.referenced, reason.what, "paths are relative to the specification")
        })?;
        let weights = if text.trim_start().starts_with(['{', '[']) { json(&text) } else { csv(&text) };
        let weights = weights.map_err(|(line, what)| {
            let what = format!("{}: {what}", Location::file(file.value.as_str()).line(line));
            self.reader.wrong(
                file.referenced,
                what,
                "a line is `tokens,probability`; JSON is {\"tokens\": probability, …}",
            )
        })?;
        Ok(Empirical::new(weights))
    }
}

/// Parses lines of length and probability; the first line may be a header. An error is the line, from 1, and the
/// mistake.
fn csv(text: &str) -> Result<Vec<(u32, f64)>, (u64, String)> {
    let mut weights = Vec::new();
    for (number, line) in (1_u64..).zip(text.lines()) {
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let pair = line
            .split_once(',')
            .and_then(|(tokens, probability)| weight(real(tokens.trim())?, real(probability.trim())?));
        match pair {
            Some(pair) => weights.push(pair),
            None if number == 1 && !line.starts_with(|c: char| c.is_ascii_digit()) => {}
            None => return Err((number, format!("{} is no `tokens,probability`", quoted(line.as_bytes())))),
        }
    }
    Ok(weights)
}

/// Parses `{"tokens": probability, …}` or `[[tokens, probability], …]`.
fn json(text: &str) -> Result<Vec<(u32, f64)>, (u64, String)> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Json {
        Map(std::collections::BTreeMap<String, f64>),
        Pairs(Vec<(f64, f64)>),
    }
    let json = serde_json::from_str(text).map_err(|error| (error.line() as u64, error.to_string()))?;
    let pairs: Vec<(Option<f64>, f64)> = match json {
        Json::Map(map) => map.into_iter().map(|(tokens, weight)| (real(&tokens), weight)).collect(),
        Json::Pairs(pairs) => pairs.into_iter().map(|(tokens, weight)| (Some(tokens), weight)).collect(),
    };
    let pairs = pairs.into_iter().map(|(tokens, probability)| {
        let pair = tokens.and_then(|tokens| weight(tokens, probability));
        pair.ok_or_else(|| (1, "a pair of tokens and probability is out of range".to_owned()))
    });
    pairs.collect()
}

fn weight(tokens: f64, probability: f64) -> Option<(u32, f64)> {
    let fits = (0.0..=f64::from(LONGEST)).contains(&tokens) && probability.is_finite();
    fits.then_some((tokens as u32, probability))
}

/// The parameters of one distribution.
struct Params<'a> {
    parser: &'a Parser<'a>,
    subject: String,
    at: Mark,
    entries: Option<&'a Entries<Word>>,
}

impl Params<'_> {
    fn lengths(&self, kind: &str) -> Result<Lengths, SpecFileError> {
        match kind {
            "gaussian" => {
                self.only(&["mean", "std_dev", "min", "max"])?;
                let (mean, std_dev) = (self.number("mean", ANY)?, self.number("std_dev", FROM_0)?);
                // Both must be given.
                self.number("min", FROM_0)?;
                self.number("max", ABOVE_0)?;
                Ok(Lengths::Gaussian { mean, std_dev, bounds: self.bounds()? })
            }
            "exponential" => {
                self.only(&["mean", "min", "max"])?;
                Ok(Lengths::Exponential { mean: self.number("mean", ABOVE_0)?, bounds: self.bounds()? })
            }
            "lognormal" => {
                self.only(&["mu", "sigma", "min", "max"])?;
                let (mu, sigma) = (self.number("mu", ANY)?, self.number("sigma", FROM_0)?);
                Ok(Lengths::LogNormal { mu, sigma, bounds: self.bounds()? })
            }
            "pareto_lognormal" => {
                self.only(&["alpha", "xm", "mu", "sigma", "mix_weight"])?;
                let share = NumberRange { fits: |share| (0.0..=1.0).contains(&share), text: "a number from 0 to 1" };
                Ok(Lengths::ParetoLogNormal {
                    alpha: self.number("alpha", ABOVE_0)?,
                    xm: self.number("xm", ABOVE_0)?,
                    mu: self.number("mu", ANY)?,
                    sigma: self.number("sigma", FROM_0)?,
                    mix_weight: self.number("mix_weight", share)?,
                })
            }
            "uniform" => {
                self.only(&["min", "max"])?;
                self.number("max", ABOVE_0)?;
                Ok(Lengths::Uniform(self.bounds()?))
            }
            _ => {
                self.only(&["value"])?;
                Ok(Lengths::Constant((self.number("value", FROM_0)? as u32).clamp(1, LONGEST)))
            }
        }
    }

    fn word(&self, key: &str) -> Option<&Word> {
        self.entries.iter().flat_map(|entries| &entries.0).find(|(name, _)| name.value == key).map(|(_, word)| word)
    }

    fn only(&self, known: &[&str]) -> Result<(), SpecFileError> {
        let mut entries = self.entries.iter().flat_map(|entries| &entries.0);
        match entries.find(|(name, _)| !known.contains(&name.value.as_str())) {
            Some((name, _)) => {
                let what = format!("{}: unknown parameter {}", self.subject, quoted(name.value.as_bytes()));
                Err(self.parser.reader.wrong(name.referenced, what, name_hint(&name.value, known)))
            }
            None => Ok(()),
        }
    }

    fn number(&self, key: &str, range: NumberRange) -> Result<f64, SpecFileError> {
        let reader = &self.parser.reader;
        let number = reader.number(&self.subject, key, self.word(key), range)?;
        reader.needs(&format!("{}: params", self.subject), key, number, self.at)
    }

    /// The bounds; 0 and a missing value mean no bound.
    fn bounds(&self) -> Result<Bounds, SpecFileError> {
        let reader = &self.parser.reader;
        let bound = |key| -> Result<Option<u32>, SpecFileError> {
            let number = reader.number(&self.subject, key, self.word(key), FROM_0)?;
            Ok(number.filter(|&number| number >= 1.0).map(|number| (number as u32).min(LONGEST)))
        };
        let (min, max): (Option<u32>, Option<u32>) = (bound("min")?, bound("max")?);
        let bounds = Bounds { min: min.unwrap_or(1), max: max.unwrap_or(LONGEST) };
        if bounds.min > bounds.max {
            let at = self.word("min").map_or(self.at, |word| word.referenced);
            let what = format!("{}: `min` is {}, more than `max`, {}", self.subject, bounds.min, bounds.max);
            return Err(reader.wrong(at, what, "the minimum must not exceed the maximum"));
        }
        Ok(bounds)
    }
}
