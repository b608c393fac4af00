"""What traffic of several classes must satisfy beyond the type of each key, and each class's own traffic."""

from __future__ import annotations

from collections.abc import Iterator

from sim.scenario import specs

Fault = tuple[str, str, str]
OWN = ("prompt_tokens", "output_tokens", "max_output_tokens", "shared_prefix")
"""Keys of a class that go before the traffic's own."""


def class_traffic(spec: specs.TrafficSpec, name: str) -> specs.TrafficSpec:
    """The load as if this class were alone: what the class does not say is as for all."""
    own = (spec.classes or {})[name]
    said = {key: getattr(own, key) for key in OWN if getattr(own, key) is not None}
    priorities = spec.priorities if own.priority is None else {own.priority: 1.0}
    arrivals = spec.arrivals if own.arrivals is None else own.arrivals
    return spec.model_copy(update={**said, "arrivals": arrivals, "priorities": priorities, "classes": None})


def class_faults(spec: specs.TrafficSpec) -> Iterator[Fault]:
    """Everything wrong between classes: key path below ``traffic``, problem, cure."""
    classes = spec.classes
    if classes is None:
        if isinstance(spec.arrivals, specs.ByClass):
            yield "arrivals", "missing", "add arrivals: {process: poisson, rate: 8}"
        return
    if not classes:
        yield "classes", "empty", "name some, such as chat: {share: 1}, or leave it out"
        return
    if spec.sessions is not None:
        yield "sessions", "requests of classes stand alone", "leave out sessions, or classes"
    own = [name for name, each in classes.items() if each.arrivals is not None]
    traced = isinstance(spec.arrivals, specs.Trace)
    for name, each in classes.items():
        if (each.share is None) == (each.arrivals is None) and not traced:
            problem = "a class has a share of the common arrivals, or arrivals of its own"
            yield f"classes.{name}", problem, "give share or arrivals"
        if each.arrivals is not None:
            yield from _own_arrivals(f"classes.{name}.arrivals", each.arrivals)
    if own and len(own) < len(classes):
        other = next(name for name in classes if name not in own)
        yield f"classes.{other}", f"has no arrivals of its own, and {own[0]} has", "give them all arrivals, or none"
    elif own and not isinstance(spec.arrivals, specs.ByClass):
        yield "arrivals", "has no effect: each class has arrivals of its own", "leave it out"
    elif not own and isinstance(spec.arrivals, specs.ByClass):
        yield "arrivals", "missing: classes share them", "add arrivals: {process: poisson, rate: 8}"
    elif traced:
        shares = [f"classes.{name}.share" for name, each in classes.items() if each.share is not None]
        yield from ((path, "a trace says itself whose each request is", "leave it out") for path in shares)


def _own_arrivals(path: str, arrivals: specs.Arrivals) -> Iterator[Fault]:
    if not isinstance(arrivals, specs.Poisson | specs.Gamma | specs.Constant | specs.Trace | specs.Varying):
        problem = f"{arrivals.process} has no times that could be merged with those of others"
        yield path, problem, "use poisson, gamma, constant, a varying rate or a trace"
    for key in ("max_concurrency", "concurrency"):
        if getattr(arrivals, key, None) is not None:
            yield f"{path}.{key}", "clients are common to all classes", "leave it out"
