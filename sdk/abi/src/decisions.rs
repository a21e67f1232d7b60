//! Decisions: the kinds of policies and their functions, each written once. What a host or an SDK knows about a kind (its
//! name, what its functions get and return, which of them may be missing) is read from this table.
//!
//! The inputs of every function stand in one order: the request, the time, one number, one row, the instances, lists of
//! rows. So a call is written once for each technology, and no function has code of its own.

use core::fmt;

use crate::layout::{Row as _, RowShape};
use crate::rows::{
    Band, ChunkOffer, DrainGroup, Flow, Group, InFlight, KvChunk, KvHit, LatencyConstants, NONE_U32, Node,
    PoolInstance, PrefillChoice, Queued, Replica, RoutedRequest, Running, StartingReplica, Step, StepBudget, StepState,
};

/// What is fixed about a kind.
#[derive(Debug)]
pub struct KindRow {
    /// The name in flags, scripts and interfaces.
    pub name: &'static str,
    /// The name for a policy of this kind in messages.
    pub what: &'static str,
    /// The name of its trait in the Rust SDK.
    pub rust: &'static str,
    /// The part of a service that it belongs to.
    pub area: Area,
    /// Whether a service has no such policy, or a fixed one, unless one is chosen.
    pub on_demand: bool,
    /// The built-in policy beside which plugins are measured; `None` where those read more than plugins do.
    pub beside: Option<&'static str>,
}

/// A part of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// In front of the instances: admission, routing, priority.
    Front,
    /// The engine of an instance.
    Engine,
    /// The queue in front of routing.
    FlowControl,
    /// Replicas that come and go.
    Replicas,
    /// KV below the GPU.
    KvTiers,
    /// Prefill apart from decode.
    Roles,
}

/// What is fixed about a function.
#[derive(Debug)]
pub struct FunctionRow {
    /// The name in Rust, C and scripts.
    pub name: &'static str,
    /// The name in WIT.
    pub wit: &'static str,
    /// The interface in WIT; `None` for that with the name of the kind.
    pub interface: Option<&'static str>,
    /// Names of the parameters in scripts; `None` where scripts have no such function.
    pub script: Option<&'static [&'static str]>,
    /// Names of its own parameters in WIT, C and Rust: the number, the row, the lists.
    pub parameters: &'static [&'static str],
    /// Whether it changes no state.
    pub pure: bool,
    /// The keys of its own inputs in fixture files: number, row, lists, or the requests of a queue.
    pub keys: &'static [&'static str],
    /// The keys of its output in fixture files.
    pub expect: &'static [&'static str],
    /// What a policy that leaves it out decides.
    pub missing: Missing,
    /// What the host passes.
    pub inputs: InputShape,
    /// What the host expects back.
    pub output: OutputShape,
}

/// What a function gets, in this order.
#[derive(Debug)]
pub struct InputShape {
    /// The request that the decision is about ([`crate::Request`]).
    pub request: bool,
    /// The time of the decision, µs, unless the request or the row has it.
    pub now: bool,
    /// A number of its own.
    pub number: Option<NumberShape>,
    /// The one row that it decides on.
    pub row: Option<RowShape>,
    /// The instances: ages of the columns ([`crate::Ages`]), their number, and the rows of the columns that the policy reads.
    pub cluster: bool,
    /// Lists of rows, such as candidates.
    pub lists: &'static [RowShape],
}

/// A number that a function gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberShape {
    /// A count or an index.
    U32,
    /// A time of the simulation, µs.
    U64,
    /// A share, from 0 to 1.
    F64,
}

/// What a function returns.
#[derive(Debug, PartialEq)]
pub enum OutputShape {
    /// Whether a request is admitted, and why not.
    Reason,
    /// An index among the instances or rows that it gets.
    Index,
    /// An index, or none.
    Chosen,
    /// A whole number, which may be below 0.
    Integer,
    /// A duration, µs, rounded by the policy.
    Duration,
    /// A floating-point number, at least so much.
    Number(f64),
    /// Yes or no, as `bool`.
    Flag,
    /// A number for each instance or each row of the first list.
    Numbers(NumberOf),
    /// One row, as a record.
    Record {
        /// The fields of the record.
        shape: RowShape,
        /// Number of fields, from the first on, that are yes or no.
        flags: usize,
        /// The values of its fields where a script names none.
        default: &'static [u64],
    },
}

