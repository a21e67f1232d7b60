//! Random programs, mutation and crossover.

#[cfg(test)]
use blis_plugin::Kind;
use blis_sim::rng::Generator;
use rand::RngExt as _;
use strum::VariantArray as _;

use super::grammar::{DecisionGrammar, DecisionOutput, Grammar, Input, Operator, PatternSignal};
use super::program::{Amount, EventTable, Expr, Happening, Key, NameKey, Program, rounded};
use super::sampled::{range, spread};
use super::seeds::neutral;

/// Nodes of a program; larger offspring is cut.
pub(super) const SIZE_MAX: usize = 48;
/// Levels of an expression, so that scripts stay within their nested expressions.
pub(super) const DEPTH_MAX: usize = 12;
/// Levels of a random expression.
const NEW_DEPTH: usize = 4;
/// Tables of a program.
pub(super) const MEMORIES_MAX: usize = 2;

/// How a program came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub(super) enum Operation {
    Seed,
    /// One input alone.
    Single,
    Random,
    Mutation,
    Crossover,
    Constants,
    /// By a language model.
    Model,
}

/// Makes programs of a grammar.
pub(super) struct ProgramGenerator<'a> {
    pub grammar: &'a Grammar,
    pub draw: Generator,
    /// Signals that patterns over decisions of the parent name: drawn more often.
    pub favoured: Vec<PatternSignal>,
    /// Inputs of a program that was drawn like a parent: those of good programs are drawn more often.
    pub common: Vec<String>,
}

/// Share of new inputs that are drawn from those of a good program, if it has any of the decision.
const COMMON: f64 = 0.5;
/// Share of new inputs that are drawn from those that patterns name, if they name any of the decision.
const FAVOURED: f64 = 0.25;
/// Share of mutations that add a term in the input that tells the best alternative, if there is one.
const DIRECTED: f64 = 0.25;

/// Share of the changes of a truth that join it with another condition.
const JOINED: f64 = 0.4;
/// Share of the other changes that add a term in an input, or subtract it.
const TERM: f64 = 0.2;
/// Share of these in which it is an input as it is, with the unit of one that the part reads, if there is one.
const SAME_UNIT: f64 = 0.5;
/// Share of the other changes that multiply a part by an input, or divide it.
const FACTOR: f64 = 0.15;
/// Share of these in which it is multiplied or divided by 1 + a multiple of the input, so that the part keeps its size.
const RELATIVE: f64 = 0.6;
/// Share of the comparisons that are with another input of the same unit, if there is one.
const COMPARED_INPUTS: f64 = 0.3;

impl<'a> ProgramGenerator<'a> {
    /// One that knows of no program.
    pub fn new(grammar: &'a Grammar, draw: Generator) -> Self {
        Self { grammar, draw, favoured: Vec::new(), common: Vec::new() }
    }
}

