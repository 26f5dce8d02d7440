"""Training on ranks of uneven speed as JSON (what uneven_training.py measures)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from paceline.examples.benchmarks.harness.ratios import over
from paceline.examples.benchmarks.harness.report import rounded
from paceline.examples.benchmarks.harness.uneven_training import SYNC


def as_json(
    rows: Sequence[dict[str, Any]], ranks: int, machine: dict[str, Any], command: str
) -> Iterator[dict[str, Any]]:
    """One result for each case, ready for json.dumps, of `rows` with one entry for each case and system.

    The ratios are of times: a system's time per step over that of the synchronous one.
    """
    for case, those in groupby(rows, key=lambda row: row["case"]):
        systems = {row["system"]: {key: row[key] for key in row if key not in ("case", "system")} for row in those}
        yield {
            "part": "training",
            "case": case,
            "ranks": ranks,
            "systems": systems,
            **{
                over(name, SYNC).name: rounded(1 / system["over_sync"])
                for name, system in systems.items()
                if name != SYNC and system["over_sync"]
            },
            "machine": machine,
            "command": command,
        }