/// What a number for a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOf {
    /// A score, a rank or a limit.
    Value,
    /// No if it is 0, otherwise yes.
    Flag,
    /// A number of replicas, or none if it is below 0.
    Replicas,
}

/// What holds for a policy without a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Missing {
    /// No policy of the kind is without it.
    Never,
    /// It is there if the description says that the policy has scores.
    WithoutScores,
    /// In C and in scripts it may be missing: this number holds each time.
    Decides(f64),
    /// The same in scripts only; for a row its defaults hold.
    InScripts(f64),
}

const NO_INPUT: InputShape =
    InputShape { request: false, now: false, number: None, row: None, cluster: false, lists: &[] };

/// The request and the instances.
const OF_CLUSTER: InputShape = InputShape { request: true, cluster: true, ..NO_INPUT };

/// Kinds with their functions, and what both are for.
macro_rules! decisions {
    ($(
        #[doc = $about:literal]
        $(#[doc = $when:literal])*
        $kind:ident { $($kind_row:tt)* } has {$(
            #[doc = $says:literal]
            $(#[doc = $more:literal])*
            $function:ident { $($function_row:tt)* },
        )+},
    )+) => {
        /// A kind of policy: the decision that it makes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = $about] $(#[doc = $when])* $kind,)+
        }

        /// A function of a policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Function {
            $($(#[doc = $says] $(#[doc = $more])* $function,)+)+
        }

        impl Kind {
            /// All kinds, in the order of the table.
            pub const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];

            /// What is fixed about it.
            #[must_use]
            #[inline]
            pub const fn row(self) -> &'static KindRow {
                match self {
                    $(Self::$kind => const { &KindRow { $($kind_row)* } },)+
                }
            }

            /// What it decides, in words.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$kind => $about,)+
                }
            }

            /// What it decides, and when it is asked.
            #[must_use]
            pub const fn docs(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!($about, $($when),*),)+
                }
            }

            /// The functions that a policy of this kind exports.
            #[must_use]
            #[inline]
            pub const fn functions(self) -> &'static [Function] {
                match self {
                    $(Self::$kind => &[$(Function::$function),+],)+
                }
            }
        }

        impl Function {
            /// All functions, by kind.
            pub const ALL: [Self; [$($(Self::$function),+),+].len()] = [$($(Self::$function),+),+];

            /// What is fixed about it.
            #[must_use]
            #[inline]
            pub const fn row(self) -> &'static FunctionRow {
                match self {
                    $($(Self::$function => const { &FunctionRow { $($function_row)* } },)+)+
                }
            }

            /// The kind that it belongs to.
            #[must_use]
            #[inline]
            pub const fn kind(self) -> Kind {
                match self {
                    $($(Self::$function)|+ => Kind::$kind,)+
                }
            }

            /// What it does, and what holds for its inputs.
            #[must_use]
            pub const fn docs(self) -> &'static str {
                match self {
                    $($(Self::$function => concat!($says, $($more),*),)+)+
                }
            }
        }
    };
}

