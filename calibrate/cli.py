"""The ``calibrate`` command: parse arguments, measure, print. torch loads inside ``run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="calibrate",
    help="Measure your own device, and write a hardware profile that `sim` reads.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
INTERRUPTED = 130


def main() -> None:
    """Entry point. Errors meant for the user go to stderr and exit with status 2."""
    from sim.errors import RidgelineError

    try:
        app()
    except (RidgelineError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


@app.callback()
def _commands() -> None:
    """Keeps `run` a command of its own."""


@app.command()
def run(
    device: Annotated[str, typer.Option("--device", metavar="cuda|cpu|mps|xpu", help="What to measure.")],
    out: Annotated[Path, typer.Option("--out", metavar="P.yaml", help="Where to write the profile.")],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer shapes: a minute instead of ten.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="The profile's name; by default the device's.")] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="PROFILE",
            help="Profile with the datasheet figures (peaks, links, price); by default the shipped one of this device.",
        ),
    ] = None,
) -> None:
    """Time kernels on this device, fit their efficiencies, and write a calibrated profile with its provenance."""
    try:
        _run(device, out, quick, name, base)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _run(device: str, out: Path, quick: bool, name: str | None, base: str | None) -> None:
    from rich.console import Console

    from calibrate.report import print_report
    from calibrate.running import Request, calibrate

    request = Request(device=device, out=out, quick=quick, name=name, base=base)
    done = calibrate(request, Console(stderr=True))
    print_report(done, Console())
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
