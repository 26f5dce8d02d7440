"""Cases of tests that try cells of the table of events."""

from __future__ import annotations

from pathlib import Path

from integration_tests.support.arming import ARMED as ARMING
from integration_tests.support.debug import debug
from paceline.exchange.events import ARMED, COLUMNS, EVENTS

_TESTS = Path(__file__).resolve().parents[1]


def cases(file: str, test: str) -> list[tuple[str, str]]:
    """Event and column of all cells that name `test` of `file`, column by column: one world after the other."""
    wanted = f"{Path(file).resolve().relative_to(_TESTS)}::{test}"
    return [
        (event.word, column)
        for column in COLUMNS
        for event in EVENTS
        if any(wanted in one.tests for one in event.cells[column])
    ]


def environment(column: str) -> dict[str, str]:
    """Of the world in which a column is tried."""
    return ARMING | debug(fusion_warmup_steps=3) if column == ARMED else {}


def label(column: str) -> str:
    """A column in names of operations."""
    return column.partition(" ")[0].rstrip(",")
