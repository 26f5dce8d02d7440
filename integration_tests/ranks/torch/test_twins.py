"""Several pipelined or partial optimizers of equal names in one process: twin critics, ensembles, sweeps.

Gradients reveal the optimizer, the rank and the step that they come from.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from paceline.exchange.channel_owners import ChannelOwner
from paceline.native.exchanges import PIPELINED
from paceline.native.in_flight import InFlight
from paceline.native.library import loaded

STEPS = 5


def _optimizer(exchange: Any, names: list[str] | None, shapes: list[tuple[int, ...]]) -> tuple[list[Any], Any]:
    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes]
    named = None if names is None else list(zip(names, weights, strict=True))
    return weights, hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), named, op=hvd.Sum, exchange=exchange)


def _step(weights: list[Any], optimizer: Any, slope: float) -> None:
    optimizer.zero_grad()
    sum((weight * slope).sum() for weight in weights).backward()
    optimizer.step()


def _trained(rank: int, size: int, exchange: Any, names: list[str] | None) -> None:
    """Step two optimizers in turn; each gets its own gradients."""
    twins = [_optimizer(exchange, names, [(3,), (5,)]) for _ in range(2)]
    for step in range(STEPS):
        for number, (weights, optimizer) in enumerate(twins):
            _step(weights, optimizer, float(100**number * (1 + rank + step)))
    for number, (weights, optimizer) in enumerate(twins):
        optimizer.drain()
        moved = sum(100**number * (1 + rank + step) for rank in range(size) for step in range(STEPS))
        for weight in weights:
            assert torch.equal(weight, torch.full_like(weight, -float(moved))), (exchange, names, number, weight)


@ranks(2)
def test_twins_never_share_a_gradient(rank: int, size: int) -> None:
    """With names made from positions in groups, and with equal given names."""
    for exchange in ("pipelined", hvd.Pipelined(k=3), "solo"):
        for names in (None, ["twin.a", "twin.b"]):
            _trained(rank, size, exchange, names)


@ranks(2)
def test_synchronous_twins_may_be_in_flight_at_the_same_time(rank: int, size: int) -> None:
    twins = [_optimizer("sync", None, [(3,), (5,)]) for _ in range(2)]
    for number, (weights, _) in enumerate(twins):
        sum((weight * float(100**number * (1 + rank))).sum() for weight in weights).backward()
    for number, (weights, optimizer) in reversed(list(enumerate(twins))):
        optimizer.step()
        assert weights[0].tolist() == [-float(100**number * sum(range(1, size + 1)))] * 3


@ranks(2)
def test_state_of_one_optimizer_goes_on_in_another_of_the_same_names(rank: int, size: int) -> None:
    """State is saved under the given names even if operations have others."""
    for names in (None, ["again.a", "again.b"]):
        first_weights, first = _optimizer("pipelined", names, [(3,), (5,)])
        _step(first_weights, first, 7.0 + rank)
        second_weights, second = _optimizer("pipelined", names, [(3,), (5,)])
        second.load_state_dict(first.state_dict())
        for weights, optimizer in ((first_weights, first), (second_weights, second)):
            assert optimizer.drain() == 1
            assert weights[1].tolist() == [-float(7 * size + 1)] * 5


@ranks(2)
def test_dropped_optimizer_leaves_its_names_and_memory(rank: int, size: int) -> None:
    """Its last gradients were in flight; the next optimizer has the same names and other shapes."""
    in_flight = InFlight(loaded("torch"), 0)
    for turn, shape in enumerate([(3,), (4, 2), (5,)]):
        channel = f"allreduce.{f'optimizer{turn}.' if turn else ''}pipelined.sweep"
        weights, optimizer = _optimizer("pipelined", ["sweep"], [shape])
        for step in range(2):
            _step(weights, optimizer, float(step + 1))
        assert weights[0].flatten()[0].item() == -size
        # In one turn the last gradient is in flight when its optimizer is dropped: then the next one waits for it.
        if turn != 1:
            assert in_flight.settle(channel) == 1
        del optimizer, weights
        gc.collect()
        if turn != 1:
            assert in_flight.settle(channel) == 0, turn


@ranks(2)
def test_names_that_another_owner_takes_over(rank: int, size: int) -> None:
    """As names of Keras' optimizers and tapes, which may be made again under their names."""
    in_flight = InFlight(loaded("torch"), 0)
    name, exchange = "taken.over", (PIPELINED, 2, 0)

    def call() -> Any:
        return hvd.allreduce_(torch.full((3,), 1.0 + rank), name=name, op=hvd.Sum).tolist()

    first, second = (ChannelOwner(in_flight, exchange) for _ in range(2))
    first.claim([f"allreduce.{name}"], "first")
    assert call() == [0.0] * 3
    second.claim([f"allreduce.{name}"], "second", refuse=False)
    assert in_flight.settle(f"allreduce.{name}") == 0
    assert call() == [0.0] * 3
    assert call() == [3.0] * 3
    assert in_flight.settle(f"allreduce.{name}") == 1
    del first
    gc.collect()
    assert in_flight.settle(f"allreduce.{name}") == 1
    del second
    gc.collect()
    assert in_flight.settle(f"allreduce.{name}") == 0


@ranks(2)
def test_names_of_a_live_optimizer_are_refused(rank: int, size: int) -> None:
    """A parameter that is added later may bring a name that another optimizer has in flight."""
    for exchange in ("pipelined", "solo"):
        weights, optimizer = _optimizer(exchange, [f"taken.{exchange}"], [(3,)])
        _step(weights, optimizer, 1.0)
        own, late = (torch.nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (2, 3))
        names = [(f"own.{exchange}", own), (f"taken.{exchange}", late)]
        other = hvd.DistributedOptimizer(torch.optim.SGD([own], lr=1.0), names, op=hvd.Sum, exchange=exchange)
        other.add_param_group({"params": [late]})
        with pytest.raises(hvd.UsageError, match=rf"rank {rank}.*taken\.{exchange}(?s:.)*prefix"):
            (own.sum() + late.sum()).backward()
            other.step()
        optimizer.drain()
        hvd.barrier()


@ranks(2, more=(3,))
def test_groups_without_names_that_are_added_to_two_optimizers(rank: int, size: int) -> None:
    for word, exchange in {"sync": "sync", "late": "pipelined", "rounds": hvd.Partial(quorum=size)}.items():
        twins = [_optimizer(exchange, [f"added.{word}.{model}"], [(3,)]) for model in "ab"]
        for number, (weights, optimizer) in enumerate(twins):
            weights.append(torch.nn.Parameter(torch.zeros(2 + number, dtype=torch.float64)))
            optimizer.add_param_group({"params": weights[1:]})
        for step in range(STEPS):
            for number, (weights, _) in enumerate(twins):
                slope = 10.0**number * (step + 1) * (rank + 1)
                sum((weight * slope).sum() for weight in weights).backward()
            for _, optimizer in twins:
                optimizer.step()
                optimizer.zero_grad()
        for number, (weights, optimizer) in enumerate(twins):
            optimizer.drain()
            total = -(10.0**number) * sum(range(1, STEPS + 1)) * sum(range(1, size + 1))
            for weight in weights:
                torch.testing.assert_close(weight.detach(), torch.full_like(weight, total), msg=f"{word}, {number}")
