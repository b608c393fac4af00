"""Speculative decoding from scenario to summary: bursts, speed-ups, memory, and where it stops paying."""

import numpy as np
import pytest

import sim
from sim.engine.speculation import expected_tokens
from sim.errors import ScenarioError
from sim.fleet.assembly import assemble
from sim.scenario import load_scenario
from sim.work import PrefillChunk, StepWork

GIB = 2**30


def linear(speculative, *, output=9, requests=1, arrivals=None, **cost):
    """Prefill 100 ms, a decode step 10 ms."""
    return {
        "model": {"parameters": 8e9},
        "hardware": "h100-sxm",
        "engine": {"max_sequences": 64, "max_batched_tokens": 512, "speculative": speculative},
        "traffic": {
            "arrivals": arrivals or {"process": "closed", "concurrency": 1},
            "requests": requests,
            "prompt_tokens": 10,
            "output_tokens": output,
        },
        "cost": {"model": "linear", "prefill_step_s": "100 ms", "step_s": "10 ms", **cost},
    }


def ngram(tokens=3, acceptance=1.0):
    return {"method": "ngram", "tokens": tokens, "acceptance": acceptance}


def test_a_burst_is_one_chunk():
    """All accepted, k = 3: 1 + 4 + 4 tokens at 100, 110 and 120 ms. TPOT 20 / 8 ms, two gaps of 10 ms."""
    result = sim.run(linear(ngram()))
    request = result.requests.iloc[0]
    assert request.ttft_s == pytest.approx(0.1)
    assert request.e2e_s == pytest.approx(0.12)
    assert request.tpot_s == pytest.approx(0.02 / 8)
    assert request.itl_max_s == pytest.approx(0.01)
    assert (request.output_tokens, result.summary["itl_s"]["mean"]) == (9, pytest.approx(0.01))
    assert result.steps.output_tokens.tolist() == [1, 4, 4]
    assert result.steps.decode_sequences.tolist() == [0, 1, 1]
    assert result.summary["speculative"] == {
        "verifications": 2,
        "acceptance_rate": 1.0,
        "tokens_per_verification": 4.0,
    }


def test_drafts_take_their_passes_and_their_tokens():
    """Nothing accepted: 8 steps, each 10 ms + 4 tokens x 2 ms + 3 passes x 1 ms = 21 ms."""
    result = sim.run(linear(ngram(acceptance=0), step_s_per_sequence="2 ms", draft_pass_s="1 ms"))
    assert result.requests.tpot_s[0] == pytest.approx(0.021)
    assert result.summary["speculative"]["acceptance_rate"] == 0.0


@pytest.mark.parametrize(("chance", "tokens", "relative_cost"), [(0.7, 3, 0.1), (0.9, 5, 0.05), (0.5, 2, 0.2)])
def test_speed_up_of_the_paper(chance, tokens, relative_cost):
    """Leviathan et al. (2211.17192), theorem 3.8: (1 - a^(k+1)) / ((1 - a) (k c + 1)), c = a draft pass over a step."""
    output = 20_001
    drafting = {"draft_pass_s": 0.01 * relative_cost}
    fast = sim.run(linear(ngram(tokens, chance), output=output, **drafting)).requests.tpot_s[0]
    slow = sim.run(linear(None, output=output)).requests.tpot_s[0]
    expected = (1 - chance ** (tokens + 1)) / ((1 - chance) * (tokens * relative_cost + 1))
    assert slow / fast == pytest.approx(expected, rel=0.02)


def test_summary_meets_the_closed_form_and_conserves_tokens():
    """200 requests of 50 tokens: 1 + a1 + a1 a2 + a1 a2 a3 tokens per verification within 2 %."""
    chances = [0.8, 0.6, 0.5]
    result = sim.run(linear(ngram(3, chances), output=50, requests=200, arrivals={"process": "burst"}))
    figures = result.summary["speculative"]
    expected = expected_tokens(chances)
    assert figures["tokens_per_verification"] == pytest.approx(expected, rel=0.02)
    assert figures["acceptance_rate"] == pytest.approx((expected - 1) / 3, rel=0.03)
    assert result.steps.output_tokens.sum() == result.requests.output_tokens.sum() == 200 * 50
    requests = result.requests
    parts = requests.decode_s + requests.decode_interference_s + requests.decode_stall_s
    assert np.allclose(parts, requests.e2e_s - requests.ttft_s)


