"""Training on uneven ranks: the gain in speed of exchanges that do not wait, and their cost in accuracy.

After Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020,
section 7: delays of one random rank, delays of all ranks that rotate, and the imbalance of sequences of different
lengths. Small models on real data replace the paper's, and ranks sleep instead of computing (pace.py), so that several
can share a processor. A turn is a seed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.ratio import each_over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import check_known
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare
from paceline.launch import runs

SYNC = "sync"
SYSTEMS = (SYNC, "majority", "solo")
SYNC_EVERY = 0  # updates between averages of the models, for exchanges that do not wait; 0: only at the end
RUN_LIMIT_S = 300.0  # a run takes a minute and a half; on a busy machine a few
# A delay equals the compute time of a step: ranks that wait for the late one lose half of their speed. Both are long
# compared with the 30 ms that eight ranks actually compute and send on two processors. Synchronous training converges
# in 20 epochs, 120 steps.
DIGITS = ("--epochs", "20", "--compute-ms", "200", "--delay-ms", "200")
# Late ranks -> script and arguments.
CASES = {
    "random": ("uneven_digits", (*DIGITS, "--delays", "random")),
    "rotating": ("uneven_digits", (*DIGITS, "--delays", "rotating")),
    "lengths": ("uneven_lengths", ("--steps", "60", "--batch-size", "4", "--ms-per-character", "2")),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ranks` ranks of this machine, `seeds` runs of each system in each of `cases`: random, rotating, lengths.

    `arguments` follow those of the script. `equal_time`: train again for the time of the synchronous run, by the speed
    of the first run, for the accuracy after equal times. `sync` must be the first of the systems then.
    """

    ranks: int = 8
    cases: tuple[str, ...] = ("random",)
    systems: tuple[str, ...] = SYSTEMS
    seeds: int = 3
    arguments: tuple[str, ...] = ()
    equal_time: bool = False


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Train in each case."""
    check_known(settings.systems, SYSTEMS)
    check_known(settings.cases, CASES)
    if settings.equal_time and settings.systems[0] != SYNC:
        raise UserError(
            f"equal_time=true needs the time of {SYNC}, and the first system is {settings.systems[0]}.",
            f"Begin systems= with {SYNC}.",
        )
    for case in settings.cases:
        seeds = dict.fromkeys(settings.systems, 0)
        time_s = 0.0  # of the synchronous run of this seed

        def train(system: str, seed: int, more: tuple[str, ...], case: str = case) -> dict[str, Any]:
            script, arguments = CASES[case]
            found = importlib.util.find_spec(f"paceline.examples.benchmarks.{script}")
            assert found is not None and found.origin is not None
            words = [*arguments, "--seed", str(seed), *settings.arguments, *more]
            environ = runs.environment(exchange=system, sync_every=SYNC_EVERY)
            log(" ".join([f"{case}, seed {seed}, {system}", *more]))
            return runs.train(Path(found.origin), settings.ranks, words, environ, RUN_LIMIT_S)

        def take(system: str, seeds: dict[str, int] = seeds) -> Turn:
            nonlocal time_s
            result = train(system, seeds[system], ())
            figures = {name: result[name] for name in ("steps_per_s", "accuracy", "loss", "apart")}
            if settings.equal_time:
                if system == SYNC:
                    time_s = result["steps"] / result["steps_per_s"]
                else:
                    result = train(system, seeds[system], ("--steps", str(round(time_s * result["steps_per_s"]))))
                figures |= {"accuracy_then": result["accuracy"], "loss_then": result["loss"]}
            seeds[system] += 1
            return Turn({"step_ms": 1e3 / figures["steps_per_s"], **figures})

        takes = {name: partial(take, name) for name in settings.systems}
        once = Limits(limits.time_s, settings.seeds, settles=False)
        comparison = compare(takes, "step_ms", each_over(settings.systems, [SYNC], "step_ms"), once, log, case)
        title = f"training, delays of the case {case}: {settings.ranks} ranks, {comparison.complete} seeds"
        yield Measured(title, comparison, {"case": case, "ranks": settings.ranks})


BENCHMARK = Benchmark(
    "Uneven ranks",
    Settings,
    measure,
    "exchange",
    (
        Column("step ms", "step_ms"),
        Column("steps/s", "steps_per_s", ".2f"),
        Column("accuracy", "accuracy", ".2%"),
        Column("loss", "loss", ".4f"),
        Column("apart", "apart", ".4f"),
        Column("accuracy, equal time", "accuracy_then", ".2%"),
        Column("loss, equal time", "loss_then", ".4f"),
    ),
    start_s=0.0,
    quick={"seeds": 1},
)