impl ProgramGenerator<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.draw.random_range(0..n.max(1))
    }

    fn chance(&mut self, share: f64) -> bool {
        self.draw.random::<f64>() < share
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A random program, with tables in half of the cases. Of several decisions at least one is random, of the others three in ten.
    pub fn random(&mut self) -> Program {
        let memories = if self.has_memory() && self.chance(0.5) { vec![self.memory()] } else { Vec::new() };
        let grammar = self.grammar;
        let Program { mut values, .. } = neutral(grammar);
        let one = self.below(values.len());
        for (at, (value, decision)) in values.iter_mut().zip(&grammar.decisions).enumerate() {
            if at == one || self.chance(0.3) {
                *value = self.decided(decision, memories.len(), NEW_DEPTH);
            }
        }
        Program { values, memories }.without_unread()
    }

    /// A program that differs from `parent` by one to three changes.
    pub fn mutated(&mut self, parent: &Program) -> Program {
        let mut child = parent.clone();
        let changes = 1 + usize::from(self.chance(0.3)) + usize::from(self.chance(0.1));
        for _ in 0..changes {
            child = self.changed(child);
        }
        if let Some((at, name, rises)) = self.better_input()
            && self.chance(DIRECTED)
        {
            let function = if rises { Operator::Add } else { Operator::Subtract };
            child = self.with_term(child, at, 0, function, Expr::Input(name));
        }
        self.fitting(child, parent)
    }

    /// An input that tells the best alternative to wrong decisions of the parent: the decision, the name, and whether more of it is
    /// better. Only of decisions in which the highest value wins.
    fn better_input(&self) -> Option<(usize, String, bool)> {
        let highest_wins = |decision: &DecisionGrammar| {
            matches!(decision.output, DecisionOutput::Column | DecisionOutput::Choice) && decision.rows.is_some()
        };
        let of_decision = |(at, decision): (usize, &DecisionGrammar)| {
            let tells = |input: &Input| -> Option<(usize, String, bool)> {
                let named = self.favoured.iter().find(|one| is_named(one, decision, input))?;
                named.rises.filter(|_| input.is_column).map(|rises| (at, input.name.clone(), rises))
            };
            decision.inputs.iter().find_map(tells).filter(|_| highest_wins(decision))
        };
        self.grammar.decisions.iter().enumerate().find_map(of_decision)
    }

    /// `program` with `condition` joined to its decision `at`: both, or one of both.
    fn joined(&mut self, mut program: Program, at: usize, condition: Expr) -> Program {
        let function = self.one_of(&[Operator::Min, Operator::Max]);
        let old = std::mem::replace(&mut program.values[at], Expr::Constant(0.0));
        program.values[at] = Expr::Apply(function, vec![old, condition]);
        program
    }

    /// `program` with an input added to its decision `at`, or to a part of it, or subtracted: a multiple of any, or one of the same
    /// unit as it is.
    fn with_other_term(&mut self, mut program: Program, at: usize) -> Program {
        let decision = &self.grammar.decisions[at];
        if decision.inputs.is_empty() {
            return program;
        }
        let mut index = if self.chance(0.7) { 0 } else { self.below(program.values[at].size()) };
        let function = self.one_of(&[Operator::Add, Operator::Subtract]);
        let units = program.values[at].node_mut(&mut { index }).map(|node| units(decision, node)).unwrap_or_default();
        if self.chance(SAME_UNIT)
            && let Some(input) = self.input_of(decision, &units)
            && let Some(node) = program.values[at].node_mut(&mut index)
        {
            let old = std::mem::replace(node, Expr::Constant(0.0));
            *node = Expr::Apply(function, vec![old, Expr::read(input)]);
            return program;
        }
        let input = Expr::read(self.any_input(decision));
        self.with_term(program, at, index, function, input)
    }

    /// `program` with its decision `at`, or a part of it, multiplied or divided by an input or by 1 + a multiple of it.
    fn with_factor(&mut self, mut program: Program, at: usize) -> Program {
        let decision = &self.grammar.decisions[at];
        if decision.inputs.is_empty() {
            return program;
        }
        let mut index = if self.chance(0.5) { 0 } else { self.below(program.values[at].size()) };
        let function = self.one_of(&[Operator::Multiply, Operator::Divide]);
        let input = Expr::read(self.any_input(decision));
        let factor = if self.chance(RELATIVE) { self.relative(decision, input) } else { input };
        if let Some(node) = program.values[at].node_mut(&mut index) {
            let old = std::mem::replace(node, Expr::Constant(0.0));
            *node = Expr::Apply(function, vec![old, factor]);
        }
        program
    }

    /// 1 + a multiple of `input`, which is about 1 where the input has the size that it usually has, or a tenth, or 10.
    fn relative(&mut self, decision: &DecisionGrammar, input: Expr) -> Expr {
        let share = 10f64.powf(2.0 * self.draw.random::<f64>() - 1.0);
        let multiple = Expr::Constant(rounded(share / spread(decision, &input).unwrap_or(1.0)));
        let product = Expr::Apply(Operator::Multiply, vec![input, multiple]);
        Expr::Apply(Operator::Add, vec![product, Expr::Constant(1.0)])
    }

    /// An input of `decision`, which has one: that of a good program in half of the cases.
    fn any_input<'d>(&mut self, decision: &'d DecisionGrammar) -> &'d Input {
        if self.chance(COMMON) {
            let known: Vec<&Input> = self.common.iter().filter_map(|name| decision.input(name)).collect();
            if !known.is_empty() {
                return self.one_of(&known);
            }
        }
        &decision.inputs[self.below(decision.inputs.len())]
    }

    /// An input with one of `units`, if there is one.
    fn input_of<'d>(&mut self, decision: &'d DecisionGrammar, units: &[&str]) -> Option<&'d Input> {
        let alike: Vec<&Input> = decision.inputs.iter().filter(|one| units.contains(&one.unit)).collect();
        (!alike.is_empty()).then(|| self.one_of(&alike))
    }

    /// `program` with `function` of its part `index` of the decision `at` and a multiple of `input`. The factor follows from the values
    /// of both, so that the term changes much, or little, or decides where the rest is equal.
    fn with_term(
        &mut self,
        mut program: Program,
        at: usize,
        mut index: usize,
        function: Operator,
        input: Expr,
    ) -> Program {
        let decision = &self.grammar.decisions[at];
        let share = 10f64.powf(4.0 * self.draw.random::<f64>() - 2.0);
        let Some(node) = program.values[at].node_mut(&mut index) else { return program };
        let factor = match (spread(decision, node), spread(decision, &input)) {
            (Some(all), Some(one)) => rounded(share * all / one),
            _ => rounded(share),
        };
        let term = Expr::Apply(Operator::Multiply, vec![input, Expr::Constant(factor)]);
        let old = std::mem::replace(node, Expr::Constant(0.0));
        *node = Expr::Apply(function, vec![old, term]);
        program
    }

    /// A program with a part of `other` instead of a part of `parent`, or with whole decisions of it.
    pub fn crossed(&mut self, parent: &Program, other: &Program) -> Program {
        let mut child = parent.clone();
        let at = self.below(child.values.len());
        let shift = child.memories.len();
        if shift + other.memories.len() <= MEMORIES_MAX {
            child.memories.extend(other.memories.iter().copied());
        }
        let memories = child.memories.len();
        if child.values.len() > 1 && self.chance(0.4) {
            for decision in 0..child.values.len() {
                if decision == at || self.chance(0.3) {
                    child.values[decision] = shifted(other.values[decision].clone(), shift, memories);
                }
            }
            return self.fitting(child, parent);
        }
        let mut source = other.values[at].clone();
        if is_truth(&self.grammar.decisions[at]) && self.chance(0.3) {
            let child = self.joined(child, at, shifted(source, shift, memories));
            return self.fitting(child, parent);
        }
        let mut from = self.below(source.size());
        let Some(part) = source.node_mut(&mut from) else { return child };
        let part = shifted(part.clone(), shift, memories);
        let mut to = self.below(child.values[at].size());
        if let Some(node) = child.values[at].node_mut(&mut to) {
            *node = part;
        }
        self.fitting(child, parent)
    }

    /// `child` if it is within the limits, else a small change of `parent`.
    fn fitting(&mut self, child: Program, parent: &Program) -> Program {
        let child = child.without_unread();
        let fits = child.size() <= SIZE_MAX && child.values.iter().all(|value| value.depth() <= DEPTH_MAX);
        if fits { child } else { self.with_other_constant(parent.clone()) }
    }

    fn changed(&mut self, mut program: Program) -> Program {
        let at = self.below(program.values.len());
        let grammar = self.grammar;
        let decision = &grammar.decisions[at];
        if decision.has_memory && self.chance(0.15) {
            return self.with_other_memory(program, at);
        }
        if self.chance(0.25) {
            return if self.chance(0.3) {
                self.with_measured_constant(program, at)
            } else {
                self.with_other_constant(program)
            };
        }
        let memories = program.memories.len();
        if is_truth(decision) && self.chance(JOINED) {
            let condition = if self.chance(0.7) {
                self.comparison(decision)
            } else {
                self.decided(decision, memories, NEW_DEPTH - 1)
            };
            return self.joined(program, at, condition);
        }
        if self.chance(TERM) {
            return self.with_other_term(program, at);
        }
        if self.chance(FACTOR) {
            return self.with_factor(program, at);
        }
        let mut index = self.below(program.values[at].size());
        let change = self.below(10);
        let leaf = self.leaf(decision, memories);
        let is_truth = index == 0 && is_truth(decision);
        let fresh = match is_truth {
            true => self.decided(decision, memories, NEW_DEPTH - 1),
            false => self.expression(decision, memories, NEW_DEPTH - 1),
        };
        // Of two conditions, one or both.
        let functions: &[Operator] =
            if is_truth && self.chance(0.5) { &[Operator::Min, Operator::Max] } else { &Operator::TWO };
        let Some(node) = program.values[at].node_mut(&mut index) else { return program };
        match change {
            // Another part instead of it.
            0..3 => *node = fresh,
            // A part of it instead of it.
            3 => {
                if let Expr::Apply(_, arguments) = node {
                    let kept = self.below(arguments.len());
                    *node = arguments.swap_remove(kept);
                }
            }
            // One function of it and another part.
            4..7 => {
                let function = self.one_of(functions);
                let old = std::mem::replace(node, Expr::Constant(0.0));
                let mut both = if self.chance(0.5) { vec![old, fresh] } else { vec![fresh, old] };
                self.measure_constants(decision, function, &mut both);
                *node = Expr::Apply(function, both);
            }
            // Another function of the same parts, or another leaf.
            7..9 => match node {
                Expr::Apply(function, arguments) => {
                    let same: &[Operator] = match arguments.len() {
                        1 => &Operator::ONE,
                        2 => &Operator::TWO,
                        _ => &[Operator::IfLess],
                    };
                    *function = self.one_of(same);
                    arguments.rotate_left(self.draw.random_range(0..=1));
                }
                Expr::Constant(_) | Expr::Input(_) | Expr::EventTable(_) => *node = leaf,
            },
            // A function of it alone, or a condition around it.
            _ => {
                let old = std::mem::replace(node, Expr::Constant(0.0));
                *node = if self.chance(0.5) {
                    Expr::Apply(self.one_of(&Operator::ONE), vec![old])
                } else {
                    let mut parts = vec![leaf, Expr::Constant(self.constant()), old, fresh];
                    self.measure_constants(decision, Operator::IfLess, &mut parts);
                    if self.chance(0.5) {
                        parts.swap(2, 3);
                    }
                    Expr::Apply(Operator::IfLess, parts)
                };
            }
        }
        program
    }

    /// With the size of a part for a constant beside it; with another constant if there is none.
    fn with_measured_constant(&mut self, mut program: Program, at: usize) -> Program {
        let decision = &self.grammar.decisions[at];
        let size = program.values[at].size();
        let first = self.below(size);
        for index in (first..size).chain(0..first) {
            let Some(Expr::Apply(function, arguments)) = program.values[at].node_mut(&mut { index }) else { continue };
            let before = arguments.clone();
            self.measure_constants(decision, *function, arguments);
            if *arguments != before {
                return program;
            }
        }
        self.with_other_constant(program)
    }

    fn with_other_constant(&mut self, program: Program) -> Program {
        let mut constants = program.constants();
        if constants.is_empty() {
            return program;
        }
        let at = self.below(constants.len());
        let factor = (1.5 * (self.draw.random::<f64>() - self.draw.random::<f64>())).exp();
        let fresh = self.constant();
        let sign = if self.chance(0.05) { -1.0 } else { 1.0 };
        constants[at] = if self.chance(0.2) { fresh } else { constants[at] * factor * sign };
        program.with_constants(&constants)
    }

    /// Adds a table and a part that reads it, or replaces or changes a table.
    fn with_other_memory(&mut self, mut program: Program, at: usize) -> Program {
        let count = program.memories.len();
        if count < MEMORIES_MAX && (count == 0 || self.chance(0.4)) {
            program.memories.push(self.memory());
            let mut index = self.below(program.values[at].size());
            let (function, weight) = (self.one_of(&Operator::TWO), Expr::Constant(self.constant()));
            if let Some(node) = program.values[at].node_mut(&mut index) {
                let old = std::mem::replace(node, Expr::Constant(0.0));
                let read = Expr::Apply(Operator::Multiply, vec![Expr::EventTable(count), weight]);
                *node = Expr::Apply(function, vec![old, read]);
            }
            return program;
        }
        let number = self.below(count);
        let fresh = self.memory();
        let memory = &mut program.memories[number];
        match self.draw.random_range(0..4) {
            0 => memory.key = fresh.key,
            1 => (memory.amount, memory.replaces) = (fresh.amount, fresh.replaces),
            2 => memory.decay_ms = fresh.decay_ms,
            _ => *memory = fresh,
        }
        program.memories[number] = consistent(program.memories[number]);
        program
    }

    fn has_memory(&self) -> bool {
        self.grammar.decisions.iter().any(|decision| decision.has_memory)
    }

    fn memory(&mut self) -> EventTable {
        let name = if self.chance(0.75) { Some(self.one_of(NameKey::VARIANTS)) } else { None };
        let key = Key { by_instance: self.chance(0.8), name };
        let on = self.one_of(Happening::VARIANTS);
        let until = if self.chance(0.25) { Some(self.one_of(Happening::VARIANTS)) } else { None };
        let amounts = [Amount::One, Amount::One, Amount::InputTokens, Amount::GeneratedTokens, Amount::Ttft];
        let amount = self.one_of(&amounts);
        let decay = rounded(10f64.powf(1.0 + 4.5 * self.draw.random::<f64>()));
        let decay_ms = self.chance(0.6).then_some(decay);
        let replaces = self.chance(0.5);
        consistent(EventTable { on, until, key, amount, replaces, decay_ms })
    }

    /// An expression for the whole decision: in half of the cases a comparison, if the decision is a truth.
    fn decided(&mut self, decision: &DecisionGrammar, memories: usize, depth: usize) -> Expr {
        if !is_truth(decision) || self.chance(0.5) {
            return self.expression(decision, memories, depth);
        }
        let depths = [1, if self.chance(0.5) { 1 } else { depth - 1 }];
        let mut both: Vec<Expr> = depths.iter().map(|&depth| self.expression(decision, memories, depth)).collect();
        if self.chance(0.5) {
            both.swap(0, 1);
        }
        self.measure_constants(decision, Operator::Subtract, &mut both);
        Expr::Apply(Operator::Subtract, both)
    }

    /// One input compared with a value that it had, or with another input.
    fn comparison(&mut self, decision: &DecisionGrammar) -> Expr {
        if decision.inputs.is_empty() {
            return Expr::Constant(self.constant());
        }
        let input = self.any_input(decision);
        let compared = self.chance(COMPARED_INPUTS) && !input.unit.is_empty();
        let other = if compared { self.input_of(decision, &[input.unit]) } else { None };
        let limit = other.map(Expr::read).unwrap_or_else(|| {
            let share = self.draw.random();
            Expr::Constant(input.measured.map_or_else(|| self.constant(), |range| rounded(range.at(share))))
        });
        let mut both = vec![Expr::read(input), limit];
        if self.chance(0.5) {
            both.swap(0, 1);
        }
        Expr::Apply(Operator::Subtract, both)
    }

    fn expression(&mut self, decision: &DecisionGrammar, memories: usize, depth: usize) -> Expr {
        if depth <= 1 || self.chance(0.2) {
            return self.leaf(decision, memories);
        }
        let function = match self.draw.random_range(0..10) {
            0..3 => self.one_of(&Operator::ONE),
            9 => Operator::IfLess,
            _ => self.one_of(&Operator::TWO),
        };
        let mut arguments: Vec<Expr> =
            (0..function.arguments()).map(|_| self.expression(decision, memories, depth - 1)).collect();
        self.measure_constants(decision, function, &mut arguments);
        Expr::Apply(function, arguments)
    }

    /// A constant that is compared with a part, added to it or subtracted gets, in most cases, a value that the part has.
    fn measure_constants(&mut self, decision: &DecisionGrammar, function: Operator, arguments: &mut [Expr]) {
        let [one, other, ..] = arguments else { return };
        let ((Expr::Constant(constant), part) | (part, Expr::Constant(constant))) = (one, other) else { return };
        if function == Operator::Multiply || !self.chance(0.75) {
            return;
        }
        if let Some(range) = range(decision, part) {
            let factor = (0.5 * (self.draw.random::<f64>() - self.draw.random::<f64>())).exp();
            let value = rounded(range.at(self.draw.random()) * factor);
            *constant = if value == 0.0 { *constant } else { value };
        }
    }

    fn leaf(&mut self, decision: &DecisionGrammar, memories: usize) -> Expr {
        if memories > 0 && decision.has_memory && self.chance(0.2) {
            return Expr::EventTable(self.below(memories));
        }
        if decision.inputs.is_empty() || self.chance(0.25) {
            return Expr::Constant(self.constant());
        }
        let favoured: Vec<usize> = (0..decision.inputs.len()).filter(|&at| self.is_favoured(decision, at)).collect();
        if !favoured.is_empty() && self.chance(FAVOURED) {
            let at = self.one_of(&favoured);
            return Expr::Input(decision.inputs[at].name.clone());
        }
        Expr::read(self.any_input(decision))
    }

    /// Whether a pattern names the input `at` of `decision`.
    fn is_favoured(&self, decision: &DecisionGrammar, at: usize) -> bool {
        self.favoured.iter().any(|one| is_named(one, decision, &decision.inputs[at]))
    }

    /// Of any order of magnitude from 0.001 to 10 000.
    fn constant(&mut self) -> f64 {
        let size = 10f64.powf(7.0 * self.draw.random::<f64>() - 3.0);
        rounded(if self.chance(0.2) { -size } else { size })
    }
}

