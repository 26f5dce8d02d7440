"""`paceline bench`: measure systems against each other on this machine."""

from __future__ import annotations

from dataclasses import replace

import click

from paceline.errors import UserError
from paceline.launch.bench_options import Request, measure, takes_request

BASELINE = ("horovod", "ddp", "alone")
STOCK = "stock"


@click.group("bench")
def bench_command() -> None:
    """Measure Paceline and its rivals in turn."""


@bench_command.command()
@takes_request(models=("resnet20", "resnet50-x0.1"), time_limit_s=120.0)
def baseline(request: Request) -> None:
    """Compare Horovod with PyTorch's DDP, both over Gloo with their defaults.

    The network's layers sleep for the time that an accelerator would compute, and yield gradients of real sizes. The
    systems run in turn until the 95 % interval of the ratio of their step times is within 5 % of its median.
    """
    from paceline.benchmarks import systems

    measure(request, [systems.find(name) for name in BASELINE], request.command("baseline", {}))


@bench_command.command()
@takes_request(models=("resnet20", "resnet50-x0.1", "resnet50"), time_limit_s=300.0)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("none", "single", "mgwfbp", "optimal"),
    show_default=True,
    help="Policy to measure, may be repeated: anything that PACELINE_FUSION takes. Fewer take less time and memory.",
)
def fusion(request: Request, policies: tuple[str, ...]) -> None:
    """Compare policies of merging with stock Horovod and PyTorch's DDP, all over Gloo.

    Networks, turns and figures are those of `paceline bench baseline`. A system that merges by plan makes unmeasured
    steps first, until it has measured, planned and switched to its plan.
    """
    from paceline.benchmarks import systems

    if request.ranks < 2:
        raise UserError("Merging cannot be measured on one rank: nothing is sent.", "Give --np 2 or more.")
    policies = tuple(dict.fromkeys(policies))  # a policy given twice is one system
    merging = [systems.merging(policy) for policy in policies]
    leading = "optimal" if "optimal" in policies else policies[-1]
    stock = replace(systems.find(systems.HOROVOD), name=STOCK)
    chosen = [stock, systems.find(systems.DDP), *merging, systems.find(systems.ALONE)]
    wanted = [(leading, STOCK), (leading, systems.DDP)]
    wanted += [(policy, STOCK) for policy in policies if policy != leading]
    measure(request, chosen, request.command("fusion", {"--policy": policies}), wanted)
