"""SGLang worlds small enough to work out by hand: pages of one token, 100 of them, no prefix cache, no overlap."""

import pytest

from sim.engine.request import Status
from sim.errors import RidgelineError


def test_prefill_goes_first_and_decodes_wait(sglang):
    """b arrives while a decodes: its prefill is a step of its own, then both decode."""
    w = sglang()
    w.add("a", 4, 9)
    w.step()
    w.step()
    w.add("b", 3, 9)
    logs = w.steps(2)
    assert [log.scheduled for log in logs] == [{"b": 3}, {"a": 1, "b": 1}]
    assert [log.emitted for log in logs] == [["b"], ["a", "b"]]


def test_every_arrival_stalls_those_that_decode(sglang):
    w = sglang()
    a = w.add("a", 4, 9)
    w.step()
    for name in "bcd":
        w.add(name, 2, 2)
        w.step()
    assert a.emitted_tokens == 1
    assert w.scheduled(1) == [{"a": 1, "b": 1, "c": 1, "d": 1}]


def test_a_long_prompt_is_cut_and_its_last_chunk_samples(sglang):
    w = sglang(max_batched_tokens=8)
    w.add("a", 20, 2)
    logs = w.drain()
    assert [log.scheduled["a"] for log in logs] == [8, 8, 4, 1]
    assert [log.emitted for log in logs] == [[], [], ["a"], ["a"]]


def test_decodes_wait_for_all_chunks(sglang):
    w = sglang(max_batched_tokens=8)
    w.add("a", 2, 9)
    w.step()
    w.add("b", 20, 9)
    assert w.scheduled(4) == [{"b": 8}, {"b": 8}, {"b": 4}, {"a": 1, "b": 1}]


def test_the_last_chunk_shares_its_batch_and_the_next_prompt_is_cut(sglang):
    """a leaves 4 of the 8 tokens of its third batch: 4 of b's 6. The unfinished b goes first, then 6 of c's 7."""
    w = sglang(max_batched_tokens=8)
    w.add("a", 20, 2)
    w.add("b", 6, 2)
    w.add("c", 7, 2)
    assert w.scheduled(5) == [{"a": 8}, {"a": 8}, {"a": 4, "b": 4}, {"b": 2, "c": 6}, {"c": 1}]


def test_without_chunks_the_first_prompt_may_exceed_the_budget_and_the_next_may_not(sglang):
    """max_prefill_tokens 10: a's 12 are taken alone. Then b's 6 leave 4, which c's 4 would use up: it waits."""
    w = sglang(chunked_prefill=False, max_prefill_tokens=10, max_batched_tokens=3)
    w.add("a", 12, 2)
    w.add("b", 6, 2)
    w.add("c", 4, 2)
    assert w.scheduled(4) == [{"a": 12}, {"b": 6}, {"c": 4}, {"a": 1, "b": 1, "c": 1}]


def test_max_prefill_tokens_ends_a_batch_that_has_exceeded_it(sglang):
    """10 tokens: a leaves 4, b takes them and 2 more, c waits."""
    w = sglang(max_prefill_tokens=10)
    for name in "abc":
        w.add(name, 6, 2)
    assert w.scheduled(2) == [{"a": 6, "b": 6}, {"c": 6}]


def test_mixed_chunks_let_the_running_decode_along(sglang):
    """One decode leaves 7 of the 8 tokens to b: 7 + 7 + 6; the decode adds one token to each of these steps."""
    w = sglang(max_batched_tokens=8, mixed_chunk=True)
    w.add("a", 2, 9)
    w.step()
    w.add("b", 20, 9)
    assert w.scheduled(4) == [{"b": 7, "a": 1}, {"b": 7, "a": 1}, {"b": 6, "a": 1}, {"b": 1, "a": 1}]


