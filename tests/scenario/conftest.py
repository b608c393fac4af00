"""A scenario that is right, and what a broken one says."""

from __future__ import annotations

import pytest

from sim.errors import ScenarioError
from sim.scenario import load_scenario

BASE = """\
model: llama-3.1-8b
hardware: h100-sxm
engine: {version: "0.33"}
traffic:
  arrivals: {process: poisson, rate: 8}
  requests: 100
  prompt_tokens: 512
  output_tokens: 64
seed: 1
"""


@pytest.fixture
def base():
    """Nine lines that load."""
    return BASE


@pytest.fixture
def load(tmp_path):
    """Load a text as ``w.yaml``."""

    def load_text(text, overrides=None, seed=None):
        path = tmp_path / "w.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_scenario(path, overrides, seed)

    return load_text


@pytest.fixture
def complaint(load, tmp_path):
    """All that a broken text says, with the bare name of the file."""

    def message(text, overrides=None, seed=None):
        with pytest.raises(ScenarioError) as caught:
            load(text, overrides, seed)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return message
