//! Memory that a thread has allocated, counted in the allocator: scripts are limited by it.
//!
//! The count is that of the sizes which the program asks for, so a script reaches its limit at the same operation on every
//! machine. It works in programs with a [`MeteredAllocator`] as the global allocator; in others nothing is counted, and
//! scripts are limited by the sizes of their values alone.

#![allow(unsafe_code)] // a global allocator

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

/// Counts what each thread allocates, and passes it on to `A`.
pub struct MeteredAllocator<A>(pub A);

thread_local! {
    // Neither needs initialisation nor has a destructor, so an allocator may use them at any time.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    /// Of `HELD`, what the numbers of columns and tables of scripts take.
    static NUMBERS: Cell<i64> = const { Cell::new(0) };
}

/// The memory of this thread at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryMark {
    held: i64,
    allocated: u64,
    numbers: i64,
}

/// Memory since a mark, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// Allocated and not freed; 0 if more was freed than allocated.
    pub held: u64,
    /// Allocated, whether freed or not.
    pub allocated: u64,
    /// Of what is held, all but the numbers of columns and tables of scripts.
    pub values: u64,
}

impl MemoryMark {
    pub(crate) fn now() -> Self {
        Self { held: HELD.get(), allocated: ALLOCATED.get(), numbers: NUMBERS.get() }
    }

    pub(crate) fn used(self) -> MemoryUse {
        let now = Self::now();
        let held = now.held - self.held;
        MemoryUse {
            held: u64::try_from(held).unwrap_or(0),
            allocated: now.allocated.wrapping_sub(self.allocated),
            values: u64::try_from(held - (now.numbers - self.numbers)).unwrap_or(0),
        }
    }

    /// The mark as if nothing had been allocated since `start`.
    pub(crate) fn without(self, start: Self) -> Self {
        let now = Self::now();
        Self {
            held: self.held + now.held - start.held,
            allocated: self.allocated.wrapping_add(now.allocated.wrapping_sub(start.allocated)),
            numbers: self.numbers + now.numbers - start.numbers,
        }
    }
}

/// Counts `bytes` more (or less) as those of the numbers of a column.
pub(crate) fn count_numbers(bytes: i64) {
    // Where nothing is counted, they are not part of anything.
    if ALLOCATED.get() > 0 {
        NUMBERS.set(NUMBERS.get() + bytes);
    }
}

/// Runs `change`, and counts what it allocates and frees as memory of the numbers of a table.
pub(crate) fn numbers<T>(change: impl FnOnce() -> T) -> T {
    let held = HELD.get();
    let output = change();
    count_numbers(HELD.get() - held);
    output
}

fn count(more: usize, less: usize) {
    HELD.set(HELD.get() + more as i64 - less as i64);
    ALLOCATED.set(ALLOCATED.get().wrapping_add(more as u64));
}

// SAFETY: every call is passed on with the arguments it came with, and its result is returned.
unsafe impl<A: GlobalAlloc> GlobalAlloc for MeteredAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promises are those of this call.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as above.
        unsafe { self.0.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above.
        unsafe { self.0.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_and_allocated_bytes_are_counted() {
        let mark = MemoryMark::now();
        let mut kept = Vec::<u8>::with_capacity(1000);
        drop(std::hint::black_box(Vec::<u64>::with_capacity(100)));
        assert_eq!(mark.used(), MemoryUse { held: 1000, allocated: 1800, values: 1000 });
        kept.reserve_exact(5000);
        assert_eq!(mark.used(), MemoryUse { held: 5000, allocated: 6800, values: 5000 });
        let numbers = numbers(|| Vec::<u8>::with_capacity(300));
        assert_eq!(mark.used(), MemoryUse { held: 5300, allocated: 7100, values: 5000 });
        let later = MemoryMark::now();
        kept.reserve_exact(6000);
        assert_eq!(mark.without(later).used(), MemoryUse { held: 5300, allocated: 7100, values: 5000 });
        super::numbers(|| drop(numbers));
        drop(kept);
        assert_eq!(mark.used().held, 0);
        std::thread::spawn(|| drop(std::hint::black_box(vec![0_u8; 1 << 20]))).join().expect("it ends");
        assert!(mark.used().allocated < 1 << 20, "other threads do not count");
    }
}
