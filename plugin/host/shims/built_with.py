"""What Horovod's libraries were compiled with, without loading one: that takes a framework, seconds of it."""

from __future__ import annotations

import functools
import json
from pathlib import Path


@functools.cache
def known(part: str) -> bool | None:
    """Whether `part` ("mpi", "gloo", "nccl", "ddl", "ccl") was compiled in; None where the build does not tell."""
    try:
        written = json.loads((Path(__file__).parents[1] / "metadata.json").read_text())
    except (OSError, ValueError):
        return None
    value = written.get(f"built_with_{part}")
    return None if value is None else value == "TRUE"
