"""What ``sim models X`` tells of a model."""

from __future__ import annotations

from typing import Any

from sim.models import memory
from sim.models.presets import load_model
from sim.models.quantization import with_weight_dtype
from sim.models.spec import ModelSpec


def describe(
    name_or_path: str,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    context_tokens: int | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str = "auto",
) -> dict[str, Any]:
    """``model_summary`` of a model by name, its weights in another dtype if one is given."""
    spec = load_model(name_or_path)
    if weight_dtype is not None:
        spec = with_weight_dtype(spec, weight_dtype)
    return model_summary(
        spec,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        context_tokens=context_tokens,
        kv_dtype=kv_dtype,
    )


def model_summary(
    spec: ModelSpec,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    context_tokens: int | None = None,
    kv_dtype: str = "auto",
) -> dict[str, Any]:
    """Parameters and bytes of the whole model, and what the worst GPU holds at a parallelism and a context.

    ``flops_per_token``: 2 x the active weights that multiply a token, attention over the context left out.
    ``kv.growing_bytes_per_token`` is keys and values alone, without index keys. ``per_gpu.kv_bytes_per_token``: what one more
    token adds at that context, so windows that are full add nothing; ``kv_bytes_per_request``: all that a request of that
    many tokens holds, index keys and fixed state included. Without a context it is the model's longest.
    """
    memory.check_tensor_parallel(spec, tensor_parallel)
    memory.check_pipeline_parallel(spec, pipeline_parallel)
    context = context_tokens or spec.max_positions or 1
    stages = [memory.stage_layers(spec, pipeline_parallel, stage) for stage in range(pipeline_parallel)]
    open_windows = [None, *(window for window in memory.windows(spec) if context < window)]
    return {
        "name": spec.name,
        "architecture": spec.architecture,
        "parameters": memory.parameters(spec),
        "active_parameters": memory.active_parameters(spec),
        "index_parameters": memory.index_parameters(spec),
        "weight_bytes": memory.weight_bytes(spec),
        "flops_per_token": memory.matmul_flops_per_token(spec),
        "layers": len(spec.layers),
        "hidden": spec.hidden,
        "max_positions": spec.max_positions,
        "weight_dtype": spec.weights.dense_ffn if spec.weights.experts == spec.weights.attention else spec.weights.experts,
        "kv": {
            "growing_bytes_per_token": memory.kv_bytes_per_token(spec, 1, kv_dtype, window=None),
            "windows": [
                {"window_tokens": window, "bytes_per_token": memory.kv_bytes_per_token(spec, 1, kv_dtype, window=window)}
                for window in memory.windows(spec)
            ],
            "index_bytes_per_token": memory.index_bytes_per_token(spec),
            "state_bytes_per_request": memory.state_bytes_per_request(spec),
        },
        "per_gpu": {
            "tensor_parallel": tensor_parallel,
            "pipeline_parallel": pipeline_parallel,
            "context_tokens": context,
            "weight_bytes": memory.weight_bytes_per_gpu(spec, tensor_parallel, pipeline_parallel),
            "kv_bytes_per_token": max(
                sum(
                    memory.kv_bytes_per_token(spec, tensor_parallel, kv_dtype, window=window, layers=stage)
                    for window in open_windows
                )
                + memory.index_bytes_per_token(spec, stage)
                for stage in stages
            ),
            "kv_bytes_per_request": max(
                memory.kv_bytes_per_request(spec, context, tensor_parallel, kv_dtype, layers=stage) for stage in stages
            ),
        },
        "source": spec.source,
        "notes": list(spec.notes),
    }
