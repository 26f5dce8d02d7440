"""The script that `paceline template slurm` writes, submitted to a real Slurm on two emulated hosts."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.support import slurm as support
from integration_tests.support.cluster import DIGITS, digits_result
from integration_tests.support.slurm import Slurm
from integration_tests.support.templates import made

PROGRAMS = Path(sys.executable).parent
LIMIT_S = 150.0

# Trains until the world has grown to four ranks, then until it is back at two.
ELASTIC = """
import time
import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(3, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

@hvd.elastic.run
def train(state):
    while not state.grown or hvd.size() > 2:
        state.step += 1
        state.grown = state.grown or hvd.size() == 4
        if hvd.rank() == 0 and state.step % 5 == 0:
            print("step", state.step, "of", hvd.size(), "ranks", flush=True)
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        time.sleep(0.2)
        state.commit()
    print("ended with", hvd.size(), flush=True)

train(hvd.elastic.TorchState(model, optimizer, step=0, grown=False))
"""

pytestmark = [*support.MARKS, pytest.mark.timeout(400)]


class Submitted:
    """A job of two ranks on each of its hosts, from the template to its log."""

    def __init__(self, slurm: Slurm, folder: Path, *words: str, options: tuple[str, ...] = (), nodes: int = 2) -> None:
        self._slurm, self._folder = slurm, folder
        size = ("--nodes", str(nodes), "--ranks-per-node", "2", "--name", "digits", "--time", "10m")
        # On a busy machine ranks call init() more than Gloo's 30 s apart.
        variables = "OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= HOROVOD_GLOO_TIMEOUT_SECONDS=120"
        setup = ("--setup", f"export PATH={PROGRAMS}:$PATH {variables}")
        script = made(folder, "slurm", *size, *setup, "--fusion", "optimal", *options, *words)
        self.submitted_s = time.time()
        done = slurm.batch("--parsable", f"--chdir={folder}", script)
        assert done.returncode == 0, done.stderr
        self.number = done.stdout.strip()

    def log(self) -> str:
        path = self._folder / f"digits-{self.number}.out"
        return path.read_text() if path.exists() else ""

    def wait_for(self, what: str, true: Callable[[], bool], limit_s: float = LIMIT_S) -> float:
        """Until `true()`; the seconds that it took."""
        begin_s = time.monotonic()
        while not true():
            assert time.monotonic() < begin_s + limit_s, f"not {what} within {limit_s:g} s:\n{self.log()}"
            time.sleep(0.1)
        return time.monotonic() - begin_s

    def state(self) -> str:
        return self._slurm.state(self.number)

    def ended(self) -> bool:
        return self.state() not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    def trains(self, epoch: int) -> Callable[[], bool]:
        return lambda: f"epoch {epoch}/" in self.log()

    def kill(self, rank: int) -> None:
        """Kill the Python process of a rank, as the kernel does where memory ends."""
        wanted = {f"SLURM_JOB_ID={self.number}".encode(), f"HOROVOD_RANK={rank}".encode()}
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if wanted <= set((place / "environ").read_bytes().split(b"\0")):
                    found.append(int(place.name))
            except OSError:
                pass  # it has ended meanwhile
        assert found
        for pid in found:
            os.kill(pid, signal.SIGKILL)


def test_the_script_trains_the_digits_on_two_hosts(slurm: Slurm, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, *DIGITS, "--epochs", "8")
    job.wait_for("in its first steps", job.trains(1))
    print(f"from submission to the first steps: {time.time() - job.submitted_s:.1f} s")
    job.wait_for("ended", job.ended)
    assert job.state() == "COMPLETED", job.log()
    result = digits_result(job.log())
    assert result["accuracy"] > 0.9
    assert result["fusion"]["policy"] == "optimal"


def test_a_killed_rank_ends_the_job_with_the_reason_in_the_log(slurm: Slurm, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, *DIGITS, "--epochs", "4000")
    job.wait_for("in its first steps", job.trains(1))
    job.kill(2)
    taken_s = job.wait_for("ended", job.ended)
    print(f"from the kill to the job's end: {taken_s:.1f} s")
    print(job.log())
    assert job.state() == "FAILED"
    assert "Rank 2 on host1 failed first, with exit code 137: ended by SIGKILL." in " ".join(job.log().split())


def test_a_job_that_failed_is_put_back_into_the_queue_as_often_as_said(slurm: Slurm, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, *DIGITS, "--epochs", "4000", options=("--restarts", "1"))
    job.wait_for("in its first steps", job.trains(1))
    job.kill(1)
    job.wait_for("started again", lambda: job.log().count("epoch 1/4000 step 5/") == 2)
    assert "the job is put back into the queue." in job.log()
    job.kill(3)
    job.wait_for("ended", job.ended)
    assert job.state() == "FAILED"
    said = " ".join(job.log().split())
    assert "Rank 1 on host0 failed first, with exit code 137: ended by SIGKILL." in said
    assert "Rank 3 on host1 failed first, with exit code 137: ended by SIGKILL." in said
    assert job.log().count("the job is put back into the queue.") == 1


def test_a_job_that_is_cancelled_stays_so(slurm: Slurm, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, *DIGITS, "--epochs", "4000", options=("--restarts", "3"))
    job.wait_for("in its first steps", job.trains(1))
    slurm.ask("scancel", job.number)
    job.wait_for("ended", job.ended)
    assert job.state() == "CANCELLED"
    assert "put back" not in job.log()


def test_a_requeue_by_slurm_restarts_the_job(slurm: Slurm, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, *DIGITS, "--epochs", "30", options=("--restarts", "1"))
    job.wait_for("in its first steps", job.trains(1))
    slurm.ask("scontrol", "requeue", job.number)
    job.wait_for("started again", lambda: job.log().count("epoch 1/30 step 5/") == 2)
    job.wait_for("ended", job.ended)
    assert job.state() == "COMPLETED", job.log()
    assert job.log().count("RESULT") == 1


def test_horovodrun_finds_the_hosts_by_scontrol(slurm: Slurm, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, *DIGITS, "--epochs", "2", options=("--start", "horovodrun"))
    job.wait_for("ended", job.ended)
    assert job.state() == "COMPLETED", job.log()
    assert "RESULT" in job.log()


def test_an_elastic_job_grows_and_shrinks_with_jobs_that_are_added_to_it(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ELASTIC)
    job = Submitted(slurm, tmp_path, sys.executable, "train.py", options=("--start", "elastic"), nodes=1)
    job.wait_for("in its first steps", lambda: "of 2 ranks" in job.log())
    (advice,) = re.findall(r"^A machine is added with: sbatch (.*)$", job.log(), re.M)
    added = slurm.batch("--parsable", *shlex.split(advice))
    assert added.returncode == 0, added.stderr
    grown_s = job.wait_for("grown", lambda: "of 4 ranks" in job.log())
    slurm.ask("scancel", added.stdout.strip())
    shrunk_s = job.wait_for("ended", job.ended)
    print(f"from the added job to four ranks: {grown_s:.1f} s, from its end to two and the job's end: {shrunk_s:.1f} s")
    print(job.log())
    assert job.state() == "COMPLETED", job.log()
    assert job.log().count("ended with 2") == 2
