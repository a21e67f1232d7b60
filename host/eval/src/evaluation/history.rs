//! The history of a search: the file `history.jsonl` of a folder, with a line of JSON for each candidate that was evaluated, in the
//! order of their ends.
//!
//! A reader sees each line as soon as it is complete, also while the search runs: so the live page needs no other channel, and
//! a finished search can be looked at later.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::RunError;
use crate::lock::lock;

/// The file in the folder of a history.
const FILE: &str = "history.jsonl";
/// Most bytes of a candidate's text that are kept.
const MOST_TEXT: usize = 64 << 10;
/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 16 << 20;

/// The history of a search that runs.
#[derive(Debug)]
pub struct SearchHistory {
    state: Mutex<HistoryState>,
    /// The same file, for readers.
    file: Arc<File>,
}

#[derive(Debug)]
struct HistoryState {
    file: File,
    /// Number of candidates so far.
    count: u64,
    /// The best score so far.
    best: Option<f64>,
    /// Of a line that could not be written.
    failed: Option<io::Error>,
}

/// A candidate that was evaluated.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EvaluatedCandidate<'a> {
    /// What the search calls it.
    pub name: &'a str,
    /// Its score; above 0 if it is valid.
    pub score: f64,
    /// `ok`, or the kind of its failure, as in the evaluation result.
    pub status: &'a str,
    /// Why it was rejected.
    pub reason: Option<&'a str>,
    /// The policy or its parameter values, a line each: kept if it is a champion, to show how it differs from the one before.
    #[serde(skip)]
    pub text: &'a str,
}

/// A line of the file.
#[derive(Serialize)]
struct HistoryLine<'a> {
    /// Its number, from 1 on.
    number: u64,
    #[serde(flatten)]
    candidate: EvaluatedCandidate<'a>,
    /// Whether no candidate before had such a score.
    champion: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

impl SearchHistory {
    /// An empty history in `folder`, which is created if it is missing.
    ///
    /// # Errors
    /// If the folder has a history already, or cannot be written to.
    pub fn create(folder: &Path) -> Result<Self, RunError> {
        let shown = folder.display();
        let cannot =
            |error: io::Error| RunError::runtime(format_args!("cannot write the history in `{shown}`: {error}"));
        fs::create_dir_all(folder).map_err(cannot)?;
        let file = match File::options().read(true).append(true).create_new(true).open(Self::path(folder)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RunError::usage(format_args!("`{shown}` has the history of another search"))
                    .hint("name another folder, or remove its `history.jsonl`"));
            }
            opened => opened.map_err(cannot)?,
        };
        Self::new(file).map_err(cannot)
    }

    /// An empty history in a file without a name, which ends with this program.
    ///
    /// # Errors
    /// If the folder for temporary files cannot be written to.
    pub fn unnamed() -> Result<Self, RunError> {
        tempfile::tempfile().and_then(Self::new).map_err(|error| {
            RunError::runtime(format_args!("cannot create a temporary file: {error}"))
                .hint("set TMPDIR to a folder that can be written to")
        })
    }

    fn new(file: File) -> io::Result<Self> {
        let reader = Arc::new(file.try_clone()?);
        Ok(Self { state: Mutex::new(HistoryState { file, count: 0, best: None, failed: None }), file: reader })
    }

    /// The file, open for reading by position.
    #[must_use]
    pub fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// The file of the history in `folder`.
    #[must_use]
    fn path(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Appends a candidate to the file.
    pub fn add(&self, candidate: &EvaluatedCandidate<'_>) {
        let mut state = lock(&self.state);
        state.count += 1;
        let champion = candidate.score > 0.0 && state.best.is_none_or(|best| candidate.score > best);
        if champion {
            state.best = Some(candidate.score);
        }
        let text =
            (champion && !candidate.text.is_empty() && candidate.text.len() <= MOST_TEXT).then_some(candidate.text);
        let number = state.count;
        state.write(&HistoryLine { number, candidate: *candidate, champion, text });
    }

    /// Writes that the search is over.
    ///
    /// # Errors
    /// If this line or one before could not be written.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.write(&json!({"finished": true}));
        state.failed.take().map_or(Ok(()), Err)
    }
}

