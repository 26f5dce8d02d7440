"""An operation belongs to an exchange because it is registered, never because of its name."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
import torch

from integration_tests.support.ranks import ranks
from paceline.errors import UsageError
from paceline.native.exchanges import PARTIAL, PIPELINED, register, unregister
from paceline.native.in_flight import InFlight
from paceline.native.library import loaded

# Names that used to define the kind of a call.
TAGGED = ("paceline.k2.x", "paceline.partial.1.0.0.s.x", "paceline.partial.1.0.0.scf.x", "paceline.call.0.0.1.0",
          "paceline.note.x", "paceline.drain.x")  # fmt: skip


def _sum(value: float, name: str, **options: Any) -> list[float]:
    import horovod.torch as hvd

    return hvd.allreduce_(torch.full((3,), value), name=name, op=hvd.Sum, **options).tolist()


@ranks(3, more=(2,), hvd="horovod.torch")
def test_a_tensor_may_be_called_anything(rank: int, size: int, hvd: Any) -> None:
    import paceline.torch  # noqa: F401

    for step in range(3):
        for name in TAGGED:
            assert _sum(rank + step, name) == [size * (size - 1) / 2 + step * size] * 3, (step, name)


@ranks(2, hvd="horovod.tensorflow")
def test_a_tensor_of_a_graph_may_be_called_anything(rank: int, size: int, hvd: Any) -> None:
    import paceline.tensorflow  # noqa: F401

    @tf.function
    def step(value: Any) -> list[Any]:
        return [hvd.allreduce(value, op=hvd.Sum, name=name) for name in TAGGED]

    for number in range(3):
        for one in step(tf.fill([3], float(rank + number))):
            assert one.numpy().tolist() == [1.0 + 2 * number] * 3


@ranks(2, hvd="horovod.torch")
def test_settings_are_the_same_for_as_long_as_a_name_is_registered(rank: int, size: int, hvd: Any) -> None:
    library, name = loaded("torch"), "allreduce.settings"
    in_flight = InFlight(library, 0)
    register(library, 0, name, PIPELINED, 2, 0)
    register(library, 0, name, PIPELINED, 2, 0)
    for exchange, *settings in ((PIPELINED, 3, 0), (PIPELINED, 2, 1), (PARTIAL, 1, 0, 0, 0, 0, 0)):
        with pytest.raises(
            UsageError, match=rf"{name} on rank {rank}: expected pipelined\(2, 0\).*found(?s:.)*unregister"
        ):
            register(library, 0, name, exchange, *settings)
    assert [_sum(float(step), "settings")[0] for step in range(3)] == [0.0, 0.0, 2.0]
    in_flight.settle(name)
    unregister(library, 0, name)
    assert _sum(7.0, "settings") == [14.0] * 3
    register(library, 0, name, PIPELINED, 3, 0)
    assert [_sum(1.0 + step, "settings")[0] for step in range(4)] == [0.0, 0.0, 2.0, 4.0]
    in_flight.settle(name)
    unregister(library, 0, name)
    hvd.barrier()


@ranks(2, hvd="horovod.torch")
def test_a_refused_registration_leaves_nothing_behind(rank: int, size: int, hvd: Any) -> None:
    library = loaded("torch")
    wrong = (
        ("late", (2,), "exchanges pipelined, partial"), (PIPELINED, (1, 0), "K, from 2 to 64"),
        (PIPELINED, (2,), "two whole numbers"), (PIPELINED, (2.5, 0), "two whole numbers"),
        (PARTIAL, (1, 0, 0, 0, 0), "six whole numbers"), (PARTIAL, (-2, 0, 0, 0, 0, 0), "six whole numbers"),
    )  # fmt: skip
    for exchange, settings, expected in wrong:
        with pytest.raises(UsageError, match=rf"refused on rank {rank}: expected .*{expected}.*found {exchange}"):
            register(library, 0, "allreduce.refused", exchange, *settings)
    assert _sum(1.0 + rank, "refused") == [3.0] * 3


@ranks(2, hvd="horovod.torch")
def test_first_calls_may_be_synchronous(rank: int, size: int, hvd: Any) -> None:
    """So that a compiled graph has no branch for its warm-up."""
    library, name = loaded("torch"), "allreduce.warm"
    register(library, 0, name, PIPELINED, 2, 3)
    assert [_sum(1.0 + step, "warm")[0] for step in range(6)] == [2.0, 4.0, 6.0, 0.0, 8.0, 10.0]
    in_flight = InFlight(library, 0)
    in_flight.settle(name)
    in_flight.drop(name)
    in_flight.sync_next(name, 1)
    assert [_sum(1.0 + step, "warm")[0] for step in range(3)] == [2.0, 0.0, 4.0]
    in_flight.settle(name)
    unregister(library, 0, name)
    hvd.barrier()


@ranks(2, hvd="horovod.torch")
def test_tensors_of_a_group_belong_together(rank: int, size: int, hvd: Any) -> None:
    library = loaded("torch")
    names = [f"grouped_allreduce.half_{n}of2" for n in (1, 2)]

    def reduce() -> list[float]:
        tensors = [torch.ones(2), torch.full((2,), 2.0)]
        return [one[0].item() for one in hvd.grouped_allreduce(tensors, name="half", op=hvd.Sum)]

    register(library, 0, names[1], PIPELINED, 2, 0)
    with pytest.raises(Exception, match=rf"half_1of2 and .*half_2of2: rank {rank} expected all of a group"):
        reduce()
    register(library, 0, names[0], PIPELINED, 2, 0)
    assert [reduce() for _ in range(2)] == [[0.0, 0.0], [2.0, 4.0]]
    for name in names:
        InFlight(library, 0).settle(name)
        unregister(library, 0, name)
    assert reduce() == [2.0, 4.0]
