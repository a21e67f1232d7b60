//! The two files of one ServeGen client.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::policy::Spot;
use crate::workload::quoted;

use super::super::error::SpecFileError;
use super::super::files::Files;
use super::super::lengths::{Empirical, LONGEST};

pub(in super::super) const DAY_SECS: u32 = 86_400;

/// One client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Chunk {
    pub rows: Vec<Row>,
    /// Ascending by start.
    pub datasets: Vec<Dataset>,
}

/// 600 s of its arrivals.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Row {
    /// Seconds.
    pub start: u32,
    /// Requests per second.
    pub rate: f64,
    pub cv: f64,
    /// `Gamma`, `Weibull` or nothing.
    pub pattern: String,
    pub shape: Option<f64>,
    pub scale_secs: Option<f64>,
}

/// Its lengths from some time on. What was not seen is left out.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Dataset {
    /// Seconds.
    pub start: u32,
    pub input: Option<Empirical>,
    pub output: Option<Empirical>,
    /// Percent of the answer that is thought.
    pub reason_ratio: Option<Empirical>,
}

impl Chunk {
    /// The lengths at `time`: of the last dataset that starts by then and has any, else of the first.
    pub fn dataset_at(&self, time: u32) -> Option<&Dataset> {
        let known = |dataset: &&Dataset| dataset.input.is_some() && dataset.output.is_some();
        let before = self.datasets.iter().filter(known).rfind(|dataset| dataset.start <= time);
        before.or_else(|| self.datasets.iter().find(known))
    }

    pub fn has_reason_ratio(&self) -> bool {
        self.datasets.iter().any(|dataset| dataset.reason_ratio.is_some())
    }
}

/// All clients of a folder, by number.
pub(in super::super) fn load(files: &dyn Files, folder: &Path, shown: &str) -> Result<Vec<Chunk>, SpecFileError> {
    let failed = |shown: String| move |source| SpecFileError::Read { file: shown.into(), source };
    let names = files.names(folder).map_err(failed(shown.to_owned()))?;
    let id = |name: &String| Some(name.strip_prefix("chunk-")?.strip_suffix("-trace.csv")?.to_owned());
    let mut ids: Vec<String> = names.iter().filter_map(id).collect();
    ids.sort_by_key(|id| (id.len(), id.clone()));
    if ids.is_empty() {
        let what = "no file `chunk-<id>-trace.csv` in this folder";
        return Err(SpecFileError::whole(shown, what, "a ServeGen folder has one, and a `-dataset.json`, per client"));
    }
    let chunk = |id: String| {
        let read = |name: String| -> Result<(Arc<str>, String), SpecFileError> {
            let shown = format!("{shown}/{name}");
            let text = files.read(&folder.join(&name)).map_err(failed(shown.clone()))?;
            Ok((shown.into(), text))
        };
        let (file, text) = read(format!("chunk-{id}-trace.csv"))?;
        let rows = rows(&file, &text)?;
        let (file, text) = read(format!("chunk-{id}-dataset.json"))?;
        Ok(Chunk { rows, datasets: datasets(&file, &text)? })
    };
    ids.into_iter().map(chunk).collect()
}

/// The CSV: start, rate, cv, pattern, and for most clients shape and scale.
pub(in super::super) fn rows(file: &Arc<str>, text: &str) -> Result<Vec<Row>, SpecFileError> {
    let mut rows = Vec::new();
    for (line, content) in (1_u64..).zip(text.lines()) {
        if content.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = content.split(',').map(str::trim).collect();
        let header = line == 1 && fields[0].parse::<f64>().is_err();
        if !header {
            rows.push(row(&fields).map_err(|(field, what)| {
                let before: usize = content.split(',').take(field).map(|field| field.chars().count() + 1).sum();
                let len = content.split(',').nth(field).map_or(1, |field| field.chars().count().max(1));
                let spot = Spot { file: Arc::clone(file), line, column: before as u64 + 1, len: len as u64 };
                SpecFileError::at(
                    spot,
                    text,
                    what,
                    "a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second",
                )
            })?);
        }
    }
    Ok(rows)
}

/// Or the place of the wrong field, from 0, and what is wrong with it.
fn row(fields: &[&str]) -> Result<Row, (usize, String)> {
    if !matches!(fields.len(), 4 | 6) {
        return Err((0, format!("{} fields; a row has 4 or 6", fields.len())));
    }
    let number = |field: usize, name: &str, most: f64| {
        let given = fields[field];
        let fits = given.parse().ok().filter(|number| (0.0..=most).contains(number));
        fits.ok_or_else(|| {
            (field, format!("{name} is {}, but must be a number from 0 to {most}", quoted(given.as_bytes())))
        })
    };
    let optional = |field: usize, name| match fields.get(field) {
        None | Some(&"") => Ok(None),
        Some(_) => number(field, name, 1e9).map(Some),
    };
    Ok(Row {
        start: number(0, "the start", 1e9)? as u32,
        rate: number(1, "the rate", 1e6)?,
        cv: optional(2, "the cv")?.unwrap_or(0.0),
        pattern: fields[3].to_owned(),
        shape: optional(4, "the shape")?,
        scale_secs: optional(5, "the scale")?,
    })
}

/// The JSON: by start, distributions as Python writes its dictionaries.
pub(in super::super) fn datasets(file: &Arc<str>, text: &str) -> Result<Vec<Dataset>, SpecFileError> {
    const HINT: &str = "it is {\"start\": {\"input_tokens\": \"{tokens: probability, …}\", \"output_tokens\": …}, …}";
    let read: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line().max(1) as u64, error.column().max(1) as u64);
        let spot = Spot { file: Arc::clone(file), line, column, len: 1 };
        SpecFileError::at(spot, text, format!("no ServeGen dataset: {error}"), HINT)
    })?;
    let mut datasets = Vec::new();
    for (start, fields) in &read {
        let wrong =
            |what: String| SpecFileError::whole(file, format!("start {}: {what}", quoted(start.as_bytes())), HINT);
        let seconds = start.trim().parse::<f64>().ok().filter(|start| (0.0..=1e9).contains(start));
        let counted = |name: &str| {
            fields.get(name).map_or(Ok(None), |text| dictionary(text)).map_err(|what| wrong(format!("{name}: {what}")))
        };
        datasets.push(Dataset {
            start: seconds.ok_or_else(|| wrong("no number of seconds".to_owned()))? as u32,
            input: counted("input_tokens")?,
            output: counted("output_tokens")?,
            reason_ratio: counted("reason_ratio")?,
        });
    }
    datasets.sort_by_key(|dataset| dataset.start);
    Ok(datasets)
}

/// `{45: 0.0097, 46: 0.01}`. Nothing where it is empty.
fn dictionary(text: &str) -> Result<Option<Empirical>, String> {
    let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let inner = inner.ok_or_else(|| format!("{} is no dictionary", quoted(text.as_bytes())))?;
    let pairs = inner.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let weights: Result<Vec<(u32, f64)>, String> = pairs
        .map(|pair| {
            let fault = || format!("{} is no `tokens: probability`", quoted(pair.as_bytes()));
            let (tokens, probability) = pair.split_once(':').ok_or_else(fault)?;
            let tokens: f64 = tokens.trim().trim_matches(['\'', '"']).parse().map_err(|_| fault())?;
            let probability: f64 = probability.trim().parse().map_err(|_| fault())?;
            let fits = (0.0..=f64::from(LONGEST)).contains(&tokens) && probability.is_finite();
            if fits { Ok((tokens as u32, probability)) } else { Err(fault()) }
        })
        .collect();
    Ok(Empirical::new(weights?))
}
