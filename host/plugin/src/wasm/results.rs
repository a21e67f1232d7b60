//! Results in a guest's memory, read by the rules of the canonical ABI, with the limits on what a guest may return.

use blis_abi::canonical::{self, ChosenIndex, ValueRecord};
use blis_abi::{Field, RowShape};
use wasmtime::{Store, TypedFunc, WasmParams};

use super::describe::RawDescription;
use super::fault::ResultTooLarge;
use super::host::WasmHost;
use super::memory::GuestMemory;
use crate::ValueTable;
use crate::describe::{DeclaredParameter, DeclaredValue};

/// Lists and texts in a guest's memory, and the structs that contain them.
pub(super) type GuestList = canonical::List<u32>;
type GuestDescription = canonical::DescriptionRecord<GuestList, GuestList, GuestList>;
type GuestParameter = canonical::ParameterRecord<GuestList>;
type GuestRefusal = canonical::Refusal<GuestList>;

/// The address of a field in a guest's memory.
macro_rules! offset {
    ($record:ty, $field:ident) => {
        const { std::mem::offset_of!($record, $field) as u32 }
    };
}
pub(super) use offset;

/// Reads results from a guest's memory.
pub(super) struct ResultReader<'a> {
    memory: &'a [u8],
    /// Bytes that the guest may still return.
    left: &'a mut usize,
}

impl<'a> ResultReader<'a> {
    /// A reader of `memory` that may read `left` bytes.
    pub fn new(memory: &'a [u8], left: &'a mut usize) -> Self {
        Self { memory, left }
    }

    fn bytes<const N: usize>(&self, at: u32) -> wasmtime::Result<[u8; N]> {
        let bytes = self.memory.get(at as usize..).and_then(|memory| memory.first_chunk());
        bytes.copied().ok_or_else(|| wasmtime::format_err!("pointer out of bounds of memory"))
    }

    /// Checks that a record of `size` bytes lies at this address.
    pub fn record(&self, at: u32, align: u32, size: usize) -> wasmtime::Result<()> {
        if !at.is_multiple_of(align) {
            wasmtime::bail!("return pointer not aligned");
        }
        if self.memory.get(at as usize..).is_none_or(|memory| memory.len() < size) {
            wasmtime::bail!("pointer out of bounds of memory");
        }
        Ok(())
    }

    fn u8(&self, at: u32) -> wasmtime::Result<u8> {
        self.bytes(at).map(u8::from_le_bytes)
    }

    fn u32(&self, at: u32) -> wasmtime::Result<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    pub fn u64(&self, at: u32) -> wasmtime::Result<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    fn f64(&self, at: u32) -> wasmtime::Result<f64> {
        self.bytes(at).map(f64::from_le_bytes)
    }

    fn charge(&mut self, bytes: usize) -> wasmtime::Result<()> {
        let left = self.left.checked_sub(bytes).ok_or(ResultTooLarge)?;
        *self.left = left;
        Ok(())
    }

    /// The bytes of `len` elements of `size` bytes each, starting at `at`.
    fn elements(&mut self, at: u32, len: u32, size: usize, align: u32) -> wasmtime::Result<&[u8]> {
        let bytes = len as usize * size;
        if !at.is_multiple_of(align) {
            wasmtime::bail!("list pointer is not aligned");
        }
        let Some(elements) = self.memory.get(at as usize..).and_then(|memory| memory.get(..bytes)) else {
            wasmtime::bail!("list pointer/length out of bounds of memory");
        };
        self.charge(bytes)?;
        Ok(elements)
    }

    pub fn text(&mut self, at: u32, len: u32) -> wasmtime::Result<String> {
        let Some(bytes) = self.memory.get(at as usize..).and_then(|memory| memory.get(..len as usize)) else {
            wasmtime::bail!("string pointer/length out of bounds of memory");
        };
        self.charge(bytes.len())?;
        Ok(str::from_utf8(bytes)?.to_owned())
    }

    /// The text with the address and length that lie at `at`.
    fn text_at(&mut self, at: u32) -> wasmtime::Result<String> {
        let (text, len) = (self.u32(at)?, self.u32(at + 4)?);
        self.text(text, len)
    }

    /// The text of a `result<_, string>` or a `decision`, if it is an error or a rejection.
    pub fn refusal(&mut self, at: u32) -> wasmtime::Result<Option<String>> {
        self.record(at, 4, size_of::<GuestRefusal>())?;
        match self.u8(at + offset!(GuestRefusal, refused))? {
            0 => Ok(None),
            1 => self.text_at(at + offset!(GuestRefusal, text)).map(Some),
            other => wasmtime::bail!("unexpected discriminant: {other}"),
        }
    }

    /// The index of an `option<u32>`, if there is one.
    pub fn chosen(&self, at: u32) -> wasmtime::Result<Option<u32>> {
        self.record(at, 4, size_of::<ChosenIndex>())?;
        match self.u8(at + offset!(ChosenIndex, is_some))? {
            0 => Ok(None),
            1 => self.u32(at + offset!(ChosenIndex, index)).map(Some),
            other => wasmtime::bail!("unexpected discriminant: {other}"),
        }
    }

