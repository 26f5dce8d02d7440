"""Cases of tests that try cells of the table of events."""

from __future__ import annotations

from pathlib import Path

from paceline.exchange.events import COLUMNS, EVENTS

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
