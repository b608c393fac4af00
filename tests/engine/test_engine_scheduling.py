"""Worlds small enough to work out by hand. Blocks hold 4 tokens."""

import pytest

from sim.engine.request import Status
from sim.work import PrefillChunk


def test_a_long_prompt_is_chunked_and_its_last_chunk_samples(world):
    w = world(max_batched_tokens=8)
    w.add("a", 20, 2)
    logs = w.drain()
    assert [log.scheduled["a"] for log in logs] == [8, 8, 4, 1]
    assert [log.emitted for log in logs] == [[], [], ["a"], ["a"]]
    assert [log.finished for log in logs] == [[], [], [], ["a"]]


def test_a_one_token_answer_needs_no_decode(world):
    w = world()
    w.add("a", 5, 1)
    assert [log.scheduled for log in w.drain()] == [{"a": 5}]
    assert w.engine.kv_blocks_used == 0


def test_the_budget_is_shared_in_order_of_admission(world):
    """a decodes 1, b takes the 3 that are left; the budget is spent, so c waits."""
    w = world(max_batched_tokens=4)
    w.add("a", 2, 9)
    w.add("b", 5, 9)
    w.add("c", 1, 9)
    assert w.scheduled(3) == [{"a": 2, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 1, "c": 1}]


def test_decodes_have_no_rank_of_their_own(world):
    """a was admitted first: its chunks of 4 come before b's decode, and leave nothing of the 5 tokens for c."""
    w = world(max_batched_tokens=5, long_prefill_threshold=4)
    w.add("a", 10, 2)
    w.add("b", 1, 9)
    w.add("c", 1, 9)
    scheduled = w.scheduled(3)
    assert scheduled == [{"a": 4, "b": 1}, {"a": 4, "b": 1}, {"a": 2, "b": 1, "c": 1}]
    assert [list(step) for step in scheduled] == [["a", "b"], ["a", "b"], ["a", "b", "c"]]


def test_blocks_are_taken_when_their_first_token_is_scheduled(world):
    """A prompt that fills its block takes the next one only in the step after."""
    w = world()
    w.add("a", 4, 3)
    used = [(w.step(), w.engine.kv_blocks_used)[1] for _ in range(3)]
    assert used == [1, 2, 0]


def test_max_active_sequences_goes_before_max_sequences(world):
    w = world(max_sequences=2, max_active_sequences=1)
    w.add("a", 2, 1)
    w.add("b", 2, 1)
    assert w.scheduled(2) == [{"a": 2}, {"b": 2}]


def test_the_last_running_request_is_preempted_and_recomputes_all(world):
    """4 blocks, 2 each: at 9 tokens a needs a third, so b gives way and later recomputes 7 + 2 tokens at once."""
    w = world(usable=4)
    w.add("a", 7, 6)
    b = w.add("b", 7, 6)
    logs = w.steps(3)
    assert [log.scheduled for log in logs] == [{"a": 7, "b": 7}, {"a": 1, "b": 1}, {"a": 1}]
    assert logs[2].preempted == ["b"]
    assert (b.computed_tokens, b.emitted_tokens, w.engine.kv_blocks_used) == (0, 2, 3)
    assert w.scheduled(5) == [{"a": 1}, {"a": 1}, {"a": 1}, {"b": 9}, {"b": 1}]


def test_the_preempted_go_to_the_front_and_nothing_is_admitted_in_their_step(world):
    """c fits the freed blocks, but b was preempted in this step, and is first in the next."""
    w = world(usable=4)
    w.add("a", 7, 3)
    w.add("b", 7, 6)
    w.steps(2)
    w.add("c", 1, 1)
    log = w.step()
    assert (log.scheduled, log.preempted, log.finished) == ({"a": 1}, ["b"], ["a"])
    assert w.step().scheduled == {"b": 9, "c": 1}


def test_a_lone_request_that_outgrows_the_pool_preempts_itself_for_ever(world):
    w = world(usable=2)
    a = w.add("a", 7, 5)
    logs = w.steps(5)
    assert [log.scheduled for log in logs] == [{"a": 7}, {"a": 1}, {}, {}, {}]
    assert [log.preempted for log in logs] == [[], [], ["a"], [], []]
    assert a.status is Status.PREEMPTED


def test_a_head_that_does_not_fit_blocks_those_behind_it(world):
    """2 of 4 blocks are free: b needs 3, c only 1."""
    w = world(usable=4)
    w.add("a", 8, 2)
    w.add("b", 12, 1)
    w.add("c", 4, 1)
    assert w.scheduled(1) == [{"a": 8}]


def test_a_prompt_is_admitted_only_if_all_of_it_fits(world):
    """Budget 12 leaves b a chunk of 4, one block; its whole prompt needs 3 and 2 are free."""
    for reserve, expected in ((True, {"a": 8}), (False, {"a": 8, "b": 4})):
        w = world(usable=4, max_batched_tokens=12, reserve_full_prompt=reserve)
        w.add("a", 8, 2)
        w.add("b", 12, 1)
        assert w.step().scheduled == expected


def test_the_watermark_stays_free_when_others_run(world):
    """int(0.5 x 9 blocks) = 4: a may take 4 of 8 blocks, or all 8 when alone; b would leave 3."""
    w = world(usable=8, watermark=0.5)
    w.add("a", 16, 1)
    w.add("b", 4, 1)
    w.add("c", 32, 1)
    assert w.scheduled(3) == [{"a": 16}, {"b": 4}, {"c": 32}]


def test_a_running_request_may_use_the_watermark(world):
    w = world(usable=2, watermark=0.4)
    w.add("a", 4, 3)
    assert [log.scheduled for log in w.drain()] == [{"a": 4}, {"a": 1}, {"a": 1}]


def test_a_request_may_stop_before_its_cap(world):
    w = world()
    a = w.add("a", 3, 2, max_output_tokens=50)
    assert len(w.drain()) == 2
    assert a.emitted_tokens == 2


def test_an_aborted_request_frees_all_it_holds(world):
    w = world(max_sequences=1)
    a, b = w.add("a", 9, 5), w.add("b", 9, 5)
    w.step()
    w.engine.abort(b)
    assert w.engine.waiting_count == 0
    w.engine.abort(a)
    assert (w.engine.kv_blocks_used, w.engine.unfinished) == (0, 0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_longest_request_runs_to_its_end_and_one_more_token_does_not(world, asynchronous):
    """What is rejected beforehand is what could never end; asynchronously one token less is promised."""
    longest = world(usable=3, async_scheduling=asynchronous).engine.longest_request_tokens()
    assert longest == (12 if asynchronous else 13)
    for extra, ends in ((0, True), (2, False)):
        w = world(usable=3, async_scheduling=asynchronous)
        w.add("a", 6, longest - 6 + extra)
        w.steps(40)
        assert (w.engine.unfinished == 0) is ends


def test_the_first_step_of_a_one_token_prompt_is_a_chunk(world):
    w = world()
    w.add("a", 1, 2)
    w.step()
    assert (w.plan.work.chunks, w.plan.work.decode_sequences) == ((PrefillChunk(1, 0),), 0)
    w.step()
    assert (w.plan.work.chunks, w.plan.work.decode_sequences) == ((), 1)
