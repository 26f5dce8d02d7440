"""The bounds of collectives, by hand."""

from __future__ import annotations

import pytest

from paceline.collectives.bounds import ENCODED, Message, bound_s, bus_factor, known
from paceline.registry.codecs import CODECS

BYTES_PER_S = 25e6  # 200 Mbit/s
SIZE = 50_000_000  # two seconds on the wire


@pytest.mark.parametrize(
    ("operation", "collective", "ranks", "seconds", "starts"),
    [
        ("broadcast", "linear", 4, 2.0, 3),
        ("broadcast", "linear", 8, 2.0, 7),
        ("reduce", "linear", 4, 2.0, 3),
        ("broadcast", "tree", 4, 4.0, 2),
        ("broadcast", "tree", 5, 6.0, 3),
        ("allreduce", "ring", 4, 3.0, 6),
        ("allreduce", "direct", 4, 3.0, 2),
        ("allreduce", "doubling", 4, 4.0, 2),
        ("allreduce", "doubling", 5, 8.0, 4),
        ("allreduce", "linear", 4, 4.0, 6),
        ("allreduce", "linear", 2, 2.0, 2),
    ],
)
def test_bounds_are_start_ups_and_the_wire(
    operation: str, collective: str, ranks: int, seconds: float, starts: int
) -> None:
    message = Message(ranks, SIZE)
    assert bound_s(operation, collective, message, BYTES_PER_S) == pytest.approx(seconds, rel=1e-6)
    with_latency_s = bound_s(operation, collective, message, BYTES_PER_S, latency_s=0.002)
    assert with_latency_s == pytest.approx(seconds + starts * 0.002, rel=1e-6)


def test_a_chain_is_filled_by_blocks() -> None:
    # Two ranks in between pass on a tenth of the message before the last one gets its first.
    blocks = Message(4, SIZE, SIZE / 10)
    assert bound_s("broadcast", "linear", blocks, BYTES_PER_S) == pytest.approx(2.0 * 1.2)
    assert bound_s("allreduce", "linear", blocks, BYTES_PER_S) == pytest.approx(4.0 * 1.2)
    # A block that is longer than the message is the message.
    assert bound_s("broadcast", "linear", Message(4, SIZE, 10 * SIZE), BYTES_PER_S) == pytest.approx(2.0 * 3)


def test_a_codec_shortens_the_wire_and_not_the_start_ups() -> None:
    plain, encoded = (bound_s("allreduce", "ring", Message(4, SIZE), BYTES_PER_S, 0.01, one) for one in ("none", "q8"))
    assert encoded - 0.06 == pytest.approx((plain - 0.06) * ENCODED["q8"])
    assert 0.25 < ENCODED["q8"] < 0.26 and set(ENCODED) == set(CODECS)


def test_one_rank_has_nothing_to_do_and_unknown_ones_no_bound() -> None:
    assert bound_s("allreduce", "ring", Message(1, SIZE), BYTES_PER_S, 0.01) == 0
    assert known("reduce", "linear") and not known("reduce", "tree") and not known("allreduce", "")
    assert bus_factor("allreduce", 4) == 1.5 and bus_factor("broadcast", 4) == bus_factor("reduce", 2) == 1
