//! KV memory as pages of groups, as vLLM 0.33 has it: layers of one kind form groups, a page of the pool belongs to one group for
//! as long as a request holds it, and each group takes and gives back pages at its own rate.
//!
//! [`plan`] makes groups and their number of pages from what each layer caches; [`GroupedKv`] is the pool with the tables of the requests.
//! Formulas and order: `reference/memory.md`, sections 1 to 3, which names the files of vLLM 0.33.0.

mod counts;
mod hits;
mod layers;
mod model;
mod plan;
mod pool;
mod rules;
mod state;
mod table;

pub use counts::{NeedsTooMuch, StartLimits, estimated_length, pages_of_request};
pub(in crate::kv) use hits::leading_pages;
pub use layers::{CacheSpec, LayerRule, StateMode};
pub use model::{CacheSettings, layout_of};
pub use plan::{KvGroup, KvLayout, LayoutSettings, MixedPages, Packing, plan};
pub use pool::GroupedKv;
pub(in crate::kv) use rules::{HeldTable, HitOfGroup, PageHash, blocks_of_window, hash_of, is_state, skipped_tokens};
pub use rules::{PageDemand, PageHit, PagePoolSettings, PageRules};
pub use table::PageTables;
