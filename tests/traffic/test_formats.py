"""Formats whose requests form sessions: hand-written files of each, detection, and errors with their lines."""

import json

import pytest

import sim
from sim.errors import ScenarioError, TraceError
from sim.scenario.arrival_specs import Trace
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.formats import FORMATS
from sim.traffic.sessions import Wait, planned_tokens
from sim.traffic.skips import skipped

DELTA = [
    {"session_id": "a", "timestamp": 100, "input_length": 1000, "output_length": 4, "hash_ids": [1, 2]},
    {"session_id": "b", "timestamp": 50, "input_length": 7, "output_length": 3},
    {"session_id": "a", "delay": 500, "input_length": 8, "output_length": 5, "hash_ids": [9], "priority": 2},
    {"session_id": "b", "timestamp": 2050, "input_length": 9, "output_length": 6},
]
AGENTIC = [
    {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 4, "hash_id_scope": "local"},
    {
        "request_id": "join", "play_id": "p", "session_id": "r", "input_length": 9, "output_length": 2,
        "hash_ids": [1, 5], "not_before_ms": 0,
        "dependencies": [
            {"request_id": "root", "trigger": "completion", "delay_ms": 1},
            {"request_id": "child", "trigger": "completion", "delay_ms": 2},
        ],
    },
    {"request_id": "root", "play_id": "p", "input_length": 6, "output_length": 3, "hash_ids": [1, 2]},
    {
        "request_id": "child", "play_id": "p", "input_length": 4, "output_length": 1, "hash_ids": [1],
        "not_before_ms": 250, "dependencies": [{"request_id": "root", "trigger": "dispatch", "delay_ms": 5}],
    },
    {"request_id": "root", "play_id": "q", "input_length": 5, "output_length": 1, "hash_ids": [1], "not_before_ms": 40},
]  # fmt: skip
SERVING = [
    {
        "session_id": "s", "arrival_time_ns": 2_000_000_000,
        "sub_requests": [
            {"input_toks": 10, "output_toks": 4, "tool_duration_ns": 1_500_000_000},
            {"input_toks": 20, "output_toks": 2, "tool_duration_ns": 0},
            {"input_toks": 15, "output_toks": 1, "tool_duration_ns": 0},
        ],
    },
    {"input_toks": 5, "output_toks": 6, "arrival_time_ns": 3_000_000_000},
]  # fmt: skip
APPLIED = [
    {
        "num_turns": 2, "input_prompt_length": 16, "assistant_response_length": [4, 5],
        "tool_call_output_length": [8, 9], "tool_call_latency": [0.25, 0.5], "final_assistant_response_length": 3,
    }
]  # fmt: skip
WEKA = {
    "id": "w", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
    "requests": [
        {"t": 0, "type": "n", "model": "m", "in": 100, "out": 5, "hash_ids": [1, 2], "api_time": 2},
        {
            "t": 3, "type": "subagent", "agent_id": "x", "status": "completed",
            "requests": [
                {"t": 3, "type": "s", "in": 70, "out": 6, "hash_ids": [8, 9], "api_time": 1},
                {"t": 4.5, "type": "s", "in": 130, "out": 7, "hash_ids": [8, 9, 10], "api_time": 1.5},
            ],
        },
        {"t": 9, "type": "n", "in": 0, "out": 5, "hash_ids": []},
        {"t": 10, "type": "n", "in": 200, "out": 8, "hash_ids": [1, 2, 3], "api_time": 4, "think_time": 2.5},
        {"t": 12, "type": "n", "in": 60, "out": 9, "hash_ids": [4], "api_time": 1},
    ],
}  # fmt: skip
RAG = [
    {
        "timestamp": "604700", "input_length": 10, "output_length": 2, "session_id": "u",
        "hash_ids": {"sys_prompt": [1], "passages_ids": [20, 21], "user_input": [40]},
    },
    {
        "timestamp": "20", "input_length": 9, "output_length": 3, "session_id": "u",
        "hash_ids": {"sys_prompt": [1], "passages_ids": [20], "user_input": [41]},
    },
]  # fmt: skip
LAB = [
    {
        "session_id": "l", "round_index": 0, "input_tokens_total": 100, "prefix_tokens": 60, "output_tokens": 7,
        "timing_events": [{"timestamp": "2026-06-01T05:00:00.000Z"}, {"timestamp": "2026-06-01T05:00:04.000Z"}],
        "tools": [{"result_at": "2026-06-01T05:00:05.500Z"}, {"result_at": None}],
    },
    {
        "session_id": "l", "round_index": 1, "input_tokens_total": 130, "prefix_tokens": 90, "output_tokens": 8,
        "timing_events": [{"timestamp": "2026-06-01T05:00:05.000Z"}, {"timestamp": "2026-06-01T05:00:09.000Z"}],
    },
]  # fmt: skip


