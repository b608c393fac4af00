"""Load generators' arrivals, against figures worked out by hand from their definitions."""

import numpy as np
import pytest

from sim.api import run
from sim.errors import ScenarioError
from sim.scenario.specs import TrafficSpec
from sim.traffic.load import open_traffic

SEED = 7


def load_of(tmp_path, block_requests=8192, **traffic):
    """The load of a traffic mapping, with lengths of 10 and 5 where it says none."""
    from sim.traffic.load import Traffic

    spec = TrafficSpec.model_validate({"prompt_tokens": 10, "output_tokens": 5, **traffic})
    return Traffic(spec, tmp_path, SEED, block_requests)


def times_s(tmp_path, requests=None, block_requests=8192, **arrivals):
    traffic = {"arrivals": arrivals} | ({} if requests is None else {"requests": requests})
    return np.array([arrival.time_s for arrival in load_of(tmp_path, block_requests, **traffic)])


PROCESSES = [
    {"process": "vllm-bench", "rate": 4.0, "burstiness": 0.5},
    {"process": "vllm-bench", "ramp_up": "linear", "ramp_up_start_rate": 1.0, "ramp_up_end_rate": 9.0},
    {"process": "sglang-bench", "rate": 4.0},
    {"process": "guidellm", "profile": "constant", "rate": 4.0, "rampup": 10.0},
    {"process": "guidellm", "profile": "poisson", "rate": 4.0},
    {"process": "guidellm", "profile": "throughput", "max_concurrency": 8, "rampup": 2.0},
    {"process": "aiperf", "rate": 4.0, "arrival_pattern": "gamma", "arrival_smoothness": 2.0},
    {"process": "inference-perf", "type": "constant", "rate": 4.0, "duration": 30.0},
    {"process": "inference-perf", "type": "poisson", "rate": 4.0, "duration": 30.0},
]


@pytest.mark.parametrize("arrivals", PROCESSES, ids=lambda keys: "-".join(map(str, keys.values())))
def test_blocks_never_change_a_value_and_times_never_fall(tmp_path, arrivals):
    whole = times_s(tmp_path, 100, **arrivals)
    assert len(whole) == 100
    assert (np.diff(whole) >= 0).all()
    assert np.array_equal(whole, times_s(tmp_path, 100, block_requests=7, **arrivals))
    assert np.array_equal(whole, times_s(tmp_path, 100, block_requests=1, **arrivals))


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_vllm_bench_ends_at_requests_over_rate_exactly(tmp_path, burstiness):
    """500 requests at 4/s: the last at 125 s to the bit; gaps keep their shape, a CV of burstiness ** -0.5."""
    sent_s = times_s(tmp_path, 500, process="vllm-bench", rate=4.0, burstiness=burstiness)
    assert sent_s[-1] == 125.0
    assert sent_s[0] > 0
    gaps_s = np.diff(sent_s, prepend=0.0)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(burstiness**-0.5, rel=0.15)


def test_vllm_bench_stretches_the_very_gaps_of_the_gamma_process(tmp_path):
    """All times are those of process: gamma times one factor, 25 s over its own last time."""
    plain = times_s(tmp_path, 100, process="gamma", rate=4.0, burstiness=2.0)
    stretched = times_s(tmp_path, 100, process="vllm-bench", rate=4.0, burstiness=2.0)
    assert stretched == pytest.approx(plain * 25.0 / plain[-1])


def test_vllm_bench_ramps_by_index_without_stretching(tmp_path):
    """Rates from 1 to 9/s over 2,001 requests: expected time is the sum of 1 / (1 + 8 i / 2000), 2000 ln(9) / 8."""
    keys = {"ramp_up_start_rate": 1.0, "ramp_up_end_rate": 9.0, "burstiness": 100.0}
    linear = times_s(tmp_path, 2001, process="vllm-bench", ramp_up="linear", **keys)
    assert linear[-1] == pytest.approx(2000 * np.log(9) / 8, rel=0.02)
    # exponential: rate 9 ** (i / 2000), so the sum of its inverse is 2000 (1 - 1/9) / ln 9
    exponential = times_s(tmp_path, 2001, process="vllm-bench", ramp_up="exponential", **keys)
    assert exponential[-1] == pytest.approx(2000 * (1 - 1 / 9) / np.log(9), rel=0.02)


