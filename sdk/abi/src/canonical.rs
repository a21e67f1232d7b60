//! The canonical ABI of the component model applied to the WIT package: how parameters and results that are not single
//! numbers lie in the memory of a WebAssembly guest.
//!
//! Parameters of more than 16 numbers are passed as one pointer to all of them; results of more than one number are
//! returned as a pointer. A [`Row`](crate::Row) is copied as it lies in memory. The Rust SDK, compiled for wasm32,
//! fills in these structs with pointers; the host reads and writes them with addresses (u32).

use crate::rows::{Queued, Request, Staleness};

/// `list<T>` or `string`; `A` is the address of its elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct List<A> {
    /// Address of the first element.
    pub start: A,
    /// Number of elements (of a `string`: bytes).
    pub len: u32,
}

/// The parameters of `admit`, `route` and `scores`: 23 numbers. `I` is the list of the instances.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DecisionParameters<I> {
    /// The request of the decision.
    pub request: Request,
    /// Staleness of the signals, µs.
    pub staleness: Staleness,
    /// The row of each instance, in the order of their ids.
    pub instances: I,
}

/// The parameters of `rank`: 23 numbers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RankParameters {
    /// The request that joins the waiting queue.
    pub request: Request,
    /// Its priority and turn on the instance.
    pub queued: Queued,
}

/// One number of the metadata of model and hardware; `T` is a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ModelFact<T> {
    /// Name of the value, as `num_layers`.
    pub name: T,
    /// The value, in the unit that its name implies.
    pub value: f64,
}

/// A parameter that a policy declares; `T` is a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ParameterRecord<T> {
    /// Name of the parameter, one word.
    pub name: T,
    /// The value unless the user sets one.
    pub default: f64,
    /// Smallest value that is allowed.
    pub min: f64,
    /// Largest value that is allowed.
    pub max: f64,
    /// One line about the parameter.
    pub about: T,
}

/// The description that a policy returns; `T` is a text, `P` the list of its parameters.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DescriptionRecord<T, P> {
    /// Name of the policy, one word.
    pub name: T,
    /// Version of the policy, in any form.
    pub version: T,
    /// One line about the policy.
    pub about: T,
    /// Bits of [`crate::Kind`].
    pub kinds: u8,
    /// Bits of [`crate::ColumnSet`].
    pub reads: u8,
    /// Bits of [`crate::EventSet`].
    pub events: u8,
    /// Whether the policy implements `routing.scores`.
    pub scores: bool,
    /// Whether a step may get shorter as contexts grow.
    pub every_step: bool,
    /// The parameters that users may set.
    pub parameters: P,
}

/// A `result<_, string>` or a `decision`: 1 with a text, 0 without. `T` is a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Refusal<T> {
    /// Whether there is a text: 1 or 0.
    pub refused: u8,
    /// Error or reason of a rejection, if there is one.
    pub text: T,
}

/// An `option<list<u32>>`: 1 with a list, 0 without. `L` is the list.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChangedIndices<L> {
    /// Whether there is a list: 1 or 0.
    pub is_known: u8,
    /// Indices of rows, if there is a list.
    pub indices: L,
}

// The tests compute the same sizes from the WIT package, where addresses have 4 bytes.
const _: () = {
    type WasmList = List<u32>;
    assert!(size_of::<WasmList>() == 8);
    assert!(size_of::<DecisionParameters<WasmList>>() == 112 && size_of::<RankParameters>() == 112);
    assert!(size_of::<ModelFact<WasmList>>() == 16 && size_of::<ParameterRecord<WasmList>>() == 40);
    assert!(size_of::<DescriptionRecord<WasmList, WasmList>>() == 40);
    assert!(size_of::<Refusal<WasmList>>() == 12 && size_of::<ChangedIndices<WasmList>>() == 12);
};
