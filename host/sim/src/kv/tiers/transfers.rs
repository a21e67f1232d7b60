//! Transfers between the CPU tier and storage: threads and queues of each tier.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};

use super::config::StorageTier;
use crate::kv::plain::BlockHash;
use crate::numbers::truncated;
use crate::units::Micros;

/// A longer transfer takes this time, so that sums of times do not overflow.
const LONGEST_US: u64 = 1 << 60;

/// The direction of a transfer, and of the transfers that a thread prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StorageDirection {
    /// From storage to the CPU.
    Read,
    /// From the CPU to storage.
    Write,
}

impl StorageDirection {
    fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}

/// A transfer of some blocks, which one thread executes.
#[derive(Clone, Debug)]
pub(super) struct StorageTransfer {
    /// Index of the storage tier.
    pub tier: usize,
    pub direction: StorageDirection,
    pub blocks: Vec<BlockHash>,
    pub bytes: u64,
    /// Factor of its time; `None` for the time itself.
    pub jitter: Option<f64>,
}

/// A transfer that a thread executes. The order is that in which transfers end.
#[derive(Clone, Debug)]
struct ActiveTransfer {
    ends: Micros,
    waiting: QueuedTransfer,
    /// The kind of the thread.
    thread: StorageDirection,
}

/// A transfer with the time at which it was submitted, and its number.
#[derive(Clone, Debug)]
struct QueuedTransfer {
    submitted: Micros,
    number: u64,
    transfer: StorageTransfer,
}

impl ActiveTransfer {
    fn order(&self) -> (Micros, Micros, usize, StorageDirection, u64) {
        let QueuedTransfer { submitted, number, transfer } = &self.waiting;
        (self.ends, *submitted, transfer.tier, transfer.direction, *number)
    }
}

impl Ord for ActiveTransfer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for ActiveTransfer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ActiveTransfer {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for ActiveTransfer {}

/// A storage tier; pairs are by [`StorageDirection`].
#[derive(Clone, Debug)]
struct TierQueues {
    config: StorageTier,
    waiting: [VecDeque<QueuedTransfer>; 2],
    /// Threads of each kind without work.
    idle: [u32; 2],
    /// Transfers in progress.
    active: [u32; 2],
}

/// The transfers of one instance.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    tiers: Vec<TierQueues>,
    running: BTreeSet<ActiveTransfer>,
    ended: Vec<StorageTransfer>,
    now: Micros,
    submitted: u64,
}

impl Transfers {
    pub fn new(tiers: &[StorageTier]) -> Self {
        let queues = |&config: &StorageTier| TierQueues {
            config,
            waiting: Default::default(),
            idle: [config.read_threads, config.write_threads],
            active: [0; 2],
        };
        let tiers = tiers.iter().map(queues).collect();
        Self { tiers, running: BTreeSet::new(), ended: Vec::new(), now: Micros::ZERO, submitted: 0 }
    }

    /// Adds a transfer at `now`, at or after all earlier times.
    pub fn submit(&mut self, now: Micros, transfer: StorageTransfer) {
        self.advance(now);
        self.submitted += 1;
        let (tier, direction) = (transfer.tier, transfer.direction);
        let waiting = QueuedTransfer { submitted: now, number: self.submitted, transfer };
        self.tiers[tier].waiting[direction as usize].push_back(waiting);
        self.assign(tier, now.max(self.now));
    }

    /// Removes and returns the transfers that have ended by `now`, in the order of their ends.
    pub fn poll(&mut self, now: Micros) -> Vec<StorageTransfer> {
        self.advance(now);
        std::mem::take(&mut self.ended)
    }

    /// The end of the transfer that ends next.
    pub fn next_end(&self) -> Option<Micros> {
        self.running.first().map(|running| running.ends)
    }

    /// Ends what ends by `now`, and begins what waits for it. A transfer without duration ends when the time advances.
    fn advance(&mut self, now: Micros) {
        if now <= self.now {
            return;
        }
        while self.next_end().is_some_and(|ends| ends <= now) {
            let Some(ActiveTransfer { ends, waiting, thread }) = self.running.pop_first() else { break };
            let tier = waiting.transfer.tier;
            self.tiers[tier].idle[thread as usize] += 1;
            self.tiers[tier].active[waiting.transfer.direction as usize] -= 1;
            self.ended.push(waiting.transfer);
            self.assign(tier, ends);
        }
        self.now = now;
    }

    /// Begins transfers at `now` on idle threads: each thread takes the oldest transfer of its direction, else one of the other.
    fn assign(&mut self, tier: usize, now: Micros) {
        let queues = &mut self.tiers[tier];
        for thread in [StorageDirection::Read, StorageDirection::Write] {
            while queues.idle[thread as usize] > 0 {
                let next = queues.waiting[thread as usize].pop_front();
                let Some(waiting) = next.or_else(|| queues.waiting[thread.other() as usize].pop_front()) else { break };
                queues.idle[thread as usize] -= 1;
                let active = &mut queues.active[waiting.transfer.direction as usize];
                *active += 1;
                let ends = now.saturating_add(queues.config.transfer_time(&waiting.transfer, *active));
                self.running.insert(ActiveTransfer { ends, waiting, thread });
            }
        }
    }
}

