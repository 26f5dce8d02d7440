"""Open MPI, through mpi4py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.collectives.bounds import ALLREDUCE, BROADCAST, OPERATIONS, REDUCE
from paceline.examples.benchmarks.collectives.cases import Case
from paceline.examples.benchmarks.collectives.systems import Caller, Calls
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.launch.probe.buffers import ROOT, Buffers


def setup(place: Place) -> Caller:
    """mpirun has connected the ranks."""
    return MpiCaller(place)


class MpiCaller:
    """A rank of MPI's world."""

    operations = OPERATIONS

    def __init__(self, place: Place) -> None:
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._place = place

    def leave(self) -> None:
        """mpirun would take a rank that ends without this for one that has failed."""
        self._mpi.Finalize()

    def prepare(self, case: Case) -> Calls:
        """Buffers' memory as it is."""
        mpi, world = self._mpi, self._mpi.COMM_WORLD
        buffers = Buffers(case, self._place.rank, self._place.size)
        at_root = self._place.rank == ROOT
        start: dict[str, Callable[[Any], Any]] = {
            ALLREDUCE: lambda array: world.Iallreduce(mpi.IN_PLACE, array),
            BROADCAST: lambda array: world.Ibcast(array, ROOT),
            REDUCE: lambda array: world.Ireduce(mpi.IN_PLACE if at_root else array, array if at_root else None),
        }
        whole: dict[str, Callable[[Any], Any]] = {
            ALLREDUCE: lambda array: world.Allreduce(mpi.IN_PLACE, array),
            BROADCAST: lambda array: world.Bcast(array, ROOT),
            REDUCE: lambda array: world.Reduce(mpi.IN_PLACE if at_root else array, array if at_root else None),
        }

        def call() -> None:
            # Open MPI has other, slower algorithms for calls that do not block.
            if case.in_flight == 1:
                whole[case.operation](buffers.arrays[0])
            else:
                mpi.Request.Waitall([start[case.operation](array) for array in buffers.arrays])

        return Calls(buffers.fill, call, buffers.check)
