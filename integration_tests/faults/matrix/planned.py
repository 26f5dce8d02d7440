"""Trainings with wrapped optimizers, of any framework: plans, armed steps, and known weights."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.injector import Injector
from integration_tests.faults.matrix.sentences import Moment
from integration_tests.faults.matrix.training import LABEL, off_from_expected
from integration_tests.support import arming
from integration_tests.support.merging import ByHand, repeat

# Parts of the names of messages that ranks exchange once, such as before the first step.
_ONCE = re.compile(r"\.layouts$|paceline\.(agree|drain)\b")


class PlannedTraining(ABC):
    """A training that follows plans of the test, if its case asks for them. `library`: Horovod's, of the framework."""

    def __init__(self, case: Case, injector: Injector, rank: int, library: str) -> None:
        self._case, self._injector, self._rank, self._library = case, injector, rank, library
        self._hand: ByHand | None = None

    @abstractmethod
    def step(self, step: int, at: int) -> None:
        """As in Training."""

    @abstractmethod
    def weights(self) -> list[np.ndarray[Any, Any]]:
        """As in Training."""

    def begin(self) -> int:
        """Make a step; with a plan, steps until the plan is in force, armed if the case is."""
        if not self._case.planned:
            self.step(0, -1)
            return 1
        self._hand = ByHand(self._library).start()
        self.step(0, -1)
        arming.meet(self._library)
        self._hand.follow(self._groups(self._hand, 1), arming.CALM_S)
        if not self._case.armed:
            self.step(1, -1)
            return 2

        def armed() -> bool:
            return arming.is_armed(self._library)

        return repeat(self._library, lambda step: self.step(step, -1), armed, 1, lambda: arming.state(self._library))

    @staticmethod
    def _groups(hand: ByHand, together: int) -> list[list[str]]:
        """Groups of so many messages of each step."""
        names = sorted(name for name in hand.names(LABEL) if _ONCE.search(name) is None)
        assert len(names) > 1, hand.names("")
        return [names[begin : begin + together] for begin in range(0, len(names), together)]

    def offer_plan(self, at: int) -> None:
        """Send another plan from rank 0 if that is the moment of the fault; the victim waits until it is sent."""
        if self._hand is None or not self._injector.is_at(Moment.PLAN, at):
            return
        if self._rank == 0:
            self._hand.send(self._groups(self._hand, 2), arming.CALM_S)
            self._injector.reached("offered")
        elif self._injector.victim:
            self._injector.wait_for("offered", 0)

    def armed(self) -> dict[str, object]:
        """State of armed steps, for the mark of the fault."""
        state = arming.state(self._library)
        return {"armed": state.state, "armed_steps": state.steps}

    def off(self, steps: int) -> float:
        return off_from_expected(self.weights(), self._case.size, steps)

    def end(self) -> None:  # noqa: B027
        """Nothing: shutdown() makes the updates that are left."""