def test_a_rate_that_is_left_out_is_infinite(tmp_path):
    for process in ("vllm-bench", "sglang-bench"):
        load = load_of(tmp_path, arrivals={"process": process, "max_concurrency": 3}, requests=5)
        assert [arrival.time_s for arrival in load] == [0.0] * 5
        assert (load.at_once, load.max_concurrency, load.closed_concurrency) == (True, 3, None)


def test_sglang_sends_the_first_at_once_and_then_waits(tmp_path):
    poisson = times_s(tmp_path, 50, process="poisson", rate=4.0)
    sglang = times_s(tmp_path, 51, process="sglang-bench", rate=4.0)
    assert sglang[0] == 0.0
    assert np.array_equal(sglang[1:], poisson)


def test_guidellm_constant_counts_from_one_and_rises(tmp_path):
    """At 4/s the i-th is at i / 4. With a ramp of 8 s: 16 requests at sqrt(2 i 8 / 4), the 17th at 8 + 1/4."""
    assert times_s(tmp_path, 3, process="guidellm", profile="constant", rate=4.0) == pytest.approx([0.25, 0.5, 0.75])
    rising = times_s(tmp_path, 18, process="guidellm", profile="constant", rate=4.0, rampup=8.0)
    assert rising[:2] == pytest.approx([2.0, np.sqrt(8.0)])
    assert rising[15:] == pytest.approx([8.0, 8.25, 8.5])


def test_guidellm_spreads_its_first_streams_over_the_ramp(tmp_path):
    """4 streams over 2 s: the counter starts at 1, so 0.5, 1.0 and 1.5 s, and the fourth at once."""
    load = load_of(
        tmp_path, arrivals={"process": "guidellm", "profile": "concurrent", "streams": 4, "rampup": 2.0}, requests=6
    )
    assert [arrival.time_s for arrival in load][:4] == pytest.approx([0.0, 0.5, 1.0, 1.5])
    assert load.closed_concurrency == 4


@pytest.mark.parametrize(
    ("arrivals", "clients"),
    [
        ({"process": "guidellm", "profile": "synchronous"}, 1),
        ({"process": "guidellm", "profile": "concurrent", "streams": 6}, 6),
        ({"process": "aiperf", "concurrency": 5}, 5),
        ({"process": "inference-perf", "type": "concurrent", "concurrency": 7}, 7),
        ({"process": "llmperf", "concurrency": 9}, 9),
    ],
)
def test_loops_that_wait_for_answers_are_closed(tmp_path, arrivals, clients):
    load = load_of(tmp_path, arrivals=arrivals, requests=20)
    assert load.closed_concurrency == clients
    assert load.limit == clients


def test_aiperf_waits_for_its_first_interval(tmp_path):
    constant = times_s(tmp_path, 3, process="aiperf", rate=2.0, arrival_pattern="constant")
    assert constant == pytest.approx([0.5, 1.0, 1.5])
    assert np.array_equal(
        times_s(tmp_path, 20, process="aiperf", rate=2.0), times_s(tmp_path, 20, process="poisson", rate=2.0)
    )


def test_aiperf_skips_a_moment_at_which_all_places_are_taken():
    """One place, a moment every second, 2.5 s per request: sent at 1, then 4 (2 and 3 are skipped), then 7."""
    world = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"name": "vllm", "version": "0.11"},
        "traffic": {
            "arrivals": {"process": "aiperf", "rate": 1.0, "arrival_pattern": "constant", "concurrency": 1},
            "requests": 3,
            "prompt_tokens": 10,
            "output_tokens": 1,
        },
        "cost": {"model": "linear", "prefill_step_s": 2.5},
    }
    assert run(world).requests.arrival_s.tolist() == pytest.approx([1.0, 4.0, 7.0])


def test_inference_perfs_constant_is_normalised_exponential(tmp_path):
    """int(3.5 x 9) = 31 requests, the last at 9 s to the bit, gaps as those of a Poisson process times one factor."""
    sent_s = times_s(tmp_path, process="inference-perf", type="constant", rate=3.5, duration=9.0)
    assert len(sent_s) == 31
    assert sent_s[-1] == 9.0
    plain = times_s(tmp_path, 31, process="poisson", rate=3.5)
    assert sent_s == pytest.approx(plain * 9.0 / plain[-1])


