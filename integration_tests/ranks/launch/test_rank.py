"""`paceline rank`, started once per task as schedulers do: the tasks become ranks that train, and end together."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from integration_tests.support import tasks
from integration_tests.support.more import first_of, more
from integration_tests.support.ranks import ROOT

SCRIPT = ROOT / "integration_tests" / "support" / "rank_script.py"
PACELINE = [sys.executable, "-m", "paceline.launch.cli", "rank"]
LIMIT_S = 90.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


def wait_for_listener(port: int) -> None:
    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < end_s, f"nobody listens on {port}"
            time.sleep(0.1)


class Job:
    """The tasks of one job on this machine; `after_s` is the delay of a rank's task after the others."""

    def __init__(
        self,
        scheduler: str,
        size: int,
        arguments: Sequence[str] = (),
        options: Sequence[str] = (),
        port: int = 0,
        after_s: dict[int, float] | None = None,
        environ: Callable[[int], dict[str, str]] = lambda rank: {},
        command: Sequence[str | Path] = (sys.executable, SCRIPT),
    ) -> None:
        variables, flags = tasks.TASKS[scheduler]
        self.port = port or free_port()
        self.tasks: list[subprocess.Popen[str]] = []
        # A different number for each job, as schedulers assign: tests may run at the same time.
        number = str(self.port)
        after = after_s or {}
        begin_s = time.monotonic()
        started: dict[int, subprocess.Popen[str]] = {}
        for rank in sorted(range(size), key=lambda rank: after.get(rank, 0.0)):
            time.sleep(max(0.0, begin_s + after.get(rank, 0.0) - time.monotonic()))
            own = variables(rank, size)
            jobs = ("SLURM_JOB_ID", "PMIX_NAMESPACE", "LSB_JOBID", "PMI_JOBID", "TORCHELASTIC_RUN_ID")
            own |= {name: number for name in jobs if name in own or (name == "PMI_JOBID" and "PMI_RANK" in own)}
            words = flags.format(rank=rank, size=size, port=self.port).split()
            started[rank] = subprocess.Popen(
                [*PACELINE, *words, *options, "--", *command, *arguments],
                env={
                    **tasks.without_scheduler(dict(os.environ)),
                    "CUDA_VISIBLE_DEVICES": "",
                    "OMP_NUM_THREADS": "1",
                    **own,
                    **environ(rank),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self.tasks = [started[rank] for rank in range(size)]

    def ends(self) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of each task."""
        found: list[tuple[int, str, str]] = []
        try:
            for task in self.tasks:
                output, errors = task.communicate(timeout=LIMIT_S)
                found.append((task.returncode, output, errors))
        except subprocess.TimeoutExpired as error:
            raise AssertionError(
                f"Task {len(found)} does not end: {error.stderr!r}. Those before it: {found}"
            ) from error
        finally:
            for task in self.tasks:
                task.kill()
        return found


def reports(ends: Sequence[tuple[int, str, str]]) -> list[dict[str, object]]:
    assert [code for code, _, _ in ends] == [0] * len(ends), "\n".join(errors for _, _, errors in ends)
    return [json.loads(re.findall(r"REPORT (\{.*\})", output)[0]) for _, output, _ in ends]


@pytest.mark.parametrize("scheduler", first_of(tasks.TASKS, "slurm", "openmpi", "kubernetes"))
def test_tasks_of_every_scheduler_become_ranks_that_reduce(scheduler: str) -> None:
    found = reports(Job(scheduler, 2).ends())
    assert [(one["rank"], one["size"], one["local_rank"], one["local_size"]) for one in found] == [
        (0, 2, 0, 2),
        (1, 2, 1, 2),
    ]
    assert {(one["cross_size"], one["iface"]) for one in found} == {(1, "lo")}


def test_options_reach_the_ranks_and_rank_0_may_be_late() -> None:
    job = Job("slurm", 3, options=["--fusion", "optimal"], after_s={0: 6.0})
    ends = job.ends()
    assert {one["fusion"] for one in reports(ends)} == {"optimal"}
    assert "fusion=optimal (--fusion)" in ends[0][2]
    assert "waits for rank 0 since 5 s" in ends[1][2]


@pytest.mark.parametrize(
    ("arguments", "code", "how"),
    [
        (["raise", "1"], 1, "failed first: ValueError: rank failed on purpose ({script}, line "),
        more(["exit", "1", "37"], 37, "failed first, with exit code 37."),
        (["kill", "1"], 137, "failed first, with exit code 137: ended by SIGKILL."),
    ],
    ids=["raises", "exits", "is killed"],
)
def test_when_one_rank_fails_all_end_and_it_is_named(arguments: list[str], code: int, how: str) -> None:
    ends = Job("torchrun", 3, arguments).ends()
    assert [one for one, _, _ in ends] == [code] * 3, ends
    for _, _, errors in ends:
        assert f"Rank 1 {how.format(script=SCRIPT)}" in " ".join(errors.split())
    if arguments[0] == "raise":
        assert "Traceback of rank 1:" in ends[0][2]
        assert "ValueError: rank failed on purpose" in ends[0][2]
        assert "ValueError: rank failed on purpose" in ends[1][2]


def test_a_rank_that_ends_its_script_before_the_others_is_named() -> None:
    ends = Job("torchrun", 3, ["leave", "1"]).ends()
    assert [code for code, _, _ in ends] == [1, 0, 1], ends
    for rank in (0, 2):
        said = " ".join(ends[rank][2].split())
        assert "Rank 1 ended its script while ranks 0, 2 go on: uneven data." in said


@pytest.mark.parametrize("killed", [0, more(1)])
def test_when_a_whole_task_is_killed_its_command_and_all_others_end(killed: int, tmp_path: Path) -> None:
    job = Job("hydra", 2, ["wait", str(killed), str(tmp_path / "pid")])
    end_s = time.monotonic() + LIMIT_S
    while not (tmp_path / "pid").exists() and time.monotonic() < end_s:
        time.sleep(0.1)
    assert (tmp_path / "pid").read_text() == str(job.tasks[killed].pid)
    job.tasks[killed].kill()
    ends = job.ends()  # within its limit, though the commands would sleep for two minutes
    assert ends[killed][0] == -signal.SIGKILL
    assert ends[1 - killed][0] not in (0, -signal.SIGKILL)
    said = ends[1 - killed][2]
    assert ("it lost rank 0" if killed == 0 else "Rank 1 is gone") in said, said


def test_signals_pass_through_to_the_command() -> None:
    script = "import signal, sys, time\ndef stop(*_): print('saved', flush=True); sys.exit(3)\n"
    script += "signal.signal(signal.SIGUSR1, stop); print('ready', flush=True); time.sleep(60)"
    job = Job("flags", 1, command=[sys.executable, "-c", script])
    (task,) = job.tasks
    assert task.stdout is not None
    assert task.stdout.readline() == "ready\n"
    task.send_signal(signal.SIGUSR1)
    ((code, output, _),) = job.ends()
    assert (code, output) == (3, "saved\n")


def test_a_rank_that_runs_on_after_rank_0_has_a_limit() -> None:
    script = "import os, time; time.sleep(100 if os.environ['HOROVOD_RANK'] == '1' else 0)"
    ends = Job("flags", 2, options=["--stay", "1"], command=[sys.executable, "-c", script]).ends()
    assert [code for code, _, _ in ends] == [124, 124], ends
    for _, _, errors in ends:
        assert "still runs 1 s after rank 0 has ended." in " ".join(errors.split())


@pytest.mark.more
def test_two_jobs_on_one_port_are_both_notified() -> None:
    port = free_port()
    first = Job("flags", 2, ["wait", "5", "none"], port=port)
    try:
        wait_for_listener(port)
        second = Job("slurm", 2, options=["--rendezvous", f"localhost:{port}", "--wait", "30"], after_s={1: 1.0})
        ends = second.ends()
    finally:
        for task in first.tasks:
            task.terminate()
        first.ends()
    assert [code for code, _, _ in ends] == [2, 2], ends
    assert f"cannot listen on port {port}" in ends[0][2]
    assert "belongs to another job" in ends[1][2]


@pytest.mark.more
def test_another_secret_is_kept_out() -> None:
    job = Job("flags", 2, options=["--wait", "20"], environ=lambda rank: {"_HOROVOD_SECRET_KEY": f"secret {rank}"})
    ends = job.ends()
    assert [code for code, _, _ in ends] == [2, 2]
    assert "Missing: rank 1." in ends[0][2]
    assert "another _HOROVOD_SECRET_KEY" in " ".join(ends[1][2].split())
    assert "another _HOROVOD_SECRET_KEY" in " ".join(ends[0][2].split()), "rank 0 names the refused task"


@pytest.mark.more
def test_numbers_with_holes() -> None:
    job = Job("slurm", 3, options=["--wait", "8"], environ=lambda rank: {"SLURM_PROCID": str(max(rank, 2 * rank - 1))})
    ends = job.ends()
    assert [code for code, _, _ in ends] == [2, 2, 2]
    assert "rank 3 of 3 cannot be" in ends[2][2]
    assert "Of 3 ranks 2 have come within 8 s. Missing: rank 2." in " ".join(ends[0][2].split())


def test_a_command_that_is_not_there() -> None:
    ends = Job("flags", 2, command=["no-such-program"]).ends()
    assert [code for code, _, _ in ends] == [2, 2]
    assert "no-such-program cannot be started" in ends[0][2]


def test_dry_run_prints_variables_and_starts_nothing() -> None:
    ends = Job("openmpi", 2, options=["--dry-run", "--exchange", "pipelined"]).ends()
    for rank, (code, output, _) in enumerate(ends):
        assert code == 0
        assert {f"HOROVOD_RANK={rank}", "HOROVOD_SIZE=2", "HOROVOD_CONTROLLER=gloo"} <= set(output.splitlines())
        assert "PACELINE_EXCHANGE=pipelined" in output.splitlines()
        assert f"# rank {rank} of 2 on {socket.gethostname()}, as Open MPI (mpirun) says" in output
        assert "# agreed with the other tasks at the start: HOROVOD_HOSTNAME" in output
