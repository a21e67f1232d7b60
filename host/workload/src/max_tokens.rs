//! Limits of output tokens (`max_tokens`) that clients announce with their requests.
//!
//! A client does not know how long an output will be. It announces no limit, a round one, or a multiple of what it
//! usually receives, so far above that outputs are hardly ever cut. A limit is drawn from a stream of its own and from
//! the distribution of the client's outputs, never from the output of the request: policies may read the limit, but
//! must not learn the length from it.
//!
//! | share of requests | limit |
//! |---|---|
//! | 2/5 | none |
//! | 2/5 | a power of two: the first one above nearly all outputs of the client, or two or four times that |
//! | 1/5 | a multiple of the client's mean output: the first one, but at least twice, above nearly all outputs, or twice that |
//!
//! *Nearly all* are 99.9 %. The few requests with an output that is not shorter than their limit announce none. The
//! shares are assumed: no public workload records limits.

use blis_sim::rng::{Generator, Stream};
use rand::RngExt as _;

/// The limits that a client announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokens {
    /// Drawn for each request, see the module.
    #[default]
    Drawn,
    /// None.
    Unlimited,
    /// The output length of each request, as in BLIS: policies know it.
    Length,
    /// The same for all requests, tokens, at least 1. Longer outputs end there.
    Fixed(u32),
}

/// The distribution of a client's output lengths, as far as its limits depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OutputScale {
    /// Mean, or another typical length, tokens.
    pub typical: f64,
    /// The quantile 0.999, tokens.
    pub long: u32,
}

/// Standard deviations from the mean to the quantile 0.999 of a normal distribution.
pub(crate) const NORMAL_LONG: f64 = 3.090_232_306_167_813;

/// Means from 0 to the quantile 0.999 of an exponential distribution: ln 1000.
pub(crate) const EXPONENTIAL_LONG: f64 = 6.907_755_278_982_137;

impl MaxTokens {
    /// The output length of a request whose output was drawn as `output` tokens, and its limit. `number` is the number
    /// of the request in `stream`.
    pub(crate) fn announce(
        self,
        output: u32,
        scale: impl FnOnce() -> OutputScale,
        stream: Stream,
        number: u64,
    ) -> (u32, Option<u32>) {
        match self {
            Self::Drawn => (output, drawn(scale, &mut stream.at(number)).filter(|&limit| limit > output)),
            Self::Unlimited => (output, None),
            Self::Length => (output, Some(output)),
            Self::Fixed(limit) => (output.min(limit), Some(limit)),
        }
    }
}

fn drawn(scale: impl FnOnce() -> OutputScale, random: &mut Generator) -> Option<u32> {
    let kind = random.random_range(0..5_u32);
    if kind < 2 {
        return None;
    }
    let factor = random.random_range(0..3_u32);
    let scale = scale();
    let long = u64::from(scale.long);
    let limit = if kind < 4 {
        (long + 1).next_power_of_two() << factor
    } else {
        let typical = (scale.typical.round() as u64).max(1);
        (typical * (long / typical + 1).max(2)) << (factor & 1)
    };
    u32::try_from(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn limits_are_none_round_or_multiples() {
        let stream = Stream::new(3, "limits");
        let scale = || OutputScale { typical: 120.4, long: 829 };
        let limits = |output| (0..2_000).map(move |n| MaxTokens::Drawn.announce(output, scale, stream, n).1);
        let seen: BTreeSet<Option<u32>> = limits(100).collect();
        assert_eq!(seen, [None, Some(840), Some(1024), Some(1680), Some(2048), Some(4096)].into());
        assert!(limits(100).eq(limits(828)), "they do not depend on the output");
        assert!(limits(1024).all(|limit| limit.is_none_or(|limit| limit > 1024)), "nothing is cut");
        let none = limits(100).filter(Option::is_none).count();
        assert!((700..900).contains(&none), "{none} of 2 000");
    }

    #[test]
    fn a_constant_length_is_not_the_limit() {
        for typical in [1_u32, 2, 60, 128, 1 << 28] {
            let scale = || OutputScale { typical: f64::from(typical), long: typical };
            let stream = Stream::new(3, "limits");
            let limits = (0..200).filter_map(|n| MaxTokens::Drawn.announce(typical, scale, stream, n).1);
            assert!(limits.min().is_some_and(|least| least > typical), "{typical}");
        }
    }

    #[test]
    fn other_limits_are_as_specified() {
        let scale = || OutputScale { typical: 5.0, long: 9 };
        let of = |limits: MaxTokens| limits.announce(7, scale, Stream::new(1, "x"), 0);
        assert_eq!(of(MaxTokens::Unlimited), (7, None));
        assert_eq!(of(MaxTokens::Length), (7, Some(7)));
        assert_eq!([of(MaxTokens::Fixed(4)), of(MaxTokens::Fixed(9))], [(4, Some(4)), (7, Some(9))]);
    }
}
