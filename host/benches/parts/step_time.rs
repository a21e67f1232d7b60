//! One call of a latency model, as it happens once per engine step.

use blis_config::LatencyKind;
use blis_sim::latency::Batch;
use divan::{Bencher, black_box};
use strum::VariantArray as _;

use crate::setup::deployment;

/// 64 requests: one prefills a prompt of 512 tokens, 63 decode.
#[divan::bench(args = LatencyKind::VARIANTS)]
fn step_time_of_64(bencher: Bencher, kind: LatencyKind) {
    let latency = deployment(kind).latency;
    let mut batch = Batch::default();
    batch.add_prefill(512, 0, 512);
    for index in 0..63 {
        batch.add_decode(256 + 4 * index);
    }
    bencher.bench(|| latency.step_time(black_box(&batch)));
}
