"""TensorRT-LLM's two stages on worlds small enough to work out by hand. Blocks and chunk units hold 4 tokens."""

import pytest

from sim.engine.request import Request, Status
from sim.engine.trtllm.batch import Candidate, chunked_contexts, equal_chunks, fcfs_chunks, whole_contexts
from sim.engine.trtllm.scheduler import TrtLlmSettings
from sim.errors import RidgelineError
from sim.work import PrefillChunk

MAX_UTILIZATION = {"capacity_policy": "max-utilization"}


def test_blocks_are_reserved_to_everyones_end(trtllm):
    """a reserves ceil((7 + 6) / 4) = 4 of 6 blocks; b needs ceil((5 + 4) / 4) = 3, and waits for a's end."""
    w = trtllm(6)
    w.add("a", 7, 6)
    w.add("b", 5, 4)
    assert w.scheduled(7) == [{"a": 7}, *[{"a": 1}] * 5, {"b": 5}]


def test_a_reservation_shrinks_as_blocks_are_taken(trtllm):
    """After 10 of 13 tokens a holds 3 blocks and reserves 1 more: 2 of 6 are left, as when it began."""
    for arrives_after in (0, 4):
        w = trtllm(6)
        w.add("a", 7, 6)
        w.steps(arrives_after)
        w.add("b", 5, 4)
        w.add("c", 4, 4)
        assert "b" not in w.step().scheduled
    w = trtllm(6)
    w.add("a", 7, 6)
    w.steps(4)
    assert w.engine.kv_blocks_used == 3
    w.add("c", 4, 4)
    assert w.step().scheduled == {"c": 4, "a": 1}


def test_the_first_that_does_not_fit_stops_those_behind_it(trtllm):
    """a leaves 2 of 6 blocks: b needs 3, c only 1."""
    w = trtllm(6)
    w.add("a", 7, 6)
    w.add("b", 5, 4)
    w.add("c", 2, 2)
    assert w.step().scheduled == {"a": 7}


def test_the_longest_answer_is_reserved_not_the_one_it_gives(trtllm):
    """a may give 12 tokens: all 4 blocks. It stops after 2, and b follows."""
    w = trtllm(4)
    w.add("a", 4, 2, max_output_tokens=12)
    w.add("b", 2, 1)
    assert w.scheduled(3) == [{"a": 4}, {"a": 1}, {"b": 2}]


def test_no_more_is_reserved_than_max_model_len(trtllm):
    w = trtllm(3, max_model_len=12)
    a = w.add("a", 7, 50)
    w.drain()
    assert a.emitted_tokens == 5


def test_max_utilization_asks_for_the_next_step_only(trtllm):
    """Two prompts of 2 blocks fill the pool of 4; reserved to their ends they are 4 blocks each."""
    for policy, expected in (("max-utilization", {"a": 7, "b": 7}), ("guaranteed-no-evict", {"a": 7})):
        w = trtllm(4, capacity_policy=policy)
        w.add("a", 7, 6)
        w.add("b", 7, 6)
        assert w.step().scheduled == expected


def test_the_last_begun_is_paused_and_starts_again_with_its_answer(trtllm):
    """At its ninth token a needs a third block: b gives up its 2. It returns with 7 + 2 tokens when a is done."""
    w = trtllm(4, **MAX_UTILIZATION)
    w.add("a", 7, 6)
    b = w.add("b", 7, 6)
    logs = w.steps(3)
    assert [log.scheduled for log in logs] == [{"a": 7, "b": 7}, {"a": 1, "b": 1}, {"a": 1}]
    assert logs[2].preempted == ["b"]
    assert (b.status, b.computed_tokens, b.emitted_tokens, w.engine.kv_blocks_used) == (Status.PREEMPTED, 0, 2, 3)
    assert w.scheduled(4) == [{"a": 1}, {"a": 1}, {"a": 1}, {"b": 9}]
    assert w.plan.admitted == [(b, 0, True)]
    assert w.plan.work.chunks == (PrefillChunk(9, 0),)
    assert w.scheduled(3) == [{"b": 1}] * 3
    assert (b.status, w.engine.kv_blocks_used) == (Status.FINISHED, 0)


