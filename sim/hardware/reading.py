"""Profiles by name or path: every problem of a file at once, with its line and a cure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from sim.errors import Problem, ScenarioError
from sim.hardware import profile as shapes
from sim.hardware.borrowing import Borrowed, borrow, ridge_16bit
from sim.hardware.guards import link_faults, peak_faults
from sim.hardware.profile import CLOCK_MARGIN, Efficiency, HardwareProfile, Link, Positive
from sim.resources import find, folder, names, nearest
from sim.yaml12 import Document, read_yaml

FOLDER = "hardware_profiles"
SHAPES = (
    HardwareProfile,
    Efficiency,
    Link,
    shapes.Price,
    shapes.ForwardPass,
    shapes.HostProfile,
    shapes.HostOverheads,
    shapes.GemmCurve,
    shapes.MoeCurve,
    shapes.DecodeAttentionCurve,
    shapes.PrefillAttentionCurve,
    shapes.CollectiveCurve,
)
KEYS = sorted({field.name for shape in SHAPES for field in fields(shape)} | {"from", "why"})

CURES = {
    "missing": "add it",
    "greater_than": "give a positive SI number",
    "greater_than_equal": "give 0 or more",
    "float_type": "give a bare SI number, such as 3.35e+12",
    "int_type": "give a whole number",
    "bool_type": "give true or false",
    "string_type": "give text",
}


def profile_names() -> list[str]:
    """The devices that ship, sorted."""
    return names(FOLDER)


def load_profile(name_or_path: str, base_dir: Path | None = None) -> HardwareProfile:
    """The profile of a shipped device, or of a file seen from ``base_dir``. Raises ScenarioError."""
    path = find(FOLDER, name_or_path, base_dir)
    if path is None:
        cure = f"{nearest(name_or_path, profile_names())} (`sim hardware` lists all; a path to a profile will do too)"
        raise ScenarioError([Problem(name_or_path, None, "", "no hardware profile has this name", cure)])
    path = path.resolve()
    if path.parent != folder(FOLDER).resolve():
        return _read(path, ())
    return _shipped(path, tuple(sorted((each.name, each.stat().st_mtime_ns) for each in path.parent.iterdir())))


@cache
def _shipped(path: Path, _: tuple[tuple[str, int], ...]) -> HardwareProfile:
    """Read once, until a file of the folder changes: it may borrow from any of them."""
    return _read(path, ())


def _read(path: Path, chain: tuple[str, ...]) -> HardwareProfile:
    """The profile in ``path``; ``chain`` are the files that borrow from it, each from the next."""
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise ScenarioError([Problem(str(path), None, "", "not a profile", "write keys and values, as in h100-sxm")])
    data = dict(document.data)
    problems: list[Problem] = []
    if isinstance(data.get("efficiency"), dict) and "from" in data["efficiency"]:
        data["efficiency"], problems = _borrowed(data, document, path, chain)
    unresolved = "efficiency" in data and data["efficiency"] is None
    profile, faults = _profile(data, document, path)
    problems += [fault for fault in faults if not (unresolved and fault.path == "efficiency")]
    if problems or profile is None:
        raise ScenarioError(sorted(problems, key=lambda problem: problem.line or 0))
    return profile


def _profile(data: dict[str, Any], document: Document, path: Path) -> tuple[HardwareProfile | None, list[Problem]]:
    """The checked profile, or what is wrong with it."""
    profile, problems = None, []
    try:
        profile = _PROFILE.validate_python(data)
        peaks: Mapping[str, float] = profile.peak_flops_per_s
        link = profile.scale_up
    except ValidationError as error:
        problems = [_problem(details, document, path) for details in error.errors()]
        peaks, link = _numbers(data.get("peak_flops_per_s")), None
    faults = [*(peak_faults(peaks) if peaks else ()), *link_faults(link)]
    problems += [
        Problem(str(path), document.line(fault.path), ".".join(fault.path), fault.problem, fault.cure)
        for fault in faults
    ]
    return (None if problems else profile), problems


def _borrowed(
    data: dict[str, Any], document: Document, path: Path, chain: tuple[str, ...]
) -> tuple[Efficiency | None, list[Problem]]:
    """The efficiency that ``{from: sibling}`` means; a chain that comes back to itself is an error."""
    where = ("efficiency", "from")
    try:
        own = Borrowed.model_validate(data["efficiency"])
    except ValidationError as error:
        return None, [_problem(details, document, path, ("efficiency",)) for details in error.errors()]
    sibling_path = find(FOLDER, own.sibling, path.parent)
    line = document.line(where)
    if sibling_path is None:
        cure = nearest(own.sibling, profile_names())
        return None, [Problem(str(path), line, ".".join(where), f"there is no profile {own.sibling!r}", cure)]
    links = (*chain, str(path))
    if str(sibling_path.resolve()) in links:
        problem = f"{own.sibling!r} borrows from this profile in turn"
        return None, [Problem(str(path), line, ".".join(where), problem, "write the curves of one of them in full")]
    sibling = _read(sibling_path.resolve(), links)
    try:
        link = _LINK.validate_python(data.get("scale_up"))
        pcie_bytes_per_s = _RATE.validate_python(data.get("pcie_bytes_per_s"))
        ridge = ridge_16bit(_numbers(data["peak_flops_per_s"]), _BANDWIDTH.validate_python(data["hbm_bytes_per_s"]))
    except (ValidationError, KeyError):  # the check of the whole profile reports it
        return None, []
    return borrow(own, sibling, link, pcie_bytes_per_s, ridge), []


def _numbers(peaks: object) -> dict[str, float]:
    """The usable figures among peaks that did not all pass."""
    if not isinstance(peaks, dict):
        return {}
    return {str(dtype): float(peak) for dtype, peak in peaks.items() if isinstance(peak, int | float) and peak > 0}


def _problem(details: ErrorDetails, document: Document, path: Path, inside: tuple[str, ...] = ()) -> Problem:
    """One of pydantic's findings in the user's terms."""
    keys = (*inside, *(key for key in details["loc"] if key != "[key]"))
    kind, value = details["type"], details["input"]
    problem = details["msg"].lower()
    cure = CURES.get(kind, "see `sim hardware h100-sxm --json` for the form")
    if kind == "missing":
        problem = "is missing"
    elif kind in {"unexpected_keyword_argument", "extra_forbidden"}:
        problem, cure = "is not a key of a profile", nearest(str(keys[-1]), KEYS)
    elif kind == "less_than_equal":
        problem = f"{value!r} is more than {details['ctx']['le']:g}: no kernel beats the device's own peak"
        cure = f"give a share of the peak (memory at most 1, compute at most {CLOCK_MARGIN})"
    else:
        problem = f"{value!r}: {problem}"
    return Problem(str(path), document.line(keys), ".".join(str(key) for key in keys), problem, cure)


_PROFILE = TypeAdapter(HardwareProfile)
_LINK: TypeAdapter[Link | None] = TypeAdapter(Link | None)
_RATE: TypeAdapter[float | None] = TypeAdapter(Positive | None)
_BANDWIDTH: TypeAdapter[float] = TypeAdapter(Positive)
