//! Ranges of the outputs of guests: the simulator checks every output, and the checks of plugins and fixtures do the same.

use std::fmt::{Debug, Display};

use blis_abi::decisions::OutputShape;

use super::limits::LONGEST_US;
use super::rows::{NONE_U32, first_nan};
use super::{Fault, FaultKind, Function};

/// The range of the outputs of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputRange<'a> {
    /// The name of the plugin in messages; empty where the message is about one plugin anyway.
    pub plugin: &'a str,
    pub function: Function,
}

impl OutputRange<'_> {
    fn fault(self, kind: FaultKind, what: impl Display) -> Fault {
        let colon = if self.plugin.is_empty() { "" } else { ": " };
        Fault::new(kind, format!("{}{colon}{} returned {what}", self.plugin, self.function.name()))
    }

    fn refused<T>(self, output: impl Debug, range: impl Display) -> Result<T, Fault> {
        Err(self.fault(FaultKind::OutOfRange, format_args!("{output:?}; it must be {range}")))
    }

    fn not_a_number<T>(self, of: impl Display) -> Result<T, Fault> {
        let what = format_args!("NaN{of}; look for 0/0, infinity minus infinity, or a root of a negative number");
        Err(self.fault(FaultKind::NotANumber, what))
    }

    /// An index, which must be one of `count`.
    pub fn index(self, index: usize, count: usize) -> Result<usize, Fault> {
        if index < count {
            return Ok(index);
        }
        self.refused(index, format_args!("an index from 0 to {}", count.saturating_sub(1)))
    }

    /// As [`Self::index`], of a function that may choose none.
    pub fn chosen(self, chosen: Option<usize>, count: usize) -> Result<Option<usize>, Fault> {
        match chosen.filter(|&index| index >= count) {
            None => Ok(chosen),
            Some(index) => self.refused(index, format_args!("none, or an index from 0 to {}", count.saturating_sub(1))),
        }
    }

    /// The index of one of the `count` instances that `what`, as a field of a record has it; none if there is none.
    pub fn member(self, what: &str, index: u32, count: usize) -> Result<Option<usize>, Fault> {
        if index == NONE_U32 || (index as usize) < count {
            return Ok((index != NONE_U32).then_some(index as usize));
        }
        let last = count.saturating_sub(1);
        self.refused(index, format_args!("none, or an index from 0 to {last} of those that {what}"))
    }

    /// A number, which must be at least what the table of decisions says.
    pub fn number(self, number: f64) -> Result<f64, Fault> {
        match self.function.row().output {
            _ if number.is_nan() => self.not_a_number(""),
            OutputShape::Number(least) if least.is_finite() && !(least..f64::INFINITY).contains(&number) => {
                let full = if self.function == Function::Saturation { ", where 1 is full" } else { "" };
                self.refused(number, format_args!("at least {least} and finite{full}"))
            }
            _ => Ok(number),
        }
    }

    /// A duration, which must be at least `least` and at most a day: `range` in words.
    pub fn duration(self, us: u64, least: u64, range: impl Display) -> Result<u64, Fault> {
        if (least..=LONGEST_US).contains(&us) {
            return Ok(us);
        }
        self.refused(format_args!("{us} µs"), range)
    }

    /// Numbers, which must be one for each of `count` rows; `what` is what those are called.
    pub fn numbers(self, numbers: &[f64], count: usize, what: &str) -> Result<(), Fault> {
        self.one_each(numbers, count, what)?;
        first_nan(numbers).map_or(Ok(()), |index| self.not_a_number(format_args!(" for {what} {index}")))
    }

    fn one_each(self, numbers: &[f64], count: usize, what: &str) -> Result<(), Fault> {
        if numbers.len() == count {
            return Ok(());
        }
        let output = format_args!("{} numbers", numbers.len());
        self.refused(output, format_args!("one for each of {count} {what}s"))
    }

    /// The scores beside a choice among `count` instances, which may be missing.
    pub fn scores(self, scores: &[f64], count: usize) -> Result<(), Fault> {
        if scores.is_empty() {
            return Ok(());
        }
        OutputRange { function: Function::Scores, ..self }.numbers(scores, count, "instance")
    }

    /// The numbers of replicas of so many groups; `None` for a number below 0, which says none.
    pub fn replicas(self, numbers: &[f64], groups: usize) -> Result<Vec<Option<u32>>, Fault> {
        self.one_each(numbers, groups, "group")?;
        let target = |(index, &number): (usize, &f64)| match number {
            number if number.is_nan() => self.not_a_number(format_args!(" for group {index}")),
            number if number < 0.0 => Ok(None),
            number if number.fract() == 0.0 && number <= f64::from(u32::MAX) => Ok(Some(number as u32)),
            number => self.refused(
                format_args!("{number:?} for group {index}"),
                "a whole number of replicas (round it up), or below 0 to change nothing",
            ),
        };
        numbers.iter().enumerate().map(target).collect()
    }
}
