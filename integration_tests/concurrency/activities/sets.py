"""Process sets beside the training."""

from __future__ import annotations

import numpy as np

from integration_tests.concurrency.cases import AFTER, BACKWARD, BEFORE
from integration_tests.concurrency.job import Activity
from integration_tests.support.event_table import Members


class TwoSets(Activity):
    """Collectives of two process sets that overlap."""

    def begin(self) -> None:
        self.sets = self.job.two_sets()
        self.number = 0

    def act(self, moment: str) -> None:
        same = self.job.same
        for one in same.sample(self.sets, 2):
            kind = same.choice(["allreduce", "allgather", "broadcast"])
            root, name = same.choice(list(one.ranks)), self.job.name("set")
            self.number += 1
            if self.job.rank in one.ranks:
                self._act(kind, one, root, name)

    def _act(self, kind: str, one: Members, root: int, name: str) -> None:
        job, calls, of_set = self.job, self.job.calls, one.process_set
        mine = job.values(job.rank, self.number)
        if kind == "allreduce":
            found = calls.call("allreduce", mine, name=name, op=job.hvd.Sum, process_set=of_set)
            wanted = job.sum_of(one.ranks, self.number)
        elif kind == "allgather":
            found = calls.call("allgather", mine, name=name, process_set=of_set)
            wanted = np.concatenate([job.values(rank, self.number) for rank in one.ranks])
        else:
            found = calls.call("broadcast", mine, root, name=name, process_set=of_set)
            wanted = job.values(root, self.number)
        job.equal(found, wanted, f"{kind} of the set {list(one.ranks)}")


class ChangingSets(Activity):
    """Process sets that are added, used, also by an optimizer, and removed; gradients of the training are in flight."""

    moments = (BEFORE, BACKWARD, AFTER)

    def begin(self) -> None:
        self.number = 0

    def act(self, moment: str) -> None:
        job, same = self.job, self.job.same
        ranks = sorted(same.sample(range(job.size), same.randint(1, job.size - 1)))
        name, trains, drains = job.name("changing"), same.random() < 0.5, same.random() < 0.5
        if job.has_set(ranks):
            return
        self.number += 1
        of_set = job.hvd.add_process_set(ranks)
        if job.rank in ranks:
            mine = job.values(job.rank, self.number)
            found = job.calls.call("allreduce", mine, name=name, op=job.hvd.Sum, process_set=of_set)
            job.equal(found, job.sum_of(ranks, self.number), f"allreduce of the new set {ranks}")
            if trains and len(ranks) > 1:
                self._train(Members(ranks, of_set), name, drains)
        assert job.hvd.remove_process_set(of_set), f"rank {job.rank}: the set {ranks} was not removed"

    def _train(self, members: Members, name: str, drains: bool) -> None:
        """Some steps of the new set; `drains`: before it is removed, otherwise gradients may still be in flight."""
        training = self.job.train(self.job.case.exchange, name, members)
        for _ in range(2):
            training.step()
        if drains:
            training.check()
