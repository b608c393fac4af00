"""The report as a browser shows it."""

import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest

import sim

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1000,2400",
)


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_a_browser_draws_the_report_with_its_figures(repo, tmp_path):
    """The page is not blank, holds colours of the figures, and every picture in it loads."""
    sim.run(repo / "workloads/chat.yaml", overrides={"traffic.requests": 100}).save(tmp_path)
    page, picture = tmp_path / "report.html", tmp_path / "page.png"
    profile = f"--user-data-dir={tmp_path / 'browser'}"
    subprocess.run(
        [BROWSER, *FLAGS, profile, f"--screenshot={picture}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.std() > 0.05
    blue = np.array([0x00, 0x72, 0xB2]) / 255
    assert (np.abs(pixels - blue).max(axis=-1) < 0.02).sum() > 1000
