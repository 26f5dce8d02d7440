"""Latencies of emulated networks: what is understood, what is refused."""

from __future__ import annotations

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.latencies import parse_latency


@pytest.mark.parametrize(
    ("text", "latency_ns"),
    [("2ms", 2_000_000), ("500us", 500_000), (" 0.5 MS ", 500_000), ("1s", 10**9), ("100us", 10**5), ("0ms", 0)],
)
def test_latencies_are_understood(text: str, latency_ns: int) -> None:
    assert parse_latency(text) == latency_ns


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("slow", "not a number"),
        ("", "not a number"),
        ("-2ms", "not a number"),
        ("nanms", "not a number"),
        ("2", "no unit"),
        ("0", "no unit"),
        ("2ns", "unknown unit 'ns'"),
        ("2min", "unknown unit 'min'"),
        ("99us", "0 or lie between 100us and 1s"),
        ("1.1s", "0 or lie between 100us and 1s"),
    ],
)
def test_what_is_not_a_latency_is_refused_with_the_units(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        parse_latency(text)
    assert f"latency {text!r}" in caught.value.problem
    assert "us, ms, s" in caught.value.remedy


def test_the_nearest_unit_is_suggested() -> None:
    with pytest.raises(UserError) as caught:
        parse_latency("5mss")
    assert "Did you mean ms?" in caught.value.remedy
