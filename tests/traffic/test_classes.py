"""Classes of traffic: merged in order, each with its own streams, each judged by its own SLO."""

from pathlib import Path

import numpy as np
import pytest

import sim
from sim.errors import ScenarioError, TraceError
from sim.fleet.simulation import Simulation, assemble
from sim.report.html import html
from sim.results.by_class import judged
from sim.results.requests import COMPLETED, FAILED
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.classes import ClassTraffic, class_seed
from sim.traffic.load import Traffic

SHARES = {
    "arrivals": {"process": "poisson", "rate": 10},
    "requests": 20_000,
    "output_tokens": 5,
    "classes": {
        "chat": {"share": 3, "prompt_tokens": {"distribution": "uniform", "low": 1, "high": 100}},
        "batch": {"share": 1, "prompt_tokens": 4000, "max_output_tokens": 3},
    },
}
OWN = {
    "duration": 100,
    "prompt_tokens": 10,
    "output_tokens": 5,
    "classes": {
        "fast": {"arrivals": {"process": "constant", "rate": 2}},
        "slow": {"arrivals": {"process": "constant", "rate": 1}, "prompt_tokens": 99},
        "random": {"arrivals": {"process": "poisson", "rate": 5}},
    },
}


def traffic(keys, seed=0):
    return list(open_traffic(TrafficSpec.model_validate(keys), Path(), seed))


def of(arrivals, index):
    """A class's requests, without their numbers among all."""
    return [arrival[1:6] for arrival in arrivals if arrival.class_index == index]


def test_own_processes_are_merged_in_time_and_ties_go_by_order():
    """2 a second and 1 a second: 0 0, 0.5, 1 1, 1.5, ...; the class named first goes first."""
    keys = OWN | {"duration": 2, "classes": {name: OWN["classes"][name] for name in ("fast", "slow")}}
    found = [(arrival.time_s, arrival.class_index, arrival.prompt_tokens) for arrival in traffic(keys)]
    assert found == [(0, 0, 10), (0, 1, 99), (0.5, 0, 10), (1, 0, 10), (1, 1, 99), (1.5, 0, 10)]
    assert [arrival.index for arrival in traffic(keys)] == list(range(6))


def test_another_class_leaves_the_others_as_they_were():
    without = OWN | {"classes": {name: OWN["classes"][name] for name in ("fast", "random")}}
    assert of(traffic(OWN), 2) == of(traffic(without), 1)
    assert len(of(traffic(OWN), 2)) == pytest.approx(500, abs=100)


def test_two_classes_with_equal_words_have_different_streams():
    one = {"arrivals": {"process": "poisson", "rate": 5}}
    both = traffic(OWN | {"classes": {"a": one, "b": one}})
    assert not {arrival[0] for arrival in of(both, 0)} & {arrival[0] for arrival in of(both, 1)}


def test_requests_end_the_load_of_all_together():
    found = traffic(OWN | {"requests": 50})
    assert [arrival.index for arrival in found] == list(range(50))
    assert found == traffic(OWN)[:50]


def test_shares_split_one_process():
    """Times are those of the process alone; 3 in 4 are chats, within 4 standard errors; lengths are the class's."""
    found = traffic(SHARES)
    alone = {key: value for key, value in SHARES.items() if key != "classes"} | {"prompt_tokens": 1}
    assert [arrival.time_s for arrival in found] == [arrival.time_s for arrival in traffic(alone)]
    chats = of(found, 0)
    assert len(chats) / len(found) == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / len(found)))
    assert {prompt for _, prompt, *_ in chats} == set(range(1, 101))
    assert {rest for _, *rest in of(found, 1) for rest in [tuple(rest)]} == {(4000, 3, 3, 0)}


def test_the_nth_request_of_a_class_has_its_nth_lengths():
    """Other shares assign other moments, but a class's lengths come in their order."""
    other = SHARES | {"classes": SHARES["classes"] | {"batch": SHARES["classes"]["batch"] | {"share": 5}}}
    first, second = ([prompt for _, prompt, *_ in of(traffic(keys), 0)] for keys in (SHARES, other))
    assert len(second) < len(first)
    assert first[: len(second)] == second


