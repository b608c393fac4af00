"""Rows that a hidden setting sets apart: named by rule, reported apart, never corrected.

Each rule looks at groups of rows, at what was measured and (where said) at what was predicted. None has a parameter per
case, and none adjusts a figure: a named row keeps its error, in statistics of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log2
from statistics import median
from typing import NamedTuple

from sim.hardware import load_profile
from sim.models import load_model, preset_names
from sim.models.memory import active_parameters
from sim.study.validation.errors import Compared

Key = tuple[object, ...]
MTP_LOG2, CLEAR_LOG2, LEAST_ROWS, TWIN_FASTER = 0.25, 0.5, 10, 1.25
COLD_TTFT_RATIO, SAME_TPOT, COLD_SHARE = 5.0, 1.35, 0.1
CAPPED_ERROR = -0.5
PEAK_SHARE = 0.8
SLOW_RATIO, SLOW_WITHIN = 2.0, 1.3


class Named(NamedTuple):
    """A group set apart: its name, the rule in words, and its rows."""

    name: str
    rule: str
    rows: list[Compared]


def apart(compared: Sequence[Compared]) -> list[Named]:
    """Every named group with at least one row; a row belongs to the first rule that names it."""
    left = list(compared)
    groups: list[Named] = []
    for name, (rule, text) in RULES.items():
        found = {row.case.case_id for row in rule(left)}
        rows = [row for row in left if row.case.case_id in found]
        if rows:
            groups.append(Named(name, text, rows))
        left = [row for row in left if row.case.case_id not in found]
    return groups


def multi_token_prediction(compared: Sequence[Compared]) -> Iterable[Compared]:
    """A source that does not label speculative decoding: whole launches faster than any step."""
    everyone = _groups(compared, _launch)
    for launch, rows in everyone.items():
        logs = [log2(1 + error) for row in rows if (error := row.error("tpot_mean")) is not None]
        if len(logs) < LEAST_ROWS or median(logs) <= MTP_LOG2 or not _has_mtp_layers(rows[0].case.model):
            continue
        if median(logs) > CLEAR_LOG2 or _has_slower_twin(rows, compared, launch):
            yield from rows


def cold_start(compared: Sequence[Compared]) -> Iterable[Compared]:
    """Compilation or loading inside the measured time: TTFT jumps, TPOT does not."""
    neighbours = _groups(compared, lambda row: _configuration(row)[:-1])
    for rows in _groups(compared, _launch).values():
        if len(rows) < LEAST_ROWS:
            continue
        jumps = [row for row in rows if _jumps(row, neighbours[_configuration(row)[:-1]])]
        if len(jumps) >= COLD_SHARE * len(rows):
            yield from rows


def capped_server(compared: Sequence[Compared]) -> Iterable[Compared]:
    """More clients wait longer for their first token, and those served are no slower: fewer run than are sent."""
    for rows in _groups(compared, lambda row: _configuration(row)[:-1]).values():
        for row in rows:
            ttft, tpot, error = _measured(row, "ttft"), _measured(row, "tpot"), row.error("ttft_mean")
            if not ttft or not tpot or error is None or error > CAPPED_ERROR:
                continue
            waits = ttft > tpot * row.case.output_tokens
            if waits and any(_fewer(other, row) and (_measured(other, "tpot") or 0.0) >= tpot for other in rows):
                yield row


def cached_prompts(compared: Sequence[Compared]) -> Iterable[Compared]:
    """Prompts that were prefilled faster than the devices' peak allows were not prefilled: the whole launch."""
    for rows in _groups(compared, _launch).values():
        if any(_prefill_share_of_peak(row) > PEAK_SHARE for row in rows):
            yield from rows


def half_speed_device(compared: Sequence[Compared]) -> Iterable[Compared]:
    """One laboratory's device that is twice too slow with every engine, model and dtype: capped or mislabelled."""
    for rows in _groups(compared, lambda row: (row.case.set, row.case.gpu)).values():
        parts = _groups(rows, lambda row: (row.case.engine, row.case.model, row.case.weight_dtype))
        if len({part[0] for part in parts}) < 2 or len({part[1] for part in parts}) < 2:
            continue
        ratios = [_slowness(part) for part in parts.values()]
        if all(ratio and SLOW_RATIO / SLOW_WITHIN <= ratio <= SLOW_RATIO * SLOW_WITHIN for ratio in ratios):
            yield from rows


