"""`paceline run`: a dry run starts nothing. What is said of failures: test_first_failure.py."""

from __future__ import annotations

import subprocess
import sys

RUN = [sys.executable, "-m", "paceline.launch.cli", "run"]


def test_a_dry_run_prints_variables_and_command() -> None:
    words = [*RUN, "--dry-run", "--fusion", "optimal", "-np", "2", "sh", "-c", "echo 'never said'"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    variables, command = done.stdout.splitlines()
    assert variables == "PACELINE_FUSION=optimal"
    assert command.endswith("""-np 2 sh -c 'echo '"'"'never said'"'"''""")
