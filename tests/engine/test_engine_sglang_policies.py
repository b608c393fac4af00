"""Who goes first under SGLang's schedule policies, and what the radix cache gives; worked out by hand."""

import pytest

from sim.engine.request import Status


def cached(w, *pieces):
    """Leave a prompt of these pieces in the cache."""
    w.add(f"cache{len(w.engine.waiting)}-{pieces}", list(pieces), 1)
    w.drain()


def order_of(w, steps=20):
    """Names in the order in which they are first scheduled."""
    seen = []
    for log in w.steps(steps):
        seen += [name for name in log.scheduled if name not in seen]
    return seen


def primed(sglang, policy, **settings):
    """Cached: 10 tokens of s and 6 of t. Then, in this order: u (nothing cached), s, t, and another t."""
    w = sglang(policy=policy, prefix_caching=True, pool=300, **settings)
    cached(w, ("s", 10))
    cached(w, ("t", 6))
    w.add("u", [("u", 4)], 2)
    w.add("s", [("s", 10), ("us", 5)], 3)
    w.add("t", [("t", 6), ("ut", 9)], 4)
    w.add("tt", [("t", 6), ("utt", 2)], 3)
    return w


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("fcfs", ["u", "s", "t", "tt"]),
        ("lpm", ["s", "t", "tt", "u"]),
        ("dfs-weight", ["t", "tt", "s", "u"]),
        ("lof", ["t", "s", "tt", "u"]),
        ("shortest-prefill-first", ["tt", "u", "s", "t"]),
    ],
)
def test_the_order_of_each_policy(sglang, policy, order):
    """lpm: 10, 6, 6 and 0 cached. dfs: two below t, one below s, none below u. lof: 4, 3, 3 and 2 tokens of output.

    shortest-prefill-first: 2, 4, 5 and 9 tokens that are not cached.
    """
    assert list(primed(sglang, policy).step().scheduled) == order


def test_hrrn_weighs_what_was_prefilled_meanwhile_by_what_is_left(sglang):
    """One place, held by a. Of 105 tokens prefilled, 100, 85 and 95 were when x (20 tokens), y (4) and z (3) arrived.

    5 / 20 < 10 / 3 < 20 / 4: y is first. Its 4 tokens count as well: then z, with 14 / 3, and x.
    """
    w = sglang(policy="hrrn", prefix_caching=True, max_sequences=1, pool=400)
    w.add("a", 5, 9)
    w.step()
    for name, prompt, prefilled in (("x", 20, 100), ("y", 4, 85), ("z", 3, 95)):
        w.engine.waiting.prefill_tokens = prefilled
        w.add(name, prompt, 2)
        w.step()
    w.engine.waiting.prefill_tokens = 105
    assert order_of(w) == ["a", "y", "z", "x"]


def test_hrrn_puts_who_has_its_whole_prompt_cached_first(sglang):
    """b is retracted with its prompt in the cache, and passes d, which has waited longer. Only one of them fits."""
    for policy, first in (("fcfs", {"d": 30}), ("hrrn", {"b": 25})):
        w = sglang(policy=policy, prefix_caching=True, pool=60, schedule_conservativeness=0.01)
        w.add("a", [("ua", 5)], 40)
        w.step()
        w.add("b", [("ub", 6)], 40)
        w.step()
        w.add("d", [("ud", 30)], 20)
        logs = w.steps(25)
        assert logs[-1].preempted == ["b"]
        while "a" in (log := w.step()).scheduled:
            pass
        assert log.scheduled == first


def test_a_long_queue_is_not_sorted_by_prefix(sglang):
    """With 129 waiting lpm takes them as they came; one fewer, and those with a cached prefix go first."""
    for others, first in ((127, "s"), (128, "u0")):
        w = sglang(policy="lpm", prefix_caching=True, max_sequences=1, pool=300)
        cached(w, ("s", 10))
        for number in range(others):
            w.add(f"u{number}", [(f"u{number}", 4)], 2)
        w.add("s", [("s", 10), ("us", 5)], 2)
        assert list(w.step().scheduled) == [first]


