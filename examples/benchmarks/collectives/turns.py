"""The systems in turn, A B C A B C ..., one operation and size at a time, until their ratios are known well enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from paceline.examples.benchmarks.collectives.callers import Callers, CallsRun
from paceline.examples.benchmarks.collectives.cases import MODEL, Case, model_case
from paceline.examples.benchmarks.collectives.systems import DDP, GLOO, MPI, CollectiveSystem, plain_of
from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.harness.stats import FEWEST, Interval, median_interval
from paceline.examples.benchmarks.harness.turns import Limits

TURN_S = 1.0  # what one system's part of a turn should take
MOST_CALLS = 50
MEETING_S = 0.003  # of the ranks before a call
# A first call is slower: ranks agree on a name, TCP finds its window, memory is new. It is left out where it is cheap.
WARM_UP_S = 0.5
RIVALS = (GLOO, DDP, MPI)

Of = Callable[[CallsRun], float]


def call_s(run: CallsRun) -> float:
    """What the user waits for."""
    return run.call_s


def message_s(run: CallsRun) -> float:
    """What the collective alone takes."""
    return run.message_s


@dataclass
class Comparison:
    """One operation and size: for each system that can call it, by name, what it did in each turn.

    `together`: the same with `in_flight` messages handed in at once, if that was asked for.
    """

    operation: str
    size_bytes: int
    systems: Sequence[CollectiveSystem]
    in_flight: int = 1
    runs: dict[str, list[CallsRun]] = field(default_factory=dict)
    together: dict[str, list[CallsRun]] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """The number of complete turns."""
        return min(len(runs) for runs in self.runs.values())

    @property
    def measured(self) -> list[CollectiveSystem]:
        """The systems that can call the operation."""
        return [system for system in self.systems if system.name in self.runs]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Which systems are compared: Paceline's with others', and those with a codec with the same without."""
        found = []
        for system in self.measured:
            if system.name in RIVALS:
                continue
            found += [(system.name, rival) for rival in RIVALS if rival in self.runs]
            plain = plain_of(system, self.measured)
            found += [(system.name, plain.name)] if plain is not None else []
        return found

    def figure(self, system: str, of: Of) -> Interval:
        """A figure of one system over the turns."""
        return median_interval([of(run) for run in self.runs[system]])

    def ratio(self, system: str, reference: str, of: Of) -> Interval:
        """How much longer one system takes than another within the same turn."""
        pairs = zip(self.runs[system], self.runs[reference], strict=False)
        return median_interval([of(one) / of(other) for one, other in pairs])

    def over_one(self, system: str) -> Interval:
        """How much longer messages take that are handed in together than one alone."""
        pairs = zip(self.together[system], self.runs[system], strict=False)
        return median_interval([several.call_s / one.call_s for several, one in pairs])

    @property
    def settled(self) -> bool:
        """Whether no ratio is wide any more; without any ratio, whether no time is."""
        if self.turns < FEWEST:
            return False
        intervals = [self.ratio(*pair, call_s) for pair in self.pairs] or [
            self.figure(system.name, call_s) for system in self.measured
        ]
        return not any(interval.wide for interval in intervals)


def calls_per_turn(call_s: float) -> int:
    """How many calls of `call_s` seconds make up a turn."""
    return max(1, min(MOST_CALLS, int(TURN_S / (call_s + MEETING_S))))


@dataclass(frozen=True)
class Wanted:
    """What to measure: every operation on every size, but models on those of `model_bytes`.

    `bytes_per_s` of the links, if they have a rate, says which calls are cheap enough to be made once more.
    """

    operations: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    model_bytes: tuple[int, ...]
    in_flight: int
    limits: Limits
    bytes_per_s: float | None

    @property
    def comparisons(self) -> list[tuple[str, int]]:
        """Operations and sizes."""
        found = [(operation, size) for operation in self.operations for size in self.sizes_bytes]
        return found + [(MODEL, size) for size in self.model_bytes]

    def warms_up(self, size_bytes: int) -> bool:
        """Whether a call is made that does not count."""
        return self.bytes_per_s is None or size_bytes / self.bytes_per_s < WARM_UP_S


def compare(
    wanted: Wanted,
    systems: Sequence[CollectiveSystem],
    size: int,
    hosts: Hosts,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[Comparison]:
    """Run `systems` in turn on `size` ranks. `report` is told in a line what goes on.

    Raises UserError when a rank ends or hangs; no process is left in any case.
    """
    with ExitStack() as stack:
        callers = []
        for system in systems:
            report(f"{size} ranks: starting those of {system.name}")
            callers.append(stack.enter_context(Callers(system, size, hosts)))
        for operation, size_bytes in wanted.comparisons:
            able = [one for one in callers if operation in one.system.operations and operation in one.operations]
            if able:
                case = model_case(size_bytes) if operation == MODEL else Case(operation, size_bytes)
                yield _compare(wanted, case, able, systems, report)


def _compare(
    wanted: Wanted,
    case: Case,
    callers: Sequence[Callers],
    systems: Sequence[CollectiveSystem],
    report: Callable[[str], None],
) -> Comparison:
    comparison = Comparison(case.operation, case.size_bytes, systems, wanted.in_flight)
    comparison.runs = {one.system.name: [] for one in callers}
    cases = [(case, comparison.runs)]
    if wanted.in_flight > 1 and case.operation != MODEL:
        comparison.together = {one.system.name: [] for one in callers}
        cases.append((Case(case.operation, case.size_bytes, wanted.in_flight), comparison.together))
    begin_s = time.monotonic()
    lasted_s: dict[tuple[Case, str], float] = {}

    def turn(warm_up: bool) -> list[tuple[list[CallsRun], CallsRun]]:
        made = []
        for one in callers:
            for which, runs in cases:
                name = one.system.name
                known_s = lasted_s.get((which, name))
                run = one.run(which, 1 if known_s is None else calls_per_turn(known_s), warm_up)
                lasted_s[which, name] = run.call_s
                made.append((runs[name], run))
        return made

    if wanted.warms_up(case.size_bytes):
        report(f"{case.operation}, {case.size_bytes} bytes: first calls")
        turn(warm_up=True)
    while True:
        for runs, run in turn(warm_up=False):
            runs.append(run)
        elapsed_s = time.monotonic() - begin_s
        report(f"{case.operation}, {case.size_bytes} bytes: {_state(comparison)}, {elapsed_s:.0f} s")
        if comparison.settled or comparison.turns >= wanted.limits.turns or elapsed_s >= wanted.limits.time_s:
            return comparison


def _state(comparison: Comparison) -> str:
    times = [f"{name} {comparison.figure(name, call_s).median * 1e3:.3g} ms" for name in list(comparison.runs)[:4]]
    return f"turn {comparison.turns}, {', '.join(times)}"
