"""What every `paceline bench` command shares: options, their checks, and the way from systems to printed results."""

from __future__ import annotations

import functools
import importlib.util
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from paceline.errors import UserError
from paceline.launch import console

if TYPE_CHECKING:
    from paceline.benchmarks.systems import System

RANKS_ON_ONE_HOST = 2
MOST_RANKS = 64
NEEDS = {"torch": "pip install 'paceline[torch]'", "horovod": "paceline host install"}


@dataclass(frozen=True)
class Request:
    """What to measure: `models` one after another, `ranks` in all on `hosts` joined by links of `rate`."""

    hosts: int
    ranks: int
    rate: str
    models: tuple[str, ...]
    time_limit_s: float
    turns: int
    as_json: bool

    def command(self, name: str, further: Mapping[str, Sequence[str]]) -> str:
        """The command line that asks for this; `further` are options of the command `name` alone."""
        words = f"paceline bench {name} --hosts {self.hosts} --np {self.ranks} --rate {self.rate}"
        for option, values in {"--model": self.models, **further}.items():
            words += "".join(f" {option} {shlex.quote(value)}" for value in values)
        return f"{words} --time-limit-s {self.time_limit_s:g} --turns {self.turns}"


def takes_request(models: tuple[str, ...], time_limit_s: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: give a click command the options of a request, with these defaults; it gets them as `request`.

    Other parameters of the command are passed by name. Raises UserError for numbers and models that cannot be used and
    for packages that are missing.
    """
    options = (
        click.option(
            "--hosts", default=4, show_default=True, help="Emulated hosts; more than 1 needs root. 1: this machine."
        ),
        click.option(
            "--np", "ranks", type=int, help="Ranks in all. [default: one per host; 2 where there is one host]"
        ),
        click.option(
            "--rate", default="1gbit", show_default=True, help="Rate of every emulated host's link, each direction."
        ),
        click.option(
            "--model",
            "models",
            multiple=True,
            default=models,
            show_default=True,
            help="Model to run, may be repeated: resnet20, resnet50, bert-base, vgg16, mini; -x0.1 behind it scales the"
            " sizes. bert-base and vgg16 have gradients of 438 and 553 MB, which every rank of every system holds"
            " at least twice.",
        ),
        click.option(
            "--time-limit-s",
            type=float,
            default=time_limit_s,
            show_default=True,
            help="Seconds of measuring per model, at most.",
        ),
        click.option("--turns", type=int, default=200, show_default=True, help="Turns per model, at most."),
        click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per model in place of tables."),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def checked(
            hosts: int,
            ranks: int | None,
            rate: str,
            models: tuple[str, ...],
            time_limit_s: float,
            turns: int,
            as_json: bool,
            **others: Any,
        ) -> Any:
            ranks = _check(hosts, ranks, time_limit_s, turns)
            _check_installed()
            _check_models(models)
            return command(request=Request(hosts, ranks, rate, models, time_limit_s, turns, as_json), **others)

        wrapped: Callable[..., Any] = checked
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def measure(request: Request, systems: Sequence[System], command: str, wanted: Sequence[tuple[str, str]] = ()) -> None:
    """Run `systems` in turn on each model and print a table or a line of JSON for it as soon as it is measured.

    `wanted` are the ratios (benchmarks/turns.py); `command` is printed as the way to repeat this.
    """
    from paceline.benchmarks import report
    from paceline.benchmarks.hosts import open_hosts
    from paceline.benchmarks.turns import Limits, compare

    limits = Limits(request.time_limit_s, request.turns)
    rate = request.rate if request.hosts > 1 else None
    with open_hosts(request.hosts, request.rate) as opened, console.err().status("") as status:
        for model in request.models:
            about = report.machine()
            comparison = compare(model, systems, request.ranks, opened, limits, status.update, wanted)
            result = report.as_json(comparison, request.hosts, rate, about, command)
            if request.as_json:
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


def _check_installed() -> None:
    for name, remedy in NEEDS.items():
        if importlib.util.find_spec(name) is None:
            raise UserError(f"The benchmark needs {name}, which is not installed.", f"Install it: {remedy}")


def _check_models(models: Sequence[str]) -> None:
    """A wrong name is refused before the first model takes minutes."""
    from paceline.benchmarks import models as known_models

    for model in models:
        known_models.find(model)
