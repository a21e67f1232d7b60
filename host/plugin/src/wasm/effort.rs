//! Bounds on the code that the compiler is given: its time and memory grow faster than the code.
//!
//! Where control flow joins (the head of a loop, the end of a block), the compiler may need a new value for each local
//! variable, in every block around it: its work was measured to grow about as locals × joins × nesting. A module of 19 kB
//! with a thousand locals in nested loops took a minute and a gigabyte. The largest function of the shipped components has
//! 870 × 15 of the four million that all functions together may have. Apart from that, each function and each instruction
//! takes its time, each block more than others: 250 µs in a function of few blocks, and more the more blocks, loops above all, its
//! function has.
//!
//! Several values that one instruction takes or leaves count as well: a call with a hundred results is a hundred instructions, and
//! so is each target of a branch that passes them on.

use wasmparser::{BlockType, CompositeInnerType, FunctionBody, Operator, Parser, Payload, TypeRef};

use super::PluginPath;
use super::inspect::malformed;
use crate::limits::CodeSize;
use crate::{Fault, FaultKind, Limits};

/// Cost of a function, empty or not, about µs of a processor: 19 000 empty ones took 6.7 s.
const FUNCTION_COST: u64 = 350;
/// Cost of a call in the code: 60 000 took 0.9 s.
const CALL_COST: u64 = 15;
/// Cost of any other instruction: 120 000 took 0.4 s.
const INSTRUCTION_COST: u64 = 3;
/// Cost of each value that a call, a block or a branch passes on.
const VALUE_COST: u64 = 3;
/// Cost of a block, a loop or a condition beside that of its instructions.
const JOIN_COST: u64 = 25;
/// Of so many pairs of joins of one function each costs 1, and of pairs of a loop and a join: the compiler looks from each at the others.
const PAIRS_OF_JOINS: u64 = 40;
const PAIRS_WITH_A_LOOP: u64 = 12;
/// Joins in the code made for an instruction that uses a table: its elements are filled in at their first use.
const JOINS_OF_TABLES: u64 = 2;
/// Cost of each target of a table of branches.
const TARGET_COST: u64 = 1;

/// Refuses `bytes`, a module or a component, if compiling it could take too long.
///
/// # Errors
/// If it is not WebAssembly, or exceeds one of the bounds.
pub(super) fn check(file: &PluginPath, bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
    let refused = |found: &[(CodeSize, u64)]| -> Result<(), Fault> {
        let Some(&(size, over)) = found.iter().find(|(size, found)| *found > limits.code(*size)) else {
            return Ok(());
        };
        let (what, most) = (size.bounds().0, limits.code(size));
        let fault = file.fault(FaultKind::OutOfFuel, format_args!("has {over} {what}; the compiler takes {most}"));
        let is_usual = found.iter().all(|(size, found)| *found <= size.bounds().1);
        Err(match (limits.large_components, limits.listing && is_usual) {
            (true, _) => fault,
            (false, true) => fault.hint(LISTED),
            (false, false) => fault.hint(LARGE),
        })
    };
    let broken = |error: wasmparser::BinaryReaderError| malformed(file, &error);
    let (mut cost, mut code, mut work) = (0_u64, 0_u64, 0_u64);
    let mut signatures = Signatures::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(broken)?;
        let Payload::CodeSectionEntry(body) = payload else {
            signatures.add(&payload).map_err(broken)?;
            continue;
        };
        let size = body.range().len() as u64;
        code += size;
        // The size first: reading a large function takes time as well.
        refused(&[(CodeSize::FunctionBytes, size), (CodeSize::CodeBytes, code)])?;
        let FunctionWork { locals, joins, loops, nesting, instructions } =
            signatures.measured(&body).map_err(broken)?;
        let pairs = joins * joins / PAIRS_OF_JOINS + joins * loops / PAIRS_WITH_A_LOOP;
        cost = cost.saturating_add(FUNCTION_COST + instructions + JOIN_COST * joins + pairs);
        work = work.saturating_add(locals.saturating_mul(joins).saturating_mul(nesting));
        refused(&[
            (CodeSize::FunctionLocals, locals),
            (CodeSize::Nesting, nesting),
            (CodeSize::CompileCost, cost),
            (CodeSize::CompileWork, work),
        ])?;
    }
    Ok(())
}

/// What to do about a component that only [`Limits::large_components`] allows.
const LARGE: &str = "split functions, and optimise for size; a component with an interpreter inside (Python, JavaScript) needs \
                     `--allow-large-components`";

/// What to do about a component that takes too long to compile beside others.
const LISTED: &str = "`blis plugin check FILE` reads a file alone, with more time";

