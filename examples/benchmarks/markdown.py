"""Convert terminal output to lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def lines(shown: RenderableType) -> Iterator[str]:
    """Yield a table with its title above and its caption below; texts outside tables become a list."""
    if isinstance(shown, Group):
        before: RenderableType | None = None
        for part in shown.renderables:
            of_one_list = isinstance(part, Text) and isinstance(before, Text)
            if before is not None and not of_one_list:
                yield ""
            before = part
            yield from lines(part)
    elif isinstance(shown, Table):
        yield from _table(shown)
    else:
        yield f"- {_cell(shown)}"


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield from (f"**{_cell(table.title)}**", "")
    yield _row([_cell(column.header) for column in table.columns])
    yield _row(["---:" if column.justify == "right" else "---" for column in table.columns])
    for cells in zip(*(map(_cell, column.cells) for column in table.columns), strict=True):
        yield _row(list(cells))
    if table.caption:
        yield ""
        yield from (f"- {_cell(line)}" for line in str(table.caption).splitlines())


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(shown: object) -> str:
    # Single spaces, and no bar, which would end a cell.
    return " ".join(str(shown).split()).replace("|", "\\|")
