"""``engine.speculative``: vLLM's own names for its keys, and what must fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sim.errors import Problem
from sim.scenario.document import Source, dotted

PLACE = ("engine", "speculative")
OWN_NAMES = {"num_speculative_tokens": "tokens", "model": "draft_model"}
"""Keys of vLLM's ``--speculative-config``."""
OWN_METHODS = {"draft_model": "draft-model"}
Found = Iterator[tuple[str, str, str]]
"""(dotted path, problem, cure)."""


def rename_speculative(source: Source) -> list[Problem]:
    """Put vLLM's keys of a speculative config under their own names; both at once is a problem."""
    content = source.get(PLACE)
    if not isinstance(content, dict):
        return []
    problems = []
    for key in [key for key in content if isinstance(key, str) and key.replace("-", "_") in OWN_NAMES]:
        name = OWN_NAMES[key.replace("-", "_")]
        own, shown = (*PLACE, name), (*source.written.get(PLACE, PLACE), key)
        value = content.pop(key)
        if name in content:
            first = dotted((*source.written.get(PLACE, PLACE), name))
            problems.append(source.problem((*PLACE, key), f"says the same as {first}", "keep one of the two"))
            continue
        content[name] = value
        source.written[own] = shown
        if source.is_set((*PLACE, key)):
            source.overridden.add(own)
    method = content.get("method")
    if isinstance(method, str):
        content["method"] = OWN_METHODS.get(method, method)
    return problems


def speculative_faults(raw: Callable[[str], Any], is_model: Callable[[str], bool], presets: str) -> Found:
    """Everything wrong between keys that are each valid. ``presets`` says which models there are."""
    spec, place = raw("engine.speculative"), "engine.speculative"
    if not isinstance(spec, dict):
        return
    tokens, acceptance, draft = spec.get("tokens"), spec.get("acceptance"), spec.get("draft_model")
    if isinstance(acceptance, list) and isinstance(tokens, int) and len(acceptance) != tokens:
        problem = f"{len(acceptance):,} positions, and {tokens:,} tokens are drafted"
        yield f"{place}.acceptance", problem, "give one share per drafted token, or a single one for all"
    method = spec.get("method")
    if method in {"ngram", "mtp"} and draft is not None:
        yield f"{place}.draft_model", f"has no effect: {method} drafts without another model", "leave it out"
    linear = raw("cost.model") == "linear"
    if method == "draft-model" and draft is None and not linear:
        yield f"{place}.draft_model", "is required and missing", "name a preset or a config.json of a small model"
    if isinstance(draft, str) and not is_model(draft):
        yield f"{place}.draft_model", f"no preset and no file is called {draft!r}", presets
    if raw("engine.async_scheduling") is True:
        problem = "with speculation is not built yet"
        yield "engine.async_scheduling", problem, "leave it out: each step is planned when the last one has ended"
