//! Validation of the description that a plugin returns: the same rules for all three technologies.

use blis_diag::Location;

use super::limits::{PARAMETERS, WORD_BYTES};
use super::{Fault, FaultKind, Limits, PolicyDescription, PolicyParameter};

impl PolicyDescription {
    /// `self` if it is valid. `file` is the path of the plugin, for messages.
    ///
    /// # Errors
    /// If a name is missing, duplicate or not a single word, a text is too long, no kind is named, or the default of a
    /// parameter is outside its range.
    pub fn checked(self, file: &str, limits: &Limits) -> Result<Self, Fault> {
        let fault = |kind, what: String| Err(Fault::new(kind, format!("describe: {what}")).at(Location::file(file)));
        if !is_word(&self.name) {
            let what = format!("the name is {:?}; it must be a word of letters, digits, `-`, `_` and `.`", self.name);
            return fault(FaultKind::OutOfRange, what);
        }
        if self.kinds.is_empty() {
            return fault(FaultKind::OutOfRange, "it names no kind; name at least one, as routing".into());
        }
        if self.parameters.len() > PARAMETERS {
            let what = format!("{} parameters; there may be {PARAMETERS}", self.parameters.len());
            return fault(FaultKind::OutOfMemory, what);
        }
        let abouts = self.parameters.iter().flat_map(|parameter| [&parameter.name, &parameter.about]);
        if let Some(text) = [&self.name, &self.version, &self.about]
            .into_iter()
            .chain(abouts)
            .find(|text| text.len() > limits.message_bytes)
        {
            let what = format!("a text of {} bytes; there may be {}", text.len(), limits.message_bytes);
            return fault(FaultKind::OutOfMemory, what);
        }
        for (index, parameter) in self.parameters.iter().enumerate() {
            if let Some(what) = nonsense(parameter) {
                return fault(FaultKind::OutOfRange, what);
            }
            if self.parameters[..index].iter().any(|other| other.name == parameter.name) {
                return fault(FaultKind::OutOfRange, format!("two parameters are called `{}`", parameter.name));
            }
        }
        Ok(self)
    }
}

fn is_word(name: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= WORD_BYTES && name.chars().all(allowed)
}

fn nonsense(parameter: &PolicyParameter) -> Option<String> {
    let PolicyParameter { name, default, min, max, .. } = parameter;
    if !is_word(name) {
        return Some(format!("a parameter is called {name:?}; use a word of letters, digits, `-`, `_` and `.`"));
    }
    let finite = [default, min, max].into_iter().all(|number| number.is_finite());
    if finite && min <= default && default <= max {
        return None;
    }
    Some(format!(
        "parameter `{name}` has default {default}, smallest {min}, largest {max}; they must be finite and in order"
    ))
}

#[cfg(test)]
mod tests {
    use blis_sim::policy::{Events, Reads};

    use super::*;
    use crate::Kind;

    fn described(change: impl FnOnce(&mut PolicyDescription)) -> Result<PolicyDescription, String> {
        let weight = PolicyParameter { name: "weight".into(), default: 1.0, min: 0.0, max: 2.0, about: String::new() };
        let mut description = PolicyDescription {
            name: "mine".into(),
            version: String::new(),
            about: String::new(),
            kinds: vec![Kind::Routing],
            reads: Reads::NOTHING,
            events: Events::NONE,
            scores: false,
            every_step: false,
            parameters: vec![weight],
        };
        change(&mut description);
        description.checked("mine.so", &Limits::default()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn sense_passes_and_nonsense_is_named() {
        assert!(described(|_| {}).is_ok());
        let nonsense: [fn(&mut PolicyDescription); 7] = [
            |d| d.name = "two words".into(),
            |d| d.kinds.clear(),
            |d| d.about = "x".repeat(5000),
            |d| d.parameters[0].default = 3.0,
            |d| d.parameters[0].max = f64::INFINITY,
            |d| d.parameters.push(d.parameters[0].clone()),
            |d| d.parameters[0].name = String::new(),
        ];
        let messages: Vec<_> = nonsense.into_iter().map(|change| described(change).expect_err("nonsense")).collect();
        insta::assert_snapshot!(messages.join("\n"), @r#"
        mine.so: describe: the name is "two words"; it must be a word of letters, digits, `-`, `_` and `.` [out-of-range]
        mine.so: describe: it names no kind; name at least one, as routing [out-of-range]
        mine.so: describe: a text of 5000 bytes; there may be 4096 [out-of-memory]
        mine.so: describe: parameter `weight` has default 3, smallest 0, largest 2; they must be finite and in order [out-of-range]
        mine.so: describe: parameter `weight` has default 1, smallest 0, largest inf; they must be finite and in order [out-of-range]
        mine.so: describe: two parameters are called `weight` [out-of-range]
        mine.so: describe: a parameter is called ""; use a word of letters, digits, `-`, `_` and `.` [out-of-range]
        "#);
    }
}
