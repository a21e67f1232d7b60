use super::processes::*;
use crate::*;

fn row(name: &str, n: usize, reps: u64, truth: f64, draw: &dyn Fn(u64) -> Vec<f64>) {
    let (mut known, mut hit, mut low, mut high) = (0, 0, 0, 0);
    for seed in 0..reps {
        let x = draw(seed.wrapping_mul(0x9E37_79B9).wrapping_add(1234577));
        if let MeanEstimate::Known(i) = mean_interval(&x, CONFIDENCE).unwrap() {
            known += 1;
            hit += u64::from(i.contains(truth));
            low += u64::from(i.high < truth);
            high += u64::from(i.low > truth);
        }
    }
    let (a, c) = (known as f64 / reps as f64, hit as f64 / known.max(1) as f64);
    println!(
        "{name:40} n {n:7} known {a:.3} coverage {c:.3}  too low {low} too high {high} of {known} {}",
        if (a > 0.2 && !(0.9..=0.97).contains(&c)) || (a < 0.2 && a > 0.05) { "*" } else { "" }
    );
}

fn tail(v: &[Visit], warm: f64, n: usize) -> Vec<f64> {
    v.iter().filter(|v| v.arrival_s >= warm).take(n).map(|v| v.end_s - v.arrival_s).collect()
}

#[test]
#[ignore = "explore"]
fn explore() {
    let reps = std::env::var("REPS").map_or(300, |r| r.parse().unwrap());
    for phi in [0.0, 0.8] {
        for n in [500, 1000, 2000, 3000, 4000, 6000, 10_000, 20_000] {
            row(&format!("ar1 {phi}"), n, reps, 0.0, &|s| ar1(s, n, phi));
        }
    }
    for (load, service, ns) in [
        (0.4, Service::Exponential, vec![1000, 2000, 4000, 10000]),
        (0.6, Service::Exponential, vec![2000, 4000, 8000, 12000, 20000]),
        (0.8, Service::Exponential, vec![10000, 20000, 40000]),
        (0.9, Service::Exponential, vec![40000, 160000]),
        (0.7, Service::Constant, vec![4000, 6000, 10000, 40000]),
        (0.6, Service::Hyperexponential, vec![10000, 15000, 20000, 40000]),
        (0.4, Service::Lognormal(2.0), vec![4000, 8000, 16000, 50000]),
        (0.6, Service::Lognormal(2.0), vec![20000, 50000]),
        (0.6, Service::Lognormal(0.5), vec![3000, 5000, 10000, 20000]),
    ] {
        for n in ns {
            row(&format!("mg1 {load} {service:?}"), n, reps, single_server_mean(load, service), &|s| {
                single_server(s, n, load, service)
            });
        }
    }
    for (users, think, servers, ns) in [
        (10, 10.0, 1, vec![2000, 4000, 10000, 30000]),
        (40, 20.0, 4, vec![1000, 2000, 5000, 20000]),
        (100, 20.0, 4, vec![10_000, 20000, 40000]),
    ] {
        for n in ns {
            row(&format!("closed {users} {think} {servers}"), n, reps, closed_response(users, think, servers), &|s| {
                tail(&closed(s, n + 20 * users, users, think, servers), 10.0 * think, n)
            });
        }
    }
    for (rate, rounds, think, servers, ns) in [
        (0.4, 3, 10.0, 2, vec![2000, 5000, 20000]),
        (0.6, 6, 30.0, 4, vec![20000, 40000]),
        (0.5, 6, 5.0, 4, vec![4000, 10000, 20000, 50000]),
    ] {
        let life = rounds as f64 * think * 2.5;
        for n in ns {
            row(
                &format!("sessions {rate} {rounds} {think} {servers}"),
                n,
                reps,
                many_servers_response(rate * rounds as f64, servers),
                &|s| tail(&sessions(s, n + (life * 8.0) as usize, rate, rounds, think, servers), life, n),
            );
        }
    }
}
