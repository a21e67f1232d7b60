//! The table `proposals` of the archive: replies of a language model, which cannot be repeated, before their programs are evaluated.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::error::RunError;

/// The table.
pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS proposals (
        batch INTEGER PRIMARY KEY, question TEXT NOT NULL, reply TEXT NOT NULL, input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL, programs INTEGER NOT NULL, refused TEXT NOT NULL);";

/// The reply for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub question: String,
    pub reply: String,
    /// Of all attempts.
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// The proposal for `batch`, if there is one.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn stored(connection: &Connection, batch: usize) -> Result<Option<Proposal>, RunError> {
    let count = |row: &Row<'_>, name: &str| -> Result<u64, rusqlite::Error> {
        Ok(u64::try_from(row.get::<_, i64>(name)?).unwrap_or(0))
    };
    let found = connection.query_row("SELECT * FROM proposals WHERE batch = ?1", [batch as i64], |row| {
        Ok(Proposal {
            question: row.get("question")?,
            reply: row.get("reply")?,
            input_tokens: count(row, "input_tokens")?,
            output_tokens: count(row, "output_tokens")?,
        })
    });
    found.optional().map_err(|error| RunError::runtime(format_args!("the archive cannot be read: {error}")))
}

/// Writes the proposal for `batch`: `programs` of its programs will be evaluated, those of the reasons `refused` not.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn put(
    connection: &Connection,
    batch: usize,
    proposal: &Proposal,
    programs: usize,
    refused: &[String],
) -> Result<(), RunError> {
    let Proposal { question, reply, input_tokens, output_tokens } = proposal;
    let refused = serde_json::to_string(refused).map_err(RunError::runtime)?;
    let row =
        params![batch as i64, question, reply, *input_tokens as i64, *output_tokens as i64, programs as i64, refused];
    let written = connection.execute("INSERT INTO proposals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", row);
    written.map(drop).map_err(|error| {
        RunError::runtime(format_args!("a reply of the model cannot be written into the archive: {error}"))
            .hint("the search goes on where it ended if the command is run again")
    })
}

/// Whether the program `number` of the search, or one of its ancestors, is one of the model.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn descends_from_model(connection: &Connection, number: usize) -> Result<bool, RunError> {
    const ANCESTORS: &str = "
        WITH RECURSIVE ancestors(number) AS (
            SELECT ?1 UNION SELECT parent FROM lineage JOIN ancestors ON child = ancestors.number)
        SELECT EXISTS (
            SELECT 1 FROM evaluations
            WHERE phase = 'search' AND operation = 'model' AND number IN (SELECT number FROM ancestors))";
    let found = connection.query_row(ANCESTORS, [number as i64], |row| row.get(0));
    found.map_err(|error| RunError::runtime(format_args!("the archive cannot be read: {error}")))
}
