//! A copy of a running instance, to try something out on. Costs what is live, not what has been.

use std::fmt;

use blis::config::LatencyKind;
use blis_sim::instance::{Fast, Instance as _};
use blis_sim::request::{Content, Span};
use blis_sim::units::Micros;
use divan::Bencher;

use crate::setup::{Count, instance, request};

/// An instance in the middle of its work.
#[derive(Clone, Copy, Debug)]
struct Moment {
    busy: u32,
    finished: u32,
}

/// Prompts that have nothing in common.
#[divan::bench(args = moments([1000, 100_000]))]
fn unique_prompts(bencher: Bencher, moment: Moment) {
    let instance = moment.reach(|_| Content::UNIQUE);
    bencher.bench_local(|| instance.clone());
}

/// Prompts of 1000 conversations. The cache is live as well: by 20 000 requests it is full of
/// blocks that can be found again.
#[divan::bench(args = moments([20_000, 200_000]))]
fn recurring_prompts(bencher: Bencher, moment: Moment) {
    let instance = moment.reach(|index| Content::shared(&[Span { first: index % 1000 * 16, len: 16 }]));
    bencher.bench_local(|| instance.clone());
}

/// Prompts that could be found again, but are always new ones.
#[divan::bench(args = moments([20_000, 200_000]))]
fn new_prompts(bencher: Bencher, moment: Moment) {
    let instance = moment.reach(|index| Content::shared(&[Span { first: index * 16, len: 16 }]));
    bencher.bench_local(|| instance.clone());
}

fn moments(finished: [u32; 2]) -> impl Iterator<Item = Moment> {
    [16, 256].into_iter().flat_map(move |busy| finished.map(|finished| Moment { busy, finished }))
}

impl Moment {
    /// Keeps `busy` requests in the batch until `finished` have left it.
    fn reach(self, content: impl Fn(u32) -> Content) -> Fast {
        let mut instance = Fast::new(instance(LatencyKind::TrainedPhysics));
        let mut sink = Count::default();
        let (mut now, mut arrived) = (Micros::ZERO, 0);
        while sink.0 < self.finished {
            while arrived - sink.0 < self.busy {
                // Answers of 128 to 384 tokens, so that requests do not finish together.
                let output_tokens = 128 + arrived * 97 % 257;
                instance.arrive(now, request(arrived, now, 256, output_tokens, content(arrived)));
                arrived += 1;
            }
            now += Micros(20_000);
            instance.advance(now, &mut sink).expect("it does not get stuck");
        }
        instance
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} busy, {} finished", self.busy, self.finished)
    }
}
