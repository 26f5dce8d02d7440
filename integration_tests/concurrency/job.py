"""One rank of a case: a training, and the activity beside it, in a random order that is equal on all ranks.

Inputs are whole numbers that encode rank, step and position, so every result is exact, and a wrong one shows whose part
is missing.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from integration_tests.concurrency.calls import Array, calls_of
from integration_tests.concurrency.cases import AFTER, BACKWARD, BEFORE, GRADIENTS, Case
from integration_tests.support.event_table import Members
from integration_tests.support.events import ARMED
from integration_tests.support.merging import ask_for

TURNS = 8
# Of the three parameters of a training; the second one is last but one in a backward pass.
ELEMENTS = (300, 20_011, 7)
# Longest pause of a rank, drawn for each step.
PAUSE_S = 0.004
# Only a hang takes longer.
THREAD_LIMIT_S = 40.0


class Job:
    """Requirements of activities: this rank, random numbers, operations, and trainings.

    `make`: creates a training, with the arguments of EventTraining. All ranks draw the same numbers from `same`.
    """

    def __init__(self, rank: int, size: int, case: Case, make: Callable[..., Any]) -> None:
        self.rank, self.size, self.case = rank, size, case
        self.same = random.Random(f"{case.seed} {case}")
        self.own = random.Random(f"{case.seed} {case} {rank}")
        self.calls = calls_of(case.library)
        self.hvd = self.calls.hvd
        self.hvd.init()
        self._make = make
        self._sets: dict[tuple[int, ...], Any] = {}
        self._count = 0
        self.training = self.train(case.exchange, case.label)

    def train(self, exchange: str, label: str, members: Members | None = None) -> Any:
        """Return a training; `members`: its process set, None for all ranks."""
        return self._make(self.rank, self.size, exchange, label, members=members, elements=ELEMENTS)

    def name(self, word: str) -> str:
        """A name of an operation that no earlier one had, equal on all ranks that make the same calls."""
        self._count += 1
        return f"{self.case.label}.{word}.{self._count}"

    def values(self, rank: int, number: int, elements: int = 300, dtype: str = "float64") -> Array:
        """Input of a rank: whole numbers, exact in sums of every type but those of half precision."""
        return (np.arange(elements) % 97 + 100 * (number % 50) + 10_000 * (rank + 1)).astype(dtype)

    def sum_of(self, ranks: Sequence[int], number: int, elements: int = 300, dtype: str = "float64") -> Array:
        """Sum of `values` of these ranks."""
        return np.sum([self.values(rank, number, elements, dtype) for rank in ranks], axis=0).astype(dtype)

    def equal(self, found: Any, wanted: Any, what: str) -> None:
        """Raise AssertionError unless both are equal, bit for bit."""
        text = f"rank {self.rank}, {self.training}: {what}"
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted), err_msg=text)

    def process_set(self, ranks: Sequence[int]) -> Members:
        """Return the process set of these ranks, which is removed at the end of the case."""
        key = tuple(ranks)
        if len(key) == self.size:
            return Members(key, self.hvd.global_process_set)
        if key not in self._sets:
            self._sets[key] = self.hvd.add_process_set(list(key))
        return Members(key, self._sets[key])

    def has_set(self, ranks: Sequence[int]) -> bool:
        """True if `process_set` has made this set."""
        return tuple(ranks) in self._sets

    def two_sets(self) -> list[Members]:
        """Return two process sets that overlap; those of two ranks are each rank alone."""
        size = self.size
        both = [range(1), range(1, 2)] if size == 2 else [range(size - 1), range(1, size)]
        return [self.process_set(list(one)) for one in both]

    def end(self) -> None:
        """Leave the world as it was."""
        self.calls.barrier()
        for one in self._sets.values():
            assert self.hvd.remove_process_set(one), f"rank {self.rank}: a process set was not removed"


class Activity:
    """Something that a script does beside its training.

    `moments`: at which it acts; a training of Keras has no moments within a step.
    """

    moments: ClassVar[Sequence[str]] = (BEFORE, GRADIENTS, BACKWARD, AFTER)

    def __init__(self, job: Job) -> None:
        self.job = job

    def begin(self) -> None:
        """Act once, before the first step."""

    def act(self, moment: str) -> None:
        """Act at a moment of a step."""

    def end(self) -> None:
        """Act once, after the last step, and check what is left to check."""


def turn(job: Job, activities: Sequence[Activity]) -> None:
    """Make a step, with an act of each activity at a moment that is drawn."""
    known = (BEFORE, AFTER) if job.case.framework == "keras" else (BEFORE, GRADIENTS, BACKWARD, AFTER)
    drawn = [
        (job.same.choice([moment for moment in one.moments if moment in known]), one)
        for one in activities
        for _ in range(job.same.choice([1, 1, 2]))
    ]
    job.same.shuffle(drawn)
    time.sleep(PAUSE_S * job.own.random())

    def act(moment: str) -> None:
        for due, one in drawn:
            if due == moment:
                one.act(moment)

    job.training.step(act=act)
    if job.training.exact and job.same.random() < 0.5:
        job.training.compare()


def run(rank: int, size: int, case: Case, make: Callable[..., Any], refused: bool, made: type[Job] = Job) -> str:
    """Run a case; `refused`: it must raise an error. Returns a fact about the run, or that error."""
    if not refused:
        return _run(made(rank, size, case, make))
    try:
        _run(made(rank, size, case, make))
    except Exception as error:
        importlib.import_module(f"horovod.{case.library}").shutdown()  # as a script that ends by this error
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"rank {rank}: the case was not refused")


def _run(job: Job) -> str:
    from integration_tests.concurrency.activities.of_case import made

    job.training.steps()
    activities = made(job)
    for one in activities:
        one.begin()
    for _ in range(TURNS):
        turn(job, activities)
    for one in activities:
        one.end()
    job.training.go_on()
    job.end()
    if job.case.exchange == ARMED:
        ask_for(job.case.library, "threshold")
    return f"{job.training.number} steps"