def dynamo_end(name, agent, received_ms, took_ms, hashes, parent=None):
    context = {"session_id": agent} | ({"parent_session_id": parent} if parent else {})
    replay = {"trace_block_size": 4, "input_length": 6, "input_sequence_hashes": hashes}
    request = {"request_id": name, "output_tokens": 2, "request_received_ms": received_ms, "total_time_ms": took_ms}
    return {
        "schema": "dynamo.request.trace.v1", "event_type": "request_end", "agent_context": context,
        "request": {**request, "replay": replay},
    }  # fmt: skip


CALL = {"consumer_request_id": "p2", "child_session_id": "kid", "execution_mode": "blocking"}
DYNAMO = [
    {"event_type": "request_payload", "request_id": "p1"},
    dynamo_end("p1", "boss", 1000, 100, [1, 2]),
    {"event_type": "tool_end", "tool": {"tool_class": "agent", "claude": CALL}},
    dynamo_end("k1", "kid", 1150, 50, [1, 3], parent="boss"),
    dynamo_end("p2", "boss", 1300, 100, [1, 2]),
    dynamo_end("x", "other", 5000, 10, [1, 2]),
]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


TEXTS = {
    "mooncake-delta": ("t.jsonl", lines(DELTA)),
    "agentic-mooncake": ("t.jsonl", lines(AGENTIC)),
    "llmservingsim": ("t.jsonl", lines(SERVING)),
    "applied-compute": ("t.jsonl", lines(APPLIED)),
    "weka": ("t.json", json.dumps(WEKA, indent=1)),
    "ragpulse": ("t.jsonl", lines(RAG)),
    "tracelab": ("t.jsonl", lines(LAB)),
    "dynamo": ("t.jsonl", lines(DYNAMO)),
}


@pytest.fixture
def traffic(tmp_path):
    def opened(name, text=None, file=None, **keys):
        path = tmp_path / (file or TEXTS[name][0])
        path.write_text(TEXTS[name][1] if text is None else text)
        arrivals = {"process": "trace", "path": str(path), **keys}
        return open_traffic(TrafficSpec.model_validate({"arrivals": arrivals}), tmp_path, 0)

    return opened


@pytest.fixture
def load(traffic):
    return lambda *args, **keys: list(traffic(*args, **keys).sessions())


def told(session):
    """What of each turn: tokens, what it extends, what it waits for, not before when."""
    return [(t.new_tokens, t.output_tokens, t.extends, t.waits, t.not_before_s) for t in session.turns]


def completion(turn, delay_s):
    return Wait(turn, "completion", delay_s)


@pytest.mark.parametrize("name", TEXTS)
def test_each_is_detected_and_read_the_same_by_name(load, name):
    assert load(name) == load(name, format=name) != []


def test_every_name_of_the_scenario_has_a_format():
    names = set(Trace.model_fields["format"].annotation.__args__) - {"auto"}
    assert names == set(FORMATS)


@pytest.mark.parametrize("name", TEXTS)
def test_turns_come_after_what_they_wait_for_and_pieces_add_up(load, name):
    for session in load(name):
        for index, turn in enumerate(session.turns):
            assert all(wait.turn < index and wait.delay_s >= 0 for wait in turn.waits)
            assert turn.extends is None or turn.extends < index
            if turn.pieces is not None:
                assert sum(tokens for _, tokens in turn.pieces) == turn.new_tokens