/// The units of the inputs that `expr` reads.
fn units(decision: &DecisionGrammar, expr: &Expr) -> Vec<&'static str> {
    match expr {
        Expr::Input(name) => {
            decision.input(name).map(|one| one.unit).filter(|unit| !unit.is_empty()).into_iter().collect()
        }
        Expr::Apply(_, arguments) => arguments.iter().flat_map(|one| units(decision, one)).collect(),
        Expr::Constant(_) | Expr::EventTable(_) => Vec::new(),
    }
}

/// Whether the sign of an expression decides, so that a difference is a comparison.
fn is_truth(decision: &DecisionGrammar) -> bool {
    matches!(decision.output, DecisionOutput::Truth | DecisionOutput::Truths)
}

/// Whether `pattern` names `input` of `decision`.
pub(super) fn is_named(pattern: &PatternSignal, decision: &DecisionGrammar, input: &Input) -> bool {
    let field = input.name.rsplit('.').next().unwrap_or(&input.name);
    let is_of = pattern.kind == decision.kind.name() || pattern.kind == decision.function;
    is_of && pattern.signal == field
}

/// Only what an event adds, and nothing else changes, can be subtracted by another.
pub(super) fn consistent(memory: EventTable) -> EventTable {
    let known_at_both = matches!(memory.amount, Amount::One | Amount::InputTokens);
    let pairs = memory.on == Happening::Routed && memory.until.is_some_and(|until| until != Happening::Routed);
    let until = memory.until.filter(|_| pairs && known_at_both);
    match until {
        Some(_) => EventTable { until, replaces: false, decay_ms: None, ..memory },
        None => EventTable { until, ..memory },
    }
}

