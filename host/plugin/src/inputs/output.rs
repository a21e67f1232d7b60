//! Outputs of guests.

use blis_abi::Field;
use blis_abi::decisions::{NumberOf, OutputShape};
use blis_sim::policy::AdmissionDecision;

use crate::ranges::{duration, replicas_of};
use crate::rows::NONE_U32;
use crate::{Fault, Function, Output};

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

impl GuestOutput {
    /// The output of `function`, which is in range.
    ///
    /// # Errors
    /// If it is a duration that a simulation would refuse.
    pub(super) fn of(function: Function, output: Output, numbers: Vec<f64>) -> Result<Self, Fault> {
        let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        Ok(match (output, &function.row().output) {
            (Output::Decision(decision), _) => Self::Decision(decision),
            // Of other choices the scores are not used.
            (Output::Index(index), _) => {
                Self::Index(index, if function == Function::Route { bits(numbers) } else { Vec::new() })
            }
            (Output::Chosen(index), _) => Self::Chosen(index),
            (Output::Integer(priority), _) => Self::Integer(priority),
            (Output::Duration(us), _) if function == Function::StepTime => {
                Self::Micros(duration(function, us, 1, "from 1 to a day")?)
            }
            (Output::Duration(us), _) => Self::Micros(us),
            (Output::Number(number), _) => Self::Number(number.to_bits()),
            (Output::Flag(flag), _) => Self::Flag(flag),
            (Output::Numbers, OutputShape::Numbers(NumberOf::Replicas)) => Self::Replicas(replicas_of(&numbers)),
            (Output::Numbers, OutputShape::Numbers(NumberOf::Flag)) => {
                Self::Flags(numbers.into_iter().map(|number| number != 0.0).collect())
            }
            (Output::Numbers, _) => Self::Numbers(bits(numbers)),
            (Output::Record(words), OutputShape::Record { shape, flags, .. }) => {
                // Without lists these are numbers of their own, which may be optional.
                let is_index = !function.row().inputs.lists.is_empty();
                let value = |(number, (word, field)): (usize, (&u64, &Field))| match number {
                    _ if number < *flags => Some(usize::from(*word != 0)),
                    _ => Some(*word as usize)
                        .filter(|_| *word != u64::from(NONE_U32) || !(is_index || field.meaning.optional)),
                };
                Self::Record(words.iter().zip(shape.fields).enumerate().map(value).collect())
            }
            (Output::Record(_), _) => Self::None,
        })
    }
}
