//! Values of parameters: numbers, texts, and tables of numbers.

use std::fmt;

use crate::{GuestSetup, PolicyDescription};

/// The value of a parameter that is no number.
#[derive(Clone, Debug, PartialEq)]
pub enum OtherValue {
    Text(String),
    Table(ValueTable),
}

/// Numbers in rows of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueTable {
    /// Numbers in a row, at least 1.
    pub columns: u32,
    /// All numbers, row by row.
    pub numbers: Vec<f64>,
}

/// The value of a parameter of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterValue<'a> {
    Number(f64),
    Text(&'a str),
    Table(&'a ValueTable),
}

impl GuestSetup {
    /// The values of all parameters in the order in which `description` declares them. The setup has as many values as
    /// the description has parameters.
    pub(crate) fn values(&self, description: &PolicyDescription) -> Vec<ParameterValue<'_>> {
        let mut values: Vec<_> = self.parameters.iter().map(|&number| ParameterValue::Number(number)).collect();
        for (parameter, value) in description.others.iter().zip(&self.others) {
            values.insert(parameter.position.min(values.len()), value.borrowed());
        }
        values
    }
}

impl OtherValue {
    fn borrowed(&self) -> ParameterValue<'_> {
        match self {
            Self::Text(text) => ParameterValue::Text(text),
            Self::Table(table) => ParameterValue::Table(table),
        }
    }

    /// The value of the same type as `self` that `text` writes: the text itself, or rows of numbers as for
    /// [`ValueTable`].
    ///
    /// # Errors
    /// If it is no table of as many columns: what it must be.
    pub fn parsed(&self, text: &str) -> Result<Self, String> {
        match self {
            Self::Text(_) => Ok(Self::Text(text.to_owned())),
            Self::Table(like) => ValueTable::parsed(text, like.columns).map(Self::Table),
        }
    }
}

impl ValueTable {
    /// The table that `text` writes: numbers separated by `,`, rows by `;`.
    fn parsed(text: &str, columns: u32) -> Result<Self, String> {
        let form = || format!("it must be rows of {columns} numbers: `,` between numbers, `;` between rows");
        let mut numbers = Vec::new();
        for row in text.split(';').filter(|row| !row.trim().is_empty()) {
            let before = numbers.len();
            for number in row.split(',') {
                let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite());
                numbers.push(number.ok_or_else(form)?);
            }
            if numbers.len() - before != columns as usize {
                return Err(form());
            }
        }
        Ok(Self { columns, numbers })
    }
}

/// As the command line takes it: a text as it is, rows of a table separated by `;`.
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
    fn tables_are_read_as_they_are_written() {
        let like = OtherValue::Table(ValueTable { columns: 2, numbers: Vec::new() });
        for text in ["", "1,2", "1,2;3.5,-4"] {
            assert_eq!(like.parsed(text).map(|table| table.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(like.parsed(" 1, 2 ;3,4;").map(|table| table.to_string()).as_deref(), Ok("1,2;3,4"));
        for wrong in ["1", "1,2,3", "1,2;3", "1,x", "1,inf"] {
            assert!(like.parsed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(OtherValue::Text(String::new()).parsed("a;b"), Ok(OtherValue::Text("a;b".into())));
    }
}
