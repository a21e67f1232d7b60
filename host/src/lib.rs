//! The `blis` program: arguments become a specification, results are printed.

pub mod cli;
