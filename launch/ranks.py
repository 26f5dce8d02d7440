"""Programs of our own on several ranks under horovodrun, and their output."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Mapping, Sequence

from paceline.errors import UserError
from paceline.failure import reports
from paceline.launch import horovodrun
from paceline.launch.failures.output import Output
from paceline.launch.failures.verdict import Verdict
from paceline.launch.processes import call

_KEPT_LINES = 20  # of a failed program's output


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
    """Run Python with the arguments `words` on the ranks of `horovodrun_arguments`, as a user would, to its end.

    `on_line` gets every line as the rank wrote it. Raises UserError, with the rank that failed first, if the program
    fails, and if it has not ended after `limit_s` seconds.
    """
    command = [*horovodrun.words(), *horovodrun_arguments, sys.executable, *words]
    code, verdict = run(command, environ, limit_s, on_line)
    if code:
        problem, remedy = verdict.errors[0] if verdict.errors else (f"The ranks ended with exit code {code}.", "")
        raise UserError(problem, "\n".join([*verdict.lines, remedy]))


def run(
    command: Sequence[str], environ: Mapping[str, str], limit_s: float | None, on_line: Callable[[str], None]
) -> tuple[int, Verdict]:
    """Run a command of horovodrun to its end; return exit code and verdict. Raises UserError after `limit_s`."""
    last: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)

    def said(piece: str) -> None:
        last.append(horovodrun.MARKED.sub("", piece.rstrip("\r\n")))
        on_line(last[-1])

    output = Output(said, said)
    reporting = {**environ, reports.VARIABLE: reports.FAILURES}
    try:
        code = call(command, reporting, output.out, output.err, limit_s=limit_s)
    except UserError as error:
        raise UserError(error.problem, f"{error.remedy} The output of all ranks: {output.file()}") from None
    verdict = output.ended(code)
    verdict.lines = verdict.lines or list(last)
    return code, verdict
