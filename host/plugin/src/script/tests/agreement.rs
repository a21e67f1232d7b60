//! Functions that need no script engine do what the engine does: the same results, state and operations.

use blis_abi::AnyRows;
use rhai::Dynamic;

use super::*;
use crate::Guest as _;
use crate::check;
use crate::inputs::{DecisionPoint, GatewayState};
use crate::rows::{BandRow, FlowRow, InFlightRow};
use crate::script::column::Column;
use crate::script::rows::{RowObject, RowViews, UsedRowFields};

/// The bits of a number. Those of not-a-number depend on the order in which the processor gets the operands.
fn bits(x: f64) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }
}

/// The result of a call as text, to the last bit; of an error its message.
fn text_of(output: &Result<Dynamic, Fault>) -> String {
    match output {
        Err(fault) => fault.message(),
        Ok(output) => match (output.read_lock::<Column>(), output.as_float()) {
            (Some(column), _) => format!("{:x?}", column.values().iter().map(|&x| bits(x)).collect::<Vec<_>>()),
            (None, Ok(number)) => format!("{:x}", bits(number)),
            (None, Err(_)) => format!("{output:?}"),
        },
    }
}

/// Two guests of the same script: one that uses the script engine only where it must, one that always does.
struct Twins {
    fast: ScriptGuest,
    plain: ScriptGuest,
}

impl Twins {
    fn start(source: &str, kind: Kind, n: usize) -> Self {
        let limits = Limits::default();
        let plugin = ScriptPlugin::read(Path::new("test.rhai"), source, &limits);
        let plugin = plugin.unwrap_or_else(|fault| panic!("{fault}\n{source}"));
        let setup = check::setup(&plugin, kind, n, &limits);
        let start = || ScriptGuest::start(Arc::clone(&plugin.script), plugin.code.clone(), &setup).expect("it starts");
        let mut plain = start();
        plain.use_engine();
        Self { fast: start(), plain }
    }

    /// Makes `call`, of `function`, with both, and compares. Returns whether it needed no script engine.
    fn agree(&mut self, function: &str, call: impl Fn(&mut ScriptGuest) -> Result<Dynamic, Fault>) -> bool {
        let (fast, plain) = (call(&mut self.fast), call(&mut self.plain));
        assert_eq!(text_of(&fast), text_of(&plain));
        assert_eq!(self.fast.used(), self.plain.used(), "operations");
        assert_eq!(self.fast.save().expect("can be saved"), self.plain.save().expect("can be saved"), "the state");
        !self.fast.needs_engine(function)
    }

    /// As [`Self::agree`], for `function(r, s)`.
    fn agree_about(&mut self, function: &str, point: &DecisionPoint) -> bool {
        self.agree(function, |guest| {
            let views = guest.views(&point.request(), &point.cluster());
            guest.run(function, views, point.request().id, Some(&Ties::LowestIndex))
        })
    }
}

/// Situations of `n` instances, some with the largest values there are.
fn points(n: usize) -> impl Iterator<Item = DecisionPoint> {
    let extreme = DecisionPoint::extreme(n).into_iter().map(|(_, point)| point);
    (0..40).map(move |item| DecisionPoint::plausible(n, item)).chain(extreme)
}

const STICKY: &str = include_str!("../../../../../examples/built-ins/sticky.rhai");
const TOKEN_AWARE: &str = include_str!("../../../../../examples/built-ins/token-aware.rhai");
const TOKEN_LOAD: &str = include_str!("../../../../../examples/built-ins/token-load.rhai");
const WEIGHTED: &str = include_str!("../../../../../examples/built-ins/weighted.rhai");
const VIRTUAL_TOKEN_COUNTER: &str = include_str!("../../../../../examples/built-ins/virtual-token-counter.rhai");
const GLOBAL_STRICT: &str = include_str!("../../../../../examples/built-ins/global-strict.rhai");
const UTILIZATION: &str = include_str!("../../../../../examples/built-ins/utilization.rhai");
const HOLDBACK: &str = include_str!("../../../../../examples/built-ins/priority-holdback.rhai");
const EDF: &str = include_str!("../../../../../examples/built-ins/edf.rhai");
const NEWEST: &str = include_str!("../../../../../examples/built-ins/lowest-priority-newest.rhai");
const PREFIX_THEN_LOAD: &str = include_str!("../../../../../policies/prefix-then-load.rhai");
const LEAST_LOADED: &str = include_str!("../../../../../policies/rhai-least-loaded.rhai");

