#![no_main]

// A trace that is written in another format and read again is the same.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blis_fuzz::reread(bytes));
