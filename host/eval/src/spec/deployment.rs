//! The section `deployment` of a configuration file: a whole service, group by group. It is another form of the settings
//! that flags set, and sets them with the locations of its values.
//!
//! ```yaml
//! deployment:
//!   model: qwen/qwen3-32b
//!   groups:                 # the first is that of --hardware, --tp, …; the others have what they do not say from it
//!     - { hardware: H100, tp: 2, instances: 3, min: 3, max: 8 }
//!     - { hardware: A100-SXM, tp: 4, min: 0, max: 4, startup-time: 135s }
//!   node-pools:
//!     - { name: hopper, hardware: H100, gpus-per-node: 8, max: 2, provisioning: 5m }
//!     - { name: ampere, hardware: A100-SXM, gpus-per-node: 8, max: 2, provisioning: 5m }
//!   autoscaler:
//!     policy: slo-aware
//!     parameters: { ttft-ms: 2000 }
//!     scale-up: window=30s,100%/60s
//!   prices: prices.yaml
//! ```

use std::fmt;

use blis_config::policy::SettingSource;
use blis_diag::yaml::{Document, Entries, Mark, Spanned, Word};
use blis_diag::{name_hint, quoted};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::settings::{ExperimentSpec, KEYS, SettingKey, invalid};
use crate::error::RunError;
use crate::group::{GroupSettings, set_group};
use crate::node_pool::{NodePoolSettings, set_node_pool};

/// The setting that names the autoscaler; those under its heading are in its part of the section.
const AUTOSCALER: &str = "autoscaler";

/// The section before its values are checked.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawDeployment {
    model: Option<Word>,
    groups: Option<Vec<RawEntries>>,
    #[serde(alias = "node_pools")]
    node_pools: Option<Vec<RawEntries>>,
    #[serde(alias = "node_idle")]
    node_idle: Option<Word>,
    autoscaler: Option<RawAutoscaler>,
    prices: Option<Word>,
}

/// The settings of a group or of a node pool.
type RawEntries = Spanned<Entries<Word>>;

/// The policy, its parameters, and settings of autoscaling by name.
#[derive(Default)]
struct RawAutoscaler {
    settings: Vec<(Word, Word)>,
    parameters: Vec<(Word, Word)>,
}

impl<'de> Deserialize<'de> for RawAutoscaler {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutoscalerVisitor;

        impl<'de> Visitor<'de> for AutoscalerVisitor {
            type Value = RawAutoscaler;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy, its parameters, and settings of autoscaling")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawAutoscaler, A::Error> {
                let mut raw = RawAutoscaler::default();
                while let Some(name) = map.next_key::<Word>()? {
                    match name.value.as_str() {
                        "parameters" => raw.parameters = map.next_value::<Entries<Word>>()?.0,
                        _ => raw.settings.push((name, map.next_value()?)),
                    }
                }
                Ok(raw)
            }
        }

        deserializer.deserialize_map(AutoscalerVisitor)
    }
}

impl RawDeployment {
    /// Sets what the section says in `spec`.
    ///
    /// # Errors
    /// The first mistake, with its location in `document`.
    pub(super) fn set(&self, spec: &mut ExperimentSpec, document: &Document<'_>) -> Result<(), RunError> {
        let mut section = SectionSettings { spec, document };
        section.word("model", self.model.as_ref())?;
        let mut groups = self.groups.iter().flatten();
        groups.next().map_or(Ok(()), |first| section.first(first))?;
        for group in groups {
            let mut checked = GroupSettings::default();
            section.entries("group", group, |name, value| set_group(&mut checked, name, value))?;
        }
        for pool in self.node_pools.iter().flatten() {
            let mut checked = NodePoolSettings::default();
            section.entries("node-pool", pool, |name, value| set_node_pool(&mut checked, name, value))?;
        }
        section.word("node-idle", self.node_idle.as_ref())?;
        self.autoscaler.as_ref().map_or(Ok(()), |autoscaler| autoscaler.set(&mut section))?;
        section.word("prices", self.prices.as_ref())
    }
}

