"""PACELINE_NETWORK_FILE, as far as one rank sees: what rank 0 says, and which places fit a file."""

from __future__ import annotations

import pytest

from integration_tests.support.networks import network
from paceline.collectives import probed
from paceline.collectives.probed import Place


@pytest.mark.parametrize(
    ("fastest", "said"),
    [
        (["ring"] * 28, "all by ring"),
        (["doubling"] + ["ring"] * 27, "below 8 bytes doubling, above ring"),
        (
            ["doubling"] * 8 + ["horovod"] * 3 + ["direct"] * 17,
            "below 1 KiB doubling, below 8 KiB horovod, above direct",
        ),
        (["direct"] * 27 + ["ring"], "below 512 MiB direct, above ring"),
        (["a", "b"] * 2, "below 8 bytes a, below 16 bytes b, below 32 bytes a, above b"),
    ],
)
def test_ranges(fastest: list[str], said: str) -> None:
    assert probed.ranges(fastest) == said


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (Place(0, 3, 0, 2), ""),
        (Place(2, 3, 1, 2), ""),
        (Place(1, 3, 0, 1), ""),
        (Place(1, 3, 1, 2), "rank 1 was number 0 of 1 ranks on its host, and is number 1 of 2 now"),
        (Place(1, 2, 0, 1), "among 3 ranks on 2 hosts, and this job has 2 ranks"),
    ],
)
def test_places(place: Place, said: str) -> None:
    assert probed.mismatch(network(["a", "b", "a"], {}), place) == said


def test_a_message_between_two_ranks() -> None:
    measured = network(["a", "b"], {}, latency_s=0.25, bytes_per_s=8.0)
    assert measured.message_s(1, 0, 4) == 0.75
    with pytest.raises(ValueError, match="nothing was measured from rank 1 to rank 2 of 2"):
        measured.message_s(1, 2, 4)
