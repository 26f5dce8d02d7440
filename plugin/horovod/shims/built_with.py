"""What Horovod's libraries were compiled with, without loading one: that takes a framework, seconds of it."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path


@functools.cache
def known(part: str) -> bool | None:
    """Whether `part` ("mpi", "gloo", "nccl", "ddl", "ccl") was compiled in; None where the build does not tell."""
    try:
        found = importlib.util.find_spec("horovod")
        written = json.loads((Path(str(found and found.origin)).parent / "metadata.json").read_text())
    except (OSError, ValueError):
        return None
    value = written.get(f"built_with_{part}")
    return None if value is None else value == "TRUE"
