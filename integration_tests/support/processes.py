"""Commands and scripts of tests as processes of their own: without accelerators, with one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
PACELINE = (sys.executable, "-m", "paceline.launch.cli")
HOROVODRUN = (str(Path(sys.executable).with_name("horovodrun")), "-np", "2", sys.executable)


def finished(
    *words: str | Path, folder: Path | None = None, timeout_s: float = 300, without: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a command to its end and return its exit code and output.

    Its variables are `env` and those of this process whose names do not begin with one of `without`.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=timeout_s, cwd=folder,
        env={**inherited, **QUIET, **(env or {})},
    )  # fmt: skip


def written(folder: Path, text: str) -> Path:
    """Write a script into `folder` and return its path."""
    path = folder / "script.py"
    path.write_text(text)
    return path
