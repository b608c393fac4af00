"""Trace readers: the public Azure traces, tables of every kind, and every way a file can be wrong."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError, TraceError
from sim.scenario.specs import TrafficSpec
from sim.traffic import open_traffic
from sim.traffic.cells import read_clock_ns

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109

2023-11-16 18:15:50.9951690,879,55
"""
TABLE = "arrival_s,prompt_tokens,output_tokens\n0.5,10,1\n2,20,2\n2,30,3\n"


def load(path, *, kind="auto", time_scale=1.0, **keys):
    arrivals = {"process": "trace", "path": path.name, "format": kind, "time_scale": time_scale}
    return list(open_traffic(TrafficSpec.model_validate({"arrivals": arrivals} | keys), path.parent, 0))


def rows(made):
    return [(a.time_s, a.prompt_tokens, a.output_tokens) for a in made]


@pytest.fixture
def write(tmp_path):
    def written(text, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


@pytest.mark.parametrize(
    ("name", "count", "prompt", "output", "rate", "cv"),
    [("conv", 19_366, 1155, 211, 5.53, 1.09), ("code", 8_819, 2048, 28, 2.57, 13.2)],
)
def test_the_azure_2023_traces(shared, name, count, prompt, output, rate, cv):
    """Rows, mean lengths, rate and burstiness of the published files (Azure public dataset, Splitwise paper)."""
    made = load(shared / f"data/traces/azure2023/AzureLLMInferenceTrace_{name}.csv")
    times_s = np.array([a.time_s for a in made])
    gaps_s = np.diff(times_s)
    assert len(made) == count
    assert round(np.mean([a.prompt_tokens for a in made])) == prompt
    assert round(np.mean([a.output_tokens for a in made])) == output
    assert round(1 / gaps_s.mean(), 2) == rate
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.005)
    assert times_s[0] == 0.0


def test_azure_agrees_with_a_plain_reading(shared):
    """Column for column what pandas reads, to the last digit of the clock."""
    path = shared / "data/traces/azure2023/AzureLLMInferenceTrace_conv.csv"
    table = pd.read_csv(path)
    clock = pd.to_datetime(table["TIMESTAMP"]).astype("datetime64[ns]").astype("int64")
    made = load(path, kind="azure")
    assert [a.prompt_tokens for a in made] == table["ContextTokens"].tolist()
    assert [a.output_tokens for a in made] == table["GeneratedTokens"].tolist()
    assert [a.time_s for a in made] == [(ns - clock[0]) / 1e9 for ns in clock]


def test_azure_times_count_from_the_first_row(write):
    """Seven fractional digits are kept; equal times are in order."""
    made = load(write(AZURE))
    assert rows(made) == [(0.0, 374, 44), (4.314579, 396, 109), (4.314579, 879, 55)]
    assert [(a.index, a.max_output_tokens, a.priority, a.prompt) for a in made] == [
        (0, 44, 0, None),
        (1, 109, 0, None),
        (2, 55, 0, None),
    ]


def test_azure_2024_has_a_time_zone(write):
    text = (
        AZURE.replace(".6805900", ".680590+00:00")
        .replace("50.9951690,396", "50+00:00,396")
        .replace("50.9951690,879", "51.5+00:00,879")
    )
    assert [a.time_s for a in load(write(text))] == [0.0, 3.31941, 4.81941]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.rstrip("\n").encode(),
        lambda text: text.replace("374", '" 374 "').encode(),
        lambda text: ("\n  \n" + text).encode(),
        lambda text: "\n".join(f"{line},x" if line else line for line in text.split("\n")).encode(),
    ],
    ids=["CRLF", "byte order mark", "no last newline", "quotes", "blank first lines", "another column"],
)
def test_harmless_differences_are_read_alike(write, change):
    assert rows(load(write(change(AZURE)))) == rows(load(write(AZURE, "plain.csv")))


def test_time_scale_multiplies_the_gaps(write):
    assert [a.time_s for a in load(write(AZURE), time_scale=0.5)] == [0.0, 4.314579 / 2, 4.314579 / 2]


