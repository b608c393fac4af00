"""TensorRT-LLM's block reuse on worlds small enough to work out by hand. Blocks hold 4 tokens."""

import pytest

from sim.engine.cache.reuse_cache import ReusePool

SHARED = [("s", 8)]


def test_a_context_waits_for_what_another_computes_in_this_iteration(trtllm):
    """b's first block is a's: it waits a step, reuses 8 of its 11 tokens, and stops nobody behind it."""
    w = trtllm(prefix_caching=True)
    w.add("a", [*SHARED, ("u", 3)], 9)
    w.add("b", [*SHARED, ("v", 3)], 9)
    w.add("c", 5, 9)
    logs = w.steps(2)
    assert [log.scheduled for log in logs] == [{"a": 11, "c": 5}, {"b": 3, "a": 1, "c": 1}]
    assert logs[1].cached == {"b": 8}
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (11 + 5 + 11, 8)
    assert w.engine.kv_blocks_used == 3 + 2 + 1, "b shares two of a's three blocks"


def test_it_waits_as_long_as_the_others_context_takes(trtllm):
    """a's 16 tokens are chunks of 12 and 4; its blocks can be reused when the last one is completed. There are 8 tokens
    of budget left for b in the second step.
    """
    w = trtllm(prefix_caching=True, max_batched_tokens=12)
    w.add("a", [("s", 12), ("u", 4)], 2)
    w.add("b", [("s", 12), ("v", 4)], 1)
    logs = w.steps(3)
    assert [log.scheduled for log in logs] == [{"a": 12}, {"a": 4}, {"b": 4, "a": 1}]
    assert logs[2].cached == {"b": 12}


def test_only_the_first_block_not_cached_yet_decides(trtllm):
    """The shared blocks are cached by the second step: b and c go on differently, and start together."""
    w = trtllm(prefix_caching=True)
    w.add("a", SHARED, 1)
    w.add("b", [*SHARED, ("v", 5)], 1)
    w.add("c", [*SHARED, ("x", 5)], 1)
    assert w.scheduled(2) == [{"a": 8}, {"b": 5, "c": 5}]


@pytest.mark.parametrize(
    "engine",
    [
        {"prefix_caching": False},
        {"prefix_caching": True, "capacity_policy": "static-batch"},
        {"prefix_caching": True, "usable": None},
    ],
)
def test_nobody_waits_where_nothing_would_be_gained(trtllm, engine):
    """Nothing is reused; or the static batch would leave without it."""
    w = trtllm(**engine)
    w.add("a", [*SHARED, ("u", 3)], 2)
    w.add("b", [*SHARED, ("v", 3)], 2)
    assert w.step().scheduled == {"a": 11, "b": 11}


def test_max_utilization_skips_too(trtllm):
    w = trtllm(prefix_caching=True, capacity_policy="max-utilization")
    w.add("a", [*SHARED, ("u", 3)], 9)
    w.add("b", [*SHARED, ("v", 3)], 9)
    assert w.scheduled(2) == [{"a": 11}, {"b": 3, "a": 1}]


def test_a_skipped_request_may_pause_one_that_began_before_it(trtllm):
    """Of 2 slots c took b's in the first step; in the second b stands before it. A reservation is never lost."""
    for policy, scheduled, paused in (
        ("max-utilization", {"b": 3, "a": 1}, ["c"]),
        ("guaranteed-no-evict", {"a": 1, "c": 1}, []),
    ):
        w = trtllm(prefix_caching=True, capacity_policy=policy, max_sequences=2)
        w.add("a", [*SHARED, ("u", 3)], 9)
        w.add("b", [*SHARED, ("v", 3)], 9)
        w.add("c", 5, 9)
        assert w.step().scheduled == {"a": 11, "c": 5}
        log = w.step()
        assert (log.scheduled, log.preempted) == (scheduled, paused)


