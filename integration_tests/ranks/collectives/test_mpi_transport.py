"""Our transport over MPI and what the collectives do with it, under Open MPI. Horovod has no part in this."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from integration_tests.support.mpi import mpirun, needs_open_mpi
from integration_tests.support.ranks import ROOT

PLUGIN = ROOT / "plugin"
SOURCES = (
    Path(__file__).with_name("mpi_rank.cc"),
    *(PLUGIN / "bridge" / "collectives" / name for name in ("engine.cc", "wire.cc")),
    *sorted(PLUGIN.glob("bridge/transport/mpi_*.cc")),
    *(path for room in ("codecs", "collectives", "transport") for path in sorted(PLUGIN.glob(f"core/{room}/*.cc"))),
)
COMPILE_TIMEOUT_S = 900  # takes 15 s on an otherwise idle processor
RUN_TIMEOUT_S = 300
pytestmark = [pytest.mark.more, pytest.mark.timeout(COMPILE_TIMEOUT_S + RUN_TIMEOUT_S), needs_open_mpi]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("mpi") / "mpi_rank"
    flags = [
        "-std=c++17",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-DHAVE_MPI=1",
        f"-I{PLUGIN}",
        f"-I{Path(__file__).parent}",
    ]
    command = ["mpicxx.openmpi", *flags, *map(str, SOURCES), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize(
    ("case", "size"),
    [
        ("values", 2),
        ("values", 3),
        ("values", 4),
        ("window", 3),
        ("messages", 2),
        ("lengths", 2),
        ("tags", 1),
        ("gives_up", 3),
        ("sets", 1),
    ],
)
def test_case(program: Path, case: str, size: int) -> None:
    done = mpirun(size, [program, case], RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stdout


def test_a_rank_that_hangs_is_named_and_the_job_ends(program: Path) -> None:
    done = mpirun(3, [program, "stopped"], RUN_TIMEOUT_S)
    assert done.returncode != 0
    # It names the rank that it waits for itself, which may wait for the one that hangs.
    assert "nothing has moved for 1000 ms while it waits for rank" in done.stdout
    assert "an operation with rank 1 has not ended 1000 ms after it was given up" in done.stdout
    assert "no error" not in done.stdout


def test_a_rank_that_dies_ends_the_others(program: Path) -> None:
    done = mpirun(3, [program, "dies"], RUN_TIMEOUT_S)
    assert done.returncode != 0
    assert "rank 1" in done.stdout and "signal 9" in done.stdout


def test_ranks_with_and_without_collectives_of_ours(program: Path) -> None:
    done = mpirun(2, [program, "alone"], RUN_TIMEOUT_S)
    assert "within 1000 ms. Is PACELINE_COLLECTIVE the same on all ranks?" in done.stdout
