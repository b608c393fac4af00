"""Orca on worlds small enough to work out by hand. Blocks hold 4 tokens."""

from engine_loads import check_ends, loads, play
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.request import Status
from sim.work import PrefillChunk


def test_whole_prompts_run_beside_the_decodes_of_others(orca):
    w = orca(max_batched_tokens=4)
    w.add("a", 6, 3)
    w.step()
    w.add("b", 20, 2)
    assert w.scheduled(2) == [{"a": 1, "b": 20}, {"a": 1, "b": 1}]
    assert (w.plan.work.decode_sequences, w.plan.work.decode_context_tokens) == (2, 8 + 21)


def test_a_mixed_steps_work_is_a_chunk_and_a_decode(orca):
    w = orca()
    w.add("a", 6, 3)
    w.step()
    w.add("b", 20, 2)
    w.step()
    work = w.plan.work
    assert work.chunks == (PrefillChunk(20, 0),)
    assert (work.decode_sequences, work.decode_context_tokens, work.sampled_sequences) == (1, 7, 2)


def test_prompt_and_longest_answer_are_reserved(orca):
    """a may give 9 tokens: ceil((7 + 9) / 4) = 4 blocks of 6, though it stops after 2. b needs 3, and waits."""
    w = orca(usable=6)
    w.add("a", 7, 2, max_output_tokens=9)
    w.add("b", 5, 4)
    log = w.step()
    assert (log.scheduled, w.engine.kv_blocks_used) == ({"a": 7}, 4)
    assert w.scheduled(2) == [{"a": 1}, {"b": 5}]
    assert w.engine.kv_blocks_used == 3


def test_the_first_that_does_not_fit_stops_those_behind_it(orca):
    """2 blocks are left: b needs 3, c only 1."""
    w = orca(usable=6)
    w.add("a", 7, 9)
    w.add("b", 5, 4)
    w.add("c", 2, 2)
    assert w.step().scheduled == {"a": 7}


def test_no_more_than_max_sequences_run_and_the_next_follows_at_once(orca):
    w = orca(max_sequences=2)
    for name, output in (("a", 1), ("b", 3), ("c", 1)):
        w.add(name, 2, output)
    assert w.scheduled(3) == [{"a": 2, "b": 2}, {"b": 1, "c": 2}, {"b": 1}]


def test_no_more_is_reserved_than_max_model_len(orca):
    """12 tokens are 3 blocks, whatever the cap; 7 of them are the prompt."""
    w = orca(usable=3, max_model_len=12)
    a = w.add("a", 7, 50)
    w.drain()
    assert a.emitted_tokens == 5


def test_the_largest_request_fills_the_pool(orca):
    w = orca(usable=5)
    assert w.engine.longest_request_tokens() == 20
    w.add("a", 13, 7)
    w.add("b", 13, 8)
    logs = w.steps(9)
    assert [name for log in logs for name in log.finished] == ["a"]
    assert (logs[-1].scheduled, w.engine.waiting_count) == ({}, 1)


def test_an_unlimited_pool_counts_nothing(orca):
    w = orca(usable=None)
    w.add("a", 13, 7)
    w.step()
    assert (w.engine.kv_blocks_used, w.engine.longest_request_tokens()) == (0, None)


def test_a_client_that_gives_up_frees_its_reservation(orca):
    w = orca(usable=4)
    a = w.add("a", 7, 9)
    b = w.add("b", 7, 9)
    w.step()
    w.engine.abort(a)
    assert w.engine.kv_blocks_used == 0
    w.step()
    w.engine.abort(b)
    assert (a.status, b.status, w.engine.unfinished) == (Status.ABORTED, Status.ABORTED, 0)


@given(loads(shared=0, private=30, output=15, more=3), st.integers(12, 30), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_invariants_of_every_step(orca, load, usable, max_sequences):
    """Reservations never exceed the pool, nothing is preempted, and all begin in order of arrival and end."""
    w = orca(usable, max_sequences=max_sequences)

    def check(w, requests, before, log):
        reserved = sum(-(-(r.prompt_tokens + r.max_output_tokens) // 4) for r in w.engine.running)
        assert w.engine.kv_blocks_used == reserved <= usable
        assert len(log.scheduled) <= max_sequences
        assert not log.preempted
        assert sorted(log.emitted) == sorted(log.scheduled), "every request samples in every step it is in"

    logs, requests = play(w, load, check)
    check_ends(logs, requests)
    assert [name for log in logs for name in log.cached] == list(requests)
    assert w.engine.kv_blocks_used == 0
