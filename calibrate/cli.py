"""The ``calibrate`` command: parse arguments, measure, print. torch loads inside ``run``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
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


@app.command()
def steps(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Step log of an engine, as sim conform replays it.")],
    client: Annotated[
        list[Path] | None,
        typer.Option("--client", metavar="FILE", help="What the clients of a run in it saw; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FIT.yaml", help="Write the fit here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")] = False,
) -> None:
    """Fit a linear step-time model to an engine's step log; with what clients saw, the server's own time too."""
    import json

    import yaml

    from calibrate.steps import as_document, calibrate_steps
    from sim.results.files import write_text

    fit, server_time = calibrate_steps(log, client or [])
    document = as_document(fit, log.name, server_time)
    text = yaml.safe_dump(document, sort_keys=False)
    if out is not None:
        write_text(out, text)
    print(json.dumps(document) if as_json else text.rstrip())
    if out is not None and not as_json:
        print(f"wrote {out}")


@app.command()
def server(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Result files of load generators.")],
    workload: Annotated[str, typer.Option("--workload", metavar="W.yaml", help="What was served, and the lengths.")],
    base: Annotated[str, typer.Option("--base", metavar="P.yaml", help="The device's profile.")],
    out: Annotated[Path, typer.Option("--out", metavar="P.yaml", help="Where to write the profile.")],
) -> None:
    """Fit an engine's host overheads so that simulated clients see what real ones saw."""
    from rich.console import Console

    from calibrate.report import print_server
    from calibrate.server import fit_server, runs_of, with_overheads
    from sim.hardware import load_profile
    from sim.hardware.writing import save_profile

    runs, profile, console = runs_of(results), load_profile(base), Console(stderr=True)
    with console.status("simulating") as status:
        fit = fit_server(runs, workload, profile, lambda count: status.update(f"simulating, trial {count}"))
    save_profile(with_overheads(profile, fit.engine, fit.overheads, f"{datetime.now(UTC):%Y-%m-%d}"), out)
    print_server(fit, Console())
    print(f"wrote {out}")


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
