"""The growing table: exact values whether in memory or on disk, and the same bytes for the same rows."""

import gc
import math
import subprocess
import sys
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.results.columns import GROUP_ROWS, Table

COLUMNS = {"start_s": "float64", "tokens": "int64", "replica": "int32", "bound": "string"}
BOUNDS = ("memory", "compute", "host")


def row(i):
    return (i / 7, 2**40 + i, i % 3 - 1, BOUNDS[i * i % 3])


def filled(count, **keys):
    table = Table(COLUMNS, **keys)
    for i in range(count):
        table.append_row(row(i))
    return table


def plain(table):
    """Rows as python tuples, read back through pandas."""
    frame = table.to_pandas()
    return list(zip(*(frame[name].tolist() for name in frame), strict=True))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9, 41])
def test_every_row_comes_back_wherever_it_lies(count):
    """Groups of 4 rows: none, part of one, exactly full, many."""
    table = filled(count, group_rows=4)
    assert len(table) == count
    assert plain(table) == [row(i) for i in range(count)]


def test_default_groups_join_without_a_seam():
    count = 2 * GROUP_ROWS + 5
    table = filled(count)
    assert (table.column("tokens") == 2**40 + np.arange(count)).all()
    assert (table.column("start_s") == np.arange(count) / 7).all()


def test_reading_does_not_end_the_growing():
    """Every read after every append sees all rows so far."""
    table = Table(COLUMNS, group_rows=3)
    for i in range(12):
        table.append_row(row(i))
        assert plain(table) == [row(j) for j in range(i + 1)]


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.text()
        )
    ),
    st.integers(1, 9),
)
def test_any_values_survive(rows, group_rows):
    """Exactly, to the last bit and at the ends of every type."""
    table = Table(COLUMNS, group_rows=group_rows)
    for values in rows:
        table.append_row(values)
    assert plain(table) == rows
    assert [tuple(r.values()) for r in table.to_arrow().to_pylist()] == rows


def test_nan_and_infinity_are_values():
    table = Table({"x_s": "float64"})
    table.append_row((math.nan,))
    table.append_row((math.inf,))
    assert np.array_equal(table.to_pandas()["x_s"], [math.nan, math.inf], equal_nan=True)
    assert table.to_arrow().column("x_s").null_count == 0


def test_types_are_the_declared_ones():
    for count in (0, 10):
        frame, arrow = filled(count, group_rows=4).to_pandas(), filled(count, group_rows=4).to_arrow()
        assert [str(dtype) for dtype in frame.dtypes] == ["float64", "int64", "int32", "category"]
        assert arrow.schema.types == [pa.float64(), pa.int64(), pa.int32(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("count", [0, 3, 4, 41])
def test_parquet_holds_the_table_in_row_groups(tmp_path, count):
    path = tmp_path / "steps.parquet"
    filled(count, group_rows=4).write_parquet(path)
    pd.testing.assert_frame_equal(pd.read_parquet(path), filled(count).to_pandas(), check_categorical=False)
    sizes = [pq.ParquetFile(path).metadata.row_group(i).num_rows for i in range(-(-count // 4))]
    assert sizes == [4] * (count // 4) + [count % 4] * (count % 4 > 0)
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_rows_give_the_same_bytes(tmp_path):
    """However often the table was looked at on the way."""
    looked_at = Table(COLUMNS, group_rows=1000)
    for i in range(2500):
        looked_at.append_row(row(i))
        if i % 97 == 0:
            len(looked_at.column("bound"))
    filled(2500, group_rows=1000).write_parquet(tmp_path / "a.parquet")
    looked_at.write_parquet(str(tmp_path / "b.parquet"))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "steps.parquet"
    path.write_text("old")
    table = filled(9, group_rows=4)
    table.append_row((0.0, 0, 0, None))
    with pytest.raises(TypeError, match="None is no text"):
        table.write_parquet(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_frames_are_the_table_in_pieces():
    table = filled(10, group_rows=4)
    pieces = list(table.frames())
    assert [len(piece) for piece in pieces] == [4, 4, 2]
    assert pd.concat(pieces, ignore_index=True)["bound"].tolist() == table.to_pandas()["bound"].tolist()


def test_pieces_hold_some_columns_of_every_group():
    table = filled(10, group_rows=4)
    pieces = list(table.pieces(("tokens", "start_s")))
    assert [list(piece) for piece in pieces] == [["tokens", "start_s"]] * 3
    assert [len(piece["tokens"]) for piece in pieces] == [4, 4, 2]
    assert np.concatenate([piece["start_s"] for piece in pieces]).tolist() == table.column("start_s").tolist()


def test_texts_are_codes_in_order_of_appearance():
    table = filled(5, group_rows=2)
    assert table.vocabulary("bound") == ("memory", "compute")
    assert table.column("bound").tolist() == [0, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("wrong", "error", "complaint"),
    [
        ((0.0, 1.5, 0, "x"), TypeError, "column tokens"),
        ((0.0, 2**63, 0, "x"), OverflowError, "column tokens"),
        ((0.0, 0, 2**31, "x"), OverflowError, "column replica"),
        (("0", 0, 0, "x"), TypeError, "column start_s"),
        ((0.0, 0, 0, 7), TypeError, "7 is no text"),
        ((0.0, 0, 0), ValueError, "shorter"),
        ((0.0, 0, 0, "x", 1), ValueError, "longer"),
    ],
)
def test_a_wrong_row_is_refused(wrong, error, complaint):
    """Nothing is rounded, wrapped or left out."""
    table = filled(3)
    table.append_row(wrong)
    for _ in range(2):
        with pytest.raises(error, match=complaint):
            table.to_pandas()


def test_a_spilled_table_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = filled(100, group_rows=4)
    assert len(table.to_pandas()) == 100
    del table
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_memory_stays_bounded():
    """Ten groups are on disk, not in memory: python and numpy hold less than two groups' worth."""
    import tracemalloc

    row_bytes, group_rows = 24, 10_000
    tracemalloc.start()
    filled(10 * group_rows + 50, group_rows=group_rows)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 2 * group_rows * row_bytes + 4096 * 400


def test_recording_loads_neither_pandas_nor_pyarrow():
    code = (
        "import sys; from sim.results.columns import Table; t = Table({'x': 'int64'}, 2)\n"
        "for i in range(9): t.append_row((i,))\n"
        "assert t.column('x').sum() == 36; sys.exit(bool({'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
