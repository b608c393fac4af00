"""Where each scheduler lives; a run loads only its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.engine.protocol import Engine
from sim.engine.settings import EngineSettings
from sim.engine.speculation import Draws
from sim.engine.versions import EngineRules, VllmV1Rules

if TYPE_CHECKING:
    from sim.engine.vllm_v1 import VllmV1


class Scheduler(NamedTuple):
    """A module of ``sim.engine``, its engine, and the settings it takes."""

    module: str
    engine: str
    settings: str = "EngineSettings"
    fast: str | None = None
    """What of the module makes the engine with short cuts where it has them for these settings."""


SCHEDULERS = {
    "vllm-v1": Scheduler("vllm_v1", "VllmV1"),
    "vllm-v0": Scheduler("vllm_v0", "VllmV0", "VllmV0Settings"),
    "sglang": Scheduler("sglang", "Sglang", "SglangSettings", fast="FastSglang"),
    "trtllm": Scheduler("trtllm", "TrtLlm", "TrtLlmSettings", fast="fast_trtllm"),
    "orca": Scheduler("orca", "Orca"),
    "static": Scheduler("static_batch", "StaticBatch"),
    "sarathi": Scheduler("sarathi", "Sarathi"),
    "llama.cpp": Scheduler("llama_cpp", "LlamaCpp"),
}


def settings_class(scheduler: str) -> type[EngineSettings]:
    """The settings a scheduler takes."""
    found: type[EngineSettings] = _load(scheduler, SCHEDULERS[scheduler].settings)
    return found


def build_engine(
    rules: EngineRules, settings: EngineSettings, windows: tuple[int, ...] = (), *, plain: bool = False
) -> Engine:
    """A fresh engine. ``windows``: the model's sliding windows, for the work it reports.

    ``plain``: without the short cuts that decide the same.
    """
    if isinstance(rules, VllmV1Rules):
        return build_vllm(rules, settings, windows, plain=plain)
    chosen = SCHEDULERS[rules.scheduler]
    name = chosen.engine if plain or chosen.fast is None else chosen.fast
    built: Engine = _load(rules.scheduler, name)(settings, windows)
    return built


def build_vllm(
    rules: VllmV1Rules,
    settings: EngineSettings,
    windows: tuple[int, ...] = (),
    *,
    plain: bool = False,
    draws: Draws | None = None,
) -> VllmV1:
    """VLLM V1, which takes its rules, for they differ by release; of the other engines one release each is known.

    The short cuts know no drafts, whose random acceptance ``draws`` replaces, and no prefixes cached in several block
    tables.
    """
    from sim.engine.vllm_fast import FastVllmV1
    from sim.engine.vllm_fast_windows import FastWindowVllmV1
    from sim.engine.vllm_v1 import VllmV1

    if settings.speculation is not None or plain:
        return VllmV1(rules, settings, windows, draws)
    if settings.kv_groups == (None,) or settings.kv_blocks is None:
        return FastVllmV1(rules, settings, windows)
    if not settings.prefix_caching:
        return FastWindowVllmV1(rules, settings, windows)
    return VllmV1(rules, settings, windows, draws)


def _load(scheduler: str, name: str) -> Any:
    return getattr(import_module(f"sim.engine.{SCHEDULERS[scheduler].module}"), name)
