"""A run's summary as the lines people read; console, report and notebook show the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sim.report.format import byte_count, count, counted, defined, duration, percent, significant, time_unit

Summary = Mapping[str, Any]
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
BOUNDS = ("compute", "memory", "communication", "host", "idle")
_LATENCIES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("itl_s", "ITL"), ("e2e_s", "E2E"), ("queue_s", "queue"))
_SLO_NAMES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E"))
_ENDINGS = ("rejected", "failed", "unfinished")


class Latency(NamedTuple):
    """One row of the latency table: figures of ``STATISTICS`` in ``unit``."""

    name: str
    unit: str
    cells: tuple[str, ...]


class Verdict(NamedTuple):
    """``stable`` or ``overloaded``, and why."""

    state: str
    reason: str

    @property
    def good(self) -> bool:
        """Whether the state is the wanted one."""
        return self.state == "stable"


class Assumption(NamedTuple):
    """Something the user did not say and the run took."""

    what: str
    value: str
    why: str


def headline(summary: Summary) -> str:
    """The model on its hardware, and what serves it."""
    parts = [f"{summary.get('model') or 'model'} on {hardware(summary)}", engine(summary)]
    return ", ".join(part for part in parts if part)


def hardware(summary: Summary) -> str:
    """The device, how many of them, and how they are joined."""
    name = str(summary.get("hardware") or "hardware")
    deployment = summary.get("deployment") or {}
    replicas, gpus = deployment.get("replicas", 1), 1
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        gpus *= deployment.get(key, 1)
    if replicas * gpus == 1:
        return name
    spread = counted(replicas, "replica") + (f" of {count(gpus)} GPUs" if gpus > 1 else "")
    return f"{count(replicas * gpus)} x {name} ({spread})"


def engine(summary: Summary) -> str:
    """Name and version of the engine whose rules were followed."""
    value = summary.get("engine") or ""
    if isinstance(value, Mapping):
        return " ".join(str(value[key]) for key in ("name", "version") if value.get(key))
    return str(value)


def verdict(summary: Summary) -> Verdict:
    """Whether the load is one the fleet can carry."""
    value = summary.get("verdict")
    if isinstance(value, Mapping):
        return Verdict(str(value.get("state") or "unknown"), str(value.get("reason") or ""))
    return Verdict(str(value or "unknown"), str(summary.get("verdict_reason") or ""))


def lines(summary: Summary) -> list[tuple[str, str]]:
    """What was sent, what came back and how fast, as (label, sentence)."""
    return [
        ("requests", _requests(summary.get("requests") or {})),
        *([("sessions", _sessions(summary["sessions"]))] if summary.get("sessions") else []),
        *[("rejected", f"{count(times)}: {reason}") for reason, times in (summary.get("rejections") or {}).items()],
        *left_out(summary),
        ("load", _load(summary)),
        ("throughput", _throughput(summary.get("throughput") or {})),
        ("SLO", slo_line(summary)),
        ("KV cache", _kv(summary)),
        *([("speculation", _speculation(summary["speculative"]))] if summary.get("speculative") else []),
    ]


def left_out(summary: Summary) -> list[tuple[str, str]]:
    """What was left out of a trace, and its first bad lines."""
    trace = summary.get("trace")
    if not trace:
        return []
    told = "left out " + ", ".join(f"{count(lines)} x {reason}" for reason, lines in trace["skipped"].items())
    return [("trace", told), *(("bad line", text) for text in trace["first_bad"])]


def _speculation(figures: Mapping[str, Any]) -> str:
    rate, tokens = figures.get("acceptance_rate"), figures.get("tokens_per_verification")
    if not defined(rate):
        return "nothing was verified"
    return f"{percent(rate)} of drafts accepted, {significant(tokens)} tokens per verification"


def _requests(counts: Mapping[str, Any]) -> str:
    parts = [f"{count(counts.get('completed'))} of {count(counts.get('submitted'))} completed"]
    cancelled = f" ({count(counts['cancelled'])} cancelled)" if counts.get("cancelled") else ""
    endings = {name: f"{count(counts[name])} {name}" for name in _ENDINGS if counts.get(name)}
    parts += [said + cancelled if name == "failed" else said for name, said in endings.items()]
    if counts.get("truncated"):
        parts.append(f"{count(counts['truncated'])} cut at max_model_len")
    return ", ".join(parts)


def _sessions(counts: Mapping[str, Any]) -> str:
    parts = [f"{count(counts.get('completed'))} of {count(counts.get('started'))} completed"]
    if counts.get("cut"):
        parts.append(f"{count(counts['cut'])} cut with {counted(counts['unsent_requests'], 'request')} never sent")
    mean_s = (counts.get("duration_s") or {}).get("mean")
    if defined(mean_s):
        parts.append(f"{duration(mean_s)} each")
    return ", ".join(parts)


def _load(summary: Summary) -> str:
    offered = (summary.get("offered") or {}).get("requests_per_s")
    served = (summary.get("throughput") or {}).get("requests_per_s")
    span = duration(summary.get("duration_s"))
    sent = f"{significant(offered)} requests/s sent, " if defined(offered) else ""
    return f"{sent}{significant(served)} requests/s completed, over {span}"


def _throughput(figures: Mapping[str, Any]) -> str:
    output, total = figures.get("output_tokens_per_s"), figures.get("total_tokens_per_s")
    return f"{significant(output)} output tokens/s, {significant(total)} with prompts"


def slo_targets(slo: Mapping[str, Any] | None) -> list[str]:
    """``TTFT 1 s`` and so on: the limits that were set."""
    return [f"{name} {duration(slo[key])}" for key, name in _SLO_NAMES if slo and defined(slo.get(key))]


def slo_met(summary: Summary) -> bool | None:
    """Whether enough requests met the SLO; None without one."""
    slo = summary.get("slo") or {}
    attainment, target = slo.get("attainment"), slo.get("target_attainment")
    if not defined(attainment) or not defined(target):
        return None
    return attainment >= target


def slo_line(summary: Summary) -> str:
    """Targets, attainment and goodput in one sentence."""
    slo = summary.get("slo") or {}
    targets = slo_targets(slo)
    if not targets and not defined(slo.get("attainment")):
        return "none set"
    wanted = f"{', '.join(targets)}: " if targets else ""
    text = f"{wanted}met by {percent(slo.get('attainment'))}"
    met = slo_met(summary)
    if met is not None:
        text += f", {'reaching' if met else 'missing'} the target of {percent(slo['target_attainment'])}"
    return f"{text}; goodput {significant(slo.get('goodput_requests_per_s'))} requests/s"


def _kv(summary: Summary) -> str:
    kv = summary.get("kv") or {}
    if not defined(kv.get("capacity_tokens")):
        return "not modelled"
    parts = [f"{count(kv['capacity_tokens'])} tokens, at most {percent(kv.get('peak_utilization'))} used"]
    if defined(kv.get("capacity_bytes")):
        parts.append(byte_count(kv["capacity_bytes"]))
    if defined(kv.get("prefix_hit_rate")):
        parts.append(f"prefix hits {percent(kv['prefix_hit_rate'])}")
    preemptions = summary.get("preemptions")
    parts.append(counted(preemptions, "preemption") if preemptions else "no preemption")
    return ", ".join(parts)


def latencies(summary: Summary) -> list[Latency]:
    """The latency table; each row in the unit that suits its median."""
    rows = []
    for key, name in _LATENCIES:
        figures = summary.get(key) or {}
        middle = figures.get("p50")
        unit = time_unit(middle or figures.get("max") or 0.0)
        values = [figures.get(statistic) for statistic in STATISTICS]
        cells = tuple(significant(value * unit.per_s if defined(value) else None) for value in values)
        rows.append(Latency(name, unit.name, cells))
    return rows


def bounds(summary: Summary) -> list[tuple[str, float]]:
    """What bounded the fleet's time, as (name, share) in a fixed order."""
    shares = summary.get("bound") or {}
    return [(name, float(shares[name])) for name in BOUNDS if defined(shares.get(name))]


