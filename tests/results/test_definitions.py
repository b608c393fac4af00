"""Each load generator's metrics, by hand, on streams where they differ; and runs that give the table's own figures."""

import numpy as np
import pytest

from sim.api import load, run
from sim.fleet import simulate
from sim.results.definitions import DEFINITIONS, GIVEN, Samples, mean_and_std, measured_by, percentiles
from sim.results.streams import streams_of
from sim.results.summary import measured_streams

BURSTS = (0.0, (1.0, 1.5, 2.5), (1, 3, 1), 100, 5)
"""Sent at 0: a chunk of one token at 1.0, one of three at 1.5, one of one at 2.5."""
ONE_TOKEN = (3.0, (3.4,), (1,), 50, 1)


@pytest.fixture(scope="module")
def streams():
    """Both answers; the response ends 0.5 s after its last chunk."""
    return streams_of([BURSTS, ONE_TOKEN], closing_s=0.5)


HAND = {
    # E2E 2.5 and 0.4; TPOT (2.5 - 1) / 4; gaps 0.5 and 1.0
    "vllm": {"ttft_s": [1.0, 0.4], "tpot_s": [0.375], "itl_s": [0.5, 1.0], "e2e_s": [2.5, 0.4]},
    # E2E to the response's end: 3.0 and 0.9, TPOT (3 - 1) / 4; three tokens share the gap of 0.5
    "sglang": {"ttft_s": [1.0, 0.4], "tpot_s": [0.5], "itl_s": [0.5 / 3] * 3 + [1.0], "e2e_s": [3.0, 0.9]},
    # TPOT 2.5 / 5, five times, and 0.4 / 1, once; ITL 1.5 / 4, four times
    "guidellm": {
        "ttft_s": [1.0, 0.4], "tpot_s": [0.5] * 5 + [0.4], "itl_s": [0.375] * 4, "e2e_s": [3.0, 0.9],
    },
    # ITL 1.5 / (5 - 1)
    "aiperf": {
        "ttft_s": [1.0, 0.4], "tpot_s": None, "itl_s": [0.375], "e2e_s": [2.5, 0.4], "ttst_s": [0.5],
        "inter_chunk_s": [0.5, 1.0],
    },
    "genai-perf": {"ttft_s": [1.0, 0.4], "tpot_s": None, "itl_s": [0.375], "e2e_s": [2.5, 0.4], "ttst_s": [0.5]},
    # TTFT of answers of several tokens alone; two zeros inside the chunk of three; NTPOT 3.0 / 5 and 0.9 / 1
    "inference-perf": {
        "ttft_s": [1.0], "tpot_s": [0.375], "itl_s": [0.0, 0.0, 0.5, 1.0], "e2e_s": [3.0, 0.9], "ntpot_s": [0.6, 0.9],
    },
    # ITL (1.0 + 0.5 + 1.0) / 3 chunks, and 0.4 / 1
    "llmperf": {"ttft_s": [1.0, 0.4], "tpot_s": None, "itl_s": [2.5 / 3, 0.4], "e2e_s": [3.0, 0.9]},
}  # fmt: skip


@pytest.mark.parametrize("tool", HAND)
def test_every_tools_samples_by_hand(streams, tool):
    measures = DEFINITIONS[tool].measures()
    assert measures.keys() == HAND[tool].keys()
    for name, measure in measures.items():
        if measure is None:
            assert HAND[tool][name] is None
            continue
        values, weights = measure(streams)
        repeated = np.repeat(values, 1 if weights is None else weights)
        assert sorted(repeated) == pytest.approx(sorted(HAND[tool][name])), name


def test_aiperf_divides_by_tokens_after_the_first_chunk():
    """Two tokens in the first chunk and two later, 1 s after: 1 / (4 - 2), where genai-perf says 1 / 3."""
    streams = streams_of([(0.0, (1.0, 2.0), (2, 2), 10, 4)])
    assert DEFINITIONS["aiperf"].itl_s(streams).values == pytest.approx([0.5])
    assert DEFINITIONS["genai-perf"].itl_s(streams).values == pytest.approx([1 / 3])


