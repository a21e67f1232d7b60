use blis_sim::cluster::*;
use blis_sim::instance::*;
use blis_sim::latency::*;
use blis_sim::outcome::*;
use blis_sim::policy::*;
use blis_sim::request::*;
use blis_sim::semantics::*;
use blis_sim::units::*;
use std::sync::Arc;
#[derive(Debug, Clone)]
struct All;
impl AdmissionPolicy for All {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }
    fn admit(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>) -> Verdict {
        Verdict::Admit
    }
    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(All)
    }
}
#[derive(Debug, Clone)]
struct LL(bool, usize);
impl RoutingPolicy for LL {
    fn reads(&self) -> Reads {
        if self.0 { Reads { load: true, in_flight: true, cached_blocks: false } } else { Reads::NOTHING }
    }
    fn route(&mut self, _: &RequestView<'_>, c: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> Choice {
        if !self.0 {
            self.1 += 1;
            return Choice { target: self.1 % c.len(), reason: Reason::None };
        }
        let s = c.signals;
        let mut best = 0;
        let mut bl = u32::MAX;
        for i in 0..c.len() {
            let l = s.queue_depth[i] + s.batch_size[i] + s.in_flight[i];
            if l < bl {
                bl = l;
                best = i;
            }
        }
        Choice { target: best, reason: Reason::None }
    }
    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}
#[derive(Debug, Clone)]
struct P0;
impl PriorityPolicy for P0 {
    fn priority(&mut self, _: &RequestView<'_>, _: Micros) -> i64 {
        0
    }
    fn fork(&self) -> Box<dyn PriorityPolicy> {
        Box::new(P0)
    }
}
struct N(u64, u64);
impl Sink for N {
    fn outcome(&mut self, _: &Outcome) {
        self.0 += 1;
    }
    fn itl(&mut self, _: u32, _: Micros, c: u64) {
        self.1 += c;
    }
    fn retract_itl(&mut self, _: u32, _: Micros, _: u64) {}
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: u32 = a[1].parse().unwrap();
    let per: u32 = a[2].parse().unwrap();
    let ll = a[3] == "ll";
    let latency: Arc<dyn LatencyModel> = Arc::new(Blackbox::new(&[0.0, 0.0, 0.0], &[6000.0, 18.0, 30.0]).unwrap());
    let inst = |index| InstanceConfig {
        index,
        max_num_seqs: 256,
        max_num_batched_tokens: 2048,
        long_prefill_token_threshold: 0,
        max_model_len: None,
        block_size: 16,
        total_kv_blocks: 25000,
        enable_prefix_caching: true,
        enable_chunked_prefill: true,
        async_scheduling: false,
        reserve_full_prompt: false,
        scheduler: Scheduler::Fcfs,
        preemption: Preemption::Fcfs,
        semantics: Semantics::VLLM,
        latency: latency.clone(),
    };
    let c = ClusterConfig {
        admission_latency: Micros(0),
        routing_latency: Micros(0),
        snapshot_refresh_interval: Micros(50000),
        cache_signal_delay: Micros(50000),
        ties: Ties::LowestIndex,
        classes: Classes::default(),
        serves: vec![],
        block_size: 16,
        semantics: Semantics::VLLM,
        horizon: Micros::MAX,
    };
    let cl = Cluster::new(
        c,
        Policies { admission: Box::new(All), routing: Box::new(LL(ll, 0)), priority: Box::new(P0) },
        (0..n).map(inst),
        Fast::new,
    );
    let gap = 50000.0 / n as f64;
    let total = n * per;
    let t = std::time::Instant::now();
    let mut s = N(0, 0);
    let cs = cl
        .run(
            (0..total).map(|id| {
                let m = id.wrapping_mul(2654435761) >> 8;
                Request::new(id, Micros((id as f64 * gap) as u64), 128 + m % 256, 128 + m / 256 % 256)
            }),
            &mut s,
        )
        .unwrap();
    println!(
        "touches/req {:.2}",
        blis_sim::cluster::COUNT.load(std::sync::atomic::Ordering::Relaxed) as f64 / total as f64
    );
    let e = t.elapsed().as_secs_f64();
    let steps: u64 = cs.iter().map(|c| c.steps).sum();
    println!(
        "{} requests {:.3}s {:.0}/s {:.2}us  steps/req {:.1}",
        s.0,
        e,
        s.0 as f64 / e,
        e * 1e6 / s.0 as f64,
        steps as f64 / s.0 as f64
    );
}