/// `part` with the numbers of its tables behind those of another program, which has `count` now.
fn shifted(part: Expr, shift: usize, count: usize) -> Expr {
    match part {
        Expr::EventTable(number) if number + shift < count => Expr::EventTable(number + shift),
        Expr::EventTable(number) if number < count => Expr::EventTable(number),
        Expr::EventTable(_) => Expr::Constant(0.0),
        Expr::Apply(function, arguments) => {
            Expr::Apply(function, arguments.into_iter().map(|one| shifted(one, shift, count)).collect())
        }
        leaf => leaf,
    }
}

/// The kinds of the grammar.
#[cfg(test)]
pub(super) fn decided_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.is_decision())
}

#[cfg(test)]
mod tests {
    use blis_plugin::inputs::{GuestCall, ties};
    use blis_plugin::{Limits, check, script};
    use blis_sim::rng::Stream;
    use std::path::Path;

    use super::super::grammar::Grammar;
    use super::*;

    /// Loads the script of a program and makes a call of each of its kinds.
    fn assert_runs(program: &Program, grammar: &Grammar) {
        let source = program.source(grammar);
        let limits = Limits::default();
        let plugin = script::load(Path::new("found.rhai"), &source, &limits);
        let plugin = plugin.unwrap_or_else(|fault| panic!("{fault:?}\n{source}"));
        for decision in &grammar.decisions {
            let mut guest = plugin.start(&check::setup(&*plugin, decision.kind, 4, &limits)).expect("it starts");
            // The CPU tier has three functions, which follow each other.
            for item in 0..3 {
                let called = GuestCall::plausible(decision.kind, 4, item).run(&mut *guest, &ties());
                called.unwrap_or_else(|fault| panic!("{}: {fault:?}\n{source}", decision.function));
            }
        }
    }

