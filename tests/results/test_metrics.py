"""Metric definitions on hand-made streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.results.gaps import GapLog
from sim.results.metrics import PERCENTILES, as_json, attainment, distribution, meets, weighted_distribution
from sim.results.requests import COMPLETED, REJECTED, RequestLog, derive
from sim.results.verdict import judge, waiting_at


def log_of(*rows: tuple[float, float, float, int]) -> dict[str, np.ndarray]:
    """Completed requests given as (arrival, first token, finish, output tokens)."""
    log = RequestLog()
    for arrival_s, first_s, finish_s, tokens in rows:
        row = log.submit(arrival_s, 10, 0)
        log.received_s[row] = log.scheduled_s[row] = arrival_s
        log.first_token_s[row], log.finish_s[row], log.output_tokens[row] = first_s, finish_s, tokens
        log.prefill_s[row] = first_s - arrival_s
        log.status[row] = COMPLETED
    return derive(log.columns())


def test_tpot_leaves_out_the_first_token():
    """guidellm#1144, vllm#17802: TTFT 0.5 s, 11 tokens, E2E 0.7 s is 20.0 ms, not 63.6 (E2E / N) nor 18.2."""
    columns = log_of((0.0, 0.5, 0.7, 11))
    assert columns["tpot_s"][0] == pytest.approx(0.020)


def test_one_token_answer_has_no_tpot_and_is_judged_by_ttft_alone():
    columns = log_of((0.0, 0.5, 0.5, 1))
    assert np.isnan(columns["tpot_s"][0])
    assert meets(columns, {"ttft_s": 0.6, "tpot_s": 0.001, "e2e_s": None})[0]
    assert not meets(columns, {"ttft_s": 0.4, "tpot_s": 0.001, "e2e_s": None})[0]


def test_rejected_and_unfinished_requests_are_misses():
    log = RequestLog()
    for _ in range(4):
        log.submit(0.0, 10, 0)
    log.first_token_s[0], log.finish_s[0], log.status[0] = 0.1, 0.2, COMPLETED
    log.status[1] = REJECTED
    assert attainment(derive(log.columns()), {"ttft_s": 1.0}) == 0.25


def test_attainment_is_undefined_without_an_slo():
    assert attainment(log_of((0.0, 0.5, 0.7, 11)), {"ttft_s": None, "tpot_s": None}) is None


def test_distribution_of_nothing_is_null():
    assert set(distribution(np.array([np.nan])).values()) == {None}


@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.sampled_from([0.0, 1e-9, 0.01, 0.010001, 0.0100010001, 0.5, 7200.0]),  # below, in and above the bins
                st.floats(0, 1e5),
            ),
            st.integers(1, 9),
        ),
        min_size=1,
    ),
    st.integers(1, 9),
)
def test_weighted_distribution_equals_repeating_every_value(pairs, piece_rows):
    """Whatever shares a bin, and wherever the pieces end."""
    values, weights = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    weighted = weighted_distribution(lambda: in_pieces(values, weights, piece_rows))
    repeated = np.repeat(values, weights)
    assert weighted == pytest.approx(distribution(repeated), rel=1e-12, abs=1e-300)
    assert [weighted[f"p{p}"] for p in PERCENTILES] == pytest.approx(np.percentile(repeated, PERCENTILES), rel=1e-12)
    assert weighted["max"] == repeated.max()


def in_pieces(values, weights, rows):
    """Pieces of so many rows, and an empty one."""
    yield values[:0], weights[:0]
    for start in range(0, len(values), rows):
        yield values[start : start + rows], weights[start : start + rows]


def test_a_percentile_on_a_rank_is_that_gap_to_the_last_bit():
    """10,001 gaps that lie close together, some of them shared: the p50 is the 5,000th from 0, the p99 the 9,900th."""
    weights = np.append(np.tile([1, 9], 1000), 1)
    values = np.random.default_rng(0).normal(0.01, 0.0001, len(weights))
    weighted = weighted_distribution(lambda: in_pieces(values, weights, 100))
    ordered = np.sort(np.repeat(values, weights))
    assert len(ordered) == 10_001
    assert {f"p{p}": ordered[100 * p] for p in PERCENTILES}.items() <= weighted.items()


def test_weighted_distribution_of_nothing_is_null():
    assert set(weighted_distribution(list).values()) == {None}


def test_gaps_keep_the_largest_since_any_step():
    generator = np.random.default_rng(1)
    gaps, log = generator.random(200), GapLog()
    for step, gap_s in enumerate(gaps):
        log.peak_s = max(log.peak_s, gap_s)
        log.mark(step)
        for since in (0, step // 2, step - 1):
            expected = gaps[since + 1 : step + 1].max(initial=0.0)
            assert log.largest_after(since) == expected


def test_waiting_counts_received_but_unscheduled():
    received, scheduled = np.array([0.0, 1.0, 2.0]), np.array([0.5, np.nan, 2.0])
    assert waiting_at(np.array([0.0, 0.7, 1.5, 2.0]), received, scheduled).tolist() == [1, 0, 1, 1]


def test_a_growing_queue_is_overloaded_and_a_steady_one_is_not():
    arrivals = np.arange(1000) * 0.1
    assert judge(arrivals, np.arange(1000) * 0.11, open_loop=True).state == "overloaded"
    assert judge(arrivals, arrivals + 5.0, open_loop=True).state == "stable"
    assert judge(arrivals, np.arange(1000) * 0.11, open_loop=False).state == "stable"


def test_a_stable_md1_queue_near_saturation_is_not_called_overloaded():
    """M/D/1 at 90 % load has long queues, but they do not grow."""
    wrong = 0
    for seed in range(20):
        arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0, 4000))
        start, free = np.empty(4000), 0.0
        for index, arrival in enumerate(arrivals):
            start[index] = max(arrival, free)
            free = start[index] + 0.9
        wrong += judge(arrivals, start, open_loop=True).state == "overloaded"
    assert wrong <= 1


def test_json_has_no_nan():
    assert as_json({"a": [np.float64("nan"), np.int64(3)], "b": (float("inf"),)}) == {"a": [None, 3], "b": [None]}
