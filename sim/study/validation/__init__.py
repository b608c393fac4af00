"""How far predictions are from what others measured: tables of cases, and runs recorded request by request."""

from sim.study.validation.replay import Replay, replay, write_replay
from sim.study.validation.validate import Validation, validate

__all__ = ["Replay", "Validation", "replay", "validate", "write_replay"]
