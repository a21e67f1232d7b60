//! The values of fields of the views that scripts get.

use std::any::Any;
use std::sync::Arc;

use blis_sim::request::Name;
use rhai::{Dynamic, INT};

use super::call::failure;
use super::column::Column;
use super::registry::{ColumnGetter, Registry, ScriptError};

/// The text of each name of the workload, by number.
pub(super) type NameTexts = Arc<[Box<str>]>;

pub(super) fn int(value: impl TryInto<INT>) -> Dynamic {
    Dynamic::from_int(value.try_into().unwrap_or(INT::MAX))
}

/// `()` for `None`, in scripts the value for a missing number.
pub(super) fn optional(value: Option<impl TryInto<INT>>) -> Dynamic {
    value.map_or(Dynamic::UNIT, int)
}

pub(super) fn text(names: &NameTexts, name: Name) -> Dynamic {
    names.get(name.index()).map_or("", |text| text).into()
}

/// Scan and compiler agree on the words of the script, so the column exists; the check makes sure that a missing column
/// is never replaced by a wrong one.
fn column_of(column: Option<&Column>, name: &str) -> Result<Dynamic, ScriptError> {
    let column = column.ok_or_else(|| failure(format!("the column `{name}` was not built for this script")))?;
    Ok(Dynamic::from(column.clone()))
}

/// Registers how many entries a list `T` has, under all names, and their indices.
pub(super) fn register_length<T: Clone + Send + Sync + 'static>(
    to: &mut Registry,
    what: &'static str,
    len: fn(&T) -> usize,
) {
    to.field(what, &["len", "n", "count"], move |list: &T| Ok(int(len(list) as u64)));
    to.field(what, &["indices"], move |list: &T| {
        Ok(Dynamic::from(Column::new((0..len(list)).map(|index| index as f64))))
    });
    to.add("len", move |list: T| len(&list) as INT);
}

/// Registers a column of `T`, which scripts call a `what`, under `name`. Views have it if the script uses the name.
pub(super) fn register_column<T: Clone + Send + Sync + 'static>(
    to: &mut Registry,
    what: &'static str,
    name: &'static str,
    get: impl Fn(&T) -> Option<&Column> + Copy + Send + Sync + 'static,
) {
    to.engine.register_get(name, move |view: &mut T| column_of(get(view), name));
    to.names.fields.entry(what).or_default().insert(name);
    let column: ColumnGetter = Arc::new(move |view| get(view.downcast_ref::<T>()?).map(|column| column as &dyn Any));
    to.names.columns.insert((what, name), column);
}
