//! A cluster for routing decisions, and the built-in policy with which every plugin is compared.

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{
    Changes, ClusterView, InstanceInfo, LeastLoaded, RequestView, RoutingPolicy as _, Signals, Staleness, Ties,
    Versions,
};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use divan::{Bencher, black_box};

/// Numbers of instances of the measured clusters.
pub const SIZES: [usize; 3] = [4, 64, 256];

/// Instances with different loads.
pub struct BenchCluster {
    request: Request,
    instances: Vec<InstanceInfo>,
    signals: Signals,
}

impl BenchCluster {
    /// A cluster of `n` instances with different loads.
    pub fn new(n: usize) -> Self {
        let load = |i: usize, step: usize, modulo: usize| u32::try_from(i * step % modulo).expect("small");
        let column = |step, modulo| (0..n).map(|i| load(i, step, modulo)).collect::<Vec<_>>();
        let info = |id| InstanceInfo {
            id,
            max_num_seqs: 256,
            total_kv_blocks: 10_000,
            block_size: 16,
            ..InstanceInfo::default()
        };
        Self {
            request: Request::new(RequestId(7), Micros(100), 512, 64),
            instances: (0..n).map(InstanceIndex::at).map(info).collect(),
            signals: Signals {
                queue_depth: column(7, 19),
                batch_size: column(11, 61),
                kv_utilization: column(13, 100).into_iter().map(|percent| f64::from(percent) / 100.0).collect(),
                free_kv_blocks: column(17, 9000),
                cache_hit_rate: vec![0.25; n],
                preemption_count: vec![0; n],
                in_flight: column(5, 83),
                ..Signals::idle(vec![0; n])
            },
        }
    }

    /// Measures `route`. `fresh`: whether all signals are refreshed for every call, not only the requests in flight.
    pub fn bench<T>(&mut self, bencher: Bencher, fresh: bool, mut route: impl FnMut(&RequestView, &ClusterView) -> T) {
        let request = RequestView::new(&self.request, 0, 16);
        let signals = &mut self.signals;
        let n = signals.in_flight.len();
        let version = u64::from(!fresh);
        let mut call = 0;
        bencher.bench_local(|| {
            call += 1;
            let changed = [(call % n) as u32];
            signals.in_flight[call % n] ^= 1;
            let cluster = ClusterView {
                now: Micros(200),
                instances: &self.instances,
                signals: black_box(signals),
                staleness: Staleness::default(),
                versions: Versions { load: version, cached_blocks: version, instances: 0 },
                in_flight_changes: Changes::new(call as u64 - 1, &changed),
                tenants_in_flight: &[],
                scores: &[],
            };
            route(&request, &cluster)
        });
    }
}

/// The built-in policy `least-loaded`, for comparison.
#[divan::bench(args = SIZES)]
fn built_in(bencher: Bencher, n: usize) {
    let mut policy = LeastLoaded::default();
    let mut scores = Vec::with_capacity(n);
    BenchCluster::new(n).bench(bencher, false, |request, cluster| {
        scores.clear();
        policy.route(request, cluster, &Ties::LowestIndex, &mut scores)
    });
}
