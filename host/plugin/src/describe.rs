//! Validation of the description that a plugin returns: the same rules for all three technologies.

use blis_diag::Location;

use blis_abi::{Column, ColumnGroup, EventSet, Kind};

use super::limits::{DECLARED_NAMES, PARAMETERS, WORD_BYTES};
use super::rows::{events_of, reads_of};
use super::text::plain;
use super::{Fault, FaultKind, Limits, OtherParameter, OtherValue, PolicyDescription, PolicyParameter, ValueTable};
use blis_sim::policy::{Events, Reads};
use wasmtime::component::{ComponentType, Lift};

/// The version of the interface that this host offers: `sdk/wit/since-v1.1.0`.
pub(crate) const OFFERED: (u64, u64) = (1, 1);
/// The same in full, as it stands in the names of interfaces.
pub(crate) const OFFERED_VERSION: &str = "1.1.0";

/// What a compiled plugin declares by name.
#[derive(Debug, Default)]
pub(crate) struct DeclaredNames {
    pub kinds: Vec<String>,
    pub reads: Vec<String>,
    pub events: Vec<String>,
}

/// What the names of a plugin stand for.
#[derive(Debug)]
pub(crate) struct Declared {
    pub kinds: Vec<Kind>,
    pub columns: Vec<Column>,
    pub reads: Reads,
    pub events: Events,
}

impl DeclaredNames {
    /// What the names stand for.
    ///
    /// # Errors
    /// If this host does not have a kind, column or event of that name: which, and those that it has.
    pub fn known(&self) -> Result<Declared, (FaultKind, String)> {
        let kinds = all("kind", &self.kinds, Kind::of, &Kind::ALL.map(Kind::name))?;
        let names: Vec<_> = Column::ALL.iter().map(|column| column.name()).collect();
        let columns = all("column", &self.reads, Column::of, &names)?;
        let names = EventSet::ALL.map(|(name, _)| name);
        let events = all("event", &self.events, EventSet::of, &names)?;
        let reads = reads_of(&columns);
        let events = events_of(events.into_iter().fold(EventSet::NONE, |all, event| all | event));
        let kinds = Kind::ALL.into_iter().filter(|kind| kinds.contains(kind)).collect();
        Ok(Declared { kinds, columns, reads, events })
    }
}

/// Everything that `names` stand for; `known` are all names of this host.
fn all<T>(
    what: &str,
    names: &[String],
    of: impl Fn(&str) -> Option<T>,
    known: &[&'static str],
) -> Result<Vec<T>, (FaultKind, String)> {
    if names.len() > DECLARED_NAMES {
        let what = format!("describe: {} names of {what}s; there may be {DECLARED_NAMES}", names.len());
        return Err((FaultKind::OutOfRange, what));
    }
    let unknown = |name: &String| {
        let (major, minor) = OFFERED;
        let what = format!(
            "describe: {what} `{}` is not one of this host (interface {major}.{minor}): {}; correct the name, or use a \
             newer blis",
            plain(name, WORD_BYTES),
            known.join(", ")
        );
        (FaultKind::VersionSkew, what)
    };
    names.iter().map(|name| of(name).ok_or_else(|| unknown(name))).collect()
}

/// A parameter as a plugin declares it: `parameter` of components.
#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub(crate) struct DeclaredParameter {
    pub name: String,
    pub about: String,
    pub default: DeclaredValue,
    pub min: f64,
    pub max: f64,
}

/// The default of a parameter.
#[derive(Debug, ComponentType, Lift)]
#[component(variant)]
pub(crate) enum DeclaredValue {
    #[component(name = "number")]
    Number(f64),
    #[component(name = "text")]
    Text(String),
    #[component(name = "table")]
    Table(ValueTable),
}

/// The numeric parameters, and the others.
pub(crate) fn parted(declared: Vec<DeclaredParameter>) -> (Vec<PolicyParameter>, Vec<OtherParameter>) {
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    for (position, DeclaredParameter { name, about, default, min, max }) in declared.into_iter().enumerate() {
        let default = match default {
            DeclaredValue::Number(default) => {
                numbers.push(PolicyParameter { name, default, min, max, about });
                continue;
            }
            DeclaredValue::Text(text) => OtherValue::Text(text),
            DeclaredValue::Table(table) => OtherValue::Table(table),
        };
        others.push(OtherParameter { name, default, min, max, about, position });
    }
    (numbers, others)
}