def test_mooncake_delta(load):
    """b starts first, 50 ms before a. a goes on half a second after its answer; b's second turn has a time, 2 s on."""
    b, a = load("mooncake-delta")
    assert (b.time_s, a.time_s) == (0.0, 0.05)
    assert told(a) == [(1000, 4, None, (), 0.0), (8, 5, 0, (completion(0, 0.5),), 0.0)]
    assert told(b) == [(7, 3, None, (), 0.0), (9, 6, 0, (completion(0, 0.0),), 2.0)]
    assert [t.pieces for t in a.turns] == [(("h:1", 512), ("h:2", 488)), (("h:9", 8),)]
    assert a.turns[1].priority == 2
    assert list(planned_tokens(a)) == [(1000, 4), (1012, 5)]


def test_mooncake_with_sessions_has_whole_prompts(load):
    """By name: the same lines, where the second prompt does not go on from the first."""
    text = lines([row | {"timestamp": 0, "hash_ids": row.get("hash_ids", [])} for row in DELTA])
    a = load("mooncake-delta", text, format="mooncake")[0]
    assert [t.extends for t in a.turns] == [None, None]
    assert list(planned_tokens(a)) == [(1000, 4), (8, 5)]


def test_whole_prompts_of_sessions_are_told_by_their_blocks(load):
    """The second prompt begins with the whole blocks of the first, whose last one was short: it is no new one."""
    rows = [
        {"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]},
        {"session_id": "a", "timestamp": 9000, "input_length": 900, "output_length": 5, "hash_ids": [1, 3]},
    ]
    (session,) = load("mooncake-delta", lines(rows))
    assert [turn.extends for turn in session.turns] == [None, None]
    assert [session] == load("mooncake-delta", lines(rows), format="mooncake")
    (other,) = load("mooncake-delta", lines(rows), format="mooncake-delta")
    assert other.turns[1].extends == 0


def test_agentic_mooncake(load):
    """The join stands first in the file and last in the play; ids are of one play each. q begins 40 ms after p."""
    p, q = load("agentic-mooncake")
    assert (p.time_s, q.time_s) == (0.0, 0.04)
    assert told(p) == [
        (6, 3, None, (), 0.0),
        (4, 1, None, (Wait(0, "dispatch", 0.005),), 0.25),
        (9, 2, None, (completion(0, 0.001), completion(1, 0.002)), 0.0),
    ]
    assert p.turns[2].pieces == (("h:p/1", 4), ("h:p/5", 4), ("line:2", 1))
    assert q.turns[0].pieces == (("h:q/1", 4), ("line:5", 1))


def test_global_ids_are_common_to_all_plays(load):
    text = lines([AGENTIC[0] | {"hash_id_scope": "global"}, *AGENTIC[1:]])
    assert {session.turns[0].pieces[0] for session in load("agentic-mooncake", text)} == {("h:1", 4)}


def test_llmservingsim(load):
    """20 > 10 + 4 goes on with 6 new tokens, 1.5 s after the answer; 15 does not, and is a prompt of its own."""
    first, alone = load("llmservingsim")
    assert (first.time_s, alone.time_s) == (2.0, 3.0)
    assert told(first) == [
        (10, 4, None, (), 0.0),
        (6, 2, 0, (completion(0, 1.5),), 0.0),
        (15, 1, None, (completion(1, 0.0),), 0.0),
    ]
    assert told(alone) == [(5, 6, None, (), 0.0)]


def test_token_ids_share_what_begins_alike(load):
    """40 tokens are pieces of 16, 16 and 8. The second prompt differs in token 20: it shares one piece."""
    ids = list(range(40))
    other = [*ids[:20], -1, *ids[21:]]
    rows = [{"input_toks": 40, "output_toks": 1, "input_tok_ids": each} for each in (ids, other, ids)]
    prompts = [session.turns[0].pieces for session in load("llmservingsim", lines(rows))]
    assert [tokens for _, tokens in prompts[0]] == [16, 16, 8]
    assert [one == two for one, two in zip(prompts[0], prompts[1], strict=True)] == [True, False, False]
    assert prompts[2] == prompts[0]


def test_applied_compute(load):
    """Three requests: 16 new tokens, then two tools' results, each after its run."""
    (session,) = load("applied-compute")
    assert told(session) == [
        (16, 4, None, (), 0.0),
        (8, 5, 0, (completion(0, 0.25),), 0.0),
        (9, 3, 1, (completion(1, 0.5),), 0.0),
    ]
    assert list(planned_tokens(session)) == [(16, 4), (28, 5), (42, 3)]


def test_weka(traffic):
    """The sub-agent leaves 1 s after the first answer (at 2 s) and goes on 0.5 s after its own (at 4 s). The main agent
    waits for both its first answer and the sub-agent's last, and thinks 2.5 s. Its next request, at 12 s, leaves while
    that one is being answered (until 14 s): it follows the one before, whose answer came at 2 s, 10 s later.
    """
    made = traffic("weka")
    (session,) = made.sessions()
    assert told(session) == [
        (100, 5, None, (), 0.0),
        (70, 6, None, (completion(0, 1.0),), 0.0),
        (130, 7, None, (completion(1, 0.5),), 0.0),
        (200, 8, None, (completion(0, 2.5), completion(2, 2.5)), 0.0),
        (60, 9, None, (completion(0, 10.0),), 0.0),
    ]
    assert session.turns[0].pieces == (("h:w/1", 64), ("h:w/2", 36))
    assert session.turns[3].pieces[:2] == (("h:w/1", 64), ("h:w/2", 64))
    assert session.turns[3].pieces[3][1] == 200 - 3 * 64
    assert skipped(made.skips)["skipped"] == {"request without input or output": 1}


def test_overlapping_requests_follow_a_dispatch(load):
    """The second leaves 1 s after the first, which is answered only at 5 s."""
    requests = [{"t": t, "type": "n", "in": 10, "out": 1, "api_time": 5} for t in (0, 1)]
    (session,) = load("weka", json.dumps({"id": "o", "requests": requests}))
    assert session.turns[1].waits == (Wait(0, "dispatch", 1.0),)


def test_an_asynchronous_sub_agent_is_not_waited_for(load):
    sub = WEKA["requests"][1] | {"status": "async_launched"}
    text = json.dumps(WEKA | {"requests": [WEKA["requests"][0], sub, WEKA["requests"][3]]})
    (session,) = load("weka", text)
    assert session.turns[3].waits == (completion(0, 2.5),)


def test_weka_as_a_folder_and_as_lines(load, tmp_path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.json").write_text(json.dumps(WEKA | {"id": name}))
    (folder / "readme.txt").write_text("x")
    spec = TrafficSpec.model_validate({"arrivals": {"process": "trace", "path": str(folder)}})
    of_folder = list(open_traffic(spec, tmp_path, 0).sessions())
    of_lines = load("weka", lines([WEKA | {"id": "a"}, WEKA | {"id": "b"}]), file="t.jsonl")
    assert of_folder == of_lines
    assert [session.turns[0].pieces[0][0] for session in of_lines] == ["h:a/1", "h:b/1"]


def test_a_folder_of_sessions_runs_from_end_to_end(tmp_path):
    """Six sessions, two at a time: each of five requests, and the sub-agents' among them."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in "abcdef":
        (folder / f"{name}.json").write_text(json.dumps(WEKA | {"id": name}))
    scenario = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "engine": {"name": "vllm", "version": "0.33"},
        "traffic": {"arrivals": {"process": "trace", "path": str(folder), "concurrency": 2}},
    }
    summary = sim.run(scenario).summary
    assert summary["sessions"]["completed"] == 6
    assert summary["requests"]["completed"] == 30
    assert summary["trace"]["skipped"] == {"request without input or output": 6}
    assert summary["kv"]["prefix_hit_rate"] > 0


def test_ragpulse_without_lengths_of_its_parts(load):
    """The clock falls back: a week passed. The second question is sent 120 s after the first, or after its answer."""
    (session,) = load("ragpulse")
    assert session.time_s == 604700
    assert told(session) == [(10, 2, None, (), 0.0), (9, 3, None, (completion(0, 0.0),), 120.0)]
    assert [t.pieces for t in session.turns] == [None, None]


def test_ragpulse_with_lengths_of_its_parts(load, tmp_path):
    """Of 10 tokens 4 + 3 + 2 are shared parts, 1 is left of the question's 5; 9 tokens leave 2 beyond all parts."""
    (tmp_path / "1_sys_prompt.jsonl").write_text(lines([{"sys_prompt_id": 1, "token_length": 4}]))
    passages = [{"passages_id": 20, "token_length": 3}, {"passages_id": 21, "token_length": 2}]
    (tmp_path / "2_passages.jsonl").write_text(lines(passages))
    (tmp_path / "4_user_input.jsonl").write_text(lines([{"user_input_id": 40, "token_length": 5}]))
    (session,) = load("ragpulse")
    assert session.turns[0].pieces == (("part:1", 4), ("part:20", 3), ("part:21", 2), ("part:40", 1))
    assert session.turns[1].pieces == (("part:1", 4), ("part:20", 3), ("line:2", 2))


def test_tracelab(load):
    """The first answer ends at 4 s, the last tool at 5.5 s: the next round leaves 1.5 s after the answer. Of its 130
    tokens 90 are the beginning of the 100 before.
    """
    (session,) = load("tracelab")
    assert told(session) == [(100, 7, None, (), 0.0), (130, 8, None, (completion(0, 1.5),), 0.0)]
    assert session.turns[0].pieces == (("l:0", 100),)
    assert session.turns[1].pieces == (("l:0", 90), ("l:1", 40))


def test_dynamo(load):
    """The child leaves 50 ms after its parent's answer (at 1.1 s), the consumer 100 ms after the child's (at 1.2 s).
    Hashes are common to all: block 2 of the boss and of the other is the same.
    """
    boss, other = load("dynamo")
    assert (boss.time_s, other.time_s) == (0.0, 4.0)
    assert [t.waits for t in boss.turns] == [
        (),
        (completion(0, pytest.approx(0.05)),),
        (completion(0, pytest.approx(0.1)), completion(1, pytest.approx(0.1))),
    ]
    assert boss.turns[0].pieces == other.turns[0].pieces == (("h:1", 4), ("h:2", 2))


BAD = {
    "mooncake-delta": [
        ([DELTA[0], DELTA[1] | {"input_length": 0}], "input_length: 0 is no token count"),
        ([DELTA[0], DELTA[1] | {"session_id": None}], "session_id: the cell is empty"),
        ([DELTA[0], DELTA[1] | {"delay": -1}], "delay: -1 is no time from 0 on"),
        ([DELTA[0], DELTA[1] | {"hash_ids": [1, 2]}], "hash_ids: 2 ids of 512 tokens each for a prompt of 7"),
    ],
    "agentic-mooncake": [
        ([AGENTIC[0], AGENTIC[1]], "dependencies: this play has no request root"),
        (
            [AGENTIC[0], AGENTIC[2] | {"dependencies": [{"request_id": "root", "trigger": "soon"}]}],
            r"dependencies\[0\]\.trigger: 'soon' is neither dispatch nor completion",
        ),
        (
            [AGENTIC[0], AGENTIC[2] | {"dependencies": [{"request_id": "root", "trigger": "dispatch"}]}],
            "requests wait for each other: root, root",
        ),
        ([AGENTIC[0], AGENTIC[2] | {"dependencies": 5}], "dependencies: this is no list of objects"),
    ],
    "llmservingsim": [
        ([SERVING[1], SERVING[0]], "arrives before the one above"),
        ([SERVING[0], {"sub_requests": []}], "sub_requests: the list is empty"),
        ([SERVING[0], {"sub_requests": [{"input_toks": 1}]}], r"sub_requests\[0\]\.output_toks: the cell is empty"),
        ([SERVING[0], SERVING[1] | {"input_tok_ids": [1]}], "input_tok_ids: 1 tokens for a prompt of 5"),
    ],
    "applied-compute": [
        ([APPLIED[0], APPLIED[0] | {"tool_call_latency": [1]}], "tool_call_latency: 1 for 2 answers"),
        ([APPLIED[0], APPLIED[0] | {"num_turns": 3}], "num_turns: 3 for 2 answers"),
        ([APPLIED[0], APPLIED[0] | {"assistant_response_length": 4}], "assistant_response_length: this is no list"),
    ],
    "ragpulse": [([RAG[0], RAG[1] | {"hash_ids": 5}], "hash_ids: this is no object of lists")],
    "tracelab": [([LAB[0], LAB[1] | {"timing_events": []}], "timing_events: the list is empty")],
    "dynamo": [([DYNAMO[0], {"event_type": "request_end"}], "request: this is no object")],
}


@pytest.mark.parametrize(("name", "rows", "complaint"), [(name, *bad) for name, each in BAD.items() for bad in each])
def test_a_bad_line_is_refused_with_its_number(load, name, rows, complaint):
    with pytest.raises(TraceError, match=complaint) as caught:
        load(name, lines(rows), format=name)
    assert caught.value.problem.line == 2
    assert caught.value.problem.cure


def test_lenient_reading_leaves_out_the_session_or_the_turn(traffic):
    made = traffic("applied-compute", lines([APPLIED[0], {"x": 1}, APPLIED[0]]), lenient=True)
    assert len(list(made.sessions())) == 2
    assert skipped(made.skips)["skipped"] == {"bad line": 1}


def test_lenient_reading_leaves_out_plays_and_disorder(traffic):
    """p waits for nobody it has; q is whole. The session at 2 s comes after the one at 3 s."""
    made = traffic("agentic-mooncake", lines([AGENTIC[0], AGENTIC[1], AGENTIC[4]]), lenient=True)
    assert [session.turns[0].new_tokens for session in made.sessions()] == [5]
    assert skipped(made.skips)["skipped"] == {"bad line": 1}
    assert len(list(traffic("llmservingsim", lines(SERVING[::-1]), lenient=True).sessions())) == 1


def test_names_within_a_play_are_its_own(load):
    with pytest.raises(TraceError, match=r"t\.jsonl:3: request_id: this play has another request root"):
        load("agentic-mooncake", lines([AGENTIC[0], AGENTIC[2], AGENTIC[2]]))


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "weka"])
def test_a_file_of_another_kind_is_refused(load, name):
    with pytest.raises(TraceError, match="this is no JSONL"):
        load(name, "arrival_s,prompt_tokens,output_tokens\n0,1,1\n", file="t.csv", format=name)


