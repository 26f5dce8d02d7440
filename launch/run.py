"""`paceline run`: horovodrun with Paceline's options as flags, and an account of what failed first."""

from __future__ import annotations

import argparse
import collections
import functools
import re
import shlex
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from paceline import config
from paceline.errors import UserError
from paceline.launch import console, flags, interrupts
from paceline.launch.environment import announce, environment
from paceline.launch.passing import KEPT_LINES, Command
from paceline.launch.rank.verdict import Failure, judge
from paceline.launch.ranks import MARKED, horovodrun

_TRACEBACK = "Traceback (most recent call last):"
# Flags of horovodrun that answer a question and start no rank.
ANSWERS = frozenset({"-v", "--version", "-cb", "--check-build"})


class _ParserBuilt(Exception):
    """Carries Horovod's argument parser out of the function that builds it."""


@functools.cache
def horovodrun_flags() -> dict[str, int]:
    """For every flag of the installed horovodrun, how many values follow it.

    Horovod builds its parser and uses it in one function, so the parser is taken at the moment of use.
    Raises UserError if Horovod is not installed.
    """
    horovodrun()
    from horovod.runner import launch

    def take(self: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        raise _ParserBuilt(self)

    original = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = take  # type: ignore[method-assign]
    try:
        launch.parse_args()
    except _ParserBuilt as built:
        (parser,) = built.args
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]
    return {
        name: 1 if action.nargs is None else action.nargs
        for action in parser._actions
        for name in action.option_strings
        if action.nargs is None or isinstance(action.nargs, int)
    }


class HorovodrunCommand(click.Command):
    """A click command whose own flags may stand anywhere among horovodrun's, up to the command that the ranks run.

    The callback gets `horovodrun_arguments` and `command`, both tuples of words, beside its own parameters.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give our flags to click and keep the rest. Raises UserError for a flag that nobody knows."""
        ours = {
            name: 0 if isinstance(parameter, click.Option) and parameter.is_flag else 1
            for parameter in self.get_params(ctx)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        if args and args[0] in ("-h", "--help"):  # also where Horovod is missing
            return super().parse_args(ctx, args)
        parts = flags.split(args, ours, horovodrun_flags(), ctx.command_path)
        rest = super().parse_args(ctx, parts.ours)
        ctx.params["horovodrun_arguments"] = tuple(parts.theirs)
        ctx.params["command"] = tuple(parts.command)
        return rest

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The usage line with horovodrun's part in it."""
        formatter.write_usage(ctx.command_path, "[OPTIONS] [HOROVODRUN OPTIONS] COMMAND...")


def check_command(horovodrun_arguments: Sequence[str], command: Sequence[str]) -> None:
    """Raise UserError if there is nothing to run; horovodrun would print its whole environment instead."""
    if not command and not ANSWERS.intersection(horovodrun_arguments):
        raise UserError(
            "There is no command for the ranks to run.", "Put it last: `paceline run -np 2 python train.py`."
        )


class Account:
    """What horovodrun's output says of ranks that failed: read line by line, told at the end."""

    # horovodrun prints this when a rank's process has ended otherwise than well, in the order in which they do.
    _ENDED = re.compile(r"Process (\d+) exit with status code (\d+)\.")

    def __init__(self) -> None:
        self._lines: dict[int, collections.deque[str]] = {}
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """One line of output."""
        mark = MARKED.match(text)
        with self._lock:
            if mark:
                kept = self._lines.setdefault(int(mark["rank"]), collections.deque(maxlen=KEPT_LINES))
                kept.append(text[mark.end() :])
            elif ended := self._ENDED.match(text):
                self._codes.setdefault(int(ended[1]), int(ended[2]))

    def told(self) -> str:
        """Which rank failed first, with its last lines; "" if none is known to have failed."""
        with self._lock:
            failures = [
                Failure(rank, "", code, f"ended with exit code {code}", lines=tuple(self._lines.get(rank, ())))
                for rank, code in self._codes.items()
                if code
            ]
            # horovodrun ends the others when it has seen the first code, and says nothing of those that it ended.
            failures += [
                Failure(rank, "", 1, "raised an exception", lines=tuple(lines))
                for rank, lines in self._lines.items()
                if rank not in self._codes and _TRACEBACK in lines
            ]
        if not failures:
            return ""
        first = judge(failures)
        return "\n".join([first.problem, f"The last lines of rank {first.rank}:", *first.lines])


@flags.with_options("run")
@click.command("run", cls=HorovodrunCommand)
@click.option("--dry-run", is_flag=True, help="Print the variables and the command of horovodrun, and start nothing.")
def run_command(horovodrun_arguments: tuple[str, ...], command: tuple[str, ...], dry_run: bool, **values: Any) -> int:
    """Start a script on several ranks: `paceline run --fusion optimal -np 4 -H a:2,b:2 python train.py`.

    This is horovodrun with Paceline's options. They may stand anywhere before the command and become PACELINE_*
    variables of the ranks; all other options go to horovodrun unchanged (`horovodrun --help` lists them). The exit code
    is horovodrun's; when a rank fails, the one that failed first and its last lines come at the end.
    """
    check_command(horovodrun_arguments, command)
    given = flags.texts(values)
    settings = config.read(flags=given)
    environ = environment(settings, given)
    announce(settings)
    words = [*horovodrun(), *horovodrun_arguments, *command]
    if dry_run:
        told = {name: value for name, value in sorted(environ.items()) if name.startswith(config.PREFIX)}
        click.echo("\n".join([*(f"{name}={shlex.quote(value)}" for name, value in told.items()), shlex.join(words)]))
        return 0
    interrupts.check()
    account = Account()
    ended = Command(words, environ, account.line).wait(lambda: False)
    if ended.code and not ended.asked and (told_last := account.told()):
        console.note(told_last)
    return ended.code
