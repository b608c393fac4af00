"""Which rules an engine's version has: one record per release that was read."""

from __future__ import annotations

import re
from dataclasses import replace

from sim.engine.versions.llama_cpp import LLAMA_CPP
from sim.engine.versions.papers import ORCA, SARATHI, STATIC
from sim.engine.versions.rules import BatchDefaults, Device, EngineRules
from sim.engine.versions.sglang import SGLANG, SglangRules
from sim.engine.versions.trtllm import TRTLLM
from sim.engine.versions.vllm import VLLM, VllmV0Rules, VllmV1Rules
from sim.errors import RidgelineError

RECORDS: dict[str, tuple[EngineRules, ...]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "trtllm": TRTLLM,
    "sarathi": (SARATHI,),
    "orca": (ORCA,),
    "static": (STATIC,),
    "llama.cpp": (LLAMA_CPP,),
}
"""Every engine's records, oldest first."""
SPECIFIC_SETTINGS = frozenset(name for records in RECORDS.values() for rules in records for name in rules.settings)
"""Keys of ``engine`` that some schedulers have and others have not."""
VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)(?:[.+-]?(?:a|b|rc|post|dev|alpha|beta)[a-z0-9.+-]*|\+[a-z0-9.]+)?")
"""Numbers, and what may follow them: 0.6.6.post1, 0.11.0rc2, 0.19.1+cu124."""


def rules_for(name: str, version: str | None) -> EngineRules:
    """The record of a version; blank means the newest, one without a record takes the newest not above it.

    Raises RidgelineError for versions below the first record, and for any of an engine that has none.
    """
    records = RECORDS.get(name)
    if records is None:
        raise RidgelineError(f"engine {name} has no record of rules\n  cure: use one of {', '.join(RECORDS)}")
    if version is None or not version.strip():
        return records[-1]
    if not records[-1].version:
        raise RidgelineError(f"{name} has one set of rules, for no version in particular\n  cure: leave version out")
    wanted = _numbers(name, version)
    older = [rules for rules in records if _numbers(name, rules.version) <= wanted]
    if not older:
        first = records[0].version
        raise RidgelineError(f"{name} {version}: no rules before {first} are known\n  cure: use {first} or later")
    rules = older[-1]
    if wanted[:2] == _numbers(name, rules.version)[:2]:
        return replace(rules, version=version.strip().removeprefix("v"))
    notice = f"{name} {version} has no record of its own: the rules are those of {rules.version}"
    return replace(rules, notice=notice)


def _numbers(name: str, version: str) -> tuple[int, ...]:
    match = VERSION.fullmatch(version.strip())
    if match is None:
        newest = RECORDS[name][-1].version
        raise RidgelineError(f'{name} version {version!r} is not a version\n  cure: write it as "{newest}"')
    numbers = tuple(int(part) for part in match.group(1).split("."))
    return numbers if len(numbers) > 1 else (*numbers, 0)


__all__ = [
    "RECORDS",
    "SPECIFIC_SETTINGS",
    "BatchDefaults",
    "Device",
    "EngineRules",
    "SglangRules",
    "VllmV0Rules",
    "VllmV1Rules",
    "rules_for",
]
