//! BLIS's conversion, for `--parity blis`: three windows of the day, and the clients of a class as one cohort with
//! their mean rates and lengths.

use std::ops::RangeInclusive;

use blis_sim::rng::{Generator, Stream};
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::super::arrival::IntervalShape;
use super::super::client::{Client, MultiTurn};
use super::super::cohort::{Cohort, PrefixSharing, Spike};
use super::super::lengths::Bounds;
use super::super::{Arrival, Empirical, Lengths};
use super::chunk::{Chunk, ChunkRow, DAY_SECS, Dataset, Pattern, WINDOW_SECS};
use super::options::ServeGenOptions;

const CLASSES: [&str; 5] = ["critical", "standard", "batch", "sheddable", "background"];

/// Parts of the day, each with the start in s: half an hour, three windows.
const PERIODS: [(&str, u32); 3] = [("midnight", 0), ("morning", 28_800), ("afternoon", 50_400)];

/// The cohorts of the clients.
pub(super) fn cohorts(chunks: &[Chunk], options: &ServeGenOptions) -> Vec<Cohort> {
    let reasoning = chunks.first().is_some_and(Chunk::has_reason_ratio);
    let mut random = Stream::new(options.seed, "workload servegen").at(0);
    if reasoning { by_class_once(chunks, options, &mut random) } else { by_time_of_day(chunks, options, &mut random) }
}

/// Three parts of the day, one after the other, with five classes in each.
fn by_time_of_day(chunks: &[Chunk], options: &ServeGenOptions, random: &mut Generator) -> Vec<Cohort> {
    let mut cohorts = Vec::new();
    for (number, (name, start)) in (0_u32..).zip(PERIODS) {
        let time = start + WINDOW_SECS * random.random_range(0..3_u32);
        let active: Vec<Active<'_>> = chunks.iter().filter_map(|chunk| Active::at_time_of_day(chunk, time)).collect();
        let from = u64::from(number) * u64::from(options.window_secs + options.drain_secs);
        cohorts.extend(deal(active, random).into_iter().map(|(class, members)| {
            cohort(&format!("{name}-{class}"), class, &members, from, options.window_secs, false)
        }));
    }
    cohorts
}

/// The window in which most clients are active, once.
fn by_class_once(chunks: &[Chunk], options: &ServeGenOptions, random: &mut Generator) -> Vec<Cohort> {
    let mut times: Vec<u32> =
        chunks.iter().flat_map(|chunk| &chunk.rows).filter(|row| row.rate > 0.0).map(|row| row.start).collect();
    times.sort_unstable();
    let best = times.chunk_by(|a, b| a == b).max_by_key(|same| (same.len(), std::cmp::Reverse(same[0])));
    let Some(&[time, ..]) = best else { return Vec::new() };
    let active = chunks.iter().filter_map(|chunk| Active::at(chunk, time)).collect();
    let dealt = deal(active, random).into_iter();
    dealt
        .map(|(class, members)| cohort(&format!("reasoning-{class}"), class, &members, 0, options.window_secs, true))
        .collect()
}

/// Distributes the clients over the classes, in random order. Classes without members are left out.
fn deal<'a>(mut active: Vec<Active<'a>>, random: &mut Generator) -> Vec<(&'static str, Vec<Active<'a>>)> {
    for last in (1..active.len()).rev() {
        active.swap(last, random.random_range(0..=last));
    }
    let mut dealt: Vec<_> = CLASSES.into_iter().map(|class| (class, Vec::new())).collect();
    for (index, active) in active.into_iter().enumerate() {
        dealt[index % CLASSES.len()].1.push(active);
    }
    dealt.retain(|(_, members)| !members.is_empty());
    dealt
}

/// A client at some time: its rows of that time with a rate, and the lengths then.
struct Active<'a> {
    rows: Vec<&'a ChunkRow>,
    datasets: Vec<&'a Dataset>,
}

impl<'a> Active<'a> {
    fn at(chunk: &'a Chunk, time: u32) -> Option<Self> {
        Self::new(chunk, |start| start == time)
    }

    fn at_time_of_day(chunk: &'a Chunk, time: u32) -> Option<Self> {
        Self::new(chunk, |start| start % DAY_SECS == time)
    }

    fn new(chunk: &'a Chunk, then: impl Fn(u32) -> bool) -> Option<Self> {
        let rows: Vec<&ChunkRow> = chunk.rows.iter().filter(|row| then(row.start) && row.rate > 0.0).collect();
        let datasets = rows.iter().filter_map(|row| chunk.dataset_at(row.start)).collect();
        (!rows.is_empty()).then_some(Self { rows, datasets })
    }

    fn rate(&self) -> f64 {
        mean(self.rows.iter().map(|row| row.rate)).unwrap_or(0.0)
    }
}

