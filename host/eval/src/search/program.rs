//! Programs: an expression for each decision, and tables that events fill. A program is printed as a script.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::grammar::{DecisionGrammar, DecisionOutput, Grammar, Input, Operator};

/// An expression: a number, or a number for each row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Expr {
    Constant(f64),
    /// An input by its name.
    Input(String),
    /// The entry of each row in the table of this number.
    EventTable(usize),
    Apply(Operator, Vec<Expr>),
}

/// A candidate of the search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Program {
    /// An expression for each decision of the grammar.
    pub values: Vec<Expr>,
    pub memories: Vec<EventTable>,
}

/// A table of numbers that events change, with an entry for each instance, name, or pair of both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EventTable {
    /// The event that adds to an entry, or replaces it.
    pub on: Happening,
    /// The event of the same request that subtracts what was added.
    pub until: Option<Happening>,
    pub key: Key,
    pub amount: Amount,
    /// Whether the entry is replaced rather than added to.
    pub replaces: bool,
    /// Time in which entries fall to 1/e, ms; `None` if they stay.
    pub decay_ms: Option<f64>,
}

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub(super) enum Happening {
    Routed,
    FirstToken,
    Completed,
}

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    /// Whether each instance has entries of its own.
    pub by_instance: bool,
    pub name: Option<NameKey>,
}

/// A name of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NameKey {
    PrefixGroup,
    Session,
    Tenant,
    SloClass,
}

impl NameKey {
    fn field(self) -> &'static str {
        match self {
            Self::PrefixGroup => "prefix_group_number",
            Self::Session => "session_number",
            Self::Tenant => "tenant_number",
            Self::SloClass => "slo_class_number",
        }
    }
}

/// What an event adds to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Amount {
    One,
    InputTokens,
    GeneratedTokens,
    /// ms; 1 for an event that comes before it.
    Ttft,
}

/// Entries of a table; a script may have 65 536. A prime number, so that pairs spread over all.
const TABLE_ENTRIES: u32 = 65_521;
/// Distance of the keys of two names.
const NAME_STRIDE: u32 = 1031;

impl Expr {
    /// The value of `input`.
    pub fn read(input: &Input) -> Self {
        Self::Input(input.name.clone())
    }

    /// Number of nodes.
    pub fn size(&self) -> usize {
        match self {
            Self::Apply(_, arguments) => 1 + arguments.iter().map(Self::size).sum::<usize>(),
            Self::Constant(_) | Self::Input(_) | Self::EventTable(_) => 1,
        }
    }

    /// Levels of nodes.
    pub fn depth(&self) -> usize {
        match self {
            Self::Apply(_, arguments) => 1 + arguments.iter().map(Self::depth).max().unwrap_or(0),
            Self::Constant(_) | Self::Input(_) | Self::EventTable(_) => 1,
        }
    }

    /// The node at `index` in the order in which they are written.
    pub fn node_mut(&mut self, index: &mut usize) -> Option<&mut Self> {
        if *index == 0 {
            return Some(self);
        }
        *index -= 1;
        match self {
            Self::Apply(_, arguments) => arguments.iter_mut().find_map(|argument| {
                let size = argument.size();
                if *index < size {
                    return argument.node_mut(index);
                }
                *index -= size;
                None
            }),
            Self::Constant(_) | Self::Input(_) | Self::EventTable(_) => None,
        }
    }

    /// The names of the inputs that it reads, once for each time.
    pub fn inputs(&self) -> Vec<String> {
        match self {
            Self::Input(name) => vec![name.clone()],
            Self::Apply(_, arguments) => arguments.iter().flat_map(Self::inputs).collect(),
            Self::Constant(_) | Self::EventTable(_) => Vec::new(),
        }
    }

    fn each_constant(&mut self, change: &mut impl FnMut(&mut f64)) {
        match self {
            Self::Constant(value) => change(value),
            Self::Apply(_, arguments) => arguments.iter_mut().for_each(|argument| argument.each_constant(change)),
            Self::Input(_) | Self::EventTable(_) => {}
        }
    }

    fn each_memory(&mut self, change: &mut impl FnMut(&mut usize)) {
        match self {
            Self::EventTable(number) => change(number),
            Self::Apply(_, arguments) => arguments.iter_mut().for_each(|argument| argument.each_memory(change)),
            Self::Input(_) | Self::Constant(_) => {}
        }
    }
}

