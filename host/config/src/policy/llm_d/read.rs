//! llm-d's configuration, read into an endpoint picker: strict where llm-d is, and with a remark on everything that
//! has no counterpart.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::plugins::{
    APPROX_PRODUCER, CONCURRENCY_DETECTOR, LRU_CAPACITY, Meaning, PRECISE_PRODUCER, Picker, PluginType, ProfileRole,
    Role, TypeParameter, UTILIZATION_DETECTOR,
};
use super::value::AnyYaml;
use super::{EndpointPicker, GatewaySettings, Profile, SENT_BLOCKS, Saturation, WHOLE_MAX};
use crate::policy::error::PolicyError;
use crate::policy::{BuiltInFilter, ScorerKind, WeightedScorer, read_text};
use blis_diag::yaml::{Document, Entries, Error, FROM_0, Mark, Spanned, Word, explain};
use blis_diag::{Diagnostic, Location, name_hint, nearest, quoted};
use blis_sim::policy::EPP_PROFILE;

/// A configuration that was read.
#[derive(Debug)]
pub struct Imported {
    pub picker: EndpointPicker,
    /// What has no counterpart, with what it would do.
    pub left_out: Vec<Diagnostic>,
    /// What has a counterpart that decides otherwise.
    pub differs: Vec<Diagnostic>,
    /// Names of what changes no decision of a simulation, each with the reason.
    pub no_effect: Vec<(String, &'static str)>,
}

/// Reads the configuration in the file at `path`.
///
/// # Errors
/// As [`import`], and if the file cannot be read.
pub fn load(path: &Path) -> Result<Imported, PolicyError> {
    let (file, text) = read_text(path)?;
    import(&file, &text)
}

/// Reads the configuration `text`, the content of `file`.
///
/// # Errors
/// If llm-d would refuse it: it is not YAML, has an unknown key, or a reference to a plugin that is not declared. Also
/// if a parameter of a plugin with a counterpart is unknown or out of range.
pub fn import(file: &str, text: &str) -> Result<Imported, PolicyError> {
    let document = Document { file: file.into(), text };
    let raw: Option<RawConfig> = document.read().map_err(|error| yaml_error(&document, &error))?;
    let mut reader = Reader { document, remarks: Remarks::default() };
    let picker = reader.picker(raw.unwrap_or_default())?;
    let Remarks { left_out, differs, no_effect } = reader.remarks;
    Ok(Imported { picker, left_out, differs, no_effect })
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct RawConfig {
    api_version: Option<Word>,
    kind: Option<Word>,
    feature_gates: Option<Vec<Word>>,
    plugins: Option<Vec<Spanned<RawPlugin>>>,
    scheduling_profiles: Option<Vec<Spanned<RawProfile>>>,
    data_layer: Option<Spanned<AnyYaml>>,
    flow_control: Option<Spanned<AnyYaml>>,
    request_handler: Option<Spanned<AnyYaml>>,
    saturation_detector: Option<Spanned<AnyYaml>>,
    parser: Option<Spanned<AnyYaml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlugin {
    name: Option<Word>,
    r#type: Option<Word>,
    parameters: Option<Entries<Spanned<AnyYaml>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    name: Option<Word>,
    plugins: Option<Vec<Spanned<RawReference>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawReference {
    plugin_ref: Option<Word>,
    weight: Option<Word>,
}

/// Versions of the configuration that are read.
const API_VERSIONS: [&str; 3] = ["llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1"];
const KIND: &str = "EndpointPickerConfig";

#[derive(Default)]
pub(super) struct Remarks {
    pub left_out: Vec<Diagnostic>,
    pub differs: Vec<Diagnostic>,
    pub no_effect: Vec<(String, &'static str)>,
}

pub(super) struct Reader<'a> {
    pub document: Document<'a>,
    pub remarks: Remarks,
}

/// A plugin of the list.
pub(super) struct DeclaredPlugin {
    pub name: String,
    /// Its type as it was written.
    pub written: Word,
    /// `None` for a type that is not in the table.
    pub row: Option<&'static PluginType>,
    pub parameters: Vec<(Word, Spanned<AnyYaml>)>,
}

/// A profile of the list.
pub(super) struct NamedProfile<'a> {
    pub name: String,
    pub at: Mark,
    pub members: Vec<ProfileMember<'a>>,
}

impl NamedProfile<'_> {
    fn has(&self, role: Role) -> bool {
        self.members.iter().any(|member| member.plugin.role() == Some(role))
    }
}

/// A plugin in a profile.
pub(super) struct ProfileMember<'a> {
    pub plugin: &'a DeclaredPlugin,
    /// 1 if the profile says nothing.
    weight: f64,
    pub at: Mark,
}

impl DeclaredPlugin {
    /// Whether it is of the type called `name`.
    pub fn is(&self, name: &str) -> bool {
        self.row.is_some_and(|row| row.name == name)
    }

