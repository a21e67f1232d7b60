//! Anomalies: counts of undesired events, each with its definition.

use super::aggregate::Aggregate;
use super::counts::Counts;
use crate::ids::InstanceIndex;
use crate::request::Name;

/// The kinds of anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A request was admitted to the batch before an earlier one of at least its priority.
    PriorityInversion,
    /// One instance has a long waiting queue while the others do not.
    HeadOfLineBlocking,
    /// The admission policy rejected a request.
    RejectedByAdmission,
    /// No instance serves the model of a request.
    RejectedByRouting,
    /// No replica of the model of a request was active.
    NoReplica,
    /// The API server of an instance refused a request.
    RejectedByServer,
    /// The gateway's queue was full.
    GatewayFull,
    /// A request of higher priority displaced one from the gateway's queue.
    GatewayDisplaced,
    /// A request waited in the gateway's queue beyond its time to live.
    GatewayExpired,
    /// The gateway ended a request in flight to make room for one of higher priority.
    Evicted,
    /// A request can never be served.
    Dropped,
    /// A request timed out at its deadline.
    TimedOut,
    /// The output of a request was ended at the maximum model length.
    LengthCapped,
}

impl Anomaly {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 13] = [
        Self::PriorityInversion,
        Self::HeadOfLineBlocking,
        Self::RejectedByAdmission,
        Self::RejectedByRouting,
        Self::NoReplica,
        Self::RejectedByServer,
        Self::GatewayFull,
        Self::GatewayDisplaced,
        Self::GatewayExpired,
        Self::Evicted,
        Self::Dropped,
        Self::TimedOut,
        Self::LengthCapped,
    ];

    /// Its field in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PriorityInversion => "priority_inversions",
            Self::HeadOfLineBlocking => "head_of_line_blocking",
            Self::RejectedByAdmission => "rejected_admission",
            Self::RejectedByRouting => "rejected_routing",
            Self::NoReplica => "rejected_no_replica",
            Self::RejectedByServer => "rejected_server",
            Self::GatewayFull => "gateway_queue_rejected",
            Self::GatewayDisplaced => "gateway_queue_shed",
            Self::GatewayExpired => "gateway_queue_expired",
            Self::Evicted => "gateway_evicted",
            Self::Dropped => "dropped_unservable",
            Self::TimedOut => "timed_out_requests",
            Self::LengthCapped => "length_capped_requests",
        }
    }

    /// The definition of the count.
    #[must_use]
    pub fn definition(self) -> &'static str {
        match self {
            Self::PriorityInversion => {
                "requests that entered the batch of an instance before another request there that had arrived \
                 earlier and has an SLO class of at least the same priority. Requests that never entered count \
                 as overtaken only if they are still queued at the end; preempted ones never do"
            }
            Self::HeadOfLineBlocking => {
                "instances with a waiting queue that, averaged over the simulated time, holds at least 1 request and more \
                 than twice as many as the queues of the other instances do on average"
            }
            Self::RejectedByAdmission => "requests that the admission policy rejected",
            Self::RejectedByRouting => "requests for a model that no instance serves",
            Self::NoReplica => {
                "requests for which no replica of their model was active: on arrival without flow control, at routing with it"
            }
            Self::RejectedByServer => "requests that the API server of an instance refused, because it had too many",
            Self::GatewayFull => "requests that found the gateway's queue, or their band of it, full",
            Self::GatewayDisplaced => "requests that one of higher priority displaced from the gateway's full queue",
            Self::GatewayExpired => "requests that waited in the gateway's queue for longer than their time to live",
            Self::Evicted => "requests in flight that the gateway ended to make room for some of higher priority",
            Self::Dropped => {
                "requests that can never be served: too long for the model, the KV cache or the token budget of a step"
            }
            Self::TimedOut => "requests whose deadline passed before they completed",
            Self::LengthCapped => "completed requests with an output that ended early at the maximum model length",
        }
    }
}

/// The counts of anomalies. [`Anomaly::definition`] defines each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Anomalies {
    /// [`Anomaly::PriorityInversion`]; `None` unless enabled.
    pub priority_inversions: Option<u64>,
    /// [`Anomaly::HeadOfLineBlocking`]: the instances, lowest first.
    pub head_of_line_blocking: Vec<BlockedInstance>,
    /// [`Anomaly::RejectedByAdmission`]: number of requests.
    pub rejected_by_admission: u64,
    /// The same by SLO class.
    pub shed: Vec<(Name, u64)>,
    /// [`Anomaly::RejectedByRouting`]: number of requests.
    pub rejected_by_routing: u64,
    /// [`Anomaly::NoReplica`]: number of requests.
    pub no_replica: u64,
    /// [`Anomaly::RejectedByServer`]: number of requests.
    pub rejected_by_server: u64,
    /// [`Anomaly::GatewayFull`]: number of requests.
    pub gateway_full: u64,
    /// [`Anomaly::GatewayDisplaced`]: number of requests.
    pub gateway_displaced: u64,
    /// [`Anomaly::GatewayExpired`]: number of requests.
    pub gateway_expired: u64,
    /// [`Anomaly::Evicted`]: number of requests.
    pub evicted: u64,
    /// [`Anomaly::Dropped`]: number of requests.
    pub dropped: u64,
    /// [`Anomaly::TimedOut`]: number of requests.
    pub timed_out: u64,
    /// [`Anomaly::LengthCapped`]: number of requests.
    pub length_capped: u64,
}

/// An instance with head-of-line blocking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockedInstance {
    /// The instance.
    pub instance: InstanceIndex,
    /// Mean number of requests in its waiting queue over the simulated time.
    pub mean_queue_length: f64,
    /// The mean of that over the other instances.
    pub others_mean_queue_length: f64,
}

