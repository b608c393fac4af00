"""Mooncake's traces: blocks that prompts share, down to the engine's prefix cache."""

import json
from pathlib import Path

import pytest

import sim
from sim.engine import EngineSettings, rules_for
from sim.engine.cache.prompts import full_block_keys
from sim.engine.request import Request
from sim.engine.vllm_v1 import VllmV1
from sim.errors import TraceError
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic

LINES = [
    {"timestamp": 27, "input_length": 1200, "output_length": 9, "hash_ids": [0, 1, 2]},
    {"timestamp": 27, "input_length": 1024, "output_length": 1, "hash_ids": [0, 3]},
    {"timestamp": 1530.5, "input_length": 1200, "output_length": 4, "hash_ids": [0, 1, 2]},
    {"timestamp": 2027, "input_length": 1500, "output_length": 2, "hash_ids": [0, 1]},
    {"timestamp": 2028, "input_length": 1, "output_length": 3, "hash_ids": []},
]


def load(path, *, kind="auto", time_scale=1.0, **keys):
    arrivals = {"process": "trace", "path": path.name, "format": kind, "time_scale": time_scale}
    return list(open_traffic(TrafficSpec.model_validate({"arrivals": arrivals} | keys), path.parent, 0))


@pytest.fixture
def write(tmp_path):
    def written(lines):
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return written


@pytest.mark.parametrize("kind", ["auto", "mooncake"])
def test_times_lengths_and_blocks(write, kind):
    """Milliseconds from the first line on; 1200 = 512 + 512 + 176; of 1500 two blocks leave 476 private tokens."""
    made = load(write(LINES), kind=kind)
    assert [(a.time_s, a.prompt_tokens, a.output_tokens) for a in made] == [
        (0.0, 1200, 9),
        (0.0, 1024, 1),
        (1.5035, 1200, 4),
        (2.0, 1500, 2),
        (2.001, 1, 3),
    ]
    assert [a.prompt for a in made] == [
        (("h:0", 512), ("h:1", 512), ("h:2", 176)),
        (("h:0", 512), ("h:3", 512)),
        (("h:0", 512), ("h:1", 512), ("h:2", 176)),
        (("h:0", 512), ("h:1", 512), ("p:3", 476)),
        (("p:4", 1),),
    ]


def test_limits_and_scale(write):
    path = write(LINES)
    assert [a.time_s for a in load(path, time_scale=2)] == [0.0, 0.0, 3.007, 4.0, 4.002]
    assert len(load(path, requests=2)) == 2
    assert [len(a.prompt) for a in load(path, duration=2)] == [3, 2, 3]


def test_more_than_one_block_of_requests(write):
    count = 9_000
    lines = [
        {"timestamp": i, "input_length": 513 + i, "output_length": 1, "hash_ids": [0, i + 1]} for i in range(count)
    ]
    made = load(write(lines))
    assert [a.prompt[1][0] for a in made] == [f"h:{i + 1}" for i in range(count)]
    assert all(sum(tokens for _, tokens in a.prompt) == a.prompt_tokens == 513 + i for i, a in enumerate(made))


