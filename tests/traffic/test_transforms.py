"""What a scenario changes of a trace, on five requests at 0, 1.5, 2, 2 and 4 seconds."""

import numpy as np
import pytest

from sim.errors import ScenarioError
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic

TABLE = "arrival_s,prompt_tokens,output_tokens\n0,10,1\n1.5,20,2\n2,30,3\n2,40,4\n4,50,5\n"
BLOCKS = """{"timestamp": 0, "input_length": 1200, "output_length": 9, "hash_ids": [7, 8, 9]}
{"timestamp": 1000, "input_length": 1024, "output_length": 1, "hash_ids": [7, 3]}
"""
SESSIONS = "arrival_s,prompt_tokens,output_tokens,session\n0,10,1,a\n1,20,2,b\n3,30,3,a\n4,40,4,c\n"


@pytest.fixture
def traffic(tmp_path):
    def opened(text=TABLE, suffix="csv", seed=0, traffic=None, **arrivals):
        path = tmp_path / f"trace.{suffix}"
        path.write_text(text)
        spec = {"arrivals": {"process": "trace", "path": str(path), **arrivals}, **(traffic or {})}
        return open_traffic(TrafficSpec.model_validate(spec), tmp_path, seed)

    return opened


@pytest.fixture
def load(traffic):
    return lambda *args, **keys: list(traffic(*args, **keys))


def rows(made):
    return [(a.time_s, a.prompt_tokens, a.output_tokens) for a in made]


def test_a_window_is_time_0_and_leaves_out_its_end(load):
    assert rows(load(start=1.5, end=4)) == [(0.0, 20, 2), (0.5, 30, 3), (0.5, 40, 4)]
    assert rows(load(start=2.5)) == [(1.5, 50, 5)]
    assert [a.index for a in load(start=2.5)] == [0]


def test_nothing_is_read_beyond_a_window(load):
    assert len(load(TABLE + "x,y,z\n", end=4)) == 4


def test_a_window_of_a_clock_counts_from_its_first_row(load):
    """The first row is second 0 of the trace, wherever the window begins."""
    text = "timestamp,prompt_tokens,output_tokens\n1000,1,1\n1007,2,1\n1009,3,1\n"
    assert rows(load(text, start=7)) == [(0.0, 2, 1), (2.0, 3, 1)]


def test_copies_fill_the_gap_to_the_next(load):
    """Two copies each: of the first at 0 and 0.75, halfway to the next; of the last both at once."""
    made = load(replicate=2)
    assert [a.time_s for a in made] == [0.0, 0.75, 1.5, 1.75, 2.0, 2.0, 2.0, 3.0, 4.0, 4.0]
    assert [a.prompt_tokens for a in made] == [10, 10, 20, 20, 30, 30, 40, 40, 50, 50]


def test_copies_share_blocks_among_themselves(load):
    """The second copies begin with a block of their own, as the originals do with theirs."""
    made = load(BLOCKS, suffix="jsonl", replicate=2)
    first = [a.prompt[0] for a in made]
    assert first[0] == first[2]
    assert first[1] == first[3] != first[0]
    assert len({name for a in made for name, _ in a.prompt}) == 8


def test_lengths_are_scaled_and_rounded(load):
    """10 x 0.25 = 2.5 rounds up to 3; 1 x 0.4 is still a token."""
    made = load(prompt_scale=0.25, output_scale=0.4)
    assert [a.prompt_tokens for a in made] == [3, 5, 8, 10, 13]
    assert [a.output_tokens for a in made] == [1, 1, 1, 2, 2]
    assert [a.max_output_tokens for a in made] == [1, 1, 1, 2, 2]


def test_shared_blocks_are_scaled_with_their_prompts(load):
    """512 / 100 = 5.12: boundaries at 5, 10 and 12; the second prompt shares the first 5 tokens still."""
    first, second = load(BLOCKS, suffix="jsonl", prompt_scale=0.01)
    assert first.prompt == (("h:7", 5), ("h:8", 5), ("h:9", 2))
    assert second.prompt == (("h:7", 5), ("h:3", 5))
    assert (first.prompt_tokens, second.prompt_tokens) == (12, 10)
    assert load(BLOCKS, suffix="jsonl", prompt_scale=3)[1].prompt == (("h:7", 1536), ("h:3", 1536))


def test_blocks_of_another_size(load):
    """Ids of 16 tokens, as vLLM's timed traces have; what is beyond the last id is nobody's else."""
    text = '{"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [7, 8]}\n'
    assert load(text, suffix="jsonl", block_tokens=16)[0].prompt == (("h:7", 16), ("h:8", 16), ("p:0", 8))


