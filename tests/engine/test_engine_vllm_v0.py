"""vLLM V0 in worlds small enough to work out by hand. Blocks hold 4 tokens; no watermark unless a test sets one."""

import pytest

from sim.engine.request import Status
from sim.engine.vllm_v0 import VllmV0Settings
from sim.errors import RidgelineError
from sim.work import PrefillChunk


def test_its_own_defaults():
    chosen = VllmV0Settings(max_batched_tokens=2048, max_sequences=256, max_model_len=2048)
    assert (chosen.watermark, chosen.chunked_prefill, chosen.prefix_caching) == (0.01, False, False)


def test_a_prompt_goes_first_and_the_decodes_wait(v0):
    """a has sampled once; b's prompt takes step 2 for itself, then both decode."""
    w = v0()
    w.add("a", 6, 4)
    assert w.step().scheduled == {"a": 6}
    w.add("b", 5, 2)
    log = w.step()
    assert (log.scheduled, log.emitted) == ({"b": 5}, ["b"])
    assert w.scheduled(3) == [{"a": 1, "b": 1}, {"a": 1}, {"a": 1}]
    assert w.engine.unfinished == 0


def test_prompts_are_whole_and_the_first_that_does_not_fit_the_budget_ends_the_step(v0):
    """Budget 12: after a's 6, b's 8 do not fit, and c, whose 3 would, is behind b."""
    w = v0(max_batched_tokens=12)
    w.add("a", 6, 2)
    w.add("b", 8, 2)
    w.add("c", 3, 2)
    assert w.scheduled(3) == [{"a": 6}, {"b": 8, "c": 3}, {"a": 1, "b": 1, "c": 1}]


def test_running_requests_out_of_the_budgets_reach_are_first_in_the_next_step(v0):
    """Four decodes in a budget of 3, which V0 would not start with: each step leaves out the one served longest ago."""
    w = v0(max_batched_tokens=3)
    for name in "abcd":
        w.add(name, 3, 9)
    w.steps(4)
    assert [list(step) for step in w.scheduled(3)] == [["a", "b", "c"], ["d", "a", "b"], ["c", "d", "a"]]


def test_no_more_than_max_sequences_run(v0):
    w = v0(max_sequences=2)
    for name in "abc":
        w.add(name, 2, 2)
    assert w.scheduled(4) == [{"a": 2, "b": 2}, {"a": 1, "b": 1}, {"c": 2}, {"c": 1}]


def test_the_watermark_holds_for_admission_and_not_for_decodes(v0):
    """int(0.2 x 10) = 2 blocks: a and b take 4 each, c's one would leave 1. Then a and b decode into the last two."""
    w = v0(usable=10, watermark=0.2)
    for name, prompt in (("a", 16), ("b", 16), ("c", 1)):
        w.add(name, prompt, 2)
    assert w.scheduled(1) == [{"a": 16, "b": 16}]
    plan = w.engine.schedule()
    assert [(request.request_id, tokens) for request, tokens in plan.scheduled] == [("a", 1), ("b", 1)]
    assert w.engine.kv_blocks_used == 10
    w.engine.complete(plan)
    assert w.scheduled(1) == [{"c": 1}]


def test_the_watermark_is_rounded_down(v0):
    """int(0.01 x 199) = 1 block: 198 of 199 may be taken."""
    for prompt, admitted in ((198 * 4, True), (198 * 4 + 1, False)):
        w = v0(usable=199, watermark=0.01, max_model_len=1000, max_batched_tokens=1000)
        w.add("a", prompt, 1)
        assert bool(w.step().scheduled) is admitted


def test_the_last_running_request_gives_way(v0):
    """7 blocks, 2 each. At 9 tokens a takes the last one; b finds none, so c is preempted, and b takes one of c's 2."""
    w = v0(usable=7)
    for name in "abc":
        w.add(name, 7, 6)
    assert w.scheduled(2) == [{"a": 7, "b": 7, "c": 7}, {"a": 1, "b": 1, "c": 1}]
    log = w.step()
    assert (log.scheduled, log.preempted) == ({"a": 1, "b": 1}, ["c"])
    assert w.engine.kv_blocks_used == 6


def test_a_decode_wants_a_free_block_even_where_its_last_has_room(v0):
    """a's 5 tokens hold both blocks, with room for 3 more: none is free, so a preempts itself, time and again.

    Alone it comes back at once, with what it sampled as a part of its prompt, and samples the next token doing so.
    """
    w = v0(usable=2)
    w.add("a", 5, 3)
    logs = w.drain()
    assert [log.scheduled for log in logs] == [{"a": 5}, {}, {"a": 6}, {}, {"a": 7}]
    assert [log.preempted for log in logs] == [[], ["a"], [], ["a"], []]
    assert [log.emitted for log in logs] == [["a"], [], ["a"], [], ["a"]]


