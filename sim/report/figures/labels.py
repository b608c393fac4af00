"""Labels beside points that neither cover each other nor the points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from sim.report.figures import style

_DIRECTIONS = tuple((np.cos(angle), np.sin(angle)) for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False))
_DISTANCES_POINTS = (4.0, 12.0, 24.0, 40.0, 60.0, 85.0)


class Label(NamedTuple):
    """Text for the point at (x, y), which is drawn with a radius in typographic points."""

    text: str
    x: float
    y: float
    radius_points: float


def place(figure: Figure, axes: Axes, labels: list[Label], keep_clear: np.ndarray) -> list[Annotation]:
    """Draw the labels, first ones nearest to their points; one without a free place is left out.

    ``keep_clear``: points (x, y) of lines that no label may cover.
    """
    if not labels:
        return []
    figure.draw_without_rendering()
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg), canvas
    renderer = canvas.get_renderer()
    pixels = figure.dpi / 72
    centres = axes.transData.transform([(label.x, label.y) for label in labels])
    obstacles = [_around(x, y, label.radius_points * pixels) for (x, y), label in zip(centres, labels, strict=True)]
    obstacles += [text.get_window_extent() for text in axes.texts]
    obstacles += [_around(x, y, 1.5 * pixels) for x, y in axes.transData.transform(keep_clear)]
    key = axes.get_legend()
    if key is not None:
        obstacles.append(key.get_window_extent())
    drawn = []
    for label in labels:
        annotation = _free_place(axes, label, obstacles, renderer)
        if annotation is not None:
            obstacles.append(_text_box(annotation, renderer))
            drawn.append(annotation)
    return drawn


def _free_place(axes: Axes, label: Label, obstacles: list[Bbox], renderer: RendererAgg) -> Annotation | None:
    annotation = axes.annotate(
        label.text,
        (label.x, label.y),
        (0, 0),
        textcoords="offset points",
        fontsize=style.TEXT_SIZE - 1,
        color=style.INK,
        arrowprops={"arrowstyle": "-", "color": style.QUIET, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 1},
        zorder=5,
    )
    annotation.set_in_layout(False)
    frame = axes.get_window_extent()
    for distance in _DISTANCES_POINTS:
        for across, up in _DIRECTIONS:
            reach = label.radius_points + distance
            annotation.set_position((across * reach, up * reach))
            annotation.set_horizontalalignment("left" if across > 0.3 else "right" if across < -0.3 else "center")
            annotation.set_verticalalignment("bottom" if up > 0.3 else "top" if up < -0.3 else "center")
            box = _text_box(annotation, renderer)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in obstacles):
                if annotation.arrow_patch is not None:
                    annotation.arrow_patch.set_visible(distance > _DISTANCES_POINTS[0])
                return annotation
    annotation.remove()
    return None


def _text_box(annotation: Annotation, renderer: RendererAgg) -> Bbox:
    """The text's own extent, without the line that leads to its point."""
    annotation.update_positions(renderer)
    return Text.get_window_extent(annotation).padded(1.0)


def _around(x: float, y: float, radius: float) -> Bbox:
    return Bbox.from_extents(x - radius, y - radius, x + radius, y + radius)
