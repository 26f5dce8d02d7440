"""The pace of a training loop: sleep emulates a device's compute time, and the resulting speed is measured.

Ranks that share a few processors slow each other down far more than ranks with one device each do. So a device is
emulated: a step sleeps for its compute time, and its actual computation is short in comparison.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from paceline.examples.benchmarks import delays
from paceline.predict import lateness

UNMEASURED = 5  # first steps, in which ranks connect and memory is allocated


class Pace:
    """Speed of a loop: `compute` at the beginning of each step, `steps_per_s` after the last.

    `delay_ms`: delay of this rank in milliseconds by step, counted from 0.
    """

    def __init__(self, delay_ms: Callable[[int], float] = lambda step: 0.0) -> None:
        self._delay_ms = delay_ms
        self._steps = self._first = 0
        self._began_s = 0.0

    def compute(self, duration_ms: float) -> None:
        """Sleep for `duration_ms`, the step's emulated computing, and for the delay of this rank in this step."""
        if self._steps in (0, UNMEASURED):
            self._first, self._began_s = self._steps, time.monotonic()
        time.sleep(max(0.0, duration_ms + self._delay_ms(self._steps)) / 1e3)
        self._steps += 1

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._steps

    def steps_per_s(self) -> float:
        """Steps per second from the first measured one until now. Raises ValueError before the first step."""
        if self._steps == 0:
            raise ValueError("no step was made")
        return (self._steps - self._first) / (time.monotonic() - self._began_s)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a training loop slow and uneven."""
    parser.add_argument(
        "--compute-ms", type=float, default=0.0, help="a step sleeps so long, as a device of its own would compute"
    )
    parser.add_argument("--delay-ms", type=float, default=0.0, help="the longest delay of a rank in a step")
    parser.add_argument("--delays", choices=delays.KINDS, default=delays.NONE, help="which ranks are delayed")
    parser.add_argument("--late", help="lateness of ranks as in `paceline plan --late`: a form or a CSV file")


def of(chosen: argparse.Namespace, rank: int, ranks: int) -> Pace:
    """Return the pace that the options, and --seed, select."""
    if chosen.late is not None:
        late_s = lateness.parse(chosen.late).seconds(ranks, chosen.compute_ms / 1e3, chosen.seed)
        return Pace(lambda step: 1e3 * float(late_s[step % len(late_s), rank]))
    return Pace(lambda step: delays.delay_ms(chosen.delays, chosen.delay_ms, step, rank, ranks, chosen.seed))
