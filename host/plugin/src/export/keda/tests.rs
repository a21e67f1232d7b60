use blis_abi::{Layout as _, Row as _};
use blis_diag::Location;

use super::signals::{FACTS, NO_METRIC, SIGNALS};
use super::*;
use crate::Kind;
use crate::inputs::GuestCall;
use crate::rows::GroupRow;
use crate::{Guest, Limits, Plugin as _, check};
use std::path::Path;

/// Results of `scale` that the generator of `blis search` made, a line each.
const FOUND: &str = include_str!("found.txt");
const QUEUE: &str = include_str!("../../../../../examples/built-ins/queue.rhai");

fn settings() -> KedaSettings {
    KedaSettings {
        deployment: "decode".into(),
        namespace: Some("llm".into()),
        model: Some("qwen/qwen3-32b".into()),
        inference_pool: None,
        prometheus: "http://prometheus:9090".into(),
        min_replicas: 1,
        max_replicas: 8,
        interval: Micros(15_000_000),
        cooldown: Micros(300_000_000),
        up: ScalingRules {
            window: Micros::ZERO,
            policies: vec![(Change::Percent(100), Micros(15_000_000)), (Change::Pods(4), Micros(15_000_000))],
            select: Select::Max,
        },
        down: ScalingRules {
            window: Micros(300_000_000),
            policies: vec![(Change::Percent(100), Micros(15_000_000))],
            select: Select::Max,
        },
        tolerance: None,
        facts: [("kv_tokens", 400_000.0), ("gpus", 2.0), ("price", 4.0), ("max_num_seqs", 256.0)]
            .into_iter()
            .chain([("max_num_batched_tokens", 8192.0)])
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        one_group: true,
    }
}

fn compiled(source: &str) -> ExportedScript {
    let limits = Limits::default();
    ExportedScript::read(Path::new("policy.rhai"), source, &[], &limits).unwrap_or_else(|fault| panic!("{fault}"))
}

fn scale(body: &str) -> String {
    format!("fn scale(g) {{\n    {body}\n}}\n")
}

fn exported(source: &str, settings: &KedaSettings) -> Result<ScaledObject, Fault> {
    ScaledObject::of(&compiled(source), settings)
}

/// Group number `item`, with what is fixed as the settings say.
fn group(item: u64) -> GroupRow {
    let GuestCall::Decide(_, inputs) = GuestCall::plausible(Kind::Scaling, 1, item) else { panic!("an event") };
    let row = inputs.rows_at::<GroupRow>(0)[0];
    GroupRow {
        kv_tokens: 400_000,
        gpus: 2,
        price: 4.0,
        max_num_seqs: 256,
        max_num_batched_tokens: 8192,
        min_replicas: 1,
        max_replicas: 8,
        ..row
    }
}

/// The names of the numbers of a group.
fn fields() -> impl Iterator<Item = &'static str> {
    let numbers = GroupRow::FIELDS.iter().filter(|field| field.meaning.unit != blis_abi::NumberUnit::Name);
    numbers.filter_map(|field| field.names().next())
}

fn value_of(row: &GroupRow, field: &str) -> f64 {
    let known = GroupRow::FIELDS.iter().find(|one| one.names().next() == Some(field));
    known.unwrap_or_else(|| panic!("no field {field}")).number(GroupRow::bytes(std::slice::from_ref(row)))
}

/// The number of replicas by the formula, with the values of `row` for the metrics.
fn by_formula(object: &ScaledObject, settings: &KedaSettings, row: &GroupRow) -> f64 {
    let metric = |name: &str| SIGNALS.iter().find(|signal| signal.field == name).map(|_| value_of(row, name));
    let value = |name: &str| {
        metric(name).unwrap_or_else(|| {
            let trigger = object.triggers.iter().find(|one| one.name == name).expect("a trigger");
            // The queries of signals within that of a function, by name.
            let query = SIGNALS.iter().fold(trigger.query.clone(), |query, signal| {
                query.replace(&format!("({})", signal.query(settings)), &format!("({})", signal.field))
            });
            evaluated(&query, &|name| metric(name).unwrap_or_else(|| panic!("{name} in {query}")))
        })
    };
    evaluated(&object.formula, &value)
}

/// The number of replicas that the script returns; `None` if it is none.
fn by_script(guest: &mut dyn Guest, row: &GroupRow) -> Option<f64> {
    let mut numbers = Vec::new();
    guest.scale(Micros(row.now_us), &[*row], &[], &mut numbers).ok()?;
    assert_eq!(numbers.len(), 1);
    Some(numbers[0])
}

/// Compares formula and script on `rows` groups; returns how many numbers of replicas were compared.
fn compared(source: &str, rows: u64) -> usize {
    let (plugin, settings) = (compiled(source).plugin, settings());
    let object = exported(source, &settings).unwrap_or_else(|fault| panic!("{fault}\n{source}"));
    let limits = Limits::default();
    let guest = plugin.start(&check::setup(&plugin, Kind::Scaling, 1, &limits));
    let mut guest: Box<dyn Guest> = guest.expect("starts");
    let mut compared = 0;
    for item in 0..rows {
        let row = group(item);
        let Some(expected) = by_script(&mut *guest, &row).filter(|number| number.is_finite()) else { continue };
        let expected = if expected < 0.0 { row.replicas.into() } else { expected };
        let found = by_formula(&object, &settings, &row);
        assert_eq!(found, expected, "{}\n{source}\n{row:?}", object.formula);
        compared += 1;
    }
    compared
}

