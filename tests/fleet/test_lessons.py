"""The lessons this simulator grew from, reproduced by the example workloads."""

import pytest

import sim


def one(repo, name, **overrides):
    """The only request of a lesson, with dotted overrides written with double underscores."""
    result = sim.run(
        repo / "workloads/lessons" / name, overrides={k.replace("__", "."): v for k, v in overrides.items()}
    )
    assert len(result.requests) == 1
    return result.requests.iloc[0]


@pytest.mark.parametrize(
    ("tokens", "milliseconds", "bound"),
    [
        (1, 4.78, "memory"),
        (32, 4.78, "memory"),
        (512, 8.28, "compute"),
        (4096, 66.26, "compute"),
        (200, 4.78, "memory"),
    ],
)
def test_one_pass_of_eight_billion_parameters(repo, tokens, milliseconds, bound):
    """One pass takes the weights' read below the ridge of 295 FLOP/B and the FLOPs above it."""
    result = sim.run(
        repo / "workloads/lessons/roofline.yaml",
        overrides={"traffic.prompt_tokens": tokens, "traffic.output_tokens": 1},
    )
    assert result.requests.ttft_s[0] * 1e3 == pytest.approx(milliseconds, abs=0.005)
    assert result.steps.bound.tolist() == [bound]


def test_prefill_is_compute_decode_is_memory(repo):
    """2,000 -> 200 tokens: TTFT 32 ms, TPOT 4.78 ms, E2E 983 ms."""
    request = one(repo, "roofline.yaml")
    assert request.ttft_s * 1e3 == pytest.approx(32.35, abs=0.01)
    assert request.tpot_s * 1e3 == pytest.approx(4.78, abs=0.005)
    assert request.e2e_s * 1e3 == pytest.approx(983, abs=0.5)


def test_a_long_answer_takes_ten_times_a_long_prompt(repo):
    """200 -> 2,000 takes about ten times as long as 2,000 -> 200, for the same tokens in all."""
    answer = one(repo, "roofline.yaml", traffic__prompt_tokens=200, traffic__output_tokens=2000)
    assert answer.e2e_s / one(repo, "roofline.yaml").e2e_s == pytest.approx(9.7, abs=0.3)


@pytest.mark.parametrize(
    ("prompt", "output", "ttft_ms", "total_s"),
    [(2000, 200, 40, 1.04), (20000, 100, 400, 0.90), (200, 1000, 4, 5.05)],
    ids=["chat", "summarise", "story"],
)
def test_linear_model_alone(repo, prompt, output, ttft_ms, total_s):
    """Batch 1: TPOT 5.05 ms whatever the task; 198 tokens/s."""
    request = one(repo, "linear.yaml", traffic__prompt_tokens=prompt, traffic__output_tokens=output)
    assert request.ttft_s * 1e3 == pytest.approx(ttft_ms)
    assert request.tpot_s * 1e3 == pytest.approx(5.05)
    assert request.e2e_s == pytest.approx(total_s, abs=0.006)
    assert 1 / request.tpot_s == pytest.approx(198, abs=0.1)


def test_linear_model_at_batch_32(repo):
    """32 streams that decode together: 6.60 ms per token, 4,848 tokens/s in all."""
    result = sim.run(
        repo / "workloads/lessons/linear.yaml",
        overrides={
            "traffic.requests": 32,
            "traffic.arrivals.concurrency": 32,
            "traffic.prompt_tokens": 10,
            "cost.prefill_s_per_token": 0,
        },
    )
    assert result.requests.tpot_s.to_list() == pytest.approx([6.60e-3] * 32)
    assert 32 / result.requests.tpot_s.mean() == pytest.approx(4848, abs=1)