def test_a_block_is_asked_for_when_the_next_token_crosses_into_it(trtllm):
    """8 tokens fill 2 blocks; the third is taken in the step that computes the ninth."""
    w = trtllm(4, **MAX_UTILIZATION)
    w.add("a", 7, 6)
    used = [(w.step(), w.engine.kv_blocks_used)[1] for _ in range(5)]
    assert used == [2, 2, 3, 3, 3]


def test_pauses_go_from_the_end_and_returns_from_the_front(trtllm):
    """6 blocks, 2 each. At 9 tokens a and b need a third each: c gives 2. At 13 tokens a needs a fourth: b gives 3.
    a ends after its ninth token; b comes back first, with 13 tokens in 4 blocks, though c was paused before it.
    """
    w = trtllm(6, **MAX_UTILIZATION)
    for name in "abc":
        w.add(name, 7, 9)
    logs = w.steps(10)
    assert [log.scheduled for log in logs] == [
        {"a": 7, "b": 7, "c": 7},
        {"a": 1, "b": 1, "c": 1},
        *[{"a": 1, "b": 1}] * 4,
        *[{"a": 1}] * 3,
        {"b": 13},
    ]
    assert [log.preempted for log in logs] == [[], [], ["c"], [], [], [], ["b"], [], [], []]
    assert [request.request_id for request in w.engine.waiting] == ["c"]


def test_a_request_pauses_itself_when_it_is_the_last(trtllm):
    """a never outgrows its 2 blocks; b needs a third, and nobody began after it. a is done in the same step."""
    w = trtllm(4, **MAX_UTILIZATION)
    w.add("a", 5, 3)
    w.add("b", 7, 6)
    logs = w.steps(4)
    assert [log.scheduled for log in logs] == [{"a": 5, "b": 7}, {"a": 1, "b": 1}, {"a": 1}, {"b": 9}]
    assert [log.preempted for log in logs] == [[], [], ["b"], []]


def test_without_chunks_what_a_step_cannot_take_is_generated_again(trtllm):
    """Budget 8, 5 blocks. In the sixth step b's ninth token finds no block, and a ends. b returns with 8 of its 5 + 4
    tokens, samples the ninth once more, which its client has, and goes on to the end.
    """
    w = trtllm(5, max_batched_tokens=8, chunked_prefill=False, **MAX_UTILIZATION)
    w.add("a", 7, 6)
    b = w.add("b", 5, 6)
    logs = w.steps(6)
    assert [log.scheduled for log in logs] == [{"a": 7}, {"b": 5, "a": 1}, *[{"b": 1, "a": 1}] * 3, {"a": 1}]
    assert (logs[5].preempted, b.known_tokens, b.emitted_tokens) == (["b"], 8, 4)
    logs = w.steps(3)
    assert [log.scheduled for log in logs] == [{"b": 8}, {"b": 1}, {"b": 1}]
    assert [log.emitted for log in logs] == [[], ["b"], ["b"]]
    assert (b.status, b.emitted_tokens, w.engine.kv_blocks_used) == (Status.FINISHED, 6, 0)


def test_the_answer_so_far_is_chunked_like_a_prompt(trtllm):
    """Budget 8: b begins in the second step. a's thirteenth token, in the seventh, finds no block: b is paused with
    7 + 5 tokens known. a ends with its twelfth step, and b computes them as 8 and 4.
    """
    w = trtllm(6, max_batched_tokens=8, **MAX_UTILIZATION)
    w.add("a", 7, 12)
    w.add("b", 7, 12)
    logs = w.steps(15)
    assert [log.scheduled for log in logs[:2]] == [{"a": 7}, {"b": 7, "a": 1}]
    assert [step for step, log in enumerate(logs, 1) if log.preempted] == [7]
    assert [log.scheduled for log in logs[11:]] == [{"a": 1}, {"b": 8}, {"b": 4}, {"b": 1}]


def test_nobody_behind_a_paused_request_takes_part(trtllm):
    """c needs one block. In the step of b's pause one is free, but b ends the list; then b is first, and needs 3."""
    w = trtllm(4, **MAX_UTILIZATION)
    w.add("a", 7, 6)
    w.add("b", 7, 6)
    w.steps(2)
    w.add("c", 1, 1)
    logs = w.steps(2)
    assert [log.scheduled for log in logs] == [{"a": 1}, {"a": 1}]
    assert (logs[0].preempted, w.engine.kv_blocks_used) == (["b"], 3)


