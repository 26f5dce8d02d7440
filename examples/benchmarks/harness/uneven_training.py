"""Training with uneven ranks: what exchanges that do not wait gain in speed, and what they cost in accuracy.

After Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020,
section 7: delays of one random rank, delays of all ranks that rotate, and the imbalance of sequences of different
lengths. Small models on real data take the place of the paper's, and ranks sleep in the place of computing
(examples/benchmarks/pace.py), so that several can share a processor.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.launch import runs

SYNC = "sync"
SYSTEMS = (SYNC, "majority", "solo")
SYNC_EVERY = 0  # updates between averages of the models, of exchanges that do not wait; 0: only at the end
VALUES = ("steps_per_s", "accuracy", "loss", "apart")
RUN_LIMIT_S = 300.0  # a run takes a minute and a half; on a busy machine a few

Result = dict[str, Any]  # what a script says at its end


@dataclass(frozen=True)
class Case:
    """A script of examples/benchmarks/ and what makes it uneven."""

    script: str
    arguments: tuple[str, ...]


# A delay is as long as a step computes: ranks that wait for the late one lose half of their speed. Both are long beside
# what eight ranks really compute and send on two processors, about 30 ms. Synchronous training has learnt nearly all it
# can after 20 epochs, 120 steps.
_DIGITS = ("--epochs", "20", "--compute-ms", "200", "--delay-ms", "200")
CASES = {
    "random": Case("uneven_digits", (*_DIGITS, "--delays", "random")),
    "rotating": Case("uneven_digits", (*_DIGITS, "--delays", "rotating")),
    "lengths": Case("uneven_lengths", ("--steps", "60", "--batch-size", "4", "--ms-per-character", "2")),
}


def compare(
    ranks: int,
    seeds: Sequence[int],
    cases: Sequence[str],
    systems: Sequence[str],
    progress: Callable[[str], None],
    limit_s: float,
) -> list[dict[str, Any]]:
    """Train each case with each system and seed, one run at a time; all else is the same.

    `cases` of CASES, `systems` of SYSTEMS. `progress` gets a line about every run that has ended. Each case gets one
    seed; a further seed is begun only where it should be over `limit_s` seconds after the beginning.

    One answer for each case and system: {"case", "system", "steps_per_s", "accuracy", "loss", "apart": each {"mean",
    "sd"} over the seeds, "seeds": how many were run, "over_sync": mean steps per second over those of sync, None where
    that was not asked for}. Steps per second are the slowest rank's, the flush at the end included; `apart` is by how
    much a weight of any rank then was away from the mean of all; accuracy and loss are those of the mean, on data that
    no rank trained on. The systems take turns within a seed, so that other load on the machine meets all.

    Raises UserError for an unknown case or system, and for a run that fails or takes longer than RUN_LIMIT_S.
    """
    for known, asked in ((tuple(CASES), cases), (SYSTEMS, systems)):
        for name in asked:
            if name not in known:
                raise UserError(f"{name!r} cannot be compared.", f"Choose among {', '.join(known)}.")
    results: dict[str, dict[str, list[Result]]] = {case: {system: [] for system in systems} for case in cases}
    began_s, took_s = time.monotonic(), dict.fromkeys(cases, 0.0)
    for seed in seeds:
        for case in cases:
            turn_began_s = time.monotonic()
            if took_s[case] and turn_began_s - began_s + took_s[case] > limit_s:
                continue
            for system in systems:
                result = _train(CASES[case], system, ranks, seed)
                results[case][system].append(result)
                progress(
                    f"{case}, seed {seed}, {system}: {result['steps_per_s']:.2f} steps/s, "
                    f"accuracy {result['accuracy']:.2%}, loss {result['loss']:.4f}"
                )
            took_s[case] = time.monotonic() - turn_began_s
    return [summary for case, found in results.items() for summary in _summaries(case, found)]


def _train(case: Case, system: str, ranks: int, seed: int) -> Result:
    script = importlib.util.find_spec(f"paceline.examples.benchmarks.{case.script}")
    assert script is not None and script.origin is not None
    environ = runs.environment(exchange=system, partial_sync_every=SYNC_EVERY)
    return runs.train(Path(script.origin), ranks, [*case.arguments, "--seed", str(seed)], environ, RUN_LIMIT_S)


def _summaries(case: str, results: dict[str, list[Result]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for system, those in results.items():
        values = {name: [result[name] for result in those] for name in VALUES}
        figures = {name: {"mean": statistics.mean(one), "sd": runs.spread(one)} for name, one in values.items()}
        found.append({"case": case, "system": system, **figures, "seeds": len(those)})
    speeds = {one["system"]: one["steps_per_s"]["mean"] for one in found}
    for one in found:
        one["over_sync"] = speeds[one["system"]] / speeds[SYNC] if SYNC in speeds else None
    return found
