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

    /// What one of them is called in messages.
    const WHAT: &'static str;

    /// The documentation of the struct.
    const DOCS: &'static str;

    /// What is known of it at run time.
    const SHAPE: RowShape = RowShape {
        name: Self::NAME,
        what: Self::WHAT,
        docs: Self::DOCS,
        fields: Self::FIELDS,
        size: size_of::<Self>(),
    };

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

    /// Sets `field`, which is one of its own, to `word`: a number as it is, of floating-point numbers the bits.
    fn set(&mut self, field: &Field, word: u64) {
        // SAFETY: all values of the bytes of a row are numbers; u8 has no alignment, and nothing else refers to the row.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(core::ptr::from_mut(self).cast::<u8>(), size_of::<Self>()) };
        let word = word.to_le_bytes();
        if let Some(own) = bytes.get_mut(field.offset..field.offset + field.size) {
            own.copy_from_slice(&word[..field.size]);
        }
    }
}

/// The layout of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowShape {
    /// The name of the struct in Rust.
    pub name: &'static str,
    /// What one of them is called in messages.
    pub what: &'static str,
    /// The documentation of the struct.
    pub docs: &'static str,
    /// The fields, in their order: those of 8 bytes first.
    pub fields: &'static [Field],
    /// Size of the row, bytes.
    pub size: usize,
}

impl RowShape {
    /// Writes a row with fields of these values into `memory`, as it lies in memory: numbers as they are, of floating-point numbers the
    /// bits.
    ///
    /// # Panics
    /// If the row does not fit.
    pub fn write(&self, words: &[u64], memory: &mut [u64]) {
        assert!(self.size <= size_of_val(memory), "a row of {} bytes", self.size);
        // SAFETY: all values of the bytes of a number are numbers; u8 has no alignment, and nothing else refers to them.
        let bytes = unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), size_of_val(memory)) };
        for (field, word) in self.fields.iter().zip(words) {
            bytes[field.offset..][..field.size].copy_from_slice(&word.to_le_bytes()[..field.size]);
        }
    }

    /// The fields of a row that lies in `memory`.
    pub fn words<'a>(&self, memory: &'a [u64]) -> impl Iterator<Item = u64> + use<'a> {
        self.fields.iter().map(|field| {
            let word = memory[field.offset / 8] >> (8 * (field.offset % 8));
            if field.size == 4 { word & u64::from(u32::MAX) } else { word }
        })
    }
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

    /// The rows of this shape in `words`, as they lie in memory.
    ///
    /// # Panics
    /// If the rows of the shape are no multiple of 8 bytes, or the last one is cut off.
    #[must_use]
    pub fn of_words(words: &'a [u64], shape: &'static RowShape) -> Self {
        assert!(
            size_of_val(words).is_multiple_of(shape.size) && shape.size.is_multiple_of(size_of::<u64>()),
            "whole rows"
        );
        // SAFETY: all bytes of a number are initialised; u8 has no alignment.
        let bytes = unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) };
        Self { bytes, shape }
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
        // SAFETY: these are rows of the type `R`, with the alignment of `R` or of a number of 64 bits, which is as large.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len()) }
    }
}

/// A field of a struct.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// Name of the field in Rust.
    pub name: &'static str,
    /// Type of the field, as written in the struct.
    pub ty: &'static str,
    /// The number that it is, of the fields of rows.
    pub number: Primitive,
    /// Offset from the start of the struct, bytes.
    pub offset: usize,
    /// Size of the field, bytes.
    pub size: usize,
    /// What its number means.
    pub meaning: NumberMeaning,
    /// The documentation of the field.
    pub docs: &'static str,
}

impl Field {
    /// The number in `row`, the bytes of a row that has the field; infinite if it is missing.
    #[must_use]
    #[inline]
    pub fn number(&self, row: &[u8]) -> f64 {
        let bytes = &row[self.offset..][..self.size];
        match (self.number, bytes.first_chunk()) {
            (Primitive::F64, Some(bytes)) => f64::from_le_bytes(*bytes),
            _ => self.whole(row).map_or(f64::INFINITY, |number| number as f64),
        }
    }

    /// The whole number in `row`, the bytes of a row that has the field, at most the largest of 63 bits; `None` if it is missing.
    #[must_use]
    #[inline]
    pub fn whole(&self, row: &[u8]) -> Option<i64> {
        let bytes = &row[self.offset..][..self.size];
        let (number, missing) = match (self.number, bytes.first_chunk::<4>(), bytes.first_chunk::<8>()) {
            (Primitive::U32, Some(bytes), _) => {
                let number = u32::from_le_bytes(*bytes);
                (number.into(), number == u32::MAX)
            }
            (Primitive::I32, Some(bytes), _) => {
                let number = i32::from_le_bytes(*bytes);
                (number.into(), number == i32::MIN)
            }
            (Primitive::U64, _, Some(bytes)) => {
                let number = u64::from_le_bytes(*bytes);
                (i64::try_from(number).unwrap_or(i64::MAX), number == u64::MAX)
            }
            (Primitive::I64, _, Some(bytes)) => (i64::from_le_bytes(*bytes), false),
            _ => return None,
        };
        (!(missing && self.meaning.optional)).then_some(number)
    }

    /// The names in scripts: a time has a second one, with its unit.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let own = (self.meaning.names.is_empty()).then_some(self.name);
        let short = own.and_then(|name| name.strip_suffix("_us"));
        self.meaning.names.iter().copied().chain(short).chain(own)
    }
}

