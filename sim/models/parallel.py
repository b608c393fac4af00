"""Which parallelism a model can have, and the layers of its pipeline stages."""

from __future__ import annotations

from collections.abc import Callable

from sim.errors import UnsupportedModel
from sim.models.spec import Attention, LinearAttention, ModelSpec, MoeFfn
from sim.parallel import Parallelism

ONE_GPU = Parallelism()


def stage_layers(spec: ModelSpec, pipeline_parallel: int, stage: int) -> tuple[int, int]:
    """First and one-past-last layer of a stage, as vLLM cuts them.

    Its ``get_pp_indices`` gives a remainder to the middle stages, the last of them first: the first stage has the
    embedding, the last one the LM head.
    """
    count = len(spec.layers)
    sizes = [count // pipeline_parallel] * pipeline_parallel
    for index in range(2, count % pipeline_parallel + 2):
        sizes[-index] += 1
    first = sum(sizes[:stage])
    return first, first + sizes[stage]


def stages(spec: ModelSpec, parallel: Parallelism) -> list[tuple[int, int]]:
    """``stage_layers`` of every stage."""
    return [stage_layers(spec, parallel.pipeline, stage) for stage in range(parallel.pipeline)]


def legal_tensor_parallel(spec: ModelSpec, most: int = 64) -> list[int]:
    """Degrees that divide the query heads of every layer, and either divide its KV heads or are a multiple of them."""
    return [ranks for ranks in range(1, most + 1) if _divides(spec, ranks)]


def _divides(spec: ModelSpec, ranks: int) -> bool:
    return all(count % ranks == 0 for count in query_heads(spec)) and all(
        count % ranks == 0 or ranks % count == 0 for count in _kv_heads(spec)
    )


def query_heads(spec: ModelSpec) -> list[int]:
    """Distinct numbers of heads that tensor parallelism must divide."""
    heads: set[int] = set()
    for layer in spec.layers:
        if isinstance(layer.attention, LinearAttention):
            heads |= {layer.attention.heads, layer.attention.key_heads or layer.attention.heads}
        elif layer.attention is not None:
            heads.add(layer.attention.query_heads)
    return sorted(heads)


def _kv_heads(spec: ModelSpec) -> set[int]:
    return {layer.attention.kv_heads for layer in spec.layers if isinstance(layer.attention, Attention)}


def check_pipeline_parallel(spec: ModelSpec, stages: int) -> None:
    """Raises UnsupportedModel where there are more stages than layers."""
    if stages > max(1, len(spec.layers)):
        raise UnsupportedModel(
            f"pipeline_parallel {stages} is more than the {len(spec.layers)} layers of {spec.name}",
            f"use at most {max(1, len(spec.layers))}",
        )


def check_tensor_parallel(spec: ModelSpec, ranks: int) -> None:
    """Raises UnsupportedModel, with the legal degrees, where ``ranks`` does not divide the heads."""
    if not _divides(spec, ranks):
        heads = " and ".join(str(count) for count in query_heads(spec))
        problem = f"tensor_parallel {ranks} does not divide the {heads} attention heads of {spec.name}"
        if all(count % ranks == 0 for count in query_heads(spec)):
            kv_heads = " and ".join(str(count) for count in sorted(_kv_heads(spec)))
            pair = f"tensor_parallel {ranks} and the {kv_heads} KV heads of {spec.name}"
            problem = f"{pair}: neither is a multiple of the other"
        raise UnsupportedModel(problem, f"use one of {', '.join(map(str, legal_tensor_parallel(spec)))}")


def has_experts(spec: ModelSpec) -> bool:
    """Whether any layer routes its tokens."""
    return any(isinstance(layer.ffn, MoeFfn) for layer in spec.layers)


def check_data_parallel(spec: ModelSpec, ranks: int) -> None:
    """Raises UnsupportedModel where ranks would share nothing: they are replicas then."""
    if ranks > 1 and not has_experts(spec):
        raise UnsupportedModel(
            f"{spec.name} has no experts: its {ranks} data-parallel ranks would share nothing",
            f"use 1 here and replicas: {ranks} instead, which is the same",
        )


def legal_expert_parallel(spec: ModelSpec, gpus: int) -> list[int]:
    """Degrees that divide the GPUs of a stage (tensor x data), and are no more than the experts."""
    experts = min((layer.ffn.experts for layer in spec.layers if isinstance(layer.ffn, MoeFfn)), default=1)
    return [degree for degree in range(1, gpus + 1) if gpus % degree == 0 and degree <= experts]


def check_expert_parallel(spec: ModelSpec, parallel: Parallelism) -> None:
    """Raises UnsupportedModel, with the legal degrees, where experts cannot be split so."""
    degree, gpus = parallel.expert, parallel.tensor * parallel.data
    if degree > 1 and not has_experts(spec):
        raise UnsupportedModel(f"{spec.name} has no experts to split {degree} ways", "use 1")
    legal = legal_expert_parallel(spec, gpus)
    if degree not in legal:
        problem = f"expert_parallel {degree} does not divide tensor_parallel x data_parallel = {gpus}"
        if gpus % degree == 0:
            problem = f"expert_parallel {degree} is more than the experts of {spec.name}"
        raise UnsupportedModel(problem, f"use one of {', '.join(map(str, legal))}")


PARALLELISM_CHECKS: dict[str, Callable[[ModelSpec, Parallelism], None]] = {
    "tensor_parallel": lambda spec, parallel: check_tensor_parallel(spec, parallel.tensor),
    "pipeline_parallel": lambda spec, parallel: check_pipeline_parallel(spec, parallel.pipeline),
    "data_parallel": lambda spec, parallel: check_data_parallel(spec, parallel.data),
    "expert_parallel": check_expert_parallel,
}
"""By the scenario's key."""


def check_parallelism(spec: ModelSpec, parallel: Parallelism) -> None:
    """Raises UnsupportedModel where the model cannot have it."""
    for check in PARALLELISM_CHECKS.values():
        check(spec, parallel)
