//! Programs that a search begins with: what decides nothing, and the published routing policies.

use blis_plugin::Kind;

use super::grammar::{DecisionGrammar, Grammar, Operator};
use super::program::{Expr, Program};

fn apply(function: Operator, arguments: Vec<Expr>) -> Expr {
    Expr::Apply(function, arguments)
}

fn input(name: &str) -> Expr {
    Expr::Input(name.to_owned())
}

fn constant(value: f64) -> Expr {
    Expr::Constant(value)
}

fn sum(terms: Vec<Expr>) -> Expr {
    let added = terms.into_iter().reduce(|one, other| apply(Operator::Add, vec![one, other]));
    added.unwrap_or(Expr::Constant(0.0))
}

fn weighted(weight: f64, value: Expr) -> Expr {
    apply(Operator::Multiply, vec![constant(weight), value])
}

fn negative(value: Expr) -> Expr {
    apply(Operator::Negative, vec![value])
}

/// The programs, each once: for every decision the built-in policies of its kind, with a constant for the other decisions, and the first of
/// every decision together.
pub(super) fn seeds(grammar: &Grammar) -> Vec<Program> {
    let Program { values: empty, .. } = neutral(grammar);
    let mut all = vec![neutral(grammar)];
    let mut together = empty.clone();
    let mut decided = 0;
    for (at, decision) in grammar.decisions.iter().enumerate() {
        let known = values(decision);
        if let Some(first) = known.first() {
            together[at] = first.clone();
            decided += 1;
        }
        for value in known {
            let mut values = empty.clone();
            values[at] = value;
            all.push(Program { values, memories: Vec::new() });
        }
    }
    if decided > 1 {
        all.push(Program { values: together, memories: Vec::new() });
    }
    all
}

/// What decides nothing: admission of all, a service that is never full, equal scores for all, as many replicas as there are.
pub(super) fn neutral(grammar: &Grammar) -> Program {
    let value = |decision: &DecisionGrammar| match decision.kind {
        Kind::Saturation => constant(0.0),
        Kind::Scaling => input("g.replicas"),
        _ => constant(1.0),
    };
    Program { values: grammar.decisions.iter().map(value).collect(), memories: Vec::new() }
}

/// Built-in policies of a decision as expressions (docs/policies.md, docs/kv-offloading.md). Policies that a search is to find again are none of them.
fn values(decision: &DecisionGrammar) -> Vec<Expr> {
    match (decision.function, decision.part) {
        ("route", _) => routing(),
        // tier-shed: what is not below 0
        ("admit", _) => vec![sum(vec![input("r.class_priority"), constant(0.5)])],
        // program-aware
        ("fair_pick", _) => vec![sum(vec![
            weighted(0.8, apply(Operator::FewestBest, vec![input("f.served_decayed")])),
            weighted(0.2, apply(Operator::MostBest, vec![input("f.head_wait")])),
        ])],
        // sjf
        ("rank", _) => vec![input("r.input_tokens")],
        // slru, lfu
        ("keep", _) => vec![apply(Operator::Min, vec![input("c.uses"), constant(2.0)]), input("c.uses")],
        // prefix-threshold, never
        ("disaggregate", Some("remote")) => {
            vec![apply(Operator::Subtract, vec![input("d.uncached"), constant(16.0)]), constant(0.0)]
        }
        _ => Vec::new(),
    }
}

/// The terms of BLIS's and llm-d's routing policies (docs/policies.md).
fn routing() -> Vec<Expr> {
    let load = || sum(vec![input("s.queue_depth"), input("s.batch_size"), input("s.in_flight")]);
    let cached = || apply(Operator::MostBest, vec![input("s.cached_blocks")]);
    let short = || apply(Operator::FewestBest, vec![input("s.queue_depth")]);
    let free = || apply(Operator::Subtract, vec![constant(1.0), input("s.kv_utilization")]);
    let few_tokens = || negative(input("s.in_flight_tokens"));
    let sticky = |most: Expr, otherwise: Expr| {
        let share = apply(Operator::Divide, vec![input("s.cached_tokens_gpu"), input("r.input_tokens")]);
        apply(Operator::IfLess, vec![constant(0.8), share, most, otherwise])
    };
    vec![
        // least-loaded
        negative(load()),
        // weighted: prefix-affinity, queue-depth, kv-utilization as 2:1:1, and as llm-d's 3:2:2
        sum(vec![weighted(2.0, cached()), short(), free()]),
        sum(vec![weighted(3.0, cached()), weighted(2.0, short()), weighted(2.0, free())]),
        // token-load, and token-aware without its limit of the wait
        few_tokens(),
        sum(vec![few_tokens(), sticky(constant(1e6), constant(0.0))]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::variation::decided_kinds;
    use super::*;

    fn inputs(value: &Expr) -> Vec<&str> {
        match value {
            Expr::Input(name) => vec![name],
            Expr::Apply(_, arguments) => arguments.iter().flat_map(inputs).collect(),
            Expr::Constant(_) | Expr::EventTable(_) => Vec::new(),
        }
    }

    #[test]
    fn seeds_read_what_their_decisions_have() {
        let mut read = 0;
        for kind in decided_kinds() {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            for program in seeds(&grammar) {
                for (value, decision) in program.values.iter().zip(&grammar.decisions) {
                    let known = |name: &&str| decision.inputs.iter().any(|input| input.name == **name);
                    let names = inputs(value);
                    assert!(names.iter().all(known), "{}: {names:?}", decision.function);
                    read += names.len();
                }
            }
        }
        assert!(read > 20, "{read}");
    }

    #[test]
    fn seeds_of_several_decisions_are_combined() {
        let grammar = Grammar::new(&[Kind::Admission, Kind::Fairness, Kind::Scheduling]).expect("kinds of the grammar");
        let all = seeds(&grammar);
        let nothing = neutral(&grammar);
        let decided =
            |program: &Program| program.values.iter().zip(&nothing.values).filter(|(one, other)| one != other).count();
        assert_eq!(all.iter().map(decided).collect::<Vec<_>>(), [0, 1, 1, 1, 3]);
    }
}
