"""Ranks that horovodrun starts, and what they say."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paceline.errors import UserError
from paceline.launch import horovodrun
from paceline.launch.processes import call

# horovodrun marks every line with the rank that wrote it: [0]<stdout>: or, with MPI, [1,0]<stdout>:. A timestamp may
# come before it.
MARKED = re.compile(r"^[\w :]*\[(?:\d+,)?(?P<rank>\d+)\]<std(?:out|err)>:")
_KEPT_LINES = 30  # of a failed program's output


def run_python(
    words: Sequence[str],
    ranks: int,
    environ: Mapping[str, str],
    limit_s: float,
    on_line: Callable[[str], None],
) -> None:
    """Run Python with the arguments `words` on `ranks` ranks of this machine; see run_python_on."""
    run_python_on(["-np", str(ranks)], words, environ, limit_s, on_line)


def run_python_on(
    horovodrun_arguments: Sequence[str],
    words: Sequence[str],
    environ: Mapping[str, str],
    limit_s: float | None,
    on_line: Callable[[str], None],
) -> None:
    """Run Python with the arguments `words` where `horovodrun_arguments` say, as a user would, to its end.

    `on_line` gets every line as the rank wrote it. Raises UserError with the last lines of output when the program
    fails, or has not ended after `limit_s` seconds.
    """
    lines: list[str] = []

    def said(piece: str) -> None:
        lines.append(piece.rstrip("\r\n"))
        on_line(unmarked(lines[-1]))

    command = [*horovodrun.words(), *horovodrun_arguments, sys.executable, *words]
    try:
        code = call(command, environ, said, limit_s=limit_s)
    except UserError as error:
        raise UserError(error.problem, _end_of(lines)) from None
    if code:
        raise UserError(f"The ranks of {_program(words)} ended with exit code {code}.", _end_of(lines))


def _program(words: Sequence[str]) -> str:
    return words[1] if words[0] == "-m" else Path(words[0]).name


def _end_of(lines: Sequence[str]) -> str:
    return "\n".join(["The last lines of its output:", *last_words(lines, _KEPT_LINES)])


def unmarked(line: str) -> str:
    """A line of horovodrun's output as the rank wrote it."""
    return MARKED.sub("", line)


def last_words(lines: Sequence[str], count: int) -> list[str]:
    """The last `count` lines of a failed run that a rank wrote; if none did, the last of all."""
    # horovodrun's own traceback comes last and says nothing; what the ranks said is marked.
    return ([line for line in lines if MARKED.match(line)] or list(lines))[-count:]