impl RawAutoscaler {
    fn set(&self, section: &mut SectionSettings<'_, '_>) -> Result<(), RunError> {
        for (name, value) in &self.settings {
            let name_of_key = if name.value == "policy" { AUTOSCALER } else { name.value.as_str() };
            let is_here = |key: &&SettingKey| key.group.heading == SettingKey::named(AUTOSCALER).group.heading;
            let Some(key) = SettingKey::get(name_of_key).filter(is_here) else {
                let known: Vec<&str> = KEYS.iter().filter(is_here).map(|key| key.name).collect();
                let what = format!("unknown key {}", quoted(name.value.as_bytes()));
                return Err(RunError::refused(section.document.wrong(
                    name.referenced,
                    what,
                    name_hint(&name.value, &known),
                )));
            };
            section.word(key.name, Some(value))?;
        }
        for (name, value) in &self.parameters {
            let text = format!("scaling.{}={}", name.value, value.value);
            section.add("policy-param", &text, value.referenced, &value.value)?;
        }
        Ok(())
    }
}

/// The section while its values are set.
struct SectionSettings<'a, 'd> {
    spec: &'a mut ExperimentSpec,
    document: &'a Document<'d>,
}

impl SectionSettings<'_, '_> {
    /// The first group: the settings of flags.
    fn first(&mut self, group: &RawEntries) -> Result<(), RunError> {
        let mut checked = GroupSettings::default();
        for (name, value) in &group.value.0 {
            let dashed = name.value.replace('_', "-");
            set_group(&mut checked, &dashed, &value.value).map_err(|message| self.wrong(name, value, &message))?;
            let key = KEYS.iter().find(|key| key.in_group == dashed);
            key.map_or(Ok(()), |key| self.word(key.name, Some(value)))?;
        }
        Ok(())
    }

    /// An item of the list `flag`, as its flag has it; `check` is called with each of its settings.
    fn entries(
        &mut self,
        flag: &'static str,
        raw: &RawEntries,
        mut check: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<(), RunError> {
        let mut texts = Vec::new();
        for (name, value) in &raw.value.0 {
            let dashed = name.value.replace('_', "-");
            let text = match value.value.contains(',') {
                true => format!("({})", value.value),
                false => value.value.clone(),
            };
            check(&dashed, &text).map_err(|message| self.wrong(name, value, &message))?;
            texts.push(format!("{dashed}={text}"));
        }
        let text = if texts.is_empty() && flag == "group" { "instances=1".to_owned() } else { texts.join(",") };
        self.add(flag, &text, raw.referenced, &text)
    }

    /// The setting `name`, unless the section leaves it out.
    fn word(&mut self, name: &str, word: Option<&Word>) -> Result<(), RunError> {
        let Some(word) = word else { return Ok(()) };
        if self.spec.has(name) {
            let what = format!("`{name}` is set twice");
            return Err(RunError::refused(self.document.wrong(word.referenced, what, "keep one of them")));
        }
        self.add(name, &word.value, word.referenced, &word.value)
    }

    /// Sets `name` to the value of `text`, or adds the value to a list; messages show `shown`.
    fn add(&mut self, name: &str, text: &str, at: Mark, shown: &str) -> Result<(), RunError> {
        let source = SettingSource::File(self.document.location(at));
        self.spec.set(SettingKey::named(name), text, source).map_err(|message| {
            let (what, hint) = invalid(name, &quoted(shown.as_bytes()), &message);
            RunError::refused(self.document.wrong(at, what, hint))
        })
    }

    /// The error about the value of `name`, or about `name` if there is no such setting.
    fn wrong(&self, name: &Word, value: &Word, message: &str) -> RunError {
        let (what, hint) = invalid(&name.value, &quoted(value.value.as_bytes()), message);
        let unknown = format!("unknown key {}", quoted(name.value.as_bytes()));
        RunError::refused(match message.starts_with("there is no") {
            true => self.document.wrong(name.referenced, unknown, message),
            false => self.document.wrong(value.referenced, what, hint),
        })
    }
}
