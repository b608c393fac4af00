"""Random loads, how a world plays them, and what holds at the end of each."""

from collections import Counter
from typing import NamedTuple

from hypothesis import strategies as st

from sim.engine.request import Status


class Arrival(NamedTuple):
    """A request of a load: when it comes, and when its client gives up, in steps."""

    step: int
    prompt: list[tuple[str, int]]
    output: int
    cap: int
    priority: int = 0
    gives_up: int | None = None


class Seen(NamedTuple):
    """A request as it stood before a step."""

    known_tokens: int
    placeholders: int
    computed_tokens: int


@st.composite
def loads(draw, *, shared=20, private=20, output=18, more=2, gives_up=False):
    """Up to 12 requests: prompts of up to ``shared`` common and ``private`` own tokens, caps ``more`` above outputs."""
    load = []
    for number in range(draw(st.integers(1, 12))):
        common, own, tokens = draw(st.integers(0, shared)), draw(st.integers(1, private)), draw(st.integers(1, output))
        prompt = [(f"s{draw(st.integers(0, 1))}", common)] * bool(common) + [(f"u{number}", own)]
        cap, priority = tokens + draw(st.integers(0, more)), draw(st.integers(0, 2))
        until = draw(st.one_of(st.none(), st.none(), st.none(), st.integers(0, 40))) if gives_up else None
        load.append(Arrival(draw(st.integers(0, 15)), prompt, tokens, cap, priority, until))
    return by_arrival(load)


def by_arrival(load):
    return sorted(load, key=lambda arrival: arrival.step)


def even_load(every=20):
    """20 requests of various lengths that share a beginning, ``every`` of them at a time."""
    return [Arrival(i // every, [("s", 9), (f"u{i}", 3 + i % 5)], 3 + i % 7, 10) for i in range(20)]


def seen(_, requests):
    return {name: Seen(r.known_tokens, r.placeholders, r.computed_tokens) for name, r in requests.items()}


def play(w, load, check=lambda *_: None, look=seen):
    """Run a load to its end; returns the logs and the requests.

    ``look(w, requests)`` before each step; what it returns goes to ``check(w, requests, before, log)`` after it.
    """
    waiting, requests, logs = list(load), {}, []
    while waiting or w.engine.unfinished:
        while waiting and waiting[0].step <= len(logs):
            _, prompt, output, cap, priority, _ = waiting.pop(0)
            name = f"r{len(requests)}"
            requests[name] = w.add(name, prompt, output, max_output_tokens=cap, priority=priority)
        for arrival, request in zip(load, requests.values(), strict=False):
            if arrival.gives_up == len(logs):
                w.engine.abort(request)
        before = look(w, requests)
        logs.append(w.step())
        check(w, requests, before, logs[-1])
        assert set(logs[-1].finished) <= set(logs[-1].emitted)
        assert len(logs) < 3000, "the engine does not come to an end"
    return logs, requests


def check_ends(logs, requests):
    """Every request has ended, with each of its tokens emitted once."""
    emitted = Counter(name for log in logs for name in log.emitted)
    for name, request in requests.items():
        assert request.status is Status.FINISHED
        assert emitted[name] == request.output_tokens == request.emitted_tokens
    assert sorted(name for log in logs for name in log.finished) == sorted(requests)


def check_computed(logs, requests, *, overlapped=False, least_again=0):
    """Prompt + output - 1 tokens are computed or cached; more only by an overlapped step after a stop nobody knew of,
    or by who was preempted: ``least_again`` at least."""
    preempted = {name for log in logs for name in log.preempted}
    for name, request in requests.items():
        computed = sum(log.scheduled.get(name, 0) + log.cached.get(name, 0) for log in logs)
        more = computed - (request.prompt_tokens + request.output_tokens - 1)
        if name in preempted:
            assert more >= least_again
        else:
            assert more in {0, overlapped and request.max_output_tokens > request.output_tokens}


def check_pool_is_whole(pool):
    """Every block is free, one request can take them all, and then nothing is cached."""
    assert (pool.used, pool.free) == (0, pool.usable)
    assert len(set(pool.take(pool.usable))) == pool.usable
    assert (pool._oldest, pool._later) == ({}, {}), "no key without a block"
