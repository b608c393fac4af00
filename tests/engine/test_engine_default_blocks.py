"""Cases known from vLLM itself, in its default blocks of 16 tokens."""

import pytest


@pytest.fixture
def sixteen(world):
    def build(**settings):
        return world(block_tokens=16, max_batched_tokens=128, **settings)

    return build


def test_two_prompts_of_100_in_10_blocks_run_one_after_the_other(sixteen):
    """7 blocks each: b waits until a is done."""
    w = sixteen(usable=10)
    w.add("a", 100, 2)
    w.add("b", 100, 1)
    assert w.scheduled(3) == [{"a": 100}, {"a": 1}, {"b": 100}]


def test_without_the_reservation_the_second_starts_and_is_preempted(sixteen):
    """The budget leaves b 28 tokens, 2 blocks; the other 72 need 5 more and 1 is free, so b preempts itself.

    It comes back when all of it fits in one step: 7 blocks, of which a leaves 3.
    """
    w = sixteen(usable=10, reserve_full_prompt=False)
    w.add("a", 100, 3)
    w.add("b", 100, 1)
    logs = w.steps(4)
    assert [log.scheduled for log in logs] == [{"a": 100, "b": 28}, {"a": 1}, {"a": 1}, {"b": 100}]
    assert [log.preempted for log in logs] == [[], ["b"], [], []]


def test_64_cached_tokens_hit_48(sixteen):
    """The last token is computed anew, and with it its whole block."""
    w = sixteen(prefix_caching=True)
    w.add("a", [("s", 64)], 1)
    w.step()
    w.add("b", [("s", 64)], 1)
    log = w.step()
    assert (log.cached, log.scheduled) == ({"b": 48}, {"b": 16})


def test_the_second_of_two_equal_prompts_of_72_hits_64_in_the_same_step(sixteen):
    w = sixteen(prefix_caching=True)
    w.add("a", [("s", 72)], 1)
    w.add("b", [("s", 72)], 1)
    log = w.step()
    assert (log.cached, log.scheduled) == ({"a": 0, "b": 64}, {"a": 72, "b": 8})


def test_a_block_is_needed_for_all_but_the_last_token(sixteen):
    """33 + 16 tokens: the 48 that are computed fill 3 blocks, and the 49th needs none."""
    w = sixteen(usable=3)
    a = w.add("a", 33, 16)
    w.drain()
    assert a.emitted_tokens == 16


@pytest.mark.parametrize("asynchronous", [False, True])
def test_random_prompts_report_a_hit_rate_of_0_through_preemptions_vllm_25780(sixteen, asynchronous):
    """Five private prompts of 64 in 12 blocks preempt one another and hit their own blocks: none of it is reported."""
    w = sixteen(usable=12, prefix_caching=True, max_model_len=192, async_scheduling=asynchronous)
    for name in "abcde":
        w.add(name, 64, 40)
    logs = w.drain()
    resumed_hits = sum(sum(log.cached.values()) for log in logs)
    assert any(log.preempted for log in logs)
    assert resumed_hits > 0
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (5 * 64, 0)
