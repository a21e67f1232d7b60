use super::processes::*;
use crate::*;

fn row(name: &str, n: usize, reps: u64, truth: f64, draw: &dyn Fn(u64) -> Vec<f64>) {
    let (mut known, mut hit, mut low, mut high) = (0, 0, 0, 0);
    for seed in 0..reps {
        let x = draw(seed.wrapping_mul(0x9E37_79B9).wrapping_add(77));
        if let MeanEstimate::Known(i) = mean_interval(&x, CONFIDENCE).unwrap() {
            known += 1;
            hit += u64::from(i.low <= truth && truth <= i.high);
            low += u64::from(i.high < truth);
            high += u64::from(i.low > truth);
        }
    }
    println!("{name:40} n {n:7} answered {:.3} coverage {:.3}  too low {low} too high {high} of {known}", known as f64 / reps as f64, hit as f64 / known.max(1) as f64);
}

#[test]
#[ignore = "explore"]
fn explore() {
    let reps = std::env::var("REPS").map_or(300, |r| r.parse().unwrap());
    for phi in [0.0, 0.5, 0.9, 0.99, -0.5] {
        for n in [300, 600, 1000, 2000, 5000, 10_000, 20_000, 50_000] {
            row(&format!("ar1 {phi}"), n, reps, 0.0, &|s| ar1(s, n, phi));
        }
    }
    for load in [0.3, 0.5, 0.7, 0.8] {
        for service in [Service::Exponential, Service::Constant, Service::Hyperexponential, Service::Lognormal(2.0)] {
            for n in [1000, 2000, 3000, 4000, 6000, 10_000, 15_000, 20_000, 30_000, 40_000, 60_000] {
                row(&format!("M/G/1 {load} {service:?}"), n, reps, single_server_mean(load, service), &|s| single_server(s, n, load, service));
            }
        }
    }
}
