"""Keys that need, exclude or contradict each other."""

from __future__ import annotations

import math

import pytest

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"


def arrivals(base, text):
    return base.replace("{process: poisson, rate: 8}", text)


def prompts(base, text):
    return base.replace("prompt_tokens: 512", f"prompt_tokens: {text}")


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        ("{process: gamma, rate: 8}", "5: traffic.arrivals.cv: gamma needs either cv or burstiness"),
        ("{process: gamma, rate: 8, cv: 2, burstiness: 3}", "5: traffic.arrivals.cv: gamma needs either"),
        (
            "{process: gamma, rate: 8, cv: 1e9}",
            "5: traffic.arrivals.cv: cv=1e+09 is out of range\n  cure: give a cv from 0.0001 to 1000",
        ),
        ("{process: gamma, rate: 8, burstiness: 1e9}", "5: traffic.arrivals.burstiness: burstiness=1e+09"),
        (
            "{process: poisson, rate: 1e-9}",
            "5: traffic.arrivals.rate: rate=1e-09 is out of range\n  cure: give at least 1e-06",
        ),
        ("{process: poisson, rate: 1e7}", "5: traffic.arrivals.rate: 10000000 is more than 1,000,000"),
        ("{process: closed, concurrency: 1e7}", "5: traffic.arrivals.concurrency: 10000000 is more than 1,000,000"),
        (
            "{process: closed, concurrency: 8, max_concurrency: 4}",
            "5: traffic.arrivals.max_concurrency: closed arrivals are",
        ),
        ("{process: trace, path: w.yaml, time_scale: 1e-9}", "5: traffic.arrivals.time_scale: time_scale=1e-09"),
    ],
)
def test_arrivals(process, expected, base, complaint):
    assert complaint(arrivals(base, process)).startswith(f"w.yaml:{expected}")


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ("{distribution: lognormal, mean: 100}", "7: traffic.prompt_tokens: lognormal needs either p99 or sigma"),
        (
            "{distribution: lognormal, mean: 100, p99: 500, sigma: 1}",
            "7: traffic.prompt_tokens: lognormal needs either p99 or sigma",
        ),
        (
            "{distribution: lognormal, mean: 100, p99: 1500}",
            (
                "7: traffic.prompt_tokens.p99: p99 / mean is 15, a lognormal reaches from 1 to 14.97\n"
                "  cure: move p99 nearer to the mean"
            ),
        ),
        ("{distribution: lognormal, mean: 100, p99: 99}", "7: traffic.prompt_tokens.p99: p99 / mean is 0.99"),
        (
            "{distribution: uniform, low: 9, high: 8}",
            "7: traffic.prompt_tokens.low: low=9 is above high=8\n  cure: swap the two",
        ),
        (
            "{distribution: normal, mean: 5, std: 1, low: 9, high: 8}",
            "7: traffic.prompt_tokens.low: low=9 is above high=8",
        ),
        ("{distribution: uniform, low: 1}", "7: traffic.prompt_tokens.high: is required and missing\n  cure: add high"),
        (
            "{distribution: normal, mean: 1e300, std: 1}",
            "7: traffic.prompt_tokens.mean: 1e+300 is more than 10,000,000",
        ),
        ("20_000_000", "7: traffic.prompt_tokens: '20_000_000' is not a whole number, or keys"),
        ("20000000", "7: traffic.prompt_tokens: 20000000 is more than 10,000,000"),
        ("0", "7: traffic.prompt_tokens: 0 is not above 0"),
    ],
)
def test_lengths(lengths, expected, base, complaint):
    assert complaint(prompts(base, lengths)).startswith(f"w.yaml:{expected}")


def test_the_steepest_lognormal(base, load, complaint):
    """p99 / mean is at most exp(z^2 / 2) = 14.97, where sigma is z."""
    largest = 100 * math.exp(2.3263478740408408**2 / 2)
    for p99 in (100, 1496, largest * (1 - 1e-12)):
        assert (
            load(prompts(base, f"{{distribution: lognormal, mean: 100, p99: {p99!r}}}")).spec.traffic.prompt_tokens.p99
            == p99
        )
    assert "a lognormal reaches" in complaint(
        prompts(base, f"{{distribution: lognormal, mean: 100, p99: {largest * 1.0001}}}")
    )


