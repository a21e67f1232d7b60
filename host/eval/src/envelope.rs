//! What goes with the figures of every result of simulations: what it is about, and what limits it.

use blis_config::Deployment;
use blis_plugin::{Kind, Technology};
use blis_report::{Caveat, CaveatCode};
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::explain::resolved;
use crate::open;
use crate::planning::{LatencyBand, latency_bands};
use crate::spec::{ExperimentSpec, NamedChoice as _};
use crate::workload_config::plural;

/// What a result is about.
#[derive(Clone, Debug, Serialize)]
pub struct ResultSubject {
    /// All of it in words.
    pub text: String,
    #[serde(flatten)]
    service: Option<ServiceSubject>,
}

/// A service under a workload.
#[derive(Clone, Debug, Serialize)]
struct ServiceSubject {
    /// Short names of the models, each once; of all that are compared.
    models: Vec<String>,
    /// Names of the GPUs, likewise.
    hardware: Vec<String>,
    /// GPUs of all instances at the start. Unit: GPUs.
    gpus: u64,
    /// GPUs of an instance in words, as `TP 2, PP 2`.
    parallelism: String,
    /// Method of quantisation, or the type of weights that are not quantised; `null` without the model's config.
    precision: Option<String>,
    /// Type of cached keys and values; `null` without the model's config.
    kv_dtype: Option<String>,
    /// The engine that is followed, with its version.
    engine: String,
    /// Instances at the start. Unit: replicas.
    replicas: u32,
    /// The routing policies; those that are compared, if they are.
    router: Vec<String>,
    /// The requests in words.
    workload: String,
    /// Seeds of the runs. Unit: number.
    seeds: Vec<u64>,
    /// By how much latencies that are measured differ from simulated ones, in nine of ten deployments; of the first deployment, if several
    /// are compared. None for a latency model that is a plugin.
    model_error: Vec<LatencyBand>,
}

/// What goes with a result.
#[derive(Clone, Debug)]
pub struct Envelope {
    pub subject: ResultSubject,
    /// What limits any conclusion about this subject.
    pub caveats: Vec<Caveat>,
    /// All settings that do not follow from others; `None` if nothing is simulated from settings.
    pub settings: Option<ExperimentSpec>,
    /// Defaults that were chosen, and simplifications.
    pub notes: Vec<String>,
}

impl Envelope {
    /// Of a result that no settings of a service describe.
    #[must_use]
    pub fn in_words(text: impl Into<String>) -> Self {
        let subject = ResultSubject { text: text.into(), service: None };
        Self { subject, caveats: Vec::new(), settings: None, notes: Vec::new() }
    }

    /// The same of `count` deployments, the first of which is the subject.
    #[must_use]
    pub fn among(mut self, count: usize) -> Self {
        self.subject.text = format!("{}, and {} other deployments", self.subject.text, count.saturating_sub(1));
        self
    }

    /// Of runs of the service `base` under `seeds`. `compared`: names of what is compared, policies or deployments; may be empty.
    ///
    /// # Errors
    /// If the deployment cannot be resolved.
    pub fn of_service(base: &Experiment, seeds: &[u64], compared: &[(String, Experiment)]) -> Result<Self, RunError> {
        let deployment = open::resolve(base)?;
        let mut subject = ResultSubject::new(base, &deployment, seeds)?;
        let mut caveats = caveats_of(base, &deployment);
        // What cannot be deployed is refused where it is compared.
        let others = compared.iter().filter_map(|(_, other)| Some((other, open::resolve(other).ok()?)));
        for (other, deployment) in others {
            caveats.extend(caveats_of(other, &deployment));
            if let Some(service) = &mut subject.service {
                service.models.push(deployment.model);
                service.hardware.push(deployment.hardware);
            }
        }
        let caveats = each_once(caveats.into_iter());
        if let (Some(service), true) = (&mut subject.service, compared.len() > 1) {
            service.models = each_once(service.models.drain(..));
            service.hardware = each_once(service.hardware.drain(..));
            service.router = routers(compared.iter().map(|(_, one)| one));
            subject.text = format!("{}: {}", subject.text, names_in_words(compared));
        }
        Ok(Self { subject, caveats, settings: Some(resolved(base, &deployment)?), notes: deployment.notes })
    }
}

