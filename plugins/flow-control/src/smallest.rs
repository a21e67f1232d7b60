//! Which flow has the smallest virtual token counter, in one pass over all of them.
//!
//! Which counter is smaller than all before it cannot be predicted, so the pass has no branches. In WebAssembly it works on
//! vectors of 128 bits: a scalar loop keeps its variables in memory, because each round may call the host about fuel.

use blis_sdk::Flow;

/// Where the smallest counter of all flows is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Smallest {
    At(usize),
    /// At several flows, or counts are too large to be sure.
    Unclear,
    /// Not known: the flows are of other tenants than expected.
    OfOtherTenants,
}

/// Where `served_input + output_weight * served_output + lift` is smallest. Each lift and the weight are finite and not below 0.
pub fn smallest(flows: &[Flow], tenants: &[u32], lifts: &[f64], output_weight: f64) -> Smallest {
    if flows.len() != tenants.len() || flows.len() != lifts.len() {
        return Smallest::OfOtherTenants;
    }
    #[cfg(target_arch = "wasm32")]
    let (first, looked_at) = wide::least(flows, tenants, lifts, output_weight);
    #[cfg(not(target_arch = "wasm32"))]
    let (first, looked_at) = (Least::default(), 0);
    let rest = flows.iter().zip(tenants).zip(lifts).enumerate().skip(looked_at);
    let least = rest.fold(first, |least, (index, ((flow, &tenant), &lift))| {
        let others = flow.tenant ^ tenant;
        let counter = served(flow, output_weight) + lift;
        least.and(Least {
            counter,
            at: index as u32,
            is_shared: false,
            others,
            counts: flow.served_input | flow.served_output,
        })
    });
    least.result()
}

/// The weighted sum of the tokens that the tenant of `flow` was served.
pub fn served(flow: &Flow, output_weight: f64) -> f64 {
    // Counts of tokens are below 2^63, and WebAssembly converts signed integers in one instruction.
    let [input, output] = [flow.served_input, flow.served_output].map(|tokens| tokens.cast_signed() as f64);
    input + output_weight * output
}

/// Counts below this one are converted exactly, also by the vectors.
const EXACT_BELOW: u64 = 1 << 52;

/// The smallest counter among some flows.
#[derive(Clone, Copy, Debug)]
struct Least {
    counter: f64,
    at: u32,
    /// Whether a later one equals it.
    is_shared: bool,
    /// Bits in which tenants differ from those expected.
    others: u32,
    /// Bits of all counts.
    counts: u64,
}

impl Default for Least {
    fn default() -> Self {
        Self { counter: f64::INFINITY, at: 0, is_shared: false, others: 0, counts: 0 }
    }
}

impl Least {
    /// The smallest among these flows and those of `more`.
    fn and(self, more: Self) -> Self {
        let is_less = more.counter < self.counter;
        let least = if is_less { more } else { self };
        Self {
            is_shared: least.is_shared | (more.counter == self.counter),
            others: self.others | more.others,
            counts: self.counts | more.counts,
            ..least
        }
    }

    fn result(self) -> Smallest {
        if self.others != 0 {
            Smallest::OfOtherTenants
        } else if self.is_shared || self.counts >= EXACT_BELOW {
            Smallest::Unclear
        } else {
            Smallest::At(self.at as usize)
        }
    }
}

#[cfg(target_arch = "wasm32")]
mod wide {
    use core::arch::wasm32::*;

    use blis_sdk::Flow;

    use super::{EXACT_BELOW, Least};

    /// Flows of one round: enough that keeping the variables in memory between rounds costs little.
    const ROUND: usize = 8;

