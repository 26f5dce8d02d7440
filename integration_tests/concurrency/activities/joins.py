"""Ranks that join."""

from __future__ import annotations

from integration_tests.concurrency.job import Activity
from integration_tests.concurrency.table import ROUNDS, refusal
from paceline.native import agreement

ROUNDS_OF_JOINS = 3
# Of a refused join, in place of a minute.
MEET_LIMIT_S = 2.0


class Join(Activity):
    """After the steps of the training, ranks make different numbers of steps and join, several times.

    A rank that has joined counts as zeros; it has none of the updates that the others make meanwhile. Of a partial
    exchange it gets them later. Between two drains each rank has a step, where gradients may be left for the drain.
    """

    def end(self) -> None:
        job, training = self.job, self.job.training
        exchange = job.case.exchange.partition(",")[0]
        late = exchange in ROUNDS
        least = 1 if late or exchange == "pipelined" else 0
        if refusal(job.case):
            agreement.MEET_LIMIT_S = MEET_LIMIT_S
        for _ in range(ROUNDS_OF_JOINS):
            lengths = [job.same.randint(least, 4) for _ in range(job.size)]
            lengths[job.same.randrange(job.size)] = 6
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
