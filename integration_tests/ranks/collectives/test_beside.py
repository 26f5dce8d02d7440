"""Horovod's reducescatter is right while messages of ours are in flight on its connections.

Patch bound-buffers: Gloo's reduce-scatter writes its result into memory that a send still reads, if that one is queued.
Patch gloo-batches: a small payload that comes before the receiver has memory for it, behind a large one, is not waited
for in batches. `python -m integration_tests.beside` runs more of both.
"""

from __future__ import annotations

import pytest

from integration_tests.beside import scatter
from integration_tests.support.arming import ARMED
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks


@pytest.mark.patch("bound-buffers")
@pytest.mark.parametrize(
    ("collective", "armed", "size", "number"),
    [
        ("ring", False, 2, 500),
        ("linear", True, 3, 40),
        more("direct", False, 4, 40),
        more("doubling", True, 4, 40),
        more("auto", True, 2, 500),
    ],
)
def test_reducescatter_is_exact_beside_other_messages(collective: str, armed: bool, size: int, number: int) -> None:
    env = {"PACELINE_COLLECTIVE": collective, **(ARMED if armed else {})}
    run_ranks(scatter, size, number, 100_000, armed, size, env=env, fresh=True)
