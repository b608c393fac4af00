"""One replica without a clock: requests, KV blocks, prefix cache, scheduler."""

from sim.engine.configure import Resolved, settings_for
from sim.engine.protocol import Engine
from sim.engine.schedulers import build_engine
from sim.engine.settings import EngineSettings
from sim.engine.versions import EngineRules, rules_for

__all__ = ["Engine", "EngineRules", "EngineSettings", "Resolved", "build_engine", "rules_for", "settings_for"]
