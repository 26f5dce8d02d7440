"""Tables that fit: where columns would have to break words, rows are lists.

rich is imported here: whoever prints a table has it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

FOLDABLE = 24  # as wide as columns stay whose words may be broken
_PADDING = 3  # of a column, with its border
_INDENT = 2


class FittingConsole(Console):
    """As rich's, with tables that fit; and a reader that has seen enough (`| head`) ends nothing."""

    def print(self, *objects: Any, **how: Any) -> None:
        """As Console.print."""
        super().print(*(self._fitting(one) for one in objects), **how)

    def on_broken_pipe(self) -> None:
        """What is still to be printed goes nowhere; the command goes on to its own exit code."""
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
        """The width below which a column's words break, or its figures are cut off, and the one that it would like."""
        options = self.options.update(width=10_000)
        cells = [Measurement.get(self, options, cell) for cell in (column.header, *column.cells)]
        wanted = max(cell.maximum for cell in cells)
        least = wanted if column.no_wrap else max(cell.minimum for cell in cells)
        if column.overflow == "fold":
            least = min(least, FOLDABLE)
        least = max(least, column.min_width or 0)
        return least + _PADDING, max(least, wanted) + _PADDING


def _fit(columns: Sequence[Column], widths: Sequence[tuple[int, int]], width: int) -> None:
    """Take what is missing from the widest columns, as rich does, but from none more than its words can do without."""

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
    """Each row under its first cell, a line for each of the others."""
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
