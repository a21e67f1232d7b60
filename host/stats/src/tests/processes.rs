//! Series and requests of processes with means that are known in closed form.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::f64::consts::PI;

/// SplitMix64, as in `../shared/cases/statistics/reference.py`.
#[derive(Clone)]
pub struct TestStream(u64);

impl TestStream {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
    }

    pub fn exp(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }

    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (2.0 * PI * v).cos()
    }
}

/// x₀ = z₀, xᵢ = φ·xᵢ₋₁ + √(1 − φ²)·zᵢ.
pub fn ar1(seed: u64, n: usize, phi: f64) -> Vec<f64> {
    let mut stream = TestStream::new(seed);
    let scale = (1.0 - phi * phi).sqrt();
    let mut x = stream.normal();
    let mut values = vec![x];
    for _ in 1..n {
        x = phi * x + scale * stream.normal();
        values.push(x);
    }
    values.truncate(n);
    values
}

/// Distributions of service times with the mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceTimes {
    Constant,
    Exponential,
    /// With this coefficient of variation.
    Lognormal(f64),
    /// 0.1 × 5.5, 0.9 × 0.5.
    Hyperexponential,
}

impl ServiceTimes {
    pub fn draw(self, stream: &mut TestStream) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Exponential => stream.exp(1.0),
            Self::Lognormal(cv) => {
                let variance = (1.0 + cv * cv).ln();
                (variance.sqrt() * stream.normal() - 0.5 * variance).exp()
            }
            Self::Hyperexponential => {
                let mean = if stream.uniform() < 0.1 { 5.5 } else { 0.5 };
                stream.exp(mean)
            }
        }
    }

    pub fn second_moment(self) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Exponential => 2.0,
            Self::Lognormal(cv) => 1.0 + cv * cv,
            Self::Hyperexponential => 6.5,
        }
    }
}

/// Waiting times of a queue with one server, Poisson arrivals of the rate `load` and services of the mean 1, from an empty queue (Lindley).
pub fn single_server(seed: u64, n: usize, load: f64, service: ServiceTimes) -> Vec<f64> {
    let mut stream = TestStream::new(seed);
    let mut wait = 0.0_f64;
    let mut waits = Vec::with_capacity(n);
    for _ in 0..n {
        waits.push(wait);
        let served = service.draw(&mut stream);
        wait = (wait + served - stream.exp(1.0 / load)).max(0.0);
    }
    waits
}

/// Mean waiting time by the formula of Pollaczek and Khinchine.
pub fn single_server_mean(load: f64, service: ServiceTimes) -> f64 {
    load * service.second_moment() / (2.0 * (1.0 - load))
}

#[derive(Clone, Copy, PartialEq)]
struct Due(f64);
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A request: when it arrived, and when it ended.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub arrival_s: f64,
    pub end_s: f64,
}

/// Sessions at `servers` servers with exponential services of the mean 1: `arrivals` of sessions in order, each of `rounds` rounds with
/// exponential thinking of the mean `think` between them. Ends after `n` requests. Requests in the order of their arrival.
pub fn sessions(seed: u64, n: usize, new_sessions_per_s: f64, rounds: usize, think: f64, servers: usize) -> Vec<Visit> {
    let mut stream = TestStream::new(seed);
    let mut due: BinaryHeap<Reverse<(Due, usize)>> = BinaryHeap::new();
    due.push(Reverse((Due(stream.exp(1.0 / new_sessions_per_s)), rounds)));
    let mut free: BinaryHeap<Reverse<Due>> = (0..servers).map(|_| Reverse(Due(0.0))).collect();
    let mut visits = Vec::with_capacity(n);
    while visits.len() < n {
        let Some(Reverse((Due(now), left))) = due.pop() else { break };
        if left == rounds {
            due.push(Reverse((Due(now + stream.exp(1.0 / new_sessions_per_s)), rounds)));
        }
        let service = stream.exp(1.0);
        let end = serve(&mut free, now, service);
        visits.push(Visit { arrival_s: now, end_s: end });
        if left > 1 {
            due.push(Reverse((Due(end + stream.exp(think)), left - 1)));
        }
    }
    visits
}

