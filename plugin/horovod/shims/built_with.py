"""Parts compiled into Horovod's libraries, without loading one, which would import a framework and take seconds."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path


@functools.cache
def known(part: str) -> bool | None:
    """Return True if `part` ("mpi", "gloo", "nccl", "ddl", "ccl") was compiled in; None if that was not recorded."""
    try:
        found = importlib.util.find_spec("horovod")
        written = json.loads((Path(str(found and found.origin)).parent / "metadata.json").read_text())
    except (OSError, ValueError):
        return None
    value = written.get(f"built_with_{part}")
    return None if value is None else value == "TRUE"
