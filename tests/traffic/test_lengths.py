"""Lengths, caps, shared prefixes and priorities."""

from math import exp, log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError, TraceError
from sim.scenario.lognormal import STEEPEST_P99, Z99, lognormal_sigma
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic

TEN = {"distribution": "fixed", "value": 10}


def load(requests=1, *, seed=0, base_dir=Path(), **keys):
    spec = {"arrivals": {"process": "burst"}, "requests": requests, "prompt_tokens": TEN, "output_tokens": TEN} | keys
    return list(open_traffic(TrafficSpec.model_validate(spec), base_dir, seed))


def drawn(distribution, requests=200_000, **parameters):
    lengths = {"distribution": distribution} | parameters
    return np.array([arrival.prompt_tokens for arrival in load(requests, prompt_tokens=lengths)])


def test_uniform_includes_both_ends():
    """Integers, each as likely."""
    values, counts = np.unique(drawn("uniform", 60_000, low=3, high=8), return_counts=True)
    assert values.tolist() == [3, 4, 5, 6, 7, 8]
    assert counts.min() > 9500
    assert counts.max() < 10_500


def test_uniform_of_one_value():
    assert set(drawn("uniform", 10, low=5, high=5)) == {5}


def test_normal_has_its_mean_and_std():
    values = drawn("normal", mean=500, std=40)
    assert values.mean() == pytest.approx(500, abs=0.5)
    assert values.std() == pytest.approx(40, rel=0.01)


def test_normal_is_rounded_then_clipped():
    values = drawn("normal", 20_000, mean=5, std=10, low=3, high=8)
    assert (values.min(), values.max()) == (3, 8)
    assert (values == 3).mean() == pytest.approx(0.440, abs=0.01), "all below 3.5"
    assert set(drawn("normal", 10, mean=7.4, std=0)) == {7}


def test_no_request_is_without_tokens():
    assert drawn("normal", 1000, mean=1, std=100).min() == 1


def test_lognormal_has_its_mean_and_p99():
    values = drawn("lognormal", 400_000, mean=1024, p99=8000)
    assert values.mean() == pytest.approx(1024, rel=0.02)
    assert np.quantile(values, 0.99) == pytest.approx(8000, rel=0.03)


def test_lognormal_by_sigma():
    values = drawn("lognormal", 400_000, mean=1024, sigma=0.5)
    assert values.mean() == pytest.approx(1024, rel=0.01)
    assert np.log(values).std() == pytest.approx(0.5, rel=0.01)


def test_lognormal_without_width_is_its_mean():
    assert set(drawn("lognormal", 10, mean=300, sigma=0)) == set(drawn("lognormal", 10, mean=300, p99=300)) == {300}


@given(st.floats(1, 1e6), st.floats(1.0, STEEPEST_P99 * 0.999999))
def test_lognormal_sigma_solves_its_equations(mean, ratio):
    """mean = exp(mu + sigma^2 / 2) and ln p99 = mu + z sigma, with the smaller root."""
    sigma = lognormal_sigma(mean, mean * ratio)
    mu = log(mean) - sigma**2 / 2
    assert exp(mu + Z99 * sigma) == pytest.approx(mean * ratio, rel=1e-9)
    assert 0 <= sigma <= Z99


def test_z99_is_the_normal_quantile():
    from scipy.stats import norm

    assert norm.cdf(Z99) == pytest.approx(0.99, abs=1e-15)


@pytest.mark.parametrize("p99", [500, 1024 * 15.0])
def test_a_p99_no_lognormal_has_is_refused(p99):
    with pytest.raises(ScenarioError, match=r"traffic\.prompt_tokens\.p99.*14\.97"):
        drawn("lognormal", 1, mean=1024, p99=p99)


def test_wild_lognormals_stay_countable():
    """A sigma of 1000 overflows exp: clipped, not inf."""
    values = drawn("lognormal", 1000, mean=1e300, sigma=1000)
    assert set(np.unique(values)) <= {1, 10_000_000}


def test_empirical_draws_from_the_column(tmp_path):
    (tmp_path / "lengths.csv").write_text("in,out\n5,1\n7,2\n7,3\n")
    lengths = {"distribution": "empirical", "path": "lengths.csv", "column": "in"}
    values = [a.prompt_tokens for a in load(30_000, prompt_tokens=lengths, base_dir=tmp_path)]
    assert set(values) == {5, 7}
    assert np.mean(np.array(values) == 7) == pytest.approx(2 / 3, abs=0.02)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_empirical_reads_every_kind_of_file(tmp_path, suffix):
    table = pd.DataFrame({"in": [11, 11, 11], "other": ["a", "b", "c"]})
    path = tmp_path / f"lengths.{suffix}"
    {
        "csv": lambda: table.to_csv(path, index=False),
        "jsonl": lambda: table.to_json(path, orient="records", lines=True),
        "parquet": lambda: table.to_parquet(path),
    }[suffix]()
    lengths = {"distribution": "empirical", "path": str(path), "column": "in"}
    assert [a.output_tokens for a in load(4, output_tokens=lengths)] == [11] * 4


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("in\n5\n0\n", r"lengths\.csv:3: in: 0 is no token count"),
        ("in\n5\n\nnan\n", r"lengths\.csv:4: in: 'nan' is no whole number"),
        ("in\n", "there is no row"),
        ("x,y\n1,2\n", "one of: x, y"),
        ("", "the file is empty"),
    ],
)
def test_a_bad_column_is_refused_before_anything_runs(tmp_path, text, complaint):
    (tmp_path / "lengths.csv").write_text(text)
    with pytest.raises(TraceError, match=complaint):
        load(prompt_tokens={"distribution": "empirical", "path": "lengths.csv", "column": "in"}, base_dir=tmp_path)


@pytest.mark.parametrize("name", ["nowhere.csv", ".", "a\0b", "~nobody-by-this-name/x"])
def test_a_missing_file_is_refused_by_path(tmp_path, name):
    with pytest.raises(ScenarioError, match=r"traffic\.output_tokens\.path"):
        load(output_tokens={"distribution": "empirical", "path": name, "column": "in"}, base_dir=tmp_path)


def test_the_cap_cuts_outputs_and_is_what_the_engine_knows():
    lengths = {"distribution": "uniform", "low": 1, "high": 100}
    free, capped = load(1000, output_tokens=lengths), load(1000, output_tokens=lengths, max_output_tokens=40)
    assert all(a.max_output_tokens == a.output_tokens for a in free)
    assert [(a.output_tokens, a.max_output_tokens) for a in capped] == [(min(a.output_tokens, 40), 40) for a in free]


def test_a_shared_prefix_adds_to_the_prompt():
    made = load(3000, shared_prefix={"tokens": 100, "groups": 3})
    for a in made:
        (shared, shared_tokens), own = a.prompt
        assert shared in {"shared:0", "shared:1", "shared:2"}
        assert (shared_tokens, own) == (100, (f"p:{a.index}", 10))
        assert a.prompt_tokens == 110
    counts = np.unique([a.prompt[0][0] for a in made], return_counts=True)[1]
    assert counts.min() > 900


def test_priorities_follow_their_weights():
    priorities = np.array([a.priority for a in load(50_000, priorities={10: 1.0, -5: 3.0})])
    assert set(np.unique(priorities)) == {-5, 10}
    assert (priorities == -5).mean() == pytest.approx(0.75, abs=0.01)


def test_priorities_do_not_depend_on_how_they_are_written():
    """Order and scale of the weights mean nothing."""
    assert load(100, priorities={0: 5e307, 1: 1.5e308}) == load(100, priorities={1: 0.75, 0: 0.25})
