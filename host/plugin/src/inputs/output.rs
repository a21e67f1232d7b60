//! Outputs of guests, and their ranges.

use blis_abi::Field;
use blis_abi::decisions::{NumberOf, OutputShape};
use blis_sim::policy::{AdmissionDecision, ClusterView, RequestView, Ties};

use super::call_inputs::CallInputs;
use crate::limits::LONGEST_US;
use crate::rows::{NONE_U32, first_nan};
use crate::{Fault, FaultKind, Function, Guest, Output};

/// The output of a guest; floating-point numbers are compared bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub enum GuestOutput {
    Decision(AdmissionDecision),
    /// An index, and the bits of the scores.
    Index(usize, Vec<u64>),
    /// An index, or none.
    Chosen(Option<usize>),
    Integer(i64),
    /// A duration in µs.
    Micros(u64),
    /// The bits of a number.
    Number(u64),
    Flag(bool),
    /// The bits of a number for each row.
    Numbers(Vec<u64>),
    /// Yes or no for each instance or row.
    Flags(Vec<bool>),
    /// The number of replicas of each group, where it says one.
    Replicas(Vec<Option<u32>>),
    /// The fields of a record: numbers, or indices in lists, `None` for one that was not chosen.
    Record(Vec<Option<usize>>),
    /// No output: the call delivered an event.
    None,
}

/// The output of `function`, if it is in range.
pub(super) fn checked(
    inputs: &CallInputs,
    function: Function,
    output: Output,
    numbers: Vec<f64>,
) -> Result<GuestOutput, Fault> {
    let (name, (row, count)) = (function.name(), inputs.choices(function));
    let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let last = count.saturating_sub(1);
    Ok(match (output, &function.row().output) {
        (Output::Decision(decision), _) => GuestOutput::Decision(decision),
        (Output::Index(index), _) if index >= count => {
            return out_of_range(format!("{name} returned {index}; it must be from 0 to {last}"));
        }
        // Of other choices the scores are not used.
        (Output::Index(index), _) if function != Function::Route => GuestOutput::Index(index, Vec::new()),
        (Output::Index(index), _) => {
            check_scores(&numbers, count)?;
            GuestOutput::Index(index, bits(numbers))
        }
        (Output::Chosen(Some(index)), _) if index >= count => {
            return out_of_range(format!("{name} returned {index}; it must be none, or from 0 to {last}"));
        }
        (Output::Chosen(index), _) => GuestOutput::Chosen(index),
        (Output::Integer(priority), _) => GuestOutput::Integer(priority),
        (Output::Duration(us), _) if function == Function::StepTime && !(1..=LONGEST_US).contains(&us) => {
            return out_of_range(format!("{name} returned {us} µs; it must be from 1 to a day"));
        }
        (Output::Duration(us), _) => GuestOutput::Micros(us),
        (Output::Number(number), _) if number.is_nan() => return not_a_number(format!("{name} returned NaN")),
        (Output::Number(number), OutputShape::Number(least))
            if least.is_finite() && !(*least..f64::INFINITY).contains(&number) =>
        {
            return out_of_range(format!("{name} returned {number}; it must be at least {least} and finite"));
        }
        (Output::Number(number), _) => GuestOutput::Number(number.to_bits()),
        (Output::Flag(flag), _) => GuestOutput::Flag(flag),
        (Output::Numbers, OutputShape::Numbers(NumberOf::Replicas)) => {
            GuestOutput::Replicas(replicas_of(&numbers, count)?)
        }
        (Output::Numbers, shape) => {
            check_numbers(name, &numbers, count, row)?;
            match shape {
                OutputShape::Numbers(NumberOf::Flag) => {
                    GuestOutput::Flags(numbers.into_iter().map(|number| number != 0.0).collect())
                }
                _ => GuestOutput::Numbers(bits(numbers)),
            }
        }
        (Output::Record(words), OutputShape::Record { shape, flags, .. }) => {
            let lists = inputs.rows.iter().skip(usize::from(function.row().inputs.row.is_some()));
            let (truths, others) = words.split_at(*flags);
            let mut fields: Vec<Option<usize>> = truths.iter().map(|&truth| Some(usize::from(truth != 0))).collect();
            if function.row().inputs.lists.is_empty() {
                // Numbers of their own: indices are those of lists.
                let number = |(&number, field): (&u64, &Field)| {
                    let is_missing = field.meaning.optional && number == u64::from(NONE_U32);
                    (!is_missing).then_some(number as usize)
                };
                fields.extend(others.iter().zip(&shape.fields[*flags..]).map(number));
            }
            for ((&word, field), list) in others.iter().zip(&shape.fields[*flags..]).zip(lists) {
                let (what, len) = (field.name, list.rows().len());
                let index = (word != u64::from(NONE_U32)).then_some(word as usize);
                if index.is_some_and(|index| index >= len) {
                    let last = len.saturating_sub(1);
                    return out_of_range(format!(
                        "{name} returned {word} for {what}; it must be none, or from 0 to {last}"
                    ));
                }
                fields.push(index);
            }
            GuestOutput::Record(fields)
        }
        (Output::Record(_), _) => GuestOutput::None,
    })
}

