//! Finds the KV blocks that requests of a trace share, once when the trace is loaded.
//!
//! ```text
//!            root                 A request is a path of symbols (a hash id, a block of tokens).
//!           /    \                Equal path = equal tokens from the start, so a node stands for
//!       s0 ●      ● s9            one content. Nodes on two or more paths are shareable and get
//!         / \      \              consecutive block keys, in order of creation: a path is then
//!     s1 ●   ● s4   ● …           a few runs of keys. All other nodes are dropped.
//! ```

use std::num::NonZeroU32;
use std::ops::Range;

use blis_sim::request::{BlockKey, Content, Span};
use rustc_hash::FxHashMap;

/// A node of a [`PrefixTree`], later of [`SharedPrefixes`].
pub(super) type PathNode = u32;

/// The root, at which every path starts.
pub(super) const ROOT: PathNode = 0;

/// More nodes or keys than 32 bits can number.
#[derive(Debug)]
pub(super) struct TooManyBlocks;

/// The paths of all requests read so far.
pub(super) struct PrefixTree {
    parent: Vec<PathNode>,
    symbol: Vec<u64>,
    /// Whether a node is on the path of at least two requests.
    shared: Vec<bool>,
    /// Children that do not directly follow their parent. Most do: a new path is one run.
    branches: FxHashMap<(PathNode, u64), PathNode>,
}

impl PrefixTree {
    pub fn new() -> Self {
        Self { parent: vec![ROOT], symbol: vec![0], shared: vec![false], branches: FxHashMap::default() }
    }

    /// Adds the path of one request and returns its last node.
    pub fn insert(&mut self, symbols: impl IntoIterator<Item = u64>) -> Result<PathNode, TooManyBlocks> {
        let mut node = ROOT;
        for symbol in symbols {
            node = match self.child(node, symbol) {
                Some(child) => {
                    self.shared[child as usize] = true;
                    child
                }
                None => self.add(node, symbol)?,
            };
        }
        Ok(node)
    }

    fn child(&self, node: PathNode, symbol: u64) -> Option<PathNode> {
        let next = node as usize + 1;
        if next < self.parent.len() && self.parent[next] == node && self.symbol[next] == symbol {
            return Some(node + 1);
        }
        self.branches.get(&(node, symbol)).copied()
    }

    fn add(&mut self, parent: PathNode, symbol: u64) -> Result<PathNode, TooManyBlocks> {
        let node = PathNode::try_from(self.parent.len()).map_err(|_| TooManyBlocks)?;
        if parent + 1 != node {
            self.branches.insert((parent, symbol), node);
        }
        self.parent.push(parent);
        self.symbol.push(symbol);
        self.shared.push(false);
        Ok(node)
    }

    /// Keeps the shareable nodes. `blocks_to(d)` is the number of engine blocks that end within the first `d` symbols
    /// of a path. Also returns, for each old node, the new node of its deepest shareable ancestor or itself.
    pub fn finish(self, blocks_to: impl Fn(u32) -> u32) -> Result<(SharedPrefixes, Vec<PathNode>), TooManyBlocks> {
        let mut kept = SharedPrefixes::default();
        let mut depth = vec![0_u32];
        let mut renumbered = vec![ROOT];
        for (&parent, &shared) in self.parent.iter().zip(&self.shared).skip(1) {
            // A node is shared only if its parent is, so the parent already has its new number.
            let parent = renumbered[parent as usize];
            renumbered.push(if shared {
                depth.push(depth[parent as usize] + 1);
                let end = blocks_to(depth[parent as usize] + 1);
                kept.add(parent, end)?
            } else {
                parent
            });
        }
        Ok((kept, renumbered))
    }
}

/// A [`PrefixTree`] for paths given as runs of consecutive symbols, each an engine block: memory depends on the number
/// of runs, not on their lengths. It finds the same contents and keys.
pub(super) struct RunTree {
    nodes: Vec<SymbolRun>,
    /// Children by parent and first symbol.
    children: FxHashMap<(PathNode, u32), PathNode>,
    /// Number of symbols in all nodes.
    made: u64,
}

