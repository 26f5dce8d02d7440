"""`python -m examples.benchmarks`: measure cases, and write their tables into a page."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline import config
from paceline.errors import UserError
from paceline.examples.benchmarks import page
from paceline.examples.benchmarks.cases import Case, benchmark, chosen
from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.harness import report
from paceline.examples.benchmarks.kept import Kept, KeptCase, now
from paceline.horovod.load import require
from paceline.launch import console
from paceline.launch.reports import Reports

if TYPE_CHECKING:
    from rich.table import Table

PROGRAM = ("python", "-m", "examples.benchmarks")
FOLDER = "bench-results"
QUICK = "quick"  # its subfolder for results not to rely on
LONGEST_S = 86400.0


@click.command(" ".join(PROGRAM), cls=Reports, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1, metavar="[NAME]... [SETTING=VALUE]...")
@click.option("--list", "listed", is_flag=True, help="List the cases and how long they take, and measure nothing.")
@click.option("--quick", is_flag=True, help="Few turns: to see that all of it runs. Kept apart from other results.")
@click.option(
    "--time-limit-s",
    type=click.FloatRange(0, LONGEST_S, min_open=True),
    help="Seconds of measuring for each table, at most. [default: what --list has for each case]",
)
@click.option("--turns", type=click.IntRange(1), help="Turns for each table, at most. [default: 200]")
@click.option("--resume", is_flag=True, help="Go on with the last run, if it was interrupted or cases of it failed.")
@click.option(
    "--measure/--no-measure", default=True, help="--no-measure: print, and write into the page, earlier results."
)
@click.option(
    "--results",
    "folder",
    type=click.Path(path_type=Path),
    default=FOLDER,
    show_default=True,
    help="Folder with a file for each case that was measured.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Page to write the tables into, between its markers, after every case: docs/measurements/benchmarks.md.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each table in place of tables.")
def main(
    words: tuple[str, ...],
    listed: bool,
    quick: bool,
    time_limit_s: float | None,
    turns: int | None,
    resume: bool,
    measure: bool,
    folder: Path,
    output: Path | None,
    as_json: bool,
) -> int:
    """Measure Paceline and its rivals in turn.

    NAME is a case, or a kind of case such as steps; without one all cases are measured, one after another. A SETTING
    replaces one of the case: `resnet20 hosts=2 systems=stock,ddp`; nothing is kept then. Cases that emulate hosts need
    root, and are left out without. A case that fails is named, and the others go on; the exit code is 1 then. The
    machine should have nothing else to do.
    """
    config.read()  # an unknown or invalid PACELINE_* variable is refused before anything is measured
    settings = [word for word in words if "=" in word]
    cases = [case.with_settings(settings) for case in chosen([word for word in words if "=" not in word])]
    if output is not None:
        page.check(output)
    if settings and (resume or output is not None or not measure):
        raise UserError("Results of changed settings are not kept.", "Leave out --resume, --output and --no-measure.")
    kept = Kept(folder / QUICK if quick else folder)
    run = _Run(kept, quick, time_limit_s, turns, output, as_json)
    if listed:
        console.out().print(run.table(cases))
        return 0
    if not measure:
        return run.show_kept(cases)
    able = run.able(cases)
    require("torch")
    if settings:
        return run.measure(able, begun=None)
    kept.open()
    begun = kept.unfinished() if resume else kept.begin()
    if begun is None:
        raise UserError(f"No run in {kept.folder} ended before its end.", "Leave out --resume to measure all cases.")
    try:
        return run.measure(able, begun)
    except KeyboardInterrupt:
        console.note(f"Interrupted. What was measured is in {kept.folder}; the same command with --resume goes on.")
        raise


@dataclass
class _Run:
    """The choices of the command line, and the results of the cases so far."""

    kept: Kept
    quick: bool
    limit_s: float | None
    turns: int | None
    output: Path | None
    as_json: bool
    failed: list[str] = field(default_factory=list)

    def table(self, cases: Sequence[Case]) -> Table:
        """Return a table of the cases: expected duration, and time of the last measurement."""
        from rich.table import Table

        total = sum(case.expected_s(self.quick, self.limit_s) for case in cases)
        table = Table(title=f"{len(cases)} cases, about {span(total)}", title_justify="left")
        table.add_column("case", no_wrap=True)
        table.add_column("measures")
        table.add_column("about", justify="right", no_wrap=True)
        table.add_column("root")
        table.add_column("measured", no_wrap=True)
        for case in cases:
            found = self.kept.find(case.name)
            when = "" if found is None else found.begun.partition("T")[0]
            about = span(case.expected_s(self.quick, self.limit_s))
            table.add_row(case.name, f"{case.kind}: {case.title}", about, "yes" if case.needs_root else "", when)
        return table

    def able(self, cases: Sequence[Case]) -> list[Case]:
        """Return the cases that can be measured here, and name the others. Raises UserError if none can."""
        refused: dict[str, UserError] = {}
        try:
            if any(case.needs_root for case in cases):
                tools.check()
        except UserError as error:
            refused = {case.name: error for case in cases if case.needs_root}
        for case in cases:
            if case.name not in refused and (found := benchmark(case.kind).missing(case.parsed())) is not None:
                refused[case.name] = found
        if len(refused) == len(cases):
            raise next(iter(refused.values()))
        texts = {name: f"{why.problem} {why.remedy}" for name, why in refused.items()}
        for text in dict.fromkeys(texts.values()):
            names = [name for name, of_name in texts.items() if of_name == text]
            console.note(f"Left out: {', '.join(names)}. {text}")
        return [case for case in cases if case.name not in refused]

    def measure(self, cases: Sequence[Case], begun: str | None) -> int:
        """Measure and keep the cases not measured since `begun`; without it, measure all and keep none."""
        start_s = time.monotonic()
        waiting = [case for case in cases if begun is None or not self._since(case, begun)]
        for number, case in enumerate(waiting, 1):
            left_s = sum(later.expected_s(self.quick, self.limit_s) for later in waiting[number - 1 :])
            console.note(f"[{number}/{len(waiting)}] {case.name}: {case.shown}; about {span(left_s)} left")
            try:
                found = self._measured(case)
            except UserError as error:
                if len(waiting) == 1:
                    raise
                console.show_error(error)
                self.failed.append(case.name)
                continue
            if begun is not None:
                self.kept.save(found)
                self._write(case)
        if len(waiting) > 1:
            took = span(time.monotonic() - start_s)
            console.note(f"{len(waiting) - len(self.failed)} of {len(waiting)} cases measured in {took}.")
        if self.failed:
            console.note(f"Failed: {', '.join(self.failed)}. The same command with --resume tries these again.")
            return 1
        if begun is not None:
            self.kept.end()
        return 0

    def _measured(self, case: Case) -> KeptCase:
        begun, start_s, about, results = now(), time.monotonic(), report.machine(), []
        limits, before = case.limits(self.quick, self.limit_s, self.turns), report.machine()
        with console.err().status("") as status:
            settings = case.parsed(self.quick)
            for measured in benchmark(case.kind).measure(settings, limits, status.update):
                results.append(report.as_json(measured, before))
                self._show(case, results[-1])
                before = report.machine()
        took_s = round(time.monotonic() - start_s, 1)
        return KeptCase(case.name, self._command(case), begun, took_s, self.quick, about, tuple(results))

    def _command(self, case: Case) -> str:
        words = [*PROGRAM, case.name, *case.changed, *(["--quick"] if self.quick else [])]
        words += [] if self.limit_s is None else ["--time-limit-s", f"{self.limit_s:g}"]
        words += [] if self.turns is None else ["--turns", str(self.turns)]
        return shlex.join(words)

    def show_kept(self, cases: Sequence[Case]) -> int:
        """Show the kept results of `cases`. Raises UserError if there are none."""
        found = [(case, kept) for case in cases if (kept := self.kept.find(case.name)) is not None]
        if not found:
            raise UserError(f"Nothing is kept of these cases in {self.kept.folder}.", "Leave out --no-measure.")
        for case, kept in found:
            for result in kept.results:
                self._show(case, result)
            self._write(case)
        return 0

    def _since(self, case: Case, begun: str) -> bool:
        found = self.kept.find(case.name)
        if found is None or found.begun < begun:
            return False
        self._write(case)
        return True

    def _show(self, case: Case, result: Mapping[str, Any]) -> None:
        if self.as_json:
            click.echo(json.dumps({"case": case.name, **result}))
        else:
            kind = benchmark(case.kind)
            console.out().print(report.as_table(dict(result), kind.rows, kind.columns))

    def _write(self, case: Case) -> None:
        found = self.kept.find(case.name)
        if self.output is not None and found is not None:
            page.write(self.output, case, found)


def span(seconds: float) -> str:
    """Return a time in readable form: "40 s", "3 min", "1 h 20 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
