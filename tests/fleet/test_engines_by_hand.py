"""Every engine on one load that fits on paper: whose rules ran shows in who waits for whom.

A step takes 10 ms if it prefills and 0.1 ms per prompt token, 10 ms if it decodes and 1 ms per sequence.
"""

import pytest

import sim

LINEAR = {
    "model": "linear",
    "prefill_step_s": 0.010,
    "prefill_s_per_token": 1e-4,
    "step_s": 0.010,
    "step_s_per_sequence": 0.001,
}
SYNCHRONOUS = {"async_scheduling": False}
ENGINES = {
    "vllm": {"name": "vllm", **SYNCHRONOUS},
    "vllm_v0": {"name": "vllm", "version": "0.6", "max_model_len": 2048},
    "sglang": {"name": "sglang", **SYNCHRONOUS},
    "trtllm": {"name": "trtllm", **SYNCHRONOUS},
    "orca": {"name": "orca"},
    "static": {"name": "static", "max_model_len": 2048},
    "sarathi": {"name": "sarathi"},
    "llama_cpp": {"name": "llama.cpp"},
}
MIXED = ("vllm", "trtllm", "orca", "sarathi", "llama_cpp")
"""A prompt that arrives joins the next step, beside the decodes."""


def requests(name, count, arrivals):
    load = {"arrivals": arrivals, "requests": count, "prompt_tokens": 100, "output_tokens": 3}
    scenario = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "engine": ENGINES[name], "cost": LINEAR}
    return sim.run({**scenario, "traffic": load}).requests


@pytest.mark.parametrize("name", ENGINES)
def test_a_request_alone(name):
    """A prompt of 100: 10 + 10 = 20 ms to the first token; two decodes of 11 ms: 42 ms in all."""
    alone = requests(name, 1, {"process": "burst"}).iloc[0]
    assert alone.ttft_s == pytest.approx(0.020)
    assert alone.e2e_s == pytest.approx(0.042)


@pytest.mark.parametrize("name", ENGINES)
def test_two_at_once_share_every_step(name):
    """One prefill of 200 tokens, 10 + 20 = 30 ms, and two decodes of 12 ms: both end at 54 ms."""
    both = requests(name, 2, {"process": "burst"})
    assert list(both.first_token_s) == pytest.approx([0.030, 0.030])
    assert list(both.finish_s) == pytest.approx([0.054, 0.054])


@pytest.mark.parametrize("name", ENGINES)
def test_a_prompt_that_arrives_while_another_request_decodes(name):
    """The second arrives at 25 ms; the first has a token at 20 ms and decodes until 31 ms.

    Mixed steps: the prompt and the last decode take 20 + 11 = 31 ms, both have their token at 62 ms; then two decodes
    of 11 ms end the second at 84 ms. Prefill first (vLLM V0, SGLang): the prompt has a step to itself, until 51 ms,
    while the first waits; one decode for both, 12 ms, ends the first at 63 ms, one more the second at 74 ms. Static
    batch: the first ends at 42 ms, then the second takes its 42 ms alone: 62 ms to the first token, 84 ms to the end.
    """
    first, second = requests(name, 2, {"process": "constant", "rate": 40}).itertuples()
    start_s = first.arrival_s
    if name in MIXED:
        expected = (0.062, 0.062, 0.084)
    elif name == "static":
        expected = (0.042, 0.062, 0.084)
    else:
        expected = (0.063, 0.051, 0.074)
    found = [second.first_token_s, second.finish_s]
    assert [first.finish_s - start_s, *(time_s - start_s for time_s in found)] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["vllm_v0", "sglang"])
def test_a_decode_that_waits_for_a_prompt_stalls_and_is_not_interfered_with(name):
    """As above: the first has tokens at 20, 31 and 63 ms. One decode of 11 ms, then 32 ms from token to token."""
    first = requests(name, 2, {"process": "constant", "rate": 40}).iloc[0]
    parts = (first.decode_s, first.decode_interference_s, first.decode_stall_s)
    assert parts == pytest.approx((0.011, 0.0, 0.032))
