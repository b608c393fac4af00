"""Asynchronous scheduling: a step is planned before the tokens of the one before are known."""

from sim.engine.request import Status


def test_a_finished_request_leaves_one_step_late(world):
    """Synchronously b follows at once; asynchronously a's end is seen only after the next step was planned."""
    scheduled = {}
    for asynchronous in (False, True):
        w = world(max_sequences=1, async_scheduling=asynchronous)
        w.add("a", 4, 2)
        w.add("b", 4, 1)
        scheduled[asynchronous] = w.scheduled(4)
    assert scheduled[False] == [{"a": 4}, {"a": 1}, {"b": 4}, {}]
    assert scheduled[True] == [{"a": 4}, {"a": 1}, {}, {"b": 4}]


def test_decoding_goes_on_while_the_newest_token_is_in_flight(world):
    w = world(async_scheduling=True)
    w.add("a", 4, 4)
    logs = w.drain()
    assert [log.scheduled for log in logs] == [{"a": 4}, {"a": 1}, {"a": 1}, {"a": 1}, {}]
    assert [log.emitted for log in logs] == [[], ["a"], ["a"], ["a"], ["a"]]


def test_a_stop_that_is_not_known_wastes_one_token(world):
    """It stops by itself after 2 of at most 50: the third step was planned already."""
    w = world(async_scheduling=True)
    a = w.add("a", 4, 2, max_output_tokens=50)
    logs = w.drain()
    assert [log.scheduled for log in logs] == [{"a": 4}, {"a": 1}, {"a": 1}]
    assert a.emitted_tokens == 2
    assert w.step().emitted == []
    assert w.engine.kv_blocks_used == 0


def test_a_known_end_wastes_nothing_at_max_model_len_either(world):
    w = world(async_scheduling=True, max_model_len=6)
    a = w.add("a", 4, 50)
    assert [log.scheduled for log in w.drain()] == [{"a": 4}, {"a": 1}, {}]
    assert a.emitted_tokens == 2


def test_a_preempted_request_still_receives_the_token_in_flight(world):
    w = world(async_scheduling=True, usable=4)
    w.add("a", 7, 6)
    b = w.add("b", 7, 6)
    w.steps(2)
    log = w.step()
    assert (log.preempted, log.scheduled, log.emitted) == (["b"], {"a": 1}, ["a", "b"])
    assert (b.status, b.emitted_tokens) == (Status.PREEMPTED, 2)


def test_what_is_in_flight_for_an_aborted_request_is_dropped(world):
    w = world(async_scheduling=True)
    a = w.add("a", 4, 9)
    w.step()
    w.engine.abort(a)
    assert w.step().emitted == []
    assert (w.engine.unfinished, w.engine.kv_blocks_used) == (0, 0)


def test_blocks_of_an_answer_are_cached_when_its_tokens_are_known(world):
    """a's eighth token is computed in the fifth step, which does not know its value yet; the sixth does."""
    hits = []
    for before in (4, 5):
        w = world(async_scheduling=True, prefix_caching=True)
        w.add("a", [("s", 4)], 20)
        w.steps(before)
        w.add("b", [("s", 4), ("o:a", 20)], 1)
        hits.append(w.step().cached["b"])
    assert hits == [4, 8]


def test_the_last_block_of_an_answer_is_cached_though_no_step_follows(world):
    """4 + 5 tokens, of which 8 are computed: the second block is full when a ends."""
    w = world(async_scheduling=True, prefix_caching=True)
    w.add("a", [("s", 4)], 5)
    w.drain()
    w.add("b", [("s", 4), ("o:a", 5)], 1)
    assert w.step().cached == {"b": 8}