    /// The smallest counter among the flows of all whole rounds, and how many these are.
    #[target_feature(enable = "simd128")]
    pub fn least(flows: &[Flow], tenants: &[u32], lifts: &[f64], output_weight: f64) -> (Least, usize) {
        let weights = f64x2(1.0, output_weight);
        // A count in the lower bits of this number of 64 bits is as much above 2^52.
        let offset = f64x2_splat(EXACT_BELOW as f64);
        let zero = u64x2_splat(0);
        let (mut counter, mut at, mut is_shared) = (f64x2_splat(f64::INFINITY), zero, zero);
        let (mut others, mut counts, mut index) = (zero, zero, u64x2(0, 1));
        let (rounds, _) = flows.as_chunks::<ROUND>();
        for ((flows, tenants), lifts) in
            rounds.iter().zip(tenants.as_chunks::<ROUND>().0).zip(lifts.as_chunks::<ROUND>().0)
        {
            for (flows, tenants) in flows.as_chunks::<4>().0.iter().zip(tenants.as_chunks::<4>().0) {
                let [a, b, c, d] = flows.each_ref().map(|flow| flow.tenant);
                let [e, f, g, h] = *tenants;
                others = v128_or(others, v128_xor(u32x4(a, b, c, d), u32x4(e, f, g, h)));
            }
            for (flows, &[lift, next_lift]) in flows.as_chunks::<2>().0.iter().zip(lifts.as_chunks::<2>().0) {
                let [a, b] = flows.each_ref().map(|flow| u64x2(flow.served_input, flow.served_output));
                counts = v128_or(counts, v128_or(a, b));
                let [a, b] = [a, b].map(|counts| f64x2_mul(f64x2_sub(v128_or(counts, offset), offset), weights));
                let served = f64x2_add(u64x2_shuffle::<0, 2>(a, b), u64x2_shuffle::<1, 3>(a, b));
                let these = f64x2_add(served, f64x2(lift, next_lift));
                let (is_less, is_same) = (f64x2_lt(these, counter), f64x2_eq(these, counter));
                is_shared = v128_andnot(v128_or(is_shared, is_same), is_less);
                at = v128_bitselect(index, at, is_less);
                counter = f64x2_pmin(counter, these);
                index = u64x2_add(index, u64x2_splat(2));
            }
        }
        let others = v128_any_true(others).into();
        let counts = u64x2_extract_lane::<0>(counts) | u64x2_extract_lane::<1>(counts);
        let even = Least {
            counter: f64x2_extract_lane::<0>(counter),
            at: u64x2_extract_lane::<0>(at) as u32,
            is_shared: u64x2_extract_lane::<0>(is_shared) != 0,
            others,
            counts,
        };
        let odd = Least {
            counter: f64x2_extract_lane::<1>(counter),
            at: u64x2_extract_lane::<1>(at) as u32,
            is_shared: u64x2_extract_lane::<1>(is_shared) != 0,
            ..even
        };
        // Of no round, both are infinite.
        let both = if rounds.is_empty() { even } else { even.and(odd) };
        (both, rounds.len() * ROUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(tenant: u32, served_input: u64, served_output: u64) -> Flow {
        Flow { tenant, served_input, served_output, ..Flow::default() }
    }

    #[test]
    fn the_smallest_counter_is_found_wherever_it_is() {
        for len in 1..20_u32 {
            for least in 0..len {
                let flows: Vec<Flow> = (0..len).map(|i| flow(i, if i == least { 1 } else { 5 }, 3)).collect();
                let (tenants, lifts): (Vec<u32>, Vec<f64>) = ((0..len).collect(), vec![0.5; len as usize]);
                assert_eq!(smallest(&flows, &tenants, &lifts, 2.0), Smallest::At(least as usize), "{len}");
                assert_eq!(smallest(&flows, &tenants[1..], &lifts, 2.0), Smallest::OfOtherTenants);
                let raised: Vec<f64> = (0..len).map(|i| if i == least { 4.0 } else { 0.0 }).collect();
                let expected = if len == 1 { Smallest::At(0) } else { Smallest::Unclear };
                assert_eq!(smallest(&flows, &tenants, &raised, 2.0), expected, "{len}");
            }
        }
    }

    #[test]
    fn other_tenants_and_huge_counts_are_recognised() {
        let flows = [flow(1, 5, 0), flow(2, 1 << 52, 0)];
        assert_eq!(smallest(&flows, &[1, 2], &[0.0; 2], 1.0), Smallest::Unclear);
        assert_eq!(smallest(&flows[..1], &[1], &[0.0], 1.0), Smallest::At(0));
        assert_eq!(smallest(&flows[..1], &[2], &[0.0], 1.0), Smallest::OfOtherTenants);
    }
}
