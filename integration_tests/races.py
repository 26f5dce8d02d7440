"""No data race in core and bridge: random messages under ThreadSanitizer, for a given time.

    python -m integration_tests.races --minutes 30        (`make races`; needs the tools of a host build and libtsan)
    python -m integration_tests.races --only armed        (a part of it)
    python -m integration_tests.races --sanitizer address (the same, for accesses beyond memory)

Builds Horovod with Paceline's sources and that sanitizer (cached afterwards); it overrides the installed Horovod. Ranks
then submit tensors without training; each part gets the same time:
- partial: random quorums, numbers and sizes of tensors, orders and delays, with full allreduces in between;
- armed: steps whose plans, orders and gradients change, with other operations in between;
- armed-events: the same with a background thread that sleeps until an event occurs;
- armed-flight: the same with a collective of ours, chosen by the seed, with several messages in flight;
- split: updates of shards in such steps, whose weights are read while they are in flight;
- join, sets, plans, worlds, training: a rank joins before others submit, a process set ends with an operation open,
  plans change while collectives of ours are in flight, some ranks had a plan in another world before, trainings with
  random events.
Sums are checked to be exact. sanitizers.py defines which reports count.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from integration_tests import sanitizers
from integration_tests.support import split_stress
from integration_tests.support.armed_stress import torch_steps
from integration_tests.support.arming import ARMED
from integration_tests.support.debug import debug
from integration_tests.support.fuzz_events import EVENTS, OF_TENSORFLOW, VARIABLES
from integration_tests.support.ranks import World

CALLS = 40  # of each name in a turn
COLLECTIVES = ("linear", "ring", "direct", "doubling", "auto")
ARMED_STEPS = 100  # in a turn
TIMEOUT_S = 1.0  # of a group: a sanitizer makes ranks slow
TURN_TIMEOUT_S = 300.0

# Shows that a race is reported in the ranks, before none is believed. Reports have the library's name without a path.
_RACES_OWN = "race.so"
_RACE = """
#include <thread>
static int shared;
extern "C" int race() {
  std::thread other([] { for (int n = 0; n < 1000; ++n) ++shared; });
  for (int n = 0; n < 1000; ++n) ++shared;
  other.join();
  return shared;
}
"""


def partial(rank: int, size: int, seed: int) -> int:
    """One random constellation; how many calls were made. Every sum is checked."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    same, own = random.Random(seed), random.Random(seed * size + rank)
    choices: dict[str, Any] = {
        "quorum": same.choice(["solo", "majority", "random", *range(1, size + 1)]),
        "max_lag": same.choice([0, 0, 1, 3]),
        "seed": same.randrange(100),
        "op": hvd.Sum,
    }
    sizes = [same.choice([1, 3, 17, 1001, 30_011, 200_003]) for _ in range(same.randint(1, 6))]
    names = [f"races.{seed}.{n}" for n in range(len(sizes))]
    totals = [torch.zeros(n, dtype=torch.float64) for n in sizes]
    given = [torch.zeros(n, dtype=torch.float64) for n in sizes]
    lateness_s, metric_every = same.choice([0.0, 0.002, 0.02]), same.choice([7, 1000])
    for step in range(CALLS):
        if own.random() < 0.4:
            time.sleep(own.random() * lateness_s)
        pending = []
        for n in own.sample(range(len(sizes)), len(sizes)):
            mine = torch.full_like(given[n], 1000.0 * rank + step)
            given[n] += mine
            pending.append((n, hvd.partial_allreduce_async(mine, names[n], **choices)))
        for n, answer in pending:
            totals[n] += answer.wait()[0]
        if step % metric_every == 3:
            hvd.allreduce(torch.ones(5), name=f"races.metric.{seed}.{step}")
    flushes = [hvd.flush_partial(one, name, **choices) for one, name in zip(totals, names)]
    for total, flush in zip(totals, flushes):
        total += flush.wait()[0]
    for n, total in enumerate(totals):
        whole = hvd.allreduce(given[n], op=hvd.Sum, name=f"races.all.{seed}.{n}")
        assert torch.equal(total, whole), (rank, names[n], choices)
    hvd.exchange_stats()
    return CALLS * len(sizes)


