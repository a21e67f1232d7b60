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
use crate::request::Request;

/// The requests with counted pages.
#[derive(Clone, Debug)]
pub(super) struct PageCycle {
    /// One per size of blocks.
    clocks: Vec<BlockClock>,
    /// Those with windows first.
    classes: Vec<CycleClass>,
    /// Number of classes with windows.
    windows: usize,
    /// Tokens of a decoding request in the step that has not finished when the next one is planned: 0 or 1.
    in_flight: u32,
    /// Whether requests give back pages only in steps in which they take as many.
    is_aligned: bool,
    /// Number of requests that are about to enter their windows, once for each class.
    entering: u32,
    /// Number of requests in the lists of leaving blocks.
    leaving: u32,
    /// Of a request that joins, by class.
    courses: Vec<GroupCourse>,
}

/// Pages that come and go with blocks of one size, by the number of the step modulo that size.
#[derive(Clone, Debug)]
struct BlockClock {
    block: u32,
    takes: Box<[u32]>,
    /// Pages that are given back and that no look-up finds.
    drops: Box<[u32]>,
}

/// What the requests do in one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedStep {
    /// Pages that they take.
    pub takes: u32,
    /// Pages that they give back and that no look-up finds, but for those of windows that are entered.
    pub drops: u32,
    /// Whether blocks may leave that requests could look up, or requests enter their windows.
    pub leaves: bool,
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
    /// The number of the clock with its pages.
    clock: usize,
    /// By the number of the step modulo the block: the requests of which the next block to leave the window is one that they could look
    /// up, or leaves later than in the next `block` steps; in batch order.
    leaving: Box<[Vec<WindowBlocks>]>,
    /// Those that give back in the next step, or the next two, what they held before their window at the end of the prefill.
    entering: Vec<WindowBlocks>,
}

/// The blocks of a request in the windows of a class.
#[derive(Clone, Copy, Debug)]
struct WindowBlocks {
    key: RequestKey,
    pages: PagesNumber,
    /// [`FastPages::turn`] of the pages.
    turn: u32,
    /// The first step in which one leaves; of those that enter, the first step as a decoder.
    from_step: u64,
    /// The next one, and those of all that the request could look up.
    course: GroupCourse,
    /// Tokens that it has computed before `from_step`.
    computed: u32,
    /// Tokens, in `from_step`, of steps that have not finished.
    in_flight: u32,
}

impl PageCycle {
    /// For requests of these groups; `None` if their pages do not come and go in cycles.
    pub fn new(layout: &KvLayout, async_scheduling: bool) -> Option<Self> {
        let mut classes: Vec<CycleClass> = Vec::new();
        let mut clocks: Vec<BlockClock> = Vec::new();
        for (index, group) in layout.groups.iter().enumerate() {
            let window = group.rule.window();
            if !group.rule.holds_all() && window.is_none_or(|window| window == 0) {
                return None;
            }
            match classes.iter_mut().find(|class| (class.block, class.window) == (group.block, window)) {
                Some(class) => class.groups.push(index),
                None => {
                    let clock = clocks.iter().position(|clock| clock.block == group.block).unwrap_or(clocks.len());
                    if clock == clocks.len() {
                        clocks.push(BlockClock::new(group.block));
                    }
                    classes.push(CycleClass::new(index, group, clock));
                }
            }
        }
        classes.sort_by_key(|class| class.window.is_none());
        let in_flight = u32::from(async_scheduling);
        let is_aligned = |class: &CycleClass| class.leaves_at(0, in_flight).is_none_or(|at| at % class.block == 0);
        Some(Self {
            is_aligned: classes.iter().all(is_aligned),
            windows: classes.iter().filter(|class| class.window.is_some()).count(),
            clocks,
            classes,
            in_flight,
            entering: 0,
            leaving: 0,
            courses: Vec::new(),
        })
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
        let request = &live[key].request;
        self.courses.clear();
        for class in &self.classes {
            let Some(course) = class.course(pages, number, request, at.computed) else { return false };
            self.courses.push(course);
        }
        let (mut has_own, turn) = (false, pages.turn(number));
        for class in 0..self.classes.len() {
            let course = self.courses[class];
            has_own |= course.own.1 > course.skipped;
            self.join_class(
                class,
                WindowBlocks { key, pages: number, turn, from_step: at.v, course, computed: at.computed, in_flight },
                live,
            );
        }
        pages.count(number, has_own);
        true
    }

