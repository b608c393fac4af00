"""Speed and memory of the simulator itself: requests and output tokens per CPU second, start-up apart.

usage: python benchmarks/run.py [LOAD ...] [--requests N ...] [--repeat 3]

Each run is a process of its own; the best of the repeats counts. The yardstick ratio is printed when the prototype of
the design lies beside the checkout (``../shared/tools/prototype_speed.py``).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

YARDSTICK = Path(__file__).resolve().parents[2] / "shared" / "tools" / "prototype_speed.py"

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

LOADS: dict[str, dict[str, Any]] = {
    "chat": {},
    "prefix": {"engine.prefix_caching": True, "traffic.shared_prefix": {"tokens": 512, "groups": 50}},
    "replicas": {"deployment.replicas": 32, "traffic.arrivals.rate": 640},
    "long": {
        "traffic.prompt_tokens": {"distribution": "fixed", "value": 128_000},
        "traffic.arrivals.rate": 0.05,
        "engine.max_model_len": 131_072,
    },
    "tight": {"engine.kv_blocks": 2600, "engine.max_model_len": 32_768},
}


def measure(load: str, requests: int) -> dict[str, float]:
    """One run in this process."""
    import sim

    sim.run(CHAT, overrides={**LOADS[load], "traffic.requests": 20})
    start_s = time.process_time()
    result = sim.run(CHAT, overrides={**LOADS[load], "traffic.requests": requests})
    summary = result.summary
    cpu_s = time.process_time() - start_s
    tokens = summary["throughput"]["output_tokens_per_s"] * summary["duration_s"]
    return {
        "cpu_s": cpu_s,
        "requests_per_cpu_s": requests / cpu_s,
        "output_tokens_per_cpu_s": tokens / cpu_s,
        "steps": summary["steps"],
        "preemptions": summary["preemptions"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def best(load: str, requests: int, repeat: int) -> dict[str, float]:
    """The run with the least CPU time of ``repeat`` processes."""
    command = [sys.executable, __file__, "--one", load, str(requests)]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(repeat)
    ]
    return min(runs, key=lambda run: run["cpu_s"])


def yardstick_cpu_s(requests: int, repeat: int) -> float | None:
    """CPU seconds of the prototype on as many chat requests; None where it is not."""
    if not YARDSTICK.is_file():
        return None
    command = [sys.executable, str(YARDSTICK), str(requests), "1", "20"]
    texts = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(repeat))
    return min(float(re.search(r"cpu=([\d.]+)s", text).group(1)) for text in texts)  # type: ignore[union-attr]


def main() -> None:
    """Parse arguments and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", default=list(LOADS), metavar="LOAD", help=", ".join(LOADS))
    parser.add_argument("--requests", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("LOAD", "REQUESTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]))))
        return
    for load in arguments.loads:
        for requests in arguments.requests:
            run = best(load, requests, arguments.repeat)
            figures = " ".join(f"{name}={value:,.1f}" for name, value in run.items())
            yardstick = yardstick_cpu_s(requests, arguments.repeat) if load == "chat" else None
            ratio = f" vs_prototype={run['cpu_s'] / yardstick:.2f}" if yardstick else ""
            print(f"{load:9} {requests:>9,} {figures}{ratio}", flush=True)


if __name__ == "__main__":
    main()
