"""Formats of traces: one file each, and the order in which a file is tried."""

from __future__ import annotations

from sim.traffic.formats import azure, burstgpt, mooncake, table
from sim.traffic.formats.base import Format

FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in (azure, burstgpt, mooncake, table)}
"""By name. The first that recognises a table's columns reads it; a table of ours is what is left."""