    /// The pages of `key` are no longer counted.
    pub fn leave(&mut self, pages: &mut FastPages, number: PagesNumber, key: RequestKey, at: DecodeMoment) {
        for class in 0..self.classes.len() {
            let skipped = self.leave_class(class, key, at);
            self.classes[class].groups.iter().for_each(|&group| pages.settle(number, group, at.computed, skipped));
        }
        pages.held_mut(number).is_counted = false;
    }

    /// Pages that `key`, of which the pages are counted, holds in `group` at `at`.
    pub fn held_in(
        &self,
        pages: &FastPages,
        number: PagesNumber,
        group: usize,
        key: RequestKey,
        at: DecodeMoment,
    ) -> u32 {
        let class = self.classes.iter().find(|class| class.groups.contains(&group));
        let skipped = class.map_or(0, |class| class.skipped(key, at, self.in_flight));
        pages.held_at(number, group, at.computed, skipped)
    }

    /// What the requests do in step `v`.
    #[inline]
    pub fn step(&self, v: u64) -> CountedStep {
        let mut step = CountedStep { takes: 0, drops: 0, leaves: self.entering > 0 };
        for clock in &self.clocks {
            let phase = index(v % u64::from(clock.block));
            step.takes += clock.takes[phase];
            step.drops += clock.drops[phase];
        }
        // Aligned blocks leave in steps in which others begin.
        let may_leave = self.leaving > 0 && (step.takes > 0 || !self.is_aligned);
        let leaves = |class: &CycleClass| !class.leaving[class.phase(v)].is_empty();
        step.leaves |= may_leave && self.classes[..self.windows].iter().any(leaves);
        step
    }

    /// Whether the order of the requests makes no difference to the pages that they take: none takes pages that another has just given
    /// back, because each takes what it gives back itself.
    pub fn takes_in_any_order(&self) -> bool {
        self.is_aligned && self.entering == 0
    }

    /// Pages that `step`, of number `v`, gives back at most.
    pub fn most_given_back(&self, step: &CountedStep, v: u64) -> u32 {
        let of_class = |class: &CycleClass| {
            let leaving = class.leaving[class.phase(v)].len() * class.groups.len();
            let entering =
                class.entering.iter().map(|blocks| class.before_window(blocks.computed + 1) - blocks.course.skipped);
            count(leaving) + entering.sum::<u32>() * count(class.groups.len())
        };
        step.drops + if step.leaves { self.classes[..self.windows].iter().map(of_class).sum() } else { 0 }
    }

    /// Whether the blocks that leave in step `v`, and that requests could look up, would go to the end of the queue of free pages in the order
    /// of the batch, before those of the requests with numbers from `others` on.
    #[inline]
    pub fn leaves_in_order(&self, v: u64, others: u64, live: &RequestArena<LiveRequest>) -> bool {
        // A list by itself is in order.
        self.windows == 1 && self.entering == 0 && others == u64::MAX || self.compares_in_order(v, others, live)
    }

