"""Reducescatters of every size, exact to the last bit while other messages are in flight on the same connections.

    python -m integration_tests.beside --number 2000 --ranks 4      (every collective; many minutes)

The other messages are allreduces by one of our collectives, a message between pipeline stages, and a step of
allreduces, armed if `armed` is set. Exits with 1 if a value was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

from rich.console import Console

from integration_tests.support.arming import ARMED, TorchSteps, arm, state
from integration_tests.support.ranks import RankFailed, run_ranks
from paceline.registry import collectives

COLLECTIVES = tuple(name for name in collectives.COLLECTIVES if name != collectives.HOROVODS)
LARGEST = 10_000_000  # elements: 40 MB
STEP_SIZES = {f"beside.{n}": 1000 + n for n in range(4)}
STEP_GROUPS = (1, 2, 1)
TAG = 7


def _part(rank: int, turn: int, elements: int) -> Any:
    """Input of a rank: whole numbers that encode rank and position, exact in every sum."""
    import torch

    return (torch.arange(elements, dtype=torch.int32) % 997 + 1000 * (rank + 1) + turn).float()


def scatter(rank: int, size: int, number: int, largest: int, armed: bool, seed: int) -> str:
    """Run `number` turns; raises AssertionError with the wrong value. Returns the state of armed steps."""
    import numpy as np

    import paceline.torch as hvd
    from paceline.native.communicator import Communicator
    from paceline.native.library import loaded

    hvd.init()
    communicator = Communicator(loaded("torch"))
    steps, step, hand = TorchSteps(rank, size, STEP_SIZES), 0, None
    if armed:
        hand, step = arm(steps.step, "beside.", STEP_GROUPS)
    dice = random.Random(seed)  # the same on all ranks
    letter, got = np.full(300_001, rank, np.uint8), np.zeros(300_001, np.uint8)
    for turn in range(number):
        rows = dice.choice([1, size, size + 1, 3 * size - 1])
        columns = max(1, int(dice.choice([largest, largest // 100, 100, 3]) * dice.random()) // rows)
        receive = communicator.receive((rank - 1) % size, TAG, got.data)
        send = communicator.send((rank + 1) % size, TAG, letter.data)
        large = [_part(rank, turn, 50_000 * (n + 1)) for n in range(4)]
        handles = [hvd.allreduce_async(one, op=hvd.Sum, name=f"large.{n}") for n, one in enumerate(large)]
        for name in STEP_SIZES:
            steps.start(name, step)
        given = _part(rank, turn, rows * columns).reshape(rows, columns)
        found = hvd.reducescatter(given, op=hvd.Sum, name="scattered")
        for name in STEP_SIZES:
            steps.finish(name, step)
        step += 1
        for one, handle in zip(large, handles, strict=True):
            assert (hvd.synchronize(handle) == _sum(one, rank, size)).all(), f"rank {rank}, turn {turn}: an allreduce"
        communicator.wait(receive)
        communicator.wait(send)
        assert (got == (rank - 1) % size).all(), f"rank {rank}, turn {turn}: a stage's message"
        shares = [rows // size + (one < rows % size) for one in range(size)]
        begin = sum(shares[:rank])
        wanted = _sum(given[begin : begin + shares[rank]], rank, size)
        assert found.shape == wanted.shape, f"rank {rank}, turn {turn}: {found.shape}, expected {wanted.shape}"
        wrong = int((found != wanted).sum())
        assert not wrong, f"rank {rank}, turn {turn}: {wrong} of {wanted.numel()} values ({rows} x {columns}) wrong"
    said = str(state())
    hvd.barrier()
    communicator.close()
    if hand is not None:
        hand.end()
    return said


def _sum(own: Any, rank: int, size: int) -> Any:
    """Sum over the ranks of the part that `_part` made here."""
    return own * size + 1000.0 * (size * (size + 1) // 2 - size * (rank + 1))


def main() -> int:
    parser = argparse.ArgumentParser(description="Reducescatters while other messages travel.")
    parser.add_argument("--number", type=int, default=100, help="reducescatters of each case")
    parser.add_argument("--largest", type=int, default=LARGEST, help="elements")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--collective", choices=COLLECTIVES, action="append")
    parser.add_argument("--timeout", type=float, default=3600.0, help="of each case, in seconds")
    arguments = parser.parse_args()
    console, ok = Console(), True
    for collective in arguments.collective or COLLECTIVES:
        for armed in (False, True):
            args = (arguments.number, arguments.largest, armed, arguments.seed)
            env = {"PACELINE_COLLECTIVE": collective, **(ARMED if armed else {})}
            label = f"{collective}, {'armed' if armed else 'negotiated'}, {arguments.ranks} ranks"
            try:
                said = run_ranks(scatter, arguments.ranks, *args, env=env, timeout_s=arguments.timeout, fresh=True)
                console.print(f"{label}: {arguments.number} right; {said[0]}", markup=False)
            except RankFailed as failed:
                console.print(f"{label}: {failed}", markup=False)
                ok = False
    return 0 if ok else 1


if __name__ == "__main__":
    from integration_tests import beside  # the ranks find `scatter` by the name of its module

    sys.exit(beside.main())