impl HistoryState {
    /// Appends a line at once. After an error nothing more is written: a later line would follow half a line.
    fn write(&mut self, line: &impl Serialize) {
        if self.failed.is_some() {
            return;
        }
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        self.failed = self.file.write_all(&text).err();
    }
}

/// The history in `folder` as a result that a page shows; `None` if the folder has none.
///
/// # Errors
/// If it cannot be read, or a line is not JSON: which one.
pub fn read_history(folder: &Path) -> Result<Option<Value>, RunError> {
    let path = SearchHistory::path(folder);
    let shown = path.display();
    let unreadable = |error: io::Error| RunError::usage(format_args!("cannot read `{shown}`: {error}"));
    let text = match blis_diag::read_text(&path, MOST_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(RunError::usage(format_args!("`{shown}` has more than {} MB", MOST_BYTES >> 20))
                .hint("a page shows the history of some 100 000 candidates: keep the lines that you want to see"));
        }
        read => read.map_err(unreadable)?,
    };
    // The last line has no end if the program was killed while it wrote it.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut candidates = Vec::new();
    let mut finished = false;
    for (number, line) in (1..).zip(whole.lines()) {
        let line: Value = serde_json::from_str(line).map_err(|error| {
            RunError::usage(format_args!("line {number} of `{shown}` is not JSON: {error}"))
                .hint("histories are written by `blis tune --history` and `blis serve --history`")
        })?;
        if line["finished"] == true { finished = true } else { candidates.push(line) }
    }
    Ok(Some(
        json!({"search": folder.file_name().map(|name| name.to_string_lossy()), "finished": finished, "candidates": candidates}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct HistoryFolder(PathBuf);

    impl HistoryFolder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("blis-history-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for HistoryFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn candidate<'a>(name: &'a str, score: f64, text: &'a str) -> EvaluatedCandidate<'a> {
        let (status, reason) = if score > 0.0 { ("ok", None) } else { ("gate_failed", Some("a gate failed")) };
        EvaluatedCandidate { name, score, status, reason, text }
    }

    #[test]
    fn champions_have_their_text_and_the_history_comes_back() {
        let folder = HistoryFolder::new("champions");
        let history = SearchHistory::create(&folder.0).expect("created");
        for (name, score, text) in
            [("a", 1.0, "x = 1"), ("b", 0.0, "x = 2"), ("<b>", 0.9, "x = 3"), ("d", 1.5, "x = 4")]
        {
            history.add(&candidate(name, score, text));
        }
        let before = read_history(&folder.0).expect("readable").expect("there");
        assert_eq!(before["finished"], false);
        history.finish().expect("written");
        let document = read_history(&folder.0).expect("readable").expect("there");
        assert_eq!(document["finished"], true);
        let lines = document["candidates"].as_array().expect("a list");
        let short: Vec<_> = lines
            .iter()
            .map(|line| (line["number"].as_u64(), line["champion"].as_bool(), line["text"].as_str()))
            .collect();
        assert_eq!(
            short,
            [
                (Some(1), Some(true), Some("x = 1")),
                (Some(2), Some(false), None),
                (Some(3), Some(false), None),
                (Some(4), Some(true), Some("x = 4"))
            ]
        );
        assert_eq!((&lines[1]["reason"], &lines[2]["name"]), (&json!("a gate failed"), &json!("<b>")));
        let second = SearchHistory::create(&folder.0).expect_err("there is one");
        assert!(second.to_string().contains("has the history of another search"), "{second}");
    }

    #[test]
    fn half_a_line_is_left_out_and_nonsense_is_refused() {
        let folder = HistoryFolder::new("half");
        assert!(read_history(&folder.0).expect("no folder").is_none());
        fs::create_dir_all(&folder.0).expect("created");
        fs::write(SearchHistory::path(&folder.0), "{\"number\":1}\n{\"numb").expect("written");
        let document = read_history(&folder.0).expect("readable").expect("there");
        assert_eq!(document["candidates"], json!([{"number": 1}]));
        fs::write(SearchHistory::path(&folder.0), "{\"number\":1}\nnonsense\n").expect("written");
        let error = read_history(&folder.0).expect_err("no JSON");
        assert!(error.to_string().contains("line 2 of `"), "{error}");
    }
}