impl Program {
    pub fn size(&self) -> usize {
        self.values.iter().map(Expr::size).sum::<usize>() + 2 * self.memories.len()
    }

    /// Its constants, those of decays last.
    pub fn constants(&self) -> Vec<f64> {
        let mut all = Vec::new();
        self.clone().each_constant(|value| all.push(*value));
        all
    }

    /// The same with other constants, in the order of [`Self::constants`].
    pub fn with_constants(&self, constants: &[f64]) -> Self {
        let (mut program, mut next) = (self.clone(), constants.iter());
        program.each_constant(|value| *value = rounded(next.next().copied().unwrap_or(*value)));
        program
    }

    fn each_constant(&mut self, mut change: impl FnMut(&mut f64)) {
        self.values.iter_mut().for_each(|value| value.each_constant(&mut change));
        self.memories.iter_mut().filter_map(|memory| memory.decay_ms.as_mut()).for_each(change);
    }

    /// The same without tables that nothing reads.
    pub fn without_unread(mut self) -> Self {
        let mut read = BTreeSet::new();
        self.values.iter_mut().for_each(|value| value.each_memory(&mut |number| _ = read.insert(*number)));
        let kept: Vec<usize> = read.into_iter().filter(|&number| number < self.memories.len()).collect();
        let index = |number: usize| kept.iter().position(|&one| one == number).unwrap_or(0);
        self.values.iter_mut().for_each(|value| value.each_memory(&mut |number| *number = index(*number)));
        self.memories = kept.into_iter().map(|number| self.memories[number]).collect();
        self
    }

    /// The script.
    pub fn source(&self, grammar: &Grammar) -> String {
        let events: BTreeSet<&str> = self.memories.iter().flat_map(EventTable::events).collect();
        let mut text = "// @name found\n// @about Written by `blis search`.\n".to_owned();
        if !events.is_empty() {
            let tables = |(number, memory): (usize, &EventTable)| match memory.decay_ms {
                Some(_) => format!("m{number}: table(), t{number}: table()"),
                None => format!("m{number}: table()"),
            };
            let tables: Vec<String> = self.memories.iter().enumerate().map(tables).collect();
            let events: Vec<&str> = events.iter().copied().collect();
            // Writing to a text does not fail.
            let _ = writeln!(text, "// @events {}\n", events.join(", "));
            let _ = writeln!(text, "fn init() {{ #{{ {} }} }}", tables.join(", "));
        }
        let mut written: Vec<&str> = Vec::new();
        for decision in &grammar.decisions {
            if !written.contains(&decision.function) {
                written.push(decision.function);
                text.push('\n');
                text.push_str(&self.function(grammar, decision.function));
            }
        }
        if !events.is_empty() {
            text.push('\n');
            text.push_str(&self.observe(&events));
        }
        text
    }

    /// The function called `name`, with all decisions that it makes.
    fn function(&self, grammar: &Grammar, name: &str) -> String {
        let parts: Vec<(&Expr, &DecisionGrammar)> =
            self.values.iter().zip(&grammar.decisions).filter(|(_, decision)| decision.function == name).collect();
        let Some((_, first)) = parts.first() else { return String::new() };
        let mut text = format!("fn {name}({}) {{\n", first.arguments.join(", "));
        let mut used = BTreeSet::new();
        parts.iter().for_each(|(value, _)| (*value).clone().each_memory(&mut |number| _ = used.insert(*number)));
        for number in used {
            let Some(memory) = self.memories.get(number) else { continue };
            // Writing to a text does not fail.
            let _ = writeln!(text, "    let m{number} = {};", memory.read(number));
        }
        let result = |(value, decision): &(&Expr, &DecisionGrammar)| {
            let written = Printer { decision, memories: self.memories.len() }.result(value);
            decision.part.map_or(written.clone(), |part| format!("    {part}: {written},"))
        };
        let results: Vec<String> = parts.iter().map(result).collect();
        let results = results.join("\n    ");
        let _ = match first.part {
            Some(_) => write!(text, "    #{{\n    {results}\n    }}\n}}\n"),
            None => write!(text, "    {results}\n}}\n"),
        };
        text
    }

