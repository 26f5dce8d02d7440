"""What tables of results share: columns, figures with their intervals, and where was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

INTERVAL = "95 % interval"


def begun(title: str, first: str, columns: Iterable[str], caption: str | None = None) -> Table:
    """A table without rows: names in the column `first`, figures in the others."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def figure(measured: dict[str, Any], form: str) -> tuple[str, str]:
    """A median, and what belongs into the column INTERVAL."""
    return f"{measured['median']:{form}}", f"{measured['low']:{form}} .. {measured['high']:{form}}"


def ranks_on(result: dict[str, Any]) -> str:
    """How many ranks there were on how many hosts, and what joined these."""
    hosts = f"{result['hosts']} host" + ("s" if result["hosts"] > 1 else "")
    rate = f", {result['rate']}" if result["rate"] else ""
    latency = f", {result['latency']} one way" if result["latency"] else ""
    return f"{result['ranks']} ranks on {hosts}{rate}{latency}"
