"""A replica that lives through runs of decode steps at once."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from sim.engine.protocol import Engine, Foresight, Plan
from sim.engine.request import Request
from sim.fleet.leap import WORTH_IT, Leap, leap
from sim.fleet.replica import InFlight, Replica
from sim.results.recorder import ReplicaRecorder
from sim.results.requests import RequestLog
from sim.work import CostModel, DecodeTime


class FastReplica(Replica):
    """Does what ``Replica`` does, to the last bit, but does not stop at moments that only go on decoding.

    Most steps of a served model decode the same requests as the step before. Their times follow from a few sums, so
    they are worked out in a loop over local variables, and nothing else is touched until an arrival, a prompt, an end
    or a full KV pool asks for a decision.
    """

    engine: Foresight

    def advance(self, to_s: float) -> None:
        """Live through all moments before ``to_s``; no request may arrive before it any more."""
        if self.next_s < to_s:
            self._live(lambda: to_s, watched=False)

    def moment(self, horizon: Callable[[], float]) -> None:
        """Live through the next moment, and through those before the horizon that only go on decoding."""
        self._live(horizon, watched=True)

    def close(self) -> None:
        """The run is over."""
        self.engine.settle()
        super().close()

    def _complete(self, step: InFlight) -> None:
        plan, engine, recorder = step[0], self.engine, self._recorder
        if isinstance(plan, Plan):
            self._apply(plan, step)
            return
        outcome = engine.complete_steady()
        if outcome is None:
            self._apply(engine.steady_plan(), step)
            return
        prompts, ended = outcome
        recorder.went_on(step, prompts, ended, (engine.running_count, engine.waiting_count, engine.kv_blocks_used))
        for request in ended:
            self._on_finish(request)

    def _plan(self, now_s: float) -> None:
        """Plan a step that is not known beforehand."""
        step = self.engine.next_step()
        if isinstance(step, Plan):
            self._hand_over(step, now_s)
            return
        self._recorder.admitted(step.admitted, now_s)
        self._set_next(now_s, self._launch(step.requests, step.work, now_s))

    def _live(self, horizon: Callable[[], float], *, watched: bool) -> None:
        """Moment after moment, up to the horizon; if somebody watches, none after the first in which a request ends."""
        engine, recorder, cost, in_flight, inbox = self.engine, self._recorder, self._cost, self._in_flight, self._inbox
        steady, streams, append, replica = engine.steady, recorder.streaming, recorder.append_row, recorder.replica
        blocks_due, block_tokens, depth = engine.blocks_due, engine.steady.block_tokens, engine.steps_in_flight
        given_up, now_s, to_s = self._given_up, self.next_s, inf
        while now_s < to_s:
            if given_up or (inbox and inbox[0][0] <= now_s):
                self._take_in(now_s)
            if self._completes:
                self._complete(in_flight.popleft())
            to_s = horizon()
            last = engine.last_known_step() if streams else 0
            number = first = steady.scheduled + 1
            sequences = steady.count
            time = cost.decode_time(sequences) if last >= number else None
            if time is None:
                self._plan(now_s)
                if watched:
                    return
                now_s = self.next_s
                continue
            # Decode on until an arrival, a prompt's first token, an end, or another number of sequences. The
            # arithmetic is that of _launch and _complete.
            stop_s = inbox[0][0] if inbox and inbox[0][0] < to_s else to_s
            host_s, compute_0_s, compute_1_s, memory_0_s, memory_1_s, communication_s, launch_s, windows = time
            ends, context_tokens, used = steady.next_end(), steady.context_tokens(number), engine.kv_blocks_used
            running, waiting, streaming = engine.running_count, engine.waiting_count, len(streams)
            last_end_s, pure_s, free_s = recorder.last_end_s, recorder.pure_s, self._device_free_s
            most = min(last, ends + depth - 1) - number + 1
            far_off = most >= WORTH_IT and now_s + WORTH_IT * (memory_0_s + launch_s) < stop_s
            if far_off and not windows and (depth == 1 or (in_flight and in_flight[0][0] is None)):
                far = leap(now_s, free_s, stop_s, time, sequences, context_tokens, most, overlapped=depth > 1)
                if far is not None:
                    self._leap(far, time, sequences, used)
                    now_s = self.next_s
                    if watched:
                        return
                    continue
            peak_s, completed, used_before = 0.0, 0, used
            while True:
                compute_s = compute_0_s + compute_1_s * context_tokens
                memory_s = memory_0_s + memory_1_s * context_tokens
                if windows:
                    _, compute_s, memory_s, _, _ = time.at(context_tokens, steady.window_tokens(number))
                planned_s = now_s if now_s > free_s else free_s
                ready_s = now_s + host_s
                free_s = (ready_s if ready_s > free_s else free_s) + (compute_s + memory_s + communication_s + launch_s)
                used += blocks_due[number % block_tokens]
                in_flight.append((
                    None, planned_s, free_s, 0, sequences, context_tokens,
                    compute_s, memory_s, communication_s, launch_s,
                ))  # fmt: skip
                if len(in_flight) < depth:
                    self._completes, now_s = False, ready_s
                    break
                oldest = in_flight[0]
                plan, began_s, end_s, _, decoded, attended, computing_s, reading_s, talking_s, launching_s = oldest
                now_s = end_s if end_s > ready_s else ready_s
                if number == last or now_s >= stop_s or plan is not None or number - depth + 1 >= ends:
                    self._completes = True
                    break
                in_flight.popleft()
                completed += 1
                gap_s = end_s - last_end_s
                if gap_s > peak_s:
                    peak_s = gap_s
                pure_s += end_s - began_s
                last_end_s = end_s
                append((
                    replica, began_s, end_s, 0, decoded, attended, running, waiting, used, 0,
                    computing_s, reading_s, talking_s, launching_s, gap_s, streaming, streaming,
                ))  # fmt: skip
                context_tokens += sequences
                number += 1
            self.next_s = now_s
            self._device_free_s = free_s
            engine.decoded(number + 1 - first, completed, used - used_before)
            if completed:
                recorder.decoded(completed, last_end_s, pure_s, peak_s)
            if watched:
                return

    def _leap(self, far: Leap, time: DecodeTime, sequences: int, used: int) -> None:
        """Write down many steps that only decode on; as many stay in flight as the engine keeps."""
        engine, recorder, in_flight, depth = self.engine, self._recorder, self._in_flight, self.engine.steps_in_flight
        steps, block_tokens = len(far.ends_s), engine.steady.block_tokens
        numbers = engine.steady.scheduled + 1 + np.arange(steps)
        used_after = used + np.cumsum(np.array(engine.blocks_due)[numbers % block_tokens])
        running, waiting = engine.running_count, engine.waiting_count
        for before in in_flight:
            recorder.went_on(before, [], [], (running, waiting, int(used_after[0])))
        done = steps - depth
        counts = (running, waiting, used_after[depth - 1 : steps - 1])
        constant = (time.communication_s, time.launch_s)
        recorder.leapt(
            (*(column[:done] for column in far[1:3]), 0, sequences, *(column[:done] for column in far[3:]), *constant),
            counts,
        )
        in_flight.clear()
        for began_s, end_s, *work in zip(*(column[done:].tolist() for column in far[1:]), strict=True):
            in_flight.append((None, began_s, end_s, 0, sequences, *work, *constant))
        self.next_s = max(in_flight[0][2], float(far.moments_s[-1]) + time.host_s)
        self._completes = True
        self._device_free_s = float(far.ends_s[-1])
        engine.decoded(steps, steps - 1, int(used_after[-1]) - used)


def build_replica(
    engine: Engine,
    cost: CostModel,
    recorder: ReplicaRecorder,
    requests: RequestLog,
    on_finish: Callable[[Request], None],
) -> Replica:
    """A replica around an engine: a fast one where the engine knows what comes."""
    if isinstance(engine, Foresight):
        return FastReplica(engine, cost, recorder, requests, on_finish)
    return Replica(engine, cost, recorder, requests, on_finish)
