//! The settings of prefill apart from decode: pools of instances with roles, and what decides between them.

use blis_config::policy::PolicySettings;
use blis_config::{Deployment, DeploymentArgs};
use blis_plugin::Kind;
use blis_sim::cluster::{
    BlisTransfer, DisaggregationConfig, Encoder, FlowControl, InstanceRole, KvNetwork, NixlFlow, PoolRouting,
    RoleGroup, TransferFlow,
};
use blis_sim::ids::InstanceIndex;
use blis_sim::metrics::Report;
use blis_sim::policy::flow::SaturationByRole;
use blis_sim::policy::{
    AlwaysDisaggregate, DisaggregationPolicy, DriftPlusPenalty, EncodeRule, FilterStep, NeverDisaggregate,
    PrefixThreshold, RoutingPolicy, ScorerStep, Ties, Weighted,
};
use blis_sim::rng::Stream;
use blis_sim::scaling::ReplicaLimits;
use blis_sim::units::Micros;

use crate::error::RunError;
use crate::group::GroupSettings;
use crate::scaling::{self, ScalingSettings};
use crate::spec::{
    DeciderName, EncodeDeciderName, ExperimentSpec, FilterList, ParityName, RoleName, ScorerList, StageOrderName,
    TieBreakName, TransferLinkName,
};
use crate::workload_config::plural;
use blis_config::policy::WeightedScorer;

/// BLIS's bandwidth of a transfer, GB/s.
const BLIS_BANDWIDTH: f64 = 25.0;
/// BLIS's base latency of a transfer, ms.
const BLIS_BASE_MS: f64 = 0.05;
/// Base latency of a transfer, ms: a guess, since sources say 1 to 5.
const BASE_MS: f64 = 2.0;
/// Floating-point operations of a vision encoder for a token, an estimate: of Qwen2.5-VL (its config.json). 32 blocks of width 1280 have
/// 4 · 1280² + 3 · 1280 · 3420 weights each, with the embedding of patches 631.5 million, and 2 for each of the 4 patches of a token;
/// the merger has 44.6 million. Attention adds 0.4 · 10⁹ in an image of 1024 tokens: windows of 64 patches in 28 blocks, all in 4.
const ENCODER_FLOP: f64 = 5.5e9;
/// Bytes of a number of an embedding: bfloat16.
const EMBEDDING_BYTES: f64 = 2.0;
/// Bytes per µs in GB/s.
const GB_PER_SECOND: f64 = 1000.0;

/// Whether instances of `spec` have roles.
pub(crate) fn has_roles(spec: &ExperimentSpec) -> bool {
    let counts =
        [spec.prefill_instances(), spec.decode_instances(), spec.prefill_decode_instances(), spec.encode_instances()];
    let by_role = spec.role.is_some() || spec.group.iter().flatten().any(|group| group.role.is_some());
    by_role || counts.into_iter().any(|count| count > 0)
}

/// Whether an instance of `spec` has this role; `counted` are those of the flag that counts them.
fn has_role(spec: &ExperimentSpec, counted: u32, role: RoleName) -> bool {
    let of_groups = spec.group.iter().flatten().any(|group| group.role == Some(role));
    counted > 0 || spec.role == Some(role) || of_groups
}

/// What decides which requests are prefilled elsewhere. Instances that only prefill would be idle without a decider: they get that of
/// llm-d's guides, and with `--parity blis` BLIS's default.
pub(crate) fn decider(spec: &ExperimentSpec) -> DeciderName {
    let prefills = has_role(spec, spec.prefill_instances(), RoleName::Prefill);
    let usual =
        if prefills && spec.parity() != ParityName::Blis { DeciderName::PrefixThreshold } else { DeciderName::Never };
    spec.pd_decider.unwrap_or(usual)
}

/// What decides which requests are encoded elsewhere; as [`decider`].
pub(crate) fn encode_decider(spec: &ExperimentSpec) -> EncodeDeciderName {
    let encodes = has_role(spec, spec.encode_instances(), RoleName::Encode);
    let usual = if encodes && spec.parity() != ParityName::Blis {
        EncodeDeciderName::Multimodal
    } else {
        EncodeDeciderName::Never
    };
    spec.encode_decider.unwrap_or(usual)
}

