//! Smaller expressions that decide the same: parts without effect, and what changes no order of scores, are left out.
//!
//! Constants that are combined are rounded to four digits, as all are. Beyond that and the rounding of floats, a decision changes
//! where a part was infinite only.

use super::grammar::{DecisionGrammar, DecisionOutput, Grammar, Operator};
use super::program::{Expr, Program, rounded};

impl Program {
    /// The same program by smaller expressions.
    pub fn simplified(mut self, grammar: &Grammar) -> Self {
        for (value, decision) in self.values.iter_mut().zip(&grammar.decisions) {
            let rules = Rules { decision };
            *value = rules.ordered(rules.value(std::mem::replace(value, Expr::Constant(0.0))));
        }
        self.without_unread()
    }
}

/// What is compared of the results of a decision.
enum Compared {
    /// Their order among the rows of one call.
    Rows,
    /// Their order among calls.
    Calls,
    /// The numbers themselves count.
    Nothing,
}

/// The rules for the expressions of a decision.
struct Rules<'a> {
    decision: &'a DecisionGrammar,
}

impl Rules<'_> {
    /// `value` by a smaller expression with the same value.
    fn value(&self, value: Expr) -> Expr {
        match value {
            Expr::Apply(function, arguments) => {
                let arguments: Vec<Expr> = arguments.into_iter().map(|one| self.value(one)).collect();
                self.applied(function, arguments)
            }
            leaf => leaf,
        }
    }

    fn applied(&self, function: Operator, mut arguments: Vec<Expr>) -> Expr {
        let is_column = arguments.iter().any(|one| self.is_column(one));
        let over_rows = function.is_over_rows() || matches!(function, Operator::FewestBest | Operator::MostBest);
        if over_rows && !is_column {
            return arguments.swap_remove(0);
        }
        if let Some(folded) = folded(function, &arguments) {
            return folded;
        }
        match (function, &mut arguments[..]) {
            (_, [one]) => of_one(function, take(one)),
            (_, [one, other]) => self.of_two(function, take(one), take(other)),
            (Operator::IfLess, [one, other, then, otherwise]) => {
                self.chosen([take(one), take(other), take(then), take(otherwise)])
            }
            _ => Expr::Apply(function, arguments),
        }
    }

    fn of_two(&self, function: Operator, one: Expr, other: Expr) -> Expr {
        use Operator::{Add, Divide, Max, Min, Multiply, Negative, Subtract};
        // A column of zeros is another choice than none.
        let may_vanish = |part: &Expr| self.decision.output != DecisionOutput::Choice || !self.is_column(part);
        match (function, one, other) {
            (Add, zero, part) | (Add | Subtract, part, zero) if is(&zero, 0.0) => part,
            (Subtract, zero, part) if is(&zero, 0.0) => of_one(Negative, part),
            (Add, part, Expr::Apply(Negative, mut negated)) | (Add, Expr::Apply(Negative, mut negated), part) => {
                self.of_two(Subtract, part, negated.swap_remove(0))
            }
            (Subtract, part, Expr::Apply(Negative, mut negated)) => self.of_two(Add, part, negated.swap_remove(0)),
            (Subtract, one, other) if one == other && may_vanish(&one) => Expr::Constant(0.0),
            (Multiply, unit, part) | (Multiply | Divide, part, unit) if is(&unit, 1.0) => part,
            (Multiply, unit, part) | (Multiply, part, unit) if is(&unit, -1.0) => of_one(Negative, part),
            (Multiply, zero, part) | (Multiply, part, zero) if is(&zero, 0.0) && may_vanish(&part) => zero,
            (Divide, part, Expr::Apply(Negative, mut negated)) => self.of_two(Divide, part, negated.swap_remove(0)),
            (Min | Max, one, other) if one == other => one,
            (function, one, other) => Expr::Apply(function, vec![one, other]),
        }
    }

    /// The third if the first is less than the second, else the fourth.
    fn chosen(&self, [one, other, then, otherwise]: [Expr; 4]) -> Expr {
        let is_column = self.is_column(&one) || self.is_column(&other);
        let keeps_column =
            |part: &Expr| !is_column || self.is_column(part) || self.decision.output != DecisionOutput::Choice;
        if then == otherwise && keeps_column(&then) {
            return then;
        }
        if one == other && keeps_column(&otherwise) {
            return otherwise;
        }
        match (&one, &other) {
            (Expr::Constant(low), Expr::Constant(high)) => {
                if low < high {
                    then
                } else {
                    otherwise
                }
            }
            _ => Expr::Apply(Operator::IfLess, vec![one, other, then, otherwise]),
        }
    }

    /// `value` without what changes no order.
    fn ordered(&self, value: Expr) -> Expr {
        use Operator::{Add, Divide, FewestBest, MostBest, Multiply, Negative, Subtract};
        let compared = self.compared();
        if matches!(compared, Compared::Rows) && !self.is_column(&value) {
            return Expr::Constant(1.0);
        }
        let is_free = |part: &Expr| match compared {
            Compared::Rows => !self.is_column(part),
            Compared::Calls => matches!(part, Expr::Constant(_)),
            Compared::Nothing => false,
        };
        let by_rows = matches!(compared, Compared::Rows);
        match value {
            Expr::Apply(Add, mut parts) if parts.iter().any(is_free) && !parts.iter().all(is_free) => {
                let kept = usize::from(is_free(&parts[0]));
                self.ordered(parts.swap_remove(kept))
            }
            Expr::Apply(Subtract, mut parts) if is_free(&parts[1]) && !is_free(&parts[0]) => {
                self.ordered(parts.swap_remove(0))
            }
            Expr::Apply(Subtract, mut parts) if is_free(&parts[0]) && !is_free(&parts[1]) => {
                self.ordered(of_one(Negative, parts.swap_remove(1)))
            }
            Expr::Apply(Divide, mut parts) if is_free(&parts[1]) && !is_free(&parts[0]) => {
                self.ordered(parts.swap_remove(0))
            }
            Expr::Apply(Multiply, mut parts) if is_free(&parts[0]) || is_free(&parts[1]) => {
                let constant = parts.iter().position(|part| matches!(part, Expr::Constant(_)));
                match constant.map(|at| (parts.swap_remove(at), parts.pop())) {
                    Some((Expr::Constant(sign), Some(part))) if is_free(&Expr::Constant(sign)) && sign != 0.0 => {
                        self.ordered(if sign > 0.0 { part } else { of_one(Negative, part) })
                    }
                    Some((constant, Some(part))) => Expr::Apply(Multiply, vec![constant, part]),
                    _ => Expr::Apply(Multiply, parts),
                }
            }
            Expr::Apply(MostBest, mut parts) if by_rows => self.ordered(parts.swap_remove(0)),
            Expr::Apply(FewestBest, mut parts) if by_rows => self.ordered(of_one(Negative, parts.swap_remove(0))),
            Expr::Apply(Negative, mut parts) => match self.ordered_below(parts.swap_remove(0)) {
                (part, true) => self.ordered(of_one(Negative, part)),
                (part, false) => of_one(Negative, part),
            },
            value => value,
        }
    }

    /// `value` below a sign, and whether anything was left out.
    fn ordered_below(&self, value: Expr) -> (Expr, bool) {
        let before = value.size();
        let value = self.ordered(value);
        let is_less = value.size() < before;
        (value, is_less)
    }

    fn compared(&self) -> Compared {
        match (self.decision.function, self.decision.output) {
            ("route" | "victim" | "fair_pick" | "evict" | "drain" | "placement", _) => Compared::Rows,
            (_, DecisionOutput::Choice) => Compared::Rows,
            ("rank" | "order" | "keep", _) => Compared::Calls,
            _ => Compared::Nothing,
        }
    }

    fn is_column(&self, value: &Expr) -> bool {
        match value {
            Expr::Constant(_) => false,
            Expr::Input(name) => self.decision.inputs.iter().any(|input| input.name == *name && input.is_column),
            Expr::EventTable(_) => self.decision.has_memory,
            Expr::Apply(function, _) if function.is_over_rows() => false,
            Expr::Apply(_, arguments) => arguments.iter().any(|one| self.is_column(one)),
        }
    }
}

