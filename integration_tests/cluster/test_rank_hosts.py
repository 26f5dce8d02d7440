"""`paceline rank` over two emulated hosts: each host is told apart, and so is a name that leads astray."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import tasks
from integration_tests.support.ranks import ROOT
from paceline.examples.benchmarks.cluster import Cluster

SCRIPT = ROOT / "integration_tests" / "support" / "rank_script.py"
PACELINE = [sys.executable, "-m", "paceline.launch.cli", "rank"]
QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(hosts=2) as cluster:
        yield cluster


def start(cluster: Cluster, host: int, variables: dict[str, str], words: Sequence[str]) -> subprocess.Popen[Any]:
    return cluster.popen(
        [*PACELINE, *words],
        host=host,
        env={**tasks.without_scheduler(dict(os.environ)), **QUIET, **variables},
        stdout=-1,
        stderr=-1,
        text=True,
    )


def ends(processes: Sequence[subprocess.Popen[Any]]) -> list[tuple[int, str, str]]:
    found = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=90)
            found.append((process.returncode, output, errors))
    finally:
        for process in processes:
            process.kill()
    return found


def of_slurm(rank: int, local_rank: int, size: int, job: int) -> dict[str, str]:
    return {
        **tasks.slurm(rank, size),
        "SLURM_JOB_ID": str(job),
        "SLURM_LOCALID": str(local_rank),
        "SLURM_STEP_NODELIST": "host[0-1]",
    }


def test_ranks_on_two_hosts_meet_over_the_network(cluster: Cluster) -> None:
    command = ["--", sys.executable, str(SCRIPT)]
    found = ends([start(cluster, rank // 2, of_slurm(rank, rank % 2, 3, 1), command) for rank in range(3)])
    assert [code for code, _, _ in found] == [0, 0, 0], found
    reports = [json.loads(re.findall(r"REPORT (\{.*\})", output)[0]) for _, output, _ in found]
    places = [tuple(one[name] for name in ("host", "local_rank", "local_size", "cross_size")) for one in reports]
    assert places == [("host0", 0, 2, 2), ("host0", 1, 2, 1), ("host1", 0, 1, 2)]
    # Rank 1 met rank 0 over loopback, but must talk to rank 2.
    assert {one["iface"] for one in reports} == {"eth0"}


def test_a_name_that_leads_to_loopback_on_another_host_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1 localhost host0\n")
    words = f"--rank 1 --size 2 --rendezvous host0:29411 -- {sys.executable} {SCRIPT}"
    astray = f"mount --bind {tmp_path}/hosts /etc/hosts && exec {' '.join(PACELINE)} {words}"
    lost = cluster.popen(
        ["unshare", "--mount", "sh", "-c", astray],
        host=1,
        env={**os.environ, **QUIET},
        stdout=-1,
        stderr=-1,
        text=True,
    )
    ((code, _, errors),) = ends([lost])
    assert code == 2
    assert "host0 resolves to loopback on this host, host1" in errors
    assert "--rendezvous ADDRESS:PORT" in errors


def test_a_host_that_falls_silent_is_missed(cluster: Cluster) -> None:
    command = ["--", sys.executable, str(SCRIPT), "wait", "5", "none"]
    running = [start(cluster, rank, of_slurm(rank, 0, 2, 2), command) for rank in range(2)]
    assert running[0].stdout is not None
    assert "REPORT" in running[0].stdout.readline()
    # No goodbye comes through a link that is down.
    tag = cluster.tag
    subprocess.run(["ip", "-n", f"{tag}-host1", "link", "set", "eth0", "down"], check=True, timeout=10)
    try:
        (code, _, errors), _ = ends(running)
    finally:
        subprocess.run(["ip", "-n", f"{tag}-host1", "link", "set", "eth0", "up"], check=True, timeout=10)
    assert code != 0
    assert "Rank 1 on host1 is gone" in errors