/// Instances with the same role and deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    pub role: InstanceRole,
    pub instances: u32,
    tp: Option<u32>,
    hardware: Option<String>,
    latency_model: Option<String>,
    max_model_len: Option<u32>,
    /// The `--group` that it is, if it is one.
    pub(crate) group: Option<GroupSettings>,
}

impl PoolSettings {
    fn new(role: InstanceRole, instances: u32) -> Self {
        Self { role, instances, tp: None, hardware: None, latency_model: None, max_model_len: None, group: None }
    }

    /// What messages call it.
    fn name(&self) -> &'static str {
        match self.role {
            InstanceRole::Prefill => "prefill",
            InstanceRole::Decode => "decode",
            InstanceRole::PrefillDecode => "prefill and decode",
            InstanceRole::Encode => "encode",
            InstanceRole::Unassigned => "no role",
        }
    }

    /// The value of `role`, `None` without a role.
    pub(crate) fn role(&self) -> Option<RoleName> {
        match self.role {
            InstanceRole::Prefill => Some(RoleName::Prefill),
            InstanceRole::Decode => Some(RoleName::Decode),
            InstanceRole::PrefillDecode => Some(RoleName::Both),
            InstanceRole::Encode => Some(RoleName::Encode),
            InstanceRole::Unassigned => None,
        }
    }

    /// Its deployment, where `base` is that of the flags.
    ///
    /// # Errors
    /// If there is no such latency model.
    fn deployment(&self, base: &DeploymentArgs) -> Result<DeploymentArgs, RunError> {
        if let Some(group) = &self.group {
            return Ok(group.deployment(base));
        }
        let mut args = base.clone();
        if self.hardware.is_some() && self.hardware != base.hardware {
            args.hardware.clone_from(&self.hardware);
            args.tensor_parallel_size = None;
        }
        args.tensor_parallel_size = self.tp.or(args.tensor_parallel_size);
        args.max_model_len = self.max_model_len.or(args.max_model_len);
        if let Some(name) = &self.latency_model {
            let kind = name.parse().map_err(|_| {
                RunError::usage(format_args!("`--{}-latency-model {name}` is no built-in latency model", self.name()))
                    .hint("`blis policies` lists them")
            })?;
            args.latency_model = Some(kind);
        }
        Ok(args)
    }
}

/// Prefill apart from decode.
#[derive(Clone, Debug, PartialEq)]
pub struct DisaggregationSettings {
    /// In the order of the instances.
    pub pools: Vec<PoolSettings>,
    parity: ParityName,
    pub decider: DeciderName,
    pub prefix_threshold: u32,
    pub ttft_target: Micros,
    pub prefill_rate: f64,
    pub stage_order: StageOrderName,
    /// Of the network card of a GPU, or in BLIS of a transfer, GB/s.
    pub bandwidth: f64,
    /// Time before the first byte of a transfer, ms.
    pub base_latency: f64,
    pub contention: bool,
    pub handshake: Micros,
    pub hop: Micros,
    /// How long decode instances keep the KV blocks of completed requests for the next turns of their sessions; `None`: not at all.
    pub keeps: Option<Micros>,
    prefill_routing: PoolProfile,
    decode_routing: PoolProfile,
    encode_routing: PoolProfile,
    pub encode: EncodeDeciderName,
    /// Tokens that an instance encodes per second; `None`: estimated from its GPUs.
    encode_rate: Option<f64>,
    /// Time of a batch of an instance that encodes beside its tokens.
    pub encode_base: Micros,
}

/// How instances of a role are chosen, if not by the routing policy.
#[derive(Clone, Debug, PartialEq)]
struct PoolProfile {
    role: &'static str,
    filters: Option<FilterList>,
    scorers: Option<ScorerList>,
}

