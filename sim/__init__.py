"""Ridgeline: a discrete-event simulator of LLM serving calibrated by rooflines.

>>> import sim
>>> result = sim.run("workloads/chat.yaml")      # doctest: +SKIP
>>> result.summary["ttft_s"]["p99"]              # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api import Loaded, Result, Validation, load, replay, run, sweep, validate

__version__ = "0.1.0"
__all__ = ["Loaded", "Result", "Validation", "__version__", "load", "replay", "run", "sweep", "validate"]


def __getattr__(name: str) -> Any:
    """The API loads on first use, so that ``import sim`` costs nothing."""
    if name in __all__:
        from sim import api

        return getattr(api, name)
    raise AttributeError(f"module 'sim' has no attribute {name!r}")
