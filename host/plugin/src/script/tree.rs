//! The syntax tree of a function of a script.

use rhai::{AST, ASTNode, Stmt};

/// Calls `visit` for the statements of the function `name` of so many arguments, in their order, until it returns false; returns
/// what the latest call did.
pub(crate) fn each_statement(ast: &AST, name: &str, arguments: usize, mut visit: impl FnMut(&Stmt) -> bool) -> bool {
    let mut only = ast.clone_functions_only();
    only.retain_functions(|_, _, known, takes| known == name && takes == arguments);
    only.walk(&mut |path| match path {
        [ASTNode::Stmt(statement)] => visit(statement),
        // What is inside of statements is walked through as well.
        _ => true,
    })
}
