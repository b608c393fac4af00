"""Quantities with units, and numbers as YAML 1.2 reads them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.scenario.quantities import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    FLOPS,
    PERCENT,
    RATE,
    TIME,
    UnfitError,
    quantity,
)


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("50 ms", TIME, 0.05),
        ("50ms", TIME, 0.05),
        (" 10 min ", TIME, 600.0),
        ("2 h", TIME, 7200.0),
        ("1.5e3 us", TIME, 1.5e-3),
        ("7", TIME, 7.0),
        (0.25, TIME, 0.25),
        (3, TIME, 3.0),
        ("80 GiB", BYTES, 80 * 2**30),
        ("80 GB", BYTES, 80e9),
        ("3.35 TB/s", BYTES_PER_SECOND, 3.35e12),
        ("989 TFLOP/s", FLOPS, 989e12),
        ("8 /s", RATE, 8.0),
        ("8 req/s", RATE, 8.0),
        ("120 /min", RATE, 2.0),
        ("99 %", PERCENT, 0.99),
        ("8 B", COUNT, 8e9),
        (".5 s", TIME, 0.5),
        ("-3 s", TIME, -3.0),
    ],
)
def test_a_quantity_in_si_base_units(text, units, value):
    assert quantity(text, units) == value


@pytest.mark.parametrize(
    "value", ["", "s", "1 2", "1:30", "one s", "1 parsec", "0x10 s", "\u0661 s", "1_000 s", "--1", None, [1], {}, True]
)
def test_what_is_no_quantity(value):
    """The cure names the units."""
    with pytest.raises(UnfitError) as caught:
        quantity(value, TIME)
    assert "ms" in caught.value.cure


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1e999", "1e308 h"])
def test_what_is_not_finite(value):
    with pytest.raises(UnfitError, match="not a finite number"):
        quantity(value, TIME)


@given(st.floats(min_value=0, max_value=1e15), st.sampled_from(sorted(TIME)))
def test_a_unit_multiplies(number, unit):
    assert quantity(f"{number!r} {unit}", TIME) == pytest.approx(number * float(TIME[unit]), rel=1e-15)


@pytest.mark.parametrize(
    ("text", "units", "value"), [("1.1 ms", TIME, 0.0011), ("99.9 %", PERCENT, 0.999), ("30 /min", RATE, 0.5)]
)
def test_a_quantity_is_the_nearest_float(text, units, value):
    """1.1 * 1e-3 in floats is not 0.0011."""
    assert quantity(text, units) == value


def test_where_units_stand_in_a_scenario(base, load):
    """Every kind of quantity once."""
    text = base.replace("rate: 8", "rate: 480 /min").replace("requests: 100", "duration: 10 min")
    text = text.replace(
        "h100-sxm",
        "{profile: h100-sxm, memory_bytes: 80 GiB, hbm_bytes_per_s: 5 TB/s, peak_flops_per_s: {bf16: 1 PFLOP/s}}",
    )
    text = text.replace("llama-3.1-8b", "{parameters: 8 B}").replace(
        "engine: {", "engine: {gpu_memory_utilization: 90 %, "
    )
    spec = load(text + "slo: {ttft: 1 s, tpot: 50 ms, e2e: 2 h, attainment: 99.9 %}\nmeasure: {warmup: 30 s}\n").spec
    assert spec.traffic.arrivals.rate == pytest.approx(8)
    assert spec.traffic.duration == 600
    assert (spec.hardware.memory_bytes, spec.hardware.hbm_bytes_per_s) == (80 * 2**30, 5e12)
    assert spec.hardware.peak_flops_per_s == {"bf16": 1e15}
    assert spec.model.parameters == 8e9
    assert spec.engine.gpu_memory_utilization == 0.9
    assert (spec.slo.ttft, spec.slo.tpot, spec.slo.e2e, spec.slo.attainment) == (1, 0.05, 7200, 0.999)
    assert spec.measure.warmup == 30.0
    assert isinstance(spec.measure.warmup, float)


def test_a_bare_warmup_counts_requests(base, load):
    warmup = load(base + "measure: {warmup: 30}\n").spec.measure.warmup
    assert (warmup, type(warmup)) == (30, int)


@pytest.mark.parametrize(
    ("warmup", "problem"), [("30.5", "no number of requests"), ("-1", "negative"), ("-1 s", "negative")]
)
def test_a_warmup_that_is_neither(warmup, problem, base, complaint):
    assert problem in complaint(base + f"measure: {{warmup: {warmup}}}\n")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("20e-6", 20e-6),
        ("8e9", 8e9),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("0o17", 15.0),
        ("0x1F", 31.0),
        ("010", 10.0),
    ],
)
def test_numbers_are_yaml_1_2(written, value, base, load):
    assert load(base + f"cost: {{model: linear, step_s: {written}}}\n").spec.cost.step_s == value


@pytest.mark.parametrize("written", ["yes", "no", "on", "off", "True_", "y"])
def test_only_true_and_false_are_flags(written, base, complaint):
    message = complaint(base + f"measure: {{drain: {written}}}\n")
    assert f"w.yaml:10: measure.drain: '{written}' is not true or false" in message


def test_a_time_with_a_colon_is_a_text(base, complaint):
    assert "unknown unit ':30' in '1:30'" in complaint(base.replace("requests: 100", "duration: 1:30"))


def test_a_count_may_be_written_as_a_float(base, load):
    requests = load(base.replace("requests: 100", "requests: 2e3")).spec.traffic.requests
    assert (requests, type(requests)) == (2000, int)