def test_decodes_that_use_up_the_pool_of_a_prompt_in_chunks_give_way_to_it(sglang):
    """Each mixed step takes 2 pages of 28 for b and 1 for a. After 7 steps 4 + 7 + 14 leave 3, of which one is a's and
    the rest, less what is expected of a, gives b one; then b takes the last page, and a sits out.

    Now neither can go on, so a is retracted with 9 tokens, and b prefills the 4 that are left of its 20.
    """
    w = sglang(pool=28, max_batched_tokens=3, mixed_chunk=True, schedule_conservativeness=0.01)
    w.add("a", 4, 20)
    w.steps(2)
    w.add("b", 20, 1)
    logs = w.steps(12)
    short = [{"b": 1, "a": 1}, {"b": 1}, {}]
    assert [log.scheduled for log in logs] == [{"b": 2, "a": 1}] * 7 + short + [{"b": 3}, {"b": 1}]
    assert [log.preempted for log in logs] == [[]] * 9 + [["a"], [], []]
    assert logs[11].finished == ["b"]
    assert w.step().scheduled == {"a": 3}


def test_admission_counts_all_that_a_candidate_may_generate(sglang):
    """Of 100 tokens a takes 20 + 40 and a page of 1. b's 9 + 28 + 1 are less than the 39 left, 10 + 28 + 1 are not."""
    for prompt, expected in ((9, {"a": 20, "b": 9}), (10, {"a": 20})):
        w = sglang()
        w.add("a", 20, 40)
        w.add("b", prompt, 28)
        assert w.step().scheduled == expected


def test_admission_counts_a_share_of_what_the_running_may_generate(sglang):
    """Beside 20 + 40 + 1 and 10 + 20 + 1 there is no room for c's 2 + 9 + 1. One step later the pool has 100 - 30
    left, of which 0.7 x (39 + 19) = 40.6 are expected to be generated: c fits the other 29.4.
    """
    w = sglang()
    w.add("a", 20, 40)
    w.add("b", 10, 20)
    w.add("c", 2, 9)
    assert w.scheduled(3) == [{"a": 20, "b": 10}, {"c": 2}, {"a": 1, "b": 1, "c": 1}]


def test_after_a_refusal_nothing_is_tried_until_somebody_leaves(sglang):
    """At twice the conservativeness the share is 1: 70 - 58 are left, and c needs 12 of them and one more.

    After the next decode 68 are left and 56 x (1 - 0.86 / 600) = 55.9 expected: c would fit, but is not tried before b
    has its 20 tokens, one from the first step and 19 from the steps 2 to 20.
    """
    w = sglang(schedule_conservativeness=2.0)
    w.add("a", 20, 40)
    w.add("b", 10, 20)
    w.add("c", 2, 9)
    logs = w.steps(21)
    assert [step for step, log in enumerate(logs, 1) if "c" in log.scheduled] == [21]
    assert logs[19].finished == ["b"]
    assert logs[20].scheduled == {"c": 2}


def test_known_lengths_are_counted_in_full(sglang):
    """As above at a share of 0.7, but nobody stops early: 70 - 58 = 12 are left, and c waits."""
    w = sglang(ignore_eos=True, prefix_caching=True)
    w.add("a", 20, 40)
    w.add("b", 10, 20)
    w.add("c", 2, 9)
    assert w.scheduled(2) == [{"a": 20, "b": 10}, {"a": 1, "b": 1}]


def test_known_lengths_without_a_cache_are_played_through(sglang):
    """A pool of 60: a takes 20 + 1 (and 10 to come). b, 20 + 10, fits: 60 - 21 - 21 = 18 are free, and when both end,
    10 tokens from now, 18 - 2 x 10 < 0 would be: it does not. With 7 to come each, 18 - 14 = 4 is more than one each.
    """
    for output, expected in ((10, {"a": 20}), (7, {"a": 20, "b": 20})):
        w = sglang(pool=60, ignore_eos=True)
        w.add("a", 20, output)
        w.add("b", 20, output)
        assert w.step().scheduled == expected


def test_the_expected_share_falls_with_every_decode_and_is_reset_when_idle(sglang):
    """From 0.7 by (0.7 - 0.098) / 600 per decode; two decodes make a's three tokens."""
    w = sglang()
    w.add("a", 4, 3)
    w.drain()
    ratio = w.engine.running.ratio
    assert ratio.current == pytest.approx(0.7 - 2 * 0.602 / 600)
    w.step()
    assert ratio.current == 0.7
    for _ in range(700):
        ratio.decay()
    assert ratio.current == pytest.approx(0.098)


