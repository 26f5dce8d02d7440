"""Collectives of all ranks beside the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from integration_tests.concurrency.calls import Array, Finish
from integration_tests.concurrency.job import Activity

TYPES = ("float32", "float64", "int32", "int64")
SIZES = (1, 7, 300, 20_011)
_FOLDS: dict[str, Callable[..., Array]] = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum}


class HandMade(Activity):
    """Allreduces and other collectives of a script; some are in flight during steps of the training."""

    def begin(self) -> None:
        self.number = self.rounds = 0
        self.open: list[tuple[Finish, Array]] = []
        self.given, self.got = np.zeros(300), np.zeros(300)
        self.kinds = [self._allreduce, self._start, self._start, self._grouped, self._allgather, self._reducescatter]
        self.kinds += [self._alltoall, self._reduce, self._round, self._round]

    def act(self, moment: str) -> None:
        self.number += 1
        self.job.same.choice(self.kinds)()
        if len(self.open) > 2:
            self._finish(self.job.same.randrange(len(self.open)))

    def end(self) -> None:
        while self.open:
            self._finish(0)
        job, name, hvd = self.job, f"{self.job.case.label}.rounds", self.job.hvd
        if not self.rounds:
            return
        self.got += job.calls.flush(self.got, name, quorum="majority", op=hvd.Sum)
        wanted = job.calls.call("allreduce", self.given, name=job.name("given"), op=hvd.Sum)
        job.equal(self.got, wanted, "sum of all partial rounds")

    def _finish(self, which: int) -> None:
        finish, wanted = self.open.pop(which)
        self.job.equal(finish(), wanted, "an allreduce in flight")

    def _drawn(self, folds: tuple[str, ...] = ("Sum", "Min", "Max")) -> tuple[Array, Array, dict[str, Any]]:
        """Input, result, and options of a call."""
        job, same = self.job, self.job.same
        elements, dtype, op = same.choice(SIZES), same.choice(TYPES), same.choice(folds)
        inputs = [job.values(rank, self.number, elements, dtype) for rank in range(job.size)]
        wanted = inputs[0]
        for one in inputs[1:]:
            wanted = _FOLDS[op](wanted, one)
        return inputs[job.rank], wanted, {"op": getattr(job.hvd, op), "name": job.name("by_hand")}

    def _allreduce(self) -> None:
        given, wanted, options = self._drawn()
        self.job.equal(self.job.calls.call("allreduce", given, **options), wanted, "an allreduce")

    def _start(self) -> None:
        given, wanted, options = self._drawn()
        self.open.append((self.job.calls.start(given, **options), wanted))

    def _grouped(self) -> None:
        given, wanted, options = self._drawn(("Sum",))
        found = self.job.calls.grouped([given, given[:1]], **options)
        self.job.equal(found[0], wanted, "a grouped allreduce")
        self.job.equal(found[1], wanted[:1], "a grouped allreduce")

    def _reduce(self) -> None:
        root = self.job.same.randrange(self.job.size)
        given, wanted, options = self._drawn()
        found = self.job.calls.call("reduce", given, root, **options)
        self.job.equal(found, wanted if self.job.rank == root else given, f"a reduce to rank {root}")

    def _allgather(self) -> None:
        job, name = self.job, self.job.name("gathered")
        parts = [job.values(rank, self.number, rank + 1) for rank in range(job.size)]
        found = job.calls.call("allgather", parts[job.rank], name=name)
        job.equal(found, np.concatenate(parts), "an all-gather")

    def _reducescatter(self) -> None:
        job, size, rank, name = self.job, self.job.size, self.job.rank, self.job.name("scattered")
        rows = job.same.choice([1, size + 1, 3 * size - 1])
        shares = [rows // size + (one < rows % size) for one in range(size)]
        begin = sum(shares[:rank])
        found = job.calls.call(
            "reducescatter", job.values(rank, self.number, 7 * rows).reshape(rows, 7), name=name, op=job.hvd.Sum
        )
        wanted = job.sum_of(range(size), self.number, 7 * rows).reshape(rows, 7)
        job.equal(found, wanted[begin : begin + shares[rank]], "a reduce-scatter")

    def _alltoall(self) -> None:
        job, name = self.job, self.job.name("exchanged")
        inputs = [job.values(rank, self.number, 3 * job.size).reshape(job.size, 3) for rank in range(job.size)]
        found = job.calls.call("alltoall", inputs[job.rank], name=name)
        job.equal(found, [one[job.rank] for one in inputs], "an all-to-all")

    def _round(self) -> None:
        job = self.job
        mine = job.values(job.rank, self.number)
        self.rounds += 1
        self.given += mine
        self.got += job.calls.partial(mine, f"{job.case.label}.rounds", quorum="majority", op=job.hvd.Sum)


class Barrier(Activity):
    """Barriers."""

    def act(self, moment: str) -> None:
        self.job.calls.barrier()


class Broadcasts(Activity):
    """Broadcasts of tensors, objects, and a model that is not trained."""

    def begin(self) -> None:
        self.number = 0
        self.kinds = [self._tensor, self._object, self._objects, self._variables]

    def act(self, moment: str) -> None:
        self.number += 1
        self.job.same.choice(self.kinds)(self.job.same.randrange(self.job.size), self.job.name("root"))

    def _tensor(self, root: int, name: str) -> None:
        job = self.job
        found = job.calls.call("broadcast", job.values(job.rank, self.number), root, name=name)
        job.equal(found, job.values(root, self.number), f"a broadcast of rank {root}")

    def _object(self, root: int, name: str) -> None:
        job = self.job
        found = job.hvd.broadcast_object({"rank": job.rank, "number": self.number}, root, name=name)
        assert found == {"rank": root, "number": self.number}, f"rank {job.rank}, {job.training}: {found}"

    def _objects(self, root: int, name: str) -> None:
        job = self.job
        found = job.hvd.allgather_object("x" * (job.rank + self.number), name=name)
        assert [len(one) - self.number for one in found] == list(range(job.size)), f"rank {job.rank}: {found}"

    def _variables(self, root: int, name: str) -> None:
        job = self.job
        if job.case.framework == "torch":
            import torch

            tensors = {name: torch.from_numpy(job.values(job.rank, self.number))}
            job.hvd.broadcast_parameters(tensors, root_rank=root)
            found = tensors[name].numpy()
        else:
            import keras

            import paceline.keras as hvd

            variable = keras.Variable(job.values(job.rank, self.number))
            hvd.broadcast_variables([variable], root, name)
            found = keras.ops.convert_to_numpy(variable)
        job.equal(found, job.values(root, self.number).astype(found.dtype), f"variables of rank {root}")
