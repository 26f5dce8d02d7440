"""Patch gloo-batches: a rank that receives a large message over a slow link sleeps between batches of packets."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from integration_tests.support.cluster import QUIET
from integration_tests.support.debug import debug
from paceline.examples.benchmarks.cluster import Cluster

MIB = 4
MOST_PER_MIB = 150  # in each direction 32 batches; without the patch about 700 in all

RANK = f"""
import threading
from pathlib import Path
import horovod.torch as hvd
import torch

def switches():
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(threading.get_native_id())]
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

hvd.init()
sent = torch.arange({MIB} << 18, dtype=torch.float32) * (hvd.rank() + 1)
for _ in range(2):
    before = switches()
    found = hvd.allreduce(sent, op=hvd.Sum, name="sum")
    made = switches() - before
assert torch.equal(found, 3 * torch.arange({MIB} << 18, dtype=torch.float32))
print(f"{{made / {MIB}}} per MiB")
"""


@pytest.mark.patch("gloo-batches")
def test_a_thread_does_not_wake_up_for_each_packet(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    horovodrun = Path(sys.executable).parent / "horovodrun"
    with Cluster(hosts=2, rate="200mbit") as cluster:
        command: list[str | Path] = [horovodrun, "-np", "2", "-H", cluster.host_list, sys.executable, script]
        ended = cluster.run(command, env={**QUIET, **debug(wake="events")}, timeout_s=60)
    found = [float(number) for number in re.findall(r"([0-9.]+) per MiB", ended.stdout)]
    assert len(found) == 2, ended.stdout + ended.stderr
    assert max(found) < MOST_PER_MIB
