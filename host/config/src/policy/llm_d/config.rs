//! An endpoint picker as llm-d's configuration.

use std::fmt::Write as _;

use super::plugins::{
    APPROX_PRODUCER, CONCURRENCY_DETECTOR, LRU_CAPACITY, PRECISE_PRODUCER, PRODUCER_NAME, Picker, PluginType,
    ProfileRole, Role, UTILIZATION_DETECTOR,
};
use super::{EndpointPicker, Profile, SENT_BLOCKS, Saturation};
use crate::policy::{BuiltInFilter, PolicyUse, ScorerKind, WeightedScorer};

impl EndpointPicker {
    /// The configuration. Reading it gives the same endpoint picker.
    #[must_use]
    pub fn to_config(&self) -> String {
        let mut page = ConfigPage::default();
        if let Some(blocks) = self.sent_blocks.filter(|blocks| *blocks != SENT_BLOCKS) {
            let producer = PluginType::find(APPROX_PRODUCER).expect("it is in the table");
            let parameters = [("autoTune", "false".to_owned()), (LRU_CAPACITY, blocks.to_string())];
            page.declare(producer, None, &parameters);
        }
        match &self.disaggregation {
            None => page.profile(&self.profile, None),
            Some(apart) => {
                let of_parts = [(ProfileRole::Prefill, &apart.prefill), (ProfileRole::Encode, &apart.encode)];
                for (role, profile) in of_parts {
                    profile.iter().for_each(|profile| page.profile(profile, Some(role)));
                }
                page.profile(&self.profile, Some(ProfileRole::Decode));
                page.handler(apart);
            }
        }
        if let Some(admitter) = &self.admitter {
            page.admitter(admitter);
        }
        match &self.gateway {
            Some(settings) => page.gateway(settings),
            None => page.shedding(self.shedding, self.admitter.is_some()),
        }
        page.finish()
    }

    /// Whether the configuration needs a plugin that reads what is in the prefix caches, whose parameters depend on the
    /// deployment.
    #[must_use]
    pub fn reads_prefix_caches(&self) -> bool {
        let precise =
            |scorer: &WeightedScorer| scorer.kind().and_then(PluginType::of_scorer).is_some_and(|(_, precise)| precise);
        let reads = |row: &PluginType| row.parameter(PRODUCER_NAME).is_some();
        let apart = self.disaggregation.as_ref();
        let further = apart.into_iter().flat_map(|apart| apart.prefill.iter().chain(&apart.encode));
        let mut profiles = std::iter::once(&self.profile).chain(further);
        let decider = apart.and_then(|apart| decider_type(apart.decider.as_ref()?));
        decider.is_some_and(reads)
            || profiles.any(|profile| {
                profile.filters.iter().any(|filter| reads(type_of(filter))) || profile.scorers.iter().any(precise)
            })
    }
}

/// The type of llm-d that is `filter`.
pub(super) fn type_of(filter: &BuiltInFilter) -> &'static PluginType {
    type_with(Role::Filter(filter.name()))
}

/// The type of llm-d that is the disaggregation policy of a bundle, if there is one.
pub(super) fn decider_type(used: &PolicyUse) -> Option<&'static PluginType> {
    PluginType::for_role(Role::Decider(used.built_in?.name))
}

fn type_with(role: Role) -> &'static PluginType {
    PluginType::for_role(role).expect("every filter and picker has a type of llm-d")
}

/// The sections of a configuration that is being written.
#[derive(Default)]
pub(super) struct ConfigPage {
    plugins: String,
    /// Names, types and parameters of the plugins that were declared.
    declared: Vec<(String, &'static str, String)>,
    /// The role of the profile that is being written, if it has one.
    role: Option<ProfileRole>,
    profiles: String,
    pub(super) detector: String,
    /// Whether a plugin reads what is in the prefix caches.
    pub(super) precise: bool,
}

impl ConfigPage {
    /// Adds a profile: that of the instances with `role`, or the only one.
    fn profile(&mut self, profile: &Profile, role: Option<ProfileRole>) {
        self.role = role;
        let _ = writeln!(self.profiles, "- name: {}\n  plugins:", role.map_or("default", |role| role.into_str()));
        if let Some(role) = role {
            let name = self.declare(type_with(Role::Keeps(role)), None, &[]);
            self.reference(&name, None);
        }
        for filter in &profile.filters {
            self.filter(filter);
        }
        let random = profile.scorers.iter().all(|scorer| scorer.kind() == Some(ScorerKind::Random));
        for scorer in profile.scorers.iter().filter(|_| !random) {
            self.scorer(scorer);
        }
        let picker = Role::Picker(if random { Picker::Random } else { Picker::MaxScore });
        let name = self.declare(type_with(picker), None, &[]);
        self.reference(&name, None);
    }