    fn observe(&self, events: &BTreeSet<&str>) -> String {
        let mut text = "fn observe(e) {\n".to_owned();
        for (number, memory) in self.memories.iter().enumerate() {
            let mut write = |happening: Happening, body: &str| {
                let name = happening.into_str();
                let _ = match events.len() {
                    1 => write!(text, "{}", indented(body, 4)),
                    _ => write!(text, "    if e.kind == \"{name}\" {{\n{}    }}\n", indented(body, 8)),
                };
            };
            write(memory.on, &memory.added(number));
            if let Some(until) = memory.until {
                write(until, &memory.removed(number));
            }
        }
        text.push_str("}\n");
        text
    }
}

fn indented(body: &str, spaces: usize) -> String {
    body.lines().map(|line| format!("{:spaces$}{line}\n", "")).collect()
}

impl EventTable {
    fn events(&self) -> impl Iterator<Item = &'static str> {
        [Some(self.on), self.until].into_iter().flatten().map(<&str>::from)
    }

    /// The column of the entries at a decision.
    fn read(&self, number: usize) -> String {
        let key = match (self.key.by_instance, self.key.name) {
            (true, None) => "s.id".to_owned(),
            (false, None) => "zeros(s.len)".to_owned(),
            (true, Some(name)) => {
                format!("(s.id + {NAME_STRIDE}.0 * r.{}) % {TABLE_ENTRIES}.0", name.field())
            }
            (false, Some(name)) => format!("(zeros(s.len) + r.{}) % {TABLE_ENTRIES}.0", name.field()),
        };
        let entries = format!("this.m{number}.get({key}, 0.0)");
        match self.decay_ms {
            Some(decay) => {
                let decay_us = literal(1000.0 * decay);
                format!("{entries} * exp((this.t{number}.get({key}, 0.0) - s.now) / {decay_us})")
            }
            None => entries,
        }
    }

    fn key_of_event(&self) -> String {
        match (self.key.by_instance, self.key.name) {
            (true, None) => "e.instance".to_owned(),
            (false, None) => "0".to_owned(),
            (true, Some(name)) => format!("(e.instance + {NAME_STRIDE} * e.{}) % {TABLE_ENTRIES}", name.field()),
            (false, Some(name)) => format!("e.{} % {TABLE_ENTRIES}", name.field()),
        }
    }

    fn amount_of_event(&self) -> &'static str {
        match self.amount {
            Amount::InputTokens => "(1.0 * e.input_tokens)",
            Amount::GeneratedTokens => "(1.0 * e.generated_tokens)",
            Amount::Ttft if self.on != Happening::Routed => "(e.ttft / 1000.0)",
            Amount::One | Amount::Ttft => "1.0",
        }
    }

    fn added(&self, number: usize) -> String {
        let (key, amount) = (self.key_of_event(), self.amount_of_event());
        // What a table has is the sum with 0.
        let old = format!("let old{number} = this.m{number}.add(key{number}, 0.0);\n");
        let key = format!("let key{number} = {key};\n");
        match (self.replaces, self.decay_ms) {
            (false, None) => format!("{key}this.m{number}.add(key{number}, {amount});\n"),
            (true, None) => format!("{key}{old}this.m{number}.add(key{number}, {amount} - old{number});\n"),
            (replaces, Some(decay)) => {
                let decay_us = literal(1000.0 * decay);
                let at = format!("let at{number} = this.t{number}.add(key{number}, 0.0);\n");
                let kept = match replaces {
                    true => String::new(),
                    false => format!(" + old{number} * exp((at{number} - e.at) / {decay_us})"),
                };
                format!(
                    "{key}{old}{at}this.m{number}.add(key{number}, {amount}{kept} - old{number});\n\
                     this.t{number}.add(key{number}, e.at - at{number});\n"
                )
            }
        }
    }

    fn removed(&self, number: usize) -> String {
        format!("this.m{number}.add({}, -{});\n", self.key_of_event(), self.amount_of_event())
    }
}

/// Writes the expressions of a decision.
struct Printer<'a> {
    decision: &'a DecisionGrammar,
    memories: usize,
}