    #[test]
    fn every_input_of_every_kind_can_be_read() {
        for kind in decided_kinds() {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            let most = grammar.decisions.iter().map(|one| one.inputs.len()).max().unwrap_or(0);
            assert!(most > 0, "{kind:?}");
            for at in 0..most {
                let value = |one: &DecisionGrammar| match one.inputs.get(at) {
                    Some(input) => Expr::Input(input.name.clone()),
                    None => Expr::Constant(1.0),
                };
                let values = grammar.decisions.iter().map(value).collect();
                assert_runs(&Program { values, memories: Vec::new() }, &grammar);
            }
        }
    }

    #[test]
    fn truths_are_often_comparisons() {
        let compared = |kind: Kind| {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            let mut made = ProgramGenerator::new(&grammar, Stream::new(1, kind.name()).at(0));
            let is_difference = |value: &Expr| matches!(value, Expr::Apply(Operator::Subtract, _));
            (0..200).filter(|_| is_difference(&made.random().values[0])).count()
        };
        assert!(compared(Kind::Admission) > 80 && compared(Kind::Scheduling) < 50);
    }

    #[test]
    fn inputs_that_are_added_as_they_are_have_the_unit_of_another() {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let decision = &grammar.decisions[0];
        let mut made = ProgramGenerator::new(&grammar, Stream::new(1, "test").at(0));
        let tokens = Expr::Input("s.in_flight_tokens".to_owned());
        let mut as_they_are = 0;
        for _ in 0..200 {
            let program = Program { values: vec![tokens.clone()], memories: Vec::new() };
            let Program { values, .. } = made.with_other_term(program, 0);
            let Expr::Apply(Operator::Add | Operator::Subtract, parts) = &values[0] else { panic!("{values:?}") };
            if let Expr::Input(_) = &parts[1] {
                as_they_are += 1;
                assert_eq!(units(decision, &parts[1]), ["tokens"], "{parts:?}");
            }
        }
        assert!((60..140).contains(&as_they_are), "{as_they_are}");
    }

