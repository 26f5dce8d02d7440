"""Other threads of the script beside the training."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from integration_tests.concurrency.job import PAUSE_S, THREAD_LIMIT_S, Activity

CALLS = 40
STEPS = 12


class _InThread(Activity):
    """Work in a thread from the first step of the training to the last."""

    def begin(self) -> None:
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="beside", daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.thread.join(THREAD_LIMIT_S)
        assert not self.thread.is_alive(), f"rank {self.job.rank}: the thread has not ended"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        """The work of the thread."""


class Thread(_InThread):
    """Allreduces, broadcasts and all-gathers of objects, one after the other; drawn equal on all ranks."""

    def work(self) -> None:
        job, same, own = self.job, random.Random(f"{self.job.case} thread"), random.Random()
        kinds = ["allreduce", "allreduce", "broadcast"]
        if job.case.library == "torch":  # of TensorFlow they are eager operations, which lose their names
            kinds.append("objects")
        for number in range(CALLS):
            name, kind, root = f"{job.case.label}.thread.{number % 5}", same.choice(kinds), same.randrange(job.size)
            mine = job.values(job.rank, number)
            if kind == "allreduce":
                found: Any = job.calls.call_of_thread("allreduce", mine, name=name, op=job.hvd.Sum)
                job.equal(found, job.sum_of(range(job.size), number), "an allreduce of a thread")
            elif kind == "broadcast":
                found = job.calls.call_of_thread("broadcast", mine, root, name=f"{name}.root")
                job.equal(found, job.values(root, number), "a broadcast of a thread")
            else:
                found = job.hvd.allgather_object((job.rank, number), name=f"{name}.objects")
                assert found == [(rank, number) for rank in range(job.size)], f"rank {job.rank}, a thread: {found}"
            time.sleep(PAUSE_S * own.random())


class ThreadOptimizer(_InThread):
    """A training with an optimizer of the same exchange."""

    def begin(self) -> None:
        self.training = self.job.train(self.job.case.exchange, f"{self.job.case.label}.thread")
        super().begin()

    def work(self) -> None:
        own = random.Random()
        for _ in range(STEPS):
            self.training.step()
            time.sleep(PAUSE_S * own.random())

    def end(self) -> None:
        super().end()
        self.training.check()
