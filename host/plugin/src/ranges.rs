//! Ranges of the outputs of guests.

use std::fmt::{Debug, Display};

use blis_abi::AnyRows;
use blis_abi::decisions::{NumberOf, OutputShape};

use super::call::{Inputs, Output};
use super::limits::LONGEST_US;
use super::rows::{NONE_U32, first_nan};
use super::{Fault, FaultKind, Function};

/// The range of the output of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputRange {
    function: Function,
    /// What it chooses from, or returns a number for each of, and how many there are.
    what: &'static str,
    count: usize,
    /// Number of rows of each list.
    lists: [usize; 2],
}

impl OutputRange {
    /// That of a call of `function` with these inputs.
    #[inline]
    pub fn of(function: Function, inputs: &Inputs<'_>) -> Self {
        let own = inputs.rows.get(usize::from(function.row().inputs.row.is_some())..).unwrap_or_default();
        let (what, count) = match (inputs.cluster, own.first()) {
            (Some(cluster), _) => ("instance", cluster.len()),
            (None, Some(list)) => (list.shape().what, list.len()),
            (None, None) => ("", 0),
        };
        Self { function, what, count, lists: [count, own.get(1).map_or(0, AnyRows::len)] }
    }

    /// Refuses an `output` that is out of range; `numbers` are those of the call. Of durations no range is checked.
    #[inline]
    pub fn check(&self, output: &Output, numbers: &[f64]) -> Result<(), Fault> {
        match (output, &self.function.row().output) {
            (&Output::Index(index), _) if index >= self.count => {
                self.refused(index, format_args!("an index from 0 to {}", self.count.saturating_sub(1)))
            }
            // Of other choices the scores are not used.
            (Output::Index(_), _) if self.function == Function::Route && !numbers.is_empty() => {
                Self { function: Function::Scores, ..*self }.check_numbers(numbers, false)
            }
            (&Output::Chosen(Some(index)), _) if index >= self.count => {
                self.refused(index, format_args!("none, or an index from 0 to {}", self.count.saturating_sub(1)))
            }
            (Output::Number(number), _) if number.is_nan() => self.not_a_number(""),
            (Output::Number(number), &OutputShape::Number(least))
                if least.is_finite() && !(least..f64::INFINITY).contains(number) =>
            {
                let full = if self.function == Function::Saturation { ", where 1 is full" } else { "" };
                self.refused(number, format_args!("at least {least} and finite{full}"))
            }
            (Output::Numbers, OutputShape::Numbers(of)) => self.check_numbers(numbers, *of == NumberOf::Replicas),
            (Output::Record(words), OutputShape::Record { shape, flags, .. }) => {
                let lists = &self.lists[..self.function.row().inputs.lists.len()];
                let members = words.iter().zip(shape.fields).skip(*flags).zip(lists);
                let outside =
                    |&((&word, _), &len): &((&u64, _), &usize)| word != u64::from(NONE_U32) && word >= len as u64;
                let Some(((word, field), len)) = { members }.find(outside) else { return Ok(()) };
                let last = len.saturating_sub(1);
                self.refused(word, format_args!("none, or an index from 0 to {last} of those that {}", field.name))
            }
            _ => Ok(()),
        }
    }

    /// Refuses anything but one number for each row, in `replicas` a whole one or one below 0.
    fn check_numbers(&self, numbers: &[f64], replicas: bool) -> Result<(), Fault> {
        let Self { what, count, .. } = *self;
        if numbers.len() != count {
            let output = format_args!("{} numbers", numbers.len());
            return self.refused(output, format_args!("one for each of {count} {what}s"));
        }
        let is_target = |number: f64| number < 0.0 || (number.fract() == 0.0 && number <= f64::from(u32::MAX));
        let wrong = if replicas { numbers.iter().position(|&number| !is_target(number)) } else { first_nan(numbers) };
        match wrong {
            None => Ok(()),
            Some(index) if numbers[index].is_nan() => self.not_a_number(format_args!(" for {what} {index}")),
            Some(index) => self.refused(
                format_args!("{:?} for {what} {index}", numbers[index]),
                "a whole number of replicas (round it up), or below 0 to change nothing",
            ),
        }
    }

    #[cold]
    fn refused(&self, output: impl Debug, range: impl Display) -> Result<(), Fault> {
        Err(refused(self.function, output, range))
    }

    #[cold]
    fn not_a_number(&self, of: impl Display) -> Result<(), Fault> {
        let hint = "look for 0/0, infinity minus infinity, or a root of a negative number";
        Err(Fault::new(FaultKind::NotANumber, format!("{} returned NaN{of}; {hint}", self.function.name())))
    }
}

fn refused(function: Function, output: impl Debug, range: impl Display) -> Fault {
    Fault::new(FaultKind::OutOfRange, format!("{} returned {output:?}; it must be {range}", function.name()))
}

/// A duration that `function` returned, which must be at least `least` and at most a day: `range` in words.
pub(crate) fn duration(function: Function, us: u64, least: u64, range: impl Display) -> Result<u64, Fault> {
    if (least..=LONGEST_US).contains(&us) {
        return Ok(us);
    }
    Err(refused(function, format_args!("{us} µs"), range))
}

/// Numbers of replicas, which are in range; `None` for a number below 0, which says none.
pub(crate) fn replicas_of(numbers: &[f64]) -> Vec<Option<u32>> {
    numbers.iter().map(|&number| (number >= 0.0).then_some(number as u32)).collect()
}