def test_requests_and_duration_end_a_trace(write):
    path = write(AZURE)
    assert len(load(path, requests=2)) == 2
    assert len(load(path, requests=20)) == 3
    assert len(load(path, duration=4.314579)) == 1
    assert len(load(path, duration=4.314579, time_scale=0.9)) == 3


@pytest.mark.parametrize("end", [{"requests": 2}, {"duration": 3}])
def test_what_is_not_asked_for_is_not_read(write, end):
    """A bad line beyond the end harms nobody."""
    path = write("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,1,1\n3,1,1\nx,y,z\n")
    assert len(load(path, **end)) == 2


def test_the_scenario_goes_before_the_trace(write):
    """Times from the trace, lengths from a distribution; a column that is not used need not be right."""
    path = write(TABLE.replace("30", "x"))
    ten = {"distribution": "fixed", "value": 7}
    assert rows(load(path, prompt_tokens=ten)) == [(0.5, 7, 1), (2.0, 7, 2), (2.0, 7, 3)]
    only_times = write("arrival_s\n1\n2\n", "times.csv")
    assert rows(load(only_times, prompt_tokens=ten, output_tokens=ten)) == [(1.0, 7, 7), (2.0, 7, 7)]


def test_the_cap_and_the_shared_prefix_apply_to_a_trace(write):
    made = load(write(TABLE), max_output_tokens=2, shared_prefix={"tokens": 5})
    assert rows(made) == [(0.5, 15, 1), (2.0, 25, 2), (2.0, 35, 2)]
    assert made[2].max_output_tokens == 2
    assert made[2].prompt == (("shared:0", 5), ("p:2", 30))


def as_file(folder, table, suffix):
    path = folder / f"trace.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    elif suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_may_be_csv_jsonl_or_parquet(tmp_path, suffix):
    """With a priority column; whole floats are counts."""
    table = pd.DataFrame(
        {
            "priority": [2, 0, -1],
            "output_tokens": [1, 2, 3],
            "arrival_s": [0.5, 2.0, 2.0],
            "prompt_tokens": [10.0, 20, 30],
        }
    )
    made = load(as_file(tmp_path, table, suffix))
    assert rows(made) == [(0.5, 10, 1), (2.0, 20, 2), (2.0, 30, 3)]
    assert [a.priority for a in made] == [2, 0, -1]
    assert {type(a.priority) for a in made} == {int}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_more_than_one_block(tmp_path, suffix):
    count = 20_001
    table = pd.DataFrame({"arrival": np.arange(count) / 8, "input_tokens": np.arange(count) + 1, "output_length": 3})
    made = load(as_file(tmp_path, table, suffix))
    assert rows(made) == [(i / 8, i + 1, 3) for i in range(count)]


@pytest.mark.parametrize(
    "header",
    [
        "arrival_s,prompt_tokens,output_tokens",
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "Arrival,Input_Tokens,Generated_Tokens",
        "arrival_time_s, context_tokens , output_length",
    ],
)
def test_a_table_s_columns_have_synonyms(write, header):
    assert rows(load(write(TABLE.replace("arrival_s,prompt_tokens,output_tokens", header)))) == rows(
        load(write(TABLE, "plain.csv"))
    )


def test_an_arrival_is_as_written_and_a_timestamp_counts_from_the_first(write):
    assert [a.time_s for a in load(write(TABLE))] == [0.5, 2.0, 2.0]
    assert [a.time_s for a in load(write(TABLE.replace("arrival_s", "timestamp")))] == [0.0, 1.5, 1.5]
    clock = "timestamp,input_tokens,output_tokens\n2026-01-01T00:00:59.5Z,1,1\n2026-01-01T01:01:00+01:00,1,1\n"
    assert [a.time_s for a in load(write(clock))] == [0.0, 0.5]


def test_clocks_in_parquet(tmp_path):
    table = pd.DataFrame(
        {
            "timestamp": pd.to_datetime(["2026-01-01 00:00:00.000000000", "2026-01-01 00:00:01.123456789"]),
            "input_tokens": [1, 1],
            "output_tokens": [1, 1],
        }
    )
    assert [a.time_s for a in load(as_file(tmp_path, table, "parquet"))] == [0.0, 1.123456789]