/// Consecutive symbols from `first` on, all of which are on the same paths.
struct SymbolRun {
    parent: PathNode,
    first: u32,
    len: u32,
    /// Whether it is on the path of at least two requests.
    shared: bool,
    /// Number of symbols that were created before: parents come before their children.
    made: u64,
}

impl RunTree {
    pub fn new() -> Self {
        let root = SymbolRun { parent: ROOT, first: 0, len: 0, shared: false, made: 0 };
        Self { nodes: vec![root], children: FxHashMap::default(), made: 0 }
    }

    /// Adds the path of one request and returns its last node.
    pub fn insert(&mut self, runs: impl IntoIterator<Item = Range<u32>>) -> Result<PathNode, TooManyBlocks> {
        let mut node = ROOT;
        for mut left in runs {
            while !left.is_empty() {
                node = match self.children.get(&(node, left.start)) {
                    Some(&child) => self.pass(child, &mut left)?,
                    None => self.add(node, &mut left)?,
                };
            }
        }
        Ok(node)
    }

    /// Adds the rest of a path as a new node.
    fn add(&mut self, parent: PathNode, left: &mut Range<u32>) -> Result<PathNode, TooManyBlocks> {
        let run = SymbolRun { parent, first: left.start, len: left.end - left.start, shared: false, made: self.made };
        self.made += u64::from(run.len);
        left.start = left.end;
        self.push(run)
    }

    /// Follows `node` with the rest of a path. If the path diverges within the node, its start becomes a node of its
    /// own.
    fn pass(&mut self, node: PathNode, left: &mut Range<u32>) -> Result<PathNode, TooManyBlocks> {
        let run = &mut self.nodes[node as usize];
        let common = run.len.min(left.end - left.start);
        left.start += common;
        if common == run.len {
            run.shared = true;
            return Ok(node);
        }
        let start = SymbolRun { len: common, shared: true, ..*run };
        run.first += common;
        run.len -= common;
        run.made += u64::from(common);
        let rest = run.first;
        let start = self.push(start)?;
        self.nodes[node as usize].parent = start;
        self.children.insert((start, rest), node);
        Ok(start)
    }

    fn push(&mut self, run: SymbolRun) -> Result<PathNode, TooManyBlocks> {
        let node = PathNode::try_from(self.nodes.len()).map_err(|_| TooManyBlocks)?;
        self.children.insert((run.parent, run.first), node);
        self.nodes.push(run);
        Ok(node)
    }

    /// As [`PrefixTree::finish`]; a symbol is a block.
    pub fn finish(self) -> Result<(SharedPrefixes, Vec<PathNode>), TooManyBlocks> {
        let mut order: Vec<usize> = (1..self.nodes.len()).collect();
        order.sort_unstable_by_key(|&node| self.nodes[node].made);
        let mut kept = SharedPrefixes::default();
        let mut renumbered = vec![ROOT; self.nodes.len()];
        for node in order {
            let run = &self.nodes[node];
            let parent = renumbered[run.parent as usize];
            renumbered[node] = if run.shared {
                let end = kept.blocks_to[parent as usize].checked_add(run.len).ok_or(TooManyBlocks)?;
                kept.add(parent, end)?
            } else {
                parent
            };
        }
        Ok((kept, renumbered))
    }
}

/// The contents of shareable blocks and their keys.
pub(super) struct SharedPrefixes {
    parent: Vec<PathNode>,
    first_key: Vec<BlockKey>,
    /// Number of blocks from the start of the path to the end of each node.
    blocks_to: Vec<u32>,
    next_key: BlockKey,
}

impl Default for SharedPrefixes {
    fn default() -> Self {
        Self { parent: vec![ROOT], first_key: vec![0], blocks_to: vec![0], next_key: 0 }
    }
}

impl SharedPrefixes {
    /// Adds a content that ends `blocks_to` blocks after the start of its path.
    pub fn add(&mut self, parent: PathNode, blocks_to: u32) -> Result<PathNode, TooManyBlocks> {
        let node = PathNode::try_from(self.parent.len()).map_err(|_| TooManyBlocks)?;
        let own = blocks_to - self.blocks_to[parent as usize];
        self.parent.push(parent);
        self.first_key.push(self.next_key);
        self.blocks_to.push(blocks_to);
        self.next_key = self.next_key.checked_add(own).ok_or(TooManyBlocks)?;
        Ok(node)
    }

