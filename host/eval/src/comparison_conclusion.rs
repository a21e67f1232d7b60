//! What follows from a comparison, in a sentence: about the primary figures alone.

use blis_report::{Caveat, CaveatCode, Concludes, Conclusion, ConclusionKind, latency_in_words, three_digits};

use crate::comparison_rules::ComparisonRules;
use crate::figures::Unit;
use crate::paired::{Paired, PairedResult};
use crate::table::Comparison;

/// Figures of a policy that the sentence names, so that it stays one; the table has all.
const NAMED: usize = 2;
/// More times as many requests are not named.
const MOST_TIMES: f64 = 1000.0;

impl Concludes for Comparison {
    fn conclusion(&self) -> Conclusion {
        let overloaded: Vec<&str> = self.overloaded_names().collect();
        if !overloaded.is_empty() {
            let text = format!("Overloaded under {}: no latencies are compared", overloaded.join(" and "));
            return Conclusion::new(ConclusionKind::OVERLOADED, text);
        }
        let first = &self.policies()[0];
        let mut decided: Vec<(PairedResult, String)> = Vec::new();
        for (number, name) in self.policies().iter().enumerate().skip(1) {
            decided.extend(self.decided(number, name));
        }
        let others = self.policies().len() - 1;
        match (&decided[..], others) {
            ([], _) => self.undecided(),
            ([(PairedResult::Better, one)], 1) => {
                Conclusion::new(ConclusionKind::Better, format!("{one}, than {first}"))
            }
            ([(PairedResult::Worse, one)], 1) => Conclusion::new(ConclusionKind::Worse, format!("{one}, than {first}")),
            ([(_, one)], 1) => Conclusion::new(ConclusionKind::UNDECIDED, format!("{one}, beside {first}")),
            (several, _) => {
                let any = |wanted: PairedResult| several.iter().any(|(result, _)| *result == wanted);
                // One that is better in one figure and worse in another decides nothing.
                let kind = match (any(PairedResult::Better), any(PairedResult::Undecided)) {
                    (true, _) => ConclusionKind::Better,
                    (false, true) => ConclusionKind::UNDECIDED,
                    (false, false) => ConclusionKind::Worse,
                };
                let texts: Vec<&str> = several.iter().map(|(_, text)| text.as_str()).collect();
                let rest = if several.len() < others { "; of others it is undecided" } else { "" };
                Conclusion::new(kind, format!("Beside {first}: {}{rest}", texts.join("; ")))
            }
        }
    }

    fn caveats(&self) -> Vec<Caveat> {
        self.limits().to_vec()
    }
}

impl Comparison {
    /// The first primary figure that is clear of the policy `number`, with its difference.
    pub(crate) fn first_clear(&self, number: usize) -> Option<(&'static str, f64)> {
        let mut clear = self.primary(number).filter(|(_, _, paired)| self.rules().matters(paired));
        clear.next().map(|(key, _, paired)| (key, paired.difference))
    }

    /// What is clear of the policy `number` beside the first: better or worse in all primary figures that differ, or undecided between them.
    fn decided(&self, number: usize, name: &str) -> Option<(PairedResult, String)> {
        let clear = self.primary(number).filter(|(_, _, paired)| self.rules().matters(paired));
        let clear: Vec<(&str, Unit, &Paired)> = clear.collect();
        let (_, _, first) = clear.first()?;
        let figures = |result: PairedResult| {
            let of: Vec<_> = clear.iter().filter(|(_, _, paired)| paired.result == result).collect();
            let named: Vec<String> =
                of.iter().take(NAMED).map(|(key, unit, paired)| change(key, *unit, paired)).collect();
            let more = of.len().checked_sub(NAMED).filter(|&more| more > 0);
            format!("{}{}", named.join(", "), more.map_or(String::new(), |more| format!(", and in {more} more")))
        };
        if clear.iter().all(|(_, _, paired)| paired.result == first.result) {
            let word = if first.result == PairedResult::Better { "better" } else { "worse" };
            let signs = self.model_sign(number).map_or(String::new(), |sign| {
                format!(" (the sign holds in {} of {} draws of the model's error)", sign.same_sign, sign.draws)
            });
            return Some((first.result, format!("{name} is {word}: {}{signs}", figures(first.result))));
        }
        let (better, worse) = (figures(PairedResult::Better), figures(PairedResult::Worse));
        Some((PairedResult::Undecided, format!("{name} is better in {better} and worse in {worse}")))
    }

