"""Help against stale gradients for PyTorch: results equal the recursion of PipeMare's formulas, on every rank."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.staleness import CASES, CURVATURE, reference


def _start(label: str, alpha: float, momentum: float, exchange: Any) -> Any:
    w = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    sgd = torch.optim.SGD([w], lr=alpha, momentum=momentum)
    return w, hvd.DistributedOptimizer(sgd, [(label, w)], exchange=exchange)


def _step(w: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    (torch.from_numpy(CURVATURE) * w**2 / 2).sum().backward()
    optimizer.step()


@ranks(3, more=(2,))
def test_updates_are_those_of_the_formulas(rank: int, size: int) -> None:
    for number, (k, alpha, momentum, anneal, correction, warmup) in enumerate(CASES):
        steps = 60
        exchange = hvd.Pipelined(k, warmup, anneal, correction)
        w, optimizer = _start(f"formulas.{number}", alpha, momentum, exchange)
        expected = reference(steps, k, alpha, momentum, anneal, correction, warmup)
        for step in range(steps):
            _step(w, optimizer)
            with optimizer.real_weights():
                np.testing.assert_allclose(
                    w.detach(), expected[step], rtol=1e-9, atol=1e-12, err_msg=str((number, step))
                )
        if correction:
            assert np.abs(w.detach().numpy() - expected[steps - 1]).max() > 0
        assert optimizer.drain() == k - 1
        np.testing.assert_allclose(w.detach(), expected[-1], rtol=1e-9, atol=1e-12)
        assert optimizer.param_groups[0]["lr"] == alpha
        assert len({tuple(one) for one in hvd.allgather_object(w.tolist(), name="formulas.end")}) == 1


@ranks(2)
def test_rate_that_is_unstable_alone_is_stable_with_the_correction(rank: int, size: int) -> None:
    ends = []
    for correction in (0.0, 0.135):
        w, optimizer = _start(f"stable.{correction}", 0.15, 0.9, hvd.Pipelined(correction=correction))
        for _ in range(300):
            _step(w, optimizer)
        optimizer.drain()
        ends.append(float(w.detach().abs().max()))
    assert ends[0] > 1e3 and ends[1] < 1e-3


@ranks(2)
def test_resumed_run_goes_on_bit_for_bit(rank: int, size: int) -> None:
    exchange = hvd.Pipelined(k=3, warmup_steps=4, annealing_steps=10, correction=0.2)
    for before in (2, 5, 12):  # in the warm-up, while the pipeline fills, and later
        w, optimizer = _start("resumed", 0.1, 0.9, exchange)
        for _ in range(before):
            _step(w, optimizer)
        file = io.BytesIO()
        torch.save([optimizer.state_dict(), w.detach()], file)
        for _ in range(9):
            _step(w, optimizer)
        optimizer.drain()

        again, resumed = _start("resumed", 0.1, 0.9, exchange)
        state, weights = torch.load(io.BytesIO(file.getvalue()))
        with torch.no_grad():
            again.copy_(weights)
        resumed.load_state_dict(state)
        for _ in range(9):
            _step(again, resumed)
        resumed.drain()
        assert again.tolist() == w.tolist(), before


@ranks(2)
def test_weights_that_are_loaded_meanwhile_stay(rank: int, size: int) -> None:
    w, optimizer = _start("loaded", 0.1, 0.9, hvd.Pipelined(correction=0.1))
    for _ in range(5):
        _step(w, optimizer)
    with torch.no_grad():
        w.copy_(torch.tensor([7.0, 8.0, 9.0]))
    with optimizer.real_weights():
        assert w.tolist() == [7.0, 8.0, 9.0]


@ranks(2)
def test_ranks_that_correct_differently_are_reported(rank: int, size: int) -> None:
    w, optimizer = _start("differ", 0.1, 0.0, hvd.Pipelined(correction=0.1 * (1 + rank)))
    seen = rf"rank {rank} sees correction \(in millionths\) from 100000 to 200000 \({100000 * (1 + rank)} here\)"
    with pytest.raises(ValueError, match=seen):
        _step(w, optimizer)
