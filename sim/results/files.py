"""Writing that either happens whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import RidgelineError

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends without an error."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def prepared(folder: Path) -> Iterator[None]:
    """Make a folder for results before the work starts; taken away again, if still empty, when the work fails.

    Raises RidgelineError, with a cure, where it cannot be made or written.
    """
    made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _remove(made)
        reason = error.strerror or "it cannot be made"
        raise RidgelineError(f"{folder}: cannot be written: {reason}\n  cure: choose another folder") from error
    try:
        yield
    except BaseException:
        _remove(made)
        raise


def _remove(folders: list[Path]) -> None:
    for path in folders:
        with suppress(OSError):
            path.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_frame(path: Path, table: pd.DataFrame) -> None:
    """Write a table as Parquet, atomically; the same table gives the same bytes."""
    with replacing(path) as temporary:
        table.to_parquet(temporary, engine="pyarrow", index=False)