def test_a_context_takes_the_blocks_of_its_whole_prompt_with_its_first_chunk(trtllm):
    """b has 1 of the 4 blocks left and needs 2."""
    for policy in ("max-utilization", "guaranteed-no-evict"):
        w = trtllm(4, capacity_policy=policy, max_batched_tokens=8)
        w.add("a", 10, 1)
        w.add("b", 5, 1)
        assert (w.step().scheduled, w.engine.kv_blocks_used) == ({"a": 8}, 3)
        assert w.scheduled(2) == [{"a": 2}, {"b": 5}]


def test_a_lone_request_that_outgrows_the_pool_pauses_itself_for_ever(trtllm):
    w = trtllm(2, **MAX_UTILIZATION)
    a = w.add("a", 7, 5)
    logs = w.steps(5)
    assert [log.scheduled for log in logs] == [{"a": 7}, {"a": 1}, {}, {}, {}]
    assert [log.preempted for log in logs] == [[], [], ["a"], [], []]
    assert a.status is Status.PREEMPTED


@pytest.mark.parametrize(("policy", "longest"), [("guaranteed-no-evict", 20), ("max-utilization", 21)])
def test_the_largest_request_ends_and_a_larger_one_never_does(trtllm, policy, longest):
    """5 blocks: a reservation covers the last token, too, which is never computed."""
    w = trtllm(5, capacity_policy=policy)
    assert w.engine.longest_request_tokens() == longest
    a = w.add("a", 13, longest - 13)
    w.drain()
    assert a.status is Status.FINISHED
    b = w.add("b", 13, longest - 12)
    w.steps(50)
    assert b.status is not Status.FINISHED


def test_a_static_batch_is_replaced_when_nobody_generates(trtllm):
    w = trtllm(capacity_policy="static-batch")
    w.add("a", 5, 3)
    w.add("b", 4, 1)
    w.step()
    w.add("c", 2, 1)
    assert w.scheduled(3) == [{"a": 1}, {"a": 1}, {"c": 2}]


def test_a_static_batch_reserves_like_no_evict(trtllm):
    """a reserves 2 of 3 blocks, b would need 2; unlike in FasterTransformer a's end frees them at once."""
    w = trtllm(3, capacity_policy="static-batch")
    w.add("a", 4, 2)
    w.add("b", 4, 2)
    assert w.scheduled(3) == [{"a": 4}, {"a": 1}, {"b": 4}]


def test_a_context_cut_off_from_its_static_batch_waits_for_those_that_generate(trtllm):
    """Budget 12: a takes 6, b the unit of 4 that 6 leave room for. Its last 2 tokens wait until a is done."""
    w = trtllm(capacity_policy="static-batch", max_batched_tokens=12)
    w.add("a", 6, 3)
    w.add("b", 7, 1)
    assert w.scheduled(4) == [{"a": 6, "b": 4}, {"a": 1}, {"a": 1}, {"b": 3}]


def test_prefill_first_lets_contexts_run_alone(trtllm):
    """b's 6 tokens take two steps of at most 4; a's decode waits for both."""
    w = trtllm(capacity_policy="prefill-first", max_batched_tokens=4)
    w.add("a", 4, 5)
    w.step()
    w.add("b", 6, 2)
    assert w.scheduled(3) == [{"b": 4}, {"b": 2}, {"a": 1, "b": 1}]


def test_prefill_first_decodes_while_no_context_fits(trtllm):
    """a reserves all 3 blocks: b is not admissible."""
    w = trtllm(3, capacity_policy="prefill-first")
    w.add("a", 4, 5)
    w.add("b", 4, 1)
    assert w.scheduled(6) == [{"a": 4}, *[{"a": 1}] * 4, {"b": 4}]


def test_decodes_come_before_contexts_in_the_budget_and_after_them_in_the_step(trtllm):
    """Of 8 tokens a's decode gets 1; 7 are left for b: units of 4 for its prompt of 13, and at last 5."""
    w = trtllm(max_batched_tokens=8)
    w.add("a", 4, 9)
    w.step()
    w.add("b", 13, 1)
    logs = w.steps(3)
    assert [log.scheduled for log in logs] == [{"b": 4, "a": 1}, {"b": 4, "a": 1}, {"b": 5, "a": 1}]
    assert list(logs[0].scheduled) == ["b", "a"]
    assert [log.emitted for log in logs] == [["a"], ["a"], ["b", "a"]]


