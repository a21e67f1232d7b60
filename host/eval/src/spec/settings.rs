//! The specification of an experiment as data: one optional value per setting, named as the flag of `blis run` (or
//! `blis replay`) that sets it.
//!
//! ```text
//! flags of the command line ─┐
//! --config FILE (YAML)      ─┼─► ExperimentSpec ──► Experiment (checked, defaults filled in) ──► a simulation
//! scenarios of suites, JSON ─┘
//! ```
//!
//! `table.rs` is the only list of settings; this file is what follows from a row. Each value has a source ([`SettingSource`]),
//! which is not part of the specification: two specifications are equal if their values are, and files hold values only.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use blis_config::local_path;
use blis_config::policy::SettingSource;
use blis_diag::{Diagnostic, name_hint, quoted};
use blis_plugin::Kind;
use rustc_hash::FxHashMap;
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

use super::kind::{Choice, Range, ValueForm};
use super::permission::{self, Permission};
use super::rules::Rule;
use crate::error::RunError;

pub use super::table::{ExperimentSpec, KEYS};

/// The policies of a configuration file, in the form of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinePolicies {
    /// The file, as messages name it.
    pub file: Arc<str>,
    /// A bundle, with the line numbers of the file.
    pub text: Arc<str>,
}

/// Settings that are about one thing.
pub struct SettingGroup {
    /// The heading in help.
    pub heading: &'static str,
    /// The section of configuration files.
    pub section: &'static str,
    /// The commands that have its settings as flags: a sum of those of [`commands`](super::commands).
    pub commands: u16,
    /// What all of them need.
    pub(super) needs: &'static [Rule],
    /// What all of them exclude.
    pub(super) apart: &'static [Rule],
    /// Flags with which examples of its settings show in the results, unless a row has others.
    pub beside: &'static str,
}