impl Printer<'_> {
    /// What the function returns for this decision.
    fn result(&self, value: &Expr) -> String {
        let (written, is_column) = self.text(value);
        match (self.decision.output, is_column, &self.decision.rows) {
            (DecisionOutput::Column, false, Some(rows)) => format!("zeros({rows}) + {written}"),
            (DecisionOutput::Column, ..) | (DecisionOutput::Number, false, _) => written,
            (DecisionOutput::Number, true, _) => format!("mean({written})"),
            (DecisionOutput::NotNegative, true, _) => format!("max(mean({written}), 0.0)"),
            (DecisionOutput::NotNegative, false, _) => format!("max({written}, 0.0)"),
            (DecisionOutput::Truth, true, _) => format!("mean({written}) > 0.0"),
            (DecisionOutput::Truths, false, Some(rows)) => format!("zeros({rows}) + {written} > 0.0"),
            (DecisionOutput::Truth, false, _) | (DecisionOutput::Truths, ..) => format!("{written} > 0.0"),
            (DecisionOutput::Replicas, false, Some(rows)) => {
                format!("zeros({rows}) + ceil(min(max({written}, 0.0), 10000.0))")
            }
            (DecisionOutput::Replicas, ..) => format!("ceil(min(max({written}, 0.0), 10000.0))"),
            (DecisionOutput::Choice, true, _) => written,
            (DecisionOutput::Choice, false, _) => "()".to_owned(),
        }
    }

    /// The text of an expression, and whether it is a column.
    fn text(&self, value: &Expr) -> (String, bool) {
        match value {
            Expr::Constant(number) => (literal(*number), false),
            Expr::Input(name) => match self.decision.inputs.iter().find(|input| input.name == *name) {
                Some(input) => (input.text.clone(), input.is_column),
                None => ("0.0".to_owned(), false),
            },
            Expr::EventTable(number) if self.decision.has_memory && *number < self.memories => {
                (format!("m{number}"), true)
            }
            Expr::EventTable(_) => ("0.0".to_owned(), false),
            Expr::Apply(function, arguments) => {
                if let (Operator::Divide, [one, Expr::Constant(divisor)]) = (function, &arguments[..]) {
                    let (text, is_column) = self.text(one);
                    return (format!("({text} / {})", literal(divisor.abs().max(0.001))), is_column);
                }
                let arguments: Vec<(String, bool)> = arguments.iter().map(|argument| self.text(argument)).collect();
                self.applied(*function, &arguments)
            }
        }
    }

    fn applied(&self, function: Operator, arguments: &[(String, bool)]) -> (String, bool) {
        let any = arguments.iter().any(|(_, is_column)| *is_column);
        let text = match (function, arguments) {
            (Operator::Add, [(a, _), (b, _)]) => format!("({a} + {b})"),
            (Operator::Subtract, [(a, _), (b, _)]) => format!("({a} - {b})"),
            (Operator::Multiply, [(a, _), (b, _)]) => format!("({a} * {b})"),
            (Operator::Divide, [(a, _), (b, _)]) => format!("({a} / max(abs({b}), 0.001))"),
            (Operator::Min, [(a, _), (b, _)]) => format!("min({a}, {b})"),
            (Operator::Max, [(a, _), (b, _)]) => format!("max({a}, {b})"),
            (Operator::Negative, [(a, _)]) => format!("(-{a})"),
            (Operator::Root, [(a, _)]) => format!("sqrt(abs({a}))"),
            (Operator::Log, [(a, _)]) => format!("ln(1.0 + abs({a}))"),
            (Operator::FewestBest, [(a, true)]) => format!("fewest_best({a})"),
            (Operator::MostBest, [(a, true)]) => format!("most_best({a})"),
            (Operator::Lowest, [(a, true)]) => format!("min({a})"),
            (Operator::Highest, [(a, true)]) => format!("max({a})"),
            (Operator::Mean, [(a, true)]) => format!("mean({a})"),
            (Operator::Sum, [(a, true)]) => format!("sum({a})"),
            (Operator::IfLess, [(a, one), (b, other), c, d]) if *one || *other => {
                format!("select({a} < {b}, {}, {})", c.0, d.0)
            }
            (Operator::IfLess, [(a, _), (b, _), c, d]) => {
                let [c, d] = [c, d].map(|(text, is_column)| match (&self.decision.rows, any && !is_column) {
                    (Some(rows), true) => format!("(zeros({rows}) + {text})"),
                    _ => text.clone(),
                });
                format!("(if {a} < {b} {{ {c} }} else {{ {d} }})")
            }
            // Over the rows of a single number.
            (_, [(a, _), ..]) => a.clone(),
            (_, []) => "0.0".to_owned(),
        };
        (text, any && !function.is_over_rows())
    }
}

