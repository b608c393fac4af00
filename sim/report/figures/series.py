"""Step tables as series over time: exact means per bin, whatever the number of steps and replicas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StepSeries:
    """Means over equal bins of what the steps of all replicas did, idle time counting as 0."""

    steps: pd.DataFrame
    edges_s: np.ndarray

    @classmethod
    def of(cls, steps: pd.DataFrame, bins: int, until_s: float = 0.0) -> StepSeries:
        """Bins from time 0 to the last step's end (or ``until_s``, if later)."""
        end_s = float((steps["start_s"] + steps["duration_s"]).max()) if len(steps) else 0.0
        return cls(steps, np.linspace(0.0, max(end_s, until_s) or 1.0, bins + 1))

    @property
    def middles_s(self) -> np.ndarray:
        """The middle of each bin."""
        return self.edges_s[:-1] + np.diff(self.edges_s) / 2

    @property
    def width_s(self) -> float:
        """Of every bin."""
        return float(self.edges_s[1] - self.edges_s[0])

    @cached_property
    def _duration_s(self) -> np.ndarray:
        return self.steps["duration_s"].to_numpy(dtype=float)

    @cached_property
    def _knots(self) -> tuple[np.ndarray, np.ndarray]:
        start_s = self.steps["start_s"].to_numpy(dtype=float)
        times_s = np.concatenate((start_s, start_s + self._duration_s))
        order = np.argsort(times_s, kind="stable")
        return times_s[order], order

    def level(self, values: np.ndarray) -> np.ndarray:
        """Mean of a figure that holds during each step, summed over replicas: running requests, KV blocks."""
        times_s, order = self._knots
        if not len(times_s):
            return np.zeros(len(self.edges_s) - 1)
        heights = np.cumsum(np.concatenate((values, -values))[order])
        areas = np.concatenate(([0.0], np.cumsum(heights[:-1] * np.diff(times_s))))
        means: np.ndarray = np.diff(np.interp(self.edges_s, times_s, areas)) / self.width_s
        return means.clip(min=0.0)

    def rate(self, amounts: np.ndarray) -> np.ndarray:
        """Amount per second of what each step did, spread evenly over the step: tokens per second."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.level(np.where(self._duration_s > 0, amounts / self._duration_s, 0.0))

    def column(self, name: str) -> np.ndarray:
        """A column of the step table as floats."""
        return self.steps[name].to_numpy(dtype=float)

    def bound(self, name: str) -> np.ndarray:
        """Replicas in a step that ``name`` bounds."""
        return self.level((self.steps["bound"] == name).to_numpy(dtype=float))
