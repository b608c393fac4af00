"""Static batching on worlds small enough to work out by hand. Blocks hold 4 tokens, and a slot 16 tokens: 4 blocks."""

from itertools import count

import pytest
from engine_loads import check_ends, loads, play
from hypothesis import given, settings
from hypothesis import strategies as st


def test_a_batch_waits_for_its_longest(static):
    """b is done after 1 step and a after 3; c was there from the second on, and waits for a's end."""
    w = static()
    w.add("a", 5, 3)
    w.add("b", 4, 1)
    first = w.step()
    w.add("c", 2, 1)
    assert (first.scheduled, first.finished) == ({"a": 5, "b": 4}, ["b"])
    assert w.scheduled(3) == [{"a": 1}, {"a": 1}, {"c": 2}]


def test_the_finished_keep_their_slot_and_memory_until_the_batch_ends(static):
    """2 slots of 4 blocks each, for the length of a's answer."""
    w = static()
    w.add("a", 5, 3)
    w.add("b", 4, 1)
    used = [(w.step(), w.engine.kv_blocks_used)[1] for _ in range(3)]
    assert used == [8, 8, 0]


def test_the_finished_leave_the_steps_work(static):
    w = static()
    w.add("a", 5, 3)
    w.add("b", 4, 1)
    w.steps(2)
    assert (w.plan.work.decode_sequences, w.plan.work.decode_context_tokens) == (1, 6)
    assert (w.engine.running_count, w.engine.unfinished) == (1, 1)


def test_all_prompts_run_in_one_step_whatever_the_budget(static):
    w = static(max_batched_tokens=4)
    w.add("a", 9, 1)
    w.add("b", 10, 1)
    assert w.step().scheduled == {"a": 9, "b": 10}
    assert [chunk.tokens for chunk in w.plan.work.chunks] == [9, 10]


@pytest.mark.parametrize(("usable", "max_sequences", "slots"), [(11, 8, 2), (12, 8, 3), (100, 2, 2), (None, 3, 3)])
def test_a_batch_takes_as_many_as_have_a_slot_and_max_model_len_of_memory(static, usable, max_sequences, slots):
    """A slot is 4 blocks: 11 hold two. The rest of the queue is the next batch."""
    w = static(usable, max_sequences=max_sequences)
    for name in "abcd":
        w.add(name, 1, 1)
    logs = w.drain()
    assert [list(log.scheduled) for log in logs[:2]] == [list("abcd")[:slots], list("abcd")[slots : 2 * slots]]


def test_a_pool_without_room_for_one_slot_runs_nothing(static):
    assert static(3).engine.longest_request_tokens() == 0
    assert static(4).engine.longest_request_tokens() == 16
    assert static(None).engine.longest_request_tokens() is None
    w = static(3)
    w.add("a", 1, 1)
    assert w.step().scheduled == {}


def test_a_client_that_gives_up_keeps_its_slot_until_the_batch_ends(static):
    w = static()
    a = w.add("a", 5, 9)
    b = w.add("b", 4, 9)
    w.add("c", 4, 1)
    w.engine.abort(w.add("d", 1, 1))
    w.step()
    w.engine.abort(a)
    assert w.step().scheduled == {"b": 1}
    assert w.engine.kv_blocks_used == 12
    w.engine.abort(b)
    assert (w.engine.kv_blocks_used, w.engine.unfinished) == (0, 0)


@given(loads(shared=0, private=10, output=6, more=0), st.integers(4, 30), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_invariants_of_every_step(static, load, usable, max_sequences):
    """Nobody begins while others run; a batch lasts as long as its longest answer; all begin in order and end."""
    w, batches, steps = static(usable, max_sequences=max_sequences), [], count()

    def check(w, requests, running, log):
        step = next(steps)
        if log.cached:
            assert running == 0, "a batch began before the last one ended"
            batches.append((step, [requests[name] for name in log.cached]))
        if w.engine.running_count:
            assert w.engine.kv_blocks_used == 4 * len(batches[-1][1]) <= usable
        else:
            assert w.engine.kv_blocks_used == 0
            if log.scheduled:
                start, batch = batches[-1]
                assert step - start + 1 == max(request.output_tokens for request in batch)

    logs, requests = play(w, load, check, look=lambda w, _: w.engine.running_count)
    check_ends(logs, requests)
    assert all(len(batch) <= max_sequences for _, batch in batches)
    assert [name for log in logs for name in log.cached] == list(requests)
