"""Reports of a rank to the launcher that started it: lines of JSON on standard error.

Standard error arrives from every rank, through horovodrun, ssh, mpirun and the tasks of a scheduler alike. `paceline
run` and `paceline rank` request reports with a variable, and remove the lines from their output.
"""

from __future__ import annotations

import contextlib
import os
import stat

import msgspec

from paceline.variables import environ

MARK = "Paceline reports: "
VARIABLE = "_PACELINE_REPORTS"
# Values of the variable: reports of failures only; also of start and exit.
FAILURES, ALL = "failures", "all"
_STANDARD_ERROR = 2


class Came(msgspec.Struct, tag="came"):
    """The rank has reached hvd.init()."""

    host: str


class Reduced(msgspec.Struct, tag="reduced"):
    """The first allreduce is done."""


class Recorded(msgspec.Struct, tag="recorded"):
    """The rank, one of `size`, has written its trace after the requested number of `steps`."""

    size: int
    steps: int


class Left(msgspec.Struct, tag="left"):
    """The rank has reached the end of its script."""

    steps: int


class Exits(msgspec.Struct, tag="exits"):
    """The rank ends by sys.exit(), which takes a while; the launcher may end it earlier for another rank's failure."""

    status: int


class Failed(msgspec.Struct, tag="failed"):
    """An uncaught exception.

    Attributes:
        error: its class and the first line of its text.
        place: innermost line of the user's files.
        lines: frames of the user's files, and the error.
        remedy: remedy of a UserError, whose problem is `error`.
        follows: FAILURE or END of another rank (paceline.failure.consequences); "" if this error is the cause.
    """

    error: str
    place: str = ""
    lines: list[str] = []
    remedy: str = ""
    follows: str = ""


Report = Came | Reduced | Recorded | Left | Exits | Failed
_DECODER = msgspec.json.Decoder(Report)


def asked(value: str = FAILURES) -> bool:
    """Return True if a launcher reads the reports of this process; with ALL, only if it reads all kinds."""
    return environ().get(VARIABLE) in (value, ALL)


def send(report: Report) -> None:
    """Write a report."""
    write(MARK + msgspec.json.encode(report).decode())


def write(line: str) -> None:
    """Write a line to standard error without Python's buffer, unless standard error is a file, which is the user's."""
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.fstat(_STANDARD_ERROR).st_mode):
            # In one call, which the system does not split: other threads write at the same time.
            os.write(_STANDARD_ERROR, f"{line}\n".encode())


def taken(line: str) -> tuple[str, Report | None]:
    """Return the line without the report that it ends with, and the report."""
    before, mark, text = line.partition(MARK)
    if mark:
        with contextlib.suppress(msgspec.DecodeError):
            return before, _DECODER.decode(text.strip())
    return line, None