HEAD = "arrival_s,prompt_tokens,output_tokens\n0,1,1\n"


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        (HEAD + "1,0,1\n", 3, "prompt_tokens: 0 is no token count"),
        (HEAD + "1,1,0\n", 3, "output_tokens: 0 is no token count"),
        (HEAD + "1,-5,1\n", 3, "prompt_tokens: -5 is no token count"),
        (HEAD + "1,1.5,1\n", 3, "prompt_tokens: '1.5' is no whole number"),
        (HEAD + "1,NaN,1\n", 3, "prompt_tokens: 'NaN' is no whole number"),
        (HEAD + "1,inf,1\n", 3, "prompt_tokens: 'inf' is no whole number"),
        (HEAD + "1,1_000,1\n", 3, "prompt_tokens: '1_000' is no number"),
        (HEAD + "1,٣,1\n", 3, "prompt_tokens: '٣' is no number"),
        (HEAD + "1,99999999999999999999,1\n", 3, "prompt_tokens: 1\\d+ tokens is more than any request has"),
        (HEAD + "1,10000001,1\n", 3, "prompt_tokens: 10000001 tokens is more than any request has"),
        (HEAD + "1,,1\n", 3, "prompt_tokens: the cell is empty"),
        (HEAD + "\n\nnan,1,1\n", 5, "arrival_s: 'nan' is no time in seconds"),
        (HEAD + "1e300,1,1\n", 3, "arrival_s: '1e300' is no time in seconds"),
        (HEAD + "soon,1,1\n", 3, "arrival_s: 'soon' is no number"),
        (HEAD + "1,1\n", 3, "2 cells under a header of 3"),
        (HEAD + "1,1,1,1\n", 3, "4 cells under a header of 3"),
        (HEAD + '1,"1,1\n', 3, "no CSV"),
        (HEAD + "1,1,1\n0.25,1,1\n", 4, r"arrives 0\.75 s before the one above.*\n.*sort the file by arrival_s"),
        (HEAD.replace("\n0,", "\n-1,"), 2, "arrival_s: -1 s is before the run's start"),
        (HEAD.encode() + b"\xff\xfe,1,1\n", 3, "no UTF-8 text"),
        (HEAD.encode() + b"1,1,\0001\n", 3, "no UTF-8 text"),
        (HEAD + "1" * 2_000_000, 3, "no UTF-8 text"),
        (HEAD.encode("utf-16"), 1, "no UTF-8 text"),
        (AZURE.replace("16 18:15:50", "31 18:15:50"), 3, "TIMESTAMP: '2023-11-31 .*' is no time"),
        (AZURE.replace("18:15:50", "18:15:45"), 3, "arrives 0.685421 s before the one above"),
        (AZURE.replace("374", "0"), 2, "ContextTokens: 0 is no token count"),
        ("timestamp,input_tokens,output_tokens\n1700000000000,1,1\n", 2, "timestamp: '1700000000000' is no time in s"),
        ("arrival_s,arrival_s,prompt_tokens,output_tokens\n", 1, "two columns are named arrival_s"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(write, text, line, complaint):
    path = write(text)
    with pytest.raises(TraceError, match=complaint) as caught:
        load(path)
    assert (caught.value.problem.file, caught.value.problem.line) == (str(path), line)
    assert caught.value.problem.cure


@pytest.mark.parametrize(
    ("text", "name", "complaint"),
    [
        ("", "t.csv", "the file is empty"),
        ("\n\n", "t.csv", "the file is empty"),
        ("", "t.jsonl", "the file is empty"),
        ("arrival_s,prompt_tokens,output_tokens\n", "t.csv", "there is no request"),
        (
            "0,10,20\n1,10,20\n",
            "t.csv",
            r"no column arrival_s and no output_tokens and no prompt_tokens among 0, 10, 20",
        ),
        ("arrival_s,output_tokens\n0,10\n", "t.csv", r"no column prompt_tokens(.|\n)*input_tokens"),
        ("arrival_s;prompt_tokens;output_tokens\n0;1;1\n", "t.csv", "no column arrival_s"),
        ('{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1, "hash_ids": [0]}\n', "t.jsonl", "Mooncake"),
        ("no parquet", "t.parquet", "no Parquet file"),
        ("[1, 2]\n", "t.jsonl", "t.jsonl:1: this line is no JSON object"),
        ("[" * 100_000 + "\n", "t.jsonl", "t.jsonl:1: this line is no JSON object"),
        ('{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n{"arrival_s"\n', "t.jsonl", "t.jsonl:2: this line"),
        ('{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": true}\n', "t.jsonl", "True is no number"),
        ('{"arrival_s": 0, "prompt_tokens": NaN, "output_tokens": 1}\n', "t.jsonl", "prompt_tokens: nan is no whole"),
        ('{"arrival_s": 0, "prompt_tokens": {}, "output_tokens": 1}\n', "t.jsonl", "prompt_tokens: {} is no number"),
    ],
)
def test_a_bad_file_is_refused(write, text, name, complaint):
    path = write(text, name)
    with pytest.raises(TraceError, match=complaint):
        load(path)


def test_a_line_without_a_key_is_refused(write):
    text = '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n{"arrival_s": 1, "prompt_tokens": 1}\n'
    with pytest.raises(TraceError, match=r"t\.jsonl:2: output_tokens: the cell is empty"):
        load(write(text, "t.jsonl"))


def test_an_azure_file_needs_azure_s_header(write):
    with pytest.raises(TraceError, match=r"trace\.csv:1: the header has no TIMESTAMP and no ContextTokens"):
        load(write(TABLE), kind="azure")


def test_a_bad_row_of_parquet_is_refused_with_its_number(tmp_path):
    table = pd.DataFrame({"arrival_s": [0.0, 1.0], "prompt_tokens": [1.0, None], "output_tokens": [1, 1]})
    with pytest.raises(TraceError, match="row 2: prompt_tokens: the cell is empty"):
        load(as_file(tmp_path, table, "parquet"))


def test_a_truncated_parquet_is_refused(tmp_path):
    """The footer is whole, a page in the middle is not."""
    path = as_file(
        tmp_path, pd.DataFrame({"arrival_s": np.arange(9e3), "input_tokens": 1, "output_tokens": 1}), "parquet"
    )
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(TraceError, match="unreadable after row 0"):
        load(path)


def test_a_missing_trace_is_refused_by_path(tmp_path):
    with pytest.raises(ScenarioError, match=r"traffic\.arrivals\.path: no such file"):
        load(tmp_path / "nowhere.csv")


def test_a_bad_header_is_refused_before_the_first_request(write):
    """At opening, so that nothing has been simulated."""
    spec = TrafficSpec.model_validate({"arrivals": {"process": "trace", "path": str(write("a,b\n"))}})
    with pytest.raises(TraceError, match="no column"):
        open_traffic(spec, Path(), 0)


def test_two_readings_at_once_count_their_own_lines(write):
    path = write(HEAD + "1,1,1\n2,x,1\n")
    spec = TrafficSpec.model_validate({"arrivals": {"process": "trace", "path": str(path)}, "requests": 3})
    traffic = open_traffic(spec, Path(), 0)
    for _ in range(2):
        with pytest.raises(TraceError, match=r"trace\.csv:4"):
            next(iter(traffic))


@given(st.datetimes(min_value=pd.Timestamp("1990-01-01").to_pydatetime()), st.integers(0, 9_999_999))
def test_a_clock_is_read_to_the_nanosecond(moment, ticks):
    """Against pandas, with seven digits."""
    text = f"{moment:%Y-%m-%d %H:%M:%S}.{ticks:07d}"
    assert read_clock_ns(text) % 1_000_000_000 == ticks * 100
    whole = read_clock_ns(f"{moment:%Y-%m-%d %H:%M:%S}")
    assert whole == int(pd.Timestamp(moment.replace(microsecond=0), tz="UTC").timestamp()) * 1_000_000_000
    assert read_clock_ns(text) - whole == ticks * 100
