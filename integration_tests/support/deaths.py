"""Expected errors of the survivors of a rank."""

from __future__ import annotations

import math
from collections.abc import Sequence

from integration_tests.kills import Heard


def assert_named(heard: Sequence[Heard], victim: int, survivors: int, within_s: float = math.inf) -> None:
    """Assert that every survivor had an error that names the victim and no other rank."""
    assert len(heard) == survivors
    for one in heard:
        assert one.named(victim), f"rank {victim} died, rank {one.rank}: {one.text}"
        assert one.seconds is not None and one.seconds < within_s, one
