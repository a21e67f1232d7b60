//! Decoding requests of which pages come and go with the steps of a block, as sums that are updated without reading the requests.
//!
//! A decoding request takes a page of each group where a block begins, and gives one back where a block leaves its window: in the same
//! step of every `block` steps. Only the pages of the end of its prompt are not counted in sums: the request could find them again if it
//! were preempted, so they go to the end of the queue of free pages one by one, in batch order.

use super::arena::{RequestArena, RequestKey};
use super::live::LiveRequest;
use crate::kv::fast_pages::{FastPages, GroupCourse, PagesNumber};
use crate::kv::pages::{KvGroup, KvLayout};
use crate::numbers::{count, index};

/// The requests with counted pages.
#[derive(Clone, Debug)]
pub(super) struct PageCycle {
    classes: Vec<CycleClass>,
    /// Tokens of a decoding request in the step that has not finished when the next one is planned: 0 or 1.
    in_flight: u32,
}

/// Groups in which a request takes and gives back pages in the same steps.
#[derive(Clone, Debug)]
struct CycleClass {
    groups: Vec<usize>,
    block: u32,
    window: Option<u32>,
    /// By the number of the step modulo the block: the pages that are taken.
    takes: Box<[u32]>,
    /// Pages that are given back and that no look-up finds.
    drops: Box<[u32]>,
    /// The requests of which the next block to leave the window is one that they could look up, or leaves later than in the next
    /// `block` steps; in batch order.
    leaving: Box<[Vec<LeavingBlocks>]>,
}

/// Blocks of a request that leave its window, one every `block` steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeavingBlocks {
    pub key: RequestKey,
    pages: PagesNumber,
    /// The first step in which one leaves.
    from_step: u64,
    /// The next one, and those of all that the request could look up.
    course: GroupCourse,
}

/// A decoding request: the tokens computed before a step, and that step.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeMoment {
    pub computed: u32,
    pub v: u64,
}

impl PageCycle {
    /// For requests of these groups; `None` if their pages do not come and go in cycles.
    pub fn new(layout: &KvLayout, async_scheduling: bool) -> Option<Self> {
        let mut classes: Vec<CycleClass> = Vec::new();
        for (index, group) in layout.groups.iter().enumerate() {
            let window = group.rule.window();
            if !group.rule.holds_all() && window.is_none_or(|window| window == 0) {
                return None;
            }
            match classes.iter_mut().find(|class| (class.block, class.window) == (group.block, window)) {
                Some(class) => class.groups.push(index),
                None => classes.push(CycleClass::new(index, group)),
            }
        }
        Some(Self { classes, in_flight: u32::from(async_scheduling) })
    }

    /// Counts the pages of `key` from the step of `at` on, if they come and go in cycles. Of its tokens, the last `in_flight` are those of
    /// steps that have not finished then.
    pub fn join(
        &mut self,
        pages: &mut FastPages,
        live: &RequestArena<LiveRequest>,
        key: RequestKey,
        at: DecodeMoment,
        in_flight: u32,
    ) -> bool {
        let Some(number) = live[key].holding.pages else { return false };
        // With a longer chunk in flight nothing leaves in that step yet.
        let soonest = at.computed + u32::from(in_flight > self.in_flight);
        let is_regular = |class: &CycleClass| {
            let course = class.course(pages, number, &live[key], at.computed);
            course.is_some_and(|course| class.leaves_at(course, self.in_flight).is_none_or(|leaves| leaves >= soonest))
        };
        if in_flight < self.in_flight || !self.classes.iter().all(is_regular) {
            return false; // left out of a step, it gives back the next block a step earlier
        }
        for class in &mut self.classes {
            class.join((key, number), pages, live, at, self.in_flight);
        }
        pages.held_mut(number).is_counted = true;
        true
    }