/// Refuses a policy of prefill apart from decode without instances for it, in BLIS, and beside settings of a built-in one.
///
/// # Errors
/// The first contradiction.
pub(crate) fn check_policy(
    policies: &PolicySettings,
    settings: Option<&DisaggregationSettings>,
) -> Result<(), RunError> {
    let Some(used) = policies.used(Kind::Disaggregation) else { return Ok(()) };
    let refused = |what: &str, hint: &str| {
        Err(RunError::usage(format_args!("the {} `{}` {what}", used.kind.what(), used.name())).hint(hint))
    };
    let Some(settings) = settings else {
        let hint = "add `--prefill-instances N --decode-instances M`, or roles; or leave it out";
        return refused("needs instances that prefill apart from others", hint);
    };
    if settings.parity == ParityName::Blis {
        return refused(
            "cannot be used with `--parity blis`",
            "BLIS has `--pd-decider`: use it, or leave out one of them",
        );
    }
    if settings.stage_order == StageOrderName::PrefillFirst {
        let hint = "then every request is prefilled elsewhere: leave out one of them";
        return refused("cannot be used with `--pd-stage-order prefill-first`", hint);
    }
    Ok(())
}

impl DisaggregationSettings {
    /// A warning, and what to do, if requests completed and none was prefilled by the instances that only do that.
    pub(crate) fn idle_prefills(&self, report: &Report) -> Option<(String, String)> {
        let prefill = self.pools.iter().filter(|pool| pool.role == InstanceRole::Prefill);
        let instances: u32 = prefill.map(|pool| pool.instances).sum();
        let disaggregated = report.disaggregation.as_ref().map_or(0, |stages| stages.disaggregated);
        let idle = instances > 0 && disaggregated == 0 && report.cluster.counts.completed > 0;
        let hint = "`--pd-decider always`, or `prefix-threshold` for prompts with more than `--pd-prefix-threshold` tokens to compute";
        idle.then(|| {
            (format!("{} for prefill got no request", plural(u64::from(instances), "instance")), hint.to_owned())
        })
    }

    /// The settings of `spec`; `None` without pools.
    ///
    /// # Errors
    /// What is missing, contradictory or impossible.
    pub(crate) fn new(spec: &ExperimentSpec) -> Result<Option<Self>, RunError> {
        let parity = spec.parity();
        check_block_sizes(spec)?;
        let Some(pools) = pools(spec)? else { return Ok(None) };
        check(spec, parity, &pools)?;
        let is_blis = parity == ParityName::Blis;
        let (bandwidth, base) = if is_blis { (BLIS_BANDWIDTH, BLIS_BASE_MS) } else { (link(spec), BASE_MS) };
        let profile = |role, filters: &Option<FilterList>, scorers: &Option<ScorerList>| PoolProfile {
            role,
            filters: filters.clone(),
            scorers: scorers.clone(),
        };
        Ok(Some(Self {
            pools,
            parity,
            decider: decider(spec),
            prefix_threshold: spec.pd_prefix_threshold(),
            ttft_target: spec.pd_ttft_target(),
            prefill_rate: spec.pd_prefill_rate(),
            stage_order: spec.pd_stage_order(),
            bandwidth: spec.pd_transfer_bandwidth.unwrap_or(bandwidth),
            base_latency: spec.pd_transfer_base_latency.unwrap_or(base),
            contention: spec.pd_transfer_contention(),
            handshake: spec.pd_handshake_latency(),
            hop: spec.pd_hop_latency(),
            keeps: spec.pd_bidirectional().then(|| spec.pd_decoder_kv_ttl()),
            prefill_routing: profile("prefill", &spec.prefill_routing_filters, &spec.prefill_routing_scorers),
            decode_routing: profile("decode", &spec.decode_routing_filters, &spec.decode_routing_scorers),
            encode_routing: profile("encode", &spec.encode_routing_filters, &spec.encode_routing_scorers),
            encode: encode_decider(spec),
            encode_rate: spec.encode_rate,
            encode_base: spec.encode_base_latency(),
        }))
    }

    /// Whether all instances have the deployment of the flags.
    pub(crate) fn is_uniform(&self) -> bool {
        self.pools.iter().all(|pool| pool.tp.is_none() && pool.hardware.is_none() && pool.group.is_none())
    }

    /// Whether the flow is BLIS's.
    pub(crate) fn is_blis(&self) -> bool {
        self.parity == ParityName::Blis
    }

    /// Whether one instance may prefill and decode the same request, in two parts: in BLIS, which then transfers its KV blocks, too.
    pub(crate) fn has_both_parts_on_one_instance(&self) -> bool {
        self.is_blis() && self.pools.iter().any(|pool| pool.role == InstanceRole::PrefillDecode)
    }

