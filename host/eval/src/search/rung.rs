//! The rungs of successive halving, and what each runs.

use crate::suite::Split;

/// How far a program is evaluated. Each rung runs those before it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    Smoke,
    /// All scenarios of train, under the first seed of each.
    FirstSeed,
    Train,
    Select,
}

impl Rung {
    pub const ALL: [Self; 4] = [Self::Smoke, Self::FirstSeed, Self::Train, Self::Select];

    /// Its number in the archive.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The rung with this number in the archive.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|rung| rung.number() == number)
    }

    /// The last stage of the cascade that runs.
    pub fn stage(self) -> Split {
        match self {
            Self::Smoke => Split::Smoke,
            Self::FirstSeed | Self::Train => Split::Train,
            Self::Select => Split::Select,
        }
    }

    /// Seeds of each scenario of train; `None` for all.
    pub fn train_seeds(self) -> Option<usize> {
        (self == Self::FirstSeed).then_some(1)
    }
}

/// How many programs of a batch reach a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Promotions {
    pub first_seed: usize,
    pub train: usize,
}

impl Promotions {
    /// The best half of a batch of `batch` programs, then a sixth of it.
    pub fn for_batch(batch: usize) -> Self {
        Self { first_seed: batch.div_ceil(2), train: batch.div_ceil(6) }
    }

    /// All are evaluated under the first seed.
    pub fn all_to_first_seed(batch: usize) -> Self {
        Self { first_seed: usize::MAX, ..Self::for_batch(batch) }
    }

    /// All are evaluated in train.
    pub fn all_to_train() -> Self {
        Self { first_seed: usize::MAX, train: usize::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rung_has_a_number_in_the_archive() {
        assert_eq!(Rung::ALL.map(Rung::number), [1, 2, 3, 4]);
        assert_eq!([0, 2, 4, 5].map(Rung::numbered), [None, Some(Rung::FirstSeed), Some(Rung::Select), None]);
    }

    #[test]
    fn half_of_a_batch_and_then_a_sixth_go_on() {
        assert_eq!(Promotions::for_batch(24), Promotions { first_seed: 12, train: 4 });
        assert_eq!(Promotions::all_to_first_seed(24), Promotions { first_seed: usize::MAX, train: 4 });
    }
}