/// A closed network: `users` think for `think` on average (exponential), then wait for one of `servers` servers (exponential, mean 1).
pub fn closed(seed: u64, n: usize, users: usize, think: f64, servers: usize) -> Vec<Visit> {
    let mut stream = TestStream::new(seed);
    let mut due: BinaryHeap<Reverse<Due>> = (0..users).map(|_| Reverse(Due(stream.exp(think)))).collect();
    let mut free: BinaryHeap<Reverse<Due>> = (0..servers).map(|_| Reverse(Due(0.0))).collect();
    let mut visits = Vec::with_capacity(n);
    while visits.len() < n {
        let Some(Reverse(Due(now))) = due.pop() else { break };
        let service = stream.exp(1.0);
        let end = serve(&mut free, now, service);
        visits.push(Visit { arrival_s: now, end_s: end });
        due.push(Reverse(Due(end + stream.exp(think))));
    }
    visits
}

fn serve(free: &mut BinaryHeap<Reverse<Due>>, now: f64, service: f64) -> f64 {
    let start = free.pop().map_or(now, |Reverse(Due(at))| at.max(now));
    free.push(Reverse(Due(start + service)));
    start + service
}

/// Mean time in the system of M/M/c with services of the mean 1.
pub fn many_servers_response(rate: f64, servers: usize) -> f64 {
    let c = servers as f64;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..servers {
        term *= rate / k as f64;
        sum += term;
    }
    let last = term * rate / c * c / (c - rate);
    last / (sum + last) / (c - rate) + 1.0
}

/// Mean response of a closed network with services of the mean 1: the birth-death solution.
pub fn closed_response(users: usize, think: f64, servers: usize) -> f64 {
    let busy = |n: usize| n.min(servers) as f64;
    let mut p = vec![1.0];
    for n in 1..=users {
        p.push(p[n - 1] * (users - n + 1) as f64 / think / busy(n));
    }
    let sum = |of: &dyn Fn(usize) -> f64| p.iter().enumerate().map(|(n, p)| of(n) * p).sum::<f64>();
    sum(&|n| n as f64) / sum(&busy)
}

/// How requests are given to queues of one server each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerChoice {
    Random,
    /// The least work left; ties at random.
    LeastWork,
    /// The fewer requests in the system of two at random.
    TwoChoices,
}

/// Waiting times of `n` requests at `queues` queues: arrivals and services from `seed`, decisions from `ties`. `load` is that of each queue.
pub fn routed(seed: u64, ties: u64, n: usize, load: f64, queues: usize, routing: ServerChoice) -> Vec<f64> {
    let (mut stream, mut ties) = (TestStream::new(seed), TestStream::new(ties));
    let mut free_at = vec![0.0_f64; queues];
    let mut now = 0.0;
    let mut waits = Vec::with_capacity(n);
    for _ in 0..n {
        now += stream.exp(1.0 / (load * queues as f64));
        let service = stream.exp(1.0);
        let mut pick = || (ties.uniform() * queues as f64) as usize;
        let left = |queue: usize| (free_at[queue] - now).max(0.0);
        let chosen = match routing {
            ServerChoice::Random => pick(),
            ServerChoice::TwoChoices => {
                let (one, two) = (pick(), pick());
                if left(one).ceil() <= left(two).ceil() { one } else { two }
            }
            ServerChoice::LeastWork => {
                let least = (0..queues).map(left).fold(f64::INFINITY, f64::min);
                let tied: Vec<usize> = (0..queues).filter(|&queue| left(queue) <= least).collect();
                tied[pick() * tied.len() / queues]
            }
        };
        let start = free_at[chosen].max(now);
        waits.push(start - now);
        free_at[chosen] = start + service;
    }
    waits
}

/// A share `weight` of the deviation is AR(1) with `phi`, the rest white noise: a dependence that is weak and long.
pub fn mixed(seed: u64, n: usize, phi: f64, weight: f64) -> Vec<f64> {
    let noise = ar1(seed ^ 0x5555_5555_5555, n, 0.0);
    let rest = (1.0 - weight * weight).sqrt();
    ar1(seed, n, phi).iter().zip(noise).map(|(slow, noise)| weight * slow + rest * noise).collect()
}
