//! Histograms of inter-token latencies: they outnumber requests a thousandfold but have few distinct values, so each
//! value has a counter.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::distribution::Distribution;
use crate::ids::InstanceIndex;
use crate::limits::{DENSE_DURATIONS_US, HISTOGRAMS_AT_HAND, LISTED_DURATIONS, RECENT_GAPS};
use crate::numbers::{count_u16, index};
use crate::units::Micros;

/// The inter-token latencies of every instance.
///
/// With many instances their histograms do not fit the processor's caches, and every step would wait for one. Latencies
/// of all instances are therefore appended to one buffer that does fit, and moved to the instances some thousands at a
/// time. With few instances they are moved immediately.
#[derive(Clone, Debug)]
pub(super) struct InterTokenLatencies {
    recent: Vec<RecentGap>,
    /// The latest entry of `recent` of each instance, [`NONE`] if it has none. Empty for at most [`HISTOGRAMS_AT_HAND`]
    /// instances.
    latest: Vec<u16>,
    instances: Vec<Histogram>,
}

#[derive(Clone, Copy, Debug)]
struct RecentGap {
    us: u32,
    count: u16,
    /// The previous entry of the same instance.
    before: u16,
}

const NONE: u16 = u16::MAX;

impl InterTokenLatencies {
    pub fn new(instances: usize) -> Self {
        let many = instances > HISTOGRAMS_AT_HAND;
        Self {
            recent: Vec::with_capacity(if many { RECENT_GAPS } else { 0 }),
            latest: vec![NONE; if many { instances } else { 0 }],
            instances: vec![Histogram::default(); instances],
        }
    }

    /// Makes room for `instances`, if these are more than before.
    pub fn grow(&mut self, instances: usize) {
        if instances > self.instances.len() {
            self.instances.resize(instances, Histogram::default());
            if !self.latest.is_empty() {
                self.latest.resize(instances, NONE);
            }
        }
    }

    /// Inlined: it is called for every step.
    #[inline(always)]
    pub fn add(&mut self, instance: InstanceIndex, Micros(us): Micros, count: u64) {
        match (u32::try_from(us), u16::try_from(count)) {
            (Ok(us), Ok(count)) if self.latest.is_empty() => self.instances[instance.index()].add(us, count.into()),
            (Ok(us), Ok(count)) => self.add_recent(instance, us, count),
            _ => self.instances[instance.index()].counted.add(us, count),
        }
    }

    /// Adds `count` values to those of many instances.
    #[inline(never)]
    fn add_recent(&mut self, instance: InstanceIndex, us: u32, count: u16) {
        if self.recent.len() == RECENT_GAPS {
            self.flush();
        }
        let before = std::mem::replace(&mut self.latest[instance.index()], count_u16(self.recent.len()));
        self.recent.push(RecentGap { us, count, before });
    }

    /// Subtracts values that were added before, never more of a value than were added.
    pub fn retract(&mut self, instance: InstanceIndex, Micros(us): Micros, count: u64) {
        if !self.latest.is_empty() {
            self.flush_instance(instance.index());
        }
        let histogram = &mut self.instances[instance.index()];
        histogram.flush();
        histogram.counted.retract(us, count);
    }

    /// Moves all buffered values to the instances.
    fn flush(&mut self) {
        (0..self.latest.len()).for_each(|instance| self.flush_instance(instance));
        self.recent.clear();
    }

    fn flush_instance(&mut self, instance: usize) {
        let mut at = std::mem::replace(&mut self.latest[instance], NONE);
        while at != NONE {
            let RecentGap { us, count, before } = self.recent[at as usize];
            self.instances[instance].add(us, count.into());
            at = before;
        }
    }

    /// The distribution of each instance and of all together.
    pub fn distributions(&mut self) -> (Vec<Distribution>, Distribution) {
        self.flush();
        let HistogramScratch { mut one, mut all, mut values } = SCRATCH.take();
        if let [only] = &*self.instances {
            only.add_to(&mut one);
            one.take(&mut values);
            let whole = distribution(&values);
            SCRATCH.set(HistogramScratch { one, all, values });
            return (vec![whole], whole);
        }
        let mut each = Vec::with_capacity(self.instances.len());
        for histogram in &self.instances {
            histogram.add_to(&mut one);
            one.take(&mut values);
            values.iter().for_each(|&(us, count)| all.add(us, count));
            each.push(distribution(&values));
        }
        all.take(&mut values);
        let whole = distribution(&values);
        SCRATCH.set(HistogramScratch { one, all, values });
        (each, whole)
    }
}

