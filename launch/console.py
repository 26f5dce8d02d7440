"""Console output of the command: one place for colours, widths and the form of an error.

rich is imported only when something is printed: `paceline --help` does not need it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

from paceline import renamed
from paceline.config import nearest
from paceline.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.launch.failures.verdict import Verdict

USER_ERROR = 2
PIPE_COLUMNS = 120  # without a terminal or COLUMNS rich assumes 80, too few for our tables


def _console(stream: TextIO) -> Console:
    from paceline.launch.layout import FittingConsole

    given = os.environ.get("COLUMNS", "")
    columns = int(given) if given.isdecimal() and int(given) else None
    return FittingConsole(file=stream, width=columns or (None if stream.isatty() else PIPE_COLUMNS), highlight=False)


def out() -> Console:
    """Console for results: the current standard output."""
    return _console(sys.stdout)


def err() -> Console:
    """Console for notes, progress and errors: the current standard error."""
    return _console(sys.stderr)


def note(text: str) -> None:
    """Print one line of progress on standard error."""
    err().print(text, style="cyan", markup=False, soft_wrap=True)


def show_error(error: UserError) -> None:
    """Print the problem and the remedy, a line each, on standard error."""
    console = err()
    console.print(f"Error: {error.problem}", style="bold red", markup=False, soft_wrap=True)
    console.print(error.remedy, style="yellow", markup=False, soft_wrap=True)


def show_verdict(verdict: Verdict) -> None:
    """Print why a run failed on standard error: lines of the rank that failed first, then the errors."""
    for text in verdict.lines:
        err().print(text, markup=False, soft_wrap=True)
    for problem, remedy in verdict.errors:
        show_error(UserError(problem, remedy))


def from_click(error: click.ClickException) -> UserError:
    """Convert click's exception to our form: the problem, and the nearest valid name or where to find it."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "paceline"
    if isinstance(error, click.NoSuchOption) and context:
        known = [name for parameter in context.command.get_params(context) for name in parameter.opts]
        known += [name for parameter in context.command.get_params(context) for name in parameter.secondary_opts]
        options = [name for name in known if name.startswith("-")]
        remedy = renamed.flag(error.option_name) or nearest(error.option_name, options)
        return UserError(f"{command} has no option {error.option_name}.", remedy)
    if isinstance(error, click.exceptions.NoSuchCommand) and context and isinstance(context.command, click.Group):
        known = context.command.list_commands(context)
        new = renamed.COMMANDS.get(f"{command} {error.command_name}")
        remedy = f"Use `{new}`." if new else nearest(error.command_name, known)
        return UserError(f"{command} has no command {error.command_name}.", remedy)
    help_command = f"`{command} --help`" if context else "The command with --help"
    return UserError(f"{command}: {error.format_message()}", f"{help_command} shows the correct use.")
