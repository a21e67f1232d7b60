//! The policy bundle: one YAML file with all policies. It is strict: everything unknown is an error that shows the line
//! with carets under the mistake.
//!
//! All values are read as text and parsed here, so that an error can say which values are valid instead of YAML's type
//! names.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::PolicyError;
use super::{
    BuiltIn, Choices, FilterSetting, ParameterInput, ParameterSetting, PoolChoice, ScalingChoice, ScorerFault,
    ScorerName, SettingSource, Sourced, WeightedScorer,
};
use blis_diag::yaml::{
    self, ABOVE_0, Document, Entries, Error, FROM_0, Fault, NumberRange, Spanned, Word, explain, real,
};
use blis_diag::{Location, name_hint, quoted};
use blis_plugin::Kind;

/// A bundle that is valid by itself, with its text for later messages.
#[derive(Clone, Debug)]
pub struct Bundle {
    choices: Choices,
    file: String,
    text: String,
}

const BYTES_MAX: u64 = 1 << 20;

/// Maximum length of a class or tenant name, characters. `--explain-config` needs up to six characters for each
/// (`\u2028`), and a YAML key may have 1024.
const NAME_MAX: usize = 128;

/// Sections of BLIS's bundles that are not read, and what to do instead.
const NOT_READ: [(&str, &str); 4] = [
    ("node_pools", "leave it out, and set `--node-pool`"),
    ("autoscaler", "leave it out, and name an autoscaler in the section `scaling`, or with `--autoscaler`"),
    ("instance_lifecycle", "leave it out, and set `--startup-time` beside `--autoscaler`"),
    ("slo_targets", "leave it out, and set `--slo-targets`, or `slo_targets` of the section `gateway`"),
];

impl Bundle {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is not YAML, or contains an unknown key or an invalid value.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let (file, text) = read_text(path)?;
        Self::parse(&file, &text)
    }

    /// Parses `text`, the content of `file`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        let reader = BundleReader(Document { file: file.into(), text });
        let raw: Option<RawBundle> = reader.0.read().map_err(|error| reader.yaml_error(&error))?;
        let Some(raw) = raw else {
            let location = Location::start(reader.0.file);
            return Err(PolicyError::at(
                location,
                text,
                "the bundle is empty",
                "`{}` selects the default of everything",
            ));
        };
        Ok(Self { choices: reader.choices(raw)?, file: file.to_owned(), text: text.to_owned() })
    }

    #[must_use]
    pub fn choices(&self) -> &Choices {
        &self.choices
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether its text has the line of `location`: of a configuration file, a bundle has those of the policies only.
    pub(super) fn has_line(&self, location: &Location) -> bool {
        let index = location.line.and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
        let line = index.and_then(|index| self.text.lines().nth(index));
        *location.file == self.file && line.is_some_and(|line| !line.trim().is_empty())
    }
}

/// The name and the content of the file at `path`.
///
/// # Errors
/// If it cannot be read or is too long.
pub(super) fn read_text(path: &Path) -> Result<(Arc<str>, String), PolicyError> {
    let file: Arc<str> = path.display().to_string().into();
    let text = blis_diag::read_text(path, BYTES_MAX).map_err(|error| PolicyError::unreadable(&file, &error))?;
    Ok((file, text))
}

/// The sections of a bundle, which are read one by one: those of the kinds have their names.
#[derive(Default)]
struct RawBundle {
    admission: RawAdmission,
    routing: RawRouting,
    disaggregation: RawDisaggregation,
    /// The other kinds, which have a policy and parameters.
    policies: Vec<(Kind, RawPolicy)>,
    /// Another name for the policy of `scheduling`.
    scheduler: Option<Word>,
    tenant_budgets: Option<Entries<Word>>,
    gateway: Option<Entries<Word>>,
    has_deployment: bool,
}

/// Sections that are no kind of policy. The experiment reads `deployment`, with its settings.
const OTHER_SECTIONS: [&str; 4] = ["scheduler", "tenant_budgets", "gateway", "deployment"];

/// The kind with a section called `name`. Filters have none: they are a part of `routing`.
fn kind_of_section(name: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|&kind| kind != Kind::RoutingFilter && kind.name() == name)
}

/// All sections.
fn sections() -> &'static [&'static str] {
    static SECTIONS: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let kinds = Kind::ALL.into_iter().map(Kind::name).filter(|name| kind_of_section(name).is_some());
        kinds.chain(OTHER_SECTIONS).collect()
    });
    &SECTIONS
}

