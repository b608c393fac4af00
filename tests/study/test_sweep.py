"""What-if grids: rows, resumption, lost workers."""

import json
import os
import signal

import pandas as pd
import pytest

import sim
from sim.errors import RidgelineError, ScenarioError
from sim.study import sweep as sweep_module
from sim.study.grid import Point, flatten, parse_grid, points
from sim.study.pool import run_calls

LESSON = "workloads/lessons/roofline.yaml"
GRID = {"traffic.prompt_tokens": [100, 2000], "traffic.output_tokens": [1, 10, 20]}


def test_points_are_the_product_with_one_seed_per_replication():
    """Every combination, the first path outermost; replications share seeds across points."""
    made = points({"a": [1, 2], "b": ["x"]}, replications=2, seed=7)
    assert made == [
        Point({"a": 1, "b": "x"}, 0, 7),
        Point({"a": 1, "b": "x"}, 1, 8),
        Point({"a": 2, "b": "x"}, 0, 7),
        Point({"a": 2, "b": "x"}, 1, 8),
    ]


def test_flatten_joins_names_with_dots():
    assert flatten({"a": {"b": 1, "c": {"d": None}}, "e": "x", "f": [1]}) == {"a.b": 1, "a.c.d": None, "e": "x"}


def test_grid_values_are_yaml_and_commas_inside_brackets_do_not_split():
    grid = parse_grid(["a.b=1,2.5,8e3", "c=round-robin,random", "d={x: 1, y: 2},{x: 3}", "engine.version=0.19,0.33"])
    assert grid == {
        "a.b": [1, 2.5, 8000.0],
        "c": ["round-robin", "random"],
        "d": [{"x": 1, "y": 2}, {"x": 3}],
        "engine.version": ["0.19", "0.33"],
    }


@pytest.mark.parametrize("text", ["rate", "=1,2", "a=", "a=[1,2"])
def test_a_grid_that_cannot_be_read_is_an_error(text):
    with pytest.raises(RidgelineError, match="cure"):
        parse_grid([text])


def test_a_row_per_point_with_the_grid_path_as_column(repo):
    table = sim.sweep(repo / LESSON, GRID, jobs=1)
    assert len(table) == 6
    assert table["traffic.prompt_tokens"].tolist() == [100] * 3 + [2000] * 3
    single = sim.run(repo / LESSON, overrides={"traffic.prompt_tokens": 2000, "traffic.output_tokens": 20}).summary
    assert table["ttft_s.mean"].iloc[-1] == single["ttft_s"]["mean"]
    assert table["error"].isna().all()


def test_parallel_equals_serial(repo):
    pd.testing.assert_frame_equal(sim.sweep(repo / LESSON, GRID, jobs=2), sim.sweep(repo / LESSON, GRID, jobs=1))


def test_a_point_that_does_not_fit_says_why_and_the_rest_run(repo):
    table = sim.sweep(
        repo / "workloads/chat.yaml",
        {"model": ["llama-3.1-8b", "llama-3.1-405b"]},
        overrides={"traffic.requests": 20},
        jobs=1,
    )
    assert table["error"].isna().tolist() == [True, False]
    assert "tensor_parallel" in table["error"][1]
    assert table["requests.completed"][0] == 20


