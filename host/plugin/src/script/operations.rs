//! The operations on numbers and columns that are known outside of the script engine: to the evaluator of `fast` and to exports
//! into other languages.

/// An operation on numbers and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Two numbers, or a column and a number or a column, as those that follow; comparisons are 1 or 0.
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    And,
    Or,
    Larger,
    Smaller,
    /// One number or column, as those that follow.
    Negative,
    Not,
    Absolute,
    Root,
    Exponential,
    Logarithm,
    Floor,
    Ceiling,
    Round,
    ToFloat,
    /// Over the entries of a column, as those that follow.
    Sum,
    Mean,
    Largest,
    Smallest,
    IsAny,
    IsAll,
    Count,
    IndexOfLargest,
    IndexOfSmallest,
    /// Scaled over the entries: 1 for the smallest, 0 for the largest.
    FewestBest,
    MostBest,
    /// How many entries there are.
    Length,
    /// The second if the first is not 0, else the third.
    Select,
    /// The value of the first entry, of exports.
    First,
    /// As many times the number as there are entries, of exports.
    Repeated,
}

/// Operations by name, with their number of arguments.
const OPERATIONS: [(&str, usize, Operation); 54] = [
    ("+", 2, Operation::Add),
    ("-", 2, Operation::Subtract),
    ("*", 2, Operation::Multiply),
    ("/", 2, Operation::Divide),
    ("%", 2, Operation::Remainder),
    ("**", 2, Operation::Power),
    ("pow", 2, Operation::Power),
    ("<", 2, Operation::Less),
    ("<=", 2, Operation::LessOrEqual),
    (">", 2, Operation::Greater),
    (">=", 2, Operation::GreaterOrEqual),
    ("==", 2, Operation::Equal),
    ("!=", 2, Operation::NotEqual),
    ("&", 2, Operation::And),
    ("|", 2, Operation::Or),
    ("max", 2, Operation::Larger),
    ("min", 2, Operation::Smaller),
    ("-", 1, Operation::Negative),
    ("!", 1, Operation::Not),
    ("abs", 1, Operation::Absolute),
    ("sqrt", 1, Operation::Root),
    ("exp", 1, Operation::Exponential),
    ("ln", 1, Operation::Logarithm),
    ("floor", 1, Operation::Floor),
    ("ceil", 1, Operation::Ceiling),
    ("ceiling", 1, Operation::Ceiling),
    ("round", 1, Operation::Round),
    ("to_float", 1, Operation::ToFloat),
    ("sum", 1, Operation::Sum),
    ("mean", 1, Operation::Mean),
    ("avg", 1, Operation::Mean),
    ("average", 1, Operation::Mean),
    ("max", 1, Operation::Largest),
    ("min", 1, Operation::Smallest),
    ("any", 1, Operation::IsAny),
    ("all", 1, Operation::IsAll),
    ("count", 1, Operation::Count),
    ("argmax", 1, Operation::IndexOfLargest),
    ("arg_max", 1, Operation::IndexOfLargest),
    ("argmin", 1, Operation::IndexOfSmallest),
    ("arg_min", 1, Operation::IndexOfSmallest),
    ("fewest_best", 1, Operation::FewestBest),
    ("lowest_best", 1, Operation::FewestBest),
    ("least_best", 1, Operation::FewestBest),
    ("min_best", 1, Operation::FewestBest),
    ("most_best", 1, Operation::MostBest),
    ("highest_best", 1, Operation::MostBest),
    ("max_best", 1, Operation::MostBest),
    ("normalize", 1, Operation::MostBest),
    ("normalise", 1, Operation::MostBest),
    ("len", 1, Operation::Length),
    ("select", 3, Operation::Select),
    ("where", 3, Operation::Select),
    ("if_else", 3, Operation::Select),
];

impl Operation {
    /// The operation that scripts call `name`, of so many arguments.
    pub fn called(name: &str, arguments: usize) -> Option<Self> {
        let found = OPERATIONS.iter().find(|(known, takes, _)| *known == name && *takes == arguments);
        found.map(|&(.., operation)| operation)
    }
}
