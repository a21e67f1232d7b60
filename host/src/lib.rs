//! BLIS as a library: everything behind the `blis` program.
