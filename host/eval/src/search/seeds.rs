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

/// The programs, each once: for every decision the values of its kind, for the other decisions a constant.
pub(super) fn seeds(grammar: &Grammar) -> Vec<Program> {
    let Program { values: empty, .. } = neutral(grammar);
    let mut all = vec![neutral(grammar)];
    for (at, decision) in grammar.decisions.iter().enumerate() {
        for value in values(decision) {
            let mut values = empty.clone();
            values[at] = value;
            all.push(Program { values, memories: Vec::new() });
        }
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

fn values(decision: &DecisionGrammar) -> Vec<Expr> {
    if decision.kind == Kind::Routing { routing() } else { Vec::new() }
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