/// A number with four significant digits.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The number as a script has it; a negative one in parentheses.
pub(super) fn literal(value: f64) -> String {
    let value = rounded(value);
    let text = if value.fract() == 0.0 { format!("{value:.1}") } else { format!("{value}") };
    if value < 0.0 { format!("({text})") } else { text }
}

#[cfg(test)]
mod tests {
    use blis_plugin::Kind;

    use super::*;

    fn input(name: &str) -> Expr {
        Expr::Input(name.to_owned())
    }

    #[test]
    fn a_program_is_printed_as_a_script() {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let key = Key { by_instance: true, name: Some(NameKey::PrefixGroup) };
        let (amount, decay_ms) = (Amount::One, Some(12_345.678));
        let memory = EventTable { on: Happening::Routed, until: None, key, amount, replaces: true, decay_ms };
        let unread = EventTable { on: Happening::Completed, ..memory };
        let short = Expr::Apply(
            Operator::IfLess,
            vec![input("r.input_tokens"), Expr::Constant(500.0), input("s.ttft_ewma"), Expr::Constant(-2.0)],
        );
        let value = Expr::Apply(Operator::Add, vec![Expr::EventTable(1), short]);
        let program = Program { values: vec![value], memories: vec![unread, memory] }.without_unread();
        assert_eq!((program.size(), program.constants()), (9, vec![500.0, -2.0, 12_345.678]));
        let expected = "\
// @name found
// @about Written by `blis search`.
// @events routed

fn init() { #{ m0: table(), t0: table() } }

fn route(r, s) {
    let m0 = this.m0.get((s.id + 1031.0 * r.prefix_group_number) % 65521.0, 0.0) * \
exp((this.t0.get((s.id + 1031.0 * r.prefix_group_number) % 65521.0, 0.0) - s.now) / 12350000.0);
    (m0 + (if (1.0 * r.input_tokens) < 500.0 { (s.ttft_ewma / 1000.0) } else { (zeros(s.len) + (-2.0)) }))
}

fn observe(e) {
    let key0 = (e.instance + 1031 * e.prefix_group_number) % 65521;
    let old0 = this.m0.add(key0, 0.0);
    let at0 = this.t0.add(key0, 0.0);
    this.m0.add(key0, 1.0 - old0);
    this.t0.add(key0, e.at - at0);
}
";
        assert_eq!(program.source(&grammar), expected);
    }

    #[test]
    fn the_parts_of_a_result_are_printed_as_one_function() {
        let grammar = Grammar::new(&[Kind::Disaggregation]).expect("disaggregation");
        let long = Expr::Apply(Operator::Subtract, vec![input("d.uncached"), Expr::Constant(512.0)]);
        let program = Program {
            values: vec![long, Expr::Apply(Operator::Negative, vec![input("p.uncached")]), Expr::Constant(1.0)],
            memories: Vec::new(),
        };
        let expected = "\
// @name found
// @about Written by `blis search`.

fn disaggregate(r, d, p, link) {
    #{
        remote: ((1.0 * d.uncached[d.chosen]) - 512.0) > 0.0,
        prefill: (-p.uncached),
        decode: (),
    }
}
";
        assert_eq!(program.source(&grammar), expected);
    }

    /// Regression: times relative to the decision, as ranks of the CPU tier and of queues, could not be compared with ranks of
    /// other calls.
    #[test]
    fn ranks_get_times_since_the_start_of_the_run() {
        for (kind, name, text) in [
            (Kind::KvCache, "c.last_use", "(min(c.last_use, 1e12) / 1000.0)"),
            (Kind::Scheduling, "r.arrival", "(min(r.arrival, 1e12) / 1000.0)"),
            (Kind::Admission, "r.arrival", "(min(r.arrival - r.now, 1e12) / 1000.0)"),
        ] {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            let found = grammar.decisions[0].inputs.iter().find(|input| input.name == name);
            assert_eq!(found.map(|input| input.text.as_str()), Some(text), "{kind:?}");
        }
    }

    #[test]
    fn numbers_have_four_digits_and_a_point() {
        let written: Vec<String> = [0.0, -1.0, 1234.5, 0.000_123_456, 98_765_432.1].into_iter().map(literal).collect();
        assert_eq!(written, ["0.0", "(-1.0)", "1234.0", "0.0001235", "98770000.0"]);
    }
}
