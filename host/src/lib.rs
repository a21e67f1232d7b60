//! BLIS: simulates LLM inference services without GPUs and hosts the policies that run them.

pub mod report;
