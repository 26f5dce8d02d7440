"""Ranks that join."""

from __future__ import annotations

from integration_tests.concurrency.job import Activity
from integration_tests.concurrency.table import ROUNDS

ROUNDS_OF_JOINS = 3


class Join(Activity):
    """After the steps of the training, ranks make different numbers of steps and join, several times.

    A rank that has joined counts as zeros; it has none of the updates that the others make meanwhile. Of a partial
    exchange it gets them later.
    """

    def end(self) -> None:
        job, training = self.job, self.job.training
        late = job.case.exchange.partition(",")[0] in ROUNDS
        for _ in range(ROUNDS_OF_JOINS):
            lengths = [job.same.randint(0, 4) for _ in range(job.size)]
            begin = training.number
            for step in range(max(lengths)):
                going = [rank for rank in range(job.size) if lengths[rank] > step]
                training.number = begin + step
                if job.rank in going:
                    training.step_of(going)
                elif late:
                    training.count_of(going)
            training.number = begin + max(lengths)
            last = int(job.hvd.join())
            assert last in range(job.size), f"rank {job.rank}: {last} joined last"
            training.check()
