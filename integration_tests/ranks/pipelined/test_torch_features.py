"""Features that keep working with a pipelined exchange, and refused ones."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import RankFailed, ranks, run_ranks
from integration_tests.support.torch_training import update
from paceline.errors import UserError
from paceline.native.exchanges import PIPELINED, register
from paceline.native.library import loaded


def _one(label: str, exchange: Any = "pipelined", lr: float = 1.0, **choices: Any) -> Any:
    """A parameter whose gradient is its factor in the loss, and its optimizer."""
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=lr), [(label, weight)], op=hvd.Sum, exchange=exchange, **choices
    )
    return weight, optimizer


def _step(weight: Any, optimizer: Any, gradient: float) -> None:
    update(optimizer, (weight * gradient).sum())


@ranks(2)
def test_momentum_moments_and_counters_see_no_phantom_step(rank: int, size: int) -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam([weight]), [("phantom", weight)], exchange=hvd.Pipelined(k=3))
    for _ in range(2):
        _step(weight, optimizer, 2.0)
        assert weight.tolist() == [1.0] * 4
        assert not optimizer.state[weight]
    _step(weight, optimizer, 2.0)
    assert optimizer.state[weight]["step"].item() == 1
    optimizer.drain()
    assert optimizer.state[weight]["step"].item() == 3


@ranks(2)
def test_clipping_sees_the_gradients_that_are_applied(rank: int, size: int) -> None:
    weight, optimizer = _one("clipped")
    for step in range(5):
        optimizer.zero_grad()
        (weight * float(step + rank)).sum().backward()
        optimizer.synchronize()
        expected = [float(2 * (step - 1) + 1)] * 3 if step else [0.0] * 3
        assert weight.grad.tolist() == expected
        torch.nn.utils.clip_grad_value_([weight], 0.5)
        optimizer.step()
        assert weight.tolist() == pytest.approx([-0.5 * step] * 3)
    optimizer.drain()


@ranks(2)
def test_grad_scaler_whose_scale_changes_meanwhile(rank: int, size: int) -> None:
    """An overflow skips only the update of that step's gradients, on all ranks."""
    weight, optimizer = _one("scaled")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=2)
    applied = 0.0
    scales = set()
    for step in range(12):
        optimizer.zero_grad()
        gradient = float("inf") if step == 5 and rank == 1 else float(step + 1)
        scales.add(scaler.get_scale())
        scaler.scale((weight * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        if step > 0 and step - 1 != 5:
            applied += 2 * step
        assert weight.tolist() == [-applied] * 3, step
    assert len(scales) > 2
    assert optimizer.drain() == 1
    assert weight.tolist() == [-applied - 24.0] * 3


@ranks(3, more=(2, 5))
def test_sparse_gradients(rank: int, size: int) -> None:
    table = torch.nn.Embedding(6, 2, sparse=True)
    with torch.no_grad():
        table.weight.zero_()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters(), op=hvd.Sum, exchange="pipelined"
    )
    expected = torch.zeros(6, 2)
    for step in range(6):
        update(optimizer, (table(torch.tensor([rank, step])) * float(step + 1)).sum())
        if step:
            for other in range(size):
                expected[other] -= step
                expected[step - 1] -= step
        assert torch.equal(table.weight.detach(), expected), step
    assert optimizer.drain() == 1


@ranks(2)
def test_what_is_refused(rank: int, size: int) -> None:
    for wrong in ({"k": 0}, {"k": 1.5}, {"k": 65}, {"warmup_steps": -1}):
        with pytest.raises(UserError, match="cannot be used"):
            hvd.Pipelined(**wrong)
    with pytest.raises(UserError, match="Did you mean pipelined"):
        _one("refused", exchange="pipelind")
    weight, optimizer = _one("refused")
    (weight * 1.0).sum().backward()
    with pytest.raises(hvd.UsageError, match=r"between backward\(\) and step\(\)"):
        optimizer.drain()
    optimizer.step()
    # A shape that changes while a gradient is in flight.
    with pytest.raises(ValueError, match=r"expected float32 \[3\](.|\n)*found float32 \[4\]"):
        hvd.synchronize(hvd.allreduce_async_(torch.zeros(4), name="pipelined.refused", op=hvd.Sum))
    optimizer.drain()


@pytest.mark.more
@ranks(3, fresh=True)
def test_ranks_with_different_exchanges_are_reported_on_every_rank(rank: int, size: int) -> None:
    weight, optimizer = _one("different", hvd.Pipelined(k=2 + rank) if rank else "sync")
    with pytest.raises(hvd.UsageError, match=rf"rank {rank} sees K from 1 to 4 \({(1, 3, 4)[rank]} here\)"):
        _step(weight, optimizer, 1.0)


@ranks(3, fresh=True)
def test_a_rank_outside_of_the_process_set_is_refused_every_time(rank: int, size: int) -> None:
    pair = hvd.ProcessSet([0, 2])
    hvd.shutdown()
    hvd.init(process_sets=[pair])
    register(loaded("torch"), pair.process_set_id, "allreduce.outside", PIPELINED, 2, 0)
    for step in range(4):
        given = torch.full((3,), float(rank + step + 1))
        if rank == 1:
            with pytest.raises(Exception, match=r"(?s)outside.*rank 1 .*not a member of the process set"):
                hvd.allreduce_(given, name="outside", op=hvd.Sum, process_set=pair)
            assert given.tolist() == [step + 2.0] * 3, "a refused call has changed its tensor"
        else:
            answer = hvd.allreduce_(given, name="outside", op=hvd.Sum, process_set=pair)
            assert answer.tolist() == [2.0 + 2 * step if step else 0.0] * 3


def _leave(rank: int, size: int) -> None:
    weight, optimizer = _one("left")
    for step in range(4):
        if step == 3:
            hvd.barrier()  # a slow rank must be through with step 2
        if step == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        (weight * 1.0).sum().backward()
        if step < 3:
            optimizer.step()
            continue
        time.sleep(0.5)
        with pytest.raises(hvd.HorovodInternalError):
            for _ in range(3):
                optimizer.step()
                optimizer.zero_grad()
                (weight * 1.0).sum().backward()


def test_rank_that_dies_while_results_are_in_flight() -> None:
    # Rank 0 notices through its connection to the dead rank; rank 2, which waits for rank 0, after its timeout.
    limited = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "10"}
    with pytest.raises(RankFailed) as caught:
        run_ranks(_leave, 3, env=limited, fresh=True, grace_s=20)
    report = str(caught.value)
    assert "--- rank 1: died\n-9" in report
    assert "--- rank 0: ok" in report and "--- rank 2: ok" in report
