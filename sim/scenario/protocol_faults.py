"""What the flags of each load generator need and exclude of one another."""

from __future__ import annotations

from collections.abc import Iterator

from sim.scenario import specs

Fault = tuple[str, str, str]
"""Key path below ``traffic``, problem, cure."""
NEEDED: dict[str, dict[str, tuple[str, ...]]] = {
    "guidellm": {
        "synchronous": (),
        "concurrent": ("streams",),
        "throughput": (),
        "constant": ("rate",),
        "poisson": ("rate",),
    },
    "inference-perf": {
        "constant": ("rate", "duration"),
        "poisson": ("rate", "duration"),
        "concurrent": ("concurrency",),
    },
}
"""Keys that a tool's profile cannot do without."""
FURTHER = {
    "concurrent": ("rampup",),
    "throughput": ("max_concurrency", "rampup"),
    "constant": ("max_concurrency", "rampup"),
    "poisson": ("max_concurrency",),
}
"""Keys that a profile of guidellm has beside those."""


def protocol_faults(spec: specs.TrafficSpec) -> Iterator[Fault]:
    """Everything wrong between the flags of a load generator."""
    tools = specs.VllmBench | specs.SglangBench | specs.Guidellm | specs.Aiperf | specs.InferencePerf | specs.Llmperf
    if isinstance(spec.arrivals, tools) and spec.sessions is not None:
        process = spec.arrivals.process
        yield "sessions", f"{process} sends single requests", "use an ordinary process of arrivals, such as poisson"
    match spec.arrivals:
        case specs.VllmBench():
            yield from _vllm_bench(spec.arrivals, spec.requests)
        case specs.Guidellm(profile=profile):
            yield from _profile(spec.arrivals, "guidellm", profile, FURTHER.get(profile, ()))
            if profile == "throughput" and spec.arrivals.rampup and spec.arrivals.max_concurrency is None:
                yield "arrivals.rampup", "has no effect without max_concurrency", "add it, or leave rampup out"
        case specs.InferencePerf(type=kind):
            yield from _profile(spec.arrivals, "inference-perf", kind, ())
        case specs.Aiperf():
            yield from _aiperf(spec.arrivals)


def _vllm_bench(arrivals: specs.VllmBench, requests: int | None) -> Iterator[Fault]:
    if requests is None:
        yield "requests", "vllm bench sends a number of requests (--num-prompts)", "add requests: 1000"
    ends = ("ramp_up_start_rate", "ramp_up_end_rate")
    for name in ends:
        given = getattr(arrivals, name) is not None
        if arrivals.ramp_up is not None and not given:
            yield f"arrivals.{name}", "missing", f"add {name}: 1, or leave ramp_up out"
        if arrivals.ramp_up is None and given:
            yield f"arrivals.{name}", "has no effect without ramp_up", "add ramp_up: linear, or leave it out"
    if arrivals.ramp_up is not None and arrivals.rate is not None:
        yield "arrivals.rate", "has no effect beside ramp_up, which has rates of its own", "leave it out"
    if arrivals.burstiness is not None and arrivals.rate is None and arrivals.ramp_up is None:
        yield "arrivals.burstiness", "has no effect: without a rate all is sent at once", "add a rate"


def _aiperf(arrivals: specs.Aiperf) -> Iterator[Fault]:
    if arrivals.rate is None and arrivals.concurrency is None:
        yield "arrivals.rate", "aiperf needs a rate or a concurrency", "add rate: 8, or concurrency: 16"
    if arrivals.rate is None and arrivals.arrival_pattern is not None:
        yield "arrivals.arrival_pattern", "has no effect without a rate", "add a rate, or leave it out"
    if arrivals.arrival_smoothness is not None and arrivals.arrival_pattern != "gamma":
        yield "arrivals.arrival_smoothness", "has no effect: gaps are not gamma", "add arrival_pattern: gamma"


def _profile(arrivals: specs.Spec, tool: str, profile: str, further: tuple[str, ...]) -> Iterator[Fault]:
    needed = NEEDED[tool][profile]
    for name in needed:
        if getattr(arrivals, name) is None:
            yield f"arrivals.{name}", f"missing: {tool} {profile} needs it", f"add {name}"
    known = {"process", "profile", "type", *needed, *further}
    for name in sorted(arrivals.model_fields_set - known):
        yield f"arrivals.{name}", f"has no effect: {tool} {profile} has no such setting", "leave it out"
