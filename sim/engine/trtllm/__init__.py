"""TensorRT-LLM: a capacity scheduler says who may run, a micro-batch scheduler how many tokens each gets."""

from sim.engine.trtllm.fast import fast_trtllm
from sim.engine.trtllm.scheduler import TrtLlm, TrtLlmSettings

__all__ = ["TrtLlm", "TrtLlmSettings", "fast_trtllm"]
