"""Pipelined exchange of PyTorch gradients: results are K - 1 steps old, equal on all ranks, never lost nor doubled."""

from __future__ import annotations

import hashlib
import io
import math
import random
import time
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.more import first_of
from integration_tests.support.ranks import ranks

SHAPES = [(17, 33), (33,), (33, 29), (29,), (29, 5), (5,)]


def _quadratic(gamma: float, exchange: Any, steps: int) -> list[float]:
    """The weights at which the gradients of SGD on w^2 / 2 are taken, from 1."""
    w = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=gamma), [("w", w)], exchange=exchange)
    values = []
    for _ in range(steps):
        values.append(w.item())
        optimizer.zero_grad()
        (w**2 / 2).sum().backward()
        optimizer.step()
    optimizer.drain()
    return values


@ranks(3, more=(2, 5, 7))
def test_quadratic_goes_as_the_paper_says(rank: int, size: int) -> None:
    assert _quadratic(0.1, "pipelined", 6) == pytest.approx([1, 1, 0.9, 0.8, 0.71, 0.63])
    assert _quadratic(0.1, "sync", 4) == pytest.approx([1, 0.9, 0.81, 0.729])
    assert _quadratic(0.1, hvd.Pipelined(k=2, warmup_steps=2), 6) == pytest.approx([1, 0.9, 0.81, 0.81, 0.729, 0.648])


@pytest.mark.parametrize("k", first_of(range(1, 5), 2))
@ranks(2)
def test_stability_bounds_are_met_from_both_sides(rank: int, size: int, k: int) -> None:
    bound = 2 * math.sin(math.pi / (4 * k - 2))
    ends = (_quadratic(factor * bound, hvd.Pipelined(k=k), 1500) for factor in (0.98, 1.02))
    below, above = (max(map(abs, values[-8 * k :])) for values in ends)  # oscillating: the largest of the last ones
    assert below < 1 < above


def _model(label: str, exchange: Any, **choices: Any) -> Any:
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(parameters, lr=0.01),
        [(f"{label}.{n}", one) for n, one in enumerate(parameters)],
        exchange=exchange,
        **choices,
    )
    return parameters, optimizer


def _train(parameters: Any, optimizer: Any, data: Any, steps: int, pause: random.Random | None = None) -> str:
    """A digest of the weights after `steps` steps."""
    for _ in range(steps):
        optimizer.zero_grad()
        for parameter in parameters:
            if pause is not None and pause.random() < 0.1:
                time.sleep(pause.random() * 0.003)
            ((parameter - torch.randn(parameter.shape, generator=data)) ** 2).sum().backward()
        optimizer.step()
    whole = b"".join(one.detach().numpy().tobytes() for one in parameters)
    return hashlib.sha256(whole).hexdigest()


@ranks(3, more=(2, 4, 7))
def test_weights_are_the_same_everywhere_after_every_step(rank: int, size: int) -> None:
    for k in (2, 3):
        parameters, optimizer = _model(f"same.{k}", hvd.Pipelined(k=k))
        data, pause = torch.Generator().manual_seed(rank), random.Random(rank)
        for step in range(500 if k == 2 else 60):
            mine = _train(parameters, optimizer, data, 1, pause)
            assert len(set(hvd.allgather_object(mine, name="same.digest"))) == 1, (k, step)
        assert optimizer.drain() == k - 1


@ranks(3, more=(2, 5, 7))
def test_results_are_those_of_k_minus_one_steps_ago(rank: int, size: int) -> None:
    """Gradients reveal rank and step; groups, compression and unequal arrival make no difference."""
    for k, choices in ((2, {}), (3, {"groups": 2}), (4, {"compression": hvd.Compression.fp16})):
        parameters = [torch.nn.Parameter(torch.zeros(n + 1)) for n in range(5)]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(parameters, lr=1.0),
            [(f"ago.{k}.{n}", one) for n, one in enumerate(parameters)],
            op=hvd.Sum,
            exchange=hvd.Pipelined(k=k),
            **choices,
        )
        total = 0.0
        for step in range(20):
            optimizer.zero_grad()
            for n in random.Random(rank + step).sample(range(5), 5):
                (parameters[n] * float(step * 8 + rank)).sum().backward()
            optimizer.step()
            if step >= k - 1:
                total += sum((step - k + 1) * 8 + other for other in range(size))
            for parameter in parameters:
                assert parameter.tolist() == [-total] * parameter.numel(), (k, step)
        assert optimizer.drain() == k - 1
        total += sum(step * 8 + other for step in range(20 - k + 1, 20) for other in range(size))
        assert parameters[0].tolist() == [-total]
        assert optimizer.drain() == 0


@ranks(2)
def test_resumed_run_goes_on_bit_for_bit(rank: int, size: int) -> None:
    for k in (2, 3):
        for before in (1, 7):  # the pipeline is still filling, and full
            parameters, optimizer = _model(f"resumed.{k}", hvd.Pipelined(k=k))
            data = torch.Generator().manual_seed(rank)
            _train(parameters, optimizer, data, before)
            file = io.BytesIO()
            torch.save([optimizer.state_dict(), [one.detach() for one in parameters], data.get_state()], file)
            whole = _train(parameters, optimizer, data, 6)
            optimizer.drain()

            parameters, optimizer = _model(f"resumed.{k}", hvd.Pipelined(k=k))
            state, values, drawn = torch.load(io.BytesIO(file.getvalue()))
            optimizer.load_state_dict(state)
            with torch.no_grad():
                for parameter, value in zip(parameters, values, strict=True):
                    parameter.copy_(value)
            data.set_state(drawn)
            assert _train(parameters, optimizer, data, 6) == whole, (k, before)
            optimizer.drain()
