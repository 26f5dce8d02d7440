"""Single messages: settings, turns, ratios and columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import fmean, median

import msgspec

from paceline import config
from paceline.collectives.bounds import BROADCAST, ENCODED, MEASURED, OPERATIONS, Message, bound_s, bus_factor, known
from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.latencies import parse_latency
from paceline.examples.benchmarks.cluster.rates import parse_rate
from paceline.examples.benchmarks.collectives.systems import RIVALS, Collective, find
from paceline.examples.benchmarks.collectives.worker import Called, Order
from paceline.examples.benchmarks.harness.hosts import open_hosts
from paceline.examples.benchmarks.harness.ratio import Ratio, over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import check_known
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, Log, compare, count_for
from paceline.examples.benchmarks.networks import models
from paceline.examples.benchmarks.steps.benchmark import where
from paceline.launch.probe.buffers import Case
from paceline.launch.probe.calls import MODEL
from paceline.launch.quantities import ELEMENT_BYTES, size_bytes, size_name

TURN_S = 1.0  # duration of one system's part of a turn
MOST_CALLS = 50
MEETING_S = 0.003  # of the ranks before a call
# A first call is slower: name negotiation, TCP's window, new memory. It is left out where it is cheap.
WARM_UP_S = 0.5
CALL_LIMIT_S = 300.0
_MODEL = "bert-base"  # its tensors have these sizes in a model of any total size


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Worlds of `hosts` emulated hosts (1: this machine) with a rank on each, or of `ranks` ranks of this machine.

    With `in_flight`, that number of messages is also submitted together. With `model_mb`, broadcast_parameters of a
    model of that size in MB is also measured. `noise`: 99th percentile over median of the time of a byte on a link,
    which then changes all the time. `wake`: when coordination rounds begin, as in PACELINE_DEBUG.
    """

    hosts: tuple[int, ...] = (4,)
    ranks: tuple[int, ...] = ()
    rate: str | None = "200mbit"
    latency: str | None = None
    operations: tuple[str, ...] = OPERATIONS
    sizes: tuple[str, ...] = ("64MiB",)
    systems: tuple[str, ...] = ("horovod", "ddp", "linear", "ring")
    in_flight: int = 1
    model_mb: float = 0.0
    noise: float | None = None
    wake: str = ""

    @property
    def worlds(self) -> list[tuple[int, int]]:
        """Pairs: number of hosts, number of ranks."""
        return [(1, ranks) for ranks in self.ranks] or [(hosts, hosts) for hosts in self.hosts]

    @property
    def cases(self) -> list[Case]:
        """Every operation on every size, and a model."""
        found = [Case(operation, size_bytes(size)) for operation in self.operations for size in self.sizes]
        return found + ([model_case(round(self.model_mb * 1e6))] if self.model_mb else [])


def model_case(model_bytes: int) -> Case:
    """Return the broadcast of a model's parameters of about `model_bytes` bytes."""
    model = models.find(_MODEL)
    scaled = [layer.scaled(model_bytes / model.gradient_bytes) for layer in model.layers]
    sizes = tuple(math.prod(shape) * ELEMENT_BYTES for layer in scaled for _, shape in layer.tensors)
    return Case(MODEL, model_bytes, tensor_bytes=sizes)


class CallTeam(Team):
    """The ranks of one system. `take` is one turn: calls of a case, and calls with several messages in flight."""

    def __init__(self, collective: Collective, settings: Settings, ranks: int, hosts: object) -> None:
        super().__init__(collective.system, ranks, hosts)  # type: ignore[arg-type]
        self.collective = collective
        on_links = len(self.hosts.names) > 1
        self._bytes_per_s = parse_rate(settings.rate) / 8 if on_links and settings.rate else None
        self._latency_s = parse_latency(settings.latency) / 1e9 if on_links and settings.latency else 0.0
        self._in_flight = settings.in_flight
        self._noisy = settings.noise is not None
        self._call_s: dict[Case, float] = {}

    def take(self, case: Case) -> Turn:
        """Let the ranks make calls for TURN_S seconds."""
        figures = self._figures(case, *self._calls(case))
        if self._in_flight > 1 and case.operation != MODEL:
            together, _ = self._calls(Case(case.operation, case.size_bytes, self._in_flight))
            call_ms, one_ms = call_s(together) * 1e3, figures["call_ms"]
            assert one_ms is not None
            figures |= {"together_ms": call_ms, "together_over_one": call_ms / one_ms}
        return Turn(figures)

    def _calls(self, case: Case) -> tuple[list[Called], float | None]:
        """Return the figures of each rank, and the bytes that the busiest host sent per call."""
        if case not in self._call_s:
            # The first calls determine the number of calls in a turn.
            warm = self._bytes_per_s is None or case.size_bytes / self._bytes_per_s < WARM_UP_S
            self._call_s[case] = call_s(self.ask(Order(case, 1, warm), CALL_LIMIT_S, meetings=1))
        calls = count_for(TURN_S, self._call_s[case] + MEETING_S, 1, MOST_CALLS)
        called = self.ask(Order(case, calls), CALL_LIMIT_S, meetings=calls)
        self._call_s[case] = call_s(called)
        return called, None if self.sent_bytes is None else self.sent_bytes / calls

    def _figures(self, case: Case, called: Sequence[Called], sent_bytes: float | None) -> dict[str, float | None]:
        alone_s = message_s(called)
        bus_bytes_s = case.size_bytes * bus_factor(case.operation, self.size) / alone_s
        bound = self._bound_s(case)
        share = None
        if self._bytes_per_s is not None:
            share = bus_bytes_s * ENCODED[self.collective.codec] / self._bytes_per_s
        times_s = calls_s(called)
        noisy = {"mean_ms": fmean(times_s) * 1e3, "worst_ms": max(times_s) * 1e3} if self._noisy else {}
        return {
            "call_ms": median(times_s) * 1e3,
            **noisy,
            "message_ms": alone_s * 1e3,
            "bus_bytes_per_s": bus_bytes_s,
            "wire_share": share,
            "bound_share": None if bound is None else bound / alone_s,
            "cpu_ms": fmean(time_s for rank in called for time_s in rank.cpu_s) * 1e3,
            "sent_bytes": sent_bytes,
        }

    def _bound_s(self, case: Case) -> float | None:
        collective = self.collective.bounds.get(case.operation, "")
        operation = BROADCAST if case.operation == MODEL else case.operation
        if self._bytes_per_s is None or not known(operation, collective):
            return None
        message = Message(self.size, case.size_bytes, config.read().collective_block_bytes)
        return bound_s(operation, collective, message, self._bytes_per_s, self._latency_s, self.collective.codec)


