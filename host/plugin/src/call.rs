//! The inputs and the output of a call of a guest, for all functions of the table of decisions ([`blis_abi::decisions`]).

use blis_abi::AnyRows;
use blis_abi::decisions::{Missing, OutputShape};
use blis_sim::ids::RequestId;
use blis_sim::policy::{AdmissionDecision, ClusterView, RequestView, StepMemory, Ties};
use blis_sim::units::Micros;

use super::Function;

/// The inputs of a call: those of the function's [`blis_abi::decisions::InputShape`].
#[derive(Debug)]
pub struct Inputs<'a> {
    /// Time of the decision.
    pub now: Micros,
    /// The number that selects the random numbers of the call; `None` for a call about nothing in particular.
    pub about: Option<RequestId>,
    /// Which of several equally good choices is taken; `None` where nothing is chosen.
    pub ties: Option<&'a Ties>,
    pub request: Option<&'a RequestView<'a>>,
    pub cluster: Option<&'a ClusterView<'a>>,
    /// The memory of the pipeline of which the guest is a step.
    pub memory: Option<&'a mut StepMemory>,
    /// The number, of a floating-point number the bits.
    pub number: u64,
    /// The row, and then the lists.
    pub rows: &'a [AnyRows<'a>],
}

impl<'a> Inputs<'a> {
    pub(crate) const NOTHING: Inputs<'static> = Inputs {
        now: Micros::ZERO,
        about: None,
        ties: None,
        request: None,
        cluster: None,
        memory: None,
        number: 0,
        rows: &[],
    };

    /// A decision at `now` about no request. Built-in policies take the first of equally good choices.
    pub(crate) fn at(now: Micros, rows: &'a [AnyRows<'a>]) -> Self {
        let about = Some(super::rows::number_of(now));
        Self { now, about, ties: Some(&Ties::LowestIndex), rows, ..Self::NOTHING }
    }

    pub(crate) fn about(request: &'a RequestView<'a>, now: Micros) -> Self {
        Self { now, about: Some(request.id), request: Some(request), ..Self::NOTHING }
    }

    pub(crate) fn of_cluster(request: &'a RequestView<'a>, cluster: &'a ClusterView<'a>) -> Self {
        Self { cluster: Some(cluster), ..Self::about(request, cluster.now) }
    }

    /// Number of instances or rows from which `function` chooses, or for which it returns a number each.
    #[inline]
    pub(crate) fn count(&self, function: Function) -> usize {
        let list = || self.rows.get(usize::from(function.row().inputs.row.is_some()));
        self.cluster.map_or_else(|| list().map_or(0, AnyRows::len), ClusterView::len)
    }
}

/// The output of a call, in the form that the function's [`OutputShape`] says.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Decision(AdmissionDecision),
    Index(usize),
    Chosen(Option<usize>),
    Integer(i64),
    /// A duration, µs, as the guest returned it.
    Duration(u64),
    Number(f64),
    Flag(bool),
    /// The numbers, which the call appended to its last parameter.
    Numbers,
    /// The fields of a row, of floating-point numbers the bits. Boxed, because every call returns an output.
    Record(Box<[u64]>),
}

/// What holds for a policy that lacks `function`, in a script or (`in_c`) in a native library; `None` if that must not be.
pub(crate) fn left_out(function: Function, inputs: &Inputs<'_>, numbers: &mut Vec<f64>, in_c: bool) -> Option<Output> {
    let row = function.row();
    let number = match row.missing {
        Missing::Decides(number) => number,
        Missing::InScripts(number) if !in_c => number,
        _ => return None,
    };
    Some(match &row.output {
        OutputShape::Numbers(_) => {
            numbers.resize(inputs.count(function), number);
            Output::Numbers
        }
        OutputShape::Flag => Output::Flag(number != 0.0),
        OutputShape::Duration => Output::Duration(number as u64),
        OutputShape::Record { default, .. } => Output::Record((*default).into()),
        _ => Output::Number(number),
    })
}
