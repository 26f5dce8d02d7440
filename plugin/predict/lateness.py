"""Lateness of ranks, drawn from a distribution or read from a file: input of the simulation in stragglers.py."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from paceline.errors import UserError

STEPS = 200  # of a simulation from a distribution
FORMS = {
    "normal": "normal:MEAN,SD",
    "exponential": "exponential:MEAN",
    "one": "one:RANK,SECONDS",
    "random": "random:SECONDS",
}
REMEDY = f"Give {', '.join(FORMS.values())} in seconds, or a CSV file with columns step, rank and seconds."

Seconds = NDArray[np.float64]
# (source of random numbers, ranks, compute time of a step) -> seconds by step and rank.
Draw = Callable[[Generator, int, float], Seconds]


@dataclass(frozen=True)
class Lateness:
    """A distribution of lateness, or recorded times; `text` is as the user gave it."""

    text: str
    draw: Draw

    def seconds(self, ranks: int, compute_s: float, seed: int = 0) -> Seconds:
        """Return the seconds that each rank's step takes in addition to `compute_s`: an array [step, rank]."""
        return self.draw(np.random.default_rng(seed), ranks, compute_s)


def parse(text: str) -> Lateness:
    """Parse a distribution, one of FORMS, or the name of a CSV file.

    normal: never below 0. exponential: of each rank and step. one: one rank in every step. random: one random rank in
    each step. Raises UserError for other texts.
    """
    name, colon, rest = text.partition(":")
    if name not in FORMS or not colon:
        return of_file(Path(text))
    try:
        values = [float(part) for part in rest.split(",")]
    except ValueError:
        values = []
    if len(values) != len(FORMS[name].split(",")) or not all(math.isfinite(one) and one >= 0 for one in values):
        raise UserError(f"--late {text} is not of the form {FORMS[name]}.", REMEDY)
    return Lateness(text, _draw(text, name, values))


def _draw(text: str, name: str, values: list[float]) -> Draw:
    first, last = values[0], values[-1]

    def one(ranks: int) -> Seconds:
        if first != int(first) or not first < ranks:
            raise UserError(f"--late {text}: rank {first:g} does not exist among {ranks}.", "Name a rank from 0.")
        return np.tile(np.where(np.arange(ranks) == int(first), last, 0.0), (STEPS, 1))

    def draw(source: Generator, ranks: int, compute_s: float) -> Seconds:
        if name == "one":
            return one(ranks)
        if name == "random":
            return np.where(np.arange(ranks) == source.integers(ranks, size=(STEPS, 1)), first, 0.0)
        if name == "exponential":
            return source.exponential(first, (STEPS, ranks))
        return np.maximum(source.normal(first, last, (STEPS, ranks)), 0.0)

    return draw


def of_file(path: Path) -> Lateness:
    """Read seconds of each step and rank from a CSV file with a header.

    Columns: `step`; `rank` or `dp_rank`; and either `late_s`, the lateness, or other columns that end in `_s`, whose
    sum is the rank's computation. Of several rows of a step and rank, such as stages of a pipeline, the largest counts.
    Steps that some rank lacks are left out.

    Computations are scaled: their median takes the compute time of the simulated step. Another number of ranks than the
    file's is drawn from it, each with its steps in order. Raises UserError for other files.
    """
    found: dict[tuple[int, int], float] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            names = rows.fieldnames or []
            rank = next((one for one in ("rank", "dp_rank") if one in names), "")
            times = ["late_s"] if "late_s" in names else [one for one in names if one.endswith("_s")]
            if "step" not in names or not rank or not times:
                raise UserError(f"{path} has the columns {', '.join(names) or 'none'}.", REMEDY)
            for row in rows:
                key = int(row["step"]), int(row[rank])
                found[key] = max(found.get(key, -math.inf), sum(float(row[one]) for one in times))
    except OSError as error:
        raise UserError(f"--late {path}: the file cannot be read: {error.strerror}.", REMEDY) from None
    except (ValueError, TypeError) as error:
        raise UserError(f"--late {path}: a row cannot be read: {error}.", REMEDY) from None
    ranks = sorted({rank for _, rank in found})
    steps = [step for step in sorted({step for step, _ in found}) if all((step, rank) in found for rank in ranks)]
    recorded = np.array([[found[step, rank] for rank in ranks] for step in steps])
    if recorded.size == 0 or not np.isfinite(recorded).all() or np.median(recorded) <= 0 < len(times) - 1:
        raise UserError(f"--late {path}: it has no step with a time above 0 of every rank.", REMEDY)
    scaled = times != ["late_s"]

    def draw(source: Generator, count: int, compute_s: float) -> Seconds:
        columns = np.arange(count) if count == len(ranks) else source.integers(len(ranks), size=count)
        chosen = recorded[:, columns]
        return compute_s * (chosen / np.median(recorded) - 1) if scaled else chosen

    return Lateness(str(path), draw)
