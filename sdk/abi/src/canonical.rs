//! What the canonical ABI of the component model makes of the WIT package, where that is not a number: how parameters
//! and results lie in the memory of a WebAssembly guest.
//!
//! More than 16 numbers of parameters come as one pointer to all of them; more than one number of results goes back as
//! a pointer. A [`Row`](crate::Row) lies as it is. The Rust SDK, compiled for wasm32, fills these in with pointers; the
//! host reads and writes them with addresses (u32).

use crate::rows::{Ages, Queued, Request};

/// `list<T>` or `string`; `A` is the address of its elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct List<A> {
    /// Where its elements lie.
    pub start: A,
    /// How many there are.
    pub len: u32,
}

/// The parameters of `admit`, `route` and `scores`: 23 numbers. `I` is the list of the instances.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Decision<I> {
    /// The request.
    pub request: Request,
    /// Ages of the signals.
    pub ages: Ages,
    /// The instances.
    pub instances: I,
}

/// The parameters of `rank`: 23 numbers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Joining {
    /// The request.
    pub request: Request,
    /// Its place in the order of joining.
    pub queued: Queued,
}

/// A number known about the deployment; `T` is a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fact<T> {
    /// Its name.
    pub name: T,
    /// Its value.
    pub value: f64,
}

/// A parameter that a policy declares; `T` is a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parameter<T> {
    /// Its name.
    pub name: T,
    /// Its value unless set.
    pub default: f64,
    /// The smallest value allowed.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// What it is, in a line.
    pub about: T,
}

/// What a policy says about itself; `T` is a text, `P` the list of its parameters.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Description<T, P> {
    /// Its name.
    pub name: T,
    /// Its own version.
    pub version: T,
    /// What it is, in a line.
    pub about: T,
    /// Bits of [`crate::Kind`].
    pub kinds: u8,
    /// Bits of [`crate::Reads`].
    pub reads: u8,
    /// Bits of [`crate::Events`].
    pub events: u8,
    /// Whether it has scores.
    pub scores: bool,
    /// Whether a step may get shorter as contexts grow.
    pub every_step: bool,
    /// Its parameters.
    pub parameters: P,
}

/// A `result<_, string>`, or a `verdict`: 1 with a text, 0 without. `T` is a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Refusal<T> {
    /// Whether there is a text.
    pub refused: u8,
    /// The text.
    pub text: T,
}

/// An `option<list<u32>>`: 1 with a list, 0 without. `L` is the list.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Changed<L> {
    /// Whether there is a list.
    pub is_known: u8,
    /// The list.
    pub places: L,
}

// As tests compute it from the WIT package, where addresses have 4 bytes.
const _: () = {
    type Address = List<u32>;
    assert!(size_of::<Address>() == 8);
    assert!(size_of::<Decision<Address>>() == 112 && size_of::<Joining>() == 112);
    assert!(size_of::<Fact<Address>>() == 16 && size_of::<Parameter<Address>>() == 40);
    assert!(size_of::<Description<Address, Address>>() == 40);
    assert!(size_of::<Refusal<Address>>() == 12 && size_of::<Changed<Address>>() == 12);
};
