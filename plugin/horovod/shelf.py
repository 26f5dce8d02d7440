"""Wheels in the cache, each in a folder named by its digest, so that the installed wheel is the built one.

Other processes and hosts may add wheels at the same time, also over a network file system. Therefore no process writes
to a file that others read, and a wheel appears atomically.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import UserError

INPUTS = "inputs.json"
# Temporary folders of other processes do not match the digest's pattern.
_PARTIAL, _DIGEST = ".partial-", "[0-9a-f]*"


def digest(wheel: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def put(wheel: Path, shelf: Path, inputs: Mapping[str, Any]) -> Path:
    """Copy `wheel` and its inputs to `shelf`, and remove wheels there that were changed. Returns the copy."""
    shelf.mkdir(parents=True, exist_ok=True)
    for other in _wheels(shelf):
        if digest(other) != other.parent.name:
            shutil.rmtree(other.parent, ignore_errors=True)
    place = shelf / digest(wheel)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=shelf))
    try:
        partial.chmod(0o777 & ~_umask())
        shutil.copyfile(wheel, partial / wheel.name)
        (partial / INPUTS).write_text(json.dumps(inputs, indent=1, sort_keys=True))
        partial.rename(place)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not (place / wheel.name).exists():  # else another process has added the same wheel
            raise
    return place / wheel.name


def found(shelf: Path) -> Path | None:
    """Return the wheel on `shelf`; None if there is none. Raises UserError if it was changed."""
    for wheel in _wheels(shelf):
        check(wheel)
        return wheel
    return None


def alike(shelves: Path, inputs: Mapping[str, Any], without: str) -> Path | None:
    """Return a wheel on any of `shelves` that was built from `inputs`, ignoring the one named `without`; or None."""
    for file in sorted(shelves.glob(f"{_DIGEST}/{_DIGEST}/{INPUTS}")):
        if {**json.loads(file.read_text()), without: None} == {**inputs, without: None}:
            for wheel in file.parent.glob("horovod-*.whl"):
                check(wheel)
                return wheel
    return None


def check(wheel: Path) -> None:
    """Raise UserError if `wheel` was changed."""
    if digest(wheel) != wheel.parent.name:
        raise UserError(
            f"{wheel} is not the wheel that was built and put there: its folder is named by another sha256.",
            "Build it again: `paceline horovod install --force`.",
        )


def _wheels(shelf: Path) -> list[Path]:
    return sorted(shelf.glob(f"{_DIGEST}/horovod-*.whl"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