def main_bound(summary: Summary) -> tuple[str, float] | None:
    """The largest share of the time the fleet was busy, with that share; None if it never was."""
    busy = [(name, share) for name, share in bounds(summary) if name != "idle"]
    total = sum(share for _, share in busy)
    if total <= 0:
        return None
    name, share = max(busy, key=lambda item: item[1])
    return name, share / total


def classes(summary: Summary) -> list[tuple[str, ...]]:
    """A header and a row per class of traffic; nothing without classes."""
    rows = [
        (
            name,
            count(one["requests"]["submitted"]),
            count(one["requests"]["completed"]),
            *(_or_dash(one[latency]["p99"], duration) for latency, _ in _SLO_NAMES),
            _or_dash(one["slo"]["attainment"], percent),
            _or_dash(one["slo"]["goodput_requests_per_s"], significant),
        )
        for name, one in (summary.get("classes") or {}).items()
    ]
    header = ("class", "sent", "done", *(f"{name} p99" for _, name in _SLO_NAMES), "SLO met", "good/s")
    return [header, *rows] if rows else []


def _or_dash(value: float | None, show: Callable[[float], str]) -> str:
    return show(value) if defined(value) else "-"


def assumptions(summary: Summary) -> list[Assumption]:
    """The block "assumed"; entries may be mappings or plain sentences."""
    taken = []
    for item in summary.get("assumed") or []:
        if isinstance(item, Mapping):
            taken.append(Assumption(*(str(item.get(key) or "") for key in Assumption._fields)))
        else:
            taken.append(Assumption(str(item), "", ""))
    return taken
