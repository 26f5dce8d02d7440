"""Tables that fit the width: where columns would break words, rows are printed as lists.

rich is imported here: callers that print tables need it anyway.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

FOLDABLE = 24  # minimal width of columns whose words may be broken
_PADDING = 3  # of a column, including its border
_INDENT = 2


class FittingConsole(Console):
    """rich's Console with tables that fit. A closed pipe (`| head`) does not end the command."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print like Console.print, with fitted tables."""
        super().print(*(self._fitting(one) for one in objects), **how)

    def on_broken_pipe(self) -> None:
        """Discard further output; the command continues to its own exit code."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    def _fitting(self, one: Any) -> Any:
        if isinstance(one, Group):
            return Group(*(self._fitting(part) for part in one.renderables))
        if isinstance(one, Table):
            widths = [self._widths(column) for column in one.columns]
            if sum(least for least, _ in widths) + 1 > self.width:
                return _listed(one)
            _fit(one.columns, widths, self.width - 1)
        return one

    def _widths(self, column: Column) -> tuple[int, int]:
        """Minimal width, below which words break or figures are cut off, and preferred width of a column."""
        options = self.options.update(width=10_000)
        cells = [Measurement.get(self, options, cell) for cell in (column.header, *column.cells)]
        wanted = max(cell.maximum for cell in cells)
        least = wanted if column.no_wrap else max(cell.minimum for cell in cells)
        if column.overflow == "fold":
            least = min(least, FOLDABLE)
        least = max(least, column.min_width or 0)
        return least + _PADDING, max(least, wanted) + _PADDING


def _fit(columns: Sequence[Column], widths: Sequence[tuple[int, int]], width: int) -> None:
    """Shrink the widest columns, as rich does, but no column below its minimal width."""

    def limited(most: int) -> list[int]:
        return [max(least, min(wanted, most)) for least, wanted in widths]

    widest = max(wanted for _, wanted in widths)
    if sum(limited(widest)) <= width:
        return
    while sum(limited(widest)) > width:
        widest -= 1
    for column, given in zip(columns, limited(widest), strict=True):
        column.width = given - _PADDING


def _listed(table: Table) -> RenderableType:
    """Convert each row to a list: its first cell as heading, a line for each other cell."""
    parts: list[RenderableType] = [Text(str(table.title), style="italic")] if table.title else []
    first, *others = table.columns
    for row, heading in enumerate(first.cells):
        grid = Table.grid(padding=(0, 1), pad_edge=False)
        grid.add_column(width=_INDENT - 1)
        grid.add_column()
        grid.add_column(overflow="fold")
        for column in others:
            name = " ".join(str(column.header).split())
            grid.add_row("", name, list(column.cells)[row])
        style = table.rows[row].style or "bold"
        parts += [Text.from_markup(", ".join(str(heading).split("\n")), style=style), grid]
    if table.caption:
        parts.append(Text(str(table.caption), style="dim"))
    return Group(*parts)