/// What the compiler's work on a function depends on.
#[derive(Default)]
struct FunctionWork {
    locals: u64,
    /// Blocks, loops and conditions.
    joins: u64,
    loops: u64,
    nesting: u64,
    /// Cost of its instructions.
    instructions: u64,
}

/// How many values the functions of the current module take and leave.
#[derive(Default)]
struct Signatures {
    /// Parameters and results of each type; none of those that are not of functions.
    types: Vec<(u64, u64)>,
    /// Types of the functions, imported ones first.
    functions: Vec<u32>,
    imported: usize,
    /// Bodies read so far.
    bodies: usize,
}

impl Signatures {
    fn add(&mut self, payload: &Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::Version { .. } => *self = Self::default(),
            Payload::TypeSection(section) => {
                for group in section.clone() {
                    self.types.extend(group?.types().map(|kind| match &kind.composite_type.inner {
                        CompositeInnerType::Func(f) => (f.params().len() as u64, f.results().len() as u64),
                        _ => (0, 0),
                    }));
                }
            }
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    if let TypeRef::Func(kind) | TypeRef::FuncExact(kind) = import?.ty {
                        self.functions.push(kind);
                    }
                }
                self.imported = self.functions.len();
            }
            Payload::FunctionSection(section) => {
                for kind in section.clone() {
                    self.functions.push(kind?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Parameters and results of a type.
    fn of_type(&self, kind: u32) -> (u64, u64) {
        self.types.get(kind as usize).copied().unwrap_or_default()
    }

    fn of_function(&self, index: u32) -> (u64, u64) {
        self.functions.get(index as usize).map_or((0, 0), |&kind| self.of_type(kind))
    }

    fn measured(&mut self, body: &FunctionBody<'_>) -> wasmparser::Result<FunctionWork> {
        let own = u32::try_from(self.imported + self.bodies).unwrap_or(u32::MAX);
        self.bodies += 1;
        let (parameters, results) = self.of_function(own);
        let mut function =
            FunctionWork { instructions: VALUE_COST * (parameters + results), ..FunctionWork::default() };
        for locals in body.get_locals_reader()? {
            function.locals += u64::from(locals?.0);
        }
        // The most values that a branch may pass on.
        let mut widest = results;
        let mut depth = 0_u64;
        for operator in body.get_operators_reader()? {
            let operator = operator?;
            function.instructions += match operator {
                Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                    let (parameters, results) = self.of_function(function_index);
                    CALL_COST + VALUE_COST * (parameters + results)
                }
                Operator::CallIndirect { type_index, .. }
                | Operator::ReturnCallIndirect { type_index, .. }
                | Operator::CallRef { type_index }
                | Operator::ReturnCallRef { type_index } => {
                    let (parameters, results) = self.of_type(type_index);
                    function.joins += JOINS_OF_TABLES;
                    CALL_COST + VALUE_COST * (parameters + results)
                }
                // Calls of the host.
                Operator::MemoryCopy { .. }
                | Operator::MemoryFill { .. }
                | Operator::MemoryInit { .. }
                | Operator::MemoryGrow { .. } => CALL_COST,
                Operator::TableCopy { .. }
                | Operator::TableFill { .. }
                | Operator::TableInit { .. }
                | Operator::TableGrow { .. }
                | Operator::TableGet { .. }
                | Operator::TableSet { .. } => {
                    function.joins += JOINS_OF_TABLES;
                    CALL_COST
                }
                Operator::Br { .. } | Operator::BrIf { .. } | Operator::Return => {
                    INSTRUCTION_COST + VALUE_COST * widest
                }
                Operator::BrTable { ref targets } => {
                    let targets = u64::from(targets.len()) + 1;
                    INSTRUCTION_COST + targets * (TARGET_COST + VALUE_COST * widest)
                }
                Operator::Block { blockty } | Operator::Loop { blockty } | Operator::If { blockty } => {
                    let (parameters, results) = match blockty {
                        BlockType::Empty => (0, 0),
                        BlockType::Type(_) => (0, 1),
                        BlockType::FuncType(kind) => self.of_type(kind),
                    };
                    widest = widest.max(parameters).max(results);
                    function.joins += 1;
                    function.loops += u64::from(matches!(operator, Operator::Loop { .. }));
                    depth += 1;
                    function.nesting = function.nesting.max(depth);
                    INSTRUCTION_COST + VALUE_COST * (parameters + results)
                }
                Operator::End => {
                    depth = depth.saturating_sub(1);
                    INSTRUCTION_COST
                }
                _ => INSTRUCTION_COST,
            };
        }
        Ok(function)
    }
}
