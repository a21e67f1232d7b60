//! Structs with a layout that is part of the interface, and rows, which are copied as they lie in memory.

#![allow(unsafe_code)] // the bytes of a row

/// A struct with a layout that is part of the interface.
pub trait Layout: Sized {
    /// The name of the struct in Rust.
    const NAME: &'static str;
    /// The fields of the struct, in their order.
    const FIELDS: &'static [Field];
}

/// A struct of numbers that is copied as it lies in memory.
///
/// # Safety
/// All bytes of the struct are initialised: it is `repr(C)`, has only numbers as fields, and has no padding.
pub unsafe trait Row: Copy + Layout + 'static {
    /// The fields as a tuple, in their order: the arguments of a function that takes the row by value.
    type Numbers;

    /// The row in which every field is 0.
    const ZERO: Self;

    /// What is known of it at run time.
    const SHAPE: RowShape = RowShape { name: Self::NAME, fields: Self::FIELDS, size: size_of::<Self>() };

    /// The row with fields of these values, in their order: numbers as they are, floating-point numbers by their bits. Those
    /// that are left out are 0.
    fn from_words(words: &[u64]) -> Self;

    /// The fields of the row, in their order.
    fn numbers(self) -> Self::Numbers;

    /// All bytes of `rows`, without copying.
    #[inline]
    fn bytes(rows: &[Self]) -> &[u8] {
        // SAFETY: all bytes of a row are initialised; u8 has no alignment.
        unsafe { core::slice::from_raw_parts(rows.as_ptr().cast::<u8>(), size_of_val(rows)) }
    }
}

/// The layout of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShape {
    /// The name of the struct in Rust.
    pub name: &'static str,
    /// The fields, in their order: those of 8 bytes first.
    pub fields: &'static [Field],
    /// Size of the row, bytes.
    pub size: usize,
}

/// Rows of a type that is known at run time only.
#[derive(Clone, Copy, Debug)]
pub struct AnyRows<'a> {
    bytes: &'a [u8],
    shape: &'static RowShape,
}

impl<'a> AnyRows<'a> {
    /// These rows.
    #[must_use]
    #[inline]
    pub fn new<R: Row>(rows: &'a [R]) -> Self {
        Self { bytes: R::bytes(rows), shape: const { &R::SHAPE } }
    }

    /// One row.
    #[must_use]
    #[inline]
    pub fn one<R: Row>(row: &'a R) -> Self {
        Self::new(core::slice::from_ref(row))
    }

    /// Their layout.
    #[must_use]
    #[inline]
    pub fn shape(&self) -> &'static RowShape {
        self.shape
    }

    /// Their number.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.shape.size
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All their bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The rows themselves.
    ///
    /// # Panics
    /// If they are of another type than `R`.
    #[must_use]
    pub fn typed<R: Row>(self) -> &'a [R] {
        assert!(self.shape.name == R::NAME && self.shape.size == size_of::<R>(), "rows of another type");
        // SAFETY: only `new` makes such rows, of a slice of `R`.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len()) }
    }
}

/// A field of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field in Rust.
    pub name: &'static str,
    /// Type of the field, as written in the struct.
    pub ty: &'static str,
    /// Offset from the start of the struct, bytes.
    pub offset: usize,
    /// Size of the field, bytes.
    pub size: usize,
}

/// Structs as C lays them out, with their [`Layout`].
macro_rules! structs {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident { $($(#[$says:meta])* pub $field:ident: $ty:ty,)* }
    )*) => {$(
        $(#[$about])*
        #[repr(C)]
        pub struct $name {
            $($(#[$says])* pub $field: $ty,)*
        }

        impl $crate::Layout for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [$crate::Field] = &[$($crate::Field {
                name: stringify!($field),
                ty: stringify!($ty),
                offset: core::mem::offset_of!($name, $field),
                size: size_of::<$ty>(),
            }),*];
        }
    )*};
}
pub(crate) use structs;

/// Structs of numbers without padding.
macro_rules! rows {
    ($(
        $(#[$about:meta])*
        pub struct $row:ident { $($(#[$says:meta])* pub $field:ident: $ty:ident,)* }
    )*) => {$(
        structs! {
            $(#[$about])*
            pub struct $row { $($(#[$says])* pub $field: $ty,)* }
        }

        const _: () = {
            let mut end = 0;
            $(
                assert!(core::mem::offset_of!($row, $field) == end);
                end += size_of::<$ty>();
            )*
            assert!(end == size_of::<$row>());
        };

        // SAFETY: numbers only, as `number!` checks, and no gaps, as checked above.
        unsafe impl Row for $row {
            type Numbers = ($($ty,)*);
            const ZERO: Self = Self { $($field: number!($ty)),* };

            fn from_words(words: &[u64]) -> Self {
                let mut words = words.iter().copied();
                Self { $($field: words.next().map_or(number!($ty), word!($ty))),* }
            }

            #[inline]
            fn numbers(self) -> Self::Numbers {
                let Self { $($field),* } = self;
                ($($field,)*)
            }
        }
    )*};
}

pub(crate) use rows;

/// The value 0 of a type that a row may have as a field.
macro_rules! number {
    (u32) => {
        0
    };
    (i32) => {
        0
    };
    (u64) => {
        0
    };
    (i64) => {
        0
    };
    (f64) => {
        0.0
    };
}
pub(crate) use number;

/// What makes a field of a type of 64 bits.
macro_rules! word {
    (f64) => {
        f64::from_bits
    };
    ($ty:ident) => {
        |word| word as $ty
    };
}
pub(crate) use word;
