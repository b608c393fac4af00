"""Which release of an engine ran on a day, where a source gives the day alone."""

from __future__ import annotations

import datetime

VLLM = (
    (datetime.date(2024, 9, 4), "0.6.0"),
    (datetime.date(2025, 1, 27), "0.7.0"),
    (datetime.date(2025, 3, 18), "0.8.0"),
    (datetime.date(2025, 5, 15), "0.9.0"),
    (datetime.date(2025, 7, 24), "0.10.0"),
    (datetime.date(2025, 10, 2), "0.11.0"),
    (datetime.date(2025, 11, 20), "0.11.2"),
    (datetime.date(2025, 12, 3), "0.12.0"),
    (datetime.date(2025, 12, 18), "0.13.0"),
    (datetime.date(2026, 1, 20), "0.14.0"),
    (datetime.date(2026, 1, 29), "0.15.0"),
    (datetime.date(2026, 2, 13), "0.16.0"),
)
"""About the first day of a release: not checked to the day. Public dependency updates bound some (0.11.0 by 2025-10-07,
0.11.1 by 2025-11-20, 0.15.0 by 2026-01-29), and cases that state both bound the last (0.16 by 2026-02-14). The measured
cases without a version (2025-10-29 to 2025-12-05, 2026-02-17 and 18) lie weeks from where the rules change, 0.11 and
0.14.
"""
RELEASES = {"vllm": VLLM}
"""Engines whose releases differ in a rule that is simulated; the others have one record."""


def release_of(engine: str, day: datetime.date | None) -> str | None:
    """The newest release of the day; None where the engine has no table, or the day is unknown or before it."""
    if day is None:
        return None
    out = [version for released, version in RELEASES.get(engine, ()) if released <= day]
    return out[-1] if out else None
