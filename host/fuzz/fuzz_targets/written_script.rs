#![no_main]

use blis_plugin::Limits;
use blis_plugin::meter::MeteredAllocator;

// Scripts are limited by what it counts.
#[global_allocator]
static ALLOCATOR: MeteredAllocator<std::alloc::System> = MeteredAllocator(std::alloc::System);

// A script written by the grammar loads or is refused, ends at deterministic limits, and does the same again.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { operations_per_call: 10_000, ..Limits::default() };
    let _ = blis_fuzz::written_script(bytes, &limits);
});
