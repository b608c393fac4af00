"""``sim traffic``: each figure by hand, and the real traces against what is known of them."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.results.loads import Rates, Values, Windows
from sim.scenario.specs import TrafficSpec
from sim.study.traffic import Prefixes, describe, describe_file
from sim.traffic import open_traffic


def summary(keys, **bounds):
    spec = TrafficSpec.model_validate({"prompt_tokens": 10, "output_tokens": 5} | keys)
    return describe(open_traffic(spec, Path(), 0), spec.classes or (), **bounds).summary()


def table(folder, rows):
    path = folder / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{a},{p},{o}\n" for a, p, o in rows))
    return str(path)


def test_a_small_trace_by_hand(tmp_path):
    """Arrivals at 1, 2, 5, 7: 3 gaps of mean 2, variance 2/3, so CV sqrt(2/3) / 2 = 0.408, over 6 s: 0.5 a second.

    Prompts 10 20 30 40 and outputs 4 3 2 1 fall on a line downwards: correlation -1.
    """
    told = describe_file(table(tmp_path, [(1, 10, 4), (2, 20, 3), (5, 30, 2), (7, 40, 1)])).summary()
    assert (told["requests"], told["span_s"], told["rate_per_s"]) == (4, 6, 0.5)
    assert told["gap_cv"] == pytest.approx(math.sqrt(2 / 3) / 2)
    assert told["gap_s"] == pytest.approx({"mean": 2, "p50": 2, "p90": 3, "p99": 3, "max": 3})
    assert told["prompt_tokens"] == {"mean": 25, "p50": 20, "p90": 40, "p99": 40, "max": 40}
    assert told["length_correlation"] == pytest.approx(-1)
    assert told["prefix_reuse"] == {"token_share": 0, "request_share": 0}


def test_windows_by_hand():
    """Arrivals at 0.1 0.2 1.5 3.5 and 4.2, in seconds: 2 1 0 1 in those that ended. Mean 1, variance 1/2, peak 2."""
    windows = Windows(1.0)
    windows.add(np.array([0.1, 0.2]))
    windows.add(np.array([1.5, 3.5, 4.2]))
    assert windows.figures() == {"window_s": 1.0, "dispersion": 0.5, "peak_to_mean": 2.0}


def test_rates_by_hand():
    """Three in the first two seconds and one in the fourth, however often the bins were widened."""
    rates = Rates()
    rates.add(np.array([0.0, 0.5]))
    rates.add(np.array([1.5, 7.0]))
    width_s, per_s = rates.binned(8.0, most=4)
    assert width_s == 2.0
    assert per_s.tolist()[:4] == [1.5, 0, 0, 0.5]


def test_prefixes_by_hand():
    """a10 b10 is new; a10 c5 repeats 10; a10 b10 d1 repeats 20; a4 repeats 4, and b after it nothing; a20 repeats 10,
    and then b is another b; that one repeated, all 25.
    """
    prefixes = Prefixes()
    prompts = [
        (("a", 10), ("b", 10)),
        (("a", 10), ("c", 5)),
        (("a", 10), ("b", 10), ("d", 1)),
        (("a", 4), ("b", 10)),
        (("a", 20), ("b", 5)),
        (("a", 20), ("b", 5)),
    ]
    assert [prefixes.reused(prompt) for prompt in prompts] == [0, 10, 20, 4, 10, 25]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 2048), min_size=1, max_size=300))
def test_quantiles_of_whole_numbers_are_exact(values):
    """Up to 2,048: those of numpy by nearest rank."""
    kept = Values()
    kept.add(np.array(values[: len(values) // 2]))
    kept.add(np.array(values[len(values) // 2 :]))
    found = kept.figures()
    for quantile in (50, 90, 99):
        assert found[f"p{quantile}"] == np.percentile(values, quantile, method="inverted_cdf")
    assert found["mean"] == pytest.approx(np.mean(values))
    assert kept.cv == pytest.approx(np.std(values) / np.mean(values), abs=1e-6)


def test_large_values_are_rounded_to_a_twentieth_of_a_percent():
    kept = Values()
    kept.add(np.array([123_457]))
    assert kept.figures()["p50"] == pytest.approx(123_457, rel=5e-4)


def test_shared_prompts_are_reused_but_for_the_first_of_each_group():
    """One group of 30 tokens before 10 of their own: 99 of 100 requests repeat 30 of 40."""
    told = summary({"arrivals": {"process": "poisson", "rate": 1}, "requests": 100, "shared_prefix": {"tokens": 30}})
    assert told["prefix_reuse"] == pytest.approx({"token_share": 0.99 * 0.75, "request_share": 0.99})


def test_poisson_is_neither_bursty_nor_even():
    told = summary({"arrivals": {"process": "poisson", "rate": 50}, "requests": 100_000})
    assert told["gap_cv"] == pytest.approx(1, rel=0.02)
    assert told["rate_per_s"] == pytest.approx(50, rel=0.02)
    assert told["windows"][0]["dispersion"] == pytest.approx(1, rel=0.1)


def test_a_closed_loop_has_no_rate():
    told = summary({"arrivals": {"process": "closed", "concurrency": 4}, "requests": 20})
    assert (told["clients"], told["rate_per_s"], told["gap_cv"], told["windows"]) == (4, None, None, [])
    assert told["prompt_tokens"]["mean"] == 10


def test_classes_are_told_apart_and_sum_up():
    """2 a second and 1 a second for 10 s: 20 and 10 requests, mean prompt (20 x 10 + 10 x 40) / 30 = 20."""
    classes = {
        "fast": {"arrivals": {"process": "constant", "rate": 2}},
        "slow": {"arrivals": {"process": "constant", "rate": 1}, "prompt_tokens": 40},
    }
    told = summary({"duration": 10, "classes": classes})
    assert {name: one["requests"] for name, one in told["classes"].items()} == {"fast": 20, "slow": 10}
    assert told["prompt_tokens"]["mean"] == 20
    assert told["classes"]["slow"]["rate_per_s"] == 1


def test_sessions_are_counted_and_reuse_what_was_said():
    """Two turns: 10 new, then 10 + 5 + 10, of which 15 are reused: 15 of 35."""
    keys = {"arrivals": {"process": "poisson", "rate": 1}, "requests": 20}
    told = summary(keys | {"sessions": {"turns": 2, "think_time": 1}})
    assert told["sessions"]["count"] == 10
    assert told["sessions"]["turns"]["mean"] == 2
    assert told["prefix_reuse"]["token_share"] == pytest.approx(15 / 35)


def test_sessions_with_hashed_prompts_reuse_each_other(tmp_path):
    """Two sessions of whole prompts: 128 of b's 200 tokens are the beginning of a's 192; nothing of a's was there."""
    rows = [
        {"session_id": "a", "timestamp": 0, "input_length": 192, "output_length": 1, "hash_ids": [1, 2, 3]},
        {"session_id": "b", "timestamp": 9, "input_length": 200, "output_length": 1, "hash_ids": [1, 2, 4, 5]},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arrivals = {"process": "trace", "path": "t.jsonl", "format": "mooncake", "block_tokens": 64}
    traffic = open_traffic(TrafficSpec.model_validate({"arrivals": arrivals}), tmp_path, 0)
    assert describe(traffic).summary()["prefix_reuse"]["token_share"] == pytest.approx(128 / 392)


def test_lenient_descriptions_tell_what_they_left_out(tmp_path, repo):
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\nx,1,1\n2,1,1\n")
    call = [sys.executable, "-m", "sim.cli", "traffic", tmp_path / "t.csv"]
    shown = subprocess.run([*call, "--lenient"], capture_output=True, text=True, cwd=repo, check=True).stdout
    assert "left out 1 x bad line" in shown
    assert subprocess.run(call, capture_output=True, cwd=repo, check=False).returncode == 2


def test_bounds_look_at_the_beginning(tmp_path):
    path = table(tmp_path, [(second, 10, 1) for second in range(10)])
    assert describe_file(path, requests=3).summary()["requests"] == 3
    assert describe_file(path, duration="4 s").summary()["requests"] == 4
    with pytest.raises(ScenarioError, match="--duration"):
        describe_file(path, duration="soon")


def test_the_command_writes_and_prints(tmp_path, repo):
    call = [sys.executable, "-m", "sim.cli", "traffic", table(tmp_path, [(0, 10, 1), (2, 10, 2), (3, 9, 3)])]
    options = {"capture_output": True, "text": True, "cwd": repo}
    done = subprocess.run([*call, "--json", "--out", tmp_path / "o"], **options, check=True)
    assert json.loads(done.stdout) == json.loads((tmp_path / "o/traffic.json").read_text())
    assert (tmp_path / "o/traffic.png").read_bytes().startswith(b"\x89PNG")
    shown = subprocess.run(call, **options, check=True).stdout
    assert "0.667 requests/s over 3 s" in shown
    refused = subprocess.run([*call, "--set", "seed=1"], **options, check=False)
    assert refused.returncode == 2
    assert "a trace has no keys" in refused.stderr


KNOWN = [
    ("azure2023/AzureLLMInferenceTrace_code.csv", 8819, 2048, 27.9, 2.57, 13.2, 0),
    ("azure2023/AzureLLMInferenceTrace_conv.csv", 19366, 1155, 211, 5.53, 1.09, 0),
    ("mooncake/conversation_trace.jsonl", 12031, 12035, 343, 3.40, 3.03, 0.374),
    ("mooncake/synthetic_trace.jsonl", 3993, 15325, 149, 3.91, 1.01, 0.651),
]


@pytest.mark.parametrize(("name", "requests", "prompt", "output", "rate", "cv", "reuse"), KNOWN)
def test_public_traces(shared, name, requests, prompt, output, rate, cv, reuse):
    told = describe_file(str(shared / "data/traces" / name)).summary()
    assert told["requests"] == requests
    assert told["prompt_tokens"]["mean"] == pytest.approx(prompt, rel=0.005)
    assert told["output_tokens"]["mean"] == pytest.approx(output, rel=0.005)
    assert told["rate_per_s"] == pytest.approx(rate, rel=0.005)
    assert told["gap_cv"] == pytest.approx(cv, rel=0.01)
    assert told["prefix_reuse"]["token_share"] == pytest.approx(reuse, abs=0.001)
