//! The JSON of one ServeGen client: by start, distributions in the notation of Python's dictionaries.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::super::error::SpecFileError;
use super::super::super::lengths::{Empirical, LONGEST};
use blis_diag::{Location, json_words, name_hint, quoted};

/// The lengths of the client from some time on; a distribution without data is missing.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super::super) struct Dataset {
    pub start: u32,
    pub input: Option<Arc<Empirical>>,
    pub output: Option<Arc<Empirical>>,
    /// Share of reasoning in the output, percent.
    pub reason_ratio: Option<Arc<Empirical>>,
}

impl Dataset {
    pub(super) fn is_known(&self) -> bool {
        self.input.is_some() && self.output.is_some()
    }
}

const HINT: &str = "it is {\"start\": {\"input_tokens\": \"{tokens: probability, …}\", \"output_tokens\": …}, …}";
const NAMES: [&str; 3] = ["input_tokens", "output_tokens", "reason_ratio"];

/// The distributions in `text`, ascending by start.
pub(in super::super::super) fn datasets(file: &Arc<str>, text: &str) -> Result<Vec<Dataset>, SpecFileError> {
    let read: OrderedPairs<'_, OrderedPairs<'_, FileText<'_>>> = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line().max(1) as u64, error.column().max(1) as u64);
        let location = Location::file(Arc::clone(file)).characters(line, column, 1);
        SpecFileError::at(location, text, format!("no ServeGen dataset: {}", json_words(&error)), HINT)
    })?;
    let mut datasets = Vec::new();
    for (start, fields) in &read.0 {
        datasets.push(dataset(start, fields).map_err(|DatasetError { at, len, what, hint }| {
            SpecFileError::at(location_of(file, text, at.unwrap_or_default(), len), text, what, hint)
        })?);
    }
    datasets.sort_by_key(|dataset: &Dataset| dataset.start);
    Ok(datasets)
}

fn dataset(start: &FileText<'_>, fields: &OrderedPairs<'_, FileText<'_>>) -> Result<Dataset, DatasetError> {
    let seconds =
        start.0.trim().parse::<f64>().ok().filter(|start| (0.0..=1e9).contains(start) && start.fract() == 0.0);
    let seconds = seconds.ok_or_else(|| {
        start.wrong(format!("start {} is no number of whole seconds from 0 on", quoted(start.0.as_bytes())))
    })?;
    let mut dataset = Dataset { start: seconds as u32, input: None, output: None, reason_ratio: None };
    for (name, text) in &fields.0 {
        let field = match &*name.0 {
            "input_tokens" => &mut dataset.input,
            "output_tokens" => &mut dataset.output,
            "reason_ratio" => &mut dataset.reason_ratio,
            unknown => {
                let what = format!("start {}: unknown key {}", quoted(start.0.as_bytes()), quoted(unknown.as_bytes()));
                return Err(DatasetError { hint: hint_for(unknown), ..name.wrong(what) });
            }
        };
        // If the text had to be unescaped, the location is that of its key.
        let counted = dictionary(text).map_err(|fault| DatasetError { at: fault.at.or(name.address()), ..fault })?;
        *field = counted.map(Arc::new);
    }
    Ok(dataset)
}

fn hint_for(unknown: &str) -> String {
    let multimodal = ["text", "image", "audio", "video"].into_iter().any(|kind| unknown.starts_with(kind));
    if multimodal {
        return "folders of multimodal clients cannot be read: give their parts as `multimodal` of a client".to_owned();
    }
    name_hint(unknown, &NAMES)
}

/// Parses `{45: 0.0097, 46: 0.01}`; `None` if it is empty.
fn dictionary(text: &FileText<'_>) -> Result<Option<Empirical>, DatasetError> {
    let inner = text.0.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let inner = inner.ok_or_else(|| text.wrong(format!("{} is no dictionary", quoted(text.0.as_bytes()))))?;
    let mut weights = Vec::new();
    for pair in inner.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        weights.push(weight(pair).ok_or_else(|| {
            let what = format!("{} is no `tokens: probability`", quoted(pair.as_bytes()));
            text.wrong_part(pair, what)
        })?);
    }
    if weights.is_empty() {
        return Ok(None);
    }
    let counted = Empirical::new(weights);
    counted.map(Some).ok_or_else(|| text.wrong("no probability is above 0, or they add up to infinity".to_owned()))
}

/// Parses a length and its probability.
fn weight(pair: &str) -> Option<(u32, f64)> {
    let (tokens, probability) = pair.split_once(':')?;
    let tokens: f64 = tokens.trim().trim_matches(['\'', '"']).parse().ok()?;
    let probability: f64 = probability.trim().parse().ok()?;
    let fits = (0.0..=f64::from(LONGEST)).contains(&tokens) && tokens.fract() == 0.0;
    (fits && probability >= 0.0 && probability.is_finite()).then_some((tokens as u32, probability))
}

/// A mistake, and its address if it lies in the text of the file.
struct DatasetError {
    at: Option<usize>,
    len: u64,
    what: String,
    hint: String,
}

/// Line and column of the address `at`.
fn location_of(file: &Arc<str>, text: &str, at: usize, len: u64) -> Location {
    let before = at.checked_sub(text.as_ptr().addr()).and_then(|offset| text.get(..offset)).unwrap_or_default();
    let line = before.matches('\n').count() as u64 + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
    Location::file(Arc::clone(file)).characters(line, column, len)
}

/// A string of the file, without a copy unless it contains escapes.
#[derive(Deserialize)]
struct FileText<'a>(#[serde(borrow)] Cow<'a, str>);

impl FileText<'_> {
    fn address(&self) -> Option<usize> {
        match &self.0 {
            Cow::Borrowed(text) => Some(text.as_ptr().addr()),
            Cow::Owned(_) => None,
        }
    }

    fn wrong(&self, what: String) -> DatasetError {
        self.wrong_part(&self.0, what)
    }

    /// The mistake that a part of the string is wrong.
    fn wrong_part(&self, part: &str, what: String) -> DatasetError {
        let at = self.address().map(|_| part.as_ptr().addr());
        DatasetError { at, len: part.chars().count().max(1) as u64, what, hint: HINT.to_owned() }
    }
}

/// An object in the order of the file, with each key once.
struct OrderedPairs<'a, T>(Vec<(FileText<'a>, T)>);

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for OrderedPairs<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<'a, T>(PhantomData<(&'a (), T)>);

        impl<'de: 'a, 'a, T: Deserialize<'de>> Visitor<'de> for PairsVisitor<'a, T> {
            type Value = OrderedPairs<'a, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs: Vec<(FileText<'a>, T)> = Vec::new();
                let mut seen = std::collections::BTreeSet::new();
                while let Some(key) = map.next_key::<FileText<'a>>()? {
                    if !seen.insert(key.0.clone().into_owned()) {
                        return Err(de::Error::custom(format_args!("{} is given twice", quoted(key.0.as_bytes()))));
                    }
                    pairs.push((key, map.next_value()?));
                }
                Ok(OrderedPairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}
