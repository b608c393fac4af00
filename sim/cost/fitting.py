"""The parallelism that would hold a model which does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sim.hardware import HardwareProfile
from sim.hardware.collectives import most_devices, node_devices
from sim.models.parallel import legal_tensor_parallel
from sim.models.spec import ModelSpec
from sim.parallel import Parallelism

POWERS = (1, 2, 4, 8, 16, 32, 64)
"""Degrees of a model without heads."""
NODES = (2, 4, 8)
"""In a pipeline that a cure may propose."""


def next_fit(
    model: ModelSpec, profile: HardwareProfile, parallel: Parallelism, fits: Callable[[Parallelism], bool]
) -> Parallelism | None:
    """The least larger tensor parallelism that fits; where none does, pipeline parallelism of nodes beside it."""
    node = node_devices(profile)
    inside = node // (parallel.data * parallel.pipeline)
    legal = legal_tensor_parallel(model, inside) if model.layers else list(POWERS)
    degrees = [ranks for ranks in legal if parallel.tensor <= ranks <= inside]
    ways = [replace(parallel, tensor=ranks) for ranks in degrees if ranks > parallel.tensor]
    if degrees and most_devices(profile) is None and model.layers:
        ways += [replace(parallel, tensor=degrees[-1], pipeline=parallel.pipeline * more) for more in NODES]
    possible = (_expert_follows(parallel, way) for way in ways if way.pipeline <= max(1, len(model.layers)))
    return next((way for way in possible if fits(way)), None)


def _expert_follows(before: Parallelism, way: Parallelism) -> Parallelism:
    """Experts stay split over all GPUs of a stage where they were."""
    whole = before.expert > 1 and before.expert == before.tensor * before.data
    return replace(way, expert=way.tensor * way.data) if whole else way


def said(parallel: Parallelism) -> str:
    """As a scenario writes it: what is more than 1."""
    degrees = {
        "tensor_parallel": parallel.tensor,
        "pipeline_parallel": parallel.pipeline,
        "data_parallel": parallel.data,
        "expert_parallel": parallel.expert,
    }
    return ", ".join(f"{key}: {degree}" for key, degree in degrees.items() if degree > 1)
