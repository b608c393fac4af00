"""The public traces: each is detected, has the figures its publishers give, and runs from end to end; and what a trace
of any length keeps in memory.
"""

import tracemalloc

import pytest

import sim
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.traces import detected

FIGURES = [
    ("azure2023/AzureLLMInferenceTrace_code.csv", "azure", 8_819, 2_047.8, 27.9),
    ("azure2023/AzureLLMInferenceTrace_conv.csv", "azure", 19_366, 1_154.7, 211.1),
    ("vidur/splitwise_code.csv", "table", 8_819, 2_047.8, 27.9),
    ("vidur/splitwise_conv.csv", "table", 19_366, 1_154.7, 211.1),
    ("mooncake/conversation_trace.jsonl", "mooncake", 12_031, 12_035.1, 342.6),
    ("mooncake/synthetic_trace.jsonl", "mooncake", 3_993, 15_325.5, 149.1),
    ("ragpulse/0_trace.jsonl", "ragpulse", 7_106, 2_943.6, 283.2),
    ("tracelab/example_round_trace.jsonl", "tracelab", 19, 27_053.3, 596.6),
    ("dynamo_fixtures/mooncake.jsonl", "mooncake", 2, 28, 3.5),
    ("dynamo_fixtures/mooncake_tiny.jsonl", "mooncake", 16, 9_662.9, 271.7),
    ("dynamo_fixtures/mooncake-delta.jsonl", "mooncake-delta", 2, 22, 4),
    ("dynamo_fixtures/agentic-mooncake.jsonl", "agentic-mooncake", 3, 4, 2),
    ("dynamo_fixtures/applied-compute-agentic.jsonl", "applied-compute", 3, 28, 4),
    ("dynamo_fixtures/dynamo-agentic.jsonl", "dynamo", 4, 4, 2),
    ("dynamo_fixtures/dynamo-standard.jsonl", "dynamo", 2, 4, 2),
]
LENGTHS = [
    "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
    *[
        f"lengths/{name}.csv"
        for name in (
            "datasets_deepseek-r1", "datasets_sharegpt-vicuna", "mlperf-data_deepseek-r1", "mlperf-data_llama2-70b-99",
            "mlperf-data_llama3-1-405b", "mlperf-data_llama3-1-8b-datacenter", "mlperf-data_mixtral-8x7b",
        )
    ],
]  # fmt: skip
ONE_COLUMN = ["lengths/datasets_gpt-oss.csv", "lengths/datasets_swebench-lite.csv"]


@pytest.fixture
def traces(shared):
    return shared / "data/traces"


def run(traffic):
    scenario = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"name": "vllm", "version": "0.33"},
        "deployment": {"replicas": 4},
        "traffic": traffic,
    }
    requests = sim.run(scenario).summary["requests"]
    return requests["completed"], requests["submitted"]


@pytest.mark.parametrize(("name", "kind", "requests", "prompt", "output"), FIGURES)
def test_figures(traces, name, kind, requests, prompt, output):
    """Requests and mean lengths, by those who published them and by a plain count."""
    path = traces / name
    assert detected(path) == kind
    spec = {"arrivals": {"process": "trace", "path": str(path)}}
    planned = list(open_traffic(TrafficSpec.model_validate(spec), traces, 0).planned_tokens())
    assert len(planned) == requests
    assert sum(each for each, _ in planned) / requests == pytest.approx(prompt, abs=0.06)
    assert sum(each for _, each in planned) / requests == pytest.approx(output, abs=0.06)


@pytest.mark.parametrize("name", [row[0] for row in FIGURES] + ["servegen/reason-deepseek-r1.tar.gz"])
def test_each_runs_from_end_to_end(traces, name):
    """Its first requests; what does not fit the model's context is rejected."""
    completed, submitted = run({"arrivals": {"process": "trace", "path": str(traces / name)}, "requests": 20})
    assert 0 < completed <= submitted <= 20


@pytest.mark.parametrize("name", LENGTHS)
def test_each_list_of_lengths_runs(traces, name):
    traffic = {"arrivals": {"process": "poisson", "rate": 2}, "requests": 20, "lengths": {"path": str(traces / name)}}
    assert run(traffic) == (20, 20)


@pytest.mark.parametrize("name", ONE_COLUMN)
def test_each_list_of_prompts_runs(traces, name):
    prompts = {"distribution": "empirical", "path": str(traces / name), "column": "input_length"}
    traffic = {"arrivals": {"process": "poisson", "rate": 2}, "prompt_tokens": prompts, "output_tokens": 9}
    assert run(traffic | {"requests": 20}) == (20, 20)


def test_every_file_that_is_here_is_looked_at(traces):
    """A new one asks for a line above."""
    known = {*(row[0] for row in FIGURES), *LENGTHS, *ONE_COLUMN, "servegen/reason-deepseek-r1.tar.gz"}
    files = {str(path.relative_to(traces)) for path in traces.rglob("*.*") if path.is_file()}
    assert files - known == {"README.md"}


def peak_bytes(path, rows):
    """Of reading so many rows of a trace that is changed in every way."""
    with path.open("w") as file:
        file.write("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
        file.writelines(f"{i // 10},GPT-4,{i % 900 + 1},{i % 50},0,API log\n" for i in range(rows))
    keys = {"spread": True, "sample": 0.9, "replicate": 2, "output_scale": 1.5, "start": 2}
    spec = TrafficSpec.model_validate({"arrivals": {"process": "trace", "path": str(path), **keys}})
    traffic = open_traffic(spec, path.parent, 0)
    tracemalloc.start()
    try:
        assert sum(1 for _ in traffic) == pytest.approx(rows * 0.98 * 0.9 * 2, rel=0.05)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_trace_streams(tmp_path):
    """Five times the rows, the same memory: a block of requests, and no more."""
    few, many = (peak_bytes(tmp_path / f"{rows}.csv", rows) for rows in (10_000, 50_000))
    assert many < few * 1.2
