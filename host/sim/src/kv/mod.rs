//! The KV cache of one instance: blocks, their contents, and the order in which they are reused.
//!
//! [`plain::PlainKv`] keeps every block and every token count, and is the reference. `fast::FastKv` keeps only blocks
//! that a request could find in the cache, and counts the others.
//!
//! Both implement BLIS f90a1e3a `kv_cache.go` and vLLM's `block_pool.py`, which agree except for the fields of
//! [`Semantics`](crate::semantics::Semantics): free blocks form a queue in the order of their release, a request's last
//! block first; they keep their content until they are reused from the head of that queue; a look-up walks a prompt
//! from its first block to the first miss.

pub(crate) mod fast;
mod paged;
pub mod plain;
