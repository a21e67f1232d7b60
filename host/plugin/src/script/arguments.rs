//! The arguments of the functions of a script.

use super::flow::{BAND, BANDS, FLOWS, IN_FLIGHT};
use super::kv_cache::{CHUNKS, HIT, OFFER};
use super::pools::{DECODES, LINK, PREFILLS, ROUTED};
use super::replicas::{DRAIN_GROUP, NODES, REPLICAS, STARTING};
use super::scaling::GROUPS;

/// What scripts call the arguments of the functions that the host calls; `None` for those that are no views.
pub(super) const ARGUMENTS: [(&str, &[Option<&str>]); 22] = [
    ("admit", &[Some("request"), Some("cluster")]),
    ("route", &[Some("request"), Some("cluster")]),
    ("filter", &[Some("request"), Some("cluster")]),
    ("priority", &[Some("request")]),
    ("rank", &[Some("request"), Some("queued request")]),
    ("victim", &[Some("running batch")]),
    ("step_time", &[Some("step")]),
    ("saturation", &[Some("cluster")]),
    ("ceilings", &[None, Some(BANDS)]),
    ("fair_pick", &[Some(BAND), Some(FLOWS)]),
    ("order", &[Some("request"), None]),
    ("evict", &[Some(BAND), Some(IN_FLIGHT)]),
    ("scale", &[Some(GROUPS)]),
    ("drain", &[Some(DRAIN_GROUP), Some(REPLICAS)]),
    ("placement", &[Some(STARTING), Some(NODES)]),
    ("keep", &[Some(CHUNKS)]),
    ("store", &[Some(OFFER), Some(CHUNKS)]),
    ("load", &[Some(HIT)]),
    ("disaggregate", &[Some(ROUTED), Some(DECODES), Some(PREFILLS), Some(LINK)]),
    ("queueing_time", &[None]),
    ("observe", &[Some("event")]),
    ("init", &[None]),
];
