"""Clients who live sessions: a turn is sent once what it waits for has come, with the answers really given."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial
from math import inf

from sim.engine.request import Piece
from sim.fleet.clients import Send
from sim.fleet.clock import Clock
from sim.traffic import Arrival, Traffic
from sim.traffic.sessions import Session, Trigger, Wait

Prompt = tuple[int, tuple[Piece, ...]]
"""Tokens, and the pieces they are made of."""


@dataclass(slots=True)
class SessionTally:
    """What became of a run's sessions; the others were not over at its end."""

    started: int = 0
    completed: int = 0
    """All their requests were answered."""
    cut: int = 0
    """A request was rejected, given up or not sent any more, and with it all that would have followed it."""
    unsent_requests: int = 0
    """Of the cut ones, requests that were never sent."""
    duration_s: list[float] = field(default_factory=list)
    """Of the completed ones, from start to last answer."""


class _Live:
    """One session that is not over."""

    __slots__ = ("answers", "cut", "due_s", "followers", "left", "missing", "prompts", "rows", "session", "started_s")

    def __init__(self, session: Session, started_s: float) -> None:
        turns = session.turns
        self.session = session
        self.started_s = started_s
        self.left = len(turns)
        """Turns neither answered nor cut."""
        self.cut = [False] * len(turns)
        self.due_s = [started_s + turn.not_before_s for turn in turns]
        """Earliest send of each turn, by what is known so far."""
        self.missing = [0] * len(turns)
        """What each turn still waits for."""
        self.followers: list[list[tuple[int, Trigger, float]]] = [[] for _ in turns]
        """By turn: who waits for it, for what of it, and how long after that."""
        self.prompts: list[Prompt | None] = [None] * len(turns)
        self.answers = [0] * len(turns)
        self.rows = [0] * len(turns)
        for index, turn in enumerate(turns):
            waits = turn.waits
            if turn.extends is not None and not any(wait[:2] == (turn.extends, "completion") for wait in waits):
                waits = (*waits, Wait(turn.extends, "completion", 0.0))
            self.missing[index] = len(waits)
            for wait in waits:
                self.followers[wait.turn].append((index, wait.trigger, wait.delay_s))

    def prompt(self, index: int, row: int) -> Prompt:
        """A turn's prompt, sent as request ``row``: what it extends, the answer really given, and its new tokens."""
        turn = self.session.turns[index]
        tokens = turn.new_tokens
        pieces = ((f"p:{row}", tokens),) if turn.pieces is None else turn.pieces
        if turn.extends is not None:
            before = self.prompts[turn.extends]
            assert before is not None, "a turn is sent after the one it extends"
            answer = self.answers[turn.extends]
            tokens += before[0] + answer
            pieces = (*before[1], (f"o:{self.rows[turn.extends]}", answer), *pieces)
        self.prompts[index] = made = (tokens, pieces)
        self.rows[index] = row
        return made