    /// The limits of the number of instances of `pool`. Those that encode keep their number: no scaling policy sees their queues.
    pub(crate) fn limits(pool: &PoolSettings, scaling: Option<&ScalingSettings>) -> ReplicaLimits {
        let scaling = scaling.filter(|_| pool.role != InstanceRole::Encode);
        scaling::limits(scaling, pool.group.as_ref(), pool.instances)
    }

    /// The most instances that there can be.
    pub(crate) fn most_instances(&self, scaling: Option<&ScalingSettings>) -> u32 {
        self.pools.iter().fold(0, |sum, pool| sum.saturating_add(Self::limits(pool, scaling).max))
    }

    /// Refuses pools with other numbers of instances than the autoscaler allows, and instances that encode with limits.
    ///
    /// # Errors
    /// The first such pool.
    pub(crate) fn check_limits(
        &self,
        spec: &ExperimentSpec,
        scaling: Option<&ScalingSettings>,
    ) -> Result<(), RunError> {
        let groups = spec.group.iter().flatten().enumerate();
        let mut encoding = groups.filter(|(_, group)| group.role == Some(RoleName::Encode));
        if let Some((index, _)) = encoding.find(|(_, group)| group.min.or(group.max).is_some()) {
            let hint = "scaling policies do not see the queues of instances that encode: leave out `min` and `max`";
            return Err(spec.misplaced_item("group", index, "has `role=encode` and limits", hint));
        }
        for pool in self.pools.iter().filter(|pool| pool.group.is_none()) {
            let ReplicaLimits { min, max } = Self::limits(pool, scaling);
            if (min..=max).contains(&pool.instances) {
                continue;
            }
            let name = match pool.role {
                InstanceRole::Decode => "decode-instances",
                InstanceRole::PrefillDecode => "prefill-decode-instances",
                _ => "prefill-instances",
            };
            let what = format!("is {}, but the autoscaler keeps {min} to {max} replicas of each role", pool.instances);
            let hint = "it is the number at the start: choose one within `--min-replicas` and `--max-replicas`, or give each role its \
                        own limits: `--role prefill --group role=decode,min=1,max=8`";
            return Err(spec.misplaced(name, &what, hint));
        }
        Ok(())
    }

    /// Number of all instances.
    pub(crate) fn instances(&self) -> u32 {
        self.pools.iter().fold(0, |sum, pool| sum.saturating_add(pool.instances))
    }

    /// The deployment of each pool, where `base` are the options of the flags.
    ///
    /// # Errors
    /// The first that cannot be resolved.
    pub(crate) fn deployments(&self, base: &DeploymentArgs) -> Result<Vec<Deployment>, RunError> {
        let resolve = |pool: &PoolSettings| {
            blis_config::resolve(&pool.deployment(base)?).map_err(|error| {
                let mut refused = RunError::refused(error).diagnostic().clone();
                if !self.is_uniform() {
                    refused.what = format!("instances that {}: {}", pool.name(), refused.what);
                }
                RunError::refused(refused)
            })
        };
        self.pools.iter().map(resolve).collect()
    }

    /// The deployment of `instance`, where `base` are the options of the flags; `None` if it has no pool.
    pub(crate) fn deployment_of(&self, instance: InstanceIndex, base: &DeploymentArgs) -> Option<Deployment> {
        let mut pools = self.pools.iter().flat_map(|pool| (0..pool.instances).map(move |_| pool));
        let pool = pools.nth(instance.index())?;
        blis_config::resolve(&pool.deployment(base).ok()?).ok()
    }

