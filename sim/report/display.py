"""How a result shows itself in a notebook."""

from __future__ import annotations

from sim.report.facts import Summary
from sim.report.html import environment, shown


def result_html(summary: Summary) -> str:
    """A fragment of HTML with inline styles: verdict, figures, latency table, bounds."""
    return environment().get_template("result.html.j2").render(**shown(summary))
