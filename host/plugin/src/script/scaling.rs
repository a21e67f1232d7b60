//! The view of scaling that scripts get: groups of replicas, and those of earlier decisions.

use std::sync::Arc;

use blis_sim::request::Name;
use blis_sim::units::Micros;
use rhai::{Array, Dynamic, INT};

use super::column::Column;
use super::registry::Registry;
use super::values::{NameTexts, int, text};
use crate::fields::scaling::GROUP;
use crate::rows::GroupRow;

/// What scripts call the view.
pub(super) const GROUPS: &str = "list of groups";

/// The groups at a decision, `g` of `scale`.
#[derive(Clone, Debug)]
pub(super) struct GroupsObject {
    now: Micros,
    /// Number of groups.
    len: usize,
    /// Number of decisions before this one.
    before: usize,
    /// The groups of these decisions and of this one, oldest first; later ones may follow.
    rows: Arc<[GroupRow]>,
    names: NameTexts,
}

impl GroupsObject {
    pub fn new(now: Micros, groups: &[GroupRow], history: &[GroupRow], names: &NameTexts) -> Self {
        let before = history.len().checked_div(groups.len()).unwrap_or(0);
        let rows = history.iter().chain(groups).copied().collect();
        Self { now, len: groups.len(), before, rows, names: Arc::clone(names) }
    }

    /// The rows of this decision.
    fn groups(&self) -> &[GroupRow] {
        self.rows.get(self.before * self.len..).and_then(|rows| rows.get(..self.len)).unwrap_or_default()
    }

    /// The groups as they were `decisions` before; of the oldest decision if there are fewer, of this one if there is none.
    fn earlier(&self, decisions: INT) -> Self {
        let back = usize::try_from(decisions.max(0)).unwrap_or(usize::MAX).min(self.before);
        let mut earlier = Self { before: self.before - back, ..self.clone() };
        earlier.now = earlier.groups().first().map_or(self.now, |group| Micros(group.now_us));
        earlier
    }
}

pub(super) fn register(to: &mut Registry) {
    to.engine.register_type_with_name::<GroupsObject>(GROUPS);
    // The time of the decision is no column.
    for number in GROUP.iter().filter(|number| number.names[0] != "now") {
        let column = |g: &GroupsObject| Ok(Dynamic::from(Column::new(g.groups().iter().map(number.get))));
        to.field(GROUPS, number.names, column);
    }
    to.field(GROUPS, &["model"], |g: &GroupsObject| {
        let models: Array = g.groups().iter().map(|group| text(&g.names, Name(group.model))).collect();
        Ok(Dynamic::from_array(models))
    });
    to.field(GROUPS, &["now", "now_us"], |g: &GroupsObject| Ok(int(g.now.0)));
    to.field(GROUPS, &["history"], |g: &GroupsObject| Ok(int(g.before as u64)));
    to.field(GROUPS, &["len", "n", "count"], |g: &GroupsObject| Ok(int(g.len as u64)));
    to.field(GROUPS, &["indices"], |g: &GroupsObject| {
        Ok(Dynamic::from(Column::new((0..g.len).map(|index| index as f64))))
    });
    to.add("len", |g: GroupsObject| g.len as INT);
    to.add("before", |g: GroupsObject, decisions: INT| g.earlier(decisions));
}
