//! Expressions as scripts have them, for programs that read what others propose: numbers, names, fields and functions.

use rhai::{ASTNode, Engine, Expr, OptimizationLevel, Position, Stmt};

/// Nested expressions that are read.
const DEPTH_MAX: usize = 128;
/// Length of a text that is read, bytes. It limits the depth of sums, which the parser does not count.
const TEXT_MAX: usize = 4096;

/// An expression, with where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptExpression {
    /// Line and column, from 1.
    pub at: (usize, usize),
    pub form: ExpressionForm,
}

/// The forms of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionForm {
    Number(f64),
    /// A variable, or a field of one, as `s.queue_depth`.
    Name(String),
    /// A function or an operator by its name, as `min` and `+`, with its arguments.
    Call(String, Vec<ScriptExpression>),
}

/// Why a text is none of these expressions: `line:column: message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}: {message}", at.0, at.1)]
pub struct ExpressionError {
    /// Line and column, from 1.
    pub at: (usize, usize),
    pub message: String,
}

/// Reads an expression of at most 4096 bytes. Nothing is evaluated.
///
/// # Errors
/// If it is no expression, or has other parts than numbers, names, fields and functions.
pub fn expression(text: &str) -> Result<ScriptExpression, ExpressionError> {
    if text.len() > TEXT_MAX {
        let message = format!("{} bytes are more than the {TEXT_MAX} of an expression", text.len());
        return Err(ExpressionError { at: (1, 1), message });
    }
    if text.trim().is_empty() {
        return Err(refused(Position::NONE, NOTHING));
    }
    let mut engine = Engine::new_raw();
    engine.set_optimization_level(OptimizationLevel::None).set_max_expr_depths(DEPTH_MAX, DEPTH_MAX);
    let read = engine.compile_expression(text);
    let ast = read.map_err(|error| refused(error.position(), &error.err_type().to_string()))?;
    let mut found = None;
    ast.walk(&mut |path| {
        if let [ASTNode::Stmt(statement)] = path {
            found = Some(whole(statement));
        }
        false
    });
    found.unwrap_or_else(|| Err(refused(Position::NONE, NOTHING)))
}

fn whole(statement: &Stmt) -> Result<ScriptExpression, ExpressionError> {
    match statement {
        Stmt::Expr(value) => read(value),
        Stmt::FnCall(call, at) => called(&call.name, &call.args, *at),
        other => Err(refused(other.position(), OTHER)),
    }
}

const NOTHING: &str = "there is no expression";
const OTHER: &str = "only numbers, names, fields and functions are read";

fn read(value: &Expr) -> Result<ScriptExpression, ExpressionError> {
    let at = value.start_position();
    let form = match value {
        Expr::FloatConstant(number, _) => ExpressionForm::Number(**number),
        #[allow(clippy::cast_precision_loss)]
        Expr::IntegerConstant(number, _) => ExpressionForm::Number(*number as f64),
        Expr::Variable(name, ..) => ExpressionForm::Name(name.1.to_string()),
        Expr::FnCall(call, at) => return called(&call.name, &call.args, *at),
        Expr::Dot(chain, ..) => match (&chain.lhs, &chain.rhs) {
            (Expr::Variable(name, ..), Expr::Property(field, _)) => {
                ExpressionForm::Name(format!("{}.{}", name.1, field.2))
            }
            (_, other) => return Err(refused(other.start_position(), OTHER)),
        },
        _ => return Err(refused(at, OTHER)),
    };
    Ok(ScriptExpression { at: line_and_column(at), form })
}

fn called(name: &str, arguments: &[Expr], at: Position) -> Result<ScriptExpression, ExpressionError> {
    let arguments = arguments.iter().map(read).collect::<Result<_, _>>()?;
    Ok(ScriptExpression { at: line_and_column(at), form: ExpressionForm::Call(name.to_owned(), arguments) })
}

fn refused(at: Position, message: &str) -> ExpressionError {
    ExpressionError { at: line_and_column(at), message: message.to_owned() }
}

fn line_and_column(at: Position) -> (usize, usize) {
    (at.line().unwrap_or(1), at.position().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expression with every function in front of its arguments.
    fn shown(read: &ScriptExpression) -> String {
        match &read.form {
            ExpressionForm::Number(number) => number.to_string(),
            ExpressionForm::Name(name) => name.clone(),
            ExpressionForm::Call(name, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(shown).collect();
                format!("({name} {})", arguments.join(" "))
            }
        }
    }

    #[test]
    fn expressions_have_the_precedence_of_scripts() {
        for (text, expected) in [
            ("1 + 2.5 * s.queue_depth", "(+ 1 (* 2.5 s.queue_depth))"),
            ("-(a - b) / max(a, -3)", "(/ (- (- a b)) (max a -3))"),
            ("min(\n  a,\n  random() )", "(min a (random ))"),
            ("sqrt(x)", "(sqrt x)"),
        ] {
            assert_eq!(expression(text).map(|read| shown(&read)), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_with_its_location() {
        let deep = format!("{}1{}", "(".repeat(2000), ")".repeat(2000));
        let long = "1+".repeat(3000);
        let found: Vec<String> = [
            "",
            "a +\n  * b",
            "let x = 1; x",
            "s.queue.depth",
            "a + [1, 2][0]",
            "if a < b { a }",
            "a; b",
            &deep,
            &long,
        ]
        .map(|text| expression(text).map_or_else(|error| error.to_string(), |read| shown(&read)))
        .to_vec();
        assert_eq!(
            found,
            [
                "1:1: there is no expression",
                "2:3: Unexpected '*'",
                "1:1: Unexpected 'let'",
                "1:3: only numbers, names, fields and functions are read",
                "1:5: only numbers, names, fields and functions are read",
                "1:1: only numbers, names, fields and functions are read",
                "1:2: Unexpected ';'",
                "1:65: Expression exceeds maximum complexity",
                "1:1: 6000 bytes are more than the 4096 of an expression",
            ]
        );
    }
}