    fn compares_in_order(&self, v: u64, others: u64, live: &RequestArena<LiveRequest>) -> bool {
        if let [class] = &self.classes[..self.windows]
            && !class.entering.iter().any(|blocks| class.enters_with_own(blocks))
        {
            return class.leaving[class.phase(v)].last().is_none_or(|last| live[last.key].seq < others);
        }
        let mut end = 0;
        let mut in_order = |first: u64, last: u64| {
            let follows = first >= end && last < others;
            end = last + 1;
            follows
        };
        let lists = self.classes.iter().map(|class| &class.leaving[class.phase(v)]);
        let mut ends = lists.filter_map(|list| Some((list.first()?, list.last()?)));
        let entering = || {
            self.classes.iter().flat_map(|class| class.entering.iter().filter(|blocks| class.enters_with_own(blocks)))
        };
        ends.all(|(first, last)| in_order(live[first.key].seq, live[last.key].seq))
            && entering().all(|blocks| in_order(live[blocks.key].seq, live[blocks.key].seq))
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

    /// Gives back and takes the pages of `step`, of number `v`.
    #[inline]
    pub fn execute(&mut self, step: CountedStep, v: u64, live: &RequestArena<LiveRequest>, pages: &mut FastPages) {
        if step.leaves {
            self.leave_windows(v, pages);
            if self.entering > 0 {
                (0..self.windows).for_each(|class| self.enter_windows(class, v, live, pages));
            }
        }
        if step.drops > 0 {
            pages.give_blank(step.drops);
        }
        // Each takes what it has given back before pages with content.
        if step.takes > 0 {
            pages.take_pages(step.takes);
        }
    }

    fn join_class(&mut self, class: usize, mut blocks: WindowBlocks, live: &RequestArena<LiveRequest>) {
        let (at, of) = (DecodeMoment { computed: blocks.computed, v: blocks.from_step }, &mut self.classes[class]);
        self.clocks[of.clock].takes[of.phase_of(at, 0)] += count(of.groups.len());
        if of.before_window(blocks.computed) > blocks.course.skipped {
            if of.before_window(blocks.computed - blocks.in_flight) <= blocks.course.skipped
                && blocks.in_flight > self.in_flight
            {
                // In the first step nothing leaves, because its last chunk has not finished when that is planned.
                (blocks.computed, blocks.from_step, blocks.in_flight) = (blocks.computed + 1, at.v + 1, self.in_flight);
            }
            of.entering.push(blocks);
            self.entering += 1;
        } else {
            self.watch(class, blocks, live);
        }
    }

    /// From now on the blocks leave the window one by one.
    fn watch(&mut self, class: usize, mut blocks: WindowBlocks, live: &RequestArena<LiveRequest>) {
        let class = &mut self.classes[class];
        let Some(leaves) = class.leaves_at(blocks.course.skipped, self.in_flight) else { return };
        let first = blocks.from_step;
        blocks.from_step += u64::from(leaves - blocks.computed);
        let phase = class.phase(blocks.from_step);
        if blocks.is_regular() && blocks.from_step < first + u64::from(class.block) {
            self.clocks[class.clock].drops[phase] += count(class.groups.len());
            return;
        }
        self.leaving += 1;
        let leaving = &mut class.leaving[phase];
        if leaving.last().is_none_or(|last| live[last.key].seq < live[blocks.key].seq) {
            leaving.push(blocks);
        } else {
            let before = leaving.partition_point(|other| live[other.key].seq < live[blocks.key].seq);
            leaving.insert(before, blocks);
        }
    }

    /// Returns the number of leading blocks that left the window.
    fn leave_class(&mut self, class: usize, key: RequestKey, at: DecodeMoment) -> u32 {
        let class = &mut self.classes[class];
        let (size, clock) = (count(class.groups.len()), &mut self.clocks[class.clock]);
        clock.takes[class.phase_of(at, 0)] -= size;
        let Some(leaves) = class.leaves_at(0, self.in_flight) else { return 0 };
        let phase = class.phase_of(at, leaves);
        let is_it = |blocks: &WindowBlocks| blocks.key == key;
        if let Some(index) = class.leaving[phase].iter().position(is_it) {
            self.leaving -= 1;
            return class.leaving[phase].remove(index).course.skipped;
        }
        if let Some(index) = class.entering.iter().position(is_it) {
            self.entering -= 1;
            return class.entering.remove(index).course.skipped;
        }
        clock.drops[phase] -= size;
        class.before_window(at.computed.saturating_sub(1 + self.in_flight))
    }

    /// The blocks that leave in step `v` do, in batch order.
    #[inline]
    fn leave_windows(&mut self, v: u64, pages: &mut FastPages) {
        for class in &mut self.classes[..self.windows] {
            let phase = class.phase(v);
            let CycleClass { groups, leaving, clock, .. } = class;
            let (mut done, mut blank) = (0, 0);
            for blocks in &mut leaving[phase] {
                if v < blocks.from_step {
                    continue; // the window is not full yet
                }
                let GroupCourse { skipped: block, own, shared } = blocks.course;
                if own.0 <= block && block < own.1 {
                    groups.iter().for_each(|&group| pages.leaves(blocks.pages, blocks.turn, group, block));
                } else if block < shared {
                    groups.iter().for_each(|&group| pages.drop_before(blocks.pages, group, block + 1));
                } else {
                    blank += 1;
                }
                blocks.course.skipped += 1;
                done += u32::from(blocks.is_regular());
            }
            pages.give_left(blank * count(groups.len()));
            if done > 0 {
                leaving[phase].retain(|blocks| v < blocks.from_step || !blocks.is_regular());
                self.leaving -= done;
                self.clocks[*clock].drops[phase] += done * count(groups.len());
            }
        }
    }

    /// What lies before the windows of requests that decode since step `v`, or the one before, is given back.
    fn enter_windows(&mut self, class: usize, v: u64, live: &RequestArena<LiveRequest>, pages: &mut FastPages) {
        let mut next = 0;
        while let Some(&blocks) = self.classes[class].entering.get(next) {
            if v < blocks.from_step {
                next += 1;
                continue;
            }
            let is_first = v == blocks.from_step;
            let computed = blocks.computed + u32::from(!is_first);
            let unfinished = if is_first { blocks.in_flight } else { self.in_flight };
            let of = &mut self.classes[class];
            let skipped = of.before_window(computed - unfinished).max(blocks.course.skipped);
            let mut blocks = blocks.given_back(skipped, &of.groups, pages);
            if is_first && blocks.in_flight > self.in_flight {
                of.entering[next] = blocks; // its last chunk had not finished when this step was planned
                next += 1;
            } else {
                of.entering.remove(next);
                self.entering -= 1;
                (blocks.computed, blocks.from_step) = (computed + 1, v + 1);
                self.watch(class, blocks, live);
            }
        }
    }
}

impl BlockClock {
    fn new(block: u32) -> Self {
        let pages = || vec![0; block as usize].into();
        Self { block, takes: pages(), drops: pages() }
    }
}

impl CycleClass {
    fn new(first: usize, group: &KvGroup, clock: usize) -> Self {
        Self {
            groups: vec![first],
            block: group.block,
            window: group.rule.window(),
            clock,
            leaving: vec![Vec::new(); group.block as usize].into(),
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
        Some(((block + 1) * self.block).saturating_add(self.window? - 1).saturating_add(in_flight))
    }

    /// Leading blocks that are before the window of the first token behind `finished` ones.
    fn before_window(&self, finished: u32) -> u32 {
        self.window.map_or(0, |window| (finished + 1).saturating_sub(window) / self.block)
    }

    /// What the groups hold of a request, if it is the same in all, and regular.
    fn course(&self, pages: &FastPages, number: PagesNumber, request: &Request, computed: u32) -> Option<GroupCourse> {
        let course_of = |&group: &usize| pages.course(number, group, request, computed);
        let (first, others) = self.groups.split_first()?;
        let first = course_of(first)?;
        others.iter().all(|group| course_of(group) == Some(first)).then_some(first)
    }

    /// Whether a block that a look-up could find may be among those that a request gives back when it enters its window.
    fn enters_with_own(&self, blocks: &WindowBlocks) -> bool {
        let GroupCourse { skipped, own, shared } = blocks.course;
        shared > skipped || own.1 > skipped && self.before_window(blocks.computed) > own.0
    }

    /// The number of leading blocks of `key` that left the window.
    fn skipped(&self, key: RequestKey, at: DecodeMoment, in_flight: u32) -> u32 {
        let Some(leaves) = self.leaves_at(0, in_flight) else { return 0 };
        let mut listed = self.leaving[self.phase_of(at, leaves)].iter().chain(&self.entering);
        let own = listed.find(|blocks| blocks.key == key).map(|blocks| blocks.course.skipped);
        own.unwrap_or_else(|| self.before_window(at.computed.saturating_sub(1 + in_flight)))
    }
}

impl WindowBlocks {
    /// Whether no look-up could find the blocks that leave from now on.
    fn is_regular(&self) -> bool {
        self.course.skipped >= self.course.own.1.max(self.course.shared)
    }

