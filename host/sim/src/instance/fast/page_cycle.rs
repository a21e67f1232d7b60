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
    /// What the requests do in the present step.
    pub step: CountedStep,
    /// Tokens of a decoding request in the step that has not finished when the next one is planned: 0 or 1.
    in_flight: u32,
}

/// What the requests do in one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedStep {
    /// Pages that they take.
    pub takes: u32,
    /// Pages without a hash that they give back.
    drops: u32,
    /// Whether requests enter their windows.
    enters: bool,
    /// Whether blocks may leave that requests could look up.
    leaves: bool,
    /// The admission number of the last of these requests; 0 if there is none.
    pub last: u64,
    /// Whether they would leave in another order than that of the batch.
    pub is_mixed: bool,
}

impl CountedStep {
    const EMPTY: Self = Self { takes: 0, drops: 0, enters: false, leaves: false, last: 0, is_mixed: false };

    /// Blocks of the requests from number `first` to `last` leave, after those before.
    fn leave(&mut self, first: u64, last: u64) {
        self.is_mixed |= self.last > 0 && first <= self.last;
        self.last = last.max(self.last);
    }
}

/// A decoding request: the tokens computed before a step, and that step.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeMoment {
    pub computed: u32,
    pub v: u64,
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
    leaving: Box<[Vec<WindowBlocks>]>,
    /// Those that give back in the next step, or the next two, what they held before their window at the end of the prefill.
    entering: Vec<WindowBlocks>,
}