def test_a_load_must_end(base, load, complaint):
    """By a count or a time, or both; a burst by a count."""
    endless = base.replace("  requests: 100\n", "")
    assert complaint(endless).startswith(
        "w.yaml:4: traffic.requests: the load never ends\n  cure: add requests: 1000, or duration: 10 min"
    )
    assert "the load never ends" in complaint(arrivals(endless, "{process: closed, concurrency: 2}"))
    burst = arrivals(base.replace("requests: 100", "duration: 10 s"), "{process: burst}")
    assert complaint(burst).startswith("w.yaml:4: traffic.requests: a burst has no size\n  cure: add requests: 1000")
    both = load(base.replace("requests: 100", "requests: 100\n  duration: 5 s")).spec.traffic
    assert (both.requests, both.duration) == (100, 5)
    assert load(arrivals(base.replace("requests: 100", "duration: 5 s"), "{process: closed, concurrency: 2}"))


def test_a_load_of_too_many_requests(base, complaint):
    """A rate and a duration that are each fine may multiply to more than 100 million."""
    text = base.replace("rate: 8", "rate: 1e6").replace("requests: 100", "duration: 1 h")
    assert complaint(text).startswith("w.yaml:6: traffic.duration: 1e+06 per second would be 3.6e+09 requests")


def test_a_trace_needs_nothing_else(base, load, tmp_path):
    (tmp_path / "t.csv").write_text(TRACE)
    text = arrivals(base, "{process: trace, path: t.csv}")
    assert (
        load(
            text.replace("  requests: 100\n  prompt_tokens: 512\n  output_tokens: 64\n", "")
        ).spec.traffic.prompt_tokens
        is None
    )


def test_lengths_beside_a_trace_replace_its_own(base, load, tmp_path):
    """The what-if "the same arrivals, longer outputs"."""
    (tmp_path / "t.csv").write_text(TRACE)
    assert load(arrivals(base, "{process: trace, path: t.csv}")).spec.traffic.prompt_tokens.value == 512


def test_priorities_need_the_priority_policy(base, load, complaint):
    text = base.replace("seed: 1", "seed: 1\nengine: {policy: priority}").replace('engine: {version: "0.33"}\n', "")
    text = text.replace("  requests", "  priorities: {0: 0.2, 1: 0.8}\n  requests")
    assert load(text).spec.traffic.priorities == {0: 0.2, 1: 0.8}
    without = text.replace("priority}", "fcfs}")
    assert complaint(without).startswith(
        "w.yaml:5: traffic.priorities: has no effect under the fcfs policy\n  cure: add policy: priority under engine"
    )
    assert "5: traffic.priorities: empty" in complaint(text.replace("{0: 0.2, 1: 0.8}", "{}"))
    assert "5: traffic.priorities: 4294967296 is no priority" in complaint(text.replace("1: 0.8", "4294967296: 0.8"))
    assert "5: traffic.priorities.urgent: 'urgent' is not a whole number" in complaint(
        text.replace("1: 0.8", "urgent: 0.8")
    )
    assert "5: traffic.priorities.1: 0 is not above 0" in complaint(text.replace("1: 0.8", "1: 0"))


def test_an_abstract_model_says_its_own_dtype(base, load, complaint):
    text = base.replace("llama-3.1-8b", "{parameters: 8e9, weight_dtype: fp16}")
    assert load(text).spec.model.parameters == 8e9
    message = complaint(text.replace("engine: {", "engine: {weight_dtype: fp8, "))
    assert message.startswith("w.yaml:3: engine.weight_dtype: an abstract model says its own weight_dtype")