/// Declares the columns of a row, each with the value of a row that leaves it out.
macro_rules! columns {
    ($($(#[$doc:meta])* $vis:vis $column:ident: $type:ty = $value:expr;)+) => {
        /// A setting: a row of the table.
        pub struct SettingKey {
            $($(#[$doc])* $vis $column: $type,)+
        }

        impl SettingKey {
            /// A row without columns of its own.
            pub(super) const PLAIN: Self = Self { $($column: $value,)+ };
        }
    };
}

columns! {
    /// The name of the flag, without dashes in front.
    pub name: &'static str = "";
    /// Other names of the flag: those of BLIS, vLLM and other tools.
    pub aliases: &'static [&'static str] = &[];
    /// Its meaning, as help has it.
    pub help: &'static str = "";
    /// What stands for its value in help; empty for a switch.
    pub placeholder: &'static str = "";
    /// How files write the value.
    pub form: ValueForm = ValueForm::Text;
    /// The values that it can have.
    pub range: Range = Range::Text("");
    /// The names of a closed set with their meanings.
    pub choices: fn() -> Vec<Choice> = Vec::new;
    /// The value without a setting, if it is always the same.
    pub default: Option<&'static str> = None;
    pub group: &'static SettingGroup = &SettingGroup { heading: "", section: "", commands: 0, needs: &[], apart: &[], beside: "" };
    pub(super) needs: &'static [Rule] = &[];
    pub(super) apart: &'static [Rule] = &[];
    /// Whether its default, too, contradicts what it excludes.
    pub(super) strict: bool = false;
    /// The commands that have it, if they are not those of the group; 0 if they are.
    pub commands: u16 = 0;
    /// The help of the flag that turns a switch off; empty without one.
    pub off: &'static str = "";
    /// The name of that flag.
    pub off_name: &'static str = "";
    /// Whether short help has it.
    pub usual: bool = false;
    /// Whether help leaves it out.
    pub hidden: bool = false;
    /// The kind of the policy that it names.
    pub chooses: Option<Kind> = None;
    /// Whether it sets a part or a parameter of the routing policy.
    pub routes: bool = false;
    /// BLIS's key of the parameter of a policy that it is another name of.
    pub parameter: Option<&'static str> = None;
    /// Whether an explained configuration has it among the policies.
    pub in_bundle: bool = false;
    /// Whether scenarios of suites can have it.
    pub suites: bool = true;
    /// What groups of instances call it; empty if they have the same value.
    pub in_group: &'static str = "";
    /// What it grants. Only the command line can set it then.
    pub permission: Option<Permission> = None;
    /// A value that is not the default, for documents and tests.
    pub example: &'static str = "";
    /// Flags with which the example shows in the results.
    pub beside: &'static str = "";
    /// Why it changes no result, if it does not.
    pub silent: &'static str = "";
    pub(super) set: fn(&mut ExperimentSpec, &str) -> Result<(), String> = |_, _| Ok(());
    pub(super) get: fn(&ExperimentSpec) -> Option<Vec<String>> = |_| None;
    pub(super) clear: fn(&mut ExperimentSpec) = |_| ();
    pub(super) copy: fn(&mut ExperimentSpec, &ExperimentSpec) = |_, _| ();
}

impl fmt::Debug for SettingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Where the values are from, by name of the setting. Values that were set without a source are missing.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    values: BTreeMap<&'static str, SettingSource>,
    /// Of the items of lists.
    items: BTreeMap<&'static str, Vec<SettingSource>>,
}

macro_rules! settings {
    ($(in $group:ident { $(
        $(#[doc = $help:literal])+
        $field:ident: $type:ty = $name:literal $(| $alias:literal)*, $($placeholder:literal)? $kind:path
        $(, default $default:literal)? $(, { $($column:ident: $value:expr),+ $(,)? })?;
    )+ })+) => {
        /// The settings of an experiment; `None` selects the default.
        #[derive(Clone, Default)]
        pub struct ExperimentSpec {
            $($($(#[doc = $help])+ pub $field: Option<$type>,)+)+
            /// The policies of the file itself, in the form of a bundle.
            pub policies: Option<InlinePolicies>,
            /// Where the files of a suite may lie, and its policies are found; anywhere without one.
            pub beside: Option<Surroundings>,
            pub(super) sources: Sources,
        }

        /// All settings, in the order of help.
        pub static KEYS: &[SettingKey] = &[$($(SettingKey {
            $($($column: $value,)+)?
            name: $name,
            aliases: &[$($alias),*],
            help: concat!($($help),+),
            off_name: concat!("no-", $name),
            placeholder: concat!($($placeholder)?),
            form: $kind.form,
            range: $kind.range,
            choices: $kind.choices,
            default: { let default: &[&str] = &[$($default)?]; default.first().copied() },
            group: &$group,
            set: |spec, text| $kind.set(&mut spec.$field, text),
            get: |spec| spec.$field.as_ref().map(|value| $kind.write(value)),
            clear: |spec| spec.$field = None,
            copy: |to, from| to.$field.clone_from(&from.$field),
            ..SettingKey::PLAIN
        },)+)+];

        impl PartialEq for ExperimentSpec {
            fn eq(&self, other: &Self) -> bool {
                $($(self.$field == other.$field &&)+)+ self.policies == other.policies
            }
        }

        /// The values of settings that always have the same default.
        impl ExperimentSpec {
            $($($(settings! { @default $field: $type = $kind, $default })?)+)+
        }
    };
    (@default $field:ident: $type:ty = $kind:path, $default:literal) => {
        #[doc = concat!("The value, or ", $default, ".")]
        #[must_use]
        pub fn $field(&self) -> $type {
            // A test reads every default.
            self.$field.clone().unwrap_or_else(|| $kind.read($default).unwrap_or_else(|error| panic!("{error}")))
        }
    };
}
pub(super) use settings;

impl SettingKey {
    /// The setting with this name, or with that alias; dashes and underscores are equivalent.
    #[must_use]
    pub fn get(name: &str) -> Option<&'static Self> {
        static NAMES: LazyLock<FxHashMap<&'static str, &'static SettingKey>> = LazyLock::new(|| {
            KEYS.iter().flat_map(|key| key.aliases.iter().chain([&key.name]).map(move |name| (*name, key))).collect()
        });
        NAMES.get(name.replace('_', "-").as_str()).copied()
    }

    /// The setting with this name, which one of [`KEYS`] has.
    ///
    /// # Panics
    /// If none has it.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        Self::get(name).unwrap_or_else(|| panic!("no setting is called {name}"))
    }

    /// As [`Self::get`].
    ///
    /// # Errors
    /// A hint with the nearest name, which takes a while to find.
    pub fn find(name: &str) -> Result<&'static Self, String> {
        Self::get(name).ok_or_else(|| {
            let name = name.replace('_', "-");
            let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            match blis_diag::nearest(&name, &known) {
                Some(_) => name_hint(&name, &known),
                None => "a setting is named as the flag of `blis run` that sets it: see `blis run --help`".to_owned(),
            }
        })
    }

    /// Whether the value of `text` is valid.
    ///
    /// # Errors
    /// What it must be.
    pub fn validate(&self, text: &str) -> Result<(), String> {
        (self.set)(&mut ExperimentSpec::default(), text)
    }

    /// The value of `texts` as files write it: numbers as numbers, switches as booleans, lists as lists.
    #[must_use]
    pub fn json(&self, texts: &[String]) -> Value {
        let one = |text: &String| match self.form {
            ValueForm::Number | ValueForm::Numbers | ValueForm::Switch => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()))
            }
            ValueForm::Text | ValueForm::Texts => Value::from(text.as_str()),
        };
        if self.form.is_list() { texts.iter().map(one).collect() } else { texts.first().map_or(Value::Null, one) }
    }

    /// Whether it belongs to `group`.
    pub(crate) fn is_in(&self, group: &'static SettingGroup) -> bool {
        std::ptr::eq(self.group, group)
    }

    /// Whether it says which instance gets a request, or sets a parameter of what says so.
    pub(crate) fn decides_routing(&self) -> bool {
        self.chooses == Some(Kind::Routing) || self.routes
    }

    /// Whether the commands of `any` include one that has it as a flag.
    #[must_use]
    pub fn is_of(&self, any: u16) -> bool {
        any & if self.commands == 0 { self.group.commands } else { self.commands } != 0
    }
}

