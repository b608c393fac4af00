"""``engine.speculative`` in YAML: short forms, vLLM's own names, and what is refused."""

import pytest

NGRAM = "{method: ngram, tokens: 3, acceptance: 0.5}"


def engine(base, text):
    return base.replace('engine: {version: "0.33"}', f"engine: {text}")


@pytest.mark.parametrize(
    ("acceptance", "by_position"),
    [("0.5", (0.5, 0.5, 0.5)), ("[0.8, 60 %, 0]", (0.8, 0.6, 0.0)), ("1", (1.0, 1.0, 1.0))],
)
def test_acceptance_is_one_chance_or_one_per_position(acceptance, by_position, base, load):
    spec = load(engine(base, f"{{speculative: {{method: ngram, tokens: 3, acceptance: {acceptance}}}}}")).spec
    assert spec.engine.speculative.by_position == by_position


@pytest.mark.parametrize("flag", ["speculative_config", "speculative-config"])
def test_vllm_s_own_names(flag, base, load):
    own = "{method: draft_model, num_speculative_tokens: 2, model: llama-3.2-1b, acceptance: 0.5}"
    spec = load(engine(base, f"{{{flag}: {own}}}")).spec.engine.speculative
    assert (spec.method, spec.tokens, spec.draft_model) == ("draft-model", 2, "llama-3.2-1b")


def test_overrides(base, load):
    text = engine(base, f"{{speculative: {NGRAM}}}")
    assert load(text, {"engine.speculative.tokens": 5}).spec.engine.speculative.tokens == 5
    assert load(text, {"engine.speculative": None}).spec.engine.speculative is None
    own = {"method": "ngram", "num_speculative_tokens": 2, "acceptance": 0.1}
    assert load(base, {"engine.speculative_config": own}).spec.engine.speculative.tokens == 2


@pytest.mark.parametrize(
    ("speculative", "said"),
    [
        ("3", "engine.speculative: 3 is not keys with values"),
        ("{tokens: 3, acceptance: 1}", "engine.speculative.method: is required and missing"),
        ("{method: ngram, tokens: 3}", "engine.speculative.acceptance: is required and missing"),
        ("{method: medusa, tokens: 3, acceptance: 1}", "engine.speculative.method: 'medusa' is not one of"),
        ("{method: ngram, tokens: 0, acceptance: 1}", "engine.speculative.tokens: 0 is not above 0"),
        ("{method: ngram, tokens: 2, acceptance: 1.5}", "engine.speculative.acceptance: 1.5 is more than the whole"),
        ("{method: ngram, tokens: 2, acceptance: -0.1}", "engine.speculative.acceptance: -0.1 is less than 0"),
        ("{method: ngram, tokens: 2, acceptance: [1, x]}", "engine.speculative.acceptance: 'x' is not a number"),
        ("{method: ngram, tokens: 2, acceptance: [1]}", "engine.speculative.acceptance: 1 positions, and 2 tokens are"),
        ("{method: ngram, tokens: 2, acceptance: 1, draft_model: llama-3.2-1b}", "draft_model: has no effect: ngram"),
        ("{method: mtp, tokens: 2, acceptance: 1, model: llama-3.2-1b}", "speculative.model: has no effect: mtp"),
        ("{method: draft-model, tokens: 2, acceptance: 1}", "engine.speculative.draft_model: is required and missing"),
        ("{method: draft-model, tokens: 2, acceptance: 1, draft_model: lama}", "no preset and no file is called"),
        ("{method: ngram, tokens: 2, acceptance: 1, num_speculative_tokens: 2}", "says the same as"),
        ("{method: ngram, tokens: 2, acceptance: 1, depth: 2}", "engine.speculative.depth: unknown key"),
    ],
)
def test_what_is_wrong_says_so_at_its_line(speculative, said, base, complaint):
    message = complaint(engine(base, f"\n  speculative: {speculative}"))
    assert message.startswith("w.yaml:4: ")
    assert said in message


def test_async_scheduling_beside_it_is_refused(base, complaint):
    message = complaint(engine(base, f"{{async_scheduling: true, speculative: {NGRAM}}}"))
    assert message.startswith("w.yaml:3: engine.async_scheduling: with speculation is not built yet")


def test_the_old_flag_names_the_new_key(base, complaint):
    assert "is part of speculative" in complaint(engine(base, "{num_speculative_tokens: 3}"))