def test_whole_seconds_are_spread_in_order(load):
    text = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i // 100},{i + 1},1\n" for i in range(2000))
    made = load(text, spread=True)
    times_s = np.array([a.time_s for a in made])
    assert [a.prompt_tokens for a in made] == list(range(1, 2001))
    assert np.all(np.diff(times_s) >= 0)
    assert np.floor(times_s).tolist() == [i // 100 for i in range(2000)]
    assert np.mean(times_s % 1) == pytest.approx(0.5, abs=4 * (1 / 12 / 2000) ** 0.5)


def test_a_sample_keeps_its_share_and_depends_on_the_seed(load):
    text = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},{i + 1},1\n" for i in range(4000))
    kept = [a.prompt_tokens for a in load(text, sample=0.25)]
    assert len(kept) == pytest.approx(1000, abs=4 * (4000 * 0.25 * 0.75) ** 0.5)
    assert kept == [a.prompt_tokens for a in load(text, sample=0.25)] == sorted(set(kept))
    assert kept != [a.prompt_tokens for a in load(text, sample=0.25, seed=1)]


def test_sessions_are_sampled_whole(traffic):
    text = "arrival_s,prompt_tokens,output_tokens,session\n" + "".join(f"{i},1,1,s{i % 1000}\n" for i in range(3000))
    kept = list(traffic(text, sample=0.5).sessions())
    assert len(kept) == pytest.approx(500, abs=4 * (1000 / 4) ** 0.5)
    assert {len(session.turns) for session in kept} == {3}


def test_a_rate_replaces_recorded_times(load):
    """Poisson gaps of mean 1/50 s: their mean over 4,000 is within four standard errors, 4/63 of it."""
    text = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},{i + 1},1\n" for i in range(4000))
    times_s = [a.time_s for a in load(text, rate=50)]
    assert times_s[-1] / 4000 == pytest.approx(1 / 50, rel=4 / 4000**0.5)


def test_a_concurrency_replaces_recorded_times(traffic):
    made = traffic(concurrency=2)
    assert [a.time_s for a in made] == [0.0] * 5
    assert made.closed_concurrency == 2


def test_sessions_of_a_table(traffic):
    """Three sessions; a's second turn is 3 s after its first, and never before the first is answered."""
    made = traffic(SESSIONS)
    assert made.in_sessions
    sessions = list(made.sessions())
    assert [(s.time_s, s.session_id, [t.new_tokens for t in s.turns]) for s in sessions] == [
        (0.0, 0, [10, 30]),
        (1.0, 1, [20]),
        (4.0, 2, [40]),
    ]
    second = sessions[0].turns[1]
    assert second.waits == ((0, "completion", 0.0),)
    assert (second.not_before_s, second.extends, second.output_tokens) == (3.0, None, 3)


def test_sessions_are_windowed_and_copied_by_their_starts(traffic):
    """From second 1 on: b and c; two copies of each, b's second halfway to c."""
    made = list(traffic(SESSIONS, start=1, replicate=2, time_scale=2, prompt_scale=0.5, output_scale=2).sessions())
    assert [(s.time_s, s.session_id, [(t.new_tokens, t.output_tokens) for t in s.turns]) for s in made] == [
        (0.0, 2, [(10, 4)]),
        (3.0, 3, [(10, 4)]),
        (6.0, 4, [(20, 8)]),
        (6.0, 5, [(20, 8)]),
    ]


@pytest.mark.parametrize(
    ("keys", "path", "complaint"),
    [
        ({"start": 5, "end": 5}, "arrivals.end", "not after start"),
        ({"rate": 1, "concurrency": 2}, "arrivals.rate", "wait for others"),
        ({"concurrency": 1, "max_concurrency": 2}, "arrivals.max_concurrency", "bounded by concurrency"),
        ({"concurrency": 1, "time_scale": 2}, "arrivals.time_scale", "has no effect"),
    ],
)
def test_keys_that_contradict_each_other(load, keys, path, complaint):
    with pytest.raises(ScenarioError, match=rf"traffic\.{path}: .*{complaint}"):
        load(**keys)


@pytest.mark.parametrize("key", ["prompt_tokens", "output_tokens", "shared_prefix", "priorities"])
def test_recorded_sessions_are_taken_as_they_are(traffic, key):
    value = {"shared_prefix": {"tokens": 5}, "priorities": {0: 1.0}}.get(key, 7)
    with pytest.raises(ScenarioError, match=rf"traffic\.{key}: has no effect"):
        traffic(SESSIONS, traffic={key: value})