    /// The sentence where nothing is clear: about the figure that is nearest to it.
    fn undecided(&self) -> Conclusion {
        let mut primary = (1..self.policies().len()).flat_map(|number| self.primary(number)).peekable();
        if primary.peek().is_some() && primary.all(|(_, _, paired)| self.rules().is_equal(paired)) {
            let text = format!(
                "Equal within {} % in {} primary figures",
                three_digits(100.0 * self.rules().margin),
                self.primary(1).count()
            );
            return Conclusion::new(ConclusionKind::Equal, text);
        }
        let all = (1..self.policies().len())
            .flat_map(|number| self.primary(number).map(move |(key, unit, paired)| (number, key, unit, paired)));
        let known = all.filter_map(|(number, key, unit, paired)| {
            Some((number, key, unit, paired, self.rules().times_more(paired)?))
        });
        let nearest = known
            .filter(|(_, _, _, paired, _)| !self.rules().is_equal(paired))
            .min_by(|one, other| one.4.total_cmp(&other.4));
        let text = match nearest {
            Some((number, key, unit, paired, times)) => {
                let name = &self.policies()[number];
                let change = change(key, unit, paired);
                let more = match times {
                    beyond if beyond >= MOST_TIMES => format!("over {MOST_TIMES} × more requests would tell"),
                    few if few < 2.0 => "a few more seeds would tell".to_owned(),
                    some => format!("about {some:.0} × more requests would tell"),
                };
                format!("Undecided: {change} under {name}; {more}")
            }
            None if self.limits().iter().any(|caveat| caveat.code == CaveatCode::TooShort) => {
                "Undecided: the runs are too short to tell".to_owned()
            }
            // Equal runs say little about others, so that ties have no interval.
            None if (1..self.policies().len())
                .flat_map(|number| self.primary(number))
                .all(|of| of.2.difference == 0.0) =>
            {
                "Undecided: no primary figure differs under these seeds".to_owned()
            }
            None => "Undecided: without intervals nothing follows; compare over 5 seeds or more".to_owned(),
        };
        Conclusion::new(ConclusionKind::UNDECIDED, text)
    }
}

impl ComparisonRules {
    /// The interval of a difference, as wide as several looks need it; and the difference of interest.
    fn interval_and_margin(&self, paired: &Paired) -> Option<(f64, f64, f64)> {
        let interval = paired.interval?;
        let wide = |limit: f64| paired.difference + self.widening() * (limit - paired.difference);
        Some((wide(interval.low), wide(interval.high), self.margin * paired.mean_a.abs()))
    }

    /// Whether the whole interval is of no interest.
    fn is_equal(&self, paired: &Paired) -> bool {
        self.interval_and_margin(paired).is_some_and(|(low, high, margin)| -margin <= low && high <= margin)
    }

    /// Whether the difference is clear of what is of no interest.
    fn matters(&self, paired: &Paired) -> bool {
        let beyond = self.interval_and_margin(paired).is_some_and(|(low, high, margin)| low > margin || high < -margin);
        paired.result != PairedResult::Undecided && beyond
    }

    /// By which factor more requests would tell, about: (h/max(|Δ| − δ, δ/2))² with half the width h of the interval and the margin δ.
    fn times_more(&self, paired: &Paired) -> Option<f64> {
        let (low, high, margin) = self.interval_and_margin(paired)?;
        let goal = (paired.difference.abs() - margin).max(margin / 2.0);
        let factor = ((high - low) / 2.0 / goal).powi(2);
        Some(if factor.is_nan() { MOST_TIMES } else { factor.clamp(1.0, MOST_TIMES) })
    }
}