#[test]
fn a_formula_decides_as_the_script() {
    let mut kinds = [0; 4];
    let found: Vec<&str> = FOUND.lines().collect();
    for body in &found {
        assert!(compared(&scale(body), 60) > 50, "{body}");
        for (count, part) in kinds.iter_mut().zip(["ln(", "sqrt(", "select(", "min("]) {
            *count += usize::from(body.contains(part));
        }
    }
    assert!(found.len() >= 60 && kinds.iter().all(|&count| count > 3), "{kinds:?}");
}

#[test]
fn what_people_write_decides_as_the_script() {
    for source in [
        QUEUE.to_owned(),
        scale("let load = g.queued + g.batch_size; let more = ceil(load / 16.0); max(more, g.replicas - 1.0)"),
        scale("if g.queued[0] > 20.0 { return ceil(g.queued[0] / 4.0); } ceil(ln(1.0 + g.batch_size[0]))"),
        scale("select(g.kv_used > 0.5 * g.ready & !(g.queued == 0), g.replicas + 1.0, -1.0)"),
        scale("ceil(clamp(exp(min(g.kv_used, 3.0)) + sqrt(g.queue_depth), 1.0, 50.0))"),
        scale("round(pow(g.batch_size / 10.0, 0.75)) + floor(g.in_flight_tokens / 50000.0)"),
        scale("if mean(g.saturation) > 0.7 || sum(g.queued) > 9.0 { g.replicas + 2.0 } else { g.replicas }"),
        scale(
            "ceil(ln(2.0 + max(g.queued, g.batch_size) - min(g.queued, 3.0)) + ln(1.0 + abs(select(g.ready < 3.0, g.queued, g.kv_used))))",
        ),
        scale("let fast = g.ttft_p90 / 1000.0 < 500.0; select(fast, g.replicas, ceil(g.replicas * 1.5))"),
    ] {
        assert!(compared(&source, 200) > 150, "{source}");
    }
}

#[test]
fn a_scaled_object_has_what_keda_asks_for() {
    let source = scale("ceil(min(max((g.queued / 4.0) + ln(1.0 + abs(g.kv_used)), 0.0), 10000.0))");
    let script = |name: &str, source: &str, set: &[(String, f64)]| {
        ExportedScript::read(Path::new(name), source, set, &Limits::default()).expect("compiles")
    };
    let text = keda_scaled_object(&script("found.rhai", &source, &[]), &settings());
    let text = text.unwrap_or_else(|fault| panic!("{fault}"));
    insta::assert_snapshot!(text);
    let text = keda_scaled_object(
        &script("queue.rhai", QUEUE, &[("running".into(), 8.0)]),
        &KedaSettings {
            min_replicas: 0,
            namespace: None,
            model: None,
            tolerance: Some(0.0),
            one_group: false,
            ..settings()
        },
    );
    insta::assert_snapshot!("queue", text.unwrap_or_else(|fault| panic!("{fault}")));
}

/// Every signal is one without labels, as its name alone.
#[test]
fn every_signal_has_a_query_and_a_column() {
    for signal in &SIGNALS {
        let query = signal.query(&settings());
        assert!(!query.contains('@') && !query.contains("{}"), "{query}");
        let starts = ["sum(", "max(", "count(", "clamp_min(sum(", "((1000000 * histogram_quantile("];
        assert!(starts.iter().any(|start| query.starts_with(start)), "{query}");
        assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
        assert!(fields().any(|name| name == signal.field), "{}", signal.field);
    }
    let covered = |name: &str| {
        SIGNALS.iter().any(|signal| signal.field == name)
            || FACTS.contains(&name)
            || NO_METRIC.iter().any(|(known, _)| *known == name)
            || matches!(name, "min_replicas" | "max_replicas")
    };
    let missing: Vec<&str> = fields().filter(|name| !covered(name)).collect();
    assert_eq!(missing, [] as [&str; 0]);
}