    fn filter(&mut self, filter: &BuiltInFilter) {
        let row = type_of(filter);
        let value =
            |ours: &str| filter.parameters().find(|(parameter, _)| parameter.name == ours).map(|(_, value)| value);
        let mut parameters = row.written(value);
        if row.parameter(PRODUCER_NAME).is_some() {
            parameters.push((PRODUCER_NAME, PRECISE_PRODUCER.to_owned()));
            self.precise = true;
        }
        // The detector of saturation is the plugin of that name, whatever else it does.
        let name = match row.name {
            UTILIZATION_DETECTOR => Some("saturation-filter"),
            CONCURRENCY_DETECTOR => Some("concurrency-filter"),
            _ => None,
        };
        let name = self.declare(row, name, &parameters);
        self.reference(&name, None);
    }

    fn scorer(&mut self, scorer: &WeightedScorer) {
        let kind = scorer.kind().expect("plugins were refused when the bundle was read");
        let (row, precise) = PluginType::of_scorer(kind).expect("it was checked when the bundle was read");
        let producer = [(PRODUCER_NAME, PRECISE_PRODUCER.to_owned())];
        self.precise |= precise;
        // The same type may be two scorers.
        let two = precise && row.role != Role::Scorer(kind);
        let name = two.then(|| kind.name());
        let name = self.declare(row, name, if precise { &producer } else { &[] });
        self.reference(&name, Some(scorer.weight));
    }

    /// Rejections of requests of a negative priority, which llm-d has unless its detector is off.
    fn shedding(&mut self, shedding: Option<Saturation>, has_admitter: bool) {
        let Saturation { queue_depth, kv_utilization } = match shedding {
            Some(Saturation::DEFAULT) => return,
            Some(saturation) => saturation,
            None => {
                let admitted = if has_admitter { "The admitter alone decides" } else { "All requests are admitted" };
                let _ = writeln!(self.plugins, "# {admitted}: thresholds that are never reached.");
                Saturation::OFF
            }
        };
        let row = type_with(Role::Filter("saturation"));
        let parameters =
            [("queueDepthThreshold", queue_depth.to_string()), ("kvCacheUtilThreshold", kv_utilization.to_string())];
        let name = self.declare(row, None, &parameters);
        let _ = writeln!(self.detector, "flowControl:\n  saturationDetector:\n    pluginRef: {name}");
    }

    /// Adds a plugin, unless a profile before has the same one. Returns its name; one with the same name and other
    /// parameters is called after its profile.
    pub(super) fn declare(
        &mut self,
        row: &'static PluginType,
        name: Option<&str>,
        parameters: &[(&str, String)],
    ) -> String {
        let lines: String = parameters.iter().map(|(name, value)| format!("    {name}: {value}\n")).collect();
        let mut name = name.unwrap_or(row.name).to_owned();
        while let Some((_, other, written)) = self.declared.iter().find(|(known, ..)| *known == name) {
            if (*other, written) == (row.name, &lines) {
                return name;
            }
            name = format!("{name}-{}", self.role.map_or("other", |role| role.into_str()));
        }
        let _ = writeln!(self.plugins, "- type: {}", row.name);
        if name != row.name {
            let _ = writeln!(self.plugins, "  name: {name}");
        }
        if !lines.is_empty() {
            let _ = write!(self.plugins, "  parameters:\n{lines}");
        }
        self.declared.push((name.clone(), row.name, lines));
        name
    }

    /// Adds a plugin to the profile.
    fn reference(&mut self, name: &str, weight: Option<f64>) {
        let _ = writeln!(self.profiles, "  - pluginRef: {name}");
        if let Some(weight) = weight {
            let _ = writeln!(self.profiles, "    weight: {weight}");
        }
    }

    fn finish(self) -> String {
        let Self { plugins, profiles, detector, precise, .. } = self;
        let (producers, data) = if precise { (PRECISE_PLUGINS, PRECISE_DATA) } else { ("", "") };
        format!(
            "# Written by `blis export llm-d`.\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n\
             {producers}{plugins}{data}schedulingProfiles:\n{profiles}{detector}"
        )
    }
}

/// What llm-d needs to read the contents of prefix caches.
const PRECISE_PLUGINS: &str = "\
- type: token-producer
  parameters:
    # The model of the deployment, and a server of it.
    modelName: MODEL
    vllm:
      url: http://localhost:8000
- type: endpoint-notification-source
- type: precise-prefix-cache-producer
";
const PRECISE_DATA: &str = "\
dataLayer:
  sources:
  - pluginRef: endpoint-notification-source
    extractors:
    - pluginRef: precise-prefix-cache-producer
";
