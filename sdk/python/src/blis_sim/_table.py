"""Tables of results, and data frames of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import pandas
    import polars

Row = Mapping[str, Any]


class Table(Sequence[Row]):
    """Rows with the same columns. `pandas()` and `polars()` make a data frame of them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        # A field that is absent in some rows is None there.
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(name for row in rows for name in row))
        self._rows: tuple[Row, ...] = tuple({name: row.get(name) for name in self.columns} for row in rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Table: ...
    def __getitem__(self, index: int | slice) -> Row | Table:
        return Table(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Table({len(self._rows)} rows: {', '.join(self.columns)})"

    def column(self, name: str) -> list[Any]:
        """The values of a column, in the order of the rows. Raises KeyError with the names of the columns."""
        if name not in self.columns:
            raise KeyError(f"there is no column {name!r}; the columns are {', '.join(self.columns)}")
        return [row[name] for row in self._rows]

    def pandas(self) -> pandas.DataFrame:
        """A data frame of pandas. Raises ImportError, with the command that installs it."""
        try:
            import pandas
        except ImportError as error:
            raise _missing("pandas") from error
        return pandas.DataFrame(list(self._rows), columns=list(self.columns))

    def polars(self) -> polars.DataFrame:
        """A data frame of polars. Raises ImportError, with the command that installs it."""
        try:
            import polars
        except ImportError as error:
            raise _missing("polars") from error
        return polars.DataFrame({name: self.column(name) for name in self.columns}, strict=False)


def _missing(library: str) -> ImportError:
    return ImportError(
        f"{library} is not installed\nhint: `pip install 'blis-sim[{library}]'`, or `pip install {library}`"
    )
