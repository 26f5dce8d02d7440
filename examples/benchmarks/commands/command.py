"""`python -m examples.benchmarks`: measure systems against each other on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from paceline import config
from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.commands.codecs import codecs_command
from paceline.examples.benchmarks.commands.collectives import collectives_command
from paceline.examples.benchmarks.commands.every import all_command
from paceline.examples.benchmarks.commands.options import Request, measure, named_words, takes_request
from paceline.examples.benchmarks.commands.partial import partial_command
from paceline.examples.benchmarks.commands.pipeline import pipeline_command
from paceline.examples.benchmarks.commands.scale import scale_command
from paceline.launch.reports import Reports
from paceline.registry.policies import BUILT_IN, THRESHOLD

if TYPE_CHECKING:
    from paceline.examples.benchmarks.harness.systems import System

BASELINE = ("horovod", "ddp", "alone")
STOCK = "stock"
_BUCKETS = click.option(
    "--bucket-bytes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="In Paceline's systems gradients of at most so many bytes travel in buckets: PACELINE_BUCKET_BYTES.",
)


@click.group("bench")
def bench_command() -> None:
    """Measure Paceline and its rivals in turn."""
    config.read()  # a PACELINE_* variable that is unknown or wrong is refused by every command


bench_command.add_command(all_command)
bench_command.add_command(partial_command)
bench_command.add_command(collectives_command)
bench_command.add_command(codecs_command)
bench_command.add_command(pipeline_command)
bench_command.add_command(scale_command)


@bench_command.command()
@takes_request(models=("resnet20", "resnet50-x0.1"), time_limit_s=120.0)
def baseline(request: Request) -> None:
    """Compare Horovod with PyTorch's DDP, both over Gloo with their defaults.

    The network's layers sleep for the time that an accelerator would compute, and yield gradients of real sizes. The
    systems run in turn until the 95 % interval of the ratio of their step times is within 5 % of its median.
    """
    from paceline.examples.benchmarks.harness import systems

    measure(request, [systems.find(name) for name in BASELINE], request.command("baseline", {}))


@bench_command.command()
@takes_request(models=("resnet20", "resnet50-x0.1", "resnet50"), time_limit_s=300.0)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=[name for name in BUILT_IN if name != THRESHOLD],
    show_default=True,
    help="Policy to measure, may be repeated: anything that PACELINE_FUSION takes. Fewer take less time and memory.",
)
@click.option(
    "--armed", is_flag=True, help="Negotiate a step of these policies once: PACELINE_ARMED=yes, PACELINE_WAKE=events."
)
@_BUCKETS
def fusion(request: Request, policies: tuple[str, ...], armed: bool, bucket_bytes: int) -> None:
    """Compare policies of merging with stock Horovod and PyTorch's DDP, all over Gloo.

    Networks, turns and figures are those of Benchmark baseline. A system that merges by plan makes unmeasured
    steps first, until it has measured, planned and switched to its plan.
    """
    from paceline.examples.benchmarks.harness import systems
    from paceline.examples.benchmarks.harness.ratios import over

    _check_ranks("Merging", request)
    policies = tuple(dict.fromkeys(policies))  # a policy given twice is one system
    merging = {policy: systems.bucketed(systems.merging(policy, armed), bucket_bytes) for policy in policies}
    leading = merging["optimal" if "optimal" in policies else policies[-1]].name
    stock = _stock()
    if armed:
        stock = replace(stock, env={**stock.env, **systems.CYCLES})
    chosen = [stock, systems.find(systems.DDP), *merging.values(), systems.find(systems.ALONE)]
    wanted = [over(leading, STOCK), over(leading, systems.DDP)]
    wanted += [over(system.name, STOCK) for system in merging.values() if system.name != leading]
    told = {"--policy": policies} | ({"--armed": ()} if armed else {})
    told |= _buckets_told(bucket_bytes)
    measure(request, chosen, request.command("fusion", told), wanted)


@bench_command.command()
@takes_request(models=("resnet50-x0.02", "lstm-x0.01", "resnet20-real"), time_limit_s=300.0, balanced=True)
@_BUCKETS
@click.option(
    "--systems",
    help="Of stock, ddp, sync_optimal, pipelined, pipelined_optimal, communication and alone those to measure, and of"
    " sync_armed, unmodified_pipelined, majority and unmodified_majority; ratios are formed of what is there. Fewer"
    " crowd this machine less. [default: the first seven]",
)
def pipelined(request: Request, bucket_bytes: int, systems: str | None) -> None:
    """Compare the pipelined exchange with stock Horovod, PyTorch's DDP and merging by plan, all over Gloo.

    Without --rate the links get the rate at which communication takes about as long as compute, where pipelining gains
    most. Compute alone and communication alone are measured in the same turns: a pipelined step should take as long as
    the longer of the two.
    """
    from paceline.examples.benchmarks.harness import systems as known
    from paceline.examples.benchmarks.harness.ratios import Ratio, over

    _check_ranks("The pipelined exchange", request)
    parts = (known.ALONE, known.COMMUNICATION)
    sync, plain, merged = known.SYNC_OPTIMAL, known.PIPELINED, known.PIPELINED_OPTIMAL
    asked = (known.SYNC_ARMED, known.UNMODIFIED[plain], known.MAJORITY, known.UNMODIFIED[known.MAJORITY])
    ours = [known.bucketed(known.find(name), bucket_bytes) for name in (sync, plain, merged, *asked)]
    able = [_stock(), known.find(known.DDP), *ours, *map(known.find, (known.COMMUNICATION, known.ALONE))]
    chosen = _chosen(able, named_words(systems) or [system.name for system in able if system.name not in asked])
    names = {system.name for system in chosen}
    wanted = [
        over(plain, STOCK),
        over(plain, known.DDP),
        over(plain, sync),
        *(over(name, known.DDP) for name in asked),
        over(merged, STOCK),
        over(merged, sync),
        Ratio("measured_over_max_model", plain, parts),
        Ratio("optimal_measured_over_max_model", merged, parts),
        Ratio("communication_over_compute", known.COMMUNICATION, (known.ALONE,)),
    ]
    told = _buckets_told(bucket_bytes)
    if systems is not None:
        told["--systems"] = (",".join(system.name for system in chosen),)
    formed = [ratio for ratio in wanted if {ratio.system, *ratio.references} <= names]
    measure(request, chosen, request.command("pipelined", told), formed)


def _chosen(able: list[System], names: Sequence[str]) -> list[System]:
    """Those of `able` with these names, in the order of `able`. Raises UserError for one that is not there."""
    known = [system.name for system in able]
    for name in names:
        if name not in known:
            raise UserError(f"There is no system {name!r}.", nearest(name, known))
    return [system for system in able if system.name in names]


def _buckets_told(bucket_bytes: int) -> dict[str, tuple[str, ...]]:
    return {"--bucket-bytes": (str(bucket_bytes),)} if bucket_bytes else {}


def _stock() -> System:
    from paceline.examples.benchmarks.harness import systems

    return replace(systems.find(systems.HOROVOD), name=STOCK)


def _check_ranks(what: str, request: Request) -> None:
    if request.ranks < 2:
        raise UserError(f"{what} cannot be measured on one rank: nothing is sent.", "Give --np 2 or more.")


class _Main(Reports, click.Group):
    """Reports errors in two lines."""


main = _Main(
    "python -m examples.benchmarks",
    commands=bench_command.commands,
    help=bench_command.help,
    callback=bench_command.callback,
    context_settings={"help_option_names": ["-h", "--help"]},
)
