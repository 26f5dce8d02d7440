"""Saved state of a PyTorch optimizer: only tensors, numbers and plain arrays, which torch.load reads by default."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks


def _loaded_by_default(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()))


def _plain(value: Any) -> bool:
    """True if a value consists of NumPy arrays, numbers and their containers."""
    if isinstance(value, dict):
        return all(isinstance(key, (str, int)) and _plain(one) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return value is None or isinstance(value, (bool, int, float, np.ndarray))


def _made(case: str, choices: dict[str, Any]) -> tuple[list[Any], Any]:
    """An embedding table and a bias, in one group where possible, and their optimizer."""
    table = torch.nn.Parameter(torch.zeros(5, 3, dtype=torch.float64))
    bias = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16 if case == "corrected" else torch.float64))
    groups = None if case in ("sparse", "corrected") else [[table, bias]]
    named = [(f"saved.{case}.table", table), (f"saved.{case}.bias", bias)]
    sgd = torch.optim.SGD([table, bias], lr=1.0)
    return [table, bias], hvd.DistributedOptimizer(sgd, named, op=hvd.Sum, groups=groups, **choices)


def _step(case: str, rank: int, weights: list[Any], optimizer: Any, number: int) -> None:
    table, bias = weights
    optimizer.zero_grad()
    rows = torch.nn.functional.embedding(torch.tensor([rank, number]), table, sparse=case == "sparse")
    (rows.sum() * (1.0 + rank) + bias.double().sum() * number).backward()
    optimizer.step()


@ranks(2)
def test_state_of_every_exchange_loads_by_default(rank: int, size: int) -> None:
    cases: dict[str, dict[str, Any]] = {
        "partial": {"exchange": "solo"},
        "pipelined": {"exchange": hvd.Pipelined(k=3)},
        "corrected": {"exchange": hvd.Pipelined(k=2, correction=0.1, warmup_steps=1)},
        "sparse": {"exchange": "pipelined"},
    }
    for case, choices in cases.items():
        first, optimizer = _made(case, choices)
        for number in range(3):
            _step(case, rank, first, optimizer, number)
            hvd.barrier()  # all ranks save after the same calls
        state, values = _loaded_by_default([optimizer.state_dict(), [weight.detach() for weight in first]])
        in_flight = optimizer.in_flight()
        assert _plain(in_flight), (case, in_flight)
        assert {"k", "in_flight"} <= set(in_flight)
        assert ("staleness" in in_flight) == (case == "corrected")
        assert {name for results, _ in in_flight["in_flight"] for name in results} == {
            f"saved.{case}.table",
            f"saved.{case}.bias",
        }
        hvd.barrier()
        _step(case, rank, first, optimizer, 3)
        optimizer.drain()
        for saved in (state, {**state, "paceline_in_flight": in_flight}):
            second, optimizer = _made(case, choices)
            with torch.no_grad():
                for weight, value in zip(second, values, strict=True):
                    weight.copy_(value)
            optimizer.load_state_dict(saved)
            hvd.barrier()
            _step(case, rank, second, optimizer, 3)
            optimizer.drain()
            for one, other in zip(first, second, strict=True):
                assert torch.equal(one, other) and one.any(), case


@ranks(2)
def test_states_of_outer_optimizers_residuals_and_shares_load_by_default(rank: int, size: int) -> None:
    outer = {"outer_momentum": 0.9, "outer_lr": 0.7}
    cases: dict[str, dict[str, Any]] = {
        "local": {"exchange": hvd.Local(sync_every=2, **outer)},
        "fragments": {"exchange": hvd.Local(sync_every=4, fragments=2, delay=1, **outer)},
        "codec": {"codec": "q8"},
        "split": {"exchange": "split"},
    }
    for case, choices in cases.items():
        weight = torch.nn.Parameter(torch.zeros(600))
        inner = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(inner, [(f"default.{case}", weight)], **choices)
        for number in range(3):
            optimizer.zero_grad()
            (weight * torch.linspace(0.1, 1.0 + rank + number, 600)).sum().backward()
            optimizer.step()
        state = optimizer.local_state_dict() if case == "split" else optimizer.state_dict()
        own = state.keys() - inner.state_dict().keys()
        assert own, (case, "has nothing of ours in it")
        loaded = _loaded_by_default(state)
        assert loaded.keys() == state.keys()
        optimizer.load_state_dict(loaded)
        hvd.barrier()


@ranks(2)
def test_state_loads_whatever_groups_gradients_are_sent_in(rank: int, size: int) -> None:
    def made(names: list[str], **choices: Any) -> tuple[list[Any], Any]:
        weights = [torch.nn.Parameter(torch.zeros(n + 1)) for n in range(len(names))]
        sgd = torch.optim.SGD(weights, lr=1.0)
        named = list(zip(names, weights, strict=True))
        return weights, hvd.DistributedOptimizer(sgd, named, op=hvd.Sum, exchange="pipelined", **choices)

    weights, optimizer = made(["a", "b", "c"], groups=2)
    sum(weight.sum() * (n + 1 + rank) for n, weight in enumerate(weights)).backward()
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.drain()
    again, optimizer = made(["a", "b", "c"])
    optimizer.load_state_dict(state)
    optimizer.drain()
    for one, other in zip(weights, again, strict=True):
        assert torch.equal(one, other) and one.any()
    _, optimizer = made(["a", "b", "d"])
    with pytest.raises(hvd.UsageError, match=r"'c'.*'d'"):
        optimizer.load_state_dict(state)