thread_local! {
    /// Empty counters that keep their pages: in short and frequent simulations, a sixth of the time would be spent on
    /// new ones.
    static SCRATCH: RefCell<HistogramScratch> = RefCell::default();
}

#[derive(Debug, Default)]
struct HistogramScratch {
    /// Counters of one instance, and of all.
    one: ValueCounters,
    all: ValueCounters,
    values: Vec<(u64, u64)>,
}

/// The durations of one instance. A short simulation needs only the list.
#[derive(Clone, Debug, Default)]
struct Histogram {
    /// Values that are not counted yet: (value, count).
    listed: Vec<(u32, u32)>,
    counted: ValueCounters,
}

impl Histogram {
    #[inline]
    fn add(&mut self, us: u32, count: u32) {
        if self.listed.len() == self.listed.capacity() {
            self.reserve();
        }
        self.listed.push((us, count));
    }

    #[cold]
    fn reserve(&mut self) {
        self.flush();
        self.listed.reserve_exact(LISTED_DURATIONS); // memory is used only where it is written to
    }

    /// Counts the values in the list.
    fn flush(&mut self) {
        self.listed.drain(..).for_each(|(us, count)| self.counted.add(us.into(), count.into()));
    }

    fn add_to(&self, all: &mut ValueCounters) {
        self.listed.iter().for_each(|&(us, count)| all.add(us.into(), count.into()));
        self.counted.values().for_each(|(us, count)| all.add(us, count));
    }
}

/// One counter per value.
///
/// The counters lie in pages, which are allocated when one of their values first occurs: step times vary within a few
/// milliseconds.
#[derive(Clone, Debug, Default)]
struct ValueCounters {
    /// Counters of the values below [`DENSE_DURATIONS_US`]; grows to the largest one that occurs.
    pages: Vec<Option<Box<CounterPage>>>,
    /// Counters of all larger values.
    sparse: BTreeMap<u64, u64>,
}

/// A page of counters. Few values of a page ever occur, so those that do are marked.
#[derive(Clone, Debug)]
struct CounterPage {
    counts: [u64; PAGE],
    /// A bit per counter: clear only where the counter is zero.
    seen: [u64; PAGE / 64],
}

/// Values per page: 4 KiB.
const PAGE: usize = 512;

impl CounterPage {
    const EMPTY: Self = Self { counts: [0; PAGE], seen: [0; PAGE / 64] };

    #[inline]
    fn add(&mut self, at: usize, count: u64) {
        self.counts[at] += count;
        self.seen[at / 64] |= 1 << (at % 64);
    }