impl Anomalies {
    pub(super) fn new(
        counts: &Counts,
        instances: &[Aggregate],
        shed: Vec<(Name, u64)>,
        priority_inversions: Option<u64>,
    ) -> Self {
        Self {
            priority_inversions,
            head_of_line_blocking: head_of_line_blocking(instances),
            rejected_by_admission: counts.rejected_by_admission,
            shed,
            rejected_by_routing: counts.rejected_by_routing,
            no_replica: counts.rejected_no_replica,
            rejected_by_server: counts.rejected_by_server,
            gateway_full: counts.rejected_gateway_full,
            gateway_displaced: counts.rejected_gateway_displaced,
            gateway_expired: counts.rejected_gateway_expired,
            evicted: counts.evicted,
            dropped: counts.dropped(),
            timed_out: counts.timed_out,
            length_capped: counts.length_capped,
        }
    }

    /// How often `anomaly` occurred; `None` if it was not counted.
    #[must_use]
    pub fn count(&self, anomaly: Anomaly) -> Option<u64> {
        match anomaly {
            Anomaly::PriorityInversion => self.priority_inversions,
            Anomaly::HeadOfLineBlocking => Some(self.head_of_line_blocking.len() as u64),
            Anomaly::RejectedByAdmission => Some(self.rejected_by_admission),
            Anomaly::RejectedByRouting => Some(self.rejected_by_routing),
            // Only a service that scales is without replicas.
            Anomaly::NoReplica => Some(self.no_replica).filter(|&count| count > 0),
            // Only servers with a limit refuse requests.
            Anomaly::RejectedByServer => Some(self.rejected_by_server).filter(|&count| count > 0),
            // Only flow control has a queue.
            Anomaly::GatewayFull => Some(self.gateway_full).filter(|&count| count > 0),
            Anomaly::GatewayDisplaced => Some(self.gateway_displaced).filter(|&count| count > 0),
            Anomaly::GatewayExpired => Some(self.gateway_expired).filter(|&count| count > 0),
            Anomaly::Evicted => Some(self.evicted).filter(|&count| count > 0),
            Anomaly::Dropped => Some(self.dropped),
            Anomaly::TimedOut => Some(self.timed_out),
            Anomaly::LengthCapped => Some(self.length_capped),
        }
    }
}

/// The instances with head-of-line blocking. BLIS compares with the mean over all instances, which an instance can
/// never exceed twofold if there are two.
fn head_of_line_blocking(instances: &[Aggregate]) -> Vec<BlockedInstance> {
    if instances.len() < 2 {
        return Vec::new();
    }
    let queue = |instance: &Aggregate| instance.mean_queue_length;
    let waiting = instances.iter().enumerate().filter(|(_, instance)| queue(instance) >= 1.0);
    let compared = waiting.map(|(i, instance)| {
        // Summed for each instance: subtracting from the total would leave meaningless digits.
        let (before, after) = (&instances[..i], &instances[i + 1..]);
        let others = before.iter().chain(after).map(queue).sum::<f64>() / (instances.len() - 1) as f64;
        BlockedInstance {
            instance: InstanceIndex::at(i),
            mean_queue_length: queue(instance),
            others_mean_queue_length: others,
        }
    });
    compared.filter(|it| it.mean_queue_length > 2.0 * it.others_mean_queue_length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(queues: &[f64]) -> Vec<(u32, f64)> {
        let instance = |&mean_queue_length: &f64| Aggregate { mean_queue_length, ..Aggregate::default() };
        let instances: Vec<Aggregate> = queues.iter().map(instance).collect();
        let found = head_of_line_blocking(&instances);
        found.into_iter().map(|blocked| (blocked.instance.0, blocked.others_mean_queue_length)).collect()
    }

    #[test]
    fn two_instances_suffice() {
        assert_eq!(blocked(&[0.5, 5.0]), [(1, 0.5)]);
        assert_eq!(blocked(&[5.0, 0.0]), [(0, 0.0)]);
        assert_eq!(blocked(&[5.0, 2.5]), [], "twice is not more than twice");
        assert_eq!(blocked(&[0.9, 0.0]), [], "less than one request waits");
        assert_eq!(blocked(&[100.0]), [], "nothing to compare with");
        assert_eq!(blocked(&[9.0, 1.0, 9.0, 1.0]), [(0, 11.0 / 3.0), (2, 11.0 / 3.0)]);
        assert_eq!(blocked(&[]), []);
    }

    #[test]
    fn every_anomaly_is_counted_under_its_own_name() {
        let names = Anomaly::ALL.map(Anomaly::name);
        assert!((1..names.len()).all(|n| !names[..n].contains(&names[n])), "{names:?}");
        let anomalies = Anomalies {
            priority_inversions: Some(1),
            head_of_line_blocking: vec![
                BlockedInstance {
                    instance: InstanceIndex(0),
                    mean_queue_length: 3.0,
                    others_mean_queue_length: 0.0
                };
                2
            ],
            rejected_by_admission: 3,
            shed: Vec::new(),
            rejected_by_routing: 4,
            no_replica: 13,
            rejected_by_server: 5,
            gateway_full: 6,
            gateway_displaced: 7,
            gateway_expired: 8,
            evicted: 9,
            dropped: 10,
            timed_out: 11,
            length_capped: 12,
        };
        assert_eq!(
            Anomaly::ALL.map(|anomaly| anomalies.count(anomaly)),
            [1, 2, 3, 4, 13, 5, 6, 7, 8, 9, 10, 11, 12].map(Some)
        );
    }
}
