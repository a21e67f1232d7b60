//! The inputs of each kind of decision, taken from what scripts may read, and the functions of expressions: one grammar for
//! all suites.

use std::collections::BTreeSet;

use blis_plugin::decisions::{NumberOf, OutputShape};
use blis_plugin::script::{self, ScriptInput};
use blis_plugin::{Column, ColumnGroup, Function, Kind};
use serde::{Deserialize, Serialize};

/// What the function of a script returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionOutput {
    /// A number for each row.
    Column,
    /// A number.
    Number,
    /// A number that is not below 0.
    NotNegative,
    /// Whether the number is above 0.
    Truth,
    /// For each row, whether its number is above 0.
    Truths,
    /// A number of replicas for each row, rounded up.
    Replicas,
    /// A number for each row, of which the highest wins. One number for all chooses none: no request is ended, or the routing policies
    /// choose.
    Choice,
}

/// What expressions decide of `function`: the parts of its result, without a name if there is only one, and what each returns.
fn decided(function: Function) -> Vec<(Option<&'static str>, DecisionOutput)> {
    let whole = |output| vec![(None, output)];
    match &function.row().output {
        _ if !function.kind().is_decision() || function.row().script.is_none() => Vec::new(),
        OutputShape::Reason | OutputShape::Flag => whole(DecisionOutput::Truth),
        OutputShape::Index | OutputShape::Numbers(NumberOf::Value) => whole(DecisionOutput::Column),
        OutputShape::Chosen => match function.kind().is_flow_control() {
            true => whole(DecisionOutput::Choice),
            // A replica that could start is not made to wait.
            false => whole(DecisionOutput::Column),
        },
        OutputShape::Numbers(NumberOf::Flag) => whole(DecisionOutput::Truths),
        OutputShape::Numbers(NumberOf::Replicas) => whole(DecisionOutput::Replicas),
        OutputShape::Number(least) if *least == 0.0 => whole(DecisionOutput::NotNegative),
        OutputShape::Number(_) | OutputShape::Integer | OutputShape::Duration => whole(DecisionOutput::Number),
        OutputShape::Record { shape, flags, .. } => {
            let (truths, choices) = shape.fields.split_at(*flags);
            let truths = truths.iter().map(|field| (Some(field.name), DecisionOutput::Truth));
            if function.row().inputs.lists.is_empty() {
                // Without lists to choose from they are numbers.
                return truths
                    .chain(choices.iter().map(|field| (Some(field.name), DecisionOutput::NotNegative)))
                    .collect();
            }
            // Programs have the choices from the last on: the prefill instance before the decode instance.
            truths.chain(choices.iter().rev().map(|field| (Some(field.name), DecisionOutput::Choice))).collect()
        }
    }
}

/// Functions that rank what later calls rank as well: times are those since the start of the run, which can be compared.
const RANKS: [&str; 4] = ["priority", "rank", "order", "keep"];

/// Fields that are no quantities: texts, numbers that stand for names, positions in lists, and second names.
const NO_QUANTITIES: [&str; 37] = [
    "adapter",
    "blocks",
    "block_size",
    "chosen",
    "client",
    "count",
    "group",
    "head_id",
    "head_slo_class",
    "head_turn",
    "history",
    "id",
    "indices",
    "instance",
    "model",
    "n",
    "node",
    "now",
    "now_us",
    "pool",
    "prefix_group",
    "prefix_group_number",
    "prompt_tokens",
    "max_tokens",
    "request",
    "requester",
    "role",
    "session",
    "session_number",
    "slo_class",
    "slo_class_number",
    "tenant",
    "tenant_number",
    "tenant_order",
    "tier",
    "turn",
    "uncached_tokens",
];

/// Times since the start of the run, µs: expressions get them relative to the time of the decision, but in [`RANKS`].
const TIMES_OF_RUN: [&str; 10] = [
    "active_since",
    "arrival",
    "created",
    "deadline",
    "dispatched_at",
    "head_deadline",
    "last_use",
    "next_ready",
    "previous_use",
    "scraped",
];

/// Durations in µs that have no second name with the unit and no row in the table of columns.
const DURATIONS: [&str; 4] = ["head_wait", "oldest_wait", "load_staleness", "cached_blocks_staleness"];

