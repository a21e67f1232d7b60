//! The KV cache of one instance: blocks, their contents, and the order in which they are reused.
//!
//! [`plain::PlainKv`] keeps every block and every token count, and is the reference. `fast::FastKv` keeps only blocks
//! that a request could find in the cache, and counts the others.
//!
//! Both implement BLIS f90a1e3a `kv_cache.go` and vLLM's `block_pool.py`, which agree except for the fields of
//! [`Semantics`](crate::semantics::Semantics): free blocks form a queue in the order of their release, a request's last
//! block first; they keep their content until they are reused from the head of that queue; a look-up walks a prompt
//! from its first block to the first miss.

pub mod cache;
pub(crate) mod fast;
pub(crate) mod fast_pages;
pub mod hit;
mod paged;
pub mod pages;
pub mod plain;
pub mod tiers;

/// Length of the leading run of blocks of which `holds` is true, in O(log length) calls. If it is also true of blocks behind the
/// first of which it is false, the length of some leading run.
fn leading(holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut stride) = (0, 1);
    while holds(low + stride - 1) {
        low += stride;
        stride *= 2;
    }
    let mut high = low + stride - 1;
    while low < high {
        let middle = u32::midpoint(low, high);
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::leading;

    #[test]
    fn the_leading_run_ends_at_the_first_block_that_does_not_hold() {
        for length in 0..300 {
            assert_eq!(leading(|index| index < length), length);
        }
    }
}