def test_a_misspelt_path_is_an_error_before_anything_runs(repo, tmp_path):
    with pytest.raises(ScenarioError, match="rate"):
        sim.sweep(repo / "workloads/chat.yaml", {"traffic.arrivals.rat": [1, 2]}, out=tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_sweep_resumes_where_it_stopped(repo, tmp_path, monkeypatch):
    """Finished points are not run again, and the table equals an uninterrupted one."""
    out, ran = tmp_path / "r.parquet", []
    plain = sweep_module.run_point

    def interrupted(source, base, point):
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(point)
        return plain(source, base, point)

    monkeypatch.setattr(sweep_module, "run_point", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sim.sweep(repo / LESSON, GRID, out=out, jobs=1)
    with (tmp_path / "r.parquet.partial").open("a") as journal:
        journal.write('{"key": "torn')
    monkeypatch.setattr(sweep_module, "run_point", lambda *call: ran.append(call[2]) or plain(*call))
    table = sim.sweep(repo / LESSON, GRID, out=out, jobs=1, resume=True)
    assert len(ran) == 6
    pd.testing.assert_frame_equal(table, sim.sweep(repo / LESSON, GRID, jobs=1))
    pd.testing.assert_frame_equal(pd.read_parquet(out), table)
    assert [path.name for path in tmp_path.iterdir()] == ["r.parquet"]


def test_a_journal_of_another_sweep_is_refused(repo, tmp_path):
    out = tmp_path / "r.parquet"
    (tmp_path / "r.parquet.partial").write_text(json.dumps({"sweep": "other"}) + "\n")
    with pytest.raises(RidgelineError, match="another scenario"):
        sim.sweep(repo / LESSON, GRID, out=out, jobs=1, resume=True)
    with pytest.raises(RidgelineError, match="--resume"):
        sim.sweep(repo / LESSON, GRID, out=out, jobs=1)


def _die_once(flag):
    if not os.path.exists(flag):  # noqa: PTH110 - plain functions pickle without the test's imports
        with open(flag, "w"):  # noqa: PTH123
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def test_a_killed_worker_loses_nothing(tmp_path):
    calls = {str(index): (str(tmp_path / str(index % 2)),) for index in range(4)}
    assert dict(run_calls(_die_once, calls, backend="loky", jobs=2)) == dict.fromkeys(calls, "done")


@pytest.mark.parametrize(("backend", "module"), [("ray", "ray"), ("dask", "distributed")])
@pytest.mark.filterwarnings("ignore")
def test_clusters_give_the_same_rows(repo, backend, module):
    pytest.importorskip(module)
    table = sim.sweep(repo / LESSON, {"traffic.output_tokens": [1, 5]}, backend=backend, jobs=2)
    pd.testing.assert_frame_equal(table, sim.sweep(repo / LESSON, {"traffic.output_tokens": [1, 5]}, jobs=1))


def test_an_unknown_backend_is_an_error(repo):
    with pytest.raises(RidgelineError, match="loky"):
        sim.sweep(repo / LESSON, GRID, backend="spark", jobs=2)


@pytest.mark.parametrize(
    ("grid", "changes", "words"),
    [
        ({"seed": [1, 2]}, {"seed": 3}, "leave out --seed"),
        ({"traffic.output_tokens": [1, 1]}, {}, "a value twice"),
        ({"traffic.output_tokens": []}, {}, "no values"),
        ({"traffic.output_tokens": [1, 2]}, {"overrides": {"traffic.output_tokens": 5}}, "in one place"),
        ({"traffic.output_tokens": [1, 2]}, {"jobs": 0}, "--jobs"),
        ({"traffic.output_tokens": [1, 2]}, {"backend": "foo"}, "backend"),
        ({"traffic.output_tokens": [1, 2]}, {"out": "w.yaml"}, "Parquet"),
        ({"traffic.output_tokens": [1, 2]}, {"out": "."}, "Parquet"),
    ],
    ids=str,
)
def test_what_cannot_be_swept_is_refused_before_anything_runs(repo, tmp_path, monkeypatch, grid, changes, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RidgelineError, match=words):
        sim.sweep(repo / LESSON, grid, **{"out": "r.parquet", **changes})
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_journal_is_an_error(repo, tmp_path):
    (tmp_path / "r.parquet.partial").write_text("junk\n")
    with pytest.raises(RidgelineError, match="delete"):
        sim.sweep(repo / LESSON, GRID, out=tmp_path / "r.parquet", jobs=1, resume=True)


def test_values_of_several_kinds_make_a_column_of_text(repo, tmp_path):
    values = [{"distribution": "fixed", "value": 3}, 5]
    out = tmp_path / "r.parquet"
    sim.sweep(repo / LESSON, {"traffic.prompt_tokens": values}, out=out, jobs=1)
    assert pd.read_parquet(out)["traffic.prompt_tokens"].tolist() == ['{"distribution": "fixed", "value": 3}', "5"]


def test_a_grid_may_vary_the_seed(repo):
    table = sim.sweep(repo / "workloads/chat.yaml", {"seed": [4, 9]}, overrides={"traffic.requests": 20}, jobs=1)
    assert table["seed"].tolist() == [4, 9]
    assert table["ttft_s.mean"].nunique() == 2


def test_wrong_values_are_named_as_the_grids(repo):
    with pytest.raises(ScenarioError) as caught:
        sim.sweep(repo / LESSON, {"traffic.output_tokens": [1, -2]})
    assert {problem.file for problem in caught.value.problems} == {"--grid"}


def test_a_misspelt_section_and_a_point_that_cannot_run_are_the_grids_too(repo):
    with pytest.raises(ScenarioError, match="--grid: nope"):
        sim.sweep(repo / LESSON, {"nope.key": [1]})
    table = sim.sweep(
        repo / "workloads/chat.yaml",
        {"deployment.tensor_parallel": [1, 3]},
        overrides={"traffic.requests": 5},
        jobs=1,
    )
    assert table["error"][1].startswith("--grid: deployment.tensor_parallel")
