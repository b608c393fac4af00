"""The reference loads: scenarios, the sizes they are run at, and what each is there to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOONCAKE = Path(__file__).resolve().parents[2] / "shared/data/traces/mooncake/conversation_trace.jsonl"
"""Where the trace of load (c) is looked for unless ``--trace`` says otherwise."""

CHAT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm", "version": "0.33", "prefix_caching": False},
    "traffic": {
        "arrivals": {"process": "poisson", "rate": 20},
        "prompt_tokens": {"distribution": "lognormal", "mean": 700, "sigma": 0.8},
        "output_tokens": {"distribution": "lognormal", "mean": 200, "sigma": 0.7},
    },
}
"""Load (a), of which the others are variations; about the prototype's own load."""


@dataclass(frozen=True)
class Load:
    """Overrides of ``CHAT`` by dotted path, and how many requests to run."""

    letter: str
    overrides: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    needs_trace: bool = False

    def scenario(self, trace: Path) -> dict[str, Any]:
        """A scenario without a number of requests."""
        overrides = dict(self.overrides)
        if self.needs_trace:
            overrides["traffic.arrivals"] = {"process": "trace", "format": "mooncake", "path": str(trace)}
            overrides["traffic.prompt_tokens"] = overrides["traffic.output_tokens"] = None
        return _with(CHAT, overrides)


def _with(scenario: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """A copy with other values at dotted paths; None takes a key away."""
    changed = dict(scenario)
    for path, value in overrides.items():
        key, _, rest = path.partition(".")
        if rest:
            changed[key] = _with(changed.get(key, {}), {rest: value})
        elif value is None:
            del changed[key]
        else:
            changed[key] = value
    return changed


LOADS = {
    "chat": Load("a", sizes=(1_000, 10_000, 100_000, 1_000_000)),
    "prefix": Load("b", {"engine.prefix_caching": True, "traffic.shared_prefix": {"tokens": 512, "groups": 50}}),
    # 3.3 conversations/s, 12,000 prompt tokens each: two replicas answer after a minute and a half, four after 0.4 s.
    "mooncake": Load(
        "c",
        {"engine.prefix_caching": True, "engine.max_model_len": 131_072, "deployment.replicas": 4},
        sizes=(1_000, 10_000),
        needs_trace=True,
    ),
    "replicas": Load("d", {"deployment.replicas": 32, "traffic.arrivals.rate": 640}),
    # A prompt takes about 9 s of the device, and one comes every 20 s.
    "long": Load(
        "e",
        {
            "engine.max_model_len": 131_072,
            "traffic.arrivals.rate": 0.05,
            "traffic.prompt_tokens": {"distribution": "fixed", "value": 128_000},
        },
        sizes=(1_000, 10_000),
    ),
    # Room for 44,800 tokens, of which 39,000 are in use on average: about one request in ten is preempted.
    "tight": Load("f", {"engine.kv_blocks": 2_800, "engine.max_model_len": 32_768}),
}
