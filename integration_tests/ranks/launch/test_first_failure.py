"""`paceline run` and ranks that fail: what a user sees, and the exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration_tests.support.more import more

CRASH = """
import horovod.torch as hvd, torch
hvd.init()
if hvd.rank() == 1:
    1 / 0
hvd.allreduce(torch.ones(2), name="x")
"""
USERS = """
import paceline.torch as hvd, torch
hvd.init()
hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), exchange="pipelinde")
"""
KILLED = """
import os, signal
import horovod.torch as hvd
hvd.init()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.barrier()
"""
ENDLESS = """
import time
print("running", flush=True)
time.sleep(600)
"""


def start(folder: Path, text: str, **streams: int) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "paceline.launch.cli", "run", "-np", "2", sys.executable, "train.py"]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, text=True, cwd=folder, env=environ, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=streams.get("stdout", subprocess.PIPE), stderr=streams.get("stderr", subprocess.PIPE),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        more(
            CRASH,
            "Rank 1 failed first: ZeroDivisionError: division by zero",
            "failed: rank 0. The output",
            id="crash",
        ),
        pytest.param(USERS, "line 4: exchange='pipelinde' is not known", "mean pipelined?", id="user's error"),
        pytest.param(KILLED, "Rank 1 failed first, with exit code 137: ended by SIGKILL", "memory", id="killed"),
    ],
)
def test_first_failure_is_said_in_two_lines_at_the_end(tmp_path: Path, text: str, problem: str, remedy: str) -> None:
    done = start(tmp_path, text)
    _, err = done.communicate(timeout=300)
    assert done.returncode == 1, err
    first, second = err.splitlines()[-2:]
    assert first.startswith("Error: Rank")
    assert problem in first
    assert remedy in second
    assert "run_commandline" not in err, "horovodrun's own traceback"
    if text is USERS:
        assert "Traceback" not in err
        assert err.count("is not known") == 1
        assert first.startswith(("Error: Ranks 0, 1: ", "Error: Rank 0: ", "Error: Rank 1: "))


def test_interrupted_run_ends_with_130(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        done = start(tmp_path, ENDLESS, stdout=log.fileno(), stderr=log.fileno())
    limit = time.monotonic() + 150
    while (tmp_path / "log").read_text().count("running") < 2:
        assert time.monotonic() < limit and done.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.1)
    done.send_signal(signal.SIGINT)
    assert done.wait(150) == 130
    assert "run_commandline" not in (tmp_path / "log").read_text()


def test_adapter_without_its_framework_says_so_in_two_lines(tmp_path: Path) -> None:
    hide = "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *p: None if n == 'torch' else f(n, *p)"
    done = subprocess.run(
        [sys.executable, "-c", f"{hide}\nimport paceline.torch"], capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 1
    problem, remedy = done.stderr.splitlines()
    assert problem.startswith("Paceline: Error in <string>, line 2: torch is not installed for ")
    assert remedy.startswith("Paceline: Run `pip install ") and "paceline[" not in remedy
    assert "torch" in remedy and remedy.endswith("`, then `paceline horovod install`.")
