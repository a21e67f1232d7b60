//! Resource limits of plugins: every limit of the three technologies, with its unit and default.
//!
//! The deterministic limits apply first: a call exceeds them on every machine or on none. The two limits of wall-clock
//! time are a last resort and are marked as such.

/// Resource limits of a guest. The caller may set these; the constants below are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// WebAssembly instructions per call, approximately (wasmtime's fuel).
    pub fuel_per_call: u64,
    /// Rhai operations per call.
    pub operations_per_call: u64,
    /// Size of the linear memory of a component; memory that one call of a script holds beyond its state, bytes.
    pub memory_bytes: usize,
    /// Depth of nested calls of Rhai functions.
    pub call_depth: usize,
    /// Elements of a column of a script.
    pub collection_size: usize,
    /// Size of a saved state, bytes.
    pub state_bytes: usize,
    /// Size of a file that is loaded, bytes.
    pub file_bytes: u64,
    /// Bytes kept of one log line or error message.
    pub message_bytes: usize,
    /// Lines of log per guest; further lines are only counted.
    pub log_lines: u32,
    /// Whether a component may be as large as one with the interpreter of Python or JavaScript inside: compiling it takes
    /// up to a minute. Otherwise the bounds are those of compiled languages, about a second.
    pub large_components: bool,
    /// Whether a file is only loaded to be listed beside many others: a component that takes longer to compile than the
    /// shipped ones is refused, unless [`Limits::large_components`] is set.
    pub listing: bool,
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
            large_components: false,
            listing: false,
        }
    }
}

// All plugins.

/// Parameters that a plugin may declare.
pub(crate) const PARAMETERS: usize = 256;
/// Numbers in the default of a parameter of a library that is a table.
pub(crate) const TABLE_NUMBERS: usize = 1 << 16;
/// Names of kinds, of columns, or of events that a plugin may list.
pub(crate) const DECLARED_NAMES: usize = 256;
/// Bytes of the name of a library, a script, or one of their parameters.
pub(crate) const WORD_BYTES: usize = 100;
/// Largest duration that a latency model may return, µs: one day. Larger values are mistakes, and a few of them
/// overflow the clock.
pub(crate) const LONGEST_US: u64 = 24 * 3600 * 1_000_000;
/// Largest constant of a latency model that is added once for every token, request or preemption, µs: one hour. A
/// thousand million tokens of it fit the clock.
pub(crate) const LONGEST_CONSTANT_US: u64 = 3600 * 1_000_000;

/// The smallest and the largest value of the constant `name` of a latency model, µs.
pub(crate) fn constant_range(name: &str) -> (u64, u64) {
    if name == "shortest_step_us" { (1, LONGEST_US) } else { (0, LONGEST_CONSTANT_US) }
}

// WebAssembly components.

/// Bytes of the name of a component or of a parameter, and of a version.
pub(crate) const NAME_BYTES: usize = 64;
/// Bytes of the one-line description of a policy or parameter.
pub(crate) const ABOUT_BYTES: usize = 500;
/// Total bytes of the description that a component returns.
pub(crate) const DESCRIPTION_BYTES: usize = 256 << 10;
/// Bytes that a guest may return in one result: all of its memory once.
pub(crate) const RESULT_BYTES: usize = 64 << 20;
/// Fuel of one call to the host: about its cost, so that such calls cannot make a decision arbitrarily slow.
pub(crate) const HOST_CALL_FUEL: u64 = 100;
/// Fuel of one call of `log`, whether its line is written or only counted: a decision has little to say.
pub(crate) const LOG_CALL_FUEL: u64 = 1000;
/// Elements of all tables of a guest (functions that are called through a pointer).
pub(crate) const TABLE_ELEMENTS: usize = 100_000;
/// Modules, tables and memories inside one component, including those that wit-component adds.
pub(crate) const COMPONENT_PARTS: usize = 100;
/// Frames of a backtrace in a message.
pub(crate) const FRAMES: usize = 5;
/// Characters of one line of the backtrace.
pub(crate) const FRAME_CHARACTERS: usize = 160;
/// What bounds the time and the memory that the compilation of a component takes: `wasm/effort.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeSize {
    /// Bytes of one function.
    FunctionBytes,
    /// Local variables of one function.
    FunctionLocals,
    /// Blocks, loops and conditions inside each other.
    Nesting,
    /// Bytes of code of all functions.
    CodeBytes,
    /// Cost of compiling all of it, about µs of a processor.
    CompileCost,
    /// Local variables × blocks × depth of nesting, summed over all functions: about the work of the compiler.
    CompileWork,
}

