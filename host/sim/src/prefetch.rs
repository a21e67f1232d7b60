//! Asking for memory before it is needed.
//!
//! With hundreds of instances none of them is in the processor's near caches when its turn comes.
//! Which one is next is known a while before, so that the wait can be for nothing else.

/// Bytes that come together.
const LINE: usize = 64;

/// `value` will be looked at soon. Changes nothing but the time that takes.
#[inline]
pub(crate) fn soon<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of_val(value)).step_by(LINE) {
        line(start.wrapping_add(offset));
    }
}

/// Something will be added to the end of `heap` soon.
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
    // SAFETY: a hint. It reads nothing, and faults for no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn line(_address: *const u8) {}
