//! Random expressions over numbers, truth values and columns: the engine gives the same bits as plain Rust with IEEE 754
//! operations and `libm`, or the same error.
//!
//! Every expression is evaluated twice: with literals, which the engine folds when it loads the script, and with the
//! same values as arguments of a function, which it does not. The arguments are unchanged afterwards.

use super::*;

/// A value, or an operation: its spelling, and its operands.
#[derive(Clone, Debug)]
enum Tree {
    Value(Value),
    Unary(&'static str, Box<Tree>),
    Binary(&'static str, Box<[Tree; 2]>),
    /// A function, and whether it is called as a method.
    Call(&'static str, bool, Vec<Tree>),
    Choice(Box<[Tree; 3]>),
    Index(Box<[Tree; 2]>),
}

#[derive(Clone, Debug)]
enum Value {
    Whole(i64),
    Number(f64),
    Truth(bool),
    Column(Vec<f64>),
}
use Value::{Column, Number, Truth, Whole};

/// A part of the message of the fault.
type Failure = &'static str;

const WHOLE: [i64; 14] = [0, 1, -1, 2, 3, -7, 10, 63, 64, 1 << 53, (1 << 53) + 1, i64::MAX, i64::MIN, 4_294_967_296];
const NUMBERS: [f64; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    1.5,
    3.0,
    0.1,
    0.3,
    0.999_999_999_999_999_9,
    1.000_000_000_000_000_2,
    5e-324,
    1e300,
    f64::MAX,
    1e-300,
    9_007_199_254_740_992.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
const ARITHMETIC: [&str; 6] = ["+", "-", "*", "/", "%", "**"];
const COMPARISONS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];
const OF_NUMBER: [&str; 15] = [
    "abs", "sqrt", "exp", "ln", "log2", "log10", "log1p", "sin", "cos", "tanh", "sigmoid", "floor", "ceil", "ceiling",
    "round",
];
const OF_COLUMN: [&str; 8] = ["sign", "is_nan", "is_finite", "fewest_best", "most_best", "rank_of", "share", "softmax"];
const REDUCTIONS: [&str; 10] = ["sum", "mean", "max", "min", "median", "variance", "std", "argmax", "argmin", "count"];

/// Builds a tree from random numbers; when they are used up, from zeros.
struct Builder<'a>(std::slice::Iter<'a, u16>);

impl Builder<'_> {
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % n
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn number(&mut self, depth: usize) -> Tree {
        let depth = depth.saturating_sub(1);
        match if depth == 0 { self.below(2) } else { self.below(16) } {
            0 => Tree::Value(Whole(self.one_of(&WHOLE))),
            1 => Tree::Value(Number(self.one_of(&NUMBERS))),
            2 => Tree::Unary("-", self.number(depth).into()),
            3..=7 => Tree::Binary(self.one_of(&ARITHMETIC), [self.number(depth), self.number(depth)].into()),
            8 => self.call(&OF_NUMBER, |b| vec![b.number(depth)]),
            9 => self.call(&["max", "min", "pow"], |b| vec![b.number(depth), b.number(depth)]),
            10 => self.call(&["clamp"], |b| vec![b.number(depth), b.number(depth), b.number(depth)]),
            11 => Tree::Choice([self.truth(depth), self.number(depth), self.number(depth)].into()),
            12 => {
                // A literal with a fraction would be refused when the script is loaded.
                let index = Tree::Binary("+", [self.number(1), Tree::Value(Whole(0))].into());
                Tree::Index([self.column(depth), index].into())
            }
            13 => self.call(&["quantile"], |b| vec![b.column(depth), b.number(depth)]),
            14 => self.call(&["dot"], |b| vec![b.column(depth), b.column(depth)]),
            _ => self.call(&REDUCTIONS, |b| vec![b.column(depth)]),
        }
    }

    fn truth(&mut self, depth: usize) -> Tree {
        let depth = depth.saturating_sub(1);
        match if depth == 0 { 0 } else { self.below(10) } {
            0 => Tree::Value(Truth(self.below(2) == 1)),
            1..=4 => Tree::Binary(self.one_of(&COMPARISONS), [self.number(depth), self.number(depth)].into()),
            5..=6 => Tree::Binary(self.one_of(&["&&", "||"]), [self.truth(depth), self.truth(depth)].into()),
            7 => Tree::Unary("!", self.truth(depth).into()),
            8 => self.call(&["any", "all"], |b| vec![b.column(depth)]),
            _ => self.call(&["contains"], |b| vec![b.column(depth), b.number(depth)]),
        }
    }

    fn column(&mut self, depth: usize) -> Tree {
        let depth = depth.saturating_sub(1);
        match if depth == 0 { 0 } else { self.below(14) } {
            0 => {
                let len = self.one_of(&[3, 3, 3, 3, 3, 3, 3, 3, 0, 1]);
                Tree::Value(Column((0..len).map(|_| self.one_of(&NUMBERS)).collect()))
            }
            1..=5 => {
                let operators = [ARITHMETIC, COMPARISONS].concat();
                let operator = self.one_of(&operators);
                Tree::Binary(operator, self.broadcast(depth, Self::number))
            }
            6 => Tree::Binary(self.one_of(&["&", "|"]), self.broadcast(depth, Self::truth)),
            7 => Tree::Unary(self.one_of(&["-", "!", "+"]), self.column(depth).into()),
            8 => self.call(&OF_NUMBER, |b| vec![b.column(depth)]),
            9 => self.call(&["max", "min", "pow"], |b| b.broadcast(depth, Self::number).into_iter().collect()),
            10 => self.call(&["clamp"], |b| vec![b.column(depth), b.number(depth), b.number(depth)]),
            11 => self.call(&["select"], |b| vec![b.column(depth), b.number(depth), b.column(depth)]),
            12 => Tree::Choice([self.truth(depth), self.column(depth), self.column(depth)].into()),
            _ => self.call(&OF_COLUMN, |b| vec![b.column(depth)]),
        }
    }

    /// Two columns, or a column and what `scalar` builds.
    fn broadcast(&mut self, depth: usize, scalar: fn(&mut Self, usize) -> Tree) -> Box<[Tree; 2]> {
        Box::new(match self.below(4) {
            0 => [self.column(depth), scalar(self, depth)],
            1 => [scalar(self, depth), self.column(depth)],
            _ => [self.column(depth), self.column(depth)],
        })
    }

    fn call(&mut self, names: &[&'static str], operands: impl FnOnce(&mut Self) -> Vec<Tree>) -> Tree {
        Tree::Call(self.one_of(names), self.below(2) == 1, operands(self))
    }
}

impl Tree {
    /// The expression in Rhai; `value` writes the values.
    fn text(&self, value: &mut impl FnMut(&Value) -> String) -> String {
        match self {
            Self::Value(of) => value(of),
            Self::Unary(operator, a) => format!("({operator}{})", a.text(value)),
            Self::Binary(operator, ab) => format!("({} {operator} {})", ab[0].text(value), ab[1].text(value)),
            Self::Choice(abc) => {
                let [a, b, c] = abc.each_ref().map(|tree| tree.text(value));
                format!("(if {a} {{ {b} }} else {{ {c} }})")
            }
            Self::Index(ab) => format!("{}[{}]", ab[0].text(value), ab[1].text(value)),
            Self::Call(name, is_method, of) => {
                let of: Vec<String> = of.iter().map(|tree| tree.text(value)).collect();
                if *is_method {
                    format!("{}.{name}({})", of[0], of[1..].join(", "))
                } else {
                    format!("{name}({})", of.join(", "))
                }
            }
        }
    }

    fn value(&self) -> Result<Value, Failure> {
        Ok(match self {
            Self::Value(value) => value.clone(),
            Self::Unary(operator, a) => match (*operator, a.value()?) {
                ("-", Whole(a)) => Whole(a.checked_neg().ok_or("Negation overflow")?),
                ("-", Number(a)) => Number(-a),
                ("-", Column(a)) => Column(a.iter().map(|a| -a).collect()),
                ("+", a @ Column(_)) => a,
                ("!", Truth(a)) => Truth(!a),
                ("!", Column(a)) => Column(a.iter().map(|&a| bit(a == 0.0)).collect()),
                other => panic!("{other:?}"),
            },
            Self::Binary("&&", ab) => Truth(ab[0].truth()? && ab[1].truth()?),
            Self::Binary("||", ab) => Truth(ab[0].truth()? || ab[1].truth()?),
            Self::Binary(operator, ab) => binary(operator, ab[0].value()?, ab[1].value()?)?,
            Self::Choice(abc) => abc[if abc[0].truth()? { 1 } else { 2 }].value()?,
            Self::Index(ab) => {
                let column = ab[0].column()?;
                let index = match ab[1].value()? {
                    Whole(index) => index,
                    index if float(&index).fract() == 0.0 && float(&index).abs() < 1e15 => float(&index) as i64,
                    _ => return Err("an index is a whole number"),
                };
                let found = usize::try_from(index).ok().and_then(|index| column.get(index).copied());
                Number(found.ok_or("there is no index")?)
            }
            Self::Call(name, _, of) => call_of(name, &of.iter().map(Self::value).collect::<Result<Vec<_>, _>>()?)?,
        })
    }

    fn truth(&self) -> Result<bool, Failure> {
        self.value().map(|value| matches!(value, Truth(true)))
    }

    fn column(&self) -> Result<Vec<f64>, Failure> {
        match self.value()? {
            Column(column) => Ok(column),
            other => panic!("{other:?}"),
        }
    }
}

fn bit(truth: bool) -> f64 {
    if truth { 1.0 } else { 0.0 }
}

fn float(value: &Value) -> f64 {
    match value {
        Whole(a) => *a as f64,
        Number(a) => *a,
        Truth(a) => bit(*a),
        Column(_) => panic!("{value:?}"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "values are small")]
fn binary(operator: &str, a: Value, b: Value) -> Result<Value, Failure> {
    let compared = |order: Option<std::cmp::Ordering>| {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match operator {
            "<" => order == Some(Less),
            "<=" => order == Some(Less) || order == Some(Equal),
            ">" => order == Some(Greater),
            ">=" => order == Some(Greater) || order == Some(Equal),
            "==" => order == Some(Equal),
            _ => order != Some(Equal),
        }
    };
    if let (Column(entries), Whole(whole)) | (Whole(whole), Column(entries)) = (&a, &b)
        && COMPARISONS.contains(&operator)
    {
        let is_left = matches!(a, Whole(_));
        let order = |entry: &f64| mixed(*whole, *entry).map(|order| if is_left { order } else { order.reverse() });
        return Ok(Column(entries.iter().map(|entry| bit(compared(order(entry)))).collect()));
    }
    if let (Column(_), _) | (_, Column(_)) = (&a, &b) {
        let f = |a: f64, b: f64| match operator {
            "&" => bit(a != 0.0 && b != 0.0),
            "|" => bit(a != 0.0 || b != 0.0),
            _ if COMPARISONS.contains(&operator) => bit(compared(a.partial_cmp(&b))),
            _ => arithmetic(operator, a, b),
        };
        return entries(&a, &b, f).map(Column);
    }
    if COMPARISONS.contains(&operator) {
        return Ok(Truth(compared(match (&a, &b) {
            (Whole(a), Whole(b)) => Some(a.cmp(b)),
            (Whole(a), Number(b)) => mixed(*a, *b),
            (Number(a), Whole(b)) => mixed(*b, *a).map(std::cmp::Ordering::reverse),
            _ => float(&a).partial_cmp(&float(&b)),
        })));
    }
    let (Whole(x), Whole(y)) = (&a, &b) else { return Ok(Number(arithmetic(operator, float(&a), float(&b)))) };
    let (x, y) = (*x, *y);
    match operator {
        "+" => x.checked_add(y).ok_or("Addition overflow"),
        "-" => x.checked_sub(y).ok_or("Subtraction overflow"),
        "*" => x.checked_mul(y).ok_or("Multiplication overflow"),
        "/" if y == 0 => Err("Division by zero"),
        "/" => x.checked_div(y).ok_or("Division overflow"),
        "%" => x.checked_rem(y).ok_or("Modulo division by zero or overflow"),
        _ if y < 0 => Err("Integer raised to a negative power"),
        _ => u32::try_from(y).ok().and_then(|y| x.checked_pow(y)).ok_or("Exponential overflow"),
    }
    .map(Whole)
}

/// The order of a whole number and another one, neither of them rounded.
fn mixed(a: i64, b: f64) -> Option<std::cmp::Ordering> {
    let below = b.floor();
    if b.is_nan() {
        return None;
    }
    Some(i128::from(a).cmp(&(below as i128)).then(below.total_cmp(&b)))
}

fn arithmetic(operator: &str, a: f64, b: f64) -> f64 {
    match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "%" => a % b,
        _ => libm::pow(a, b),
    }
}

/// `f` of each pair of entries; a number goes with every entry.
fn entries(a: &Value, b: &Value, f: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>, Failure> {
    Ok(match (a, b) {
        (Column(a), Column(b)) if a.len() != b.len() => return Err("only columns over the same things"),
        (Column(a), Column(b)) => a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect(),
        (Column(a), b) => a.iter().map(|a| f(*a, float(b))).collect(),
        (a, Column(b)) => b.iter().map(|b| f(float(a), *b)).collect(),
        _ => panic!("{a:?} {b:?}"),
    })
}

/// The larger one, the second of equal ones; NaN if one is NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if b >= a {
        b
    } else {
        a
    }
}

fn smaller(a: f64, b: f64) -> f64 {
    -larger(-a, -b)
}

fn call_of(name: &str, of: &[Value]) -> Result<Value, Failure> {
    match (name, of) {
        ("abs", [Whole(a)]) => return Ok(Whole(a.checked_abs().ok_or("Negation overflow")?)),
        ("max", [Whole(a), Whole(b)]) => return Ok(Whole(*a.max(b))),
        ("min", [Whole(a), Whole(b)]) => return Ok(Whole(*a.min(b))),
        ("select", [Column(mask), a, b]) => return select(mask, a, b).map(Column),
        ("contains", [Column(a), Whole(x)]) => {
            return Ok(Truth(a.iter().any(|a| mixed(*x, *a) == Some(std::cmp::Ordering::Equal))));
        }
        ("contains", [Column(a), x]) => return Ok(Truth(a.iter().any(|a| *a == float(x)))),
        ("any", [Column(a)]) => return Ok(Truth(a.iter().any(|a| *a != 0.0))),
        ("all", [Column(a)]) => return Ok(Truth(a.iter().all(|a| *a != 0.0))),
        _ => {}
    }
    Ok(match of {
        [Column(a)] if REDUCTIONS.contains(&name) => reduction(name, a)?,
        [Column(a)] if OF_COLUMN.contains(&name) => Column(of_column(name, a)),
        [Column(a)] => Column(a.iter().map(|a| of_number(name, *a)).collect()),
        [a] => Number(of_number(name, float(a))),
        [Column(a), share] if name == "quantile" => Number(quantile(a, float(share))?),
        [Column(_), Column(_)] if name == "dot" => Number(total(&entries(&of[0], &of[1], |a, b| a * b)?)),
        [a, b] => {
            let f = match name {
                "max" => larger,
                "min" => smaller,
                _ => libm::pow,
            };
            match (a, b) {
                (Column(_), _) | (_, Column(_)) => Column(entries(a, b, f)?),
                _ => Number(f(float(a), float(b))),
            }
        }
        [x, low, high] => {
            let (least, most) = (float(low), float(high));
            let is_reversed = matches!((low, high), (Whole(low), Whole(high)) if low > high);
            if least.is_nan() || most.is_nan() || least > most || is_reversed {
                return Err("`clamp` needs two numbers, the smaller first");
            }
            let f = |x: f64| smaller(larger(x, least), most);
            match (x, low, high) {
                (Column(x), ..) => Column(x.iter().map(|x| f(*x)).collect()),
                (Whole(x), Whole(low), Whole(high)) => Whole(*x.max(low).min(high)),
                _ => Number(f(float(x))),
            }
        }
        _ => panic!("{name} {of:?}"),
    })
}

fn select(mask: &[f64], a: &Value, b: &Value) -> Result<Vec<f64>, Failure> {
    let spread = |value: &Value| match value {
        Column(values) if values.len() != mask.len() => Err("only columns over the same things"),
        Column(values) => Ok(values.clone()),
        number => Ok(vec![float(number); mask.len()]),
    };
    let (a, b) = (spread(a)?, spread(b)?);
    Ok((0..mask.len()).map(|i| if mask[i] == 0.0 { b[i] } else { a[i] }).collect())
}

fn of_number(name: &str, x: f64) -> f64 {
    match name {
        "abs" => libm::fabs(x),
        "sqrt" => libm::sqrt(x),
        "exp" => libm::exp(x),
        "ln" => libm::log(x),
        "log2" => libm::log2(x),
        "log10" => libm::log10(x),
        "log1p" => libm::log1p(x),
        "sin" => libm::sin(x),
        "cos" => libm::cos(x),
        "tanh" => libm::tanh(x),
        "sigmoid" => 1.0 / (1.0 + libm::exp(-x)),
        "floor" => libm::floor(x),
        "ceil" | "ceiling" => libm::ceil(x),
        "round" => libm::round(x),
        _ => panic!("{name}"),
    }
}

/// Added from the first on; 0 of none.
fn total(values: &[f64]) -> f64 {
    values.iter().copied().reduce(|sum, x| sum + x).unwrap_or(0.0)
}

fn of_column(name: &str, a: &[f64]) -> Vec<f64> {
    let (least, most) = (a.iter().copied().reduce(smaller), a.iter().copied().reduce(larger));
    let (least, most) = (least.unwrap_or(0.0), most.unwrap_or(0.0));
    let each = |f: &dyn Fn(f64) -> f64| a.iter().map(|x| f(*x)).collect::<Vec<_>>();
    match name {
        "sign" => each(&|x| if x.is_nan() || x == 0.0 { x } else { 1_f64.copysign(x) }),
        "is_nan" => each(&|x| bit(x.is_nan())),
        "is_finite" => each(&|x| bit(x.is_finite())),
        "fewest_best" | "most_best" if least == most => vec![1.0; a.len()],
        "fewest_best" => each(&|x| (most - x) / (most - least)),
        "most_best" => each(&|x| (x - least) / (most - least)),
        "rank_of" => each(&|x| a.iter().filter(|y| order(y, &x).is_lt()).count() as f64),
        "share" => each(&|x| x / total(a)),
        _ => {
            let raised = each(&|x| libm::exp(x - most));
            raised.iter().map(|x| x / total(&raised)).collect()
        }
    }
}

fn reduction(name: &str, a: &[f64]) -> Result<Value, Failure> {
    match name {
        "sum" => return Ok(Number(total(a))),
        "count" => return Ok(Whole(a.iter().filter(|a| **a != 0.0).count() as i64)),
        "median" => return quantile(a, 0.5).map(Number),
        _ if a.is_empty() => return Err("of an empty column"),
        _ => {}
    }
    let mean = |values: &[f64]| total(values) / values.len() as f64;
    let spread = || mean(&a.iter().map(|x| (x - mean(a)) * (x - mean(a))).collect::<Vec<_>>());
    Ok(match name {
        "mean" => Number(mean(a)),
        "max" => Number(a.iter().copied().fold(f64::NEG_INFINITY, larger)),
        "min" => Number(a.iter().copied().fold(f64::INFINITY, smaller)),
        "variance" => Number(spread()),
        "std" => Number(libm::sqrt(spread())),
        "argmax" | "argmin" if a.iter().any(|a| a.is_nan()) => return Err("not-a-number (NaN)"),
        "argmax" => Whole((1..a.len()).fold(0, |best, i| if a[i] > a[best] { i } else { best }) as i64),
        _ => Whole((1..a.len()).fold(0, |best, i| if a[i] < a[best] { i } else { best }) as i64),
    })
}

fn quantile(a: &[f64], share: f64) -> Result<f64, Failure> {
    if !(0.0..=1.0).contains(&share) {
        return Err("a quantile takes a share from 0 to 1");
    }
    if a.is_empty() {
        return Err("of an empty column");
    }
    let mut sorted = a.to_vec();
    sorted.sort_by(order);
    let at = share * (a.len() - 1) as f64;
    let below = at.floor();
    let (low, part) = (below as usize, at - below);
    Ok(if part == 0.0 { sorted[low] } else { sorted[low] + part * (sorted[low + 1] - sorted[low]) })
}

/// A literal of Rhai; those below 0 and those that are not finite are expressions.
fn literal(value: &Value) -> String {
    let number = |x: f64| match x {
        x if x.is_nan() => "(0.0 / 0.0)".to_owned(),
        f64::INFINITY => "(1.0 / 0.0)".to_owned(),
        f64::NEG_INFINITY => "(-1.0 / 0.0)".to_owned(),
        x => format!("({x:?})"),
    };
    match value {
        Whole(i64::MIN) => format!("({} - 1)", i64::MIN + 1),
        Whole(a) => format!("({a})"),
        Number(a) => number(*a),
        Truth(a) => a.to_string(),
        Column(a) => format!("column([{}])", a.iter().map(|a| number(*a)).collect::<Vec<_>>().join(", ")),
    }
}

/// All bits of a value, as `show` of the scripts writes them.
fn shown(value: &Value) -> String {
    match value {
        Whole(a) => format!("i64 {a}"),
        Number(a) => format!("f64 {:?}", [*a]),
        Truth(a) => format!("bool {a}"),
        Column(a) => format!("column {a:?}"),
    }
}

const SHOW: &str = r#"fn show(x) { let t = type_of(x); if t == "f64" { `${t} ${column(1, x).to_debug()}` } else { `${t} ${x.to_debug()}` } }"#;

/// What a script that rejects with the expression's value gives: the reason, or the fault.
fn engine(source: &str) -> Result<String, String> {
    let service = ScriptService::idle(1);
    let mut guest = guest(Kind::Admission, source);
    match guest.admit(&seen(&request(9)), &service.view()) {
        Ok(AdmissionDecision::Reject(reason)) => Ok(reason.to_string()),
        Ok(other) => panic!("{source}: {other:?}"),
        Err(fault) => Err(format!("{:?}: {fault}", fault.kind)),
    }
}

fn agrees(expression: &str, expected: &Result<String, Failure>, source: &str) {
    match (engine(source), expected) {
        (Ok(value), Ok(expected)) => assert_eq!(value, *expected, "{expression}"),
        // Which of several errors comes first depends on the order in which operands are computed.
        (Err(fault), Err(_)) => assert!(fault.starts_with("Trap"), "{expression}: {fault}"),
        (value, expected) => panic!("{expression}\n the engine: {value:?}\n Rust: {expected:?}"),
    }
}

fn compare(tree: &Tree) {
    let result = tree.value().map(|value| shown(&value));
    let with_literals = tree.text(&mut literal);
    agrees(&with_literals, &result, &format!("{SHOW}\nfn admit(r, s) {{ show({with_literals}) }}"));

    let mut arguments = Vec::new();
    let with_arguments = tree.text(&mut |value| {
        arguments.push(value.clone());
        format!("a{}", arguments.len() - 1)
    });
    let names: Vec<String> = (0..arguments.len()).map(|i| format!("a{i}")).collect();
    let given: Vec<String> = arguments.iter().map(literal).collect();
    let afterwards: Vec<String> = names.iter().map(|name| format!(" + \" \" + show({name})")).collect();
    let source = format!(
        "{SHOW}\nfn f({names}) {{ let x = {with_arguments}; let y = show(x);\ny = y{afterwards}; y }}\n\
         fn admit(r, s) {{ f({given}) }}",
        names = names.join(", "),
        afterwards = afterwards.join("; y = y"),
        given = given.join(", "),
    );
    let result =
        result.map(|value| arguments.iter().fold(value, |text, argument| format!("{text} {}", shown(argument))));
    agrees(&with_literals, &result, &source);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_computed_as_in_rust(choices in proptest::collection::vec(any::<u16>(), 1..60)) {
        compare(&Builder(choices.iter()).number(5));
    }

    #[test]
    fn truth_values_are_computed_as_in_rust(choices in proptest::collection::vec(any::<u16>(), 1..60)) {
        compare(&Builder(choices.iter()).truth(5));
    }

    #[test]
    fn columns_are_computed_as_in_rust(choices in proptest::collection::vec(any::<u16>(), 1..60)) {
        compare(&Builder(choices.iter()).column(5));
    }
}

/// The comparison with Rust can fail: it finds that Rhai's own operators took numbers as equal that differ in their last
/// digit, and no number as less than infinity, as those of scripts once did.
#[test]
fn the_operators_of_the_language_would_be_found() {
    let rhai = rhai::Engine::new();
    let mut found = Vec::new();
    for (a, b) in NUMBERS.iter().flat_map(|a| NUMBERS.map(|b| (*a, b))) {
        for operator in COMPARISONS {
            let tree = Tree::Binary(operator, [Tree::Value(Number(a)), Tree::Value(Number(b))].into());
            let text = tree.text(&mut literal);
            let own = rhai.eval::<bool>(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            if tree.truth() != Ok(own) {
                found.push(text);
            }
            compare(&tree);
        }
    }
    for expected in ["((0.9999999999999999) == (1.0))", "((1.0) < (1.0 / 0.0))"] {
        assert!(found.iter().any(|text| text == expected), "{expected} is not among {found:?}");
    }
}

/// Not-a-number is the largest number; zeros are equal.
fn order(a: &f64, b: &f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) if a < b => std::cmp::Ordering::Less,
        (false, false) if a > b => std::cmp::Ordering::Greater,
        (a, b) => a.cmp(&b),
    }
}
