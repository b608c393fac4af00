"""The figures of a report.

Each function returns a matplotlib Figure of its own, without pyplot, so that threads and notebooks may draw.
"""

from sim.report.figures.breakdown import bound_shares, latency_breakdown
from sim.report.figures.latency import latency_cdf
from sim.report.figures.load import throughput_latency
from sim.report.figures.overview import overview
from sim.report.figures.roofline import roofline
from sim.report.figures.timeline import timeline

__all__ = [
    "bound_shares",
    "latency_breakdown",
    "latency_cdf",
    "overview",
    "roofline",
    "throughput_latency",
    "timeline",
]
