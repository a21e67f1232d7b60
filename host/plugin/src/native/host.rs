//! The host functions that a library may call: `blis_host` of `sdk/c/blis_policy.h`.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::sync::Arc;

use blis_abi::table::{self, CText};
use blis_sim::ids::RequestId;
use blis_sim::policy::{RequestView, Ties};
use blis_sim::rng::{Generator, Stream};
use rand::Rng as _;

use crate::text::plain;
use crate::{GuestSetup, Limits};

/// The host functions of one guest. It does not move: the library holds its address.
pub(super) struct NativeHost {
    table: table::CHost,
}

/// The data behind the host functions.
struct HostContext {
    names: Arc<[Box<str>]>,
    stream: Stream,
    file: Arc<str>,
    limits: Limits,
    call: RefCell<NativeCall>,
    log_lines: RefCell<u32>,
}

/// The call in progress.
#[derive(Default)]
struct NativeCall {
    /// Index in the random-number stream of the guest.
    item: u64,
    /// Valid during the call only.
    request: Option<*const RequestView<'static>>,
    ties: Option<Ties>,
    generator: Option<Generator>,
    blocks: Vec<u32>,
    /// Rows that may differ from those of the previous call, valid during the call; `None` if any may.
    changed: Option<*const [u32]>,
    failed: Option<String>,
}

/// The input of a call as far as host functions need it.
#[derive(Clone, Copy, Default)]
pub(super) struct NativeCallInput<'a> {
    pub item: u64,
    pub request: Option<&'a RequestView<'a>>,
    pub ties: Option<&'a Ties>,
    /// Indices of the rows that may differ from those of the previous call; `None` if any may.
    pub changed: Option<&'a [u32]>,
}

impl NativeCallInput<'_> {
    /// A call about no request, or about a request of which only the number is known.
    pub fn item(item: u64) -> Self {
        Self { item, ..Self::default() }
    }
}

impl NativeHost {
    pub fn new(file: &Arc<str>, setup: &GuestSetup) -> Self {
        let context = Box::new(HostContext {
            names: Arc::clone(&setup.names),
            stream: setup.stream,
            file: Arc::clone(file),
            limits: setup.limits,
            call: RefCell::default(),
            log_lines: RefCell::default(),
        });
        let context = Box::into_raw(context).cast::<c_void>();
        Self { table: table::CHost { context, log, fail, random, pick, prompt_blocks, text, changed } }
    }

    /// Runs `call` with the address of the host functions. An error is the reason that the library passed to `fail`.
    pub fn during<T>(
        &self,
        about: NativeCallInput<'_>,
        call: impl FnOnce(*const table::CHost) -> T,
    ) -> Result<T, String> {
        {
            let mut current = self.context().call.borrow_mut();
            current.item = about.item;
            // The lifetime is erased by pointers, which are cleared below before their targets end.
            current.request = about.request.map(|request| std::ptr::from_ref(request).cast::<RequestView<'static>>());
            current.ties = about.ties.copied();
            current.changed = about.changed.map(std::ptr::from_ref);
            current.generator = None;
            current.failed = None;
        }
        let result = call(&raw const self.table);
        let mut current = self.context().call.borrow_mut();
        current.request = None;
        current.changed = None;
        current.failed.take().map_or(Ok(result), Err)
    }

    fn context(&self) -> &HostContext {
        // SAFETY: made by `Box::into_raw` in `new` and freed in `drop`; only shared references exist.
        unsafe { &*self.table.context.cast::<HostContext>() }
    }
}

impl Drop for NativeHost {
    fn drop(&mut self) {
        let context = self.context();
        let (lines, most) = (*context.log_lines.borrow(), context.limits.log_lines);
        if lines > most {
            tracing::warn!("{}: {} more lines of log were left out", context.file, lines - most);
        }
        // SAFETY: made by `Box::into_raw` in `new`, freed nowhere else, and not used afterwards.
        drop(unsafe { Box::from_raw(self.table.context.cast::<HostContext>()) });
    }
}

impl Debug for NativeHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeHost").field("file", &self.context().file).finish_non_exhaustive()
    }
}

