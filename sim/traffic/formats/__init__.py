"""Formats of traces: one file each, and the order in which a file is tried."""

from __future__ import annotations

from sim.traffic.formats import (
    agentic_mooncake,
    applied_compute,
    azure,
    burstgpt,
    dynamo,
    llmservingsim,
    mooncake,
    mooncake_delta,
    ragpulse,
    servegen,
    table,
    tracelab,
    weka,
)
from sim.traffic.formats.base import Format

_MODULES = (
    azure,
    burstgpt,
    agentic_mooncake,
    dynamo,
    ragpulse,
    mooncake,
    mooncake_delta,
    llmservingsim,
    weka,
    tracelab,
    applied_compute,
    servegen,
    table,
)
FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _MODULES}
"""By name. The first that recognises a file's columns reads it; what none knows is a table."""
