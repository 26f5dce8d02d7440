"""Our own collectives where Horovod's ranks talk over MPI: a Horovod that is built with it, under Open MPI's mpirun."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from integration_tests.ranks.collectives import test_collectives
from integration_tests.support.debug import debug
from integration_tests.support.mpi import BUILD_TIMEOUT_S, horovod_with_mpi, needs_open_mpi, run_under_mpi
from integration_tests.support.ranks import RankFailed, run_ranks

RUN_TIMEOUT_S = 200
pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S), needs_open_mpi]


@pytest.fixture(scope="module")
def with_mpi(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return horovod_with_mpi(tmp_path_factory.mktemp("horovod") / "site")


def _chosen(collective: str) -> dict[str, str]:
    block_bytes = str(test_collectives.BLOCK_BYTES)
    return {"PACELINE_COLLECTIVE": collective, **debug(collective_block_bytes=block_bytes)}


@pytest.mark.parametrize("collective", test_collectives.COLLECTIVES)
@pytest.mark.parametrize("size", [2, 3])
def test_values(with_mpi: dict[str, str], tmp_path: Path, collective: str, size: int) -> None:
    timeline = tmp_path / "timeline"
    env = {**with_mpi, **_chosen(collective), "HOROVOD_TIMELINE": str(timeline)}
    first, *others = run_under_mpi(test_collectives._body, size, env=env, timeout_s=RUN_TIMEOUT_S)
    assert all(other == first for other in others), "the bits differ between ranks"
    performed = timeline.read_text()
    assert "PACELINE_ALLREDUCE" in performed and "PACELINE_BROADCAST" in performed
    # For places where ranks compare their choices, whatever these are; `auto` chooses MPI where it is faster.
    assert (performed.count("MPI_ALLREDUCE") == 1 or collective == "auto") and "MPI_BCAST" not in performed


def test_the_same_build_over_gloo(with_mpi: dict[str, str]) -> None:
    env = {**with_mpi, **_chosen("ring")}
    run_ranks(test_collectives._body, 2, env=env, timeout_s=RUN_TIMEOUT_S, fresh=True)


def _sets(rank: int, size: int) -> None:
    import horovod.torch as hvd

    import paceline.torch  # noqa: F401  hands the option on

    hvd.init()
    assert hvd.mpi_enabled() and not hvd.gloo_enabled()
    for turn in range(3):
        # Process sets are added and removed, and share ranks.
        sets = [hvd.add_process_set(members) for members in ([0, 2], [1, 2])]
        for number, one in enumerate(sets):
            if one.included():
                name = f"{turn}.{number}"
                values = torch.arange(1001.0) + rank
                found = hvd.allreduce(values, op=hvd.Sum, process_set=one, name=name)
                wanted = sum(np.arange(1001.0) + other for other in one.ranks)
                np.testing.assert_array_equal(found.numpy(), wanted)
        everybody = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"all.{turn}")
        assert everybody.tolist() == [size] * 3
        for one in sets:
            hvd.remove_process_set(one)
    hvd.shutdown()


def test_process_sets(with_mpi: dict[str, str]) -> None:
    env = {**with_mpi, **_chosen("ring"), "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    run_under_mpi(_sets, 3, env=env, timeout_s=RUN_TIMEOUT_S)


def _opens_a_communicator(rank: int, size: int) -> None:
    import horovod.torch as hvd

    from paceline.errors import UsageError
    from paceline.native.communicator import Communicator
    from paceline.native.library import loaded

    hvd.init()
    with pytest.raises(UsageError, match=r"(?s)connected by MPI.*horovodrun --gloo"):
        Communicator(loaded("torch"))
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="after").tolist() == [size] * 3
    hvd.shutdown()


def test_communicators_are_refused(with_mpi: dict[str, str]) -> None:
    run_under_mpi(_opens_a_communicator, 2, env=with_mpi, timeout_s=RUN_TIMEOUT_S)


def _dies(rank: int, size: int) -> None:
    import horovod.torch as hvd

    import paceline.torch  # noqa: F401  hands the option on

    hvd.init()
    handle = 0
    for step in range(1000000):
        handle = hvd.allreduce_async(torch.ones(100003), name="gradient")
        if rank == 1 and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.synchronize(handle)


def test_a_rank_that_dies_ends_the_others(with_mpi: dict[str, str]) -> None:
    with pytest.raises(RankFailed, match=r"rank 1 .*signal 9"):
        env = {**with_mpi, "PACELINE_COLLECTIVE": "linear"}
        run_under_mpi(_dies, 3, env=env, timeout_s=RUN_TIMEOUT_S)


def _differ(rank: int, size: int) -> None:
    os.environ["PACELINE_COLLECTIVE"] = "ring" if rank == 0 else "horovod"
    import horovod.torch as hvd

    import paceline.torch  # noqa: F401  hands the option on

    hvd.init()
    hvd.allreduce(torch.ones(3), name="gradient")


def test_ranks_that_choose_differently(with_mpi: dict[str, str]) -> None:
    with pytest.raises(RankFailed, match=r"PACELINE_COLLECTIVE: ring on rank 0; gloo \(default\) on rank 1"):
        run_under_mpi(_differ, 2, env=with_mpi, timeout_s=RUN_TIMEOUT_S)