/// The members as one cohort that is active for `secs` seconds from `from` on.
fn cohort(id: &str, class: &str, members: &[Active<'_>], from: u64, secs: u32, reasoning: bool) -> Cohort {
    let rows: Vec<&ChunkRow> = members.iter().flat_map(|member| member.rows.iter().copied()).collect();
    let datasets = || members.iter().flat_map(|member| member.datasets.iter().copied());
    let input =
        lengths(datasets().filter_map(|dataset| dataset.input.as_deref()), Lengths::gaussian(512.0, 128.0, 1, 32_768));
    let output =
        lengths(datasets().filter_map(|dataset| dataset.output.as_deref()), Lengths::gaussian(128.0, 32.0, 1, 32_768));
    let client = Client {
        slo_class: class.to_owned(),
        arrival: if reasoning { Arrival::Poisson } else { arrival(&rows) },
        reason_ratio: if reasoning {
            average(datasets().filter_map(|dataset| dataset.reason_ratio.as_deref()))
        } else {
            None
        },
        multi_turn: reasoning.then_some(MultiTurn {
            max_rounds: 1,
            think_time: Micros::ZERO,
            accumulate: false,
            single_session: false,
        }),
        streaming: true,
        ..Client::new(id, 1.0, input, output)
    };
    Cohort {
        client,
        population: u32::try_from(members.len()).unwrap_or(u32::MAX),
        prefix_sharing: PrefixSharing::Shared,
        diurnal: None,
        spike: Some(Spike {
            start: Micros(from * 1_000_000),
            duration: Micros(u64::from(secs) * 1_000_000),
            trace_rate: Some(members.iter().map(Active::rate).sum()),
        }),
        drain: None,
    }
}

/// The arrival process of most rows, with the means of their parameters.
fn arrival(rows: &[&ChunkRow]) -> Arrival {
    let named = |pattern| rows.iter().copied().filter(move |row| row.pattern == pattern);
    let (gamma, weibull) = (named(Pattern::Gamma).count(), named(Pattern::Weibull).count());
    let of = |pattern| {
        let own = |row: &ChunkRow| row.shape.zip(row.scale_secs).filter(|&(shape, scale)| shape > 0.0 && scale > 0.0);
        let shape = mean(named(pattern).filter_map(own).map(|(shape, _)| shape));
        let scale_us = mean(named(pattern).filter_map(own).map(|(_, scale)| scale * 1e6));
        match shape.zip(scale_us) {
            Some((shape, scale_us)) => {
                IntervalShape::Own { shape: shape.clamp(1e-4, 1e4), scale_us: scale_us.clamp(1e-6, 1e18) }
            }
            None => IntervalShape::Cv(mean(named(pattern).map(|row| row.cv)).filter(|&cv| cv > 0.0).unwrap_or(1.0)),
        }
    };
    match (gamma, weibull) {
        (0, 0) => Arrival::Poisson,
        (gamma, weibull) if weibull > gamma => Arrival::Weibull(within(of(Pattern::Weibull), Arrival::WEIBULL_CV)),
        _ => Arrival::Gamma(within(of(Pattern::Gamma), Arrival::GAMMA_CV)),
    }
}

fn within(shape: IntervalShape, cvs: RangeInclusive<f64>) -> IntervalShape {
    match shape {
        IntervalShape::Cv(cv) => IntervalShape::Cv(cv.clamp(*cvs.start(), *cvs.end())),
        own @ IntervalShape::Own { .. } => own,
    }
}

/// The lognormal distribution with the means of the parameters: mean and standard deviation of the logarithm.
fn lengths<'a>(counted: impl Iterator<Item = &'a Empirical>, usual: Lengths) -> Lengths {
    let fits: Vec<(f64, f64)> = counted.map(fit).collect();
    let mu = mean(fits.iter().map(|&(mu, _)| mu));
    let sigma = mean(fits.iter().map(|&(_, sigma)| sigma));
    match mu.zip(sigma) {
        Some((mu, sigma)) => Lengths::LogNormal { mu, sigma, bounds: Bounds::NONE },
        None => usual,
    }
}

fn fit(counted: &Empirical) -> (f64, f64) {
    let log = |tokens: u32| libm::log(f64::from(tokens));
    let mu: f64 = counted.probabilities().map(|(tokens, p)| p * log(tokens)).sum();
    let variance: f64 = counted.probabilities().map(|(tokens, p)| p * (log(tokens) - mu) * (log(tokens) - mu)).sum();
    (mu, libm::sqrt(variance))
}

/// The distributions combined with equal weights.
fn average<'a>(counted: impl Iterator<Item = &'a Empirical>) -> Option<Lengths> {
    let all = Empirical::new(counted.flat_map(Empirical::probabilities))?;
    Some(Lengths::Empirical(all.into()))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