def overcommitted(sglang, **settings):
    """Three requests in a pool of 80, admitted at an expected share of 0.07, one per step.

    b: 5 + 60 + 1 < 74 - 0.07 x 59; c: 4 + 30 + 1 < 69 - 0.07 x 118. They hold 15 pages of 80 and take 3 per step.
    """
    w = sglang(pool=80, schedule_conservativeness=0.1, **settings)
    for name, prompt, output in (("a", 6, 60), ("b", 5, 60), ("c", 4, 30)):
        w.add(name, prompt, output)
        w.step()
    return w


def test_the_longest_prompt_of_equals_is_retracted(sglang):
    """65 free pages last for 21 steps, and two are left. a gives back 6 + 21, and goes behind d, which is too long.

    The share becomes (22 + 22 + 2 x 20) / (60 + 30 + 1), and the rest decodes in the order that was sorted.
    """
    w = overcommitted(sglang)
    w.add("d", 60, 1)
    logs = w.steps(21)
    assert not any(log.preempted for log in logs)
    log = w.step()
    assert (log.preempted, list(log.scheduled)) == (["a"], ["c", "b"])
    assert w.engine.running.ratio.current == pytest.approx(84 / 91)
    assert [request.request_id for request in w.engine.waiting.requests] == ["d", "a"]
    assert w.engine.kv_blocks_used == 5 + 4 + 2 * 22


def test_the_fewest_tokens_are_retracted_first(sglang):
    """c has the fewest when it starts 10 steps later: 69 - 20 pages are left before its 4, then 3 go per step.

    After 15 steps none is left: c (16 tokens of output; the others have 27 and 26) gives back 4 + 15.
    """
    w = sglang(pool=80, schedule_conservativeness=0.1)
    w.add("a", 6, 60)
    w.step()
    w.add("b", 5, 60)
    w.steps(11)
    w.add("c", 4, 30)
    w.step()
    assert w.engine.kv_blocks_used == 11 + 20 + 4
    logs = w.steps(16)
    assert [log.preempted for log in logs] == [[]] * 15 + [["c"]]
    assert logs[15].scheduled == {"a": 1, "b": 1}
    assert w.engine.kv_blocks_used == 31 + 2 * 15 + 2


def test_a_retracted_request_recomputes_prompt_and_output(sglang):
    """b is retracted with its 22 tokens, and comes back with 6 + 22 when there is room for them and all it may add."""
    w = overcommitted(sglang)
    w.steps(22)
    a = w.engine.waiting.requests[0]
    assert (a.status, a.computed_tokens, a.emitted_tokens) == (Status.PREEMPTED, 0, 22)
    logs = []
    while "a" not in (log := w.step()).scheduled:
        logs.append(log)
    assert log.scheduled == {"a": 28}
    assert [resumed for _, _, resumed in w.plan.admitted] == [True]
    w.drain()
    assert a.emitted_tokens == 60


def test_a_retraction_opens_the_queue_again(sglang):
    """d is refused in the first step, which closes the queue. The 22nd step retracts; the next looks, and refuses d."""
    w = overcommitted(sglang)
    w.add("d", 60, 1)
    full = [(w.step(), w.engine.running.full)[1] for _ in range(23)]
    assert full == [True] * 21 + [False, True]