def test_a_steps_work_is_its_chunks_and_decodes(trtllm):
    w = trtllm(max_batched_tokens=8)
    w.add("a", 4, 9)
    w.step()
    w.add("b", 13, 1)
    w.steps(2)
    work = w.plan.work
    assert work.chunks == (PrefillChunk(4, 4),)
    assert (work.decode_sequences, work.decode_context_tokens, work.sampled_sequences) == (1, 6, 1)


def test_without_chunks_a_prompt_above_the_rest_of_the_budget_stops_the_walk(trtllm):
    """a leaves 2 of 8 tokens: b's 5 do not fit, and c's 2 are behind it."""
    w = trtllm(max_batched_tokens=8, chunked_prefill=False)
    w.add("a", 6, 3)
    w.add("b", 5, 1)
    w.add("c", 2, 1)
    assert w.scheduled(2) == [{"a": 6}, {"b": 5, "c": 2, "a": 1}]


def test_equal_progress_gives_each_a_unit_in_turn(trtllm):
    """Of 12 tokens the first round gives a 4, b 4 and c 2, its all. 2 are left: too few for a's next unit, but b's
    last token fits.
    """
    w = trtllm(max_batched_tokens=12, chunking_policy="equal-progress")
    w.add("a", 20, 1)
    w.add("b", 5, 1)
    w.add("c", 2, 1)
    assert w.scheduled(3) == [{"a": 4, "b": 5, "c": 2}, {"a": 12}, {"a": 4}]


@pytest.mark.parametrize(
    ("left", "budget", "fcfs", "equal"),
    [
        ([10, 5], 7, [4, 0], [4, 0]),  # 3 are left: less than a unit, and than what b needs
        ([10, 3], 7, [4, 3], [4, 3]),  # b's last chunk takes them
        ([10, 3, 8], 13, [10, 3, 0], [4, 3, 4]),
        ([10, 3, 6], 17, [10, 3, 4], [8, 3, 6]),  # second round: a's unit leaves 2, which end c
        ([3], 2, [0], [0]),
    ],
)
def test_chunks_are_whole_units_but_the_last(left, budget, fcfs, equal):
    assert fcfs_chunks(left, budget, 4) == fcfs
    assert equal_chunks(left, budget, 4) == equal


def requests(count):
    return [Request(f"r{order}", 8, 8, order=order) for order in range(count)]


def test_without_chunks_the_walk_counts_all_in_the_order_given():
    """The context that comes first takes 7 of 8 tokens: of two that generate one is left out."""
    context, first, second = requests(3)
    assert whole_contexts([Candidate(context, 7), Candidate(first, 0), Candidate(second, 0)], 8) == [
        (context, 7),
        (first, 1),
    ]
    assert whole_contexts([Candidate(first, 0), Candidate(context, 8), Candidate(second, 0)], 8) == [(first, 1)]


def test_with_chunks_those_that_generate_come_first_wherever_they_are():
    """5 tokens are one unit for the context before, and 1 for the request that generates behind it."""
    context, first, second = requests(3)
    assert chunked_contexts([Candidate(context, 7), Candidate(first, 0)], 5, 4, "fcfs") == [(context, 4), (first, 1)]
    walked = [Candidate(first, 0), Candidate(second, 0), Candidate(context, 7)]
    assert chunked_contexts(walked, 1, 4, "fcfs") == [(first, 1)], "the walk ends where the budget does"


def test_a_budget_below_one_unit_is_refused():
    with pytest.raises(RidgelineError, match="max_batched_tokens=31 is less than one chunk of block_tokens=32"):
        TrtLlmSettings(max_batched_tokens=31, max_sequences=1, max_model_len=64)
    TrtLlmSettings(max_batched_tokens=31, max_sequences=1, max_model_len=64, chunked_prefill=False)


def test_a_client_that_gives_up_frees_its_blocks_wherever_it_is(trtllm):
    w = trtllm(4, **MAX_UTILIZATION)
    a = w.add("a", 7, 6)
    b = w.add("b", 7, 6)
    w.steps(3)
    assert b.status is Status.PREEMPTED
    w.engine.abort(b)
    w.engine.abort(a)
    assert (w.engine.unfinished, w.engine.kv_blocks_used) == (0, 0)


