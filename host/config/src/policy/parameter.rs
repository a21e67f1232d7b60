//! Parameters: the numeric ones of built-in policies (name, default, range and meaning), and values as users give them.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use blis_diag::{quoted, yaml};
use blis_plugin::{OtherParameter, OtherValue, PolicyDescription, PolicyParameter, ValueTable};

/// Range of numbers of tokens, and of tokens per second.
pub(crate) const TOKENS: RangeInclusive<f64> = 1.0..=1e6;

/// A number of a built-in policy that users may set.
#[derive(Clone, Debug)]
pub(crate) struct NumericParameter {
    pub name: &'static str,
    pub default: f64,
    pub min: f64,
    pub max: f64,
    /// Meaning, with the unit if there is one.
    pub about: &'static str,
    /// BLIS's key in bundles; empty if BLIS has no key for it.
    pub key: &'static str,
    pub rounding: Rounding,
}

/// The integer that has the same effect as a real value. Searches propose real values; bundles hold integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounding {
    /// Every real value has its own effect.
    None,
    /// The policy tests `integer <= value`.
    Down,
    /// The policy tests `integer >= value`.
    Up,
}

/// Values of parameters by name. The order matters where a policy adds them up.
#[derive(Debug)]
pub(crate) struct ParameterValues(pub Vec<(String, f64)>);

impl ParameterValues {
    /// The value of a parameter, which the policy must have.
    pub fn get(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.expect("a policy is built with the parameters of its own row").1
    }
}

impl NumericParameter {
    pub const fn new(name: &'static str, default: f64, range: RangeInclusive<f64>, about: &'static str) -> Self {
        let (min, max) = (*range.start(), *range.end());
        Self { name, default, min, max, about, key: "", rounding: Rounding::None }
    }

    pub const fn with_key(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    pub const fn rounded(self, rounding: Rounding) -> Self {
        Self { rounding, ..self }
    }

    /// The value with the same effect that can be written in a bundle.
    pub fn written(&self, value: f64) -> f64 {
        match self.rounding {
            Rounding::None => value,
            Rounding::Down => value.floor(),
            Rounding::Up => value.ceil(),
        }
    }
}

impl From<&NumericParameter> for PolicyParameter {
    fn from(parameter: &NumericParameter) -> Self {
        let &NumericParameter { name, default, min, max, about, .. } = parameter;
        Self { name: name.to_owned(), default, min, max, about: about.to_owned() }
    }
}

/// A value of a parameter as it was given; the declaration of the parameter decides what it is.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterInput {
    Number(f64),
    /// A word of a flag or file: a number, a text, or a table `1,2;3,4` with its rows apart by `;`.
    Word(String),
    /// Numbers, row by row, and the number of them in every row; `None` for one list without rows.
    Rows(Vec<f64>, Option<usize>),
}

impl ParameterInput {
    /// The value as a number.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Word(word) => yaml::real(word).filter(|number| number.is_finite()),
            Self::Rows(..) => None,
        }
    }

    /// The value for `parameter` of `policy`, which is no number.
    ///
    /// # Errors
    /// If the parameter cannot have it: what is wrong, and the hint.
    pub fn other(&self, policy: &str, parameter: &OtherParameter) -> Result<OtherValue, (String, String)> {
        let value = match (&parameter.default, self) {
            (OtherValue::Text(_), Self::Word(word)) => Some(OtherValue::Text(word.clone())),
            (OtherValue::Text(_), Self::Number(number)) => Some(OtherValue::Text(number.to_string())),
            (OtherValue::Text(_), Self::Rows(..)) => None,
            (OtherValue::Table(like), given) => {
                given.table(like.columns as usize).map(|numbers| OtherValue::Table(ValueTable { numbers, ..*like }))
            }
        };
        let refused = |hint: String| (format!("parameter `{}` of `{policy}` is {self}", parameter.name), hint);
        let form = match &parameter.default {
            OtherValue::Text(_) => "it must be a text".to_owned(),
            OtherValue::Table(like) => {
                format!("it must be a table with rows of {} numbers, as `1,2;3,4` or [[1, 2], [3, 4]]", like.columns)
            }
        };
        let value = value.ok_or_else(|| refused(form))?;
        match parameter.refusal(&value) {
            Some(what) => Err(refused(what)),
            None => Ok(value),
        }
    }

    /// The numbers of a table with rows of `columns` numbers.
    fn table(&self, columns: usize) -> Option<Vec<f64>> {
        match self {
            Self::Number(number) => (columns == 1).then(|| vec![*number]),
            Self::Rows(numbers, rows_of) => rows_of.is_none_or(|of| of == columns).then(|| numbers.clone()),
            Self::Word(word) => {
                let mut numbers = Vec::new();
                for row in word.split(';') {
                    let before = numbers.len();
                    for number in row.split(',') {
                        numbers.push(yaml::real(number.trim())?);
                    }
                    if numbers.len() - before != columns {
                        return None;
                    }
                }
                Some(numbers)
            }
        }
    }
}

/// As a flag has it.
impl Display for ParameterInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => f.write_str(word),
            Self::Rows(numbers, rows_of) => {
                let row = |row: &[f64]| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
                let rows: Vec<String> = numbers.chunks(rows_of.unwrap_or(numbers.len()).max(1)).map(row).collect();
                f.write_str(&rows.join(";"))
            }
        }
    }
}

/// `value` for the parameter `name` of `policy` as a number.
///
/// # Errors
/// If it is none: what is wrong, and the hint.
pub(super) fn number_of(policy: &str, name: &str, value: &ParameterInput) -> Result<f64, (String, String)> {
    value.number().ok_or_else(|| {
        let shown = quoted(value.to_string().as_bytes());
        (format!("parameter `{name}` of `{policy}` is {shown}"), "it must be a number".to_owned())
    })
}

/// The index of the numeric parameter `name` of `policy`, which has this `description`, for `value`.
///
/// # Errors
/// If there is no such parameter or the value is out of its range: what is wrong, and the hint.
pub(super) fn find(
    policy: &str,
    description: &PolicyDescription,
    name: &str,
    value: f64,
) -> Result<usize, (String, String)> {
    let others = description.others.iter().map(|parameter| parameter.name.as_str());
    find_among(policy, &description.parameters, others, name, value)
}

/// The index in `declared` of the parameter `name`, to which `policy` is to set `value`.
///
/// # Errors
/// If there is no such parameter or the value is out of its range: what is wrong, and the hint.
pub(crate) fn find_number(
    policy: &str,
    declared: &[PolicyParameter],
    name: &str,
    value: f64,
) -> Result<usize, (String, String)> {
    find_among(policy, declared, std::iter::empty(), name, value)
}

fn find_among<'a>(
    policy: &str,
    declared: &'a [PolicyParameter],
    others: impl Iterator<Item = &'a str>,
    name: &str,
    value: f64,
) -> Result<usize, (String, String)> {
    let Some(index) = declared.iter().position(|parameter| parameter.name == name) else {
        let known: Vec<&str> = declared.iter().map(|parameter| parameter.name.as_str()).chain(others).collect();
        let hint = match known.is_empty() {
            true => "it has no parameters".to_owned(),
            false => blis_diag::name_hint(name, &known),
        };
        return Err((format!("`{policy}` has no parameter {}", quoted(name.as_bytes())), hint));
    };
    let PolicyParameter { min, max, .. } = declared[index];
    if !(min..=max).contains(&value) {
        let what = format!("parameter `{name}` of `{policy}` is {value}");
        return Err((what, format!("it must be a number from {min} to {max}")));
    }
    Ok(index)
}
