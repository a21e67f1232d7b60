//! All instances as one server: latencies that follow from the work of requests alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A request for the pooled server.
#[derive(Clone, Copy, Debug)]
pub(super) struct PooledJob {
    /// Time from which it can be served, µs.
    pub release_us: f64,
    /// Work, in µs of one instance.
    pub work_us: f64,
}

/// The least possible mean time from release to completion, µs, on a server of that `speed` (instances): the mean under
/// shortest remaining processing time first, which is optimal for a single server (Schrage 1968). `jobs` are in order of
/// release, at least one.
pub(super) fn mean_flow(jobs: &[PooledJob], speed: f64) -> f64 {
    let mut server = Server { speed, now: 0.0, waiting: BinaryHeap::new(), completions: 0.0 };
    for job in jobs {
        server.serve_until(job.release_us);
        server.waiting.push(Reverse(Remaining(job.work_us)));
    }
    server.serve_until(f64::INFINITY);
    let releases: f64 = jobs.iter().map(|job| job.release_us).sum();
    (server.completions - releases) / jobs.len() as f64
}

struct Server {
    speed: f64,
    now: f64,
    /// The least remaining work first.
    waiting: BinaryHeap<Reverse<Remaining>>,
    /// Sum of the times of completion, µs.
    completions: f64,
}

impl Server {
    fn serve_until(&mut self, end: f64) {
        while let Some(mut next) = self.waiting.peek_mut() {
            let Reverse(Remaining(work)) = *next;
            let completion = self.now + work / self.speed;
            if completion > end {
                *next = Reverse(Remaining(work - (end - self.now) * self.speed));
                break;
            }
            std::collections::binary_heap::PeekMut::pop(next);
            self.completions += completion;
            self.now = completion;
        }
        self.now = end;
    }
}

/// Remaining work, µs of one instance: finite.
#[derive(Clone, Copy, Debug)]
struct Remaining(f64);

impl PartialEq for Remaining {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Remaining {}

impl PartialOrd for Remaining {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Remaining {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A time, µs, that the percentile `percent` of the times from release to completion cannot undercut on a server of that
/// `speed`. `jobs` are in order of release, at least one.
///
/// Of n jobs, m may take longer than the percentile x: those above the sample of rank ⌊percent/100·(n − 1)⌋. All others
/// that are released from `r` to `r'` are served between `r` and `r' + x`. So `speed·(r' + x − r)` is at least the work
/// released in that time, less that of the m largest jobs.
pub(super) fn percentile_flow(jobs: &[PooledJob], speed: f64, percent: f64) -> f64 {
    let last = jobs.len() - 1;
    let longer = last - (percent / 100.0 * last as f64).floor() as usize;
    let mut works: Vec<f64> = jobs.iter().map(|job| job.work_us).collect();
    works.sort_by(|one, other| other.total_cmp(one));
    let exempt: f64 = works[..longer].iter().sum();
    let (mut backlog, mut largest, mut now) = (0.0_f64, 0.0_f64, 0.0);
    for job in jobs {
        backlog = (backlog - (job.release_us - now) * speed).max(0.0) + job.work_us;
        largest = largest.max(backlog);
        now = job.release_us;
    }
    ((largest - exempt) / speed).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(release_us: f64, work_us: f64) -> PooledJob {
        PooledJob { release_us, work_us }
    }

    #[test]
    fn the_shortest_remaining_work_is_served_first() {
        // One server: the long job waits for the two short ones, which arrive while it is served.
        let jobs = [job(0.0, 10.0), job(1.0, 1.0), job(2.0, 1.0)];
        // Completions at 2, 3 and 12; flows 1, 1 and 12.
        assert_eq!(mean_flow(&jobs, 1.0), 14.0 / 3.0);
        // Two instances: 5 µs, where nothing arrives.
        assert_eq!(mean_flow(&jobs[..1], 2.0), 5.0);
        // A job with less work left than the new one continues.
        assert_eq!(mean_flow(&[job(0.0, 3.0), job(2.0, 2.0)], 1.0), (3.0 + 3.0) / 2.0);
    }

    #[test]
    fn percentiles_follow_from_the_largest_backlog() {
        let jobs: Vec<PooledJob> = (0..100).map(|i| job(f64::from(i), 3.0)).collect();
        // At 99 µs 300 µs of work have arrived, of which 99 are served: 201 are left. None may take longer than p100.
        assert_eq!(percentile_flow(&jobs, 1.0, 100.0), 201.0);
        // Rank ⌊0.95·99⌋ = 94: five jobs may take longer.
        assert_eq!(percentile_flow(&jobs, 1.0, 95.0), 201.0 - 15.0);
        assert_eq!(percentile_flow(&jobs, 3.0, 95.0), 0.0, "three instances have no backlog beyond a job");
        assert_eq!(percentile_flow(&[job(5.0, 2.0)], 1.0, 99.0), 2.0);
    }
}
