//! The pages that no request holds, in the order in which they are taken.
//!
//! Pages without content are taken first: of them only the number counts. Behind them are pages with content, in the order in which they
//! came: *nodes* of one page that can be found, and of runs of pages that no look-up finds. Every page with content has a number, which
//! grows towards the end and tells whether that page is still free.

use super::super::paged::NONE;
use super::super::pages::PageHash;
use crate::numbers::count;

/// A page that has a hash or had one, free or held; or a run of free pages without hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageNode {
    /// Content by which it can be found; none of a run, and of a page that is written over while others hold it.
    pub hash: Option<PageHash>,
    /// Length of a run of free pages; number of requests that hold a page.
    pub count: u32,
    is_run: bool,
    prev: u32,
    next: u32,
    /// The next page with the same content, in the order of their creation.
    pub duplicate: u32,
    /// The step that wrote its content last.
    pub step: u64,
    /// Number of the page, or of the first one of a run, while it is free.
    number: u64,
}

/// The free pages of one instance, and the nodes of pages that are held.
#[derive(Clone, Debug)]
pub(super) struct PageQueue {
    /// Number of free pages.
    pub len: u32,
    /// Number of those without content, which are taken first.
    blank: u32,
    head: u32,
    tail: u32,
    pub nodes: Vec<PageNode>,
    unused: Vec<u32>,
    next_number: u64,
}

impl PageQueue {
    /// Of `pages` pages, which are all free and empty.
    pub fn new(pages: u32) -> Self {
        let mut queue =
            Self { len: 0, blank: 0, head: NONE, tail: NONE, nodes: Vec::new(), unused: Vec::new(), next_number: 0 };
        queue.append_run(pages);
        queue
    }

    /// Takes the next `pages` pages; `evicts` gets the nodes of those that could be found. There must be as many.
    #[inline]
    pub fn take(&mut self, pages: u32, evicts: impl FnMut(&mut [PageNode], u32)) {
        self.len -= pages;
        let blank = self.blank.min(pages);
        self.blank -= blank;
        if pages > blank {
            self.take_content(pages - blank, evicts);
        }
    }

    fn take_content(&mut self, mut left: u32, mut evicts: impl FnMut(&mut [PageNode], u32)) {
        while left > 0 {
            let head = self.head;
            let node = &mut self.nodes[head as usize];
            if node.is_run && node.count > left {
                node.count -= left;
                node.number += u64::from(left);
                return;
            }
            left -= if node.is_run { node.count } else { 1 };
            let evicted = node.hash.is_some();
            self.head = node.next;
            match self.head {
                NONE => self.tail = NONE,
                next => self.nodes[next as usize].prev = NONE,
            }
            if evicted {
                evicts(&mut self.nodes, head);
            }
            self.unused.push(head);
        }
    }

    /// The pages without content, and behind them the number and length of the run that is taken next, if none with a hash is.
    pub fn first_run(&self) -> (u32, Option<(u64, u32)>) {
        let head = self.nodes.get(self.head as usize).filter(|node| node.is_run);
        (self.blank, head.map(|node| (node.number, node.count)))
    }

    /// Whether the page that came to the end with `number` is still free. No request can have claimed it.
    pub fn contains(&self, number: u64) -> bool {
        self.nodes.get(self.head as usize).is_some_and(|head| head.number <= number)
    }

    /// Gives back `pages` pages without content: they are taken next.
    #[inline]
    pub fn prepend_blank(&mut self, pages: u32) {
        self.len += pages;
        self.blank += pages;
    }

    /// The number of the next page that comes to the end.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Gives back `pages` pages with content that no look-up finds: they are taken last.
    pub fn append_run(&mut self, pages: u32) {
        let number = self.next_number;
        if pages == 0 {
            return;
        }
        self.len += pages;
        self.next_number += u64::from(pages);
        if let Some(tail) = self.nodes.get_mut(self.tail as usize)
            && tail.is_run
            && tail.number + u64::from(tail.count) == number
        {
            tail.count += pages;
            return;
        }
        let node = self.new_node(PageNode::run(number, pages));
        self.link(node, self.tail, NONE);
    }

    /// Gives back the page of `node`: it is taken last.
    pub fn append(&mut self, node: u32) {
        self.len += 1;
        self.nodes[node as usize].number = self.next_number;
        self.next_number += 1;
        self.link(node, self.tail, NONE);
    }

    /// A page of a run, that with `number`, becomes that of `node`. It must be free.
    pub fn name_page(&mut self, number: u64, node: u32) {
        // It came lately, compared with most of the others.
        let mut run = self.tail;
        while self.nodes[run as usize].number > number {
            run = self.nodes[run as usize].prev;
        }
        let PageNode { number: first, count: pages, prev, next, .. } = self.nodes[run as usize];
        debug_assert!(
            self.nodes[run as usize].is_run && number < first + u64::from(pages),
            "page {number} is not in a run"
        );
        let before = u32::try_from(number - first).unwrap_or(u32::MAX);
        let after = pages - before - 1;
        self.nodes[node as usize].number = number;
        if before > 0 {
            self.nodes[run as usize].count = before;
            self.link(node, run, next);
        } else {
            self.link(node, prev, next);
            self.unused.push(run);
        }
        if after > 0 {
            let rest = self.new_node(PageNode::run(number + 1, after));
            self.link(rest, node, next);
        }
    }

    /// A free page is claimed.
    pub fn unlink(&mut self, node: u32) {
        self.len -= 1;
        let PageNode { prev, next, .. } = self.nodes[node as usize];
        match prev {
            NONE => self.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }

    /// A node for a page that one request holds.
    pub fn page(&mut self) -> u32 {
        self.new_node(PageNode { is_run: false, ..PageNode::run(0, 1) })
    }

    /// The page of `node` needs none any more.
    pub fn forget(&mut self, node: u32) {
        self.unused.push(node);
    }

    fn link(&mut self, node: u32, prev: u32, next: u32) {
        (self.nodes[node as usize].prev, self.nodes[node as usize].next) = (prev, next);
        match prev {
            NONE => self.head = node,
            prev => self.nodes[prev as usize].next = node,
        }
        match next {
            NONE => self.tail = node,
            next => self.nodes[next as usize].prev = node,
        }
    }

    fn new_node(&mut self, node: PageNode) -> u32 {
        if let Some(index) = self.unused.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            count(self.nodes.len()) - 1
        }
    }
}

impl PageNode {
    fn run(number: u64, pages: u32) -> Self {
        Self { hash: None, count: pages, is_run: true, prev: NONE, next: NONE, duplicate: NONE, step: 0, number }
    }
}
