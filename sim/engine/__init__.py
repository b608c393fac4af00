"""One replica without a clock: requests, KV blocks, prefix cache, scheduler."""

from sim.engine.protocol import Engine
from sim.engine.settings import EngineSettings, settings_for
from sim.engine.versions import EngineRules, rules_for
from sim.engine.vllm_fast import FastVllmV1
from sim.engine.vllm_v1 import VllmV1


def build_engine(
    rules: EngineRules, settings: EngineSettings, windows: tuple[int, ...] = (), *, plain: bool = False
) -> VllmV1:
    """A fresh engine. ``windows``: the model's sliding windows, for the work it reports.

    ``plain``: without the short cuts that decide the same.
    """
    if plain or (settings.kv_groups != (None,) and settings.kv_blocks is not None):
        return VllmV1(rules, settings, windows)
    return FastVllmV1(rules, settings, windows)


__all__ = ["Engine", "EngineRules", "EngineSettings", "build_engine", "rules_for", "settings_for"]
