//! The block tables of one request: per group the pages that it holds, by block.

use std::collections::VecDeque;

use super::rules::HeldTable;
use crate::numbers::{count, index};

/// No page: the null block of vLLM.
pub(super) const NO_PAGE: u32 = u32::MAX;

/// The pages of one group, for the blocks of a request from its first on.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockTable {
    /// Leading blocks without a page, because no later token reads them.
    skipped: u32,
    /// Pages of the blocks after them; [`NO_PAGE`] where there is none.
    pages: VecDeque<u32>,
    /// Leading blocks of which the content is known to the prefix cache, as far as it shall be.
    pub registered: u32,
    /// Whether the end of the prompt is, which lies inside a block.
    pub end_registered: bool,
}

impl BlockTable {
    /// Number of blocks, those without a page included.
    pub fn len(&self) -> u32 {
        self.skipped + count(self.pages.len())
    }

    /// The page of block `block`, if it has one.
    pub fn page(&self, block: u32) -> Option<u32> {
        let offset = block.checked_sub(self.skipped)?;
        self.pages.get(offset as usize).copied().filter(|&page| page != NO_PAGE)
    }

    /// The page of the last block, if it has one.
    pub fn last(&self) -> Option<u32> {
        self.pages.back().copied().filter(|&page| page != NO_PAGE)
    }

    /// The last block gets `page`. Returns the one that it had.
    pub fn replace_last(&mut self, page: u32) -> Option<u32> {
        self.pages.back_mut().map(|last| std::mem::replace(last, page)).filter(|&page| page != NO_PAGE)
    }

    /// Appends a block without a page.
    pub fn push_null(&mut self) {
        if self.pages.is_empty() { self.skipped += 1 } else { self.pages.push_back(NO_PAGE) }
    }

    pub fn push(&mut self, page: u32) {
        self.pages.push_back(page);
    }

    /// Number of pages.
    pub fn held(&self) -> u32 {
        count(self.pages.iter().filter(|&&page| page != NO_PAGE).count())
    }

    /// The pages, the last block first.
    pub fn youngest_first(&self) -> impl Iterator<Item = u32> + '_ {
        self.pages.iter().rev().copied().filter(|&page| page != NO_PAGE)
    }

    /// All pages, the first block first.
    pub fn oldest_first(&self) -> impl Iterator<Item = u32> + '_ {
        self.pages.iter().copied().filter(|&page| page != NO_PAGE)
    }

    /// Removes and returns the pages of the blocks before `block`, the youngest first.
    pub fn drop_before(&mut self, block: u32) -> Vec<u32> {
        if block <= self.skipped {
            // Most calls: nothing has left the window since the last step.
            return Vec::new();
        }
        let dropped = index(u64::from(block - self.skipped)).min(self.pages.len());
        self.skipped += count(dropped);
        let mut pages: Vec<u32> = self.pages.drain(..dropped).filter(|&page| page != NO_PAGE).collect();
        pages.reverse();
        // What is left begins with a page, so that a table of nulls costs nothing.
        while self.pages.front() == Some(&NO_PAGE) {
            self.pages.pop_front();
            self.skipped += 1;
        }
        pages
    }
}

impl HeldTable for BlockTable {
    fn blocks(&self) -> u32 {
        self.len()
    }

    fn has_page(&self, block: u32) -> bool {
        self.page(block).is_some()
    }
}

/// The tables of one request, in the order of the groups; none before it is admitted.
#[derive(Clone, Debug, Default)]
pub struct PageTables {
    pub(super) groups: Vec<BlockTable>,
    /// Where another prompt was seen to fork off, tokens: windows and states are kept there. Each look-up sets it.
    pub(super) junction: Option<u32>,
}

impl PageTables {
    /// Whether the request holds pages.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Pages held, over all groups.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.groups.iter().map(BlockTable::held).sum()
    }

    /// Pages held in group `group`.
    #[must_use]
    pub fn held_in(&self, group: usize) -> u32 {
        self.groups.get(group).map_or(0, BlockTable::held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_positions_when_pages_leave() {
        let mut table = BlockTable::default();
        table.push_null();
        (10..15).for_each(|page| table.push(page));
        assert_eq!((table.len(), table.held(), table.page(1), table.page(0)), (6, 5, Some(10), None));
        assert_eq!(table.drop_before(3), [11, 10]);
        assert_eq!((table.len(), table.page(3)), (6, Some(12)));
        assert_eq!(table.drop_before(2), []);
        assert_eq!(table.youngest_first().collect::<Vec<_>>(), [14, 13, 12]);
        assert_eq!((table.len(), table.held()), (6, 3));
    }
}
