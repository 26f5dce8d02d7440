"""`paceline doctor --history`: check of what ranks have recorded about their gradients (docs/guides/history.md)."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from paceline.history.checks.checker import check
from paceline.history.checks.results import Check, Results
from paceline.launch import console

# Violations that are printed one by one.
MOST_SHOWN = 100


def show(folder: Path, as_json: bool = False) -> int:
    """Check the history in `folder` and print the result; return the exit code. Raises UserError without a history."""
    results = check(folder)
    seen = results[Check.ONCE].compared
    if as_json:
        click.echo(json.dumps(_plain(results), indent=2))
    else:
        _show(results)
        if not seen:
            console.note("No rank has applied a gradient: nothing is shown by this history.")
    return int(bool(results.violations) or not seen)


def _plain(results: Results) -> dict[str, object]:
    return {
        "checks": [
            {
                "check": kind.value,
                "compared": one.compared,
                "skipped": one.skipped,
                "violations": len(one.violations),
            }
            for kind, one in results.by_check.items()
        ],
        "lost": results.lost,
        "violations": [{**vars(one), "check": one.check.value} for one in results.violations],
    }


def _show(results: Results) -> None:
    table = Table(title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column, justify in (
        ("check", "left"),
        ("compared", "right"),
        ("not possible", "right"),
        ("violations", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for kind, one in results.by_check.items():
        bad = f"[red]{len(one.violations)}[/]" if one.violations else "0"
        table.add_row(kind.value, str(one.compared), str(one.skipped), bad)
    out = console.out()
    out.print(table)
    sums = results[Check.SUM]
    if sums.compared:
        out.print(f"Sums that would have shown any one missing gradient: {sums.sensitive} of {sums.compared}.")
    for reason, count in results.lost.items():
        out.print(f"Lost and reported ({reason}): {count} gradients.")
    violations = results.violations
    for violation in violations[:MOST_SHOWN]:
        out.print(str(violation), markup=False, soft_wrap=True)
    if len(violations) > MOST_SHOWN:
        out.print(f"and {len(violations) - MOST_SHOWN} more violations (--json lists all)")
