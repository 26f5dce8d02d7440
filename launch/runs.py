"""Runs of the examples under horovodrun: what they are started with, and what came out."""

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

# What rank 0 of every example prints at the end; horovodrun puts a mark in front of it.
_RESULT = re.compile(r"RESULT (\{.*\})$")


def environment(**options: Any) -> dict[str, str]:
    """Variables for the ranks: Paceline's `options` by name, so that it can be any script, and one thread each."""
    ours = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return {**ours, **os.environ, **flags.environment({name: as_text(value) for name, value in options.items()})}


def result_in(line: str) -> dict[str, Any] | None:
    """The result that a line of an example's output tells, if it does."""
    found = _RESULT.search(line)
    return json.loads(found[1]) if found else None


def train(
    script: Path, ranks: int, arguments: Sequence[str], environ: dict[str, str], limit_s: float
) -> dict[str, Any]:
    """Run `script` on `ranks` ranks; its result.

    Raises UserError with its last words if it ends without one or takes longer than `limit_s`, and if the ranks' models
    are not equal at the end.
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
    """How far the mean of `values` is from that of `base`, in standard deviations: the root of the mean of both
    variances. None where neither varies.
    """
    common = statistics.mean(spread(one) ** 2 for one in (values, base)) ** 0.5
    return (statistics.mean(values) - statistics.mean(base)) / common if common > 0 else None
