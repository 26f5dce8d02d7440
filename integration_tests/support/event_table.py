"""Cases of tests that try cells of the table of events."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from integration_tests.support.debug import debug
from integration_tests.support.events import ARMED, COLUMNS, EVENTS
from integration_tests.support.more import more

_TESTS = Path(__file__).resolve().parents[1]


def cases(file: str, test: str, later: Collection[str] = ()) -> list[Any]:
    """Event and column of all cells that name `test` of `file`, column by column: one world after the other.

    Columns of `later` are for `make test-more`.
    """
    wanted = f"{Path(file).resolve().relative_to(_TESTS)}::{test}"
    return [
        more(event.word, column) if column in later else (event.word, column)
        for column in COLUMNS
        for event in EVENTS
        if any(wanted in one.tests for one in event.cells[column])
    ]


def environment(column: str) -> dict[str, str]:
    """Of the world in which a column is tried."""
    return debug(armed=True, fusion_warmup_steps=3) if column == ARMED else {}


def label(column: str) -> str:
    """A column in names of operations."""
    return column.partition(" ")[0].rstrip(",")
