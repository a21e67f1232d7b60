//! Configuration files: settings by name, in sections or without, the keys of a policy bundle, and the section `deployment`
//! beside them. All but the last is the format that `--explain-config` prints.
//!
//! Settings are read with their positions, so that a message shows the line. The part that belongs to the bundle is
//! passed on as it is, with all other lines empty, so that its messages show the right lines as well.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use blis_config::policy::SettingSource;
use blis_diag::yaml::{self, Document, Word, explain};
use blis_diag::{quoted, read_text, unreadable};
use blis_plugin::Kind;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::deployment::RawDeployment;
use super::settings::{ExperimentSpec, InlinePolicies, KEYS, SettingKey, invalid, unknown};
use crate::error::RunError;

/// Longer files are refused as configuration files.
const BYTES_MAX: u64 = 1 << 20;

/// Whether `name` is that of a section, which groups settings and has no effect.
fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.group.section == name)
}

/// Whether `name` is a key of a policy bundle.
fn is_of_bundle(name: &str) -> bool {
    Kind::of(name).is_some_and(|kind| !kind.is_step()) || ["scheduler", "tenant_budgets", "gateway"].contains(&name)
}

impl ExperimentSpec {
    /// Reads a configuration file (YAML).
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub fn load(path: &Path) -> Result<Self, RunError> {
        let file = path.display().to_string();
        let text = read_text(path, BYTES_MAX).map_err(|error| RunError::refused(unreadable(&file, &error)))?;
        Self::parse(&file, &text)
    }

    /// The settings of the section `deployment` of the policy bundle at `path`, which is valid as a bundle.
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub(crate) fn deployment_of(path: &Path) -> Result<Self, RunError> {
        let file = path.display().to_string();
        let text = read_text(path, BYTES_MAX).map_err(|error| RunError::refused(unreadable(&file, &error)))?;
        let document = Document { file: file.into(), text: &text };
        let raw: Option<DeploymentOnly> = document.read().map_err(|error| refused(&document, &error))?;
        let mut spec = Self::default();
        let section = raw.and_then(|raw| raw.deployment);
        section.map_or(Ok(()), |deployment| deployment.set(&mut spec, &document))?;
        Ok(spec)
    }

    /// Whether `path` is a configuration file that names a model or a deployment, and not a bundle of policies.
    #[must_use]
    pub fn is_deployment(path: &Path) -> bool {
        const KEYS: [&str; 3] = ["model:", "model-and-hardware:", "deployment:"];
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        let text = is_yaml.then(|| read_text(path, BYTES_MAX).ok()).flatten();
        text.is_some_and(|text| text.lines().any(|line| KEYS.iter().any(|key| line.starts_with(key))))
    }

    /// Parses `text`, the content of a configuration file called `file`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str) -> Result<Self, RunError> {
        let document = Document { file: file.into(), text };
        let raw: Option<RawConfigFile> = document.read().map_err(|error| refused(&document, &error))?;
        let Some(raw) = raw else {
            return Err(RunError::usage(format_args!("{file}: the configuration is empty"))
                .hint("`blis run … --explain-config` prints one"));
        };
        let mut spec = Self::default();
        for (name, value) in raw.settings.iter().filter(|(_, value)| !matches!(value, RawValue::Missing)) {
            match value {
                // The settings of a result have the policies as the text of a bundle.
                RawValue::One(word) if name.value == "policies" && raw.policies.is_empty() => {
                    spec.policies = Some(InlinePolicies { file: "policies".into(), text: word.value.as_str().into() });
                }
                _ => set(&mut spec, &document, name, value)?,
            }
        }
        raw.deployment.as_ref().map_or(Ok(()), |deployment| deployment.set(&mut spec, &document))?;
        if !raw.policies.is_empty() {
            let text = only_lines(text, &raw.lines_of_policies());
            spec.policies = Some(InlinePolicies { file: Arc::clone(&document.file), text: text.into() });
        }
        Ok(spec)
    }
}

/// The part of a policy bundle that is no policy.
#[derive(serde::Deserialize)]
struct DeploymentOnly {
    deployment: Option<RawDeployment>,
}

