"""Benchmark scale: what coordination takes by the number of ranks, on this machine and beyond it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.errors import UserError
from paceline.examples.benchmarks.commands.limits import Limited, check_limits, limits
from paceline.examples.benchmarks.commands.numbers import numbers
from paceline.examples.benchmarks.commands.options import MOST_RANKS, check_installed, named_words
from paceline.examples.benchmarks.commands.showing import show_each
from paceline.launch import console, outputs
from paceline.launch.quantities import size_bytes, size_name

if TYPE_CHECKING:
    from paceline.examples.benchmarks.scale.cases import Case

MOST_TENSORS, FEWEST_PARTS = 4096, 2
# Merging takes smaller ones that come last for values such as a loss, which no plan has (core/fusion/monitor.h).
LEAST_BYTES, MOST_BYTES = 68, 1 << 20
MOST_LATENCY_S = 1.0
_LATENCY_REMEDY = 'Write a number and one of us, ms, s, such as "50us"; at most 1s.'


@dataclass(frozen=True)
class ScaleRequest(Limited):
    """What to measure, as the options of the command say it, and with which latency to simulate."""

    ranks: tuple[int, ...]
    systems: tuple[str, ...]
    tensors: int
    parts: int
    size_bytes: int
    latency: str | None
    plot: Path | None

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        words = (
            "python -m examples.benchmarks "
            f"scale --ranks {','.join(map(str, self.ranks))} --systems {','.join(self.systems)}"
        )
        words += f" --tensors {self.tensors} --parts {self.parts} --size {size_name(self.size_bytes)}"
        words += "" if self.latency is None else f" --latency {shlex.quote(self.latency)}"
        words += "" if self.plot is None else f" --plot {shlex.quote(str(self.plot))}"
        return f"{words} {self.limit_options}"

    @property
    def case(self) -> Case:
        """A step."""
        from paceline.examples.benchmarks.scale.cases import Case

        return Case(self.tensors, self.parts, self.size_bytes)


@click.command("scale")
@click.option("--ranks", default="2,4,8,16,32", show_default=True, help="Ranks of this machine. Several: 2,8 or 2..8.")
@click.option(
    "--systems",
    help="uncached (Horovod without its response cache), cached (stock Horovod), events (PACELINE_WAKE=events), armed"
    " (and PACELINE_ARMED=yes). [default: all]",
)
@click.option("--tensors", default=64, show_default=True, help="Gradients of a step.")
@click.option("--parts", default=4, show_default=True, help="Parts in which they are handed in, one after the other.")
@click.option("--size", default="256", show_default=True, help="Bytes of each gradient, float32.")
@click.option(
    "--latency",
    metavar="TIME",
    help="Simulate a network that takes so long from host to host, one way, beside what loopback takes. [default: 0]",
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw a picture: .png, .pdf or .svg.")
@limits("number of ranks", time_limit_s=20.0, turns=50)
def scale_command(as_json: bool, **options: Any) -> None:
    """Measure what coordination takes by the number of ranks, and simulate it up to 4,096.

    Ranks of this machine hand in gradients and do nothing else. Systems take turns: time, processor time and rounds of
    a step, and how often ranks wake up that have nothing to do. From the times follow what a hop and a message cost,
    and from these the coordination of ranks on hosts of their own.
    """
    request = requested(**options)
    check_installed()
    from paceline.examples.benchmarks.scale import memory
    from paceline.examples.benchmarks.scale.table import as_table

    memory.check(max(request.ranks), len(request.systems))
    show_each(lambda tell: _measure(request, tell), as_table, as_json)


def requested(
    ranks: str, systems: str | None, size: str, latency: str | None, plot: Path | None, **others: Any
) -> ScaleRequest:
    """What the options ask for. Raises UserError for what cannot be used."""
    from paceline.examples.benchmarks.scale.systems import SYSTEMS, find

    names = named_words(systems) or tuple(SYSTEMS)
    for name in names:
        find(name)
    counts = numbers("--ranks", ranks)
    if not 2 <= counts[0] <= counts[-1] <= MOST_RANKS:
        raise UserError(f"--ranks {ranks} cannot be used.", f"Give 2 to {MOST_RANKS} ranks.")
    request = ScaleRequest(
        ranks=counts, systems=names, size_bytes=size_bytes(size), latency=latency, plot=plot, **others
    )
    if not LEAST_BYTES <= request.size_bytes <= MOST_BYTES:
        raise UserError(f"--size {size} cannot be used.", f"Give {LEAST_BYTES} bytes to {size_name(MOST_BYTES)}.")
    if not FEWEST_PARTS <= request.tensors <= MOST_TENSORS:
        raise UserError(f"--tensors {request.tensors} cannot be used.", f"Give {FEWEST_PARTS} to {MOST_TENSORS}.")
    if not FEWEST_PARTS <= request.parts <= request.tensors:
        raise UserError(
            f"--parts {request.parts} cannot be used.", f"Give {FEWEST_PARTS} to {request.tensors}, that of tensors."
        )
    check_limits(request.time_limit_s, request.turns)
    latency_s(latency)
    if plot is not None:
        outputs.check_picture(plot)
    return request


def latency_s(text: str | None) -> float:
    """Seconds of --latency. Raises UserError for one that cannot be used."""
    from paceline.examples.benchmarks.cluster.latencies import UNITS
    from paceline.examples.benchmarks.cluster.quantities import parse_quantity

    if text is None:
        return 0.0
    seconds = parse_quantity("latency", text, UNITS, _LATENCY_REMEDY) / 1e9
    if seconds > MOST_LATENCY_S:
        raise UserError(f"--latency {text} cannot be used.", _LATENCY_REMEDY)
    return seconds


def _measure(request: ScaleRequest, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    from paceline.examples.benchmarks.harness import report as machine_report
    from paceline.examples.benchmarks.harness.hosts import Loopback
    from paceline.examples.benchmarks.harness.turns import Limits
    from paceline.examples.benchmarks.scale import report, turns
    from paceline.examples.benchmarks.scale.systems import find

    most = Limits(request.time_limit_s, request.turns)
    asked = [find(name) for name in request.systems]
    skipped = {system.name: reason for system in asked if (reason := system.refusal())}
    for name, reason in skipped.items():
        console.note(f"{name} is left out: {reason}")
    able = [system for system in asked if system.name not in skipped]
    if not able:
        raise UserError("None of these systems can be measured here.", "Run `paceline horovod install`.")
    results = []
    for ranks in request.ranks:
        about = machine_report.machine()
        comparison = turns.compare(request.case, able, ranks, Loopback(), most, tell)
        results.append(report.as_json(comparison, skipped, about, request.command))
        yield results[-1]
    about = machine_report.machine()
    last = report.closing(request.case, results, request.latency, latency_s(request.latency), about, request.command)
    if request.plot is not None:
        from paceline.examples.benchmarks.scale.plot import scale_figure
        from paceline.launch.record.plot import save

        save(scale_figure(results, last), request.plot)
    yield last
