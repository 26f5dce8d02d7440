"""How long a benchmark may take, and in what form it tells its results: options that commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from paceline.errors import UserError

MOST_TURNS = 10**6


@dataclass(frozen=True, kw_only=True)
class Limited:
    """A request that has limits: of seconds of measuring, and of turns."""

    time_limit_s: float
    turns: int

    @property
    def limit_options(self) -> str:
        """The part of a command line that asks for them."""
        return f"--time-limit-s {self.time_limit_s:g} --turns {self.turns}"


def limits(each: str, time_limit_s: float, turns: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: give a click command --time-limit-s and --turns, for `each` and with these defaults, and --json."""
    options = (
        click.option(
            "--time-limit-s",
            default=time_limit_s,
            show_default=True,
            help=f"Seconds of measuring for each {each}, at most; a turn that has begun is finished.",
        ),
        click.option("--turns", default=turns, show_default=True, help=f"Turns for each {each}, at most."),
        click.option("--json", "as_json", is_flag=True, help=f"Print a line of JSON for each {each}, no table."),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def check_time_limit(time_limit_s: float) -> None:
    """Raise UserError for a time that cannot be used."""
    if not 0 < time_limit_s < math.inf:
        raise UserError(f"--time-limit-s {time_limit_s:g} cannot be used.", "Give more than 0 seconds.")


def check_limits(time_limit_s: float, turns: int) -> None:
    """Raise UserError for limits that cannot be used."""
    check_time_limit(time_limit_s)
    if not 1 <= turns <= MOST_TURNS:
        raise UserError(f"--turns {turns} cannot be used.", f"Give 1 to {MOST_TURNS}.")