#[test]
fn what_has_no_form_is_refused_with_its_location() {
    let refused = [
        scale("g.queued_tokens / 1000.0"),
        scale("g.oldest_wait / 1000.0"),
        scale("ceil(g.kv_used * g.kv_tokens / g.max_num_seqs)"),
        scale("sum(g.queued) / 4.0"),
        scale("g.replicas + random()"),
        scale("g.before(4).queued"),
        scale("let n = 0; for x in g.queued { n += x; } n"),
        scale("g.queued + this.before"),
        scale("if g.queued > 4.0 { 2.0 } else { 1.0 }"),
        scale("[3]"),
        scale("3"),
        scale("g.queued[1]"),
        scale("ln(round(g.queued))"),
        scale("g.now / 1000"),
        "fn route(r, s) { s.queue_depth }".to_owned(),
    ];
    let settings = KedaSettings { facts: Vec::new(), one_group: false, ..settings() };
    let messages: Vec<String> = refused
        .iter()
        .map(|source| match exported(source, &settings) {
            Ok(object) => panic!("{}", object.formula),
            Err(fault) => {
                let at = fault.diagnostic.location.as_ref().map(Location::to_string).unwrap_or_default();
                format!("{at}: {}", fault.diagnostic.what)
            }
        })
        .collect();
    insta::assert_snapshot!(messages.join("\n"));
    let wrong = KedaSettings { facts: vec![("speed".into(), 1.0)], ..settings };
    let fault = exported(&scale("g.queued"), &wrong).expect_err("no such fact");
    insta::assert_snapshot!("fact", fault.diagnostic.what);
}

/// The value of a formula, or of a query without metrics: the operators and functions that both writers use.
fn evaluated(text: &str, value: &dyn Fn(&str) -> f64) -> f64 {
    let mut reader = FormulaEvaluator { rest: text, value };
    let result = reader.choice();
    assert_eq!(reader.rest.trim(), "", "{text}");
    result
}

struct FormulaEvaluator<'a> {
    rest: &'a str,
    value: &'a dyn Fn(&str) -> f64,
}

impl FormulaEvaluator<'_> {
    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start();
        let Some(after) = rest.strip_prefix(sign) else { return false };
        self.rest = after;
        true
    }

    /// `condition ? a : b`, or what binds more strongly.
    fn choice(&mut self) -> f64 {
        let condition = self.joined();
        if !self.takes("?") {
            return condition;
        }
        let then = self.choice();
        assert!(self.takes(":"), "{}", self.rest);
        let otherwise = self.choice();
        if condition != 0.0 { then } else { otherwise }
    }

    fn joined(&mut self) -> f64 {
        let mut left = self.compared();
        loop {
            let is_and = self.takes("&&");
            if !is_and && !self.takes("||") {
                return left;
            }
            let right = self.compared();
            let holds = if is_and { left != 0.0 && right != 0.0 } else { left != 0.0 || right != 0.0 };
            left = f64::from(u8::from(holds));
        }
    }

    fn compared(&mut self) -> f64 {
        let left = self.sum();
        let signs = ["<=", ">=", "==", "!=", "<", ">"];
        let Some(sign) = signs.into_iter().find(|sign| self.takes(sign)) else { return left };
        self.takes("bool ");
        let right = self.sum();
        let holds = match sign {
            "<=" => left <= right,
            ">=" => left >= right,
            "==" => left == right,
            "!=" => left != right,
            "<" => left < right,
            _ => left > right,
        };
        f64::from(u8::from(holds))
    }

    fn sum(&mut self) -> f64 {
        let mut left = self.product();
        loop {
            if self.takes("+") {
                left += self.product();
            } else if self.takes("-") {
                left -= self.product();
            } else {
                return left;
            }
        }
    }

    fn product(&mut self) -> f64 {
        let mut left = self.power();
        loop {
            if self.takes("*") {
                left *= self.power();
            } else if self.takes("/") {
                left /= self.power();
            } else {
                return left;
            }
        }
    }

    fn power(&mut self) -> f64 {
        let base = self.unary();
        if self.takes("**") || self.takes("^") { libm::pow(base, self.unary()) } else { base }
    }

    fn unary(&mut self) -> f64 {
        if self.takes("-") {
            return -self.unary();
        }
        if self.takes("!") {
            return f64::from(u8::from(self.unary() == 0.0));
        }
        if self.takes("(") {
            let inner = self.choice();
            assert!(self.takes(")"), "{}", self.rest);
            return inner;
        }
        let rest = self.rest.trim_start();
        let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.' && is_number));
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        self.rest = after;
        if is_number {
            return match word.strip_suffix('e') {
                // A negative exponent.
                Some(mantissa) => {
                    assert!(self.takes("-"), "{after}");
                    let exponent = self.unary();
                    format!("{mantissa}e-{exponent}").parse().expect("a number")
                }
                None => word.parse().unwrap_or_else(|_| panic!("{word} in {rest}")),
            };
        }
        if !self.takes("(") {
            return (self.value)(word);
        }
        let mut arguments = vec![self.choice()];
        while self.takes(",") {
            arguments.push(self.choice());
        }
        assert!(self.takes(")"), "{}", self.rest);
        match (word, &arguments[..]) {
            ("min" | "clamp_max", [a, b]) => a.min(*b),
            ("max" | "clamp_min", [a, b]) => a.max(*b),
            ("abs", [a]) => a.abs(),
            ("ceil", [a]) => a.ceil(),
            ("floor", [a]) => a.floor(),
            ("round", [a]) => a.round(),
            ("sqrt", [a]) => a.sqrt(),
            ("ln", [a]) => libm::log(*a),
            ("exp", [a]) => libm::exp(*a),
            ("vector", [a]) => *a,
            _ => panic!("`{word}` of {} is no function of both languages", arguments.len()),
        }
    }
}
