"""Random events of trainings, equal on all ranks: the common loop of training_events.py and keras_events.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any


def run(
    make: Callable[[int, random.Random, random.Random], Any],
    names: Sequence[str],
    rank: int,
    size: int,
    seed: int,
    events: int,
) -> list[Any]:
    """Return two trainings after `events` random events of `names`, with steps before each, and a drain of both.

    `make` gets a training's number, a random generator that is equal on all ranks, and one of this rank.
    """
    same, own = random.Random(seed), random.Random(seed * size + rank)
    trainings = [make(number, same, own) for number in range(2)]
    done = []
    drawn = [(same.choice(trainings), same.choice(names)) for _ in range(events)]
    try:
        for training, event in [*drawn, *((one, "drain") for one in trainings)]:
            training.steps()
            done.append(f"{training} {event}")
            getattr(training, event)()
    except BaseException:
        print("\n".join(done), flush=True)
        raise
    return trainings


def updates(rank: int, size: int, train: Callable[[int, int, int], int], seed: int, least: int) -> None:
    """Make at least so many updates: trainings of `seed` and the seeds after it."""
    made = 0
    while made < least:
        made += train(rank, size, seed)
        seed += 1