def test_inference_perfs_poisson_fills_every_second(tmp_path):
    """The last request of each second is sent at its very end; numbers per second have Poisson's variance."""
    sent_s = times_s(tmp_path, process="inference-perf", type="poisson", rate=20.0, duration=400.0)
    assert len(sent_s) == 8000
    seconds = np.ceil(sent_s).astype(int)
    counts = np.bincount(seconds)[1 : seconds.max()]
    assert counts.mean() == pytest.approx(20.0, rel=0.05)
    assert counts.var() == pytest.approx(20.0, rel=0.2)
    ends = np.array([sent_s[seconds == second][-1] for second in np.unique(seconds)[:-1]])
    assert np.array_equal(ends, np.unique(seconds)[:-1])


@pytest.mark.parametrize(
    ("distribution", "bounds"),
    [
        ({"distribution": "vllm-random", "length": 1001, "range_ratio": 0.1}, (900, 1102)),
        ({"distribution": "vllm-random", "length": 3}, (3, 3)),
        ({"distribution": "vllm-random", "length": 1, "range_ratio": 0.9}, (1, 2)),
        ({"distribution": "sglang-random", "length": 1001, "range_ratio": 0.8}, (800, 1001)),
        ({"distribution": "sglang-random", "length": 4}, (1, 4)),
    ],
)
def test_random_lengths_of_the_tools(tmp_path, distribution, bounds):
    """vllm: floor(L (1 - r)) to ceil(L (1 + r)); sglang: max(int(L r), 1) to L; each whole number as likely."""
    load = load_of(tmp_path, arrivals={"process": "burst"}, requests=20_000, prompt_tokens=distribution)
    lengths = np.array([arrival.prompt_tokens for arrival in load])
    assert (lengths.min(), lengths.max()) == bounds
    assert lengths.mean() == pytest.approx(sum(bounds) / 2, rel=0.02)


@pytest.mark.parametrize(
    ("arrivals", "path"),
    [
        ({"process": "vllm-bench", "rate": 1.0}, "requests"),
        ({"process": "vllm-bench", "burstiness": 2.0}, "burstiness"),
        ({"process": "vllm-bench", "ramp_up": "linear", "ramp_up_end_rate": 2.0}, "ramp_up_start_rate"),
        ({"process": "vllm-bench", "rate": 1.0, "ramp_up_end_rate": 2.0}, "ramp_up_end_rate"),
        ({"process": "sglang-bench", "rate": 1e-9}, "rate"),
        ({"process": "guidellm", "profile": "poisson"}, "rate"),
        ({"process": "guidellm", "profile": "poisson", "rate": 1.0, "rampup": 3.0}, "rampup"),
        ({"process": "guidellm", "profile": "synchronous", "streams": 3}, "streams"),
        ({"process": "guidellm", "profile": "throughput", "rampup": 3.0}, "rampup"),
        ({"process": "aiperf"}, "rate"),
        ({"process": "aiperf", "concurrency": 3, "arrival_pattern": "gamma"}, "arrival_pattern"),
        ({"process": "aiperf", "rate": 3.0, "arrival_smoothness": 2.0}, "arrival_smoothness"),
        ({"process": "inference-perf", "type": "constant", "rate": 3.0}, "duration"),
        ({"process": "inference-perf", "type": "concurrent", "rate": 3.0}, "concurrency"),
    ],
)
def test_flags_that_need_or_exclude_each_other(tmp_path, arrivals, path):
    requests = {} if path == "requests" else {"requests": 10}
    spec = TrafficSpec.model_validate({"arrivals": arrivals, "prompt_tokens": 1, "output_tokens": 1, **requests})
    with pytest.raises(ScenarioError) as caught:
        open_traffic(spec, tmp_path, 0)
    assert any(problem.path.endswith(path) for problem in caught.value.problems)


def test_every_protocol_runs_end_to_end():
    for arrivals in [*PROCESSES, {"process": "llmperf", "concurrency": 4}, {"process": "aiperf", "concurrency": 4}]:
        overrides = {"traffic.arrivals": arrivals, "traffic.requests": 40}
        summary = run("chat", overrides=overrides).summary
        assert summary["requests"]["completed"] == 40, arrivals