fn out_of_range<T>(message: String) -> Result<T, Fault> {
    Err(Fault::new(FaultKind::OutOfRange, message))
}

fn not_a_number<T>(message: String) -> Result<T, Fault> {
    Err(Fault::new(FaultKind::NotANumber, message))
}

/// Refuses anything but one number for each of `count` rows, which are called `row`.
fn check_numbers(function: &str, numbers: &[f64], count: usize, row: &str) -> Result<(), Fault> {
    if numbers.len() != count {
        let got = numbers.len();
        return out_of_range(format!("{function} returned {got} numbers; it must be one for each of {count} {row}s"));
    }
    match first_nan(numbers) {
        Some(index) => not_a_number(format!("{function} returned NaN for {row} {index}")),
        None => Ok(()),
    }
}

/// Refuses scores of instances, unless there are none.
fn check_scores(scores: &[f64], instances: usize) -> Result<(), Fault> {
    if !scores.is_empty() && scores.len() != instances {
        return out_of_range(format!("{} scores for {instances} instances", scores.len()));
    }
    match first_nan(scores) {
        Some(index) => not_a_number(format!("the score of instance {index} is NaN")),
        None => Ok(()),
    }
}

/// The index of the instance that `guest` chooses, with the range of its outputs checked as the simulator does.
///
/// # Errors
/// If the guest fails, or its output cannot be used.
pub fn route(
    guest: &mut dyn Guest,
    request: &RequestView<'_>,
    cluster: &ClusterView<'_>,
    ties: &Ties,
    scores: &mut Vec<f64>,
) -> Result<usize, Fault> {
    let index = guest.route(request, cluster, ties, scores)?;
    if index >= cluster.len() {
        return out_of_range(format!("route returned {index}; it must be from 0 to {}", cluster.len() - 1));
    }
    check_scores(scores, cluster.len())?;
    Ok(index)
}

/// Whether `guest` keeps each instance, with its output checked as the simulator does.
///
/// # Errors
/// If the guest fails, or its output cannot be used.
pub fn kept(
    guest: &mut dyn Guest,
    request: &RequestView<'_>,
    cluster: &ClusterView<'_>,
    ties: &Ties,
) -> Result<Vec<bool>, Fault> {
    let mut numbers = Vec::new();
    guest.filter(request, cluster, ties, None, &mut numbers)?;
    check_numbers(Function::Filter.name(), &numbers, cluster.len(), "instance")?;
    Ok(numbers.into_iter().map(|number| number != 0.0).collect())
}

/// The numbers of replicas that `scale` returned for so many groups; `None` for a number below 0, which says none.
///
/// # Errors
/// If there is not one for each group, or one is no whole number.
pub(crate) fn replicas_of(numbers: &[f64], groups: usize) -> Result<Vec<Option<u32>>, Fault> {
    if numbers.len() != groups {
        return out_of_range(format!(
            "scale returned {} numbers; it must be one for each of {groups} groups",
            numbers.len()
        ));
    }
    let target = |(index, &number): (usize, &f64)| match number {
        number if number.is_nan() => not_a_number(format!(
            "scale returned NaN for group {index}; look for 0/0, infinity minus infinity, or a root of a negative number"
        )),
        number if number < 0.0 => Ok(None),
        number if number.fract() == 0.0 && number <= f64::from(u32::MAX) => Ok(Some(number as u32)),
        number => out_of_range(format!(
            "scale returned {number:?} for group {index}; it must be a whole number of replicas (round it up), or below 0 to \
             change nothing"
        )),
    };
    numbers.iter().enumerate().map(target).collect()
}
