"""`paceline doctor`: checks and remedies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from paceline.launch import console
from paceline.launch.doctor import hosts, installed, limits, mistakes, network, trials
from paceline.launch.doctor.findings import Finding, Severity, worst

# In the order of display: checks that others depend on come first.
CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    installed.python,
    installed.frameworks,
    installed.tested,
    installed.horovod,
    mistakes.scheduler,
    mistakes.variables,
    mistakes.contradictions,
    network.all_interfaces,
    network.gloo,
    network.own_name,
    limits.open_files,
    limits.locked_memory,
    limits.shared_memory,
    limits.memory,
)
_SHOWN = {Severity.OK: "[green]ok[/]", Severity.WARNING: "[yellow]warning[/]", Severity.ERROR: "[red]error[/]"}


@click.command("doctor")
@click.option("-H", "--hosts", "host_list", default="", metavar="HOSTS", help="Also look between these, as a:2,b:2.")
@click.option("--runs/--no-runs", default=True, help="Try every exchange with 2 ranks (a minute).")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--options", "lists_options", is_flag=True, help="List all options and their values, and look no further."
)
@click.option(
    "--history",
    "history_folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Check the history of a training (PACELINE_HISTORY), and look no further. Exit code 1: violations.",
)
def doctor_command(host_list: str, runs: bool, as_json: bool, lists_options: bool, history_folder: Path | None) -> int:
    """Look for what keeps ranks from starting or from working well.

    What is not as it should be comes with its remedy. Exit code 0: all is well, 1: warnings, 3: errors.
    """
    if history_folder is not None:
        from paceline.launch.doctor import history

        return history.show(history_folder, as_json)
    if lists_options:
        from paceline.launch.doctor import options

        options.show()
        return 0
    findings = [finding for check in CHECKS for finding in check()]
    if host_list:
        findings += hosts.between(host_list)
    if runs and installed.is_usable() and worst(findings) is not Severity.ERROR:
        findings += trials.choices()
    elif runs:
        console.note("Nothing is tried with 2 ranks before the errors below are put right.")
    if as_json:
        click.echo(json.dumps([_plain(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    return int(worst(findings))


def _plain(finding: Finding) -> dict[str, str]:
    return {
        "what": finding.what,
        "severity": finding.severity.name.lower(),
        "found": finding.found,
        "remedy": finding.remedy,
    }


def _show(findings: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("", "what", "found"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        text = escape(finding.found) + (f"\n[yellow]{escape(finding.remedy)}[/]" if finding.remedy else "")
        table.add_row(_SHOWN[finding.severity], escape(finding.what), text)
    console.out().print(table)
    counts = [f"{name.name.lower()}s: {sum(one.severity is name for one in findings)}" for name in reversed(Severity)]
    console.out().print(", ".join(counts[:2]))
