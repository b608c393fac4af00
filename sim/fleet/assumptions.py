"""What the user did not say that decides the numbers: the block "assumed" of every summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from sim.cost import KvCapacity
from sim.cost.memory import GIB, bandwidth_bound_tokens_per_s
from sim.engine import EngineRules, EngineSettings
from sim.hardware import HardwareProfile
from sim.models import ModelSpec
from sim.models.memory import active_parameters, parameters
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
    first = list(islice(open_traffic(loaded.spec.traffic, loaded.base_dir, loaded.spec.seed), SAMPLE_REQUESTS))
    if not first:
        return 1
    return max(1, round(sum(arrival.prompt_tokens + arrival.output_tokens for arrival in first) / len(first)))


def assumptions(
    loaded: Loaded,
    model: ModelSpec,
    hardware: HardwareProfile,
    rules: EngineRules,
    defaults_taken: Mapping[str, object],
    settings: EngineSettings,
    capacity: KvCapacity | None,
    *,
    fitted: bool,
) -> tuple[Assumption, ...]:
    """In the order they matter to the result."""
    return (
        *_step_times(loaded, model, hardware, rules),
        *_engine(loaded, rules, defaults_taken, settings, fitted=fitted),
        *_memory(capacity),
        *(Assumption("model", note, model.source) for note in model.notes),
    )


def _step_times(
    loaded: Loaded, model: ModelSpec, hardware: HardwareProfile, rules: EngineRules
) -> Iterator[Assumption]:
    cost = loaded.spec.cost
    if cost.model == "linear":
        yield Assumption("step times", "linear", "as the scenario says: hardware figures decide nothing but memory")
        step_s = cost.step_s + cost.step_s_per_sequence
        read_s = 1 / bandwidth_bound_tokens_per_s(model, hardware, loaded.spec.deployment.tensor_parallel)
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
    yield Assumption(
        "expected error of latencies",
        "TPOT 9 %, TTFT 33 %",
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
    if loaded.spec.engine.version is None:
        yield Assumption("engine.version", rules.version, "the newest with a record")
    if rules.notice:
        yield Assumption("engine.version", rules.version, rules.notice)
    if "max_model_len" in defaults_taken:
        why = "the longest request the KV pool holds" if fitted else "the model's own limit"
        yield Assumption("engine.max_model_len", f"{settings.max_model_len:,}", why)
    rest = {name: value for name, value in defaults_taken.items() if name != "max_model_len"}
    if rest:
        listed = ", ".join(f"{name} {_shown(value)}" for name, value in rest.items())
        yield Assumption("engine settings", listed, f"defaults of {rules.engine} {rules.version}")


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()


def _memory(capacity: KvCapacity | None) -> Iterator[Assumption]:
    if capacity is None:
        yield Assumption("KV cache", "none", "an abstract model has weights only")
        return
    if capacity.budget is None:
        yield Assumption("KV cache", f"{capacity.tokens:,} tokens", "engine.kv_blocks")
    else:
        budget = capacity.budget
        draft = budget.draft_weight_bytes
        weights = f"{budget.weight_bytes / GIB:.1f}" + (f" - draft's {draft / GIB:.1f}" if draft else "")
        why = (
            f"per GPU {budget.usable_bytes / GIB:.1f} GiB usable - weights {weights} "
            f"- activations {budget.activation_bytes / GIB:.1f} - graphs {budget.graph_bytes / GIB:.1f} - framework "
            f"{budget.framework_bytes / GIB:.1f} = {budget.kv_bytes / GIB:.1f} GiB"
        )
        yield Assumption("KV cache", f"{capacity.tokens:,} tokens", why)
    if not capacity.uniform:
        yield Assumption(
            "KV cache of windows and states",
            f"stated for requests of {capacity.request_tokens:,} tokens",
            "the mean request; "
            + (
                "every block is charged what it costs such a request"
                if capacity.groups == (None,)
                else f"full and windowed layers share the pool in {len(capacity.groups)} block tables, as in vLLM"
            ),
        )
