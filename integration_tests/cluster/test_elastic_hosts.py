"""Elastic jobs over several hosts: all available at once, and a second host that joins later."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.support.cluster import QUIET
from paceline.examples.benchmarks.cluster import Cluster

HOROVODRUN = Path(sys.executable).parent / "horovodrun"

# Trains until the world has the given number of ranks; rank 0 adds the host that joins later.
SCRIPT = """
import os, pathlib, sys, time
import horovod.torch as hvd
import torch

hosts, host, size = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
hvd.init()
model = torch.nn.Linear(3, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

@hvd.elastic.run
def train(state):
    while hvd.size() < size:
        state.step += 1
        if state.step == 3 and hvd.rank() == 0:
            hosts.write_text(hosts.read_text() + host + "\\n")
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        time.sleep(0.2)
        state.commit()
    total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum, name="total").item()
    print("total", total, "on", os.environ["HOROVOD_HOSTNAME"], "over", os.environ["HOROVOD_GLOO_IFACE"])

train(hvd.elastic.TorchState(model, optimizer, step=0))
"""


def run(cluster: Cluster, folder: Path, hosts: str, ranks: int, wanted: int) -> tuple[list[str], str]:
    """Output of the ranks without the rank prefix, and horovodrun's standard error."""
    found, script, discovery = folder / "hosts", folder / "train.py", folder / "discover.sh"
    found.write_text(hosts)
    script.write_text(SCRIPT)
    discovery.write_text(f"#!/bin/sh\ncat {found}\n")
    discovery.chmod(0o755)
    options = f"-np {ranks} --min-np {ranks} --elastic-timeout 60 --host-discovery-script {discovery}".split()
    done = cluster.run(
        [HOROVODRUN, *options, sys.executable, script, found, f"{cluster.names[1]}:1", str(wanted)],
        env={**QUIET, "TF_CPP_MIN_LOG_LEVEL": "2"},
        timeout_s=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition(":")[2] for line in done.stdout.splitlines() if "total" in line]
    return sorted(lines), done.stderr


@pytest.mark.more
def test_job_whose_hosts_are_all_there_uses_the_interface_that_they_share(two_hosts: Cluster, tmp_path: Path) -> None:
    first, second = two_hosts.names
    said, noise = run(two_hosts, tmp_path, f"{first}:1\n{second}:1\n", 2, 2)
    assert said == [f"total 3.0 on {name} over eth0" for name in (first, second)]
    assert "waits up to" not in noise


@pytest.mark.patch("elastic-hosts")
def test_job_that_began_on_one_host_grows_when_another_comes(two_hosts: Cluster, tmp_path: Path) -> None:
    first, second = two_hosts.names
    said, noise = run(two_hosts, tmp_path, f"{first}:2\n", 2, 3)
    assert said == sorted(f"total 6.0 on {name} over eth0" for name in (first, first, second))
    assert f"horovodrun: {first} is the only host so far. Ranks use its interface eth0 (" in noise