def test_an_answer_in_one_chunk_has_no_gap_anywhere():
    streams = streams_of([(0.0, (1.0,), (4,), 10, 4)])
    for tool in ("vllm", "sglang", "aiperf", "genai-perf"):
        assert not len(DEFINITIONS[tool].itl_s(streams).values), tool
    assert measured_by("aiperf", streams)["itl_s"]["mean"] is None


def test_tools_agree_where_every_chunk_is_a_token():
    streams = streams_of([(0.0, (1.0, 1.1, 1.2, 1.3), (1, 1, 1, 1), 10, 4)])
    for tool in ("vllm", "sglang", "guidellm", "aiperf", "genai-perf", "inference-perf"):
        assert mean_and_std(DEFINITIONS[tool].itl_s(streams))[0] == pytest.approx(0.1), tool


def test_percentiles_count_weights_and_guidellms_are_values_that_occurred():
    """1, 1, 1, 5: the median is 1 and p90 is 1 + 0.7 x 4 (linear at rank 2.7), or the value at which 90 % lie."""
    samples = Samples(np.array([5.0, 1.0]), np.array([1, 3]))
    assert percentiles(samples, (50, 90), stepwise=False) == pytest.approx([1.0, 3.8])
    assert percentiles(samples, (50, 75, 76, 90), stepwise=True) == [1.0, 1.0, 5.0, 5.0]
    assert mean_and_std(samples) == pytest.approx((2.0, np.sqrt(3.0)))


def test_nothing_measured_is_undefined_not_an_error():
    for tool in DEFINITIONS:
        for figures in measured_by(tool, streams_of([])).values():
            assert set(figures.values()) == {None}


RUNS = {
    "chat": ("chat", {"traffic.requests": 300}),
    "preempted": ("chat", {"traffic.requests": 300, "engine.kv_blocks": 400, "traffic.arrivals.rate": 20}),
    "speculative": ("engines/speculative", {"traffic.requests": 250, "measure.warmup": 50}),
    "starved": ("engines/sglang", {"traffic.requests": 100}),
    "replicas": ("chat", {"traffic.requests": 200, "deployment.replicas": 3}),
}


@pytest.mark.parametrize("name", RUNS)
def test_streams_of_a_run_give_the_summarys_figures(name):
    """vLLM's definitions over every chunk of every answer equal those from request columns and shared gaps."""
    example, overrides = RUNS[name]
    from sim.results.summary import measured_rows, summarise

    record = simulate(load(example, overrides=overrides), streams=True)
    summary = summarise(record)
    rows = measured_rows(record.requests.columns(), record.setup.loaded.spec.measure.warmup)
    streams = measured_streams(record, rows)
    assert len(streams) == summary["requests"]["completed"]
    assert np.array_equal(np.add.reduceat(streams.chunk_tokens, streams.offsets[:-1]), streams.output_tokens)
    assert (streams.gaps_s() > 0).all()
    for metric in GIVEN:
        samples = getattr(DEFINITIONS["vllm"], metric)(streams)
        if metric == "itl_s" and record.setup.loaded.spec.measure.warmup:
            continue  # the summary's are all gaps in the measured window, whoever's
        figures = [mean_and_std(samples)[0], *percentiles(samples, (50, 99), stepwise=False)]
        assert figures == pytest.approx([summary[metric][figure] for figure in ("mean", "p50", "p99")]), metric


def test_a_scenario_chooses_whose_definitions_the_summary_follows():
    overrides = {"traffic.requests": 150, "measure.warmup": 0}
    by_tool = {
        tool: run("engines/speculative", overrides={**overrides, "metrics": tool}).summary
        for tool in ("vllm", "guidellm", "aiperf")
    }
    assert [summary["metrics"] for summary in by_tool.values()] == ["vllm", "guidellm", "aiperf"]
    assert by_tool["guidellm"]["itl_s"]["mean"] == pytest.approx(by_tool["vllm"]["tpot_s"]["mean"], rel=0.01)
    assert by_tool["guidellm"]["tpot_s"]["mean"] > by_tool["vllm"]["tpot_s"]["mean"]
    assert by_tool["aiperf"]["tpot_s"]["mean"] is None
    assert by_tool["vllm"]["itl_s"]["mean"] > 2 * by_tool["aiperf"]["itl_s"]["mean"]
    assert by_tool["vllm"]["e2e_s"] == by_tool["aiperf"]["e2e_s"]
