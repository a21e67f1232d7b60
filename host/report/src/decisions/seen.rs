//! The signals of each instance at a decision, from the decision and the columns that it refers to.

use std::fmt::{self, Display};

use serde::Serialize;

use super::line::{DecisionSignals, RoutingLine, SignalsLine};
use super::table::{TextTable, ms, or_dash, score};

/// Signals that a policy had.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct InstanceSignals {
    /// Age of the periodic signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_us: Option<u64>,
    /// Age of the column `cached_blocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_blocks_age_us: Option<u64>,
    /// Signals that were available but not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
    /// The signals of each instance.
    instances: Vec<SignalsOfInstance>,
    #[serde(skip)]
    chosen: Option<u32>,
}

/// Signals of an instance; those that were not maintained are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct SignalsOfInstance {
    /// Number of the instance. Unit: number.
    pub instance: u32,
    #[serde(flatten)]
    pub load: Option<LoadSeen>,
    /// Requests that were routed to it and have not ended. Unit: requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Blocks of the prompt that its prefix cache has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_blocks: Option<u32>,
    /// Score that the policy computed. Unit: score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// Signals of the load of an instance: all of them, or none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct LoadSeen {
    /// Requests in its waiting queue. Unit: requests.
    pub queue_depth: u32,
    /// Requests in its running batch. Unit: requests.
    pub batch_size: u32,
    /// KV blocks that are free.
    pub free_kv_blocks: u32,
    /// Prefix-cache hits of the blocks looked up. Unit: share.
    pub cache_hit_rate: f64,
    /// Preemptions since the start. Unit: events.
    pub preemption_count: u64,
}

impl InstanceSignals {
    /// The signals `seen` of a decision that follows the line `signals`.
    pub fn new(seen: &DecisionSignals<'_>, signals: Option<&SignalsLine>) -> Self {
        let load = signals.filter(|_| seen.reading.is_some());
        let lengths = [load.map(|load| load.queue_depth.len()), seen.in_flight.map(<[u32]>::len)];
        let count = lengths.into_iter().chain([seen.cached_blocks.map(<[u32]>::len)]).flatten().max().unwrap_or(0);
        Self {
            age_us: seen.reading_age_us,
            cached_blocks_age_us: seen.cached_blocks_age_us,
            unread: seen.unread.to_vec(),
            instances: (0..count).map(|i| SignalsOfInstance::new(seen, load, i)).collect(),
            chosen: None,
        }
    }

    /// The signals of a routing decision.
    pub fn routing(routing: &RoutingLine, signals: Option<&SignalsLine>) -> Self {
        let mut observed = Self::new(&routing.seen(), signals);
        for (i, &score) in routing.scores.iter().enumerate() {
            if observed.instances.len() <= i {
                observed.instances.push(SignalsOfInstance { instance: i as u32, ..SignalsOfInstance::default() });
            }
            observed.instances[i].score = score;
        }
        observed.chosen = Some(routing.instance);
        observed
    }

    /// Whether there are no signals of instances.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// The ages of the signals in words.
    pub fn ages(&self) -> String {
        let load = self.age_us.map(|age| format!("queue, batch and blocks {} ms old", ms(age)));
        let cached = self.cached_blocks_age_us.map(|age| format!("caches {} ms old", ms(age)));
        let unread = (!self.unread.is_empty()).then(|| {
            let name = |name: &String| if name == "reading" { "queue, batch and blocks" } else { "requests in flight" };
            format!("not read: {}", self.unread.iter().map(name).collect::<Vec<_>>().join(", "))
        });
        load.into_iter().chain(cached).chain(unread).collect::<Vec<_>>().join("; ")
    }

    /// The signals of the chosen instance in a few words, for the decision `routing` after the line `signals`.
    pub fn of_chosen(routing: &RoutingLine, signals: Option<&SignalsLine>) -> String {
        let chosen = SignalsOfInstance::routing(routing, signals, routing.instance as usize);
        let mut parts = Vec::new();
        if let Some(load) = chosen.load {
            parts.push(format!("{} queued", load.queue_depth));
            parts.push(format!("{} running", load.batch_size));
            parts.push(format!("{} blocks free", load.free_kv_blocks));
        }
        parts.extend(chosen.in_flight.map(|count| format!("{count} in flight")));
        parts.extend(chosen.cached_blocks.map(|count| format!("{count} blocks cached")));
        parts.extend(chosen.score.map(|value| format!("score {}", score(value))));
        parts.join(", ")
    }

