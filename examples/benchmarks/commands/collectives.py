"""`python -m examples.benchmarks collectives`: what a message takes, by every system and collective."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from paceline.errors import UserError
from paceline.examples.benchmarks.commands.limits import Limited, check_limits, limits
from paceline.examples.benchmarks.commands.numbers import numbers
from paceline.examples.benchmarks.commands.options import MOST_RANKS, check_installed, check_latency, named_words
from paceline.examples.benchmarks.commands.showing import show_each
from paceline.launch import console
from paceline.launch.quantities import size_name, sizes_bytes

SIZES = "4,4KiB,64KiB,1MiB,16MiB,64MiB"
HOSTS, RATE = "4", "200mbit"
MOST_IN_FLIGHT = 64


@dataclass(frozen=True)
class CollectivesRequest(Limited):
    """What to measure, as the options of the command say it. `worlds` has numbers of hosts and of ranks."""

    worlds: tuple[tuple[int, int], ...]
    rate: str | None
    latency: str | None
    operations: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    systems: tuple[str, ...]
    in_flight: int
    model_mb: float

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        hosts = ",".join(map(str, dict.fromkeys(host for host, _ in self.worlds)))
        ranks = ",".join(str(ranks) for _, ranks in self.worlds)
        words = f"python -m examples.benchmarks collectives --hosts {hosts} --ranks {ranks}"
        words += "" if self.rate is None else f" --rate {shlex.quote(self.rate)}"
        words += "" if self.latency is None else f" --latency {shlex.quote(self.latency)}"
        words += (
            f" --operations {','.join(self.operations) or 'none'} --sizes {','.join(map(size_name, self.sizes_bytes))}"
        )
        words += f" --systems {','.join(self.systems)} --in-flight {self.in_flight}"
        words += f" --model-mb {self.model_mb:g}" if self.model_mb else ""
        return f"{words} {self.limit_options}"


@click.command("collectives")
@click.option(
    "--hosts",
    help="Emulated hosts with a rank on each; more than 1 needs root. Several, one after another: 2,8 or 2..4."
    f" [default: {HOSTS}; 1, this machine, with --ranks]",
)
@click.option("--ranks", help="Ranks in all, the same number on every host. Several: 2..8. [default: one a host]")
@click.option("--rate", help=f"Rate of every emulated host's link, each direction. [default: {RATE}]")
@click.option("--latency", metavar="TIME", help="Time from host to host, one way, e.g. 2ms. [default: 0]")
@click.option("--operations", help="broadcast, reduce, allreduce; none, for a model alone. [default: all three]")
@click.option("--sizes", default=SIZES, show_default=True, help="Sizes of messages.")
@click.option(
    "--systems",
    help="gloo (stock Horovod), ddp (torch.distributed), mpi (Open MPI), collectives of Paceline's and those with a"
    " codec, such as ring+q8. [default: all that can be measured here]",
)
@click.option("--in-flight", default=1, show_default=True, help="Also hand in so many messages together.")
@click.option("--model-mb", default=0.0, help="Also measure broadcast_parameters of a model of so many MB, e.g. 400.")
@limits("operation and size", time_limit_s=30.0, turns=200)
def collectives_command(as_json: bool, **options: Any) -> None:
    """Compare broadcast, reduce and allreduce by Horovod on Gloo, torch.distributed, Open MPI and Paceline.

    Systems take turns on one message at a time: what a call takes, and what the collective alone takes, which Paceline
    writes down inside Horovod. A message's share of the wire and of the collective's own bound says what is left to
    gain.
    """
    request = requested(**options)
    check_installed()
    from paceline.examples.benchmarks.collectives.table import as_table

    show_each(lambda tell: _measure(request, tell), as_table, as_json)


def requested(
    hosts: str | None,
    ranks: str | None,
    rate: str | None,
    operations: str | None,
    sizes: str,
    systems: str | None,
    **others: Any,
) -> CollectivesRequest:
    """What the options ask for. Raises UserError for what cannot be used."""
    from paceline.collectives.bounds import OPERATIONS
    from paceline.examples.benchmarks.cluster.rates import parse_rate
    from paceline.examples.benchmarks.collectives.systems import DEFAULT, find

    named = named_words(systems) or DEFAULT
    for name in named:
        find(name)
    asked = () if operations == "none" else named_words(operations) or OPERATIONS
    for operation in asked:
        if operation not in OPERATIONS:
            raise UserError(f"--operations {operation} cannot be used.", f"Give some of {', '.join(OPERATIONS)}.")
    worlds = _worlds(hosts, ranks)
    on_links = worlds[0][0] > 1
    if rate is not None:
        parse_rate(rate)
        if not on_links:
            raise UserError(f"--rate {rate} cannot be used on one host: loopback has none.", "Add --hosts 2 or more.")
    request = CollectivesRequest(
        worlds=worlds,
        rate=(rate or RATE) if on_links else None,
        operations=asked,
        sizes_bytes=sizes_bytes(sizes),
        systems=named,
        **others,
    )
    if not 1 <= request.in_flight <= MOST_IN_FLIGHT:
        raise UserError(f"--in-flight {request.in_flight} cannot be used.", f"Give 1 to {MOST_IN_FLIGHT}.")
    if not 0 <= request.model_mb < math.inf:
        raise UserError(f"--model-mb {request.model_mb:g} cannot be used.", "Give more than 0.")
    check_limits(request.time_limit_s, request.turns)
    check_latency(worlds[0][0], request.latency)
    return request


def _measure(request: CollectivesRequest, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    from paceline import config
    from paceline.examples.benchmarks.cluster.latencies import parse_latency
    from paceline.examples.benchmarks.cluster.rates import parse_rate
    from paceline.examples.benchmarks.collectives import report, turns
    from paceline.examples.benchmarks.collectives.systems import find
    from paceline.examples.benchmarks.harness import report as machine_report
    from paceline.examples.benchmarks.harness.hosts import open_hosts
    from paceline.examples.benchmarks.harness.turns import Limits

    systems = [find(name) for name in request.systems]
    skipped = {system.name: reason for system in systems if (reason := system.refusal())}
    for name, reason in skipped.items():
        console.note(f"{name} is left out: {reason}")
    able = [system for system in systems if system.name not in skipped]
    bytes_per_s = None if request.rate is None else parse_rate(request.rate) / 8
    latency_s = 0.0 if request.latency is None else parse_latency(request.latency) / 1e9
    model_bytes = (round(request.model_mb * 1e6),) if request.model_mb else ()
    most = Limits(request.time_limit_s, request.turns)
    wanted = turns.Wanted(request.operations, request.sizes_bytes, model_bytes, request.in_flight, most, bytes_per_s)
    fewest: dict[tuple[str, int], dict[str, Any]] = {}
    for hosts, ranks in request.worlds:
        about = machine_report.machine()
        block_bytes = config.read().collective_block_bytes
        world = report.World(hosts, ranks, request.rate, bytes_per_s, request.latency, latency_s, block_bytes)
        with open_hosts(hosts, request.rate, request.latency) as opened:
            for comparison in turns.compare(wanted, able, ranks, opened, tell):
                which = comparison.operation, comparison.size_bytes
                result = report.as_json(comparison, world, skipped, fewest.get(which), about, request.command)
                fewest.setdefault(which, result)
                yield result


def _worlds(hosts: str | None, ranks: str | None) -> tuple[tuple[int, int], ...]:
    """Numbers of hosts and of ranks; raises UserError for those that cannot be used."""
    host_counts = numbers("--hosts", hosts or (HOSTS if ranks is None else "1"))
    rank_counts = None if ranks is None else numbers("--ranks", ranks)
    if rank_counts is None:
        rank_counts = host_counts if max(host_counts) > 1 else (2,)
    if len(host_counts) > 1 and host_counts != rank_counts:
        raise UserError(
            f"--hosts {hosts} and --ranks {ranks} cannot be used together.",
            "Leave out --ranks for one rank a host, or give one number of hosts.",
        )
    worlds = tuple(zip(host_counts if len(host_counts) > 1 else host_counts * len(rank_counts), rank_counts))
    for host_count, rank_count in worlds:
        if not (1 <= host_count <= rank_count <= MOST_RANKS and rank_count >= 2) or rank_count % host_count:
            raise UserError(
                f"{rank_count} ranks on {host_count} hosts cannot be measured.",
                f"Give 2 to {MOST_RANKS} ranks, the same number on every host.",
            )
    if len({host_count > 1 for host_count, _ in worlds}) > 1:
        raise UserError(f"--hosts {hosts} cannot be used.", "Measure on this machine and on emulated hosts separately.")
    return worlds
