//! The `blis` program: arguments become a specification, results are printed.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod cli;
