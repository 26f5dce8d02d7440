"""docs/measurements/reproduction.md: the page that the command writes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.table import Table

from paceline.examples.benchmarks.markdown import lines
from paceline.examples.reproduction import tables
from paceline.examples.reproduction.own import OwnResult
from paceline.examples.reproduction.rows import Mark, Paper, Result

_COLUMNS = 120
HEAD = """# Reproduction of the papers

Published numbers of the five papers whose methods Paceline implements, and the values that Paceline's own models
compute from the papers' inputs. Rows that miss are included.

    python -m examples.reproduction --output docs/measurements/reproduction.md

The command needs neither ranks nor a network and takes some seconds. This page is its output.
"""
READING = """## How to read the tables

| column | meaning |
| --- | --- |
| source | how well the published value is known (below), and its place in the paper |
| paper | published value, or values of a curve |
| Paceline | values that Paceline's models compute |
| off by | relative deviation of the value that deviates most |
| allowed | tolerance of each value; *rounding*: half a unit of the last published digit in addition |
| verdict | below |
| measured | Paceline's own measurement of the quantity, on its own machines and with its own settings |
"""
VERDICTS = """
| verdict | meaning |
| --- | --- |
| reproduced | all values are within the tolerance |
| fitted | the same, but with an input that we chose to make them agree; the note names it |
| missed, explained | a value is off by more; the note has the reason |
| missed, open | a value is off by more, and we do not know why; the note has what we know |
"""
MARKS = {
    Mark.TEXT: "read in the text of the paper",
    Mark.FIG: "read off a figure of the paper, to about 0.5 %",
    Mark.WEB: "read in an excerpt on a public page, such as an abstract",
    Mark.REPO: "read in a public repository",
    Mark.CALC: "not printed in the paper: computed from its formulas, without Paceline's code",
    Mark.MEM_H: "from memory, because the text was not available; confidence is high",
    Mark.MEM_M: "from memory; confidence is medium, so the row is not a criterion",
    Mark.OWN: "our own measurement; not a criterion for the paper",
}


OWN = """
## Simulated and measured here

Rows of our own measurements that Paceline's models simulate from other numbers of the same run: costs of a message, a
step without communication, a synchronous step, the rate and latency of the links. Rows that miss are included.
"""


def page(found: Sequence[tuple[Paper, Sequence[Result]]], own: Sequence[OwnResult]) -> str:
    """Return the whole page; `own`: our own rows."""
    used = {one.row.mark for _, results in found for one in results}
    marks = [f"| {mark.value} | {meaning} |" for mark, meaning in MARKS.items() if mark in used]
    parts = [
        HEAD,
        *lines(tables.summary(found)),
        "",
        READING,
        "| source | meaning |",
        "| --- | --- |",
        *marks,
        VERDICTS.rstrip(),
    ]
    for paper, results in found:
        parts += ["", *_paper(paper, results)]
    parts += [OWN, *_wrapped(tables.own_summary(own)), "", *_wrapped(tables.own_rows(own, links=True))]
    return "\n".join(parts) + "\n"


def _paper(paper: Paper, results: Sequence[Result]) -> Iterator[str]:
    yield from (f"## {paper.name}", "")
    text = f"{paper.citation}. {paper.known} Paceline's method: [{paper.method}](../methods/{paper.method})."
    yield from textwrap.wrap(text, _COLUMNS, break_on_hyphens=False, break_long_words=False)
    yield ""
    yield from _wrapped(tables.rows(paper, results, links=True))
    yield from ("", f"### Not recomputed: {paper.name}", "")
    yield from lines(tables.impossible(paper))


def _wrapped(table: Table) -> Iterator[str]:
    """Yield the lines of a table, with its notes wrapped."""
    for line in lines(table):
        if line.startswith("- "):
            yield from textwrap.wrap(
                line, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
            )
        else:
            yield line
