"""Trainings of the matrix: gradients are known numbers that depend on no weight, and plain SGD adds them up.

Rank r has the gradient (r + 1) * (1 + step % 4) / 64 in all elements. So the weights after any number of steps and a
drain are known, under every exchange, and a gradient that is lost, doubled or changed shows in them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.injector import SETTLED_S, Injector
from integration_tests.faults.matrix.sentences import Action, Moment

RATE = 1 / 8
LABEL = "fault"
# Name of the tensor whose shape differs.
EXTRA = "fault.extra"
# Elements of the parameters: the gradient of the last one comes first.
ELEMENTS = (35, 1003, 301, 5000)
LARGE_ELEMENTS = 2_000_000
LOCAL_STEPS = 2
WORLD_LIMIT_S = 60.0


def gradient(rank: int, step: int) -> float:
    """Value of all elements of a rank's gradients in a step."""
    return (rank + 1) * (1 + step % 4) / 64


def expected(size: int, steps: int) -> float:
    """Value of all weights after so many steps and a drain."""
    return -RATE * sum(gradient(rank, step) for step in range(steps) for rank in range(size)) / size


class Training(Protocol):
    """Training of one framework on one rank."""

    hvd: Any

    def begin(self) -> int:
        """Make steps until the job is in the state in which the fault is to find it; return the next step."""
        ...

    def step(self, step: int, at: int) -> None:
        """Make a step. `at`: its number in the sentence of the fault."""
        ...

    def drain(self) -> None: ...

    def weights(self) -> list[np.ndarray[Any, Any]]:
        """All weights of the model; of stages only on rank 0. Call it on all ranks, after a drain."""
        ...

    def end(self) -> None:
        """Close what must be closed before Horovod is shut down."""
        ...

    def off(self, steps: int) -> float:
        """Largest difference of a weight from what so many steps make of it. Call it on all ranks, after a drain."""
        ...


def off_from_expected(weights: Sequence[np.ndarray[Any, Any]], size: int, steps: int) -> float:
    """Largest difference of a weight from its expected value, of all exchanges but stages."""
    value = expected(size, steps)
    return max(float(abs(one - value).max()) for one in weights)


def exchange_of(case: Case, hvd: Any) -> Any:
    """The argument `exchange` of the wrapped optimizer."""
    others = {"partial": hvd.Partial(quorum="majority"), "local": hvd.Local(sync_every=LOCAL_STEPS)}
    return others.get(case.exchange, "sync" if case.armed else case.exchange)


def elements(case: Case, injector: Injector) -> list[int]:
    """Elements of this rank's parameters."""
    found = list(ELEMENTS)
    if case.large:
        found[-1] = LARGE_ELEMENTS
    if case.fault.action is Action.SHAPE and case.fault.moment is Moment.INIT and injector.victim:
        found[1] += 8
    return found


def before_step(injector: Injector, at: int) -> None:
    """Let a fault happen for which the others must wait in the library, on a rank that has submitted nothing yet."""
    if injector.is_at(Moment.NEGOTIATION, at) and injector.victim:
        injector.wait_for_others("submitted")
        time.sleep(SETTLED_S)
        injector.act(others="waiting")
    if injector.is_at(Moment.MESSAGE, at):
        injector.count_from_here()


def within_step(injector: Injector, at: int, **facts: object) -> None:
    """Let a fault happen between the submission of two gradients."""
    if not injector.victim or not injector.is_at(injector.case.fault.moment, at):
        return
    if injector.case.fault.action is Action.SHAPE or injector.case.fault.moment in (Moment.ENQUEUE, Moment.PLAN):
        injector.act(**facts)
    elif injector.is_at(Moment.MESSAGE, at):
        injector.act(moved_bytes=injector.wait_for_message(), **facts)
    elif injector.is_at(Moment.ARMED, at) or injector.is_at(Moment.ROUND, at):
        injector.wait_for_others("submitted")
        time.sleep(SETTLED_S)
        injector.act(others="waiting", **facts)


def while_exchanging(injector: Injector, at: int) -> None:
    """Let a fault happen from another thread once a message of this step is in flight."""
    if injector.victim and injector.is_at(Moment.MESSAGE, at):
        injector.act_in_thread(lambda: {"moved_bytes": injector.wait_for_message()})


def changed_shape(injector: Injector, at: int) -> int | None:
    """Elements of the tensor that all ranks reduce in addition at that step; None: there is no such tensor."""
    fault = injector.case.fault
    if fault.action is not Action.SHAPE or at != fault.step or fault.moment is Moment.INIT:
        return None
    count = LARGE_ELEMENTS if injector.case.large else 77
    return count + 8 * injector.victim
