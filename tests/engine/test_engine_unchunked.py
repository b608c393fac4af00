"""Without chunked prefill: a prompt runs whole or not at all. Budget 64."""

import pytest


@pytest.fixture
def unchunked(world):
    def build(version, **settings):
        return world(version, chunked_prefill=False, max_model_len=64, async_scheduling=False, **settings)

    return build


def test_several_prompts_set_aside_keep_their_order(unchunked):
    """20 tokens are left: b and c are passed over for d, and are first and second afterwards, in front of e."""
    w = unchunked("0.25")
    for name, tokens in (("a", 44), ("b", 24), ("c", 22), ("d", 20), ("e", 18)):
        w.add(name, tokens, 1)
    assert [list(step) for step in w.scheduled(2)] == [["a", "d"], ["b", "c", "e"]]


@pytest.mark.parametrize("version", ["0.25", "0.33"])
def test_a_resumed_request_recomputes_all_at_once_or_waits(unchunked, version):
    """13 blocks: a takes 6 + 1, b 7, so b is preempted at 29 tokens. It comes back whole."""
    w = unchunked(version, usable=13)
    w.add("a", 24, 2)
    b = w.add("b", 28, 9)
    logs = w.steps(2)
    assert [log.scheduled for log in logs] == [{"a": 24, "b": 28}, {"a": 1}]
    assert (logs[1].preempted, b.known_tokens) == (["b"], 29)
    assert w.step().scheduled == {"b": 29}
