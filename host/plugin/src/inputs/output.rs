//! Outputs of guests, and their ranges.

use blis_abi::Field;
use blis_abi::decisions::{NumberOf, OutputShape};
use blis_sim::policy::{AdmissionDecision, ClusterView, RequestView, Ties};

use super::call_inputs::CallInputs;
use crate::ranges::OutputRange;
use crate::rows::NONE_U32;
use crate::{Fault, Function, Guest, Output};

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
    let (range, (row, count)) = (OutputRange { plugin: "", function }, inputs.choices(function));
    let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    Ok(match (output, &function.row().output) {
        (Output::Decision(decision), _) => GuestOutput::Decision(decision),
        (Output::Index(index), _) => {
            let index = range.index(index, count)?;
            // Of other choices the scores are not used.
            let scores = if function == Function::Route { numbers } else { Vec::new() };
            range.scores(&scores, count)?;
            GuestOutput::Index(index, bits(scores))
        }
        (Output::Chosen(index), _) => GuestOutput::Chosen(range.chosen(index, count)?),
        (Output::Integer(priority), _) => GuestOutput::Integer(priority),
        (Output::Duration(us), _) if function == Function::StepTime => {
            GuestOutput::Micros(range.duration(us, 1, "from 1 to a day")?)
        }
        (Output::Duration(us), _) => GuestOutput::Micros(us),
        (Output::Number(number), _) => GuestOutput::Number(range.number(number)?.to_bits()),
        (Output::Flag(flag), _) => GuestOutput::Flag(flag),
        (Output::Numbers, OutputShape::Numbers(NumberOf::Replicas)) => {
            GuestOutput::Replicas(range.replicas(&numbers, count)?)
        }
        (Output::Numbers, shape) => {
            range.numbers(&numbers, count, row)?;
            match shape {
                OutputShape::Numbers(NumberOf::Flag) => GuestOutput::Flags(flags(&numbers)),
                _ => GuestOutput::Numbers(bits(numbers)),
            }
        }
        (Output::Record(words), OutputShape::Record { shape, flags, .. }) => {
            let lists = inputs.rows.iter().skip(usize::from(function.row().inputs.row.is_some()));
            let mut lengths = lists.map(|list| list.rows().len());
            let value = |(index, (&word, field)): (usize, (&u64, &Field))| {
                if index < *flags {
                    return Ok(Some(usize::from(word != 0)));
                }
                match lengths.next() {
                    Some(len) => range.member(field.name, word as u32, len),
                    // Without lists these are numbers of their own.
                    None => Ok(Some(word as usize).filter(|_| !field.meaning.optional || word != u64::from(NONE_U32))),
                }
            };
            GuestOutput::Record(words.iter().zip(shape.fields).enumerate().map(value).collect::<Result<_, Fault>>()?)
        }
        (Output::Record(_), _) => GuestOutput::None,
    })
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
    let range = OutputRange { plugin: "", function: Function::Route };
    let index = range.index(guest.route(request, cluster, ties, scores)?, cluster.len())?;
    range.scores(scores, cluster.len())?;
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
    OutputRange { plugin: "", function: Function::Filter }.numbers(&numbers, cluster.len(), "instance")?;
    Ok(flags(&numbers))
}

/// Numbers that are yes or no: 0 is no.
fn flags(numbers: &[f64]) -> Vec<bool> {
    numbers.iter().map(|&number| number != 0.0).collect()
}
