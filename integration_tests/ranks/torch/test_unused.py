"""Parameters that no rank has a gradient for: as one process does, decay and momentum leave them alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.arming import ARMED, step_armed
from integration_tests.support.branches import Branches, wrapped
from integration_tests.support.debug import debug
from integration_tests.support.merging import ask_for, step_until
from integration_tests.support.ranks import ranks

# By step: each rank's factor of a parameter; a parameter without factor has no gradient there.
STEPS: list[tuple[dict[str, float], dict[str, float]]] = [
    ({"a": 2.0, "b": 4.0}, {"a": 4.0}),  # "b" on one rank alone, "c", "d" and "e" on none
    ({"a": 2.0, "b": 4.0}, {"a": 4.0, "b": 6.0}),
    ({"a": 6.0}, {"c": 2.0, "b": 8.0}),  # "c" arrives
    ({"a": 2.0, "c": 4.0, "d": 2.0}, {"b": 2.0, "d": 6.0}),  # "d" on both
    ({"a": 2.0, "b": 2.0, "c": 4.0, "d": 8.0}, {"a": 4.0}),
]
# "a" and "c" go again.
SPARING: list[tuple[dict[str, float], dict[str, float]]] = [
    ({"b": 2.0}, {"d": 2.0}),
    ({"a": 2.0}, {}),
    ({}, {"b": 4.0}),
]

WAYS: dict[str, dict[str, Any]] = {
    "single": {"bucket_bytes": 0},
    "buckets": {"bucket_bytes": 1 << 16},
    "groups": {"groups": 2},
    "q8": {"codec": "q8"},
    "split": {"exchange": "split"},
    "passes": {"backward_passes_per_step": 2},
}


def _net() -> Branches:
    model = Branches(*"abcde")
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(number + 1.0)
    return model


def _one_process(steps: list[tuple[dict[str, float], dict[str, float]]], passes: int) -> list[Any]:
    """The parameters after them."""
    model = _net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for of_ranks in steps:
        optimizer.zero_grad()
        for factors in of_ranks:
            if factors:
                (model(**factors) * passes / 2).backward()
        optimizer.step()
    return [one.detach() for one in model.parameters()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asks", [False, True], ids=["once", "every-update"])
@ranks(2, env=debug(codec_least_bytes=1))
def test_as_one_process(rank: int, size: int, way: str, asks: bool) -> None:
    options = WAYS[way] | {"find_unused_parameters": asks}
    passes = options.get("backward_passes_per_step", 1)
    model, steps = _net(), STEPS + SPARING * asks
    held = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    optimizer = hvd.DistributedOptimizer(held, model.named_parameters(f"unused.{way}.{asks}"), **options)
    for of_ranks in steps:
        optimizer.zero_grad()
        for _ in range(passes):
            if of_ranks[rank]:
                model(**of_ranks[rank]).backward()
        if passes > 1:
            optimizer.synchronize()
        optimizer.step()
        for name, parameter in model.named_parameters():
            nobody = not any(name in factors for factors in of_ranks)
            if name == "e" or (asks and nobody):
                assert parameter.grad is None, name
    expected = _one_process(steps, passes)
    off = 1e-2 if way == "q8" else 1e-6  # what rounding moves an update of AdamW by
    for (name, parameter), one in zip(model.named_parameters(), expected, strict=True):
        found = parameter.detach()
        assert torch.allclose(found, one, rtol=0, atol=off), f"rank {rank}, {name}: {found}, expected {one}"
    assert parameter.tolist() == [5.0] * 3, "weight decay has moved what nobody uses"


@ranks(2)
def test_sparse_gradients_come_later(rank: int, size: int) -> None:
    """An idle parameter is neither sparse nor dense yet."""
    model = torch.nn.ModuleDict({"dense": torch.nn.Linear(2, 2), "table": torch.nn.Embedding(4, 2, sparse=True)})
    torch.nn.init.ones_(model["table"].weight)
    held = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(held, [(f"later.{name}", one) for name, one in model.named_parameters()])
    for step in range(3):
        optimizer.zero_grad()
        loss = model["dense"](torch.ones(1, 2)).sum()
        if step == 1 and rank == 1:
            loss = loss + model["table"](torch.tensor([2])).sum()
        loss.backward()
        optimizer.step()
        if step == 1:
            assert model["table"].weight.grad.is_sparse
    assert model["table"].weight.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.5, 0.5], [1.0, 1.0]]


@ranks(2, env=ARMED)
def test_steps_are_armed_all_the_same(rank: int, size: int) -> None:
    model = Branches("a", "b", "c", "nobody")
    optimizer = wrapped(model, lr=0.0)

    def step(_number: int) -> None:
        optimizer.zero_grad()
        model(a=1.0, b=2.0, c=3.0).backward()
        optimizer.step()
        assert model.nobody.grad is None

    ask_for("torch", "none")
    step_until("torch", step)
    step_armed(step, 8)
    ask_for("torch", "threshold")


@ranks(2)
def test_other_exchanges_refuse_to_ask(rank: int, size: int) -> None:
    for exchange in ("pipelined", "majority", "local"):
        with pytest.raises(hvd.UsageError, match=r"(?s)find_unused_parameters=True .*sync"):
            wrapped(Branches("a"), exchange=exchange, find_unused_parameters=True)