/// `p99_ttft −12 % [−18, −5]`, of shares in percentage points.
fn change(key: &str, unit: Unit, paired: &Paired) -> String {
    if paired.mean_a == 0.0 || unit.bounded() {
        let (scale, of) = if unit == Unit::Share { (100.0, " points") } else { (1.0, "") };
        let limits = paired.interval.map_or(String::new(), |interval| {
            format!(" [{}, {}]", signed(scale * interval.low), signed(scale * interval.high))
        });
        return format!("{key} {}{of}{limits}", signed(scale * paired.difference));
    }
    let percent = |value: f64| signed(100.0 * value / paired.mean_a.abs());
    let limits = paired
        .interval
        .map_or(String::new(), |interval| format!(" [{}, {}]", percent(interval.low), percent(interval.high)));
    let value =
        if unit == Unit::Milliseconds { format!(" of {}", latency_in_words(paired.mean_a)) } else { String::new() };
    format!("{key} {} %{limits}{value}", percent(paired.difference))
}

fn signed(value: f64) -> String {
    let digits = three_digits(value.abs());
    let is_zero = digits.chars().all(|digit| matches!(digit, '0' | '.'));
    match value {
        _ if is_zero => "0".to_owned(),
        below if below < 0.0 => format!("−{digits}"),
        _ => format!("+{digits}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figure, Figures};

    /// The conclusion of policies with these mean TTFTs (ms), and with throughputs of 10 requests/s less by a part of them.
    fn conclusion(ttfts: &[[f64; 5]], throughputs: &[f64]) -> Conclusion {
        let names: Vec<String> = (0..ttfts.len()).map(|index| format!("p{index}")).collect();
        let run = |ttft: f64, throughput: f64| {
            let mut run = Figures::default();
            run.set(Figure::MeanTtft, Some(ttft));
            run.set(Figure::Throughput, Some(throughput + ttft * 1e-6));
            run
        };
        let runs: Vec<Vec<Figures>> =
            ttfts.iter().zip(throughputs).map(|(of, &rate)| of.iter().map(|&ttft| run(ttft, rate)).collect()).collect();
        Comparison::new(&names, &[1, 2, 3, 4, 5], &runs).with_multiplicity().conclusion()
    }

    const BASE: [f64; 5] = [100.0, 103.0, 98.0, 101.0, 99.0];

    fn times(factor: f64) -> [f64; 5] {
        [0, 1, 2, 3, 4].map(|seed| BASE[seed] * (factor + 0.001 * seed as f64))
    }

    #[test]
    fn the_sentence_says_what_the_primary_figures_do() {
        let kind = |ttfts: &[[f64; 5]], rates: &[f64]| conclusion(ttfts, rates).kind;
        let tied = conclusion(&[BASE, BASE], &[10.0, 10.0]);
        assert!(tied.kind == ConclusionKind::UNDECIDED && tied.text.contains("no primary figure differs"), "{tied}");
        assert_eq!(kind(&[BASE, times(1.0)], &[10.0, 10.0]), ConclusionKind::Equal);
        assert_eq!(kind(&[BASE, times(0.8)], &[10.0, 10.0]), ConclusionKind::Better);
        assert_eq!(kind(&[BASE, times(1.2)], &[10.0, 10.0]), ConclusionKind::Worse);
        assert_eq!(kind(&[BASE, times(0.8)], &[10.0, 5.0]), ConclusionKind::UNDECIDED, "better and worse");
        let mixed = [BASE, times(0.8), times(0.8)];
        assert_eq!(kind(&mixed, &[10.0, 5.0, 5.0]), ConclusionKind::UNDECIDED, "both better and worse");
        let noisy = [BASE, [90.0, 120.0, 95.0, 130.0, 70.0]];
        let found = conclusion(&noisy, &[10.0, 10.0]);
        assert_eq!(found.kind, ConclusionKind::UNDECIDED);
        assert!(found.text.contains("more requests would tell"), "{found}");
    }
}
