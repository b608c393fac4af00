"""Result files of load generators: read, written, and read again."""

import json

import numpy as np
import pytest

from sim.api import run
from sim.bench import EXPORTS, bench_result, read_results, write_export
from sim.bench.aiperf import to_aiperf
from sim.bench.guidellm import to_guidellm
from sim.bench.vllm import to_serving
from sim.errors import RidgelineError


def write(folder, name, data):
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


VLLM = {
    "backend": "vllm", "model_id": "m", "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": None,
    "duration": 10.0, "completed": 2, "failed": 0, "total_input_tokens": 30, "total_output_tokens": 4,
    "request_throughput": 0.2, "request_goodput:": 0.1, "output_throughput": 0.4, "total_token_throughput": 3.4,
    "mean_ttft_ms": 150.0, "median_ttft_ms": 150.0, "std_ttft_ms": 50.0, "p99_ttft_ms": 199.0, "p99.9_e2el_ms": 900.0,
    "input_lens": [10, 20], "output_lens": [3, 1], "ttfts": [0.1, 0.2], "itls": [[0.01, 0.03], []],
    "start_times": [100.0, 101.0], "errors": ["", ""],
}  # fmt: skip


def test_vllm_serving_file_by_hand(tmp_path):
    [result] = read_results(write(tmp_path, "r.json", VLLM))
    assert result.metrics["ttft_s"] == pytest.approx({"mean": 0.15, "p50": 0.15, "std": 0.05, "p99": 0.199})
    assert result.metrics["e2e_s"] == pytest.approx({"p99.9": 0.9})
    assert (result.completed, result.goodput_requests_per_s, result.model) == (2, 0.1, "m")
    streams = result.streams
    assert streams.sent_s == pytest.approx([0.0, 1.0])
    assert streams.chunk_s == pytest.approx([0.1, 0.11, 0.14, 1.2])
    assert streams.chunk_tokens.tolist() == [1, 1, 1, 1]


def test_requests_without_a_token_are_said_and_left_out_of_the_streams(tmp_path):
    data = VLLM | {"output_lens": [3, 0], "ttfts": [0.1, 0.0]}
    [result] = read_results(write(tmp_path, "r.json", data))
    assert len(result.streams) == 1
    assert "1 requests got no token" in result.notices[0]


def test_sglang_lines_are_told_from_vllms(tmp_path):
    line = {
        "backend": "sglang", "completed": 3, "duration": 2.0, "mean_ttft_ms": 10.0, "request_throughput": 1.5,
        "mean_e2e_latency_ms": 500.0, "p95_itl_ms": 20.0, "total_throughput": 99.0, "request_rate": float("inf"),
    }  # fmt: skip
    results = read_results(write(tmp_path, "r.jsonl", f"{json.dumps(line)}\n{json.dumps(line)}\n"))
    assert [result.tool for result in results] == ["sglang", "sglang"]
    assert results[0].metrics == {"ttft_s": {"mean": 0.01}, "e2e_s": {"mean": 0.5}, "itl_s": {"p95": 0.02}}
    assert results[0].total_tokens_per_s == 99.0


def lifecycle(tpot_s):
    latency = {"request_latency": 2.1, "time_to_first_token": 0.1, "time_per_output_token": tpot_s}
    return {
        "load_summary": {"requested_rate": 5.0},
        "successes": {
            "count": 10,
            "latency": {name: {"mean": value, "median": value} for name, value in latency.items()}
            | {"inter_token_latency": {"mean": tpot_s}},
            "prompt_len": {"mean": 50.0, "median": 50.0},
            "output_len": {"mean": 101.0, "median": 101.0},
        },
        "failures": {"count": 1},
    }


@pytest.mark.parametrize(("tpot_s", "said"), [(0.02, False), (0.01, True), (0.0104, True), (0.013, False)])
def test_inference_perfs_halved_tpot_is_found_and_mended(tmp_path, tpot_s, said):
    """(2.1 - 0.1) / 100 = 20 ms per token; a report of 10 ms counted every token twice."""
    [result] = read_results(write(tmp_path, "summary.json", lifecycle(tpot_s)))
    assert bool(result.notices) == said
    factor = 2 if said else 1
    assert result.metrics["tpot_s"]["p50"] == pytest.approx(factor * tpot_s)
    assert result.metrics["itl_s"]["mean"] == pytest.approx(factor * tpot_s)
    assert (result.completed, result.failed, result.output_tokens) == (10, 1, 1010)


