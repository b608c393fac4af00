"""What was measured, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from calibrate.fit import Fit
from calibrate.fitting import Fits
from calibrate.kernels import Sample
from calibrate.running import Calibration
from calibrate.server import ServerFit
from sim.hardware import ForwardPass


def print_report(done: Calibration, console: Console) -> None:
    """Ceilings, then one row per curve with its errors, then what was left out."""
    profile, samples, fits = done.profile, done.session.samples, done.fits
    peaks = ", ".join(f"{dtype} {peak / 1e12:.4g}" for dtype, peak in profile.peak_flops_per_s.items())
    console.print(f"{profile.product}: peaks {peaks} TFLOP/s; memory {profile.hbm_bytes_per_s / 1e9:.4g} GB/s")
    console.print(_table(samples, fits))
    console.print(
        f"{len(samples)} kernels; memory, compute: shares of the peaks; error, unseen: medians over the shapes "
        "fitted and over shapes the fit never saw; spread: of the repeats of a kernel"
    )
    if profile.efficiency.passes:
        console.print(_passes(profile.efficiency.passes))
    for note in done.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    for line in done.skipped:
        console.print(f"left out: {line}", markup=False, highlight=False)


def _passes(passes: Sequence[ForwardPass]) -> Table:
    table = Table("forward pass", "measured", "predicted", "off", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for one in passes:
        what = f"prefill {one.sequences} x {one.tokens}"
        if one.phase == "decode":
            what = f"decode {one.sequences} over {one.context_tokens}"
        table.add_row(what, f"{one.measured_s * 1e3:.4g} ms", f"{one.predicted_s * 1e3:.4g} ms", f"{one.error:+.1%}")
    errors = [abs(one.error) for one in passes]
    table.caption = f"median {np.median(errors):.1%}, worst {max(errors):.1%}"
    return table


def _table(samples: Sequence[Sample], fits: Fits) -> Table:
    table = Table(
        "", "best", "memory", "compute", "launch", "error", "unseen", "spread", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for kind in ("copy", "read"):
        own = [sample for sample in samples if getattr(sample.kernel, "kind", None) == kind]
        table.add_row(kind, _best(own), "", "", "", "", "", _spread(own))
    launches = [sample for sample in samples if sample.kernel.family == "launch"]
    table.add_row("launch", "", "", "", _seconds(launches), "", "", _spread(launches))
    own = [sample for sample in samples if sample.kernel.family == "elementwise"]
    table.add_row("elementwise", _best(own), f"{fits.elementwise_memory:.2f}", "", "", "", "", _spread(own))
    for key, fit in fits.rows().items():
        own = [sample for sample in samples if sample.kernel.curve == key]
        table.add_row(key.replace("_attention.", " "), _best(own), *_curve(fit), *_errors(fit), _spread(own))
    return table


def _best(samples: Sequence[Sample]) -> str:
    """The highest rate: FLOP/s of products and prefill, bytes/s of what memory bounds."""
    if not samples:
        return "-"
    if samples[0].kernel.family in {"gemm", "prefill_attention"}:
        return f"{max(s.kernel.flops / s.seconds for s in samples) / 1e12:.4g} TFLOP/s"
    return f"{max(s.kernel.traffic_bytes / s.seconds for s in samples) / 1e9:.4g} GB/s"


def _seconds(samples: Sequence[Sample]) -> str:
    return f"{samples[0].seconds * 1e6:.2f} us" if samples else "-"


def _curve(fit: Fit[Any]) -> tuple[str, str, str]:
    compute = "" if fit.curve.compute is None else f"{fit.curve.compute:.2f}"
    return f"{fit.curve.memory:.2f}", compute, f"{fit.curve.launch_s * 1e6:.1f} us"


def _errors(fit: Fit[Any]) -> tuple[str, str]:
    """Median errors on the shapes fitted, and on those the fit never saw."""
    return f"{fit.fitted_error:.1%}", "-" if fit.held_out_error is None else f"{fit.held_out_error:.1%}"


def _spread(samples: Sequence[Sample]) -> str:
    return f"{float(np.median([sample.spread for sample in samples])):.1%}" if samples else "-"


def print_server(fit: ServerFit, console: Console) -> None:
    """The overheads with how sure they are, then every figure, measured and predicted before and after."""
    table = Table("overhead", "fitted", "within a factor of", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, factor in fit.uncertainty.items():
        table.add_row(name.removesuffix("_s"), f"{getattr(fit.overheads, name) * 1e6:.4g} us", f"{factor:.2f}")
    console.print(table)
    table = Table("run", "figure", "measured", "before", "after", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for seen, before, after in zip(fit.observations, fit.before, fit.after, strict=True):
        figure = f"{seen.metric.removesuffix('_s').upper()} {seen.statistic}"
        times = (f"{value * 1e3:.4g} ms" for value in (seen.measured, before, after))
        table.add_row(seen.file, figure, *times)
    console.print(table)
    console.print(f"median error {fit.error(fit.before):.1%} before, {fit.error(fit.after):.1%} after")