def test_ngram_and_no_speculation_differ_by_the_host_alone():
    """On an ideal device nothing is drafted in no time: with nothing accepted it is the decode of four tokens."""
    base = {**linear(ngram(acceptance=0)), "model": "llama-3.1-8b"}
    base["engine"] |= {"max_model_len": 4096}
    ideal = {**base, "cost": {"efficiency": "ideal"}}
    cost = assemble(load_scenario(ideal)).cost
    work = StepWork((), 2, 400, (), 8, 6)
    assert cost.step_time(work) == cost.target.step_time(work)
    calibrated = assemble(load_scenario({**base, "cost": {}})).cost
    assert calibrated.step_time(work).host_s == pytest.approx(calibrated.target.step_time(work).host_s + 1e-4)


def drafted(method, model="llama-3.1-8b", **engine):
    """An ideal replica that drafts three tokens."""
    speculative = {"method": method, "tokens": 3, "acceptance": 0.5}
    if method == "draft-model":
        speculative["draft_model"] = "llama-3.2-1b"
    scenario = {**linear(speculative), "model": model, "cost": {"efficiency": "ideal"}}
    scenario["engine"] = {"max_model_len": 4096, "speculative": speculative, **engine}
    return assemble(load_scenario(scenario))


def test_a_draft_model_takes_k_passes():
    """The first over the step's 2 x 4 tokens, two over 2 x 1 with contexts of 400 + 3: a 1B model's own step times."""
    setup, alone = drafted("draft-model"), drafted("ngram", "llama-3.2-1b").cost.target
    work = StepWork((), 2, 400, (), 8, 6)
    first, further = (alone.step_time(each) for each in (StepWork((), 2, 400, (), 2, 6), StepWork((), 2, 403, (), 2)))
    spent = setup.cost.step_time(work).device_s - setup.cost.target.step_time(work).device_s
    assert spent == pytest.approx(first.device_s + 2 * further.device_s)


def test_prompts_pass_the_draft_model_too():
    """A prompt of 512 beside nothing: the draft computes it as well, then drafts from its end."""
    setup, alone = drafted("draft-model"), drafted("ngram", "llama-3.2-1b").cost.target
    chunks = (PrefillChunk(512, 0),)
    spent = setup.cost.step_time(StepWork(chunks, 0, 0, (), 1))
    first = alone.step_time(StepWork(chunks, 0, 0, (), 1))
    further = alone.step_time(StepWork((), 1, 513, (), 1))
    target = setup.cost.target.step_time(StepWork(chunks, 0, 0, (), 1))
    assert spent.device_s == pytest.approx(target.device_s + first.device_s + 2 * further.device_s)


