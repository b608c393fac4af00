"""Where each scheduler lives; a run loads only its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from sim.engine.protocol import Engine
from sim.engine.settings import EngineSettings
from sim.engine.versions import EngineRules, VllmV1Rules


class Scheduler(NamedTuple):
    """A module of ``sim.engine``, its engine, and the settings it takes."""

    module: str
    engine: str
    settings: str = "EngineSettings"


SCHEDULERS = {
    "vllm-v1": Scheduler("vllm_v1", "VllmV1"),
    "vllm-v0": Scheduler("vllm_v0", "VllmV0", "VllmV0Settings"),
    "sglang": Scheduler("sglang", "Sglang", "SglangSettings"),
    "trtllm": Scheduler("trtllm", "TrtLlm", "TrtLlmSettings"),
    "orca": Scheduler("orca", "Orca"),
    "static": Scheduler("static_batch", "StaticBatch"),
    "sarathi": Scheduler("sarathi", "Sarathi"),
    "llama.cpp": Scheduler("llama_cpp", "LlamaCpp"),
}


def settings_class(scheduler: str) -> type[EngineSettings]:
    """The settings a scheduler takes."""
    found: type[EngineSettings] = _load(scheduler, SCHEDULERS[scheduler].settings)
    return found


def build_engine(rules: EngineRules, settings: EngineSettings, windows: tuple[int, ...] = ()) -> Engine:
    """A fresh engine. ``windows``: the model's sliding windows, for the work it reports.

    vLLM V1 takes its rules, which differ by release; of the others one release each is known.
    """
    engine = _load(rules.scheduler, SCHEDULERS[rules.scheduler].engine)
    built: Engine = engine(rules, settings, windows) if isinstance(rules, VllmV1Rules) else engine(settings, windows)
    return built


def _load(scheduler: str, name: str) -> Any:
    return getattr(import_module(f"sim.engine.{SCHEDULERS[scheduler].module}"), name)