impl ResultSubject {
    pub(crate) fn new(config: &Experiment, deployment: &Deployment, seeds: &[u64]) -> Result<Self, RunError> {
        let pools = config.cluster.disaggregation.as_ref();
        // Each group with its instances.
        let groups: Vec<(u32, Deployment)> = match pools {
            Some(roles) => {
                let instances = roles.pools.iter().map(|pool| pool.instances);
                instances.zip(roles.deployments(&config.deployment)?).collect()
            }
            None => {
                let counts = config.cluster.groups.iter().map(|group| group.instances);
                let others = counts.zip(config.further_deployments()?);
                std::iter::once((config.cluster.num_instances, deployment.clone())).chain(others).collect()
            }
        };
        let precision = &deployment.precision;
        let service = ServiceSubject {
            models: each_once(groups.iter().map(|(_, of)| of.model.clone())),
            hardware: each_once(groups.iter().map(|(_, of)| of.hardware.clone())),
            gpus: groups.iter().map(|(count, of)| u64::from(*count) * u64::from(of.gpus())).sum(),
            parallelism: each_once(groups.iter().map(|(_, of)| parallelism(of))).join(" or "),
            precision: precision.quantization.clone().or_else(|| precision.dtype.clone()),
            kv_dtype: precision.kv_cache_dtype.clone(),
            engine: config.engine.profile.map_or("blis", |profile| profile.name()).to_owned(),
            replicas: groups.iter().map(|(count, _)| count).sum(),
            router: routers(std::iter::once(config)),
            workload: config.workload.to_string(),
            seeds: seeds.to_vec(),
            model_error: latency_bands(config, deployment),
        };
        Ok(Self { text: service.words(), service: Some(service) })
    }
}

impl ResultSubject {
    /// `4 × H100 (qwen3-14b, TP 2)`.
    pub(crate) fn service_in_words(&self) -> String {
        self.service.as_ref().map_or(String::new(), |service| {
            let ServiceSubject { gpus, hardware, models, parallelism, .. } = service;
            format!("{gpus} × {} ({}, {parallelism})", hardware.join(", "), models.join(", "))
        })
    }
}

impl ServiceSubject {
    /// `qwen3-14b (fp8) on 4 × H100: 2 replicas of TP 2, least-loaded`.
    fn words(&self) -> String {
        let precision = self.precision.as_ref().map_or(String::new(), |precision| format!(" ({precision})"));
        format!(
            "{}{precision} on {} × {}: {} of {}, {}; {}",
            self.models.join(", "),
            self.gpus,
            self.hardware.join(", "),
            plural(self.replicas.into(), "replica"),
            self.parallelism,
            self.router.join(", "),
            self.workload
        )
    }
}

/// What limits any conclusion about a deployment.
pub(crate) fn caveats_of(config: &Experiment, deployment: &Deployment) -> Vec<Caveat> {
    let validation = deployment.validation.iter().map(|validation| {
        let code = if validation.is_tested { CaveatCode::ModelError } else { CaveatCode::UntestedClass };
        Caveat::new(code, validation.text.clone())
    });
    validation.chain(unsandboxed(config)).collect()
}

fn unsandboxed(config: &Experiment) -> Option<Caveat> {
    let policies = &config.cluster.policies;
    let used = Kind::ALL.into_iter().filter_map(|kind| policies.plugin(kind));
    let native = each_once(
        used.filter(|used| used.loaded.plugin.technology() == Technology::Native).map(|used| used.loaded.name.clone()),
    );
    let text = || format!("native code, which no sandbox contains: {}", native.join(", "));
    (!native.is_empty()).then(|| Caveat::new(CaveatCode::Unsandboxed, text()))
}

fn routers<'a>(of: impl Iterator<Item = &'a Experiment>) -> Vec<String> {
    each_once(of.filter_map(|config| Some(config.cluster.policies.used(Kind::Routing)?.name().to_owned())))
}

/// How the GPUs of an instance share the model: `TP 2, PP 2`.
pub(crate) fn parallelism(deployment: &Deployment) -> String {
    let further = [("PP", deployment.pipeline_parallel_size), ("DP", deployment.data_parallel_size)];
    let further = further.into_iter().filter(|&(_, size)| size > 1);
    further
        .fold(format!("TP {}", deployment.tensor_parallel_size), |text, (name, size)| format!("{text}, {name} {size}"))
}

/// The first names, and how many more there are.
fn names_in_words(compared: &[(String, Experiment)]) -> String {
    const NAMED: usize = 5;
    let names: Vec<&str> = compared.iter().take(NAMED).map(|(name, _)| name.as_str()).collect();
    match compared.len().checked_sub(NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{}, and {more} more", names.join(", ")),
    }
}

fn each_once<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}
