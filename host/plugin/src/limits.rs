//! What plugins may use up: every limit of the three hosts, with its unit and default.
//!
//! Deterministic limits come first: the same call meets them on every machine. The two that look at the clock are
//! the last resort and say so.

/// What a guest may use up. The caller may set these; the constants below are the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// WebAssembly instructions, roughly, per call (wasmtime's fuel).
    pub fuel_per_call: u64,
    /// Rhai operations per call.
    pub operations_per_call: u64,
    /// Linear memory, bytes.
    pub memory_bytes: usize,
    /// Nested calls of Rhai functions.
    pub call_depth: usize,
    /// Elements of a Rhai array or column, bytes of a string, entries of a map.
    pub collection_size: usize,
    /// Bytes of a saved state.
    pub state_bytes: usize,
    /// Bytes of a file that is loaded.
    pub file_bytes: u64,
    /// Bytes of text kept of one log line or error message.
    pub message_bytes: usize,
    /// Lines of log per guest; further ones are counted.
    pub log_lines: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel_per_call: 50_000_000,
            operations_per_call: 1_000_000,
            memory_bytes: 64 << 20,
            call_depth: 32,
            collection_size: 65_536,
            state_bytes: 16 << 20,
            file_bytes: 32 << 20,
            message_bytes: 4096,
            log_lines: 200,
        }
    }
}

// Of all plugins.

/// Parameters that a plugin may declare.
pub(crate) const PARAMETERS: usize = 256;
/// Bytes of the name of a library, a script, or one of their parameters.
pub(crate) const WORD_BYTES: usize = 100;
/// Longest duration that a latency model may answer, µs: a day. More is a mistake, and a few of them overflow the
/// clock.
pub(crate) const LONGEST_US: u64 = 24 * 3600 * 1_000_000;

// Of components.

/// Bytes of the name of a component or of a parameter, and of a version.
pub(crate) const NAME_BYTES: usize = 64;
/// Bytes of a line that says what something is.
pub(crate) const ABOUT_BYTES: usize = 500;
/// Bytes of everything that a component says about itself.
pub(crate) const DESCRIPTION_BYTES: usize = 256 << 10;
/// Bytes that a guest may hand over in one answer: all of its memory once.
pub(crate) const ANSWER_BYTES: usize = 64 << 20;
/// Fuel of one call to the host: about what it costs, so that such calls cannot stretch a decision.
pub(crate) const HOST_CALL_FUEL: u64 = 100;
/// Elements of all tables of a guest (functions that may be called through a pointer).
pub(crate) const TABLE_ELEMENTS: usize = 100_000;
/// Modules, tables and memories inside one component, with those that wit-component adds.
pub(crate) const COMPONENT_PARTS: usize = 100;
/// Frames of a backtrace that a message shows.
pub(crate) const FRAMES: usize = 5;
/// Characters of one line of it.
pub(crate) const FRAME_CHARACTERS: usize = 160;
/// Compiled plugins in the cache folder; beyond it, the older half is removed.
pub(crate) const COMPILED_FILES: usize = 512;

// Of scripts.

/// Bytes of a script. It is read by people; one of this size is not a script.
pub(crate) const SCRIPT_BYTES: u64 = 1 << 20;
/// Entries of an array or object map, those of arrays and maps inside counted. Far below
/// [`Limits::collection_size`], because an array in an array in an array … takes stack to drop, and the
/// interpreter counts such a value through at every change.
pub(crate) const ENTRIES: usize = 4096;
/// Variables of a function.
pub(crate) const VARIABLES: usize = 64;
/// Functions of a script.
pub(crate) const FUNCTIONS: usize = 256;
/// Nested expressions and blocks.
pub(crate) const NESTED_EXPRESSIONS: usize = 48;
/// Nested arrays and maps of a state that can be saved; what is nested deeper is a mistake.
pub(crate) const STATE_DEPTH: usize = 64;
/// Bytes that a script may have added to its state before its size is measured.
pub(crate) const UNMEASURED_BYTES: u64 = 4 << 20;
/// Numbers of columns handled for each operation allowed.
pub(crate) const NUMBERS_PER_OPERATION: u64 = 16;
/// Operations between looks at the clock.
pub(crate) const CLOCK_OPERATIONS: u64 = 256;
/// Seconds that no call of a script takes, whatever it does. The limit of operations comes first for all but scripts
/// that make every single one slow; those end here, and only they depend on the machine
/// ([`crate::FaultKind::OutOfTime`]).
pub(crate) const CALL_S: u64 = 10;