    /// Indices at which a counter may be other than zero, ascending.
    fn seen(&self) -> impl Iterator<Item = usize> + use<> {
        self.seen.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

impl ValueCounters {
    fn add(&mut self, us: u64, count: u64) {
        match self.pages.get_mut(index(us) / PAGE) {
            Some(Some(page)) => page.add(index(us) % PAGE, count),
            _ => self.add_new(us, count),
        }
    }

    #[cold]
    fn add_new(&mut self, us: u64, count: u64) {
        if us >= DENSE_DURATIONS_US {
            *self.sparse.entry(us).or_default() += count;
            return;
        }
        let (page, at) = (index(us) / PAGE, index(us) % PAGE);
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        self.pages[page].get_or_insert_with(|| Box::new(CounterPage::EMPTY)).add(at, count);
    }

    fn retract(&mut self, us: u64, count: u64) {
        let counter = if us < DENSE_DURATIONS_US {
            let page = self.pages.get_mut(index(us) / PAGE).and_then(Option::as_deref_mut);
            page.map(|page| &mut page.counts[index(us) % PAGE])
        } else {
            self.sparse.get_mut(&us)
        };
        let left = counter.as_deref().copied().unwrap_or(0).checked_sub(count);
        assert!(left.is_some(), "{count} inter-token latencies of {us} µs retracted that were never reported");
        if let (Some(counter), Some(left)) = (counter, left) {
            *counter = left;
        }
    }

    /// (value, count) in ascending order, without values of count 0.
    fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pages = self.pages.iter().enumerate().filter_map(|(number, page)| Some((number, page.as_deref()?)));
        let dense =
            pages.flat_map(|(number, page)| page.seen().map(move |at| ((number * PAGE + at) as u64, page.counts[at])));
        dense.chain(self.sparse.iter().map(|(&us, &count)| (us, count))).filter(|&(_, count)| count > 0)
    }

    /// Moves [`Self::values`] to `values` and resets the counters. The pages stay allocated.
    fn take(&mut self, values: &mut Vec<(u64, u64)>) {
        values.clear();
        for (number, page) in self.pages.iter_mut().enumerate() {
            let Some(page) = page else { continue };
            for at in page.seen() {
                let count = std::mem::take(&mut page.counts[at]);
                if count > 0 {
                    values.push(((number * PAGE + at) as u64, count));
                }
            }
            page.seen = [0; PAGE / 64];
        }
        values.extend(std::mem::take(&mut self.sparse).into_iter().filter(|&(_, count)| count > 0));
    }
}

/// The distribution of (value, count) in ascending order.
fn distribution(values: &[(u64, u64)]) -> Distribution {
    let count = values.iter().map(|&(_, n)| n).sum();
    let sum: u128 = values.iter().map(|&(us, n)| u128::from(us) * u128::from(n)).sum();
    let mut values = values.iter();
    let (mut value, mut seen) = (0, 0);
    Distribution::from_order(count, sum as f64, |rank| {
        while rank >= seen {
            let Some(&(us, n)) = values.next() else { break };
            (value, seen) = (us, seen + n);
        }
        value as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::distribution::tests::from_samples;
    use proptest::prelude::*;

    /// Durations around the end of the pages.
    fn duration() -> impl Strategy<Value = u64> {
        prop_oneof![0..2_000u64, DENSE_DURATIONS_US - 5..DENSE_DURATIONS_US + 5, 0..1u64 << 50]
    }

    fn counted() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((duration(), 1..20u64), 0..30)
    }

    /// Two instances: the first with the values `one`, the second with `other`.
    fn gaps(one: &[(u64, u64)], other: &[(u64, u64)]) -> InterTokenLatencies {
        of_instances(2, one, other)
    }

    /// Two instances, in the form used for `as_for` instances.
    fn of_instances(as_for: usize, one: &[(u64, u64)], other: &[(u64, u64)]) -> InterTokenLatencies {
        let mut gaps = InterTokenLatencies::new(as_for);
        gaps.instances.truncate(2);
        gaps.latest.truncate(2);
        one.iter().for_each(|&(us, count)| gaps.add(InstanceIndex(0), Micros(us), count));
        other.iter().for_each(|&(us, count)| gaps.add(InstanceIndex(1), Micros(us), count));
        gaps
    }

    fn each(counted: &[(u64, u64)]) -> Vec<u64> {
        counted.iter().flat_map(|&(us, n)| std::iter::repeat_n(us, n as usize)).collect()
    }

    proptest! {
        #[test]
        fn counting_loses_nothing(one in counted(), other in counted()) {
            let expected = (vec![from_samples(&each(&one)), from_samples(&each(&other))], from_samples(&each(&[one.clone(), other.clone()].concat())));
            for as_for in [2, HISTOGRAMS_AT_HAND + 1] {
                let mut gaps = of_instances(as_for, &one, &other);
                prop_assert_eq!(&gaps.distributions(), &expected);
                prop_assert_eq!(&gaps.distributions(), &expected, "a second time");
            }
        }

        #[test]
        fn retracting_undoes_adding(kept in counted(), gone in counted(), other in counted()) {
            for as_for in [2, HISTOGRAMS_AT_HAND + 1] {
                let mut plain = gaps(&kept, &other);
                let mut retracted = of_instances(as_for, &[kept.clone(), gone.clone()].concat(), &other);
                gone.iter().for_each(|&(us, count)| retracted.retract(InstanceIndex(0), Micros(us), count));
                prop_assert_eq!(plain.distributions(), retracted.distributions());
            }
        }
    }

    #[test]
    fn more_than_can_be_written_down_or_listed_is_counted() {
        let many: Vec<(u64, u64)> = (0..3 * LISTED_DURATIONS as u64).map(|i| (i * 7 % 1000, i % 3)).collect();
        let few = many[..RECENT_GAPS + 1].to_vec();
        let expected = (
            vec![from_samples(&each(&many)), from_samples(&each(&few))],
            from_samples(&each(&[many.clone(), few.clone()].concat())),
        );
        for as_for in [2, HISTOGRAMS_AT_HAND + 1] {
            assert_eq!(of_instances(as_for, &many, &few).distributions(), expected);
        }
    }
}
