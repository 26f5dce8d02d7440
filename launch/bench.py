"""`paceline bench`: measure systems against each other on this machine."""

from __future__ import annotations

import importlib.util
import json

import click

from paceline.errors import UserError
from paceline.launch import console

BASELINE = ("horovod", "ddp", "alone")
DEFAULT_MODELS = ("resnet20", "resnet50-x0.1")
RANKS_ON_ONE_HOST = 2
MOST_RANKS = 64
NEEDS = {"torch": "pip install 'paceline[torch]'", "horovod": "paceline host install"}


@click.group("bench")
def bench_command() -> None:
    """Measure Paceline and its rivals in turn."""


@bench_command.command()
@click.option("--hosts", default=4, show_default=True, help="Emulated hosts; more than 1 needs root. 1: this machine.")
@click.option(
    "--np", "ranks", type=int, default=None, help="Ranks in all. [default: one per host; 2 where there is one host]"
)
@click.option("--rate", default="1gbit", show_default=True, help="Rate of every emulated host's link, each direction.")
@click.option(
    "--model",
    "models",
    multiple=True,
    default=DEFAULT_MODELS,
    show_default=True,
    help="Model to run, may be repeated: resnet20, resnet50, bert-base, vgg16, mini; -x0.1 behind it scales the sizes.",
)
@click.option(
    "--time-limit-s", type=float, default=120.0, show_default=True, help="Seconds of measuring per model, at most."
)
@click.option("--turns", type=int, default=200, show_default=True, help="Turns per model, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per model in place of tables.")
def baseline(
    hosts: int, ranks: int | None, rate: str, models: tuple[str, ...], time_limit_s: float, turns: int, as_json: bool
) -> None:
    """Compare Horovod with PyTorch's DDP, both over Gloo with their defaults.

    The network's layers sleep for the time that an accelerator would compute, and yield gradients of real sizes. The
    systems run in turn until the 95 % interval of the ratio of their step times is within 5 % of its median.
    """
    ranks = _check(hosts, ranks, time_limit_s, turns)
    for name, remedy in NEEDS.items():
        if importlib.util.find_spec(name) is None:
            raise UserError(f"The benchmark needs {name}, which is not installed.", f"Install it: {remedy}")

    from paceline.benchmarks import models as known_models
    from paceline.benchmarks import report, systems
    from paceline.benchmarks.hosts import open_hosts
    from paceline.benchmarks.turns import Limits, compare

    for model in models:
        known_models.find(model)  # a wrong name is refused before the first model takes minutes
    chosen = [systems.find(name) for name in BASELINE]
    command = f"paceline bench baseline --hosts {hosts} --np {ranks} --rate {rate}"
    command += "".join(f" --model {model}" for model in models) + f" --time-limit-s {time_limit_s:g} --turns {turns}"
    with open_hosts(hosts, rate) as opened, console.err().status("") as status:
        for model in models:
            about = report.machine()
            comparison = compare(model, chosen, ranks, opened, Limits(time_limit_s, turns), status.update)
            result = report.as_json(comparison, hosts, rate if hosts > 1 else None, about, command)
            if as_json:
                click.echo(json.dumps(result))
            else:
                console.out().print(report.as_table(result))


def _check(hosts: int, ranks: int | None, time_limit_s: float, turns: int) -> int:
    """The number of ranks; raises UserError for numbers that cannot be used."""
    if hosts < 1:
        raise UserError(f"--hosts {hosts} cannot be used.", "Give at least 1.")
    if ranks is None:
        ranks = hosts if hosts > 1 else RANKS_ON_ONE_HOST
    if not 1 <= ranks <= MOST_RANKS or ranks % hosts:
        raise UserError(
            f"--np {ranks} cannot be used with --hosts {hosts}.",
            f"Give a multiple of {hosts}, at most {MOST_RANKS}: every host runs the same number of ranks.",
        )
    if not time_limit_s > 0:
        raise UserError(f"--time-limit-s {time_limit_s:g} cannot be used.", "Give more than 0 seconds.")
    if turns < 1:
        raise UserError(f"--turns {turns} cannot be used.", "Give at least 1.")
    return ranks