/// The blocks of a request in the windows of a class.
#[derive(Clone, Copy, Debug)]
struct WindowBlocks {
    key: RequestKey,
    pages: PagesNumber,
    /// The first step in which one leaves; of those that enter, the first step as a decoder.
    from_step: u64,
    /// The next one, and those of all that the request could look up.
    course: GroupCourse,
    /// Tokens before `from_step`.
    computed: u32,
    /// Tokens, in `from_step`, of steps that have not finished.
    in_flight: u32,
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
        Some(Self { classes, step: CountedStep::EMPTY, in_flight: u32::from(async_scheduling) })
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
        if in_flight < self.in_flight {
            return false; // left out of a step, it gives back the next block a step earlier
        }
        let blocks = |class: &CycleClass| class.blocks_of(key, number, pages, &live[key], at, in_flight);
        if !self.classes.iter().all(|class| blocks(class).is_some()) {
            return false;
        }
        for class in &mut self.classes {
            if let Some(blocks) = class.blocks_of(key, number, pages, &live[key], at, in_flight) {
                class.join(blocks, live, self.in_flight);
            }
        }
        pages.held_mut(number).is_counted = true;
        true
    }

    /// The pages of `key` are no longer counted.
    pub fn leave(&mut self, pages: &mut FastPages, number: PagesNumber, key: RequestKey, at: DecodeMoment) {
        for class in &mut self.classes {
            let skipped = class.leave(key, at, self.in_flight);
            class.groups.iter().for_each(|&group| pages.settle(number, group, at.computed, skipped));
        }
        pages.held_mut(number).is_counted = false;
    }

    /// Pages that the request of `number`, with `computed` tokens, holds in `group` more than when it was counted.
    pub fn held_in(&self, pages: &FastPages, number: PagesNumber, group: usize, key: RequestKey, at: DecodeMoment) -> u32 {
        let class = self.classes.iter().find(|class| class.groups.contains(&group));
        let skipped = class.map_or(0, |class| class.skipped(key, at, self.in_flight));
        pages.held_at(number, group, at.computed, skipped)
    }

    /// The present step is that of number `v`.
    #[inline]
    pub fn begin_step(&mut self, v: u64, live: &RequestArena<LiveRequest>) {
        let mut step = CountedStep::EMPTY;
        for class in &self.classes {
            let phase = class.phase(v);
            step.takes += class.takes[phase];
            step.drops += class.drops[phase];
            step.enters |= !class.entering.is_empty();
            if let (Some(first), Some(last)) = (class.leaving[phase].first(), class.leaving[phase].last()) {
                step.leaves = true;
                step.leave(live[first.key].seq, live[last.key].seq);
            }
        }
        if step.enters {
            self.classes.iter().for_each(|class| class.count_entering(&mut step, live));
        }
        self.step = step;
    }

    /// Number of pages that step `v` takes.
    pub fn takes(&self, v: u64) -> u32 {
        self.classes.iter().map(|class| class.takes[class.phase(v)]).sum()
    }

    /// Whether the pages of `key`, with `computed` tokens, may change in the next step.
    pub fn is_due(&self, key: RequestKey, computed: u32) -> bool {
        self.classes.iter().any(|class| {
            let remainder = class.leaves_at(0, self.in_flight).map(|leaves| leaves % class.block);
            computed.is_multiple_of(class.block)
                || remainder == Some(computed % class.block)
                || class.entering.iter().any(|blocks| blocks.key == key)
        })
    }

    /// Takes and gives back the pages of the present step, of number `v`.
    #[inline]
    pub fn execute(&mut self, v: u64, live: &RequestArena<LiveRequest>, pages: &mut FastPages) {
        if self.step.drops > 0 {
            pages.give_blank(self.step.drops);
        }
        if self.step.takes > 0 {
            pages.take_pages(self.step.takes);
        }
        if self.step.leaves {
            self.classes.iter_mut().for_each(|class| class.leave_windows(v, pages));
        }
        if self.step.enters {
            self.classes.iter_mut().for_each(|class| class.enter_windows(v, live, pages, self.in_flight));
        }
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
            entering: Vec::new(),
        }
    }

    #[inline]
    fn phase(&self, v: u64) -> usize {
        index(v % u64::from(self.block))
    }

    /// The phase of the steps before which a request has a number of tokens that leaves the remainder of `computed`.
    fn phase_of(&self, at: DecodeMoment, computed: u32) -> usize {
        let ahead = computed % self.block + self.block - at.computed % self.block;
        self.phase(at.v + u64::from(ahead))
    }

    /// The tokens of a request before the step in which its block number `block` leaves the window.
    fn leaves_at(&self, block: u32, in_flight: u32) -> Option<u32> {
        Some((block + 1) * self.block + self.window? - 1 + in_flight)
    }

    /// Leading blocks that are before the window of the first token behind `finished` ones.
    fn before_window(&self, finished: u32) -> u32 {
        self.window.map_or(0, |window| (finished + 1).saturating_sub(window) / self.block)
    }

    /// What the groups hold of a request, if it is the same in all, and regular.
    fn blocks_of(
        &self,
        key: RequestKey,
        number: PagesNumber,
        pages: &FastPages,
        live: &LiveRequest,
        at: DecodeMoment,
        in_flight: u32,
    ) -> Option<WindowBlocks> {
        let course_of = |&group: &usize| pages.course(number, group, &live.request, at.computed);
        let course = course_of(&self.groups[0])?;
        let is_same = self.groups[1..].iter().all(|group| course_of(group) == Some(course));
        let blocks = WindowBlocks { key, pages: number, from_step: at.v, course, computed: at.computed, in_flight };
        is_same.then_some(blocks)
    }

    /// Notes the requests that enter their windows and could look up blocks that they may give back then.
    #[cold]
    fn count_entering(&self, step: &mut CountedStep, live: &RequestArena<LiveRequest>) {
        for blocks in &self.entering {
            let GroupCourse { skipped, own } = blocks.course;
            if own.1 > skipped && self.before_window(blocks.computed) > own.0 {
                step.leave(live[blocks.key].seq, live[blocks.key].seq);
            }
        }
    }

    fn join(&mut self, blocks: WindowBlocks, live: &RequestArena<LiveRequest>, in_flight: u32) {
        let at = DecodeMoment { computed: blocks.computed, v: blocks.from_step };
        let phase = self.phase_of(at, 0);
        self.takes[phase] += count(self.groups.len());
        if self.before_window(blocks.computed) > blocks.course.skipped {
            self.entering.push(blocks);
        } else {
            self.watch(blocks, live, in_flight);
        }
    }

    /// From now on the blocks leave the window one by one.
    fn watch(&mut self, mut blocks: WindowBlocks, live: &RequestArena<LiveRequest>, in_flight: u32) {
        let Some(leaves) = self.leaves_at(blocks.course.skipped, in_flight) else { return };
        let first = blocks.from_step;
        blocks.from_step += u64::from(leaves - blocks.computed);
        let phase = self.phase(blocks.from_step);
        if blocks.course.own.1 <= blocks.course.skipped && blocks.from_step < first + u64::from(self.block) {
            self.drops[phase] += count(self.groups.len());
            return;
        }
        let leaving = &mut self.leaving[phase];
        if leaving.last().is_none_or(|last| live[last.key].seq < live[blocks.key].seq) {
            leaving.push(blocks);
        } else {
            let before = leaving.partition_point(|other| live[other.key].seq < live[blocks.key].seq);
            leaving.insert(before, blocks);
        }
    }

    /// Returns the number of leading blocks that left the window.
    fn leave(&mut self, key: RequestKey, at: DecodeMoment, in_flight: u32) -> u32 {
        let (takes, size) = (self.phase_of(at, 0), count(self.groups.len()));
        self.takes[takes] -= size;
        let Some(leaves) = self.leaves_at(0, in_flight) else { return 0 };
        let phase = self.phase_of(at, leaves);
        for list in [&mut self.leaving[phase], &mut self.entering] {
            if let Some(index) = list.iter().position(|blocks| blocks.key == key) {
                return list.remove(index).course.skipped;
            }
        }
        self.drops[phase] -= size;
        self.before_window(at.computed.saturating_sub(1 + in_flight))
    }

    /// As [`Self::leave`], but the request remains.
    fn skipped(&self, key: RequestKey, at: DecodeMoment, in_flight: u32) -> u32 {
        let Some(leaves) = self.leaves_at(0, in_flight) else { return 0 };
        let mut listed = self.leaving[self.phase_of(at, leaves)].iter().chain(&self.entering);
        let own = listed.find(|blocks| blocks.key == key).map(|blocks| blocks.course.skipped);
        own.unwrap_or_else(|| self.before_window(at.computed.saturating_sub(1 + in_flight)))
    }

    /// The blocks that leave in step `v` do, in batch order.
    fn leave_windows(&mut self, v: u64, pages: &mut FastPages) {
        let phase = self.phase(v);
        let Self { groups, leaving, drops, .. } = self;
        let size = count(groups.len());
        leaving[phase].retain_mut(|blocks| {
            if v < blocks.from_step {
                return true; // the window is not full yet
            }
            let skipped = blocks.course.skipped;
            blocks.give_back(skipped + 1, groups, pages);
            let own = blocks.course.own;
            let stays = blocks.course.skipped < own.1;
            drops[phase] += if stays { 0 } else { size };
            stays
        });
    }

    /// What lies before the windows of requests that decode since step `v`, or the one before, is given back.
    #[cold]
    fn enter_windows(&mut self, v: u64, live: &RequestArena<LiveRequest>, pages: &mut FastPages, in_flight: u32) {
        for mut blocks in std::mem::take(&mut self.entering) {
            let is_first = v == blocks.from_step;
            let computed = blocks.computed + u32::from(!is_first);
            let unfinished = if is_first { blocks.in_flight } else { in_flight };
            let skipped = self.before_window(computed - unfinished).max(blocks.course.skipped);
            blocks.give_back(skipped, &self.groups, pages);
            if is_first && blocks.in_flight > in_flight {
                self.entering.push(blocks); // its last chunk had not finished when this step was planned
            } else {
                (blocks.computed, blocks.from_step) = (computed + 1, v + 1);
                self.watch(blocks, live, in_flight);
            }
        }
    }
}

impl WindowBlocks {
    /// The blocks before `end` leave the window, in each of `groups` the youngest first.
    fn give_back(&mut self, end: u32, groups: &[usize], pages: &mut FastPages) {
        let GroupCourse { skipped, own } = self.course;
        let (from, to) = (own.0.clamp(skipped, end), own.1.clamp(skipped, end));
        if from < to {
            groups.iter().for_each(|&group| pages.give_own(self.pages, group, (from, to)));
        }
        pages.give_blank((end - skipped - to.saturating_sub(from)) * count(groups.len()));
        self.course.skipped = end;
    }
}
