"""`python -m examples.reproduction`: recompute the papers' numbers, and write the page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from paceline.examples.reproduction import own, page, tables
from paceline.examples.reproduction.papers import own_results, results
from paceline.examples.reproduction.rows import CHANGED
from paceline.launch import console, outputs
from paceline.launch.reports import Reports

PROGRAM = ("python", "-m", "examples.reproduction")


@click.command(" ".join(PROGRAM), cls=Reports, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Page to write: docs/measurements/reproduction.md.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of tables: rows by paper.")
def main(output: Path | None, as_json: bool) -> int:
    """Recompute published numbers of the five papers, and our own measurements, by Paceline's models.

    The exit code is 1 if a row misses that is declared to be within its tolerance, or the other way round.
    """
    if output is not None:
        outputs.check(output, "the page")
    found, ours = results(), own_results()
    if as_json:
        rows = {paper.name: tables.as_json(of) for paper, of in found}
        click.echo(json.dumps(rows | {own.NAME: tables.own_json(ours)}, indent=1))
    else:
        out = console.out()
        for paper, of in found:
            out.print(tables.rows(paper, of))
        out.print(tables.summary(found))
        out.print(tables.own_rows(ours))
        out.print(tables.own_summary(ours))
    if output is not None:
        output.write_text(page.page(found, ours))
    changed = [one.row.quantity for _, of in found for one in of if one.verdict == CHANGED]
    for quantity in changed:
        console.note(f"Changed: {quantity}")
    return 1 if changed else 0
