"""What one key alone cannot tell: keys that need, exclude or contradict each other, and files that must be there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sim import resources
from sim.errors import Problem
from sim.scenario.document import Source, split_path
from sim.scenario.faults import faults, session_lengths
from sim.scenario.quantities import PositiveSeconds
from sim.scenario.specs import (
    MOST_REQUESTS,
    MOST_TOKENS,
    Arrivals,
    ByClass,
    Cancellation,
    ClassSpec,
    Empirical,
    Fixed,
    JointLengths,
    Lengths,
    LogNormal,
    Normal,
    SessionsSpec,
    SharedPrefix,
    Trace,
    TrafficSpec,
)
from sim.scenario.speculation import speculative_faults

ANY_ARRIVALS = Trace(process="trace", path=".")
ANY_LENGTH = Fixed(distribution="fixed", value=1)
Found = Iterator[tuple[str, str, str]]
"""(dotted path, problem, cure)."""


class Parts:
    """A scenario's data, of which some may be wrong: only what is valid in itself is checked against the rest."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def raw(self, path: str) -> Any:
        """What the user wrote; None where nothing."""
        return self._source.get(split_path(path))

    def valid(self, path: str, kind: Any) -> Any:
        """The validated value at ``path``; None where there is none, or a wrong one."""
        value = self.raw(path)
        try:
            return None if value is None else _adapter(kind).validate_python(value)
        except ValidationError:
            return None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def check(source: Source, base_dir: Path) -> list[Problem]:
    """Every problem between the parts of a scenario that are each valid."""
    parts = Parts(source)
    found = [*_names(parts, base_dir), *_engine(parts), *_weights(parts), *_speculative(parts, base_dir)]
    if isinstance(parts.raw("traffic"), dict):
        found += _traffic(parts, base_dir)
    return [source.problem(split_path(path), problem, cure) for path, problem, cure in found]


def _names(parts: Parts, base_dir: Path) -> Found:
    from sim.hardware import profile_names
    from sim.models import preset_names

    model = parts.raw("model")
    if isinstance(model, str) and not _is_model(model, preset_names(), base_dir):
        cure = resources.nearest(model, preset_names()) + "; or give the path of a config.json"
        yield "model", f"no preset and no file is called {model!r}", cure
    path = "hardware.profile" if isinstance(parts.raw("hardware"), dict) else "hardware"
    hardware = parts.raw(path)
    if isinstance(hardware, str) and hardware not in profile_names() and not _is_file(hardware, base_dir):
        cure = resources.nearest(hardware, profile_names()) + "; or give the path of a profile"
        yield path, f"no profile and no file is called {hardware!r}", cure


def _speculative(parts: Parts, base_dir: Path) -> Found:
    from sim.models import preset_names

    presets = preset_names()
    draft = parts.raw("engine.speculative.draft_model")
    cure = (resources.nearest(draft, presets) if isinstance(draft, str) else "") + "; or give the path of a config.json"
    yield from speculative_faults(parts.raw, lambda name: _is_model(name, presets, base_dir), cure)


def _is_model(name: str, presets: list[str], base_dir: Path) -> bool:
    from sim.models import is_preset

    known = name in presets or is_preset(name)
    return known or _is_file(name, base_dir) or _is_file(f"{name}/config.json", base_dir)


def _is_file(path: str, base_dir: Path) -> bool:
    return bool(path) and resources.locate(path, base_dir) is not None


def _is_folder(path: str, base_dir: Path) -> bool:
    try:
        return bool(path) and (base_dir / Path(path).expanduser()).is_dir()
    except (OSError, ValueError, RuntimeError):  # names that no file can have, and homes of nobody
        return False


def _file(path: str, name: str, base_dir: Path, *, folder: bool = False) -> Found:
    if not _is_file(name, base_dir) and not (folder and _is_folder(name, base_dir)):
        yield path, f"no file is called {name!r}", "give the path of a file, seen from the scenario's folder"


