//! Rows into the memory of a guest: each as it lies, a list by one copy.
//!
//! wasmtime's derived lowering writes field by field, each with its own bounds check: 9.2 µs for 256
//! rows of 64 bytes, against 0.84 µs for one copy (`reference/plugins.md` §B). The traits belong to
//! wasmtime's inside, hence the exact pin on its version; a test compares the bytes with those of the
//! derived lowering.
//!
//! Sound because a row is `repr(C)`, holds numbers only, and has no gaps, which is checked here while
//! compiling: its memory is what the canonical ABI prescribes.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use wasmtime::ValRaw;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext, typecheck_record};
use wasmtime::component::{ComponentType, Lower};

use crate::rows::{AgesRow, EventRow, InstanceRow, QueuedRow, RequestRow, RunningRow, StepRow};

#[cfg(target_endian = "big")]
compile_error!("guests are little-endian: rows would have to be turned round, number by number");

/// A number that a row may hold, as an argument on the guest's stack.
trait Argument {
    fn raw(self) -> ValRaw;
}

macro_rules! arguments {
    ($($ty:ident => $raw:expr;)*) => {
        $(impl Argument for $ty {
            fn raw(self) -> ValRaw {
                $raw(self)
            }
        })*
    };
}

arguments! {
    u32 => ValRaw::u32;
    i32 => ValRaw::i32;
    u64 => ValRaw::u64;
    i64 => ValRaw::i64;
    f64 => |number: f64| ValRaw::f64(number.to_bits());
}

/// A row, as it lies in memory.
pub(super) trait Row: Copy + 'static {
    /// All bytes of `rows`.
    fn bytes(rows: &[Self]) -> &[u8];
}

type Check = fn(&InterfaceType, &InstanceType<'_>) -> wasmtime::Result<()>;

macro_rules! row {
    ($row:ident { $($field:ident: $ty:ident),* $(,)? }) => {
        // As the canonical ABI lays the record out, and without gaps.
        const _: () = {
            let abi = <$row as ComponentType>::ABI;
            assert!(abi.size32 as usize == size_of::<$row>() && abi.align32 as usize == align_of::<$row>());
            let mut end = 0;
            $(
                assert!(std::mem::offset_of!($row, $field) == end);
                end += size_of::<$ty>();
            )*
            assert!(end == size_of::<$row>());
        };

        impl Row for $row {
            #[inline]
            fn bytes(rows: &[Self]) -> &[u8] {
                // SAFETY: rows are numbers without gaps (checked above), so all their bytes are
                // initialised; u8 has no alignment.
                unsafe { std::slice::from_raw_parts(rows.as_ptr().cast::<u8>(), size_of_val(rows)) }
            }
        }

        // SAFETY: `Lower` is one `ValRaw` per field; `ABI` is made by wasmtime from those of the
        // fields; `typecheck` compares names and types of all fields.
        unsafe impl ComponentType for $row {
            type Lower = [ValRaw; [$(stringify!($field)),*].len()];
            const ABI: CanonicalAbiInfo =
                CanonicalAbiInfo::record_static(&[$(<$ty as ComponentType>::ABI),*]);
            const MAY_REQUIRE_REALLOC: bool = false;

            fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
                let fields = [$((stringify!($field).replace('_', "-"), <$ty as ComponentType>::typecheck as Check)),*];
                let fields: Vec<(&str, Check)> = fields.iter().map(|(name, check)| (name.as_str(), *check)).collect();
                typecheck_record(ty, types, &fields)
            }
        }

        // SAFETY: writes every field on the stack, or all bytes of the row into memory, bounds checked.
        unsafe impl Lower for $row {
            #[inline]
            fn linear_lower_to_flat<T>(
                &self,
                _: &mut LowerContext<'_, T>,
                _: InterfaceType,
                dst: &mut MaybeUninit<Self::Lower>,
            ) -> wasmtime::Result<()> {
                let Self { $($field),* } = *self;
                dst.write([$($field.raw()),*]);
                Ok(())
            }

            #[inline]
            fn linear_lower_to_memory<T>(
                &self,
                cx: &mut LowerContext<'_, T>,
                ty: InterfaceType,
                offset: usize,
            ) -> wasmtime::Result<()> {
                Self::linear_store_list_to_memory(cx, ty, offset, std::slice::from_ref(self))
            }

            #[inline]
            fn linear_store_list_to_memory<T>(
                cx: &mut LowerContext<'_, T>,
                _: InterfaceType,
                offset: usize,
                rows: &[Self],
            ) -> wasmtime::Result<()> {
                let bytes = Self::bytes(rows);
                cx.as_slice_mut()[offset..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        }
    };
}

row!(RequestRow {
    now_us: u64,
    arrival_us: u64,
    deadline_us: u64,
    id: u32,
    input_tokens: u32,
    max_output_tokens: u32,
    prompt_blocks: u32,
    shared_blocks: u32,
    block_size: u32,
    urgency: i32,
    client_priority: i32,
    slo_class: u32,
    tenant: u32,
    session: u32,
    model: u32,
    client: u32,
    prefix_group: u32,
    round_index: u32,
    tenant_in_flight: u32,
});

row!(AgesRow { load_us: u64, cached_blocks_us: u64 });

row!(InstanceRow {
    kv_utilization: f64,
    cache_hit_rate: f64,
    preemption_count: u64,
    queue_depth: u32,
    batch_size: u32,
    in_flight: u32,
    cached_blocks: u32,
    free_kv_blocks: u32,
    total_kv_blocks: u32,
});

row!(QueuedRow { priority: i64, turn: i64, generated_tokens: u32, preemptions: u32 });

row!(RunningRow {
    arrival_us: u64,
    deadline_us: u64,
    priority: i64,
    id: u32,
    input_tokens: u32,
    computed_tokens: u32,
    generated_tokens: u32,
    kv_blocks: u32,
    preemptions: u32,
    urgency: i32,
    slo_class: u32,
    tenant: u32,
    session: u32,
});

row!(StepRow {
    prefill_requests: u64,
    prefill_tokens: u64,
    prefill_tokens_squared: u64,
    prefill_tokens_by_input: u64,
    prefill_tokens_by_context: u64,
    prefill_context: u64,
    decode_requests: u64,
    decode_context: u64,
});

row!(EventRow {
    at_us: u64,
    ttft_us: u64,
    e2e_us: u64,
    kind: u32,
    request: u32,
    instance: u32,
    input_tokens: u32,
    generated_tokens: u32,
    slo_class: u32,
    tenant: u32,
    session: u32,
    prefix_group: u32,
    block: u32,
});