    pub fn role(&self) -> Option<Role> {
        self.row.map(|row| row.role)
    }

    pub fn parameter(&self, name: &str) -> Option<&Spanned<AnyYaml>> {
        self.parameters.iter().find(|(key, _)| key.value == name).map(|(_, value)| value)
    }
}

impl Reader<'_> {
    fn picker(&mut self, raw: RawConfig) -> Result<EndpointPicker, PolicyError> {
        self.check_header(&raw)?;
        self.check_sections(&raw)?;
        let plugins = self.plugins(raw.plugins.unwrap_or_default())?;
        let profiles = raw.scheduling_profiles.unwrap_or_default();
        let (mut shedding, gateway) = self.shedding(
            &plugins,
            raw.feature_gates.as_deref().unwrap_or_default(),
            &raw.flow_control,
            &raw.saturation_detector,
        )?;
        for plugin in &plugins {
            self.remark_on(plugin, gateway.is_some());
        }
        let admitter = self.admitter(&plugins, &mut shedding)?;
        if plugins.is_empty() && profiles.is_empty() {
            let scorers = EPP_PROFILE.map(|(kind, weight)| WeightedScorer::built_in(kind, weight)).to_vec();
            let profile = Profile { filters: Vec::new(), scorers };
            let sent_blocks = Some(SENT_BLOCKS);
            return Ok(EndpointPicker { shedding, admitter, gateway, profile, sent_blocks, disaggregation: None });
        }
        let named = self.named_profiles(&plugins, profiles)?;
        let (profile, disaggregation) = match self.handler(&plugins)? {
            Some(handler) => self.apart(&plugins, handler, named)?,
            None => (self.only_profile(&plugins, named)?, None),
        };
        let further = disaggregation.iter().flat_map(|apart| apart.prefill.iter().chain(&apart.encode));
        let scorers = std::iter::once(&profile).chain(further).flat_map(|profile| &profile.scorers);
        let sent_blocks = self.sent_blocks(&plugins, scorers)?;
        Ok(EndpointPicker { shedding, admitter, gateway, profile, sent_blocks, disaggregation })
    }

    fn check_header(&self, raw: &RawConfig) -> Result<(), PolicyError> {
        let start = Location::start(Arc::clone(&self.document.file));
        let missing = |key: &str, value: &str| {
            let hint = format!("a configuration of llm-d's endpoint picker has `{key}: {value}`");
            PolicyError::at(start.clone(), self.document.text, format!("`{key}` is missing"), hint)
        };
        let version = raw.api_version.as_ref();
        let kind = raw.kind.as_ref();
        if version.is_none() && kind.is_none() && raw.plugins.is_none() && raw.scheduling_profiles.is_none() {
            return Err(PolicyError::at(
                start,
                self.document.text,
                "there is no configuration in it",
                format!("`apiVersion: {}` and `kind: {KIND}` alone select llm-d's default", API_VERSIONS[0]),
            ));
        }
        let kind = kind.ok_or_else(|| missing("kind", KIND))?;
        if kind.value != KIND {
            let what = format!("the kind is {}", quoted(kind.value.as_bytes()));
            return Err(self.wrong(kind.referenced, what, format!("`blis import llm-d` reads `{KIND}`")));
        }
        let version = version.ok_or_else(|| missing("apiVersion", API_VERSIONS[0]))?;
        if !API_VERSIONS.contains(&version.value.as_str()) {
            let what = format!("unknown version {}", quoted(version.value.as_bytes()));
            return Err(self.wrong(version.referenced, what, name_hint(&version.value, &API_VERSIONS)));
        }
        Ok(())
    }

