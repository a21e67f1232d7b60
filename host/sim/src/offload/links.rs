//! Transfers between the memory of the GPU and that of the host.

use std::collections::VecDeque;

use crate::numbers::truncated;
use crate::units::Micros;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferDirection {
    /// From the GPU to the host: stores.
    ToHost,
    /// From the host to the GPU: loads.
    ToGpu,
}

/// How fast transfers are. The default is vLLM's on an H100 (blog of 8 January 2026), with blocks of 0.5 MB and more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpeed {
    /// Bandwidth if only one direction is in use, bytes/µs, > 0.
    pub alone: f64,
    /// Bandwidth of each direction if both are in use, bytes/µs, > 0.
    pub together: f64,
    /// Time before the first byte of a transfer.
    pub base: Micros,
}

impl Default for LinkSpeed {
    fn default() -> Self {
        Self { alone: 50_000.0, together: 41_700.0, base: Micros(30) }
    }
}

#[derive(Clone, Debug)]
struct Transfer {
    id: u64,
    /// Time before its first byte, µs.
    base: f64,
    bytes: f64,
}

impl Transfer {
    fn moves(&self) -> bool {
        self.base <= 0.0
    }
}

/// The links of one instance: in each direction one transfer after the other, in the order of submission; both directions at the same
/// time, at a lower bandwidth while both move bytes.
#[derive(Clone, Debug)]
pub struct MemoryLinks {
    speed: LinkSpeed,
    /// Stores and loads.
    queues: [VecDeque<Transfer>; 2],
    /// The time of which the queues have the state, µs: when a transfer was submitted, began to move bytes, or ended last.
    now: f64,
}

impl MemoryLinks {
    /// Idle links.
    #[must_use]
    pub fn new(speed: LinkSpeed) -> Self {
        Self { speed, queues: [VecDeque::new(), VecDeque::new()], now: 0.0 }
    }

    /// Submits a transfer at `now`, up to which the links were advanced.
    pub fn submit(&mut self, now: Micros, direction: TransferDirection, bytes: u64, id: u64) {
        let passed = now.0 as f64 - self.now;
        if passed > 0.0 {
            self.speed.progress(self.queues.each_mut().map(VecDeque::front_mut), passed);
            self.now = now.0 as f64;
        }
        let transfer = Transfer { id, base: self.speed.base.0 as f64, bytes: bytes as f64 };
        self.queues[direction as usize].push_back(transfer);
    }

    /// The first moment at which a transfer has ended; `None` if there is none. O(1).
    #[must_use]
    pub fn next_end(&self) -> Option<Micros> {
        let mut heads = self.queues.each_ref().map(|queue| queue.front().cloned());
        let mut now = self.now;
        loop {
            let step = self.speed.next_step(heads.each_ref().map(Option::as_ref))?;
            now += step.time;
            if step.ends.is_some() {
                return Some(Micros(truncated(now.ceil())));
            }
            self.speed.progress(heads.each_mut().map(Option::as_mut), step.time);
        }
    }

    /// When the transfer `id` of this direction ends if nothing else is submitted; `None` if it is not there.
    #[must_use]
    pub fn end_of(&self, direction: TransferDirection, id: u64) -> Option<Micros> {
        self.queues[direction as usize].iter().find(|transfer| transfer.id == id)?;
        let mut links = self.clone();
        loop {
            let at = links.next_end()?;
            let mut is_over = false;
            links.advance(at, |ended, other| is_over |= ended == direction && other == id);
            if is_over {
                return Some(at);
            }
        }
    }

    /// Advances to `now` (inclusive), and calls `ended` for each transfer that has ended, in the order of their ends; of
    /// two that end together the store is first. To advance more often changes nothing, not even by rounding.
    pub fn advance(&mut self, now: Micros, mut ended: impl FnMut(TransferDirection, u64)) {
        let until = now.0 as f64;
        while let Some(step) = self.speed.next_step(self.queues.each_ref().map(VecDeque::front)) {
            // As `next_end` adds, so that what has ended at its time has ended here.
            if self.now + step.time > until {
                break;
            }
            self.speed.progress(self.queues.each_mut().map(VecDeque::front_mut), step.time);
            self.now += step.time;
            if let Some(direction) = step.ends
                && let Some(transfer) = self.queues[direction as usize].pop_front()
            {
                ended(direction, transfer.id);
            }
        }
    }

    /// Number of transfers that have not ended.
    #[must_use]
    pub fn pending(&self, direction: TransferDirection) -> usize {
        self.queues[direction as usize].len()
    }
}

/// A time in which bandwidths do not change.
struct LinkPhase {
    /// µs.
    time: f64,
    /// The direction of the transfer that ends after it; none if only its first byte is about to move.
    ends: Option<TransferDirection>,
}

impl LinkSpeed {
    fn bandwidth(&self, heads: [Option<&Transfer>; 2]) -> f64 {
        if heads.iter().flatten().filter(|head| head.moves()).count() > 1 { self.together } else { self.alone }
    }

    /// Until the next change of the two present transfers; `None` if there are none.
    fn next_step(&self, heads: [Option<&Transfer>; 2]) -> Option<LinkPhase> {
        let bandwidth = self.bandwidth(heads);
        let step = |direction: TransferDirection| {
            let head = heads[direction as usize]?;
            Some(if head.moves() {
                LinkPhase { time: head.bytes / bandwidth, ends: Some(direction) }
            } else {
                LinkPhase { time: head.base, ends: None }
            })
        };
        match (step(TransferDirection::ToHost), step(TransferDirection::ToGpu)) {
            (Some(store), Some(load)) => Some(if load.time < store.time { load } else { store }),
            (store, load) => store.or(load),
        }
    }

