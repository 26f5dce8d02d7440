"""One row, measured by its own command in a process of its own: what goes wrong there ends that row and no other."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from paceline.errors import UserError
from paceline.examples.benchmarks.every.kept import Measured, now
from paceline.examples.benchmarks.every.rows import Row
from paceline.examples.benchmarks.harness import report
from paceline.launch.processes import call

PROGRAM = (sys.executable, "-m", "paceline.examples.benchmarks")
# A busy machine slows down everything around what is measured, whose own limit is another.
SLOWER, MARGIN_S = 3.0, 1800.0
ERROR_LINES = 6


def measure(row: Row, quick: bool, limit_s: float | None, tell: Callable[[str], None]) -> Measured:
    """Measure a row. `tell` gets what its command said beside results, line by line.

    Raises UserError with the first lines of the command's error if it fails, prints nothing, or does not end.
    """
    arguments = row.arguments(quick, limit_s)
    begun, machine, start_s = now(), report.machine(), time.monotonic()
    printed: list[str] = []
    said: list[str] = []

    longest_s = MARGIN_S + SLOWER * row.expected_s(quick, limit_s)
    code = call([*PROGRAM, *arguments, "--json"], os.environ, None, longest_s, (printed.append, said.append))
    said = [line for piece in said if (line := piece.rstrip())]
    if code:
        raise UserError(f"{row.name} ended with exit code {code}.", "\n".join(_error(said)))
    for line in said:
        tell(f"{row.name}: {line}")
    results = _results(row, printed)
    command = shlex.join(["python", "-m", "examples.benchmarks", *arguments])
    return Measured(row.name, command, begun, round(time.monotonic() - start_s, 1), quick, machine, results)


def _results(row: Row, printed: Sequence[str]) -> tuple[dict[str, Any], ...]:
    try:
        results = tuple(json.loads(line) for line in printed if line.strip())
    except ValueError:
        raise UserError(f"{row.name} printed something else than JSON.", "Report this as a defect.") from None
    if not results:
        raise UserError(f"{row.name} printed no result.", "Its command above says what it left out.")
    return results


def _error(said: Sequence[str]) -> list[str]:
    """The first lines of what went wrong; notes come before it."""
    start = next((at for at, line in enumerate(said) if line.startswith(("Error: ", "Traceback "))), None)
    if start is None:
        return list(said[-ERROR_LINES:]) or ["It said nothing."]
    return list(said[start : start + ERROR_LINES])
