"""Models by name: presets that ship, or any config.json."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from sim import resources
from sim.errors import UnsupportedModel
from sim.models.config import from_config
from sim.models.spec import ModelSpec
from sim.yaml12 import read_yaml

PRESETS = Path(__file__).with_name("presets.yaml")
LARGEST_CONFIG_BYTES = 8 * 2**20


@cache
def _presets() -> dict[str, dict[str, Any]]:
    data: dict[str, dict[str, Any]] = read_yaml(PRESETS).data
    return data


@cache
def _aliases() -> dict[str, str]:
    return {alias.lower(): name for name, entry in _presets().items() for alias in (name, *entry.get("aliases", []))}


def config_of(name: str) -> dict[str, Any]:
    """A preset's own fields, over those of the one it is ``like``."""
    preset = _presets()[name]
    base = config_of(preset["like"]) if "like" in preset else {}
    return {**base, **preset.get("config", {})}


def preset_names() -> list[str]:
    """Names of the presets, sorted."""
    return sorted(_presets())


def is_preset(name: str) -> bool:
    """Whether a name, in any case, or a Hugging Face id means a preset."""
    return name.lower() in _aliases()


def load_model(name_or_path: str, base_dir: Path | None = None) -> ModelSpec:
    """A preset, or a config.json (or the folder it is in) seen from ``base_dir``.

    Raises UnsupportedModel where there is no such model, or its config cannot be read exactly.
    """
    name = _aliases().get(name_or_path.lower())
    if name is not None:
        return _of_preset(name)
    path = resources.locate(name_or_path, base_dir) or resources.locate(f"{name_or_path}/config.json", base_dir)
    if path is None:
        cure = resources.nearest(name_or_path, preset_names()) + "; or a path to a config.json"
        raise UnsupportedModel(f"no preset and no file is called {name_or_path}", cure)
    config = _read_json(path)
    beside = path.with_name("hf_quant_config.json")
    if "quantization_config" not in config and beside.is_file():
        config["quantization_config"] = _read_json(beside).get("quantization")
    title = path.parent.name if path.name == "config.json" else path.stem
    return from_config(config, title or path.stem, str(path))


@cache
def _of_preset(name: str) -> ModelSpec:
    return from_config(config_of(name), name, _presets()[name]["source"])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        config = json.loads(path.read_text(encoding="utf-8")) if size <= LARGEST_CONFIG_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise UnsupportedModel(f"{path}: cannot be read as JSON: {error}", "name a model's config.json") from error
    if not isinstance(config, dict):
        what = "no JSON object" if size <= LARGEST_CONFIG_BYTES else f"{size:,} bytes, more than a config can have"
        raise UnsupportedModel(f"{path}: holds {what}", "name a model's config.json")
    return config