class SessionClients:
    """Begins sessions when their time has come, or in a closed loop when others end, and sends their turns.

    Where a limit holds, turns of sessions under way go before first turns, and of each those due first. The wait for a
    free client counts as in ``Clients``: a turn is sent only then. A turn that is not answered to its end (rejected,
    timed out, cancelled, or due after the load's end) takes all with it that would have followed.
    """

    def __init__(self, env: Clock, traffic: Traffic, send: Send) -> None:
        self._env = env
        self._send = send
        self._sessions = traffic.sessions()
        self._next = next(self._sessions, None)
        self._stops_at_s = inf if traffic.stops_at_s is None else traffic.stops_at_s
        self._closed = traffic.closed_concurrency is not None
        whole = traffic.counts_sessions
        self._most_sessions = traffic.closed_concurrency if whole else None
        self._most_requests = traffic.max_concurrency or (None if whole else traffic.closed_concurrency)
        self.tally = SessionTally()
        self.sending = env.event()
        """Nothing will be sent any more, and the load's time is over."""
        self._under_way = 0
        self._open = 0
        self._unsent = 0
        """Turns of begun sessions, neither sent nor cut."""
        self._ready: list[tuple[bool, float, int, _Live, int]] = []
        """Due turns as (first one, due time, rank, session, turn)."""
        self._rank = 0
        self._sent: dict[int, tuple[_Live, int]] = {}
        """By request_id, those that have not ended."""
        self._rows = 0
        self._pumping = False
        if self._stops_at_s < inf:
            env.call_at(self._stops_at_s, self._stop)
        env.call_at(env.now, self._pump if self._closed else self._next_arrival)

    def ended(self, request_id: int, output_tokens: int, *, completed: bool) -> None:
        """A request ended with so many tokens of its answer, or was given up or rejected."""
        live, index = self._sent.pop(request_id)
        self._open -= 1
        live.answers[index] = output_tokens
        if completed:
            self._over(live)
            self._trigger(live, index, "completion")
        else:
            self._cut(live, index)
        if not self._pumping:
            self._env.call_at(self._env.now, self._pump)

    def _next_arrival(self) -> None:
        """Open arrivals: the next session begins when its time has come."""
        session = self._take()
        if session is None:
            self._note_end()
        else:
            self._env.call_at(session.time_s, partial(self._arrive, session))

    def _arrive(self, session: Session) -> None:
        self._begin(session)
        self._pump()
        self._next_arrival()

    def _take(self) -> Session | None:
        """The next session; None after the last."""
        session = self._next
        if session is not None:
            self._next = next(self._sessions, None)
        return session

    def _begin(self, session: Session) -> None:
        live = _Live(session, self._env.now)
        self.tally.started += 1
        self._under_way += 1
        self._unsent += live.left
        for index, missing in enumerate(live.missing):
            if not missing:
                self._plan(live, index)

    def _plan(self, live: _Live, index: int) -> None:
        """Nothing is missing any more: the turn is sent when it is due."""
        due_s = live.due_s[index]
        if due_s >= self._stops_at_s:
            self._unsend(live, index)
        elif due_s > self._env.now:
            self._env.call_at(due_s, partial(self._due, live, index))
        else:
            self._queue(live, index)

    def _due(self, live: _Live, index: int) -> None:
        self._queue(live, index)
        self._pump()

    def _queue(self, live: _Live, index: int) -> None:
        first = not live.session.turns[index].waits
        self._rank += 1
        heapq.heappush(self._ready, (first, live.due_s[index], self._rank, live, index))

    def _pump(self) -> None:
        """Send what is due as long as clients are free; where there is room beyond that, a closed loop begins more."""
        if self._pumping or self._env.now >= self._stops_at_s:
            return
        self._pumping = True
        while True:
            if self._ready and (self._most_requests is None or self._open < self._most_requests):
                _, due_s, _, live, index = heapq.heappop(self._ready)
                self._dispatch(live, index, due_s)
            elif self._closed and self._has_room():
                session = self._take()
                if session is None:
                    break
                self._begin(session)
            else:
                break
        self._pumping = False
        self._note_end()

    def _has_room(self) -> bool:
        if self._most_sessions is not None:
            return self._under_way < self._most_sessions
        return self._most_requests is not None and self._open < self._most_requests

    def _dispatch(self, live: _Live, index: int, due_s: float) -> None:
        row, now_s = self._rows, self._env.now
        self._rows += 1
        self._open += 1
        self._unsent -= 1
        self._sent[row] = (live, index)
        turn, (tokens, pieces) = live.session.turns[index], live.prompt(index, row)
        arrival = Arrival(row, due_s, tokens, turn.output_tokens, turn.max_output_tokens, turn.priority, pieces)
        self._send(arrival, now_s, now_s - due_s, live.session.session_id)
        self._trigger(live, index, "dispatch")

    def _trigger(self, live: _Live, index: int, trigger: Trigger) -> None:
        """What others wait for has come."""
        now_s = self._env.now
        for follower, waited_for, delay_s in live.followers[index]:
            if waited_for != trigger or live.cut[follower]:
                continue
            live.due_s[follower] = max(live.due_s[follower], now_s + delay_s)
            live.missing[follower] -= 1
            if not live.missing[follower]:
                self._plan(live, follower)

    def _unsend(self, live: _Live, index: int) -> None:
        """A turn is not sent any more."""
        self._unsent -= 1
        self.tally.unsent_requests += 1
        self._cut(live, index)

    def _cut(self, live: _Live, index: int) -> None:
        """A turn is not answered to its end: what waits for that is never sent."""
        live.cut[index] = True
        self._over(live)
        sent = live.prompts[index] is not None
        for follower, waited_for, _ in live.followers[index]:
            if not live.cut[follower] and not (sent and waited_for == "dispatch"):
                self._unsend(live, follower)

    def _over(self, live: _Live) -> None:
        """One turn less; after the last the session is over."""
        live.left -= 1
        if live.left:
            return
        self._under_way -= 1
        if any(live.cut):
            self.tally.cut += 1
        else:
            self.tally.completed += 1
            self.tally.duration_s.append(self._env.now - live.started_s)

    def _stop(self) -> None:
        """The load's time is over."""
        self._next = None
        while self._ready:
            _, _, _, live, index = heapq.heappop(self._ready)
            self._unsend(live, index)
        self.sending.succeed()

    def _note_end(self) -> None:
        """Without a duration the load ends with its last request."""
        if self._next is None and not self._unsent and self._stops_at_s == inf and not self.sending.triggered:
            self.sending.succeed()
