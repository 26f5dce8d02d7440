"""More optimizers beside the training."""

from __future__ import annotations

from typing import Any

from integration_tests.concurrency.cases import AFTER, BACKWARD, BEFORE
from integration_tests.concurrency.job import Activity
from integration_tests.concurrency.table import EXCHANGES, possible_exchange
from integration_tests.support.events import ARMED


class _Stepped:
    """A training whose steps are cut in two halves: its gradients are in flight in between."""

    def __init__(self, training: Any) -> None:
        self.training = training
        self._open = False

    def act(self) -> None:
        """Begin a step, or end the one that was begun."""
        if self._open:
            self.training.finish_step()
        else:
            self.training.begin_step()
        self._open = not self._open

    def end(self) -> None:
        """End the step, and compare with one process after some more."""
        if self._open:
            self.act()
        for _ in range(3):
            self.training.step()
        self.training.check()


class Twin(Activity):
    """A second optimizer of the same exchange; of the same names, where names need not differ."""

    moments = (BEFORE, BACKWARD, AFTER)

    def begin(self) -> None:
        exchange, label = self.job.case.exchange, self.job.case.label
        # Names of synchronous gradients that are in flight at the same time must differ (docs/developers/events.md).
        differ = exchange.partition(",")[0] not in ("pipelined", "partial", "majority", "solo", "local", "split")
        self.stepped = _Stepped(self.job.train(exchange, f"{label}.twin" if differ else label))

    def act(self, moment: str) -> None:
        self.stepped.act()

    def end(self) -> None:
        self.stepped.end()


class OtherOptimizer(Activity):
    """A second optimizer of another exchange."""

    moments = (BEFORE, BACKWARD, AFTER)

    def begin(self) -> None:
        case = self.job.case
        others = [one for one in EXCHANGES if one not in (case.exchange, ARMED) and possible_exchange(case, one)]
        self.stepped = _Stepped(self.job.train(self.job.same.choice(others), f"{case.label}.other"))

    def act(self, moment: str) -> None:
        self.stepped.act()

    def end(self) -> None:
        self.stepped.end()


class SetOptimizers(Activity):
    """Optimizers of the same exchange on two process sets that overlap."""

    moments = (BEFORE, BACKWARD, AFTER)

    def begin(self) -> None:
        case = self.job.case
        self.stepped = [
            _Stepped(self.job.train(case.exchange, f"{case.label}.set{number}", one))
            if self._is_in(one.ranks)
            else None
            for number, one in enumerate(self.job.two_sets())
        ]

    def _is_in(self, ranks: Any) -> bool:
        return self.job.rank in ranks

    def act(self, moment: str) -> None:
        order = [0, 1]
        self.job.same.shuffle(order)
        for number in order:
            one = self.stepped[number]
            if one is not None:
                one.act()

    def end(self) -> None:
        for one in self.stepped:
            if one is not None:
                one.end()
