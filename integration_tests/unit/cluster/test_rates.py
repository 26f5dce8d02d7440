"""Rates of emulated links: what is understood, what is refused, and the token bucket made of it."""

from __future__ import annotations

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.rates import FRAME_BYTES, TokenBucket, parse_rate


@pytest.mark.parametrize(
    ("text", "rate_bit_s"),
    [("1gbit", 10**9), ("200mbit", 2 * 10**8), ("2.5Mbit", 2_500_000), (" 64 kbit ", 64_000), ("123456bit", 123_456)],
)
def test_rates_are_decimal(text: str, rate_bit_s: int) -> None:
    assert parse_rate(text) == rate_bit_s


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fast", "not a number"),
        ("", "not a number"),
        ("-1gbit", "not a number"),
        ("1e9bit", "unknown unit|not a number"),
        ("1000", "no unit"),
        ("10gbps", "unknown unit 'gbps'"),
        ("10MB/s", "unknown unit 'mb/s'"),
        ("0mbit", "between 10kbit and 100gbit"),
        ("1000gbit", "between 10kbit and 100gbit"),
    ],
)
def test_what_is_not_a_rate_is_refused_with_the_units(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        parse_rate(text)
    assert repr(text) in caught.value.problem
    assert "gbit" in caught.value.remedy


def test_the_nearest_unit_is_suggested() -> None:
    with pytest.raises(UserError) as caught:
        parse_rate("5megbit")
    assert "Did you mean mbit?" in caught.value.remedy


def test_the_bucket_holds_two_milliseconds_but_never_less_than_two_frames() -> None:
    assert TokenBucket.for_rate(10**9) == TokenBucket(10**9, 250_000, 6_250_000 + 250_000)
    assert TokenBucket.for_rate(10**6) == TokenBucket(10**6, 2 * FRAME_BYTES, 128 * 1024 + 2 * FRAME_BYTES)
