"""Shared by all benchmarks: options, their checks, and the way from systems to printed results."""

from __future__ import annotations

import functools
import importlib.util
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from paceline.errors import UserError
from paceline.examples.benchmarks.commands.limits import check_limits, limits
from paceline.examples.benchmarks.commands.showing import show
from paceline.extras import how_to_install
from paceline.launch import console

if TYPE_CHECKING:
    from paceline.examples.benchmarks.harness.balance import Balance
    from paceline.examples.benchmarks.harness.ratios import Ratio
    from paceline.examples.benchmarks.harness.systems import System

RANKS_ON_ONE_HOST = 2
MOST_RANKS = 64
MOST_SHARE = 100.0
_EACH_LINK = "Rate of every emulated host's link, each direction"
_RATE = (click.option("--rate", default="1gbit", show_default=True, help=f"{_EACH_LINK}."),)
_BALANCED = (
    click.option("--rate", help=f"{_EACH_LINK}. [default: chosen for each model by --communication-share]"),
    click.option(
        "--communication-share",
        type=float,
        help="Choose the rate at which a ring would carry the gradients in this multiple of the time of compute"
        " (forward, backward, update). Above 200 Mbit/s one machine's processor may set the pace. [default: 1.0]",
    ),
)


@dataclass(frozen=True)
class Request:
    """What to measure: `models` one after another, `ranks` in all on `hosts` joined by links of `rate`.

    `latency` is the time from host to host, one way; None: no more than this machine takes itself. Without a rate each
    model gets the one at which communication takes `communication_share` times as long as compute.
    """

    hosts: int
    ranks: int
    rate: str | None
    models: tuple[str, ...]
    time_limit_s: float
    turns: int
    as_json: bool
    communication_share: float = 1.0
    latency: str | None = None

    def command(self, name: str, further: Mapping[str, Sequence[str]]) -> str:
        """The command line that asks for this; `further` are options of `name` alone, flags have no values."""
        links = f"--communication-share {self.communication_share:g}" if self.rate is None else f"--rate {self.rate}"
        links += "" if self.latency is None else f" --latency {shlex.quote(self.latency)}"
        words = f"python -m examples.benchmarks {name} --hosts {self.hosts} --np {self.ranks} {links}"
        for option, values in {"--model": self.models, **further}.items():
            words += "".join(f" {option} {shlex.quote(value)}" for value in values) if values else f" {option}"
        return f"{words} --time-limit-s {self.time_limit_s:g} --turns {self.turns}"


