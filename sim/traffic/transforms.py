"""What a scenario changes of a trace, one small stream after the other; each random one has a stream of its own.

Every function takes requests or sessions in order of time and gives them so. They are read as they are asked for, and
nothing beyond a window's end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from typing import TypeVar

import numpy as np

from sim.scenario import specs
from sim.traffic.formats.base import Request
from sim.traffic.hash_blocks import scaled, scaled_pieces
from sim.traffic.sessions import Session, Turn
from sim.traffic.streams import generator

Sent = TypeVar("Sent", Request, Session)


def changed(sent: Iterator[Sent], spec: specs.Trace, seed: int) -> Iterator[Sent]:
    """As the scenario wants them: all but their lengths."""
    if spec.spread:
        sent = spread(sent, generator(seed, "trace spread"))
    if spec.start > 0 or spec.end is not None:
        sent = window(sent, spec.start, spec.end)
    if spec.sample < 1:
        sent = sampled(sent, spec.sample, generator(seed, "trace sample"))
    if spec.replicate > 1:
        sent = replicated(sent, spec.replicate)
    if spec.rate is not None:
        sent = at_rate(sent, spec.rate, generator(seed, "trace rate"))
    if spec.concurrency is not None:
        sent = (one._replace(time_s=0.0) for one in sent)
    if spec.time_scale != 1:
        sent = slowed(sent, spec.time_scale)
    return sent


def spread(sent: Iterable[Sent], draws: np.random.Generator) -> Iterator[Sent]:
    """Those of one second fall anywhere in it, in their order."""
    for second, group in groupby(sent, key=lambda one: math.floor(one.time_s)):
        members = list(group)
        within = np.sort(draws.random(len(members)))
        for one, part in zip(members, within.tolist(), strict=True):
            yield one._replace(time_s=second + part)


def window(sent: Iterable[Sent], start_s: float, end_s: float | None) -> Iterator[Sent]:
    """Those from ``start_s`` up to, but not at, ``end_s``; times count from ``start_s``."""
    if end_s is not None:
        sent = takewhile(lambda one: one.time_s < end_s, sent)
    return (one._replace(time_s=one.time_s - start_s) for one in sent if one.time_s >= start_s)


def sampled(sent: Iterable[Sent], share: float, draws: np.random.Generator) -> Iterator[Sent]:
    """Each is kept with this probability."""
    return (one for one in sent if draws.random() < share)


def replicated(sent: Iterable[Sent], times: int) -> Iterator[Sent]:
    """Each so many times, evenly over the gap to the next; those of the last one at once."""
    before: Sent | None = None
    for one in sent:
        if before is not None:
            yield from _copies(before, times, one.time_s - before.time_s)
        before = one
    if before is not None:
        yield from _copies(before, times, 0.0)


def _copies(one: Sent, times: int, gap_s: float) -> Iterator[Sent]:
    for copy in range(times):
        time_s = one.time_s + gap_s * copy / times
        if isinstance(one, Session):
            yield _session_copy(one, copy, times)._replace(time_s=time_s)
        else:
            yield one._replace(time_s=time_s, copy=copy)


def _session_copy(session: Session, copy: int, times: int) -> Session:
    """Its segments have names of their own, but for the original's."""
    turns = session.turns
    if copy:
        turns = tuple(
            turn
            if turn.pieces is None
            else turn._replace(pieces=tuple((f"c{copy}/{name}", tokens) for name, tokens in turn.pieces))
            for turn in turns
        )
    return session._replace(session_id=session.session_id * times + copy, turns=turns)


def at_rate(sent: Iterable[Sent], rate_per_s: float, draws: np.random.Generator) -> Iterator[Sent]:
    """At the times of a Poisson process."""
    time_s = 0.0
    for one in sent:
        time_s += draws.standard_exponential() / rate_per_s
        yield one._replace(time_s=time_s)


def slowed(sent: Iterable[Sent], time_scale: float) -> Iterator[Sent]:
    """Every time times ``time_scale``."""
    return (one._replace(time_s=one.time_s * time_scale) for one in sent)


def rescaled(session: Session, prompt_scale: float, output_scale: float) -> Session:
    """A session whose turns' new tokens and answers are that much longer."""
    return session._replace(turns=tuple(_turn(turn, prompt_scale, output_scale) for turn in session.turns))


def _turn(turn: Turn, prompt_scale: float, output_scale: float) -> Turn:
    output, new = scaled(turn.output_tokens, output_scale), turn.new_tokens
    pieces = turn.pieces
    if prompt_scale != 1:
        new = scaled(new, prompt_scale)
        pieces = None if pieces is None else scaled_pieces(pieces, prompt_scale)
    return turn._replace(output_tokens=output, max_output_tokens=output, new_tokens=new, pieces=pieces)