def test_a_queue_moves_ttft_and_the_total_only(repo):
    """A request that waits 500 ms for another to end has a TTFT and an E2E 500 ms longer, and the same TPOT."""
    result = sim.run(
        repo / "workloads/lessons/linear.yaml",
        overrides={
            "traffic.arrivals": {"process": "burst"},
            "traffic.requests": 2,
            "engine.max_sequences": 1,
            "engine.async_scheduling": False,
        },
    )
    first, second = result.requests.itertuples()
    wait_s = second.queue_s
    assert wait_s == pytest.approx(first.e2e_s)
    assert second.ttft_s - first.ttft_s == pytest.approx(wait_s)
    assert second.e2e_s - first.e2e_s == pytest.approx(wait_s)
    assert second.tpot_s == pytest.approx(first.tpot_s)


def test_480_tokens_are_nearly_all_decode(repo):
    """10.9 s, 97.1 % of it decode; halving TTFT saves 160 ms (1.5 %), 2 ms per token saves 958 ms (8.8 %)."""
    base = one(repo, "long_answer.yaml")
    assert base.e2e_s == pytest.approx(10.9, abs=0.05)
    assert base.decode_s / base.e2e_s == pytest.approx(0.971, abs=0.0005)
    faster_start = one(repo, "long_answer.yaml", cost__prefill_s_per_token=160e-6)
    assert base.e2e_s - faster_start.e2e_s == pytest.approx(0.160)
    assert (base.e2e_s - faster_start.e2e_s) / base.e2e_s == pytest.approx(0.015, abs=0.0005)
    faster_stream = one(repo, "long_answer.yaml", cost__step_s=20e-3)
    assert base.e2e_s - faster_stream.e2e_s == pytest.approx(0.958)
    assert (base.e2e_s - faster_stream.e2e_s) / base.e2e_s == pytest.approx(0.088, abs=0.0005)


def test_a_long_prompt_in_one_piece_stalls_every_stream(repo):
    """143 ms of prefill in a 25 ms step: a gap of 168 ms between the tokens of all forty streams."""
    result = sim.run(repo / "workloads/lessons/chunked_prefill.yaml", overrides={"engine.long_prefill_threshold": 0})
    assert result.requests.itl_max_s[:40].to_list() == pytest.approx([0.168] * 40)


def test_a_long_prompt_in_chunks_slows_every_stream_a_little(repo):
    """Chunks of 512: worst gap 43 ms, 23 tokens/s meanwhile, and the newcomer's first token after 343 ms."""
    result = sim.run(repo / "workloads/lessons/chunked_prefill.yaml")
    worst_s = result.requests.itl_max_s[:40]
    assert worst_s.to_list() == pytest.approx([0.0433] * 40, abs=5e-5)
    assert 1 / worst_s[0] == pytest.approx(23, abs=0.2)
    newcomer = result.requests.iloc[40]
    assert newcomer.first_token_s - newcomer.scheduled_s == pytest.approx(0.343, abs=5e-4)
    assert result.steps.prefill_tokens[result.steps.prefill_tokens > 40].tolist() == [512] * 7 + [416]


def test_streaming(repo):
    """2,048 -> 128 tokens, 0.85 s to the first, 40 tokens/s: 127 gaps, 3.175 s."""
    request = one(repo, "streaming.yaml")
    assert request.ttft_s == pytest.approx(0.85)
    assert request.e2e_s - request.ttft_s == pytest.approx(3.175)
    assert request.output_tokens - 1 == 127


def test_who_starts_first_need_not_end_first(repo):
    """A: 2 s then 50 tokens/s; B: 0.5 s then 20 tokens/s. For 100 tokens B starts first and A ends first."""
    a = one(repo, "streaming.yaml", traffic__output_tokens=100, cost__prefill_step_s=2, cost__step_s=20e-3)
    b = one(repo, "streaming.yaml", traffic__output_tokens=100, cost__prefill_step_s=0.5, cost__step_s=50e-3)
    assert b.ttft_s < a.ttft_s
    assert a.e2e_s < b.e2e_s
    assert (a.e2e_s, b.e2e_s) == pytest.approx((3.98, 5.45))
