"""Speed and memory of the simulator itself on the reference loads: see README.md beside this file.

usage: python benchmarks/run.py [LOAD ...] [--at-most 10000] [--markdown benchmarks/README.md]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from loads import LOADS, MOONCAKE, Load
from table import context, line, markdown, replace_figures

REPO = Path(__file__).resolve().parents[1]
"""What is measured is this checkout, whatever else is installed."""
PROTOTYPE = REPO.parent / "shared" / "tools" / "prototype_speed.py"
WARM_UP_REQUESTS = 20
BYTES_OF_MAXRSS = 1 if sys.platform == "darwin" else 1024

Row = dict[str, Any]


def measure(load: Load, requests: int, trace: Path) -> Row:
    """One run in this process. Imports, reading the scenario and a short run come first and are not counted."""
    import sim

    scenario = load.scenario(trace)
    _ = sim.run(scenario, overrides={"traffic.requests": WARM_UP_REQUESTS}).summary
    loaded = sim.load(scenario, overrides={"traffic.requests": requests})
    start_s = time.process_time()
    result = sim.run(loaded)
    summary = result.summary
    cpu_s = time.process_time() - start_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_OF_MAXRSS
    table = result.requests
    return {
        "requests": len(table),
        "cpu_s": cpu_s,
        "output_tokens": int(table["output_tokens"].sum()),
        "steps": summary["steps"],
        "peak_mb": peak_bytes / 1e6,
        "preempted_share": float((table["preemptions"] > 0).mean()),
        "verdict": summary["verdict"],
    }


def in_a_process(name: str, requests: int, trace: Path) -> Row:
    """``measure`` in a process of its own, whose memory is nobody else's."""
    command = [sys.executable, __file__, name, "--requests", str(requests), "--trace", str(trace), "--one"]
    row: Row = json.loads(_output(command))
    return row


def prototype_us(requests: int) -> float:
    """CPU microseconds per request of the prototype, on as many requests of chat."""
    words = _output([sys.executable, str(PROTOTYPE), str(requests), "1", "20"]).split()
    return 1e6 / float(words[words.index("req/s") - 1])


def best(name: str, requests: int, trace: Path, repeat: int) -> Row:
    """The fastest of ``repeat`` runs, each followed by one of the prototype where it is there."""
    runs, yardsticks = [], []
    for _ in range(repeat):
        runs.append(in_a_process(name, requests, trace))
        if PROTOTYPE.is_file():
            yardsticks.append(prototype_us(runs[-1]["requests"]))
    row = min(runs, key=lambda run: float(run["cpu_s"]))
    each_us = [run["cpu_s"] / run["requests"] * 1e6 for run in runs]
    return {
        "load": name,
        **row,
        "us_per_request": min(each_us),
        "requests_per_cpu_s": row["requests"] / row["cpu_s"],
        "output_tokens_per_cpu_s": row["output_tokens"] / row["cpu_s"],
        "peak_mb": max(run["peak_mb"] for run in runs),
        "prototype_us_per_request": min(yardsticks, default=None),
        "times_prototype": median(ours / its for ours, its in zip(each_us, yardsticks, strict=True))
        if yardsticks
        else None,
        "runs_us_per_request": each_us,
        "runs_prototype_us_per_request": yardsticks,
    }


def growth(rows: list[Row], row: Row) -> float | None:
    """Time per request, relative to the least of the same load's smaller sizes; more than 1 is super-linear."""
    smaller = [
        other["us_per_request"]
        for other in rows
        if other["load"] == row["load"] and other["requests"] < row["requests"]
    ]
    return row["us_per_request"] / min(smaller) if smaller else None


def run(arguments: argparse.Namespace) -> list[Row]:
    """Every load at every size; prints a line for each as it comes."""
    rows: list[Row] = []
    for name in arguments.loads:
        load = LOADS[name]
        if load.needs_trace and not arguments.trace.is_file():
            print(f"{name}: skipped, there is no trace at {arguments.trace}: give it as --trace", flush=True)
            continue
        for requests in arguments.requests or [size for size in load.sizes if size <= arguments.at_most]:
            row = best(name, requests, arguments.trace, arguments.repeat)
            row["growth"] = growth(rows, row)
            rows.append(row)
            print(line(row), flush=True)
    return rows


def parser() -> argparse.ArgumentParser:
    """What the command line may hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {', '.join(LOADS)}; all unless given")
    parser.add_argument("--requests", type=int, nargs="+", metavar="N", help="sizes, instead of each load's own")
    parser.add_argument("--at-most", type=int, default=10**9, metavar="N", help="leave out larger sizes")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each, of which the best counts (3)")
    parser.add_argument("--trace", type=Path, default=MOONCAKE, help="Mooncake's conversation_trace.jsonl")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every run")
    parser.add_argument("--markdown", nargs="?", const=Path("-"), type=Path, metavar="FILE",
                        help="print the table, or put it where FILE has the old one")  # fmt: skip
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    """Measure, print, and write what was asked for."""
    arguments = parser().parse_args()
    unknown = [name for name in arguments.loads if name not in LOADS]
    if unknown:
        parser().error(f"no load {unknown[0]!r}: there are {', '.join(LOADS)}")
    if arguments.one:
        print(json.dumps(measure(LOADS[arguments.loads[0]], arguments.requests[0], arguments.trace)))
        return
    arguments.loads = arguments.loads or list(LOADS)
    about = context(shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]]), arguments.repeat)
    print("\n".join(f"{key}: {value}" for key, value in about.items()), flush=True)
    rows = run(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    if arguments.markdown == Path("-"):
        print(markdown(about, rows))
    elif arguments.markdown:
        replace_figures(arguments.markdown, markdown(about, rows))


def _output(command: list[str]) -> str:
    """What a command prints; its complaints go to the terminal."""
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


if __name__ == "__main__":
    main()
