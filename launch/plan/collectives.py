"""Part of `paceline plan` about collectives: the step with each of them, if the network is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.predict.collectives import Collective


def collectives_table(collectives: Sequence[Collective], ranks: int) -> Table:
    """Return a table with a row per collective; times in ms, with one message / with one for each gradient."""
    from rich.table import Table

    from paceline.predict.iteration import LAYER_WISE, SEQUENTIAL

    policies = (SEQUENTIAL, LAYER_WISE)
    kinds = {"communication": "communication_s", "synchronous": "synchronous_s", "pipelined": "pipelined_s"}
    table = Table(title=f"Collectives among {ranks} ranks in theory, step in ms", title_justify="left")
    table.add_column("collective", overflow="fold")
    for title in (*kinds, "unlimited"):
        table.add_column(title, justify="right")
    best_s = min(min(one.synchronous_s.values()) for one in collectives)
    for one in collectives:
        cells = [
            " / ".join(f"{1e3 * getattr(one, kind)[policy]:.2f}" for policy in policies) for kind in kinds.values()
        ]
        best = min(one.synchronous_s.values()) <= best_s * (1 + 1e-9)
        table.add_row(one.name, *cells, f"{1e3 * one.unlimited_s:.2f}", style="bold" if best else None)
    table.caption = "Times with one message / with one for each gradient. Unlimited: pipelined, a bound."
    return table


def as_values(collectives: Sequence[Collective]) -> list[dict[str, Any]]:
    """Return everything as JSON values; times in seconds."""
    return [dataclasses.asdict(one) for one in collectives]