def takes_request(
    models: tuple[str, ...], time_limit_s: float, balanced: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: give a click command the options of a request, with these defaults; it gets them as `request`.

    `balanced`: the rate is chosen unless it is given, and --communication-share says how. Other parameters of the
    command are passed by name. Raises UserError for numbers and models that cannot be used and for packages that are
    missing.
    """
    options = (
        click.option(
            "--hosts", default=4, show_default=True, help="Emulated hosts; more than 1 needs root. 1: this machine."
        ),
        click.option(
            "--np", "ranks", type=int, help="Ranks in all. [default: one per host; 2 where there is one host]"
        ),
        *(_BALANCED if balanced else _RATE),
        click.option(
            "--latency",
            metavar="TIME",
            help="Time from one emulated host to another, one way, e.g. 500us or 2ms. [default: 0]",
        ),
        click.option(
            "--model",
            "models",
            multiple=True,
            default=models,
            show_default=True,
            help="Model to run, may be repeated: resnet20, resnet50, bert-base, vgg16, lstm, many (1,000 small"
            " tensors), mini; -x0.1 behind it scales the sizes. Their layers sleep; resnet20-real computes on the"
            " processor. bert-base and vgg16 have gradients of 438 and 553 MB, which every rank of every system holds"
            " at least twice.",
        ),
        limits("model", time_limit_s, turns=200),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def checked(
            hosts: int,
            ranks: int | None,
            rate: str | None,
            latency: str | None,
            models: tuple[str, ...],
            time_limit_s: float,
            turns: int,
            as_json: bool,
            communication_share: float | None = None,
            **others: Any,
        ) -> Any:
            ranks = _check(hosts, ranks, time_limit_s, turns)
            share = _check_share(rate, communication_share)
            check_latency(hosts, latency)
            check_installed()
            _check_models(models)
            request = Request(hosts, ranks, rate, models, time_limit_s, turns, as_json, share, latency)
            return command(request=request, **others)

        wrapped: Callable[..., Any] = checked
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def measure(request: Request, systems: Sequence[System], command: str, wanted: Sequence[Ratio] = ()) -> None:
    """Run `systems` in turn on each model and print a table or a line of JSON for it as soon as it is measured.

    `wanted` are the ratios (benchmarks/turns.py); `command` is printed as the way to repeat this.
    """
    from paceline.examples.benchmarks.harness import report
    from paceline.examples.benchmarks.harness.hosts import open_hosts
    from paceline.examples.benchmarks.harness.table import as_table
    from paceline.examples.benchmarks.harness.turns import Limits, compare

    most = Limits(request.time_limit_s, request.turns)
    with console.err().status("") as status:
        for model in request.models:
            about = report.machine()
            rate, balance = _rate(request, model, status.update)
            with open_hosts(request.hosts, rate, request.latency) as opened:
                comparison = compare(model, systems, request.ranks, opened, most, status.update, wanted)
            result = report.as_json(comparison, request.hosts, rate, about, command, balance, request.latency)
            show(result, as_table, request.as_json)


def named_words(text: str | None) -> tuple[str, ...]:
    """The names between commas, without repetitions: what is named twice is measured once."""
    return tuple(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))


def _rate(request: Request, model: str, tell: Callable[[str], None]) -> tuple[str | None, Balance | None]:
    """The rate of the links, if there are any, and why it was chosen, if it was."""
    from paceline.examples.benchmarks.harness import balance
    from paceline.examples.benchmarks.networks import models

    if request.hosts == 1:
        return None, None
    if request.rate is not None:
        return request.rate, None
    found = balance.find(models.find(model), request.ranks, request.communication_share, tell)
    return found.rate, found


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
    check_limits(time_limit_s, turns)
    return ranks


def _check_share(rate: str | None, share: float | None) -> float:
    """The multiple of compute that communication is to take; raises UserError for one that cannot be used."""
    if share is None:
        return Request.communication_share
    if rate is not None:
        raise UserError(
            f"--rate {rate} and --communication-share {share:g} are given.", "Give one of them: the other follows."
        )
    if not 0 < share <= MOST_SHARE:
        raise UserError(
            f"--communication-share {share:g} cannot be used.", f"Give more than 0, at most {MOST_SHARE:g}."
        )
    return share


def check_latency(hosts: int, latency: str | None) -> None:
    """Raise UserError for a latency that cannot be used: before the first model takes minutes."""
    from paceline.examples.benchmarks.cluster.latencies import parse_latency

    if latency is None:
        return
    parse_latency(latency)
    if hosts == 1:
        raise UserError(
            f"--latency {latency} cannot be used with --hosts 1: ranks run on this machine over loopback.",
            "Give --hosts 2 or more, as root, or leave --latency out.",
        )


def check_installed() -> None:
    """Raise UserError if a package is missing that every benchmark needs."""
    for name, remedy in {"torch": how_to_install("torch"), "horovod": "paceline horovod install"}.items():
        if importlib.util.find_spec(name) is None:
            raise UserError(f"The benchmark needs {name}, which is not installed.", f"Install it: {remedy}")


def _check_models(models: Sequence[str]) -> None:
    """A wrong name is refused before the first model takes minutes."""
    from paceline.examples.benchmarks.networks import models as known_models

    for model in models:
        known_models.find(model)