#[test]
fn shipped_scripts_for_routing_need_no_engine() {
    let scripts = [TOKEN_AWARE, TOKEN_LOAD, WEIGHTED, PREFIX_THEN_LOAD, LEAST_LOADED, STICKY];
    for source in scripts {
        let (kind, function) =
            if source == STICKY { (Kind::RoutingFilter, "filter") } else { (Kind::Routing, "route") };
        for n in [1, 4, 64] {
            let mut twins = Twins::start(source, kind, n);
            for point in points(n) {
                assert!(twins.agree_about(function, &point), "{source}");
            }
        }
    }
}

#[test]
fn shipped_scripts_for_flow_control_need_no_engine() {
    for n in [1, 4, 64] {
        let [mut counter, mut strict] =
            [VIRTUAL_TOKEN_COUNTER, GLOBAL_STRICT].map(|source| Twins::start(source, Kind::Fairness, n));
        let mut utilization = Twins::start(UTILIZATION, Kind::Saturation, n);
        let mut holdback = Twins::start(HOLDBACK, Kind::Ceilings, n);
        let mut edf = Twins::start(EDF, Kind::Ordering, n);
        let mut newest = Twins::start(NEWEST, Kind::Eviction, n);
        for item in 0..30 {
            let state = GatewayState::plausible(n, item);
            let point = DecisionPoint::plausible(n, item);
            let names: Arc<[Box<str>]> = inputs::names(Kind::Fairness, n).into();
            let views = RowViews { now: state.now, used: &UsedRowFields::ALL, names: &names };
            let band = |saturation| RowObject { saturation, ..views.one::<BandRow>(&AnyRows::one(&state.bands[0])) };
            for twins in [&mut counter, &mut strict] {
                assert!(twins.agree("fair_pick", |guest| {
                    let band = band(Some(0.5));
                    let flows = views.list::<FlowRow, 0>(&AnyRows::new(&state.flows));
                    guest.run("fair_pick", (band, flows), RequestId(0), None)
                }));
            }
            assert!(utilization.agree("saturation", |guest| {
                let view = guest.view(None, &point.cluster());
                guest.run("saturation", (view,), RequestId(0), None)
            }));
            assert!(holdback.agree("ceilings", |guest| {
                let bands = views.list::<BandRow, 0>(&AnyRows::new(&state.bands));
                guest.run("ceilings", (state.saturation, bands), RequestId(0), None)
            }));
            assert!(edf.agree("order", |guest| {
                let view = guest.request(&point.request(), state.now, None);
                guest.run("order", (view, Dynamic::from_int(7)), RequestId(0), None)
            }));
            assert!(newest.agree("evict", |guest| {
                let in_flight = views.list::<InFlightRow, 0>(&AnyRows::new(&state.in_flight));
                guest.run("evict", (band(None), in_flight), RequestId(0), None)
            }));
        }
    }
}

/// The optimizer of the script engine makes `x += y` of `x = x + y`, which looks for `+=` first and counts that.
#[test]
fn variables_are_updated_as_by_the_engine() {
    let starts = ["7", "2.5", "s.queue_depth", "s.in_flight / 2.0"];
    for (start, other) in starts.iter().flat_map(|start| starts.map(|other| (start, other))) {
        for operator in ["+", "-", "*", "/"] {
            let source = format!(
                "fn route(r, s) {{ let x = {start}; x = x {operator} {other}; if r.input_tokens > 3 {{ x {operator}= 2; }} \
                 s.queue_depth + x }}"
            );
            let mut twins = Twins::start(&source, Kind::Routing, 4);
            for point in points(4) {
                twins.agree_about("route", &point);
            }
        }
    }
}

/// Builds the text of scripts from random numbers; when they are used up, from zeros.
struct ScriptText<'a>(std::slice::Iter<'a, u16>);

