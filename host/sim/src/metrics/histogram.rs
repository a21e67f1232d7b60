//! Inter-token latencies: they outnumber requests a thousandfold but take few values, so every
//! value has a counter.

use std::collections::BTreeMap;

use super::distribution::Distribution;
use crate::units::Micros;

/// Durations as a count per value.
///
/// Every instance has one, so the counters come in pages, which exist once a value of theirs was
/// seen: step times keep to a few milliseconds. With many instances those pages do not fit the
/// processor's caches, and every step would wait for a counter; so values are written down one after
/// the other and counted two thousand at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Not counted yet: (value, how often).
    recent: Vec<(u32, u32)>,
    /// Counters of the values below [`Histogram::DENSE`]; grows to the largest one seen.
    pages: Vec<Option<Box<Page>>>,
    /// The rest.
    sparse: BTreeMap<u64, u64>,
}

type Page = [u64; PAGE];

/// Values per page: 4 KiB.
const PAGE: usize = 512;

impl Histogram {
    /// Values below have pages: 256 at most, 1 MiB. A step seldom takes longer (131 ms).
    const DENSE: u64 = 1 << 17;

    /// Values written down before they are counted: 16 KiB.
    const RECENT: usize = 2048;

    #[inline]
    pub fn add(&mut self, Micros(us): Micros, count: u64) {
        let (Ok(short), Ok(few)) = (u32::try_from(us), u32::try_from(count)) else {
            self.count(us, count);
            return;
        };
        if self.recent.len() == Self::RECENT {
            self.settle();
        }
        self.recent.push((short, few));
    }

    /// Counts what was written down.
    fn settle(&mut self) {
        let mut recent = std::mem::take(&mut self.recent);
        for (us, count) in recent.drain(..) {
            self.count(us.into(), count.into());
        }
        self.recent = recent;
    }

    fn count(&mut self, us: u64, count: u64) {
        match self.pages.get_mut(us as usize / PAGE) {
            Some(Some(page)) => page[us as usize % PAGE] += count,
            _ => self.count_new(us, count),
        }
    }

    #[cold]
    fn count_new(&mut self, us: u64, count: u64) {
        if us >= Self::DENSE {
            *self.sparse.entry(us).or_default() += count;
            return;
        }
        let (page, at) = (us as usize / PAGE, us as usize % PAGE);
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]))[at] += count;
    }

    /// Takes back what was added before: never more of a value than there is.
    pub fn retract(&mut self, Micros(us): Micros, count: u64) {
        self.settle();
        let counter = if us < Self::DENSE {
            let page = self.pages.get_mut(us as usize / PAGE).and_then(Option::as_deref_mut);
            page.map(|page| &mut page[us as usize % PAGE])
        } else {
            self.sparse.get_mut(&us)
        };
        let left = counter.as_deref().copied().unwrap_or(0).checked_sub(count);
        assert!(left.is_some(), "{count} inter-token latencies of {us} µs retracted that were never reported");
        if let (Some(counter), Some(left)) = (counter, left) {
            *counter = left;
        }
    }

    /// All of several.
    pub fn merged<'a>(parts: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            part.recent.iter().for_each(|&(us, count)| all.count(us.into(), count.into()));
            part.values().for_each(|(us, count)| all.count(us, count));
        }
        all
    }

    /// (value, count) of all that is counted, in ascending order, without empty ones.
    fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pages = self.pages.iter().enumerate().filter_map(|(number, page)| Some((number, page.as_deref()?)));
        let dense = pages.flat_map(|(number, page)| (number * PAGE..).zip(page)).map(|(us, &count)| (us as u64, count));
        dense.chain(self.sparse.iter().map(|(&us, &count)| (us, count))).filter(|&(_, count)| count > 0)
    }

    pub fn distribution(&mut self) -> Distribution {
        self.settle();
        let count = self.values().map(|(_, n)| n).sum();
        let sum: u128 = self.values().map(|(us, n)| u128::from(us) * u128::from(n)).sum();
        let mut values = self.values();
        let (mut value, mut seen) = (0, 0);
        Distribution::from_order(count, sum as f64, |rank| {
            while rank >= seen {
                let Some((us, n)) = values.next() else { break };
                (value, seen) = (us, seen + n);
            }
            value as f64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::distribution::tests::of;
    use proptest::prelude::*;

    /// Straddles the end of the pages.
    fn duration() -> impl Strategy<Value = u64> {
        prop_oneof![0..2_000u64, Histogram::DENSE - 5..Histogram::DENSE + 5, 0..1u64 << 50]
    }

    fn counted() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((duration(), 1..20u64), 0..30)
    }

    fn histogram(counted: &[(u64, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        counted.iter().for_each(|&(us, count)| histogram.add(Micros(us), count));
        histogram
    }

    proptest! {
        #[test]
        fn counting_loses_nothing(one in counted(), other in counted()) {
            let mut merged = Histogram::merged([histogram(&one), histogram(&other)].iter());
            let each: Vec<u64> =
                one.iter().chain(&other).flat_map(|&(us, n)| std::iter::repeat_n(us, n as usize)).collect();
            prop_assert_eq!(merged.distribution(), of(&each));
        }

        #[test]
        fn retracting_undoes_adding(kept in counted(), gone in counted()) {
            let (mut plain, mut retracted) = (histogram(&kept), histogram(&[kept, gone.clone()].concat()));
            gone.iter().for_each(|&(us, count)| retracted.retract(Micros(us), count));
            prop_assert_eq!(plain.distribution(), retracted.distribution());
        }
    }
}
