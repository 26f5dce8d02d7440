"""Our own rows of late ranks: partial exchanges in training, and single allreduces."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from statistics import fmean

import numpy as np

from paceline.examples import characters_lengths
from paceline.examples.benchmarks.delays import delay_ms
from paceline.examples.benchmarks.skew.model import SYSTEMS as SKEWED
from paceline.examples.benchmarks.skew.model import fresh_counts
from paceline.examples.reproduction.measured import Cell
from paceline.examples.reproduction.own import BENCHMARKS, OwnRow
from paceline.partial.settings import SOLO, Partial
from paceline.predict import stragglers

SEEDS = 5


def rows() -> Iterator[OwnRow]:
    """Yield the rows."""
    yield from _partial()
    yield from _late()


# Partial exchanges in training, from the synchronous step and the delays that the ranks slept.

RANKS, DELAY_S = 8, 0.2
TRAININGS = {
    # Name -> line above the table in partial.md, steps, lateness of a seed.
    "digits, 120 steps": ("python -m examples.benchmarks uneven-training seeds", 120),
    "digits, 60 steps": ("`DIGITS` in examples/benchmarks/training/uneven.py", 60),
    "lengths, 60 steps": ("uneven-training cases=lengths", 60),
}
LENGTHS_S = 2e-3  # a character


def _partial() -> Iterator[OwnRow]:
    for name, (under, steps) in TRAININGS.items():
        for exchange in ("majority", "solo"):
            note = "Measured on a machine with other load, one seed." if name.startswith("lengths") else ""
            yield OwnRow(
                "partial exchanges: synchronous step and delays",
                f"{exchange}, {name}, steps/s",
                "partial.md",
                partial(_rate, under, exchange),
                partial(_partial_rate, name, under, steps, exchange),
                note,
            )


def _rate(under: str, exchange: str) -> float:
    return Cell("partial.md", "Measured", (exchange,), "steps per second", under).number()


def _partial_rate(name: str, under: str, steps: int, exchange: str) -> float:
    rates = []
    for seed in range(SEEDS if "digits" in name else 1):
        late_s = lengths_s(steps, seed) if name.startswith("lengths") else delays_s(steps, seed)
        compute_s = 1 / _rate(under, "sync") - float(late_s.max(axis=1).mean())
        rates.append(stragglers.partial(late_s, compute_s, 0.0, Partial(exchange), seed).slowest_per_s)
    return fmean(rates)


def delays_s(steps: int, seed: int) -> stragglers.Seconds:
    """Return the delays of the case `random`, by step and rank."""
    return np.array(
        [
            [delay_ms("random", 1e3 * DELAY_S, step, rank, RANKS, seed) / 1e3 for rank in range(RANKS)]
            for step in range(steps)
        ]
    )


@cache
def lengths_s(steps: int, seed: int) -> stragglers.Seconds:
    """Return the time of each rank's batches in the case `lengths`: a character of its longest piece takes 2 ms."""
    ranks = [
        [LENGTHS_S * batch[0].shape[1] for batch in islice(characters_lengths.training(rank, RANKS, 4, seed), steps)]
        for rank in range(RANKS)
    ]
    return np.array(ranks).T


# One allreduce in which rank r is r skews late, from its time without skew.


def _late() -> Iterator[OwnRow]:
    for system in SKEWED:
        cell = Cell(BENCHMARKS, "late-ranks", (system,), "skewed ms")
        note = "The difference is half a millisecond: a late rank's own call, which the model leaves out."
        yield OwnRow(
            "late ranks: time of an allreduce without skew", f"{system}, 8 ranks, ms", BENCHMARKS,
            cell.number, partial(_skewed_ms, system), note if system == SOLO else "",
        )  # fmt: skip


def _skewed_ms(system: str) -> float:
    even_ms = Cell(BENCHMARKS, "late-ranks", (system,), "even ms").number()
    late_s = 0.1 * np.arange(float(RANKS))[np.newaxis]
    found = [
        stragglers.partial(late_s, 10.0, even_ms / 1e3, Partial(count), rounds=1)
        for count in fresh_counts(system, RANKS)
    ]
    return 1e3 * fmean(one.wait_s * one.in_time / RANKS for one in found)