fn set(spec: &mut ExperimentSpec, document: &Document<'_>, name: &Word, value: &RawValue) -> Result<(), RunError> {
    let wrong = |at, what: String, hint: String| RunError::refused(document.wrong(at, what, hint));
    let key = SettingKey::find(&name.value).map_err(|hint| {
        let (what, hint) = unknown(&name.value, &hint);
        wrong(name.referenced, what, hint)
    })?;
    if spec.has(key.name) {
        return Err(wrong(name.referenced, format!("`{}` is set twice", key.name), "keep one of them".into()));
    }
    let words = match (value, key.form) {
        (RawValue::Missing, _) => &[],
        (RawValue::One(word), _) => std::slice::from_ref(word),
        (RawValue::Several(words), form) if form.is_list() => words.as_slice(),
        (RawValue::Several(_), _) => {
            let what = format!("`{}` is a list, but takes one value", key.name);
            return Err(wrong(name.referenced, what, "write it without brackets".into()));
        }
    };
    for word in words {
        let source = SettingSource::File(document.location(word.referenced));
        spec.set(key, &word.value, source).map_err(|message| {
            let (what, hint) = invalid(key.name, &quoted(word.value.as_bytes()), &message);
            wrong(word.referenced, what, hint)
        })?;
    }
    Ok(())
}

/// The message about an error of the YAML reader.
fn refused(document: &Document<'_>, error: &yaml::Error) -> RunError {
    let (what, hint) = explain(error);
    match error.location() {
        Some(at) => RunError::refused(document.wrong(at, what, hint)),
        None => RunError::usage(format_args!("{}: {what}", document.file)).hint(hint),
    }
}

/// `text` with all lines emptied except those in `kept`, counted from 0.
fn only_lines(text: &str, kept: &[Range<usize>]) -> String {
    let line = |(number, line)| if kept.iter().any(|lines| lines.contains(&number)) { line } else { "" };
    text.lines().enumerate().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// The text of a value, or the texts of its items.
enum RawValue {
    Missing,
    One(Word),
    Several(Vec<Word>),
}

/// A file before its values are checked.
#[derive(Default)]
struct RawConfigFile {
    settings: Vec<(Word, RawValue)>,
    deployment: Option<RawDeployment>,
    /// The lines, from 0, on which keys of a bundle begin.
    policies: Vec<usize>,
    /// The lines, from 0, on which other top-level keys begin.
    others: Vec<usize>,
}

impl RawConfigFile {
    /// The lines from each key of the bundle to the next other key.
    fn lines_of_policies(&self) -> Vec<Range<usize>> {
        let end = |start: usize| self.others.iter().copied().filter(|&line| line > start).min();
        self.policies.iter().map(|&start| start..end(start).unwrap_or(usize::MAX)).collect()
    }
}

impl<'de> Deserialize<'de> for RawConfigFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut file = Self::default();
        deserializer.deserialize_map(SettingsReader { file: &mut file, top: true })?;
        Ok(file)
    }
}

/// Reads a map of settings into `file`.
struct SettingsReader<'a> {
    file: &'a mut RawConfigFile,
    /// Sections and keys of a bundle are accepted at the top level only.
    top: bool,
}

impl<'de> DeserializeSeed<'de> for SettingsReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SettingsReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Word>()? {
            let line = usize::try_from(name.referenced.line().saturating_sub(1)).unwrap_or(usize::MAX);
            let dashed = name.value.replace('_', "-");
            if self.top && is_of_bundle(&name.value) {
                self.file.policies.push(line);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if self.top {
                self.file.others.push(line);
                if name.value == "deployment" {
                    self.file.deployment = map.next_value()?;
                    continue;
                }
            }
            let value = if self.top && is_section(&dashed) {
                map.next_value_seed(SectionOrWord { file: self.file, name: &name })?
            } else if takes_a_list(&dashed) {
                RawValue::Several(map.next_value()?)
            } else {
                map.next_value::<Option<Word>>()?.map_or(RawValue::Missing, RawValue::One)
            };
            self.file.settings.push((name, value));
        }
        Ok(())
    }
}

/// Some sections have the name of a setting: a map is a section, a scalar the value of the setting.
struct SectionOrWord<'a> {
    file: &'a mut RawConfigFile,
    name: &'a Word,
}

impl<'de> DeserializeSeed<'de> for SectionOrWord<'_> {
    type Value = RawValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SectionOrWord<'_> {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings by name, or a word")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawValue, A::Error> {
        SettingsReader { file: self.file, top: false }.visit_map(map)?;
        Ok(RawValue::Missing)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<RawValue, E> {
        let name = self.name;
        Ok(RawValue::One(Word { value: value.to_owned(), referenced: name.referenced }))
    }

    fn visit_unit<E: de::Error>(self) -> Result<RawValue, E> {
        Ok(RawValue::Missing)
    }
}

fn takes_a_list(name: &str) -> bool {
    SettingKey::get(name).is_some_and(|key| key.form.is_list())
}