/// Types of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// 32 bits, unsigned.
    U32,
    /// 32 bits.
    I32,
    /// 64 bits, unsigned.
    U64,
    /// 64 bits.
    I64,
    /// Floating-point, 64 bits.
    F64,
    /// No number: a field of another struct than a row.
    None,
}

impl Primitive {
    /// The type that Rust calls `name`.
    #[must_use]
    pub const fn named(name: &str) -> Self {
        match name.as_bytes() {
            b"u32" => Self::U32,
            b"i32" => Self::I32,
            b"u64" => Self::U64,
            b"i64" => Self::I64,
            b"f64" => Self::F64,
            _ => Self::None,
        }
    }
}

/// What the number of a field means for those who write policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberMeaning {
    /// What it counts.
    pub unit: NumberUnit,
    /// Whether the largest number of its type, the smallest of an `i32`, says that there is none.
    pub optional: bool,
    /// Smallest value.
    pub least: f64,
    /// Largest value, where it is not that of the type (63 bits of whole numbers with 64); of another number none is refused
    /// that is larger.
    pub most: Option<i64>,
    /// Names in scripts; empty if it is that of the field.
    pub names: &'static [&'static str],
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberUnit {
    /// Requests, tokens, blocks, or another whole number.
    Count,
    /// Time, µs.
    Micros,
    /// A sum or a size, which scripts get as a floating-point number, because what they divide it by is one.
    Sum,
    /// A share, a price or another floating-point number.
    Real,
    /// A name; scripts get its text.
    Name,
    /// A name of which scripts get the number.
    NameNumber,
    /// A number for the host, which scripts do not get.
    Hidden,
}

impl NumberMeaning {
    /// That of the field `name` of type `ty` where no method of it is named.
    #[must_use]
    pub const fn usual(name: &str, ty: &str) -> Self {
        let unit = match (ty.as_bytes(), name.as_bytes()) {
            ([b'f', ..], _) => NumberUnit::Real,
            (_, [.., b'_', b'u', b's']) => NumberUnit::Micros,
            _ => NumberUnit::Count,
        };
        let least = if let [b'i', ..] = ty.as_bytes() { f64::NEG_INFINITY } else { 0.0 };
        Self { unit, optional: false, least, most: None, names: &[] }
    }

    /// Of a number that may be missing.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Of a number that is at least `least`.
    #[must_use]
    pub const fn at_least(self, least: f64) -> Self {
        Self { least, ..self }
    }

    /// Of a number that is at most `most`.
    #[must_use]
    pub const fn at_most(self, most: i64) -> Self {
        Self { most: Some(most), ..self }
    }

    /// With these names in scripts.
    #[must_use]
    pub const fn called(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }

    /// Of a sum or a size.
    #[must_use]
    pub const fn sum(self) -> Self {
        Self { unit: NumberUnit::Sum, ..self }
    }

    /// Of a name.
    #[must_use]
    pub const fn name(self) -> Self {
        Self { unit: NumberUnit::Name, ..self }
    }

    /// Of a name of which scripts get the number.
    #[must_use]
    pub const fn name_number(self) -> Self {
        Self { unit: NumberUnit::NameNumber, ..self }
    }

    /// Of a number that scripts do not get.
    #[must_use]
    pub const fn hidden(self) -> Self {
        Self { unit: NumberUnit::Hidden, ..self }
    }
}

/// Structs as C lays them out, with their [`Layout`]. Behind the type of a field stand, in brackets, the methods of
/// [`NumberMeaning`] that say what differs from the usual.
macro_rules! structs {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[doc = $says:literal])* pub $field:ident: $ty:ty $([$($change:ident $(($value:expr))?),*])?,)*
        }
    )*) => {$(
        $(#[$about])*
        #[repr(C)]
        pub struct $name {
            $($(#[doc = $says])* pub $field: $ty,)*
        }

        impl $crate::Layout for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [$crate::Field] = &[$($crate::Field {
                name: stringify!($field),
                ty: stringify!($ty),
                number: $crate::Primitive::named(stringify!($ty)),
                offset: core::mem::offset_of!($name, $field),
                size: size_of::<$ty>(),
                meaning: $crate::NumberMeaning::usual(stringify!($field), stringify!($ty))$($(.$change($($value)?))*)?,
                docs: concat!($($says),*),
            }),*];
        }
    )*};
}
pub(crate) use structs;

/// Something to do with rows of a type that is known by its name only.
pub trait RowVisitor {
    /// What comes of it.
    type Output;

    /// Does it for rows of the type `R`.
    fn visit<R: Row + Default + core::fmt::Debug + Send + Sync>(self) -> Self::Output;
}

/// Structs of numbers without padding, and [`RowVisitor`]s sent to them by their names.
macro_rules! rows {
    ($(
        $(#[doc = $about:literal])+
        #[derive($($derived:ident),*)]
        pub struct $row:ident: $what:literal {
            $($(#[doc = $says:literal])* pub $field:ident: $ty:ident $([$($change:tt)*])?,)*
        }
    )*) => {
    $(
        structs! {
            $(#[doc = $about])+
            #[derive($($derived),*)]
            pub struct $row { $($(#[doc = $says])* pub $field: $ty $([$($change)*])?,)* }
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
            const WHAT: &'static str = $what;
            const DOCS: &'static str = concat!($($about),+);

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
    )*

        /// What `visitor` makes of the rows called `name`; `None` if there are none.
        pub fn visit_row<V: $crate::RowVisitor>(name: &str, visitor: V) -> Option<V::Output> {
            match name {
                $(stringify!($row) => Some(visitor.visit::<$row>()),)*
                _ => None,
            }
        }
    };
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
