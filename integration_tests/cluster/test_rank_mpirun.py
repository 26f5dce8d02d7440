"""`paceline rank` under real MPI launchers, on one host and on two. Skipped where they are not installed."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator

import pytest

from integration_tests.support import tasks
from integration_tests.support.ranks import ROOT
from paceline.examples.benchmarks.cluster import Cluster

SCRIPT = ROOT / "integration_tests" / "support" / "rank_script.py"
RANK = [sys.executable, "-m", "paceline.launch.cli", "rank"]
QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
# Open MPI refuses to be run by root unless it is told twice that this is meant, and more ranks than processors.
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}

# Launcher -> how it is told of two ranks on each of two hosts, and our table of its variables.
LAUNCHERS = {
    "mpirun.openmpi": ("-np 4 -H host0:2,host1:2", tasks.openmpi),
    "mpiexec.hydra": ("-n 4 -hosts host0:2,host1:2", tasks.hydra),
}
PRESENT = [pytest.param(name, marks=pytest.mark.needs(name)) for name in LAUNCHERS]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(hosts=2) as cluster:
        yield cluster


def environment() -> dict[str, str]:
    return {**QUIET, **AS_ROOT}


def ranks(output: str) -> list[tuple[object, ...]]:
    found = [json.loads(text) for text in re.findall(r"REPORT (\{.*\})", output)]
    found.sort(key=lambda one: one["rank"])
    return [tuple(one[name] for name in ("rank", "local_rank", "local_size", "cross_size", "host")) for one in found]


@pytest.mark.parametrize("launcher", PRESENT)
def test_our_table_of_variables_is_what_the_launcher_sets(cluster: Cluster, launcher: str) -> None:
    done = cluster.run([launcher, "-n", "2", "env"], env=environment(), timeout_s=60)
    assert done.returncode == 0, done.stderr
    table = LAUNCHERS[launcher][1](0, 2)
    set_by_it = {line.partition("=")[0] for line in done.stdout.splitlines()} - set(os.environ)
    assert set(table) <= set_by_it


@pytest.mark.timeout(200)
@pytest.mark.parametrize("launcher", PRESENT)
def test_tasks_on_one_host(cluster: Cluster, launcher: str) -> None:
    words = [launcher, "-n", "2", *RANK, "--", sys.executable, str(SCRIPT)]
    done = cluster.run(words, env=environment(), timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert ranks(done.stdout) == [(0, 0, 2, 1, "host0"), (1, 1, 2, 1, "host0")]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("launcher", PRESENT)
def test_tasks_on_two_hosts(cluster: Cluster, launcher: str) -> None:
    flags = LAUNCHERS[launcher][0].split()
    # Hydra tells its tasks neither hosts nor a number of the job.
    options = ["--rendezvous", "host0:29433"] if "hydra" in launcher else []
    words = [launcher, *flags, *RANK, *options, "--", sys.executable, str(SCRIPT)]
    done = cluster.run(words, env=environment(), timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert ranks(done.stdout) == [
        (0, 0, 2, 2, "host0"),
        (1, 1, 2, 2, "host0"),
        (2, 0, 2, 2, "host1"),
        (3, 1, 2, 2, "host1"),
    ]


@pytest.mark.more
@pytest.mark.timeout(200)
@pytest.mark.parametrize("launcher", PRESENT[:1])
def test_the_example_trains_on_two_hosts(cluster: Cluster, launcher: str) -> None:
    digits = [sys.executable, str(ROOT / "examples" / "digits_torch.py"), "--epochs", "8"]
    words = [launcher, *LAUNCHERS[launcher][0].split(), *RANK, "--fusion", "optimal", "--", *digits]
    done = cluster.run(words, env=environment(), timeout_s=180)
    assert done.returncode == 0, done.stderr
    print(done.stdout, done.stderr)
    (result,) = (json.loads(text) for text in re.findall(r"RESULT (\{.*\})", done.stdout))
    assert result["equal"]
    assert result["accuracy"] > 0.9


@pytest.mark.timeout(200)
@pytest.mark.parametrize("launcher", PRESENT)
def test_a_failed_rank_is_named_before_the_launcher_ends_the_others(cluster: Cluster, launcher: str) -> None:
    words = [launcher, "-n", "2", *RANK, "--", sys.executable, str(SCRIPT), "raise", "1"]
    done = cluster.run(words, env=environment(), timeout_s=120)
    assert done.returncode == 1
    said = " ".join((done.stdout + done.stderr).split())
    assert "Rank 1 failed first: ValueError: rank failed on purpose (" in said
    assert "Traceback of rank 1:" in said