impl<'de> Deserialize<'de> for RawBundle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SectionVisitor;

        impl<'de> Visitor<'de> for SectionVisitor {
            type Value = RawBundle;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the sections of a bundle")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawBundle, A::Error> {
                let mut bundle = RawBundle::default();
                while let Some(name) = map.next_key::<String>()? {
                    match (kind_of_section(&name), name.as_str()) {
                        (Some(Kind::Admission), _) => bundle.admission = or_default(map.next_value()?),
                        (Some(Kind::Routing), _) => bundle.routing = or_default(map.next_value()?),
                        (Some(Kind::Disaggregation), _) => bundle.disaggregation = or_default(map.next_value()?),
                        (Some(kind), _) => bundle.policies.push((kind, or_default(map.next_value()?))),
                        (None, "scheduler") => bundle.scheduler = map.next_value()?,
                        (None, "tenant_budgets") => bundle.tenant_budgets = map.next_value()?,
                        (None, "gateway") => bundle.gateway = map.next_value()?,
                        (None, "deployment") => {
                            bundle.has_deployment = map.next_value::<Option<IgnoredAny>>()?.is_some();
                        }
                        _ => return Err(serde::de::Error::unknown_field(&name, sections())),
                    }
                }
                Ok(bundle)
            }
        }

        deserializer.deserialize_map(SectionVisitor)
    }
}

