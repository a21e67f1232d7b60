//! Numeric parameters of built-in policies: name, default, range and meaning.

use blis_plugin::PolicyParameter;

/// Range of numbers of tokens, and of tokens per second.
pub(crate) const TOKENS: (f64, f64) = (1.0, 1e6);

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
    pub const fn new(name: &'static str, default: f64, (min, max): (f64, f64), about: &'static str) -> Self {
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

/// The index in `declared` of the parameter `name`, to which `policy` is to set `value`.
///
/// # Errors
/// If there is no such parameter or the value is out of its range: what is wrong, and the hint.
pub fn find(policy: &str, declared: &[PolicyParameter], name: &str, value: f64) -> Result<usize, (String, String)> {
    let Some(index) = declared.iter().position(|parameter| parameter.name == name) else {
        let known: Vec<&str> = declared.iter().map(|parameter| parameter.name.as_str()).collect();
        let hint = match known.is_empty() {
            true => "it has no parameters".to_owned(),
            false => blis_diag::name_hint(name, &known),
        };
        return Err((format!("`{policy}` has no parameter {}", blis_diag::quoted(name.as_bytes())), hint));
    };
    let PolicyParameter { min, max, .. } = declared[index];
    if !(min..=max).contains(&value) {
        let what = format!("parameter `{name}` of `{policy}` is {value}");
        return Err((what, format!("it must be a number from {min} to {max}")));
    }
    Ok(index)
}