def _traffic(parts: Parts, base_dir: Path) -> Found:
    """What the load itself refuses, then what needs the rest of the scenario or files."""
    arrivals = parts.valid("traffic.arrivals", Arrivals)
    for path, problem, cure in _faults(parts, arrivals):
        yield f"traffic.{path}", problem, cure
    if isinstance(arrivals, Trace):
        yield from _file("traffic.arrivals.path", arrivals.path, base_dir, folder=True)
    yield from _size(parts, arrivals)
    if parts.raw("traffic.priorities") is not None and parts.raw("engine.policy") != "priority":
        yield "traffic.priorities", "has no effect under the fcfs policy", "add policy: priority under engine"
    classes = parts.valid("traffic.classes", dict[str, ClassSpec]) or {}
    for name, own in classes.items():
        path = f"traffic.classes.{name}"
        if own.priority is not None and parts.raw("engine.policy") != "priority":
            yield f"{path}.priority", "has no effect under the fcfs policy", "add policy: priority under engine"
        if isinstance(own.arrivals, Trace):
            yield from _file(f"{path}.arrivals.path", own.arrivals.path, base_dir, folder=True)
        yield from _lengths(f"{path}.prompt_tokens", own.prompt_tokens, base_dir)
        yield from _lengths(f"{path}.output_tokens", own.output_tokens, base_dir)
    for path in ("traffic.prompt_tokens", "traffic.output_tokens"):
        yield from _lengths(path, parts.valid(path, Lengths), base_dir)
    joint = parts.valid("traffic.lengths", JointLengths)
    if joint is not None:
        yield from _file("traffic.lengths.path", joint.path, base_dir)
    sessions = parts.valid("traffic.sessions", SessionsSpec)
    for name, lengths in () if sessions is None else session_lengths(sessions):
        yield from _lengths(f"traffic.sessions.{name}", lengths, base_dir)


def _faults(parts: Parts, arrivals: Any) -> Found:
    """The faults of the valid parts: where one is wrong, something without a fault stands in for it."""
    lengths: dict[str, Any] = {}
    classes = parts.valid("traffic.classes", dict[str, ClassSpec])
    told = classes is not None or parts.raw("traffic.classes") is None
    stands_in = ByClass() if told and parts.raw("traffic.arrivals") is None else ANY_ARRIVALS
    for name in ("prompt_tokens", "output_tokens"):
        missing = told and parts.raw(f"traffic.{name}") is None
        lengths[name] = parts.valid(f"traffic.{name}", Lengths) or (None if missing else ANY_LENGTH)
    joint = parts.valid("traffic.lengths", JointLengths)
    if arrivals is None and not isinstance(stands_in, ByClass):
        classes = None
    spec = TrafficSpec.model_construct(
        arrivals=arrivals or stands_in,
        classes=classes,
        requests=parts.raw("traffic.requests"),
        duration=parts.raw("traffic.duration"),
        priorities=parts.valid("traffic.priorities", dict[int, Any]),
        shared_prefix=parts.valid("traffic.shared_prefix", SharedPrefix),
        sessions=parts.valid("traffic.sessions", SessionsSpec),
        cancellation=parts.valid("traffic.cancellation", Cancellation),
        lengths=None if parts.raw("traffic.lengths") is None else joint or JointLengths(path="."),
        **lengths,
    )
    yield from faults(spec)


def _size(parts: Parts, arrivals: Any) -> Found:
    """A rate and a duration that are each fine may ask for too many requests."""
    rate, duration_s = (
        getattr(arrivals, "rate", getattr(arrivals, "mean", None)),
        parts.valid("traffic.duration", PositiveSeconds),
    )
    if rate is None or duration_s is None or parts.raw("traffic.requests") is not None:
        return
    if rate * duration_s > MOST_REQUESTS:
        cure = f"shorten it: {MOST_REQUESTS:,} requests at most"
        yield "traffic.duration", f"{rate:g} per second would be {rate * duration_s:.3g} requests", cure


def _lengths(path: str, lengths: Any, base_dir: Path) -> Found:
    if isinstance(lengths, Normal | LogNormal) and lengths.mean > MOST_TOKENS:
        yield f"{path}.mean", f"{lengths.mean:g} is more than {MOST_TOKENS:,}", f"give {MOST_TOKENS:,} or less"
    if isinstance(lengths, Empirical):
        yield from _file(f"{path}.path", lengths.path, base_dir)


def _weights(parts: Parts) -> Found:
    """The weighted router needs a weight per replica, and nobody else does."""
    weights, replicas = parts.raw("deployment.weights"), parts.raw("deployment.replicas") or 1
    if parts.raw("deployment.router") != "weighted":
        if weights is not None:
            yield "deployment.weights", "has no effect", "leave it out, or add router: weighted"
    elif weights is None:
        yield "deployment.weights", "missing: the weighted router needs them", "add weights: [2, 1], one per replica"
    elif isinstance(weights, list) and len(weights) != replicas:
        cure = "give one per replica"
        yield "deployment.weights", f"{len(weights)} weights for {replicas} replicas", cure


def _engine(parts: Parts) -> Found:
    if parts.raw("engine.weight_dtype") is not None and isinstance(parts.raw("model"), dict):
        yield "engine.weight_dtype", "an abstract model says its own weight_dtype", "set model.weight_dtype instead"
