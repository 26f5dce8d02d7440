"""No data race in core and bridge: random partial rounds and armed steps under ThreadSanitizer, for as long as asked.

    python -m integration_tests.races --minutes 30        (`make races`; needs the tools of a host build and libtsan)
    python -m integration_tests.races --only armed        (a part of it)

Builds Horovod with Paceline's sources and `-fsanitize=thread` (cached afterwards) and puts it in front of the installed
one. Ranks then train nothing but hand in tensors, equally long each:
- partial: random quorums, numbers and sizes of tensors, orders and delays, with full allreduces in between;
- armed: steps whose plans, orders and gradients change, with other operations in between;
- armed-events: the same with a background thread that sleeps until something happens;
- armed-flight: the same with a collective of ours, chosen by the seed, whose messages are in flight together;
- join, sets, plans: a rank joins before others meet, a process set ends with an operation open, plans change while
  collectives of ours are in flight.
Sums are checked to be exact. Horovod's own sources are instrumented, too, so that its synchronisation is known; a
report is ours if the innermost frame of either access that belongs to Horovod or Paceline is Paceline's. Reports of
Horovod's own are counted and shown, and do not fail the run.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from integration_tests import sanitizers
from integration_tests.support.armed_stress import torch_steps
from integration_tests.support.arming import ARMED
from integration_tests.support.fuzz_events import EVENTS, VARIABLES, join, plans, sets  # noqa: F401  ranks run them
from integration_tests.support.ranks import World

CALLS = 40  # of each name in a turn
COLLECTIVES = ("linear", "ring", "direct", "doubling", "auto")
ARMED_STEPS = 100  # in a turn
PATIENCE_S = 1.0  # of a group: a sanitizer makes ranks slow
TURN_TIMEOUT_S = 300.0
# Python, the frameworks and Gloo's callers are not instrumented: what they touch by themselves is not looked at.
OPTIONS = "exitcode=0 ignore_noninstrumented_modules=1 history_size=4 report_thread_leaks=0 report_signal_unsafe=0"

# Shows that a race is reported in the ranks, before none is believed.
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

_REPORT = re.compile(r"^WARNING: ThreadSanitizer: (.+?) \(pid=", re.MULTILINE)
_FRAME = re.compile(r"^ +#\d+ (.+)$", re.MULTILINE)
_OURS = ("horovod::paceline::", "paceline::core::", "horovod_paceline_")
_HOST = ("horovod::common::", "horovod::torch::", "horovod_")


@dataclass(frozen=True)
class Report:
    """One report of ThreadSanitizer: its kind, the functions its accesses are in, and its text."""

    kind: str
    places: tuple[str, ...]
    text: str

    @property
    def ours(self) -> bool:
        """Whether an access is Paceline's own."""
        return any(place.startswith(_OURS) for place in self.places)


def reports(text: str) -> list[Report]:
    """The reports in a log. A stack with no frame of Horovod or Paceline has no place."""
    found = []
    for block in text.split("=================="):
        kind = _REPORT.search(block)
        if kind is None:
            continue
        places = []
        # The stacks of the accesses come first; where threads and memory were made, after.
        for stack in block.split("\n\n")[:2]:
            frames = [frame.split("(")[0].split("<")[0] for frame in _FRAME.findall(stack)]
            places += [frame for frame in frames if frame.startswith(_OURS + _HOST)][:1]
        found.append(Report(kind[1], tuple(places), block.strip()))
    return found


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
    return torch_steps(rank, size, ARMED_STEPS, seed, PATIENCE_S)


_RING = {"PACELINE_COLLECTIVE": "ring", "PACELINE_COLLECTIVE_BLOCK_BYTES": "16384"}
# What ranks do in a turn, and with which variables.
PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "partial": ("partial", {}),
    "armed": ("armed", ARMED),
    "armed-events": ("armed", ARMED | {"PACELINE_WAKE": "events"}),
    "armed-flight": ("armed", ARMED | {"HOROVOD_FUSION_THRESHOLD": "0", "PACELINE_COLLECTIVE_BLOCK_BYTES": "4096"}),
    **{event: (event, _RING | VARIABLES) for event in EVENTS},
}


def provoke(rank: int, size: int, library: str) -> int:
    """A race that has to be reported."""
    return int(ctypes.CDLL(library).race())


def _read(folder: Path) -> list[Report]:
    return [report for log in sanitizers.logs(folder) for report in reports(log)]


def _show(console: Console, found: list[Report], ours: bool) -> int:
    chosen = [report for report in found if report.ours == ours]
    for (kind, places), count in Counter((report.kind, report.places) for report in chosen).most_common():
        console.print(f"  {count} x {kind}: {' | '.join(places) or 'neither in Horovod nor in Paceline'}", markup=False)
    return len(chosen)


def _run(part: str, ranks: int, seed: int, seconds: float, env: dict[str, str], known: Path) -> tuple[int, int]:
    """Turns in a world of its own, for so long; how many, and what they count."""
    name, variables = PARTS[part]
    if part == "armed-flight":
        variables = variables | {"PACELINE_COLLECTIVE": random.Random(seed).choice(COLLECTIVES)}
    turns, count, started = 0, 0, time.monotonic()
    world = World(ranks, env | variables)
    try:
        world.run("integration_tests.races", "provoke", (str(known),), TURN_TIMEOUT_S)
        while time.monotonic() - started < seconds:
            count += sum(world.run("integration_tests.races", name, (seed + turns,), TURN_TIMEOUT_S))
            turns += 1
    finally:
        world.end()
    return turns, count


def main() -> int:
    """Build, run, count reports."""
    parser = argparse.ArgumentParser(description="Partial rounds and armed steps under ThreadSanitizer.")
    parser.add_argument("--minutes", type=float, default=30.0, help="of all parts together")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted({name for name, _ in PARTS.values()}), help="what ranks do in a turn")
    arguments = parser.parse_args()
    parts = [part for part, (name, _) in PARTS.items() if arguments.only in (None, name)]
    console = Console()
    with tempfile.TemporaryDirectory(prefix="races-") as temporary:
        folder = Path(temporary)
        env = sanitizers.ranks_env(sanitizers.THREAD, folder, console, OPTIONS)
        known = sanitizers.faulty_library(sanitizers.THREAD, folder, "race", _RACE)
        seconds = arguments.minutes * 60 / len(parts)
        for part in parts:
            turns, count = _run(part, arguments.ranks, arguments.seed, seconds, env, known)
            assert count, f"{part}: nothing was counted"
            what = "armed steps, summed over ranks" if part.startswith("armed") else "calls"
            console.print(f"{part}: {arguments.ranks} ranks, {turns} turns, {count} {what}, all sums exact")
        found = _read(folder)
        provoked = [report for report in found if "race.so" in report.text]
        least = arguments.ranks * len(parts)
        assert len(provoked) >= least, "a race that was made on purpose was not reported by every rank"
        found = [report for report in found if report not in provoked]
        console.print(
            f"{arguments.minutes:g} minutes. Races made on purpose, to see that they are reported: {len(provoked)}"
        )
        console.print("Reports about core and bridge:")
        ours = _show(console, found, ours=True)
        console.print(f"  {ours} in all\nOther reports (Horovod's own accesses):")
        console.print(f"  {_show(console, found, ours=False)} in all")
        if ours:
            console.print(next(report.text for report in found if report.ours), markup=False)
        return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
