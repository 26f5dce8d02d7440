"""A rank joins (hvd.join) with operations in flight that others have not begun."""

from __future__ import annotations

import random
import time
from typing import Any

import horovod.torch as hvd
import pytest
import torch

from integration_tests.support.ranks import run_ranks

TURNS = 12


def _join_behind(rank: int, size: int, cached: bool) -> None:
    same, own = random.Random(5), random.Random(rank)
    for turn in range(TURNS):
        leaver, elements = same.randrange(size), same.choice([1, 1001, 70_001])
        label = "same" if cached and turn % 2 else f"{turn}"
        elements = 1001 if label == "same" else elements

        def start(name: str, label: str = label, elements: int = elements) -> Any:
            value = torch.full((elements,), 10.0**rank)
            return hvd.allreduce_async(value, op=hvd.Sum, name=f"{label}.{name}")

        open_ = [start("a"), start("b")] if rank == leaver else []
        if rank != leaver:
            time.sleep(0.03 * own.random())
            open_.append(start("a"))
            time.sleep(0.03 * own.random())
            open_.append(start("b"))
            without = hvd.synchronize(start("c"))
            expected = sum(10.0**other for other in range(size) if other != leaver)
            assert (without == expected).all(), (turn, without[0], expected)
        hvd.join()
        for handle in open_:
            found, expected = hvd.synchronize(handle), sum(10.0**other for other in range(size))
            assert (found == expected).all(), (turn, found[0], expected)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("collective", ["horovod", "ring"])
def test_it_takes_part_in_what_it_has_begun(collective: str, cached: bool) -> None:
    run_ranks(_join_behind, 3, cached, env={"PACELINE_COLLECTIVE": collective})