    fn progress(&self, heads: [Option<&mut Transfer>; 2], time: f64) {
        let bandwidth = self.bandwidth(heads.each_ref().map(Option::as_deref));
        for head in heads.into_iter().flatten() {
            if head.moves() {
                head.bytes = (head.bytes - time * bandwidth).max(0.0);
            } else {
                head.base -= time;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPEED: LinkSpeed = LinkSpeed { alone: 100.0, together: 80.0, base: Micros(10) };

    /// Ends of transfers as (direction, id, time), if all are submitted at these times.
    fn ends(submitted: &[(u64, TransferDirection, u64)]) -> Vec<(TransferDirection, u64, u64)> {
        let (mut links, mut ends) = (MemoryLinks::new(SPEED), Vec::new());
        let mut advance = |links: &mut MemoryLinks, until: Option<u64>| {
            while let Some(at) = links.next_end().filter(|at| until.is_none_or(|until| at.0 <= until)) {
                links.advance(at, |direction, id| ends.push((direction, id, at.0)));
            }
            until.into_iter().for_each(|until| links.advance(Micros(until), |_, _| unreachable!("all have been seen")));
        };
        for (id, &(at, direction, bytes)) in submitted.iter().enumerate() {
            advance(&mut links, Some(at));
            links.submit(Micros(at), direction, bytes, id as u64);
        }
        advance(&mut links, None);
        ends
    }

    #[test]
    fn one_direction_is_a_queue() {
        use TransferDirection::ToHost;
        assert_eq!(ends(&[(5, ToHost, 1000), (5, ToHost, 500)]), [(ToHost, 0, 25), (ToHost, 1, 40)]);
    }

    /// Both move from 10 to 35 at 80 bytes/µs: 2 000 bytes. The rest of the load moves alone, at 100.
    #[test]
    fn both_directions_share_the_bandwidth() {
        use TransferDirection::{ToGpu, ToHost};
        assert_eq!(ends(&[(0, ToHost, 2000), (0, ToGpu, 3000)]), [(ToHost, 0, 35), (ToGpu, 1, 45)]);
    }

    #[test]
    fn infinite_bandwidth_takes_the_base_time_only() {
        let mut links =
            MemoryLinks::new(LinkSpeed { alone: f64::INFINITY, together: f64::INFINITY, base: Micros::ZERO });
        links.submit(Micros(7), TransferDirection::ToGpu, u64::MAX, 1);
        assert_eq!(links.next_end(), Some(Micros(7)));
    }

    fn transfers() -> impl Strategy<Value = Vec<(u64, TransferDirection, u64)>> {
        let direction = prop_oneof![Just(TransferDirection::ToHost), Just(TransferDirection::ToGpu)];
        let one = (0..200_u64, direction, 1..20_000_u64);
        prop::collection::vec(one, 1..20).prop_map(|mut all| {
            all.sort_by_key(|one| one.0);
            all
        })
    }

    proptest! {
        #[test]
        fn every_transfer_ends_once_in_order_and_no_sooner_than_alone(submitted in transfers()) {
            let ends = ends(&submitted);
            prop_assert_eq!(ends.len(), submitted.len());
            prop_assert!(ends.windows(2).all(|pair| pair[0].2 <= pair[1].2));
            for direction in [TransferDirection::ToHost, TransferDirection::ToGpu] {
                let mut free = 0.0_f64;
                for (id, &(at, _, bytes)) in submitted.iter().enumerate().filter(|(_, one)| one.1 == direction) {
                    let &(_, _, end) = ends.iter().find(|end| end.1 == id as u64).expect("it ended");
                    // Alone it takes this long at least, less what rounding up added to the end before; at most as if the other direction
                    // were always in use.
                    let start = free.max(at as f64);
                    prop_assert!(end as f64 > start + 10.0 + bytes as f64 / 100.0 - 1.0, "{end}");
                    free = end as f64;
                    let before: f64 = submitted[..=id].iter().filter(|one| one.1 == direction)
                        .map(|one| 10.0 + one.2 as f64 / 80.0).sum();
                    prop_assert!(end as f64 <= at as f64 + before + 1.0, "{end} {at} {before}");
                }
            }
        }

        /// Looking at the links in between changes nothing.
        #[test]
        fn looking_more_often_gives_the_same_ends(submitted in transfers(), every in 1..50_u64) {
            let (mut seen, mut links, mut now) = (Vec::new(), MemoryLinks::new(SPEED), 0);
            let mut waiting = submitted.iter().enumerate().peekable();
            while waiting.peek().is_some() || links.next_end().is_some() {
                let arrival = waiting.peek().map_or(u64::MAX, |(_, one)| one.0);
                let end = links.next_end().map_or(u64::MAX, |end| end.0);
                now = arrival.min(end).min(now + every).max(now);
                links.advance(Micros(now), |direction, id| seen.push((direction, id, now)));
                while let Some((id, &(at, direction, bytes))) = waiting.next_if(|(_, one)| one.0 <= now) {
                    links.submit(Micros(at), direction, bytes, id as u64);
                }
            }
            let expected = ends(&submitted);
            prop_assert_eq!(seen.len(), expected.len());
            for (one, other) in seen.iter().zip(&expected) {
                prop_assert_eq!(one, other);
            }
        }
    }
}