def test_an_unreadable_session_file_is_refused_by_name(load):
    with pytest.raises(TraceError, match=r"t\.json: this is no JSON object"):
        load("weka", "[1]")


def test_an_older_agentic_mooncake_is_refused(load):
    with pytest.raises(TraceError, match=r"t\.jsonl:1: the header does not say schema"):
        load("agentic-mooncake", lines([AGENTIC[0] | {"version": 1}, *AGENTIC[1:]]))


def test_classes_cannot_have_sessions(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(TEXTS["mooncake-delta"][1])
    spec = {"classes": {"chat": {"arrivals": {"process": "trace", "path": str(path)}}}}
    with pytest.raises(ScenarioError, match=r"traffic\.classes\.chat\.arrivals: requests of classes stand alone"):
        open_traffic(TrafficSpec.model_validate(spec), tmp_path, 0)


def test_the_example_answers_its_question(repo):
    """Eight at once: 38 s each and 12.5 a minute; 49 s without caching; 83 % of prompt tokens are hits."""
    path = repo / "workloads/recorded_agents.yaml"
    cached = sim.run(path).summary
    assert cached["sessions"]["completed"] == 240
    assert cached["sessions"]["duration_s"]["mean"] == pytest.approx(38, abs=0.5)
    assert cached["sessions"]["completed"] / cached["simulated_s"] * 60 == pytest.approx(12.5, abs=0.05)
    assert cached["kv"]["prefix_hit_rate"] == pytest.approx(0.83, abs=0.005)
    plain = sim.run(path, overrides={"engine.prefix_caching": False}).summary
    assert plain["sessions"]["duration_s"]["mean"] == pytest.approx(49, abs=0.5)