def test_under_overlap_the_next_iteration_comes_too_early_to_reuse(trtllm):
    """a's context is scheduled but not completed when the second step is planned: b computes its own copy."""
    w = trtllm(prefix_caching=True, async_scheduling=True)
    w.add("a", [*SHARED, ("u", 3)], 9)
    w.add("b", [*SHARED, ("v", 3)], 9)
    logs = w.steps(2)
    assert [log.scheduled for log in logs] == [{"a": 11}, {"b": 11, "a": 1}]
    w.add("c", [*SHARED, ("x", 1)], 1)
    assert w.step().cached == {"c": 8}


def test_a_skipped_context_counts_before_a_later_decode_where_the_list_decides(trtllm):
    """b was skipped once, and now stands before c. Without chunks its 7 tokens and a's 1 are the budget of 8: c's
    decode is left out. With reservations those that generate are listed first, and b's 7 do not fit the 6 left;
    with chunks it gets one unit of them.
    """
    expected = {
        ("max-utilization", False): {"b": 7, "a": 1},
        ("guaranteed-no-evict", False): {"a": 1, "c": 1},
        ("max-utilization", True): {"b": 4, "a": 1, "c": 1},
    }
    for (policy, chunked), step in expected.items():
        w = trtllm(prefix_caching=True, capacity_policy=policy, chunked_prefill=chunked, max_batched_tokens=8)
        w.add("a", [("s", 4), ("u", 2)], 9)
        w.add("b", [("s", 4), ("v", 7)], 9)
        w.add("c", 2, 9)
        assert w.scheduled(2) == [{"a": 6, "c": 2}, step]


def test_a_fully_cached_prompt_computes_its_last_block_again(trtllm):
    w = trtllm(prefix_caching=True)
    w.add("a", SHARED, 1)
    w.step()
    w.add("b", SHARED, 1)
    log = w.step()
    assert (log.cached, log.scheduled) == ({"b": 4}, {"b": 4})


@pytest.mark.parametrize(("output", "steps", "hit"), [(5, 4, 4), (5, 5, 8), (4, 4, 4)])
def test_answers_can_be_reused_when_their_request_has_ended(trtllm, output, steps, hit):
    """Of 5 tokens a computes 4: a full block, there to be hit when a has ended. Of 4 it computes 3."""
    w = trtllm(prefix_caching=True)
    w.add("a", [("s", 4)], output)
    w.steps(steps)
    w.add("b", [("s", 4), ("o:a", 5)], 1)
    assert w.step().cached == {"b": hit}


@pytest.mark.parametrize(("output", "hit"), [(6, 8), (7, 4)])
def test_a_paused_request_reuses_its_own_blocks_if_they_are_still_there(trtllm, output, hit):
    """Of 5 blocks a has 2 and b 3, two of them full, when a's ninth token needs another: b is paused, and a takes its
    third. With 7 tokens of output a computes 13, and takes b's second for the last.
    """
    w = trtllm(5, prefix_caching=True, capacity_policy="max-utilization")
    w.add("a", 7, output)
    w.add("b", 10, 9)
    logs = w.steps(2)
    assert [log.scheduled for log in logs] == [{"a": 7, "b": 10}, {"a": 1, "b": 1}]
    log = w.step()
    assert (log.scheduled, log.preempted) == ({"a": 1}, ["b"])
    back = next(log for log in w.steps(8) if "b" in log.scheduled)
    assert (back.cached, back.scheduled) == ({"b": hit}, {"b": 12 - hit})
    assert w.engine.prefix_queries == 7 + 10, "a resumed request counts in neither"


def test_the_leaf_freed_longest_ago_is_evicted_first(trtllm):
    """2 of 4 blocks hold the shared prompt. b needs 3: two empty ones, and the tail of the prompt; its head stays."""
    w = trtllm(4, prefix_caching=True)
    w.add("a", SHARED, 1)
    w.step()
    w.add("b", 12, 1)
    w.step()
    w.add("c", [*SHARED, ("x", 1)], 1)
    assert w.step().cached == {"c": 4}


