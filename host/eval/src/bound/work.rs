//! The work of a request: the time of steps that its tokens take at least, in any company.
//!
//! A step of `p` prompt tokens, `d` decodes and a context of `x` tokens in those takes at least `a·p + c·d + e·x`, if `a`,
//! `c` and `e` are small enough. So the steps of any simulation take at least the sum of that over its requests. The
//! duration of a step without tokens, such as that of reading the weights, is spread over the tokens of the largest
//! possible step; how best depends on the load, so there are several rates.

use blis_sim::instance::InstanceConfig;
use blis_sim::latency::Batch;
use blis_sim::sampling::Sampling;

use super::demand::Demand;

/// Work per token, µs of one instance: lower bounds, whatever the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkRate {
    prefill_us: f64,
    decode_us: f64,
    context_us: f64,
}

impl WorkRate {
    /// Work of a request from its prompt to its last token, µs.
    pub fn of_request(&self, demand: &Demand) -> f64 {
        self.us(demand.prefill_tokens, demand.decodes, demand.decode_context)
    }

    fn us(&self, prefill: f64, decodes: f64, context: f64) -> f64 {
        self.prefill_us * prefill + self.decode_us * decodes + self.context_us * context
    }

    fn scaled(&self, factor: f64) -> Self {
        let Self { prefill_us, decode_us, context_us } = *self;
        Self { prefill_us: prefill_us * factor, decode_us: decode_us * factor, context_us: context_us * factor }
    }
}

/// The work rates of an instance.
#[derive(Clone, Debug)]
pub(super) struct WorkRates {
    /// The first counts prompts only, the others whole requests.
    rates: Vec<WorkRate>,
}

impl WorkRates {
    /// The rates for these requests; `None` if there are none.
    pub fn new(instance: &InstanceConfig, demands: &[Demand]) -> Option<Self> {
        let longest = demands.iter().map(|demand| demand.tokens).max()?;
        let steps = PossibleSteps::new(instance, longest, demands.iter().any(|demand| demand.sets_sampling));
        let rates = steps.candidates();
        let mut factors = vec![f64::INFINITY; rates.len()];
        steps.for_each_range(|least_us, [prefill, decodes, context]| {
            for (rate, factor) in rates.iter().zip(&mut factors) {
                *factor = factor.min(least_us / rate.us(prefill, decodes, context));
            }
        });
        Some(Self { rates: rates.iter().zip(factors).map(|(rate, factor)| rate.scaled(factor)).collect() })
    }

    /// Work of a request until its first token, µs.
    pub fn of_prompt(&self, demand: &Demand) -> f64 {
        self.rates[0].us(demand.prefill_tokens, 0.0, 0.0)
    }

    /// Rates for whole requests, each of which holds.
    pub fn of_whole_requests(&self) -> &[WorkRate] {
        &self.rates[1..]
    }
}

/// The steps that an instance can execute.
struct PossibleSteps<'a> {
    instance: &'a InstanceConfig,
    /// Maximum numbers of tokens and requests of a step, and of tokens of a request.
    tokens: u64,
    requests: u64,
    longest: u64,
    /// Requests set their own sampling: none costs less than a greedy choice.
    sampled: bool,
}

impl<'a> PossibleSteps<'a> {
    fn new(instance: &'a InstanceConfig, longest: u32, sampled: bool) -> Self {
        let active = instance.options.max_num_active_seqs.unwrap_or(u32::MAX);
        let (requests, longest) = (u64::from(instance.max_num_seqs.min(active)), u64::from(longest.max(1)));
        Self {
            tokens: u64::from(instance.max_num_batched_tokens).min(requests * longest),
            requests,
            longest,
            instance,
            sampled,
        }
    }

    /// The least time of a step of at least these tokens, µs.
    fn least_us(&self, prefill: u64, decodes: u64, context: u64) -> f64 {
        let mut batch = Batch {
            prefill_requests: prefill.min(1),
            prefill_tokens: prefill,
            // As short as chunks can be: a token each.
            prefill_tokens_squared: prefill,
            prefill_tokens_by_input: prefill,
            decode_requests: decodes,
            decode_context: context,
            ..Batch::default()
        };
        if self.sampled {
            (0..batch.requests()).for_each(|_| batch.sampled.add(Some(Sampling::default())));
        }
        self.instance.latency.least_step_time(&batch).0 as f64
    }

    /// Rates before they are scaled: the cost of each further token, and the duration of a step without tokens spread in
    /// quarters over prompt tokens, decodes and context. The first counts prompt tokens only.
    fn candidates(&self) -> Vec<WorkRate> {
        let decodes = self.requests.min(self.tokens);
        let context = decodes * self.longest;
        let base = self.least_us(0, 1, 0).min(self.least_us(1, 0, 0));
        let of_decodes = self.least_us(0, decodes, 0);
        let per = |more: f64, less: f64, count: u64| (more - less).max(0.0) / count as f64;
        let prefill_us = per(self.least_us(self.tokens, 0, 0), base, self.tokens);
        let decode_us = per(of_decodes, base, decodes);
        let context_us = per(self.least_us(0, decodes, context), of_decodes, context);
        let spread = |count: u64, quarters: u32| base / count as f64 * f64::from(quarters) / 4.0;
        let prompts = WorkRate { prefill_us: prefill_us + spread(self.tokens, 4), decode_us: 0.0, context_us: 0.0 };
        let whole = (0..=4).flat_map(|prefill| (0..=4 - prefill).map(move |decode| (prefill, decode)));
        let whole = whole.map(|(prefill, decode)| WorkRate {
            prefill_us: prefill_us + spread(self.tokens, prefill),
            decode_us: decode_us + spread(decodes, decode),
            context_us: context_us + spread(context, 4 - prefill - decode),
        });
        std::iter::once(prompts).chain(whole).collect()
    }

    /// Calls `each` for ranges that together contain all steps: with the least time of a step in the range, µs, and with
    /// the largest numbers of prompt tokens, decodes and context.
    fn for_each_range(&self, mut each: impl FnMut(f64, [f64; 3])) {
        let prompts = ranges(self.tokens);
        let all_decodes = ranges(self.requests.min(self.tokens));
        let contexts = ranges(self.requests * self.longest);
        for &(prefill, most_prefill) in &prompts {
            for &(decodes, most_decodes) in &all_decodes {
                if prefill + decodes > self.tokens || prefill.min(1) + decodes > self.requests {
                    break;
                }
                let most_context = most_decodes * self.longest;
                for &(context, upper) in contexts.iter().take_while(|(context, _)| *context <= most_context) {
                    if prefill + decodes > 0 {
                        let most = [most_prefill, most_decodes, upper.min(most_context)];
                        each(self.least_us(prefill, decodes, context), most.map(|number| number as f64));
                    }
                }
            }
        }
    }
}

/// Ranges (from, to) of whole numbers that contain 0 to `most`, of which those above 10 are a tenth wide.
fn ranges(most: u64) -> Vec<(u64, u64)> {
    let mut ranges = vec![(0, 0)];
    let mut from = 1;
    while from <= most {
        let to = (from + from / 10).min(most);
        ranges.push((from, to));
        from = to + 1;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_without_gaps() {
        assert_eq!(ranges(0), [(0, 0)]);
        let ranges = ranges(8192);
        assert_eq!((ranges[10], ranges.last().map(|range| range.1)), ((10, 11), Some(8192)));
        assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
    }
}
