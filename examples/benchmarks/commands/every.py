"""Benchmark all: every benchmark of the project, one after another, and the page that has their tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.errors import UserError
from paceline.examples.benchmarks.commands.options import check_installed, named_words
from paceline.examples.benchmarks.commands.showing import show
from paceline.launch import console

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.examples.benchmarks.every.kept import Kept
    from paceline.examples.benchmarks.every.rows import Row

FOLDER = "bench-results"
QUICK = "quick"  # the folder in it of results that nobody should rely on
LONGEST_S = 86400.0


@click.command("all")
@click.option(
    "--only", metavar="NAMES", help="Rows, or benchmarks such as fusion, with commas between them. [default: all]"
)
@click.option("--list", "listed", is_flag=True, help="List the rows and how long they take, and measure nothing.")
@click.option("--quick", is_flag=True, help="Few turns: to see that all of it runs. Kept apart from other results.")
@click.option(
    "--time-limit-s",
    type=click.FloatRange(0, LONGEST_S, min_open=True),
    help="Seconds of measuring for each table, at most. [default: what --list has for each row]",
)
@click.option("--resume", is_flag=True, help="Go on with the last run, if it was interrupted or rows of it failed.")
@click.option(
    "--measure/--no-measure",
    default=True,
    help="--no-measure: print, and write into the page, what is kept of earlier runs.",
)
@click.option(
    "--results",
    "folder",
    type=click.Path(path_type=Path),
    default=FOLDER,
    show_default=True,
    help="Folder with a file for each row that was measured.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Page to write the tables into, between its markers, after every row: docs/benchmarks.md. Rows that are not"
    " measured stay as they are there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each table in place of tables.")
def all_command(
    only: str | None,
    listed: bool,
    quick: bool,
    time_limit_s: float | None,
    resume: bool,
    measure: bool,
    folder: Path,
    output: Path | None,
    as_json: bool,
) -> int:
    """Run all benchmarks, one after another, and write the tables of docs/benchmarks.md.

    Each row is a command line of its own. Rows that emulate hosts need root, and are left out without. A row that fails
    is named, and the others go on; the exit code is 1 then. The machine should have nothing else to do.
    """
    from paceline.examples.benchmarks.every import page
    from paceline.examples.benchmarks.every.kept import Kept
    from paceline.examples.benchmarks.every.rows import chosen

    rows = chosen(named_words(only))
    if output is not None:
        page.check(output)
    kept = Kept(folder / QUICK if quick else folder)
    run = _Run(kept, quick, time_limit_s, output, as_json)
    if listed:
        console.out().print(run.table(rows))
        return 0
    if not measure:
        return run.tell_kept(rows)
    check_installed()
    able = run.able(rows)
    kept.open()
    begun = _resumed(kept) if resume else kept.begin()
    try:
        return run.measure(able, begun)
    except KeyboardInterrupt:
        console.note(f"Interrupted. What was measured is in {kept.folder}; the same command with --resume goes on.")
        raise


def _resumed(kept: Kept) -> str:
    begun = kept.unfinished()
    if begun is None:
        raise UserError(f"No run in {kept.folder} ended before its end.", "Leave out --resume to measure all rows.")
    return begun


@dataclass
class _Run:
    """What the options ask for, and what became of the rows so far."""

    kept: Kept
    quick: bool
    limit_s: float | None
    output: Path | None
    as_json: bool
    texts: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def table(self, rows: Sequence[Row]) -> Table:
        """The rows, how long each takes, and when it was measured last."""
        from rich.table import Table

        total = sum(self._expected_s(row) for row in rows)
        table = Table(title=f"{len(rows)} rows, about {span(total)}", title_justify="left")
        table.add_column("row", no_wrap=True)
        table.add_column("what")
        table.add_column("about", justify="right", no_wrap=True)
        table.add_column("root")
        table.add_column("measured", no_wrap=True)
        for row in rows:
            found = self.kept.find(row.name)
            when = "" if found is None else found.begun.partition("T")[0]
            root = "yes" if row.needs_root else ""
            table.add_row(row.name, f"{row.benchmark}: {row.title}", span(self._expected_s(row)), root, when)
        return table

    def able(self, rows: Sequence[Row]) -> list[Row]:
        """Those that can be measured here. Raises UserError if none can."""
        from paceline.examples.benchmarks.cluster import tools

        needing = [row for row in rows if row.needs_root]
        try:
            if needing:
                tools.check()
        except UserError as error:
            if len(needing) == len(rows):
                raise
            console.note(f"Left out: {', '.join(row.name for row in needing)}. {error.problem} {error.remedy}")
            for row in needing:
                self._tell(row, {"row": row.name, "skipped": error.problem})
            return [row for row in rows if not row.needs_root]
        return list(rows)

    def measure(self, rows: Sequence[Row], begun: str) -> int:
        """Measure what was not since `begun`; the exit code."""
        from paceline.examples.benchmarks.every.measuring import measure

        start_s = time.monotonic()
        waiting = [row for row in rows if not self._since(row, begun)]
        with console.err().status("") as status:
            for number, row in enumerate(waiting, 1):
                later = waiting[number:]
                left = f", then {len(later)} more of about {span(sum(map(self._expected_s, later)))}" if later else ""
                about = f"{row.title}; about {span(self._expected_s(row))}{left}"
                console.note(f"[{number}/{len(waiting)}] {row.name}: {about}")
                status.update(f"measuring {row.name}")
                try:
                    found = measure(row, self.quick, self.limit_s, console.note)
                except UserError as error:
                    console.show_error(error)
                    self.failed.append(row.name)
                    self._tell(row, {"row": row.name, "error": f"{error.problem}\n{error.remedy}"})
                    continue
                self.kept.save(found)
                self._show(row)
        count, took = len(waiting) - len(self.failed), span(time.monotonic() - start_s)
        console.note(f"{count} of {len(waiting)} rows measured in {took}, kept in {self.kept.folder}.")
        if self.failed:
            console.note(f"Failed: {', '.join(self.failed)}. The same command with --resume tries these again.")
            return 1
        self.kept.end()
        return 0

    def tell_kept(self, rows: Sequence[Row]) -> int:
        """Show what is kept of `rows`. Raises UserError if nothing is."""
        shown = [self._show(row) for row in rows]
        if not any(shown):
            raise UserError(f"Nothing is kept of these rows in {self.kept.folder}.", "Leave out --no-measure.")
        return 0

    def _since(self, row: Row, begun: str) -> bool:
        """Whether a row was measured after `begun`; what was is written into the page."""
        found = self.kept.find(row.name)
        if found is None or found.begun < begun:
            return False
        self._write(row)
        return True

    def _show(self, row: Row) -> bool:
        """Print what is kept of a row and write it into the page; whether anything is."""
        found = self.kept.find(row.name)
        if found is None:
            return False
        for line in found.lines():
            self._tell(row, line)
        self._write(row)
        return True

    def _write(self, row: Row) -> None:
        from paceline.examples.benchmarks.every import page
        from paceline.examples.benchmarks.every.rows import ROWS
        from paceline.examples.benchmarks.every.tables import as_markdown

        found = self.kept.find(row.name)
        if self.output is None or found is None:
            return
        self.texts[row.name] = "".join(f"{line}\n" for line in as_markdown(row, found))
        page.write(self.output, ROWS, self.texts)

    def _tell(self, row: Row, line: Mapping[str, Any]) -> None:
        from paceline.examples.benchmarks.every.tables import TABLES

        if self.as_json or "systems" in line or "codings" in line:
            show(dict(line), TABLES[row.benchmark], self.as_json)

    def _expected_s(self, row: Row) -> float:
        """As long as it took when it was measured last, where that was asked for alike."""
        found = self.kept.find(row.name)
        if found is None or self.limit_s is not None:
            return row.expected_s(self.quick, self.limit_s)
        return found.took_s


def span(seconds: float) -> str:
    """A time for the eye: "40 s", "3 min", "1 h 20 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
