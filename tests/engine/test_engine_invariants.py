"""What must hold in every step of any load, and that the shortcuts change nothing."""

import pytest
from engine_loads import check_computed, check_ends, check_pool_is_whole, even_load, loads, play, seen
from hypothesis import given, settings
from hypothesis import strategies as st

BLOCK_TOKENS = 4


ENGINES = st.fixed_dictionaries(
    {
        "version": st.sampled_from(["0.9", "0.19", "0.25", "0.32", "0.33"]),
        "usable": st.integers(45, 60),
        "max_batched_tokens": st.integers(3, 50),
        "max_sequences": st.integers(1, 8),
        "policy": st.sampled_from(["fcfs", "priority"]),
        "prefix_caching": st.booleans(),
        "async_scheduling": st.booleans(),
        "reserve_full_prompt": st.booleans(),
        "watermark": st.sampled_from([0.0, 0.1]),
        "long_prefill_threshold": st.sampled_from([0, 5]),
        "kv_groups": st.sampled_from([(None,), (8,), (None, 6), (None, 6, 12)]),
    }
)


def held_blocks(engine):
    """Blocks the running requests hold; a shared one counts once."""
    if engine.cache.windowed:
        return len({block for request in engine.running for held in request.held for block in held.blocks})
    if engine.cache.caching:
        return len({block for request in engine.running for block in request.blocks})
    return sum(request.block_count for request in engine.running)


def start(world, engine):
    """A world of an engine whose pool holds the longest request in each of its groups, and little more."""
    return world(**{**engine, "usable": engine["usable"] if len(engine["kv_groups"]) > 1 else engine["usable"] // 3})


def look(w, requests):
    return list(w.engine.running), seen(w, requests)


def check_step(w, requests, before, log):
    """Invariants of one step."""
    running, state = before
    chosen, pool = w.engine.settings, w.engine.cache.pool
    assert sum(log.scheduled.values()) <= chosen.max_batched_tokens
    assert w.engine.running_count <= chosen.max_sequences
    assert not (log.preempted and log.cached), "admitted in a step with a preemption"
    assert not set(log.preempted) & set(log.scheduled)
    assert pool.used == held_blocks(w.engine)
    assert 0 <= pool.free <= pool.usable
    sampled = {request.request_id for request in w.plan.sampled}
    for name, tokens in log.scheduled.items():
        known, placeholders, computed = state[name]
        computed = log.cached.get(name, computed)
        assert tokens > 0
        assert computed + tokens <= known + placeholders
        assert (name in sampled) == (computed + tokens == known + placeholders)
    for name, hit in log.cached.items():
        assert hit % BLOCK_TOKENS == 0
        assert hit <= state[name][0] - 1
    if chosen.policy == "fcfs" and log.preempted:
        names = [request.request_id for request in running]
        assert log.preempted == names[::-1][: len(log.preempted)], "the victim is the last running request"
        waiting = [request.request_id for request in w.engine.waiting]
        left = [name for name in reversed(log.preempted) if name not in log.finished]
        assert waiting[: len(left)] == left, "the preempted are first in the queue"
    for name in log.preempted:
        if name not in log.finished:
            assert requests[name].computed_tokens == 0


@given(ENGINES, loads())
@settings(max_examples=300, deadline=None)
def test_invariants_of_every_step(world, engine, load):
    check_ends(*play(start(world, engine), load, check_step, look))


@given(ENGINES, loads())
@settings(max_examples=200, deadline=None)
def test_blocks_are_conserved(world, engine, load):
    w = start(world, engine)
    play(w, load)
    check_pool_is_whole(w.engine.cache.pool)


@given(ENGINES, loads())
@settings(max_examples=200, deadline=None)
def test_passing_over_a_requests_blocks_changes_nothing(world, engine, load):
    """The scheduler asks the cache only where something can change; asking in every step decides the same."""

    def ask_always(w, _):
        for request in w.engine.running:
            request.visit_at = 0

    assert play(start(world, engine), load)[0] == play(start(world, engine), load, look=ask_always)[0]


@given(ENGINES, loads())
@settings(max_examples=100, deadline=None)
def test_what_is_computed_is_what_was_asked_for(world, engine, load):
    w = start(world, {**engine, "prefix_caching": False})
    check_computed(*play(w, load), overlapped=engine["async_scheduling"])


@pytest.mark.parametrize("caching", [False, True])
def test_equal_loads_are_planned_equally(world, caching):
    engine = {"usable": 45, "kv_groups": (None,), "prefix_caching": caching}
    first, second = (play(start(world, engine), even_load())[0] for _ in range(2))
    assert first == second
