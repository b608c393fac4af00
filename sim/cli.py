"""The ``sim`` command: parse arguments, call the API, print. Heavy modules load inside the commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from sim import __version__

app = typer.Typer(
    name="sim",
    help="Simulate LLM serving before you rent the GPUs: time to first token, speed, throughput, and what bounds them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Scenario = Annotated[str, typer.Argument(metavar="W.yaml", help="A scenario file, or the name of an example.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override a key; repeatable.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Override the scenario's seed.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip and count the lines of a trace that cannot be read.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")]


def main() -> None:
    """Entry point. Errors meant for the user go to stderr and exit with status 2."""
    from sim.errors import RidgelineError

    try:
        app()
    except BrokenPipeError:
        # Who reads our output has had enough (`| head`): nothing is left to say, at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (RidgelineError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def run(
    scenario: Scenario,
    set_: Set = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write tables and report.html here.")] = None,
    as_json: Json = False,
    trace: Annotated[bool, typer.Option("--trace", help="With --out: a Perfetto trace.json.gz too.")] = False,
    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export", metavar="TOOL", help="With --out: as vllm-bench, guidellm or aiperf writes; repeatable."
        ),
    ] = None,
    lenient: Lenient = False,
) -> None:
    """Simulate a scenario and print what its users would see."""
    from sim.api import load
    from sim.api import run as simulate
    from sim.errors import RidgelineError
    from sim.results.files import prepared

    for flag in [name for name, given in (("--trace", trace), ("--export", export)) if given and out is None]:
        raise RidgelineError(f"{flag} writes a file\n  cure: add --out DIR")
    exports = _exports(export)
    loaded = load(scenario, overrides=_overrides(set_), seed=seed)
    if lenient:
        from sim.scenario.load import with_lenient_traces

        loaded = with_lenient_traces(loaded)
    with prepared(out) if out else nullcontext(), _run_progress(loaded.spec.traffic.requests) as progress:
        result = simulate(loaded, progress=progress, streams=bool(exports))
        # Written before anything is printed: a closed pipe must not cost the results.
        written = result.save(out, trace=trace, exports=exports) if out else []
    if as_json:
        print(json.dumps(result.summary))
    else:
        from sim.report.console import print_summary

        print_summary(result.summary)
        if written:
            print("wrote " + ", ".join(str(path) for path in written))
    if result.summary["partial"]:
        print("interrupted: the figures cover what was simulated until then", file=sys.stderr)
        raise typer.Exit(130)


@app.command()
def sweep(
    scenario: Scenario,
    grid: Annotated[list[str], typer.Option("--grid", metavar="PATH=V1,V2,...", help="Values of one key; repeatable.")],
    out: Annotated[Path, typer.Option("--out", metavar="R.parquet", help="Where the table goes.")],
    set_: Set = None,
    seed: Seed = None,
    replications: Annotated[int, typer.Option("--replications", min=1, help="Runs per point, each with its seed.")] = 1,
    backend: Annotated[str, typer.Option("--backend", help="loky: all cores of this machine.")] = "loky",
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; -1 is one per core.")] = -1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted sweep.")] = False,
    as_json: Json = False,
) -> None:
    """Run every combination of a what-if grid; one row per point and replication."""
    from sim.study.grid import parse_grid
    from sim.study.sweep import sweep as run_sweep

    with _points_progress() as progress:
        table = run_sweep(
            scenario,
            parse_grid(grid),
            overrides=_overrides(set_),
            replications=replications,
            seed=seed,
            out=out,
            backend=backend,
            jobs=jobs,
            resume=resume,
            progress=progress,
        )
    if as_json:
        print(table.to_json(orient="records"))
    else:
        from sim.report.console import print_sweep

        print_sweep(table, [text.partition("=")[0] for text in grid])
        print(f"wrote {out}")


@app.command()
def traffic(
    load: Annotated[str, typer.Argument(metavar="W.yaml|TRACE", help="A scenario, or a trace: CSV, JSONL, Parquet.")],
    set_: Set = None,
    seed: Seed = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write traffic.json and .png.")] = None,
    requests: Annotated[int | None, typer.Option("--requests", min=1, help="Look at the first so many.")] = None,
    duration: Annotated[str | None, typer.Option("--duration", help="Look at the first so long: 10 min.")] = None,
    lenient: Lenient = False,
) -> None:
    """Describe a load before simulating it: rate, burstiness, lengths, prefix reuse."""
    from sim.results.files import prepared, write_text
    from sim.study.traffic import describe_file

    with prepared(out) if out else nullcontext():
        described = describe_file(
            load, overrides=_overrides(set_), seed=seed, lenient=lenient, requests=requests, duration=duration
        )
        summary = described.summary()
        if out:
            from sim.report.figures.style import png
            from sim.report.figures.traffic import traffic_page

            write_text(out / "traffic.json", json.dumps(summary))
            (out / "traffic.png").write_bytes(png(traffic_page(described)))
    if as_json:
        print(json.dumps(summary))
        return
    from sim.report.console import print_traffic

    print_traffic(summary)
    if out:
        print(f"wrote {out / 'traffic.json'}, {out / 'traffic.png'}")


@app.command()
def conform(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Engine traces, step logs, or folders of them.")
    ],
    as_json: Json = False,
) -> None:
    """Replay engine traces and step logs. Exits 0 if equal, 1 at a difference, 2 if a file cannot be replayed."""
    from sim.study.conform import conform as replay

    report = replay(files)
    if as_json:
        print(json.dumps(report.as_json()))
    else:
        print("\n".join(report.lines()))
    raise typer.Exit(report.status)


@app.command()
def validate(
    cases: Annotated[
        str, typer.Argument(metavar="CASES.csv|W.yaml", help="Measured cases; with --replay, a scenario.")
    ],
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="REQUESTS.jsonl", help="Replay a run recorded request by request."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write predictions, plots and report.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Only such cases; repeatable.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; -1 is one per core.")] = -1,
    as_json: Json = False,
) -> None:
    """Compare predictions with what others measured: a table of cases, or a recorded run."""
    from sim.errors import RidgelineError

    if replay is not None:
        if where:
            raise RidgelineError("--where chooses cases of a table\n  cure: leave it out with --replay")
        _validate_replay(replay, cases, out, as_json)
        return
    from sim.study.validation import validate as run_validation

    with _points_progress("validating", "cases") as progress:
        found = run_validation(cases, where=_where(where), out=out, jobs=jobs, progress=progress)
    if as_json:
        print(json.dumps(found.as_json()))
        return
    from sim.report.console import print_validation

    print_validation(found.as_json())
    if out is not None:
        print(f"wrote {out}")


def _validate_replay(requests: Path, scenario: str, out: Path | None, as_json: bool) -> None:
    from sim.report.console import print_replay
    from sim.results.files import prepared
    from sim.study.validation import replay, write_replay

    with prepared(out) if out else nullcontext():
        found = replay(requests, scenario)
        written = write_replay(found, out) if out else None
    if as_json:
        print(json.dumps(found))
        return
    print_replay(found)
    if written is not None:
        print(f"wrote {written}")


def _where(texts: list[str] | None) -> dict[str, str]:
    from sim.errors import RidgelineError

    chosen: dict[str, str] = {}
    for text in texts or []:
        column, equals, value = text.partition("=")
        if not equals or column in chosen:
            problem = "is given twice" if column in chosen else "is not COLUMN=VALUE"
            raise RidgelineError(f"--where {text}: {problem}\n  cure: write --where engine=vllm, once per column")
        chosen[column] = value
    return chosen


@app.command()
def models(
    model: Annotated[str | None, typer.Argument(metavar="[NAME_OR_CONFIG]", help="A preset or a config.json.")] = None,
    tensor_parallel: Annotated[int, typer.Option("--tensor-parallel", min=1)] = 1,
    pipeline_parallel: Annotated[int, typer.Option("--pipeline-parallel", min=1)] = 1,
    data_parallel: Annotated[int, typer.Option("--data-parallel", min=1)] = 1,
    expert_parallel: Annotated[int, typer.Option("--expert-parallel", min=1)] = 1,
    context: Annotated[int | None, typer.Option("--context", min=1, help="Tokens of one request.")] = None,
    weight_dtype: Annotated[str | None, typer.Option("--weight-dtype")] = None,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype")] = "auto",
    as_json: Json = False,
) -> None:
    """A model's parameters, bytes and FLOPs per token; without a name, the presets."""
    from sim.models import describe, preset_names
    from sim.parallel import Parallelism

    if model is None:
        _list(preset_names(), as_json)
        return
    summary = describe(
        model,
        parallel=Parallelism(
            tensor=tensor_parallel, pipeline=pipeline_parallel, data=data_parallel, expert=expert_parallel
        ),
        context_tokens=context,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
    )
    _show(summary, "print_models", as_json)


