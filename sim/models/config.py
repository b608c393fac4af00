"""A ModelSpec from a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import UnsupportedModel
from sim.models.dtypes import BITS
from sim.models.families import DEFAULTS, FAMILIES, TIED_BY_DEFAULT
from sim.models.families.latent import index_layers
from sim.models.fields import LARGEST, Fields
from sim.models.quantization import TORCH_DTYPES, plain, with_formats
from sim.models.schemes import kv_dtype
from sim.models.spec import DType, ModelSpec

MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


def from_config(config: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    """Read a config exactly. Raises UnsupportedModel for an architecture or a field it cannot read."""
    fields = Fields(config, name)
    family = FAMILIES.get(fields.model_type)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModel(
            f"{name}: model_type {fields.model_type or '(missing)'} is not an architecture that can be read",
            f"one of {known}; or give an abstract model: {{parameters: 8e9, weight_dtype: bf16}}",
        )
    filled = fields.fill(DEFAULTS.get(fields.model_type, {}))
    activation = _activation(fields)
    quantization = fields.outer("quantization_config")
    if not isinstance(quantization, Mapping | None):
        raise fields.wrong("quantization_config", quantization, "a table of settings")
    weights, layers = with_formats(quantization, family(fields), activation, name)
    tied = fields.outer("tie_word_embeddings", default=fields.model_type in TIED_BY_DEFAULT)
    hidden = fields.count("hidden_size")
    return ModelSpec(
        name=name,
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        layers=layers,
        tied_embeddings=bool(tied),
        other_parameters=hidden,
        weights=weights,
        activation_dtype=activation,
        max_positions=fields.optional("max_position_embeddings", "max_sequence_length"),
        kv_dtype=kv_dtype(quantization),
        architecture=fields.model_type,
        source=source,
        mtp_layers=fields.amount(*MTP_LAYERS),
        notes=_notes(fields, filled),
    )


def abstract_model(parameters: float, weight_dtype: str) -> ModelSpec:
    """A model known by its size alone: weights, no attention, no KV."""
    if weight_dtype not in BITS or not 1 <= parameters <= LARGEST:
        raise UnsupportedModel(
            f"a model of {parameters:g} parameters in {weight_dtype} cannot be",
            f"give at least 1 parameter, and one of {', '.join(BITS)}",
        )
    dtype: DType = weight_dtype  # type: ignore[assignment]
    return ModelSpec(
        name=f"{parameters / 1e9:g}e9 parameters",
        hidden=1,
        vocabulary=1,
        layers=(),
        tied_embeddings=True,
        other_parameters=0,
        weights=plain(dtype),
        activation_dtype=dtype if dtype in TORCH_DTYPES.values() else "bf16",
        max_positions=None,
        abstract_parameters=round(parameters),
        architecture="abstract",
        source="the scenario",
    )


def _activation(fields: Fields) -> DType:
    named = str(fields.outer("torch_dtype", "dtype", default="bfloat16")).removeprefix("torch.")
    if named not in TORCH_DTYPES:
        raise UnsupportedModel(f"{fields.name}: torch_dtype {named} is not known", "set it to bfloat16 or float16")
    dtype = TORCH_DTYPES[named]
    # Engines load FP32 checkpoints in 16 bits.
    return "bf16" if dtype == "fp32" else dtype


def _notes(fields: Fields, filled: list[str]) -> tuple[str, ...]:
    notes = []
    if fields.has_towers:
        notes.append("the language model alone: other towers (vision, audio) are not counted")
    if fields.amount(*MTP_LAYERS):
        notes.append("multi-token-prediction layers are not counted")
    if filled:
        notes.append(f"left out of the config, the architecture's defaults taken: {', '.join(filled)}")
    if kv_dtype(fields.outer("quantization_config")) is not None:
        notes.append("the checkpoint has FP8 scales for keys and values: kv_dtype auto means fp8")
    if fields.get("index_topk") is not None:
        notes.append("weights of the sparse-attention indexer are in the bytes, not in the parameters")
        shared = index_layers(fields, depth := fields.count("num_hidden_layers")).count(False)
        if shared:
            notes.append(f"{shared} of {depth} layers reuse the indexer of a layer before them")
    if str(fields.get("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="")) == "float32":
        notes.append("the config asks for recurrent state in FP32; bytes are in the dtype the model computes in")
    return tuple(notes)
