"""`paceline rank` over two emulated hosts: hosts are distinguished, also with a misleading host name."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from integration_tests.support import tasks
from integration_tests.support.cluster import PACELINE_RANK, QUIET, RANK_SCRIPT, reports
from paceline.examples.benchmarks.cluster import Cluster


def start(cluster: Cluster, host: int, variables: dict[str, str], words: Sequence[str]) -> subprocess.Popen[Any]:
    return cluster.popen(
        [*PACELINE_RANK, *words],
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


def test_ranks_on_two_hosts_meet_over_the_network(two_hosts: Cluster) -> None:
    command = ["--", *RANK_SCRIPT]
    found = ends([start(two_hosts, rank // 2, of_slurm(rank, rank % 2, 3, 1), command) for rank in range(3)])
    assert [code for code, _, _ in found] == [0, 0, 0], found
    said = "\n".join(output for _, output, _ in found)
    # Rank 1 connected to rank 0 over loopback, but must send to rank 2.
    assert reports(said, "host", "local_rank", "local_size", "cross_size", "iface") == [
        ("host0", 0, 2, 2, "eth0"),
        ("host0", 1, 2, 1, "eth0"),
        ("host1", 0, 1, 2, "eth0"),
    ]


def test_a_name_that_leads_to_loopback_on_another_host_is_refused(two_hosts: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1 localhost host0\n")
    words = f"--rank 1 --size 2 --rendezvous host0:29411 -- {' '.join(RANK_SCRIPT)}"
    astray = f"mount --bind {tmp_path}/hosts /etc/hosts && exec {' '.join(PACELINE_RANK)} {words}"
    lost = two_hosts.popen(
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


def test_a_host_that_falls_silent_is_missed(two_hosts: Cluster) -> None:
    command = ["--", *RANK_SCRIPT, "wait", "5", "none"]
    running = [start(two_hosts, rank, of_slurm(rank, 0, 2, 2), command) for rank in range(2)]
    assert running[0].stdout is not None
    assert "REPORT" in running[0].stdout.readline()
    # No end of connection arrives through a link that is down.
    tag = two_hosts.tag
    subprocess.run(["ip", "-n", f"{tag}-host1", "link", "set", "eth0", "down"], check=True, timeout=10)
    try:
        (code, _, errors), _ = ends(running)
    finally:
        subprocess.run(["ip", "-n", f"{tag}-host1", "link", "set", "eth0", "up"], check=True, timeout=10)
    assert code != 0
    assert "Rank 1 on host1 is gone" in errors
