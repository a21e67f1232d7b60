use proptest::prelude::*;

use super::*;

const BLOCK: NonZeroU32 = NonZeroU32::new(16).unwrap();

fn generate(spec: &DistributionSpec) -> Vec<Request> {
    spec.generate(BLOCK).unwrap().requests.collect()
}

fn poisson(rate: f64, count: u64) -> DistributionSpec {
    let arrival = ArrivalProcess::Poisson;
    DistributionSpec { rate, num_requests: Some(count), arrival, ..DistributionSpec::default() }
}

fn mean_and_stdev(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// Largest distance between the empirical and the given distribution function.
fn kolmogorov_smirnov(mut values: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let distances = values.iter().enumerate().map(|(index, &value)| {
        let expected = cdf(value);
        (expected - index as f64 / count).max((index + 1) as f64 / count - expected)
    });
    distances.fold(0.0, f64::max)
}

#[test]
fn constant_arrivals_are_spaced_as_in_blis() {
    let spec = DistributionSpec { rate: 10.0, num_requests: Some(3), ..DistributionSpec::default() };
    let arrivals: Vec<u64> = generate(&spec).iter().map(|request| request.arrival.0).collect();
    assert_eq!(arrivals, [99_999, 199_998, 299_997]);
    let fast = DistributionSpec { rate: 1e9, ..spec };
    assert_eq!(generate(&fast).iter().map(|request| request.arrival.0).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_request_carries_budget_deadline_and_the_shared_prefix() {
    let spec = DistributionSpec { prefix_tokens: 100, num_requests: Some(2), ..DistributionSpec::default() };
    let requests = generate(&spec);
    for request in &requests {
        assert!(request.max_output_tokens.is_none_or(|limit| limit > request.output_tokens), "{request:?}");
        assert_eq!(request.deadline, Some(request.arrival + Micros(300_000_000)));
        assert_eq!((request.client_priority, request.content.shared_blocks()), (None, 6));
        assert!(request.input_tokens > 100);
    }
    let own = generate(&DistributionSpec { prefix_tokens: 0, timeout: None, ..spec });
    assert_eq!(own[1].input_tokens + 100, requests[1].input_tokens);
    assert_eq!((own[0].deadline, &own[0].content), (None, &Content::UNIQUE));
}

/// Limits have a stream of their own: the other properties of the requests are the same with any of them.
#[test]
fn limits_change_nothing_else() {
    let requests = |max_tokens| generate(&DistributionSpec { max_tokens, ..poisson(10.0, 300) });
    let drawn = requests(MaxTokens::Drawn);
    let without = |requests: &[Request]| -> Vec<Request> {
        requests.iter().map(|request| Request { max_output_tokens: None, ..request.clone() }).collect()
    };
    assert_eq!(without(&drawn), requests(MaxTokens::Unlimited));
    let blis = requests(MaxTokens::Length);
    assert_eq!(without(&drawn), without(&blis));
    assert!(blis.iter().all(|request| request.max_output_tokens == Some(request.output_tokens)));
    let kinds: BTreeSet<_> = drawn.iter().map(|request| request.max_output_tokens).collect();
    assert_eq!(kinds, [None, Some(1536), Some(2048), Some(3072), Some(4096), Some(8192)].into());
}

#[test]
fn poisson_intervals_are_exponential() {
    let requests = generate(&poisson(50.0, 20_000));
    let arrivals: Vec<f64> = requests.iter().map(|request| request.arrival.0 as f64).collect();
    let intervals: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (mean, stdev) = mean_and_stdev(intervals.iter().copied());
    assert!((mean - 20_000.0).abs() < 400.0, "mean interval {mean} µs");
    assert!((stdev / mean - 1.0).abs() < 0.03, "coefficient of variation {}", stdev / mean);
    // Truncation moves a value by less than 1 µs of 20 000. 1.63/√n is the 1 % point.
    let distance = kolmogorov_smirnov(intervals, |us| 1.0 - (-us / 20_000.0).exp());
    assert!(distance < 1.63 / 20_000_f64.sqrt() + 5e-5, "distance {distance}");
}

#[test]
fn lengths_are_normal_and_clamped() {
    let prompt = lengths(500.0, 100.0, 1, 1000);
    let requests = generate(&DistributionSpec { prompt, ..poisson(1.0, 20_000) });
    let (mean, stdev) = mean_and_stdev(requests.iter().map(|request| f64::from(request.input_tokens)));
    assert!((mean - 500.0).abs() < 3.0 && (stdev - 100.0).abs() < 2.0, "{mean} ± {stdev}");
    // Within one, two and three standard deviations: 68.3 %, 95.4 %, 99.7 %.
    for (deviations, share) in [(1.0, 0.683), (2.0, 0.954), (3.0, 0.997)] {
        let inside = requests.iter().filter(|r| (f64::from(r.input_tokens) - 500.0).abs() <= 100.0 * deviations);
        let inside = inside.count() as f64 / 20_000.0;
        assert!((inside - share).abs() < 0.012, "{inside} within {deviations} standard deviations");
    }
    let narrow = lengths(10.0, 20.0, 5, 20);
    let clamped = generate(&DistributionSpec { output: narrow, ..poisson(1.0, 5_000) });
    let at = |tokens| clamped.iter().filter(|request| request.output_tokens == tokens).count() as f64 / 5_000.0;
    // P(X < 5.5) = Φ(-0.225) and P(X ≥ 19.5) = 1 - Φ(0.475).
    assert!((at(5) - 0.411).abs() < 0.025 && (at(20) - 0.317).abs() < 0.025, "{} {}", at(5), at(20));
}

#[test]
fn inputs_and_outputs_are_independent() {
    let requests = generate(&DistributionSpec::default().clone_with(20_000));
    let x = requests.iter().map(|request| f64::from(request.input_tokens));
    let y = requests.iter().map(|request| f64::from(request.output_tokens));
    let ((mx, sx), (my, sy)) = (mean_and_stdev(x.clone()), mean_and_stdev(y.clone()));
    let correlation = x.zip(y).map(|(x, y)| (x - mx) * (y - my)).sum::<f64>() / (20_000.0 * sx * sy);
    assert!(correlation.abs() < 0.025, "correlation {correlation}");
}

#[test]
fn other_settings_do_not_move_the_draws() {
    let constant = generate(&DistributionSpec::default().clone_with(50));
    let poisson = generate(&poisson(7.0, 50));
    let fixed = lengths(9.0, 0.0, 9, 9);
    let fixed_prompt = generate(&DistributionSpec { prompt: fixed, ..DistributionSpec::default().clone_with(50) });
    for ((constant, poisson), fixed) in constant.iter().zip(&poisson).zip(&fixed_prompt) {
        let lengths = |request: &Request| (request.input_tokens, request.output_tokens);
        assert_eq!(lengths(constant), lengths(poisson));
        assert_eq!(constant.output_tokens, fixed.output_tokens);
        assert_eq!(fixed.input_tokens, 9);
    }
    let other_seed = generate(&DistributionSpec { seed: 43, ..DistributionSpec::default().clone_with(50) });
    assert_ne!(constant, other_seed);
}

#[test]
fn the_horizon_ends_it_too() {
    let spec = DistributionSpec { num_requests: None, horizon: Micros(5_000_000), ..DistributionSpec::default() };
    let workload = spec.generate(BLOCK).unwrap();
    assert_eq!((workload.count, workload.requests.count()), (Some(4), 4));
    let poisson = DistributionSpec { arrival: ArrivalProcess::Poisson, rate: 100.0, ..spec };
    let workload = poisson.generate(BLOCK).unwrap();
    let requests: Vec<_> = workload.requests.collect();
    assert_eq!(workload.count, None);
    assert!((400..600).contains(&requests.len()) && requests.iter().all(|r| r.arrival < poisson.horizon));
}

#[test]
fn presets_have_names() {
    for name in DistributionSpec::preset_names() {
        DistributionSpec::preset(name).unwrap().validate().unwrap();
    }
    assert_eq!(DistributionSpec::preset("multidoc").unwrap().prompt, lengths(10240.0, 1200.0, 500, 20480));
    insta::assert_snapshot!(DistributionSpec::preset("chatbt").unwrap_err(), @r"
    unknown workload `chatbt`
    hint: did you mean `chatbot`?
    ");
}

#[test]
fn what_makes_no_sense_is_refused() {
    type SpecChange = fn(&mut DistributionSpec);
    let error = |change: SpecChange| {
        let mut spec = DistributionSpec::default();
        change(&mut spec);
        spec.validate().unwrap_err().to_string()
    };
    let changes: [SpecChange; 14] = [
        |s| s.rate = 0.0,
        |s| s.rate = f64::NAN,
        |s| s.prompt.min = 0,
        |s| s.prompt.max = 1,
        |s| s.output.mean = 8000.0,
        |s| s.output.mean = f64::NAN,
        |s| s.output.stdev = -1.0,
        |s| s.output.stdev = 1.0,
        |s| s.output.stdev = 7001.0,
        |s| s.prefix_tokens = u32::MAX,
        |s| s.timeout = Some(Micros::ZERO),
        |s| s.num_requests = Some(0),
        |s| s.num_requests = None,
        |s| (s.num_requests, s.horizon, s.rate) = (None, Micros(10_000_000_000), 1e6),
    ];
    insta::assert_snapshot!(changes.map(error).join("\n"), @r"
    `rate` is 0, but must be a finite number > 0
    `rate` is NaN, but must be a finite number > 0
    `prompt min` is 0, but must be ≥ 1
    `prompt max` is 1, but must be ≥ the minimum, 2
    `output mean` is 8000, but must be from 2 to 7000
    `output mean` is NaN, but must be from 2 to 7000
    `output stdev` is -1, but must be 0, or from 2 to 7000
    `output stdev` is 1, but must be 0, or from 2 to 7000
    `output stdev` is 7001, but must be 0, or from 2 to 7000
    `prefix tokens` is 4294967295, but must be at most 4294960295, 2^32 less the longest prompt
    `timeout` is 0, but must be > 0, or negative for none
    `number of requests` is 0, but must be 1 to 4294967295
    the workload has no end
    hint: set the number of requests or the horizon
    about 10000000000 requests arrive before the horizon, more than 4294967295
    hint: lower rate or horizon
    ");
}

impl DistributionSpec {
    fn clone_with(&self, count: u64) -> Self {
        Self { num_requests: Some(count), ..self.clone() }
    }
}

proptest! {
    #[test]
    fn requests_are_in_order_and_in_range(
        rate in 0.001_f64..1e7, seed: u64, is_poisson: bool, min in 1_u32..50, span in 0_u32..500, at in 0.0_f64..1.0,
    ) {
        let lengths = LengthSpec { mean: f64::from(min) + at * f64::from(span), stdev: f64::from(min), min, max: min + span.max(min) };
        let arrival = if is_poisson { ArrivalProcess::Poisson } else { ArrivalProcess::Constant };
        let spec = DistributionSpec { rate, seed, arrival, prompt: lengths, output: lengths, ..DistributionSpec::default() };
        let requests = generate(&spec);
        prop_assert_eq!(requests.len(), 100);
        let follows = |a: &Request, b: &Request| a.arrival < b.arrival && a.id.next() == Some(b.id);
        prop_assert!(requests.windows(2).all(|pair| follows(&pair[0], &pair[1])));
        prop_assert!(requests[0].arrival > Micros::ZERO);
        let fits = |tokens: u32| (lengths.min..=lengths.max).contains(&tokens);
        prop_assert!(requests.iter().all(|request| fits(request.input_tokens) && fits(request.output_tokens)));
        // The beginning does not depend on the end.
        prop_assert_eq!(&generate(&spec.clone_with(10))[..], &requests[..10]);
    }
}
