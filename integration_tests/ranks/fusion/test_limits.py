"""Messages larger than Horovod's limit: their buffer is large enough at every moment, and the limit is never touched.

The first bodies are also what `make addresses` runs under AddressSanitizer.
"""

from __future__ import annotations

from typing import Any

import horovod.torch as hvd
import pytest
import torch

from integration_tests.support.arming import TorchSteps
from integration_tests.support.merging import ByHand, Messages, ask_for, step_until
from integration_tests.support.ranks import ranks, run_ranks
from paceline.fusion.report import report

MIB = 1 << 20
# Long cycles: operations that ranks submit between two of them are in one list of responses.
LONG_CYCLES = {"HOROVOD_FUSION_THRESHOLD": str(MIB), "HOROVOD_CYCLE_TIME": "250"}
_TRIES = 6
_ELEMENTS = [MIB + 13 * n for n in range(12)]  # of float32: 48 MiB together


def _hand_in(step: int, rank: int) -> list[int]:
    return [
        hvd.allreduce_async_(torch.full((count,), float(rank + n + step)), name=f"limits.{n}", op=hvd.Sum)
        for n, count in enumerate(_ELEMENTS)
    ]


def _check(step: int, size: int, handles: list[int]) -> None:
    for n, handle in enumerate(handles):
        expected = torch.full((_ELEMENTS[n],), size * (size - 1) / 2 + size * (n + step))
        assert torch.equal(hvd.synchronize(handle), expected), (step, n)


@ranks(2, env=LONG_CYCLES)
def test_a_plan_of_smaller_messages_among_large_messages(rank: int, size: int) -> None:
    """The call that contains the plan of small messages precedes a large message in one list of responses."""
    hand = ByHand("torch").start()
    _check(0, size, _hand_in(0, rank))
    names = hand.names("limits.")
    large, small = [names], [[name] for name in names]
    hits = 0
    for step in range(1, _TRIES + 1):
        hand.follow(large)
        version = hand._version + 1
        _check(step, size, _hand_in(step, rank))
        # A cycle has just ended. Before the next one begins, the first rank requests the plan and all ranks submit.
        if rank == 0:
            assert hand.send(small) == version
        record = Messages("torch")
        _check(step, size, _hand_in(step, rank))
        # Of the old plan, so they were in one cycle. A rank that was held up has its tensors in a later one.
        hits += len(record.stop()[0]) == 1
        hand.in_force(version)
        _check(step, size, _hand_in(step, rank))
        hand._version = version
        if hits == 2:
            break
    assert hits > 0, f"the plan and the message were never in one list of responses, in {_TRIES} tries"
    hand.end()


# Horovod's own limit is 128 MiB by default; elements of int32.
_LARGE = 20 * MIB
_TWO = 17 * MIB


def init_again_after_a_large_plan(rank: int, size: int) -> None:
    """A rank that was in a world with large messages merges in the next one as a new rank does."""

    def exchange(label: str, elements: int) -> list[list[str]]:
        tensors = [torch.full((elements,), n + rank, dtype=torch.int32) for n in (1, 2)]
        record = Messages("torch")
        for n, result in enumerate(hvd.grouped_allreduce_(tensors, name=label, op=hvd.Sum)):
            assert torch.all(result == size * (n + 1) + size * (size - 1) // 2)
        (messages,) = record.stop()
        return messages

    for world in range(2):
        hvd.init()
        assert len(exchange(f"own.{world}", _TWO)) == 2, "Horovod's own messages are not up to Horovod's own limit"
        hand = ByHand("torch").start()
        exchange("large", _LARGE)
        hand.follow([hand.names("large")])
        assert len(exchange("large", _LARGE)) == 1
        assert len(exchange(f"own.{world}", _TWO)) == 2, "a plan changed Horovod's own messages"
        status = hand.bridge.status(0)
        assert status is not None
        assert status.threshold_bytes == 128 * MIB
        hvd.shutdown()  # while the plan is in force
        hand.bridge.want(0)


@pytest.mark.parametrize("env", [{}, {"HOROVOD_CYCLE_TIME": "2"}], ids=["defaults", "cycle-time"])
def test_large_messages_of_one_world_do_not_change_the_next(env: dict[str, Any]) -> None:
    run_ranks(init_again_after_a_large_plan, 2, env=env, fresh=True)


# Messages that measure costs are larger than all gradients together, and than these limits.
@ranks(3, fresh=True, worlds=[{"HOROVOD_FUSION_THRESHOLD": limit_bytes} for limit_bytes in ("0", "1024")])
def test_small_model_gets_a_plan_whatever_the_limit_is(rank: int, size: int) -> None:
    step_of = TorchSteps(rank, size, {f"small.{n}": 7 for n in range(4)}).step
    ask_for("torch", "optimal")
    step_until("torch", step_of)
    for step in range(20):
        step_of(step)
    assert report("torch").state == "active"