    /// The instances to be shown: all of a few; of many, the chosen one and those with the best scores.
    fn shown(&self) -> Vec<&SignalsOfInstance> {
        const MOST: usize = 16;
        let mut all: Vec<&SignalsOfInstance> = self.instances.iter().collect();
        if all.len() > MOST {
            let key = |observed: &SignalsOfInstance| {
                (Some(observed.instance) == self.chosen, observed.score.unwrap_or(f64::NEG_INFINITY))
            };
            all.sort_by(|one, other| {
                let (one, other) = (key(one), key(other));
                other.0.cmp(&one.0).then(other.1.total_cmp(&one.1))
            });
            all.truncate(MOST);
            all.sort_by_key(|observed| observed.instance);
        }
        all
    }
}

impl SignalsOfInstance {
    /// The signals of instance `i` at a routing decision, with its recorded score.
    pub fn routing(routing: &RoutingLine, signals: Option<&SignalsLine>, i: usize) -> Self {
        let seen = routing.seen();
        let load = signals.filter(|_| seen.reading.is_some());
        Self { score: routing.scores.get(i).copied().flatten(), ..Self::new(&seen, load, i) }
    }

    fn new(seen: &DecisionSignals<'_>, load: Option<&SignalsLine>, i: usize) -> Self {
        let at = |column: Option<&[u32]>| column.and_then(|column| column.get(i).copied());
        Self {
            instance: i as u32,
            load: load.and_then(|load| LoadSeen::new(load, i)),
            in_flight: at(seen.in_flight),
            cached_blocks: at(seen.cached_blocks),
            score: None,
        }
    }
}

impl LoadSeen {
    fn new(signals: &SignalsLine, i: usize) -> Option<Self> {
        Some(Self {
            queue_depth: *signals.queue_depth.get(i)?,
            batch_size: *signals.batch_size.get(i)?,
            free_kv_blocks: *signals.free_kv_blocks.get(i)?,
            cache_hit_rate: *signals.cache_hit_rate.as_ref()?.get(i)?,
            preemption_count: *signals.preemption_count.as_ref()?.get(i)?,
        })
    }
}

/// A table, indented by six columns.
impl Display for InstanceSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |has: fn(&SignalsOfInstance) -> bool| self.instances.iter().any(has);
        let load = any(|observed| observed.load.is_some());
        let (in_flight, cached) =
            (any(|observed| observed.in_flight.is_some()), any(|observed| observed.cached_blocks.is_some()));
        let scores = any(|observed| observed.score.is_some());
        let mut headings = vec!["instance"];
        let columns: [(bool, &[&str]); 4] = [
            (load, &["queued", "running", "free blocks"]),
            (in_flight, &["in flight"]),
            (cached, &["cached blocks"]),
            (scores, &["score"]),
        ];
        headings.extend(columns.iter().filter(|(there, _)| *there).flat_map(|(_, names)| *names));
        headings.push("");
        let mut table = TextTable::new(6, headings);
        let shown = self.shown();
        for observed in &shown {
            let mut row = vec![observed.instance.to_string()];
            if load {
                row.push(or_dash(observed.load, |load| load.queue_depth.to_string()));
                row.push(or_dash(observed.load, |load| load.batch_size.to_string()));
                row.push(or_dash(observed.load, |load| load.free_kv_blocks.to_string()));
            }
            row.extend(in_flight.then(|| or_dash(observed.in_flight, |count| count.to_string())));
            row.extend(cached.then(|| or_dash(observed.cached_blocks, |count| count.to_string())));
            row.extend(scores.then(|| or_dash(observed.score, score)));
            row.push(if Some(observed.instance) == self.chosen { "chosen".to_owned() } else { String::new() });
            table.row(row);
        }
        write!(f, "{table}")?;
        let rest = self.instances.len() - shown.len();
        if rest > 0 { writeln!(f, "      and {rest} more") } else { Ok(()) }
    }
}
