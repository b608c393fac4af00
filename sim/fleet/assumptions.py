"""What the user did not say that decides the numbers: the block "assumed" of every summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from sim.cost import KvCapacity
from sim.cost.memory import GIB, SHARE_OF, KvBudget, bandwidth_bound_tokens_per_s
from sim.engine import EngineRules, EngineSettings, Resolved
from sim.hardware import HardwareProfile
from sim.models import ModelSpec
from sim.models.memory import active_parameters, parameters
from sim.models.spec import MoeFfn
from sim.scenario import Loaded
from sim.traffic import open_traffic

SAMPLE_REQUESTS = 256
"""Requests looked at to learn the mean length."""


class Assumption(NamedTuple):
    """One thing taken for granted, and why."""

    what: str
    value: str
    why: str


def mean_request_tokens(loaded: Loaded) -> int:
    """Mean prompt + output of the first requests: what hybrid caches state their capacity for."""
    traffic = open_traffic(loaded.spec.traffic, loaded.base_dir, loaded.spec.seed)
    first = list(islice(traffic.planned_tokens(), SAMPLE_REQUESTS))
    if not first:
        return 1
    return max(1, round(sum(prompt + output for prompt, output in first) / len(first)))


def assumptions(
    loaded: Loaded,
    model: ModelSpec,
    hardware: HardwareProfile,
    rules: EngineRules,
    resolved: Resolved,
    settings: EngineSettings,
    capacity: KvCapacity | None,
    *,
    fitted: bool,
) -> tuple[Assumption, ...]:
    """In the order they matter to the result."""
    return (
        *_step_times(loaded, model, hardware, rules),
        *_engine(loaded, rules, resolved.defaults_taken, settings, fitted=fitted),
        *_memory(capacity, rules, resolved, loaded.spec.deployment.data_parallel),
        *(Assumption("model", note, model.source) for note in model.notes),
    )


def _step_times(
    loaded: Loaded, model: ModelSpec, hardware: HardwareProfile, rules: EngineRules
) -> Iterator[Assumption]:
    cost = loaded.spec.cost
    if cost.model == "linear":
        yield Assumption("step times", "linear", "as the scenario says: hardware figures decide nothing but memory")
        step_s = cost.step_s + cost.step_s_per_sequence
        read_s = 1 / bandwidth_bound_tokens_per_s(model, hardware, loaded.spec.deployment.parallel)
        if 0 < step_s < read_s * active_parameters(model) / parameters(model):
            yield Assumption(
                "decode steps",
                "faster than bandwidth allows",
                f"reading the weights once takes {read_s * 1e3:.3g} ms on {hardware.name}: no real device is this fast",
            )
        return
    if cost.efficiency == "ideal":
        yield Assumption("step times", "ideal roofline", "datasheet peaks, no overheads: a bound, not a forecast")
        return
    efficiency = hardware.efficiency
    kind = "calibrated" if efficiency.calibrated else "borrowed, not measured on this device"
    yield Assumption("kernel efficiencies", kind, efficiency.source)
    if efficiency.error:
        errors = ", ".join(f"{name} {error:.0%}" for name, error in efficiency.error.items())
        yield Assumption("expected error of kernels", errors, "median of the fit over the measured kernels")
    if rules.kernels:
        yield Assumption("kernels", "those of other engines", rules.kernels)
    experts = {(layer.weights or model.weights).experts for layer in model.layers if isinstance(layer.ffn, MoeFfn)}
    for known in rules.kernel_factors:
        if known.architecture == hardware.architecture and known.weight_dtype in experts:
            value = f"x {known.factor:g} in steps of more than {known.above_tokens} tokens"
            yield Assumption(f"{known.weight_dtype} experts", value, known.source)
    yield Assumption(
        "expected error of latencies",
        "TPOT 9 %, TTFT 33 %" if rules.engine == "vllm" else "not known",
        f"{'' if rules.engine == 'vllm' else f'{rules.engine} was not checked; vLLM: TPOT 9 %, TTFT 33 %, '}"
        "median of a spot check on 62 public vLLM runs on A100, H100, H200 and B200, part of which the host overheads "
        "were fitted to; TTFT tends to be low",
    )
    host = rules.host
    value = (
        f"{host.step_s * 1e3:g} ms per step, {host.sequence_s * 1e6:g} us per sequence, "
        f"{host.request_latency_s * 1e3:g} ms per request"
    )
    yield Assumption("host overheads", value, host.source)


def _engine(
    loaded: Loaded, rules: EngineRules, defaults_taken: Mapping[str, object], settings: EngineSettings, *, fitted: bool
) -> Iterator[Assumption]:
    newest = "the newest with a record" if loaded.spec.engine.version is None and rules.version else None
    yield Assumption(
        "engine", rules.title, "; ".join(filter(None, (rules.notice or newest, f"rules of {rules.source}")))
    )
    if "max_model_len" in defaults_taken:
        fits = "one slot's part of the KV pool" if rules.divides_pool else "the longest request the KV pool holds"
        why = fits if fitted else "the model's own limit"
        yield Assumption("engine.max_model_len", f"{settings.max_model_len:,}", why)
    rest = {name: value for name, value in defaults_taken.items() if name != "max_model_len"}
    if rest:
        listed = ", ".join(f"{name} {_shown(value)}" for name, value in rest.items())
        yield Assumption("engine settings", listed, f"defaults of {rules.title}")


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()


def _memory(capacity: KvCapacity | None, rules: EngineRules, resolved: Resolved, ranks: int) -> Iterator[Assumption]:
    if capacity is None:
        yield Assumption("KV cache", "none", "an abstract model has weights only")
        return
    tokens = f"{capacity.tokens:,} tokens" if ranks == 1 else f"{capacity.tokens:,} tokens of each data-parallel rank"
    if capacity.budget is None:
        yield Assumption("KV cache", tokens, "engine.kv_blocks")
    else:
        yield Assumption("KV cache", tokens, _budget(capacity, capacity.budget, resolved))
    if not capacity.uniform:
        yield Assumption(
            "KV cache of windows and states",
            f"stated for requests of {capacity.request_tokens:,} tokens",
            "the mean request; "
            + (
                "every block is charged what it costs such a request"
                if capacity.groups == (None,)
                else f"full and windowed layers share the pool in {len(capacity.groups)} block tables, "
                f"as in {rules.engine}"
            ),
        )


def _budget(capacity: KvCapacity, budget: KvBudget, resolved: Resolved) -> str:
    """The sum that leads to the KV pool."""
    share = f"{resolved.gpu_memory_utilization:g} {SHARE_OF[budget.share]} {budget.memory_bytes / GIB:.1f}"
    inside = f"- activations {budget.activation_bytes / GIB:.1f} - graphs {budget.graph_bytes / GIB:.1f} "
    if budget.share == "of-free-before-load":
        inside = ""
    draft = f"- draft's {budget.draft_weight_bytes / GIB:.1f} " if budget.draft_weight_bytes else ""
    said = (
        f"per GPU {budget.usable_bytes / GIB:.1f} GiB usable ({share}) - weights {budget.weight_bytes / GIB:.1f} "
        f"{draft}{inside}- framework {budget.framework_bytes / GIB:.1f} = {budget.kv_bytes / GIB:.1f} GiB"
    )
    if capacity.blocks == resolved.most_kv_blocks:
        return f"as much as {resolved.settings.max_sequences} slots share by default; {said}"
    return said if inside else f"{said}; activations and graphs live in what is not usable"
