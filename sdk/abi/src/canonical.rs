//! The canonical ABI of the component model applied to the WIT package: how parameters and results that are not single
//! numbers lie in the memory of a WebAssembly guest.
//!
//! Parameters of more than 16 numbers are passed as one pointer to all of them; results of more than one number are
//! returned as a pointer. A [`Row`](crate::Row) is copied as it lies in memory. The Rust SDK, compiled for wasm32,
//! fills in these structs with pointers; the host reads and writes them with addresses (u32).

/// `list<T>` or `string`; `A` is the address of its elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct List<A> {
    /// Address of the first element.
    pub start: A,
    /// Number of elements (of a `string`: bytes).
    pub len: u32,
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

/// A `value` of a parameter, with addresses as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ValueRecord {
    /// [`Self::NUMBER`], [`Self::TEXT`] or [`Self::TABLE`].
    pub case: u8,
    /// No meaning.
    pub unused: [u8; 7],
    /// A number: its bits, the lower half first. A text: its address and length. A table: its columns, and address and
    /// length of its numbers.
    pub payload: [u32; 4],
}

impl ValueRecord {
    /// Case of a number.
    pub const NUMBER: u8 = 0;
    /// Case of a text.
    pub const TEXT: u8 = 1;
    /// Case of a table.
    pub const TABLE: u8 = 2;

    /// A record with this case.
    #[must_use]
    pub const fn new(case: u8, payload: [u32; 4]) -> Self {
        Self { case, unused: [0; 7], payload }
    }

    /// The record of a number.
    #[must_use]
    pub const fn number(number: f64) -> Self {
        let bits = number.to_bits();
        Self::new(Self::NUMBER, [bits as u32, (bits >> 32) as u32, 0, 0])
    }

    /// The number, if the record has the case of one.
    #[must_use]
    pub const fn as_number(&self) -> f64 {
        f64::from_bits(self.payload[0] as u64 | (self.payload[1] as u64) << 32)
    }
}

/// A parameter that a policy declares; `T` is a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ParameterRecord<T> {
    /// Name of the parameter, one word.
    pub name: T,
    /// One line about the parameter.
    pub about: T,
    /// The value unless the user sets one.
    pub default: ValueRecord,
    /// Smallest number that is allowed.
    pub min: f64,
    /// Largest number that is allowed.
    pub max: f64,
}

/// The description that a policy returns; `T` is a text, `N` a list of texts, `P` the list of its parameters.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DescriptionRecord<T, N, P> {
    /// Name of the policy, one word.
    pub name: T,
    /// Version of the policy, in any form.
    pub version: T,
    /// One line about the policy.
    pub about: T,
    /// Names of [`crate::Kind`]s.
    pub kinds: N,
    /// Names of [`crate::Column`]s, in the order of the rows.
    pub reads: N,
    /// Names of events ([`crate::EventSet`]).
    pub events: N,
    /// Whether the policy implements `routing-scores`.
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

/// An `option<u32>`: 1 with an index, 0 without.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChosenIndex {
    /// Whether there is an index: 1 or 0.
    pub is_some: u8,
    /// The index, if there is one.
    pub index: u32,
}

// The tests compute the same sizes from the WIT package, where addresses have 4 bytes.
const _: () = {
    type WasmList = List<u32>;
    assert!(size_of::<WasmList>() == 8);
    assert!(size_of::<ChosenIndex>() == 8);
    assert!(size_of::<ModelFact<WasmList>>() == 16 && size_of::<ValueRecord>() == 24);
    assert!(size_of::<ParameterRecord<WasmList>>() == 56);
    assert!(size_of::<DescriptionRecord<WasmList, WasmList, WasmList>>() == 60);
    assert!(size_of::<Refusal<WasmList>>() == 12 && size_of::<ChangedIndices<WasmList>>() == 12);
};
