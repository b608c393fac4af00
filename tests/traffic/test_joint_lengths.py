"""Pairs of lengths that are drawn together, while arrivals come from a process of their own."""

import pytest

from sim.errors import ScenarioError, TraceError
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.skips import skipped

PAIRS = "input_length,output_length\n10,1\n20,2\n30,3\n"
POISSON = {"process": "poisson", "rate": 5}


@pytest.fixture
def load(tmp_path):
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "odd.csv").write_text("a,b\n10,1\n")
    (tmp_path / "times.csv").write_text("arrival_s\n1\n2\n")

    def made(lengths=None, **keys):
        spec = {"arrivals": POISSON, "requests": 300, "lengths": lengths or {"path": "pairs.csv"}, **keys}
        return list(open_traffic(TrafficSpec.model_validate(spec), tmp_path, 0))

    return made


def test_rows_stay_together_and_come_equally_often(load):
    """100 of each in 300, within four standard deviations (sqrt(300 x 2/9) = 8.2)."""
    pairs = [(a.prompt_tokens, a.output_tokens) for a in load()]
    assert set(pairs) == {(10, 1), (20, 2), (30, 3)}
    assert all(abs(pairs.count(pair) - 100) < 33 for pair in set(pairs))


def test_arrivals_are_those_of_other_lengths(load, tmp_path):
    spec = {"arrivals": POISSON, "requests": 300, "prompt_tokens": 5, "output_tokens": 5}
    other = open_traffic(TrafficSpec.model_validate(spec), tmp_path, 0)
    assert [a.time_s for a in load()] == [a.time_s for a in other]


def test_rows_without_a_token_are_left_out_and_counted(tmp_path):
    (tmp_path / "zeros.csv").write_text("input_length,output_length\n0,5\n7,0\n3,4\n")
    spec = TrafficSpec.model_validate({"arrivals": POISSON, "requests": 20, "lengths": {"path": "zeros.csv"}})
    made = open_traffic(spec, tmp_path, 0)
    assert {(a.prompt_tokens, a.output_tokens) for a in made} == {(3, 4)}
    assert skipped(made.skips)["skipped"] == {"zeros.csv: a length of 0 tokens": 2}


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("x,5", r"pairs\.csv:3: input_length: 'x' is no number"),
        ("-1,5", "is no number from 0 on"),
        ("99999999,5", "more than any request has"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(load, tmp_path, row, complaint):
    (tmp_path / "pairs.csv").write_text(f"input_length,output_length\n1,1\n{row}\n")
    with pytest.raises(TraceError, match=complaint):
        load()


def test_columns_may_be_named(load):
    made = load({"path": "odd.csv", "prompt_column": "b", "output_column": "a"})
    assert {(a.prompt_tokens, a.output_tokens) for a in made} == {(1, 10)}


def test_times_may_come_from_a_trace(load):
    made = load(arrivals={"process": "trace", "path": "times.csv"}, requests=None)
    assert [a.time_s for a in made] == [1.0, 2.0]
    assert all(a.prompt_tokens == 10 * a.output_tokens for a in made)


@pytest.mark.parametrize(
    ("keys", "path", "complaint"),
    [
        ({"prompt_tokens": 5}, "lengths", "replaces prompt_tokens"),
        ({"output_tokens": 5}, "lengths", "replaces output_tokens"),
        ({"sessions": {"turns": 2}}, "lengths", "drawn one by one"),
        ({"lengths": {"path": "nowhere.csv"}}, r"lengths\.path", "no such file"),
        ({"classes": {"a": {"share": 1, "prompt_tokens": 1, "output_tokens": 1}}}, "lengths", "of their own"),
    ],
)
def test_what_contradicts_them(load, keys, path, complaint):
    with pytest.raises(ScenarioError, match=rf"traffic\.{path}: .*{complaint}"):
        load(**keys)


def test_unknown_columns(load):
    with pytest.raises(TraceError, match=r"no column of prompt_tokens(.|\n)*prompt_column to one of: a, b"):
        load({"path": "odd.csv"})
    with pytest.raises(TraceError, match=r"no column 'x'"):
        load({"path": "odd.csv", "prompt_column": "x", "output_column": "a"})
