"""A rank dies while gradients are sent to their owners, or new weights to all: the others name it at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from integration_tests.kills import kill_in
from integration_tests.support.arming import state
from integration_tests.support.deaths import assert_named
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks

SIZE = 3
LIMIT_S = 20.0


def _train(rank: int, size: int, phase: str, kind: str, folder: str) -> tuple[float, str]:
    """Most of the time is spent in that phase: after backward(), or after step().

    `kind`: ranks own whole parameters, or shards, also in armed steps.
    """
    import torch

    import paceline.torch as hvd

    hvd.init()
    layers = [torch.nn.Linear(300, 300) for _ in range(4)]
    model = torch.nn.Sequential(*layers)

    class OthersAdam(torch.optim.Adam):
        pass

    held = (OthersAdam if kind == "whole" else torch.optim.Adam)(model.parameters(), lr=0.01)
    split, fusion = hvd.Split(independent=True), "optimal" if kind == "armed" else None
    optimizer = hvd.DistributedOptimizer(held, model.named_parameters(), exchange=split, fusion=fusion)
    end_s = time.monotonic() + 60
    step, ready = 0, False
    try:
        while time.monotonic() < end_s:
            optimizer.zero_grad()
            model(torch.ones(2, 300)).sum().backward()
            time.sleep(0.05 if phase == "gradients" else 0)
            optimizer.step()
            time.sleep(0.05 if phase == "weights" else 0)
            step += 1
            if not ready and (state().steps > 0 if kind == "armed" else step >= 3):
                ready = True
                (Path(folder) / str(rank)).touch()
    except hvd.HorovodInternalError as error:
        heard = time.monotonic()
        assert all(type(one) is torch.nn.Parameter for one in model.parameters()) or optimizer.forget() is None
        return heard, str(error)
    raise TimeoutError(f"rank {rank} heard of no death")


@pytest.mark.parametrize("kind", ["armed", more("shards"), more("whole")])
@pytest.mark.parametrize(("phase", "victim"), [("weights", 0), more("gradients", 1), more("", 2)])
def test_survivors_name_the_rank_that_dies(phase: str, victim: int, kind: str) -> None:
    heard = kill_in(_train, (phase, kind), victim, moment_s=0.3, size=SIZE)
    assert_named(heard, victim, SIZE - 1, LIMIT_S)


def _weights_never_arrive(rank: int, size: int, inside: bool) -> str:
    """The last rank fails in its update: the others load a checkpoint, and shut down.

    `inside`: they shut down in the except block, too.
    """
    import torch

    import paceline.torch as hvd

    class Failing(torch.optim.SGD):
        updates = 0

        def step(self, closure: Any = None) -> Any:
            self.updates += 1
            if rank == size - 1 and self.updates == 3:
                raise MemoryError("in the update")
            return super().step(closure)

    hvd.init()
    parameters = torch.nn.ParameterList([torch.zeros(100_000) for _ in range(4)])
    checkpoint = {f"{number}": torch.full((100_000,), 7.0) for number in range(4)}
    named = [(f"arrive.{number}", one) for number, one in enumerate(parameters)]
    split = hvd.Split(elementwise=True)
    optimizer = hvd.DistributedOptimizer(Failing(parameters, lr=1.0), named, exchange=split)
    said = ""
    try:
        for _ in range(5):
            optimizer.zero_grad()
            torch.stack([one.sum() for one in parameters]).sum().backward()
            optimizer.step()
    except (MemoryError, hvd.HorovodInternalError) as error:
        said = str(error)
        parameters.load_state_dict(checkpoint)
        assert all((one == 7).all() for one in parameters)
        if inside or rank == size - 1:
            hvd.shutdown()
    hvd.shutdown()
    return said


@pytest.mark.parametrize("inside", [True, False])
def test_a_survivor_loads_a_checkpoint_and_shuts_down(inside: bool, tmp_path: Path) -> None:
    env = {"PACELINE_HISTORY": str(tmp_path)}
    said = run_ranks(_weights_never_arrive, SIZE, inside, env=env, fresh=True)
    assert all(f"Rank {SIZE - 1} could not go on" in one for one in said[:-1]), said
    assert said[-1] == "in the update"