def calls_s(called: Sequence[Called]) -> list[float]:
    """Return the time from the first rank's call to the last rank's result, for each call."""
    begins = [min(times) for times in zip(*(rank.begin_s for rank in called), strict=True)]
    ends = [max(times) for times in zip(*(rank.end_s for rank in called), strict=True)]
    return [end - begin for begin, end in zip(begins, ends, strict=True)]


def call_s(called: Sequence[Called]) -> float:
    """Return the median of `calls_s`."""
    return median(calls_s(called))


def message_s(called: Sequence[Called]) -> float:
    """Return the time of the messages alone on the slowest rank; median over the calls."""
    if not called[0].message_s:
        return call_s(called)
    return median(max(times) for times in zip(*(rank.message_s for rank in called), strict=True))


def ratios(collectives: Sequence[Collective], operation: str, noisy: bool = False) -> list[Ratio]:
    """Return the ratios over Horovod's and PyTorch's collectives, and of systems with a codec over the same without.

    They compare calls, and, with "_message" at the end, messages alone; on a noisy network, means of calls.
    """
    compared = [("mean_ms", "_mean")] if noisy else [("call_ms", ""), ("message_ms", "_message")]
    names = [one.system.name for one in collectives]
    pairs = [
        (one, rival) for one in collectives for rival in RIVALS if rival in names and one.system.name not in RIVALS
    ]
    pairs += [(one, one.plain) for one in collectives if one.plain in names]
    return [
        over(one.system.name, reference, figure, f"_{operation}{suffix}")
        for one, reference in pairs
        for figure, suffix in compared
    ]


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Measure each world, and in it each case."""
    check_known(settings.operations, MEASURED)
    chosen, cases = [find(name, settings.wake) for name in settings.systems], settings.cases
    refused = {one.system.name: one.refusal for one in chosen if one.refusal}
    able = [one for one in chosen if not one.refusal]
    if not able:
        raise UserError("None of these systems can be measured here.", "Run `paceline horovod install`.")
    fewest: dict[Case, dict[str, float]] = {}
    for count, ranks in settings.worlds:
        with open_hosts(count, settings.rate, settings.latency, settings.noise) as hosts, ExitStack() as stack:
            teams = []
            for one in able:
                log(f"{ranks} ranks: starting those of {one.system.name}")
                teams.append(stack.enter_context(CallTeam(one, settings, ranks, hosts)))
            for case in cases:
                there = [
                    team
                    for team in teams
                    if case.operation in team.hello[0] and case.operation in team.collective.bounds
                ]
                if not there:
                    continue
                what = f"{case.operation} of {size_name(case.size_bytes)}"
                takes = {team.system.name: partial(team.take, case) for team in there}
                compared = ratios([team.collective for team in there], case.operation, settings.noise is not None)
                comparison = compare(takes, "call_ms", compared, limits, log, what)
                rate = settings.rate if count > 1 else None
                facts = {
                    "operation": case.operation, "size_bytes": case.size_bytes, "hosts": count, "ranks": ranks,
                    "rate": rate, "latency": settings.latency, "noise": settings.noise,
                }  # fmt: skip
                noise = "" if settings.noise is None else f", a byte's p99 / p50 {settings.noise:g}"
                title = f"{what}: {where(ranks, count, rate, settings.latency)}{noise}"
                yield Measured(title, comparison, facts, _growth(comparison, case, ranks, fewest), refused)


def _growth(comparison: Comparison, case: Case, ranks: int, fewest: dict[Case, dict[str, float]]) -> list[str]:
    """Lines about the time of a message divided by its time among the fewest ranks, which are measured first."""
    found = {name: comparison.interval(name, "message_ms") for name in comparison.turns}
    medians = {name: one.median for name, one in found.items() if one is not None}
    before = fewest.setdefault(case, {**medians, "": ranks})
    if before[""] == ranks:
        return []
    return [
        f"{name}: a message takes {time / before[name]:.3f} times as long as among {before['']:g} ranks"
        for name, time in medians.items()
        if name in before
    ]


BENCHMARK = Benchmark(
    "Collectives",
    Settings,
    measure,
    "system",
    (
        Column("call ms", "call_ms", ".4g"),
        Column("mean ms", "mean_ms", ".4g"),
        Column("worst ms", "worst_ms", ".4g"),
        Column("message ms", "message_ms", ".4g"),
        Column("bus MB/s", "bus_bytes_per_s", ".4g", 1e6),
        Column("of wire", "wire_share", ".3f"),
        Column("of bound", "bound_share", ".3f"),
        Column("CPU ms", "cpu_ms", ".3g"),
        Column("sent MB/host", "sent_bytes", ".4g", 1e6),
        Column("together ms", "together_ms", ".4g"),
        Column("together over one", "together_over_one", ".3f"),
    ),
    start_s=15.0,
)
