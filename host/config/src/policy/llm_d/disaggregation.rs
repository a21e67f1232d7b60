//! Prefill apart from decode: llm-d's `disagg-profile-handler` with its profiles and deciders, and the section `disaggregation` of
//! a bundle.
//!
//! Parameters as the plugins read them: llm-d-router, `scheduling/profilehandler/disagg/`.

use std::fmt::Write as _;

use super::config::{ConfigPage, decider_type};
use super::plugins::{
    Meaning, PD_HANDLER, PRECISE_PRODUCER, PREFIX_DECIDER, PRODUCER_NAME, PluginType, ProfileRole, Role,
};
use super::read::{DeclaredPlugin, NamedProfile, Reader};
use super::value::AnyYaml;
use super::{Profile, RoleProfiles};
use crate::policy::error::{Contradiction, PolicyError};
use crate::policy::{BuiltIn, ParameterInput, PolicyUse, SettingSource, Sourced};
use blis_diag::yaml::{Mark, Spanned, Word};
use blis_diag::{Diagnostic, name_hint, quoted};
use blis_plugin::Kind;

/// What the handler runs. Names of profiles are its defaults, or those of its parameters.
pub(super) struct Handler {
    at: Mark,
    decode: String,
    prefill: String,
    encode: String,
    decider: Option<PolicyUse>,
    encodes: bool,
    prefill_first: bool,
}

