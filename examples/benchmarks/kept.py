"""Results in a file for each case, and the progress of a run, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from paceline.errors import UserError

RUN = "run"  # no case has this name


def now() -> str:
    """Return the time, UTC, as it is stored and compared: "2026-11-23T22:47:03Z"."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class KeptCase:
    """Results of a case, and the command that measured them.

    `begun`: start time, UTC. `machine`: state of the machine at that time (`report.machine`). `took_s`: total duration.
    """

    case: str
    command: str
    begun: str
    took_s: float
    quick: bool
    machine: Mapping[str, Any]
    results: tuple[dict[str, Any], ...]


class Kept:
    """The folder of these files. Methods raise UserError for a folder or file that cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        """Create the folder, before anything is measured."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(self.folder, error.strerror or str(error)) from None
        if not os.access(self.folder, os.W_OK):
            raise _unusable(self.folder, "nothing may be written there")

    def save(self, measured: KeptCase) -> None:
        """Store a case in place of its earlier results."""
        self._write(measured.case, asdict(measured))

    def find(self, case: str) -> KeptCase | None:
        """Return the stored results of a case."""
        found = self._read(case)
        if found is None:
            return None
        try:
            return KeptCase(**{**found, "results": tuple(found["results"])})
        except (KeyError, TypeError):
            raise _unreadable(self._path(case)) from None

    def begin(self) -> str:
        """Record that a run begins. Return the time."""
        begun = now()
        self._write(RUN, {"begun": begun})
        return begun

    def end(self) -> None:
        """Record that the run has measured all of its cases."""
        self._path(RUN).unlink(missing_ok=True)

    def unfinished(self) -> str | None:
        """Return the begin of the unfinished run, if there is one."""
        found = self._read(RUN)
        return None if found is None else str(found.get("begun"))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        try:
            found = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError):
            raise _unreadable(path) from None
        if not isinstance(found, dict):
            raise _unreadable(path)
        return found

    def _write(self, name: str, value: dict[str, Any]) -> None:
        # Atomic: an interruption leaves the old file or the new one.
        path = self._path(name)
        part = path.with_name(path.name + ".part")
        try:
            part.write_text(json.dumps(value, indent=1) + "\n")
            part.replace(path)
        except OSError as error:
            raise _unusable(self.folder, error.strerror or str(error)) from None


def _unusable(folder: Path, why: str) -> UserError:
    return UserError(f"Results cannot be kept in {folder}: {why}.", "Name another folder: --results FOLDER.")


def _unreadable(path: Path) -> UserError:
    return UserError(f"{path} has no results of a benchmark.", "Remove it, and measure that case again.")