    /// Sections that are read in part are maps.
    fn check_sections(&self, raw: &RawConfig) -> Result<(), PolicyError> {
        for (name, section) in [
            ("dataLayer", &raw.data_layer),
            ("flowControl", &raw.flow_control),
            ("requestHandler", &raw.request_handler),
            ("parser", &raw.parser),
        ] {
            let Some(section) = section else { continue };
            if !matches!(section.value, AnyYaml::Map(_) | AnyYaml::Null) {
                let what = format!("`{name}` is {}", section.value.describe());
                return Err(self.wrong(section.referenced, what, "it must have keys with values"));
            }
        }
        Ok(())
    }

    fn plugins(&self, raw: Vec<Spanned<RawPlugin>>) -> Result<Vec<DeclaredPlugin>, PolicyError> {
        let mut plugins: Vec<DeclaredPlugin> = Vec::new();
        for Spanned { value: RawPlugin { name, r#type, parameters }, referenced } in raw {
            let Some(written) = r#type.filter(|word| !word.value.is_empty()) else {
                let what = format!("plugin {} has no `type`", plugins.len() + 1);
                return Err(self.wrong(referenced, what, "add `type: …`, such as `queue-scorer`"));
            };
            let name = name.filter(|word| !word.value.is_empty());
            let at = name.as_ref().map_or(written.referenced, |word| word.referenced);
            let name = name.map_or_else(|| written.value.clone(), |word| word.value);
            if plugins.iter().any(|plugin| plugin.name == name) {
                let what = format!("two plugins are called {}", quoted(name.as_bytes()));
                return Err(self.wrong(at, what, "give one of them another `name`; without one it is the type"));
            }
            let row = PluginType::find(&written.value);
            let parameters = parameters.map(|entries| entries.0).unwrap_or_default();
            plugins.push(DeclaredPlugin { name, written, row, parameters });
        }
        Ok(plugins)
    }

    /// Names a plugin without a counterpart, wherever it is used.
    fn remark_on(&mut self, plugin: &DeclaredPlugin, has_gateway: bool) {
        let written = quoted(plugin.written.value.as_bytes());
        let location = self.document.location(plugin.written.referenced);
        let left_out = |what: String| Diagnostic::new(what).at(location.clone());
        match plugin.role() {
            None => {
                let what = format!("unknown plugin type {written}: it is left out");
                let near = nearest(&plugin.written.value, &PluginType::names());
                let unknown = left_out(what);
                self.remarks.left_out.push(match near {
                    Some(name) => unknown.hint(format!("did you mean `{name}`?")),
                    None => unknown,
                });
            }
            Some(Role::Flow(..)) if has_gateway => {}
            Some(Role::Missing(what) | Role::MissingHandler(what) | Role::Flow(_, _, what)) => {
                self.remarks.left_out.push(left_out(format!("{written} has no counterpart: it would {what}")));
            }
            Some(Role::NoEffect(why)) => self.remarks.no_effect.push((plugin.written.value.clone(), why)),
            // Where they are used.
            Some(
                Role::Scorer(_)
                | Role::Filter(_)
                | Role::Admitter(_)
                | Role::Picker(_)
                | Role::SingleProfile
                | Role::Keeps(_)
                | Role::Decider(_)
                | Role::EncodeDecider
                | Role::DisaggHandler,
            ) => {}
        }
    }