def test_files_are_seen_from_the_scenarios_folder(base, load, tmp_path):
    """A config.json, a folder that has one, a profile."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "p.yaml").write_text("")
    for model in ("m", "m/config.json", str(tmp_path / "m" / "config.json")):
        assert load(base.replace("llama-3.1-8b", model).replace("h100-sxm", "./p.yaml")).spec.model == model


def test_a_blank_section_has_its_defaults(base, load):
    """A section of which every key is a comment."""
    spec = load(base.replace('{version: "0.33"}', "\n  # version: x") + "slo:\ndeployment:\nmeasure:\ncost:\n").spec
    assert (spec.engine.version, spec.deployment.replicas, spec.measure.drain, spec.cost.model) == (
        None,
        1,
        True,
        "roofline",
    )


def test_one_wrong_part_of_the_traffic_hides_no_other(base, complaint):
    """And what is wrong in itself is neither missing nor endless."""
    text = arrivals(base, "{process: gamma, rate: 8}").replace("requests: 100", "requests: many")
    message = complaint(text.replace("output_tokens: 64", "output_tokens: {distribution: lognormal, mean: 5}"))
    assert [line for line in message.splitlines() if line.startswith("w.yaml")] == [
        "w.yaml:5: traffic.arrivals.cv: gamma needs either cv or burstiness (1 / cv^2)",
        "w.yaml:6: traffic.requests: 'many' is not a whole number",
        "w.yaml:8: traffic.output_tokens: lognormal needs either p99 or sigma",
    ]
    assert complaint(arrivals(base, "{process: none}").replace("  requests: 100\n", "")).count("cure:") == 1


@pytest.mark.parametrize(
    ("right", "wrong", "cure"),
    [
        ("rate: 8", "rate: 8, cv: 2", "process: poisson takes rate, max_concurrency"),
        ("rate: 8", "rate: 8, name: x", "process: poisson takes rate, max_concurrency"),
        ("poisson, rate", "closed, concurency: 4, concurrency", "did you mean concurrency? process: closed takes"),
        ("512", "{distribution: fixed, value: 5, mean: 5}", "distribution: fixed takes value"),
        ("seed: 1", "cost: {model: roofline, step_s: 1}", "model: roofline takes efficiency"),
    ],
)
def test_an_unknown_key_is_told_what_the_choice_takes(right, wrong, cure, base, complaint):
    message = complaint(base.replace(right, wrong))
    assert ": unknown key\n" in message
    assert f"\n  cure: {cure}" in message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("512", "{distribution: lognormal, mean: 100, sigma: 1e300}"),
        ("seed: 1", "cost: {model: linear, step_s: 1e308}"),
        ("h100-sxm", "{profile: h100-sxm, hbm_bytes_per_s: 1e-300}"),
        ("h100-sxm", "{profile: h100-sxm, peak_flops_per_s: {bf16: 1e300}}"),
    ],
)
def test_numbers_beyond_arithmetic_are_refused(right, wrong, base, complaint):
    message = complaint(base.replace(right, wrong))
    assert "is more than" in message or "is less than" in message


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("traffic.sessions", {"turns": 2, "think_time": "soon"}, "think_time: 'soon' is not a number with a unit"),
        ("traffic.sessions", {"turns": 2, "think_time": [1]}, "think_time: [1] is not a time, or keys with values"),
        ("traffic.sessions", {"turns": "many"}, "turns: 'many' is not a whole number, or keys with values"),
        ("traffic.shared_prefix", {"tokens": 3, "popularity": "zipff"}, "popularity: 'zipff' is not a name, or keys"),
        ("traffic.sessions", {"turns": 2, "fan_out": {"after": 2, "branches": 2}}, "fan_out.after: no session goes on"),
        ("traffic.client", {"timeout": 0}, "client.timeout: 0 is not above 0"),
        ("traffic.cancellation", {"probability": 0.1}, "cancellation.after: is required and missing"),
    ],
)
def test_wrong_sessions_and_clients_are_named(base, complaint, key, value, said):
    assert f"traffic.{said}" in complaint(base, {key: value}) or f"{key}.{said}" in complaint(base, {key: value})
