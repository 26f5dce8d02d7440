"""Horovod's library in this process: its framework, the end of its world, its counters."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from paceline.native.prototypes import declare


def ended(library: ctypes.CDLL) -> bool:
    """Return True if the world of `library` has ended: a rank left or was lost, and no rank answers any more."""
    return int(library.horovod_paceline_leaving_heard(None, 0)) < 0


def library_name(library: ctypes.CDLL) -> str:
    """Return the framework of `library`: "torch" or "tensorflow"."""
    return "torch" if "torch" in Path(library._name).parts[-2] else "tensorflow"


def counters(library: str) -> dict[str, int]:
    """Return sums since the start of this process: coordination_rounds, messages, tensors, bytes.

    `library` is "torch" or "tensorflow", whose Horovod must be loaded. A coordination round is one exchange between
    the background threads of all ranks; a message is one executed collective, into which tensors may be merged.
    """
    found: dict[str, int] | None = read(loaded(library), "counters")
    assert found is not None
    return found


def read(library: ctypes.CDLL, entry: str, *of: Any) -> dict[str, Any] | None:
    """Return the fields that an entry point reports for `of`; None if there is no such thing."""
    text = getattr(library, f"horovod_paceline_{entry}")(*of)
    return None if text is None else json.loads(text)


def loaded(library: str) -> ctypes.CDLL:
    """Return the shared library of Horovod for "torch" or "tensorflow". Raises ValueError if it is not loaded."""
    module = sys.modules.get(f"horovod.{library}.mpi_ops")
    if module is None:
        raise ValueError(f"horovod.{library} is not loaded in this process: import it and call init() first")
    basics: Any = module._basics
    return declare(basics.MPI_LIB_CTYPES)
