//! Values of parameters: numbers, texts, and tables of numbers.

use std::fmt;

use wasmtime::component::{ComponentType, Lift, Lower};

/// The value of a parameter that is no number.
#[derive(Clone, Debug, PartialEq)]
pub enum OtherValue {
    Text(String),
    Table(ValueTable),
}

/// Numbers in rows of equal length: `table` of components.
#[derive(Clone, Debug, Default, PartialEq, ComponentType, Lift, Lower)]
#[component(record)]
pub struct ValueTable {
    /// Numbers in a row, at least 1.
    pub columns: u32,
    /// All numbers, row by row.
    pub numbers: Vec<f64>,
}

/// The value of a parameter of any type: `value` of components.
#[derive(Clone, Copy, Debug, PartialEq, ComponentType, Lower)]
#[component(variant)]
pub enum ParameterValue<'a> {
    #[component(name = "number")]
    Number(f64),
    #[component(name = "text")]
    Text(&'a str),
    #[component(name = "table")]
    Table(&'a ValueTable),
}

impl OtherValue {
    /// The value as one of any type.
    #[must_use]
    pub fn borrowed(&self) -> ParameterValue<'_> {
        match self {
            Self::Text(text) => ParameterValue::Text(text),
            Self::Table(table) => ParameterValue::Table(table),
        }
    }
}

/// A text as it is; of a table, numbers separated by `,` and rows by `;`.
impl fmt::Display for OtherValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Table(ValueTable { columns, numbers }) => {
                let row = |row: &[f64]| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                let rows: Vec<String> = numbers.chunks((*columns).max(1) as usize).map(row).collect();
                f.write_str(&rows.join(";"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_table_are_written_apart() {
        let table = OtherValue::Table(ValueTable { columns: 2, numbers: vec![1.0, 2.0, 3.5, -4.0] });
        assert_eq!(table.to_string(), "1,2;3.5,-4");
        assert_eq!(OtherValue::Text("a;b".into()).to_string(), "a;b");
    }
}
