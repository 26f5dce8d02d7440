"""Measured numbers of the documentation: cells of the tables in docs/measurements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "measurements"
_HEADING = re.compile(r"^#+ (.*)$")


@dataclass(frozen=True)
class Cell:
    """A cell of a page's table.

    Attributes:
        page: name of the page.
        section: beginning of the heading above the table.
        row: first cells of the row.
        column: heading of the column; of equal headings, the first counts.
        under: text of the line that precedes the table, for one of several tables in a section.
    """

    page: str
    section: str
    row: tuple[str, ...]
    column: str
    under: str = ""

    def text(self) -> str:
        """Return the cell's text. Raises UserError if the page does not have it."""
        for header, cells in self._rows((FOLDER / self.page).read_text().splitlines()):
            if tuple(one.strip("`") for one in cells[: len(self.row)]) == self.row and self.column in header:
                return cells[header.index(self.column)]
        raise UserError(
            f"docs/measurements/{self.page} has no cell {', '.join(self.row)} / {self.column} in {self.section!r}.",
            "Correct the place in examples/reproduction, or remove the measurement from its row.",
        )

    def number(self) -> float:
        """Return the first number in the cell."""
        return float(self.text().split()[0])

    def anchor(self) -> str:
        """Return the link to the section, relative to docs/measurements."""
        for line in (FOLDER / self.page).read_text().splitlines():
            if (match := _HEADING.match(line)) and match[1].startswith(self.section):
                slug = re.sub(r"[^\w\- ]", "", match[1].lower()).replace(" ", "-")
                return f"{self.page}#{slug}"
        return self.page

    def _rows(self, lines: list[str]) -> Iterator[tuple[list[str], list[str]]]:
        """Yield (header, cells) of each row of the section's tables."""
        inside, before = False, ""
        header: list[str] = []
        for line in lines:
            if match := _HEADING.match(line):
                inside, before, header = match[1].startswith(self.section), "", []
            elif line.startswith("|"):
                cells = [one.strip() for one in line.strip().strip("|").split("|")]
                if not header:
                    header = cells
                elif inside and self.under in before and not set(cells[0]) <= set("-: "):
                    yield header, cells
            elif line.strip():
                before, header = line, []


@dataclass(frozen=True)
class Ratio:
    """A cell over another one of the same section."""

    over: Cell
    under: Cell

    def text(self) -> str:
        """Return the ratio as text."""
        return f"{self.over.number() / self.under.number():.3g}"

    def anchor(self) -> str:
        """Return the link to the section."""
        return self.over.anchor()


Measured = Cell | Ratio