/// A copy of at most `most` bytes of `text`, on one line and without control characters.
///
/// # Safety
/// `text` is empty, or points to as many readable bytes as its length.
pub(super) unsafe fn copied(text: CText, most: usize) -> String {
    if text.data.is_null() || text.len == 0 {
        return String::new();
    }
    // SAFETY: the caller guarantees that these bytes are readable.
    let bytes = unsafe { std::slice::from_raw_parts(text.data, text.len.min(most.saturating_add(1))) };
    plain(&String::from_utf8_lossy(bytes), most)
}

/// The context behind the pointer that the library passes.
///
/// # Safety
/// `context` is the one of a [`NativeHost`] that is alive.
unsafe fn known<'a>(context: *mut c_void) -> &'a HostContext {
    // SAFETY: the header requires `host->context`, which `NativeHost` keeps alive during calls.
    unsafe { &*context.cast::<HostContext>() }
}

// The functions of the table. None of them may panic, because a panic would abort the program.

unsafe extern "C" fn log(context: *mut c_void, level: u32, message: CText) {
    // SAFETY: the header requires valid arguments, for both.
    let (context, message) = unsafe {
        let context = known(context);
        (context, copied(message, context.limits.message_bytes))
    };
    let mut lines = context.log_lines.borrow_mut();
    *lines = lines.saturating_add(1);
    if *lines > context.limits.log_lines {
        return;
    }
    let file = &context.file;
    match level {
        0 => tracing::error!("{file}: {message}"),
        1 => tracing::warn!("{file}: {message}"),
        2 => tracing::info!("{file}: {message}"),
        _ => tracing::debug!("{file}: {message}"),
    }
}

unsafe extern "C" fn fail(context: *mut c_void, message: CText) {
    // SAFETY: the header requires valid arguments, for both.
    let (context, message) = unsafe {
        let context = known(context);
        (context, copied(message, context.limits.message_bytes))
    };
    // The first reason is the cause; later ones follow from it.
    context.call.borrow_mut().failed.get_or_insert(message);
}

unsafe extern "C" fn random(context: *mut c_void) -> u64 {
    // SAFETY: the header requires a valid context.
    let context = unsafe { known(context) };
    let mut call = context.call.borrow_mut();
    let item = call.item;
    call.generator.get_or_insert_with(|| context.stream.at(item)).next_u64()
}

unsafe extern "C" fn pick(context: *mut c_void, n: u32) -> u32 {
    // SAFETY: the header requires a valid context.
    let mut call = unsafe { known(context) }.call.borrow_mut();
    if n == 0 {
        call.failed.get_or_insert_with(|| "`pick` was called with 0 choices".to_owned());
        return 0;
    }
    // The number is below n, hence a u32.
    let id = RequestId(call.item as u32);
    call.ties.map_or(0, |ties| ties.pick(id, n as usize) as u32)
}

unsafe extern "C" fn prompt_blocks(context: *mut c_void, blocks: *mut *const u32) -> usize {
    // SAFETY: the header requires a valid context.
    let mut call = unsafe { known(context) }.call.borrow_mut();
    call.blocks.clear();
    if let Some(request) = call.request {
        // SAFETY: `during` sets it for the length of the call, which is in progress.
        let request = unsafe { &*request };
        call.blocks.extend(request.shared_blocks());
    }
    if !blocks.is_null() {
        // SAFETY: the header requires space for a pointer.
        unsafe { blocks.write(call.blocks.as_ptr()) };
    }
    call.blocks.len()
}

unsafe extern "C" fn text(context: *mut c_void, name: u32) -> CText {
    // SAFETY: the header requires a valid context.
    let context = unsafe { known(context) };
    context.names.get(name as usize).map_or(CText::EMPTY, |text| CText::of(text))
}

unsafe extern "C" fn changed(context: *mut c_void, indices: *mut *const u32) -> usize {
    // SAFETY: the header requires a valid context.
    let call = unsafe { known(context) }.call.borrow();
    let Some(changed) = call.changed else { return usize::MAX };
    if !indices.is_null() {
        // SAFETY: the header requires space for a pointer.
        unsafe { indices.write(changed.cast()) };
    }
    changed.len()
}
