//! SLO classes and how urgent they are.

use crate::request::Name;

/// Urgency by class, for the names of one workload: bigger is more urgent, below 0 may be shed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// By [`Name`].
    urgency: Vec<i32>,
    most: i32,
}

impl Classes {
    /// BLIS's table (llm-d's numbers).
    pub const USUAL: [(&'static str, i32); 5] =
        [("critical", 4), ("standard", 3), ("batch", -1), ("sheddable", -2), ("background", -3)];

    /// Of requests that name no class, or an unknown one.
    pub const UNKNOWN: i32 = 3;

    /// For the names `texts`, by number; `overrides` come before [`Self::USUAL`].
    #[must_use]
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>, overrides: &[(String, i32)]) -> Self {
        let given = |text: &str| overrides.iter().rev().find(|(class, _)| class == text).map(|&(_, urgency)| urgency);
        let usual = |text: &str| Self::USUAL.iter().find(|&&(class, _)| class == text).map(|&(_, urgency)| urgency);
        let urgency = texts.into_iter().map(|text| given(text).or(usual(text)).unwrap_or(Self::UNKNOWN)).collect();
        let table = Self::USUAL.iter().map(|&(class, urgency)| given(class).unwrap_or(urgency));
        let most = table.chain(overrides.iter().map(|&(_, urgency)| urgency)).max().unwrap_or(Self::UNKNOWN);
        Self { urgency, most }
    }

    /// Of class `name`.
    #[must_use]
    pub fn urgency(&self, name: Name) -> i32 {
        self.urgency.get(name.index()).copied().unwrap_or(Self::UNKNOWN)
    }

    /// The most urgent class of all. BLIS gives an instance `most - urgency`, lower being more
    /// urgent there.
    #[must_use]
    pub fn most(&self) -> i32 {
        self.most
    }
}

impl Default for Classes {
    /// No names.
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
        let urgency: Vec<i32> = (0..8).map(|number| classes.urgency(Name(number))).collect();
        assert_eq!((urgency, classes.most()), (vec![3, 4, 3, -1, -2, -3, 3, 3], 4));
    }

    #[test]
    fn overrides_are_merged_over_the_table() {
        let overrides = [("batch".to_owned(), 7), ("gold".to_owned(), 9)];
        let classes = Classes::new(["", "batch", "gold", "critical"], &overrides);
        let urgency: Vec<i32> = (0..4).map(|number| classes.urgency(Name(number))).collect();
        assert_eq!((urgency, classes.most()), (vec![3, 7, 9, 4], 9));
    }
}