@pytest.mark.parametrize("keys", [SHARES | {"requests": 500}, OWN])
def test_blocks_change_nothing(keys):
    spec = TrafficSpec.model_validate(keys)
    assert list(ClassTraffic(spec, Path(), 1, 7)) == list(ClassTraffic(spec, Path(), 1))


def test_a_class_is_a_traffic_of_its_own():
    """With the class's seed, the same keys written as the whole traffic."""
    alone = {"duration": 100, "prompt_tokens": 10, "output_tokens": 5, "arrivals": OWN["classes"]["random"]["arrivals"]}
    found = Traffic(TrafficSpec.model_validate(alone), Path(), class_seed(4, "random"))
    assert [arrival[1:6] for arrival in found] == of(traffic(OWN, seed=4), 2)


def test_classes_share_no_prompts():
    """Each has a first group of shared prompts, and a first private segment: no name is common."""
    shared = OWN | {"duration": 5, "shared_prefix": {"tokens": 64}}
    names = [
        {segment for arrival in traffic(shared) if arrival.class_index == index for segment, _ in arrival.prompt}
        for index in range(3)
    ]
    assert not names[0] & names[1]
    assert not names[0] & names[2]


def test_a_request_is_judged_by_its_own_class():
    """TTFT 2 s misses 1 s of class 0 and meets 3 s of class 1; class 2 asks nothing and counts nowhere."""
    columns = {
        "status": np.array([COMPLETED, COMPLETED, FAILED, COMPLETED]),
        "class_index": np.array([0, 1, 1, 2]),
        "ttft_s": np.full(4, 2.0),
    }
    good, bound = judged(columns, [{"ttft_s": 1.0}, {"ttft_s": 3.0}, {"ttft_s": None}])
    assert good.tolist() == [False, True, False, False]
    assert bound.tolist() == [True, True, True, False]


def test_a_run_tells_its_classes_apart(tmp_path):
    """Counts add up, the urgent class waits less, the table names the class, and the console shows it."""
    scenario = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"name": "vllm", "version": "0.33", "policy": "priority", "max_sequences": 4},
        "traffic": SHARES
        | {
            "requests": 200,
            "classes": {
                "chat": SHARES["classes"]["chat"] | {"priority": 0, "slo": {"ttft": 10}},
                "batch": SHARES["classes"]["batch"] | {"priority": 1, "slo": {"ttft": "1 us"}},
            },
        },
    }
    result = sim.run(scenario)
    classes, rows = result.summary["classes"], result.requests
    assert {name: one["requests"]["submitted"] for name, one in classes.items()} == rows[
        "class"
    ].value_counts().to_dict()
    assert classes["chat"]["slo"]["attainment"] == 1
    assert classes["batch"]["slo"]["attainment"] == 0
    assert result.summary["slo"]["attainment"] == (rows["class"] == "chat").mean()
    total = result.summary["throughput"]["requests_per_s"]
    assert sum(one["throughput"]["requests_per_s"] for one in classes.values()) == pytest.approx(total)
    assert classes["chat"]["ttft_s"]["mean"] == pytest.approx(rows[rows["class"] == "chat"]["ttft_s"].mean())
    assert "<h2>Classes</h2>" in html(result)


BAD = [
    ({"classes": {}}, "traffic.classes"),
    ({"classes": {"a": {}}}, "traffic.classes.a"),
    ({"classes": {"a": {"share": 1}}}, "traffic.arrivals"),
    ({"classes": {"a": {"share": 1, "arrivals": {"process": "poisson", "rate": 1}}}}, "traffic.classes.a"),
    ({"classes": {"a": {"arrivals": {"process": "poisson", "rate": 1}}, "b": {"share": 1}}}, "traffic.classes.b"),
    ({"classes": {"a": {"arrivals": {"process": "closed", "concurrency": 1}}}}, "traffic.classes.a.arrivals"),
    ({"classes": {"a": {"arrivals": {"process": "gamma", "rate": 1}}}}, "traffic.classes.a.arrivals.cv"),
    ({"arrivals": {"process": "poisson", "rate": 1}, "classes": OWN["classes"]}, "traffic.arrivals"),
    ({"classes": {"a": {"arrivals": {"process": "constant", "rate": 1}}}, "prompt_tokens": None}, "a.prompt_tokens"),
    ({}, "traffic.arrivals"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "path"), BAD)
