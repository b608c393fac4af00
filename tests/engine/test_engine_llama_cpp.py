"""llama.cpp's server in worlds small enough to work out by hand. Unused slots are taken from the last to the first."""

import pytest

from sim.engine.llama_cpp import LlamaCpp
from sim.engine.settings import EngineSettings
from sim.work import PrefillChunk


@pytest.fixture
def llama(world, small):
    def build(slots=2, windows=(), similarity=0.1, **settings):
        chosen = {**small, "max_sequences": slots, **settings}
        return world.of(LlamaCpp(EngineSettings(**chosen), windows, slot_prompt_similarity=similarity))

    return build


def test_one_slot_is_a_single_stream(llama):
    w = llama(slots=1)
    w.add("a", 5, 2)
    w.add("b", 5, 2)
    assert w.scheduled(4) == [{"a": 5}, {"a": 1}, {"b": 5}, {"b": 1}]


def test_a_request_waits_for_a_free_slot_first_come_first_served(llama):
    """a ends in step 1; its slot is c's in step 2, d's when c ends too."""
    w = llama()
    w.add("a", 2, 1)
    w.add("b", 2, 4)
    w.add("c", 2, 1)
    w.add("d", 2, 1)
    logs = w.steps(3)
    assert [log.scheduled for log in logs] == [{"b": 2, "a": 2}, {"b": 1, "c": 2}, {"b": 1, "d": 2}]
    assert [list(log.cached) for log in logs] == [["a", "b"], ["c"], ["d"]]


def test_generating_slots_come_before_prompts_whatever_their_order(llama):
    """Batch of 8: a is in the last slot, b in the first. Beside a's token b gets 7, 7 and its last 6."""
    w = llama(max_batched_tokens=8)
    w.add("a", 4, 9)
    w.step()
    w.add("b", 20, 2)
    logs = w.steps(4)
    assert [log.scheduled for log in logs] == [{"a": 1, "b": 7}, {"a": 1, "b": 7}, {"a": 1, "b": 6}, {"a": 1, "b": 1}]
    assert [list(log.scheduled) for log in logs] == [["a", "b"], ["a", "b"], ["a", "b"], ["b", "a"]]
    assert [log.emitted for log in logs] == [["a"], ["a"], ["a", "b"], ["b", "a"]]


def test_prompts_share_the_batch_in_the_order_of_the_slots(llama):
    """a came first, but b's slot does: b 6 and a 2 fill the batch of 8, then b's token leaves a 7 and its last 3."""
    w = llama(max_batched_tokens=8)
    w.add("a", 12, 1)
    w.add("b", 6, 5)
    assert w.scheduled(4) == [{"b": 6, "a": 2}, {"b": 1, "a": 7}, {"b": 1, "a": 3}, {"b": 1}]


def test_a_slot_may_wait_for_the_batch(llama):
    """Batch of 2: both tokens are c's and b's, so a holds its slot without a token until one of them ends."""
    w = llama(slots=3, max_batched_tokens=2)
    for name, output in (("a", 1), ("b", 3), ("c", 3)):
        w.add(name, 1, output)
    logs = w.steps(4)
    assert [log.scheduled for log in logs] == [{"c": 1, "b": 1}, {"c": 1, "b": 1}, {"c": 1, "b": 1}, {"a": 1}]
    assert list(logs[0].cached) == ["a", "b", "c"]


def test_generation_ends_where_the_context_of_the_slot_does(llama):
    w = llama(max_model_len=10)
    a = w.add("a", 7, 50)
    w.drain()
    assert (a.emitted_tokens, w.engine.longest_request_tokens()) == (3, 10)


def test_the_cache_is_divided_evenly_and_held_whole(llama):
    """7 blocks of 4 in 2 slots: 3 each, 12 tokens. A request of 2 tokens holds its slot's 3 blocks."""
    w = llama(kv_blocks=7)
    assert w.engine.longest_request_tokens() == 12
    w.add("a", 2, 50)
    b = w.add("b", 2, 1)
    used = [w.engine.kv_blocks_used, *((w.step(), w.engine.kv_blocks_used)[1] for _ in range(2))]
    assert (used, b.emitted_tokens) == ([0, 3, 3], 1)
    logs = w.drain()
    assert 2 + len(logs) == 10, "a ends with the tenth token behind its prompt of 2"
    assert w.engine.kv_blocks_used == 0


def test_nothing_is_reused_with_prompt_caching_off(llama):
    w = llama(slots=1)
    w.add("a", [("s", 8)], 1)
    w.add("b", [("s", 8)], 1)
    assert [log.cached for log in w.steps(2)] == [{"a": 0}, {"b": 0}]
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (0, 0)


