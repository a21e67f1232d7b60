//! Patterns over decisions as text.

use std::fmt::{self, Display};

use super::patterns::{BetterAlternative, DecisionPatterns, PatternRule, ReferenceDecisions, WRONG_S};
use super::regret::SignalOf;

impl Display for DecisionPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, decision, scenario, decisions, wrong, regret_s, window_s, signals, rules, .. } = self;
        let decision = decision.as_ref().map_or_else(String::new, |decision| format!(" ({decision})"));
        write!(
            f,
            "{kind}{decision} in {scenario}: {wrong} of {decisions} decisions drawn at random are wrong: another one \
             would save all requests together {:.0} ms or more within {window_s:.1} s",
            1e3 * WRONG_S
        )?;
        if *wrong > 0 {
            write!(f, "; {} in the mean of those", ms(regret_s / *wrong as f64))?;
        }
        writeln!(f)?;
        for (index, one) in rules.iter().enumerate() {
            rule(f, index, one)?;
        }
        if *wrong > 0 && rules.is_empty() {
            writeln!(
                f,
                "  no rule on one of {signals} signals separates them from the others (permutation test, 5 %)"
            )?;
        }
        if let Some(better) = &self.better_alternative {
            better_alternative(f, better)?;
        }
        self.reference.as_ref().map_or(Ok(()), |reference| {
            write!(f, "  all: ")?;
            decided(f, reference)
        })
    }
}

fn rule(f: &mut fmt::Formatter<'_>, index: usize, rule: &PatternRule) -> fmt::Result {
    let PatternRule { decisions, wrong, mean_regret_s, regret_share, others, others_wrong, p, .. } = rule;
    writeln!(
        f,
        "  {}. {}: {wrong} of {decisions} wrong, mean cost {}, {:.0} % of the regret; of the others {others_wrong} of \
         {others} ({})",
        index + 1,
        condition(rule),
        ms(*mean_regret_s),
        100.0 * regret_share,
        probability(*p)
    )?;
    rule.reference.as_ref().map_or(Ok(()), |reference| {
        write!(f, "     ")?;
        decided(f, reference)
    })
}

/// As "`queue_depth` of the choice more than 3 requests above the lowest".
fn condition(rule: &PatternRule) -> String {
    let PatternRule { signal, of, above, threshold, unit, .. } = rule;
    let limit = if *above { "more than" } else { "at most" };
    let amount =
        if ["share", "flag"].contains(&unit.as_str()) { format!("{threshold}") } else { format!("{threshold} {unit}") };
    match of {
        SignalOf::Chosen => format!("`{signal}` of the choice is {limit} {amount}"),
        SignalOf::AboveLowest => format!("`{signal}` of the choice is {limit} {amount} above the lowest"),
        SignalOf::BelowHighest => format!("`{signal}` of the choice is {limit} {amount} below the highest"),
        SignalOf::Request => format!("`{signal}` of the request is {limit} {amount}"),
        SignalOf::Lowest => format!("the lowest `{signal}` is {limit} {amount}"),
        SignalOf::Highest => format!("the highest `{signal}` is {limit} {amount}"),
        SignalOf::Mean => format!("the mean `{signal}` is {limit} {amount}"),
        SignalOf::Group => format!("`{signal}` of the group is {limit} {amount}"),
    }
}

fn better_alternative(f: &mut fmt::Formatter<'_>, better: &BetterAlternative) -> fmt::Result {
    let BetterAlternative { signal, prefers_lower, lower, higher, wrong, expected_lower, expected_higher, p } = better;
    let side = if *prefers_lower { "lower" } else { "higher" };
    writeln!(
        f,
        "  `{signal}` tells the best alternative: the {side} the better. It is lower than of the choice in {lower} and higher in \
         {higher} of {wrong} wrong decisions; of any alternative in {expected_lower:.0} and {expected_higher:.0} ({})",
        probability(*p)
    )
}

fn decided(f: &mut fmt::Formatter<'_>, reference: &ReferenceDecisions) -> fmt::Result {
    let ReferenceDecisions { policy, known, other, better, worse, saved_s } = reference;
    if *other == 0 {
        return writeln!(f, "{policy} would decide the same in all {known}");
    }
    let result = if *saved_s < 0.0 { "costs" } else { "saves" };
    writeln!(
        f,
        "{policy} would decide otherwise in {other} of {known}: better in {better}, worse in {worse}, and {result} {} in all",
        ms(saved_s.abs())
    )
}

fn probability(p: f64) -> String {
    if p < 0.001 { "p < 0.001".to_owned() } else { format!("p {p:.3}") }
}

/// Request-seconds as ms, or as s from ten on.
fn ms(seconds: f64) -> String {
    match seconds {
        large if large >= 10.0 => format!("{large:.0} s"),
        one if one >= 1.0 => format!("{one:.2} s"),
        small => format!("{:.0} ms", 1e3 * small),
    }
}
