//! What exchanging data between GPUs costs: all-reduces, and the all-gathers around experts, by the number of GPUs and the size
//! of the message, inside a node and between nodes.

use crate::latency::LatencyError;
use crate::numbers::truncated_u32;

/// Collectives of one GPU model.
#[derive(Clone, Debug, PartialEq)]
pub struct Links {
    /// All-reduces by number of GPUs, ascending, at least one. The message is what every GPU has before and after.
    pub all_reduce: Vec<GroupLink>,
    /// All-gathers and reduce-scatters by number of GPUs, ascending, at least one. The message is that of all GPUs together.
    pub gather: Vec<GroupLink>,
    /// How many GPUs reach each other without the network, and the network.
    pub node: ServerNode,
}

/// Times of a collective over a group of GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupLink {
    /// Number of GPUs, ≥ 2.
    pub gpus: u32,
    /// Segments by size of the message, ascending from 0 bytes: libraries change the algorithm at some sizes (vLLM: one pass, two
    /// passes from 512 KiB with 4 GPUs and 256 KiB with 8, NCCL from 8 MiB).
    pub segments: Vec<LinkSegment>,
}

/// A line of time over size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSegment {
    /// The smallest message that it holds for, bytes ≥ 0.
    pub from_bytes: f64,
    /// Time of the line at 0 bytes, µs ≥ 0.
    pub launch_us: f64,
    /// Bytes of the message per time beyond that, 10⁹ bytes/s, > 0. A ring's bus bandwidth is 2·(g − 1)/g times it.
    pub gb_s: f64,
}

/// A server, and the network between servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerNode {
    /// GPUs that reach each other without the network, ≥ 1.
    pub gpus: u32,
    /// Bandwidth of the network per GPU and direction, 10⁹ bytes/s, > 0.
    pub network_gb_s: f64,
    /// Latency of one message over the network, µs ≥ 0.
    pub network_us: f64,
}

impl GroupLink {
    /// Time of a message of that many bytes in one piece, as measured, µs. Never decreases with the size: a line ends at the time at
    /// which a later one begins.
    #[must_use]
    pub fn us(&self, bytes: f64) -> f64 {
        let here = self.segments.iter().rfind(|segment| segment.from_bytes <= bytes);
        self.on_line(here, bytes)
    }

    /// Time of a message of that many bytes, in one piece or in parts, whichever is faster, µs: never longer than two messages of
    /// half the size. The parts are the largest before a change of algorithm and a rest, or equal. At some sizes libraries
    /// change to an algorithm that is slower there, over PCIe up to 3.6 times; half as many tokens at a time would make a
    /// prompt faster.
    #[must_use]
    pub fn split_us(&self, bytes: f64) -> f64 {
        let before = |index: usize| index.checked_sub(1).and_then(|last| self.segments.get(last));
        let ends = self.segments.iter().enumerate().skip(1).map(|(index, next)| (next.from_bytes, before(index)));
        let parts = ends.take_while(|(end, _)| *end <= bytes).map(|(end, segment)| {
            let (full, rest) = ((bytes / end).floor(), bytes % end);
            let remaining = if rest > 0.0 { self.split_us(rest) } else { 0.0 };
            let count = (bytes / end).ceil();
            (full * self.on_line(segment, end) + remaining).min(count * self.us(bytes / count))
        });
        parts.fold(self.us(bytes), f64::min)
    }

    /// Time on a line, or at the beginning of a later one that begins lower.
    fn on_line(&self, segment: Option<&LinkSegment>, bytes: f64) -> f64 {
        let line = |segment: &LinkSegment, bytes: f64| segment.launch_us + bytes / (segment.gb_s * 1e3);
        segment.map_or(0.0, |segment| {
            let later = self.segments.iter().filter(|later| later.from_bytes > segment.from_bytes);
            let starts = later.map(|later| line(later, later.from_bytes));
            starts.fold(line(segment, bytes), f64::min)
        })
    }
}

impl Links {
    /// Time of an all-reduce of `bytes` over `gpus` GPUs, µs; 0 for one.
    ///
    /// Over several nodes it has three parts: inside each node as measured; and between nodes a ring in which each GPU
    /// reduces its share of the message: `2·(n − 1)·(latency + bytes/(n·g·bandwidth))` for `n` nodes of `g` GPUs
    /// (Thakur, Rabenseifner, Gropp 2005, section 4.4).
    #[must_use]
    pub fn all_reduce_us(&self, gpus: f64, bytes: f64) -> f64 {
        over_nodes(&self.all_reduce, self.node, gpus, 2.0, bytes)
    }

