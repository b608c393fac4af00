"""What readers leave out: failed requests always, bad lines where that is allowed; both are counted and told."""

import json

import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import TraceError
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.skips import skipped

HEAD = "arrival_s,prompt_tokens,output_tokens\n"
BAD = HEAD + "0,10,1\n1,x,2\n2,30\n3,40,4\n2,50,5\n5,60,6\n"
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
45,GPT-4,417,276,693,API log
"""
BURST_3 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5.0,a-1,43,ChatGPT,472,18,490,Conversation log
45.0,a-1,2,ChatGPT,1087,0,1087,Conversation log
45.0,b-2,7,GPT-4,417,276,693,API log
"""


@pytest.fixture
def traffic(tmp_path):
    def opened(text, name="trace.csv", requests=None, **arrivals):
        path = tmp_path / name
        path.write_text(text)
        spec = {"arrivals": {"process": "trace", "path": str(path), **arrivals}, "requests": requests}
        return open_traffic(TrafficSpec.model_validate(spec), tmp_path, 0)

    return opened


def test_lenient_reading_skips_counts_and_shows(traffic):
    """Line 3 has no number, line 4 no output, line 6 comes before line 5; the rest is there."""
    made = traffic(BAD, lenient=True)
    assert [a.prompt_tokens for a in made] == [10, 40, 60]
    told = skipped(made.skips)
    assert told["skipped"] == {"bad line": 3}
    assert [text.partition(":")[2].partition(" ")[0] for text in told["first_bad"]] == ["3:", "4:", "6:"]
    assert [a.prompt_tokens for a in made] == [10, 40, 60]
    assert skipped(made.skips) == told


def test_without_it_the_first_bad_line_is_an_error(traffic):
    with pytest.raises(TraceError, match=r"trace\.csv:3: prompt_tokens: 'x' is no number"):
        list(traffic(BAD))


def test_lenient_reading_of_jsonl(traffic):
    row = json.dumps({"arrival_s": 1, "prompt_tokens": 2, "output_tokens": 3})
    made = traffic(f"{row}\n[1]\n{{\n{row}\n", "t.jsonl", lenient=True)
    assert len(list(made)) == 2
    assert skipped(made.skips)["skipped"] == {"bad line": 2}


@pytest.mark.parametrize("kind", ["auto", "burstgpt"])
@pytest.mark.parametrize("text", [BURST, BURST_3])
def test_burstgpt_in_both_versions(traffic, text, kind):
    """Seconds from the first row; the failed request is left out and counted, lenient or not."""
    made = traffic(text, format=kind)
    assert [(a.time_s, a.prompt_tokens, a.output_tokens) for a in made] == [(0.0, 472, 18), (40.0, 417, 276)]
    assert skipped(made.skips) == {"skipped": {"failed: 0 response tokens": 1}, "first_bad": []}


def test_failed_requests_stay_away_where_outputs_are_drawn(traffic, tmp_path):
    (tmp_path / "b.csv").write_text(BURST)
    spec = {"arrivals": {"process": "trace", "path": str(tmp_path / "b.csv")}, "output_tokens": 7}
    made = open_traffic(TrafficSpec.model_validate(spec), tmp_path, 0)
    assert [(a.prompt_tokens, a.output_tokens) for a in made] == [(472, 7), (417, 7)]


def test_burstgpt_needs_its_columns(traffic):
    with pytest.raises(TraceError, match="the header has no Timestamp and no Request tokens and no Response tokens"):
        traffic(HEAD + "0,1,1\n", format="burstgpt")


def test_only_what_was_read_is_counted(traffic):
    made = traffic(BAD, lenient=True, requests=1)
    assert len(list(made)) == 1
    assert skipped(made.skips) is None


def test_packed_files(tmp_path):
    import gzip

    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress((HEAD + "0,10,1\n").encode()))
    spec = TrafficSpec.model_validate({"arrivals": {"process": "trace", "path": str(path)}})
    assert [a.prompt_tokens for a in open_traffic(spec, tmp_path, 0)] == [10]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(TraceError, match="no gzip file"):
        list(open_traffic(spec, tmp_path, 0))


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "trace.csv").write_text(BAD)
    path = tmp_path / "w.yaml"
    path.write_text(
        "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {name: vllm, version: '0.33'}\n"
        "traffic: {arrivals: {process: trace, path: trace.csv}}\n"
    )
    return path


def test_the_run_tells_what_was_left_out(scenario):
    summary = sim.run(scenario, overrides={"traffic.arrivals.lenient": True}).summary
    assert summary["requests"]["completed"] == 3
    assert summary["trace"]["skipped"] == {"bad line": 3}


def test_the_flag(scenario):
    runner = CliRunner()
    told = runner.invoke(app, ["run", str(scenario), "--lenient"])
    assert told.exit_code == 0, told.output
    assert "left out 3 x bad line" in told.output
    assert "prompt_tokens: 'x' is no number" in told.output
    as_json = runner.invoke(app, ["run", str(scenario), "--lenient", "--json"])
    assert json.loads(as_json.output)["trace"]["skipped"] == {"bad line": 3}
    with pytest.raises(TraceError, match=r"trace\.csv:3"):
        runner.invoke(app, ["run", str(scenario)], catch_exceptions=False)


def test_the_flag_needs_a_trace(scenario):
    with pytest.raises(sim.errors.ScenarioError, match="--lenient: the load is no trace"):
        CliRunner().invoke(app, ["run", "chat", "--lenient"], catch_exceptions=False)
