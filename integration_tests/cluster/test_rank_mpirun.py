"""`paceline rank` under real MPI launchers, on one host and on two. Skipped where they are not installed."""

from __future__ import annotations

import os

import pytest

from integration_tests.support import tasks
from integration_tests.support.cluster import DIGITS, PACELINE_RANK, QUIET, RANK_SCRIPT, digits_result, reports
from paceline.examples.benchmarks.cluster import Cluster

# Open MPI refuses to run as root unless two variables allow it, and to start more ranks than processors.
ENVIRONMENT = {
    **QUIET,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}

# Launcher -> its options for two ranks on each of two hosts, and our table of its variables.
LAUNCHERS = {
    "mpirun.openmpi": ("-np 4 -H host0:2,host1:2", tasks.openmpi),
    "mpiexec.hydra": ("-n 4 -hosts host0:2,host1:2", tasks.hydra),
}
PRESENT = [pytest.param(name, marks=pytest.mark.needs(name)) for name in LAUNCHERS]


def ranks(output: str) -> list[tuple[object, ...]]:
    return reports(output, "rank", "local_rank", "local_size", "cross_size", "host")


@pytest.mark.parametrize("launcher", PRESENT)
def test_our_table_of_variables_is_what_the_launcher_sets(two_hosts: Cluster, launcher: str) -> None:
    done = two_hosts.run([launcher, "-n", "2", "env"], env=ENVIRONMENT, timeout_s=60)
    assert done.returncode == 0, done.stderr
    table = LAUNCHERS[launcher][1](0, 2)
    set_by_it = {line.partition("=")[0] for line in done.stdout.splitlines()} - set(os.environ)
    assert set(table) <= set_by_it


@pytest.mark.parametrize("launcher", PRESENT)
def test_tasks_on_one_host(two_hosts: Cluster, launcher: str) -> None:
    words = [launcher, "-n", "2", *PACELINE_RANK, "--", *RANK_SCRIPT]
    done = two_hosts.run(words, env=ENVIRONMENT, timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert ranks(done.stdout) == [(0, 0, 2, 1, "host0"), (1, 1, 2, 1, "host0")]


@pytest.mark.parametrize("launcher", PRESENT)
def test_tasks_on_two_hosts(two_hosts: Cluster, launcher: str) -> None:
    flags = LAUNCHERS[launcher][0].split()
    # Hydra passes neither hosts nor a job number to its tasks.
    options = ["--rendezvous", "host0:29433"] if "hydra" in launcher else []
    words = [launcher, *flags, *PACELINE_RANK, *options, "--", *RANK_SCRIPT]
    done = two_hosts.run(words, env=ENVIRONMENT, timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert ranks(done.stdout) == [
        (0, 0, 2, 2, "host0"),
        (1, 1, 2, 2, "host0"),
        (2, 0, 2, 2, "host1"),
        (3, 1, 2, 2, "host1"),
    ]


@pytest.mark.more
@pytest.mark.parametrize("launcher", PRESENT[:1])
def test_the_example_trains_on_two_hosts(two_hosts: Cluster, launcher: str) -> None:
    flags = LAUNCHERS[launcher][0].split()
    words = [launcher, *flags, *PACELINE_RANK, "--fusion", "optimal", "--", *DIGITS, "--epochs", "8"]
    done = two_hosts.run(words, env=ENVIRONMENT, timeout_s=180)
    assert done.returncode == 0, done.stderr
    assert digits_result(done.stdout)["accuracy"] > 0.9


@pytest.mark.parametrize("launcher", PRESENT)
def test_a_failed_rank_is_named_before_the_launcher_ends_the_others(two_hosts: Cluster, launcher: str) -> None:
    words = [launcher, "-n", "2", *PACELINE_RANK, "--", *RANK_SCRIPT, "raise", "1"]
    done = two_hosts.run(words, env=ENVIRONMENT, timeout_s=120)
    assert done.returncode == 1
    said = " ".join((done.stdout + done.stderr).split())
    assert "Rank 1 failed first: ValueError: rank failed on purpose (" in said
    assert "Traceback of rank 1:" in said
