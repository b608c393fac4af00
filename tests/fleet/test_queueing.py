"""Closed forms a simulator must meet, and what it must conserve."""

import numpy as np
import pytest

import sim

LINEAR = {"model": "linear", "prefill_step_s": 0.1}


def world(**changes):
    """A server of one request at a time that takes 0.1 s, whatever its length."""
    scenario = {
        "model": {"parameters": 8e9},
        "hardware": "h100-sxm",
        "engine": {"name": "vllm", "version": "0.33", "max_sequences": 1, "async_scheduling": False},
        "traffic": {
            "arrivals": {"process": "poisson", "rate": 7.0},
            "requests": 20000,
            "prompt_tokens": 10,
            "output_tokens": 1,
        },
        "cost": LINEAR,
    }
    return sim.run(scenario, overrides=changes)


def test_md1_waiting_time():
    """M/D/1 at 70 % load: the mean wait is rho s / (2 (1 - rho)) = 116.7 ms."""
    waits = [world(seed=seed).requests.queue_s.mean() for seed in range(4)]
    assert np.mean(waits) == pytest.approx(0.7 * 0.1 / (2 * 0.3), rel=0.05)


def test_littles_law():
    """Mean requests in the system = throughput x mean time in it, exactly, over a run that starts and ends empty."""
    requests = world().requests
    events = np.concatenate([requests.arrival_s, requests.finish_s])
    change = np.repeat([1, -1], len(requests))
    order = np.argsort(events, kind="stable")
    span_s = events.max() - events.min()
    in_system = (np.cumsum(change[order])[:-1] * np.diff(events[order])).sum() / span_s
    assert in_system == pytest.approx(len(requests) / span_s * requests.e2e_s.mean())


def test_an_overloaded_server_says_so_and_a_stable_one_does_not():
    assert world(**{"traffic.requests": 3000}).summary["verdict"] == "stable"
    assert world(**{"traffic.requests": 3000, "traffic.arrivals.rate": 11}).summary["verdict"] == "overloaded"


def test_bound_shares_sum_to_one_and_busy_time_is_load():
    summary = world().summary
    assert sum(summary["bound"].values()) == pytest.approx(1)
    assert 1 - summary["bound"]["idle"] == pytest.approx(20000 * 0.1 / summary["simulated_s"])


CHAT = {
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm", "version": "0.33"},
    "traffic": {
        "arrivals": {"process": "poisson", "rate": 20},
        "requests": 300,
        "prompt_tokens": {"distribution": "lognormal", "mean": 700, "p99": 4000},
        "output_tokens": {"distribution": "lognormal", "mean": 100, "p99": 500},
    },
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine.async_scheduling": False},
        {"engine.kv_blocks": 900, "engine.max_model_len": 10000},
        {"engine.kv_blocks": 900, "engine.max_model_len": 10000, "engine.async_scheduling": False},
        {"traffic.shared_prefix": {"tokens": 256, "groups": 3}},
        {"deployment.replicas": 3},
        {"traffic.arrivals": {"process": "closed", "concurrency": 16}},
        {"engine.max_batched_tokens": 256, "engine.max_sequences": 8},
    ],
    ids=["async", "sync", "tight-async", "tight-sync", "shared-prefix", "replicas", "closed", "small-budget"],
)
def test_parts_sum_to_the_whole_and_tokens_are_conserved(changes):
    """TTFT and E2E are the sums of their parts; gaps number one less than tokens; all work is accounted for."""
    result = sim.run(CHAT, overrides=changes)
    requests = result.requests
    assert (requests.status == "completed").all()
    ttft_parts = requests[["dispatch_s", "queue_s", "prefill_s", "prefill_stall_s"]]
    assert (ttft_parts > -1e-9).all(axis=None)
    np.testing.assert_allclose(ttft_parts.sum(axis=1), requests.ttft_s, atol=1e-9)
    decode_parts = requests[["decode_s", "decode_interference_s", "decode_stall_s"]]
    assert (decode_parts > -1e-9).all(axis=None)
    np.testing.assert_allclose(decode_parts.sum(axis=1), requests.e2e_s - requests.ttft_s, atol=1e-7)
    logs = [recorder.gaps for recorder in result.run.recorders]
    gaps = result.steps.streaming.sum() + sum(len(log.gap_s) for log in logs)
    assert gaps == (requests.output_tokens - 1).sum()
    gap_time_s = np.dot(result.steps.gap_s, result.steps.streaming) + sum(sum(log.gap_s) for log in logs)
    assert gap_time_s == pytest.approx((requests.e2e_s - requests.ttft_s).sum())
    scheduled = result.steps.prefill_tokens.sum() + result.steps.decode_sequences.sum()
    computed = (requests.prompt_tokens - requests.cached_tokens + requests.output_tokens - 1).sum()
    assert scheduled == computed if requests.preemptions.sum() == 0 else scheduled > computed
    assert result.steps.preemptions.sum() == requests.preemptions.sum() == result.summary["preemptions"]


