"""Files of a folder or of a tar archive, which is read as a stream."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

from sim.errors import Problem, TraceError

ENDINGS = (".tar", ".tar.gz", ".tgz")
POOL_PATTERN = "**/chunk-*-trace.csv"


def is_archive(path: Path) -> bool:
    """Whether its name says so."""
    return path.is_file() and path.name.lower().endswith(ENDINGS)


def is_pool(path: Path) -> bool:
    """Whether it is a folder of ServeGen's clients."""
    return path.is_dir() and next(path.glob(POOL_PATTERN), None) is not None


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of all files, in order. Raises TraceError where the archive cannot be read."""
    if path.is_dir():
        for file in sorted(path.glob("**/*")):
            if file.is_file():
                yield str(file.relative_to(path)), file.read_bytes()
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None:
                    yield member.name, content.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        problem = f"this archive cannot be read: {error}"
        raise TraceError(Problem(str(path), None, "", problem, "give a whole .tar.gz file, or a folder")) from error
