//! Texts that the compiler evaluates because all in them is constant: a number inside of an array or object map must not look
//! otherwise than when a run writes it.

use std::collections::BTreeMap;

use rhai::{AST, ASTNode, Expr};

use super::call::ScriptConstants;
use super::errors::ScriptSource;
use super::scan::{interpolated_text, words};
use super::texts::{exact_text_of_number, text_of_number};
use crate::{Fault, FaultKind};

/// Refuses texts of nothing but constants with an array or object map in them, which the compiler evaluates, if it writes a
/// number of theirs in another way than a run.
///
/// # Errors
/// The first such text.
pub(super) fn check(source: &ScriptSource, ast: &AST, constants: &ScriptConstants) -> Result<(), Fault> {
    if !source.text.contains("${") {
        return Ok(());
    }
    let mut suspects = BTreeMap::new();
    ast.walk(&mut |nodes| {
        let (text, position) = match nodes.last() {
            Some(ASTNode::Expr(Expr::StringConstant(text, position))) => (Some(text.clone()), *position),
            // The argument of a function.
            Some(ASTNode::Expr(Expr::DynamicConstant(value, position))) => {
                (value.as_immutable_string_ref().ok().map(|text| text.clone()), *position)
            }
            _ => return true,
        };
        if text.is_some_and(|text| has_other_numbers(&text)) {
            suspects.insert((position.line(), position.position()), position);
        }
        true
    });
    if suspects.is_empty() {
        return Ok(());
    }
    let is_large =
        |word: &str| constants.iter().any(|(name, value)| name == word && (value.is_array() || value.is_map()));
    let (mut line, mut column) = (1, 1);
    for (at, c) in source.text.char_indices() {
        if c == '`'
            && let Some(&position) = suspects.get(&(Some(line), Some(column)))
        {
            let rest = &source.text[at..];
            let written = &rest[..interpolated_text(rest).0];
            if written.contains("${") && (written.contains(['[', '#']) || words(written).any(is_large)) {
                let text = "numbers of this array or object map would be written in another way than elsewhere, because the \
                            whole text is constant: write a variable into it, as in let list = [1e15]; log(`${list}`)";
                return Err(source.fault_by(FaultKind::Syntax, position, text));
            }
        }
        (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    Ok(())
}

/// Whether `text` has a number as Rust's debugging output writes it, and [`text_of_number`] does not.
fn has_other_numbers(text: &str) -> bool {
    let is_sign = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '+');
    text.split(is_sign).any(|word| {
        let number = word.parse().ok().filter(|_| word.contains(['.', 'e']));
        number.is_some_and(|x| exact_text_of_number(x) == word && text_of_number(x) != word)
    })
}
