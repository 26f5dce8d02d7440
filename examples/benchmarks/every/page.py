"""A page with what was measured between two markers; all around them is left as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.errors import UserError
from paceline.examples.benchmarks.every.rows import GROUPS, Row
from paceline.launch import outputs

BEGIN = "<!-- begin of what `python -m examples.benchmarks all` writes -->"
END = "<!-- end of what `python -m examples.benchmarks all` writes -->"
_BLOCK = re.compile(r"<!-- row (\S+) -->\n(.*?)<!-- end of row -->\n", re.DOTALL)


def check(path: Path) -> None:
    """Raise UserError if `path` cannot take the tables: before anything is measured for it. A new page is made."""
    outputs.check(path, "the page")
    if path.exists():
        _parts(path)


def write(path: Path, rows: Sequence[Row], texts: Mapping[str, str]) -> None:
    """Put `texts`, by names of rows, between the markers. Other rows stay as they are there; what is none of `rows`
    any more goes. Raises UserError as `check`.
    """
    before, written, after = _parts(path)
    part = path.with_name(path.name + ".part")
    part.write_text(f"{before}{BEGIN}\n{_body(rows, written, texts)}{END}{after}")
    part.replace(path)


def _body(rows: Sequence[Row], written: str, texts: Mapping[str, str]) -> str:
    blocks = {**dict(_BLOCK.findall(written)), **texts}
    body = ""
    for benchmark, title in GROUPS.items():
        there = [row for row in rows if row.benchmark == benchmark and row.name in blocks]
        body += f"\n### {title}, as measured\n\n" if there else ""
        body += "\n".join(f"<!-- row {row.name} -->\n{blocks[row.name]}<!-- end of row -->\n" for row in there)
    return f"{body}\n" if body else ""


def _parts(path: Path) -> tuple[str, str, str]:
    """The page before the markers, between them and after."""
    if not path.exists():
        return "# Benchmarks\n\n", "", "\n"
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(
            f"The page {path} does not say where the tables belong.", f'Put two lines there: "{BEGIN}", "{END}".'
        )
    before, _, rest = text.partition(BEGIN)
    written, _, after = rest.partition(END)
    return before, written, after
