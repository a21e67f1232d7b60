//! An endpoint picker as llm-d's configuration.

use std::fmt::Write as _;

use super::plugins::{
    APPROX_PRODUCER, CONCURRENCY_DETECTOR, LRU_CAPACITY, PRECISE_PRODUCER, PRODUCER_NAME, Picker, PluginType, Role,
    UTILIZATION_DETECTOR,
};
use super::{EndpointPicker, SENT_BLOCKS, Saturation};
use crate::policy::{BuiltInFilter, ScorerKind, WeightedScorer};

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
        for filter in &self.filters {
            page.filter(filter);
        }
        let random = self.scorers.iter().all(|scorer| scorer.kind() == Some(ScorerKind::Random));
        for scorer in self.scorers.iter().filter(|_| !random) {
            page.scorer(scorer);
        }
        let picker = Role::Picker(if random { Picker::Random } else { Picker::MaxScore });
        let name = page.declare(type_with(picker), None, &[]);
        page.reference(name, None);
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
        let filter = |filter: &BuiltInFilter| type_of(filter).parameter(PRODUCER_NAME).is_some();
        self.filters.iter().any(filter) || self.scorers.iter().any(precise)
    }
}

/// The type of llm-d that is `filter`.
pub(super) fn type_of(filter: &BuiltInFilter) -> &'static PluginType {
    type_with(Role::Filter(filter.name()))
}

fn type_with(role: Role) -> &'static PluginType {
    PluginType::of(role).expect("every filter and picker has a type of llm-d")
}

/// The sections of a configuration that is being written.
#[derive(Default)]
pub(super) struct ConfigPage {
    plugins: String,
    profile: String,
    pub(super) detector: String,
    /// Whether a plugin reads what is in the prefix caches.
    precise: bool,
}

impl ConfigPage {
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
        self.reference(name, None);
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
        self.reference(name, Some(scorer.weight));
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

    /// Adds a plugin. Returns its name.
    pub(super) fn declare<'a>(
        &mut self,
        row: &'a PluginType,
        name: Option<&'a str>,
        parameters: &[(&str, String)],
    ) -> &'a str {
        let _ = writeln!(self.plugins, "- type: {}", row.name);
        if let Some(name) = name {
            let _ = writeln!(self.plugins, "  name: {name}");
        }
        if !parameters.is_empty() {
            self.plugins.push_str("  parameters:\n");
        }
        for (name, value) in parameters {
            let _ = writeln!(self.plugins, "    {name}: {value}");
        }
        name.unwrap_or(row.name)
    }

    /// Adds a plugin to the profile.
    fn reference(&mut self, name: &str, weight: Option<f64>) {
        let _ = writeln!(self.profile, "  - pluginRef: {name}");
        if let Some(weight) = weight {
            let _ = writeln!(self.profile, "    weight: {weight}");
        }
    }

    fn finish(self) -> String {
        let Self { plugins, profile, detector, precise } = self;
        let (producers, data) = if precise { (PRECISE_PLUGINS, PRECISE_DATA) } else { ("", "") };
        format!(
            "# Written by `blis export llm-d`.\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n\
             {producers}{plugins}{data}schedulingProfiles:\n- name: default\n  plugins:\n{profile}{detector}"
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
