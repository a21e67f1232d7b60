//! The memory of a guest, where the host writes parameters and results.

use std::cell::Cell;

use wasmtime::{AsContextMut, Memory, Store, StoreContextMut, TypedFunc};

/// The memory and allocation function of a guest: all guests called by `direct.rs` export both.
#[derive(Clone)]
pub(super) struct GuestMemory {
    pub memory: Memory,
    pub realloc: TypedFunc<(u32, u32, u32, u32), u32>,
}

impl GuestMemory {
    /// Allocates `size` bytes with the guest's function. The address is checked when it is written to.
    #[inline]
    pub fn room(&self, store: impl AsContextMut, align: u32, size: usize) -> wasmtime::Result<usize> {
        let at = self.realloc.call(store, (0, 0, align, u32::try_from(size)?))?;
        if at & (align - 1) != 0 {
            wasmtime::bail!("realloc return: result not aligned");
        }
        Ok(at as usize)
    }

    /// Writes `bytes` to memory allocated by the guest.
    #[inline]
    pub fn put<T>(&self, store: &mut StoreContextMut<'_, T>, align: u32, bytes: &[u8]) -> wasmtime::Result<(u32, u32)> {
        let at = self.room(&mut *store, align, bytes.len())?;
        write(self.memory.data_mut(store), at, bytes)?;
        Ok((at as u32, bytes.len() as u32))
    }
}

/// The export of a core module that returns memory for inputs.
pub(super) const INPUT: &str = "blis_input";

/// Memory of a guest in which the host writes the input of every call. Modules of our SDKs export it: without it each input is
/// allocated by a call of the guest, which costs as much as a decision about a few instances.
pub(super) struct InputMemory {
    /// Returns the address of at least so many bytes, aligned to 8, which are the host's until it is called again.
    reserve: TypedFunc<u32, u32>,
    /// Address and size of what it returned last, bytes.
    at: Cell<usize>,
    size: Cell<usize>,
    /// Whether the rows that the call before wrote are still there.
    has_rows: Cell<bool>,
}

impl InputMemory {
    pub fn new(reserve: TypedFunc<u32, u32>) -> Self {
        Self { reserve, at: Cell::new(0), size: Cell::new(0), has_rows: Cell::new(false) }
    }

    /// The address of `size` bytes for the input of the next call. It is checked when it is written to.
    #[inline]
    pub fn room<T: 'static>(&self, store: &mut Store<T>, size: usize) -> wasmtime::Result<usize> {
        if size > self.size.get() {
            self.grow(store, size)?;
        }
        Ok(self.at.get())
    }

    #[cold]
    fn grow<T: 'static>(&self, store: &mut Store<T>, size: usize) -> wasmtime::Result<()> {
        let size = size.next_power_of_two();
        let at = self.reserve.call(store, u32::try_from(size)?)?;
        if !at.is_multiple_of(8) {
            wasmtime::bail!("{INPUT} return: result not aligned");
        }
        self.has_rows.set(false);
        self.at.set(at as usize);
        self.size.set(size);
        Ok(())
    }

    /// Whether the rows of the call before are still in the room of the next one; from now on those of that one are.
    #[inline]
    pub fn keeps_rows(&self) -> bool {
        self.has_rows.replace(true)
    }
}

#[inline]
pub(super) fn write(memory: &mut [u8], at: usize, bytes: &[u8]) -> wasmtime::Result<()> {
    match memory.get_mut(at..).and_then(|memory| memory.get_mut(..bytes.len())) {
        Some(room) => {
            room.copy_from_slice(bytes);
            Ok(())
        }
        None => wasmtime::bail!("realloc return: beyond end of memory"),
    }
}
