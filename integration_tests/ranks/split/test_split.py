"""The split exchange on ranks: waits for weights, owners of the optimizer's state, refusals.

Ranks own shards of all parameters if the optimizer is element-wise, else whole parameters.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks, run_ranks
from paceline.errors import UserError
from paceline.torch.split.arriving import InFlightParameter

STEPS = 6


def _model(seed: int = 3) -> torch.nn.Module:
    torch.manual_seed(seed)
    widths = (7, 150, 151, 149, 150, 152, 5)
    layers = [torch.nn.Linear(*two) for two in itertools.pairwise(widths)]
    return torch.nn.Sequential(*[part for one in layers for part in (one, torch.nn.Tanh())]).double()


def _batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(100 * step + rank)).double()


class OthersAdam(torch.optim.Adam):
    """An optimizer that is not known to be element-wise."""


by_optimizer = pytest.mark.parametrize("kind", ["shards", "whole"])


class _Training:
    """A model on all ranks, and the same in one process that has their data."""

    def __init__(self, rank: int, size: int, label: str, kind: str = "shards", **options: Any) -> None:
        self.rank, self.size, self.step_number = rank, size, 0
        self.model, self.alone = _model(), _model()
        self.held = (OthersAdam if kind == "whole" else torch.optim.Adam)(self.model.parameters(), lr=0.01)
        self.held_alone = torch.optim.Adam(self.alone.parameters(), lr=0.01)
        names = self.model.named_parameters(f"{label}.{kind}")
        split = hvd.Split(independent=True) if kind == "whole" else "split"
        self.optimizer: Any = hvd.DistributedOptimizer(self.held, names, exchange=split, **options)

    def step(self) -> None:
        number = self.step_number
        self.optimizer.zero_grad()
        self.model(_batch(self.rank, number)).square().mean().backward()
        self.optimizer.step()
        self.held_alone.zero_grad()
        for rank in range(self.size):
            (self.alone(_batch(rank, number)).square().mean() / self.size).backward()
        self.held_alone.step()
        self.step_number += 1

    def check(self) -> None:
        for mine, right in zip(self.model.parameters(), self.alone.parameters(), strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-12)


@by_optimizer
@ranks(2, 3, more=(4, 5))
def test_each_rank_has_the_state_of_its_own_parameters(rank: int, size: int, kind: str) -> None:
    training = _Training(rank, size, "own", kind)
    for _ in range(STEPS):
        training.step()
    training.check()
    mine = [float(state["exp_avg"].numel()) for state in training.held.state.values()]
    total = sum(one.numel() for one in training.model.parameters())
    everyone = hvd.allgather(torch.tensor([sum(mine)]), name=f"own.{kind}.shares").tolist()
    assert sum(everyone) == total, "every element's state is on one rank"
    most = 1.001 / size if kind == "shards" else 0.55 if size == 2 else 0.52
    assert max(everyone) <= most * total and min(everyone) > 0, everyone


@by_optimizer
@ranks(2, fresh=True)  # step() waits for weights in a process that has compiled code
def test_whoever_reads_a_weight_waits_for_it(rank: int, size: int, kind: str) -> None:
    training = _Training(rank, size, "reads", kind)
    average = torch.optim.swa_utils.AveragedModel(training.alone)
    for step in range(STEPS):
        training.step()
        assert any(type(one) is InFlightParameter for one in training.model.parameters())
        readers: list[Callable[[], Any]] = [
            lambda: average.update_parameters(training.model),
            lambda: training.model.state_dict(),
            lambda: training.optimizer.drain(),
            lambda: training.optimizer.real_weights().__enter__(),
            lambda: hvd.check_replicas(training.model),
            lambda: [one.norm() for one in training.model.parameters()],
        ]
        readers[step]()
        assert not any(type(one) is InFlightParameter for one in training.model.parameters()), step
        training.check()


def _hash(rank: int, size: int, label: str, kind: str) -> str:
    training = _Training(rank, size, label, kind)
    for _ in range(STEPS):
        training.step()
    values = b"".join(one.detach().numpy().tobytes() for one in training.model.parameters())
    return hashlib.sha256(values).hexdigest()


@by_optimizer
@pytest.mark.parametrize("size", [3, pytest.param(4, marks=pytest.mark.more)])
def test_the_same_bits_in_every_run(size: int, kind: str) -> None:
    found = [one for run in range(3) for one in run_ranks(_hash, size, f"bits.{run}", kind)]
    assert len(set(found)) == 1, found


@by_optimizer
@ranks(2, 3)
def test_states(rank: int, size: int, kind: str) -> None:
    training = _Training(rank, size, "states", kind)
    assert training.optimizer.state_dict()["state"] == {}
    for _ in range(3):
        training.step()
    with pytest.raises(UserError, match=rf"on rank {rank}, (?s:.*)consolidate_state_dict\(\) on all ranks"):
        training.optimizer.state_dict()
    training.optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        whole = training.optimizer.state_dict()
        plain = torch.optim.Adam(_model().parameters(), lr=0.01)
        plain.load_state_dict(whole)
        for mine, right in zip(plain.state.values(), training.held_alone.state.values(), strict=True):
            torch.testing.assert_close(mine["exp_avg_sq"], right["exp_avg_sq"], rtol=1e-9, atol=1e-15)
    else:
        with pytest.raises(UserError, match="consolidate_state_dict"):
            training.optimizer.state_dict()
    # It is that of this very step.
    training.step()
    with pytest.raises(UserError, match="consolidate_state_dict"):
        training.optimizer.state_dict()
    # A file of each rank's own.
    file = io.BytesIO()
    torch.save([training.optimizer.local_state_dict(), training.model.state_dict()], file)
    file.seek(0)
    state, weights = torch.load(file)
    training.step()
    again = _Training(rank, size, "states.again", kind)
    again.model.load_state_dict(weights)
    again.optimizer.load_state_dict(state)
    again.alone, again.held_alone, again.step_number = training.alone, training.held_alone, training.step_number - 1
    again.optimizer.zero_grad()
    again.model(_batch(rank, again.step_number)).square().mean().backward()
    again.optimizer.step()
    again.check()
    others = {**state, "paceline_split": {**state["paceline_split"], "rank": (rank + 1) % size}}
    with pytest.raises(UserError, match=rf"loaded by rank {rank} of {size}; each rank has the state of other"):
        again.optimizer.load_state_dict(others)


@ranks(3, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_a_process_set(rank: int, size: int) -> None:
    """Owners are two of three ranks; the other one trains alone."""
    pair = hvd.add_process_set([0, 2])
    weights = {name: torch.nn.Parameter(torch.ones(30_000)) for name in "abc"}
    held = torch.optim.SGD(weights.values(), lr=1.0, momentum=0.5)
    names = [(f"set.{name}", one) for name, one in weights.items()]
    optimizer = hvd.DistributedOptimizer(held, names, exchange="split", process_set=pair)
    for _ in range(2):
        optimizer.zero_grad()
        torch.stack([(one * (rank + 1)).sum() for one in weights.values()]).sum().backward()
        optimizer.step()
    optimizer.drain()
    mean = 2.0  # of ranks 0 and 2, and that of rank 1 alone
    assert all(bool((one == 1 - mean * 2.5).all()) for one in weights.values())
    momenta = sum(one["momentum_buffer"].numel() for one in held.state.values())
    assert momenta == (90_000 if rank == 1 else 45_000)
    optimizer.consolidate_state_dict(to=None)
    assert len(optimizer.state_dict()["state"]) == 3
    hvd.remove_process_set(pair)


@by_optimizer
@ranks(2)
def test_gradients_that_a_script_asks_for_are_those_of_all_ranks(rank: int, size: int, kind: str) -> None:
    training = _Training(rank, size, "gradients", kind)
    for _ in range(2):
        training.step()
    training.optimizer.zero_grad()
    training.model(_batch(rank, 2)).square().mean().backward()
    training.optimizer.synchronize()
    for other in range(size):
        (training.alone(_batch(other, 2)).square().mean() / size).backward()
    training.held_alone.zero_grad()
    for other in range(size):
        (training.alone(_batch(other, 2)).square().mean() / size).backward()
    for mine, right in zip(training.model.parameters(), training.alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, right.grad, rtol=1e-9, atol=1e-12)
    held = len(training.held.state)
    training.optimizer.step()
    training.held_alone.step()
    training.check()
    assert len(training.held.state) == held, "others' parameters were not updated here"


@ranks(2)
def test_refused(rank: int, size: int) -> None:
    model = _model()
    with pytest.raises(UserError, match=r"groups= was given together with the exchange split"):
        hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), exchange="split", groups=2
        )
    with pytest.raises(UserError, match=r'LBFGS(?s:.*)Use exchange="sync"'):
        hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters()), model.named_parameters(), exchange="split")