    /// What the simulator needs. `deployments` are those of the pools; the routing policies of pools that have no filters and
    /// scorers of their own are made by `policy`; `sent_blocks` is the capacity of the record of sent prompts of the others, and ties
    /// are broken by `tie_break`, at random from `seed`.
    ///
    /// # Errors
    /// If the KV cache of a model is of unknown size, or a scorer is not built in.
    pub(crate) fn build(
        &self,
        deployments: &[&Deployment],
        seed: u64,
        tie_break: TieBreakName,
        sent_blocks: u32,
        policy: impl Fn() -> Result<Box<dyn RoutingPolicy>, RunError>,
    ) -> Result<DisaggregationConfig, RunError> {
        let pools = || self.pools.iter().zip(deployments);
        let each = |value: fn(&Deployment) -> Option<f64>| -> Result<Vec<f64>, RunError> {
            let mut values = Vec::new();
            for (pool, deployment) in pools() {
                let value = value(deployment).filter(|&value| value > 0.0).ok_or_else(|| {
                    let what = format!("the size of the KV cache of {} is unknown", deployment.model);
                    RunError::usage(what).hint("transfers need the model's config.json: `--model-config-folder`")
                })?;
                values.extend((0..pool.instances).map(|_| value));
            }
            Ok(values)
        };
        let roles = self.pools.iter().flat_map(|pool| (0..pool.instances).map(|_| pool.role)).collect();
        // What the KV of a token has over all GPUs of an instance.
        let token_bytes =
            |deployment: &Deployment| Some(deployment.kv_token_bytes? * f64::from(deployment.gpus().max(1)));
        let encoders = match self.parity {
            ParityName::Blis => vec![None; self.pools.len()],
            ParityName::Vllm => self.encoders(deployments)?,
        };
        let groups = pools().zip(&encoders).map(|((pool, deployment), &encoder)| RoleGroup {
            role: pool.role,
            gpus: deployment.gpus().max(1),
            // Refused below if it is unknown.
            token_bytes: token_bytes(deployment).unwrap_or(0.0),
            encoder,
        });
        let groups = groups.collect();
        let flow = match self.parity {
            ParityName::Blis => {
                let prefills = pools().find(|(pool, _)| pool.role.prefills());
                let token_bytes = match prefills {
                    None => 0.0,
                    Some(_) => {
                        let bytes = each(|deployment| deployment.kv_token_bytes)?;
                        let first = self.pools.iter().take_while(|pool| !pool.role.prefills());
                        let index: u32 = first.map(|pool| pool.instances).sum();
                        bytes[index as usize]
                    }
                };
                TransferFlow::Blis(BlisTransfer {
                    token_bytes,
                    bandwidth: self.bandwidth * GB_PER_SECOND,
                    base_us: self.base_latency * 1000.0,
                    contention: self.contention,
                })
            }
            ParityName::Vllm => TransferFlow::Nixl(NixlFlow {
                encoders: (self.pools.iter().zip(&encoders))
                    .flat_map(|(pool, &encoder)| (0..pool.instances).map(move |_| encoder))
                    .collect(),
                network: KvNetwork {
                    embedding_bytes: self.embedding_bytes(deployments)?,
                    card: self.bandwidth * GB_PER_SECOND,
                    latency: Micros((self.base_latency * 1000.0) as u64),
                    handshake: self.handshake,
                    hop: self.hop,
                    gpus: pools().flat_map(|(pool, own)| (0..pool.instances).map(|_| own.gpus().max(1))).collect(),
                    token_bytes: each(token_bytes)?,
                },
                prefill_first: self.stage_order == StageOrderName::PrefillFirst,
                keeps: self.keeps,
            }),
        };
        let ties = |profile: &PoolProfile| match tie_break {
            TieBreakName::Random => Ties::Random(Stream::new(seed, &format!("{}-router", profile.role))),
            TieBreakName::LowestIndex => Ties::LowestIndex,
        };
        let routing = |profile: &PoolProfile| -> Result<Option<PoolRouting>, RunError> {
            match (profile.routing(ties(profile), sent_blocks)?, self.parity) {
                (Some(own), _) => Ok(Some(own)),
                // BLIS's pools share the policy of the service, and with it its state.
                (None, ParityName::Blis) => Ok(None),
                (None, ParityName::Vllm) => Ok(Some(PoolRouting { policy: policy()?, ties: ties(profile) })),
            }
        };
        Ok(DisaggregationConfig {
            roles,
            groups,
            flow,
            decider: self.decider(),
            decode_routing: routing(&self.decode_routing)?,
            prefill_routing: routing(&self.prefill_routing)?,
            encode_routing: self.encode_routing.routing(ties(&self.encode_routing), sent_blocks)?,
            encode: match self.encode {
                EncodeDeciderName::Never => EncodeRule::Never,
                EncodeDeciderName::Always => EncodeRule::Always,
                EncodeDeciderName::Multimodal => EncodeRule::Multimodal,
            },
        })
    }

