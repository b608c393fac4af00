"""Fixtures every room shares."""

from __future__ import annotations

from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repo() -> Path:
    """The checkout."""
    return REPO


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data beside the checkout; tests that need it skip where it is not."""
    path = REPO.parent / "shared"
    if not path.is_dir():
        pytest.skip("../shared is not here")
    return path
