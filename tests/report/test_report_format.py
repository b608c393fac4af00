"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from sim.report import format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1"),
        (0.012345, "0.0123"),
        (9.996, "10"),
        (0.9996, "1"),
        (812.4, "812"),
        (12345.6, "12,346"),
        (-2.5, "-2.5"),
        (3.2e15, "3.20e+15"),
        (1e-9, "1.00e-09"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "inf"),
    ],
)
def test_three_significant_digits(value: float | None, text: str) -> None:
    assert fmt.significant(value) == text


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0.0, "0 s"),
        (25e-6, "25 µs"),
        (0.0009996, "1 ms"),
        (0.812, "812 ms"),
        (0.9996, "1 s"),
        (59.94, "59.9 s"),
        (1200, "20 min"),
        (36_000, "10 h"),
        (None, "-"),
    ],
)
def test_durations_take_the_unit_that_fits(value_s: float | None, text: str) -> None:
    assert fmt.duration(value_s) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (1e-6, "<0.01 %"),
        (0.5, "50 %"),
        (0.98254, "98.3 %"),
        (0.9996, "99.96 %"),
        (0.99999999, ">99.99 %"),
        (1.0, "100 %"),
        (None, "-"),
    ],
)
def test_only_all_is_100_percent_and_only_none_is_0(share: float | None, text: str) -> None:
    assert fmt.percent(share) == text


def test_bytes_are_binary_and_rates_decimal() -> None:
    assert fmt.byte_count(85e9) == "79.2 GiB"
    assert fmt.byte_count(131072) == "128 KiB"
    assert fmt.byte_count(1023.9) == "1 KiB"
    assert fmt.bytes_per_s(3.35e12) == "3.35 TB/s"
    assert fmt.flops_per_s(989e12) == "989 TFLOP/s"
    assert fmt.flops_per_s(1979e12) == "1.98 PFLOP/s"
    assert fmt.byte_count(None) == fmt.bytes_per_s(math.nan) == "-"


def test_counts() -> None:
    assert fmt.large_count(8_030_261_248) == "8.03 billion"
    assert fmt.large_count(1234) == "1,234"
    assert fmt.counted(1, "replica") == "1 replica"
    assert fmt.counted(2, "replica") == "2 replicas"


def test_shortened_keeps_both_ends() -> None:
    assert fmt.shortened("abcdefghij", 5) == "ab…ij"
    assert fmt.shortened("abc", 5) == "abc"