    /// How the instances of each pool encode, where `deployments` are those of the pools; `None` for other roles, and if no request is
    /// encoded.
    ///
    /// # Errors
    /// If no rate is set, and that of the GPU is unknown.
    fn encoders(&self, deployments: &[&Deployment]) -> Result<Vec<Option<Encoder>>, RunError> {
        let is_on = self.encode != EncodeDeciderName::Never;
        let encoder = |(pool, deployment): (&PoolSettings, &&Deployment)| {
            if !(is_on && pool.role == InstanceRole::Encode) {
                return Ok(None);
            }
            Ok(Some(Encoder {
                rate: self.encode_rate_of(deployment)? / 1e6,
                base_latency: self.encode_base,
                budget: deployment.batch_limits.max_num_batched_tokens.max(1),
            }))
        };
        self.pools.iter().zip(deployments).map(encoder).collect()
    }

    /// Tokens that an instance of `deployment` encodes per second: what is set, or GPUs · peak · MFU of prefill / operations per token.
    fn encode_rate_of(&self, deployment: &Deployment) -> Result<f64, RunError> {
        if let Some(rate) = self.encode_rate {
            return Ok(rate);
        }
        let attained = deployment.fact("tflops_fp16").zip(deployment.fact("mfu_prefill"));
        let rate =
            attained.map(|(tflops, mfu)| f64::from(deployment.gpus().max(1)) * tflops * 1e12 * mfu / ENCODER_FLOP);
        rate.filter(|&rate| rate > 0.0).ok_or_else(|| {
            let what =
                format!("how fast {} encodes is unknown: its description has no `mfu_prefill`", deployment.hardware);
            RunError::usage(what).hint("set the tokens per second of an instance: `--encode-rate`")
        })
    }

    /// What is estimated about instances that encode, if they do and no rate is set; `deployments` are those of the pools.
    pub(crate) fn encode_note(&self, deployments: &[Deployment]) -> Option<String> {
        let is_estimated = !self.is_blis() && self.encode != EncodeDeciderName::Never && self.encode_rate.is_none();
        let mut pools = self.pools.iter().zip(deployments);
        let (_, deployment) = pools.find(|(pool, _)| is_estimated && pool.role == InstanceRole::Encode)?;
        let rate = self.encode_rate_of(deployment).ok()?;
        Some(format!(
            "encode rate: {rate:.0} tokens/s, an estimate for the vision encoder of Qwen2.5-VL; `--encode-rate` sets it"
        ))
    }

    /// Bytes of an embedding; 0 if no request is encoded.
    ///
    /// # Errors
    /// If the width of the model is unknown.
    fn embedding_bytes(&self, deployments: &[&Deployment]) -> Result<f64, RunError> {
        let Some(deployment) = deployments.first().filter(|_| self.encode != EncodeDeciderName::Never) else {
            return Ok(0.0);
        };
        let width = deployment.fact("hidden_size").filter(|&width| width > 0.0).ok_or_else(|| {
            RunError::usage(format_args!("the hidden size of {} is unknown", deployment.model))
                .hint("embeddings have it: they need the model's config.json, `--model-config-folder`")
        })?;
        Ok(EMBEDDING_BYTES * width)
    }

    /// Makes the saturation that of the fuller role. In BLIS it is that of all instances.
    pub(crate) fn by_role(&self, control: &mut FlowControl) {
        if self.parity == ParityName::Blis {
            return;
        }
        let roles: Vec<InstanceRole> = self.pools.iter().map(|pool| pool.role).collect();
        control.saturation = Box::new(SaturationByRole::new(&*control.saturation, &roles));
    }

    fn decider(&self) -> Box<dyn DisaggregationPolicy> {
        match self.decider {
            DeciderName::Never => Box::new(NeverDisaggregate),
            DeciderName::Always => Box::new(AlwaysDisaggregate),
            DeciderName::PrefixThreshold => {
                let exceeds = self.parity == ParityName::Blis;
                Box::new(PrefixThreshold { tokens: self.prefix_threshold, prompt_tokens: 0, exceeds })
            }
            DeciderName::Edpp => Box::new(DriftPlusPenalty {
                tokens_per_second: self.prefill_rate,
                target: self.ttft_target,
                deficit_s: 0.0,
            }),
        }
    }
}