impl StorageTier {
    /// The time of `transfer` if `active` transfers of its direction are in progress when it begins, it included.
    fn transfer_time(&self, transfer: &StorageTransfer, active: u32) -> Micros {
        let peak = match transfer.direction {
            StorageDirection::Read => self.read_bandwidth,
            StorageDirection::Write => self.write_bandwidth,
        };
        let moving = truncated(transfer.bytes as f64 / (peak * self.share_of_bandwidth(active)));
        let time = self.base_latency.0.saturating_add(moving).min(LONGEST_US);
        Micros(match transfer.jitter {
            Some(factor) => truncated((time as f64 * factor).round()).min(LONGEST_US),
            None => time,
        })
    }

    /// The share of the bandwidth that each of `active` transfers reaches: it grows linearly to the full bandwidth.
    fn share_of_bandwidth(&self, active: u32) -> f64 {
        let (depth, single) = (self.saturation_queue_depth, self.single_transfer_fraction);
        if depth < 2 || active >= depth || !(single > 0.0 && single < 1.0) {
            return 1.0;
        }
        single + (1.0 - single) * f64::from(active - 1) / f64::from(depth - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: StorageTier = StorageTier {
        read_threads: 1,
        write_threads: 1,
        read_bandwidth: 10.0,
        write_bandwidth: 5.0,
        base_latency: Micros(3),
        saturation_queue_depth: 0,
        single_transfer_fraction: 0.0,
        latency_jitter_stddev: 0.0,
    };

    fn transfer(direction: StorageDirection, bytes: u64) -> StorageTransfer {
        StorageTransfer { tier: 0, direction, blocks: Vec::new(), bytes, jitter: None }
    }

    /// The bytes of the transfers that have ended, which name them here.
    fn ended(transfers: &mut Transfers, now: u64) -> Vec<u64> {
        transfers.poll(Micros(now)).iter().map(|transfer| transfer.bytes).collect()
    }

    #[test]
    fn a_transfer_takes_its_latency_and_its_bytes_rounded_down() {
        assert_eq!(TIER.transfer_time(&transfer(StorageDirection::Read, 109), 1), Micros(3 + 10));
        assert_eq!(TIER.transfer_time(&transfer(StorageDirection::Write, 109), 1), Micros(3 + 21));
        let jittered = StorageTransfer { jitter: Some(1.5), ..transfer(StorageDirection::Read, 100) };
        assert_eq!(TIER.transfer_time(&jittered, 1), Micros(20), "13 · 1.5 = 19.5");
        let endless = StorageTier { read_bandwidth: f64::MIN_POSITIVE, ..TIER };
        assert_eq!(endless.transfer_time(&transfer(StorageDirection::Read, u64::MAX), 1), Micros(LONGEST_US));
    }

    #[test]
    fn bandwidth_grows_with_the_transfers_in_progress() {
        let ramp = StorageTier { saturation_queue_depth: 5, single_transfer_fraction: 0.2, ..TIER };
        let shares = [1, 2, 3, 5, 9].map(|active| ramp.share_of_bandwidth(active));
        for (share, expected) in shares.into_iter().zip([0.2, 0.4, 0.6, 1.0, 1.0]) {
            assert!((share - expected).abs() < 1e-12, "{share}, expected {expected}");
        }
        for (depth, single) in [(1, 0.2), (5, 0.0), (5, 1.0)] {
            let flat = StorageTier { saturation_queue_depth: depth, single_transfer_fraction: single, ..TIER };
            assert_eq!(flat.share_of_bandwidth(1), 1.0);
        }
    }

    #[test]
    fn threads_prefer_their_direction_and_help_with_the_other() {
        let mut transfers = Transfers::new(&[TIER]);
        for bytes in [10, 20, 30] {
            transfers.submit(Micros(0), transfer(StorageDirection::Write, bytes));
        }
        transfers.submit(Micros(1), transfer(StorageDirection::Read, 40));
        // Writes of 10 and 20 bytes begin at once, on both threads. At 5 µs the thread that reads is free and reads, before
        // the older write of 30 bytes, which begins at 7 µs.
        assert_eq!(ended(&mut transfers, 4), []);
        assert_eq!(ended(&mut transfers, 5), [10]);
        assert_eq!(ended(&mut transfers, 11), [20]);
        assert_eq!(ended(&mut transfers, 12), [40]);
        assert_eq!(ended(&mut transfers, 15), []);
        assert_eq!(ended(&mut transfers, 16), [30]);
    }

    #[test]
    fn a_thread_goes_on_when_a_transfer_ends_not_when_that_is_seen() {
        let mut transfers = Transfers::new(&[StorageTier { read_threads: 1, write_threads: 0, ..TIER }]);
        for bytes in [10, 20, 30] {
            transfers.submit(Micros(0), transfer(StorageDirection::Read, bytes));
        }
        assert_eq!(ended(&mut transfers, 1000), [10, 20, 30]);
        transfers.submit(Micros(1000), transfer(StorageDirection::Read, 40));
        assert_eq!(transfers.next_end(), Some(Micros(1007)));
    }

    #[test]
    fn transfers_that_end_together_are_in_the_order_of_their_submission_then_reads_first() {
        let mut transfers = Transfers::new(&[StorageTier { write_bandwidth: 10.0, ..TIER }]);
        transfers.submit(Micros(0), transfer(StorageDirection::Write, 11));
        transfers.submit(Micros(0), transfer(StorageDirection::Read, 12));
        assert_eq!(ended(&mut transfers, 9), [12, 11]);
        let instant = StorageTier { base_latency: Micros(0), ..TIER };
        let mut transfers = Transfers::new(&[instant]);
        transfers.submit(Micros(5), transfer(StorageDirection::Read, 9));
        assert_eq!(ended(&mut transfers, 5), [], "the time has not advanced");
        assert_eq!(ended(&mut transfers, 6), [9]);
    }
}
