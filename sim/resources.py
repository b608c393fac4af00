"""Where the data that ships with the package lies: in the checkout beside ``sim/``, or inside the wheel."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def folder(kind: str) -> Path:
    """The folder of one kind of data (``hardware_profiles``, ``workloads``): the wheel's copy, or the checkout's."""
    wheel = PACKAGE / "_data" / kind
    return wheel if wheel.is_dir() else PACKAGE.parent / kind


def names(kind: str, suffix: str = ".yaml") -> list[str]:
    """Names of what ships, sorted; what lies in a subfolder is named with it."""
    root = folder(kind)
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob(f"*{suffix}"))


def find(kind: str, name_or_path: str, base_dir: Path | None = None, suffix: str = ".yaml") -> Path | None:
    """The file that a name or a path means: what ships first, then a path seen from ``base_dir``; None if neither."""
    inside = not name_or_path.startswith(("/", "~", ".")) and ".." not in name_or_path
    shipped = locate(f"{name_or_path}{suffix}", folder(kind)) if inside else None
    return shipped or locate(name_or_path, base_dir)


def locate(path: str, base_dir: Path | None = None) -> Path | None:
    """The file at ``path``, seen from ``base_dir`` where it is relative; None where there is none."""
    try:
        full = Path(path).expanduser()
        if not full.is_absolute() and base_dir is not None:
            full = base_dir / full
        return full if full.is_file() else None
    except (OSError, ValueError, RuntimeError):  # names that no file can have, and homes of nobody
        return None


def nearest(name: str, known: list[str]) -> str:
    """A cure for an unknown name: the nearest known ones, or the first few."""
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    return "known: " + ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
