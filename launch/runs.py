"""Runs of the examples under horovodrun: their environment and results."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.config import as_text
from paceline.errors import UserError
from paceline.launch import flags
from paceline.launch.ranks import run_python

# Rank 0 of every example prints this at the end; horovodrun adds a prefix.
_RESULT = re.compile(r"RESULT (\{.*\})$")


def environment(**options: Any) -> dict[str, str]:
    """Return variables for the ranks: Paceline's `options` by name, and one thread per rank. Works for any script."""
    ours = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return {**ours, **os.environ, **flags.environment({name: as_text(value) for name, value in options.items()})}


def result_in(line: str) -> dict[str, Any] | None:
    """Return the result in a line of an example's output; None if there is none."""
    found = _RESULT.search(line)
    return json.loads(found[1]) if found else None


def train(
    script: Path, ranks: int, arguments: Sequence[str], environ: dict[str, str], limit_s: float
) -> dict[str, Any]:
    """Run `script` on `ranks` ranks; return its result.

    Raises UserError with its last output if it ends without a result or exceeds `limit_s`, and if the ranks' models
    differ at the end.
    """
    found: list[dict[str, Any]] = []

    def on_line(line: str) -> None:
        result = result_in(line)
        if result is not None:
            found.append(result)

    run_python([str(script), *arguments], ranks, environ, limit_s, on_line)
    if len(found) != 1:
        raise UserError(f"{script.name} ended with {len(found)} results.", "Look at what its ranks said.")
    (result,) = found
    if not result["equal"]:
        raise UserError(f"{script.name}: the replicas on the ranks are not equal.", "Report this as a defect.")
    return result


def spread(values: Sequence[float]) -> float:
    """The standard deviation of `values` over runs; 0 for a single one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def apart(values: Sequence[float], base: Sequence[float]) -> float | None:
    """Distance of the means of `values` and `base` in pooled standard deviations; None if neither varies."""
    common = statistics.mean(spread(one) ** 2 for one in (values, base)) ** 0.5
    return (statistics.mean(values) - statistics.mean(base)) / common if common > 0 else None
