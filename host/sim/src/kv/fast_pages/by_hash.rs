//! The pages that can be found, by the hashes of their contents.

use rustc_hash::FxHashMap;

use super::super::paged::{NONE, Pages};
use super::super::pages::PageHash;
use super::queue::PageNode;
use crate::ids::RequestId;
use crate::request::BlockKey;

/// For every hash the oldest node with that content; the others follow it in the order of their creation.
#[derive(Clone, Debug)]
pub(super) struct PagesByHash {
    /// By group: contents that requests share.
    shared: Vec<Pages>,
    own: FxHashMap<(u16, RequestId, u32), u32>,
    /// Shared keys that came into the first group or left it, if it is watched.
    pub changes: Option<Vec<BlockKey>>,
}

impl PagesByHash {
    pub fn new(groups: usize) -> Self {
        Self { shared: vec![Pages::default(); groups], own: FxHashMap::default(), changes: None }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shared.iter().map(Pages::len).sum::<usize>() + self.own.len() + self.changes.as_ref().map_or(0, Vec::len)
    }

    #[inline]
    pub fn get_shared(&self, group: usize, key: BlockKey) -> Option<u32> {
        Some(self.shared[group].get(key)).filter(|&node| node != NONE)
    }

    #[inline]
    pub fn get(&self, hash: PageHash) -> Option<u32> {
        match hash {
            PageHash::Shared { group, key } => self.get_shared(usize::from(group), key),
            PageHash::Own { group, id, index } => self.own.get(&(group, id, index)).copied(),
        }
    }

    /// `node` can be found by `hash`, behind those that could before.
    pub fn enter(&mut self, nodes: &mut [PageNode], node: u32, hash: PageHash) {
        let first = match hash {
            PageHash::Shared { group, key } => self.shared[usize::from(group)].get_or_insert(key, node),
            PageHash::Own { group, id, index } => {
                Some(*self.own.entry((group, id, index)).or_insert(node)).filter(|&first| first != node)
            }
        };
        let Some(mut last) = first else { return self.changed(hash) };
        while nodes[last as usize].duplicate != NONE {
            last = nodes[last as usize].duplicate;
        }
        nodes[last as usize].duplicate = node;
    }

    /// `node` can no longer be found by `hash`.
    pub fn forget(&mut self, nodes: &mut [PageNode], node: u32, hash: PageHash) {
        let after = nodes[node as usize].duplicate;
        let Some(mut before) = self.get(hash) else { return };
        if before == node {
            self.replace_first(hash, after);
            return;
        }
        while nodes[before as usize].duplicate != node {
            before = nodes[before as usize].duplicate;
        }
        nodes[before as usize].duplicate = after;
    }

    /// `node` is the oldest with that hash; [`NONE`]: there is none.
    fn replace_first(&mut self, hash: PageHash, node: u32) {
        match hash {
            PageHash::Shared { group, key } => {
                self.shared[usize::from(group)].set(key, node);
            }
            PageHash::Own { group, id, index } if node == NONE => {
                self.own.remove(&(group, id, index));
            }
            PageHash::Own { group, id, index } => {
                self.own.insert((group, id, index), node);
            }
        }
        if node == NONE {
            self.changed(hash);
        }
    }

    fn changed(&mut self, hash: PageHash) {
        if let (PageHash::Shared { group: 0, key }, Some(changes)) = (hash, &mut self.changes) {
            changes.push(key);
        }
    }
}
