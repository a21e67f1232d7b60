//! What a `ScaledObject` has besides the formula.

use blis_sim::scaling::ScalingRules;
use blis_sim::units::Micros;

/// What a `ScaledObject` has besides the formula.
#[derive(Clone, Debug, PartialEq)]
pub struct KedaSettings {
    /// Name of the Deployment that is scaled.
    pub deployment: String,
    /// Its namespace; `None` for that in which the object is created, and no label in the queries.
    pub namespace: Option<String>,
    /// The label `model_name` of the endpoint picker's metrics; `None` for those of all models.
    pub model: Option<String>,
    /// The label `inference_pool` of the endpoint picker's saturation; `None` for the largest of all pools.
    pub inference_pool: Option<String>,
    /// Address at which KEDA finds Prometheus.
    pub prometheus: String,
    /// The fewest replicas, 0 or more.
    pub min_replicas: u32,
    /// The most replicas, at least as many as `min_replicas`.
    pub max_replicas: u32,
    /// Time between two decisions; KEDA has whole seconds.
    pub interval: Micros,
    /// Time without requests after which a service with 0 as `min_replicas` goes to zero; KEDA has whole seconds.
    pub cooldown: Micros,
    /// Rules for more replicas.
    pub up: ScalingRules,
    /// Rules for fewer replicas.
    pub down: ScalingRules,
    /// Share by which the formula may differ from the present number without a change; `None` for that of the cluster (0.1).
    pub tolerance: Option<f64>,
    /// What is fixed about the deployment, by the name of its column, as `kv_tokens`.
    pub facts: Vec<(String, f64)>,
    /// Whether the service has one group of replicas, so that values over the groups are those of the group.
    pub one_group: bool,
}