/// Fields that may be absent, with the number that stands for an absent one.
const OPTIONAL: [(&str, &str); 6] = [
    ("deadline", "1e12"),
    ("slo_ttft", "1e12"),
    ("slo_itl", "1e12"),
    ("max_output_tokens", "1e6"),
    ("client_priority", "0"),
    ("saturation", "0.0"),
];

/// A quantity that expressions may read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Input {
    /// Argument and field, as `s.queue_depth`.
    pub name: String,
    /// The expression of a script.
    pub text: String,
    pub is_column: bool,
    /// Its unit; empty if it has none. Inputs of one unit can be added and compared as they are.
    pub unit: &'static str,
    /// What it was in a first run, if that was measured.
    pub measured: Option<InputRange>,
}

impl Input {
    fn new(name: String, text: String, is_column: bool) -> Self {
        let unit = unit(&name, &text);
        Self { name, text, is_column, unit, measured: None }
    }
}

/// The values of an input: the lowest, the quartiles, and the highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InputRange(pub [f64; 5]);

impl InputRange {
    /// Whether the input was always 0, or what stands for an absent time, limit of tokens or other number.
    pub fn is_unused(self) -> bool {
        let [lowest, .., highest] = self.0;
        // An absent time less that of the decision, ms.
        let is_absent_time = lowest >= 0.99e9 && highest <= 1e9;
        is_absent_time || (lowest == highest && [0.0, 1e6].contains(&lowest))
    }

    /// The value at `share`, 0 to 1, between those that were measured.
    pub fn at(self, share: f64) -> f64 {
        let quarters = (share.clamp(0.0, 1.0) * 4.0).min(3.999_999);
        let (below, part) = (quarters as usize, quarters.fract());
        self.0[below] + part * (self.0[below + 1] - self.0[below])
    }
}

/// A signal that a pattern over decisions of a program names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PatternSignal {
    /// Kind of the decisions, by name.
    pub kind: String,
    /// The field of scripts, as `queue_depth`.
    pub signal: String,
    /// Whether the best alternatives to wrong decisions have more of it than the choices, or less; `None` if that is not known.
    pub rises: Option<bool>,
}

/// What expressions of one function may read, and how its result is made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DecisionGrammar {
    pub kind: Kind,
    /// Name of the function of the script.
    pub function: &'static str,
    /// The part of its result, if it is an object map.
    pub part: Option<&'static str>,
    pub arguments: &'static [&'static str],
    pub inputs: Vec<Input>,
    pub output: DecisionOutput,
    /// The number of rows, if there are rows.
    pub rows: Option<String>,
    /// Whether it gets a request and the instances, so that tables with keys of both can be read.
    pub has_memory: bool,
}

impl DecisionGrammar {
    /// The input `name`, if it has it.
    pub fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|one| one.name == name)
    }
}

/// The decisions that a program makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grammar {
    pub decisions: Vec<DecisionGrammar>,
}

impl Grammar {
    /// The grammar for `kinds`. The error is the first kind that expressions cannot decide.
    pub fn new(kinds: &[Kind]) -> Result<Self, Kind> {
        let mut decisions = Vec::new();
        for &kind in kinds {
            let parts = |&function: &Function| {
                decided(function).into_iter().filter_map(move |(part, output)| decision(function, part, output))
            };
            let of_kind: Vec<DecisionGrammar> = kind.functions().iter().flat_map(parts).collect();
            if of_kind.is_empty() {
                return Err(kind);
            }
            decisions.extend(of_kind);
        }
        // A script with a saturation detector must not read what is about the prompt of one request.
        if kinds.contains(&Kind::Saturation) {
            let is_kept = |input: &Input| !Column::ALL.iter().any(|&column| is_of_prompt(column, &input.name));
            decisions.iter_mut().for_each(|decision| decision.inputs.retain(is_kept));
        }
        Ok(Self { decisions })
    }
}

fn is_of_prompt(column: Column, input: &str) -> bool {
    column.group() == ColumnGroup::Cache && input.strip_prefix("s.") == Some(column.field())
}

