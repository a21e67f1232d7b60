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

use blis_config::policy::SettingSource;
use blis_diag::quoted;
use blis_diag::yaml::{Document, Entries, Mark, Spanned, Word};
use serde::Deserialize;

use super::parse::{set_group, set_node_pool};
use super::settings::{ExperimentSpec, SettingKey, value_hint};
use crate::error::RunError;
use crate::group::GroupSettings;
use crate::node_pool::NodePoolSettings;

/// The section before its values are checked.
#[derive(Deserialize)]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawAutoscaler {
    policy: Word,
    parameters: Option<Entries<Word>>,
    #[serde(alias = "min_replicas")]
    min_replicas: Option<Word>,
    #[serde(alias = "max_replicas")]
    max_replicas: Option<Word>,
    #[serde(alias = "scrape_interval")]
    scrape_interval: Option<Word>,
    #[serde(alias = "scaling_interval")]
    scaling_interval: Option<Word>,
    #[serde(alias = "scale_up")]
    scale_up: Option<Word>,
    #[serde(alias = "scale_down")]
    scale_down: Option<Word>,
    #[serde(alias = "cooldown_period")]
    cooldown_period: Option<Word>,
    #[serde(alias = "startup_time")]
    startup_time: Option<Word>,
    #[serde(alias = "start_mode")]
    start_mode: Option<Word>,
    #[serde(alias = "drain_policy")]
    drain_policy: Option<Word>,
}

/// The settings of the first group that have other names as flags.
const OF_FIRST: [(&str, &str); 3] = [("instances", "num-instances"), ("min", "min-replicas"), ("max", "max-replicas")];

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
        for (name, word) in [
            ("autoscaler", Some(&self.policy)),
            ("min-replicas", self.min_replicas.as_ref()),
            ("max-replicas", self.max_replicas.as_ref()),
            ("scrape-interval", self.scrape_interval.as_ref()),
            ("scaling-interval", self.scaling_interval.as_ref()),
            ("scale-up", self.scale_up.as_ref()),
            ("scale-down", self.scale_down.as_ref()),
            ("cooldown-period", self.cooldown_period.as_ref()),
            ("startup-time", self.startup_time.as_ref()),
            ("start-mode", self.start_mode.as_ref()),
            ("drain-policy", self.drain_policy.as_ref()),
        ] {
            section.word(name, word)?;
        }
        for (name, value) in self.parameters.iter().flat_map(|parameters| &parameters.0) {
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
            let flag = OF_FIRST.iter().find(|(own, _)| *own == dashed).map_or(dashed.as_str(), |(_, flag)| flag);
            self.word(flag, Some(value))?;
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
            let what = format!("`{name}` is {}", quoted(shown.as_bytes()));
            RunError::refused(self.document.wrong(at, what, value_hint(&message)))
        })
    }

    /// The error about the value of `name`, or about `name` if there is no such setting.
    fn wrong(&self, name: &Word, value: &Word, message: &str) -> RunError {
        let (at, what) = match message.starts_with("there is no") {
            true => (name.referenced, format!("unknown key {}", quoted(name.value.as_bytes()))),
            false => (value.referenced, format!("`{}` is {}", name.value, quoted(value.value.as_bytes()))),
        };
        RunError::refused(self.document.wrong(at, what, value_hint(message)))
    }
}