impl PoolProfile {
    /// The routing policy of its filters and scorers; `None` without any. Filters alone are in front of the scorers of `weighted`. The
    /// scorer `prefix-affinity` remembers `sent_blocks` blocks of each instance.
    fn routing(&self, ties: Ties, sent_blocks: u32) -> Result<Option<PoolRouting>, RunError> {
        if self.filters.is_none() && self.scorers.is_none() {
            return Ok(None);
        }
        let refused = |what: &str| {
            let refused = format!("`--{}-routing-{what}s` names a {what} that is not built in", self.role);
            RunError::usage(refused).hint(format!("plugins are steps of `--routing-{what}s`, which all pools use"))
        };
        let mut filters = Vec::new();
        for filter in self.filters.iter().flat_map(|list| &list.0) {
            filters.push(FilterStep::BuiltIn(filter.built_in().ok_or_else(|| refused("filter"))?.build()));
        }
        let usual = ScorerList(WeightedScorer::DEFAULT.to_vec());
        let mut steps = Vec::new();
        for scorer in &self.scorers.as_ref().unwrap_or(&usual).0 {
            let kind = scorer.kind().ok_or_else(|| refused("scorer"))?;
            steps.push((ScorerStep::BuiltIn(kind), scorer.weight));
        }
        let policy = Weighted::pipeline(filters, steps, None).map_err(RunError::usage)?;
        Ok(Some(PoolRouting { policy: Box::new(policy.with_sent_blocks(sent_blocks)), ties }))
    }
}

/// The bandwidth of a GPU's network card, GB/s.
fn link(spec: &ExperimentSpec) -> f64 {
    match spec.pd_transfer_link() {
        // NVLink 4 has 900 GB/s in both directions together.
        TransferLinkName::Nvlink => 450.0,
        TransferLinkName::Rdma => 50.0,
        TransferLinkName::Ethernet => 2.0,
    }
}

/// The pools of `spec`; `None` if no instance has a role.
fn pools(spec: &ExperimentSpec) -> Result<Option<Vec<PoolSettings>>, RunError> {
    let counts = [
        (InstanceRole::Prefill, spec.prefill_instances),
        (InstanceRole::Decode, spec.decode_instances),
        (InstanceRole::PrefillDecode, spec.prefill_decode_instances),
        (InstanceRole::Encode, spec.encode_instances),
    ];
    let by_count = counts.iter().any(|&(_, count)| count.unwrap_or(0) > 0);
    let groups = || spec.group.iter().flatten();
    let by_role = spec.role.is_some() || groups().any(|group| group.role.is_some());
    if !has_roles(spec) {
        return Ok(None);
    }
    // A group without a role would be no pool at all.
    if by_count && (by_role || groups().next().is_some()) {
        let hint =
            "give each group its `role=`, or leave it out: `--prefill-instances N --decode-instances M` are roles, too";
        let name = if spec.role.is_some() { "role" } else { "group" };
        return Err(spec.misplaced(name, "cannot be used with numbers of instances by role", hint));
    }
    if by_role {
        let least = match &spec.autoscaler {
            Some(_) => spec.min_replicas().max(1),
            None => 1,
        };
        let first = PoolSettings::new(role(spec.role), spec.num_instances.unwrap_or(least));
        let groups = groups().map(|group| PoolSettings {
            group: Some(group.clone()),
            ..PoolSettings::new(role(group.role), group.instances)
        });
        return Ok(Some(std::iter::once(first).chain(groups).collect()));
    }
    let mut pools: Vec<PoolSettings> = counts
        .into_iter()
        .filter_map(|(role, count)| Some(PoolSettings::new(role, count.filter(|&count| count > 0)?)))
        .collect();
    for pool in &mut pools {
        let (tp, hardware, latency_model, max_model_len) = match pool.role {
            InstanceRole::Prefill => {
                (spec.prefill_tp, &spec.prefill_hardware, &spec.prefill_latency_model, spec.prefill_max_model_len)
            }
            InstanceRole::Decode => {
                (spec.decode_tp, &spec.decode_hardware, &spec.decode_latency_model, spec.decode_max_model_len)
            }
            _ => continue,
        };
        pool.tp = tp;
        pool.hardware.clone_from(hardware);
        pool.latency_model.clone_from(latency_model);
        pool.max_model_len = max_model_len;
    }
    let sum: u32 = pools.iter().fold(0, |sum, pool| sum.saturating_add(pool.instances));
    let all = spec.num_instances.unwrap_or(sum);
    if sum > all {
        let what = format!("is {all}, and {sum} instances have roles");
        return Err(spec.misplaced("num-instances", &what, "leave it out, or raise it"));
    }
    if sum < all {
        if spec.parity != Some(ParityName::Blis) {
            let what = format!("is {all}, and {sum} instances have roles");
            return Err(spec.misplaced("num-instances", &what, "leave it out: the others would do nothing"));
        }
        pools.push(PoolSettings::new(InstanceRole::Unassigned, all - sum));
    }
    Ok(Some(pools))
}