fn decision(function: Function, part: Option<&'static str>, output: DecisionOutput) -> Option<DecisionGrammar> {
    let (kind, function) = (function.kind(), function.name());
    let (arguments, fields) = script::inputs(kind, function)?;
    let known: BTreeSet<(&str, &str)> = fields.iter().map(|one| (one.argument, one.field)).collect();
    let of_instances = kind.reads_instances();
    let clock = fields.iter().find(|one| one.field == "now").map(|one| format!("{}.now", one.argument));
    let times = FieldTimes { known: &known, of_instances, clock: clock.filter(|_| !RANKS.contains(&function)) };
    let mut inputs: Vec<Input> = fields
        .iter()
        .filter(|one| !NO_QUANTITIES.contains(&one.field))
        .filter(|one| !one.field.strip_suffix("_us").is_some_and(|base| is_second_name(&known, one, base)))
        .filter_map(|one| input(one, &times))
        .collect();
    // Ceilings get the saturation as a number of its own.
    if arguments.contains(&"saturation") {
        inputs.push(Input::new("saturation".to_owned(), "(1.0 * saturation)".to_owned(), false));
    }
    inputs.push(Input::new("random()".to_owned(), "random()".to_owned(), false));
    let mut rows = fields.iter().find(|one| one.is_column && one.field != "blocks").map(|one| one.argument);
    if let Some(part) = part {
        rows = Some(if part == "decode" { "d" } else { "p" });
        inputs = inputs.into_iter().filter_map(|input| of_pool(input, rows?)).collect();
    }
    let has_memory = of_instances && kind != Kind::Saturation;
    let rows = rows.map(|argument| format!("{argument}.len"));
    Some(DecisionGrammar { kind, function, part, arguments, inputs, output, rows, has_memory })
}

/// `input` where the rows are those of `pool`: of the other instances, the values of the one that was chosen for decode.
fn of_pool(input: Input, pool: &str) -> Option<Input> {
    if !input.is_column || input.name.starts_with(&format!("{pool}.")) {
        return Some(input);
    }
    let text = format!("(1.0 * {}[d.chosen])", input.text);
    input.name.starts_with("d.").then_some(Input { text, is_column: false, ..input })
}

/// Whether the field with the unit in its name is that of `base`.
fn is_second_name(known: &BTreeSet<(&str, &str)>, one: &ScriptInput, base: &str) -> bool {
    known.contains(&(one.argument, base)) || matches!(base, "load" | "cached_blocks")
}

/// Which fields are times, and what they are relative to.
struct FieldTimes<'a> {
    /// Arguments with their fields.
    known: &'a BTreeSet<(&'a str, &'a str)>,
    /// Whether the columns are those of the instances, which have units.
    of_instances: bool,
    /// The time of the decision, as scripts write it; `None` if times of the run stay as they are.
    clock: Option<String>,
}

fn input(one: &ScriptInput, times: &FieldTimes<'_>) -> Option<Input> {
    let &ScriptInput { argument, field, is_column } = one;
    let name = format!("{argument}.{field}");
    let unit = Column::ALL.iter().find(|column| column.field() == field).map_or("", |column| column.unit());
    let has_second_name = times.known.contains(&(argument, format!("{field}_us").as_str()));
    // Columns of the instances have a unit; of other numbers, times have a second name.
    let is_time = match times.of_instances && is_column {
        true => unit == "µs",
        false => DURATIONS.contains(&field) || has_second_name,
    };
    // A group has a number of replicas that are ready, a node a time.
    let is_of_run = TIMES_OF_RUN.contains(&field) || (field == "ready" && has_second_name);
    // The router gets the number of requests of the tenant, other policies do not.
    let absent = OPTIONAL.iter().find(|(known, _)| *known == field && !is_column).map(|(_, number)| *number);
    let absent = if field == "saturation" && argument != "b" { None } else { absent };
    if field == "tenant_in_flight" && !times.of_instances {
        return None;
    }
    let value = absent.map_or(name.clone(), |number| format!("({name} ?? {number})"));
    // The factor makes a whole number a fraction, so that no operation on it can overflow.
    let text = if is_of_run {
        // Times that have not come are infinite.
        match &times.clock {
            Some(clock) => format!("(min({value} - {clock}, 1e12) / 1000.0)"),
            None => format!("(min({value}, 1e12) / 1000.0)"),
        }
    } else if is_time {
        format!("({value} / 1000.0)")
    } else if is_column {
        if field.contains("max_output") { format!("min({value}, 1e6)") } else { value }
    } else {
        format!("(1.0 * {value})")
    };
    Some(Input::new(name, text, is_column))
}

/// The row of the table of columns, of columns of the instances.
pub(super) fn column(input: &str) -> Option<Column> {
    let field = input.strip_prefix("s.")?;
    Column::ALL.iter().copied().find(|column| column.field() == field)
}