impl OtherParameter {
    /// What is wrong with `value` as a value of this parameter; nothing if it may have it.
    #[must_use]
    pub fn refusal(&self, value: &OtherValue) -> Option<String> {
        match (&self.default, value) {
            (OtherValue::Text(_), OtherValue::Text(_)) => None,
            (OtherValue::Table(like), OtherValue::Table(table)) => {
                let whole = table.columns > 0 && table.numbers.len().is_multiple_of(table.columns as usize);
                if table.columns != like.columns || !whole {
                    return Some(format!("it must be a table with rows of {} numbers", like.columns));
                }
                let (min, max) = (self.min, self.max);
                let outside = table.numbers.iter().find(|number| !(min..=max).contains(*number))?;
                Some(format!("it contains {outside}; its numbers must be from {min} to {max}"))
            }
            (OtherValue::Text(_), OtherValue::Table(_)) => Some("it must be a text".to_owned()),
            (OtherValue::Table(_), OtherValue::Text(_)) => Some("it must be a table".to_owned()),
        }
    }
}

impl PolicyDescription {
    /// Why it cannot read one of its columns: a saturation detector is about no request. `shown` is the name of a column
    /// in the plugin.
    pub(crate) fn unreadable_column(&self, shown: fn(Column) -> &'static str) -> Option<String> {
        let column = self.columns.iter().find(|column| column.group() == ColumnGroup::Cache)?;
        self.kinds.contains(&Kind::Saturation).then(|| {
            let column = shown(*column);
            format!(
                "`saturation` is about no request, so it cannot read `{column}`, which is about the prompt of one; leave it \
                 out, or give `saturation` a file of its own"
            )
        })
    }

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
        if let Some(what) = self.unreadable_column(Column::name) {
            return fault(FaultKind::Refused, what);
        }
        let numbers = self.parameters.iter().map(|parameter| [&parameter.name, &parameter.about]);
        let others = self.others.iter().map(|parameter| [&parameter.name, &parameter.about]);
        let parameters: Vec<[&String; 2]> = numbers.chain(others).collect();
        if parameters.len() > PARAMETERS {
            let count = parameters.len();
            return fault(FaultKind::OutOfMemory, format!("{count} parameters; there may be {PARAMETERS}"));
        }
        let texts = [&self.name, &self.version, &self.about].into_iter().chain(parameters.iter().copied().flatten());
        if let Some(text) = { texts }.find(|text| text.len() > limits.message_bytes) {
            let what = format!("a text of {} bytes; there may be {}", text.len(), limits.message_bytes);
            return fault(FaultKind::OutOfMemory, what);
        }
        let numbers = self.parameters.iter().map(nonsense);
        if let Some(what) = numbers.chain(self.others.iter().map(nonsense_of_other)).flatten().next() {
            return fault(FaultKind::OutOfRange, what);
        }
        let names: Vec<&String> = parameters.iter().map(|[name, _]| *name).collect();
        if let Some(index) = (1..names.len()).find(|&index| names[..index].contains(&names[index])) {
            return fault(FaultKind::OutOfRange, format!("two parameters are called `{}`", names[index]));
        }
        Ok(self)
    }
}

fn is_word(name: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= WORD_BYTES && name.chars().all(allowed)
}

fn nonsense_of_other(parameter: &OtherParameter) -> Option<String> {
    if !is_word(&parameter.name) {
        return Some(misnamed(&parameter.name));
    }
    let what = parameter.refusal(&parameter.default)?;
    Some(format!("the default of parameter `{}` cannot be: {what}", parameter.name))
}

fn misnamed(name: &str) -> String {
    format!("a parameter is called {name:?}; use a word of letters, digits, `-`, `_` and `.`")
}

fn nonsense(parameter: &PolicyParameter) -> Option<String> {
    let PolicyParameter { name, default, min, max, .. } = parameter;
    if !is_word(name) {
        return Some(misnamed(name));
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
    use super::*;

    fn described(change: impl FnOnce(&mut PolicyDescription)) -> Result<PolicyDescription, String> {
        let weight = PolicyParameter { name: "weight".into(), default: 1.0, min: 0.0, max: 2.0, about: String::new() };
        let mut description = PolicyDescription {
            name: "mine".into(),
            version: String::new(),
            about: String::new(),
            kinds: vec![Kind::Routing],
            columns: Vec::new(),
            reads: Reads::NOTHING,
            events: Events::NONE,
            scores: false,
            every_step: false,
            parameters: vec![weight],
            others: Vec::new(),
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
