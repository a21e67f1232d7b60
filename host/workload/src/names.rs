//! The texts of the names in a workload. The simulator uses their numbers only.

use std::collections::BTreeSet;

use blis_sim::request::Name;
use rustc_hash::FxHashMap;

/// Every name of a workload, by number. Empty if requests have no names.
#[derive(Clone, Debug, Default)]
pub struct Names {
    numbers: FxHashMap<Box<str>, Name>,
    /// Texts by number; number 0 is the empty name.
    texts: Vec<Box<str>>,
    /// The LoRA adapters that requests name, each with the model that they name beside it.
    adapters: BTreeSet<(Name, Name)>,
}

impl Names {
    /// The text of `name`; empty for [`Name::NONE`] and for unknown numbers.
    #[must_use]
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name.index()).map_or("", |text| text)
    }

    /// The number of `text`; `None` if no request has that name.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Name> {
        self.numbers.get(text).copied()
    }

    /// The number of `text`, a new one if it has none; [`Name::NONE`] if it is empty.
    pub fn intern(&mut self, text: &str) -> Name {
        if text.is_empty() {
            return Name::NONE;
        }
        if let Some(&name) = self.numbers.get(text) {
            return name;
        }
        if self.texts.is_empty() {
            self.texts.push("".into());
        }
        // At most 7 names per request and 2^32 requests: memory runs out before the numbers do.
        let name = Name(u32::try_from(self.texts.len()).unwrap_or(0));
        self.texts.push(text.into());
        self.numbers.insert(text.into(), name);
        name
    }

    /// The number of the LoRA adapter `text`, as [`Self::intern`]; its requests name `model`, or none.
    pub fn intern_adapter(&mut self, text: &str, model: Name) -> Name {
        let adapter = self.intern(text);
        if adapter != Name::NONE {
            self.adapters.insert((adapter, model));
        }
        adapter
    }

    /// The LoRA adapters that requests name, each with the model that they name beside it; [`Name::NONE`] if they name
    /// none.
    pub fn adapters(&self) -> impl Iterator<Item = (Name, Name)> + '_ {
        self.adapters.iter().copied()
    }

    /// The number of the first session without a stored name. There are as many sessions as requests, so the text of
    /// generated ones follows from their number, see [`session_text`](blis_sim::request::session_text).
    pub fn first_session(&mut self) -> Name {
        if self.texts.is_empty() {
            self.texts.push("".into());
        }
        Name(u32::try_from(self.texts.len()).unwrap_or(u32::MAX))
    }

    /// All texts by number, the empty one first; empty if there are no names.
    #[must_use]
    pub fn texts(&self) -> &[Box<str>] {
        &self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::request::session_text;

    #[test]
    fn equal_names_have_equal_numbers() {
        let mut names = Names::default();
        assert_eq!(names.intern(""), Name::NONE);
        assert!(names.texts().is_empty(), "a workload without names has no texts");
        let batch = names.intern("batch");
        assert_eq!((names.intern("batch"), names.find("batch")), (batch, Some(batch)));
        assert_ne!(names.intern("critical"), batch);
        assert_eq!([names.text(batch), names.text(Name::NONE), names.text(Name(99))], ["batch", "", ""]);
        assert_eq!(names.find("gold"), None);
    }

    #[test]
    fn adapters_are_listed_with_the_models_of_their_requests() {
        let mut names = Names::default();
        let model = names.intern("llama");
        assert_eq!(names.intern_adapter("", model), Name::NONE);
        let sql = names.intern_adapter("sql", Name::NONE);
        assert_eq!([names.intern_adapter("sql", model), names.intern_adapter("sql", model)], [sql; 2]);
        assert_eq!(names.adapters().collect::<Vec<_>>(), [(sql, Name::NONE), (sql, model)]);
    }

    #[test]
    fn sessions_are_numbered_behind_the_names() {
        let mut names = Names::default();
        let first = names.first_session();
        assert_eq!((first, names.intern("batch")), (Name(1), Name(1)), "to be called after all names are interned");
        let first = names.first_session();
        let texts = names.texts();
        let texts_of = [Name::NONE, Name(1), first, Name(first.0 + 7)].map(|name| session_text(texts, name));
        assert_eq!(texts_of, ["", "batch", "sess_0", "sess_7"]);
        assert_eq!(session_text(&[], Name::NONE), "");
    }
}