impl Reader<'_> {
    /// The handler of profiles for parts of requests, the first one; `None` without any.
    pub(super) fn handler(&mut self, plugins: &[DeclaredPlugin]) -> Result<Option<Handler>, PolicyError> {
        let Some(plugin) = plugins.iter().find(|plugin| plugin.role() == Some(Role::DisaggHandler)) else {
            for plugin in
                plugins.iter().filter(|one| matches!(one.role(), Some(Role::Decider(_) | Role::EncodeDecider)))
            {
                self.remarks.no_effect.push((plugin.written.value.clone(), "no profile handler names it"));
            }
            return Ok(None);
        };
        let row = plugin.row.expect("it has a role");
        self.parameters(plugin, row, |_, _| Ok(()))?;
        let mut handler = Handler {
            at: plugin.written.referenced,
            decode: self.name_of(plugin, "decodeProfile")?.unwrap_or("decode").to_owned(),
            prefill: self.name_of(plugin, "prefillProfile")?.unwrap_or("prefill").to_owned(),
            encode: "encode".to_owned(),
            decider: None,
            encodes: false,
            prefill_first: self.prefill_first(plugin)?,
        };
        for (key, value) in self.entries(plugin, "profiles", &["decode", "prefill", "encode", "fallback"])? {
            let Some(name) = self.text_of(&key.value, value)? else { continue };
            match key.value.as_str() {
                "decode" => name.clone_into(&mut handler.decode),
                "prefill" => name.clone_into(&mut handler.prefill),
                "encode" => name.clone_into(&mut handler.encode),
                _ => {
                    let what = "`fallback` has no counterpart: it would choose an instance for the whole request when none \
                                can prefill or decode it";
                    self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(value.referenced)));
                }
            }
        }
        let mut named: Vec<&str> = Vec::new();
        let mut decider = None;
        for (key, value) in self.entries(plugin, "deciders", &["prefill", "encode"])? {
            let Some(name) = self.text_of(&key.value, value)? else { continue };
            named.push(name);
            if key.value == "prefill" {
                decider = Some((name, value.referenced));
            } else {
                handler.encodes = self.encodes(plugins, name, value.referenced)?;
            }
        }
        let legacy = plugin.parameter("deciderPluginName").map(|value| value.referenced);
        let legacy = self.name_of(plugin, "deciderPluginName")?.zip(legacy);
        let by_default = plugin.written.value == PD_HANDLER && plugin.parameter("threshold").is_none();
        let usual = by_default.then_some((PREFIX_DECIDER, plugin.written.referenced));
        let decider = decider.or(legacy).or(usual);
        named.extend(decider.map(|(name, _)| name));
        handler.decider = match decider {
            Some((name, at)) => self.decider(plugins, name, at)?,
            None => self.threshold(plugin)?,
        };
        if let Some((_, at)) = decider.filter(|_| handler.prefill_first) {
            let hint = "every request is prefilled elsewhere then: leave out one of them";
            return Err(self.wrong(at, "a decider of prefill cannot be used with `stageOrder: prefill-first`", hint));
        }
        for other in plugins.iter().filter(|one| matches!(one.role(), Some(Role::Decider(_) | Role::EncodeDecider))) {
            if !named.contains(&other.name.as_str()) {
                self.remarks.no_effect.push((other.written.value.clone(), "no profile handler names it"));
            }
        }
        Ok(Some(handler))
    }

    /// The profiles that `handler` runs: that of the instances that decode, and the others.
    pub(super) fn apart(
        &mut self,
        plugins: &[DeclaredPlugin],
        handler: Handler,
        mut named: Vec<NamedProfile<'_>>,
    ) -> Result<(Profile, Option<RoleProfiles>), PolicyError> {
        let mut take = |name: &str| {
            let index = named.iter().position(|profile| profile.name == name)?;
            Some(named.remove(index))
        };
        let Some(decode) = take(&handler.decode) else {
            let what = format!("no profile is called {}", quoted(handler.decode.as_bytes()));
            return Err(self.wrong(
                handler.at,
                what,
                "the handler runs it for every request: add it to `schedulingProfiles`",
            ));
        };
        let prefills = handler.decider.is_some() || handler.prefill_first;
        let prefill = if prefills { take(&handler.prefill) } else { None };
        let encode = if handler.encodes { take(&handler.encode) } else { None };
        for (is_missing, name, what) in [
            (prefills && prefill.is_none(), &handler.prefill, "no request is prefilled elsewhere"),
            (handler.encodes && encode.is_none(), &handler.encode, "no request is encoded elsewhere"),
        ] {
            if is_missing {
                let what = format!("no profile is called {}: {what}", quoted(name.as_bytes()));
                self.remarks.differs.push(Diagnostic::new(what).at(self.document.location(handler.at)));
            }
        }
        for other in named {
            self.remarks.no_effect.push((other.name, "no stage of the handler runs this profile"));
        }
        let decode = self.profile(plugins, &decode, Some(ProfileRole::Decode))?;
        let mut read = |named: Option<NamedProfile<'_>>, role| -> Result<Option<Profile>, PolicyError> {
            named.map(|named| self.profile(plugins, &named, Some(role))).transpose()
        };
        let prefill = read(prefill, ProfileRole::Prefill)?;
        let encode = read(encode, ProfileRole::Encode)?;
        let apart = RoleProfiles {
            decider: handler.decider.filter(|_| prefill.is_some()),
            prefill_first: handler.prefill_first && prefill.is_some(),
            prefill,
            encode,
        };
        Ok((decode, Some(apart).filter(|apart| *apart != RoleProfiles::default())))
    }

    /// Remarks on the filters by role of a profile: with a handler, the profile of a role has the instances of that role.
    pub(super) fn role_filters(&mut self, named: &NamedProfile<'_>, role: Option<ProfileRole>) {
        for member in &named.members {
            let Some(Role::Keeps(kept)) = member.plugin.role() else { continue };
            let written = &member.plugin.written.value;
            if role == Some(kept) {
                continue;
            }
            if (role, kept) == (None, ProfileRole::Decode) {
                let why = "without prefill apart from decode, every instance serves whole requests";
                self.remarks.no_effect.push((written.clone(), why));
                continue;
            }
            let what = format!(
                "{} in profile {} has no counterpart: it would keep the instances that {}",
                quoted(written.as_bytes()),
                quoted(named.name.as_bytes()),
                kept.what()
            );
            self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(member.at)));
        }
        let Some(role) = role else { return };
        let has_filter = named.members.iter().any(|one| one.plugin.role() == Some(Role::Keeps(role)));
        if !has_filter {
            let what = format!(
                "profile {} has no `{}-filter`: llm-d chooses among all instances, the simulation among those that {}",
                quoted(named.name.as_bytes()),
                role.into_str(),
                role.what()
            );
            self.remarks.differs.push(Diagnostic::new(what).at(self.document.location(named.at)));
        }
    }

    fn prefill_first(&self, plugin: &DeclaredPlugin) -> Result<bool, PolicyError> {
        let Some(value) = plugin.parameter("stageOrder") else { return Ok(false) };
        let text = self.text_of("stageOrder", value)?.unwrap_or_default();
        match text.to_lowercase().replace(['-', '_'], "").as_str() {
            "" | "decodefirst" | "decode" => Ok(false),
            "prefillfirst" | "prefill" => Ok(true),
            _ => {
                let what = format!("`stageOrder` is {}", quoted(text.as_bytes()));
                Err(self.wrong(value.referenced, what, "it must be decode-first or prefill-first"))
            }
        }
    }

    /// The disaggregation policy that the decider `name` is; `None` if it is unknown, which was remarked.
    fn decider(&mut self, plugins: &[DeclaredPlugin], name: &str, at: Mark) -> Result<Option<PolicyUse>, PolicyError> {
        let plugin = self.declared(plugins, name, at)?;
        let Some(row) = plugin.row else { return Ok(None) };
        let Role::Decider(ours) = row.role else {
            let what = format!("{} decides about no prefill", quoted(name.as_bytes()));
            let hint = "name a `prefix-based-pd-decider` or an `always-disagg-pd-decider` of the list `plugins`";
            return Err(self.wrong(at, what, hint));
        };
        let mut used = decider_policy(ours, 0.0);
        self.parameters(plugin, row, |parameter, value| {
            let value = Sourced::default_value(ParameterInput::Number(value));
            used.set(&[(parameter.to_owned(), value)]).map_err(|Contradiction { what, hint, .. }| (what, hint))
        })?;
        let reads_caches = row.parameters.iter().any(|one| one.meaning == Meaning::Producer);
        if reads_caches && !self.is_precise(plugins, plugin)? {
            self.differs(plugin, row);
        }
        Ok(Some(used))
    }

    /// The disaggregation policy by the `threshold` that the handler of earlier versions had.
    fn threshold(&mut self, plugin: &DeclaredPlugin) -> Result<Option<PolicyUse>, PolicyError> {
        let Some(value) = plugin.parameter("threshold") else { return Ok(None) };
        let tokens = self.number("threshold", value, true)?;
        if !(0.0..=1e9).contains(&tokens) {
            let what = format!("`threshold` is {tokens}");
            return Err(self.wrong(value.referenced, what, "it must be a whole number from 0 to 1e9"));
        }
        if tokens == 0.0 {
            return Ok(Some(decider_policy("always", 0.0)));
        }
        let what = "`threshold` counts tokens that are not in the prefix cache; the handler that had it estimated them by \
                    its record of sent prompts";
        self.remarks.differs.push(Diagnostic::new(what).at(self.document.location(value.referenced)));
        Ok(Some(decider_policy("prefix-threshold", tokens)))
    }

    /// Whether the plugin `name` lets other instances encode images.
    fn encodes(&self, plugins: &[DeclaredPlugin], name: &str, at: Mark) -> Result<bool, PolicyError> {
        match self.declared(plugins, name, at)?.role() {
            None => Ok(false),
            Some(Role::EncodeDecider) => Ok(true),
            Some(_) => {
                let what = format!("{} decides about no encoding", quoted(name.as_bytes()));
                Err(self.wrong(at, what, "name an `always-disagg-multimodal-decider` of the list `plugins`"))
            }
        }
    }

    /// The keys of the map `section` of the parameters of `plugin`.
    fn entries<'p>(
        &self,
        plugin: &'p DeclaredPlugin,
        section: &str,
        known: &[&str],
    ) -> Result<&'p [(Word, Spanned<AnyYaml>)], PolicyError> {
        let Some(value) = plugin.parameter(section) else { return Ok(&[]) };
        let entries = match &value.value {
            AnyYaml::Map(entries) => entries,
            AnyYaml::Null => return Ok(&[]),
            other => {
                let what = format!("`{section}` is {}", other.describe());
                return Err(self.wrong(value.referenced, what, format!("it may have {}", known.join(", "))));
            }
        };
        match entries.iter().find(|(key, _)| !known.contains(&key.value.as_str())) {
            None => Ok(entries),
            Some((key, _)) => {
                let what = format!("`{section}` has no key {}", quoted(key.value.as_bytes()));
                Err(self.wrong(key.referenced, what, name_hint(&key.value, known)))
            }
        }
    }

    fn name_of<'p>(&self, plugin: &'p DeclaredPlugin, key: &str) -> Result<Option<&'p str>, PolicyError> {
        plugin.parameter(key).map_or(Ok(None), |value| self.text_of(key, value))
    }

    /// The text of a value, if it is not empty.
    fn text_of<'v>(&self, key: &str, value: &'v Spanned<AnyYaml>) -> Result<Option<&'v str>, PolicyError> {
        match &value.value {
            AnyYaml::Text(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            AnyYaml::Null => Ok(None),
            other => {
                let what = format!("`{key}` is {}", other.describe());
                Err(self.wrong(value.referenced, what, "it must be a name"))
            }
        }
    }
}

