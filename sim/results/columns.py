"""A table that grows row by row in typed columns; beyond ``group_rows`` rows it lies on disk.

Neither pandas nor pyarrow is loaded before a table is asked for. The spill file is raw columns, one group after the
other, and has no name where the system allows: it goes when the table does.
"""

from __future__ import annotations

import tempfile
import weakref
from array import array
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sim.results.files import replacing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TYPE_CODES = {"float64": "d", "int64": "q", "int32": "i", "string": "i"}
BUFFER_ROWS = 4096
GROUP_ROWS = 131_072
"""Rows held in memory, and of one Parquet row group."""


class _Vocabulary(dict[str, int]):
    """Codes of the texts of a column, in order of first appearance."""

    def __missing__(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
        self[text] = len(self)
        return self[text]


class Table:
    """Columns of ``float64``, ``int64``, ``int32`` or ``string`` (few different texts, kept as codes).

    ``Table({"start_s": "float64", "bound": "string"})``, then ``append_row((0.5, "memory"))``. Rows are checked and
    converted a few thousand at a time: a wrong one raises TypeError, OverflowError or ValueError then.
    ``vocabularies``: texts that are known beforehand, for ``append_columns``.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        group_rows: int = GROUP_ROWS,
        vocabularies: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._types = dict(columns)
        self._group_rows = group_rows
        self._buffer_rows = min(BUFFER_ROWS, group_rows)
        self._buffer: list[tuple[Any, ...]] = []
        self._columns = {name: array(TYPE_CODES[dtype]) for name, dtype in columns.items()}
        self._vocabularies = {name: _Vocabulary() for name, dtype in columns.items() if dtype == "string"}
        for name, texts in (vocabularies or {}).items():
            self._vocabularies[name].update((text, code) for code, text in enumerate(texts))
        self._rows = 0
        self._spill: IO[bytes] | None = None
        self._spilled_groups = 0

    def __len__(self) -> int:
        return self._spilled_groups * self._group_rows + self._rows + len(self._buffer)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self._types)

    def append_row(self, row: tuple[Any, ...]) -> None:
        """Add a row: one value per column, in order."""
        self._buffer.append(row)
        if len(self._buffer) >= self._buffer_rows:
            self._flush()

    def append_columns(self, columns: Mapping[str, np.ndarray]) -> None:
        """Add many rows: an array per column; of texts, their codes into the vocabulary given at the start."""
        self._flush()
        count = len(next(iter(columns.values())))
        done = 0
        while done < count:
            room = min(count - done, self._group_rows - self._rows)
            for name, column in self._columns.items():
                column.frombytes(columns[name][done : done + room].astype(column.typecode).tobytes())
            self._rows += room
            done += room
            if self._rows == self._group_rows:
                self._spill_group()

    def column(self, name: str) -> np.ndarray:
        """All values of one column; codes into ``vocabulary`` for texts."""
        self._flush()
        return np.concatenate([self._piece(name, group) for group in range(self._spilled_groups + 1)])

    def pieces(self, names: Collection[str]) -> Iterator[dict[str, np.ndarray]]:
        """These columns in pieces of at most ``group_rows``, so that no more than one need be in memory."""
        self._flush()
        for group in range(self._spilled_groups + 1):
            yield {name: self._piece(name, group) for name in names}

    def vocabulary(self, name: str) -> tuple[str, ...]:
        """The different texts of a column, in order of first appearance."""
        self._flush()
        return tuple(self._vocabularies[name])

    def to_pandas(self) -> pd.DataFrame:
        """The whole table; texts are categorical."""
        return self._frame({name: self.column(name) for name in self._types})

    def frames(self) -> Iterator[pd.DataFrame]:
        """The table in pieces of at most ``group_rows``, so that no more than one need be in memory."""
        yield from map(self._frame, self.pieces(self.names))

    def to_arrow(self) -> pa.Table:
        """The whole table; texts are dictionary-encoded."""
        return self._arrow({name: self.column(name) for name in self._types})

    def write_parquet(self, path: str | Path) -> None:
        """Write the table, whole or not at all, a row group at a time; the same rows give the same bytes."""
        from pyarrow.parquet import ParquetWriter

        self._flush()
        with replacing(Path(path)) as temporary, ParquetWriter(temporary, self._schema()) as writer:
            for piece in map(self._arrow, self.pieces(self.names)):
                if len(piece):
                    writer.write_table(piece)

    def _flush(self) -> None:
        """Convert the buffered rows, and spill the group they fill."""
        while self._buffer:
            room = self._group_rows - self._rows
            self._convert(self._buffer[:room])
            del self._buffer[:room]
            if self._rows == self._group_rows:
                self._spill_group()

    def _convert(self, rows: list[tuple[Any, ...]]) -> None:
        """Add rows to the columns; nothing is added if one of them is wrong."""
        converted: list[array[Any]] = []
        for (name, dtype), values in zip(self._types.items(), zip(*rows, strict=True), strict=True):
            cells = list(map(self._vocabularies[name].__getitem__, values)) if dtype == "string" else values
            try:
                converted.append(array(TYPE_CODES[dtype], cells))
            except (TypeError, OverflowError) as error:
                raise type(error)(f"column {name} ({dtype}): {error}") from error
        for column, added in zip(self._columns.values(), converted, strict=True):
            column.extend(added)
        self._rows += len(rows)

    def _spill_group(self) -> None:
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(prefix="ridgeline-")  # noqa: SIM115 - closed with the table
            weakref.finalize(self, self._spill.close)
        self._spill.seek(self._spilled_groups * self._group_bytes)
        for column in self._columns.values():
            self._spill.write(memoryview(column))
            del column[:]
        self._spilled_groups += 1
        self._rows = 0

    @property
    def _group_bytes(self) -> int:
        return self._group_rows * sum(column.itemsize for column in self._columns.values())

    def _piece(self, name: str, group: int) -> np.ndarray:
        """A column's values in one group; the last group is the one in memory."""
        column = self._columns[name]
        if group == self._spilled_groups:
            return np.array(column)
        assert self._spill is not None, "groups before the last are spilled"
        values = np.empty(self._group_rows, dtype=column.typecode)
        names = list(self._columns)
        before = sum(self._columns[other].itemsize for other in names[: names.index(name)])
        self._spill.seek(group * self._group_bytes + before * self._group_rows)
        read = self._spill.readinto(values)  # type: ignore[attr-defined]
        assert read == values.nbytes, f"the spill file has {read} of {values.nbytes} bytes"
        return values

    def _frame(self, columns: dict[str, np.ndarray]) -> pd.DataFrame:
        import pandas as pd

        texts = {name: pd.Index(list(vocabulary), dtype=object) for name, vocabulary in self._vocabularies.items()}
        return pd.DataFrame(
            {
                name: pd.Categorical.from_codes(values, texts[name]) if name in texts else values
                for name, values in columns.items()
            }
        )

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        types = {"float64": pa.float64(), "int64": pa.int64(), "int32": pa.int32()}
        text = pa.dictionary(pa.int32(), pa.string())
        return pa.schema([(name, types.get(dtype, text)) for name, dtype in self._types.items()])

    def _arrow(self, columns: dict[str, np.ndarray]) -> pa.Table:
        import pyarrow as pa

        def encoded(name: str, values: np.ndarray) -> pa.Array:
            if name not in self._vocabularies:
                return pa.array(values)
            texts = pa.array(list(self._vocabularies[name]), pa.string())
            return pa.DictionaryArray.from_arrays(pa.array(values, pa.int32()), texts)

        return pa.Table.from_arrays([encoded(*column) for column in columns.items()], schema=self._schema())
