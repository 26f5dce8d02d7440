"""Horovod's own tests against the Horovod that is installed here.

    python -m integration_tests.upstream --tests DIR [--np 2] [--files test_torch.py,...] [--report FILE.json]

DIR is the folder test/ of a checkout of Horovod's repository at tag v0.28.1; it is not part of this repository, and
nothing is written to it. Exit status 1 if a file gives less than expectations.toml expects.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from integration_tests.support.packages import ROOT
from integration_tests.upstream import environment, expectations, runner
from integration_tests.upstream.expectations import AS_EXPECTED, BETTER, WORSE, Expectation, Verdict

COLOURS = {AS_EXPECTED: "green", BETTER: "cyan", WORSE: "bold red"}


def chosen(names: str | None, table: dict[str, Expectation], tests: Path) -> list[Expectation]:
    """The rows for `names` (paths below DIR, or file names alone), all rows for None. Refuses unknown names."""
    if names is None:
        rows = list(table.values())
    else:
        rows = []
        for name in filter(None, (part.strip() for part in names.split(","))):
            matches = [row for path, row in table.items() if name in (path, path.split("/")[-1])]
            if not matches:
                raise click.BadParameter(f"{name} has no row in {expectations.TABLE}", param_hint="--files")
            rows += matches
    for row in rows:
        if not (tests / row.path).is_file():
            raise click.BadParameter(
                f"{tests} has no {row.path}; it must be the folder test/ of Horovod at tag v0.28.1",
                param_hint="--tests",
            )
    return rows


def _span(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _line(row: Expectation, size: int, run: runner.Run, verdict: Verdict) -> list[str]:
    return [
        row.path,
        str(size) if row.folder == "parallel" else "own",
        _span([len(outcome.passed) for outcome in run.ranks]),
        _span([len(outcome.failed) for outcome in run.ranks]),
        _span([len(outcome.skipped) for outcome in run.ranks]),
        f"{run.seconds:.0f}",
        f"[{COLOURS[verdict.word]}]{verdict.word}[/]",
    ]


def _as_data(row: Expectation, size: int, run: runner.Run, verdict: Verdict) -> dict[str, Any]:
    ranks = [
        {**asdict(outcome), "passed": sorted(outcome.passed), "skipped": sorted(outcome.skipped)}
        for outcome in run.ranks
    ]
    return {
        "file": row.path,
        "size": size,
        "seconds": round(run.seconds, 1),
        "timed_out": run.timed_out,
        "verdict": verdict.word,
        "remarks": list(verdict.remarks),
        "ranks": ranks,
    }


@click.command(help=__doc__)
@click.option(
    "--tests", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path), required=True
)
@click.option(
    "--np", "size", type=click.IntRange(min=2), default=2, show_default=True, help="Ranks of the parallel files."
)
@click.option("--files", help="Only these, by name or path, separated by commas.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write every outcome to this file.")
def main(tests: Path, size: int, files: str | None, report: Path | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    rows = chosen(files, expectations.load_table(), tests)
    place = environment.ensure()
    columns = ("file", "ranks", "passed", "failed", "skipped", "seconds", "verdict")
    table = Table(*columns, title=f"Horovod's own tests, {size} ranks")
    data, worse = [], False
    for row in rows:
        console.print(f"{row.path} ...", markup=False)
        run = runner.run(row, tests, size, place, ROOT / ".upstream" / f"np{size}" / row.path)
        verdict = expectations.judge(row, run.ranks, run.timed_out)
        remarks = list(verdict.remarks)
        if row.folder == "parallel" and size not in row.ranks:
            remarks.append(f"the expectation is for {' or '.join(map(str, row.ranks))} ranks")
        if verdict.word == WORSE:
            worse = True
            remarks.append(f"all output: {run.log}")
        for remark in remarks:
            console.print(f"    {remark}", markup=False, soft_wrap=True)
        table.add_row(*_line(row, size, run, verdict))
        data.append(_as_data(row, size, run, verdict))
        if report:  # after every file: the whole takes half an hour
            report.write_text(json.dumps(data, indent=1))
    console.print(table)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
