"""Wheels in the cache, each with its digest: what is installed is what was built."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from paceline.errors import UserError

DIGESTS = "sha256sums"


def _digest(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def put(wheel: Path, shelf: Path) -> Path:
    """A copy of `wheel` on `shelf`, with its digest."""
    shelf.mkdir(parents=True, exist_ok=True)
    # Others may build the same wheel at the same time: each tells its digest, then puts a whole file in place.
    with (shelf / DIGESTS).open("a") as digests:
        digests.write(f"{_digest(wheel)}  {wheel.name}\n")
    partial = shelf / f".{os.getpid()}.partial"
    shutil.copyfile(wheel, partial)
    partial.replace(shelf / wheel.name)
    return shelf / wheel.name


def found(shelf: Path) -> Path | None:
    """The wheel on `shelf`; None if there is none, or none with a digest. Raises UserError if it is not as it was."""
    if not (shelf / DIGESTS).exists():
        return None
    for wheel in sorted(shelf.glob("horovod-*.whl")):
        check(wheel)
        return wheel
    return None


def check(wheel: Path) -> None:
    """Raise UserError unless `wheel` is what was put there."""
    try:
        known = [line.split()[0] for line in (wheel.parent / DIGESTS).read_text().splitlines() if line.strip()]
        is_known = _digest(wheel) in known
    except OSError:
        is_known = False
    if not is_known:
        raise UserError(
            f"{wheel} is not the wheel that was built and put there: its sha256 is not in {DIGESTS}.",
            "Build it anew: `paceline horovod install --force`.",
        )
