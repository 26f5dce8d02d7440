"""Shared parts of the demo's training scripts: arguments, times of steps, and the result of rank 0."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path

ALONE_STEPS = 15  # computed without an exchange, before training, to measure the compute time
ALONE_LEFT_OUT = 5  # first steps, which allocate and compile
MEASURED_PART = 0.3  # share of the steps at the end: by then plans are active
SHOW_EVERY = 5


def arguments() -> argparse.Namespace:
    """Parse the arguments of a training script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--late-ms", type=float, required=True)
    parser.add_argument("--wrapper", choices=("hvd", "ddp"), required=True)
    parser.add_argument("--result", type=Path, required=True)
    return parser.parse_args()


class Steps:
    """Times of one rank's steps, and the delay of the rank whose turn it is to be late."""

    def __init__(self, rank: int, size: int, late_ms: float, steps: int) -> None:
        self._rank, self._size, self._late_ms, self._steps = rank, size, late_ms, steps
        self._turns = random.Random(0)  # the same on all ranks
        self._began = time.perf_counter()
        self.alone_s: list[float] = []
        self.times_s: list[float] = []

    def begin(self) -> None:
        """Begin a step; sleep first if it is this rank's turn to be late."""
        self._began = time.perf_counter()
        if self._late_ms and self._turns.randrange(self._size) == self._rank:
            time.sleep(self._late_ms / 1e3)

    def begin_alone(self) -> None:
        """Begin a step without an exchange."""
        self._began = time.perf_counter()

    def end_alone(self) -> None:
        """End a step without an exchange."""
        self.alone_s.append(time.perf_counter() - self._began)

    def end(self) -> None:
        """End a step; rank 0 prints progress every few steps."""
        self.times_s.append(time.perf_counter() - self._began)
        if self._rank == 0 and len(self.times_s) % SHOW_EVERY == 0:
            print(f"step {len(self.times_s)}/{self._steps}", flush=True)

    def conclude(self, path: Path, accuracy: float, equal: bool) -> None:
        """Write rank 0's result to `path`: times in ms, accuracy on held-out data, equality of the replicas."""
        if self._rank:
            return
        measured = self.times_s[-max(1, round(MEASURED_PART * self._steps)) :]
        # The mean, because delays by turns give two kinds of steps.
        result = {
            "step_ms": 1e3 * statistics.fmean(measured),
            "compute_ms": 1e3 * statistics.median(self.alone_s[ALONE_LEFT_OUT:]),
            "accuracy": accuracy,
            "equal": equal,
        }
        path.write_text(json.dumps(result))
