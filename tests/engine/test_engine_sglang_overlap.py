"""SGLang's overlap schedule: a step is planned before the tokens of the one before are known."""

from sim.engine.request import Status


def test_decoding_goes_on_while_the_newest_token_is_in_flight(sglang):
    w = sglang(async_scheduling=True)
    w.add("a", 4, 4)
    logs = w.drain()
    assert [log.scheduled for log in logs] == [{"a": 4}, {"a": 1}, {"a": 1}, {"a": 1}, {}]
    assert [log.emitted for log in logs] == [[], ["a"], ["a"], ["a"], ["a"]]


def test_a_finished_request_leaves_one_step_late(sglang):
    """Synchronously b follows at once; with overlap a's end is seen only after the next step was planned."""
    scheduled = {}
    for overlap in (False, True):
        w = sglang(max_sequences=1, async_scheduling=overlap)
        w.add("a", 4, 2)
        w.add("b", 4, 1)
        scheduled[overlap] = w.scheduled(4)
    assert scheduled[False] == [{"a": 4}, {"a": 1}, {"b": 4}, {}]
    assert scheduled[True] == [{"a": 4}, {"a": 1}, {}, {"b": 4}]


def test_a_stop_that_is_not_known_wastes_one_token(sglang):
    """It stops by itself after 2 of at most 50: the third step was planned already, and its page was taken."""
    w = sglang(async_scheduling=True)
    a = w.add("a", 4, 2, max_output_tokens=50)
    assert w.scheduled(2) == [{"a": 4}, {"a": 1}]
    assert w.step().scheduled == {"a": 1}
    assert (a.status, a.emitted_tokens, w.engine.kv_blocks_used) == (Status.FINISHED, 2, 0)
    assert (w.step().emitted, w.engine.unfinished) == ([], 0)


def test_what_was_computed_beyond_a_stop_is_cached_as_far_as_it_is_known(sglang):
    """Of a's 4 + 2 tokens the last was computed by the wasted step; when its length is known, it is not."""
    for cap, hit in ((2, 5), (50, 6)):
        w = sglang(async_scheduling=True, prefix_caching=True)
        w.add("a", [("s", 4)], 2, max_output_tokens=cap)
        w.drain()
        w.add("b", [("s", 4), ("o:a", 2), ("u", 3)], 1)
        logs = w.drain()
        assert [log.cached for log in logs if log.cached] == [{"b": hit}]


def test_decodes_begin_while_their_prefill_is_in_flight(sglang):
    """a has not sampled when its first decode is planned; chunks follow one another in the same way."""
    w = sglang(async_scheduling=True, max_batched_tokens=4)
    w.add("a", 6, 3)
    logs = w.steps(4)
    assert [log.scheduled for log in logs] == [{"a": 4}, {"a": 2}, {"a": 1}, {"a": 1}]
    assert [log.emitted for log in logs] == [[], [], ["a"], ["a"]]


def short_of_pages(sglang, output, cap):
    """a and b fill a pool of 19: 4 + 5 in their prefills, and 10 in five decode steps, the last of which is in flight.

    Of both five tokens are known then.
    """
    w = sglang(pool=19, async_scheduling=True, schedule_conservativeness=0.01)
    a = w.add("a", 4, output, max_output_tokens=cap)
    w.step()
    b = w.add("b", 5, 8)
    assert w.scheduled(6) == [{"b": 5}] + [{"a": 1, "b": 1}] * 5
    assert (w.engine.kv_blocks_used, a.emitted_tokens, b.emitted_tokens) == (19, 5, 5)
    return w, b


def test_a_token_in_flight_of_a_retracted_request_is_dropped(sglang):
    """b has the longer prompt, and loses its sixth token. It comes back with 5 + 5 when a is seen to have its seven."""
    w, b = short_of_pages(sglang, output=7, cap=10)
    log = w.step()
    assert (log.preempted, log.scheduled, log.emitted) == (["b"], {"a": 1}, ["a"])
    assert b.emitted_tokens == 5
    logs = w.steps(2)
    assert [(log.scheduled, log.finished) for log in logs] == [({"a": 1}, ["a"]), ({"b": 10}, [])]
    w.drain()
    assert b.emitted_tokens == 8


def test_nobody_is_retracted_when_the_step_in_flight_frees_pages(sglang):
    """a's sixth token is its last: b, for whom no page is left, sits out one step instead."""
    w, _ = short_of_pages(sglang, output=6, cap=6)
    logs = w.drain()
    assert [log.scheduled for log in logs[:2]] == [{}, {"b": 1}]
    assert not any(log.preempted for log in logs)


def test_what_is_in_flight_for_an_aborted_request_is_dropped(sglang):
    w = sglang(async_scheduling=True)
    a = w.add("a", 4, 9)
    w.step()
    w.engine.abort(a)
    assert w.step().emitted == []
    assert (w.engine.unfinished, w.engine.kv_blocks_used) == (0, 0)


def test_the_inbox_is_read_when_the_last_step_in_flight_is_done(sglang):
    """Nothing runs after a's end: b need not wait for ten more steps."""
    w = sglang(async_scheduling=True, recv_interval=10)
    w.add("a", 4, 3)
    w.steps(3)
    w.add("b", 3, 1)
    assert w.scheduled(2) == [{}, {"b": 3}]