/// What is wrong with the value of `name`, which messages show as `shown`, and what to do; `message` is that of
/// [`ExperimentSpec::set`].
pub(crate) fn invalid(name: &str, shown: &str, message: &str) -> (String, String) {
    if message == permission::refused(name) {
        return (format!("`{name}` {message}"), permission::HINT.to_owned());
    }
    let hint = if message.starts_with("must ") { format!("it {message}") } else { message.to_owned() };
    (format!("`{name}` is {shown}"), hint)
}

impl ExperimentSpec {
    /// Sets `key` to the value of `text`, or adds the value to a list.
    ///
    /// # Errors
    /// What the value must be; and if `key` grants a permission, and `source` is not the command line.
    pub fn set(&mut self, key: &'static SettingKey, text: &str, source: SettingSource) -> Result<(), String> {
        if key.permission.is_some() && !matches!(source, SettingSource::Flag(_)) {
            return Err(permission::refused(key.name));
        }
        match &self.beside {
            Some(beside) if key.range == Range::Path || key.name == "model" && local_path(text).is_some() => {
                let path = beside.find(Path::new(text))?.display().to_string();
                (key.set)(self, &path)?;
            }
            _ => (key.set)(self, text)?,
        }
        // A group names a model inside its text.
        let models = self.group.iter().flatten().filter_map(|group| group.model.as_deref()).filter_map(local_path);
        self.beside.iter().try_for_each(|beside| models.clone().try_for_each(|model| beside.check(&model)))?;
        if key.form == ValueForm::Texts {
            self.sources.items.entry(key.name).or_default().push(source.clone());
        }
        self.sources.values.insert(key.name, source);
        Ok(())
    }

    /// Sets `key`, named as its flag, as [`Self::set`] does.
    ///
    /// # Errors
    /// If there is no such setting, or its value is invalid.
    pub fn set_named(&mut self, name: &str, text: &str) -> Result<(), RunError> {
        let key = SettingKey::find(name).map_err(|hint| {
            let (what, hint) = unknown(name, &hint);
            RunError::usage(what).hint(hint)
        })?;
        self.set(key, text, SettingSource::Other("the specification".into())).map_err(|message| {
            let (what, hint) = invalid(name, &format!("`{text}`"), &message);
            RunError::usage(what).hint(hint)
        })
    }