decisions! {
    /// Admits or rejects a request.
    /// Called once per arrival.
    Admission {
        name: "admission", what: "admission policy", rust: "Admission",
        area: Area::Front, on_demand: false, beside: Some("tier-shed"),
    } has {
        /// Admits a request, or rejects it with a reason.
        /// The instances have a row each, one after the other, with the columns that the description lists, in that order.
        Admit {
            parameters: &[], pure: false,
            keys: &[], expect: &["admit", "reason"],
            name: "admit", wit: "admit", interface: None, script: Some(&["r", "s"]), missing: Missing::Never,
            inputs: OF_CLUSTER, output: OutputShape::Reason,
        },
    },
    /// Chooses the instance of a request.
    /// Called once per admitted request; as the picker of a pipeline, with the instances that its filters keep.
    Routing {
        name: "routing", what: "routing policy", rust: "Routing",
        area: Area::Front, on_demand: false, beside: Some("least-loaded"),
    } has {
        /// The index of the instance of a request.
        /// There is at least one. Rows as for admission.
        Route {
            parameters: &[], pure: false,
            keys: &[], expect: &["instance", "one_of", "scores"],
            name: "route", wit: "route", interface: None, script: Some(&["r", "s"]), missing: Missing::Never,
            inputs: OF_CLUSTER, output: OutputShape::Index,
        },
        /// A score for each instance, without a choice.
        /// Higher is better. Called just before `route`, and only if scores are recorded; as a scorer of a pipeline it is called
        /// for every request, and `route` is not: numbers below 0 count as 0, above 1 as 1.
        Scores {
            parameters: &[], pure: true,
            keys: &[], expect: &[],
            name: "scores", wit: "scores", interface: Some("routing-scores"), script: None,
            missing: Missing::WithoutScores, inputs: OF_CLUSTER, output: OutputShape::Numbers(NumberOf::Value),
        },
    },
    /// Leaves out instances before a routing policy chooses.
    /// Called once per admitted request.
    RoutingFilter {
        name: "routing-filter", what: "routing filter", rust: "Filter",
        area: Area::Front, on_demand: false, beside: Some("saturation"),
    } has {
        /// A number for each instance: 0 leaves it out.
        /// Any other number keeps it. If a filter leaves out all that the filters before it kept, it keeps them all.
        Filter {
            parameters: &[], pure: false,
            keys: &[], expect: &["keep"],
            name: "filter", wit: "filter", interface: None, script: Some(&["r", "s"]), missing: Missing::Never,
            inputs: OF_CLUSTER, output: OutputShape::Numbers(NumberOf::Flag),
        },
    },
    /// Sets the priority of a request on its instance.
    /// Called when the request is routed.
    Priority {
        name: "priority", what: "priority policy", rust: "Priority",
        area: Area::Front, on_demand: false, beside: Some("class"),
    } has {
        /// The priority of a request: a higher number goes first.
        Priority {
            parameters: &[], pure: false,
            keys: &[], expect: &["priority"],
            name: "priority", wit: "priority", interface: None, script: Some(&["r"]), missing: Missing::Never,
            inputs: InputShape { request: true, ..NO_INPUT }, output: OutputShape::Integer,
        },
    },
    /// Sets the order of a waiting queue.
    /// Called for each request that joins it.
    Scheduling {
        name: "scheduling", what: "scheduler", rust: "Scheduling",
        area: Area::Engine, on_demand: false, beside: Some("priority-fcfs"),
    } has {
        /// The rank of a request in a waiting queue: the smallest is scheduled first.
        /// Kept until the request leaves the queue.
        Rank {
            parameters: &["queued"], pure: false,
            keys: &["queue"], expect: &["order"],
            name: "rank", wit: "rank", interface: None, script: Some(&["r", "q"]), missing: Missing::Never,
            inputs: InputShape { request: true, row: Some(Queued::SHAPE), ..NO_INPUT },
            output: OutputShape::Number(f64::NEG_INFINITY),
        },
    },
    /// Chooses the preemption victim.
    /// Called when an instance runs out of KV blocks.
    Preemption {
        name: "preemption", what: "preemption policy", rust: "Preemption",
        area: Area::Engine, on_demand: false, beside: Some("priority"),
    } has {
        /// The index of the victim in the running batch; the number is the index of the request that needs its blocks.
        /// The batch is in the order of admission, and not empty. Called again until the requester has its blocks; choosing it
        /// ends the calls.
        Victim {
            parameters: &["requester", "batch"], pure: false,
            keys: &["requester", "batch"], expect: &["victim"],
            name: "victim", wit: "victim", interface: None, script: Some(&["b"]), missing: Missing::Never,
            inputs: InputShape {
                now: true, number: Some(NumberShape::U32), lists: &[Running::SHAPE], ..NO_INPUT
            },
            output: OutputShape::Index,
        },
    },
    /// Predicts the duration of engine steps.
    /// All times are microseconds.
    Latency {
        name: "latency", what: "latency model", rust: "Latency",
        area: Area::Engine, on_demand: false, beside: Some("blackbox"),
    } has {
        /// The duration of an engine step.
        /// At least 1 µs. Must depend on the step only.
        StepTime {
            parameters: &["step"], pure: true,
            keys: &["step"], expect: &["step_time_us"],
            name: "step_time", wit: "step-time", interface: None, script: Some(&["b"]), missing: Missing::Never,
            inputs: InputShape { row: Some(Step::SHAPE), ..NO_INPUT }, output: OutputShape::Duration,
        },
        /// The time from arrival to the waiting queue of a request with so many prompt tokens.
        QueueingTime {
            parameters: &["input_tokens"], pure: true,
            keys: &["tokens"], expect: &["queueing_time_us"],
            name: "queueing_time", wit: "queueing-time", interface: None, script: Some(&["tokens"]),
            missing: Missing::InScripts(0.0), inputs: InputShape { number: Some(NumberShape::U32), ..NO_INPUT },
            output: OutputShape::Duration,
        },
        /// The constant times of the model.
        /// Called once.
        Constants {
            parameters: &[], pure: true,
            keys: &[], expect: &[],
            name: "constants", wit: "constants", interface: None, script: Some(&[]), missing: Missing::InScripts(0.0),
            inputs: NO_INPUT, output: OutputShape::Record {
                shape: LatencyConstants::SHAPE, flags: 0, default: &[1, 0, 0, 0, 0]
            },
        },
    },
    /// Flow control: says how full the service is.
    /// Called once per dispatch cycle, while requests wait in the queue of the gateway.
    Saturation {
        name: "saturation", what: "saturation detector", rust: "Saturation",
        area: Area::FlowControl, on_demand: false, beside: Some("utilization"),
    } has {
        /// How full the service is: 0 empty, 1 full.
        /// More than 1 if it is overloaded; not below 0. Rows as for admission.
        Saturation {
            parameters: &[], pure: false,
            keys: &[], expect: &["saturation"],
            name: "saturation", wit: "saturation", interface: None, script: Some(&["s"]), missing: Missing::Never,
            inputs: InputShape { now: true, cluster: true, ..NO_INPUT }, output: OutputShape::Number(0.0),
        },
    },
    /// Flow control: says up to which saturation each band is served.
    /// Called once per dispatch cycle.
    Ceilings {
        name: "ceilings", what: "usage-limit policy", rust: "Ceilings",
        area: Area::FlowControl, on_demand: false, beside: Some("priority-holdback"),
    } has {
        /// A ceiling for each band; the number is the saturation.
        /// Bands are in the order of their priority, the highest first. A band waits while the saturation is at or above its
        /// ceiling, and so do all bands below it.
        Ceilings {
            parameters: &["saturation", "bands"], pure: false,
            keys: &["saturation", "bands"], expect: &["ceilings"],
            name: "ceilings", wit: "ceilings", interface: None, script: Some(&["saturation", "b"]),
            missing: Missing::Never,
            inputs: InputShape { now: true, number: Some(NumberShape::F64), lists: &[Band::SHAPE], ..NO_INPUT },
            output: OutputShape::Numbers(NumberOf::Value),
        },
    },
    /// Flow control: chooses the tenant that is served next within a band.
    /// Called once per dispatched request.
    Fairness {
        name: "fairness", what: "fairness policy", rust: "Fairness",
        area: Area::FlowControl, on_demand: false, beside: Some("virtual-token-counter"),
    } has {
        /// The index of the flow of a band that is served next; the number is the saturation.
        /// Flows are those with queued requests, in the order of the names of tenants; there is at least one.
        FairPick {
            parameters: &["saturation", "band", "flows"], pure: false,
            keys: &["saturation", "band", "flows"], expect: &["flow"],
            name: "fair_pick", wit: "fair-pick", interface: None, script: Some(&["b", "f"]), missing: Missing::Never,
            inputs: InputShape {
                now: true, number: Some(NumberShape::F64), row: Some(Band::SHAPE), lists: &[Flow::SHAPE], ..NO_INPUT
            },
            output: OutputShape::Index,
        },
    },
    /// Flow control: sets the order of the requests of a tenant.
    /// Called once per request, when it is enqueued.
    Ordering {
        name: "ordering", what: "dispatch order", rust: "Ordering",
        area: Area::FlowControl, on_demand: false, beside: Some("edf"),
    } has {
        /// The rank of a request in its flow: the smallest goes first; the number is the time at which it expires.
        /// Of equal ones the one enqueued first. Kept until the request leaves the queue, which it does unserved when it expires;
        /// the largest number if never.
        Order {
            parameters: &["expires_us"], pure: false,
            keys: &["queue"], expect: &["order"],
            name: "order", wit: "order", interface: None, script: Some(&["r", "expires"]), missing: Missing::Never,
            inputs: InputShape { request: true, number: Some(NumberShape::U64), ..NO_INPUT },
            output: OutputShape::Number(f64::NEG_INFINITY),
        },
    },
    /// Flow control: chooses a request in flight that is ended to make room.
    /// Called when a band has to wait.
    Eviction {
        name: "eviction", what: "eviction policy", rust: "Eviction",
        area: Area::FlowControl, on_demand: false, beside: Some("lowest-priority-newest"),
    } has {
        /// The index of the request that makes room for a band.
        /// None evicts none. All requests are of a priority below 0 and below that of the band that waits, in the order of their
        /// dispatch; there is at least one.
        Evict {
            parameters: &["demand", "in_flight"], pure: false,
            keys: &["band", "in_flight"], expect: &["victim"],
            name: "evict", wit: "evict", interface: None, script: Some(&["b", "f"]), missing: Missing::Never,
            inputs: InputShape { now: true, row: Some(Band::SHAPE), lists: &[InFlight::SHAPE], ..NO_INPUT },
            output: OutputShape::Chosen,
        },
    },
    /// Autoscaling: says how many replicas each group has.
    /// Called once per sync, every 15 s unless the user sets another interval.
    Scaling {
        name: "scaling", what: "scaling policy", rust: "Scaling",
        area: Area::Replicas, on_demand: false, beside: None,
    } has {
        /// A number of replicas for each group, below 0 for none; the second list has the groups of earlier decisions.
        /// Whole numbers, which count loading and pending replicas and no draining ones. The host applies the limits of the group,
        /// and the stabilization windows and rates of the service. Earlier decisions, up to 20, are in the order of time: as many
        /// rows for each as there are groups.
        Scale {
            parameters: &["groups", "history"], pure: false,
            keys: &["groups", "history"], expect: &["replicas"],
            name: "scale", wit: "scale", interface: None, script: Some(&["g"]), missing: Missing::Never,
            inputs: InputShape { now: true, lists: &[Group::SHAPE, Group::SHAPE], ..NO_INPUT },
            output: OutputShape::Numbers(NumberOf::Replicas),
        },
    },
    /// Autoscaling: chooses the replica that is removed.
    /// Called when a group has too many.
    Drain {
        name: "drain", what: "drain policy", rust: "Drain",
        area: Area::Replicas, on_demand: true, beside: Some("emptiest"),
    } has {
        /// The index of the replica that is removed.
        /// The replicas are all of the group but those that drain, in the order in which they were created; there is at least one.
        /// Called for each replica that is removed, after the one before has left the list. An active one drains: it finishes its
        /// requests and gets no others; one that starts is gone at once.
        Drain {
            parameters: &["group", "replicas"], pure: false,
            keys: &["group", "replicas"], expect: &["replica"],
            name: "drain", wit: "drain", interface: None, script: Some(&["g", "r"]), missing: Missing::Never,
            inputs: InputShape { row: Some(DrainGroup::SHAPE), lists: &[Replica::SHAPE], ..NO_INPUT },
            output: OutputShape::Index,
        },
    },
    /// Autoscaling: chooses the node of a replica that starts.
    /// Without node pools there is always room and no choice.
    Placement {
        name: "placement", what: "placement policy", rust: "Placement",
        area: Area::Replicas, on_demand: true, beside: Some("best-fit"),
    } has {
        /// The index of the node of a replica; without one it waits.
        /// The nodes have room for the replica, in the order of its pools and of their nodes; at least one of them is ready. With
        /// none, or a node that is not ready, the replica waits, and is placed anew whenever a replica starts or ends and a node
        /// comes or goes. A replica that needs more GPUs than a node has takes the chosen node and the first others of the pool
        /// that have room.
        Placement {
            parameters: &["replica", "nodes"], pure: false,
            keys: &["replica", "nodes"], expect: &["node"],
            name: "placement", wit: "placement", interface: None, script: Some(&["r", "n"]), missing: Missing::Never,
            inputs: InputShape { row: Some(StartingReplica::SHAPE), lists: &[Node::SHAPE], ..NO_INPUT },
            output: OutputShape::Chosen,
        },
    },
    /// KV tiers: ranks chunks for eviction, and decides which are stored and loaded.
    KvCache {
        name: "kv-cache", what: "KV cache policy", rust: "KvCache",
        area: Area::KvTiers, on_demand: true, beside: Some("lfu"),
    } has {
        /// A rank for each chunk: the smallest is evicted first.
        /// Of equal ones the least recently used, as in LRU of vLLM. The chunks were touched now: stored, used by another request,
        /// or their request ended; a rank holds until the next touch. A LoRA adapter is a chunk of tier 2 or 3: those without a
        /// running request are ranked when one of them has to make room for another.
        Keep {
            parameters: &["chunks"], pure: false,
            keys: &["chunks"], expect: &["ranks"],
            name: "keep", wit: "keep", interface: None, script: Some(&["c"]), missing: Missing::InScripts(0.0),
            inputs: InputShape { now: true, lists: &[KvChunk::SHAPE], ..NO_INPUT },
            output: OutputShape::Numbers(NumberOf::Value),
        },
        /// For each chunk whether it is stored: 0 is no.
        /// The chunks are not in the tier.
        Store {
            parameters: &["offer", "chunks"], pure: false,
            keys: &["tier", "chunks"], expect: &["stored"],
            name: "store", wit: "store-chunks", interface: None, script: Some(&["t", "c"]),
            missing: Missing::Decides(1.0),
            inputs: InputShape { row: Some(ChunkOffer::SHAPE), lists: &[KvChunk::SHAPE], ..NO_INPUT },
            output: OutputShape::Numbers(NumberOf::Flag),
        },
        /// Whether a request loads what was found.
        /// If not, it computes it. Called once each time that the request is to be scheduled and finds something.
        Load {
            parameters: &["hit"], pure: false,
            keys: &["hit"], expect: &["loads"],
            name: "load", wit: "load", interface: None, script: Some(&["h"]), missing: Missing::Decides(1.0),
            inputs: InputShape { row: Some(KvHit::SHAPE), ..NO_INPUT }, output: OutputShape::Flag,
        },
    },
    /// Prefill apart from decode: whether another instance prefills a request, and which.
    Disaggregation {
        name: "disaggregation", what: "disaggregation policy", rust: "Disaggregation",
        area: Area::Roles, on_demand: true, beside: Some("edpp"),
    } has {
        /// Where a request is prefilled and decoded; the lists are the instances that decode, and those that prefill.
        /// There is at least one of each. Called once for each request, after the routing policy chose the instance that decodes it.
        Disaggregate {
            parameters: &["request", "decode", "prefill"], pure: false,
            keys: &["request", "decode", "prefill"], expect: &["remote", "decode", "prefill"],
            name: "disaggregate", wit: "disaggregate", interface: None, script: Some(&["r", "d", "p", "link"]),
            missing: Missing::Never,
            inputs: InputShape {
                row: Some(RoutedRequest::SHAPE), lists: &[PoolInstance::SHAPE, PoolInstance::SHAPE], ..NO_INPUT
            },
            output: OutputShape::Record {
                shape: PrefillChoice::SHAPE, flags: 1, default: &[0, NONE_U32 as u64, NONE_U32 as u64]
            },
        },
    },
    /// Says what a step may compute of prompts, and which KV blocks stay free.
    /// Called before a step for which requests wait or are in prefill.
    Batching {
        name: "batching", what: "batching policy", rust: "Batching",
        area: Area::Engine, on_demand: true, beside: Some("sarathi"),
    } has {
        /// The budget of a step.
        /// Must depend on the state only: the host asks once for each state and keeps the budget. Where no request decodes,
        /// at least one token of one request is computed.
        Budget {
            parameters: &["step"], pure: true,
            keys: &["state"], expect: &["prefill_tokens", "prefill_requests", "reserve"],
            name: "budget", wit: "budget", interface: None, script: Some(&["v"]), missing: Missing::Never,
            inputs: InputShape { row: Some(StepState::SHAPE), ..NO_INPUT },
            output: OutputShape::Record {
                shape: StepBudget::SHAPE, flags: 0, default: &[NONE_U32 as u64, NONE_U32 as u64, 0]
            },
        },
    },
}