    /// The first key that no content has.
    pub fn next_key(&self) -> BlockKey {
        self.next_key
    }

    /// The shareable blocks of a path that ends in `node`, at most `blocks_max` of them.
    pub fn content(&self, node: PathNode, blocks_max: u32) -> Content {
        let mut spans: Vec<Span> = Vec::new();
        let mut node = node as usize;
        while node != ROOT as usize {
            let parent = self.parent[node] as usize;
            let (start, end) = (self.blocks_to[parent], self.blocks_to[node].min(blocks_max));
            if end > start {
                let span = Span { first: self.first_key[node], len: end - start };
                match spans.last_mut() {
                    Some(later) if later.first == span.first + span.len => {
                        *later = Span { first: span.first, len: span.len + later.len };
                    }
                    _ => spans.push(span),
                }
            }
            node = parent;
        }
        spans.reverse();
        Content::shared(&spans)
    }
}

/// Numbers for blocks of token ids: equal number ⇔ equal tokens. Tokens are compared, not only hashed, so contents are
/// never confused; they are dropped after the trace is loaded.
pub(super) struct TokenBlocks {
    block: usize,
    tokens: Vec<u32>,
    /// The latest block with each hash.
    latest: FxHashMap<u64, u32>,
    /// For each block, the previous one with the same hash.
    earlier: Vec<Option<NonZeroU32>>,
}

impl TokenBlocks {
    pub fn new(block: NonZeroU32) -> Self {
        Self { block: block.get() as usize, tokens: Vec::new(), latest: FxHashMap::default(), earlier: vec![None] }
    }

    /// The number of a block, from 1. It must have exactly the block size.
    pub fn intern(&mut self, tokens: &[u32]) -> Result<u64, TooManyBlocks> {
        let hash = hash_tokens(tokens);
        let head = self.latest.get(&hash).copied().and_then(NonZeroU32::new);
        let mut candidate = head;
        while let Some(number) = candidate {
            let at = (number.get() as usize - 1) * self.block;
            if self.tokens[at..at + self.block] == *tokens {
                return Ok(u64::from(number.get()));
            }
            candidate = self.earlier[number.get() as usize];
        }
        let number = u32::try_from(self.earlier.len()).map_err(|_| TooManyBlocks)?;
        self.tokens.extend_from_slice(tokens);
        self.earlier.push(head);
        self.latest.insert(hash, number);
        Ok(u64::from(number))
    }
}

