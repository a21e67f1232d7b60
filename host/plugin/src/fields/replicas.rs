//! Replicas and nodes from named values, for drain and placement.

use super::{FieldError, FieldValue, LATEST_US, NameTable, real, time, whole, word};
use crate::rows::{DrainGroupRow, NONE_U32, NONE_U64, NodeRow, ReplicaRow, StartingReplicaRow};

/// A number of a row.
pub(crate) struct RowNumber<R> {
    /// Its name; a time has a second one.
    pub names: &'static [&'static str],
    /// Reads it. One that is missing is infinite.
    pub get: fn(&R) -> f64,
    /// Sets it; takes the name for messages.
    pub set: fn(&mut R, &str, &FieldValue) -> Result<(), FieldError>,
}

/// A row of numbers by name.
pub(crate) trait NamedRow: Sized + 'static {
    /// What messages call it.
    const WHAT: &'static str;
    /// Its numbers.
    const NUMBERS: &'static [RowNumber<Self>];

    /// The name of its model, if it has one.
    fn model(&mut self) -> Option<&mut u32> {
        None
    }

    /// A number of [`Self::NUMBERS`] that stands for a name.
    fn name(&mut self, _field: &str) -> Option<&mut u32> {
        None
    }

    /// Sets a field.
    fn set(&mut self, name: &str, value: &FieldValue, names: &mut NameTable) -> Result<(), FieldError> {
        if name == "model"
            && let Some(model) = self.model()
        {
            if *value != FieldValue::Nothing {
                *model = names.name(word(name, value)?).0;
            }
            return Ok(());
        }
        if let (Some(field), false) = (self.name(name), *value == FieldValue::Nothing) {
            *field = names.name(word(name, value)?).0;
            return Ok(());
        }
        let Some(number) = Self::NUMBERS.iter().find(|number| number.names.contains(&name)) else {
            let mut known: Vec<&str> = Self::NUMBERS.iter().map(|number| number.names[0]).collect();
            known.extend(self.model().map(|_| "model"));
            return Err(FieldError::unknown(Self::WHAT, name, &known));
        };
        if *value == FieldValue::Nothing { Ok(()) } else { (number.set)(self, name, value) }
    }
}

/// The numbers of a row by their types: `count` and `tokens` are whole, `real` is at least 0, `time` is in µs, `index` and
/// `date` may be missing.
macro_rules! numbers {
    ($row:ident $($field:ident: $type:ident $names:tt,)*) => {
        &[$(RowNumber { names: &$names, get: |row: &$row| numbers!(get $type row.$field), set: |row, name, value| {
            row.$field = numbers!(set $type name, value);
            Ok(())
        } },)*]
    };
    (get count $value:expr) => { f64::from($value) };
    (get index $value:expr) => { if $value == NONE_U32 { f64::INFINITY } else { f64::from($value) } };
    (get date $value:expr) => { if $value == NONE_U64 { f64::INFINITY } else { $value as f64 } };
    (get real $value:expr) => { $value };
    (get $whole:ident $value:expr) => { $value as f64 };
    (set count $name:ident, $value:ident) => { whole($name, $value, 0..=u32::MAX)? };
    (set index $name:ident, $value:ident) => { whole($name, $value, 0..=NONE_U32 - 1)? };
    (set tokens $name:ident, $value:ident) => { whole($name, $value, 0..=LATEST_US)? };
    (set real $name:ident, $value:ident) => { real($name, $value, 0.0)? };
    (set $time:ident $name:ident, $value:ident) => { time($name, $value)?.0 };
}

pub(super) use numbers;

impl NamedRow for DrainGroupRow {
    const WHAT: &'static str = "a group of replicas";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { DrainGroupRow
        now_us: time ["now", "now_us"],
        price: real ["price"],
        group: count ["group"],
        gpus: count ["gpus"],
        min_replicas: count ["min_replicas"],
        max_replicas: count ["max_replicas"],
        replicas: count ["replicas"],
    };

    fn model(&mut self) -> Option<&mut u32> {
        Some(&mut self.model)
    }
}

impl NamedRow for ReplicaRow {
    const WHAT: &'static str = "a replica";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { ReplicaRow
        created_us: time ["created", "created_us"],
        active_since_us: date ["active_since", "active_since_us"],
        in_flight_tokens: tokens ["in_flight_tokens"],
        kv_utilization: real ["kv_utilization"],
        id: count ["id"],
        state: count ["state"],
        instance: index ["instance"],
        queue_depth: count ["queue_depth"],
        batch_size: count ["batch_size"],
        in_flight: count ["in_flight"],
        pool: index ["pool"],
        node: index ["node"],
        on_node: count ["on_node"],
        group_on_node: count ["group_on_node"],
    };
}

impl NamedRow for StartingReplicaRow {
    const WHAT: &'static str = "a starting replica";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { StartingReplicaRow
        now_us: time ["now", "now_us"],
        created_us: time ["created", "created_us"],
        id: count ["id"],
        group: count ["group"],
        gpus: count ["gpus"],
    };

    fn model(&mut self) -> Option<&mut u32> {
        Some(&mut self.model)
    }
}

impl NamedRow for NodeRow {
    const WHAT: &'static str = "a node";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { NodeRow
        ready_us: time ["ready", "ready_us"],
        price: real ["price"],
        pool: count ["pool"],
        node: count ["node"],
        gpus: count ["gpus"],
        free_gpus: count ["free_gpus"],
        replicas: count ["replicas"],
        group_replicas: count ["group_replicas"],
    };
}
