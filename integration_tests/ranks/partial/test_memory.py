"""Memory of partial rounds: a rank that is on time keeps no copy of its gradients, a late rank keeps one."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.support.large import LARGE, LARGE_BYTES, MIXED, Training, large_went_alone, resident_bytes
from integration_tests.support.merging import Messages
from integration_tests.support.ranks import ranks

# Other memory that changes, in copies of the gradients: buffers of the allocator, of Gloo and of the interpreter.
NOISE = 1 / 4


@pytest.mark.timeout(300)
@ranks(2, fresh=True, hvd="paceline.torch")
def test_only_a_late_rank_keeps_a_copy_of_its_gradients(rank: int, size: int, hvd: Any) -> None:
    training = Training(hvd, rank, "kept", LARGE, "solo")
    hvd.barrier()
    before = resident_bytes()
    kept: list[float] = []

    def mark() -> None:
        hvd.barrier()
        kept.append((resident_bytes() - before) / LARGE_BYTES)
        hvd.barrier()

    def alone(who: int, steps: int) -> None:
        for _ in range(steps if rank == who else 0):
            training.step()
        mark()

    training.step()  # the first round waits for all ranks
    mark()
    alone(0, 1)  # rank 1 misses a round
    alone(0, 2)  # and two more, whose results are added up
    alone(1, 1)  # its late call receives them; its contribution is for the next round
    alone(1, 1)  # a round with both contributions, which rank 0 misses
    alone(1, 2)
    alone(0, 1)  # late
    alone(0, 0)
    assert training.steps == 5
    training.optimizer.drain()
    mark()
    training.check(range(size), 5)
    # Where a copy is kept: results that were missed, or a contribution that was late.
    late = [0, 0, 0, 0, 1, 1, 1, 1, 0] if rank == 0 else [0, 1, 1, 1, 0, 0, 0, 0, 0]
    for copies, found in zip(late, kept, strict=True):
        # Rounds in flight share the memory of one tensor, a third of a copy; of two, where both are slow.
        assert copies - NOISE < found < copies + 1 - NOISE, (rank, kept)


@pytest.mark.timeout(300)
@ranks(3, fresh=True, hvd="paceline.torch")
def test_large_tensors_of_two_optimizers_arrive_once(rank: int, size: int, hvd: Any) -> None:
    both = [Training(hvd, rank, prefix, MIXED, "solo") for prefix in ("first", "second")]

    def steps() -> None:
        for training in both if rank % 2 else reversed(both):
            training.step()

    for training in both:  # in one order: the first rounds wait for all ranks
        training.step()
    messages = Messages()
    steps()  # all ranks at once
    for who in range(size):
        if who == rank:
            steps()
        hvd.barrier()
    steps()
    for training in both:
        training.optimizer.drain()
        training.check(range(size), 4)
    large_went_alone(messages, 2 * 2 * 3)
