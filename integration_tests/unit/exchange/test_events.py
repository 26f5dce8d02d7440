"""The table of events: no cell is empty, every test exists, and the page is made from it."""

from __future__ import annotations

import ast
from pathlib import Path

from integration_tests.support import events_page
from integration_tests.support.events import COLUMNS, EVENTS, KERAS, NOTHING, PYTORCH, REFUSED, WORKS
from paceline.registry.exchanges import DECLARATIONS

TESTS = Path(__file__).resolve().parents[2]
PAGE = TESTS.parent / "docs" / "events.md"


def _tests_of(path: Path) -> set[str]:
    return {one.name for one in ast.parse(path.read_text()).body if isinstance(one, ast.FunctionDef)}


def test_every_exchange_has_a_column() -> None:
    assert {one.settings.__name__.lower() for one in DECLARATIONS} <= set(COLUMNS)


def test_every_event_has_an_answer_of_every_exchange() -> None:
    for event in EVENTS:
        assert set(event.cells) == set(COLUMNS), event.name
        for column, cell in event.cells.items():
            assert cell, (event.name, column)
            for one in cell:
                assert one.outcome in (WORKS, REFUSED, NOTHING) and one.what and one.tests, (event.name, column)
                assert one.on in ("", PYTORCH, KERAS), (event.name, column)


def test_every_test_exists() -> None:
    named = {test for event in EVENTS for cell in event.cells.values() for one in cell for test in one.tests}
    known = {path: _tests_of(TESTS / path) for path in {test.partition("::")[0] for test in named}}
    missing = [test for test in named if (parts := test.partition("::"))[2] not in known[parts[0]]]
    assert not missing


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == events_page.events_page(), (
        "python -m integration_tests.support.events_page > docs/events.md"
    )
