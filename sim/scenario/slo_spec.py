"""What requests should meet."""

from __future__ import annotations

from sim.scenario.quantities import Fraction, PositiveSeconds
from sim.scenario.spec import Spec


class SloSpec(Spec):
    """What every request should meet; a None bounds nothing. ``attainment`` is the share of requests that must."""

    ttft: PositiveSeconds | None = None
    """Time from sending a request to its first token."""
    tpot: PositiveSeconds | None = None
    """Time per output token after the first."""
    e2e: PositiveSeconds | None = None
    """Time from sending a request to its last token."""
    attainment: Fraction = 0.99
    """Share of requests that must meet all bounds."""
