//! SLO classes and their priorities.

use crate::request::Name;
use crate::units::Micros;

/// Latencies that the client of a request asks for, in the header of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTargets {
    /// Time to first token.
    pub ttft: Option<Micros>,
    /// Mean inter-token latency.
    pub itl: Option<Micros>,
}

/// Priorities of the classes of one workload: higher is served first, below 0 may be shed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Priority of each class, indexed by [`Name`].
    priority: Vec<i32>,
    highest: i32,
    /// What clients of each class ask for, indexed by [`Name`]; classes beyond the end ask for nothing.
    targets: Vec<ClientTargets>,
}

impl Classes {
    /// The default table of BLIS, which has llm-d's numbers.
    pub const USUAL: [(&'static str, i32); 5] =
        [("critical", 4), ("standard", 3), ("batch", -1), ("sheddable", -2), ("background", -3)];

    /// Priority of requests without a class or with an unknown one.
    pub const UNKNOWN: i32 = 3;

    /// The priorities for the names `texts`, in the order of their indices; `overrides` take precedence over
    /// [`Self::USUAL`].
    #[must_use]
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>, overrides: &[(String, i32)]) -> Self {
        let overridden =
            |text: &str| overrides.iter().rev().find(|(class, _)| class == text).map(|&(_, priority)| priority);
        let usual = |text: &str| Self::USUAL.iter().find(|&&(class, _)| class == text).map(|&(_, priority)| priority);
        let priority =
            texts.into_iter().map(|text| overridden(text).or(usual(text)).unwrap_or(Self::UNKNOWN)).collect();
        let table = Self::USUAL.iter().map(|&(class, priority)| overridden(class).unwrap_or(priority));
        let highest = table.chain(overrides.iter().map(|&(_, priority)| priority)).max().unwrap_or(Self::UNKNOWN);
        Self { priority, highest, targets: Vec::new() }
    }

    /// The same classes, of which clients ask for these latencies.
    #[must_use]
    pub fn with_targets(mut self, targets: impl IntoIterator<Item = (Name, ClientTargets)>) -> Self {
        for (name, asked) in targets {
            if self.targets.len() <= name.index() {
                self.targets.resize(name.index() + 1, ClientTargets::default());
            }
            self.targets[name.index()] = asked;
        }
        self
    }

    /// What the clients of class `name` ask for.
    #[must_use]
    pub fn targets(&self, name: Name) -> ClientTargets {
        self.targets.get(name.index()).copied().unwrap_or_default()
    }

    /// The priority of class `name`.
    #[must_use]
    pub fn priority(&self, name: Name) -> i32 {
        self.priority.get(name.index()).copied().unwrap_or(Self::UNKNOWN)
    }

    /// The highest priority of all classes. BLIS sets the priority on an instance to `highest - priority`, because
    /// lower is served first there.
    #[must_use]
    pub fn highest(&self) -> i32 {
        self.highest
    }
}

impl Default for Classes {
    /// Classes for a workload without names.
    fn default() -> Self {
        Self::new([], &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rank_as_in_blis() {
        let texts = ["", "critical", "standard", "batch", "sheddable", "background", "gold"];
        let classes = Classes::new(texts, &[]);
        let priority: Vec<i32> = (0..8).map(|number| classes.priority(Name(number))).collect();
        assert_eq!((priority, classes.highest()), (vec![3, 4, 3, -1, -2, -3, 3, 3], 4));
    }

    #[test]
    fn overrides_are_merged_over_the_table() {
        let overrides = [("batch".to_owned(), 7), ("gold".to_owned(), 9)];
        let classes = Classes::new(["", "batch", "gold", "critical"], &overrides);
        let priority: Vec<i32> = (0..4).map(|number| classes.priority(Name(number))).collect();
        assert_eq!((priority, classes.highest()), (vec![3, 7, 9, 4], 9));
    }

    #[test]
    fn clients_ask_by_class() {
        let asked = ClientTargets { ttft: Some(Micros(5)), itl: None };
        let classes = Classes::new(["", "batch", "gold"], &[]).with_targets([(Name(2), asked)]);
        assert_eq!([0, 1, 2, 3].map(|name| classes.targets(Name(name))), {
            let none = ClientTargets::default();
            [none, none, asked, none]
        });
    }
}
