"""Results on the screen, as soon as they are measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import click

from paceline.launch import console

Result = dict[str, Any]


def show(result: Result, table: Callable[[Result], Any], as_json: bool) -> None:
    """Print a result: as a line of JSON, or as what `table` makes of it."""
    if as_json:
        click.echo(json.dumps(result))
    else:
        console.out().print(table(result))


def show_each(
    measure: Callable[[Callable[[str], None]], Iterable[Result]], table: Callable[[Result], Any], as_json: bool
) -> None:
    """Print results as they come; `measure` is given what shows how far it is."""
    with console.err().status("") as status:
        for result in measure(status.update):
            show(result, table, as_json)
