"""Writing a run as a load generator's result file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.bench import aiperf, guidellm, vllm
from sim.bench.result import BenchResult
from sim.results.files import write_text

EXPORTS = {"vllm-bench": "vllm", "guidellm": "guidellm", "aiperf": "aiperf"}
"""Names of the files that can be written, and whose definitions they follow."""
_FILES: dict[str, tuple[str, Callable[[BenchResult], dict[str, Any]]]] = {
    "vllm-bench": ("vllm-bench.json", vllm.to_serving),
    "guidellm": ("guidellm.json", guidellm.to_guidellm),
    "aiperf": ("profile_export_aiperf.json", aiperf.to_aiperf),
}


def write_export(result: BenchResult, name: str, folder: Path) -> list[Path]:
    """Write the file or files of the tool ``name`` (one of EXPORTS), each atomically; returns them."""
    file, convert = _FILES[name]
    written = [folder / file]
    write_text(written[0], json.dumps(convert(result), indent=2) + "\n")
    if name == "aiperf" and result.streams is not None:
        written.append(folder / "profile_export.jsonl")
        write_text(written[1], "".join(json.dumps(record) + "\n" for record in aiperf.to_records(result.streams)))
    return written
