"""What must hold in every step of any load on TensorRT-LLM's scheduler."""

import pytest
from engine_loads import check_computed, check_ends, check_pool_is_whole, even_load, loads, play, seen
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.trtllm.capacity import in_context, wholly_scheduled

UNIT = 4
LONGEST = 60
"""Tokens of the longest request the loads have: 15 blocks."""


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


def start(trtllm, engine, load):
    """A world whose budget holds the longest prompt, if prompts are not cut."""
    longest = 0 if engine["chunked_prefill"] else max(sum(tokens for _, tokens in arrival.prompt) for arrival in load)
    return trtllm(**{**engine, "max_batched_tokens": max(longest, engine["max_batched_tokens"])})


def look(w, requests):
    begun = [r.request_id for r in w.engine.running if not wholly_scheduled(r)]
    generating = {r.request_id for r in w.engine.running if not (wholly_scheduled(r) or in_context(r))}
    return begun, generating, seen(w, requests)


def held_blocks(engine):
    """Blocks of running requests; a shared one counts once."""
    if engine.cache.reuse:
        return len({block for request in engine.running for block in request.blocks})
    return sum(request.block_count for request in engine.running)


def check_step(w, requests, before, log):
    """Invariants of one step."""
    begun, generating, state = before
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
    check_ends(*play(start(trtllm, engine, load), load, check_step, look))


@given(ENGINES, loads())
@settings(max_examples=200, deadline=None)
def test_blocks_are_conserved(trtllm, engine, load):
    """Taking them all empties the tree."""
    w = start(trtllm, engine, load)
    play(w, load)
    pool = w.engine.cache.pool
    check_pool_is_whole(pool)
    assert (pool._parent, pool._children) == ({}, {})


@given(ENGINES, loads())
@settings(max_examples=100, deadline=None)
def test_what_is_computed_is_what_was_asked_for(trtllm, engine, load):
    check_computed(*play(start(trtllm, engine, load), load), overlapped=engine["async_scheduling"])


@given(ENGINES, loads())
@settings(max_examples=100, deadline=None)
def test_requests_begin_in_order_of_arrival(trtllm, engine, load):
    """Unless one is skipped for reuse, or a later one is small enough for what a unit leaves of the budget."""
    logs, requests = play(start(trtllm, {**engine, "prefix_caching": False, "chunked_prefill": False}, load), load)
    began = list(dict.fromkeys(name for log in logs for name in log.cached))
    assert began == list(requests)


@pytest.mark.parametrize("policy", ["guaranteed-no-evict", "max-utilization"])
def test_equal_loads_are_planned_equally(trtllm, policy):
    engine = {"usable": 15, "prefix_caching": True, "capacity_policy": policy, "max_batched_tokens": 16}
    first, second = (play(trtllm(**engine), even_load())[0] for _ in range(2))
    assert first == second