def test_what_is_reused_is_held_before_blocks_are_taken(trtllm):
    """x, y and z are cached, x for longest, and 2 blocks are empty. a takes 3: not x, which b reuses in this step."""
    w = trtllm(5, prefix_caching=True)
    for segment in "xyz":
        w.add(segment, [(segment, 4)], 1)
        w.step()
    w.add("a", 10, 2)
    w.add("b", [("x", 4), ("v", 1)], 2)
    log = w.step()
    assert (log.cached, log.scheduled) == ({"a": 0, "b": 4}, {"a": 10, "b": 1})
    assert w.engine.kv_blocks_used == 3 + 2


def test_a_hit_makes_a_block_the_youngest():
    """Keys 1-2 are a chain, 3 stands alone. The chain's leaf goes first, then 3, for 1 was used after it."""
    pool = ReusePool(3)
    chain = pool.take(2)
    pool.store(chain, [1, 2])
    pool.give(chain)
    alone = pool.take(1)
    pool.store(alone, [3])
    pool.give(alone)
    pool.hold(chain[:1])
    pool.give(chain[:1])
    pool.take(1)
    assert [pool.cached(key) is not None for key in (1, 2, 3)] == [True, False, True]
    pool.take(1)
    assert [pool.cached(key) is not None for key in (1, 2, 3)] == [True, False, False]


def test_an_older_block_is_spared_while_others_hang_below_it():
    """The second request computed its own copy of block 1, and stored 2 below the first's. 1 was freed before 2, but
    goes after it; and then, as a leaf, before 3.
    """
    pool = ReusePool(4)
    first, second = pool.take(1), pool.take(2)
    pool.store(first, [1])
    pool.store(second, [1, 2])
    pool.give(first)
    pool.give(second)
    other = pool.take(2)
    pool.store(other, [3])
    pool.give(other)
    assert [pool.cached(key) is not None for key in (1, 2, 3)] == [True, True, True]
    pool.take(2)
    assert [pool.cached(key) is not None for key in (1, 2, 3)] == [True, False, True]
    pool.take(1)
    assert [pool.cached(key) is not None for key in (1, 2, 3)] == [False, False, True]


def test_when_no_leaf_is_free_what_hangs_below_is_lost_but_not_taken():
    """Block 1 is free and its child held: 1 is evicted, 2 can no longer be reached, and its holder keeps it."""
    pool = ReusePool(3)
    first, second = pool.take(1), pool.take(2)
    pool.store(first, [1])
    pool.store(second, [1, 2])
    pool.give(first)
    assert pool.take(1) == first
    assert (pool.cached(1), pool.cached(2)) == (None, None)
    assert (pool.free, second[1].holders) == (0, 1)


def test_a_skipped_request_that_does_not_fit_stops_nobody_who_has_begun(trtllm):
    """15 blocks of 4. ``late`` waits a step to reuse s0, and ``begun`` takes 3 blocks meanwhile: of the 13 ``late``
    needs to its end, 12 are left. It stands first in line, yet ``begun`` goes on, ends, and makes room for it.
    """
    w = trtllm(
        usable=15, max_batched_tokens=9, max_sequences=2, chunked_prefill=True, chunking_policy="equal-progress",
        prefix_caching=True,
    )  # fmt: skip
    w.add("first", [("s0", 4), ("u0", 1)], 1)
    w.add("late", [("s0", 9), ("u1", 20)], 18, max_output_tokens=20)
    w.add("begun", [("u2", 9)], 1)
    logs = []
    while w.engine.unfinished:
        logs.append(w.step())
        assert len(logs) < 60
    assert logs[0].scheduled == {"first": 5, "begun": 4}
    assert logs[1].scheduled == {"begun": 5}
    assert logs[2].cached == {"late": 4}
