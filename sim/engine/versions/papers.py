"""Schedulers known from papers: they have no versions, and of memory and host code the papers say little."""

from __future__ import annotations

from dataclasses import replace

from sim.engine.versions.rules import EngineRules, one_row
from sim.engine.versions.vllm import HOST

SEQUENCES = 128
"""Requests of a batch, as Vidur's models of these schedulers cap it."""

ORCA = EngineRules(
    engine="orca",
    version="",
    scheduler="orca",
    source="Yu et al., Orca (OSDI 2022)",
    settings=frozenset({"gpu_memory_utilization"}),
    batch_defaults=one_row(8192, SEQUENCES),
    block_tokens=1,
    chunked_prefill=False,
    prefix_caching=False,
    host=replace(HOST, source=f"vLLM's, for want of measurements of Orca: {HOST.source}"),
)
STATIC = replace(
    ORCA,
    engine="static",
    scheduler="static",
    source="batches that start and end together (FasterTransformer), as Orca's authors and Vidur describe them",
    host=replace(HOST, source=f"vLLM's, for want of measurements of static batching: {HOST.source}"),
)
SARATHI = replace(
    ORCA,
    engine="sarathi",
    scheduler="sarathi",
    source="Agrawal et al., Sarathi-Serve (OSDI 2024), on vLLM's V0 blocks",
    settings=frozenset({"gpu_memory_utilization", "max_batched_tokens", "prefix_caching", "watermark"}),
    batch_defaults=one_row(512, SEQUENCES),
    block_tokens=16,
    chunked_prefill=True,
    host=replace(HOST, source=f"vLLM's, for want of measurements of Sarathi-Serve: {HOST.source}"),
)
WATERMARK = 0.01
"""Of Sarathi-Serve's blocks, kept free when requests are admitted."""