fn of_one(function: Operator, part: Expr) -> Expr {
    use Operator::{FewestBest, Log, MostBest, Negative, Root, Subtract};
    match (function, part) {
        (Negative, Expr::Constant(value)) => Expr::Constant(-value),
        (Negative, Expr::Apply(Negative, mut negated)) => negated.swap_remove(0),
        (Negative, Expr::Apply(Subtract, mut parts)) => {
            parts.swap(0, 1);
            Expr::Apply(Subtract, parts)
        }
        (Root | Log, Expr::Apply(Negative, mut negated)) => Expr::Apply(function, vec![negated.swap_remove(0)]),
        (MostBest, Expr::Apply(Negative, mut negated)) => Expr::Apply(FewestBest, vec![negated.swap_remove(0)]),
        (FewestBest, Expr::Apply(Negative, mut negated)) => Expr::Apply(MostBest, vec![negated.swap_remove(0)]),
        (MostBest, part @ Expr::Apply(MostBest | FewestBest, _)) => part,
        (function, part) => Expr::Apply(function, vec![part]),
    }
}

/// The number that a function of constants is.
fn folded(function: Operator, arguments: &[Expr]) -> Option<Expr> {
    let number = |one: &Expr| if let Expr::Constant(value) = one { Some(*value) } else { None };
    let numbers = arguments.iter().map(number).collect::<Option<Vec<f64>>>()?;
    function.of_numbers(&numbers).map(|value| Expr::Constant(rounded(value)))
}

fn take(part: &mut Expr) -> Expr {
    std::mem::replace(part, Expr::Constant(0.0))
}

