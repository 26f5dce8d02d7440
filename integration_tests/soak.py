"""Hours of random trainings in the same processes: numbers are exact, and memory, descriptors and threads stay flat.

    python -m integration_tests.soak --minutes 120          (Ctrl-C ends it, with the result so far)

A turn draws a case of the matrix of concurrent activities (integration_tests/concurrency): an exchange, an activity
beside the training, a random order, pauses of ranks. Every turn has a world of its own: init(), the case with its exact
sums, shutdown(). Names of tensors repeat, as in a job. Two sets of processes take turns, one of them with armed steps.
Threads come and go in these cases. glibc gives them arenas of their own, which keep what they once needed. Here all
threads share one (MALLOC_ARENA_MAX=1), so that growth is a leak.

Prints growth per hour, by a line through the measurements after the first quarter, and the measured range. Exits with 1
if a case fails, or if memory, descriptors or threads grow. `--output` keeps what every turn ran and left behind.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from integration_tests.concurrency.cases import Case
from integration_tests.concurrency.table import cases, refusal
from integration_tests.support.events import ARMED
from integration_tests.support.ranks import RankFailed, World, end_all

TURN_LIMIT_S = 120.0
NAMES = 3  # sets of names of tensors
QUANTITIES = ("memory, MB", "descriptors", "threads")
MEGABYTE = 2**20
MOST_PER_HOUR = (2.0, 1.0, 1.0)
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


@dataclass
class Sample:
    """Measurement of one rank after a turn."""

    time_s: float
    values: tuple[float, ...]


def turn(rank: int, size: int, case: Case) -> tuple[float, ...]:
    """Run a case in a world of its own on one rank; return its memory in MB, descriptors and threads."""
    import ctypes
    import gc

    import psutil

    if case.library == "torch":
        import horovod.torch as hvd
    else:
        import horovod.tensorflow as hvd
    if case.framework == "torch":
        from integration_tests.concurrency.torch_ranks import run
    else:
        from integration_tests.concurrency.keras_ranks import run
    hvd.init()
    run(rank, size, case, False)
    hvd.shutdown()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    own = psutil.Process()
    return own.memory_full_info().uss / MEGABYTE, own.num_fds(), own.num_threads()


def slope_per_hour(samples: Sequence[Sample], quantity: int) -> float:
    """Slope of a line through the samples after the first quarter."""
    kept = samples[len(samples) // 4 :]
    times = np.array([one.time_s for one in kept]) / 3600
    return float(np.polyfit(times, [one.values[quantity] for one in kept], 1)[0])


def summary(by_ranks: dict[str, list[Sample]]) -> tuple[Table, bool]:
    """Table of growth, and whether all quantities are flat."""
    made, flat = Table("rank", "turns", *(f"{one}: per hour (range)" for one in QUANTITIES)), True
    for name, samples in by_ranks.items():
        cells = []
        for number in range(len(QUANTITIES)):
            slope, values = slope_per_hour(samples, number), [one.values[number] for one in samples]
            flat = flat and slope <= MOST_PER_HOUR[number]
            cells.append(f"{slope:+.2f} ({min(values):.0f} .. {max(values):.0f})")
        made.add_row(name, str(len(samples)), *cells)
    return made, flat


def drawn(arguments: argparse.Namespace, dice: random.Random) -> Case:
    """A case that is not refused."""
    known = [
        one
        for one in cases(arguments.seed)
        if (one.framework, one.size) == (arguments.framework, arguments.ranks) and refusal(one) is None
    ]
    return replace(dice.choice(known), seed=dice.randrange(NAMES))


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--framework", default="torch", choices=["torch", "keras"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="file that gets a line of JSON for each turn")
    arguments, console = parser.parse_args(), Console(width=160)
    dice = random.Random(arguments.seed)
    worlds: dict[str, World] = {}
    found: dict[str, list[Sample]] = {}
    begin_s = shown_s = time.monotonic()
    try:
        while time.monotonic() - begin_s < 60 * arguments.minutes:
            case = drawn(arguments, dice)
            kind = "armed" if case.exchange == ARMED else "others"
            if kind not in worlds:
                worlds[kind] = World(arguments.ranks, {**case.env(True), **ONE_ARENA})
            values = worlds[kind].run("integration_tests.soak", "turn", (case,), TURN_LIMIT_S)
            now_s = time.monotonic() - begin_s
            for rank, one in enumerate(values):
                found.setdefault(f"{rank}, {kind}", []).append(Sample(now_s, tuple(one)))
            if arguments.output:
                with arguments.output.open("a") as file:
                    print(json.dumps({"time_s": now_s, "kind": kind, **asdict(case), "values": values}), file=file)
            if time.monotonic() - shown_s > 300:
                shown_s = time.monotonic()
                turns = sum(len(one) for one in found.values()) // arguments.ranks
                console.print(f"{now_s / 60:.0f} min: {turns} turns")
    except KeyboardInterrupt:
        console.print("Interrupted.")
    except RankFailed as failed:
        console.print(f"FAILED: {case}\n{failed}", markup=False, highlight=False)
        return 1
    finally:
        for world in worlds.values():
            world.end()
        end_all()
    table, flat = summary(dict(sorted(found.items())))
    console.print(table, f"All sums were exact. {'Flat.' if flat else 'NOT FLAT.'}")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