    /// The pages of `key` are no longer counted.
    pub fn leave(&mut self, pages: &mut FastPages, number: PagesNumber, key: RequestKey, at: DecodeMoment) {
        for class in &mut self.classes {
            class.leave(key, at, self.in_flight);
        }
        pages.settle(number, at.computed, self.in_flight);
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Number of pages that step `v` takes.
    #[inline]
    pub fn takes(&self, v: u64) -> u32 {
        self.classes.iter().map(|class| class.takes[class.phase(v)]).sum()
    }

    /// Number of pages without a hash that step `v` gives back.
    #[inline]
    pub fn drops(&self, v: u64) -> u32 {
        self.classes.iter().map(|class| class.drops[class.phase(v)]).sum()
    }

    /// Whether the pages of a request with `computed` tokens may change in the next step.
    pub fn is_due(&self, computed: u32) -> bool {
        let first = GroupCourse::default();
        let remainder = |class: &CycleClass| class.leaves_at(first, self.in_flight).map(|leaves| leaves % class.block);
        self.classes.iter().any(|class| {
            let computed = computed % class.block;
            computed == 0 || remainder(class) == Some(computed)
        })
    }

    /// The class of groups of which blocks may leave in step `v` that requests could look up, and whether it is the only one.
    #[inline]
    pub fn leaving_class(&self, v: u64) -> Option<(usize, bool)> {
        let mut classes = self.classes.iter().enumerate().filter(|(_, class)| !class.leaving[class.phase(v)].is_empty());
        let (first, _) = classes.next()?;
        Some((first, classes.next().is_none()))
    }

    /// The blocks of a class that leave in step `v`, or in a later one, in batch order. They are given back by [`Self::left`].
    pub fn take_leaving(&mut self, class: usize, v: u64) -> Vec<LeavingBlocks> {
        let class = &mut self.classes[class];
        std::mem::take(&mut class.leaving[class.phase(v)])
    }

    /// The next of `blocks` leaves in step `v`, if it is time.
    pub fn leave_window(&self, class: usize, blocks: &mut LeavingBlocks, v: u64, pages: &mut FastPages) {
        if v < blocks.from_step {
            return; // the window is not full yet
        }
        let GroupCourse { skipped: block, own } = blocks.course;
        let groups = &self.classes[class].groups;
        if (own.0..own.1).contains(&block) {
            groups.iter().for_each(|&group| pages.give_own(blocks.pages, group, block));
        } else {
            pages.give_blank(count(groups.len()));
        }
        blocks.course.skipped += 1;
    }

    /// Step `v` is planned: the requests of `leaving` remain, or are counted.
    pub fn left(&mut self, class: usize, mut leaving: Vec<LeavingBlocks>, v: u64, live: &RequestArena<LiveRequest>) {
        let class = &mut self.classes[class];
        let (phase, pages) = (class.phase(v), count(class.groups.len()));
        leaving.retain(|blocks| {
            let stays = v < blocks.from_step || blocks.course.skipped < blocks.course.own.1;
            class.drops[phase] += if stays { 0 } else { pages };
            stays
        });
        // Others may have joined in the meantime.
        if !class.leaving[phase].is_empty() {
            leaving.append(&mut class.leaving[phase]);
            leaving.sort_unstable_by_key(|blocks| live[blocks.key].seq);
        }
        class.leaving[phase] = leaving;
    }
}

impl CycleClass {
    fn new(first: usize, group: &KvGroup) -> Self {
        let block = group.block as usize;
        Self {
            groups: vec![first],
            block: group.block,
            window: group.rule.window(),
            takes: vec![0; block].into(),
            drops: vec![0; block].into(),
            leaving: vec![Vec::new(); block].into(),
        }
    }

    #[inline]
    fn phase(&self, v: u64) -> usize {
        index(v % u64::from(self.block))
    }

    /// The phase of the steps before which a request has a number of tokens that leaves the remainder `computed`.
    fn phase_of(&self, at: DecodeMoment, computed: u32) -> usize {
        let ahead = computed % self.block + self.block - at.computed % self.block;
        self.phase(at.v + u64::from(ahead))
    }

    /// What the groups hold of a request, if it is the same in all, and regular.
    fn course(&self, pages: &FastPages, number: PagesNumber, live: &LiveRequest, computed: u32) -> Option<GroupCourse> {
        let course = |&group: &usize| pages.course(number, group, &live.request, computed);
        let first = course(&self.groups[0])?;
        self.groups[1..].iter().all(|group| course(group) == Some(first)).then_some(first)
    }

    /// The tokens of a request before the step in which its next block leaves the window.
    fn leaves_at(&self, course: GroupCourse, in_flight: u32) -> Option<u32> {
        Some((course.skipped + 1) * self.block + self.window? - 1 + in_flight)
    }

    fn join(
        &mut self,
        (key, number): (RequestKey, PagesNumber),
        pages: &FastPages,
        live: &RequestArena<LiveRequest>,
        at: DecodeMoment,
        in_flight: u32,
    ) {
        let size = count(self.groups.len());
        self.takes[self.phase_of(at, 0)] += size;
        let course = self.course(pages, number, &live[key], at.computed).unwrap_or_default();
        let Some(leaves) = self.leaves_at(course, in_flight) else { return };
        let from_step = at.v + u64::from(leaves - at.computed);
        let phase = self.phase(from_step);
        if course.own.1 <= course.skipped && from_step < at.v + u64::from(self.block) {
            self.drops[phase] += size;
            return;
        }
        let leaving = &mut self.leaving[phase];
        let before = leaving.partition_point(|blocks| live[blocks.key].seq < live[key].seq);
        leaving.insert(before, LeavingBlocks { key, pages: number, from_step, course });
    }

    fn leave(&mut self, key: RequestKey, at: DecodeMoment, in_flight: u32) {
        let size = count(self.groups.len());
        self.takes[self.phase_of(at, 0)] -= size;
        let Some(leaves) = self.leaves_at(GroupCourse::default(), in_flight) else { return };
        let phase = self.phase_of(at, leaves);
        match self.leaving[phase].iter().position(|blocks| blocks.key == key) {
            Some(index) => {
                self.leaving[phase].remove(index);
            }
            None => self.drops[phase] -= size,
        }
    }
}
