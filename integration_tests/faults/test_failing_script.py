"""A rank whose script fails: the errors of the others name it and its error, however it leaves.

Before, their error was Horovod's "has been shut down", which names no rank; in a second world of the same processes,
such as after an elastic reset, until 1 December 2026, and partial exchanges went on without the rank, without an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.support.more import more
from integration_tests.support.processes import PACELINE, finished, written

_SCRIPT = """
import sys
import paceline.torch as hvd
import torch

def train():
    for step in range(100):
        if step == 3 and hvd.rank() == 1:
            {fails}
        hvd.allreduce(torch.ones(3), name="gradient")

{before}
hvd.init()
try:
    train()
except hvd.HorovodInternalError as error:
    print("HEARD", hvd.rank(), error, flush=True)
    raise
{ends}
"""
_WORLD = "hvd.init()\nhvd.allreduce(torch.ones(3), name='gradient')\nhvd.shutdown()"
_FINALLY = "finally:\n    hvd.shutdown()"


@pytest.mark.parametrize(
    ("before", "fails", "ends", "error"),
    [
        pytest.param("", "raise ValueError('no data')", "", "ValueError: no data (", id="exception"),
        more("", "raise ValueError('no data')", _FINALLY, "ValueError: no data (", id="exception-finally"),
        more("", "sys.exit(3)", "", "SystemExit: 3", id="exit"),
        pytest.param("", "quit(3)", "", "SystemExit: 3", id="quit"),
        pytest.param("", "sys.exit(3)", _FINALLY, "SystemExit: 3", id="exit-finally"),
        pytest.param(_WORLD, "raise ValueError('no data')", "", "ValueError: no data (", id="second-world"),
        more(_WORLD, "sys.exit(3)", "", "SystemExit: 3", id="exit-second-world"),
    ],
)
def test_other_ranks_name_the_rank_and_its_error(
    before: str, fails: str, ends: str, error: str, tmp_path: Path
) -> None:
    script = written(tmp_path, _SCRIPT.format(before=before, fails=fails, ends=ends))
    done = finished(*PACELINE, "run", "-np", "2", sys.executable, script)
    assert done.returncode != 0
    heard = [line for line in done.stdout.splitlines() if "HEARD 0" in line]
    assert len(heard) == 1, done.stdout + done.stderr
    assert f"Rank 1 could not go on: its script failed: {error}" in heard[0]


_PARTIAL = """
import paceline.torch as hvd
import torch

def train(steps, failing=-1):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), exchange="majority")
    for step in range(steps):
        if step == failing and hvd.rank() == 1:
            raise ValueError("no data")
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

for _ in range(2):
    hvd.init()
    train(3)
    hvd.shutdown()
hvd.init()
try:
    train(2000, failing=3)
except hvd.HorovodInternalError as error:
    print("HEARD", hvd.rank(), error, flush=True)
    raise
"""


def test_partial_exchange_of_a_third_world_does_not_go_on_without_the_rank(tmp_path: Path) -> None:
    done = finished(*PACELINE, "run", "-np", "3", sys.executable, written(tmp_path, _PARTIAL))
    assert done.returncode != 0
    heard = [line for line in done.stdout.splitlines() if "HEARD" in line]
    assert len(heard) == 2, done.stdout + done.stderr
    assert all("Rank 1 could not go on: its script failed: ValueError: no data (" in line for line in heard)
