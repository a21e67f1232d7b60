//! Values of our evaluator: numbers, truth values and nothing directly, everything else as a value of Rhai.

use std::cmp::Ordering;

use rhai::{Dynamic, INT};

#[derive(Clone, Debug, Default)]
pub(super) enum ScriptValue {
    #[default]
    Unit,
    Truth(bool),
    Whole(INT),
    Number(f64),
    Other(Dynamic),
}

impl From<Dynamic> for ScriptValue {
    #[inline]
    fn from(value: Dynamic) -> Self {
        if value.is_float() {
            Self::Number(value.as_float().unwrap_or_default())
        } else if value.is_int() {
            Self::Whole(value.as_int().unwrap_or_default())
        } else if value.is_bool() {
            Self::Truth(value.as_bool().unwrap_or_default())
        } else if value.is_unit() {
            Self::Unit
        } else {
            Self::Other(value)
        }
    }
}

/// The value of Rhai. (`Dynamic::from` would wrap a value of ours.)
#[inline]
pub(super) fn dynamic(value: ScriptValue) -> Dynamic {
    match value {
        ScriptValue::Unit => Dynamic::UNIT,
        ScriptValue::Truth(value) => Dynamic::from_bool(value),
        ScriptValue::Whole(value) => Dynamic::from_int(value),
        ScriptValue::Number(value) => Dynamic::from_float(value),
        ScriptValue::Other(value) => value,
    }
}

impl ScriptValue {
    /// A copy of what a script reads.
    #[inline]
    pub fn copy_of(value: &Dynamic) -> Self {
        if value.is_float() {
            Self::Number(value.as_float().unwrap_or_default())
        } else if value.is_int() {
            Self::Whole(value.as_int().unwrap_or_default())
        } else {
            Self::from(value.clone())
        }
    }

    /// The name of the type in errors of Rhai.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Unit => Dynamic::UNIT.type_name(),
            Self::Truth(_) => Dynamic::TRUE.type_name(),
            Self::Whole(_) => Dynamic::ZERO.type_name(),
            Self::Number(_) => Dynamic::FLOAT_ZERO.type_name(),
            Self::Other(value) => value.type_name(),
        }
    }

    /// `self operator other`; `None` for what Rhai has to compute or to refuse.
    #[inline]
    pub fn combine(&self, operator: Operator, other: &Self) -> Option<Self> {
        match (self, other) {
            (&Self::Whole(a), &Self::Whole(b)) => whole(operator, a, b),
            (&Self::Number(a), &Self::Number(b)) => Some(number(operator, a, b)),
            (&Self::Number(a), &Self::Whole(b)) => Some(number(operator, a, b as f64)),
            (&Self::Whole(a), &Self::Number(b)) => Some(number(operator, a as f64, b)),
            (Self::Other(a), Self::Other(b)) => texts(operator, a, b),
            _ => None,
        }
    }
}

/// Operators on numbers and texts that are computed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Operator {
    /// The operator that scripts write like this.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "%" => Self::Remainder,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            _ => return None,
        })
    }
}

#[inline]
fn whole(operator: Operator, a: INT, b: INT) -> Option<ScriptValue> {
    Some(match operator {
        Operator::Add => ScriptValue::Whole(a.checked_add(b)?),
        Operator::Subtract => ScriptValue::Whole(a.checked_sub(b)?),
        Operator::Multiply => ScriptValue::Whole(a.checked_mul(b)?),
        Operator::Divide => ScriptValue::Whole(a.checked_div(b)?),
        Operator::Remainder => ScriptValue::Whole(a.checked_rem(b)?),
        _ => ScriptValue::Truth(holds(operator, Some(a.cmp(&b)))),
    })
}

#[inline]
fn number(operator: Operator, a: f64, b: f64) -> ScriptValue {
    match operator {
        Operator::Add => ScriptValue::Number(a + b),
        Operator::Subtract => ScriptValue::Number(a - b),
        Operator::Multiply => ScriptValue::Number(a * b),
        Operator::Divide => ScriptValue::Number(a / b),
        Operator::Remainder => ScriptValue::Number(a % b),
        _ => ScriptValue::Truth(holds(operator, a.partial_cmp(&b))),
    }
}

fn texts(operator: Operator, a: &Dynamic, b: &Dynamic) -> Option<ScriptValue> {
    if !matches!(operator, Operator::Equal | Operator::NotEqual) || !a.is_string() || !b.is_string() {
        return None;
    }
    let (a, b) = (a.as_immutable_string_ref().ok()?, b.as_immutable_string_ref().ok()?);
    Some(ScriptValue::Truth((*a == *b) == (operator == Operator::Equal)))
}

/// Whether a comparison holds for numbers in this order; `None` if one of them is NaN.
#[inline]
fn holds(operator: Operator, order: Option<Ordering>) -> bool {
    match operator {
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        Operator::Equal => order == Some(Ordering::Equal),
        _ => order != Some(Ordering::Equal),
    }
}