    /// Time of an all-gather that leaves `bytes` on each of `gpus` GPUs, or of the reduce-scatter back, µs; 0 for one.
    /// Between nodes one pass of the ring suffices.
    #[must_use]
    pub fn gather_us(&self, gpus: f64, bytes: f64) -> f64 {
        over_nodes(&self.gather, self.node, gpus, 1.0, bytes)
    }

    /// Checks that every number is valid.
    ///
    /// # Errors
    /// If a group or segment is missing, out of order, negative or not a number.
    pub fn check(&self) -> Result<(), LatencyError> {
        let ascending = |sizes: Vec<f64>| sizes.is_sorted_by(|a, b| a < b);
        let group = |group: &GroupLink| {
            let numbers = |segment: &LinkSegment| {
                let LinkSegment { from_bytes, launch_us, gb_s } = *segment;
                [from_bytes, launch_us, gb_s].iter().all(|value| value.is_finite() && *value >= 0.0) && gb_s > 0.0
            };
            group.gpus >= 2
                && group.segments.first().is_some_and(|first| first.from_bytes == 0.0)
                && group.segments.iter().all(numbers)
                && ascending(group.segments.iter().map(|segment| segment.from_bytes).collect())
        };
        for (field, groups) in [("all_reduce", &self.all_reduce), ("gather", &self.gather)] {
            let sizes = groups.iter().map(|group| f64::from(group.gpus)).collect();
            if groups.is_empty() || !groups.iter().all(group) || !ascending(sizes) {
                return Err(LatencyError::Missing { field });
            }
        }
        let ServerNode { gpus, network_gb_s, network_us } = self.node;
        let network = network_gb_s.is_finite() && network_gb_s > 0.0 && network_us.is_finite() && network_us >= 0.0;
        if gpus >= 1 && network { Ok(()) } else { Err(LatencyError::Missing { field: "node" }) }
    }
}

/// Time inside the nodes, and of so many passes of a ring between them.
fn over_nodes(measured: &[GroupLink], node: ServerNode, gpus: f64, passes: f64, bytes: f64) -> f64 {
    let here = gpus.min(f64::from(node.gpus));
    let nodes = (gpus / f64::from(node.gpus)).ceil().max(1.0);
    let message = node.network_us + bytes / (nodes * here * node.network_gb_s * 1e3);
    in_node(measured, here, bytes) + passes * (nodes - 1.0) * message
}

/// Time inside a node: that of the smallest measured group that is large enough; beyond the largest, its time with the
/// transfer of a ring, which grows with (g − 1)/g.
fn in_node(measured: &[GroupLink], gpus: f64, bytes: f64) -> f64 {
    if gpus <= 1.0 {
        return 0.0;
    }
    let enough = measured.iter().find(|group| f64::from(group.gpus) >= gpus);
    match (enough, measured.last()) {
        (Some(group), _) => group.split_us(bytes),
        (None, Some(largest)) => {
            let share = |gpus: f64| (gpus - 1.0) / gpus;
            largest.split_us(bytes * share(gpus) / share(f64::from(largest.gpus)))
        }
        (None, None) => 0.0,
    }
}

/// The collectives of one step.
#[derive(Clone, Debug)]
pub(super) struct Collectives {
    /// Number of GPUs in a tensor-parallel group, and of data-parallel ranks.
    pub(super) gpus: f64,
    pub(super) ranks: f64,
    /// Number of all-reduces, and of layers whose tokens go to the experts of all ranks and back.
    pub(super) reductions: f64,
    pub(super) dispatches: f64,
    /// Size of a message, bytes per token.
    pub(super) message: f64,
    pub(super) links: Links,
}

impl Collectives {
    /// Time of a step with that many tokens on each rank, µs.
    pub(super) fn us(&self, tokens: f64) -> f64 {
        let bytes = self.message * tokens;
        let mut us = 0.0;
        if self.gpus > 1.0 {
            us += self.reductions * self.links.all_reduce_us(self.gpus, bytes);
        }
        if self.dispatches > 0.0 {
            // vLLM's default for experts: every rank gathers the tokens of all, and the results are scattered back.
            us += 2.0 * self.dispatches * self.gather_us(bytes * self.ranks);
        }
        us
    }