impl ScriptText<'_> {
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % n
    }

    fn one_of(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    fn column(&mut self, depth: usize) -> String {
        const COLUMNS: [&str; 8] = [
            "c",
            "s.queue_depth",
            "s.kv_utilization",
            "s.in_flight",
            "s.cached_blocks",
            "s.batch_size",
            "s.in_flight_tokens",
            "r.blocks",
        ];
        const ONE: [&str; 11] =
            ["-", "!", "abs", "sqrt", "exp", "ln", "floor", "ceil", "round", "fewest_best", "most_best"];
        const TWO: [&str; 17] =
            ["+", "-", "*", "/", "%", "**", "<", "<=", ">", ">=", "==", "!=", "&", "|", "max", "min", "pow"];
        if depth == 0 {
            return self.one_of(&COLUMNS).to_owned();
        }
        match self.below(14) {
            0..=2 => self.one_of(&COLUMNS).to_owned(),
            3 | 4 => {
                let name = self.one_of(&ONE);
                let operand = self.column(depth - 1);
                if self.below(4) == 0 && name.len() > 1 {
                    format!("({operand}).{name}()")
                } else {
                    format!("{name}({operand})")
                }
            }
            5..=9 => {
                let name = self.one_of(&TWO);
                let mut operands = [self.column(depth - 1), self.any(depth - 1)];
                if self.below(2) == 0 {
                    operands.swap(0, 1);
                }
                let [a, b] = operands;
                match (name.len() > 2, self.below(4)) {
                    (true, 0) => format!("({a}).{name}({b})"),
                    (true, _) => format!("{name}({a}, {b})"),
                    (false, _) => format!("({a} {name} {b})"),
                }
            }
            10 => {
                let name = self.one_of(&["select", "where", "if_else"]);
                format!("{name}({}, {}, {})", self.column(depth - 1), self.any(depth - 1), self.any(depth - 1))
            }
            11 => format!("ones({})", self.number(depth - 1)),
            12 => format!("this.t.get({}, {})", self.keys(), self.number(depth - 1)),
            _ => format!(
                "if {} {{ {} }} else {{ {} }}",
                self.truth(depth - 1),
                self.column(depth - 1),
                self.any(depth - 1)
            ),
        }
    }

    fn keys(&mut self) -> &'static str {
        self.one_of(&["s.queue_depth", "s.batch_size", "floor(c)", "s.indices"])
    }

    fn number(&mut self, depth: usize) -> String {
        const NUMBERS: [&str; 16] = [
            "n",
            "x",
            "0",
            "1",
            "3",
            "-2",
            "0.0",
            "0.5",
            "1e300",
            "9223372036854775807",
            "r.input_tokens",
            "r.now",
            "r.class_priority",
            "s.len",
            "r.max_output_tokens",
            "s.load_staleness",
        ];
        const OF_COLUMN: [&str; 8] = ["sum", "mean", "max", "min", "count", "argmax", "argmin", "len"];
        const ONE: [&str; 6] = ["-", "sqrt", "floor", "round", "to_float", "abs"];
        const TWO: [&str; 8] = ["+", "-", "*", "/", "%", "max", "min", "pow"];
        if depth == 0 {
            return self.one_of(&NUMBERS).to_owned();
        }
        match self.below(12) {
            0..=3 => self.one_of(&NUMBERS).to_owned(),
            4 | 5 => {
                let name = self.one_of(&OF_COLUMN);
                let column = self.column(depth - 1);
                if self.below(3) == 0 { format!("({column}).{name}()") } else { format!("{name}({column})") }
            }
            6 => format!("{}({})", self.one_of(&ONE), self.number(depth - 1)),
            7..=9 => {
                let (name, a, b) = (self.one_of(&TWO), self.number(depth - 1), self.number(depth - 1));
                if name.len() > 2 { format!("{name}({a}, {b})") } else { format!("({a} {name} {b})") }
            }
            10 => format!("this.u.add({}, {})", self.one_of(&["r.input_tokens", "n", "0"]), self.number(depth - 1)),
            _ => format!("c.len + s.queue_depth.{}()", self.one_of(&OF_COLUMN)),
        }
    }

    fn truth(&mut self, depth: usize) -> String {
        const TRUTHS: [&str; 4] = ["true", "t", "r.deadline == ()", "r.max_output_tokens != ()"];
        if depth == 0 {
            return self.one_of(&TRUTHS).to_owned();
        }
        match self.below(8) {
            0 | 1 => self.one_of(&TRUTHS).to_owned(),
            2..=4 => {
                let comparison = self.one_of(&["<", "<=", ">", ">=", "==", "!="]);
                format!("({} {comparison} {})", self.number(depth - 1), self.number(depth - 1))
            }
            5 => format!("{}({})", self.one_of(&["any", "all"]), self.column(depth - 1)),
            6 => format!("!({})", self.truth(depth - 1)),
            _ => format!(
                "({} {} {})",
                self.truth(depth - 1),
                self.one_of(&["&&", "||", "&", "|", "=="]),
                self.truth(depth - 1)
            ),
        }
    }

    fn any(&mut self, depth: usize) -> String {
        match self.below(8) {
            0..=3 => self.column(depth),
            4..=6 => self.number(depth),
            _ => self.truth(depth),
        }
    }

    fn statement(&mut self) -> String {
        match self.below(8) {
            0 => format!("c = {};", self.column(2)),
            1 => format!("n = {};", self.number(2)),
            2 => format!("if {} {{ return {}; }}", self.truth(2), self.any(2)),
            3 => format!(
                "if {} {{ let n = {}; c = c + n; }} else {{ {} }}",
                self.truth(1),
                self.number(1),
                self.statement()
            ),
            4 | 5 => format!("this.t.set({}, {});", self.keys(), self.any(1)),
            6 => format!("const k = {}; x = k;", self.number(2)),
            _ => format!("{};", self.any(2)),
        }
    }

    fn script(&mut self) -> String {
        let variables = format!(
            "let c = {}; let n = {}; let x = {}; let t = {};",
            self.one_of(&["s.in_flight", "s.kv_utilization * 2"]),
            self.one_of(&["2", "s.len"]),
            self.one_of(&["0.25", "mean(s.queue_depth)"]),
            self.one_of(&["false", "any(s.queue_depth)"]),
        );
        let statements: Vec<String> = (0..self.below(4)).map(|_| self.statement()).collect();
        format!(
            "fn init() {{ #{{ t: table(), u: table() }} }}\nfn route(r, s) {{ {variables} {} {} }}",
            statements.join(" "),
            self.any(3)
        )
    }
}

