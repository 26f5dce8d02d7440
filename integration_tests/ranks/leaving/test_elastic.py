"""Unmodified elastic scripts under exchanges that are not synchronous: a lost rank ends a world, not the job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import first_of

SCRIPT = """
import os, pathlib, signal, sys, time
import horovod.torch as hvd
import torch
died = pathlib.Path(sys.argv[1])
hvd.init()
model = torch.nn.Linear(3, 1, bias=False).double()
w = model.weight
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=0.01, momentum=0.9), model.named_parameters())

@hvd.elastic.run
def train(state):
    while state.step < 30:
        optimizer.zero_grad()
        (w * (hvd.rank() + 1.0)).sum().backward()
        if os.environ["HOROVOD_HOSTNAME"] == "127.0.0.1" and state.step == 12 and not died.exists():
            died.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        time.sleep(0.005 * (1 + hvd.rank()))
        state.step += 1
        if state.step % 5 == 0:
            state.commit()

train(hvd.elastic.TorchState(model, optimizer, step=0))
rank, size = hvd.rank(), hvd.size()
hvd.shutdown()
print("ended", rank, size, w[0, 0].item(), flush=True)
"""


@pytest.mark.timeout(150)
@pytest.mark.parametrize("exchange", first_of(("majority", "solo", "local", "pipelined"), "majority"))
def test_the_others_go_on_when_a_rank_is_killed(tmp_path: Path, exchange: str) -> None:
    script, hosts = tmp_path / "train.py", tmp_path / "hosts.sh"
    script.write_text(SCRIPT)
    hosts.write_text("#!/bin/sh\necho localhost:2\necho 127.0.0.1:1\n")
    hosts.chmod(0o755)
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", "3", "--min-np", "2"]
    words += ["--host-discovery-script", str(hosts), "--network-interfaces", "lo"]
    done = subprocess.run(
        [*words, sys.executable, str(script), str(tmp_path / "died")],
        env={**os.environ, "PACELINE_EXCHANGE": exchange, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (tmp_path / "died").exists(), done.stderr
    assert done.returncode == 0, done.stderr
    ended = [line.split()[1:] for line in done.stdout.splitlines() if "ended" in line]
    assert sorted(rank for rank, *_ in ended) == ["0", "1"], done.stdout
    assert {size for _, size, _ in ended} == {"2"}
    assert len({weight for *_, weight in ended}) == 1, done.stdout