/// The built-in policy `name`, with a threshold of `tokens` if it has one.
fn decider_policy(name: &str, tokens: f64) -> PolicyUse {
    let policy = BuiltIn::find(Kind::Disaggregation, name).expect("the tests look up all of them");
    let mut used = PolicyUse::built_in(policy, SettingSource::Default);
    if let Some((_, value)) = used.parameters.iter_mut().find(|(name, _)| name == "tokens") {
        value.value = tokens;
    }
    used
}

/// The section of a bundle.
pub(super) fn to_bundle(apart: &RoleProfiles) -> String {
    let mut text = "disaggregation:\n".to_owned();
    if let Some(decider) = &apart.decider {
        let _ = writeln!(text, "  policy: {}", decider.name());
        let values: Vec<String> =
            decider.parameters.iter().map(|(name, value)| format!("{name}: {}", value.value)).collect();
        if !values.is_empty() {
            let _ = writeln!(text, "  parameters: {{{}}}", values.join(", "));
        }
    }
    if apart.prefill_first {
        text.push_str("  stage_order: prefill-first\n");
    }
    if apart.encode.is_some() {
        text.push_str("  encode_decider: multimodal\n");
    }
    for (role, profile) in [(ProfileRole::Prefill, &apart.prefill), (ProfileRole::Encode, &apart.encode)] {
        if let Some(profile) = profile {
            let _ = writeln!(text, "  {}:", role.into_str());
            profile.to_bundle(&mut text, "    ");
        }
    }
    text
}

