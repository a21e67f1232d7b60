//! Random numbers: one seed, named streams, and a generator for each item of a stream.
//!
//! The numbers drawn for item `n` of stream `s` depend on (seed, s, n) and on nothing else. A policy, a flag or the
//! order of evaluation therefore cannot shift the numbers that another part of the simulation draws.

use rand_pcg::Pcg64Mcg;

/// The generator returned by [`Stream::at`]: small, fast, and the same on every platform.
pub type Generator = Pcg64Mcg;

/// A named stream of randomness under one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream called `name` under `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self { key: mix(seed ^ fnv1a(name.as_bytes())) }
    }

    /// The generator of item `index`: always the same sequence for the same (seed, name, index).
    #[must_use]
    pub fn at(self, index: u64) -> Generator {
        let low = mix(self.key ^ mix(index));
        let high = mix(low ^ 0x9e37_79b9_7f4a_7c15);
        Pcg64Mcg::new((u128::from(high) << 64) | u128::from(low))
    }
}

/// FNV-1a, 64 bit: <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng as _;

    #[test]
    fn an_item_depends_on_seed_name_and_index_only() {
        let first = Stream::new(42, "workload").at(7).next_u64();
        assert_eq!(first, Stream::new(42, "workload").at(7).next_u64());
        assert_ne!(first, Stream::new(42, "workload").at(8).next_u64());
        assert_ne!(first, Stream::new(43, "workload").at(7).next_u64());
        assert_ne!(first, Stream::new(42, "router").at(7).next_u64());
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