def armed(rank: int, size: int, seed: int) -> int:
    """Steps under plans that change; how many were armed. Every sum is checked."""
    return torch_steps(rank, size, ARMED_STEPS, seed, TIMEOUT_S)


def split(rank: int, size: int, seed: int) -> int:
    """Updates of two models; how many steps were armed. Every weight is checked."""
    return split_stress.torch_steps(rank, size, ARMED_STEPS, seed)


# Several messages of a round in flight, which end in an order of each rank's own.
_RING = {"PACELINE_COLLECTIVE": "ring", **debug(collective_block_bytes=16384), "HOROVOD_FUSION_THRESHOLD": "65536"}
# What ranks do in a turn, and with which variables.
PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "partial": ("partial", {}),
    "armed": ("armed", ARMED),
    "armed-events": ("armed", debug(armed=True, wake="events")),
    "armed-flight": ("armed", {"HOROVOD_FUSION_THRESHOLD": "0", **debug(armed=True, collective_block_bytes=4096)}),
    "split": ("split", ARMED),
    **{event: (event, _RING | VARIABLES) for event in EVENTS if event not in OF_TENSORFLOW},
}


def provoke(rank: int, size: int, library: str) -> int:
    return int(ctypes.CDLL(library).race())


def _run(part: str, ranks: int, seed: int, seconds: float, env: dict[str, str], known: str) -> tuple[int, int]:
    """Run turns in a new world for `seconds` seconds. Return the number of turns, and the sum of their results.

    `known`: a library with a race to report first, or "".
    """
    name, variables = PARTS[part]
    if part == "armed-flight":
        variables = variables | {"PACELINE_COLLECTIVE": random.Random(seed).choice(COLLECTIVES)}
    event = EVENTS.get(name)
    body = (event.__module__, event.__qualname__) if event else ("integration_tests.races", name)
    turns, count, started = 0, 0, time.monotonic()
    world = World(ranks, env | variables)
    try:
        if known:
            world.run("integration_tests.races", "provoke", (known,), TURN_TIMEOUT_S)
        while time.monotonic() - started < seconds:
            count += sum(world.run(*body, (seed + turns,), TURN_TIMEOUT_S))
            turns += 1
    finally:
        world.end()
    return turns, count


def main() -> int:
    parser = argparse.ArgumentParser(description="Partial rounds, armed steps and split updates under a sanitizer.")
    parser.add_argument("--minutes", type=float, default=30.0, help="of all parts together")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted({name for name, _ in PARTS.values()}), help="what ranks do in a turn")
    sanitizers.add_argument(parser, "thread")
    arguments = parser.parse_args()
    parts = [part for part, (name, _) in PARTS.items() if arguments.only in (None, name)]
    console = Console()
    with tempfile.TemporaryDirectory(prefix="races-") as temporary:
        folder = Path(temporary)
        env = sanitizers.chosen_env(arguments.sanitizer, folder, console)
        known = ""
        if arguments.sanitizer == sanitizers.THREAD.name:  # whose reports do not end a rank
            known = str(sanitizers.faulty_library(sanitizers.THREAD, folder, Path(_RACES_OWN).stem, _RACE))
        seconds = arguments.minutes * 60 / len(parts)
        for part in parts:
            turns, count = _run(part, arguments.ranks, arguments.seed, seconds, env, known)
            assert count, f"{part}: nothing was counted"
            what = "armed steps, summed over ranks" if part.startswith(("armed", "split")) else "calls"
            console.print(f"{part}: {arguments.ranks} ranks, {turns} turns, {count} {what}, all sums exact")
        console.print(f"{arguments.sanitizer} sanitizer, {arguments.minutes:g} minutes.")
        logs = sanitizers.logs(folder)
        if known:
            provoked = sum(_RACES_OWN in report.text for log in logs for report in sanitizers.reports(log))
            assert provoked >= arguments.ranks * len(parts), "a race made on purpose was not reported by every rank"
            console.print(f"Races made on purpose, to see that they are reported: {provoked}")
        return 0 if sanitizers.verdict(logs, console, _RACES_OWN) else 1


if __name__ == "__main__":
    sys.exit(main())