def test_a_draft_model_takes_memory():
    """Its weights, and 32 KiB of KV per token beside the target's 128 KiB: 4/5 of what is left in tokens."""
    with_draft, without = drafted("draft-model").capacity, drafted("ngram").capacity
    assert with_draft.budget.draft_weight_bytes == pytest.approx(1_235_814_400 * 2, rel=1e-6)
    assert with_draft.bytes_per_block == without.bytes_per_block * 160 / 128
    assert with_draft.budget.kv_bytes == without.budget.kv_bytes - with_draft.budget.draft_weight_bytes
    assert with_draft.blocks == int(with_draft.budget.kv_bytes // (16 * 160 * 1024))


def test_mtp_runs_a_layer_and_the_head_three_times():
    """An MTP layer of a dense 32-layer model has a 32nd of its KV and layer weights; embedding and head are shared."""
    setup = drafted("mtp")
    layers = 8_030_261_248 - 2 * 128_256 * 4096 - 4096
    assert setup.capacity.budget.draft_weight_bytes == pytest.approx(layers / 32 * 2)
    assert setup.capacity.bytes_per_block == 16 * 128 * 1024 * 33 / 32
    work = StepWork((), 2, 400, (), 8, 6)
    names = [assumption.what for assumption in setup.assumed]
    assert "MTP layer" in names
    spent = setup.cost.step_time(work).device_s - setup.cost.target.step_time(work).device_s
    read_s = (layers / 32 + 128_256 * 4096) * 2 / setup.hardware.hbm_bytes_per_s
    assert 3 * read_s < spent < 3.1 * read_s


def test_mtp_layers_of_the_config_are_used():
    assert drafted("mtp", "deepseek-v3", kv_blocks=5000).model.mtp_layers == 1
    names = [assumption.what for assumption in drafted("mtp", "deepseek-v3", kv_blocks=5000).assumed]
    assert "drafting" in names
    assert "MTP layer" not in names


@pytest.mark.parametrize("sequences", [32, 180, 195, 400])
def test_where_it_stops_paying(sequences):
    """Free drafts on an ideal device: it pays below N = E / (1 + k) x ridge, where the FLOPs of 4 N tokens take as long
    as reading the weights E times: 2.533 / 4 x 295 = 187.
    """
    scenario = linear(ngram(3, 0.7))
    setup = assemble(load_scenario({**scenario, "cost": {"efficiency": "ideal"}}))
    plain_s = setup.cost.step_time(StepWork((), sequences, 0, (), sequences)).device_s
    verify_s = setup.cost.step_time(StepWork((), sequences, 0, (), 4 * sequences, 3 * sequences)).device_s
    assert (verify_s / expected_tokens((0.7,) * 3) < plain_s) == (sequences < 187)


def test_the_example_pays_at_32_and_not_at_192(repo):
    """As the comment of the example says: it stops at about 108 requests at once."""
    path = repo / "workloads/engines/speculative.yaml"

    def tpot_s(concurrency, **changes):
        overrides = {"traffic.arrivals.concurrency": concurrency, "traffic.requests": 3 * concurrency, **changes}
        return sim.run(path, overrides={"measure.warmup": concurrency, **overrides}).summary["tpot_s"]["mean"]

    off = {"engine.speculative": None}
    assert tpot_s(32) < 0.8 * tpot_s(32, **off)
    assert tpot_s(192) > 1.1 * tpot_s(192, **off)


def test_an_abstract_model_has_no_mtp_layers():
    with pytest.raises(ScenarioError, match="an abstract model has no layers"):
        assemble(load_scenario(linear({"method": "mtp", "tokens": 1, "acceptance": 0.5})))


def test_a_budget_below_one_verification_is_refused():
    """8 drafts and a token are 9: a padded request would never be admitted."""
    scenario = linear(ngram(tokens=8))
    scenario["engine"] |= {"max_batched_tokens": 8, "max_sequences": 8}
    with pytest.raises(ScenarioError, match=r"do not hold one request.s token and its drafts\n  cure: use at least 9"):
        assemble(load_scenario(scenario))


def test_drafts_of_another_vocabulary_are_refused():
    scenario = {**linear(None), "model": "qwen2.5-7b", "cost": {}}
    scenario["engine"] = {
        "speculative": {"method": "draft-model", "tokens": 2, "acceptance": 0.5, "draft_model": "llama-3.2-1b"}
    }
    with pytest.raises(ScenarioError, match=r"speculative\.draft_model: llama-3\.2-1b has 128,256 tokens in its"):
        assemble(load_scenario(scenario))


def test_a_draft_term_without_drafts_is_refused():
    with pytest.raises(ScenarioError, match="nothing is drafted"):
        assemble(load_scenario(linear(None, draft_pass_s="1 ms")))


def test_async_scheduling_is_off_and_said_so():
    setup = drafted("ngram")
    assert not setup.settings.async_scheduling
    assert ("async scheduling", "off") in [assumption[:2] for assumption in setup.assumed]
