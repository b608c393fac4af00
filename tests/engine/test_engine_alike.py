"""What several engines do alike, in worlds small enough to work out by hand."""

import pytest

from sim.engine.request import Status
from sim.work import PrefillChunk


@pytest.fixture
def build(request):
    """The world of a parameter, by the name of its fixture."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("build", ["world", "v0", "sarathi", "sglang", "trtllm", "orca", "static"], indirect=True)
def test_answers_end_at_max_model_len(build):
    w = build(max_model_len=10)
    a = w.add("a", 7, 50)
    w.drain()
    assert a.emitted_tokens == 3


@pytest.mark.parametrize("build", ["world", "sarathi", "sglang", "trtllm"], indirect=True)
def test_no_more_than_max_sequences_run(build):
    """A place is free in the step after its request has ended."""
    w = build(max_sequences=2)
    for name in "abc":
        w.add(name, 2, 2)
    assert w.scheduled(3) == [{"a": 2, "b": 2}, {"a": 1, "b": 1}, {"c": 2}]


@pytest.mark.parametrize(
    ("build", "changes"),
    [
        ("world", {"usable": None}),
        ("v0", {"usable": None, "max_batched_tokens": 4096}),
        ("sglang", {"pool": None, "prefix_caching": True}),
    ],
    indirect=["build"],
)
def test_without_a_pool_nothing_is_ever_preempted(build, changes):
    w = build(max_model_len=4096, **changes)
    for name in "abcdefgh":
        w.add(name, 1000, 100)
    assert all(not log.preempted for log in w.drain())
    assert (w.engine.longest_request_tokens(), w.engine.kv_blocks_used) == (None, 0)


@pytest.mark.parametrize(
    ("build", "changes"),
    [("world", {}), ("v0", {"chunked_prefill": True}), ("sglang", {"mixed_chunk": True})],
    indirect=["build"],
)
def test_the_work_of_a_step(build, changes):
    """Two decodes at contexts 7 and 3, of which a window of 4 sees 4 and 3, beside a chunk of a prompt."""
    w = build(windows=(4,), max_batched_tokens=10, **changes)
    w.add("a", 6, 5)
    w.add("b", 2, 5)
    w.step()
    assert w.plan.work.chunks == (PrefillChunk(6, 0), PrefillChunk(2, 0))
    assert w.plan.work.sampled_sequences == 2
    w.add("c", 20, 1)
    w.step()
    work = w.plan.work
    assert (work.decode_sequences, work.decode_context_tokens, work.decode_window_tokens) == (2, 10, (7,))
    assert (work.chunks, work.sampled_sequences, work.tokens) == ((PrefillChunk(8, 0),), 2, 10)


@pytest.mark.parametrize(
    ("build", "changes"), [("world", {}), ("trtllm", {"capacity_policy": "max-utilization"})], indirect=["build"]
)
def test_a_preempted_request_may_end_while_it_waits(build, changes):
    """4 blocks, 2 each: at 9 tokens a takes b's, whose second and last token is in flight."""
    w = build(usable=4, async_scheduling=True, **changes)
    w.add("a", 7, 6)
    b = w.add("b", 7, 2, max_output_tokens=6)
    w.steps(2)
    log = w.step()
    assert (log.preempted, log.finished) == (["b"], ["b"])
    assert (b.status, w.engine.waiting_count) == (Status.FINISHED, 0)


@pytest.mark.parametrize(("build", "budget"), [("v0", 64), ("sarathi", 3)], indirect=["build"])
@pytest.mark.parametrize(("watermark", "longest"), [(0.0, 13), (0.34, 9)])
def test_the_longest_request_leaves_the_watermark_free(build, budget, watermark, longest):
    """3 blocks, int(0.34 x 3) = 1 of them as watermark: 12 or 8 tokens can be admitted, and sample one more."""

    def fresh():
        return build(usable=3, watermark=watermark, max_batched_tokens=budget)

    assert fresh().engine.longest_request_tokens() == longest
    for extra, ends in ((0, True), (1, False)):
        w = fresh()
        w.add("a", longest - 1 + extra, 1)
        w.steps(5)
        assert (w.engine.unfinished == 0) is ends
    w = fresh()
    w.add("a", 2, longest - 2)
    w.drain()
