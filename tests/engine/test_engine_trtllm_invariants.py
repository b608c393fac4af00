"""What must hold in every step of any load on TensorRT-LLM's scheduler."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.request import Status
from sim.engine.trtllm_capacity import in_context, wholly_scheduled

UNIT = 4
LONGEST = 60
"""Tokens of the longest request the loads have: 15 blocks."""


@st.composite
def loads(draw):
    """(step, prompt, output, cap): prompts share beginnings; every request fits the pool alone."""
    load = []
    for number in range(draw(st.integers(1, 12))):
        shared, private = draw(st.integers(0, 20)), draw(st.integers(1, 20))
        prompt = [(f"s{draw(st.integers(0, 1))}", shared)] * bool(shared) + [(f"u{number}", private)]
        output = draw(st.integers(1, 18))
        load.append((draw(st.integers(0, 15)), prompt, output, output + draw(st.integers(0, 2))))
    return sorted(load, key=lambda request: request[0])


ENGINES = st.fixed_dictionaries(
    {
        "usable": st.integers(LONGEST // UNIT, 25),
        "max_batched_tokens": st.integers(4, 50),
        "max_sequences": st.integers(1, 8),
        "capacity_policy": st.sampled_from(["guaranteed-no-evict", "max-utilization", "static-batch", "prefill-first"]),
        "chunking_policy": st.sampled_from(["fcfs", "equal-progress"]),
        "chunked_prefill": st.booleans(),
        "prefix_caching": st.booleans(),
        "async_scheduling": st.booleans(),
    }
)


def play(trtllm, engine, load, check=lambda *_: None):
    """Run a load to its end; returns the world, its logs and its requests."""
    budget = engine["max_batched_tokens"]
    if not engine["chunked_prefill"]:
        budget = max(budget, *(sum(tokens for _, tokens in prompt) for _, prompt, _, _ in load))
    w = trtllm(**{**engine, "max_batched_tokens": budget})
    arrivals = list(load)
    requests, logs = {}, []
    while arrivals or w.engine.unfinished:
        while arrivals and arrivals[0][0] <= len(logs):
            _, prompt, output, cap = arrivals.pop(0)
            name = f"r{len(requests)}"
            requests[name] = w.add(name, prompt, output, max_output_tokens=cap)
        begun = [r.request_id for r in w.engine.running if not wholly_scheduled(r)]
        generating = {r.request_id for r in w.engine.running if not (wholly_scheduled(r) or in_context(r))}
        state = {name: (r.known_tokens, r.placeholders, r.computed_tokens) for name, r in requests.items()}
        logs.append(w.step())
        check(w, requests, begun, generating, state, logs[-1])
        assert len(logs) < 3000, "the engine does not come to an end"
    return w, logs, requests


def held_blocks(engine):
    """Blocks of running requests; a shared one counts once."""
    if engine.cache.reuse:
        return len({block for request in engine.running for block in request.blocks})
    return sum(request.block_count for request in engine.running)


def check_step(w, requests, begun, generating, state, log):
    """Invariants of one step."""
    chosen, pool = w.engine.settings, w.engine.cache.pool
    assert sum(log.scheduled.values()) <= chosen.max_batched_tokens
    assert len(log.scheduled) <= chosen.max_sequences
    assert pool.used == held_blocks(w.engine)
    assert 0 <= pool.free <= pool.usable
    sampled = {request.request_id for request in w.plan.sampled}
    for name, tokens in log.scheduled.items():
        known, placeholders, computed = state[name]
        end = log.cached.get(name, computed) + tokens
        assert tokens > 0
        assert end <= min(known + placeholders, requests[name].most_computed_tokens)
        assert (name in sampled) == (end == known + placeholders)
        assert name in sampled or end % UNIT == 0, "all chunks but the last end with a block"
    for name, hit in log.cached.items():
        assert hit % UNIT == 0
        assert hit <= state[name][0] - 1
    if chosen.capacity_policy == "max-utilization":
        assert log.preempted == begun[::-1][: len(log.preempted)], "the last that began are paused"
        limit = min((requests[name].order for name in log.preempted), default=len(requests))
        assert all(requests[name].order < limit for name in log.scheduled)
    else:
        assert not log.preempted
        check_reservations(w.engine, pool)
    if chosen.capacity_policy in {"guaranteed-no-evict", "static-batch"}:
        assert generating <= set(log.scheduled), "decodes come first, and all fit"
    if chosen.capacity_policy in {"static-batch", "prefill-first"}:
        assert not (generating & set(log.scheduled) and set(log.scheduled) - generating), "contexts run alone"


def check_reservations(engine, pool):
    """Whoever generates can take all blocks it may ever need."""
    generating = [request for request in engine.running if not in_context(request)]
    missing = (-(-request.most_computed_tokens // UNIT) - request.block_count for request in generating)
    assert sum(max(0, blocks) for blocks in missing) <= pool.free


@given(ENGINES, loads())
@settings(max_examples=400, deadline=None)
def test_invariants_of_every_step(trtllm, engine, load):
    _, logs, requests = play(trtllm, engine, load, check_step)
    emitted = [name for log in logs for name in log.emitted]
    for name, request in requests.items():
        assert request.status is Status.FINISHED
        assert emitted.count(name) == request.output_tokens == request.emitted_tokens
    assert sorted(name for log in logs for name in log.finished) == sorted(requests)


@given(ENGINES, loads())
@settings(max_examples=200, deadline=None)
def test_blocks_are_conserved(trtllm, engine, load):
    """When all is done every block is free, and taking them all empties the tree."""
    w, _, _ = play(trtllm, engine, load)
    pool = w.engine.cache.pool
    assert (pool.used, pool.free) == (0, pool.usable)
    assert len(set(pool.take(pool.usable))) == pool.usable
    assert (pool._oldest, pool._parent, pool._children) == ({}, {}, {})


@given(ENGINES, loads())
@settings(max_examples=100, deadline=None)
def test_what_is_computed_is_what_was_asked_for(trtllm, engine, load):
    """Prompt + output - 1 tokens, less what is reused; more only after a pause, or for a stop nobody knew of."""
    _, logs, requests = play(trtllm, engine, load)
    paused = {name for log in logs for name in log.preempted}
    for name, request in requests.items():
        computed = sum(log.scheduled.get(name, 0) + log.cached.get(name, 0) for log in logs)
        needed = request.prompt_tokens + request.output_tokens - 1
        if name in paused:
            assert computed >= needed
        else:
            wasted = engine["async_scheduling"] and request.max_output_tokens > request.output_tokens
            assert computed in ({needed, needed + 1} if wasted else {needed})


@given(ENGINES, loads())
@settings(max_examples=100, deadline=None)
def test_requests_begin_in_order_of_arrival(trtllm, engine, load):
    """Unless one is skipped for reuse, or a later one is small enough for what a unit leaves of the budget."""
    _, logs, requests = play(trtllm, {**engine, "prefix_caching": False, "chunked_prefill": False}, load)
    began = list(dict.fromkeys(name for log in logs for name in log.cached))
    assert began == list(requests)


@pytest.mark.parametrize("policy", ["guaranteed-no-evict", "max-utilization"])
def test_equal_loads_are_planned_equally(trtllm, policy):
    engine = {"usable": 15, "prefix_caching": True, "capacity_policy": policy, "chunked_prefill": True}
    load = [(0, [("s", 9), (f"u{i}", 3 + i % 5)], 3 + i % 7, 10) for i in range(20)]
    engine["max_batched_tokens"] = 16
    assert play(trtllm, engine, load)[1] == play(trtllm, engine, load)[1]