impl CodeSize {
    /// What it is, in words; the bound of all components, of which the largest shipped one has 154 functions and 57 kB of code; and
    /// that of components with an interpreter inside: see docs/plugin-languages.md for what those have.
    pub const fn bounds(self) -> (&'static str, u64, u64) {
        match self {
            Self::FunctionBytes => ("bytes of one function", 256 << 10, 4 << 20),
            Self::FunctionLocals => ("local variables of one function", 5000, 20_000),
            Self::Nesting => ("nested blocks", 250, 5000),
            Self::CodeBytes => ("bytes of code", 8 << 20, 32 << 20),
            Self::CompileCost => (
                "µs of compilation, about: 350 for a function, 25 for a block, 15 for a call, 3 for another instruction",
                1_500_000,
                60_000_000,
            ),
            Self::CompileWork => ("local variables × blocks × nesting, over all functions", 4_000_000, 400_000_000),
        }
    }
}

/// [`CodeSize::CompileCost`] of a file that is only listed: what the largest shipped component costs.
const LISTED_COMPILE_COST: u64 = 250_000;
/// What a file declares, over all modules and components in it: `wasm/parts.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclaredPart {
    /// Sections, custom ones among them.
    Sections,
    /// Types, of core modules and of components, and declarations inside types.
    Types,
    Imports,
    Exports,
    /// Functions with code, and those that components lift and lower.
    Functions,
    Tables,
    Memories,
    Globals,
    /// Segments of data and of elements.
    Segments,
    Tags,
    /// Modules and components, the outermost one included.
    Modules,
    Instances,
    Aliases,
    /// Types in the types of components, each counted as often as it is used: the size of all trees.
    TypeNodes,
    /// Bytes of all sections but code, data and custom ones.
    DeclarationBytes,
    /// Modules, components and types of components inside each other.
    Nesting,
    /// Parameters of one function of a core module, and results.
    FunctionValues,
}

impl DeclaredPart {
    /// Number of the parts.
    pub const COUNT: usize = Self::FunctionValues as usize + 1;

    /// What is counted, in words; how many of it a component may have, about ten times what the largest shipped ones have; and
    /// how many one with an interpreter inside: linked libraries have thousands of imports.
    const fn bounds(self) -> (&'static str, u64, u64) {
        match self {
            Self::Sections => ("sections", 2000, 20_000),
            Self::Types => ("types", 2000, 20_000),
            Self::Imports => ("imports", 1000, 20_000),
            Self::Exports => ("exports", 1000, 50_000),
            Self::Functions => ("functions", 20_000, 200_000),
            Self::Tables => ("tables", 100, 100),
            Self::Memories => ("memories", 100, 100),
            Self::Globals => ("globals", 1000, 50_000),
            Self::Segments => ("segments of data and elements", 2000, 100_000),
            Self::Tags => ("tags", 100, 1000),
            Self::Modules => ("modules and components", 100, 500),
            Self::Instances => ("instances", 500, 1000),
            Self::Aliases => ("aliases", 1000, 50_000),
            Self::TypeNodes => {
                ("types in the types that it uses, each counted as often as it is used", 100_000, 1_000_000)
            }
            Self::DeclarationBytes => ("bytes of declarations", 512 << 10, 8 << 20),
            Self::Nesting => ("modules, components or types nested", 8, 16),
            Self::FunctionValues => ("parameters or results", 100, 1000),
        }
    }
}

impl Limits {
    /// How much `size` the code of a component may have.
    pub(crate) fn code(&self, size: CodeSize) -> u64 {
        let (_, usual, large) = size.bounds();
        match (self.large_components, self.listing && size == CodeSize::CompileCost) {
            (true, _) => large,
            (false, true) => LISTED_COMPILE_COST,
            (false, false) => usual,
        }
    }

    /// What is counted as `part`, in words, and how many of it a component may have.
    pub(crate) fn part(&self, part: DeclaredPart) -> (&'static str, u64) {
        let (what, usual, large) = part.bounds();
        (what, if self.large_components { large } else { usual })
    }
}

/// Compiled plugins in the cache folder; when there are more, the older half is removed.
pub(crate) const COMPILED_FILES: usize = 512;
/// Bytes of the compiled plugins in the cache folder; when there are more, the oldest are removed, down to half.
pub(crate) const COMPILED_BYTES: u64 = 512 << 20;