def test_answers_are_capped_to_what_the_empty_pool_gives(sglang):
    """Pages of 4, 10 of them: 6 prompt tokens take 2 pages, one page and one token are kept: 40 - 8 - 4 - 1 = 27."""
    w = sglang(pool=10, block_tokens=4)
    a = w.add("a", 6, 60)
    w.drain()
    assert a.emitted_tokens == 27


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("known", "caching"), [(False, False), (False, True), (True, False), (True, True)])
def test_the_longest_request_runs_to_its_end(sglang, page, overlap, known, caching):
    """Where answers are known and nothing is cached, releases are played through, with a token per request to spare."""
    how = {"pool": 40 // page, "block_tokens": page, "ignore_eos": known, "prefix_caching": caching}
    longest = sglang(**how).engine.longest_request_tokens()
    assert longest == 40 - 2 * page - (known and not caching)
    for prompt in range(1, longest):
        w = sglang(**how, async_scheduling=overlap)
        a = w.add("a", prompt, longest - prompt)
        w.drain()
        assert a.emitted_tokens == longest - prompt


def test_one_token_more_would_wait_for_ever(sglang):
    """Pages of 1: a prompt of 2 takes 2 and one more of 5. Of two left its token takes one; more than one must stay."""
    for known, waits in ((False, False), (True, True)):
        w = sglang(pool=5, ignore_eos=known, prefix_caching=False)
        w.add("a", 2, 1)
        assert (not w.step().scheduled) == waits


def test_pages_of_several_tokens_are_reserved_whole(sglang):
    """10 pages of 4. a: two pages, one more, 10 to come: 22 of 40. b: 5 + 8 + 4 < 18, and 5 + 9 + 4 does not fit."""
    for output, expected in ((8, {"a": 5, "b": 5}), (9, {"a": 5})):
        w = sglang(pool=10, block_tokens=4)
        w.add("a", 5, 10)
        w.add("b", 5, output)
        assert w.step().scheduled == expected


def test_a_cut_ends_with_a_page(sglang):
    """Pages of 4 and a budget of 10: the first cut is 8; what goes on takes the whole 10, then 2."""
    w = sglang(pool=30, block_tokens=4, max_batched_tokens=10)
    w.add("a", 20, 1)
    assert w.scheduled(3) == [{"a": 8}, {"a": 10}, {"a": 2}]


def test_a_decode_needs_a_page_only_where_one_is_full(sglang):
    """3 tokens of 4 are in the page: the first decode fills it, the second takes the next."""
    w = sglang(pool=10, block_tokens=4)
    w.add("a", 3, 4)
    used = [(w.step(), w.engine.kv_blocks_used)[1] for _ in range(4)]
    assert used == [1, 1, 2, 0]


def test_the_inbox_is_read_every_so_many_decodes(sglang):
    """Of every 3 decodes the third looks. After a prefill, and when nothing runs, the next step looks."""
    w = sglang(recv_interval=3)
    w.add("a", 4, 30)
    w.steps(2)
    w.add("b", 3, 2)
    assert w.scheduled(4) == [{"a": 1}, {"a": 1}, {"b": 3}, {"a": 1, "b": 1}]
    w.add("c", 3, 2)
    assert w.scheduled(3) == [{"a": 1}, {"a": 1}, {"c": 3}]
    w.add("d", 3, 2)
    assert w.scheduled(1) == [{"d": 3}]
    w.drain()
    w.add("e", 3, 1)
    assert w.scheduled(1) == [{"e": 3}]


def test_who_waits_in_the_inbox_counts_as_waiting_and_can_give_up(sglang):
    w = sglang(recv_interval=30)
    w.add("a", 4, 9)
    w.steps(2)
    b = w.add("b", 3, 2)
    w.step()
    assert (w.engine.waiting_count, w.engine.running_count) == (1, 1)
    w.engine.abort(b)
    assert (w.engine.waiting_count, b.status) == (0, Status.ABORTED)


def test_an_aborted_request_frees_all_it_holds(sglang):
    """a decodes, b is cut, c waits."""
    w = sglang(max_batched_tokens=8)
    a = w.add("a", 4, 9)
    w.step()
    b, c = w.add("b", 20, 5), w.add("c", 4, 5)
    w.step()
    assert w.engine.chunked is b
    for request in (c, b, a):
        w.engine.abort(request)
    assert (w.engine.unfinished, w.engine.kv_blocks_used, w.engine.chunked) == (0, 0, None)
    assert w.step().scheduled == {}


def test_settings_that_sglang_refuses(sglang):
    with pytest.raises(RidgelineError, match="no schedule policy 'edf'"):
        sglang(policy="edf")
    with pytest.raises(RidgelineError, match="priority preemption needs priorities"):
        sglang(priority_preemption=True)
    with pytest.raises(RidgelineError, match="needs prefix caching"):
        sglang(policy="shortest-prefill-first")