/// A 64-bit hash of a block's tokens, good enough to find candidates.
fn hash_tokens(tokens: &[u32]) -> u64 {
    tokens.iter().fold(0x9e37_79b9_7f4a_7c15, |hash: u64, &token| {
        let mixed = (hash ^ u64::from(token)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Contents of requests given as paths of symbols, each symbol `per` blocks.
    fn contents(paths: &[Vec<u64>], per: u32) -> Vec<Vec<BlockKey>> {
        let mut tree = PrefixTree::new();
        let leaves: Vec<PathNode> = paths.iter().map(|path| tree.insert(path.iter().copied()).unwrap()).collect();
        let (prefixes, renumbered) = tree.finish(|depth| depth * per).unwrap();
        let keys = |&leaf: &PathNode| prefixes.content(renumbered[leaf as usize], u32::MAX).keys().collect();
        leaves.iter().map(keys).collect()
    }

    #[test]
    fn only_what_two_requests_have_is_shared_and_runs_are_long() {
        let mut tree = PrefixTree::new();
        let paths: [&[u64]; 4] = [&[1, 2, 3, 4], &[1, 2, 3, 9], &[1, 2, 7], &[1, 2, 7, 8]];
        let leaves = paths.map(|path| tree.insert(path.iter().copied()).unwrap());
        let (prefixes, renumbered) = tree.finish(|depth| depth).unwrap();
        let spans = leaves.map(|leaf| prefixes.content(renumbered[leaf as usize], u32::MAX).spans().to_vec());
        assert_eq!(spans[0], [Span { first: 0, len: 3 }]);
        assert_eq!(spans[1], spans[0]);
        assert_eq!(spans[2], [Span { first: 0, len: 2 }, Span { first: 3, len: 1 }]);
        assert_eq!(spans[3], spans[2]);
        let short = prefixes.content(renumbered[leaves[2] as usize], 1);
        assert_eq!(short.spans(), [Span { first: 0, len: 1 }]);
    }

    #[test]
    fn a_symbol_elsewhere_is_another_content() {
        let shared = contents(&[vec![5, 5], vec![6, 5], vec![5, 5], vec![6, 5]], 1);
        assert_eq!(shared[0], shared[2]);
        assert_eq!(shared[1], shared[3]);
        assert!(shared[0].iter().all(|key| !shared[1].contains(key)));
    }

    #[test]
    fn equal_hashes_are_not_equal_blocks() {
        let mut blocks = TokenBlocks::new(NonZeroU32::MIN);
        let one = blocks.intern(&[1]).unwrap();
        // As if 2 had the hash of 1.
        blocks.latest.insert(hash_tokens(&[2]), u32::try_from(one).unwrap());
        let two = blocks.intern(&[2]).unwrap();
        assert_ne!(one, two);
        assert_eq!([blocks.intern(&[1]).unwrap(), blocks.intern(&[2]).unwrap()], [one, two]);
    }

    proptest! {
        /// The definition of a key: equal ⇔ equal path up to and including its symbol.
        #[test]
        fn keys_are_equal_where_prefixes_are(paths in vec(vec(0_u64..3, 0..6), 0..12), per in 1_u32..4) {
            let shared = contents(&paths, per);
            let mut key_of: BTreeMap<Vec<u64>, BlockKey> = BTreeMap::new();
            let mut uses: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
            for path in &paths {
                for end in 1..=path.len() {
                    *uses.entry(path[..end].to_vec()).or_default() += 1;
                }
            }
            for (path, keys) in paths.iter().zip(&shared) {
                let shareable = (1..=path.len()).filter(|&end| uses[&path[..end]] > 1).count();
                prop_assert_eq!(keys.len(), shareable * per as usize);
                for (index, &key) in keys.iter().enumerate() {
                    let prefix = path[..=index / per as usize].to_vec();
                    let first = key - (index as u32 % per);
                    prop_assert_eq!(*key_of.entry(prefix).or_insert(first), first);
                }
            }
            let distinct: std::collections::BTreeSet<_> = key_of.values().collect();
            prop_assert_eq!(distinct.len(), key_of.len());
        }

        /// Runs that are cut anywhere give the same result as their symbols one by one, keys included.
        #[test]
        fn runs_are_their_symbols(paths in vec(vec((0_u32..6, 1_u32..5), 0..5), 0..10)) {
            let runs = |path: &[(u32, u32)]| path.iter().map(|&(first, len)| first..first + len).collect::<Vec<_>>();
            let mut tree = RunTree::new();
            let leaves: Vec<PathNode> = paths.iter().map(|path| tree.insert(runs(path)).unwrap()).collect();
            let (prefixes, renumbered) = tree.finish().unwrap();
            let found: Vec<Content> =
                leaves.iter().map(|&leaf| prefixes.content(renumbered[leaf as usize], u32::MAX)).collect();
            let mut tree = PrefixTree::new();
            let symbols = |path: &[(u32, u32)]| runs(path).into_iter().flatten().map(u64::from).collect::<Vec<_>>();
            let leaves: Vec<PathNode> = paths.iter().map(|path| tree.insert(symbols(path)).unwrap()).collect();
            let (prefixes, renumbered) = tree.finish(|depth| depth).unwrap();
            let expected: Vec<Content> =
                leaves.iter().map(|&leaf| prefixes.content(renumbered[leaf as usize], u32::MAX)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn block_numbers_are_equal_where_tokens_are(blocks in vec(vec(0_u32..3, 2), 0..30)) {
            let mut interner = TokenBlocks::new(NonZeroU32::new(2).unwrap());
            let numbers: Vec<u64> = blocks.iter().map(|block| interner.intern(block).unwrap()).collect();
            for (a, x) in blocks.iter().zip(&numbers) {
                for (b, y) in blocks.iter().zip(&numbers) {
                    prop_assert_eq!(a == b, x == y);
                }
            }
        }
    }
}
