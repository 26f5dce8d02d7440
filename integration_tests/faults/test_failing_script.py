"""A rank whose script fails: the errors of the others name it and its error, however it leaves.

Before, their error was Horovod's "has been shut down", which names no rank.
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

hvd.init()
try:
    train()
except hvd.HorovodInternalError as error:
    print("HEARD", hvd.rank(), error, flush=True)
    raise
{ends}
"""
_FINALLY = "finally:\n    hvd.shutdown()"


@pytest.mark.parametrize(
    ("fails", "ends", "error"),
    [
        pytest.param("raise ValueError('no data')", "", "ValueError: no data (", id="exception"),
        more("raise ValueError('no data')", _FINALLY, "ValueError: no data (", id="exception-finally"),
        more("sys.exit(3)", "", "SystemExit: 3", id="exit"),
        pytest.param("sys.exit(3)", _FINALLY, "SystemExit: 3", id="exit-finally"),
    ],
)
def test_other_ranks_name_the_rank_and_its_error(fails: str, ends: str, error: str, tmp_path: Path) -> None:
    script = written(tmp_path, _SCRIPT.format(fails=fails, ends=ends))
    done = finished(*PACELINE, "run", "-np", "2", sys.executable, script)
    assert done.returncode != 0
    heard = [line for line in done.stdout.splitlines() if "HEARD 0" in line]
    assert len(heard) == 1, done.stdout + done.stderr
    assert f"Rank 1 could not go on: its script failed: {error}" in heard[0]
