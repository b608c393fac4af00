"""Profiles as YAML: SI numbers in engineering notation, one curve a line; read back, exactly what was in memory."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from sim.hardware.profile import HardwareProfile
from sim.yaml12 import is_plain_text

PLAIN = (1e-3, 1e4)
"""Numbers between these are written without an exponent."""


def save_profile(profile: HardwareProfile, path: Path | str) -> None:
    """Write ``profile`` so that ``load_profile`` gives it back; the file is there whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(yaml_text(as_document(profile)))
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def as_document(value: Any) -> Any:
    """Plain dicts and lists in the order of the fields; what equals its default is left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: as_document(getattr(value, field.name))
            for field in fields(value)
            if field.default is MISSING or getattr(value, field.name) != field.default
            if field.default_factory is MISSING or getattr(value, field.name) != field.default_factory()
        }
    if isinstance(value, Mapping):
        return {key: as_document(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_document(item) for item in value]
    return value


def yaml_text(document: Mapping[str, Any]) -> str:
    """The YAML of plain data: inner mappings of numbers on one line."""
    return yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=118, allow_unicode=True
    )


def number_text(value: float) -> str:
    """``352.5e+9``: exponents in threes, every digit kept, and a dot so that YAML 1.1 readers see a number too."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    if value == 0 or PLAIN[0] <= abs(value) < PLAIN[1]:
        return repr(value)
    exact = Decimal(repr(value))
    exponent = exact.adjusted() // 3 * 3
    mantissa = format(exact.scaleb(-exponent).normalize(), "f")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent:+d}"


class _Dumper(yaml.SafeDumper):
    """SafeDumper with our numbers, mappings of numbers in one line, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML asks per value; ours is always no alias
        return True


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", number_text(value))


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain_text(value) else "'")


def _mapping(dumper: yaml.SafeDumper, value: dict[Any, Any]) -> yaml.MappingNode:
    in_line = bool(value) and all(isinstance(item, int | float | None) for item in value.values())
    link = {"bytes_per_s", "devices"} <= value.keys()
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=in_line or link or not value)


_Dumper.add_representer(float, _float)
_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _mapping)
