//! The block table of a request in one group, as a list of parts.

use std::collections::VecDeque;

use super::super::pages::HeldTable;
use crate::numbers::count;

/// Blocks of a request that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TablePart {
    /// Without pages: no later token reads them.
    Null(u32),
    /// With pages that no other request can look up.
    Run(u32),
    /// One block with a page that has a node.
    Page(u32),
}

impl TablePart {
    pub fn blocks(self) -> u32 {
        match self {
            Self::Null(blocks) | Self::Run(blocks) => blocks,
            Self::Page(_) => 1,
        }
    }

    fn pages(self) -> u32 {
        if matches!(self, Self::Null(_)) { 0 } else { self.blocks() }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct PartTable {
    /// Leading blocks without a page, because no later token reads them.
    pub skipped: u32,
    /// The nodes of the first blocks, which the request claimed; only in a group that holds all tokens.
    pub claimed: Vec<u32>,
    /// The blocks behind them.
    pub parts: VecDeque<TablePart>,
    pub len: u32,
    /// Leading blocks of which the content is known to the prefix cache, as far as it shall be.
    pub registered: u32,
    /// Whether the end of the prompt is, which lies inside a block.
    pub end_registered: bool,
    /// Blocks of runs, from the first up to the second, that the request can look up itself when it was preempted.
    pub own: (u32, u32),
}

impl PartTable {
    pub fn clear(&mut self) {
        self.claimed.clear();
        self.parts.clear();
        (self.skipped, self.len, self.registered, self.end_registered, self.own) = (0, 0, 0, false, (0, 0));
    }

    pub fn push(&mut self, part: TablePart) {
        self.len += part.blocks();
        match (self.parts.back_mut(), part) {
            (_, TablePart::Null(0) | TablePart::Run(0)) => {}
            (None, TablePart::Null(blocks)) if self.claimed.is_empty() => self.skipped += blocks,
            (Some(TablePart::Null(last)), TablePart::Null(blocks))
            | (Some(TablePart::Run(last)), TablePart::Run(blocks)) => {
                *last += blocks;
            }
            _ => self.parts.push_back(part),
        }
    }

    /// Of the blocks from `start` up to `end`, those of which a run would be looked up by its request.
    pub fn own_in(&self, start: u32, end: u32) -> u32 {
        self.own.1.min(end).saturating_sub(self.own.0.max(start))
    }

    pub fn held(&self) -> u32 {
        count(self.claimed.len()) + self.parts.iter().map(|part| part.pages()).sum::<u32>()
    }

    /// The number of the first block of `parts`.
    pub fn start(&self) -> u32 {
        self.skipped + count(self.claimed.len())
    }

    /// The part with block `block`, which is not claimed, and the number of blocks before it in that part.
    pub fn locate(&self, block: u32) -> Option<(usize, u32)> {
        if block < self.start() {
            return None;
        }
        // Most blocks that are looked for are among the last.
        let mut end = self.len;
        for (index, part) in self.parts.iter().enumerate().rev() {
            let start = end - part.blocks();
            if block >= start {
                return (block < end).then_some((index, block - start));
            }
            end = start;
        }
        None
    }

    /// The part of block `block`, if that has a page.
    pub fn page(&self, block: u32) -> Option<TablePart> {
        let (index, _) = self.locate(block)?;
        Some(self.parts[index]).filter(|part| !matches!(part, TablePart::Null(_)))
    }

    /// `part`, of one block, replaces block number `offset` of the part at `index`.
    pub fn replace(&mut self, index: usize, offset: u32, part: TablePart) {
        let before = std::mem::replace(&mut self.parts[index], part);
        let TablePart::Run(blocks) = before else { return };
        if offset + 1 < blocks {
            self.parts.insert(index + 1, TablePart::Run(blocks - offset - 1));
        }
        if offset > 0 {
            self.parts.insert(index, TablePart::Run(offset));
        }
    }

    /// Drops the blocks before `block`; `dropped` gets the parts that had pages, with the number of their first block.
    pub fn drop_before(&mut self, block: u32, mut dropped: impl FnMut(TablePart, u32)) {
        while self.skipped < block
            && let Some(first) = self.parts.front_mut()
        {
            let (start, wanted) = (self.skipped, block - self.skipped);
            let part = match first {
                TablePart::Run(blocks) if *blocks > wanted => {
                    *blocks -= wanted;
                    TablePart::Run(wanted)
                }
                TablePart::Null(blocks) if *blocks > wanted => {
                    *blocks -= wanted;
                    TablePart::Null(wanted)
                }
                _ => self.parts.pop_front().expect("it is the first"),
            };
            self.skipped += part.blocks();
            if part.pages() > 0 {
                dropped(part, start);
            }
        }
        while let Some(&TablePart::Null(blocks)) = self.parts.front() {
            self.skipped += blocks;
            self.parts.pop_front();
        }
    }
}

impl HeldTable for PartTable {
    fn blocks(&self) -> u32 {
        self.len
    }

    fn has_page(&self, block: u32) -> bool {
        self.page(block).is_some()
    }
}
