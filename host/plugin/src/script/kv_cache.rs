//! The views of KV tiers that scripts get: chunks, the tier that they are offered to, and what it has for a request.

use std::sync::Arc;

use blis_sim::units::Micros;
use rhai::{Dynamic, INT};

use super::column::Column;
use super::registry::Registry;
use super::values::int;
use crate::fields::replicas::NamedRow;
use crate::rows::{ChunkOfferRow, ChunkRow, TierHitRow};

/// What scripts call the views.
pub(super) const CHUNKS: &str = "list of chunks";
pub(super) const OFFER: &str = "tier";
pub(super) const HIT: &str = "hit in a tier";

/// `c` of `keep` and `store`.
#[derive(Clone, Debug)]
pub(super) struct ChunksObject {
    pub now: Micros,
    pub rows: Arc<[ChunkRow]>,
}

/// The argument `t` of `store`.
#[derive(Clone, Debug)]
pub(super) struct OfferObject(pub ChunkOfferRow);

/// The argument `h` of `load`.
#[derive(Clone, Debug)]
pub(super) struct HitObject(pub TierHitRow);

pub(super) fn register(to: &mut Registry) {
    to.engine.register_type_with_name::<ChunksObject>(CHUNKS);
    for number in ChunkRow::NUMBERS {
        to.field(CHUNKS, number.names, |all: &ChunksObject| {
            Ok(Dynamic::from(Column::new(all.rows.iter().map(number.get))))
        });
    }
    to.field(CHUNKS, &["now", "now_us"], |all: &ChunksObject| Ok(int(all.now.0)));
    to.field(CHUNKS, &["len", "n", "count"], |all: &ChunksObject| Ok(int(all.rows.len() as u64)));
    to.field(CHUNKS, &["indices"], |all: &ChunksObject| {
        Ok(Dynamic::from(Column::new((0..all.rows.len()).map(|index| index as f64))))
    });
    to.add("len", |all: ChunksObject| all.rows.len() as INT);
    to.engine.register_type_with_name::<OfferObject>(OFFER);
    for number in ChunkOfferRow::NUMBERS {
        to.field(OFFER, number.names, |one: &OfferObject| Ok(value((number.get)(&one.0), number.names[0])));
    }
    to.engine.register_type_with_name::<HitObject>(HIT);
    for number in TierHitRow::NUMBERS {
        to.field(HIT, number.names, |one: &HitObject| Ok(value((number.get)(&one.0), number.names[0])));
    }
}

/// Sizes in bytes are no integers either: what scripts divide them by is none.
fn value(number: f64, name: &str) -> Dynamic {
    match name {
        "fill" | "bandwidth" | "bytes" | "queued_bytes" => Dynamic::from_float(number),
        _ => int(number as u64),
    }
}
