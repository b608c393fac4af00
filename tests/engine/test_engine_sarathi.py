"""Sarathi-Serve in worlds small enough to work out by hand: blocks of 4 tokens, no watermark unless a test sets one."""

from sim.engine.sarathi import Sarathi, SarathiSettings
from sim.work import PrefillChunk


def test_its_own_defaults():
    chosen = SarathiSettings(max_sequences=128, max_model_len=2048)
    assert (chosen.max_batched_tokens, chosen.watermark, chosen.prefix_caching) == (512, 0.01, False)
    assert Sarathi(SarathiSettings(max_sequences=1, max_model_len=64, kv_blocks=200)).longest_request_tokens() == 3169


def test_decodes_go_first_and_prompts_fill_the_chunk(sarathi):
    """Budget 8: beside a's decode b gets 7, 7 and its last 6, which leaves 1 for c; then c gets its other 2."""
    w = sarathi(max_batched_tokens=8)
    w.add("a", 4, 9)
    assert w.step().scheduled == {"a": 4}
    w.add("b", 20, 2)
    w.add("c", 3, 2)
    logs = w.steps(5)
    assert [log.scheduled for log in logs] == [
        {"a": 1, "b": 7},
        {"a": 1, "b": 7},
        {"a": 1, "b": 6, "c": 1},
        {"a": 1, "b": 1, "c": 2},
        {"a": 1, "c": 1},
    ]
    assert [log.emitted for log in logs] == [["a"], ["a"], ["a", "b"], ["a", "b", "c"], ["a", "c"]]


def test_a_prompt_in_progress_goes_before_new_ones(sarathi):
    """c's single token waits for b's 10, though it would fit any step."""
    w = sarathi(max_batched_tokens=4)
    w.add("b", 10, 1)
    w.add("c", 1, 1)
    assert w.scheduled(3) == [{"b": 4}, {"b": 4}, {"b": 2, "c": 1}]


def test_decodes_that_fill_the_budget_leave_prompts_nothing(sarathi):
    """Budget 2: c is admitted when a has ended, with one token beside b's last."""
    w = sarathi(max_batched_tokens=2)
    w.add("a", 1, 4)
    w.add("b", 1, 5)
    w.add("c", 2, 1)
    assert w.scheduled(6) == [*[{"a": 1, "b": 1}] * 4, {"b": 1, "c": 1}, {"c": 1}]


def test_a_prompt_takes_all_its_blocks_at_admission(sarathi):
    """After its first chunk of 4 a holds 4 of 5 blocks. b's first chunk would need one, its 5 tokens need two."""
    w = sarathi(usable=5, max_batched_tokens=5)
    w.add("a", 16, 1)
    w.add("b", 5, 1)
    w.step()
    assert w.engine.kv_blocks_used == 4
    assert w.scheduled(4) == [{"a": 5}, {"a": 5}, {"a": 1}, {"b": 5}]


def test_the_watermark_holds_for_admission_and_not_for_decodes(sarathi):
    """int(0.2 x 10) = 2 blocks: a and b take 4 each, c's one would leave 1. a and b decode into the last two."""
    w = sarathi(usable=10, watermark=0.2)
    for name, prompt in (("a", 16), ("b", 16), ("c", 1)):
        w.add(name, prompt, 2)
    assert w.scheduled(1) == [{"a": 16, "b": 16}]
    plan = w.engine.schedule()
    assert [(request.request_id, tokens) for request, tokens in plan.scheduled] == [("a", 1), ("b", 1)]
    assert w.engine.kv_blocks_used == 10


def test_the_last_running_request_gives_way_even_within_its_prompt(sarathi):
    """5 blocks: a's 2 and b's 3 take all. a's decode wants a free one, so b, 1 token into its prompt, starts over.

    b needs its 3 blocks at once: they are free again when a ends with its fifth token, in step 5.
    """
    w = sarathi(usable=5, max_batched_tokens=8)
    w.add("a", 7, 5)
    w.add("b", 12, 1)
    assert w.step().scheduled == {"a": 7, "b": 1}
    log = w.step()
    assert (log.scheduled, log.preempted, w.waiting) == ({"a": 1}, ["b"], ["b"])
    logs = w.steps(5)
    assert [log.scheduled for log in logs] == [{"a": 1}, {"a": 1}, {"a": 1}, {"b": 8}, {"b": 4}]


def test_what_was_sampled_is_recomputed_as_prompt(sarathi):
    """5 blocks, 2 each: at 9 tokens a takes the fifth, b gives way to itself; its 7 + 2 tokens come back in chunks."""
    w = sarathi(usable=5, max_batched_tokens=14)
    w.add("a", 7, 5)
    w.add("b", 7, 4)
    assert w.scheduled(2) == [{"a": 7, "b": 7}, {"a": 1, "b": 1}]
    log = w.step()
    assert (log.scheduled, log.preempted) == ({"a": 1}, ["b"])
    w.add("c", 12, 1)
    logs = w.steps(5)
    assert [log.scheduled for log in logs] == [{"a": 1}, {"a": 1}, {"b": 9}, {"b": 1}, {"c": 12}]
    assert logs[2].emitted == ["b"]


def test_nobody_passes_a_victim_in_its_step(sarathi):
    """3 blocks, one each; a takes d's, b gives up its own. That would do for c, but b and d are before it."""
    w = sarathi(usable=3)
    for name in "abdc":
        w.add(name, 4, 3)
    w.step()
    log = w.step()
    assert (log.scheduled, log.preempted, w.waiting) == ({"a": 1}, ["d", "b"], ["b", "d", "c"])


def test_a_prompt_in_progress_needs_no_free_block(sarathi):
    """Both blocks are a's, none is free: its second chunk runs all the same."""
    w = sarathi(usable=2, max_batched_tokens=4)
    w.add("a", 6, 1)
    assert [log.scheduled for log in w.drain()] == [{"a": 4}, {"a": 2}]


def test_prefix_caching_shortens_prompts(sarathi):
    w = sarathi(prefix_caching=True, max_batched_tokens=8)
    w.add("a", [("s", 8)], 1)
    w.step()
    w.add("b", [("s", 8), ("u", 11)], 1)
    logs = w.drain()
    assert [log.scheduled for log in logs] == [{"b": 8}, {"b": 3}]
    assert logs[0].cached == {"b": 8}
    assert (w.engine.prefix_queries, w.engine.prefix_hits) == (27, 8)


def test_the_work_of_a_step(sarathi):
    """A decode at context 7, of which a window of 4 sees 4, beside the second chunk of a prompt."""
    w = sarathi(windows=(4,), max_batched_tokens=8)
    w.add("a", 6, 5)
    w.add("b", 20, 5)
    w.step()
    assert w.plan.work.chunks == (PrefillChunk(6, 0), PrefillChunk(2, 0))
    assert w.plan.work.sampled_sequences == 1
    w.step()
    work = w.plan.work
    assert (work.decode_sequences, work.decode_context_tokens, work.decode_window_tokens) == (1, 7, (4,))
    assert (work.chunks, work.sampled_sequences) == ((PrefillChunk(7, 2),), 1)