@app.command()
def hardware(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A device or a profile file.")] = None,
    as_json: Json = False,
) -> None:
    """A device's peaks, ridge points and where its figures come from; without a name, all devices."""
    from sim.hardware import hardware_summary, load_profile, profile_names

    if name is None:
        _list(profile_names(), as_json)
        return
    _show(hardware_summary(load_profile(name)), "print_hardware", as_json)


@app.command()
def results(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Result files of load generators.")],
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="With --export: where to write.")] = None,
    export: Annotated[str | None, typer.Option("--export", metavar="TOOL", help="Write the run as TOOL does.")] = None,
) -> None:
    """Read what vllm bench, sglang, guidellm, aiperf, inference-perf and others wrote, in one shape and SI units."""
    from sim.bench import read_results, write_export
    from sim.errors import RidgelineError
    from sim.results.files import prepared
    from sim.results.metrics import as_json as plain

    runs = [(path, result) for path in files for result in read_results(path)]
    if export is not None:
        [name] = _exports([export])
        if out is None or len(runs) != 1:
            raise RidgelineError(
                "--export writes one run into a folder\n  cure: give one file of one run, and --out DIR"
            )
        with prepared(out):
            for path in write_export(runs[0][1], name, out):
                print(f"wrote {path}", file=sys.stderr)
    if as_json:
        print(json.dumps([{"file": str(path), **plain(result.summary())} for path, result in runs]))
        return
    from sim.report.console import print_results

    print_results([(path.name, result) for path, result in runs])


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where the scenario is written.")] = Path(),
) -> None:
    """Write a commented starter scenario, scenario.yaml."""
    from sim.errors import RidgelineError
    from sim.results.files import prepared, write_text
    from sim.scenario import starter_yaml

    path = folder / "scenario.yaml"
    if path.exists():
        raise RidgelineError(f"{path}: is already there\n  cure: choose another folder, or move the file away")
    with prepared(folder):
        write_text(path, starter_yaml())
    print(f"wrote {path}\nnext: sim run {path}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenarios, for editors."""
    from sim.scenario import scenario_schema

    print(json.dumps(scenario_schema(), indent=2))


def _overrides(settings: list[str] | None) -> dict[str, Any]:
    from sim.errors import Problem, ScenarioError
    from sim.scenario import parse_set

    overrides: dict[str, Any] = {}
    for path, value in (parse_set(text) for text in settings or []):
        if path in overrides:
            raise ScenarioError([Problem("--set", None, path, "is given twice", "keep one of them")])
        overrides[path] = value
    return overrides


def _exports(names: list[str] | None) -> list[str]:
    from sim.bench import EXPORTS
    from sim.errors import RidgelineError
    from sim.resources import nearest

    for name in names or []:
        if name not in EXPORTS:
            raise RidgelineError(
                f"--export {name}: no such file can be written\n  cure: {nearest(name, list(EXPORTS))}"
            )
    return list(dict.fromkeys(names or []))


def _list(names: list[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(names))
        return
    from sim.report.console import print_list

    print_list(names)


def _show(summary: dict[str, Any], printer: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    from sim.report import console

    getattr(console, printer)(summary)


@contextmanager
def _run_progress(requests: int | None) -> Iterator[Any]:
    """A bar on stderr, where someone watches; requests ended, and the simulated time."""
    with _bar("{task.completed} requests, {task.fields[time]:.0f} s simulated") as bar:
        task = bar.add_task("simulating", total=requests, time=0.0)
        yield lambda ended, time_s: bar.update(task, completed=ended, time=time_s)


@contextmanager
def _points_progress(doing: str = "sweeping", what: str = "points") -> Iterator[Any]:
    with _bar(f"{{task.completed}} of {{task.total}} {what}") as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _bar(text: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(text), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


if __name__ == "__main__":
    main()
