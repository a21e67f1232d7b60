//! The table `decision_costs` of the archive: samples of decisions with their costs.

use std::fmt::Display;

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::decision_costs::DecisionCosts;
use crate::error::RunError;

/// The table.
pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS decision_costs (
        batch INTEGER PRIMARY KEY, number INTEGER NOT NULL, cpu_ms REAL NOT NULL, decisions TEXT NOT NULL);";

/// The sample before `batch`, if there is one.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn stored(connection: &Connection, batch: usize) -> Result<Option<Vec<DecisionCosts>>, RunError> {
    let query = "SELECT decisions FROM decision_costs WHERE batch = ?1";
    let row = connection.query_row(query, [batch as i64], |row| row.get::<_, String>(0));
    let unread = |error: &dyn Display| RunError::runtime(format_args!("the archive cannot be read: {error}"));
    let text = row.optional().map_err(|error| unread(&error))?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| unread(&error))).transpose()
}

/// Writes the sample before `batch`, of decisions of the program `number`, which took `cpu_ms`.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn put(
    connection: &Connection,
    batch: usize,
    number: usize,
    cpu_ms: f64,
    decisions: &[DecisionCosts],
) -> Result<(), RunError> {
    let text = serde_json::to_string(decisions).map_err(RunError::runtime)?;
    let row = params![batch as i64, number as i64, cpu_ms, text];
    let written = connection.execute("INSERT INTO decision_costs VALUES (?1, ?2, ?3, ?4)", row);
    written.map(drop).map_err(|error| {
        RunError::runtime(format_args!("the costs of decisions cannot be written into the archive: {error}"))
            .hint("the search goes on where it ended if the command is run again")
    })
}
