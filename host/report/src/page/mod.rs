//! A page to look at: results with charts in one HTML file, which needs no network.
//!
//! The file has a policy that forbids every request, its style, its scripts and its data. All texts of the data are shown as
//! text: the script makes elements and never reads markup (`page.js`). Charts over time are drawn by
//! [uPlot](https://github.com/leeoniya/uPlot) 1.6.32 (MIT, `uplot-LICENSE`), which is unchanged here; all others by `charts.js`.

mod charts;

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

pub use self::charts::RunCharts;
use crate::file::{FileError, write_whole};

const HTML: &str = include_str!("page.html");
/// What stands for `{{name}}` in [`HTML`].
const PARTS: [(&str, &str); 8] = [
    ("uplot-style", include_str!("uplot.css")),
    ("style", include_str!("page.css")),
    ("uplot", include_str!("uplot.js")),
    ("charts", include_str!("charts.js")),
    ("search", include_str!("search.js")),
    ("paper", include_str!("paper.js")),
    ("script", include_str!("page.js")),
    ("licence", include_str!("uplot-LICENSE")),
];

/// A result on a page: what a command prints with `--output json`.
#[derive(Clone, Debug)]
pub struct PageResult {
    /// What distinguishes it from others on the page, such as the name of its file.
    pub name: String,
    json: String,
    charts: Option<String>,
}

impl PageResult {
    /// The result that is printed as `document`; `charts` if it is one run that was made for a page.
    ///
    /// # Panics
    /// If `document` is not one that can be JSON, such as a map with keys that are no texts.
    pub fn new(name: impl Into<String>, document: &impl Serialize, charts: Option<&RunCharts>) -> Self {
        let json = |value: serde_json::Result<String>| harmless(&value.expect("a document is JSON"));
        let (result, charts) = (serde_json::to_string(document), charts.map(serde_json::to_string));
        Self { name: name.into(), json: json(result), charts: charts.map(json) }
    }
}

impl PageResult {
    /// The results in `text`: one JSON document, or several after each other.
    ///
    /// # Errors
    /// The mistake in the JSON, with line and column.
    pub fn read(name: &str, text: &str) -> Result<Vec<Self>, serde_json::Error> {
        let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
        let mut results: Vec<Self> = Vec::new();
        let mut begin = 0;
        while let Some(document) = documents.next() {
            document?;
            let end = documents.byte_offset();
            let name = if results.is_empty() { name.to_owned() } else { format!("{name}, {}", results.len() + 1) };
            results.push(Self { name, json: harmless(text[begin..end].trim()), charts: None });
            begin = end;
        }
        Ok(results)
    }
}

/// Writes a page with `results` to `path`.
///
/// # Errors
/// If the file cannot be written.
pub fn write_page(path: &Path, title: &str, results: &[PageResult]) -> Result<(), FileError> {
    write_whole(path, |out| page(title, PageContent::Results(results), out))
}

/// The page of a search that runs. Its server has the search's events at `events`, beside the page.
#[must_use]
pub fn live_page(title: &str) -> String {
    let mut html = Vec::new();
    page(title, PageContent::Live, &mut html).expect("memory takes everything");
    String::from_utf8(html).expect("all parts are text")
}

/// What a page shows.
#[derive(Clone, Copy)]
enum PageContent<'a> {
    Results(&'a [PageResult]),
    /// The events of its server: the only thing that it may connect to.
    Live,
}

fn page(title: &str, content: PageContent<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut rest = HTML;
    while let Some((before, (name, after))) =
        rest.split_once("{{").and_then(|(before, rest)| Some((before, rest.split_once("}}")?)))
    {
        out.write_all(before.as_bytes())?;
        match name {
            "title" => out.write_all(escaped(title).as_bytes())?,
            "data" => data(title, content, out)?,
            "connect" | "live" => out.write_all(only_live(name, content).as_bytes())?,
            _ => {
                let part = PARTS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
                out.write_all(part.as_bytes())?;
            }
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// What only the page of a search that runs has.
fn only_live(name: &str, content: PageContent<'_>) -> &'static str {
    match (content, name) {
        (PageContent::Results(_), _) => "",
        (PageContent::Live, "connect") => "; connect-src 'self'",
        (PageContent::Live, _) => concat!("<script>", include_str!("live.js"), "</script>\n"),
    }
}

/// The data of the script, as JSON.
fn data(title: &str, content: PageContent<'_>, out: &mut dyn Write) -> io::Result<()> {
    let results = match content {
        PageContent::Results(results) => results,
        PageContent::Live => return write!(out, "{{\"title\":{},\"results\":[],\"live\":true}}", json(title)?),
    };
    write!(out, "{{\"title\":{},\"results\":[", json(title)?)?;
    for (index, result) in results.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(out, "{comma}{{\"name\":{},\"result\":{}", json(&result.name)?, result.json)?;
        if let Some(charts) = &result.charts {
            write!(out, ",\"charts\":{charts}")?;
        }
        out.write_all(b"}")?;
    }
    out.write_all(b"]}")
}

fn json(text: &str) -> io::Result<String> {
    Ok(harmless(&serde_json::to_string(text)?))
}

/// The same JSON, in which no text can end the element of the data: `<` occurs in texts only.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
