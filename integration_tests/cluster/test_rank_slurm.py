"""`srun paceline rank` under a real Slurm on two emulated hosts. Skipped where Slurm is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.support import slurm as support
from integration_tests.support import tasks
from integration_tests.support.cluster import DIGITS, PACELINE_RANK, QUIET, RANK_SCRIPT, digits_result, reports
from integration_tests.support.slurm import Slurm

pytestmark = [*support.MARKS, pytest.mark.timeout(200)]


def test_our_table_of_variables_is_what_srun_sets(slurm: Slurm) -> None:
    done = slurm.srun("-n4", "env", "-0")
    assert done.returncode == 0, done.stderr
    expected = set(tasks.slurm(0, 4))
    assert {name for name in expected if f"{name}=" in done.stdout} == expected


def test_a_job_of_four_tasks_on_two_hosts(slurm: Slurm) -> None:
    done = slurm.srun("-n4", "-N2", *PACELINE_RANK, "--", *RANK_SCRIPT, environ=QUIET)
    assert done.returncode == 0, done.stderr
    assert reports(done.stdout, "rank", "local_rank", "local_size", "host") == [
        (0, 0, 2, "host0"),
        (1, 1, 2, "host0"),
        (2, 0, 2, "host1"),
        (3, 1, 2, "host1"),
    ]


def test_the_example_trains(slurm: Slurm) -> None:
    words = (*DIGITS, "--epochs", "2")
    done = slurm.srun("-n4", *PACELINE_RANK, "--fusion", "optimal", "--", *words, environ=QUIET, timeout_s=150)
    assert done.returncode == 0, done.stderr
    assert digits_result(done.stdout)["accuracy"] > 0.7


def test_a_failed_rank_ends_the_job_with_its_exit_code(slurm: Slurm) -> None:
    done = slurm.srun("-n4", *PACELINE_RANK, "--", *RANK_SCRIPT, "exit", "3", "37", environ=QUIET)
    assert done.returncode == 37
    assert "Rank 3 on host1 failed first, with exit code 37." in " ".join(done.stderr.split())


def test_a_script_of_sbatch_is_no_task(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {' '.join(PACELINE_RANK)} --dry-run\n")
    done = slurm.batch("-n4", "--wait", "-o", tmp_path / "out", script)
    assert done.returncode == 2, done.stderr
    assert "SLURM_PROCID is set without SLURM_STEP_ID: this is a batch script" in (tmp_path / "out").read_text()