impl ConfigPage {
    /// The deciders, and the handler that names them.
    pub(super) fn handler(&mut self, apart: &RoleProfiles) {
        let mut deciders = Vec::new();
        if let Some(decider) = &apart.decider {
            let row = decider_type(decider).expect("it was checked when the bundle was read");
            let value =
                |ours: &str| decider.parameters.iter().find(|(name, _)| name == ours).map(|(_, value)| value.value);
            let mut parameters = row.written(value);
            if row.parameter(PRODUCER_NAME).is_some() {
                parameters.push((PRODUCER_NAME, PRECISE_PRODUCER.to_owned()));
                self.precise = true;
            }
            deciders.push(format!("prefill: {}", self.declare(row, None, &parameters)));
        }
        if apart.encode.is_some() {
            let row = PluginType::for_role(Role::EncodeDecider).expect("it is in the table");
            deciders.push(format!("encode: {}", self.declare(row, None, &[])));
        }
        let mut parameters = Vec::new();
        if apart.prefill_first {
            parameters.push(("stageOrder", "prefill-first".to_owned()));
        }
        if !deciders.is_empty() {
            parameters.push(("deciders", format!("{{{}}}", deciders.join(", "))));
        }
        let row = PluginType::for_role(Role::DisaggHandler).expect("it is in the table");
        self.declare(row, None, &parameters);
    }
}
