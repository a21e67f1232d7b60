#![no_main]

// What is read, written as another trace and read again is the same.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blis_fuzz::reread(bytes));