def test_the_preempted_recompute_all_and_stand_before_those_that_came_later(v0):
    """5 blocks: a and b hold 2 each. At 9 tokens a takes the fifth and b, the last, gives way to itself.

    b's 7 + 2 tokens need 3 blocks, 2 are free until a ends; c would fit, but is behind b.
    """
    w = v0(usable=5)
    w.add("a", 7, 5)
    b = w.add("b", 7, 6)
    assert w.scheduled(2) == [{"a": 7, "b": 7}, {"a": 1, "b": 1}]
    log = w.step()
    w.add("c", 1, 1)
    assert (log.scheduled, log.preempted, w.waiting) == ({"a": 1}, ["b"], ["b", "c"])
    assert (b.computed_tokens, b.known_tokens, b.status) == (0, 9, Status.PREEMPTED)
    assert w.scheduled(3) == [{"a": 1}, {"a": 1}, {"b": 9, "c": 1}]


def test_those_preempted_together_keep_their_order(v0):
    """4 blocks, one each: a's fifth token costs d its block, b's costs c's."""
    w = v0(usable=4)
    for name in "abcd":
        w.add(name, 4, 3)
    w.step()
    log = w.step()
    assert (log.scheduled, log.preempted, w.waiting) == ({"a": 1, "b": 1}, ["d", "c"], ["c", "d"])


def test_nothing_is_admitted_beside_decodes(v0):
    """3 blocks, one each; a takes d's, b gives up its own. That one would do for c, but this step decodes."""
    w = v0(usable=3)
    for name in "abdc":
        w.add(name, 4, 3)
    w.step()
    log = w.step()
    assert (log.scheduled, log.preempted, w.waiting) == ({"a": 1}, ["d", "b"], ["b", "d", "c"])


def test_chunked_it_admits_even_after_a_preemption(v0):
    """The same world in chunked mode: the victims return to the queue after the admission, so c passes them."""
    w = v0(usable=3, chunked_prefill=True)
    for name in "abdc":
        w.add(name, 4, 3)
    w.step()
    log = w.step()
    assert (log.scheduled, log.preempted, w.waiting) == ({"a": 1, "c": 4}, ["d", "b"], ["b", "d"])


def test_chunked_running_requests_go_first_and_new_prompts_take_the_rest(v0):
    """Budget 8: b's 20 tokens are cut to 6 beside a's prompt, 7 and 7 beside its decodes; only then is c admitted."""
    w = v0(max_batched_tokens=8, chunked_prefill=True)
    w.add("a", 2, 9)
    w.add("b", 20, 2)
    w.add("c", 3, 2)
    logs = w.steps(4)
    assert [log.scheduled for log in logs] == [
        {"a": 2, "b": 6},
        {"a": 1, "b": 7},
        {"a": 1, "b": 7},
        {"a": 1, "b": 1, "c": 3},
    ]
    assert [log.emitted for log in logs] == [["a"], ["a"], ["a", "b"], ["a", "b", "c"]]


def test_chunked_a_prompt_holds_all_its_blocks_from_its_first_chunk(v0):
    w = v0(max_batched_tokens=4, chunked_prefill=True)
    w.add("a", 18, 1)
    used = [(w.step(), w.engine.kv_blocks_used)[1] for _ in range(5)]
    assert used == [5, 5, 5, 5, 0]


def test_chunked_a_prompt_in_progress_touches_its_last_block_unless_that_is_full(v0):
    """2 blocks, both a's. With 8 tokens its second chunk runs; with 6 it wants a free block and preempts itself."""
    full, part = (
        v0(usable=2, max_batched_tokens=4, chunked_prefill=True),
        v0(usable=2, max_batched_tokens=4, chunked_prefill=True),
    )
    full.add("a", 8, 1)
    part.add("a", 6, 1)
    assert full.scheduled(2) == [{"a": 4}, {"a": 4}]
    assert full.engine.unfinished == 0
    logs = part.steps(3)
    assert [(log.scheduled, log.preempted) for log in logs] == [({"a": 4}, []), ({}, ["a"]), ({"a": 4}, [])]


def test_a_cached_prompt_computes_its_last_token_anew(v0):
    """Both full blocks of b are cached, 8 of 8 tokens: it computes one, behind 7."""
    w = v0(prefix_caching=True)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("b", [("s", 8)], 1)
    log = w.step()
    assert (log.scheduled, log.cached) == ({"b": 1}, {"b": 7})
    assert w.plan.work.chunks == (PrefillChunk(1, 7),)
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (16, 7)