fn is(part: &Expr, number: f64) -> bool {
    *part == Expr::Constant(number)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_plugin::inputs::{GuestCall, GuestOutput, ties};
    use blis_plugin::{Kind, Limits, check, script};
    use blis_sim::rng::Stream;

    use super::super::variation::{ProgramGenerator, decided_kinds};
    use super::*;

    /// What the script of `program` decides in plausible situations; `None` where it fails.
    fn outputs(program: &Program, grammar: &Grammar, kind: Kind) -> Vec<Option<GuestOutput>> {
        let limits = Limits::default();
        let source = program.source(grammar);
        let plugin = script::load(Path::new("found.rhai"), &source, &limits);
        let plugin = plugin.unwrap_or_else(|fault| panic!("{fault:?}\n{source}"));
        let mut guest = plugin.start(&check::setup(&*plugin, kind, 4, &limits)).expect("it starts");
        (0..12).map(|item| GuestCall::plausible(kind, 4, item).run(&mut *guest, &ties()).ok()).collect()
    }

    /// Whether `one` and `other` are the same decision of `kind`: ranks by their order relative to those of another call.
    fn is_same(kind: Kind, [one, other]: [&GuestOutput; 2], before: [&GuestOutput; 2]) -> bool {
        use GuestOutput::{Index, Integer, Number, Numbers};
        let order = |one: &u64, other: &u64| f64::from_bits(*one).total_cmp(&f64::from_bits(*other));
        let is_near = |one: &u64, other: &u64| {
            let (one, other) = (f64::from_bits(*one), f64::from_bits(*other));
            one == other || (one - other).abs() <= 0.01 * one.abs()
        };
        match (one, other, before) {
            (Index(one, _), Index(other, _), _) => one == other,
            (Number(one), Number(other), _) if kind == Kind::Saturation => is_near(one, other),
            (Number(one), Number(other), [Number(first), Number(second)]) => order(one, first) == order(other, second),
            (Numbers(one), Numbers(other), _) if kind == Kind::KvCache => {
                let orders = |all: &[u64]| all.windows(2).map(|two| order(&two[0], &two[1])).collect::<Vec<_>>();
                orders(one) == orders(other)
            }
            (Numbers(one), Numbers(other), _) => one.iter().zip(other).all(|(one, other)| is_near(one, other)),
            (Integer(one), Integer(other), _) => one.abs_diff(*other) <= 1 + one.unsigned_abs() / 100,
            (one, other, _) => one == other,
        }
    }

    /// A difference below the precision of floats or of a constant may decide: in one of two hundred calls.
    #[test]
    fn simplified_programs_decide_the_same() {
        let (mut compared, mut different, mut smaller) = (0, 0, 0);
        for kind in decided_kinds() {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            let mut made = ProgramGenerator::new(&grammar, Stream::new(2, kind.name()).at(0));
            for _ in 0..25 {
                let program = made.random();
                let simplified = program.clone().simplified(&grammar);
                assert!(simplified.size() <= program.size(), "{program:?}");
                assert_eq!(simplified.clone().simplified(&grammar), simplified, "{program:?}");
                smaller += usize::from(simplified.size() < program.size());
                let [before, after] = [&program, &simplified].map(|one| outputs(one, &grammar, kind));
                let both: Vec<[&GuestOutput; 2]> = before
                    .iter()
                    .zip(&after)
                    .filter_map(|(one, other)| Some([one.as_ref()?, other.as_ref()?]))
                    .collect();
                compared += both.len();
                different += both.iter().filter(|two| !is_same(kind, **two, both[0])).count();
            }
        }
        assert!(compared > 3000 && smaller > 100, "{compared} {smaller}");
        assert!(200 * different <= compared, "{different} of {compared}");
    }

    #[test]
    fn what_changes_no_order_is_left_out() {
        use Operator::{Add, Divide, FewestBest, Multiply, Negative, Root, Subtract};
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let input = |name: &str| Expr::Input(name.to_owned());
        let apply = Expr::Apply;
        let queue = || input("s.queue_depth");
        for (value, expected) in [
            (apply(Add, vec![queue(), input("r.input_tokens")]), queue()),
            (
                apply(FewestBest, vec![apply(Multiply, vec![Expr::Constant(3.0), queue()])]),
                apply(Negative, vec![queue()]),
            ),
            (
                apply(Subtract, vec![Expr::Constant(4.0), apply(Divide, vec![queue(), input("s.len")])]),
                apply(Negative, vec![queue()]),
            ),
            (apply(Root, vec![apply(Negative, vec![queue()])]), apply(Root, vec![queue()])),
            (apply(Multiply, vec![Expr::Constant(-2.0), apply(Negative, vec![queue()])]), queue()),
            (apply(Add, vec![input("s.len"), Expr::Constant(2.0)]), Expr::Constant(1.0)),
        ] {
            let program = Program { values: vec![value], memories: Vec::new() };
            assert_eq!(program.clone().simplified(&grammar).values, [expected], "{program:?}");
        }
    }
}
