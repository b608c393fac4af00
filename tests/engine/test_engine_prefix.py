"""The prefix cache, worked out by hand. Blocks hold 4 tokens."""

import pytest


@pytest.fixture
def cached(world):
    def build(version="0.33", **settings):
        return world(version, prefix_caching=True, **settings)

    return build


@pytest.mark.parametrize(("tokens", "hit"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)])
def test_the_last_token_is_always_computed(cached, tokens, hit):
    w = cached()
    w.add("a", [("s", tokens)], 1)
    w.step()
    w.add("b", [("s", tokens)], 1)
    log = w.step()
    assert (log.cached, log.scheduled) == ({"b": hit}, {"b": tokens - hit})


def test_an_equal_prompt_admitted_in_the_same_step_hits(cached):
    w = cached()
    w.add("a", [("s", 9)], 2)
    w.add("b", [("s", 9)], 2)
    assert w.step().scheduled == {"a": 9, "b": 1}
    assert w.engine.kv_blocks_used == 4  # two shared, and one each


def test_a_block_that_a_running_request_fills_in_this_step_is_hit(cached):
    """a's second chunk fills its third block in the very step that admits b."""
    w = cached(max_batched_tokens=9)
    w.add("a", [("s", 13)], 2)
    w.step()
    w.add("b", [("s", 12), ("u", 1)], 2)
    log = w.step()
    assert (log.cached, log.scheduled) == ({"b": 12}, {"a": 4, "b": 1})


def test_hits_cost_no_budget(cached):
    w = cached(max_batched_tokens=10)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("b", [("s", 8), ("u", 6)], 1)
    w.add("c", [("s", 8), ("v", 4)], 1)
    assert w.step().scheduled == {"b": 6, "c": 4}


def test_prompts_share_only_what_is_equal_from_the_start(cached):
    w = cached()
    w.add("a", [("s", 4), ("t", 8)], 1)
    w.step()
    w.add("same", [("s", 4), ("t", 5)], 1)
    w.add("shifted", [("t", 8), ("s", 4)], 1)
    w.add("inside", [("s", 2), ("t", 8)], 1)
    assert w.step().cached == {"same": 8, "shifted": 0, "inside": 0}


def test_private_prompts_never_hit(cached):
    w = cached()
    w.add("a", 12, 1)
    w.add("b", 12, 1)
    assert w.step().cached == {"a": 0, "b": 0}


def test_an_answer_is_cached_for_the_next_turn(cached):
    """6 + 6 tokens, of which 11 are computed: two full blocks."""
    w = cached()
    w.add("a", [("s", 6)], 6)
    w.drain()
    w.add("b", [("s", 6), ("o:a", 6), ("u", 4)], 1)
    assert w.step().cached == {"b": 8}


def test_the_tail_of_a_sequence_is_evicted_before_its_head(cached):
    """Of 4 blocks, a's two are freed tail first; b takes the two unused ones and a's tail."""
    w = cached(usable=4)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("b", 12, 1)
    w.step()
    w.add("again", [("s", 9)], 1)
    assert w.step().cached == {"again": 4}


@pytest.mark.parametrize(("version", "hit"), [("0.19", 4), ("0.25", 8)])
def test_blocks_without_a_hash_are_reused_first_since_0_25(cached, version, hit):
    """b leaves one half-filled block: at the front of the queue c takes it, at the tail c evicts a's tail instead."""
    w = cached(version, usable=4, async_scheduling=False)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("b", 3, 1)
    w.step()
    w.add("c", 8, 1)
    w.step()
    w.add("again", [("s", 9)], 1)
    assert w.step().cached == {"again": hit}


@pytest.mark.parametrize(("segment", "hit"), [("s", 8), ("t", 4)])
def test_a_hit_refreshes_its_blocks(cached, segment, hit):
    """a is older than b, but was hit after it: c takes the unused block and b's tail."""
    w = cached(usable=5)
    for name, prompt in (("a", [("s", 8)]), ("b", [("t", 8)]), ("hit a", [("s", 9)]), ("c", 8)):
        w.add(name, prompt, 1)
        w.step()
    w.add("again", [(segment, 9)], 1)
    assert w.step().cached == {"again": hit}


def test_free_cached_blocks_count_when_a_request_that_hits_them_must_fit(cached):
    """3 blocks, all free, two of them cached: 9 tokens need 3, 13 need 4."""
    w = cached(usable=3)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("fits", [("s", 8), ("u", 1)], 1)
    assert w.step().scheduled == {"fits": 1}
    w.add("too long", [("s", 8), ("u", 5)], 1)
    assert w.step().scheduled == {}


def test_copies_of_a_block_outlive_one_another(cached):
    """8 equal tokens hit 4, so the second block exists twice; when the older copy is evicted the younger is hit."""
    w = cached(usable=7)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("b", [("s", 8)], 30)
    w.step()
    w.add("c", 16, 1)
    assert w.step().scheduled == {"b": 1, "c": 16}
    w.add("d", [("s", 9)], 1)
    assert w.step().cached == {"d": 8}


def preempted_world(cached):
    """4 blocks, 2 each: at 9 tokens a needs another, so b is preempted; it comes back when a is done."""
    w = cached(usable=4)
    w.add("a", 7, 3)
    w.add("b", 7, 6)
    return w, w.drain()


def test_a_resumed_request_hits_its_own_blocks(cached):
    """When b is preempted, a takes one of its two full blocks, the tail; the head is still there."""
    _, logs = preempted_world(cached)
    assert [(log.scheduled, log.cached) for log in logs[2:4]] == [({"a": 1}, {}), ({"b": 5}, {"b": 4})]


def test_resumed_requests_do_not_count_in_the_hit_rate_vllm_25780(cached):
    """Random prompts share nothing: a hit rate above 0 would come from preemption alone (case 32, vllm#25780)."""
    w, logs = preempted_world(cached)
    assert sum(sum(log.cached.values()) for log in logs) == 4
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (14, 0)