def test_console_blocks(tmp_path):
    block = """
============ Serving Benchmark Result ============
Successful requests:                     2
Benchmark duration (s):                  4.66
Total input tokens:                      160
Request throughput (req/s):              0.43
Total Token throughput (tok/s):          61.65
---------------Time to First Token----------------
Mean TTFT (ms):                          372.80
Median TTFT (ms):                        370.00
P99 ITL (ms):                            95.48
"""
    results = read_results(write(tmp_path, "log.txt", "vllm\n" + block * 2))
    assert len(results) == 2
    assert results[1].completed == 2
    assert results[1].total_tokens_per_s == 61.65
    assert results[1].metrics == {"ttft_s": {"mean": 0.3728, "p50": 0.37}, "itl_s": {"p99": pytest.approx(0.09548)}}


def test_llama_bench_mlperf_and_llmd(tmp_path):
    table = "| model | size | test | t/s |\n| --- | --- | --- | --- |\n| m | 5 GiB | pp512 | 400.0 ± 1.8 |\n"
    table += "| m | 5 GiB | tg128 @ d1024 | 25.0 ± 0.0 |\n"
    prefill, decode = read_results(write(tmp_path, "l.log", table))
    assert (prefill.prompt_tokens, prefill.total_tokens_per_s) == (512, 400.0)
    assert (decode.output_tokens, decode.metrics["tpot_s"]["mean"]) == (128, 0.04)

    log = "MLPerf Results Summary\nCompleted samples per second    : 361.30\n"
    log += "Mean latency (ns)   : 2000000000\n99.90 percentile first token latency (ns)   : 500000000\n"
    [mlperf] = read_results(write(tmp_path, "m.txt", log))
    assert mlperf.metrics == {"e2e_s": {"mean": 2.0}, "ttft_s": {"p99.9": 0.5}}
    assert mlperf.requests_per_s == 361.3

    report = "results: {request_performance: {aggregate: {requests: {total: 5, failures: 1}, latency: "
    report += "{time_to_first_token: {units: ms, mean: 40, p99p9: 80}}}}}\n"
    [llmd] = read_results(write(tmp_path, "b.yaml", report))
    assert llmd.metrics == {"ttft_s": {"mean": 0.04, "p99.9": 0.08}}
    assert (llmd.completed, llmd.failed) == (4, 1)


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "[1, 2]", "hello", '{"benchmarks": []}', '{"duration": 1', "\x00\x01", '{"a": ' * 5000],
)
def test_what_is_no_result_is_refused_with_a_cure(tmp_path, content):
    with pytest.raises(RidgelineError, match="cure: give a result file"):
        read_results(write(tmp_path, "x.json", content))


@pytest.mark.parametrize("change", [{"completed": "two"}, {"duration": []}, {"completed": 1.5}, {"mean_ttft_ms": True}])
def test_a_field_of_another_type_is_refused(tmp_path, change):
    with pytest.raises(RidgelineError, match="number"):
        read_results(write(tmp_path, "x.json", VLLM | change))


@pytest.fixture(scope="module")
def result():
    return run("chat", overrides={"traffic.requests": 120}, streams=True)


@pytest.mark.parametrize("name", EXPORTS)
def test_what_is_exported_reads_back_equal(result, tmp_path, name):
    """Every figure that the file has a place for."""
    written = write_export(bench_result(result, EXPORTS[name]), name, tmp_path)
    [again] = read_results(written[0])
    figures, before = again.figures(), bench_result(result, EXPORTS[name]).figures()
    assert len(figures) > 40
    assert {name: figures[name] for name in figures} == pytest.approx({name: before[name] for name in figures})


def test_exported_streams_read_back_equal(result, tmp_path):
    before = bench_result(result, "vllm").streams
    [detailed] = read_results(write_export(bench_result(result, "vllm"), "vllm-bench", tmp_path)[0])
    [records] = read_results(write_export(bench_result(result, "aiperf"), "aiperf", tmp_path)[1])
    for again in (detailed.streams, records.streams):
        assert np.allclose(again.chunk_s - again.sent_s[0], before.chunk_s - before.sent_s[0], atol=1e-8)
        assert np.array_equal(again.output_tokens, before.output_tokens)