/// The unit of the input `name`, which scripts write as `text`.
fn unit(name: &str, text: &str) -> &'static str {
    let is_ms = text.ends_with("/ 1000.0)");
    match column(name) {
        _ if is_ms && text.contains(".now") => "ms after the decision",
        _ if is_ms && text.contains("1e12") => "ms after the start of the run",
        _ if is_ms => "ms",
        Some(column) => column.unit(),
        None if name.contains("tokens") || name.ends_with(".uncached") => "tokens",
        None if name.contains("blocks") => "blocks",
        None if name.contains("bytes") => "bytes",
        None => "",
    }
}

/// A function of expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    /// The first over the size of the second, which counts as 0.001 if it is smaller.
    Divide,
    Min,
    Max,
    Negative,
    /// √|x|
    Root,
    /// ln(1 + |x|)
    Log,
    /// Over the rows.
    Lowest,
    Highest,
    Mean,
    Sum,
    /// Scaled to the range over the rows: the smallest 1, the largest 0.
    FewestBest,
    /// The largest 1, the smallest 0.
    MostBest,
    /// The third if the first is less than the second, else the fourth.
    IfLess,
}

impl Operator {
    /// The functions by their number of arguments.
    pub const ONE: [Self; 9] = [
        Self::Negative,
        Self::Root,
        Self::Log,
        Self::Lowest,
        Self::Highest,
        Self::Mean,
        Self::Sum,
        Self::FewestBest,
        Self::MostBest,
    ];
    pub const TWO: [Self; 6] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide, Self::Min, Self::Max];

    pub fn arguments(self) -> usize {
        match self {
            Self::IfLess => 4,
            one if Self::TWO.contains(&one) => 2,
            _ => 1,
        }
    }

    /// The result for numbers; `None` for a choice and for functions over rows.
    pub fn of_numbers(self, arguments: &[f64]) -> Option<f64> {
        Some(match (self, arguments) {
            (Self::Add, [a, b]) => a + b,
            (Self::Subtract, [a, b]) => a - b,
            (Self::Multiply, [a, b]) => a * b,
            (Self::Divide, [a, b]) => a / b.abs().max(0.001),
            (Self::Min, [a, b]) => a.min(*b),
            (Self::Max, [a, b]) => a.max(*b),
            (Self::Negative, [a]) => -a,
            (Self::Root, [a]) => a.abs().sqrt(),
            (Self::Log, [a]) => a.abs().ln_1p(),
            _ => return None,
        })
    }

    /// Whether the result is a number, whatever its argument is.
    pub fn is_over_rows(self) -> bool {
        matches!(self, Self::Lowest | Self::Highest | Self::Mean | Self::Sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routing_reads_every_column_of_the_interface_that_is_a_quantity() {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing is decided by expressions");
        let names: Vec<&str> = grammar.decisions[0].inputs.iter().map(|input| input.name.as_str()).collect();
        for column in Column::ALL {
            let name = format!("s.{}", column.field());
            let left_out = NO_QUANTITIES.contains(&column.field());
            assert_eq!(names.contains(&name.as_str()), !left_out, "{name}");
        }
        assert!(names.contains(&"r.input_tokens") && !names.contains(&"r.prompt_tokens"), "{names:?}");
    }

    #[test]
    fn inputs_have_the_units_of_what_they_are() {
        let unit = |kind: Kind, name: &str| {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            let mut inputs = grammar.decisions.iter().flat_map(|decision| &decision.inputs);
            inputs.find(|input| input.name == name).map(|input| input.unit)
        };
        assert_eq!(unit(Kind::Routing, "s.in_flight_tokens"), Some("tokens"));
        assert_eq!(unit(Kind::Routing, "r.input_tokens"), Some("tokens"));
        assert_eq!(unit(Kind::Routing, "s.itl_ewma"), Some("ms"));
        assert_eq!(unit(Kind::Routing, "random()"), Some(""));
        assert_eq!(unit(Kind::Disaggregation, "p.uncached"), Some("tokens"));
        assert_eq!(unit(Kind::Scheduling, "r.arrival"), Some("ms after the start of the run"));
    }

    #[test]
    fn latency_models_are_no_decisions() {
        assert_eq!(Grammar::new(&[Kind::Routing, Kind::Latency]), Err(Kind::Latency));
    }
}
