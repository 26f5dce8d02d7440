"""`paceline run`: what it says when a rank fails, and that a dry run starts nothing."""

from __future__ import annotations

import subprocess
import sys

from integration_tests.support.ranks import ROOT

RUN = [sys.executable, "-m", "paceline.launch.cli", "run"]
SCRIPT = ROOT / "integration_tests" / "support" / "rank_script.py"


def test_the_rank_that_failed_first_is_named_at_the_end() -> None:
    words = [*RUN, "-np", "3", sys.executable, str(SCRIPT), "raise", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    account = done.stderr[done.stderr.rindex("The last lines of rank 1:") :]
    assert "ValueError: rank failed on purpose" in account


def test_a_dry_run_prints_variables_and_command() -> None:
    words = [*RUN, "--dry-run", "--fusion", "optimal", "-np", "2", "sh", "-c", "echo 'never said'"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    variables, command = done.stdout.splitlines()
    assert variables == "PACELINE_FUSION=optimal"
    assert command.endswith("""-np 2 sh -c 'echo '"'"'never said'"'"''""")
