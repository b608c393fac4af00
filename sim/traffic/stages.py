"""What a request passes on its way to the engine and back: network, tokenisation, detokenisation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from sim.scenario import specs
from sim.traffic.delays import build_delays
from sim.traffic.streams import generator

BLOCK_REQUESTS = 1024


class Trip(NamedTuple):
    """One request's way."""

    out_s: float
    """From its client to the server."""
    tokenise_s: float
    """Beside what the engine's own front end takes."""
    back_s: float
    """Every chunk's way from the engine to the client: turned into text, then sent."""


class Stages:
    """Draws each request's way, in the order they are sent, every stage from its own random stream."""

    def __init__(self, client: specs.Client, seed: int) -> None:
        self._per_token_s = client.tokenise_per_token
        self._out_s = _drawn(client.network, seed, "network_out")
        self._back_s = _drawn(client.network, seed, "network_back")
        self._tokenise_s = _drawn(client.tokenise, seed, "tokenise")
        self._detokenise_s = _drawn(client.detokenise, seed, "detokenise")

    def next(self, prompt_tokens: int) -> Trip:
        """The way of the next request."""
        return Trip(
            next(self._out_s),
            next(self._tokenise_s) + prompt_tokens * self._per_token_s,
            next(self._detokenise_s) + next(self._back_s),
        )


def stages(spec: specs.TrafficSpec, seed: int) -> Stages | None:
    """None where a scenario says nothing of these stages: requests are at the server at once."""
    keys = {"network", "tokenise", "tokenise_per_token", "detokenise"}
    if spec.client is None or not keys & spec.client.model_fields_set:
        return None
    return Stages(spec.client, seed)


def _drawn(spec: specs.Delays | None, seed: int, stream: str) -> Iterator[float]:
    if spec is None:
        return repeat(0.0)
    draw, random = build_delays(spec), generator(seed, stream)
    return (delay_s for _ in repeat(None) for delay_s in draw(random, BLOCK_REQUESTS).tolist())
