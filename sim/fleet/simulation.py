"""One run: traffic through clients, router and replicas, until all is served."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from types import FrameType
from typing import Any

import numpy as np
import simpy

from sim.engine.request import Request
from sim.errors import ScenarioError
from sim.fleet.assembly import Setup, assemble
from sim.fleet.building import build_recorder, build_replica
from sim.fleet.clients import Clients
from sim.fleet.clock import Clock
from sim.fleet.frontend import FrontEnd
from sim.fleet.pacing import InStep, Lagging, Pace
from sim.fleet.router import build_router
from sim.fleet.session_clients import SessionClients, SessionTally
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import CANCELLED, FAILED, REJECTED, SUBMITTED, RequestLog
from sim.results.steps import StepLog
from sim.results.streams import StreamLog
from sim.scenario import Loaded
from sim.traffic import Arrival
from sim.traffic.skips import skipped

MOST_REJECTED = 100_000
"""At one instant, beyond one for each client of a closed loop: after that it is clear that time stands still."""
Progress = Callable[[int, float], None]
"""Called now and then with (requests ended, simulated seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything a run wrote down. ``partial``: it was interrupted; what it holds was simulated until ``end_s``."""

    setup: Setup
    requests: RequestLog
    steps: StepLog
    recorders: tuple[ReplicaRecorder, ...]
    end_s: float
    truncated: int
    """Requests whose output was cut at the engine's max_model_len."""
    rejections: dict[str, int]
    """Why requests were rejected, with the numbers, and how many."""
    prefix_queries: int
    prefix_hits: int
    partial: bool
    sessions: SessionTally | None
    """None: every request was a session of its own."""
    streams: StreamLog | None = None
    """When each chunk reached its client, where that was asked for."""
    trace: dict[str, Any] | None = None
    """What was left out of a trace, as ``sim.traffic.skips`` tells it; None: nothing."""


class _TimeStandsStillError(Exception):
    """Without arguments, as SimPy makes errors of its processes anew."""


class Simulation:
    """The fleet of one scenario, ready to run once.

    ``plain``: step by step, without the short cuts that lead to the same tables. ``streams``: keep when each chunk
    reached its client.
    """

    def __init__(
        self, setup: Setup, progress: Progress | None = None, *, plain: bool = False, streams: bool = False
    ) -> None:
        self.setup = setup
        self.env = Clock()
        self._traffic = traffic = setup.traffic()
        self._stages = setup.stages()
        self.requests = RequestLog(
            in_sessions=traffic.in_sessions,
            with_return=self._stages is not None,
            classes=list(setup.loaded.spec.traffic.classes or ()),
        )
        self.steps = StepLog()
        self.truncated = 0
        self.rejections: Counter[str] = Counter()
        self._progress = progress
        self._ended = 0
        self._last_event_s = 0.0
        """Of what clients did: a send, or a request given up."""
        self.streams = StreamLog() if streams else None
        self.recorders = tuple(
            build_recorder(setup, self.requests, self.steps, index, self.streams)
            for index in range(setup.deployment.replicas)
        )
        self.replicas = [
            build_replica(setup, recorder, self.requests, self._finished, plain=plain) for recorder in self.recorders
        ]
        self._front_ends = [
            FrontEnd(replica, latency_s=setup.request_latency_s, serial_s=setup.request_serial_s)
            for replica in self.replicas
        ]
        self._router = build_router(setup.deployment.router, setup.generator("router"), setup.deployment.weights)
        self._longest_tokens = self.replicas[0].engine.longest_request_tokens()
        self._patience = setup.patience()
        self._rejected_at_once = 0
        """Requests rejected at one instant, followed where that may go on for ever."""
        concurrency = traffic.closed_concurrency
        counted = concurrency is None or setup.loaded.spec.traffic.requests is not None
        self._most_rejected = None if counted else (concurrency or 0) + MOST_REJECTED
        waits = traffic.limit is not None or traffic.in_sessions
        waits = waits or self._patience is not None or self._stages is not None
        self._pace: Pace = InStep(self.env) if waits else Lagging()
        self._clients = (SessionClients if traffic.in_sessions else Clients)(self.env, traffic, self._send)

    def run(self) -> RunRecord:
        """Simulate to the end (or, with ``drain: false``, to the end of the load). Ctrl-C ends it as partial.

        Raises ScenarioError where a closed loop's requests are all rejected, so that its duration never passes.

        The first Ctrl-C lets the event in progress end, so that the tables agree; a second one is a KeyboardInterrupt.
        """
        with _interruptible() as interrupted:
            env, sending, drain = self.env, self._clients.sending, self.setup.drain
            try:
                while not interrupted and (drain or not sending.processed):
                    env.step()
            except simpy.core.EmptySchedule:
                pass
            except _TimeStandsStillError as error:
                raise self._standstill() from error
            if drain:
                self._pace.drain(self.replicas, lambda: bool(interrupted))
            else:
                self._pace.catch_up(self.replicas, env.now)
        return self._record(bool(interrupted))

    def _send(self, arrival: Arrival, sent_s: float, waited_s: float, session_id: int | None) -> None:
        row = self.requests.submit(sent_s, arrival.prompt_tokens, arrival.priority, waited_s, session_id)
        if arrival.class_index:
            self.requests.class_index[row] = arrival.class_index
        if self._most_rejected is not None:
            self._check_progress(sent_s)
        self._last_event_s = sent_s
        patience = None if self._patience is None else next(self._patience)
        reason = self._rejection(arrival)
        if reason is not None:
            self.requests.status[row] = REJECTED
            self.rejections[reason] += 1
            self._ended += 1
            self._rejected_at_once += 1
            self._clients.ended(row, 0, completed=False)
            return
        request = self._request(arrival, row)
        if self._router.looks:
            self._pace.catch_up(self.replicas, sent_s)
        index = self._router.pick(self.replicas, request, session_id)
        self.requests.replica[row] = index
        if self._stages is None:
            self._front_ends[index].submit(request, sent_s)
            self._pace.sent(self.replicas[index], sent_s)
        else:
            trip = self._stages.next(arrival.prompt_tokens)
            self.requests.return_s[row] = trip.back_s
            self.replicas[index].on_the_way.add(request)
            self.env.call_at(sent_s + trip.out_s, partial(self._reach, request, trip.tokenise_s))
        if patience is not None and patience.after_s < inf:
            status = CANCELLED if patience.cancelled else FAILED
            self.env.call_at(sent_s + patience.after_s, partial(self._give_up, request, status))

    def _check_progress(self, sent_s: float) -> None:
        """A client whose request is rejected sends the next one at once: that may never end."""
        if sent_s > self._last_event_s:
            self._rejected_at_once = 0
        elif self._rejected_at_once > (self._most_rejected or 0):
            raise _TimeStandsStillError

    def _standstill(self) -> ScenarioError:
        reason = max(self.rejections, key=self.rejections.__getitem__)
        problem = f"never passes: clients send one request after another, and each is rejected ({reason})"
        cure = "shorten the prompts, raise engine.max_model_len, or add traffic.requests"
        return ScenarioError([self.setup.loaded.problem("traffic.duration", problem, cure)])

    def _reach(self, request: Request, tokenise_s: float) -> None:
        """A request is at the server: it is tokenised, and then the engine's, even if its client has left meanwhile."""
        now_s, row = self.env.now, request.order
        received_s = self._front_ends[self.requests.replica[row]].accept(now_s) + tokenise_s
        self.env.call_at(received_s, partial(self._receive, request))

    def _receive(self, request: Request) -> None:
        replica = self.replicas[self.requests.replica[request.order]]
        replica.on_the_way.discard(request)
        if self.requests.status[request.order] == SUBMITTED:
            replica.receive(request, self.env.now)
            self._pace.sent(replica, self.env.now)

    def _give_up(self, request: Request, status: int) -> None:
        """A client's patience is over; nothing happens if its request has ended."""
        row, now_s = request.order, self.env.now
        if self.requests.status[row] != SUBMITTED:
            return
        self.requests.status[row] = status
        self._last_event_s = now_s
        self._ended += 1
        index = self.requests.replica[row]
        if request in self.replicas[index].on_the_way:  # the server drops it on arrival
            self.replicas[index].on_the_way.discard(request)
        else:
            self._front_ends[index].cancel(request, now_s)
        self._pace.sent(self.replicas[index], now_s)
        self._clients.ended(row, 0, completed=False)

    def _rejection(self, arrival: Arrival) -> str | None:
        """Why a request can never be served; None if it can.

        A prompt that leaves no room for one token is refused by the API server; a request that outgrows the whole KV
        pool would block the engine's queue for ever.
        """
        limit, longest = self.setup.settings.max_model_len, self._longest_tokens
        longest_prompt = self.setup.longest_prompt_tokens
        if arrival.prompt_tokens >= limit:
            return f"the prompt leaves no room in max_model_len, {limit:,} tokens"
        if longest_prompt is not None and arrival.prompt_tokens > longest_prompt:
            return f"without chunked prefill the prompt must fit max_batched_tokens, {longest_prompt:,}"
        if longest is not None and min(arrival.prompt_tokens + arrival.output_tokens, limit) > longest:
            return f"prompt and output outgrow the KV pool, which holds {longest:,} tokens of one request"
        return None

    def _request(self, arrival: Arrival, row: int) -> Request:
        """The engine's view of an arrival; the engine ends it at max_model_len."""
        room_tokens = self.setup.settings.max_model_len - arrival.prompt_tokens
        output_tokens = min(arrival.output_tokens, room_tokens)
        self.truncated += output_tokens < arrival.output_tokens
        return Request(
            row,
            arrival.prompt_tokens,
            output_tokens,
            order=row,
            priority=arrival.priority,
            max_output_tokens=min(arrival.max_output_tokens, room_tokens),
            prompt=arrival.prompt,
        )

    def _finished(self, request: Request) -> None:
        self._ended += 1
        row, tokens = request.order, request.emitted_tokens
        if self._stages is None:
            self._clients.ended(row, tokens, completed=True)
        else:
            answered_s = self.requests.finish_s[row] + self.requests.return_s[row]
            self.env.call_at(answered_s, partial(self._clients.ended, row, tokens, completed=True))
        if self._progress is not None and self._ended % 64 == 0:
            self._progress(self._ended, self.requests.finish_s[request.order])

    def _record(self, interrupted: bool) -> RunRecord:
        for replica in self.replicas:
            replica.close()
        self.requests.close()
        engines = [replica.engine for replica in self.replicas]
        finish_s = np.array(self.requests.finish_s)
        return RunRecord(
            setup=self.setup,
            requests=self.requests,
            steps=self.steps,
            recorders=self.recorders,
            end_s=max(
                self._last_event_s, float(np.nanmax(finish_s, initial=0.0)), 0.0 if self.setup.drain else self.env.now
            ),
            truncated=self.truncated,
            rejections=dict(self.rejections),
            prefix_queries=sum(engine.prefix_queries for engine in engines),
            prefix_hits=sum(engine.prefix_hits for engine in engines),
            partial=interrupted,
            sessions=self._clients.tally if isinstance(self._clients, SessionClients) else None,
            streams=self.streams,
            trace=skipped(self._traffic.skips),
        )


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """A list that Ctrl-C fills, where this is the thread that signals reach."""
    interrupted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(number: int, _: FrameType | None) -> None:
        interrupted.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def simulate(
    loaded: Loaded, progress: Progress | None = None, *, plain: bool = False, streams: bool = False
) -> RunRecord:
    """Run a scenario; arguments are those of ``Simulation``.

    Raises ScenarioError or DoesNotFit before anything is simulated.
    """
    client = loaded.spec.traffic.client
    streams = streams or loaded.spec.metrics != "vllm" or (client is not None and client.stream_interval > 1)
    return Simulation(assemble(loaded), progress, plain=plain, streams=streams).run()
