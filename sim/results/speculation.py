"""How well drafts did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.engine.protocol import Verified

if TYPE_CHECKING:
    from sim.fleet import RunRecord


@dataclass(slots=True)
class VerificationCount:
    """Verifications of one replica, the drafts they looked at and those they accepted."""

    verifications: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def add(self, verified: Verified) -> None:
        """Those of one step."""
        self.verifications += verified.verifications
        self.drafted_tokens += verified.drafted_tokens
        self.accepted_tokens += verified.accepted_tokens


def speculative_summary(run: RunRecord) -> dict[str, float | int | None] | None:
    """Of the whole run; None without speculation.

    As vLLM counts: ``acceptance_rate`` is accepted / drafted; ``tokens_per_verification`` = 1 + accepted /
    verifications, its mean acceptance length. Drafts beyond a request's last token count as accepted.
    """
    if run.setup.settings.speculation is None:
        return None
    return _figures([recorder.verified for recorder in run.recorders])


def _figures(counts: Sequence[VerificationCount]) -> dict[str, float | int | None]:
    verifications = sum(count.verifications for count in counts)
    drafted = sum(count.drafted_tokens for count in counts)
    accepted = sum(count.accepted_tokens for count in counts)
    return {
        "verifications": verifications,
        "acceptance_rate": accepted / drafted if drafted else None,
        "tokens_per_verification": 1 + accepted / verifications if verifications else None,
    }