@pytest.mark.parametrize("policy", ["guaranteed-no-evict", "max-utilization"])
def test_the_overlap_scheduler_runs_ahead_of_the_tokens(trtllm, policy):
    """a's second step is its last: it takes no slot in the third, where b begins, though its end is not yet seen."""
    scheduled = {}
    for overlap in (False, True):
        w = trtllm(max_sequences=1, async_scheduling=overlap, capacity_policy=policy)
        w.add("a", 4, 2)
        w.add("b", 4, 1)
        scheduled[overlap] = [(log.scheduled, log.finished) for log in w.steps(4)]
    assert scheduled[False] == [({"a": 4}, []), ({"a": 1}, ["a"]), ({"b": 4}, ["b"]), ({}, [])]
    assert scheduled[True] == [({"a": 4}, []), ({"a": 1}, []), ({"b": 4}, ["a"]), ({}, ["b"])]


def test_an_overlapped_end_keeps_its_blocks_until_it_is_seen(trtllm):
    """a holds both blocks of the pool while its last token is in flight: b begins one step later than with room."""
    w = trtllm(2, async_scheduling=True)
    w.add("a", 5, 2)
    w.add("b", 5, 2)
    assert w.scheduled(4) == [{"a": 5}, {"a": 1}, {}, {"b": 5}]


def test_a_stop_that_is_not_known_wastes_one_overlapped_token(trtllm):
    w = trtllm(async_scheduling=True)
    a = w.add("a", 4, 2, max_output_tokens=50)
    assert [log.scheduled for log in w.drain()] == [{"a": 4}, {"a": 1}, {"a": 1}]
    assert a.emitted_tokens == 2
    assert w.step().emitted == []
    assert w.engine.kv_blocks_used == 0


def test_a_paused_request_still_receives_the_token_in_flight(trtllm):
    """It returns with it: 7 + 2 tokens."""
    w = trtllm(4, async_scheduling=True, **MAX_UTILIZATION)
    w.add("a", 7, 6)
    w.add("b", 7, 6)
    w.steps(2)
    log = w.step()
    assert (log.preempted, log.scheduled, log.emitted) == (["b"], {"a": 1}, ["a", "b"])
    assert next(step["b"] for step in w.scheduled(6) if "b" in step) == 9


def test_a_token_in_flight_reaches_the_client_before_it_is_dropped(trtllm):
    """Budget 8, 5 blocks; b's ninth token, in flight at its pause, is b's fourth: b returns with 8 of 9 tokens."""
    w = trtllm(5, max_batched_tokens=8, chunked_prefill=False, async_scheduling=True, **MAX_UTILIZATION)
    w.add("a", 7, 6)
    b = w.add("b", 5, 6)
    logs = w.steps(6)
    assert (logs[5].preempted, logs[5].emitted) == (["b"], ["a", "b"])
    assert (b.known_tokens, b.sent_tokens, b.emitted_tokens) == (8, 9, 4)
    logs += w.drain()
    assert [log.scheduled["b"] for log in logs[6:] if "b" in log.scheduled] == [8, 1, 1]
    assert sum(log.emitted.count("b") for log in logs) == b.emitted_tokens == 6


def test_contexts_wait_to_be_batched_while_others_generate(trtllm):
    """b and c arrive beside a, which generates. A step of b's and c's 6 tokens and a's 1 is below 0.5 of the 16 tokens
    of a step, so they wait the 3 iterations they may, and run together in the next one.
    """
    w = trtllm(20, max_batched_tokens=16, batch_wait_timeout_iters=3, batch_wait_max_tokens_ratio=0.5)
    w.add("a", 4, 9)
    w.step()
    w.add("b", 3, 1)
    assert w.scheduled(1) == [{"a": 1}]
    w.add("c", 3, 1)
    assert w.scheduled(3) == [{"a": 1}, {"a": 1}, {"b": 3, "c": 3, "a": 1}]


def test_contexts_wait_no_longer_than_for_a_full_batch(trtllm):
    """7 tokens of b and 1 of a are half of 16: enough at once. With nobody generating nothing waits at all."""
    w = trtllm(20, max_batched_tokens=16, batch_wait_timeout_iters=3, batch_wait_max_tokens_ratio=0.5)
    w.add("a", 4, 9)
    assert w.scheduled(1) == [{"a": 4}]
    w.add("b", 7, 1)
    assert w.scheduled(1) == [{"b": 7, "a": 1}]
