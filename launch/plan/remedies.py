"""The part of `paceline plan` that compares all remedies, and says what to switch on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.predict.remedies import Remedy

HOROVODS = "Horovod's own"


def remedies_table(found: Sequence[Remedy], doubt: str) -> Table:
    """A row per remedy. `doubt`: why none is recommended, if so."""
    from rich.table import Table

    from paceline.predict.remedies import best

    table = Table(title="Remedies, predicted", title_justify="left")
    table.add_column("paceline run", overflow="fold")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("speed", justify="right", no_wrap=True)
    table.add_column("what it changes", overflow="fold")
    chosen = None if doubt else best(found)
    for one in found:
        table.add_row(
            one.flags or HOROVODS,
            f"{1e3 * one.step_s:.2f} ms",
            f"{one.pace / found[0].pace:.2f}",
            one.price or "nothing",
            style="bold" if one is chosen else None,
        )
    return table


def recommendation(found: Sequence[Remedy]) -> str:
    """Return a sentence that names the remedy to switch on, and the fastest one that changes no result."""
    from paceline.predict.remedies import best

    stock = found[0]
    chosen, free = best(found), best([one for one in found if not one.price])
    if chosen is stock:
        return "Of all remedies none is worth its price: Horovod's own synchronous exchange stays."
    times = f"{chosen.pace / stock.pace:.2f} times the speed of Horovod's own"
    said = f"Of all remedies: `paceline run {chosen.flags}`, {times}"
    if not chosen.price:
        return f"{said}, with the same results."
    said += f"; {chosen.price}."
    if free is stock:
        return f"{said} Nothing that leaves results as they are brings as much as 1 %."
    return f"{said} With results as they are: `paceline run {free.flags}`, {free.pace / stock.pace:.2f} times."


def as_values(found: Sequence[Remedy], doubt: str) -> dict[str, Any] | None:
    """Everything as JSON values; times in seconds. `doubt` as of `remedies_table`."""
    from paceline.predict.remedies import best

    if not found:
        return None
    return {
        "predicted": [
            {"flags": one.flags, "step_s": one.step_s, "ranks": one.ranks, "price": one.price} for one in found
        ],
        "recommended": None if doubt else best(found).flags,
    }
