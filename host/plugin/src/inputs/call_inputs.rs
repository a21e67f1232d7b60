//! The inputs of a call of any function.

use std::fmt::Debug;
use std::sync::Arc;

use blis_abi::decisions::OutputShape;
use blis_abi::{AnyRows, Field, Primitive, Row, RowShape};
use blis_sim::ids::RequestId;
use blis_sim::latency::Batch;
use blis_sim::policy::Ties;
use blis_sim::units::Micros;

use super::point::DecisionPoint;
use crate::rows::{QueuedRow, RunningRow, number_of, step_row};
use crate::{Function, Inputs, Kind};

/// The inputs of a call: those of the function's [`blis_abi::decisions::InputShape`].
#[derive(Clone, Debug, Default)]
pub struct CallInputs {
    pub now: Micros,
    /// The request and the service.
    pub point: Option<DecisionPoint>,
    /// The number, of a floating-point number the bits.
    pub number: u64,
    /// The row, and then the lists.
    pub rows: Vec<Arc<dyn OwnedRows>>,
}

/// Rows of any type.
pub trait OwnedRows: Debug + Send + Sync {
    /// These rows.
    fn rows(&self) -> AnyRows<'_>;
}

impl<R: Row + Debug + Send + Sync> OwnedRows for Vec<R> {
    fn rows(&self) -> AnyRows<'_> {
        AnyRows::new(self)
    }
}

/// Rows of a type that is known at run time only.
#[derive(Debug)]
pub struct AnyOwnedRows {
    words: Vec<u64>,
    shape: &'static RowShape,
}

impl AnyOwnedRows {
    /// So many rows of this shape; numbers are 0, or missing where they may be.
    pub(crate) fn new(shape: &'static RowShape, count: usize) -> Self {
        let mut rows = Self { words: vec![0; count * shape.size.div_ceil(size_of::<u64>())], shape };
        for (row, field) in (0..count).flat_map(|row| shape.fields.iter().map(move |field| (row, field))) {
            let missing = if field.number == Primitive::I32 { i32::MIN.cast_unsigned().into() } else { u64::MAX };
            rows.set(row, field, if field.meaning.optional { missing } else { 0 });
        }
        rows
    }

    /// These rows, which are a multiple of 8 bytes long.
    pub(crate) fn copied(rows: &AnyRows<'_>) -> Self {
        let words = rows.bytes().as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
        Self { words, shape: rows.shape() }
    }

    /// Sets `field` of the row at `index` to `word`.
    pub(crate) fn set(&mut self, index: usize, field: &Field, word: u64) {
        let at = index * self.shape.size + field.offset;
        let half = &mut self.words[at / size_of::<u64>()];
        match (field.size, at % size_of::<u64>()) {
            (8, _) => *half = word,
            (_, 0) => *half = *half >> 32 << 32 | word & u64::from(u32::MAX),
            _ => *half = *half & u64::from(u32::MAX) | word << 32,
        }
    }
}

impl OwnedRows for AnyOwnedRows {
    fn rows(&self) -> AnyRows<'_> {
        AnyRows::of_words(&self.words, self.shape)
    }
}

/// Most rows and lists of a function.
const MOST_ROWS: usize = 3;

impl CallInputs {
    /// Inputs without request.
    pub(crate) fn at(now: Micros, rows: Vec<Arc<dyn OwnedRows>>) -> Self {
        Self { now, rows, ..Self::default() }
    }

    /// Inputs about the request and the service of `point`.
    pub(crate) fn about(point: DecisionPoint) -> Self {
        Self { now: point.now, point: Some(point), ..Self::default() }
    }

    /// Inputs about the request of `queued`, as it joins a waiting queue.
    pub(crate) fn queued(point: DecisionPoint, queued: QueuedRow) -> Self {
        Self { rows: vec![Arc::new(vec![queued])], ..Self::about(point) }
    }

    /// Inputs of an engine step.
    pub(crate) fn of_step(batch: &Batch) -> Self {
        Self::at(Micros::ZERO, vec![Arc::new(vec![step_row(batch)])])
    }

    /// The rows at `index`: the row, and then the lists.
    pub(crate) fn rows_at<R: Row>(&self, index: usize) -> &[R] {
        self.rows.get(index).map_or(&[], |rows| rows.rows().typed())
    }

    /// Calls `make` with these inputs for `function`.
    pub(super) fn with<T>(&self, function: Function, ties: &Ties, make: impl FnOnce(Inputs<'_>) -> T) -> T {
        let point = self.point.as_ref();
        let (request, cluster) = (point.map(DecisionPoint::request), point.map(DecisionPoint::cluster));
        let shape = &function.row().inputs;
        let rows: [AnyRows<'_>; MOST_ROWS] =
            std::array::from_fn(|index| self.rows.get(index).map_or(AnyRows::new::<QueuedRow>(&[]), |all| all.rows()));
        let batch: &[RunningRow] = if function == Function::Victim { self.rows_at(0) } else { &[] };
        let ties = match (shape.request, &function.row().output) {
            // As BLIS, which chooses the request that was admitted last.
            _ if function == Function::Victim => Some(&Ties::HighestIndex),
            (true, OutputShape::Index | OutputShape::Numbers(_)) => Some(ties),
            (true, _) => None,
            (false, _) if function.kind() == Kind::Latency => None,
            // As built-in policies, which take the first of equally good choices.
            (false, _) => Some(&Ties::LowestIndex),
        };
        let about = match (shape.request, function.kind()) {
            (true, _) => point.map(|point| point.request.id),
            (false, Kind::Preemption) => batch.get(self.number as usize).map(|requester| RequestId(requester.id)),
            (false, kind) => (kind != Kind::Latency).then(|| number_of(self.now)),
        };
        make(Inputs {
            now: self.now,
            about,
            ties,
            request: request.as_ref().filter(|_| shape.request),
            cluster: cluster.as_ref().filter(|_| shape.cluster),
            memory: None,
            number: self.number,
            rows: &rows[..self.rows.len().min(MOST_ROWS)],
        })
    }

    /// What `function` chooses from, or returns a number for each of: its name, and how many there are.
    pub(crate) fn choices(&self, function: Function) -> (&'static str, usize) {
        let shape = &function.row().inputs;
        let list = self.rows.get(usize::from(shape.row.is_some())).map(|all| all.rows());
        match (&self.point, list) {
            (Some(point), _) if shape.cluster => ("instance", point.instances.len()),
            (_, Some(list)) => (list.shape().what, list.len()),
            _ => ("", 0),
        }
    }
}