def test_a_tight_pool_preempts():
    """The tight cases above do preempt, so that their parts are tested too."""
    result = sim.run(CHAT, overrides={"engine.kv_blocks": 900, "engine.max_model_len": 10000})
    assert result.summary["preemptions"] > 0
    assert result.requests.decode_stall_s.max() > 0


def test_steps_of_a_replica_do_not_overlap():
    steps = sim.run(CHAT).steps
    assert (steps.start_s[1:].to_numpy() - (steps.start_s + steps.duration_s)[:-1].to_numpy() > -1e-9).all()


def test_the_same_seed_gives_byte_identical_tables_and_another_does_not(tmp_path):
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        sim.run(CHAT, seed=seed).save(tmp_path / folder)
    for name in ("requests.parquet", "steps.parquet", "summary.json"):
        first, again, other = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert first == again
        assert first != other


def test_more_replicas_never_hurt():
    """Twice the replicas at the same load: every mean latency falls or stays."""
    one, two = (sim.run(CHAT, overrides={"deployment.replicas": n}).summary for n in (1, 2))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert two[name]["mean"] <= one[name]["mean"]


def test_asynchronous_scheduling_hides_the_host():
    """Where the device takes longer than the host, asynchronous steps take the device's time alone."""
    slow, fast = (sim.run(CHAT, overrides={"engine.async_scheduling": on}).summary for on in (False, True))
    assert fast["tpot_s"]["mean"] < slow["tpot_s"]["mean"]


def test_a_request_that_can_never_fit_is_rejected_and_the_rest_served():
    result = sim.run(
        CHAT,
        overrides={
            "traffic.prompt_tokens": {"distribution": "uniform", "low": 100, "high": 4000},
            "engine.max_model_len": 2000,
        },
    )
    counts = result.summary["requests"]
    assert counts["rejected"] == (result.requests.prompt_tokens >= 2000).sum() > 0
    assert counts["completed"] + counts["rejected"] == counts["submitted"] == 300


def test_a_client_limit_is_no_part_of_ttft():
    """With max_concurrency requests wait at the client, and are sent later; they never exceed the limit."""
    requests = sim.run(CHAT, overrides={"traffic.arrivals.max_concurrency": 4}).requests
    open_at_send = [((requests.arrival_s <= sent) & (requests.finish_s > sent)).sum() for sent in requests.arrival_s]
    assert max(open_at_send) == 4


def test_burstier_arrivals_raise_tail_latency():
    """inference-sim#818: gamma gaps with CV 3 against Poisson at the same rate."""
    smooth, bursty = (
        sim.run(
            CHAT,
            overrides={"traffic.arrivals": {"process": "gamma", "rate": 20, "cv": cv}, "traffic.requests": 1500},
        ).summary
        for cv in (1.0, 3.0)
    )
    assert bursty["ttft_s"]["p99"] > 1.3 * smooth["ttft_s"]["p99"]
