//! The instance with the earliest next event.
//!
//! A tournament tree with a leaf per instance: a change costs a walk to the root, 8 levels for 256 instances, and the
//! winner is read in constant time.

use crate::ids::InstanceIndex;
use crate::numbers::count;
use crate::units::Micros;

/// Times of the next events of instances.
#[derive(Clone, Debug)]
pub(super) struct NextEvents {
    /// `times[width + i]` is the time of instance `i`; every inner node is the smaller of its two children.
    times: Vec<Micros>,
    /// The instance with that time; among equal times the lower number.
    winners: Vec<InstanceIndex>,
    width: usize,
}

/// A time later than every event.
const NEVER: Micros = Micros(u64::MAX);

impl NextEvents {
    /// No instance has an event.
    pub fn new(instances: usize) -> Self {
        let width = instances.next_power_of_two();
        let leaf = |node: u32| InstanceIndex(node.wrapping_sub(count(width)));
        let mut winners: Vec<_> = (0..2 * count(width)).map(leaf).collect();
        for node in (1..width).rev() {
            winners[node] = winners[2 * node];
        }
        Self { times: vec![NEVER; 2 * width], winners, width }
    }

    /// Makes room for `instances`, if these are more than before; the new ones have no events.
    pub fn grow(&mut self, instances: usize) {
        if instances <= self.width {
            return;
        }
        let mut wider = Self::new(instances);
        for (index, &at) in self.times[self.width..].iter().enumerate().filter(|&(_, &at)| at != NEVER) {
            wider.set(InstanceIndex::at(index), Some(at));
        }
        *self = wider;
    }

    /// The next event of `instance` is at `at`; `None` if it has none by itself.
    pub fn set(&mut self, instance: InstanceIndex, at: Option<Micros>) {
        let mut node = self.width + instance.index();
        self.times[node] = at.unwrap_or(NEVER);
        while node > 1 {
            node /= 2;
            // At equal times the left child, which has the lower number.
            let winner = 2 * node + usize::from(self.times[2 * node + 1] < self.times[2 * node]);
            self.times[node] = self.times[winner];
            self.winners[node] = self.winners[winner];
        }
    }

    /// The next event of `instance` may be as early as `at`.
    pub fn not_after(&mut self, instance: InstanceIndex, at: Micros) {
        if at < self.times[self.width + instance.index()] {
            self.set(instance, Some(at));
        }
    }

    /// Time of the next event of `instance`.
    pub fn time(&self, instance: InstanceIndex) -> Micros {
        self.times[self.width + instance.index()]
    }

    /// Time of the earliest next event of any instance; later than every event if there is none.
    pub fn first_time(&self) -> Micros {
        self.times[1]
    }

    /// The instance with the earliest next event, if that is before `limit`.
    pub fn first_before(&self, limit: Micros) -> Option<InstanceIndex> {
        (self.times[1] < limit).then(|| self.winners[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_smallest_and_lowest(
            instances in 1usize..40, changes in proptest::collection::vec((0usize..40, proptest::option::of(0u64..9)), 0..60),
        ) {
            let mut tree = NextEvents::new(instances.div_ceil(3));
            let mut times = vec![None; instances];
            prop_assert_eq!(tree.first_before(NEVER), None);
            for (instance, at) in changes {
                let (instance, at) = (instance % instances, at.map(Micros));
                tree.grow(instance + 1);
                tree.set(InstanceIndex::at(instance), at);
                times[instance] = at;
                let first = (0..instances).filter(|&i| times[i].is_some()).min_by_key(|&i| times[i]);
                let before_4 = first.filter(|&i| times[i] < Some(Micros(4)));
                prop_assert_eq!(tree.first_before(NEVER), first.map(InstanceIndex::at));
                prop_assert_eq!(tree.first_before(Micros(4)), before_4.map(InstanceIndex::at));
            }
        }
    }
}