    #[test]
    fn two_inputs_are_compared_if_they_have_a_unit_in_common() {
        let grammar = Grammar::new(&[Kind::Disaggregation]).expect("disaggregation");
        let decision = &grammar.decisions[0];
        let mut made = ProgramGenerator::new(&grammar, Stream::new(1, "test").at(0));
        let mut of_inputs = 0;
        for _ in 0..200 {
            let Expr::Apply(Operator::Subtract, parts) = made.comparison(decision) else { panic!("no comparison") };
            if let [Expr::Input(_), Expr::Input(_)] = &parts[..] {
                of_inputs += 1;
                assert_eq!(units(decision, &parts[0]), units(decision, &parts[1]), "{parts:?}");
            }
        }
        assert!((10..100).contains(&of_inputs), "{of_inputs}");
    }

    #[test]
    fn inputs_of_a_good_program_are_drawn_more_often() {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let common = vec!["s.queue_depth".to_owned(), "s.unknown".to_owned()];
        let mut made = ProgramGenerator { common, ..ProgramGenerator::new(&grammar, Stream::new(1, "test").at(0)) };
        let drawn = (0..200).filter(|_| made.any_input(&grammar.decisions[0]).name == "s.queue_depth").count();
        assert!((70..140).contains(&drawn), "{drawn}");
    }

