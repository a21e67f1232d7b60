//! The inputs of policies: the rows of `blis-abi`, which the host writes and policies read without a copy.
//!
//! All times are microseconds of simulated time. Names (classes, tenants, sessions, models …) are numbers: equal names
//! have equal numbers, 0 is an unspecified name, and [`crate::text`] returns the text. A number that may be missing has
//! a reserved value for that case, and a method that returns an `Option`.

pub use blis_abi::rows::*;
pub use blis_abi::{Column, ColumnGroup, EventKind};

/// The instances at a decision; there is at least one, except for admission.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a, S> {
    /// Ages of the signals by group, µs.
    pub ages: Ages,
    /// The signals of each instance, in the order of their ids.
    pub instances: &'a [S],
}

/// What a policy reads about each instance: a struct that [`crate::signals!`] declares, or `()` for nothing.
///
/// # Safety
/// The struct consists of one `f64` for each of [`Self::COLUMNS`], in that order, and of nothing else.
#[allow(unsafe_code)] // that a struct has the columns in order is promised, not checked
pub unsafe trait Signals: Copy + 'static {
    /// The columns, in the order of the fields.
    const COLUMNS: &'static [Column];
}

// SAFETY: no columns, no bytes.
#[allow(unsafe_code)]
unsafe impl Signals for () {
    const COLUMNS: &'static [Column] = &[];
}

/// Declares a struct of [`Signals`]: the columns that a policy reads. Its fields are numbers (`f64`) with the names of
/// [`Column`]s; counts are exact. The host keeps only these columns up to date, and passes only these.
///
/// ```
/// blis_sdk::signals! {
///     /// The load of an instance.
///     pub struct Load { queue_depth, in_flight }
/// }
///
/// let idle = Load::default();
/// assert_eq!(idle.queue_depth + idle.in_flight, 0.0);
/// ```
///
/// A field that is no column does not compile:
///
/// ```compile_fail
/// blis_sdk::signals! {
///     struct Load { cpu_load }
/// }
/// ```
#[macro_export]
macro_rules! signals {
    ($(#[$about:meta])* $visibility:vis struct $name:ident { $($field:ident),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[repr(C)]
        #[allow(missing_docs)]
        $visibility struct $name {
            $(pub $field: f64,)+
        }

        // SAFETY: numbers of 64 bits in the order of the columns, without padding.
        #[allow(unsafe_code)]
        unsafe impl $crate::Signals for $name {
            const COLUMNS: &'static [$crate::Column] = &[$($crate::Column::of_field(stringify!($field))),+];
        }
    };
}