    /// Every GPU of a tensor-parallel group sends its part of hidden states and residual (vLLM's intermediate tensors) to
    /// one GPU of the next of so many pipeline stages, where an all-gather joins them. If the stages are on several nodes, some
    /// of these messages cross the network: the time is that of the mean boundary.
    pub(super) fn handover(&self, tokens: f64, stages: f64) -> f64 {
        let bytes = 2.0 * self.message * tokens;
        let part = bytes / self.gpus;
        let ServerNode { gpus, network_gb_s, network_us } = self.links.node;
        let nodes = (self.gpus * self.ranks * stages / f64::from(gpus)).ceil().clamp(1.0, stages);
        let crossing = if stages > 1.0 { (nodes - 1.0) / (stages - 1.0) } else { 0.0 };
        // An all-gather over two GPUs that leaves twice the part on each sends one part either way.
        let inside = in_node(&self.links.gather, 2.0, 2.0 * part);
        let outside = network_us + part / (network_gb_s * 1e3);
        inside * (1.0 - crossing) + outside * crossing + self.links.gather_us(self.gpus, bytes)
    }

    /// The groups have a GPU of each rank; they span nodes if all GPUs together do.
    fn gather_us(&self, bytes: f64) -> f64 {
        let Links { gather, node, .. } = &self.links;
        let gpus = (node.gpus / truncated_u32(self.gpus).max(1)).max(1);
        over_nodes(gather, ServerNode { gpus, ..*node }, self.ranks, 1.0, bytes)
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::{GroupLink, LinkSegment, Links, ServerNode};

    /// Links similar to those of an H100: 2 and 4 GPUs, NVLink.
    pub fn links() -> Links {
        let segment = |from_bytes, launch_us, gb_s| LinkSegment { from_bytes, launch_us, gb_s };
        let group = |gpus, segments: &[LinkSegment]| GroupLink { gpus, segments: segments.to_vec() };
        Links {
            all_reduce: vec![
                group(2, &[segment(0.0, 4.3, 250.0), segment(8_388_608.0, 22.0, 300.0)]),
                group(4, &[segment(0.0, 4.6, 100.0), segment(524_288.0, 6.9, 180.0)]),
            ],
            gather: vec![group(2, &[segment(0.0, 5.3, 400.0)]), group(4, &[segment(0.0, 7.1, 350.0)])],
            node: ServerNode { gpus: 8, network_gb_s: 50.0, network_us: 10.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::links;
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn segments_follow_the_size_of_the_message() {
        let links = links();
        close(links.all_reduce_us(2.0, 0.0), 4.3);
        close(links.all_reduce_us(2.0, 1_000_000.0), 4.3 + 4.0); // 10⁶ bytes at 250·10³ bytes/µs
        close(links.all_reduce_us(2.0, 30_000_000.0), 22.0 + 100.0);
        close(links.all_reduce_us(4.0, 524_288.0), 6.9 + 524_288.0 / 180e3);
        // The first line would reach 9.84 µs, the second begins at 9.81 µs: a message is not faster for being larger.
        close(links.all_reduce_us(4.0, 524_287.0), 6.9 + 524_288.0 / 180e3);
    }

    /// L40S, 8 GPUs: twice the size takes 3.6 times as long.
    #[test]
    fn slow_large_messages_are_sent_in_parts() {
        let segment = |from_bytes, launch_us, gb_s| LinkSegment { from_bytes, launch_us, gb_s };
        let group = GroupLink { gpus: 8, segments: vec![segment(0.0, 300.0, 4.0), segment(2e6, 200.0, 1.0)] };
        close(group.us(2e6), 2200.0);
        // One part of just less than 2·10⁶ bytes at 4·10³ bytes/µs; four of them; three and a half, or four equal ones.
        close(group.split_us(2e6), 800.0);
        close(group.split_us(8e6), 4.0 * 800.0);
        close(group.split_us(7e6), 2950.0);
        close(group.split_us(1e6), group.us(1e6));
    }

    #[test]
    fn groups_between_and_beyond_those_measured() {
        let links = links();
        close(links.all_reduce_us(1.0, 1e6), 0.0);
        close(links.all_reduce_us(3.0, 1e5), links.all_reduce_us(4.0, 1e5));
        // A ring of 8 sends 7/8 of the message twice, one of 4 sends 3/4: 1.1667 times as much.
        close(links.all_reduce_us(8.0, 1e7), 6.9 + 1e7 * (7.0 / 8.0) / (3.0 / 4.0) / 180e3);
    }

    #[test]
    fn two_nodes_exchange_an_eighth_of_the_message_per_gpu() {
        let links = links();
        // Ring over 2 nodes: 2·(2 − 1) messages of 10⁷/(2·8) = 625 000 bytes, 12.5 µs each at 50 GB/s, and 10 µs latency.
        close(links.all_reduce_us(16.0, 1e7) - links.all_reduce_us(8.0, 1e7), 2.0 * (10.0 + 12.5));
        close(links.gather_us(16.0, 1e7) - links.gather_us(8.0, 1e7), 10.0 + 12.5);
    }

    #[test]
    fn experts_of_other_ranks_cost_a_gather_and_a_scatter() {
        let step =
            Collectives { gpus: 1.0, ranks: 2.0, reductions: 0.0, dispatches: 3.0, message: 8_000.0, links: links() };
        // 3 layers, there and back, of 2 ranks × 100 tokens × 8 000 bytes at 400 GB/s: 5.3 + 4 µs each.
        close(step.us(100.0), 6.0 * (5.3 + 4.0));
        // 16 ranks are on 2 nodes: 8 of the 16 parts come over the network.
        let wide = Collectives { ranks: 16.0, ..step.clone() };
        let inside = 7.1 + 12.8e6 * (7.0 / 8.0) / (3.0 / 4.0) / 350e3;
        close(wide.us(100.0), 6.0 * (inside + 10.0 + 12.8e6 / 16.0 / 50e3));
    }

    #[test]
    fn invalid_links_are_refused() {
        let refused = |change: fn(&mut Links)| {
            let mut links = links();
            change(&mut links);
            links.check().unwrap_err()
        };
        assert_eq!(links().check(), Ok(()));
        assert_eq!(refused(|links| links.all_reduce.clear()), LatencyError::Missing { field: "all_reduce" });
        assert_eq!(refused(|links| links.gather[0].gpus = 1), LatencyError::Missing { field: "gather" });
        assert_eq!(refused(|links| links.gather.reverse()), LatencyError::Missing { field: "gather" });
        assert_eq!(
            refused(|links| links.all_reduce[0].segments[1].from_bytes = 0.0),
            LatencyError::Missing { field: "all_reduce" }
        );
        assert_eq!(
            refused(|links| links.all_reduce[0].segments[0].gb_s = f64::NAN),
            LatencyError::Missing { field: "all_reduce" }
        );
        assert_eq!(refused(|links| links.node.network_gb_s = 0.0), LatencyError::Missing { field: "node" });
    }

    proptest! {
        /// Neither more bytes nor a further GPU in the node make a collective faster, as far as the samples say so.
        #[test]
        fn more_bytes_take_no_less_time(gpus in 2u32..40, bytes in 0.0..1e9f64, more in 0.0..1e8f64) {
            let (links, gpus) = (links(), f64::from(gpus));
            prop_assert!(links.all_reduce_us(gpus, bytes + more) >= links.all_reduce_us(gpus, bytes));
            prop_assert!(links.gather_us(gpus, bytes + more) >= links.gather_us(gpus, bytes));
        }

        /// Nor is a part of a message repeated faster than the whole.
        #[test]
        fn a_multiple_takes_at_most_that_many_times_as_long(
            slower in prop::collection::vec((0.0..400.0f64, 0.5..500.0f64), 1..5),
            bytes in 1e3..1e8f64,
            more in 0.0..1e8f64,
            count in 2u32..40,
        ) {
            let segments = (0u32..).zip(slower).map(|(index, (launch_us, gb_s))| {
                let from_bytes = if index == 0 { 0.0 } else { 16_384.0 * f64::from(1 << (3 * index)) };
                LinkSegment { from_bytes, launch_us, gb_s }
            });
            let group = GroupLink { gpus: 8, segments: segments.collect() };
            let count = f64::from(count);
            prop_assert!(group.split_us(count * bytes) <= count * group.split_us(bytes) * (1.0 + 1e-9));
            prop_assert!(group.split_us(bytes + more) >= group.split_us(bytes) * (1.0 - 1e-9));
            prop_assert!(group.split_us(bytes) <= group.us(bytes));
        }
    }
}