Rule = Callable[[Sequence[Compared]], Iterable[Compared]]
SLOW_TEXT = (
    "one set's GPU is slower than predicted by 2 (within 1.3) in the median throughput (or TPOT) of every engine, "
    "model and dtype, of at least two engines and two models"
)
CACHED_TEXT = (
    "a launch (set, engine, GPU, model, dtype, date), one row of which implies prompts prefilled faster than 0.8 of "
    "the devices' peak at their weights' dtype"
)
COLD_TEXT = (
    "a launch (set, engine, GPU, model, dtype, date) of at least 10 rows, a tenth of which have 5 times the TTFT of "
    "half or twice the clients, or of the same configuration on another date, at equal TPOT (within 1.35)"
)
CAPPED_TEXT = (
    "TTFT is more than the time to decode an answer and more than twice the predicted one, and TPOT is no higher than "
    "with fewer clients"
)
MTP_TEXT = (
    "a model with multi-token-prediction layers; the median of log2(predicted / measured TPOT) of a launch of at least "
    "10 rows is above 0.25, and a configuration of it was 1.25 times slower on another date, or it is above 0.5"
)
RULES: dict[str, tuple[Rule, str]] = {
    "half-speed device": (half_speed_device, SLOW_TEXT),
    "cached prompts": (cached_prompts, CACHED_TEXT),
    "cold start": (cold_start, COLD_TEXT),
    "capped server": (capped_server, CAPPED_TEXT),
    "multi-token prediction": (multi_token_prediction, MTP_TEXT),
}
"""By name: the rule, and what it says. Earlier rules go first."""


def _groups(compared: Iterable[Compared], key: Callable[[Compared], Key]) -> dict[Key, list[Compared]]:
    groups: dict[Key, list[Compared]] = {}
    for row in compared:
        groups.setdefault(key(row), []).append(row)
    return groups


def _launch(row: Compared) -> Key:
    """What was started on one day."""
    case = row.case
    return (case.set, case.engine, case.gpu, case.model, case.weight_dtype, case.date)


def _configuration(row: Compared) -> Key:
    """What two launches share that are compared: all but date, release, expert parallelism and, last, the clients."""
    case = row.case
    turns = (case.num_requests or 0) / (case.concurrency or 1)
    shape = (case.tp, case.pp, case.dp, case.prompt_tokens, case.output_tokens, turns)
    return (*_launch(row)[:-1], shape, case.concurrency)


def _fewer(other: Compared, row: Compared) -> bool:
    return (other.case.concurrency or 0) < (row.case.concurrency or 0)


def _measured(row: Compared, latency: str) -> float | None:
    measured = row.case.measured
    return measured.get(f"{latency}_mean", measured.get(f"{latency}_p50"))


def _has_mtp_layers(model: str) -> bool:
    return model in preset_names() and load_model(model).mtp_layers > 0


def _has_slower_twin(rows: Sequence[Compared], everyone: Sequence[Compared], launch: Key) -> bool:
    slowest: dict[Key, float] = {}
    for row in everyone:
        tpot = _measured(row, "tpot")
        if tpot and _launch(row) != launch:
            key = _configuration(row)
            slowest[key] = max(tpot, slowest.get(key, 0.0))
    return any(
        slowest.get(_configuration(row), 0.0) > TWIN_FASTER * tpot for row in rows if (tpot := _measured(row, "tpot"))
    )


def _jumps(row: Compared, neighbours: Sequence[Compared]) -> bool:
    """Whether TTFT is a multiple of what another number of clients, or another day, had at equal TPOT."""
    ttft, tpot, clients = _measured(row, "ttft"), _measured(row, "tpot"), row.case.concurrency
    if not ttft or not tpot or not clients:
        return False
    for other in neighbours:
        near = (0.5, 2.0) if other.case.date == row.case.date else (0.5, 1.0, 2.0)
        other_ttft, other_tpot = _measured(other, "ttft"), _measured(other, "tpot")
        if other_ttft and other_tpot and (other.case.concurrency or 0) / clients in near:
            equal = 1 / SAME_TPOT <= tpot / other_tpot <= SAME_TPOT
            if equal and ttft > COLD_TTFT_RATIO * other_ttft:
                return True
    return False


def _prefill_share_of_peak(row: Compared) -> float:
    """FLOPs of the prompts alone, over the time of a closed loop's turn, as a share of all devices' peak."""
    case, ttft, tpot = row.case, _measured(row, "ttft"), _measured(row, "tpot")
    if not ttft or not tpot or not case.concurrency or case.model not in preset_names():
        return 0.0
    turn_s = ttft + tpot * (case.output_tokens - 1)
    prompts_per_s = case.concurrency / turn_s
    flops = 2.0 * active_parameters(load_model(case.model)) * case.prompt_tokens * prompts_per_s
    peaks = load_profile(case.gpu).peak_flops_per_s
    dtype = {"nvfp4": "fp4", "mxfp4": "bf16", "int4": "bf16"}.get(case.weight_dtype or "bf16", case.weight_dtype)
    peak = peaks.get(dtype or "bf16") or max(peaks.values())
    return flops / (peak * case.tp * case.pp * case.dp)


def _slowness(rows: Sequence[Compared]) -> float:
    """Median of predicted / measured throughput; where it was not measured, of measured / predicted TPOT."""
    ratios = [1 + error for row in rows if (error := row.error("output_tokens_per_s")) is not None]
    ratios = ratios or [1 / (1 + error) for row in rows if (error := row.error("tpot_mean")) is not None]
    return median(ratios) if ratios else 0.0