impl Kind {
    /// The name in flags, scripts and interfaces.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The name for a policy of this kind in messages.
    #[must_use]
    pub const fn what(self) -> &'static str {
        self.row().what
    }

    /// The part of a service that it belongs to.
    #[must_use]
    pub const fn area(self) -> Area {
        self.row().area
    }

    /// Whether it is a step of a policy of another kind, and no policy of its own.
    #[must_use]
    pub const fn is_step(self) -> bool {
        matches!(self, Self::RoutingFilter)
    }

    /// Whether it is a decision of a policy: a latency model says how long steps take.
    #[must_use]
    pub const fn is_decision(self) -> bool {
        !matches!(self, Self::Latency)
    }

    /// Whether it is a decision of flow control, the queue in front of routing.
    #[must_use]
    pub const fn is_flow_control(self) -> bool {
        matches!(self.area(), Area::FlowControl)
    }

    /// Whether it is a decision about replicas that come and go.
    #[must_use]
    pub const fn is_of_replicas(self) -> bool {
        matches!(self.area(), Area::Replicas)
    }

    /// Whether its decisions read the columns of the instances.
    #[must_use]
    pub const fn reads_instances(self) -> bool {
        self.functions()[0].row().inputs.cluster
    }

    /// The kind called `name`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Function {
    /// The name in Rust, C and scripts.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Its interface in WIT.
    #[must_use]
    pub const fn interface(self) -> &'static str {
        match self.row().interface {
            Some(interface) => interface,
            None => self.kind().name(),
        }
    }

    /// Position among the functions of its kind.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        const INDICES: [u8; Function::ALL.len()] = {
            let (mut indices, mut function) = ([0; Function::ALL.len()], 0);
            while function < indices.len() {
                indices[function] = (function - Function::ALL[function].kind().functions()[0] as usize) as u8;
                function += 1;
            }
            indices
        };
        INDICES[self as usize] as usize
    }
}

impl FunctionRow {
    /// Numbers of its inputs, each as WebAssembly passes it: fields of rows one by one, lists as address and length.
    #[must_use]
    pub const fn flat_inputs(&self) -> usize {
        let InputShape { request, now, number, row, cluster, lists } = &self.inputs;
        let mut count = *now as usize + number.is_some() as usize + 2 * lists.len();
        if *request {
            count += crate::Request::SHAPE.fields.len();
        }
        if let Some(row) = row {
            count += row.fields.len();
        }
        if *cluster {
            count += crate::Ages::SHAPE.fields.len() + 3;
        }
        count
    }
}