// Scripts.

/// Bytes of a script. A script is source code written for people; a file of this size is not one.
pub(crate) const SCRIPT_BYTES: u64 = 256 << 10;
/// Words, numbers, texts and signs of a script, comments aside: the time of compiling it grows with their square.
pub(crate) const SCRIPT_TOKENS: usize = 50_000;
/// The same with the values of constants instead of their names. The compiler puts them there, and a constant of two others
/// is as large as both.
pub(crate) const EXPANDED_TOKENS: usize = 250_000;
/// Constants of a script.
pub(crate) const CONSTANTS: usize = 256;
/// Parameters of a function of a script.
pub(crate) const FUNCTION_PARAMETERS: usize = 32;
/// Entries of an array or object map, including those of nested arrays and maps. Far below [`Limits::collection_size`],
/// because dropping deeply nested arrays takes stack, and the interpreter counts all entries of such a value at every
/// change.
pub(crate) const ENTRIES: usize = 4096;
/// Bytes of a text. Assigning to a part of one takes the square of its length.
pub(crate) const TEXT_BYTES: usize = 8192;
/// Numbers of a column, and entries of a table, in the text of one.
pub(crate) const SHOWN_NUMBERS: usize = 256;
/// Depth of nested arrays and object maps in the text of one; of those deeper inside it says `[…]`.
pub(crate) const SHOWN_DEPTH: usize = 64;
/// Variables that a function declares, one after the other in blocks of its own too: the compiler takes the square of them.
pub(crate) const DECLARED_VARIABLES: usize = 2000;
/// Variables of a function at a time.
pub(crate) const VARIABLES: usize = 64;
/// Functions of a script.
pub(crate) const FUNCTIONS: usize = 256;
/// Depth of nested expressions and blocks.
pub(crate) const NESTED_EXPRESSIONS: usize = 48;
/// Depth of nested arrays and maps in a state that can be saved; deeper nesting is a mistake.
pub(crate) const STATE_DEPTH: usize = 64;
/// Bytes that a script may have added to its state before the size of the state is measured again.
pub(crate) const UNMEASURED_BYTES: u64 = 4 << 20;
/// Values of the state of a script that are checked for each call, on average: one with no more is checked after each.
pub(crate) const VALUES_CHECKED: u64 = 16;
/// Operations of a call for each further value that is checked.
pub(crate) const STEPS_PER_VALUE: u64 = 4;
/// Column elements that may be processed per allowed operation.
pub(crate) const NUMBERS_PER_OPERATION: u64 = 16;
/// Column elements that one call of `log` counts as, whether its line is written or only counted.
pub(crate) const LOG_NUMBERS: usize = 1000;
/// Column elements that one row counts as in a loop over the cluster.
pub(crate) const ROW_NUMBERS: usize = 128;
/// Column elements that a comparison by a script's function counts as, in sorting.
pub(crate) const COMPARISON_NUMBERS: usize = 400;
/// Bytes that a call of a script may allocate per allowed operation, freed again or not: copies take time.
pub(crate) const BYTES_PER_OPERATION: u64 = 1024;
/// Bytes of the text of a fault of a script, in which names of the script may be.
pub(crate) const FAULT_BYTES: usize = 8192;
/// Operations between two checks of memory. One operation allocates about a mebibyte; the one at which a call exceeds a limit may
/// allocate 700 MiB, piece by piece for a text of at most 0.2 MiB: if it is within `${…}`, the engine writes a nested value
/// itself.
pub(crate) const MEMORY_OPERATIONS: u64 = 8;
/// Bytes of arrays and object maps that count as one column element at each operation: the interpreter may look at all of them.
/// In loops over the largest array that is 24 elements for each operation.
pub(crate) const BYTES_PER_NUMBER: u64 = 2048;
/// Bytes of arrays and object maps, of the state and of a call, that are free.
pub(crate) const UNCHARGED_BYTES: u64 = 16 << 10;
/// Operations between two checks of the wall clock.
pub(crate) const CLOCK_OPERATIONS: u64 = 256;
/// Seconds that a call of a script may take. The limit of operations applies first, except for scripts that make every
/// single operation slow. Those end here, and only for those the outcome depends on the machine
/// ([`crate::FaultKind::OutOfTime`]). Unit tests, unoptimised on a busy machine, must not.
pub(crate) const CALL_S: u64 = if cfg!(test) { 3600 } else { 6 };