def test_contradictions_are_refused_at_their_key(keys, path):
    with pytest.raises(ScenarioError, match=path):
        traffic({"duration": 10, "prompt_tokens": 10, "output_tokens": 5} | keys)


EXAMPLE = "mixed_classes"


def test_short_cuts_know_the_classes():
    """The fast and the plain scheduler give the same table, classes and all."""
    setup = assemble(sim.load(EXAMPLE, overrides={"traffic.duration": 70}))
    fast, plain = (Simulation(setup, plain=plain).run().requests.columns() for plain in (False, True))
    assert set(fast["class_index"]) == {0, 1}
    for name, column in fast.items():
        np.testing.assert_array_equal(column, plain[name])


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"engine.policy": "fcfs"}, "priority"),
        ({"traffic.arrivals": {"process": "poisson", "rate": 1}}, "traffic.arrivals"),
        (
            {"traffic.classes.batch.prompt_tokens": {"distribution": "empirical", "path": "no.csv", "column": "n"}},
            "batch.prompt_tokens.path",
        ),
        ({"traffic.classes.batch.arrivals": {"process": "trace", "path": "no.csv"}}, "classes.batch.arrivals.path"),
        ({"traffic.classes.chat.sloo": {}}, "traffic.classes.chat.sloo"),
        ({"traffic.arrivals": {"process": "poisson"}}, "traffic.arrivals.rate"),
    ],
)
def test_a_scenario_is_refused_at_its_key(overrides, path):
    """And at no other."""
    with pytest.raises(ScenarioError, match=path) as refused:
        sim.load(EXAMPLE, overrides=overrides)
    assert all(path in problem.path for problem in refused.value.problems)


NAMED = "arrival_s,prompt_tokens,output_tokens,class\n0,10,1,batch\n1,20,2,chat\n2,30,3,batch\n"


def of_trace(tmp_path, text=NAMED, classes=None, **keys):
    (tmp_path / "t.csv").write_text(text)
    arrivals = {"process": "trace", "path": "t.csv", **keys.pop("arrivals", {})}
    spec = {"arrivals": arrivals, "classes": classes or {"chat": {}, "batch": {}}, **keys}
    return open_traffic(TrafficSpec.model_validate(spec), tmp_path, 0)


def test_a_trace_may_say_whose_each_request_is(tmp_path):
    """Classes are numbered as the scenario names them; a class's own lengths go before the trace's."""
    made = list(of_trace(tmp_path, classes={"chat": {"output_tokens": 9}, "batch": {}}))
    assert [(a.index, a.time_s, a.prompt_tokens, a.output_tokens, a.class_index) for a in made] == [
        (0, 0.0, 10, 1, 1),
        (1, 1.0, 20, 9, 0),
        (2, 2.0, 30, 3, 1),
    ]
    assert len(list(of_trace(tmp_path, requests=2))) == 2
    assert [a.class_index for a in of_trace(tmp_path, arrivals={"start": 1})] == [0, 1]


def test_a_trace_s_blocks_of_requests_keep_their_classes(tmp_path):
    text = NAMED + "".join(f"{3 + i},{i + 1},1,{'chat' if i % 3 else 'batch'}\n" for i in range(9000))
    made = list(of_trace(tmp_path, text))[3:]
    assert [(a.prompt_tokens, a.class_index) for a in made] == [(i + 1, 0 if i % 3 else 1) for i in range(9000)]


@pytest.mark.parametrize(
    ("text", "classes", "complaint"),
    [
        (NAMED.replace("2,30,3,batch", "2,30,3,other"), None, r"t\.csv:4: class: 'other' is none of .* chat, batch"),
        (NAMED.replace(",class", ",x"), None, "no column class among"),
        (NAMED, {"chat": {"share": 1}, "batch": {}}, r"classes\.chat\.share: a trace says itself whose"),
    ],
)
def test_what_a_trace_of_classes_must_say(tmp_path, text, classes, complaint):
    with pytest.raises((TraceError, ScenarioError), match=complaint):
        list(of_trace(tmp_path, text, classes))


def test_formats_without_classes_are_refused(tmp_path):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,1\n"
    with pytest.raises(ScenarioError, match="does not say whose each request is"):
        of_trace(tmp_path, text)
