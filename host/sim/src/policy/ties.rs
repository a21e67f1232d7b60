//! Which of several equally good choices is taken.

use rand::RngExt as _;

use crate::ids::RequestId;
use crate::rng::Stream;

/// Which of several equally good choices is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Each of them with equal probability, drawn from the router's own stream for that request. Always choosing the
    /// first one loads instances unevenly: the variance of the p95 latency between seeds is then 6.8 times as large
    /// (`reference/cluster.md` §1.5).
    Random(Stream),
    /// The one with the lowest index: instances for comparison with recorded results, preemption victims as in vLLM.
    LowestIndex,
    /// The one with the highest index: preemption victims as in BLIS.
    HighestIndex,
}

impl Ties {
    /// Which of `tied` ≥ 1 equally good choices is taken for request `id`; 0 is the first of them.
    #[must_use]
    pub fn pick(&self, id: RequestId, tied: usize) -> usize {
        match self {
            Self::Random(stream) if tied > 1 => stream.at(u64::from(id.0)).random_range(0..tied),
            Self::HighestIndex => tied.saturating_sub(1),
            Self::Random(_) | Self::LowestIndex => 0,
        }
    }

    /// A number from 0 to 1 for each instance, drawn for request `id` apart from [`Self::pick`]; 0 if ties are not broken
    /// at random.
    pub(crate) fn draw(&self, id: RequestId, numbers: &mut [f64]) {
        match self {
            Self::Random(stream) => {
                let mut generator = stream.at(u64::from(id.0) | DRAWS);
                numbers.fill_with(|| generator.random());
            }
            Self::LowestIndex | Self::HighestIndex => numbers.fill(0.0),
        }
    }
}

/// The part of the router's stream that [`Ties::draw`] reads: request ids have 32 bits.
const DRAWS: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ties_are_uniform() {
        let ties = Ties::Random(Stream::new(42, "router"));
        let mut counts = [0_u32; 4];
        for id in (0..40_000).map(RequestId) {
            counts[ties.pick(id, 4)] += 1;
        }
        // 10 000 each, standard deviation 87: five of them.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 433), "{counts:?}");
        assert_eq!(ties.pick(RequestId(7), 4), ties.pick(RequestId(7), 4), "depends on the request only");
    }

    #[test]
    fn without_randomness_the_first_or_the_last_is_chosen() {
        let id = RequestId(3);
        let picks = [Ties::LowestIndex.pick(id, 5), Ties::Random(Stream::new(42, "router")).pick(id, 1)];
        assert_eq!(picks, [0, 0]);
        assert_eq!([Ties::HighestIndex.pick(id, 5), Ties::HighestIndex.pick(id, 1)], [4, 0]);
    }
}
