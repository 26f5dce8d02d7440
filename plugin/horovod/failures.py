"""Cause of a failed build of Horovod, from its output: the relevant lines, and the remedy if it is known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from paceline.errors import UserError

SHOWN_LINES = 12
_LINES_OF_EACH = 9
_LAST_LINES = 8


@dataclass(frozen=True)
class Known:
    """A cause whose `pattern` matches a line, and its remedy."""

    pattern: str
    remedy: str


# The first line with a match determines the remedy.
_TEMPORARY = "Name another folder for temporary files with TMPDIR, one {}, for example TMPDIR=~/tmp."
KNOWN: tuple[Known, ...] = (
    Known(r"No space left on device|Disk quota exceeded", _TEMPORARY.format("with room")),
    Known(r"cmake-with-paceline.*Permission denied|Permission denied.*cmake-with-paceline|PermissionError",
          _TEMPORARY.format("where programs may run")),
    Known(r"Killed signal terminated program|out of memory|virtual memory exhausted|Cannot allocate memory",
          "The compiler ran out of memory: build with fewer at a time, CMAKE_BUILD_PARALLEL_LEVEL=1."),
    Known(r"fatal error: nccl\.h|(?<!-- )Could NOT find NCCL",
          "Install NVIDIA's libnccl-dev, or set HOROVOD_NCCL_HOME to a folder with include/nccl.h and lib/libnccl.so."),
    Known(r"fatal error: Python\.h", "Install Python's headers: apt-get install python3-dev"),
    Known(r"(?<!-- )Could NOT find MPI", "Install MPI's development files: apt-get install libopenmpi-dev openmpi-bin"),
    Known(r"(?<!-- )Could NOT find CUDAToolkit",
          "Set HOROVOD_CUDA_HOME to a whole CUDA toolkit, or unset HOROVOD_GPU_OPERATIONS."),
    Known(r"No module named '?(setuptools|wheel)|Cannot import 'setuptools|invalid command 'bdist_wheel'",
          "Install what builds wheels: pip install setuptools wheel"),
)  # fmt: skip

_CMAKE = re.compile(r"^\s*CMake Error\b")
_COMPILER = re.compile(r"\b(fatal )?error: |undefined reference to |^\s*\w*(Error|Exception): |: Permission denied$")
# Output of make while CMake tries a compiler.
_MAKES = re.compile(r"Change Dir: |Run Build Command|^\s*g?make(\[\d+\])?: |Building \w+ object ")
# First lines after the failed program's output: make's, Python's and pip's.
_AFTERMATH = re.compile(r"\*\*\* \[|^\s*(Traceback|error: subprocess-exited)")
# Lines that only report a failure above.
_CONSEQUENCE = re.compile(
    r"CalledProcessError|subprocess-exited-with-error|^\s*error: (subprocess|command)|Failed building wheel"
    r"|BackendSubprocess|^\s*ERROR:"
)


def _known(line: str) -> Known | None:
    return next((known for known in KNOWN if re.search(known.pattern, line)), None)


def _cmake_error(lines: Sequence[str]) -> list[str]:
    """Return CMake's error that begins `lines`: its head and the message, which is indented more."""
    indent = len(lines[0]) - len(lines[0].lstrip())
    body = takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip()) > indent, lines[1:])
    described = takewhile(lambda line: not line.strip().startswith("Call Stack"), body)
    return [line for line in (lines[0], *described) if line.strip() and not _MAKES.search(line)]


def _excerpts(lines: Sequence[str]) -> Iterable[list[str]]:
    """Yield the lines of each failure in the output, in order."""
    for number, line in enumerate(lines):
        if _CMAKE.search(line):
            yield _cmake_error(lines[number:])
        elif (_COMPILER.search(line) or _known(line)) and not _CONSEQUENCE.search(line):
            yield [line, *(after for after in lines[number + 1 : number + 3] if re.match(r"\s*\d* \| ", after))]


def excerpt(lines: Sequence[str]) -> list[str]:
    """Return the lines of the first failures, or the last lines of the output if none looks like a failure."""
    shown: list[str] = []
    for place in _excerpts(lines):
        for line in place[:_LINES_OF_EACH]:
            if line.strip() not in shown:
                shown.append(line.strip())
        if len(shown) >= SHOWN_LINES:
            break
    before = takewhile(lambda line: not _AFTERMATH.search(line), lines)
    return shown[:SHOWN_LINES] or [line.strip() for line in before if line.strip()][-_LAST_LINES:]


def remedy(lines: Sequence[str]) -> str:
    """Return the remedy of a known cause; else ""."""
    return next((known.remedy for known in map(_known, lines) if known), "")


def failed(lines: Sequence[str], log: object, frameworks: object) -> UserError:
    """Return the error of a build with this output, all of which is in `log`."""
    return UserError(
        "Horovod could not be built:\n  " + "\n  ".join(excerpt(lines)),
        f"{remedy(lines)} The whole log is in {log}. Frameworks seen: {frameworks}.".strip(),
    )
