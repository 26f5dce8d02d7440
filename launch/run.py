"""`paceline run`: horovodrun with Paceline's options as flags."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

import paceline
from paceline import config
from paceline.errors import UserError
from paceline.launch import console, flags, interrupts

# Flags of horovodrun that answer a question and start no rank.
ANSWERS = frozenset({"-v", "--version", "-cb", "--check-build"})
# How long a command that was asked to end may take before it is made to.
GRACE_S = 10.0
# How long a wait lasts before we look at what has happened in between.
SLICE_S = 0.2
# horovodrun marks every line with the rank that wrote it: [0]<stdout>: or, with MPI, [1,0]<stdout>:
_MARK = re.compile(r"^\[(?:\d+,)?\d+\]<std(?:out|err)>:")


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


def horovodrun() -> list[str]:
    """How to start horovodrun of this Python: the script beside it, or the module where there is no script.

    Raises UserError if Horovod is not installed.
    """
    if importlib.util.find_spec("horovod") is None:
        raise UserError(
            f"Horovod is not installed for {sys.executable}.", "Run `paceline host install`: it builds and installs it."
        )
    script = Path(sys.executable).with_name("horovodrun")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "horovod.runner.launch"]


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
        from paceline.fusion import policies, serialize

        environ |= flags.environment({"fusion": serialize.for_ranks(settings.fusion)})
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


def call(
    words: Sequence[str],
    environ: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
    limit_s: float | None = None,
) -> int:
    """Run a command to its end and return its exit code (128 + n where signal n ended it).

    `on_line` gets every line of its standard output and standard error, without the end of line; without it both go
    where ours go. When we are asked to end (Ctrl-C, a termination request, the end of the terminal) or `limit_s`
    seconds have passed, the command is asked to end, then after GRACE_S made to. Raises KeyboardInterrupt for the one,
    UserError for the other.
    """
    stream = None if on_line is None else subprocess.PIPE
    with interrupts.held():
        # A session of its own: Ctrl-C reaches us alone, and everyone in it can be ended.
        process = subprocess.Popen(
            words, env=dict(environ), stdout=stream, stderr=stream and subprocess.STDOUT, start_new_session=True
        )
        reader = None
        try:
            if on_line is not None:
                reader = threading.Thread(target=_read_lines, args=(process, on_line), daemon=True)
                reader.start()
            code = _wait(process, limit_s)
        finally:
            _end(process)
            if reader is not None:
                reader.join(GRACE_S)
        interrupts.check()
    return code if code >= 0 else 128 - code


def unmarked(line: str) -> str:
    """A line of horovodrun's output as the rank wrote it."""
    return _MARK.sub("", line)


def last_words(lines: Sequence[str], count: int) -> list[str]:
    """The last `count` lines of a failed run that a rank wrote; if none did, the last of all."""
    # horovodrun's own traceback comes last and says nothing; what the ranks said is marked.
    return ([line for line in lines if _MARK.match(line)] or list(lines))[-count:]


def _read_lines(process: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        on_line(line.decode(errors="replace").rstrip("\r\n"))


def _wait(process: subprocess.Popen[bytes], limit_s: float | None) -> int:
    """The exit code. Raises KeyboardInterrupt if we are asked to end, UserError after `limit_s`."""
    end_s = None if limit_s is None else time.monotonic() + limit_s
    while True:
        # In slices, because a signal between a look at what was noted and a blocking call would not end that call.
        left_s = SLICE_S if end_s is None else min(SLICE_S, end_s - time.monotonic())
        try:
            return process.wait(max(0.0, left_s))
        except subprocess.TimeoutExpired as error:
            interrupts.check()
            if left_s <= 0:
                raise UserError(
                    f"{shlex.join(error.cmd)} did not end within {limit_s:g} s and was stopped.",
                    "Look at the last lines above: a rank that waits names the tensor and the ranks it waits for.",
                ) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of `process` behind: ask it to end, then end what is left of its session.

    A second Ctrl-C cuts the time short that it may take.
    """
    if process.poll() is None:
        process.terminate()
        before, end_s = max(1, interrupts.count()), time.monotonic() + GRACE_S
        while process.poll() is None and interrupts.count() <= before and time.monotonic() < end_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SLICE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:  # it hangs in the system, in a disk that does not answer for example
        console.note(f"Process {process.pid} was killed and has not ended {GRACE_S:g} s later; it is left behind.")


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
