"""Pools of clients: two of them in two windows of ten minutes, with counts and quantiles by hand."""

import io
import json
import math
import tarfile

import numpy as np
import pytest

from sim.errors import TraceError
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.formats.servegen import quantiles
from sim.traffic.skips import skipped

FILES = {
    "data/reason/m/chunk-0-trace.csv": "0,0.1,1,Gamma,1,10\n600,0,0,,0,0\n",
    "data/reason/m/chunk-0-dataset.json": json.dumps(
        {"0": {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{0: 0.25, 7: 0.25, 9: 0.5}", "reason_ratio": ""}}
    ),
    "data/reason/m/chunk-7-trace.csv": "0,0.051,2,Weibull,0.5,10\n600,0.2,2,Weibull,0.5,2.5\n",
    "data/reason/m/chunk-7-dataset.json": json.dumps(
        {
            "0": {"input_tokens": "{}", "output_tokens": "{}"},
            "600": {"input_tokens": "{300: 1.0}", "output_tokens": "{40: 1}"},
        }
    ),
}  # fmt: skip


@pytest.fixture
def pool(tmp_path):
    def made(files, packed=True):
        path = tmp_path / ("pool.tar.gz" if packed else "pool")
        if not packed:
            for name, text in files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_text(text)
            return path
        with tarfile.open(path, "w:gz") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return path

    return made


def traffic(path, seed=0, **keys):
    arrivals = {"process": "trace", "path": str(path), **keys}
    return open_traffic(TrafficSpec.model_validate({"arrivals": arrivals}), path.parent, seed)


def rows(made):
    return [(a.time_s, a.prompt_tokens, a.output_tokens) for a in made]


@pytest.mark.parametrize("kind", ["auto", "servegen"])
def test_counts_per_client_and_window(pool, kind):
    """Client 0 sends ceil(0.1 x 600) - 1 = 59 in the first window and nothing then; client 7 ceil(0.2 x 600) - 1 = 119
    in the second. Its 31 - 1 = 30 of the first are left out, as nothing is known of their lengths.
    """
    made = traffic(pool(FILES), format=kind)
    requests = rows(made)
    assert [sum(a <= time_s < b for time_s, _, _ in requests) for a, b in ((0, 600), (600, 1200))] == [59, 119]
    assert skipped(made.skips)["skipped"] == {"drawn for a client whose lengths are not known by then": 30}
    assert requests == sorted(requests, key=lambda row: row[0])
    assert {row[1:] for row in requests if row[0] >= 600} == {(300, 40)}


def test_both_lengths_are_the_same_quantile(pool):
    """Up to 0.25: 10 and 0 (which counts as 1); up to 0.5: 10 and 7; beyond: 20 and 9."""
    pairs = [row[1:] for row in rows(traffic(pool(FILES))) if row[0] < 600]
    assert set(pairs) == {(10, 1), (10, 7), (20, 9)}


def test_gaps_have_their_distribution(pool):
    """A rate of 20/s leaves 11,999 gaps of the window, exponential here (Gamma of shape 1): their CV is 1 within four
    standard errors (1 / sqrt(n) for exponential gaps), their mean is that of the window by construction.
    """
    files = FILES | {"data/reason/m/chunk-0-trace.csv": "0,20,1,Gamma,1,0.05\n600,0,0,,0,0\n"}
    times_s = np.array([row[0] for row in rows(traffic(pool(files))) if row[0] < 600])
    gaps_s = np.diff(times_s)
    assert len(times_s) == 11_999
    assert gaps_s.mean() == pytest.approx(600 / 12_000, rel=0.01)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1, abs=4 / math.sqrt(len(gaps_s)))


def test_windows_and_clients_are_independent_of_each_other(pool):
    """A window's requests are the same whether those before it are asked for or not, and without other clients."""
    whole = rows(traffic(pool(FILES)))
    later = rows(traffic(pool(FILES), start=600))
    assert later == [(time_s - 600, *lengths) for time_s, *lengths in whole if time_s >= 600]
    alone = {name: text for name, text in FILES.items() if "chunk-0" in name}
    assert rows(traffic(pool(alone))) == [row for row in whole if row[0] < 600]
    assert rows(traffic(pool(FILES), seed=1)) != whole


def test_a_folder_is_the_same_pool(pool):
    assert rows(traffic(pool(FILES, packed=False))) == rows(traffic(pool(FILES)))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("chunk-0-trace.csv", "0,0.1,1,Pareto,1,10\n600,0,0,,0,0\n", r"chunk-0-trace\.csv:1: 'Pareto' is neither"),
        ("chunk-0-trace.csv", "0,x,1,Gamma,1,10\n", r"chunk-0-trace\.csv:1: no start, rate, CV"),
        ("chunk-0-trace.csv", "0,1,1,Gamma,1,10\n0,1,1,Gamma,1,1\n", r"csv:2: this window does not begin after"),
        ("chunk-0-trace.csv", "0,1,1,Gamma,1,10\n", "its windows are not those of the other clients"),
        ("chunk-0-trace.csv", "0,1,1,Gamma,0,10\n600,0,0,,0,0\n", r"csv:1: rate or shape is out of range"),
        ("chunk-0-dataset.json", "[]", r"chunk-0-dataset\.json: no object of distributions"),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "{5: 1}"}}', "no output_tokens"),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "{5: 0.5}", "output_tokens": "{}"}}', "is no distribution"),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "{5}", "output_tokens": "{}"}}', "is no distribution"),
    ],
)
def test_a_bad_pool_is_refused_by_file(pool, name, text, complaint):
    with pytest.raises(TraceError, match=complaint):
        list(traffic(pool(FILES | {f"data/reason/m/{name}": text})))


def test_other_archives_are_refused(pool, tmp_path):
    with pytest.raises(TraceError, match="there is no chunk-N-trace"):
        traffic(pool({"a.txt": "x"}))
    (tmp_path / "bad.tar.gz").write_bytes(b"no archive")
    with pytest.raises(TraceError, match="this archive cannot be read"):
        traffic(tmp_path / "bad.tar.gz")


def test_quantiles_are_sorted():
    made = quantiles("{30: 0.5, 2: 0.25, 5: 0.25}")
    assert made.at(np.array([0.0, 0.25, 0.26, 0.5, 0.51, 1.0])).tolist() == [2, 2, 5, 5, 30, 30]


def test_the_public_pool(shared):
    """Ten minutes of the reasoning model: as many requests as the clients' rates say, less one each."""
    path = shared / "data/traces/servegen/reason-deepseek-r1.tar.gz"
    expected = 0
    with tarfile.open(path) as archive:
        for name in archive.getnames():
            if name.endswith("-trace.csv"):
                for line in archive.extractfile(name).read().decode().splitlines():
                    start, rate, _, pattern, *_ = line.split(",")
                    if start == "72000" and pattern:
                        expected += math.ceil(float(rate) * 600) - 1
    requests = rows(traffic(path, start=72_000, end=72_600))
    assert expected - 3 <= len(requests) <= expected
    assert all(0 <= time_s < 600 for time_s, _, _ in requests)