def test_a_slot_goes_on_from_the_common_beginning_token_by_token(llama):
    w = llama(slots=1, prefix_caching=True)
    w.add("a", [("s", 7), ("u", 3)], 2)
    w.add("b", [("s", 7), ("v", 3)], 1)
    logs = w.steps(3)
    assert (logs[2].cached, logs[2].scheduled) == ({"b": 7}, {"b": 3})
    assert w.plan.work.chunks == (PrefillChunk(3, 7),)
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (20, 7)


def test_the_last_token_of_a_known_prompt_is_computed_anew(llama):
    w = llama(slots=1, prefix_caching=True)
    w.add("a", [("s", 5)], 1)
    w.add("b", [("s", 5)], 1)
    logs = w.steps(2)
    assert [log.scheduled for log in logs] == [{"a": 5}, {"b": 1}]
    assert (logs[1].cached, logs[1].finished) == ({"b": 4}, ["b"])


def test_a_conversation_goes_on_from_its_answer_but_for_the_last_token(llama):
    """Of a's 4 + 3 tokens the last was sampled and never computed: 6 are there, and 1 + 2 are left."""
    w = llama(slots=1, prefix_caching=True)
    w.add("a", [("s", 4)], 3)
    w.drain()
    w.add("b", [("s", 4), ("o:a", 3), ("u", 2)], 1)
    log = w.step()
    assert (log.cached, log.scheduled) == ({"b": 6}, {"b": 3})


def test_the_same_words_at_another_place_are_not_common(llama):
    """Both prompts go on with u, one after 6 tokens of s, the other after 4."""
    w = llama(slots=1, prefix_caching=True)
    w.add("a", [("s", 6), ("u", 3)], 1)
    w.add("b", [("s", 4), ("u", 3)], 1)
    assert [log.cached for log in w.steps(2)] == [{"a": 0}, {"b": 4}]


def test_a_slot_forgets_what_its_next_request_overwrites(llama):
    """After b only 3 tokens of s are left: c finds those."""
    w = llama(slots=1, prefix_caching=True)
    w.add("a", [("s", 9)], 1)
    w.add("b", [("s", 3), ("u", 2)], 1)
    w.add("c", [("s", 9)], 1)
    assert [log.cached for log in w.steps(3)] == [{"a": 0}, {"b": 3}, {"c": 3}]


@pytest.mark.parametrize(("similarity", "cached"), [(0.1, 0), (0.01, 1)])
def test_a_similar_slot_is_preferred_and_else_the_least_recently_used(llama, similarity, cached):
    """a left s in the last slot, b left t in the first, and ended before a: the first slot is the least recently used.

    c shares 10 of 11 tokens with the last slot, and gets it. d shares 1 of 21 with it: too little by a tenth of the
    prompt, enough by a hundredth.
    """
    w = llama(prefix_caching=True, similarity=similarity)
    w.add("a", [("s", 10)], 1)
    w.add("b", [("t", 10)], 1)
    w.step()
    w.add("c", [("s", 10), ("u", 1)], 1)
    assert w.step().cached == {"c": 10}
    w.add("d", [("s", 1), ("v", 20)], 1)
    assert w.step().cached == {"d": cached}


def test_any_common_beginning_is_reused_in_the_slot_that_is_taken(llama):
    """One slot: 1 of 21 tokens does not make it similar, but it is the one there is."""
    w = llama(slots=1, prefix_caching=True)
    w.add("a", [("s", 10)], 1)
    w.add("d", [("s", 1), ("v", 20)], 1)
    assert [log.cached for log in w.steps(2)] == [{"a": 0}, {"d": 1}]


def test_a_busy_slot_cannot_be_chosen(llama):
    """a still generates in the slot that knows s: b gets the other one and computes all."""
    w = llama(prefix_caching=True)
    w.add("a", [("s", 8)], 9)
    w.step()
    w.add("b", [("s", 8)], 1)
    assert w.step().cached == {"b": 0}


def test_an_aborted_request_leaves_its_slot_and_its_tokens(llama):
    """After two chunks of 4 a is given up: the slot knows 8 tokens of s."""
    w = llama(slots=1, prefix_caching=True, max_batched_tokens=4)
    a = w.add("a", [("s", 20)], 5)
    b = w.add("b", [("t", 3)], 5)
    w.steps(2)
    w.engine.abort(a)
    w.engine.abort(b)
    assert (w.engine.unfinished, w.engine.kv_blocks_used) == (0, 0)
    w.add("c", [("s", 20)], 1)
    assert w.step().cached == {"c": 8}


def test_the_work_of_a_step(llama):
    """A token at context 7, of which a window of 4 sees 4, beside the first chunk of a prompt."""
    w = llama(windows=(4,), max_batched_tokens=8)
    w.add("a", 6, 5)
    w.step()
    w.add("b", 20, 5)
    w.step()
    work = w.plan.work
    assert (work.decode_sequences, work.decode_context_tokens, work.decode_window_tokens) == (1, 7, (4,))
    assert (work.chunks, work.sampled_sequences) == ((PrefillChunk(7, 0),), 1)
