"""From what the user wrote to what runs: profile, model, engine settings, cost model, KV capacity, and what was assumed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.cost import KvCapacity, LinearCost, RooflineCost, kv_capacity
from sim.engine import EngineRules, EngineSettings, build_engine, rules_for, settings_for
from sim.engine.protocol import Engine
from sim.errors import DoesNotFit, ScenarioError, UnsupportedModel
from sim.hardware import HardwareProfile, load_profile, with_overrides
from sim.models import ModelSpec, abstract_model, load_model, with_weight_dtype
from sim.models.memory import windows
from sim.scenario import Loaded
from sim.scenario.specs import AbstractModel, DeploymentSpec, HardwareOverride, LinearCost as LinearSpec
from sim.traffic import Traffic, open_traffic
from sim.work import CostModel

UNBOUNDED_TOKENS = 10_000_000
"""max_model_len of a model that states none: as long as any request a scenario may hold."""


class Assumption(NamedTuple):
    """Something the user did not say that decides the numbers."""

    what: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A scenario with every default resolved."""

    loaded: Loaded
    model: ModelSpec
    hardware: HardwareProfile
    rules: EngineRules
    settings: EngineSettings
    deployment: DeploymentSpec
    capacity: KvCapacity | None
    """None: the model has no KV cache to run out of."""
    cost: CostModel
    assumed: tuple[Assumption, ...]

    @property
    def drain(self) -> bool:
        return self.loaded.spec.measure.drain

    @property
    def overheads(self) -> bool:
        """Whether host overheads are part of the world: not in an ideal or a linear one."""
        cost = self.loaded.spec.cost
        return cost.model == "roofline" and cost.efficiency == "calibrated"

    @property
    def request_latency_s(self) -> float:
        return self.rules.host.request_latency_s * self.hardware.host.slowdown if self.overheads else 0.0

    @property
    def request_serial_s(self) -> float:
        return self.rules.host.request_serial_s * self.hardware.host.slowdown if self.overheads else 0.0

    def engine(self) -> Engine:
        """A fresh engine of one replica."""
        return build_engine(self.rules, self.settings, windows(self.model))

    def traffic(self) -> Traffic:
        """The load, from its start."""
        return open_traffic(self.loaded.spec.traffic, self.loaded.base_dir, self.loaded.spec.seed)

    def generator(self, stream: str) -> np.random.Generator:
        """The random stream of that name: independent of every other, the same for the same seed."""
        return np.random.default_rng([self.loaded.spec.seed, *stream.encode()])


def assemble(loaded: Loaded) -> Setup:
    """Resolve a scenario. Raises ScenarioError with file and line where what the user wrote cannot be."""
    spec = loaded.spec
    hardware, model, rules = _hardware(loaded), _model(loaded), _rules(loaded)
    tensor_parallel = spec.deployment.tensor_parallel
    taken = settings_for(
        rules,
        spec.engine,
        memory_bytes=hardware.memory_bytes,
        device_name=hardware.name,
        max_model_len=model.max_positions or UNBOUNDED_TOKENS,
    )
    capacity = _at(loaded, "deployment.tensor_parallel", kv_capacity)(
        model,
        hardware,
        tensor_parallel=tensor_parallel,
        kv_dtype=spec.engine.kv_dtype,
        settings=taken.settings,
        rules=rules,
    )
    ...
