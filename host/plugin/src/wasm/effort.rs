//! Bounds on the code that the compiler is given: its time and memory grow faster than the code.
//!
//! Where control flow joins (the head of a loop, the end of a block), the compiler may need a new value for each local
//! variable, in every block around it: its work was measured to grow about as locals × joins × nesting. A module of 19 kB
//! with a thousand locals in nested loops took a minute and a gigabyte. The largest function of the shipped components has
//! 870 × 15 of the four million that all functions together may have. Apart from that, each function and each instruction
//! takes its time.

use wasmparser::{FunctionBody, Operator, Parser, Payload};

use super::PluginPath;
use crate::limits::{CODE, CodeBounds, LARGE_CODE};
use crate::{Fault, FaultKind, Limits};

/// Cost of a function, empty or not, about µs of a processor: 19 000 empty ones took 6.7 s.
const FUNCTION_COST: u64 = 350;
/// Cost of a call in the code: 60 000 took 0.9 s.
const CALL_COST: u64 = 15;
/// Cost of any other instruction: 120 000 took 0.4 s.
const INSTRUCTION_COST: u64 = 3;

/// Refuses `bytes`, a module or a component, if compiling it could take too long.
///
/// # Errors
/// If it is not WebAssembly, or exceeds one of the bounds.
pub(super) fn check(file: &PluginPath, bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
    let most = if limits.large_components { LARGE_CODE } else { CODE };
    let (mut cost, mut code, mut work) = (0_u64, 0_u64, 0_u64);
    for payload in Parser::new(0).parse_all(bytes) {
        let Payload::CodeSectionEntry(body) = payload.map_err(|error| super::inspect::malformed(file, &error))? else {
            continue;
        };
        let Function { locals, joins, nesting, instructions } =
            measured(&body).map_err(|error| super::inspect::malformed(file, &error))?;
        let size = body.range().len() as u64;
        cost = cost.saturating_add(FUNCTION_COST).saturating_add(instructions);
        code += size;
        work = work.saturating_add(locals.saturating_mul(joins).saturating_mul(nesting));
        let found = CodeBounds {
            code_bytes: code,
            compile_cost: cost,
            compile_work: work,
            function_bytes: size,
            function_locals: locals,
            nesting,
        };
        if let Some(what) = exceeded(&found, &most) {
            let fault = file.fault(FaultKind::OutOfFuel, what);
            return Err(if limits.large_components { fault } else { fault.hint(LARGE) });
        }
    }
    Ok(())
}

/// What to do about a component that only [`Limits::large_components`] allows.
const LARGE: &str = "split functions, and optimise for size; a component with an interpreter inside (Python, JavaScript) needs \
                     `--allow-large-components`, in a suite `large_components: true` among its `limits`";

/// The first bound that `found` exceeds, in words.
fn exceeded(found: &CodeBounds, most: &CodeBounds) -> Option<String> {
    let bounds = [
        (found.function_bytes, most.function_bytes, "bytes of one function"),
        (found.function_locals, most.function_locals, "local variables of one function"),
        (found.nesting, most.nesting, "nested blocks"),
        (found.code_bytes, most.code_bytes, "bytes of code"),
        (
            found.compile_cost,
            most.compile_cost,
            "µs of compilation, about: 350 for a function, 15 for a call, 3 for another instruction",
        ),
        (found.compile_work, most.compile_work, "local variables × blocks × nesting, over all functions"),
    ];
    let (found, most, what) = bounds.into_iter().find(|(found, most, _)| found > most)?;
    Some(format!("has {found} {what}; the compiler takes {most}"))
}

/// What the compiler's work on a function depends on.
#[derive(Default)]
struct Function {
    locals: u64,
    /// Blocks, loops and branches of conditions.
    joins: u64,
    /// Largest number of blocks inside each other.
    nesting: u64,
    /// Cost of its instructions.
    instructions: u64,
}

fn measured(body: &FunctionBody<'_>) -> wasmparser::Result<Function> {
    let mut function = Function::default();
    for locals in body.get_locals_reader()? {
        function.locals += u64::from(locals?.0);
    }
    let mut depth = 0_u64;
    for operator in body.get_operators_reader()? {
        let operator = operator?;
        let is_call = matches!(operator, Operator::Call { .. } | Operator::CallIndirect { .. });
        function.instructions += if is_call { CALL_COST } else { INSTRUCTION_COST };
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                function.joins += 1;
                depth += 1;
                function.nesting = function.nesting.max(depth);
            }
            Operator::End => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(function)
}