def test_the_summary_is_what_the_tool_would_have_said(result):
    said = bench_result(result, "vllm")
    for metric in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        for statistic in ("mean", "p50", "p99"):
            assert said.metrics[metric][statistic] == pytest.approx(result.summary[metric][statistic])


def test_a_run_without_streams_cannot_be_exported(tmp_path):
    plain = run("chat", overrides={"traffic.requests": 5})
    with pytest.raises(RidgelineError, match="streams=True"):
        plain.export("guidellm", tmp_path)


def shared_fields(exported, original, path=""):
    """(path, exported, original) of every figure that both have."""
    if isinstance(exported, dict) and isinstance(original, dict):
        for name in exported.keys() & original.keys():
            yield from shared_fields(exported[name], original[name], f"{path}.{name}")
    elif isinstance(exported, list) and isinstance(original, list):
        for index, (one, other) in enumerate(zip(exported, original, strict=False)):
            yield from shared_fields(one, other, f"{path}[{index}]")
    else:
        yield path, exported, original


REAL = {
    "vllm_benchmark_serving_v0.6_full_arrays.json": (to_serving, 20),
    "vllm_bench_sweep_v0.25.1_run0.json": (to_serving, 25),
    "inferencex_bench_sweep_c64.json": (to_serving, 25),
    "guidellm_benchmarks_v0.json": (to_guidellm, 60),
    "guidellm_report_v2.json": (to_guidellm, 60),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_exported_equal_where_both_have_a_field(shared, name):
    convert, least = REAL[name]
    path = shared / "data/bench_results" / name
    original = json.loads(path.read_text())
    result = read_results(path)[0]
    exported = convert(result)
    skipped = ("input_lens", "output_lens", "ttfts", "itls", "errors", "start_times", "metadata", "requests")
    compared = [
        found for found in shared_fields(exported, original) if not any(f".{part}" in found[0] for part in skipped)
    ]
    assert len(compared) >= least
    for field, one, other in compared:
        assert one == (pytest.approx(other) if isinstance(other, float) else other), field


def test_a_real_files_arrays_give_its_own_figures(shared):
    """vllm bench 0.6: ITL from the arrays of all 1,000 requests is the file's; its TTFT counts silent requests as 0."""
    [result] = read_results(shared / "data/bench_results/vllm_benchmark_serving_v0.6_full_arrays.json")
    gaps_s = result.streams.gaps_s()
    assert gaps_s.mean() == pytest.approx(result.metrics["itl_s"]["mean"])
    assert np.percentile(gaps_s, 99) == pytest.approx(result.metrics["itl_s"]["p99"])
    ttft_s = result.streams.first_s - result.streams.sent_s
    assert ttft_s.sum() / result.completed == pytest.approx(result.metrics["ttft_s"]["mean"])


def test_every_real_file_is_read(shared):
    folder = shared / "data/bench_results"
    aside = {"INDEX.csv", "inference_perf_results_config.yaml", "aiperf_profile_exports_doc.md"}
    files = [path for path in sorted(folder.iterdir()) if path.name not in aside]
    assert len(files) >= 15
    for path in files:
        for result in read_results(path):
            assert result.figures(), path


def test_aiperfs_documented_records_are_read(shared, tmp_path):
    """The sample records of its documentation, as lines: one answer and one that was cancelled."""
    text = (shared / "data/bench_results/aiperf_profile_exports_doc.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```json")[1:]]
    records = [json.loads(block) for block in blocks if "request_start_ns" in block]
    path = write(tmp_path, "profile_export.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    [result] = read_results(path)
    assert (result.completed, result.failed) == (1, 1)
    assert result.metrics["inter_chunk_s"]["count"] == 8
    assert result.metrics["output_tokens"]["mean"] == 9


def test_statistics_file_of_aiperf(tmp_path):
    data = {
        "request_latency": {"unit": "ms", "avg": 300.0, "p99": 400.0, "count": 4},
        "request_count": {"unit": "requests", "avg": 4.0},
        "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 2}},
    }
    [result] = read_results(write(tmp_path, "p.json", data))
    assert result.metrics == {"e2e_s": {"mean": 0.3, "p99": 0.4, "count": 4}}
    assert (result.completed, result.model, result.settings) == (4, "m", {"concurrency": 2})
    exported = to_aiperf(result)
    compared = list(shared_fields(exported, data))
    assert len(compared) >= 8
    assert all(one == pytest.approx(other) if isinstance(one, float) else one == other for _, one, other in compared)