def test_random_depends_on_the_seed_alone(sglang):
    orders = [tuple(primed(sglang, "random", seed=seed).step().scheduled) for seed in (0, 0, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len(set(orders)) > 1


def test_policies_that_need_a_cache_are_fcfs_without_one(sglang):
    for policy in ("lpm", "dfs-weight", "hrrn"):
        w = sglang(policy=policy, max_sequences=1)
        for name, prompt in (("a", 9), ("b", 2), ("c", 5)):
            w.add(name, prompt, 1)
        assert order_of(w) == ["a", "b", "c"]


def twins(sglang, policy):
    """Two prompts share 40 tokens that nobody has cached; between them comes one of 5. A batch takes 47 tokens."""
    w = sglang(policy=policy, prefix_caching=True, max_batched_tokens=47, pool=300)
    w.add("a", [("s", 40), ("ua", 2)], 4)
    w.add("b", [("s", 40), ("ub", 2)], 4)
    w.add("c", [("uc", 5)], 4)
    return w


def test_who_shares_a_prompt_with_another_waiting_request_comes_last(sglang):
    """lpm: b waits until a has filled the cache, and finds 40 of its 42 tokens. fcfs: 5 of b's are in a's batch."""
    logs = twins(sglang, "lpm").steps(2)
    assert [log.scheduled for log in logs] == [{"a": 42, "c": 5}, {"b": 2}]
    assert logs[1].cached == {"b": 40}
    logs = twins(sglang, "fcfs").steps(2)
    assert [log.scheduled for log in logs] == [{"a": 42, "b": 5}, {"b": 37, "c": 5}]


def test_less_than_32_shared_tokens_keep_their_turn(sglang):
    for shared, order in ((31, ["a", "b", "c"]), (32, ["a", "c", "b"])):
        w = sglang(policy="lpm", prefix_caching=True, max_batched_tokens=40, pool=300)
        for name in "ab":
            w.add(name, [("s", shared), (f"u{name}", 1)], 2)
        w.add("c", [("uc", 5)], 2)
        assert order_of(w) == order


def test_requests_of_one_batch_do_not_share(sglang):
    """Both compute all of the same 20 tokens, 40 pages; afterwards they share 20, and a third finds 19 of them."""
    w = sglang(prefix_caching=True)
    w.add("a", [("s", 20)], 9)
    w.add("b", [("s", 20)], 9)
    assert w.engine.kv_blocks_used == 0
    log = w.step()
    assert (log.scheduled, log.cached) == ({"a": 20, "b": 20}, {"a": 0, "b": 0})
    assert w.engine.kv_blocks_used == 20
    w.add("c", [("s", 20)], 9)
    log = w.step()
    assert (log.scheduled, log.cached) == ({"c": 1}, {"c": 19})
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (60, 19)


def test_a_chunk_is_cached_before_the_next_one(sglang):
    """Of a's 20 tokens 8 are cached when its second chunk is planned; b comes into its third batch, and shares 16."""
    w = sglang(prefix_caching=True, max_batched_tokens=8)
    w.add("a", [("s", 20)], 9)
    w.steps(2)
    w.add("b", [("s", 18)], 9)
    log = w.step()
    assert (log.scheduled, log.cached) == ({"a": 4, "b": 2}, {"b": 16})


def test_an_answer_is_cached_when_it_is_finished(sglang):
    """4 + 3 tokens, of which 6 are computed. While a decodes only its prompt is there."""
    w = sglang(prefix_caching=True)
    w.add("a", [("s", 4)], 3)
    w.steps(2)
    w.add("b", [("s", 4), ("o:a", 3)], 1)
    assert w.step().cached == {"b": 4}
    w.drain()
    w.add("c", [("s", 4), ("o:a", 3), ("u", 1)], 1)
    assert w.step().cached == {"c": 7}, "b has computed the seventh"


def test_a_cached_prefix_needs_no_memory_and_cannot_be_evicted_for_its_own_request(sglang):
    """A pool of 40 with 30 tokens cached. b, 30 of whose 35 are cached, needs 5 + 3 + 1 < 10; with 4 to come it waits
    for nothing (the cache is its own prefix), and is admitted never.
    """
    for output, expected in ((3, {"b": 5}), (4, {})):
        w = sglang(prefix_caching=True, pool=40)
        cached(w, ("s", 30))
        b = w.add("b", [("s", 30), ("u", 5)], output)
        b.most_computed_tokens = 34 + output
        assert w.step().scheduled == expected


def test_what_others_cached_is_evicted_for_a_new_request(sglang):
    """A pool of 40 holds 30 cached tokens: 20 new ones evict them all, since a node goes whole."""
    w = sglang(prefix_caching=True, pool=40)
    cached(w, ("s", 30))
    assert (w.engine.cache.tree.tokens, w.engine.kv_blocks_used) == (30, 0)
    w.add("b", [("u", 20)], 3)
    w.step()
    assert (w.engine.cache.tree.tokens, w.engine.cache.free_pages, w.engine.kv_blocks_used) == (20, 20, 20)


def test_a_retracted_output_is_not_cached_and_its_prompt_stays_where_memory_allows(sglang):
    """a and b start with 5 + 6 tokens. b is retracted when the pool is used up, and 20 tokens are made free for a.

    Of 60 pages b gives back the 24 of its decodes beside the one left: its prompt stays, and is hit when it comes back
    with 6 + 25 tokens. Of 30 pages it gives back 9 beside the one: its prompt is evicted, and all 6 + 10 are computed.
    """
    for pool, cap, decodes, hit, computed in ((60, 40, 24, 6, 25), (30, 14, 9, 0, 16)):
        w = sglang(prefix_caching=True, pool=pool, schedule_conservativeness=0.01)
        w.add("a", [("ua", 5)], cap)
        w.step()
        w.add("b", [("ub", 6)], cap)
        logs = w.steps(decodes + 2)
        assert [log.preempted for log in logs] == [[]] * (decodes + 1) + [["b"]]
        assert w.engine.cache.tree.tokens == 5 + hit
        while "b" not in (log := w.step()).scheduled:
            pass
        assert (log.scheduled, log.cached) == ({"b": computed}, {"b": hit})


def test_more_important_requests_go_first(sglang):
    """Lower is more important; equals in the order in which they joined the queue."""
    w = sglang(policy="priority", max_sequences=1)
    for name, priority in (("a", 5), ("b", 1), ("c", 5), ("d", 1)):
        w.add(name, 2, 1, priority=priority)
    assert order_of(w) == ["b", "d", "a", "c"]


def test_a_full_batch_gives_up_who_is_less_important_by_more_than_ten(sglang):
    """Two places. c is 11 more important than b, and takes its place; d is 10 more than a, and waits."""
    w = sglang(policy="priority", priority_preemption=True, max_sequences=2)
    w.add("a", 3, 6, priority=10)
    b = w.add("b", 3, 6, priority=11)
    w.steps(2)
    w.add("c", 4, 2, priority=0)
    w.add("d", 4, 2, priority=0)
    log = w.step()
    assert (log.scheduled, log.preempted) == ({"c": 4}, ["b"])
    assert (b.status, b.emitted_tokens) == (Status.PREEMPTED, 2)
    assert w.scheduled(3) == [{"a": 1, "c": 1}, {"d": 4}, {"a": 1, "d": 1}]
    assert w.step().scheduled == {"b": 5}


def test_nobody_is_preempted_for_who_would_not_fit(sglang):
    """c needs 40 + 20 tokens; 39 are left, and b's end gives 0.7 x 9 of them."""
    w = sglang(policy="priority", priority_preemption=True, max_sequences=2)
    w.add("a", 30, 3, priority=0)
    w.add("b", 25, 10, priority=50)
    w.step()
    w.add("c", 40, 20, priority=0)
    log = w.step()
    assert (log.preempted, log.scheduled) == ([], {"a": 1, "b": 1})


def test_a_long_chunk_leaves_room_for_shorter_prompts(sglang):
    """shortest-prefill-first, 20 tokens a batch: a's first chunk takes all, its second leaves 5 for b."""
    w = sglang(policy="shortest-prefill-first", prefix_caching=True, max_batched_tokens=20)
    w.add("a", 50, 2)
    w.step()
    w.add("b", 5, 2)
    w.add("c", 40, 2)
    assert w.scheduled(2) == [{"a": 15, "b": 5}, {"a": 15}]
