"""Large tensors of a pipelined exchange are reduced in place: no fusion buffer in addition to the copy in flight."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.support.large import LARGE, LARGE_BYTES, MIXED, Training, large_went_alone, resident_bytes
from integration_tests.support.merging import Messages
from integration_tests.support.ranks import ranks

STEPS = 4


@pytest.mark.timeout(300)
@ranks(2, fresh=True, hvd="paceline.torch")
def test_exchange_costs_one_copy_of_large_gradients(rank: int, size: int, hvd: Any) -> None:
    training = Training(hvd, rank, "copy", LARGE, "pipelined")
    hvd.barrier()
    before = resident_bytes()
    for _ in range(STEPS):
        training.step()
    copies = (resident_bytes() - before) / LARGE_BYTES
    assert 0.8 < copies < 1.2, copies
    training.optimizer.drain()
    training.check(range(size), STEPS)


@pytest.mark.timeout(300)
@ranks(3, fresh=True, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, hvd="paceline.torch")
def test_large_tensors_go_alone_in_all_process_sets(rank: int, size: int, hvd: Any) -> None:
    members = [0, size - 1]
    some = hvd.add_process_set(members)
    both = [(Training(hvd, rank, "world", MIXED, "pipelined"), list(range(size)))]
    if some.included():
        both.append((Training(hvd, rank, "some", MIXED, "pipelined", process_set=some), members))

    def steps(count: int) -> None:
        for _ in range(count):
            for training, _ in both:
                training.step()

    steps(1)  # before its end, all ranks have announced their first calls
    hvd.barrier()
    messages = Messages()
    steps(STEPS - 1)
    for training, among in both:
        training.optimizer.drain()
        training.check(among, STEPS)
    large_went_alone(messages, 2)


@pytest.mark.timeout(300)
@ranks(3, fresh=True, hvd="paceline.torch")
def test_rank_that_has_joined_without_an_optimizer_packs_alike(rank: int, size: int, hvd: Any) -> None:
    if rank < size - 1:
        training = Training(hvd, rank, "joined", MIXED, hvd.Pipelined(2, warmup_steps=0))
        for _ in range(STEPS):
            training.step()
        assert hvd.join() in range(size)
        training.check(range(size - 1), STEPS - 1)  # the last gradients have arrived and are not applied
    else:
        assert hvd.join() in range(size)