    /// The blocks before `end` leave the window, in each of `groups` the youngest first.
    fn given_back(mut self, end: u32, groups: &[usize], pages: &mut FastPages) -> Self {
        let GroupCourse { skipped, own, shared } = self.course;
        self.course.skipped = end;
        if shared > skipped {
            groups.iter().for_each(|&group| pages.drop_before(self.pages, group, end));
            return self;
        }
        let (from, to) = (own.0.clamp(skipped, end), own.1.clamp(skipped, end));
        for &group in groups {
            (from..to).rev().for_each(|block| pages.leaves(self.pages, self.turn, group, block));
        }
        pages.give_left((end - skipped - to.saturating_sub(from)) * count(groups.len()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::kv::pages::{CacheSpec, LayerRule, LayoutSettings, PageDemand, PagePoolSettings, PageRules, plan};
    use crate::policy::Rank;
    use crate::request::Request;
    use crate::units::Micros;

    fn pool_of_windows() -> FastPages {
        let layer = |rule| CacheSpec { rule, block: 1, page_bytes: 1, layers: 1 };
        let layers = [layer(LayerRule::Window(4)), layer(LayerRule::Full)];
        let settings = LayoutSettings { hybrid: true, prefix_caching: true, ..LayoutSettings::default() };
        let layout = plan(&layers, settings).expect("equal pages");
        let settings = PagePoolSettings {
            caching: true,
            retention: Some(0),
            max_model_len: 100,
            tokens_in_flight: 8,
            longest_chunk: 8,
        };
        FastPages::new(PageRules { layout, settings }, 100)
    }

    /// Regression: the first block to leave a window that was not full yet was given back after the pages of the step were taken, so that a
    /// page with content was evicted instead.
    #[test]
    fn pages_without_content_are_given_back_before_others_are_taken() {
        let mut pages = pool_of_windows();
        let mut cycle = PageCycle::new(&pages.rules.layout, false).expect("only windows");
        let mut live = RequestArena::with_capacity(1);
        let request = Request::new(RequestId(0), Micros::ZERO, 1, 20);
        let demand = PageDemand { request: &request, start: 0, end: 1, known: 1, prefill_end: 1, finished: 0 };
        let number = pages.enter(&demand, &Default::default(), false);
        let key = live.insert(LiveRequest::new(Box::new(request), Rank::real(0.0), Micros::ZERO));
        live[key].holding.pages = Some(number);
        assert!(cycle.join(&mut pages, &live, key, DecodeMoment { computed: 1, v: 10 }, 0));
        let mut held = Vec::new();
        for v in 10..20 {
            let step = cycle.step(v);
            assert_eq!(step.takes, 2, "a page of each group in step {v}");
            cycle.execute(step, v, &live, &mut pages);
            assert_eq!(pages.unfindable(0), 0, "a page without content is free after step {v}");
            held.push(100 - pages.free_pages());
        }
        // The window holds 4 tokens, and in the step that computes the next one that as well.
        assert_eq!(held, [4, 6, 8, 9, 10, 11, 12, 13, 14, 15]);
    }
}
