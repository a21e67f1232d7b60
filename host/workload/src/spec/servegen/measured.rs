//! Clients as they were measured, in the way in which ServeGen draws from the same files.

use std::sync::Arc;

use blis_sim::units::Micros;

use super::super::client::Client;
use super::super::window::{Window, WindowRate};
use super::super::{Empirical, Lengths};
use super::chunk::{Chunk, ChunkRow, WINDOW_SECS};
use super::options::ServeGenOptions;

/// One client for each chunk that is active in the selected part of the measurement.
pub(super) fn clients(chunks: &[Chunk], options: &ServeGenOptions) -> Vec<Client> {
    chunks.iter().filter_map(|chunk| client(chunk, options)).collect()
}

fn client(chunk: &Chunk, options: &ServeGenOptions) -> Option<Client> {
    let ends = chunk.rows.iter().skip(1).map(|next| next.start).chain([u32::MAX]);
    let windows: Vec<Window> =
        chunk.rows.iter().zip(ends).filter_map(|(row, end)| window(chunk, row, end, options)).collect();
    let first = windows.first()?;
    let (input, output) = (first.input.clone()?, first.output.clone()?);
    Some(Client { windows, ..Client::new(&format!("chunk-{}", chunk.id), 1.0, input, output) })
}

/// The window of `row`, at most until `end`. `None` if it has no requests, or is not selected.
fn window(chunk: &Chunk, row: &ChunkRow, end: u32, options: &ServeGenOptions) -> Option<Window> {
    let from = options.start_secs;
    let to = options.duration_secs.map_or(u32::MAX, |duration| from.saturating_add(duration));
    let (start, end) = (row.start.max(from), row.start.saturating_add(WINDOW_SECS).min(end).min(to));
    if row.rate <= 0.0 || start >= end {
        return None;
    }
    let lengths = chunk.dataset_at(row.start)?;
    let counted = |lengths: &Option<Arc<Empirical>>| lengths.clone().map(Lengths::Empirical);
    let at = |secs: u32| Micros(u64::from(secs - from) * 1_000_000);
    Some(Window {
        rate: WindowRate::Weight(row.rate),
        arrival: Some(row.arrival().ok()?),
        input: counted(&lengths.input),
        output: counted(&lengths.output),
        reason_ratio: counted(&lengths.reason_ratio),
        ..Window::usual(at(start), at(end))
    })
}