/// A section without content is one that is left out.
fn or_default<T: Default>(section: Option<T>) -> T {
    section.unwrap_or_default()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawAdmission {
    policy: Option<Word>,
    token_bucket_capacity: Option<Word>,
    token_bucket_refill_rate: Option<Word>,
    tier_shed_threshold: Option<Word>,
    tier_shed_min_priority: Option<Word>,
    gaie_qd_threshold: Option<Word>,
    gaie_kv_threshold: Option<Word>,
    slo_priorities: Option<Entries<Word>>,
    parameters: Option<Entries<Spanned<yaml::Value>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawRouting {
    policy: Option<Word>,
    filters: Option<Vec<RawFilter>>,
    scorers: Option<Spanned<Vec<RawScorer>>>,
    picker: Option<Word>,
    cache_weight: Option<Word>,
    load_weight: Option<Word>,
    parameters: Option<Entries<Spanned<yaml::Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScorer {
    name: Word,
    weight: Word,
    parameters: Option<Entries<Spanned<yaml::Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFilter {
    name: Word,
    parameters: Option<Entries<Spanned<yaml::Value>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPolicy {
    policy: Option<Word>,
    parameters: Option<Entries<Spanned<yaml::Value>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDisaggregation {
    policy: Option<Word>,
    parameters: Option<Entries<Spanned<yaml::Value>>>,
    stage_order: Option<Word>,
    encode_decider: Option<Word>,
    prefill: Option<RawPool>,
    decode: Option<RawPool>,
    encode: Option<RawPool>,
}

/// How instances of a role are chosen.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPool {
    filters: Option<Vec<RawFilter>>,
    scorers: Option<Spanned<Vec<RawScorer>>>,
}

/// The value of a parameter: a word, a list of numbers, or a list of rows of equally many numbers; `None` if it is none of them.
fn parameter(value: &yaml::Value) -> Option<ParameterInput> {
    fn row(items: &[Spanned<yaml::Value>]) -> Option<Vec<f64>> {
        let number = |item: &Spanned<yaml::Value>| match &item.value {
            yaml::Value::Word(word) => real(word),
            _ => None,
        };
        items.iter().map(number).collect()
    }
    let items = match value {
        yaml::Value::Word(word) => return Some(ParameterInput::Word(word.clone())),
        yaml::Value::List(items) => items,
        yaml::Value::Nothing | yaml::Value::Map(_) => return None,
    };
    if items.iter().all(|item| matches!(item.value, yaml::Value::Word(_))) {
        return row(items).map(|row| ParameterInput::Rows(row, None));
    }
    let rows = items.iter().map(|item| match &item.value {
        yaml::Value::List(items) => row(items),
        _ => None,
    });
    let rows = rows.collect::<Option<Vec<_>>>()?;
    let length = rows.first().map(Vec::len);
    let same = rows.iter().all(|row| Some(row.len()) == length);
    same.then(|| ParameterInput::Rows(rows.concat(), length))
}

/// The document, with the locations of its words.
struct BundleReader<'a>(Document<'a>);

impl BundleReader<'_> {
    fn choices(&self, raw: RawBundle) -> Result<Choices, PolicyError> {
        let RawBundle { admission, routing, disaggregation, mut policies, mut scheduler, .. } = raw;
        let named = policies.iter().any(|(kind, raw)| *kind == Kind::Scheduling && raw.policy.is_some());
        let scaling = policies.iter().position(|&(kind, _)| kind == Kind::Scaling).map(|at| policies.remove(at).1);
        if let (Some(word), true) = (&scheduler, named) {
            let hint = "keep one of them; `scheduling` may have parameters";
            return Err(self.wrong(word, "`scheduler` and `scheduling` are two names of one setting", hint));
        }
        let mut choices = Choices {
            slo_priorities: self.entries(admission.slo_priorities, |name, word| {
                self.whole(&format!("priority of class {}", quoted(name.as_bytes())), Some(word), -100..=100)
            })?,
            tenant_budgets: self.entries(raw.tenant_budgets, |name, word| {
                self.number(&format!("budget of tenant {}", quoted(name.as_bytes())), Some(word), FROM_0_TO_1)
            })?,
            scorers: routing.scorers.map(|scorers| self.scorers(scorers)).transpose()?,
            filters: routing.filters.map(|filters| self.filters(filters)).transpose()?,
            gateway: raw.gateway.map(|gateway| self.gateway(gateway)),
            has_deployment: raw.has_deployment,
            scaling: scaling.map(|scaling| self.scaling(scaling)).transpose()?.flatten(),
            picker: routing.picker.map(|word| self.sourced(word.value.clone(), &word)),
            pools: self.pools([
                ("prefill", disaggregation.prefill),
                ("decode", disaggregation.decode),
                ("encode", disaggregation.encode),
            ])?,
            stage_order: disaggregation.stage_order.map(|word| self.sourced(word.value.clone(), &word)),
            encode_decider: disaggregation.encode_decider.map(|word| self.sourced(word.value.clone(), &word)),
            ..Choices::default()
        };
        policies.extend([
            (Kind::Admission, RawPolicy { policy: admission.policy, parameters: admission.parameters }),
            (Kind::Routing, RawPolicy { policy: routing.policy, parameters: routing.parameters }),
            (Kind::Disaggregation, RawPolicy { policy: disaggregation.policy, parameters: disaggregation.parameters }),
        ]);
        if scheduler.is_some() && policies.iter().all(|&(kind, _)| kind != Kind::Scheduling) {
            policies.push((Kind::Scheduling, RawPolicy::default()));
        }
        policies.sort_by_key(|&(kind, _)| kind);
        for (kind, RawPolicy { policy, parameters }) in policies {
            let name = match kind {
                Kind::Scheduling => scheduler.take().or(policy),
                Kind::Latency => self.latency_model(policy)?,
                _ => policy,
            };
            // BLIS reads an empty name as no name.
            let name = name.filter(|word| !word.value.is_empty());
            choices.policies.extend(name.map(|word| (kind, self.sourced(word.value.clone(), &word))));
            let values = self.given(parameters)?;
            choices.parameters.extend(values.into_iter().map(|(name, value)| ParameterSetting {
                kind,
                name,
                value,
                key: None,
            }));
        }
        for (key, word, range) in [
            ("token_bucket_capacity", admission.token_bucket_capacity, ABOVE_0),
            ("token_bucket_refill_rate", admission.token_bucket_refill_rate, ABOVE_0),
            ("gaie_qd_threshold", admission.gaie_qd_threshold, ABOVE_0),
            ("gaie_kv_threshold", admission.gaie_kv_threshold, SHARE),
            ("cache_weight", routing.cache_weight, FROM_0),
            ("load_weight", routing.load_weight, FROM_0),
        ] {
            choices.set(key, self.number(&format!("`{key}`"), word, range)?);
        }
        let threshold = self.whole("`tier_shed_threshold`", admission.tier_shed_threshold, 0..=LOAD_MAX)?;
        choices.set("tier_shed_threshold", threshold.map(|threshold| threshold.map(f64::from)));
        let priorities = i32::MIN..=i32::MAX;
        let least = self.whole("`tier_shed_min_priority`", admission.tier_shed_min_priority, priorities)?;
        choices.set("tier_shed_min_priority", least.map(|least| least.map(f64::from)));
        Ok(choices)
    }

    /// The values of parameters, in the order of the file.
    fn given(
        &self,
        entries: Option<Entries<Spanned<yaml::Value>>>,
    ) -> Result<Vec<(String, Sourced<ParameterInput>)>, PolicyError> {
        self.entries(entries, |name, Spanned { value, referenced }| {
            let wrong = || {
                let what = format!("parameter {} is no number, text or table", quoted(name.as_bytes()));
                self.0.wrong(referenced, what, "a table is a list of rows of equally many numbers, as [[1, 2], [3, 4]]")
            };
            let value = parameter(&value).ok_or_else(wrong)?;
            Ok(Some(Sourced { value, source: SettingSource::File(self.0.location(referenced)) }))
        })
    }

    /// The autoscaler; `None` if the section is empty.
    fn scaling(&self, raw: RawPolicy) -> Result<Option<ScalingChoice>, PolicyError> {
        let parameters = self.given(raw.parameters)?;
        let Some(word) = raw.policy else {
            return parameters.first().map_or(Ok(None), |(name, value)| {
                let what = format!("`scaling` has the parameter {}, but no policy", quoted(name.as_bytes()));
                Err(self.wrong_at(&value.source, what, "name the autoscaler: `policy: queue`".to_owned()))
            });
        };
        Ok(Some(ScalingChoice { name: self.sourced(word.value.clone(), &word), parameters }))
    }

    /// Words only: the experiment knows which settings of flow control there are, and parses the values as those of the flags.
    fn gateway(&self, raw: Entries<Word>) -> Vec<(String, Sourced<String>)> {
        let setting =
            |(name, word): (Word, Word)| (name.value.replace('_', "-"), self.sourced(word.value.clone(), &word));
        raw.0.into_iter().map(setting).collect()
    }

    /// Built-in latency models belong to the deployment, which flags describe.
    fn latency_model(&self, word: Option<Word>) -> Result<Option<Word>, PolicyError> {
        if let Some(word) = word.as_ref().filter(|word| BuiltIn::find(Kind::Latency, &word.value).is_some()) {
            let what = format!("`{}` is built in; a bundle names plugins only", word.value);
            return Err(self.wrong(word, what, format!("use `--latency-model {}`", word.value)));
        }
        Ok(word)
    }

    fn number(&self, key: &str, word: Option<Word>, range: NumberRange) -> Result<Option<Sourced<f64>>, PolicyError> {
        let Some(word) = word else { return Ok(None) };
        Ok(Some(self.sourced(self.0.number(key, &word, range)?, &word)))
    }

    fn whole<T>(
        &self,
        key: &str,
        word: Option<Word>,
        range: RangeInclusive<T>,
    ) -> Result<Option<Sourced<T>>, PolicyError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(word) = word else { return Ok(None) };
        Ok(Some(self.sourced(self.0.whole(key, &word, range)?, &word)))
    }

    /// The entries in the order of the file. The YAML reader has already refused duplicate names.
    fn entries<T, V>(
        &self,
        entries: Option<Entries<V>>,
        value: impl Fn(&str, V) -> Result<Option<Sourced<T>>, PolicyError>,
    ) -> Result<Vec<(String, Sourced<T>)>, PolicyError> {
        let mut understood = Vec::new();
        for (name, word) in entries.map(|entries| entries.0).unwrap_or_default() {
            if name.value.chars().count() > NAME_MAX {
                let what = format!("a name longer than {NAME_MAX} characters");
                return Err(self.wrong(&name, what, "is this the right file?"));
            }
            understood.extend(value(&name.value, word)?.map(|value| (name.value, value)));
        }
        Ok(understood)
    }

    fn scorers(&self, mut raw: Spanned<Vec<RawScorer>>) -> Result<Vec<Sourced<WeightedScorer>>, PolicyError> {
        let mut scorers = Vec::new();
        for (index, RawScorer { name, weight, parameters }) in raw.value.iter_mut().enumerate() {
            let number = index + 1;
            let known = ScorerName::named(&name.value).map_err(|hint| {
                self.wrong(name, format!("scorer {number}: unknown scorer {}", quoted(name.value.as_bytes())), hint)
            })?;
            let given = self.given(parameters.take())?;
            if let (ScorerName::BuiltIn(_), Some((parameter, _))) = (&known, given.first()) {
                let what = format!("scorer `{known}` has no parameter {}", quoted(parameter.as_bytes()));
                return Err(self.wrong(name, what, "built-in scorers have a weight only"));
            }
            let Some(value) = real(&weight.value) else {
                return Err(self
                    .0
                    .out_of_range(format_args!("weight of scorer {number}"), weight, ABOVE_0.text)
                    .into());
            };
            let given = given.into_iter().map(|(name, value)| (name, value.value)).collect();
            scorers.push(self.sourced(WeightedScorer { name: known, weight: value, given }, name));
        }
        let plain: Vec<WeightedScorer> =
            scorers.iter().map(|scorer: &Sourced<WeightedScorer>| scorer.value.clone()).collect();
        WeightedScorer::check(&plain).map_err(|ScorerFault { index, in_weight, what, hint }| {
            let location = match raw.value.get(index) {
                Some(scorer) if in_weight => self.0.location(scorer.weight.referenced),
                Some(scorer) => self.0.location(scorer.name.referenced),
                None => self.0.location(raw.referenced),
            };
            PolicyError::at(location, self.0.text, what, hint)
        })?;
        Ok(scorers)
    }

    fn pools(&self, raw: [(&'static str, Option<RawPool>); 3]) -> Result<Vec<PoolChoice>, PolicyError> {
        let pool = |(role, raw): (&'static str, Option<RawPool>)| {
            let RawPool { filters, scorers } = raw?;
            let filters = filters.map(|filters| self.filters(filters)).transpose();
            let scorers = scorers.map(|scorers| self.scorers(scorers)).transpose();
            Some(filters.and_then(|filters| Ok(PoolChoice { role, filters, scorers: scorers? })))
        };
        raw.into_iter().filter_map(pool).collect()
    }

    fn filters(&self, raw: Vec<RawFilter>) -> Result<Vec<Sourced<FilterSetting>>, PolicyError> {
        let mut filters: Vec<Sourced<FilterSetting>> = Vec::new();
        for RawFilter { name, parameters } in raw {
            let wrong = |(what, hint): (String, String)| self.wrong(&name, what, hint);
            let mut filter = FilterSetting::named(&name.value).map_err(wrong)?;
            for (key, value) in self.given(parameters)? {
                let at = value.source.clone();
                filter.set(&key, value.value).map_err(|(what, hint)| self.wrong_at(&at, what, hint))?;
            }
            filters.push(self.sourced(filter, &name));
            let plain: Vec<FilterSetting> = filters.iter().map(|filter| filter.value.clone()).collect();
            FilterSetting::check(&plain).map_err(|(_, what, hint)| self.wrong(&name, what, hint))?;
        }
        Ok(filters)
    }

    fn wrong(&self, word: &Word, what: impl Into<String>, hint: impl Into<String>) -> PolicyError {
        self.0.wrong(word.referenced, what, hint).into()
    }

    fn wrong_at(&self, source: &SettingSource, what: String, hint: String) -> PolicyError {
        match source.location() {
            Some(location) => PolicyError::at(location.clone(), self.0.text, what, hint),
            None => PolicyError::new(what, hint),
        }
    }

    fn sourced<T>(&self, value: T, word: &Word) -> Sourced<T> {
        Sourced { value, source: SettingSource::File(self.0.location(word.referenced)) }
    }

    /// The message for an error of the YAML reader, more specific where bundles allow it.
    fn yaml_error(&self, error: &Error) -> PolicyError {
        let (what, hint) = match error.fault() {
            Fault::UnknownKey { key, known } => unknown_key(key, known),
            Fault::MissingKey(key) => {
                (format!("`{key}` is missing"), "a scorer has a `name` and a `weight`".to_owned())
            }
            Fault::Shape(_) if [".rhai", ".wasm", ".so"].iter().any(|ending| self.0.file.ends_with(ending)) => (
                explain(error).0,
                "a plugin is named by its kind: `--routing-policy FILE`, `--admission-policy FILE`, …".to_owned(),
            ),
            _ => explain(error),
        };
        let location = match error.location() {
            Some(at) => self.0.location(at),
            None => Location::start(Arc::clone(&self.0.file)),
        };
        PolicyError::at(location, self.0.text, what, hint)
    }
}

fn unknown_key(key: &str, known: &[&str]) -> (String, String) {
    let part_of_bundle = known.contains(&"admission") || known.contains(&"slo_priorities");
    match NOT_READ.iter().find(|(name, _)| part_of_bundle && *name == key) {
        Some((name, instead)) => (format!("BLIS's section `{name}` is not read"), (*instead).to_owned()),
        None => (format!("unknown key {}", quoted(key.as_bytes())), name_hint(key, known)),
    }
}

const FROM_0_TO_1: NumberRange =
    NumberRange { fits: |number| (0.0..=1.0).contains(&number), text: "a number from 0 to 1" };
const SHARE: NumberRange =
    NumberRange { fits: |number| number > 0.0 && number <= 1.0, text: "a number above 0 and at most 1" };

/// Largest threshold, requests. No instance has more.
const LOAD_MAX: u32 = u32::MAX;