def test_what_the_scenario_says_goes_before(write):
    """Prompts of another length are nobody's blocks; a shared prefix comes first."""
    path = write(LINES)
    assert [a.prompt for a in load(path, prompt_tokens={"distribution": "fixed", "value": 7})] == [None] * 5
    assert load(path, shared_prefix={"tokens": 5})[1].prompt == (("shared:0", 5), ("h:0", 512), ("h:3", 512))
    assert load(path, shared_prefix={"tokens": 5})[1].prompt_tokens == 1029


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hash_ids": [0, 1, 2, 3]}, r"hash_ids: 4 ids of 512 tokens each for a prompt of 1,200"),
        ({"hash_ids": [0, 1.0, 2]}, r"hash_ids: \[0, 1.0, 2\] is no list of whole numbers"),
        ({"hash_ids": [0, True, 2]}, "is no list of whole numbers"),
        ({"hash_ids": "0 1 2"}, "'0 1 2' is no list of whole numbers"),
        ({"hash_ids": [2**63]}, "more than 63 bits"),
        ({"hash_ids": None}, "hash_ids: the cell is empty"),
        ({"input_length": 0}, "input_length: 0 is no token count"),
        ({"output_length": None}, "output_length: the cell is empty"),
        ({"timestamp": "soon"}, "timestamp: 'soon' is no number"),
        ({"timestamp": 1e14}, "is no time in milliseconds"),
        ({"timestamp": 26}, "arrives 0.001 s before the one above"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(write, change, complaint):
    path = write([LINES[0], LINES[1], LINES[0] | change])
    with pytest.raises(TraceError, match=complaint) as caught:
        load(path)
    assert (caught.value.problem.file, caught.value.problem.line) == (str(path), 3)
    assert caught.value.problem.cure


def test_other_files_are_refused(write):
    with pytest.raises(TraceError, match="no timestamp and no hash_ids"):
        load(write([{"input_length": 1, "output_length": 1}]), kind="mooncake")
    with pytest.raises(TraceError, match="format: mooncake"):
        load(write(LINES), kind="table")


def test_requests_share_the_engine_s_blocks_exactly(write):
    """With blocks of 16 the first two share 512 / 16 = 32; the third has all 75 of the first; the fourth shares 64."""
    keys = [
        full_block_keys(Request(a.index, a.prompt_tokens, 1, order=a.index, prompt=a.prompt), 16, a.prompt_tokens // 16)
        for a in load(write(LINES))
    ]
    assert [len(k) for k in keys[:4]] == [75, 64, 75, 93]
    alike = [sum(one == other for one, other in zip(keys[0], k, strict=False)) for k in keys[:4]]
    assert alike == [75, 32, 75, 64]


def hits_by_ids(path: Path, block_tokens: int) -> tuple[int, int]:
    """(hit, asked) tokens with an infinite cache, from the ids alone: those of the leading ids that were seen before.

    Only whole engine blocks are hit, and the last token of a prompt is always computed.
    """
    seen: set[int] = set()
    hit = asked = 0
    for line in map(json.loads, path.read_text().splitlines()):
        ids, tokens = line["hash_ids"], line["input_length"]
        known = next((index for index, one in enumerate(ids) if one not in seen), len(ids))
        seen.update(ids)
        hit += min(512 * known, tokens - 1) // block_tokens * block_tokens
        asked += tokens
    return hit, asked


def hits_by_engine(path: Path, block_tokens: int) -> tuple[int, int]:
    """The same as vLLM's scheduler counts it, one request after the other, in a pool that never fills."""
    settings = EngineSettings(
        max_batched_tokens=1 << 20,
        max_sequences=1,
        max_model_len=1 << 20,
        block_tokens=block_tokens,
        kv_blocks=100_000_000,
    )
    engine = VllmV1(rules_for("vllm", "0.33"), settings)
    for a in load(path, kind="mooncake"):
        engine.add(Request(a.index, a.prompt_tokens, 1, order=a.index, prompt=a.prompt))
        assert len(engine.complete(engine.schedule()).finished) == 1
    return engine.prefix_hits, engine.prefix_queries


def test_an_infinite_cache_hits_what_the_ids_say(write):
    """Blocks of 16. Second: 512. Third: 1199 of 1200 may be hit, 74 blocks, 1184. Fourth: 1024. Of 4,925 in all."""
    path = write(LINES)
    assert hits_by_engine(path, 16) == hits_by_ids(path, 16) == (512 + 1184 + 1024, 4925)


@pytest.mark.parametrize(("name", "share"), [("conversation", 0.374), ("synthetic", 0.651)])
def test_an_infinite_cache_on_the_real_traces(shared, name, share):
    """Of all prompt tokens; in large blocks, to have fewer of them (16 would hit 0.01 % more)."""
    path = shared / f"data/traces/mooncake/{name}_trace.jsonl"
    hit, asked = hits_by_engine(path, 128)
    assert (hit, asked) == hits_by_ids(path, 128)
    assert hit / asked == pytest.approx(share, abs=0.0005)


def test_the_example_runs_and_hits(repo):
    """Spaced so far apart that nobody waits, every hit the ids promise is made: hits per token asked for."""
    path = repo / "workloads/data/mooncake_sample.jsonl"
    result = sim.run(repo / "workloads/mooncake.yaml", overrides={"traffic.arrivals.time_scale": 100})
    hit, asked = hits_by_ids(path, 16)
    assert result.summary["requests"]["completed"] == 60
    assert result.summary["kv"]["prefix_hit_rate"] == pytest.approx(hit / asked)
