//! Memory prefetch: requesting data before it is needed.
//!
//! With hundreds of instances, the data of an instance is not in the near caches when the next event is its own. Which
//! instance is next is known some time before, so that the latency of memory can be overlapped with other work.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches `value`, which will be read soon. It affects only speed.
#[inline]
pub(crate) fn soon<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of_val(value)).step_by(LINE) {
        line(start.wrapping_add(offset));
    }
}

/// Prefetches the end of `heap`, where an element will be added soon, and the parent of that element.
#[inline]
pub(crate) fn prefetch_end<T>(heap: &[T]) {
    let parent = heap.get(heap.len() / 2);
    heap.last().into_iter().chain(parent).for_each(soon);
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "the intrinsic takes any address")]
fn line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint to the processor. It reads nothing, and no address makes it fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn line(_address: *const u8) {}