    /// The profiles with their plugins, in the order of the file; empty if there is none.
    fn named_profiles<'p>(
        &self,
        plugins: &'p [DeclaredPlugin],
        profiles: Vec<Spanned<RawProfile>>,
    ) -> Result<Vec<NamedProfile<'p>>, PolicyError> {
        let mut named: Vec<NamedProfile<'p>> = Vec::new();
        for Spanned { value: RawProfile { name, plugins: references }, referenced } in profiles {
            let Some(name) = name.filter(|word| !word.value.is_empty()) else {
                let what = format!("profile {} has no `name`", named.len() + 1);
                return Err(self.wrong(referenced, what, "add `name: default`"));
            };
            if named.iter().any(|other| other.name == name.value) {
                let what = format!("two profiles are called {}", quoted(name.value.as_bytes()));
                return Err(self.wrong(name.referenced, what, "rename one of them"));
            }
            let references = references.unwrap_or_default();
            let members = references.into_iter().map(|reference| self.member(plugins, reference));
            let members = members.collect::<Result<Vec<_>, _>>()?;
            named.push(NamedProfile { name: name.value, at: name.referenced, members });
        }
        Ok(named)
    }

    /// The one profile that a bundle describes, without a handler that runs one for each part of a request.
    fn only_profile(
        &mut self,
        plugins: &[DeclaredPlugin],
        mut named: Vec<NamedProfile<'_>>,
    ) -> Result<Profile, PolicyError> {
        if named.is_empty() {
            // llm-d then makes a profile of all filters, scorers and pickers.
            let start = plugins.first().map(|plugin| plugin.written.referenced);
            let at = start.expect("a configuration without plugins and profiles was the default");
            let members = plugins.iter().map(|plugin| ProfileMember { plugin, weight: 1.0, at }).collect();
            return self.profile(plugins, &NamedProfile { name: "default".to_owned(), at, members }, None);
        }
        self.check_handler(plugins, &named)?;
        let decodes = |profile: &NamedProfile<'_>| profile.has(Role::Keeps(ProfileRole::Decode));
        let index = named.iter().position(|profile| profile.name == "decode");
        let index = index.or_else(|| named.iter().position(decodes)).unwrap_or(0);
        let chosen = named.remove(index);
        for NamedProfile { name: other, at, .. } in named {
            let what = format!(
                "profile {} has no counterpart: it would choose another instance for a part of the request; profile {} \
                 is imported",
                quoted(other.as_bytes()),
                quoted(chosen.name.as_bytes())
            );
            self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(at)));
        }
        self.profile(plugins, &chosen, None)
    }

    /// The filters and scorers of a profile. With a handler it is that of the instances with `role`.
    pub(super) fn profile(
        &mut self,
        plugins: &[DeclaredPlugin],
        named: &NamedProfile<'_>,
        role: Option<ProfileRole>,
    ) -> Result<Profile, PolicyError> {
        self.role_filters(named, role);
        let filters = self.filters(plugins, &named.members)?;
        let scorers = self.scorers(plugins, &named.members, named.at)?;
        Ok(Profile { filters, scorers })
    }

    fn member<'p>(
        &self,
        plugins: &'p [DeclaredPlugin],
        Spanned { value: RawReference { plugin_ref, weight }, referenced }: Spanned<RawReference>,
    ) -> Result<ProfileMember<'p>, PolicyError> {
        let Some(name) = plugin_ref else {
            return Err(self.wrong(referenced, "`pluginRef` is missing", "name a plugin of the list `plugins`"));
        };
        let plugin = self.declared(plugins, &name.value, name.referenced)?;
        let subject = format!("the weight of {}", quoted(name.value.as_bytes()));
        let weight = weight.map_or(Ok(1.0), |word| self.document.number(subject, &word, FROM_0))?;
        Ok(ProfileMember { plugin, weight, at: name.referenced })
    }

    pub(super) fn declared<'p>(
        &self,
        plugins: &'p [DeclaredPlugin],
        name: &str,
        at: Mark,
    ) -> Result<&'p DeclaredPlugin, PolicyError> {
        plugins.iter().find(|plugin| plugin.name == name).ok_or_else(|| {
            let known: Vec<&str> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
            let hint = match known.is_empty() {
                true => "there is no list `plugins`".to_owned(),
                false => name_hint(name, &known),
            };
            self.wrong(at, format!("no plugin is called {}", quoted(name.as_bytes())), hint)
        })
    }

    /// Several profiles need a plugin that decides between them.
    fn check_handler(&self, plugins: &[DeclaredPlugin], profiles: &[NamedProfile<'_>]) -> Result<(), PolicyError> {
        let Some(NamedProfile { at, .. }) = profiles.get(1) else { return Ok(()) };
        let may_handle = |plugin: &DeclaredPlugin| matches!(plugin.role(), None | Some(Role::MissingHandler(_)));
        if plugins.iter().any(may_handle) {
            return Ok(());
        }
        let what = format!("{} profiles, and no plugin that decides which of them runs", profiles.len());
        Err(self.wrong(*at, what, "declare one, such as `disagg-profile-handler`, or keep one profile"))
    }

    fn filters(
        &mut self,
        plugins: &[DeclaredPlugin],
        members: &[ProfileMember<'_>],
    ) -> Result<Vec<BuiltInFilter>, PolicyError> {
        let mut filters: Vec<BuiltInFilter> = Vec::new();
        for ProfileMember { plugin, at, .. } in members {
            let (Some(row), Some(Role::Filter(name))) = (plugin.row, plugin.role()) else { continue };
            let mut filter = BuiltInFilter::named(name).expect("the tests look up all of them");
            self.parameters(plugin, row, |parameter, value| filter.set(parameter, value))?;
            if filters.iter().any(|other| other.name() == name) {
                let what = format!("filter `{name}` is used twice; the second one is left out");
                self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(*at)));
                continue;
            }
            if !self.is_precise(plugins, plugin)? {
                self.differs(plugin, row);
            }
            filters.push(filter);
        }
        Ok(filters)
    }

    fn scorers(
        &mut self,
        plugins: &[DeclaredPlugin],
        members: &[ProfileMember<'_>],
        profile: Mark,
    ) -> Result<Vec<WeightedScorer>, PolicyError> {
        let mut scorers: Vec<WeightedScorer> = Vec::new();
        for ProfileMember { plugin, weight, at } in members {
            let (Some(row), Some(Role::Scorer(kind))) = (plugin.row, plugin.role()) else { continue };
            self.parameters(plugin, row, |_, _| Ok(()))?;
            let precise = self.is_precise(plugins, plugin)?;
            let kind = row.precise.filter(|_| precise).unwrap_or(kind);
            if *weight == 0.0 {
                self.remarks.no_effect.push((plugin.written.value.clone(), "its weight is 0"));
                continue;
            }
            if !precise || row.precise.is_none() {
                self.differs(plugin, row);
            }
            match scorers.iter_mut().find(|scorer| scorer.kind() == Some(kind)) {
                Some(same) => {
                    same.weight += weight;
                    let what = format!("scorer `{kind}` is used twice: the weights are added");
                    self.remarks.differs.push(Diagnostic::new(what).at(self.document.location(*at)));
                }
                None => scorers.push(WeightedScorer::built_in(kind, *weight)),
            }
        }
        if self.picker_of(plugins, members)? == Picker::Random && !scorers.is_empty() {
            let ignored =
                scorers.drain(..).map(|scorer| (scorer.name.name().to_owned(), "`random-picker` reads no scores"));
            self.remarks.no_effect.extend(ignored);
        }
        if scorers.is_empty() {
            // Without scores, the picker takes any instance.
            scorers.push(WeightedScorer::built_in(ScorerKind::Random, 1.0));
        }
        WeightedScorer::check(&scorers).map_err(|fault| self.wrong(profile, fault.what, fault.hint))?;
        Ok(scorers)
    }

    /// The blocks that the record of sent prompts holds of each instance, if a scorer reads it: as its producer says, or, in earlier
    /// versions, the scorer itself.
    fn sent_blocks<'s>(
        &self,
        plugins: &[DeclaredPlugin],
        mut scorers: impl Iterator<Item = &'s WeightedScorer>,
    ) -> Result<Option<f64>, PolicyError> {
        let record = ScorerKind::PrefixAffinity;
        if scorers.all(|scorer| scorer.kind() != Some(record)) {
            return Ok(None);
        }
        let has_record =
            |plugin: &&DeclaredPlugin| plugin.is(APPROX_PRODUCER) || plugin.role() == Some(Role::Scorer(record));
        let value = plugins.iter().filter(has_record).find_map(|plugin| plugin.parameter(LRU_CAPACITY));
        let Some(value) = value else { return Ok(Some(SENT_BLOCKS)) };
        let blocks = self.number(LRU_CAPACITY, value, true)?;
        if !(1.0..=1e9).contains(&blocks) {
            let what = format!("`{LRU_CAPACITY}` is {blocks}");
            return Err(self.wrong(value.referenced, what, "it must be a whole number from 1 to 1e9"));
        }
        Ok(Some(blocks))
    }

    /// The picker of a profile: its own, else the first one declared, else `max-score-picker`.
    fn picker_of(&mut self, plugins: &[DeclaredPlugin], members: &[ProfileMember<'_>]) -> Result<Picker, PolicyError> {
        let picker = |plugin: &&DeclaredPlugin| matches!(plugin.role(), Some(Role::Picker(_)));
        let own = members.iter().map(|member| member.plugin).find(picker);
        let Some(plugin) = own.or_else(|| plugins.iter().find(picker)) else { return Ok(Picker::MaxScore) };
        if let Some(row) = plugin.row {
            self.parameters(plugin, row, |_, _| Ok(()))?;
        }
        Ok(if plugin.role() == Some(Role::Picker(Picker::Random)) { Picker::Random } else { Picker::MaxScore })
    }

    /// Checks the parameters of a plugin with a counterpart, and gives `set` those that have one.
    pub(super) fn parameters(
        &mut self,
        plugin: &DeclaredPlugin,
        row: &PluginType,
        mut set: impl FnMut(&str, f64) -> Result<(), (String, String)>,
    ) -> Result<(), PolicyError> {
        for (key, value) in &plugin.parameters {
            let Some(TypeParameter { name, meaning }) = row.parameter(&key.value) else {
                let known: Vec<&str> = row.parameters.iter().map(|parameter| parameter.name).collect();
                let hint = match known.is_empty() {
                    true => "it has no parameters".to_owned(),
                    false => name_hint(&key.value, &known),
                };
                let what = format!("`{}` has no parameter {}", row.name, quoted(key.value.as_bytes()));
                return Err(self.wrong(key.referenced, what, hint));
            };
            let at = value.referenced;
            match meaning {
                Meaning::Number(ours) | Meaning::Whole(ours) => {
                    let number = self.number(name, value, matches!(meaning, Meaning::Whole(_)))?;
                    set(ours, number).map_err(|(what, hint)| self.wrong(at, what, hint))?;
                }
                Meaning::Word(ours, words) => {
                    let index =
                        words.iter().position(|word| matches!(&value.value, AnyYaml::Text(text) if text == word));
                    let wrong = || {
                        let what = format!("`{name}` is {}", value.value.describe());
                        self.wrong(at, what, format!("it must be one of {}", words.join(", ")))
                    };
                    let number = index.ok_or_else(wrong)? as f64;
                    set(ours, number).map_err(|(what, hint)| self.wrong(at, what, hint))?;
                }
                Meaning::OnlyNumber(only) => {
                    if self.number(name, value, false)? != *only {
                        self.only(name, value, &only.to_string());
                    }
                }
                Meaning::OnlyText(only) => {
                    if !matches!(&value.value, AnyYaml::Text(text) if text == only) {
                        self.only(name, value, only);
                    }
                }
                Meaning::Missing(what) => {
                    let what = format!("`{name}` has no counterpart: it would {what}");
                    self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(at)));
                }
                Meaning::Producer | Meaning::NoEffect | Meaning::Own => {}
            }
        }
        Ok(())
    }

    fn only(&mut self, name: &str, value: &Spanned<AnyYaml>, only: &str) {
        let what = format!("`{name}` is {}; it is simulated as {only}", value.value.describe());
        self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(value.referenced)));
    }

    pub(super) fn number(&self, name: &str, value: &Spanned<AnyYaml>, whole: bool) -> Result<f64, PolicyError> {
        match value.value {
            AnyYaml::Number(number) if number.is_finite() && (!whole || number.fract() == 0.0) => Ok(number),
            _ => {
                let what = format!("`{name}` is {}", value.value.describe());
                let hint = if whole { "it must be a whole number" } else { "it must be a number" };
                Err(self.wrong(value.referenced, what, hint))
            }
        }
    }

    /// Whether the plugin reads what is in the prefix caches, instead of the router's record of sent prompts.
    pub(super) fn is_precise(&self, plugins: &[DeclaredPlugin], plugin: &DeclaredPlugin) -> Result<bool, PolicyError> {
        let row = plugin.row;
        let producer = row.and_then(|row| row.parameters.iter().find(|one| one.meaning == Meaning::Producer));
        let Some(producer) = producer else { return Ok(true) };
        let Some(value) = plugin.parameter(producer.name) else { return Ok(false) };
        match &value.value {
            AnyYaml::Text(name) if name.is_empty() => Ok(false),
            AnyYaml::Text(name) => {
                let producer = self.declared(plugins, name, value.referenced)?;
                Ok(producer.row.is_some_and(|row| row.name == PRECISE_PRODUCER))
            }
            AnyYaml::Null => Ok(false),
            other => {
                let what = format!("`{}` is {}", producer.name, other.describe());
                Err(self.wrong(value.referenced, what, "it must be the name of a plugin"))
            }
        }
    }

    /// Says once where the counterpart of a type decides otherwise.
    pub(super) fn differs(&mut self, plugin: &DeclaredPlugin, row: &PluginType) {
        if !row.differs.is_empty() && self.remarks.differs.iter().all(|remark| remark.what != row.differs) {
            let location = self.document.location(plugin.written.referenced);
            self.remarks.differs.push(Diagnostic::new(row.differs).at(location));
        }
    }

    /// llm-d rejects requests of a negative priority while its detector says that the service is saturated, unless flow
    /// control is on: then requests wait.
    fn shedding(
        &mut self,
        plugins: &[DeclaredPlugin],
        gates: &[Word],
        flow_control: &Option<Spanned<AnyYaml>>,
        deprecated: &Option<Spanned<AnyYaml>>,
    ) -> Result<(Option<Saturation>, Option<GatewaySettings>), PolicyError> {
        let gate = gates.iter().rfind(|gate| gate.value.split('=').next() == Some("flowControl"));
        let on = gate.filter(|gate| !gate.value.ends_with("=false"));
        let own = flow_control.as_ref().and_then(|section| section.value.key("saturationDetector"));
        let section = own.or(deprecated.as_ref());
        let saturation = self.saturation(plugins, section)?;
        let detector = match section.and_then(|section| section.value.key("pluginRef")).map(|name| &name.value) {
            Some(AnyYaml::Text(name)) => plugins.iter().find(|plugin| plugin.name == *name),
            _ => plugins.iter().find(|plugin| plugin.name == UTILIZATION_DETECTOR),
        };
        if on.is_none() {
            if let Some(plugin) = detector.filter(|plugin| plugin.is(CONCURRENCY_DETECTOR)) {
                let what = format!(
                    "{} has no counterpart: it would reject requests of a negative priority by what is in flight",
                    quoted(plugin.written.value.as_bytes())
                );
                let location = self.document.location(plugin.written.referenced);
                self.remarks.left_out.push(Diagnostic::new(what).at(location));
            }
            return Ok((saturation, None));
        }
        let gateway = self.gateway(plugins, flow_control.as_ref(), detector, saturation)?;
        Ok((None, Some(gateway)))
    }

    /// The thresholds of the detector of saturation; `None` if it is off or has no counterpart.
    fn saturation(
        &self,
        plugins: &[DeclaredPlugin],
        section: Option<&Spanned<AnyYaml>>,
    ) -> Result<Option<Saturation>, PolicyError> {
        let reference = match section.map(|section| (section, section.value.key("pluginRef"))) {
            Some((_, Some(reference))) => match &reference.value {
                AnyYaml::Text(name) => Some((name.as_str(), reference.referenced)),
                other => {
                    let what = format!("`pluginRef` is {}", other.describe());
                    return Err(self.wrong(reference.referenced, what, "it must be the name of a plugin"));
                }
            },
            // Earlier versions had the thresholds here.
            Some((Spanned { value: AnyYaml::Map(entries), .. }, None)) => return self.thresholds(entries),
            Some((Spanned { value: AnyYaml::Null, .. }, None)) | None => None,
            Some((section, None)) => {
                let what = format!("`saturationDetector` is {}", section.value.describe());
                return Err(self.wrong(section.referenced, what, "it must be a map with a `pluginRef`"));
            }
        };
        let plugin = match reference {
            Some((name, at)) if name != UTILIZATION_DETECTOR => Some(self.declared(plugins, name, at)?),
            _ => plugins.iter().find(|plugin| plugin.name == UTILIZATION_DETECTOR),
        };
        match plugin {
            None => Ok(Some(Saturation::DEFAULT)),
            Some(plugin) if plugin.row.is_some_and(|row| row.name == UTILIZATION_DETECTOR) => {
                self.thresholds(&plugin.parameters)
            }
            Some(_) => Ok(None),
        }
    }

    fn thresholds(&self, entries: &[(Word, Spanned<AnyYaml>)]) -> Result<Option<Saturation>, PolicyError> {
        let mut saturation = Saturation::DEFAULT;
        for (key, value) in entries {
            let (slot, whole, most) = match key.value.as_str() {
                "queueDepthThreshold" => (&mut saturation.queue_depth, true, WHOLE_MAX),
                "kvCacheUtilThreshold" => (&mut saturation.kv_utilization, false, 1.0),
                _ => continue,
            };
            *slot = self.number(&key.value, value, whole)?;
            if !(*slot > 0.0 && *slot <= most) {
                let what = format!("`{}` is {slot}", key.value);
                let hint =
                    if whole { "it must be a whole number from 1 to 1e15" } else { "it must be above 0 and at most 1" };
                return Err(self.wrong(value.referenced, what, hint));
            }
        }
        Ok(Some(saturation).filter(|saturation| *saturation != Saturation::OFF))
    }

    pub(super) fn wrong(&self, at: Mark, what: impl Into<String>, hint: impl Into<String>) -> PolicyError {
        self.document.wrong(at, what, hint).into()
    }
}

fn yaml_error(document: &Document<'_>, error: &Error) -> PolicyError {
    let (what, hint) = explain(error);
    let location = match error.location() {
        Some(at) => document.location(at),
        None => Location::start(Arc::clone(&document.file)),
    };
    PolicyError::at(location, document.text, what, hint)
}
