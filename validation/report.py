"""Run the measured cases and the recorded runs, and write validation/README.md from what comes out.

    python validation/report.py [--per-group N] [--replays FOLDER] [--out DIR]

``--per-group N``: only N cases, drawn by a fixed seed, of each set, engine, GPU, model and dtype. ``--replays``: where
the two recorded runs lie (casys-kaist/LLMServingSim).
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path
from typing import Any

from sim.report.validation import replay_rows, report_markdown
from sim.study.validation import replay, validate
from sim.study.validation.cases import read_cases

HERE = Path(__file__).resolve().parent
RUNS = {
    "RTX 4090": ("RTX4090", "replay-rtx-4090.yaml"),
    "RTX PRO 6000": ("RTXPRO6000", "replay-rtx-pro-6000.yaml"),
}
GROUP = ("set", "engine", "gpu", "model", "weight_dtype")


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-group", type=int)
    parser.add_argument("--replays", type=Path)
    parser.add_argument("--out", type=Path, default=Path("validation-out"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    cases, drawn = HERE / "cases.csv", ""
    whole = len(read_cases(cases))
    if given.per_group is not None:
        cases = _drawn(cases, given.out / "drawn.csv", given.per_group)
        drawn = f"{len(read_cases(cases)):,} of the {whole:,} cases were run: at most {given.per_group} of each set, "
        drawn += "engine, GPU, model and dtype, drawn by a fixed seed."
    found = validate(cases, out=given.out).as_json()
    replays = {} if given.replays is None else _replays(given.replays)
    (HERE / "README.md").write_text(_readme(found, replays, drawn), encoding="utf-8")


def _drawn(cases: Path, target: Path, per_group: int) -> Path:
    with cases.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in GROUP), []).append(row)
    chooser = random.Random(0)
    chosen = [row for group in groups.values() for row in chooser.sample(group, min(per_group, len(group)))]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(chosen)
    return target


def _replays(folder: Path) -> dict[str, Any]:
    return {
        name: replay(folder / f"llmservingsim_vllm_{run}_Llama-3.1-8B_requests.jsonl", HERE / scenario)
        for name, (run, scenario) in RUNS.items()
    }


def _readme(found: dict[str, Any], replays: dict[str, Any], drawn: str) -> str:
    text = report_markdown(found).removeprefix("# Predicted against measured\n")
    parts = ["# Accuracy against measurements made by others", ""]
    parts += [
        "Written by `python validation/report.py`; do not edit it. What the text says is `validation/about.md`.",
        "",
    ]
    parts += [drawn, ""] if drawn else []
    parts += [(HERE / "about.md").read_text(encoding="utf-8").strip(), text.rstrip(), ""]
    if replays:
        parts += ["## Recorded runs, request by request", ""]
        parts += ["| run | latency | figure | measured | predicted | error |", "| --- | --- | --- | --- | --- | --- |"]
        parts += [f"| {name} | {' | '.join(row)} |" for name, each in replays.items() for row in replay_rows(each)]
        parts += [""]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
