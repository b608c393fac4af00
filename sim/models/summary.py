"""What ``sim models X`` tells of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.models import memory
from sim.models.parallel import ONE_GPU, check_parallelism, stages
from sim.models.presets import load_model
from sim.models.quantization import with_weight_dtype
from sim.models.spec import ModelSpec
from sim.parallel import Parallelism


def describe(
    name_or_path: str,
    *,
    parallel: Parallelism = ONE_GPU,
    context_tokens: int | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str = "auto",
    base_dir: Path | None = None,
) -> dict[str, Any]:
    """``model_summary`` of a model by name, its weights in another dtype if one is given."""
    spec = load_model(name_or_path, base_dir)
    if weight_dtype is not None:
        spec = with_weight_dtype(spec, weight_dtype)
    return model_summary(
        spec,
        parallel=parallel,
        context_tokens=context_tokens,
        kv_dtype=kv_dtype,
    )


def model_summary(
    spec: ModelSpec,
    *,
    parallel: Parallelism = ONE_GPU,
    context_tokens: int | None = None,
    kv_dtype: str = "auto",
) -> dict[str, Any]:
    """Parameters and bytes of the whole model, and of the worst GPU at a parallelism and a context.

    ``parameters`` counts both embedding tables, all experts, norms and biases, and neither other towers, nor
    multi-token-prediction layers, nor sparse attention's indexer (``index_parameters``). ``flops_per_token`` is 2 x the
    active weights that multiply a token, without the input embedding and without attention over the context.
    Raises UnsupportedModel for a parallelism that the model cannot have.
    """
    check_parallelism(spec, parallel)
    context = context_tokens or spec.max_positions or 1
    return {
        "name": spec.name,
        "architecture": spec.architecture,
        "parameters": memory.parameters(spec),
        "active_parameters": memory.active_parameters(spec),
        "index_parameters": memory.index_parameters(spec),
        "weight_bytes": memory.weight_bytes(spec),
        "weight_dtypes": _dtypes(spec),
        "flops_per_token": memory.matmul_flops_per_token(spec),
        "layers": len(spec.layers),
        "hidden": spec.hidden,
        "vocabulary": spec.vocabulary,
        "max_positions": spec.max_positions,
        "kv": _kv(spec, kv_dtype),
        "per_gpu": _per_gpu(spec, parallel, context, kv_dtype),
        "source": spec.source,
        "notes": list(spec.notes),
    }


def _dtypes(spec: ModelSpec) -> dict[str, str]:
    """Of the matrices the model has; a mixed checkpoint's layers may differ."""
    weights = spec.weights
    kinds: dict[str, str] = {} if spec.layers else {"all": weights.attention}
    for layer in spec.layers:
        if layer.attention is not None:
            kinds["attention"] = weights.attention
        if layer.ffn is not None and hasattr(layer.ffn, "experts"):
            kinds["experts"] = weights.experts
        elif layer.ffn is not None:
            kinds["dense_ffn"] = weights.dense_ffn
    return kinds


def _kv(spec: ModelSpec, kv_dtype: str) -> dict[str, Any]:
    """Of the whole model. ``growing_bytes_per_token`` is keys and values alone, in layers that see every token."""
    return {
        "growing_bytes_per_token": memory.kv_bytes_per_token(spec, 1, kv_dtype, window=None),
        "windows": [
            {
                "window_tokens": window,
                "bytes_per_token": memory.kv_bytes_per_token(spec, 1, kv_dtype, window=window),
            }
            for window in memory.windows(spec)
        ],
        "index_bytes_per_token": memory.index_bytes_per_token(spec),
        "state_bytes_per_request": memory.state_bytes_per_request(spec),
    }


def _per_gpu(spec: ModelSpec, parallel: Parallelism, context_tokens: int, kv_dtype: str) -> dict[str, Any]:
    """The largest over pipeline stages of each figure.

    ``kv_bytes_per_token``: keys and values that one more token adds to a request of ``context_tokens`` (the model's
    longest where none is given): windows that are full add none, and index keys are apart. ``kv_bytes_per_request``:
    all that such a request holds, index keys and fixed state included.
    """
    tensor_parallel, cut = parallel.tensor, stages(spec, parallel)
    unfilled = [None, *(window for window in memory.windows(spec) if context_tokens < window)]
    return {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": parallel.pipeline,
        "data_parallel": parallel.data,
        "expert_parallel": parallel.expert,
        "context_tokens": context_tokens,
        "weight_bytes": memory.weight_bytes_per_gpu(spec, parallel),
        "kv_bytes_per_token": max(
            sum(
                memory.kv_bytes_per_token(spec, tensor_parallel, kv_dtype, window=window, layers=stage)
                for window in unfilled
            )
            for stage in cut
        ),
        "index_bytes_per_token": max(memory.index_bytes_per_token(spec, stage) for stage in cut),
        "state_bytes_per_request": max(memory.state_bytes_per_request(spec, tensor_parallel, stage) for stage in cut),
        "kv_bytes_per_request": max(
            memory.kv_bytes_per_request(spec, context_tokens, tensor_parallel, kv_dtype, layers=stage) for stage in cut
        ),
    }
