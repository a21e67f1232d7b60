//! The memory of a guest, where the host writes parameters and results.

use wasmtime::{AsContextMut, Memory, StoreContextMut, TypedFunc};

/// The memory and allocation function of a guest: all guests called by `direct.rs` export both.
#[derive(Clone)]
pub(super) struct GuestMemory {
    pub memory: Memory,
    pub realloc: TypedFunc<(u32, u32, u32, u32), u32>,
}

impl std::fmt::Debug for GuestMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestMemory").finish_non_exhaustive()
    }
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
