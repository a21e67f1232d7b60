//! Groups of replicas from named values, for scaling.

use super::{FieldError, FieldValue, LATEST_US, NameTable, real, time, whole, word};
use crate::rows::GroupRow;

/// A number of a group.
pub(crate) struct GroupNumber {
    /// Its name; a time has a second one.
    pub names: &'static [&'static str],
    /// Reads it. A time that does not exist is infinite.
    pub get: fn(&GroupRow) -> f64,
    /// Sets it; takes the name for messages.
    set: fn(&mut GroupRow, &str, &FieldValue) -> Result<(), FieldError>,
}

/// The numbers of a group.
pub(crate) const GROUP: [GroupNumber; 33] = [
    GroupNumber {
        names: &["now", "now_us"],
        get: |group| group.now_us as f64,
        set: |group, name, value| {
            group.now_us = time(name, value)?.0;
            Ok(())
        },
    },
    GroupNumber {
        names: &["scraped", "scraped_us"],
        get: |group| group.scraped_us as f64,
        set: |group, name, value| {
            group.scraped_us = time(name, value)?.0;
            Ok(())
        },
    },
    GroupNumber {
        names: &["next_ready", "next_ready_us"],
        get: |group| group.next_ready().map_or(f64::INFINITY, |at| at as f64),
        set: |group, name, value| {
            group.next_ready_us = time(name, value)?.0;
            Ok(())
        },
    },
    GroupNumber {
        names: &["kv_tokens"],
        get: |group| group.kv_tokens as f64,
        set: |group, name, value| {
            group.kv_tokens = whole(name, value, 0..=LATEST_US)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["in_flight_tokens"],
        get: |group| group.in_flight_tokens as f64,
        set: |group, name, value| {
            group.in_flight_tokens = whole(name, value, 0..=LATEST_US)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["queued_tokens"],
        get: |group| group.queued_tokens as f64,
        set: |group, name, value| {
            group.queued_tokens = whole(name, value, 0..=LATEST_US)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["oldest_wait", "oldest_wait_us"],
        get: |group| group.oldest_wait_us as f64,
        set: |group, name, value| {
            group.oldest_wait_us = time(name, value)?.0;
            Ok(())
        },
    },
    GroupNumber {
        names: &["ttft_p90", "ttft_p90_us"],
        get: |group| group.ttft_p90_us as f64,
        set: |group, name, value| {
            group.ttft_p90_us = time(name, value)?.0;
            Ok(())
        },
    },
    GroupNumber {
        names: &["tpot_p90", "tpot_p90_us"],
        get: |group| group.tpot_p90_us as f64,
        set: |group, name, value| {
            group.tpot_p90_us = time(name, value)?.0;
            Ok(())
        },
    },
    GroupNumber {
        names: &["input_tokens"],
        get: |group| group.input_tokens as f64,
        set: |group, name, value| {
            group.input_tokens = whole(name, value, 0..=LATEST_US)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["cached_tokens"],
        get: |group| group.cached_tokens as f64,
        set: |group, name, value| {
            group.cached_tokens = whole(name, value, 0..=LATEST_US)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["output_tokens"],
        get: |group| group.output_tokens as f64,
        set: |group, name, value| {
            group.output_tokens = whole(name, value, 0..=LATEST_US)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["price"],
        get: |group| group.price,
        set: |group, name, value| {
            group.price = real(name, value, 0.0)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["kv_used"],
        get: |group| group.kv_used,
        set: |group, name, value| {
            group.kv_used = real(name, value, 0.0)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["kv_used_max"],
        get: |group| group.kv_used_max,
        set: |group, name, value| {
            group.kv_used_max = real(name, value, 0.0)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["saturation"],
        get: |group| group.saturation,
        set: |group, name, value| {
            group.saturation = real(name, value, -1.0)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["gpus"],
        get: |group| group.gpus.into(),
        set: |group, name, value| {
            group.gpus = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["min_replicas"],
        get: |group| group.min_replicas.into(),
        set: |group, name, value| {
            group.min_replicas = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["max_replicas"],
        get: |group| group.max_replicas.into(),
        set: |group, name, value| {
            group.max_replicas = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["max_num_seqs"],
        get: |group| group.max_num_seqs.into(),
        set: |group, name, value| {
            group.max_num_seqs = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["max_num_batched_tokens"],
        get: |group| group.max_num_batched_tokens.into(),
        set: |group, name, value| {
            group.max_num_batched_tokens = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["replicas"],
        get: |group| group.replicas.into(),
        set: |group, name, value| {
            group.replicas = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["ready"],
        get: |group| group.ready.into(),
        set: |group, name, value| {
            group.ready = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["loading"],
        get: |group| group.loading.into(),
        set: |group, name, value| {
            group.loading = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["pending"],
        get: |group| group.pending.into(),
        set: |group, name, value| {
            group.pending = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["draining"],
        get: |group| group.draining.into(),
        set: |group, name, value| {
            group.draining = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["queue_depth"],
        get: |group| group.queue_depth.into(),
        set: |group, name, value| {
            group.queue_depth = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["queue_depth_max"],
        get: |group| group.queue_depth_max.into(),
        set: |group, name, value| {
            group.queue_depth_max = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["batch_size"],
        get: |group| group.batch_size.into(),
        set: |group, name, value| {
            group.batch_size = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["in_flight"],
        get: |group| group.in_flight.into(),
        set: |group, name, value| {
            group.in_flight = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["queued"],
        get: |group| group.queued.into(),
        set: |group, name, value| {
            group.queued = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["arrived"],
        get: |group| group.arrived.into(),
        set: |group, name, value| {
            group.arrived = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
    GroupNumber {
        names: &["completed"],
        get: |group| group.completed.into(),
        set: |group, name, value| {
            group.completed = whole(name, value, 0..=u32::MAX)?;
            Ok(())
        },
    },
];

/// Sets a field of `group`.
pub(crate) fn set_group(
    group: &mut GroupRow,
    name: &str,
    value: &FieldValue,
    names: &mut NameTable,
) -> Result<(), FieldError> {
    let number = GROUP.iter().find(|number| number.names.contains(&name));
    match (number, value) {
        (None, _) if name != "model" => {
            let known: Vec<&str> = GROUP.iter().map(|number| number.names[0]).chain(["model"]).collect();
            Err(FieldError::unknown("a group", name, &known))
        }
        (_, FieldValue::Nothing) => Ok(()),
        (Some(number), value) => (number.set)(group, name, value),
        (None, value) => {
            group.model = names.name(word(name, value)?).0;
            Ok(())
        }
    }
}
