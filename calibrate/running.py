"""One calibration from device to file; every error that can be known beforehand comes before measuring."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from calibrate import passes
from calibrate.bench import Budget, Timer
from calibrate.device import TorchDevice, open_device
from calibrate.drift import Reference
from calibrate.fitting import Fits, fit_all
from calibrate.kernels import FULL, QUICK, Grid, Kernel, plan
from calibrate.known import matching_profile
from calibrate.machine import Neighbours
from calibrate.probing import prefers_products, usable_dtypes
from calibrate.profile import Provenance, build_profile
from calibrate.session import Progress, Session, run_plan
from calibrate.workbench import MOST_POOL_BYTES, Workbench
from sim.errors import RidgelineError
from sim.hardware import HardwareProfile, load_profile, save_profile

QUICK_S, FULL_S = 36.0, 480.0
"""Measuring time; loading torch, fitting and whole forward passes come on top, within 60 s and 10 min."""
QUICK_POOL_BYTES = 2**29
DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8")
LEAST_FREE_BYTES = 2**29
DISTURBED = 0.05
"""Share of the processors beyond which other processes show in the times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    device: str
    out: Path
    quick: bool
    name: str | None
    base: str | None
    budget_s: float | None = None
    """Measuring time, where it is not the usual."""
    grid: Grid | None = None
    """Shapes, where they are not the usual."""

    @property
    def command(self) -> str:
        """The command line, but for where it writes."""
        flags = ["calibrate run", f"--device {self.device}"]
        flags += ["--quick"] if self.quick else []
        flags += [f"--base {self.base}"] if self.base else []
        return " ".join(flags)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What came of it."""

    profile: HardwareProfile
    session: Session
    fits: Fits
    skipped: tuple[str, ...]
    notes: tuple[str, ...]


def calibrate(request: Request, console: Console) -> Calibration:
    """Measure, fit, and write the profile. Raises RidgelineError; then nothing is written."""
    check_writable(request.out)
    given = load_profile(request.base) if request.base else None
    device = open_device(request.device)
    facts = device.facts
    if facts.free_bytes < LEAST_FREE_BYTES:
        free = f"{facts.free_bytes / 2**20:.0f} MiB"
        raise RidgelineError(f"{facts.name}: {free} of memory are free, 512 MiB are needed\n  cure: close something")
    base = given or matching_profile(facts.name, facts.memory_bytes)
    total_s = request.budget_s or (QUICK_S if request.quick else FULL_S)
    console.print(f"measuring {facts.name}: up to {total_s:.0f} s", highlight=False)
    bench = Workbench(device, most_pool_bytes=QUICK_POOL_BYTES if request.quick else MOST_POOL_BYTES)
    neighbours = Neighbours()
    timer = device.timer()
    session, skipped, half, reference = _measure(bench, timer, request, base, total_s, console)
    decode_kernel = "torch's batched products and softmax" if bench.decode_by_products else "torch's fused attention"
    fits = fit_all(session.samples, base)
    provenance = Provenance(
        facts=facts,
        date=datetime.now(UTC).date().isoformat(),
        command=request.command,
        decode_kernel=decode_kernel,
        notes=_notes(device, session, neighbours.share()),
    )
    profile = build_profile(session.samples, fits, provenance, base=base, name=request.name)
    console.print("checking whole forward passes", highlight=False)
    wanted = passes.QUICK if request.quick else passes.FULL
    found, left_out = passes.check_passes(bench, timer, profile, half, wanted, reference, session.usual_reference_s)
    profile = replace(profile, efficiency=replace(profile.efficiency, passes=found))
    save_profile(profile, request.out)
    skipped += [*session.skip_lines(), *left_out]
    return Calibration(profile, session, fits, tuple(skipped), (*fits.notes, *provenance.notes))


def check_writable(path: Path) -> None:
    """Raise RidgelineError unless a file can be written there: better now than after minutes of measuring."""
    cure = "cure: give --out a file in a folder you may write to"
    if path.is_dir():
        raise RidgelineError(f"--out {path}: is a folder\n  {cure}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RidgelineError(f"--out {path}: cannot be written ({error.strerror})\n  {cure}") from None


def _measure(
    bench: Workbench, timer: Timer, request: Request, base: HardwareProfile | None, total_s: float, console: Console
) -> tuple[Session, list[str], str, Reference | None]:
    """Samples, the dtypes left out, the 16-bit dtype there is, and what takes a processor's drift out."""
    wanted = [dtype for dtype in DTYPES if base is None or dtype in base.peak_flops_per_s]
    dtypes, reasons = usable_dtypes(bench, timer, wanted)
    skipped = [f"{dtype}: {reason}" for dtype, reason in reasons.items()]
    skipped += [f"{dtype}: {base.name} has no peak for it" for dtype in DTYPES if base and dtype not in wanted]
    half = next((dtype for dtype in ("bf16", "fp16") if dtype in dtypes), None)
    if half is None:
        why = "; ".join(skipped)
        raise RidgelineError(f"neither bf16 nor fp16 products run here ({why})\n  cure: try another torch or device")
    grid = request.grid or (QUICK if request.quick else FULL)
    bench.decode_by_products = prefers_products(bench, timer, half, grid.head_dims[-1])
    todo = plan(grid, dtypes, bench.stream_bytes)
    reference = Reference(bench, timer, half) if bench.device.kind == "cpu" else None
    with _bar(console, len(todo)) as progress:
        session = run_plan(bench, timer, todo, Budget(total_s, len(todo)), progress, reference)
    return session, skipped, half, reference


def _notes(device: TorchDevice, session: Session, others: float | None) -> tuple[str, ...]:
    launches = [sample.seconds for sample in session.samples if sample.kernel.family == "launch"]
    how = "in a CUDA graph" if device.kind == "cuda" else "called from Python"
    busy = device.kind == "cpu" and others is not None and others > DISTURBED
    return (
        *([f"The processor's speed drifted by {session.drift:.0%}, which is taken out."] if session.drift else []),
        *([f"Other processes took {others:.0%} of the processors: measure again on an idle machine."] if busy else []),
        *(f"A kernel that does nothing takes {seconds * 1e6:.2f} us {how}." for seconds in launches),
        "Chunked prefill over a context and mixed steps were not measured.",
    )


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def progress(kernel: Kernel, position: int) -> None:
            bar.update(task, completed=position, description=kernel.label)

        yield progress
