"""Evaluation beside the training."""

from __future__ import annotations

from typing import Any

import numpy as np

from integration_tests.concurrency.cases import AFTER, BEFORE
from integration_tests.concurrency.job import Activity


class Evaluation(Activity):
    """Metrics are averaged, weights are read, now and then after a drain, and statistics are read."""

    moments = (BEFORE, AFTER)

    def begin(self) -> None:
        self.number = 0

    def act(self, moment: str) -> None:
        job = self.job
        self.number += 1
        if job.same.random() < 0.3:
            job.training.check()
        with job.training.optimizer.real_weights():
            if job.training.exact:
                job.training.compare()
        self._metrics()
        self._statistics()

    def _metrics(self) -> None:
        """A weighted mean of numbers, and the sums of a table of hits."""
        job = self.job
        mean = job.hvd.mean(float(job.rank + self.number), weight=job.rank + 1, name=job.name("mean"))
        weights = [rank + 1 for rank in range(job.size)]
        wanted = sum(weight * (rank + self.number) for rank, weight in enumerate(weights)) / sum(weights)
        assert np.isclose(mean, wanted, rtol=1e-12), f"rank {job.rank}, {job.training}: mean {mean}, expected {wanted}"
        mine = job.values(job.rank, self.number, dtype="int64")
        found = job.calls.call("allreduce", mine, name=job.name("hits"), op=job.hvd.Sum)
        job.equal(found, job.sum_of(range(job.size), self.number, dtype="int64"), "a metric")

    def _statistics(self) -> None:
        """They communicate nothing: a rank may read them whenever it likes."""
        if self.job.own.random() < 0.5:
            read: list[Any] = [self.job.hvd.metrics(), self.job.hvd.exchange_stats(), self.job.hvd.fusion_report()]
            assert all(one is not None for one in read)
