"""SGLang 0.5: prefill first, admission by estimate, retraction, a radix cache."""

from sim.engine.sglang.fast import FastSglang
from sim.engine.sglang.scheduler import Sglang
from sim.engine.sglang.settings import SglangSettings

__all__ = ["FastSglang", "Sglang", "SglangSettings"]