    #[test]
    fn a_part_is_multiplied_by_an_input_or_divided() {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let mut made = ProgramGenerator::new(&grammar, Stream::new(1, "test").at(0));
        for _ in 0..20 {
            let program = Program { values: vec![Expr::Constant(2.0)], memories: Vec::new() };
            let Program { values, .. } = made.with_factor(program, 0);
            let Expr::Apply(Operator::Multiply | Operator::Divide, parts) = &values[0] else { panic!("{values:?}") };
            let is_factor = |one: &Expr| matches!(one, Expr::Input(_) | Expr::Apply(Operator::Add, _));
            assert!(matches!(parts[0], Expr::Constant(_)) && is_factor(&parts[1]), "{parts:?}");
        }
    }

    #[test]
    fn random_programs_and_their_offspring_run() {
        for kind in decided_kinds() {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            let mut made = ProgramGenerator::new(&grammar, Stream::new(1, kind.name()).at(0));
            let mut program = made.random();
            for _ in 0..40 {
                let other = made.random();
                assert_runs(&other, &grammar);
                program = made.mutated(&program);
                program = made.crossed(&program, &other);
                assert!(program.size() <= SIZE_MAX, "{program:?}");
                let archived = serde_json::to_string(&program).expect("a document");
                assert_eq!(serde_json::from_str::<Program>(&archived).expect("the same"), program);
                assert_eq!(program.with_constants(&program.constants()).source(&grammar), program.source(&grammar));
                assert_runs(&program, &grammar);
            }
        }
    }
}