def test_full_blocks_are_hit_and_cost_no_budget(v0):
    """b's 16 tokens count as 8 after a hit of 8, so c's 8 fit the 16 of the step."""
    w = v0(prefix_caching=True, max_batched_tokens=16)
    w.add("a", [("s", 11)], 1)
    w.step()
    w.add("b", [("s", 11), ("u", 5)], 1)
    w.add("c", 8, 1)
    log = w.step()
    assert (log.scheduled, log.cached) == ({"b": 8, "c": 8}, {"b": 8, "c": 0})


def test_prompts_of_one_step_do_not_hit_each_other(v0):
    w = v0(prefix_caching=True)
    w.add("a", [("s", 8), ("u", 1)], 1)
    w.add("b", [("s", 8), ("v", 1)], 1)
    assert w.step().scheduled == {"a": 9, "b": 9}


def test_what_is_cached_still_has_to_fit(v0):
    """4 blocks: a's 2 are a part of b's 3, but 3 are asked for and 2 are free; b waits until a has ended."""
    w = v0(usable=4, prefix_caching=True)
    w.add("a", [("s", 8)], 3)
    w.step()
    w.add("b", [("s", 8), ("u", 4)], 1)
    logs = w.steps(3)
    assert [log.scheduled for log in logs] == [{"a": 1}, {"a": 1}, {"b": 4}]
    assert logs[2].cached == {"b": 8}


def test_a_preempted_request_hits_what_is_left_of_its_own_blocks(v0):
    """b gave up its 2 blocks of 9 known tokens, 8 of them computed; a, at 10 of its tokens, has not touched them.

    When a ends, b finds both blocks and computes only its ninth token. Its own blocks count in no statistic.
    """
    w = v0(usable=5, prefix_caching=True)
    w.add("a", 7, 5)
    w.add("b", 7, 6)
    logs = w.steps(6)
    assert logs[2].preempted == ["b"]
    assert (logs[5].scheduled, logs[5].cached) == ({"b": 1}, {"b": 8})
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (14, 0)


def test_blocks_that_cache_nothing_are_taken_before_those_that_do(v0):
    """2 blocks: a leaves s in one, then b leaves the other with 3 private tokens. c takes b's, so d still finds s."""
    w = v0(usable=2, prefix_caching=True)
    w.add("a", [("s", 4)], 1)
    w.step()
    w.add("b", 3, 1)
    w.step()
    w.add("c", 3, 1)
    w.step()
    w.add("d", [("s", 4)], 1)
    assert w.step().cached == {"d": 3}


def test_the_least_recently_used_blocks_are_evicted_a_tail_before_its_head(v0):
    """s holds blocks 1 and 2 of 3; two blocks for b are the blank one and s's second: only its first is hit."""
    w = v0(usable=3, prefix_caching=True)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("b", 8, 1)
    w.step()
    w.add("c", [("s", 8)], 1)
    assert w.step().cached == {"c": 4}


def test_chunks_of_cached_prompts_are_whole_blocks(v0):
    """Budget 8, a decodes 1: the 7 left count as 4."""
    w = v0(max_batched_tokens=8, chunked_prefill=True, prefix_caching=True)
    w.add("a", 2, 9)
    w.step()
    w.add("b", 10, 1)
    assert w.scheduled(3) == [{"a": 1, "b": 4}, {"a": 1, "b": 4}, {"a": 1, "b": 2}]


def test_chunks_and_caching_want_a_budget_of_whole_blocks(v0):
    with pytest.raises(RidgelineError, match="max_batched_tokens, 10, is not a multiple of block_tokens, 4"):
        v0(max_batched_tokens=10, chunked_prefill=True, prefix_caching=True)


def test_chunked_the_longest_request_leaves_a_block_to_go_on(v0):
    assert v0(usable=3, chunked_prefill=True).engine.longest_request_tokens() == 9
    assert v0(usable=300, chunked_prefill=True, watermark=0.01).engine.longest_request_tokens() == 297 * 4 + 1


def test_an_aborted_request_frees_all_it_holds(v0):
    w = v0(max_sequences=1)
    a, b = w.add("a", 9, 5), w.add("b", 9, 5)
    w.step()
    w.engine.abort(b)
    w.engine.abort(a)
    assert (w.engine.kv_blocks_used, w.engine.unfinished, a.status, b.status) == (
        0,
        0,
        Status.ABORTED,
        Status.ABORTED,
    )


def test_a_request_aborted_within_its_step_gets_nothing_from_it(v0):
    w = v0()
    a = w.add("a", 9, 5)
    plan = w.engine.schedule()
    w.engine.abort(a)
    assert w.engine.complete(plan).emitted == []
    assert w.engine.kv_blocks_used == 0
