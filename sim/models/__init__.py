"""Models: what a serving simulator needs of them, from presets or a Hugging Face config.json."""

from sim.models.config import abstract_model, from_config
from sim.models.presets import is_preset, load_model, preset_names
from sim.models.quantization import with_weight_dtype
from sim.models.spec import ModelSpec
from sim.models.summary import describe, model_summary

__all__ = [
    "ModelSpec",
    "abstract_model",
    "describe",
    "from_config",
    "is_preset",
    "load_model",
    "model_summary",
    "preset_names",
    "with_weight_dtype",
]