/// The role of that name; an instance without one does both.
fn role(name: Option<RoleName>) -> InstanceRole {
    match name {
        None | Some(RoleName::Both) => InstanceRole::PrefillDecode,
        Some(RoleName::Prefill) => InstanceRole::Prefill,
        Some(RoleName::Decode) => InstanceRole::Decode,
        Some(RoleName::Encode) => InstanceRole::Encode,
    }
}

/// Refuses pools that serve nothing, and settings that exclude pools.
fn check(spec: &ExperimentSpec, parity: ParityName, pools: &[PoolSettings]) -> Result<(), RunError> {
    let has = |is_in: fn(InstanceRole) -> bool| pools.iter().any(|pool| is_in(pool.role));
    if !has(InstanceRole::decodes) {
        return Err(RunError::usage("no instance decodes")
            .hint("add `--decode-instances N`, or a group with `role=decode`: requests end there"));
    }
    if has(|role| role == InstanceRole::Decode)
        && !has(InstanceRole::prefills)
        && !has(|role| role == InstanceRole::Encode)
    {
        return Err(RunError::usage("no instance prefills for those that decode")
            .hint("add `--prefill-instances N`, or a group with `role=prefill`; without any, leave out the roles"));
    }
    if spec.encode_decider.is_some_and(|rule| rule != EncodeDeciderName::Never)
        && !has(|role| role == InstanceRole::Encode)
    {
        let hint = "add `--encode-instances N`, or a group with `role=encode`";
        return Err(spec.misplaced("encode-decider", "needs instances that encode", hint));
    }
    if parity == ParityName::Blis {
        if let Some(name) = ["autoscaler", "node-pool"].into_iter().find(|name| spec.has(name)) {
            let hint = "BLIS does not have it: leave out one of them";
            return Err(spec.misplaced(name, "cannot be used with `--parity blis`", hint));
        }
        if spec.pd_decider == Some(DeciderName::Edpp) {
            let hint = "BLIS has never, always and prefix-threshold: choose one of them";
            return Err(spec.misplaced("pd-decider", "cannot be edpp with `--parity blis`", hint));
        }
        if spec.group.iter().flatten().next().is_some() {
            let what = "cannot be used with instances that prefill and `--parity blis`";
            return Err(spec.misplaced("group", what, "BLIS has `--prefill-tp` and the like instead"));
        }
    }
    let models = || spec.group.iter().flatten().filter_map(|group| group.model.as_ref());
    if models().any(|model| Some(model) != spec.model.as_ref()) {
        let hint = "KV of one model means nothing to another: leave out its `model`";
        return Err(spec.misplaced("group", "has another model than the instances that prefill for it", hint));
    }
    Ok(())
}

/// Refuses groups with other KV blocks than those of the first.
fn check_block_sizes(spec: &ExperimentSpec) -> Result<(), RunError> {
    let block_size = spec.block_size_in_tokens();
    let mut sizes = spec.group.iter().flatten().map(|group| group.block_size.unwrap_or(block_size)).enumerate();
    match sizes.find(|&(_, size)| size != block_size) {
        None => Ok(()),
        Some((index, size)) => {
            let what = format!("has KV blocks of {size} tokens, and the first group has blocks of {block_size}");
            let hint =
                "KV is transferred between, and prefixes are compared over, equal blocks: leave out `block-size`";
            Err(spec.misplaced_item("group", index, &what, hint))
        }
    }
}