    /// These settings, completed by those of `base` where they are not set.
    #[must_use]
    pub fn over(mut self, base: &Self) -> Self {
        for key in KEYS {
            if (key.get)(&self).is_none() && (key.get)(base).is_some() {
                (key.copy)(&mut self, base);
                if let Some(source) = base.sources.values.get(key.name) {
                    self.sources.values.insert(key.name, source.clone());
                }
                if let Some(sources) = base.sources.items.get(key.name) {
                    self.sources.items.insert(key.name, sources.clone());
                }
            }
        }
        self.policies = self.policies.or_else(|| base.policies.clone());
        self
    }

    /// Removes the value of `key`.
    pub fn unset(&mut self, key: &'static SettingKey) {
        (key.clear)(self);
        self.sources.values.remove(key.name);
        self.sources.items.remove(key.name);
    }

    /// The error about the setting `name`, with or without dashes, where it is set.
    pub(crate) fn misplaced(&self, name: &str, what: &str, hint: &str) -> RunError {
        let name = name.trim_start_matches('-');
        misplaced(&self.source(name, SettingSource::Default), name, what, hint)
    }

    /// The error about the item `index` of the list `name`, where it is set.
    pub(crate) fn misplaced_item(&self, name: &str, index: usize, what: &str, hint: &str) -> RunError {
        misplaced(&self.item_source(name, index, SettingSource::Default), name, what, hint)
    }

    /// Whether the setting called `name` is set.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        SettingKey::get(name).is_some_and(|key| (key.get)(self).is_some())
    }

    /// The value of `key` as text, several texts for a list, or its default.
    pub(crate) fn texts_of(&self, key: &SettingKey) -> Vec<String> {
        (key.get)(self).unwrap_or_else(|| key.default.iter().map(|&text| text.to_owned()).collect())
    }

    /// Whether `key` is set to another value than its default.
    pub(crate) fn differs(&self, key: &SettingKey) -> bool {
        (key.get)(self).is_some_and(|texts| key.default.is_none_or(|default| texts != [default]))
    }

    /// Whether a bundle may choose policies.
    pub(crate) fn has_bundle(&self) -> bool {
        self.policies.is_some() || self.policy_config.is_some()
    }

    /// The source of the value of `name`, or `otherwise` if it is not set.
    #[must_use]
    pub fn source(&self, name: &str, otherwise: SettingSource) -> SettingSource {
        self.sources.values.get(name).cloned().unwrap_or(otherwise)
    }

    /// The source of the item `index` of the list `name`, or that of the list.
    #[must_use]
    pub fn item_source(&self, name: &str, index: usize, otherwise: SettingSource) -> SettingSource {
        let item = self.sources.items.get(name).and_then(|sources| sources.get(index));
        item.cloned().unwrap_or_else(|| self.source(name, otherwise))
    }

    /// The settings that are set, in the order of help, as text; several texts for a list.
    pub fn entries(&self) -> impl Iterator<Item = (&'static SettingKey, Vec<String>)> {
        KEYS.iter().filter_map(|key| Some((key, (key.get)(self)?)))
    }
}

/// What is wrong with a name that no setting has, and what to do.
pub(super) fn unknown(name: &str, hint: &str) -> (String, String) {
    let dashed = name.replace('_', "-");
    match Permission::of_flag(&dashed) {
        Some(_) => (format!("`{name}` {}", permission::refused(&dashed)), permission::HINT.to_owned()),
        None => (format!("there is no setting {}", quoted(name.as_bytes())), hint.to_owned()),
    }
}

fn misplaced(source: &SettingSource, name: &str, what: &str, hint: &str) -> RunError {
    match source {
        SettingSource::File(location) => {
            RunError::refused(Diagnostic::new(format!("`{name}` {what}")).at(location.clone()).hint(hint))
        }
        _ => RunError::usage(format_args!("`--{name}` {what}")).hint(hint),
    }
}

/// Shows the settings that are set.
impl fmt::Debug for ExperimentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(self.entries().map(|(key, texts)| (key.name, texts.join(", "))));
        map.entries(self.policies.as_ref().map(|policies| ("policies", &policies.text)));
        map.finish()
    }
}

/// A map of the settings that are set, by name: numbers as numbers, switches as booleans, lists as lists.
/// JSON: `Map<String, Value>`.
impl Serialize for ExperimentSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let policies = self.policies.iter().map(|policies| ("policies", Value::from(&*policies.text)));
        serializer.collect_map(self.entries().map(|(key, texts)| (key.name, key.json(&texts))).chain(policies))
    }
}
