"""`paceline run`: horovodrun with Paceline's options as flags."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

import paceline
from paceline import config
from paceline.errors import UserError
from paceline.launch import console, flags, interrupts
from paceline.launch.ranks import horovodrun

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


def announce(settings: config.Settings) -> None:
    """One line on standard error: every option that a flag or a variable set, its value and who set it."""
    given = [f"{name}={config.as_text(getattr(settings, name))} ({settings.origin(name)})" for name in settings.given()]
    console.note(f"paceline {paceline.__version__}: {', '.join(given) or 'all options at their defaults'}")


def environment(settings: config.Settings, given: Mapping[str, str]) -> dict[str, str]:
    """This process's environment and the flags as variables; horovodrun forwards all of it to the ranks.

    A fusion policy that only this host may have goes by value. Raises UserError if it cannot be used or sent.
    """
    environ = {**os.environ, **flags.environment(given)}
    if "fusion" in settings.given():
        from paceline.fusion import policies, resolve

        environ |= flags.environment({"fusion": resolve.for_ranks(settings.fusion)})
        known = policies.known_names()
        if ":" not in settings.fusion and settings.fusion not in known:
            console.note(
                f"No fusion policy {settings.fusion} is known here. {config.nearest(settings.fusion, known)} "
                "It will do if the script registers it before hvd.init()."
            )
    return environ


def check_command(horovodrun_arguments: Sequence[str], command: Sequence[str]) -> None:
    """Raise UserError if there is nothing to run; horovodrun would print its whole environment instead."""
    if not command and not ANSWERS.intersection(horovodrun_arguments):
        raise UserError(
            "There is no command for the ranks to run.", "Put it last: `paceline run -np 2 python train.py`."
        )


@flags.with_options("run")
@click.command("run", cls=HorovodrunCommand)
def run_command(horovodrun_arguments: tuple[str, ...], command: tuple[str, ...], **values: Any) -> None:
    """Start a script on several ranks: `paceline run --fusion optimal -np 4 -H a:2,b:2 python train.py`.

    This is horovodrun with Paceline's options. They may stand anywhere before the command and become PACELINE_*
    variables of the ranks; all other options go to horovodrun unchanged (`horovodrun --help` lists them). The exit code
    is horovodrun's.
    """
    check_command(horovodrun_arguments, command)
    given = flags.texts(values)
    settings = config.read(flags=given)
    environ = environment(settings, given)
    announce(settings)
    program = horovodrun()
    sys.stdout.flush()
    sys.stderr.flush()
    interrupts.check()
    os.execve(program[0], [*program, *horovodrun_arguments, *command], environ)