    /// The fields of a record at an address; the first `flags` of them are bytes, 1 or 0.
    pub fn fields(&self, at: u32, shape: &RowShape, flags: usize) -> wasmtime::Result<Box<[u64]>> {
        let size = |index: usize, field: &Field| if index < flags { 1 } else { field.size as u32 };
        let start = |end: u32, size: u32| end.next_multiple_of(size);
        let fields = || shape.fields.iter().enumerate().map(|(index, field)| size(index, field));
        let (end, align) = fields().fold((0, 1), |(end, align), size| (start(end, size) + size, align.max(size)));
        self.record(at, align, end.next_multiple_of(align) as usize)?;
        let mut end = 0;
        let read = |size: u32| {
            let from = start(end, size);
            end = from + size;
            match size {
                1 => self.u8(at + from).map(|flag| u64::from(flag != 0)),
                4 => self.u32(at + from).map(u64::from),
                _ => self.u64(at + from),
            }
        };
        fields().map(read).collect()
    }

    /// The list with the address and length that lie at `at`.
    pub fn list_at(&mut self, at: u32, size: usize, align: u32) -> wasmtime::Result<&[u8]> {
        self.record(at, 4, 8)?;
        let (start, len) = (self.u32(at)?, self.u32(at + 4)?);
        self.elements(start, len, size, align)
    }

    pub fn description(&mut self, at: u32) -> wasmtime::Result<RawDescription> {
        self.record(at, 4, size_of::<GuestDescription>())?;
        let name = self.text_at(at + offset!(GuestDescription, name))?;
        let version = self.text_at(at + offset!(GuestDescription, version))?;
        let about = self.text_at(at + offset!(GuestDescription, about))?;
        let kinds = self.texts_at(at + offset!(GuestDescription, kinds))?;
        let reads = self.texts_at(at + offset!(GuestDescription, reads))?;
        let events = self.texts_at(at + offset!(GuestDescription, events))?;
        let list = at + offset!(GuestDescription, parameters);
        let (start, count) = (self.u32(list)?, self.u32(list + 4)?);
        self.elements(start, count, size_of::<GuestParameter>(), 8)?;
        let parameter = |i: u32| {
            let at = start + size_of::<GuestParameter>() as u32 * i;
            Ok(DeclaredParameter {
                name: self.text_at(at + offset!(GuestParameter, name))?,
                about: self.text_at(at + offset!(GuestParameter, about))?,
                default: self.value(at + offset!(GuestParameter, default))?,
                min: self.f64(at + offset!(GuestParameter, min))?,
                max: self.f64(at + offset!(GuestParameter, max))?,
            })
        };
        let parameters = (0..count).map(parameter).collect::<wasmtime::Result<_>>()?;
        let scores = self.u8(at + offset!(GuestDescription, scores))? != 0;
        let every_step = self.u8(at + offset!(GuestDescription, every_step))? != 0;
        Ok(RawDescription { name, version, about, kinds, reads, events, scores, every_step, parameters })
    }

    /// The list of texts with the address and length that lie at `at`.
    fn texts_at(&mut self, at: u32) -> wasmtime::Result<Vec<String>> {
        let (start, count) = (self.u32(at)?, self.u32(at + 4)?);
        self.elements(start, count, size_of::<GuestList>(), 4)?;
        (0..count).map(|i| self.text_at(start + size_of::<GuestList>() as u32 * i)).collect()
    }

    /// Appends the list of numbers with the address and length that lie at `at` to `to`.
    pub fn numbers_at(&mut self, at: u32, to: &mut Vec<f64>) -> wasmtime::Result<()> {
        let (numbers, _) = self.list_at(at, 8, 8)?.as_chunks();
        to.extend(numbers.iter().map(|&number| f64::from_le_bytes(number)));
        Ok(())
    }

    /// The value of a parameter.
    fn value(&mut self, at: u32) -> wasmtime::Result<DeclaredValue> {
        let payload = at + offset!(ValueRecord, payload);
        Ok(match self.u8(at + offset!(ValueRecord, case))? {
            ValueRecord::NUMBER => DeclaredValue::Number(self.f64(payload)?),
            ValueRecord::TEXT => DeclaredValue::Text(self.text_at(payload)?),
            ValueRecord::TABLE => {
                let mut numbers = Vec::new();
                self.numbers_at(payload + 4, &mut numbers)?;
                DeclaredValue::Table(ValueTable { columns: self.u32(payload)?, numbers })
            }
            other => wasmtime::bail!("unexpected discriminant: {other}"),
        })
    }
}

/// A function with its result in memory, and the function to call after the result was read.
pub(super) struct MemoryResult<P> {
    pub function: TypedFunc<P, u32>,
    pub after: Option<TypedFunc<u32, ()>>,
}

impl<P: WasmParams> MemoryResult<P> {
    /// Calls the function; `read` gets the address of the result.
    pub fn call<A>(
        &self,
        memory: &GuestMemory,
        store: &mut Store<WasmHost>,
        params: P,
        most: usize,
        read: impl FnOnce(&mut ResultReader<'_>, u32) -> wasmtime::Result<A>,
    ) -> wasmtime::Result<A> {
        let at = self.function.call(&mut *store, params)?;
        read_result(memory, store, at, self.after.as_ref(), most, read)
    }
}

/// Reads the result that lies at `at`, and calls the function `after` that.
#[inline]
pub(super) fn read_result<A>(
    memory: &GuestMemory,
    store: &mut Store<WasmHost>,
    at: u32,
    after: Option<&TypedFunc<u32, ()>>,
    most: usize,
    read: impl FnOnce(&mut ResultReader<'_>, u32) -> wasmtime::Result<A>,
) -> wasmtime::Result<A> {
    let mut left = most;
    let output = read(&mut ResultReader::new(memory.memory.data(&*store), &mut left), at)?;
    if let Some(after) = after {
        after.call(store, at)?;
    }
    Ok(output)
}