/// Whether all calls of a random script needed no engine. It is `None` if the script is refused.
fn agree_on_random_script(numbers: &[u16]) -> Option<bool> {
    let source = ScriptText(numbers.iter()).script();
    // The compiler evaluates what is constant in it, which may be an error.
    load(Path::new("test.rhai"), &source, &Limits::default()).ok()?;
    let mut twins = Twins::start(&source, Kind::Routing, 3);
    // The largest numbers come last, because errors end the calls without an engine.
    Some(points(3).fold(true, |_, point| twins.agree_about("route", &point)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn random_scripts_agree(numbers in prop::collection::vec(any::<u16>(), 0..80)) {
        agree_on_random_script(&numbers);
    }
}

/// The test above is one of more than errors.
#[test]
fn many_random_scripts_need_no_engine() {
    let numbers = |seed: u32| -> Vec<u16> {
        (0..60_u32).map(|i| ((seed * 61 + i).wrapping_mul(2_654_435_761) >> 13) as u16).collect()
    };
    let fast = (0..200).filter_map(|seed| agree_on_random_script(&numbers(seed))).filter(|&fast| fast).count();
    assert!(fast > 60, "{fast} of 200");
}

/// A script of several functions; the syntax tree has all of them in no order.
#[test]
fn functions_of_one_script_are_kept_apart() {
    let source = "const TWO = 2.0;
        fn helper(x) { x + 1 }
        fn admit(r, s) { r.input_tokens > 100 }
        fn filter(r, s) { s.queue_depth < 5 }
        fn route(r, s) { let x = s.in_flight * TWO; x + r.input_tokens }
        fn priority(r) { helper(r.input_tokens) }";
    let mut twins = Twins::start(source, Kind::Routing, 5);
    for point in points(5) {
        for function in ["admit", "filter", "route"] {
            assert!(twins.agree_about(function, &point), "{function}");
        }
    }
    assert!(twins.fast.needs_engine("priority"), "functions of the script are not known");
}

/// What a call has changed before it turns out to need the engine is undone, or the engine would do it twice.
#[test]
fn a_call_that_needs_the_engine_has_changed_nothing() {
    let source = "fn init() { #{ t: table() } }
        fn route(r, s) {
            let old = this.t.add(30, 1);
            this.t.set(s.indices, s.queue_depth);
            if old > 2.0 { return r.tenant; }
            0
        }";
    let mut twins = Twins::start(source, Kind::Routing, 6);
    let fast: Vec<bool> = points(6).take(5).map(|point| twins.agree_about("route", &point)).collect();
    assert!(fast[0], "the first call needs no engine");
    assert!(!fast[4], "a text is not known: {fast:?}");
}
